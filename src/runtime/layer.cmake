# kernel_device_test: the operator tables of src/ops once more, on the devices of this machine.
if(LEEWAY_TESTS)
  file(GLOB op_tables CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/ops/*_test.cc")
  add_executable(kernel_device_test src/runtime/kernel_device_main.cc src/ops/op_test_plan.cc ${op_tables})
  target_link_libraries(kernel_device_test PRIVATE leeway_runtime GTest::gtest)
  target_compile_definitions(kernel_device_test PRIVATE LEEWAY_SOURCE_DIR="${PROJECT_SOURCE_DIR}" LEEWAY_BINARY_DIR="${PROJECT_BINARY_DIR}")
  add_test(NAME runtime.kernels_on_devices COMMAND kernel_device_test)
  set_tests_properties(runtime.kernels_on_devices PROPERTIES TIMEOUT 1800)
endif()

# Tests write small .tflite files with the importer's writer.
add_library(leeway_runtime_test_needs INTERFACE)
target_sources(leeway_runtime_test_needs INTERFACE "${PROJECT_SOURCE_DIR}/src/import/tflite/test_models_test.cc")
