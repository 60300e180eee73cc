include("${PROJECT_SOURCE_DIR}/cmake/Dawn.cmake")
find_path(LEEWAY_OPENCL_INCLUDE CL/cl.h REQUIRED DOC "The folder of the Khronos OpenCL headers (package opencl-c-headers)")
target_include_directories(leeway_device SYSTEM PRIVATE "${LEEWAY_OPENCL_INCLUDE}")
target_link_libraries(leeway_device PRIVATE leeway_webgpu_headers PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
target_compile_definitions(leeway_device PRIVATE LEEWAY_DAWN_LIBRARY_PATH="${LEEWAY_DAWN_LIBRARY_PATH}"
                                                 CL_TARGET_OPENCL_VERSION=300 CL_USE_DEPRECATED_OPENCL_1_2_APIS)
# The test compares our declarations of Dawn's structures with the library's own names.
add_library(leeway_device_test_needs INTERFACE)
target_link_libraries(leeway_device_test_needs INTERFACE leeway_webgpu_headers leeway_test_tools)
