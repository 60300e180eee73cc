#include "ops/weights.h"

#include <algorithm>

#include "ops/assemble.h"
#include "tensor/block_quant.h"

namespace leeway {

Status ExpectBias(const OpCall& call, const char* op, size_t i, int64_t count) {
  if (!HasInput(call, i)) return {};
  RETURN_IF_ERROR(ExpectFloat(call, op, i));
  if (InputShape(call, i).element_count() != count) {
    return Invalid("Operator ", op, " has a bias of shape ", InputShape(call, i).ToString(), "; it takes ", count,
                   " elements.");
  }
  return {};
}

std::vector<double> BiasOrZeros(const OpCall& call, std::span<const HostTensor> inputs, size_t i, int64_t count) {
  std::vector<double> bias(size_t(count), 0.0);
  if (HasInput(call, i)) {
    for (int64_t k = 0; k < count; ++k) bias[size_t(k)] = inputs[i].Get(k);
  }
  return bias;
}

std::vector<float> RowToF32(const HostTensor& matrix, int64_t row) {
  const int64_t columns = matrix.shape()[1];
  std::vector<float> values(size_t(columns), 0.0f);
  if (IsBlockQuantized(matrix.dtype())) {
    const size_t row_bytes = DTypeBytes(matrix.dtype(), size_t(columns));
    DequantizeBlocks(matrix.dtype(), matrix.bytes().subspan(size_t(row) * row_bytes, row_bytes), values);
  } else {
    for (int64_t i = 0; i < columns; ++i) values[size_t(i)] = float(matrix.Get(row * columns + i));
  }
  return values;
}

void StoreF32(HostTensor& tensor, std::span<const float> values) {
  if (tensor.dtype() == DType::kF32) {
    std::ranges::copy(values, tensor.as_mutable<float>().begin());
  } else {
    for (size_t i = 0; i < values.size(); ++i) tensor.Set(int64_t(i), values[i]);
  }
}

void AddWeights(OpPlan& plan, KernelDispatch& dispatch, const KernelRequest& request, std::string name, int input, Shape shape,
                CoordMap map) {
  const OperandInfo& operand = request.call.inputs[size_t(input)];
  TensorArgument argument{.name = std::move(name)};
  if (operand.constant != nullptr) {
    argument.kind = TensorArgument::Kind::kPlan;
    argument.index = int(plan.tensors.size());
    plan.tensors.push_back(
        {.type = {request.prefer_f16 ? DType::kF16 : DType::kF32, shape}, .constant_input = input, .map = std::move(map)});
  } else {
    argument.kind = TensorArgument::Kind::kInput;
    argument.index = input;
    argument.shape = shape;
    argument.map = std::move(map);
    argument.as_is = false;
  }
  dispatch.tensors.push_back(std::move(argument));
}

void AddBias(OpPlan& plan, KernelDispatch& dispatch, const KernelRequest& request, std::string name, int input, int any_input,
             int64_t count) {
  AddBias(plan, dispatch, request, std::move(name), input, any_input, Shape{count});
}

void AddBias(OpPlan& plan, KernelDispatch& dispatch, const KernelRequest& request, std::string name, int input, int any_input,
             Shape shape) {
  const bool given = HasInput(request.call, size_t(input));
  CoordMap map;
  if (given) {
    map = ReshapeMap(InputShape(request.call, size_t(input)), shape);
  } else {
    map.coords.assign(size_t(InputShape(request.call, size_t(any_input)).rank()), IndexExpr::Const(0));
    map.inside = IndexExpr::Const(0);
  }
  AddWeights(plan, dispatch, request, std::move(name), given ? input : any_input, shape, std::move(map));
}

}  // namespace leeway
