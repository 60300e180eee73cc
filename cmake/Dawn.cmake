# WebGPU: the target `leeway_webgpu_headers` (webgpu/webgpu.h) and LEEWAY_DAWN_LIBRARY_PATH, the library that is opened at run
# time when neither the environment nor the folder of the program has one. Nothing is linked.
#
#   -DDAWN_ROOT=DIR   your own Dawn: include/webgpu/webgpu.h, and lib/ or bin/ with the shared library
#   otherwise         two pinned wheels from the Python package index, unpacked into LEEWAY_CACHE_DIR/dawn
#
# The header is the standard part of webgpu.h, the same in every implementation; what Dawn adds to it and we use is declared in
# src/device/webgpu/dawn_extensions.h and checked at run time.

set(DAWN_ROOT "" CACHE PATH "A folder with your own Dawn: include/webgpu/webgpu.h, and lib/ with the shared library")
set(LEEWAY_CACHE_DIR "${PROJECT_SOURCE_DIR}/.cache" CACHE PATH "Where fetched packages are kept, shared by all build folders")
add_library(leeway_webgpu_headers INTERFACE)

if(DAWN_ROOT)
  find_path(DAWN_INCLUDE webgpu/webgpu.h PATHS "${DAWN_ROOT}/include" NO_DEFAULT_PATH REQUIRED)
  find_library(DAWN_LIBRARY NAMES webgpu_dawn PATHS "${DAWN_ROOT}/lib" "${DAWN_ROOT}/bin" NO_DEFAULT_PATH REQUIRED)
  target_include_directories(leeway_webgpu_headers SYSTEM INTERFACE "${DAWN_INCLUDE}")
  set(LEEWAY_DAWN_LIBRARY_PATH "${DAWN_LIBRARY}")
  return()
endif()

set(dawn_dir "${LEEWAY_CACHE_DIR}/dawn")
set(dawn_stamp "${dawn_dir}/rillfacet-0.1.3+wgpu-0.32.0")
file(MAKE_DIRECTORY "${dawn_dir}")
file(LOCK "${dawn_dir}/lock" GUARD FILE TIMEOUT 300)
if(NOT EXISTS "${dawn_stamp}")
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  message(STATUS "Fetching Dawn and webgpu.h (14 MB) with pip")
  if(APPLE)
    set(library_platform macosx_12_0_arm64)
  elseif(WIN32)
    set(library_platform win_amd64)
  else()
    set(library_platform manylinux_2_28_x86_64)
  endif()
  file(REMOVE_RECURSE "${dawn_dir}/download" "${dawn_dir}/wheel" "${dawn_dir}/include")
  file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/dawn-requirements.txt" requirement_lines)
  # One wheel at a time: they are for different platforms. The host's own Python version does not matter.
  foreach(package rillfacet wgpu)
    set(requirement "")
    set(in_package FALSE)
    foreach(line IN LISTS requirement_lines)
      if(line MATCHES "^[a-z]")
        string(FIND "${line}" "${package}==" at)
        if(at EQUAL 0)
          set(in_package TRUE)
        else()
          set(in_package FALSE)
        endif()
      endif()
      if(in_package)
        string(APPEND requirement "${line}\n")
      endif()
    endforeach()
    file(WRITE "${dawn_dir}/download/${package}.txt" "${requirement}")
    set(platform ${library_platform})
    if(package STREQUAL "wgpu")
      set(platform manylinux_2_28_x86_64)
    endif()
    execute_process(
      COMMAND "${Python3_EXECUTABLE}" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all:
              --require-hashes --platform ${platform} --implementation cp --python-version 311 --abi cp311
              -r "${dawn_dir}/download/${package}.txt" -d "${dawn_dir}/download"
      RESULT_VARIABLE failed ERROR_VARIABLE pip_error)
    if(failed)
      message(FATAL_ERROR "pip cannot fetch ${package}: ${pip_error}\n"
                          "Install python3-pip and check the network, or give your own Dawn with -DDAWN_ROOT=DIR.")
    endif()
  endforeach()
  file(GLOB library_wheel "${dawn_dir}/download/rillfacet-*.whl")
  file(GLOB header_wheel "${dawn_dir}/download/wgpu-*.whl")
  set(wanted "*webgpu_dawn*" "*licenses*")  # a pattern that matches nothing is an error
  if(WIN32)
    list(APPEND wanted "*d3dcompiler*")
  endif()
  file(ARCHIVE_EXTRACT INPUT "${library_wheel}" DESTINATION "${dawn_dir}/wheel" PATTERNS ${wanted})
  file(ARCHIVE_EXTRACT INPUT "${header_wheel}" DESTINATION "${dawn_dir}/wheel" PATTERNS "*resources/webgpu.h" "*licenses*")
  file(COPY "${dawn_dir}/wheel/wgpu/resources/webgpu.h" DESTINATION "${dawn_dir}/include/webgpu")
  file(REMOVE_RECURSE "${dawn_dir}/download")
  file(TOUCH "${dawn_stamp}")
endif()
file(GLOB LEEWAY_DAWN_LIBRARY_PATH "${dawn_dir}/wheel/rillfacet/*webgpu_dawn*")
target_include_directories(leeway_webgpu_headers SYSTEM INTERFACE "${dawn_dir}/include")
