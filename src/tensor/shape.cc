#include "tensor/shape.h"

#include "base/strings.h"

namespace leeway {

Shape::Shape(std::span<const int64_t> extents) {
  CHECK(extents.size() <= size_t(kMaxRank));
  for (int64_t extent : extents) push_back(extent);
}

Result<Shape> Shape::FromUntrusted(std::span<const int64_t> extents) {
  auto text = [&] { return StrCat("[", Join(extents.first(extents.size() < 16 ? extents.size() : 16), ", "), "]"); };
  if (extents.size() > size_t(kMaxRank)) {
    return Error{Code::kUnsupported,
                 StrCat("A shape has ", extents.size(), " axes ", text(), "; up to ", kMaxRank, " are possible.")};
  }
  // An empty tensor stays empty whatever the other extents are, but those have to be sane too: views leave the 0 out.
  int64_t count = 1;
  for (int64_t extent : extents) {
    if (extent < 0) return Error{Code::kInvalidModel, StrCat("The shape ", text(), " has a negative extent (", extent, ").")};
    if (extent == 0) continue;
    if (extent >= (int64_t(1) << 31) || count * extent >= (int64_t(1) << 31)) {
      return Error{Code::kUnsupported, StrCat("The shape ", text(), " has 2^31 elements or more.")};
    }
    count *= extent;
  }
  return Shape(extents);
}

int64_t Shape::element_count() const {
  int64_t count = 1;
  for (int64_t extent : *this) count *= extent;
  return count;
}

void Shape::push_back(int64_t extent) {
  CHECK(rank_ < kMaxRank);
  CHECK(extent >= 0);
  extents_[size_t(rank_++)] = extent;
}

bool Shape::operator==(const Shape& other) const {
  if (rank_ != other.rank_) return false;
  for (int i = 0; i < rank_; ++i) {
    if ((*this)[i] != other[i]) return false;
  }
  return true;
}

std::string Shape::ToString() const { return StrCat("[", Join(*this, ", "), "]"); }

}  // namespace leeway
