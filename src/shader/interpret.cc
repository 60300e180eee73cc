#include "shader/interpret.h"

#include "base/strings.h"
#include "shader/interpret_code.h"

namespace leeway::shader {

namespace {

void VisitTensor(const std::string& name, const VirtualTensor& tensor,
                 const std::function<void(const std::string&, const VirtualTensor&)>& visit) {
  if (tensor.placement.format) {
    for (bool factors : {false, true}) {
      VirtualTensor piece;
      piece.placement = factors ? FactorsOf(tensor.placement) : QuantsOf(tensor.placement);
      piece.shape = piece.placement.shape;
      visit(factors ? FactorsName(name) : QuantsName(name), piece);
    }
    return;
  }
  visit(name, tensor);
  int operand = 0;
  for (const ValueMap& map : tensor.value_maps) {
    for (const VirtualTensor& other : map.operands) VisitTensor(StrCat(name, "#", operand++), other, visit);
  }
}

Result<InterpretResult> RunProgram(Result<interpret::Program> program, const uint32_t workgroups[3],
                                   const InterpretOptions& options) {
  if (!program.ok()) return program.error();
  if (program->workgroup_size[0] == 0 || program->workgroup_size[1] == 0 || program->workgroup_size[2] == 0) {
    return Error{Code::kInvalidArgument, StrCat("Kernel ", program->name, " has an empty workgroup.")};
  }
  return interpret::Run(*program, workgroups, options);
}

}  // namespace

void VisitTensors(const std::map<std::string, VirtualTensor>& tensors,
                  const std::function<void(const std::string& name, const VirtualTensor& tensor)>& visit) {
  for (const auto& [name, tensor] : tensors) VisitTensor(name, tensor, visit);
}

std::map<std::string, Placement> PlacementsOf(const std::map<std::string, VirtualTensor>& tensors) {
  std::map<std::string, Placement> placements;
  VisitTensors(tensors, [&](const std::string& name, const VirtualTensor& tensor) { placements[name] = tensor.placement; });
  return placements;
}

Result<InterpretResult> Interpret(const BoundKernel& kernel, const uint32_t workgroups[3], const InterpretMemory& memory,
                                  const InterpretOptions& options) {
  return RunProgram(interpret::CompileBound(kernel, memory, options), workgroups, options);
}

Result<InterpretResult> Interpret(const LoweredKernel& kernel, const uint32_t workgroups[3], const InterpretMemory& memory,
                                  const InterpretOptions& options) {
  return RunProgram(interpret::CompileLowered(kernel, memory, options), workgroups, options);
}

}  // namespace leeway::shader
