#include "ops/assemble.h"

#include "base/result.h"
#include "base/strings.h"

namespace leeway {
namespace {

// Uses the extents of the kernel's coordinates; drops what is the identity or always inside.
CoordMap Simplified(CoordMap map, const Shape& kernel_shape, const Placement& placement) {
  std::span<const int64_t> extents(kernel_shape.begin(), size_t(kernel_shape.rank()));
  if (placement.shape.rank() == 0) map.coords.clear();
  bool identity = int(map.coords.size()) == kernel_shape.rank();
  for (size_t i = 0; i < map.coords.size(); ++i) {
    map.coords[i] = map.coords[i].SimplifiedFor(extents);
    // An axis of one element has the coordinate 0.
    bool same = map.coords[i] == IndexExpr::Axis(int(i)) || (map.coords[i].IsConst(0) && i < extents.size() && extents[i] <= 1);
    identity = identity && same;
  }
  if (identity) map.coords.clear();
  if (map.inside) {
    map.inside = map.inside->SimplifiedFor(extents);
    if (map.inside->IsConst() && map.inside->value() != 0) map.inside.reset();
  }
  return map;
}

Status CheckFits(const PlacedValue& value, const std::string& name) {
  int rank = value.placement.shape.rank();
  if (value.view.is_identity()) {
    // A map to a scalar has no coordinates, so it looks like the identity.
    if (rank == 0 || value.shape == value.placement.shape) return {};
    return Error{Code::kInternal, StrCat("Tensor ", name, " is seen as ", value.shape.ToString(), " and placed as ",
                                         value.placement.shape.ToString(), " without a view between them.")};
  }
  if (int(value.view.coords.size()) == rank) return {};
  return Error{Code::kInternal, StrCat("The view of tensor ", name, " gives ", value.view.coords.size(),
                                       " coordinates for a placed shape ", value.placement.shape.ToString(), ".")};
}

}  // namespace

Result<AssembledDispatch> AssembleDispatch(const KernelDispatch& dispatch, std::span<const PlacedValue> inputs,
                                           std::span<const PlacedValue> outputs, std::span<const PlacedValue> plan_tensors,
                                           std::span<const PlacedStep> epilogue) {
  AssembledDispatch out;
  out.specialization.consts = dispatch.consts;
  bool epilogue_placed = !dispatch.stores_result || (epilogue.empty() && dispatch.own_steps.empty());
  for (const TensorArgument& argument : dispatch.tensors) {
    AssembledDispatch::Source source{.index = argument.index};
    std::span<const PlacedValue> values;
    switch (argument.kind) {
      case TensorArgument::Kind::kInput: values = inputs, source.kind = AssembledDispatch::Source::Kind::kInput; break;
      case TensorArgument::Kind::kOutput: values = outputs, source.kind = AssembledDispatch::Source::Kind::kOutput; break;
      case TensorArgument::Kind::kPlan: values = plan_tensors, source.kind = AssembledDispatch::Source::Kind::kPlan; break;
    }
    std::string label = StrCat(argument.name, " of kernel ", dispatch.kernel_name);
    if (argument.index < 0 || size_t(argument.index) >= values.size()) {
      return Error{Code::kInternal,
                   StrCat("Tensor ", label, " stands for number ", argument.index, " of ", values.size(), ".")};
    }
    const PlacedValue& value = values[size_t(argument.index)];
    RETURN_IF_ERROR(CheckFits(value, label));
    VirtualTensor tensor;
    tensor.shape = argument.as_is ? value.shape : argument.shape;
    CoordMap to_node = argument.as_is ? CoordMap{} : argument.map;
    tensor.placement = value.placement;
    ASSIGN_OR_RETURN_CONTEXT(tensor.map, Compose(to_node, value.view), StrCat("while placing tensor ", label));
    tensor.map = Simplified(std::move(tensor.map), tensor.shape, tensor.placement);

    if (dispatch.stores_result && argument.kind == TensorArgument::Kind::kOutput && argument.index == 0) {
      epilogue_placed = true;
      int operand_number = 0;
      // Appends an elementwise step; its operands are broadcast to `result_shape`, which has the elements of the value.
      auto append_step = [&](const ValueMap& step_function, std::span<const PlacedValue* const> operands,
                             const Shape& result_shape, const std::string& step_label, AssembledDispatch::Source::Kind kind,
                             std::span<const int> indices) -> Status {
        if (result_shape.element_count() != value.shape.element_count()) {
          return Error{Code::kInternal, StrCat(step_label, " has the shape ", result_shape.ToString(), ", and the result has ",
                                               value.shape.ToString(), ".")};
        }
        ASSIGN_OR_RETURN_CONTEXT(CoordMap to_step, Compose(to_node, ReshapeMap(result_shape, value.shape)), step_label);
        ValueMap function = step_function;
        for (size_t k = 0; k < operands.size(); ++k) {
          const PlacedValue& operand = *operands[k];
          std::string operand_label = StrCat("operand ", k, " of ", step_label);
          if (operand.placement.format) {
            return Error{Code::kUnsupported,
                         StrCat("The ", operand_label, " is quantized, and fused operators read plain tensors.")};
          }
          RETURN_IF_ERROR(CheckFits(operand, operand_label));
          VirtualTensor v;
          v.shape = tensor.shape;
          v.placement = operand.placement;
          v.map = to_step;
          ASSIGN_OR_RETURN_CONTEXT(CoordMap broadcast, BroadcastMap(operand.shape, result_shape), operand_label);
          if (operand.shape.rank() > 0) { ASSIGN_OR_RETURN_CONTEXT(v.map, Compose(v.map, broadcast), operand_label); }
          ASSIGN_OR_RETURN_CONTEXT(v.map, Compose(v.map, operand.view), operand_label);
          v.map = Simplified(std::move(v.map), v.shape, v.placement);
          function.operands.push_back(std::move(v));
          AssembledDispatch::Source from{.kind = kind};
          if (kind == AssembledDispatch::Source::Kind::kInput) {
            from.index = indices[k];
          } else {
            from.index = indices[0];
            from.operand = int(k);
          }
          out.sources[StrCat(argument.name, "#", operand_number++)] = from;
        }
        tensor.value_maps.push_back(std::move(function));
        return {};
      };
      for (size_t s = 0; s < dispatch.own_steps.size(); ++s) {
        const OwnStep& step = dispatch.own_steps[s];
        std::string step_label = StrCat("own step ", s, " after ", label);
        std::vector<const PlacedValue*> operands;
        for (int input : step.inputs) {
          if (input < 0 || size_t(input) >= inputs.size()) {
            return Error{Code::kInternal,
                         StrCat("An operand of ", step_label, " is input ", input, " of ", inputs.size(), ".")};
          }
          operands.push_back(&inputs[size_t(input)]);
        }
        RETURN_IF_ERROR(append_step(step.function, operands, value.shape, step_label, AssembledDispatch::Source::Kind::kInput,
                                    step.inputs));
      }
      for (size_t s = 0; s < epilogue.size(); ++s) {
        const PlacedStep& step = epilogue[s];
        std::vector<const PlacedValue*> operands;
        for (const PlacedValue& operand : step.operands) operands.push_back(&operand);
        int index[1] = {int(s)};
        RETURN_IF_ERROR(append_step(step.function, operands, step.result_shape, StrCat("step ", s, " after ", label),
                                    AssembledDispatch::Source::Kind::kStepOperand, index));
      }
    }
    if (tensor.placement.format) {
      source.piece = AssembledDispatch::Source::Piece::kQuants;
      out.sources[QuantsName(argument.name)] = source;
      source.piece = AssembledDispatch::Source::Piece::kFactors;
      out.sources[FactorsName(argument.name)] = source;
    } else {
      out.sources[argument.name] = source;
    }
    out.specialization.tensors[argument.name] = std::move(tensor);
  }
  if (!epilogue_placed) {
    return Error{Code::kInternal,
                 StrCat("Kernel ", dispatch.kernel_name, " is to store the result, but none of its tensors is output 0.")};
  }
  return out;
}

}  // namespace leeway
