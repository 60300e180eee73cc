// space_to_depth, depth_to_space: blocks of block_size x block_size pixels become channels, or the other way round. The channel
// of pixel (i, j) in its block and channel c is (i * block_size + j) * channels + c.
#include "ops/operands.h"
#include "ops/strided.h"

namespace leeway {
namespace {

const char* const kSpaceToDepthNames[] = {"SPACE_TO_DEPTH"};
const char* const kDepthToSpaceNames[] = {"DEPTH_TO_SPACE"};
const AttrField kAttrs[] = {{"block_size", int64_t{1}, "Height and width of a block."}};

Result<int64_t> BlockSize(const OpCall& call, const char* op) {
  RETURN_IF_ERROR(ExpectInputs(call, op, 1, 1));
  RETURN_IF_ERROR(ExpectRank(call, op, 0, 4, 4));
  const int64_t block = call.attrs.GetInt("block_size", 1);
  if (block < 1 || block > 4096) return Invalid("Operator ", op, " has block size ", block, "; it is at least 1.");
  return block;
}

InferredTypes InferSpaceToDepth(const OpCall& call) {
  ASSIGN_OR_RETURN(int64_t block, BlockSize(call, "space_to_depth"));
  const Shape& x = InputShape(call, 0);
  if (x[1] % block != 0 || x[2] % block != 0) {
    return Invalid("Operator space_to_depth has an input of shape ", x.ToString(),
                   ", whose height and width are no multiples of ", block, ".");
  }
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom({x[0], x[1] / block, x[2] / block, x[3] * block * block}, "space_to_depth"));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

InferredTypes InferDepthToSpace(const OpCall& call) {
  ASSIGN_OR_RETURN(int64_t block, BlockSize(call, "depth_to_space"));
  const Shape& x = InputShape(call, 0);
  if (x[3] % (block * block) != 0) {
    return Invalid("Operator depth_to_space has an input of shape ", x.ToString(), ", whose channels are no multiple of ",
                   block, " squared.");
  }
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom({x[0], x[1] * block, x[2] * block, x[3] / (block * block)}, "depth_to_space"));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

// `space` and `depth` as [batch, height, width, i, j, channels].
void CopyBlocks(const OpCall& call, const HostTensor& from, HostTensor& to, bool to_depth) {
  const int64_t block = call.attrs.GetInt("block_size", 1);
  const Shape& space = to_depth ? from.shape() : to.shape();
  const int64_t height = space[1] / block, width = space[2] / block, channels = space[3];
  const Shape blocks{space[0], height, width, block, block, channels};
  const Strides in_depth = RowMajorStrides(blocks);
  const Strides in_space{
      space[1] * space[2] * channels, block * space[2] * channels, block * channels, space[2] * channels, channels, 1};
  CopyStrided(from, 0, to_depth ? in_space : in_depth, to, 0, to_depth ? in_depth : in_space, blocks);
}

Result<Movement> SpaceToDepthMovement(const OpCall& call) {
  const int64_t block = call.attrs.GetInt("block_size", 1), channels = InputShape(call, 0)[3];
  const IndexExpr depth = IndexExpr::Axis(3), size = IndexExpr::Const(block);
  if (channels == 0) return Movement{};
  return Movement{.map = {.coords = {IndexExpr::Axis(0), IndexExpr::Axis(1) * size + Div(depth, channels * block),
                                     IndexExpr::Axis(2) * size + Mod(Div(depth, channels), block), Mod(depth, channels)}}};
}

Result<Movement> DepthToSpaceMovement(const OpCall& call) {
  const int64_t block = call.attrs.GetInt("block_size", 1), channels = call.outputs[0].shape[3];
  const IndexExpr row = IndexExpr::Axis(1), column = IndexExpr::Axis(2);
  return Movement{
      .map = {.coords = {IndexExpr::Axis(0), Div(row, block), Div(column, block),
                         (Mod(row, block) * IndexExpr::Const(block) + Mod(column, block)) * IndexExpr::Const(channels) +
                             IndexExpr::Axis(3)}}};
}

}  // namespace

extern const OpDef op_space_to_depth = {
    .name = "space_to_depth",
    .attrs = kAttrs,
    .infer = InferSpaceToDepth,
    .reference = [](const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) -> Status {
      CopyBlocks(call, inputs[0], outputs[0], true);
      return {};
    },
    .movement = SpaceToDepthMovement,
    .tflite = kSpaceToDepthNames};
extern const OpDef op_depth_to_space = {
    .name = "depth_to_space",
    .attrs = kAttrs,
    .infer = InferDepthToSpace,
    .reference = [](const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) -> Status {
      CopyBlocks(call, inputs[0], outputs[0], false);
      return {};
    },
    .movement = DepthToSpaceMovement,
    .tflite = kDepthToSpaceNames};

}  // namespace leeway
