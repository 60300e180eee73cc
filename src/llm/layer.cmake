# utf8proc has no CMake package in the distribution; the linker knows it by name, and so does what links the installed library.
find_library(LEEWAY_UTF8PROC utf8proc REQUIRED DOC "The Unicode library (package libutf8proc-dev)")
target_link_libraries(leeway_llm PUBLIC utf8proc)

# The fuzzers of what texts in files may do; as those of src/import.
if(LEEWAY_TESTS OR LEEWAY_FUZZERS)
  foreach(format chat_template tokenizer_json)
    add_executable(${format}_fuzz src/llm/${format}_fuzz.cc)
    target_link_libraries(${format}_fuzz PRIVATE leeway_llm)
    if(LEEWAY_FUZZERS)
      target_compile_definitions(${format}_fuzz PRIVATE LEEWAY_LIBFUZZER)
      target_link_options(${format}_fuzz PRIVATE -fsanitize=fuzzer)
    else()
      add_test(NAME llm.${format}_fuzz COMMAND ${format}_fuzz --seconds=10)
    endif()
  endforeach()
endif()
