# CLI11 and nlohmann-json are header-only packages of the distribution; stb as well.
add_executable(leeway src/cli/leeway_main.cc)
target_link_libraries(leeway PRIVATE leeway_cli)
set_target_properties(leeway PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
install(TARGETS leeway RUNTIME)
