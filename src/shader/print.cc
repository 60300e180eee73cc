#include "shader/printer.h"

namespace leeway::shader {

Result<KernelText> Print(const LoweredKernel& kernel, const Target& target, const PrintOptions& options) {
  if (kernel.uses_f16 && !target.f16) {
    return Error{Code::kUnsupported, StrCat("The kernel ", kernel.module.name, " uses f16, which the target (",
                                            LanguageName(target.language), ") does not have.")};
  }
  if (kernel.uses_subgroups && !target.subgroups) {
    return Error{Code::kUnsupported, StrCat("The kernel ", kernel.module.name, " uses subgroup functions, which the target (",
                                            LanguageName(target.language), ") does not have.")};
  }
  switch (target.language) {
    case Language::kWgsl: return PrintWgsl(kernel, target, options);
    case Language::kOpenClC: return PrintOpenClC(kernel, target, options);
    case Language::kGlslEs: return PrintGlslEs(kernel, target, options);
    case Language::kMsl: return PrintMsl(kernel, target, options);
  }
  return Error{Code::kInternal, "The target has no language."};
}

Result<KernelText> Compile(const Module& module, const Specialization& specialization, const Target& target) {
  ASSIGN_OR_RETURN(BoundKernel bound, Bind(module, specialization, target));
  ASSIGN_OR_RETURN(LoweredKernel lowered, Lower(bound, target));
  return Print(lowered, target);
}

}  // namespace leeway::shader
