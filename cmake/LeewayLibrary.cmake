# The faces: the command. (The installed library is added with the public headers.)
