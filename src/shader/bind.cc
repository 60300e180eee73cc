#include "base/strings.h"
#include "shader/check.h"
#include "shader/lexer.h"
#include "shader/prelude.h"
#include "shader/quantized.h"
#include "shader/value_map.h"

namespace leeway::shader {

namespace {

Result<BoundKernel> BindExpanded(const Module& module, const Specialization& specialization,
                                 const std::map<std::string, VirtualTensor>& tensors, const Target& target) {
  Checker checker(module, target, &tensors);
  if (!checker.DeclareNames() || !checker.BindConsts(specialization.consts) || !checker.CheckKernel()) return checker.error();
  BoundKernel kernel;
  kernel.module = checker.TakeModule();
  kernel.tensors = WithoutQuantized(tensors);
  for (int i = 0; i < 3; ++i) kernel.workgroup_size[i] = checker.workgroup_size()[i];
  kernel.uses_subgroups = checker.uses_subgroups();
  kernel.uses_barriers = checker.uses_barriers();
  kernel.uses_f16 = checker.uses_f16();
  uint64_t bytes = 0;
  const VarDecl* largest = nullptr;
  uint32_t largest_bytes = 0;
  for (const VarDecl& var : kernel.module.vars) {
    if (var.space != "workgroup") continue;
    uint32_t size = LayoutOf(var.type, kernel.module).size;
    bytes += (size + 15) / 16 * 16;  // each variable may be aligned to 16 bytes
    if (size > largest_bytes) {
      largest = &var;
      largest_bytes = size;
    }
  }
  if (bytes > target.max_workgroup_bytes) {
    return KernelError(module.name, largest->at,
                       StrCat("the kernel has ", bytes, " bytes of workgroup memory (", largest->name, " alone ", largest_bytes,
                              "), the target takes ", target.max_workgroup_bytes));
  }
  kernel.workgroup_bytes = uint32_t(bytes);
  // Without barriers and subgroup functions nothing depends on uniform control flow.
  if (kernel.uses_barriers || kernel.uses_subgroups) RETURN_IF_ERROR(CheckUniformity(kernel.module));
  return kernel;
}

}  // namespace

Result<BoundKernel> Bind(const Module& module, const Specialization& specialization, const Target& target) {
  if (!AnyQuantized(specialization.tensors)) return BindExpanded(module, specialization, specialization.tensors, target);
  ASSIGN_OR_RETURN(const Expanded expanded, ExpandQuantized(module, specialization.tensors));
  return BindExpanded(expanded.module, specialization, expanded.tensors, target);
}

Scalar ValueScalar(DType dtype) {
  if (dtype == DType::kBool) return Scalar::kBool;
  if (IsFloat(dtype)) return Scalar::kF32;
  return IsSignedInt(dtype) ? Scalar::kI32 : Scalar::kU32;
}

Result<Module> InstantiateValueMap(const ValueMap& map, bool is_vector, std::string_view function_name, const Target& target,
                                   std::string_view kernel) {
  std::string name = StrCat(kernel, " value map");
  ASSIGN_OR_RETURN(Module source, Parse(map.text, name));
  Type scalar = Type::Of(ValueScalar(map.value));
  std::map<std::string, ConstValue> bound;
  for (const auto& [const_name, value] : map.consts) {
    bool is_declared = false;
    for (const ConstDecl& c : source.consts) is_declared |= c.name == const_name;
    if (!is_declared) {
      ConstDecl decl;
      decl.name = const_name;
      decl.type = scalar.scalar == Scalar::kBool ? Type::Of(Scalar::kF32) : scalar;
      decl.at = {1, 1};
      source.consts.push_back(std::move(decl));
    }
    bound.emplace(const_name, ConstValue(value));
  }
  auto of = [is_vector](Scalar s) { return is_vector ? Type::Vector(s, 4) : Type::Of(s); };
  Type value = of(ValueScalar(map.value)), result = of(ValueScalar(map.result));
  static const std::map<std::string, VirtualTensor> no_tensors;
  Checker checker(source, target, &no_tensors);
  std::vector<Type> parameters(1 + map.operands.size(), value);
  std::vector<std::pair<std::string, Type>> types = {{"V", value},
                                                     {"R", result},
                                                     {"F", of(Scalar::kF32)},
                                                     {"I", of(Scalar::kI32)},
                                                     {"U", of(Scalar::kU32)},
                                                     {"B", of(Scalar::kBool)}};
  if (!checker.DeclareNames() || !checker.BindConsts(bound) ||
      !checker.CheckValueMap("apply", function_name, std::move(types), parameters, result)) {
    return checker.error();
  }
  return checker.TakeModule();
}

void MergeModule(Module& into, Module from) {
  auto add = [](auto& to, auto& all) {
    for (auto& one : all) {
      bool is_there = false;
      for (const auto& other : to) is_there |= other.name == one.name;
      if (!is_there) to.push_back(std::move(one));
    }
  };
  add(into.consts, from.consts);
  add(into.structs, from.structs);
  add(into.vars, from.vars);
  // `from` needs nothing but itself, so with all of it in front callees still come first.
  std::swap(into.functions, from.functions);
  add(into.functions, from.functions);
}

}  // namespace leeway::shader
