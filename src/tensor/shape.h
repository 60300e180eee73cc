// The extents of a tensor, outermost axis first. Up to 8 axes; rank 0 is a scalar; an extent may be 0.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/result.h"

namespace leeway {

class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) : Shape(std::span<const int64_t>(extents.begin(), extents.size())) {}
  // CHECKs rank and signs: for shapes that we made. Use FromUntrusted for what a file says.
  explicit Shape(std::span<const int64_t> extents);

  // Refuses more than 8 axes, negative extents, and element counts of 2^31 or more.
  static Result<Shape> FromUntrusted(std::span<const int64_t> extents);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return extents_[axis]; }
  int64_t& operator[](int axis) { return extents_[axis]; }
  // -1 is the last axis.
  int64_t at(int axis) const { return extents_[axis < 0 ? rank_ + axis : axis]; }
  const int64_t* begin() const { return extents_.data(); }
  const int64_t* end() const { return extents_.data() + rank_; }
  int64_t element_count() const;  // 1 for a scalar
  void push_back(int64_t extent);
  bool operator==(const Shape& other) const;
  std::string ToString() const;  // "[1, 256, 256, 3]"

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

}  // namespace leeway
