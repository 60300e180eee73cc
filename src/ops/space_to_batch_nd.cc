// space_to_batch_nd, batch_to_space_nd: every block[i]-th row and column (after padding) goes to a batch of its own, or back
// (with cropping). Any number of spatial axes.
#include "ops/operands.h"

namespace leeway {
namespace {

const char* const kSpaceToBatchNames[] = {"SPACE_TO_BATCH_ND"};
const char* const kBatchToSpaceNames[] = {"BATCH_TO_SPACE_ND"};

struct Blocks {
  std::vector<int64_t> block, before, after;  // per spatial axis; before and after: padding or cropping
  int64_t count = 1;                          // product of block
};

Result<Blocks> ReadBlocks(const OpCall& call, const char* op) {
  RETURN_IF_ERROR(ExpectInputs(call, op, 3, 3));
  ASSIGN_OR_RETURN(std::vector<int64_t> block, ConstantInts(call, op, 1, "block shape"));
  ASSIGN_OR_RETURN(std::vector<int64_t> around, ConstantInts(call, op, 2, "paddings or crops"));
  const int rank = InputShape(call, 0).rank();
  if (block.empty() || int(block.size()) >= rank || around.size() != 2 * block.size()) {
    return Invalid("Operator ", op, " has a block shape of ", block.size(), " and ", around.size(),
                   " paddings or crops for an input of shape ", InputShape(call, 0).ToString(), ".");
  }
  Blocks blocks;
  for (size_t i = 0; i < block.size(); ++i) {
    if (block[i] < 1 || block[i] > 65536 || around[2 * i] < 0 || around[2 * i + 1] < 0 || around[2 * i] > INT32_MAX ||
        around[2 * i + 1] > INT32_MAX) {
      return Invalid("Operator ", op, " has block size ", block[i], " and padding or crop ", around[2 * i], ", ",
                     around[2 * i + 1], ".");
    }
    blocks.block.push_back(block[i]);
    blocks.before.push_back(around[2 * i]);
    blocks.after.push_back(around[2 * i + 1]);
    blocks.count = std::min<int64_t>(blocks.count * block[i], INT32_MAX);
  }
  return blocks;
}

InferredTypes InferSpaceToBatch(const OpCall& call) {
  ASSIGN_OR_RETURN(Blocks blocks, ReadBlocks(call, "space_to_batch_nd"));
  std::vector<int64_t> extents(InputShape(call, 0).begin(), InputShape(call, 0).end());
  extents[0] *= blocks.count;
  for (size_t i = 0; i < blocks.block.size(); ++i) {
    const int64_t padded = extents[i + 1] + blocks.before[i] + blocks.after[i];
    if (padded % blocks.block[i] != 0) {
      return Invalid("Operator space_to_batch_nd has the padded extent ", padded, " on axis ", i + 1,
                     ", no multiple of its block size ", blocks.block[i], ".");
    }
    extents[i + 1] = padded / blocks.block[i];
  }
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom(extents, "space_to_batch_nd"));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

InferredTypes InferBatchToSpace(const OpCall& call) {
  ASSIGN_OR_RETURN(Blocks blocks, ReadBlocks(call, "batch_to_space_nd"));
  std::vector<int64_t> extents(InputShape(call, 0).begin(), InputShape(call, 0).end());
  if (extents[0] % blocks.count != 0) {
    return Invalid("Operator batch_to_space_nd has ", extents[0], " batches, no multiple of its block of ", blocks.count, ".");
  }
  extents[0] /= blocks.count;
  for (size_t i = 0; i < blocks.block.size(); ++i) {
    extents[i + 1] = extents[i + 1] * blocks.block[i] - blocks.before[i] - blocks.after[i];
    if (extents[i + 1] < 0) return Invalid("Operator batch_to_space_nd crops more than there is on axis ", i + 1, ".");
  }
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom(extents, "batch_to_space_nd"));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

// visit(element of the batched tensor, element of the spatial tensor) for all that are not padding.
// Batch b of the batched tensor is offset * spatial_batches + n, offset being the position in the block, row-major.
struct Walker {
  const Blocks& blocks;
  const Shape &space, &batched;
  template <class Visit>
  void ForEachElement(Visit&& visit) const {
    std::vector<int64_t> coords(size_t(batched.rank()));
    for (int64_t flat = 0; flat < batched.element_count(); ++flat) {
      int64_t rest = flat;
      for (int axis = batched.rank() - 1; axis >= 0; --axis) {
        coords[size_t(axis)] = rest % batched[axis];
        rest /= batched[axis];
      }
      int64_t offset = coords[0] / space[0], source = coords[0] % space[0];
      std::vector<int64_t> in_block(blocks.block.size());
      for (size_t i = blocks.block.size(); i-- > 0;) {
        in_block[i] = offset % blocks.block[i];
        offset /= blocks.block[i];
      }
      bool inside = true;
      for (int axis = 1; axis < batched.rank(); ++axis) {
        const size_t i = size_t(axis - 1);
        int64_t at = coords[size_t(axis)];
        if (i < blocks.block.size()) at = at * blocks.block[i] + in_block[i] - blocks.before[i];
        inside = inside && at >= 0 && at < space[axis];
        source = source * space[axis] + at;
      }
      if (inside) visit(flat, source);
    }
  }
};

Status SpaceToBatchReference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(Blocks blocks, ReadBlocks(call, "space_to_batch_nd"));
  if (inputs[0].element_count() == 0) return {};
  const Walker walker{blocks, inputs[0].shape(), outputs[0].shape()};
  walker.ForEachElement([&](int64_t batched, int64_t space) { outputs[0].Set(batched, inputs[0].Get(space)); });
  return {};
}

Status BatchToSpaceReference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(Blocks blocks, ReadBlocks(call, "batch_to_space_nd"));
  if (outputs[0].element_count() == 0) return {};
  const Walker walker{blocks, outputs[0].shape(), inputs[0].shape()};
  walker.ForEachElement([&](int64_t batched, int64_t space) { outputs[0].Set(space, inputs[0].Get(batched)); });
  return {};
}

Result<Movement> SpaceToBatchMovement(const OpCall& call) {
  ASSIGN_OR_RETURN(Blocks blocks, ReadBlocks(call, "space_to_batch_nd"));
  const Shape& space = InputShape(call, 0);
  Movement movement;
  if (space.element_count() == 0) return movement;
  movement.map.coords.push_back(Mod(IndexExpr::Axis(0), space[0]));
  IndexExpr offset = Div(IndexExpr::Axis(0), space[0]);
  std::vector<IndexExpr> in_block(blocks.block.size());
  for (size_t i = blocks.block.size(); i-- > 0;) {
    in_block[i] = Mod(offset, blocks.block[i]);
    offset = Div(offset, blocks.block[i]);
  }
  for (int axis = 1; axis < space.rank(); ++axis) {
    const size_t i = size_t(axis - 1);
    if (i >= blocks.block.size()) {
      movement.map.coords.push_back(IndexExpr::Axis(axis));
      continue;
    }
    const IndexExpr at =
        IndexExpr::Axis(axis) * IndexExpr::Const(blocks.block[i]) + in_block[i] - IndexExpr::Const(blocks.before[i]);
    movement.map.coords.push_back(at);
    auto require = [&](IndexExpr condition) {
      movement.map.inside = movement.map.inside ? And(*movement.map.inside, condition) : condition;
    };
    if (blocks.before[i] > 0) require(Less(IndexExpr::Const(-1), at));
    if (blocks.after[i] > 0) require(Less(at, IndexExpr::Const(space[axis])));
  }
  const Quantization* q = call.inputs[0].quantization;
  if (q != nullptr && !q->zero_points.empty()) movement.map.outside = double(q->zero_points[0]);
  return movement;
}

Result<Movement> BatchToSpaceMovement(const OpCall& call) {
  ASSIGN_OR_RETURN(Blocks blocks, ReadBlocks(call, "batch_to_space_nd"));
  const Shape& space = call.outputs[0].shape;
  Movement movement;
  IndexExpr offset = IndexExpr::Const(0);
  std::vector<IndexExpr> coords;
  for (int axis = 1; axis < space.rank(); ++axis) {
    const size_t i = size_t(axis - 1);
    if (i >= blocks.block.size()) {
      coords.push_back(IndexExpr::Axis(axis));
      continue;
    }
    const IndexExpr at = IndexExpr::Axis(axis) + IndexExpr::Const(blocks.before[i]);
    offset = offset * IndexExpr::Const(blocks.block[i]) + Mod(at, blocks.block[i]);
    coords.push_back(Div(at, blocks.block[i]));
  }
  movement.map.coords.push_back(offset * IndexExpr::Const(space[0]) + IndexExpr::Axis(0));
  for (IndexExpr& at : coords) movement.map.coords.push_back(at);
  return movement;
}

}  // namespace

extern const OpDef op_space_to_batch_nd = {.name = "space_to_batch_nd",
                                           .infer = InferSpaceToBatch,
                                           .reference = SpaceToBatchReference,
                                           .movement = SpaceToBatchMovement,
                                           .tflite = kSpaceToBatchNames};
extern const OpDef op_batch_to_space_nd = {.name = "batch_to_space_nd",
                                           .infer = InferBatchToSpace,
                                           .reference = BatchToSpaceReference,
                                           .movement = BatchToSpaceMovement,
                                           .tflite = kBatchToSpaceNames};

}  // namespace leeway
