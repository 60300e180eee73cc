// topk_v2: the k largest elements of each row in falling order, and their indices; of equal ones the first comes first.
#include <algorithm>
#include <numeric>

#include "ops/operands.h"

namespace leeway {
namespace {

const char* const kNames[] = {"TOPK_V2"};
constexpr const char* kOp = "topk_v2";

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 2, 2));
  RETURN_IF_ERROR(ExpectRank(call, kOp, 0, 1, Shape::kMaxRank));
  ASSIGN_OR_RETURN(std::vector<int64_t> k, ConstantInts(call, kOp, 1, "k"));
  Shape shape = InputShape(call, 0);
  if (k.size() != 1 || k[0] < 0 || k[0] > shape.at(-1)) {
    return Invalid("Operator topk_v2 takes [", Join(k, ", "), "] elements of rows of ", shape.at(-1), ".");
  }
  shape[shape.rank() - 1] = k[0];
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}, {DType::kI32, shape}};
}

Status Reference(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const int64_t columns = inputs[0].shape().at(-1), k = outputs[0].shape().at(-1);
  const int64_t rows = columns == 0 ? 0 : inputs[0].element_count() / columns;
  std::vector<double> row(static_cast<size_t>(columns));
  std::vector<int64_t> order(static_cast<size_t>(columns));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < columns; ++i) row[size_t(i)] = inputs[0].Get(r * columns + i);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int64_t a, int64_t b) {
      return row[size_t(a)] != row[size_t(b)] ? row[size_t(a)] > row[size_t(b)] : a < b;
    });
    for (int64_t i = 0; i < k; ++i) {
      outputs[0].Set(r * k + i, row[size_t(order[size_t(i)])]);
      outputs[1].Set(r * k + i, double(order[size_t(i)]));
    }
  }
  return {};
}

}  // namespace

extern const OpDef op_topk_v2 = {.name = kOp, .infer = Infer, .reference = Reference, .tflite = kNames};

}  // namespace leeway
