# The table of all operators, made from the files: a line that begins with `extern const OpDef op_NAME` is an operator.
set(op_table "${PROJECT_BINARY_DIR}/generated/ops/op_table.cc")
file(GLOB op_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/ops/*.cc")
list(FILTER op_sources EXCLUDE REGEX "(_test|_fuzz|_main)\\.cc$")
add_custom_command(
  OUTPUT "${op_table}.stamp"
  BYPRODUCTS "${op_table}"
  COMMAND ${CMAKE_COMMAND} "-DTABLE=${op_table}" "-DFOLDER=${PROJECT_SOURCE_DIR}/src/ops" -P "${PROJECT_SOURCE_DIR}/src/ops/op_table.cmake"
  COMMAND ${CMAKE_COMMAND} -E touch "${op_table}.stamp"
  DEPENDS ${op_sources} "${PROJECT_SOURCE_DIR}/src/ops/op_table.cmake"
  COMMENT "Collecting the operators")
add_custom_target(leeway_op_table DEPENDS "${op_table}.stamp")
set_source_files_properties("${op_table}" PROPERTIES GENERATED TRUE)
target_sources(leeway_ops PRIVATE "${op_table}")
add_dependencies(leeway_ops leeway_op_table)
# The tests show the kernels' texts to other compilers.
if(LEEWAY_TESTS)
  add_library(leeway_ops_test_needs INTERFACE)
  target_link_libraries(leeway_ops_test_needs INTERFACE leeway_test_tools)
  # kernel_text_test: the operator tables (as objects of ops_test) printed as MSL and run on the CPU.
  add_executable(kernel_text_test src/ops/kernel_text_main.cc $<TARGET_OBJECTS:ops_test>)
  target_link_libraries(kernel_text_test PRIVATE leeway_ops leeway_ops_test_needs GTest::gtest)
  target_compile_definitions(kernel_text_test PRIVATE LEEWAY_SOURCE_DIR="${PROJECT_SOURCE_DIR}" LEEWAY_BINARY_DIR="${PROJECT_BINARY_DIR}")
  add_test(NAME ops.kernel_texts COMMAND kernel_text_test)
  set_tests_properties(ops.kernel_texts PROPERTIES TIMEOUT 1800)
endif()
