#include "import/tflite/constants.h"

#include <cstring>

#include "base/strings.h"

namespace leeway::tflite {
namespace {

using tflite_schema::SparseIndexVector;

Error Bad(std::string what) { return Error{Code::kInvalidModel, StrCat("Its sparsity is invalid: ", what, ".")}; }

template <class Vector>
std::vector<int64_t> Widen(const Vector* vector) {
  std::vector<int64_t> values;
  if (vector && vector->values()) {
    for (auto value : *vector->values()) values.push_back(value);
  }
  return values;
}

// One level of the tree that the stored elements are the leaves of.
struct Level {
  int axis = 0;        // of the tensor
  int64_t stride = 1;  // what one step on this level means on that axis
  int64_t extent = 0;
  bool sparse = false;
  std::vector<int64_t> segments, indices;  // sparse: children of node n are indices[segments[n]..segments[n + 1])
};

std::vector<int64_t> ReadIndices(SparseIndexVector kind, const void* vector) {
  switch (kind) {
    case SparseIndexVector::Int32Vector: return Widen(static_cast<const tflite_schema::Int32Vector*>(vector));
    case SparseIndexVector::Uint16Vector: return Widen(static_cast<const tflite_schema::Uint16Vector*>(vector));
    case SparseIndexVector::Uint8Vector: return Widen(static_cast<const tflite_schema::Uint8Vector*>(vector));
    case SparseIndexVector::NONE: break;
  }
  return {};
}

Result<std::vector<Level>> ReadLevels(const tflite_schema::SparsityParameters& sparsity, const Shape& shape) {
  if (!sparsity.traversal_order() || !sparsity.dim_metadata()) return Bad("it has no traversal order or no dimensions");
  size_t block_rank = sparsity.block_map() ? sparsity.block_map()->size() : 0;
  size_t rank = size_t(shape.rank()), level_count = rank + block_rank;
  if (sparsity.traversal_order()->size() != level_count || sparsity.dim_metadata()->size() != level_count)
    return Bad(StrCat("it has ", sparsity.dim_metadata()->size(), " dimensions in an order of ",
                      sparsity.traversal_order()->size(), "; expected ", level_count));
  // Extent of each axis of the blocked tensor: the tensor's axes in blocks, then the axes inside a block.
  std::vector<Level> axes(level_count);
  for (size_t i = 0; i < rank; ++i) axes[i] = {.axis = int(i), .extent = shape[int(i)]};
  std::vector<int> level_of(level_count, -1);
  for (size_t level = 0; level < level_count; ++level) {
    int32_t axis = sparsity.traversal_order()->Get(flatbuffers::uoffset_t(level));
    if (axis < 0 || size_t(axis) >= level_count || level_of[size_t(axis)] >= 0)
      return Bad("its traversal order is no permutation");
    level_of[size_t(axis)] = int(level);
  }
  for (size_t b = 0; b < block_rank; ++b) {
    int32_t axis = sparsity.block_map()->Get(flatbuffers::uoffset_t(b));
    if (axis < 0 || size_t(axis) >= rank) return Bad(StrCat("its block map names axis ", axis, " of ", rank));
    const auto* inner = sparsity.dim_metadata()->Get(flatbuffers::uoffset_t(level_of[rank + b]));
    int64_t size = inner->dense_size();
    Level& outer = axes[size_t(axis)];
    if (inner->format() != tflite_schema::DimensionType::DENSE || size <= 0)
      return Bad("an axis inside its blocks is not dense");
    if (outer.stride != 1 || outer.extent % size != 0)
      return Bad(StrCat("blocks of ", size, " do not divide axis ", axis, " of ", shape.ToString()));
    outer.extent /= size;
    outer.stride = size;
    axes[rank + b] = {.axis = axis, .extent = size};
  }
  std::vector<Level> levels(level_count);
  for (size_t i = 0; i < level_count; ++i) levels[size_t(level_of[i])] = axes[i];
  int64_t nodes = 1;  // of the level above
  for (size_t i = 0; i < level_count; ++i) {
    Level& level = levels[i];
    const auto* dim = sparsity.dim_metadata()->Get(flatbuffers::uoffset_t(i));
    if (dim->format() == tflite_schema::DimensionType::DENSE) {
      if (dim->dense_size() != level.extent)
        return Bad(StrCat("dimension ", i, " has ", dim->dense_size(), " elements, expected ", level.extent));
      nodes *= level.extent;
      continue;
    }
    if (dim->format() != tflite_schema::DimensionType::SPARSE_CSR)
      return Bad(StrCat("dimension ", i, " is neither dense nor sparse"));
    level.sparse = true;
    level.segments = ReadIndices(dim->array_segments_type(), dim->array_segments());
    level.indices = ReadIndices(dim->array_indices_type(), dim->array_indices());
    if (int64_t(level.segments.size()) != nodes + 1 || level.segments.front() != 0 ||
        level.segments.back() != int64_t(level.indices.size()))
      return Bad(StrCat("dimension ", i, " has ", level.segments.size(), " segment bounds for ", nodes, " parts and ",
                        level.indices.size(), " indices"));
    for (size_t s = 1; s < level.segments.size(); ++s) {
      if (level.segments[s] < level.segments[s - 1] || level.segments[s] - level.segments[s - 1] > level.extent)
        return Bad(StrCat("segment ", s - 1, " of dimension ", i, " is out of order or too long"));
    }
    for (int64_t index : level.indices) {
      if (index < 0 || index >= level.extent) return Bad(StrCat("dimension ", i, " has index ", index, " of ", level.extent));
    }
    nodes = int64_t(level.indices.size());
  }
  return levels;
}

struct Scatter {
  const std::vector<Level>& levels;
  const std::vector<int64_t>& element_stride;  // of the tensor's axes
  const std::byte* from;
  std::byte* to;
  size_t item;

  void Run(size_t depth, int64_t node, int64_t element) const {
    if (depth == levels.size()) {
      std::memcpy(to + size_t(element) * item, from + size_t(node) * item, item);
      return;
    }
    const Level& level = levels[depth];
    int64_t step = level.stride * element_stride[size_t(level.axis)];
    if (level.sparse) {
      for (int64_t i = level.segments[size_t(node)]; i < level.segments[size_t(node) + 1]; ++i)
        Run(depth + 1, i, element + level.indices[size_t(i)] * step);
    } else {
      for (int64_t i = 0; i < level.extent; ++i) Run(depth + 1, node * level.extent + i, element + i * step);
    }
  }
};

}  // namespace

Result<HostTensor> Densify(const tflite_schema::SparsityParameters& sparsity, DType dtype, const Shape& shape,
                           std::span<const std::byte> stored) {
  if (DTypeBits(dtype) % 8 != 0)
    return Error{Code::kUnsupported, StrCat("Its elements are sparse and ", DTypeName(dtype), ", narrower than a byte.")};
  size_t item = DTypeBytes(dtype, 1);
  ASSIGN_OR_RETURN(std::vector<Level> levels, ReadLevels(sparsity, shape));
  int64_t leaves = 1;
  for (const Level& level : levels) leaves = level.sparse ? int64_t(level.indices.size()) : leaves * level.extent;
  if (size_t(leaves) * item != stored.size())
    return Bad(StrCat("it describes ", leaves, " elements, the file holds ", stored.size(), " bytes of ", DTypeName(dtype)));
  // A real model keeps one element in ten or so; a tiny file must not make us allocate gigabytes.
  if (shape.element_count() / 4096 > leaves)
    return Bad(StrCat("it keeps only ", leaves, " of ", shape.element_count(), " elements"));
  std::vector<int64_t> stride(size_t(shape.rank()), 1);
  for (int i = shape.rank() - 2; i >= 0; --i) stride[size_t(i)] = stride[size_t(i) + 1] * shape[i + 1];
  HostTensor dense(dtype, shape);
  if (leaves > 0) Scatter{levels, stride, stored.data(), dense.mutable_bytes().data(), item}.Run(0, 0, 0);
  return dense;
}

HostTensor Dequantize(const HostTensor& tensor, const Quantization& quantization) {
  HostTensor out(DType::kF32, tensor.shape());
  std::span<float> values = out.as_mutable<float>();
  int64_t inner = 1, channels = int64_t(quantization.scales.size());
  for (int i = quantization.axis + 1; i < tensor.shape().rank(); ++i) inner *= tensor.shape()[i];
  for (size_t i = 0; i < values.size(); ++i) {
    size_t channel = channels == 1 ? 0 : size_t(int64_t(i) / inner % channels);
    values[i] = quantization.scales[channel] * float(tensor.Get(int64_t(i)) - double(quantization.zero_points[channel]));
  }
  return out;
}

}  // namespace leeway::tflite
