# Libraries that are not the point of the product; docs/dependencies.md says why each is here. All come from the
# distribution's packages (tools/setup.sh installs them).
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
if(LEEWAY_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
endif()
