// Printed kernels, looked at by compilers that are not ours: glslangValidator for GLSL ES, clang for OpenCL C, clang with our
// metal_stdlib for MSL. (WGSL is checked where a WebGPU implementation is at hand, in the tests of the device layer.)
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "shader/compile.h"

namespace leeway::shader {

// An error with kNotFound where the language has no checker on this machine: a reason to skip, unless CheckersRequired().
Status CanCheck(Language language);
// LEEWAY_REQUIRE_CHECKERS=1 in the environment (as in CI): a missing checker is then a failure.
bool CheckersRequired();

// All texts have to be of one language. Few processes for many texts; an error holds the messages about all that are wrong,
// each with the name and the text of its kernel.
Status CheckTexts(std::span<const KernelText> texts);

}  // namespace leeway::shader

// In a test: skips it, or fails it where checkers are required, when `language` cannot be checked.
#define LEEWAY_NEED_CHECKER(language)                                            \
  do {                                                                           \
    if (auto can = ::leeway::shader::CanCheck(language); !can.ok()) {            \
      ASSERT_FALSE(::leeway::shader::CheckersRequired()) << can.error().message; \
      GTEST_SKIP() << can.error().message;                                       \
    }                                                                            \
  } while (false)
