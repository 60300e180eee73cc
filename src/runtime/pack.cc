#include "runtime/pack.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "base/result.h"
#include "tensor/address.h"

namespace leeway {
namespace {

// A function of the coordinates that is a sum of one table per axis: nearly all maps and addresses are.
struct AxisTables {
  std::vector<std::vector<int64_t>> tables;  // by axis; empty: zero
  int64_t constant = 0;
};

int UsedAxes(const IndexExpr& expr, int rank, int* axis) {
  int used = 0;
  for (int a = 0; a < rank; ++a) {
    if (expr.Uses(a)) {
      *axis = a;
      ++used;
    }
  }
  return used;
}

// Adds expr * factor to `sum`; false where it is no such sum.
bool AddTables(const IndexExpr& expr, int64_t factor, std::span<const int64_t> extents, AxisTables* sum) {
  int axis = 0;
  const int used = UsedAxes(expr, int(extents.size()), &axis);
  std::array<int64_t, Shape::kMaxRank> coords{};
  if (used == 0) {
    sum->constant += factor * expr.Evaluate(std::span(coords.data(), extents.size()));
    return true;
  }
  if (used == 1) {
    auto& table = sum->tables[size_t(axis)];
    table.resize(size_t(extents[size_t(axis)]), 0);
    for (int64_t c = 0; c < extents[size_t(axis)]; ++c) {
      coords[size_t(axis)] = c;
      table[size_t(c)] += factor * expr.Evaluate(std::span(coords.data(), extents.size()));
    }
    return true;
  }
  if (expr.kind() == IndexExpr::Kind::kAdd) {
    return AddTables(expr.arg(0), factor, extents, sum) && AddTables(expr.arg(1), factor, extents, sum);
  }
  if (expr.kind() == IndexExpr::Kind::kMul) {
    if (expr.arg(0).IsConst()) return AddTables(expr.arg(1), factor * expr.arg(0).value(), extents, sum);
    if (expr.arg(1).IsConst()) return AddTables(expr.arg(0), factor * expr.arg(1).value(), extents, sum);
  }
  return false;
}

std::optional<AxisTables> MakeTables(const IndexExpr& expr, std::span<const int64_t> extents) {
  AxisTables sum;
  sum.tables.resize(extents.size());
  if (!AddTables(expr, 1, extents, &sum)) return std::nullopt;
  return sum;
}

// Where an element exists: a mask per axis, and sums over several axes that must be negative.
struct InsideTables {
  std::vector<std::vector<uint8_t>> masks;  // by axis; empty: everywhere
  std::vector<AxisTables> negative;
  bool never = false;
};

bool AddConditions(const IndexExpr& expr, std::span<const int64_t> extents, InsideTables* inside) {
  if (expr.kind() == IndexExpr::Kind::kAnd) {
    return AddConditions(expr.arg(0), extents, inside) && AddConditions(expr.arg(1), extents, inside);
  }
  int axis = 0;
  const int used = UsedAxes(expr, int(extents.size()), &axis);
  std::array<int64_t, Shape::kMaxRank> coords{};
  if (used == 0) {
    inside->never |= expr.Evaluate(std::span(coords.data(), extents.size())) == 0;
    return true;
  }
  if (used == 1) {
    auto& mask = inside->masks[size_t(axis)];
    mask.resize(size_t(extents[size_t(axis)]), 1);
    for (int64_t c = 0; c < extents[size_t(axis)]; ++c) {
      coords[size_t(axis)] = c;
      if (expr.Evaluate(std::span(coords.data(), extents.size())) == 0) mask[size_t(c)] = 0;
    }
    return true;
  }
  if (expr.kind() != IndexExpr::Kind::kLess) return false;
  AxisTables sum;
  sum.tables.resize(extents.size());
  if (!AddTables(expr.arg(0), 1, extents, &sum) || !AddTables(expr.arg(1), -1, extents, &sum)) return false;
  inside->negative.push_back(std::move(sum));
  return true;
}

// Values of an expression for many coordinates at once: the way for expressions that are no sums.
constexpr int64_t kChunk = 512;
using ChunkValues = std::array<int64_t, kChunk>;

void EvaluateChunk(const IndexExpr& expr, const std::vector<ChunkValues>& axes, int64_t count, ChunkValues& out) {
  using Kind = IndexExpr::Kind;
  switch (expr.kind()) {
    case Kind::kConst: std::fill_n(out.begin(), count, expr.value()); return;
    case Kind::kAxis: std::copy_n(axes[size_t(expr.value())].begin(), count, out.begin()); return;
    case Kind::kTable: {
      EvaluateChunk(expr.arg(0), axes, count, out);
      const auto& table = expr.table();
      // Where the element does not exist the index may be anything; the value is not used then.
      for (int64_t i = 0; i < count; ++i) {
        const int64_t index = out[size_t(i)];
        out[size_t(i)] = index >= 0 && index < int64_t(table.size()) ? table[size_t(index)] : 0;
      }
      return;
    }
    case Kind::kDiv:
    case Kind::kMod: {
      EvaluateChunk(expr.arg(0), axes, count, out);
      const int64_t divisor = expr.arg(1).value();
      const bool is_div = expr.kind() == Kind::kDiv;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t value = out[size_t(i)];
        int64_t quotient = value / divisor, rest = value % divisor;
        if (rest < 0) --quotient, rest += divisor;
        out[size_t(i)] = is_div ? quotient : rest;
      }
      return;
    }
    case Kind::kAdd:
    case Kind::kMul:
    case Kind::kMin:
    case Kind::kMax:
    case Kind::kLess:
    case Kind::kAnd: break;
  }
  ChunkValues other;
  EvaluateChunk(expr.arg(0), axes, count, out);
  EvaluateChunk(expr.arg(1), axes, count, other);
  auto combine = [&](auto function) {
    for (int64_t i = 0; i < count; ++i) out[size_t(i)] = function(out[size_t(i)], other[size_t(i)]);
  };
  switch (expr.kind()) {
    case Kind::kAdd: combine([](int64_t a, int64_t b) { return a + b; }); return;
    case Kind::kMul: combine([](int64_t a, int64_t b) { return a * b; }); return;
    case Kind::kMin: combine([](int64_t a, int64_t b) { return std::min(a, b); }); return;
    case Kind::kMax: combine([](int64_t a, int64_t b) { return std::max(a, b); }); return;
    case Kind::kLess: combine([](int64_t a, int64_t b) { return int64_t(a < b); }); return;
    case Kind::kAnd: combine([](int64_t a, int64_t b) { return int64_t(a != 0 && b != 0); }); return;
    case Kind::kConst:
    case Kind::kAxis:
    case Kind::kTable:
    case Kind::kDiv:
    case Kind::kMod: return;
  }
}

// Steps through all coordinates but the last axis, in row-major order.
struct RowCounter {
  std::array<int64_t, Shape::kMaxRank> coords{};
  std::span<const int64_t> extents;

  bool Next() {
    for (int axis = int(extents.size()) - 2; axis >= 0; --axis) {
      if (++coords[size_t(axis)] < extents[size_t(axis)]) return true;
      coords[size_t(axis)] = 0;
    }
    return false;
  }
};

int64_t SumOf(const AxisTables& sum, const RowCounter& row) {
  int64_t value = sum.constant;
  for (size_t axis = 0; axis + 1 < sum.tables.size(); ++axis) {
    if (!sum.tables[axis].empty()) value += sum.tables[axis][size_t(row.coords[axis])];
  }
  return value;
}

// The element types of one copy: reads source element i, writes destination element j.
template <class From, class To, class Convert>
struct Copier {
  const From* from;
  To* to;
  Convert convert;
  To outside;
  void Copy(int64_t source, int64_t destination) const { to[destination] = convert(from[source]); }
  void Outside(int64_t destination) const { to[destination] = outside; }
};

struct PackJob {
  std::span<const int64_t> extents;
  const AxisTables* destination = nullptr;
  const AxisTables* source = nullptr;      // null: `map` is evaluated in chunks
  const InsideTables* inside = nullptr;    // null: everywhere (or in chunks)
  const IndexExpr* source_expr = nullptr;  // for chunks
  const IndexExpr* inside_expr = nullptr;
};

template <class C>
void PackByTables(const PackJob& job, const C& copier) {
  const size_t last = job.extents.size() - 1;
  const int64_t row_length = job.extents[last];
  const std::vector<int64_t> zeros(size_t(row_length), 0);
  auto last_table = [&](const AxisTables& sum) { return sum.tables[last].empty() ? zeros.data() : sum.tables[last].data(); };
  const int64_t* source_row = last_table(*job.source);
  const int64_t* destination_row = last_table(*job.destination);
  std::vector<uint8_t> exists(size_t(row_length), 1);
  RowCounter row{.extents = job.extents};
  do {
    const int64_t source = SumOf(*job.source, row), destination = SumOf(*job.destination, row);
    if (!job.inside) {
      for (int64_t i = 0; i < row_length; ++i) copier.Copy(source + source_row[i], destination + destination_row[i]);
      continue;
    }
    bool row_exists = !job.inside->never;
    for (size_t axis = 0; axis < last; ++axis) {
      const auto& mask = job.inside->masks[axis];
      row_exists &= mask.empty() || mask[size_t(row.coords[axis])];
    }
    const auto& mask = job.inside->masks[last];
    for (int64_t i = 0; i < row_length; ++i) exists[size_t(i)] = row_exists && (mask.empty() || mask[size_t(i)]);
    for (const auto& sum : job.inside->negative) {
      const int64_t start = SumOf(sum, row);
      const int64_t* table = last_table(sum);
      for (int64_t i = 0; i < row_length; ++i) exists[size_t(i)] &= uint8_t(start + table[i] < 0);
    }
    for (int64_t i = 0; i < row_length; ++i) {
      if (exists[size_t(i)]) {
        copier.Copy(source + source_row[i], destination + destination_row[i]);
      } else {
        copier.Outside(destination + destination_row[i]);
      }
    }
  } while (row.Next());
}

template <class C>
void PackByChunks(const PackJob& job, int64_t total, const C& copier) {
  const size_t rank = job.extents.size();
  std::vector<ChunkValues> axes(rank);
  ChunkValues source, exists;
  std::array<int64_t, Shape::kMaxRank> coords{};
  for (int64_t done = 0; done < total; done += kChunk) {
    const int64_t count = std::min(kChunk, total - done);
    for (int64_t i = 0; i < count; ++i) {
      for (size_t axis = 0; axis < rank; ++axis) axes[axis][size_t(i)] = coords[axis];
      for (size_t axis = rank; axis-- > 0;) {
        if (++coords[axis] < job.extents[axis]) break;
        coords[axis] = 0;
      }
    }
    EvaluateChunk(*job.source_expr, axes, count, source);
    if (job.inside_expr) EvaluateChunk(*job.inside_expr, axes, count, exists);
    for (int64_t i = 0; i < count; ++i) {
      int64_t destination = job.destination->constant;
      for (size_t axis = 0; axis < rank; ++axis) {
        const auto& table = job.destination->tables[axis];
        if (!table.empty()) destination += table[size_t(axes[axis][size_t(i)])];
      }
      if (!job.inside_expr || exists[size_t(i)] != 0) {
        copier.Copy(source[size_t(i)], destination);
      } else {
        copier.Outside(destination);
      }
    }
  }
}

template <class From, class To, class Convert>
void Run(const PackJob& job, int64_t total, const void* from, void* to, Convert convert, To outside) {
  const Copier<From, To, Convert> copier{static_cast<const From*>(from), static_cast<To*>(to), convert, outside};
  if (job.source) {
    PackByTables(job, copier);
  } else {
    PackByChunks(job, total, copier);
  }
}

template <class To>
To Saturate(double value) {
  if (std::isnan(value)) return To(0);
  const double rounded = std::nearbyint(value);
  if (rounded <= double(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  if (rounded >= double(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
  return To(rounded);
}

// Any pair of types that has no loop of its own.
struct AnyElement {
  const HostTensor* tensor;
  double operator()(int64_t i) const { return tensor->Get(i); }
};
template <class To, class Convert>
struct AnyCopier {
  AnyElement from;
  To* to;
  Convert convert;
  To outside;
  void Copy(int64_t source, int64_t destination) const { to[destination] = convert(from(source)); }
  void Outside(int64_t destination) const { to[destination] = outside; }
};
template <class To, class Convert>
void RunAny(const PackJob& job, int64_t total, const HostTensor& from, void* to, Convert convert, double outside) {
  const AnyCopier<To, Convert> copier{{&from}, static_cast<To*>(to), convert, convert(outside)};
  if (job.source) {
    PackByTables(job, copier);
  } else {
    PackByChunks(job, total, copier);
  }
}

void RunForTypes(const PackJob& job, int64_t total, const HostTensor& source, DType stored, double outside, std::byte* out) {
  const DType from = source.dtype();
  const void* data = source.bytes().data();
  auto same = [](auto v) { return v; };
  switch (stored) {
    case DType::kF32:
      if (from == DType::kF32) return Run<float, float>(job, total, data, out, same, float(outside));
      if (from == DType::kF16) return Run<uint16_t, float>(job, total, data, out, F16ToF32, float(outside));
      return RunAny<float>(
          job, total, source, out, [](double v) { return float(v); }, outside);
    case DType::kF16:
      if (from == DType::kF32) return Run<float, uint16_t>(job, total, data, out, F32ToF16, F32ToF16(float(outside)));
      if (from == DType::kF16) return Run<uint16_t, uint16_t>(job, total, data, out, same, F32ToF16(float(outside)));
      return RunAny<uint16_t>(
          job, total, source, out, [](double v) { return F32ToF16(float(v)); }, outside);
    case DType::kI32:
      if (from == DType::kI32) return Run<int32_t, int32_t>(job, total, data, out, same, Saturate<int32_t>(outside));
      if (from == DType::kI8) return Run<int8_t, int32_t>(job, total, data, out, same, Saturate<int32_t>(outside));
      return RunAny<int32_t>(job, total, source, out, Saturate<int32_t>, outside);
    case DType::kU32:
      if (from == DType::kU32) return Run<uint32_t, uint32_t>(job, total, data, out, same, Saturate<uint32_t>(outside));
      if (from == DType::kU8) return Run<uint8_t, uint32_t>(job, total, data, out, same, Saturate<uint32_t>(outside));
      return RunAny<uint32_t>(job, total, source, out, Saturate<uint32_t>, outside);
    case DType::kI8:
      if (from == DType::kI8) return Run<int8_t, int8_t>(job, total, data, out, same, Saturate<int8_t>(outside));
      return RunAny<int8_t>(job, total, source, out, Saturate<int8_t>, outside);
    case DType::kU8:
      if (from == DType::kU8) return Run<uint8_t, uint8_t>(job, total, data, out, same, Saturate<uint8_t>(outside));
      return RunAny<uint8_t>(job, total, source, out, Saturate<uint8_t>, outside);
    case DType::kBF16:
    case DType::kF64:
    case DType::kI64:
    case DType::kI16:
    case DType::kU64:
    case DType::kU16:
    case DType::kBool:
    case DType::kI4:
    case DType::kU4:
    case DType::kI2:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ8_0:
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
    case DType::kIQ4_NL: break;
  }
  CHECK(false && "not an element type of storage");
}

std::vector<IndexExpr> Axes(int rank) {
  std::vector<IndexExpr> axes;
  for (int axis = 0; axis < rank; ++axis) axes.push_back(IndexExpr::Axis(axis));
  return axes;
}

}  // namespace

bool IsRowMajorCopy(const Placement& placement, DType dtype) {
  if (placement.storage != Storage::kBuffer || placement.dtype != dtype) return false;
  const int rank = placement.shape.rank();
  const bool whole_slices = rank > 0 && placement.shape.at(-1) % 4 == 0;
  switch (placement.layout) {
    case Layout::kLinear: return true;
    case Layout::kPadded4: return whole_slices;
    case Layout::kSliced4: return whole_slices && rank < 2;
  }
  return false;
}

void PackThroughMap(const HostTensor& source, const CoordMap& map, const Placement& placement, std::span<std::byte> out) {
  CHECK(int64_t(out.size()) >= placement.storage_bytes());
  // Elements are taken in any order; blocks are decoded once.
  if (IsBlockQuantized(source.dtype())) return PackThroughMap(source.ConvertTo(DType::kF32), map, placement, out);
  const Shape& shape = placement.shape;
  const int64_t total = shape.element_count();
  if (map.is_identity() && !map.inside && IsRowMajorCopy(placement, source.dtype())) {
    const auto bytes = source.bytes();
    std::memcpy(out.data(), bytes.data(), bytes.size());
    std::memset(out.data() + bytes.size(), 0, out.size() - bytes.size());
    return;
  }
  if (placement.storage != Storage::kBuffer && placement.storage != Storage::kImageBuffer) {
    // Textures: the elements in a row first, then as PackForStorage lays them.
    Placement row_major = placement;
    row_major.layout = Layout::kLinear;
    row_major.storage = Storage::kBuffer;
    row_major.elements_per_part = 0;
    std::vector<std::byte> bytes(size_t(row_major.storage_bytes()));
    PackThroughMap(source, map, row_major, bytes);
    const size_t used = DTypeBytes(placement.dtype, size_t(total));
    const auto packed = PackForStorage(HostTensor(placement.dtype, shape, std::span(bytes).first(used), nullptr), placement);
    std::memcpy(out.data(), packed.data(), std::min(packed.size(), out.size()));
    return;
  }
  std::memset(out.data(), 0, out.size());
  if (total == 0) return;

  // A scalar is walked as one axis of extent 1.
  std::vector<int64_t> extents(shape.begin(), shape.end());
  const IndexExpr address = ElementAddress(placement, Axes(shape.rank()));
  std::vector<IndexExpr> coords = map.is_identity() ? Axes(shape.rank()) : map.coords;
  IndexExpr index = IndexExpr::Const(0);
  int64_t stride = 1;
  for (int axis = source.shape().rank() - 1; axis >= 0; --axis) {
    index = index + coords[size_t(axis)] * IndexExpr::Const(stride);
    stride *= source.shape()[axis];
  }
  if (extents.empty()) extents.push_back(1);
  index = index.SimplifiedFor(extents);
  const auto destination = MakeTables(address, extents);
  CHECK(destination.has_value());

  const auto by_axis = MakeTables(index, extents);
  InsideTables inside;
  inside.masks.resize(extents.size());
  std::optional<IndexExpr> condition;
  if (map.inside) condition = map.inside->SimplifiedFor(extents);
  const bool tables_do = by_axis && (!condition || AddConditions(*condition, extents, &inside));
  PackJob job{.extents = extents, .destination = &*destination};
  if (tables_do) {
    job.source = &*by_axis;
    job.inside = condition ? &inside : nullptr;
  } else {
    job.source_expr = &index;
    job.inside_expr = condition ? &*condition : nullptr;
  }
  RunForTypes(job, total, source, placement.dtype, map.outside, out.data());
}

void UnpackInto(std::span<const std::byte> storage, const Placement& placement, DType dtype, std::span<std::byte> out) {
  const int64_t total = placement.shape.element_count();
  CHECK(out.size() == DTypeBytes(dtype, size_t(total)));
  if (IsRowMajorCopy(placement, dtype)) {
    std::memcpy(out.data(), storage.data(), out.size());
    return;
  }
  if (placement.layout == Layout::kPadded4 && placement.storage == Storage::kBuffer && placement.dtype == dtype &&
      placement.shape.rank() > 0 && total > 0) {
    const size_t row = DTypeBytes(dtype, size_t(placement.shape.at(-1)));
    const size_t padded = DTypeBytes(dtype, size_t((placement.shape.at(-1) + 3) / 4 * 4));
    for (size_t r = 0; r * row < out.size(); ++r) std::memcpy(out.data() + r * row, storage.data() + r * padded, row);
    return;
  }
  const HostTensor unpacked = UnpackFromStorage(storage, placement, dtype);
  std::memcpy(out.data(), unpacked.bytes().data(), out.size());
}

}  // namespace leeway
