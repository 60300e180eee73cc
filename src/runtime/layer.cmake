# kernel_device_test: the operator tables of src/ops once more, on the devices of this machine. Their objects are those of
# ops_test; the program sets another runner.
if(LEEWAY_TESTS)
  add_executable(kernel_device_test src/runtime/kernel_device_main.cc $<TARGET_OBJECTS:ops_test>)
  target_link_libraries(kernel_device_test PRIVATE leeway_runtime leeway_ops_test_needs GTest::gtest)
  # In shares, so that all cores have something to do: the software devices compile for minutes.
  foreach(share RANGE 7)
    add_test(NAME runtime.kernels_on_devices_${share} COMMAND kernel_device_test)
    set_tests_properties(runtime.kernels_on_devices_${share} PROPERTIES
      TIMEOUT 1800 ENVIRONMENT "GTEST_TOTAL_SHARDS=8;GTEST_SHARD_INDEX=${share}")
  endforeach()
endif()

# Tests write small .tflite files with the importer's writer.
add_library(leeway_runtime_test_needs INTERFACE)
target_sources(leeway_runtime_test_needs INTERFACE "${PROJECT_SOURCE_DIR}/src/import/tflite/test_models_test.cc")
