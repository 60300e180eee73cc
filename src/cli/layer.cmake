# CLI11 and nlohmann-json are header-only packages of the distribution; stb as well.
add_executable(leeway src/cli/leeway_main.cc)
target_link_libraries(leeway PRIVATE leeway_cli)
set_target_properties(leeway PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
install(TARGETS leeway RUNTIME)

# `leeway pull` runs the script that knows the packages: the installed copy, or the one in the source tree.
target_compile_definitions(leeway_cli PRIVATE LEEWAY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
include(GNUInstallDirs)
install(FILES tools/fetch_models.py DESTINATION "${CMAKE_INSTALL_DATADIR}/leeway")
if(LEEWAY_TESTS)
  add_test(NAME cli.PullNamesTheModelsThatItKnows COMMAND leeway pull nothing --into "${PROJECT_BINARY_DIR}/pulled")
  set_tests_properties(cli.PullNamesTheModelsThatItKnows
                       PROPERTIES PASS_REGULAR_EXPRESSION "there is no model nothing; the language models are gemma3-270m, smollm2-135m")
endif()
