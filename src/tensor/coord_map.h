// Coordinate maps: made, joined, turned round.
#pragma once

#include "base/result.h"
#include "tensor/virtual_tensor.h"

namespace leeway {

// Maps from outer to middle and middle to inner as one map from outer to inner; `inside` conditions are joined. An error where
// the two need different values outside.
Result<CoordMap> Compose(const CoordMap& outer_to_middle, const CoordMap& middle_to_inner);
// The map that reads a tensor of shape `from` as one of shape `to`, broadcast by numpy's rules; an error where they do not fit.
Result<CoordMap> BroadcastMap(const Shape& from, const Shape& to);
// Row-major order kept: coordinates in `to` -> coordinates in `from` (reshape).
CoordMap ReshapeMap(const Shape& from, const Shape& to);

// The same map over coordinates of a tensor of shape `over`: needless divisions and conditions are gone, and where nothing is
// left of it, it is the identity. `to` is the shape that it maps to.
CoordMap SimplifiedMap(CoordMap map, const Shape& over, const Shape& to);
// The inverse of a map that takes each coordinate on from one axis of `over` (a permutation, with axes of extent 1 added or
// dropped); none where the map is not of that kind or not one to one.
std::optional<CoordMap> InverseOfPermutation(const CoordMap& map, const Shape& over, const Shape& to);

}  // namespace leeway
