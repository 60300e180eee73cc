# The FlatBuffers schemas become a header of accessors and a header that holds the schema itself, for reading options by name.
find_program(FLATC flatc REQUIRED)
set(schema_dir "${PROJECT_BINARY_DIR}/generated/import/tflite")
foreach(schema tflite tflite_metadata)
  set(fbs "${PROJECT_SOURCE_DIR}/src/import/tflite/${schema}.fbs")
  add_custom_command(
    OUTPUT "${schema_dir}/${schema}_generated.h" "${schema_dir}/${schema}_bfbs_generated.h"
    COMMAND "${FLATC}" --cpp --scoped-enums --bfbs-gen-embed -o "${schema_dir}" "${fbs}"
    DEPENDS "${fbs}"
    COMMENT "flatc ${schema}.fbs")
  list(APPEND schema_headers "${schema_dir}/${schema}_generated.h" "${schema_dir}/${schema}_bfbs_generated.h")
endforeach()
add_custom_target(leeway_import_schemas DEPENDS ${schema_headers})
add_dependencies(leeway_import leeway_import_schemas)

# The fuzzers of the readers. In the tests they are programs of their own that run for some seconds; with LEEWAY_FUZZERS (clang)
# they are libFuzzer's, see tools/fuzz_files.sh.
option(LEEWAY_FUZZERS "Build the fuzzers with libFuzzer (clang only)" OFF)
if(LEEWAY_TESTS OR LEEWAY_FUZZERS)
  foreach(format tflite gguf safetensors)
    add_executable(${format}_fuzz src/import/${format}/${format}_fuzz.cc)
    target_link_libraries(${format}_fuzz PRIVATE leeway_import)
    if(LEEWAY_FUZZERS)
      target_compile_definitions(${format}_fuzz PRIVATE LEEWAY_LIBFUZZER)
      target_link_options(${format}_fuzz PRIVATE -fsanitize=fuzzer)
    endif()
  endforeach()
  if(NOT LEEWAY_FUZZERS)
    add_test(NAME import.tflite_fuzz COMMAND tflite_fuzz --seconds=20 "${PROJECT_SOURCE_DIR}/tests/goldens/tflite-ops")
    add_test(NAME import.gguf_fuzz COMMAND gguf_fuzz --runs=10000)
    add_test(NAME import.safetensors_fuzz COMMAND safetensors_fuzz --runs=10000)
  endif()
endif()
