#include "tensor/coord_map.h"

#include "base/strings.h"

namespace leeway {
namespace {

std::vector<IndexExpr> SubstituteAll(const std::vector<IndexExpr>& exprs, const std::vector<IndexExpr>& axes) {
  std::vector<IndexExpr> out;
  out.reserve(exprs.size());
  for (const IndexExpr& e : exprs) out.push_back(e.Substitute(axes));
  return out;
}

}  // namespace

Result<CoordMap> Compose(const CoordMap& outer_to_middle, const CoordMap& middle_to_inner) {
  CoordMap out = outer_to_middle;
  std::optional<IndexExpr> inner_inside = middle_to_inner.inside;
  if (inner_inside && !outer_to_middle.is_identity()) inner_inside = inner_inside->Substitute(outer_to_middle.coords);
  if (!middle_to_inner.is_identity()) {
    out.coords =
        outer_to_middle.is_identity() ? middle_to_inner.coords : SubstituteAll(middle_to_inner.coords, outer_to_middle.coords);
  }
  if (!inner_inside) return out;
  if (!out.inside) {
    out.inside = inner_inside;
    out.outside = middle_to_inner.outside;
    return out;
  }
  if (out.outside != middle_to_inner.outside) {
    return Error{Code::kUnsupported, StrCat("Two coordinate maps in a row give different values outside: ", out.outside,
                                            " and ", middle_to_inner.outside, ".")};
  }
  // The outer condition first: where it fails the inner one may not even be defined (tables).
  out.inside = And(*out.inside, *inner_inside);
  return out;
}

Result<CoordMap> BroadcastMap(const Shape& from, const Shape& to) {
  CoordMap map;
  if (from == to) return map;
  int missing = to.rank() - from.rank();
  bool fits = missing >= 0;
  for (int i = 0; fits && i < from.rank(); ++i) {
    if (from[i] == to[i + missing]) {
      map.coords.push_back(IndexExpr::Axis(i + missing));
    } else if (from[i] == 1) {
      map.coords.push_back(IndexExpr::Const(0));
    } else {
      fits = false;
    }
  }
  if (fits) return map;
  return Error{Code::kInvalidArgument,
               StrCat("A tensor of shape ", from.ToString(), " cannot be broadcast to ", to.ToString(), ".")};
}

CoordMap ReshapeMap(const Shape& from, const Shape& to) {
  CHECK(from.element_count() == to.element_count());
  CoordMap map;
  if (from == to) return map;
  if (from.element_count() == 0) {
    map.coords.resize(size_t(from.rank()));
    return map;
  }
  // Runs of axes that hold the same elements on both sides are mapped each for itself, which keeps expressions short:
  // axes that did not change map to themselves.
  std::span<const int64_t> extents(to.begin(), size_t(to.rank()));
  int from_begin = 0, to_begin = 0;
  while (from_begin < from.rank()) {
    int from_end = from_begin + 1, to_end = to_begin;
    int64_t from_count = from[from_begin], to_count = 1;
    while (from_count != to_count) {
      if (to_count < from_count) {
        to_count *= to[to_end++];
      } else {
        from_count *= from[from_end++];
      }
    }
    IndexExpr run;
    for (int i = to_begin; i < to_end; ++i) run = run * IndexExpr::Const(to[i]) + IndexExpr::Axis(i);
    int64_t stride = from_count;
    for (int i = from_begin; i < from_end; ++i) {
      stride /= from[i];
      map.coords.push_back(Mod(Div(run, stride), from[i]).SimplifiedFor(extents));
    }
    from_begin = from_end;
    to_begin = to_end;
  }
  return map;
}

CoordMap SimplifiedMap(CoordMap map, const Shape& over, const Shape& to) {
  std::span<const int64_t> extents(over.begin(), size_t(over.rank()));
  if (map.inside) {
    map.inside = map.inside->SimplifiedFor(extents);
    if (map.inside->IsConst() && map.inside->value() != 0) map.inside.reset();
  }
  bool identity = over == to;
  for (size_t i = 0; i < map.coords.size(); ++i) {
    IndexExpr& c = map.coords[i];
    c = to[int(i)] == 1 && !map.inside ? IndexExpr::Const(0) : c.SimplifiedFor(extents);
    identity = identity && (c == IndexExpr::Axis(int(i)) || (over[int(i)] == 1 && c.IsConst(0)));
  }
  if (identity) map.coords.clear();
  return map;
}

std::optional<CoordMap> InverseOfPermutation(const CoordMap& map, const Shape& over, const Shape& to) {
  if (map.inside || over.element_count() != to.element_count()) return std::nullopt;
  if (map.is_identity()) return over == to ? std::optional(map) : std::nullopt;
  CoordMap inverse;
  inverse.coords.resize(size_t(over.rank()));
  for (int i = 0; i < to.rank(); ++i) {
    const IndexExpr& c = map.coords[size_t(i)];
    if (to[i] == 1) continue;
    if (c.kind() != IndexExpr::Kind::kAxis || over[int(c.value())] != to[i]) return std::nullopt;
    inverse.coords[size_t(c.value())] = IndexExpr::Axis(i);
  }
  // One to one: every axis that has more than one element is taken on from somewhere.
  for (int axis = 0; axis < over.rank(); ++axis) {
    if (over[axis] != 1 && inverse.coords[size_t(axis)].kind() != IndexExpr::Kind::kAxis) return std::nullopt;
  }
  return inverse;
}

}  // namespace leeway
