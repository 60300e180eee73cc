#include "tensor/index_expr.h"

#include <algorithm>
#include <numeric>

#include "base/result.h"
#include "base/strings.h"

namespace leeway {
namespace {

using Kind = IndexExpr::Kind;
using Range = IndexExpr::Range;

constexpr int64_t kUnbounded = int64_t(1) << 60;

int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
int64_t FloorMod(int64_t a, int64_t b) { return a - FloorDiv(a, b) * b; }

int64_t Clamp(__int128 value) {
  if (value > kUnbounded) return kUnbounded;
  if (value < -kUnbounded) return -kUnbounded;
  return int64_t(value);
}

// A sum of atoms (expressions that are neither sums nor constants nor constant multiples) with coefficients.
struct Term {
  int64_t factor;
  IndexExpr atom;
};
struct Linear {
  std::vector<Term> terms;
  int64_t constant = 0;
};

}  // namespace

// Builds simplified expressions; with `extents` it may use the range of the axes. All rewriting is here.
struct IndexExprBuilder {
  const std::span<const int64_t>* extents = nullptr;

  static IndexExpr Node(Kind kind, int64_t value, std::vector<IndexExpr> args) {
    return IndexExpr(std::make_shared<const IndexExpr::Node>(IndexExpr::Node{kind, value, std::move(args), nullptr}));
  }
  static IndexExpr TableNode(std::shared_ptr<const std::vector<int32_t>> table, IndexExpr index) {
    return IndexExpr(
        std::make_shared<const IndexExpr::Node>(IndexExpr::Node{Kind::kTable, 0, {std::move(index)}, std::move(table)}));
  }
  static const std::shared_ptr<const std::vector<int32_t>>& TableOf(const IndexExpr& e) { return e.node_->table; }
  static bool SameNode(const IndexExpr& a, const IndexExpr& b) { return a.node_ == b.node_; }
  static bool HasTable(const IndexExpr& e) { return e.node_->table != nullptr; }

  // ---- Sums ----

  static void Append(Linear& sum, const IndexExpr& e, int64_t factor) {
    switch (e.kind()) {
      case Kind::kConst: sum.constant += factor * e.value(); return;
      case Kind::kAdd:
        Append(sum, e.arg(0), factor);
        Append(sum, e.arg(1), factor);
        return;
      case Kind::kMul:
        if (e.arg(1).IsConst()) return Append(sum, e.arg(0), factor * e.arg(1).value());
        break;
      default: break;
    }
    for (size_t i = 0; i < sum.terms.size(); ++i) {
      if (sum.terms[i].atom == e) {
        sum.terms[i].factor += factor;
        if (sum.terms[i].factor == 0) sum.terms.erase(sum.terms.begin() + int64_t(i));
        return;
      }
    }
    if (factor != 0) sum.terms.push_back({factor, e});
  }
  static Linear ToLinear(const IndexExpr& e) {
    Linear sum;
    Append(sum, e, 1);
    return sum;
  }
  static IndexExpr FromLinear(const Linear& sum) {
    IndexExpr out;
    bool first = true;
    for (const Term& term : sum.terms) {
      IndexExpr e = term.factor == 1 ? term.atom : Node(Kind::kMul, 0, {term.atom, IndexExpr::Const(term.factor)});
      out = first ? e : Node(Kind::kAdd, 0, {out, e});
      first = false;
    }
    if (first) return IndexExpr::Const(sum.constant);
    return sum.constant == 0 ? out : Node(Kind::kAdd, 0, {out, IndexExpr::Const(sum.constant)});
  }
  static int64_t Costly(const Linear& sum) {
    return std::count_if(sum.terms.begin(), sum.terms.end(), [](const Term& t) { return t.atom.kind() != Kind::kAxis; });
  }
  // k*m*(b/m) + k*(b%m) is k*b, and k*m*((b/m)%n) + k*(b%m) is k*(b%(m*n)): what is left of a reshape undone.
  void Recombine(Linear& sum) const {
    for (size_t i = 0; i < sum.terms.size(); ++i) {
      if (sum.terms[i].atom.kind() != Kind::kMod || sum.terms.size() == 1) continue;
      IndexExpr dividend = sum.terms[i].atom.arg(0);
      int64_t divisor = sum.terms[i].atom.arg(1).value(), factor = sum.terms[i].factor;
      IndexExpr quotient = BuildDiv(dividend, divisor);
      // The quotient may be a sum itself, so it is taken away as a whole: b%m = b - m*(b/m).
      Linear shorter = sum;
      shorter.terms.erase(shorter.terms.begin() + int64_t(i));
      Append(shorter, dividend, factor);
      Append(shorter, quotient, -factor * divisor);
      if (Costly(shorter) < Costly(sum)) {
        sum = std::move(shorter);
        return Recombine(sum);
      }
      for (size_t j = 0; j < sum.terms.size(); ++j) {
        if (j == i || sum.terms[j].factor != factor * divisor || sum.terms[j].atom.kind() != Kind::kMod) continue;
        if (!(sum.terms[j].atom.arg(0) == quotient)) continue;
        int64_t outer_divisor = sum.terms[j].atom.arg(1).value();
        sum.terms.erase(sum.terms.begin() + int64_t(std::max(i, j)));
        sum.terms.erase(sum.terms.begin() + int64_t(std::min(i, j)));
        Append(sum, BuildMod(dividend, divisor * outer_divisor), factor);
        return Recombine(sum);
      }
    }
  }
  IndexExpr BuildAdd(const IndexExpr& a, const IndexExpr& b) const {
    Linear sum = ToLinear(a);
    Append(sum, b, 1);
    Recombine(sum);
    return FromLinear(sum);
  }
  IndexExpr BuildSub(const IndexExpr& a, const IndexExpr& b) const {
    Linear sum = ToLinear(a);
    Append(sum, b, -1);
    Recombine(sum);
    return FromLinear(sum);
  }
  IndexExpr BuildMul(const IndexExpr& a, const IndexExpr& b) const {
    if (a.IsConst() || b.IsConst()) {
      Linear sum;
      Append(sum, a.IsConst() ? b : a, a.IsConst() ? a.value() : b.value());
      return FromLinear(sum);
    }
    return Node(Kind::kMul, 0, {a, b});
  }

  // ---- Division ----

  // Tries to write sum = g * high + low with 0 <= low < g for a divisor g of d, greatest g first.
  bool SplitByDivisor(const Linear& sum, int64_t d, int64_t& g, Linear& high, Linear& low) const {
    std::vector<int64_t> candidates;
    for (const Term& term : sum.terms) {
      int64_t candidate = std::gcd(term.factor, d);
      if (candidate > 1) candidates.push_back(candidate);
    }
    std::sort(candidates.rbegin(), candidates.rend());
    for (int64_t candidate : candidates) {
      high = {}, low = {};
      for (const Term& term : sum.terms) {
        if (term.factor % candidate == 0) {
          high.terms.push_back({term.factor / candidate, term.atom});
        } else {
          low.terms.push_back(term);
        }
      }
      high.constant = FloorDiv(sum.constant, candidate);
      low.constant = FloorMod(sum.constant, candidate);
      Range range = RangeOf(low);
      if (range.low >= 0 && range.high < candidate) {
        g = candidate;
        return true;
      }
    }
    return false;
  }

  IndexExpr BuildDiv(const IndexExpr& a, int64_t d) const {
    CHECK(d > 0);
    if (d == 1) return a;
    Linear rest, quotient;
    for (const Term& term : ToLinear(a).terms) {
      if (term.factor % d == 0) {
        quotient.terms.push_back({term.factor / d, term.atom});
      } else {
        rest.terms.push_back(term);
      }
    }
    int64_t constant = ToLinear(a).constant;
    quotient.constant = FloorDiv(constant, d);
    rest.constant = FloorMod(constant, d);
    Range range = RangeOf(rest);
    if (FloorDiv(range.low, d) == FloorDiv(range.high, d)) {
      quotient.constant += FloorDiv(range.low, d);
      Recombine(quotient);
      return FromLinear(quotient);
    }
    IndexExpr divided;
    int64_t g = 0;
    Linear high, low;
    auto inner_div = std::find_if(rest.terms.begin(), rest.terms.end(),
                                  [](const Term& t) { return t.factor == 1 && t.atom.kind() == Kind::kDiv; });
    if (inner_div != rest.terms.end()) {  // (x + y/b) / d is (x*b + y) / (b*d)
      IndexExpr inner = inner_div->atom;
      rest.terms.erase(inner_div);
      int64_t b = inner.arg(1).value();
      Linear joined;
      Append(joined, FromLinear(rest), b);
      Append(joined, inner.arg(0), 1);
      Recombine(joined);
      divided = BuildDiv(FromLinear(joined), b * d);
    } else if (rest.terms.size() == 1 && rest.terms[0].factor == 1 && rest.constant == 0 &&
               rest.terms[0].atom.kind() == Kind::kMod && rest.terms[0].atom.arg(1).value() % d == 0) {
      const IndexExpr& inner = rest.terms[0].atom;
      divided = BuildMod(BuildDiv(inner.arg(0), d), inner.arg(1).value() / d);
    } else if (SplitByDivisor(rest, d, g, high, low)) {
      divided = BuildDiv(FromLinear(high), d / g);
    } else {
      divided = Node(Kind::kDiv, 0, {FromLinear(rest), IndexExpr::Const(d)});
    }
    Append(quotient, divided, 1);
    Recombine(quotient);
    return FromLinear(quotient);
  }

  IndexExpr BuildMod(const IndexExpr& a, int64_t d) const {
    CHECK(d > 0);
    if (d == 1) return IndexExpr::Const(0);
    Linear sum;
    for (const Term& term : ToLinear(a).terms) {
      bool inner_mod_vanishes =
          term.atom.kind() == Kind::kMod && Clamp(__int128(term.factor) * term.atom.arg(1).value()) % d == 0;
      Append(sum, inner_mod_vanishes ? term.atom.arg(0) : term.atom, term.factor);
    }
    sum.constant += ToLinear(a).constant;
    Linear rest;  // factors are not reduced, so that the remainder still meets its quotient in Recombine
    for (const Term& term : sum.terms) {
      if (term.factor % d != 0) rest.terms.push_back(term);
    }
    rest.constant = FloorMod(sum.constant, d);
    Range range = RangeOf(rest);
    if (FloorDiv(range.low, d) == FloorDiv(range.high, d)) {
      rest.constant -= FloorDiv(range.low, d) * d;
      Recombine(rest);
      return FromLinear(rest);
    }
    int64_t g = 0;
    Linear high, low;
    if (SplitByDivisor(rest, d, g, high, low)) {
      IndexExpr remainder = BuildMod(FromLinear(high), d / g);
      Append(low, remainder, g);
      Recombine(low);
      return FromLinear(low);
    }
    return Node(Kind::kMod, 0, {FromLinear(rest), IndexExpr::Const(d)});
  }

  // ---- Comparison ----

  IndexExpr BuildMin(const IndexExpr& a, const IndexExpr& b) const {
    Range difference = RangeOf(ToLinear(BuildSub(b, a)));
    if (difference.low >= 0) return a;
    if (difference.high <= 0) return b;
    return Node(Kind::kMin, 0, {a, b});
  }
  IndexExpr BuildMax(const IndexExpr& a, const IndexExpr& b) const {
    Range difference = RangeOf(ToLinear(BuildSub(b, a)));
    if (difference.low >= 0) return b;
    if (difference.high <= 0) return a;
    return Node(Kind::kMax, 0, {a, b});
  }
  IndexExpr BuildLess(const IndexExpr& a, const IndexExpr& b) const {
    Range difference = RangeOf(ToLinear(BuildSub(b, a)));
    if (difference.low >= 1) return IndexExpr::Const(1);
    if (difference.high <= 0) return IndexExpr::Const(0);
    return Node(Kind::kLess, 0, {a, b});
  }
  static bool IsTruth(const IndexExpr& e) { return e.kind() == Kind::kLess || e.kind() == Kind::kAnd; }
  IndexExpr BuildAnd(const IndexExpr& a, const IndexExpr& b) const {
    if (a.IsConst(0) || b.IsConst(0)) return IndexExpr::Const(0);
    if (a.IsConst() && b.IsConst()) return IndexExpr::Const(1);
    if (a.IsConst() && IsTruth(b)) return b;
    if (b.IsConst() && IsTruth(a)) return a;
    if (a == b && IsTruth(a)) return a;
    return Node(Kind::kAnd, 0, {a, b});
  }

  IndexExpr BuildTable(const std::shared_ptr<const std::vector<int32_t>>& table, const IndexExpr& index) const {
    CHECK(!table->empty());
    const std::vector<int32_t>& t = *table;
    if (index.IsConst()) return IndexExpr::Const(t[size_t(std::clamp<int64_t>(index.value(), 0, int64_t(t.size()) - 1))]);
    // A table that counts in equal steps is a multiplication.
    int64_t step = t.size() > 1 ? int64_t(t[1]) - t[0] : 0;
    bool even = true;
    for (size_t i = 1; i < t.size(); ++i) even = even && int64_t(t[i]) - t[i - 1] == step;
    if (even) return BuildAdd(BuildMul(index, IndexExpr::Const(step)), IndexExpr::Const(t[0]));
    return TableNode(table, index);
  }

  // ---- Ranges ----

  Range RangeOf(const Linear& sum) const {
    Range out{sum.constant, sum.constant};
    for (const Term& term : sum.terms) {
      Range r = RangeOf(term.atom);
      int64_t at_low = Clamp(__int128(term.factor) * r.low), at_high = Clamp(__int128(term.factor) * r.high);
      out.low = Clamp(__int128(out.low) + std::min(at_low, at_high));
      out.high = Clamp(__int128(out.high) + std::max(at_low, at_high));
      // Unbounded stays unbounded whatever is added to it.
      if (std::min(at_low, at_high) == -kUnbounded) out.low = -kUnbounded;
      if (std::max(at_low, at_high) == kUnbounded) out.high = kUnbounded;
    }
    return out;
  }
  Range RangeOf(const IndexExpr& e) const {
    switch (e.kind()) {
      case Kind::kConst: return {e.value(), e.value()};
      case Kind::kAxis:
        if (extents && e.value() < int64_t(extents->size()))
          return {0, std::max<int64_t>(0, (*extents)[size_t(e.value())] - 1)};
        return {-kUnbounded, kUnbounded};
      case Kind::kAdd: return RangeOf(ToLinear(e));
      case Kind::kMul: {
        Range a = RangeOf(e.arg(0)), b = RangeOf(e.arg(1));
        Range out{kUnbounded, -kUnbounded};
        for (int64_t x : {a.low, a.high}) {
          for (int64_t y : {b.low, b.high}) {
            int64_t product = Clamp(__int128(x) * y);
            out.low = std::min(out.low, product);
            out.high = std::max(out.high, product);
          }
        }
        return out;
      }
      case Kind::kDiv: {
        Range a = RangeOf(e.arg(0));
        int64_t d = e.arg(1).value();
        return {a.low <= -kUnbounded ? a.low : FloorDiv(a.low, d), a.high >= kUnbounded ? a.high : FloorDiv(a.high, d)};
      }
      case Kind::kMod: {
        Range a = RangeOf(e.arg(0));
        int64_t d = e.arg(1).value();
        if (FloorDiv(a.low, d) == FloorDiv(a.high, d)) return {FloorMod(a.low, d), FloorMod(a.high, d)};
        return {0, d - 1};
      }
      case Kind::kMin: {
        Range a = RangeOf(e.arg(0)), b = RangeOf(e.arg(1));
        return {std::min(a.low, b.low), std::min(a.high, b.high)};
      }
      case Kind::kMax: {
        Range a = RangeOf(e.arg(0)), b = RangeOf(e.arg(1));
        return {std::max(a.low, b.low), std::max(a.high, b.high)};
      }
      case Kind::kLess:
      case Kind::kAnd: return {0, 1};
      case Kind::kTable: {
        const std::vector<int32_t>& t = e.table();
        Range index = RangeOf(e.arg(0));
        int64_t first = std::clamp<int64_t>(index.low, 0, int64_t(t.size()) - 1);
        int64_t last = std::clamp<int64_t>(index.high, first, int64_t(t.size()) - 1);
        auto [low, high] = std::minmax_element(t.begin() + first, t.begin() + last + 1);
        return {*low, *high};
      }
    }
    CHECK(false);
  }

  // Built anew: axes replaced, or the range of the axes used.
  IndexExpr Rebuild(const IndexExpr& e, const std::span<const IndexExpr>* axes) const {
    auto arg = [&](int i) { return Rebuild(e.arg(i), axes); };
    switch (e.kind()) {
      case Kind::kConst: return e;
      case Kind::kAxis:
        if (axes) {
          CHECK(e.value() < int64_t(axes->size()));
          return (*axes)[size_t(e.value())];
        }
        if (extents && e.value() < int64_t(extents->size()) && (*extents)[size_t(e.value())] <= 1) return IndexExpr::Const(0);
        return e;
      case Kind::kAdd: return BuildAdd(arg(0), arg(1));
      case Kind::kMul: return BuildMul(arg(0), arg(1));
      case Kind::kDiv: return BuildDiv(arg(0), e.arg(1).value());
      case Kind::kMod: return BuildMod(arg(0), e.arg(1).value());
      case Kind::kMin: return BuildMin(arg(0), arg(1));
      case Kind::kMax: return BuildMax(arg(0), arg(1));
      case Kind::kLess: return BuildLess(arg(0), arg(1));
      case Kind::kAnd: return BuildAnd(arg(0), arg(1));
      case Kind::kTable: return BuildTable(TableOf(e), arg(0));
    }
    CHECK(false);
  }
};

IndexExpr IndexExpr::Const(int64_t value) { return IndexExprBuilder::Node(Kind::kConst, value, {}); }
IndexExpr IndexExpr::Axis(int axis) {
  CHECK(axis >= 0);
  return IndexExprBuilder::Node(Kind::kAxis, axis, {});
}
IndexExpr IndexExpr::Table(std::shared_ptr<const std::vector<int32_t>> table, IndexExpr index) {
  return IndexExprBuilder{}.BuildTable(table, index);
}
IndexExpr operator+(IndexExpr a, IndexExpr b) { return IndexExprBuilder{}.BuildAdd(a, b); }
IndexExpr operator-(IndexExpr a, IndexExpr b) { return IndexExprBuilder{}.BuildSub(a, b); }
IndexExpr operator*(IndexExpr a, IndexExpr b) { return IndexExprBuilder{}.BuildMul(a, b); }
IndexExpr Div(IndexExpr a, int64_t divisor) { return IndexExprBuilder{}.BuildDiv(a, divisor); }
IndexExpr Mod(IndexExpr a, int64_t divisor) { return IndexExprBuilder{}.BuildMod(a, divisor); }
IndexExpr Min(IndexExpr a, IndexExpr b) { return IndexExprBuilder{}.BuildMin(a, b); }
IndexExpr Max(IndexExpr a, IndexExpr b) { return IndexExprBuilder{}.BuildMax(a, b); }
IndexExpr Less(IndexExpr a, IndexExpr b) { return IndexExprBuilder{}.BuildLess(a, b); }
IndexExpr And(IndexExpr a, IndexExpr b) { return IndexExprBuilder{}.BuildAnd(a, b); }

bool IndexExpr::Uses(int axis) const {
  if (kind() == Kind::kAxis) return node_->value == axis;
  for (const IndexExpr& e : node_->args) {
    if (e.Uses(axis)) return true;
  }
  return false;
}

int64_t IndexExpr::Evaluate(std::span<const int64_t> axes) const {
  auto value_of = [&](int i) { return arg(i).Evaluate(axes); };
  switch (kind()) {
    case Kind::kConst: return value();
    case Kind::kAxis: CHECK(value() < int64_t(axes.size())); return axes[size_t(value())];
    case Kind::kAdd: return value_of(0) + value_of(1);
    case Kind::kMul: return value_of(0) * value_of(1);
    case Kind::kDiv: return FloorDiv(value_of(0), value_of(1));
    case Kind::kMod: return FloorMod(value_of(0), value_of(1));
    case Kind::kMin: return std::min(value_of(0), value_of(1));
    case Kind::kMax: return std::max(value_of(0), value_of(1));
    case Kind::kLess: return value_of(0) < value_of(1);
    case Kind::kAnd: return value_of(0) != 0 && value_of(1) != 0;
    case Kind::kTable: {
      return table()[size_t(std::clamp<int64_t>(value_of(0), 0, int64_t(table().size()) - 1))];
    }
  }
  CHECK(false);
}

IndexExpr IndexExpr::Substitute(std::span<const IndexExpr> axes) const { return IndexExprBuilder{}.Rebuild(*this, &axes); }

IndexExpr::Range IndexExpr::Bounds(std::span<const int64_t> extents) const { return IndexExprBuilder{&extents}.RangeOf(*this); }

IndexExpr IndexExpr::SimplifiedFor(std::span<const int64_t> extents) const {
  return IndexExprBuilder{&extents}.Rebuild(*this, nullptr);
}

std::string IndexExpr::ToString() const {
  auto operand = [&](int i) {  // in parentheses where it binds less than a product
    std::string text = arg(i).ToString();
    switch (arg(i).kind()) {
      case Kind::kAdd:
      case Kind::kLess:
      case Kind::kAnd:
      case Kind::kDiv:
      case Kind::kMod: return "(" + text + ")";
      case Kind::kConst: return arg(i).value() < 0 ? "(" + text + ")" : text;
      default: return text;
    }
  };
  switch (kind()) {
    case Kind::kConst: return StrCat(value());
    case Kind::kAxis: return StrCat("a", value());
    case Kind::kAdd: {
      const IndexExpr& right = arg(1);
      if (right.IsConst() && right.value() < 0) return StrCat(arg(0).ToString(), " - ", -right.value());
      return StrCat(arg(0).ToString(), " + ", right.ToString());
    }
    case Kind::kMul: return StrCat(operand(0), " * ", operand(1));
    case Kind::kDiv: return StrCat(operand(0), " / ", operand(1));
    case Kind::kMod: return StrCat(operand(0), " % ", operand(1));
    case Kind::kMin: return StrCat("min(", arg(0).ToString(), ", ", arg(1).ToString(), ")");
    case Kind::kMax: return StrCat("max(", arg(0).ToString(), ", ", arg(1).ToString(), ")");
    case Kind::kLess: return StrCat(operand(0), " < ", operand(1));
    case Kind::kAnd: return StrCat(operand(0), " && ", operand(1));
    case Kind::kTable: {
      // Long tables are told by their length and ends.
      const std::vector<int32_t>& t = table();
      std::string list = t.size() <= 8 ? Join(t, ", ") : StrCat(t.front(), ", ", t[1], " .. ", t.back(), "; ", t.size());
      return StrCat("{", list, "}[", arg(0).ToString(), "]");
    }
  }
  CHECK(false);
}

bool IndexExpr::operator==(const IndexExpr& other) const {
  if (node_ == other.node_) return true;
  if (kind() != other.kind() || node_->value != other.node_->value || node_->args.size() != other.node_->args.size())
    return false;
  for (size_t i = 0; i < node_->args.size(); ++i) {
    if (!(node_->args[i] == other.node_->args[i])) return false;
  }
  return node_->table == other.node_->table || (node_->table && other.node_->table && *node_->table == *other.node_->table);
}

}  // namespace leeway
