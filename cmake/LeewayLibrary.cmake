# The installed library: all layers in one file, the public headers, and a package for find_package(Leeway).
#
#   cmake --install build --prefix DIR
#   find_package(Leeway REQUIRED)                      # with CMAKE_PREFIX_PATH=DIR
#   target_link_libraries(app PRIVATE Leeway::leeway)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(leeway_library)  # static, or shared with -DBUILD_SHARED_LIBS=ON
set_target_properties(leeway_library PROPERTIES OUTPUT_NAME leeway EXPORT_NAME leeway VERSION ${PROJECT_VERSION}
                                                SOVERSION ${PROJECT_VERSION_MAJOR})
add_library(Leeway::leeway ALIAS leeway_library)
foreach(layer base tensor shader graph ops device import runtime llm)
  target_sources(leeway_library PRIVATE $<TARGET_OBJECTS:leeway_${layer}>)
  add_dependencies(leeway_library leeway_${layer})
endforeach()
target_include_directories(leeway_library INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(leeway_library INTERFACE cxx_std_20)
target_link_libraries(leeway_library PRIVATE Threads::Threads ZLIB::ZLIB utf8proc ${CMAKE_DL_LIBS})

install(TARGETS leeway_library EXPORT LeewayTargets)
install(DIRECTORY include/leeway DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT LeewayTargets NAMESPACE Leeway:: DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/Leeway")
configure_package_config_file(cmake/LeewayConfig.cmake.in "${PROJECT_BINARY_DIR}/LeewayConfig.cmake"
                              INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/Leeway")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/LeewayConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/LeewayConfig.cmake" "${PROJECT_BINARY_DIR}/LeewayConfigVersion.cmake"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/Leeway")

# The example is built against an installed copy, outside the tree, and run.
if(LEEWAY_TESTS)
  add_test(NAME install.ExampleBuildsOutsideTheTree
           COMMAND ${CMAKE_COMMAND} -DBUILD=${PROJECT_BINARY_DIR} -DSOURCE=${PROJECT_SOURCE_DIR} -DGENERATOR=${CMAKE_GENERATOR}
                   -DSANITIZE=${LEEWAY_SANITIZE} -P ${PROJECT_SOURCE_DIR}/cmake/TestInstall.cmake)
  set_tests_properties(install.ExampleBuildsOutsideTheTree PROPERTIES TIMEOUT 300)
endif()
