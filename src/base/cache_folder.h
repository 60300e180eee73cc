// Where a user's programs keep what they can make again.
#pragma once

#include <string>

namespace leeway {

// $XDG_CACHE_HOME/leeway or ~/.cache/leeway; empty where neither variable is set. It need not exist yet.
std::string UserCacheFolder();

}  // namespace leeway
