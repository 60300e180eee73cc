#include "shader/prelude.h"

#include <unordered_map>

#include "base/result.h"
#include "base/strings.h"
#include "shader/compile.h"

namespace leeway::shader {

namespace {

constexpr std::string_view kText = R"(
// ---- Four lanes at a time: v is slice number `slice` of an axis with `extent` elements, as load4 gives it ----

fn sum4(v : V4) -> E { return (v.x + v.y) + (v.z + v.w); }
fn max4(v : V4) -> E { return max(max(v.x, v.y), max(v.z, v.w)); }
fn min4(v : V4) -> E { return min(min(v.x, v.y), min(v.z, v.w)); }
fn product4(v : V4) -> E { return (v.x * v.y) * (v.z * v.w); }

// Which lanes lie inside the axis.
fn inside4(slice : u32, extent : N) -> vec4<bool> {
  if extent % 4u == 0u { return vec4<bool>(true); }
  return vec4u(0u, 1u, 2u, 3u) + 4u * slice < vec4u(extent);
}
// v, with `outside` in the lanes beyond the edge.
fn keep4(v : V4, slice : u32, extent : N, outside : E) -> V4 {
  if extent % 4u == 0u { return v; }
  return select(V4(outside), v, inside4(slice, extent));
}
fn max4_inside(v : V4, slice : u32, extent : N) -> E { return max4(keep4(v, slice, extent, v.x)); }
fn min4_inside(v : V4, slice : u32, extent : N) -> E { return min4(keep4(v, slice, extent, v.x)); }
fn sum4_inside(v : V4, slice : u32, extent : N) -> E { return sum4(keep4(v, slice, extent, E(0))); }

// ---- Activations, for a float or a vector of floats ----

fn relu(v : V) -> V { return max(v, V(0.0)); }
fn relu6(v : V) -> V { return clamp(v, V(0.0), V(6.0)); }
fn relu_n1_to_1(v : V) -> V { return clamp(v, V(-1.0), V(1.0)); }
fn leaky_relu(v : V, slope : E) -> V { return max(v, V(0.0)) + slope * min(v, V(0.0)); }
// exp of more than 88 is infinite, and some compilers take infinity for something that never occurs.
fn sigmoid(v : V) -> V { return V(1.0) / (V(1.0) + exp(min(-v, V(80.0)))); }
fn silu(v : V) -> V { return v * sigmoid(v); }
// Some drivers make tanh from exp(2 v), which overflows; at 10 the result is 1 in f32.
fn tanh_clamped(v : V) -> V { return tanh(clamp(v, V(-10.0), V(10.0))); }
fn gelu_tanh(v : V) -> V {
  return v * 0.5 * (V(1.0) + tanh_clamped(0.7978845608 * (v + 0.044715 * v * v * v)));
}
// Abramowitz and Stegun 7.1.26, at most 1.5e-7 away from the true value.
fn erf(v : V) -> V {
  let a = abs(v);
  let t = V(1.0) / (V(1.0) + 0.3275911 * a);
  let series = t * (V(0.254829592) + t * (V(-0.284496736) + t * (V(1.421413741) + t * (V(-1.453152027) + t * 1.061405429))));
  return sign(v) * (V(1.0) - series * exp(-min(a * a, V(80.0))));
}
fn gelu_erf(v : V) -> V { return v * 0.5 * (V(1.0) + erf(v * 0.70710678118)); }
fn hard_sigmoid(v : V) -> V { return clamp(v * (1.0 / 6.0) + 0.5, V(0.0), V(1.0)); }
fn hard_swish(v : V) -> V { return v * clamp(v + 3.0, V(0.0), V(6.0)) * (1.0 / 6.0); }
fn elu(v : V) -> V { return max(v, V(0.0)) + (exp(min(v, V(0.0))) - V(1.0)); }
fn softplus(v : V) -> V { return max(v, V(0.0)) + log(V(1.0) + exp(-abs(v))); }

// ---- Angles ----

// Sine and cosine of numbers up to some thousands, to 1e-6 on every device: what devices have themselves may be off by 5e-4.
// The multiple of a quarter turn is taken away in three parts, and series do the rest.
fn sin_precise(v : V) -> V { return sin_of_quarters(v, V(0.0)); }
fn cos_precise(v : V) -> V { return sin_of_quarters(v, V(1.0)); }
// sin(v + ahead * pi / 2), for ahead of 0 or 1.
fn sin_of_quarters(v : V, ahead : V) -> V {
  let k = round(v * 0.6366197724);
  let rest = ((v - k * 1.5703125) - k * 4.837512969970703e-4) - k * 7.549789948768648e-8;
  let square = rest * rest;
  let sine = rest + rest * square * (V(-0.16666654611) + square * (V(8.3321608736e-3) + square * -1.9515295891e-4));
  let cosine = V(1.0) - 0.5 * square +
               square * square * (V(4.166664568e-2) + square * (V(-1.388731625e-3) + square * 2.443315712e-5));
  let n = k + ahead;
  let odd = n - 2.0 * floor(n * 0.5);
  let half = n - 4.0 * floor(n * 0.25);
  let value = select(sine, cosine, odd > V(0.5));
  return select(value, -value, half > V(1.5));
}

// Cosine and sine of an angle in units of 2^-32 turns: a number of quarters and a rest within an eighth of a turn to each side,
// on which the series are exact to 1e-8.
fn cos_sin_of_turn(turn : u32) -> vec2f {
  let shifted = turn + 0x20000000u;
  let quarters = shifted >> 30u;
  let rest = f32(i32(shifted & 0x3fffffffu) - 0x20000000) * 1.462918079e-9;
  let square = rest * rest;
  let sine = rest * (1.0 + square * (-0.16666666667 + square * (8.3333333e-3 + square * (-1.98412698e-4 + square * 2.7557319e-6))));
  let cosine = 1.0 + square * (-0.5 + square * (4.16666667e-2 + square * (-1.38888889e-3 + square * 2.48015873e-5)));
  let swapped = select(vec2f(cosine, sine), vec2f(sine, cosine), (quarters & 1u) == 1u);
  return vec2f(select(swapped.x, -swapped.x, quarters == 1u || quarters == 2u), select(swapped.y, -swapped.y, quarters >= 2u));
}

// ---- Units: the invocations of a workgroup that share everything but local_invocation_id.x ----
//
// Where the unit is a subgroup for certain, or the workgroup is no more than one, one subgroup function does it. Where it is
// several subgroups, each leaves its part in workgroup memory; elsewhere a tree over workgroup memory does it all. All
// invocations of the workgroup call these in uniform control flow and all get the result.

var<workgroup> unit_memory : array<V, unit_invocations>;

fn unit_sum(v : V, @builtin(local_invocation_index) lane : u32) -> V {
  if unit_lanes == 1u {
    return v;
  } else if unit_is_subgroup {
    return subgroupAdd(v);
  } else if unit_is_part_of_subgroup {
    var total = v;
    for (var mask = unit_lanes / 2u; mask > 0u; mask = mask / 2u) { total = total + subgroupShuffleXor(total, mask); }
    return total;
  } else if unit_is_subgroups {
    const parts = unit_lanes / subgroup_size;
    let part = subgroupAdd(v);
    workgroupBarrier();
    if lane % subgroup_size == 0u { unit_memory[lane / subgroup_size] = part; }
    workgroupBarrier();
    let first = lane / unit_lanes * parts;
    var total = unit_memory[first];
    for (var i = 1u; i < parts; i++) { total += unit_memory[first + i]; }
    return total;
  } else {
    workgroupBarrier();
    unit_memory[lane] = v;
    workgroupBarrier();
    for (var count = unit_lanes; count > 1u; count = (count + 1u) / 2u) {
      let middle = (count + 1u) / 2u;
      if lane % unit_lanes < count / 2u { unit_memory[lane] += unit_memory[lane + middle]; }
      workgroupBarrier();
    }
    return unit_memory[lane - lane % unit_lanes];
  }
}

fn unit_max(v : V, @builtin(local_invocation_index) lane : u32) -> V {
  if unit_lanes == 1u {
    return v;
  } else if unit_is_subgroup {
    return subgroupMax(v);
  } else if unit_is_part_of_subgroup {
    var total = v;
    for (var mask = unit_lanes / 2u; mask > 0u; mask = mask / 2u) { total = max(total, subgroupShuffleXor(total, mask)); }
    return total;
  } else if unit_is_subgroups {
    const parts = unit_lanes / subgroup_size;
    let part = subgroupMax(v);
    workgroupBarrier();
    if lane % subgroup_size == 0u { unit_memory[lane / subgroup_size] = part; }
    workgroupBarrier();
    let first = lane / unit_lanes * parts;
    var total = unit_memory[first];
    for (var i = 1u; i < parts; i++) { total = max(total, unit_memory[first + i]); }
    return total;
  } else {
    workgroupBarrier();
    unit_memory[lane] = v;
    workgroupBarrier();
    for (var count = unit_lanes; count > 1u; count = (count + 1u) / 2u) {
      let middle = (count + 1u) / 2u;
      if lane % unit_lanes < count / 2u { unit_memory[lane] = max(unit_memory[lane], unit_memory[lane + middle]); }
      workgroupBarrier();
    }
    return unit_memory[lane - lane % unit_lanes];
  }
}

fn unit_min(v : V, @builtin(local_invocation_index) lane : u32) -> V {
  if unit_lanes == 1u {
    return v;
  } else if unit_is_subgroup {
    return subgroupMin(v);
  } else if unit_is_part_of_subgroup {
    var total = v;
    for (var mask = unit_lanes / 2u; mask > 0u; mask = mask / 2u) { total = min(total, subgroupShuffleXor(total, mask)); }
    return total;
  } else if unit_is_subgroups {
    const parts = unit_lanes / subgroup_size;
    let part = subgroupMin(v);
    workgroupBarrier();
    if lane % subgroup_size == 0u { unit_memory[lane / subgroup_size] = part; }
    workgroupBarrier();
    let first = lane / unit_lanes * parts;
    var total = unit_memory[first];
    for (var i = 1u; i < parts; i++) { total = min(total, unit_memory[first + i]); }
    return total;
  } else {
    workgroupBarrier();
    unit_memory[lane] = v;
    workgroupBarrier();
    for (var count = unit_lanes; count > 1u; count = (count + 1u) / 2u) {
      let middle = (count + 1u) / 2u;
      if lane % unit_lanes < count / 2u { unit_memory[lane] = min(unit_memory[lane], unit_memory[lane + middle]); }
      workgroupBarrier();
    }
    return unit_memory[lane - lane % unit_lanes];
  }
}
)";

struct Index {
  Module module;
  std::unordered_map<std::string_view, const Function*> functions;
  std::unordered_map<std::string_view, const VarDecl*> vars;
};

const Index& TheIndex() {
  static const Index* index = [] {
    auto parsed = Parse(kText, "prelude");
    if (!parsed.ok()) CheckFailed(parsed.error().message.c_str(), __FILE__, __LINE__);
    auto* made = new Index{std::move(parsed).value(), {}, {}};
    for (const Function& f : made->module.functions) made->functions.emplace(f.name, &f);
    for (const VarDecl& v : made->module.vars) made->vars.emplace(v.name, &v);
    return made;
  }();
  return *index;
}

template <class Map>
auto Find(const Map& map, std::string_view name) {
  auto found = map.find(name);
  return found == map.end() ? nullptr : found->second;
}

}  // namespace

const Module& Prelude() { return TheIndex().module; }
const Function* FindPreludeFunction(std::string_view name) { return Find(TheIndex().functions, name); }
const VarDecl* FindPreludeVar(std::string_view name) { return Find(TheIndex().vars, name); }

bool IsPreludeInstanceName(std::string_view name) {
  if (name.empty()) return false;
  if (name.back() >= '0' && name.back() <= '9') {  // max4_inside_vec4f_1000: a constant that is bound
    std::string_view rest = name.substr(0, name.find_last_not_of("0123456789") + 1);
    if (!rest.empty() && rest.back() == '_') {
      rest.remove_suffix(1);
      if (FindPreludeFunction(rest) || IsPreludeInstanceName(rest)) return true;
    }
  }
  size_t mark = name.rfind('_');
  if (const Function* f = FindPreludeFunction(name)) {  // as it stands, if it is not generic
    bool is_generic = false;
    for (const Parameter& p : f->parameters) is_generic |= p.type.kind == Type::Kind::kStruct;
    return !is_generic;
  }
  if (mark == std::string_view::npos) return false;
  std::string_view base = name.substr(0, mark), suffix = name.substr(mark + 1);
  if (!FindPreludeFunction(base) && !FindPreludeVar(base)) return false;
  return suffix == "f32" || suffix == "i32" || suffix == "u32" || suffix == "f16" || suffix == "bool" ||
         suffix.substr(0, 3) == "vec";
}

std::string PreludeSuffix(const Type& type) {
  if (type.IsScalar()) return ScalarName(type.scalar);
  if (type.scalar == Scalar::kBool) return StrCat("vec", int(type.rows), "bool");
  return StrCat("vec", int(type.rows), type.scalar == Scalar::kF16 ? 'h' : ScalarName(type.scalar)[0]);
}

}  // namespace leeway::shader
