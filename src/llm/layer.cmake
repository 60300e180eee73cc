# utf8proc has no CMake package in the distribution; the linker knows it by name, and so does what links the installed library.
find_library(LEEWAY_UTF8PROC utf8proc REQUIRED DOC "The Unicode library (package libutf8proc-dev)")
target_link_libraries(leeway_llm PUBLIC utf8proc)
