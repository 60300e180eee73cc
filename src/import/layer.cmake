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

# The fuzzer of the reader. In the tests a program of its own runs for some seconds; with LEEWAY_FUZZERS (clang) it is libFuzzer's, see
# tools/fuzz_tflite.sh.
option(LEEWAY_FUZZERS "Build the fuzzers with libFuzzer (clang only)" OFF)
if(LEEWAY_TESTS OR LEEWAY_FUZZERS)
  add_executable(tflite_fuzz src/import/tflite/tflite_fuzz.cc)
  target_link_libraries(tflite_fuzz PRIVATE leeway_import)
  if(LEEWAY_FUZZERS)
    target_compile_definitions(tflite_fuzz PRIVATE LEEWAY_LIBFUZZER)
    target_link_options(tflite_fuzz PRIVATE -fsanitize=fuzzer)
  else()
    add_test(NAME import.tflite_fuzz COMMAND tflite_fuzz --seconds=20 "${PROJECT_SOURCE_DIR}/tests/goldens/tflite-ops")
  endif()
endif()
