// Integer expressions over kernel coordinates: what coordinate maps and addresses are made of. Immutable, shared, simplified
// when built (constants fold; x*1, x+0, (x*a)/a and the like vanish). Values are 32-bit signed; division and modulo round
// towards minus infinity and their divisor is a positive constant.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace leeway {

class IndexExpr {
 public:
  enum class Kind : uint8_t {
    kConst,
    kAxis,
    kAdd,
    kMul,
    kDiv,
    kMod,
    kMin,
    kMax,
    kLess /* 1 if a < b else 0 */,
    kAnd /* both non-zero */,
    kTable
  };

  IndexExpr() : IndexExpr(Const(0)) {}
  static IndexExpr Const(int64_t value);
  static IndexExpr Axis(int axis);  // the kernel coordinate on that axis
  // table[index], for gathers by constants. An index outside (behind the edge of another map) gives any entry.
  static IndexExpr Table(std::shared_ptr<const std::vector<int32_t>> table, IndexExpr index);

  friend IndexExpr operator+(IndexExpr a, IndexExpr b);
  friend IndexExpr operator-(IndexExpr a, IndexExpr b);
  friend IndexExpr operator*(IndexExpr a, IndexExpr b);
  friend IndexExpr Div(IndexExpr a, int64_t divisor);
  friend IndexExpr Mod(IndexExpr a, int64_t divisor);
  friend IndexExpr Min(IndexExpr a, IndexExpr b);
  friend IndexExpr Max(IndexExpr a, IndexExpr b);
  friend IndexExpr Less(IndexExpr a, IndexExpr b);
  friend IndexExpr And(IndexExpr a, IndexExpr b);

  Kind kind() const { return node_->kind; }
  bool IsConst() const { return kind() == Kind::kConst; }
  bool IsConst(int64_t value) const { return IsConst() && node_->value == value; }
  int64_t value() const { return node_->value; }  // of kConst; the axis of kAxis
  const IndexExpr& arg(int i) const { return node_->args[i]; }
  const std::vector<int32_t>& table() const { return *node_->table; }

  bool Uses(int axis) const;
  int64_t Evaluate(std::span<const int64_t> axes) const;
  // Every kAxis(i) replaced by axes[i].
  IndexExpr Substitute(std::span<const IndexExpr> axes) const;
  // The least and greatest value, given 0 <= axis i < extents[i]; axes beyond the extents may be anything. Used to drop
  // needless div, mod and bounds checks.
  struct Range {
    int64_t low, high;
  };
  Range Bounds(std::span<const int64_t> extents) const;
  IndexExpr SimplifiedFor(std::span<const int64_t> extents) const;
  std::string ToString() const;                   // "(a0 * 4 + a1) / 7"
  bool operator==(const IndexExpr& other) const;  // structure

 private:
  friend struct IndexExprBuilder;  // index_expr.cc
  struct Node {
    Kind kind;
    int64_t value = 0;
    std::vector<IndexExpr> args;
    std::shared_ptr<const std::vector<int32_t>> table;
  };
  explicit IndexExpr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
};

}  // namespace leeway
