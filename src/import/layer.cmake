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
