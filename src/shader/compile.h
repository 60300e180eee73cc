// The kernel compiler: text to tree, tree to a bound kernel, bound kernel to a lowered one, lowered kernel to target text.
//
//   Parse         lexer and parser; positions kept                                        parser.cc
//   Bind          constants bound, dead branches resolved, types and uniformity checked   bind.cc, check.cc
//   Lower         virtual tensors become bindings and addresses; polyfills; simplified    lower.cc, splice.cc, simplify.cc
//   Print         the text of a target                                                    print_*.cc
//
// Errors read `softmax.kernel:12:9: load4 takes 2 coordinates of [row, column], got 3`.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "shader/ast.h"
#include "shader/target.h"
#include "tensor/virtual_tensor.h"

namespace leeway::shader {

// Syntax only: declarations and functions as written. The prelude (prelude.cc) is appended by Bind, by use.
Result<Module> Parse(std::string_view text, std::string_view name);
// The kernel text of a tree; Parse(Format(m)) gives the same tree. Checked trees print too, their literals with suffixes.
std::string Format(const Module& module);
std::string Format(const Function& function);
std::string Format(const Expr& expr);
std::string Format(const Stmt& stmt);

// A constant: one number (bool as 0 or 1) or an array of them.
struct ConstValue {
  std::vector<double> values;
  bool is_array = false;
  ConstValue() = default;
  ConstValue(double v) : values{v} {}
  ConstValue(std::vector<double> v) : values(std::move(v)), is_array(true) {}
};

// What a kernel is specialized for.
struct Specialization {
  std::map<std::string, ConstValue> consts;      // every unbound `const`; `tune`s may be left at their default
  std::map<std::string, VirtualTensor> tensors;  // every declared tensor
  // Known names that every kernel may test without declaring: subgroup_size (0: none that is certain), has_f16,
  // is_software, filled from the target.
};

// A checked kernel, still in terms of tensors: what the interpreter runs as the definition.
struct BoundKernel {
  Module module;  // typed; constants are literals, dead branches gone
  std::map<std::string, VirtualTensor> tensors;
  uint32_t workgroup_size[3] = {1, 1, 1};
  uint32_t workgroup_bytes = 0;  // workgroup memory
  bool uses_subgroups = false, uses_barriers = false, uses_f16 = false;
};
Result<BoundKernel> Bind(const Module& module, const Specialization& specialization, const Target& target);

// One resource of a lowered kernel.
struct BindingInfo {
  enum class Kind : uint8_t { kBuffer, kSampledTexture, kStorageTexture, kParams, kScratch };
  std::string name;  // in the text
  Kind kind = Kind::kBuffer;
  Access access = Access::kRead;
  // Which placed tensor and which part of it: "x", "x#1" for its second value-map operand ("x#1#0" for an operand of that).
  std::string tensor;
  int part = 0;
  Type type;                   // array<...> or texture
  uint64_t scratch_bytes = 0;  // kScratch
};

struct ParamField {
  std::string name;
  Type type;
  uint32_t offset_bytes = 0;
};

// A kernel in terms of bindings: plain WGSL constructs over storage buffers and textures. What the printers take; the
// interpreter runs it too, to show that lowering kept the meaning.
struct LoweredKernel {
  Module module;
  std::vector<BindingInfo> bindings;  // number = index, in one group
  std::vector<ParamField> params;
  uint32_t params_bytes = 0;
  uint32_t workgroup_size[3] = {1, 1, 1};
  uint32_t workgroup_bytes = 0;
  bool uses_subgroups = false, uses_f16 = false, uses_packed_dot = false, uses_barriers = false;
};
Result<LoweredKernel> Lower(const BoundKernel& kernel, const Target& target);

// What a device gets.
struct KernelText {
  std::string name;
  Language language = Language::kWgsl;
  std::string text;
  std::string entry_point;
  std::vector<BindingInfo> bindings;
  std::vector<ParamField> params;
  uint32_t params_bytes = 0;
  uint32_t workgroup_size[3] = {1, 1, 1};
  uint32_t workgroup_bytes = 0;
  bool uses_f16 = false, uses_subgroups = false;
};
struct PrintOptions {
  // Lines of the kernel text in the printed one (#line, in WGSL comments), so that a driver's message leads to the kernel.
  bool line_numbers = false;
};
Result<KernelText> Print(const LoweredKernel& kernel, const Target& target, const PrintOptions& options = {});

// All four steps.
Result<KernelText> Compile(const Module& module, const Specialization& specialization, const Target& target);

}  // namespace leeway::shader
