# Tools for tests of this layer and those above it: printed texts looked at by other compilers, MSL run on the CPU.
if(LEEWAY_TESTS)
  add_library(leeway_test_tools STATIC "${PROJECT_SOURCE_DIR}/tests/check_text.cc" "${PROJECT_SOURCE_DIR}/tests/kernel_corpus.cc"
                                       "${PROJECT_SOURCE_DIR}/tests/metal/msl_cpu.cc")
  target_include_directories(leeway_test_tools PUBLIC "${PROJECT_SOURCE_DIR}/tests")
  target_compile_definitions(leeway_test_tools PRIVATE LEEWAY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(leeway_test_tools PUBLIC leeway_shader GTest::gtest ${CMAKE_DL_LIBS})
  target_link_options(leeway_test_tools INTERFACE -rdynamic)  # compiled MSL calls back into the runner
  add_library(leeway_shader_test_needs INTERFACE)
  target_link_libraries(leeway_shader_test_needs INTERFACE leeway_test_tools)
endif()
