// sample: chooses the next token and moves on to it.
//   inputs    logits [1, V]; tokens i32[context + 1], by position; step (ops/step.h); sampler f32[16] (ops/sample.h)
//   results   tokens and step, updated: with n = position + count, tokens[n] is the chosen id, position becomes n and count 1;
//             at the end of the context count becomes 0 and the stop flag 1. A run of no rows changes nothing.
//
// In the order that users of llama.cpp know:
//   1. repeat penalty: the logits of ids among the last `repeat_window` tokens are divided by it where positive, else
//   multiplied
//   2. temperature 0: the largest logit, of equal ones the lowest id. Otherwise
//   3. top-k: logits that are at least the k-th largest
//   4. top-p: of these, logits that are at least t, the largest t for which they have the share p of the probability
//   5. min-p: logits that are at least the largest plus log(min_p)
//   6. temperature: of what is left the largest logit / temperature + noise, where noise is Gumbel's distribution, made from
//      (seed, n, id) by hashing: exact sampling without a sum, the same on every device, whatever the order of its threads
// Filters keep equal logits together. They are thresholds on the logits' bits in an order that integers have too (keys), found
// digit by digit.
//   groups    shares of the vocabulary make keys and find their best; then one workgroup filters and chooses
//   direct    the same with an invocation per share, and one that chooses
#include "ops/sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "ops/assemble.h"
#include "ops/dispatch.h"
#include "ops/operands.h"
#include "ops/step.h"

namespace leeway {

std::array<float, kSamplerElements> SamplerValues(const SamplerSettings& settings) {
  std::array<float, kSamplerElements> values{};
  values[0] = float(settings.temperature);
  values[1] = float(settings.top_k);
  values[2] = float(settings.top_p);
  values[3] = float(settings.min_p);
  values[4] = float(settings.repeat_penalty);
  values[5] = float(settings.repeat_window);
  for (size_t i = 0; i < 4; ++i) values[6 + i] = float((settings.seed >> (16 * i)) & 0xffff);
  return values;
}

namespace {

constexpr const char* kOp = "sample";
constexpr OpDef::Update kUpdates[] = {{.output = 0, .input = 1}, {.output = 1, .input = 2}};

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 4, 4));
  RETURN_IF_ERROR(ExpectFloat(call, kOp, 0));
  RETURN_IF_ERROR(ExpectRank(call, kOp, 0, 2, 2));
  const Shape& logits = InputShape(call, 0);
  if (logits[0] != 1 || logits[1] == 0)
    return Invalid("Operator sample has logits of shape ", logits.ToString(), "; it takes one row of at least one.");
  const TensorType &tokens = call.inputs[1].type, &sampler = call.inputs[3].type;
  if (tokens.dtype != DType::kI32 || tokens.shape.rank() != 1 || tokens.shape[0] < 2)
    return Invalid("Operator sample has tokens of type ", tokens.ToString(), "; it takes at least two i32 numbers.");
  RETURN_IF_ERROR(ExpectStep(call, kOp, 2));
  if (sampler.dtype != DType::kF32 || sampler.shape != Shape{kSamplerElements})
    return Invalid("Operator sample has a sampler of type ", sampler.ToString(), "; it takes f32[", kSamplerElements, "].");
  return std::vector<TensorType>{tokens, call.inputs[2].type};
}

uint32_t Key(float logit) {
  const uint32_t bits = std::bit_cast<uint32_t>(logit == 0 ? 0.0f : logit);
  return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}

uint32_t Mix(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// Minus the logarithm of an evenly distributed number is an exponential variable; minus its logarithm is Gumbel's.
double Gumbel(uint32_t hash) {
  const double t = std::min((double(hash) + 0.5) / 4294967296.0, 0.99999994);
  return -std::log(-std::log1p(-t));
}

Status Reference(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  std::vector<float> logits = inputs[0].ToF32();
  HostTensor &tokens = outputs[0], &step_tensor = outputs[1];
  const RowPositions step = StepOf(step_tensor);
  if (step.count <= 0) return {};
  const int64_t n = step.position + step.count, context = tokens.element_count() - 1;
  const std::vector<float> sampler = inputs[3].ToF32();
  const float penalty = sampler[4];
  if (penalty != 1) {
    std::set<int64_t> seen;
    for (int64_t i = std::max<int64_t>(n - int64_t(sampler[5]), 0); i < std::min(n, context + 1); ++i)
      seen.insert(int64_t(tokens.Get(i)));
    for (int64_t id : seen) {
      if (id < 0 || id >= int64_t(logits.size())) continue;
      float& logit = logits[size_t(id)];
      logit = logit > 0 ? logit / penalty : logit * penalty;
    }
  }
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (Key(logits[i]) > Key(logits[best])) best = i;
  }
  const float temperature = sampler[0], largest = logits[best];
  if (temperature > 0) {
    uint32_t threshold = 0;
    std::vector<float> sorted = logits;
    std::ranges::sort(sorted, [](float a, float b) { return Key(a) > Key(b); });
    if (const int64_t top_k = int64_t(sampler[1]); top_k > 0 && top_k < int64_t(sorted.size()))
      threshold = Key(sorted[size_t(top_k - 1)]);
    if (sampler[2] < 1) {
      double total = 0, above = 0;
      for (float logit : sorted) total += Key(logit) >= threshold ? std::exp(double(logit) - largest) : 0;
      for (float logit : sorted) {
        above += std::exp(double(logit) - largest);
        if (above >= sampler[2] * total || Key(logit) <= threshold) {
          threshold = std::max(threshold, Key(logit));
          break;
        }
      }
    }
    if (sampler[3] > 0) threshold = std::max(threshold, Key(largest + std::log(std::min(sampler[3], 1.0f))));
    auto word = [&](size_t i) { return uint32_t(sampler[i]) | uint32_t(sampler[i + 1]) << 16; };
    const uint32_t base = Mix(Mix(Mix(word(6) + 0x9e3779b9u) ^ word(8)) ^ uint32_t(n));
    double best_score = -INFINITY;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (Key(logits[i]) < threshold) continue;
      const double score = double(logits[i]) / temperature + Gumbel(Mix(base ^ Mix(uint32_t(i) ^ 0x68bc21ebu)));
      if (score > best_score) {
        best_score = score;
        best = i;
      }
    }
  }
  if (n <= context) tokens.Set(n, double(best));
  step_tensor.Set(int64_t(StepField::kPosition), double(n));
  step_tensor.Set(int64_t(StepField::kCount), n < context ? 1 : 0);
  step_tensor.Set(int64_t(StepField::kStopped), n < context ? 0 : 1);
  return {};
}

// ---- First dispatch: keys of the penalized logits, and the best of each share ----

constexpr char kScanCommon[] = R"(
tensor logits[one, id] : read;
tensor tokens[position] : read_write as i32;
tensor run[field] : read_write as i32;
tensor sampler[setting] : read;
tensor keys[id] : write as u32;
tensor best[share, which] : write as u32;
const groups_per_row : u32;
const slices_per_share : u32;

fn key_of(logit : f32) -> u32 {
  let bits = bitcast<u32>(select(logit, 0.0, logit == 0.0));
  return bits ^ select(0x80000000u, 0xffffffffu, (bits >> 31u) == 1u);
}

// Slice number `slice` of the logits with the penalty, as keys; 0 beyond the edge, which no number has.
fn keys_of(slice : u32) -> vec4u {
  var v = logits.load4(0u, slice);
  let penalty = sampler.load(4u);
  if penalty != 1.0 {
    let end = u32(max(run.load(0u) + run.load(1u), 0));
    let window = u32(max(sampler.load(5u), 0.0));
    var is_seen = vec4<bool>(false);
    for (var i = max(end, window) - window; i < min(end, tokens.position); i++) {
      is_seen = is_seen | (vec4i(4 * i32(slice)) + vec4i(0, 1, 2, 3) == vec4i(tokens.load(i)));
    }
    v = select(v, select(v * penalty, v / penalty, v > vec4f(0.0)), is_seen);
  }
  let made = vec4u(key_of(v.x), key_of(v.y), key_of(v.z), key_of(v.w));
  return select(vec4u(0u), made, inside4(slice, logits.id));
}
)";

constexpr auto kScanDirect = JoinTexts(kScanCommon, R"(
@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) at : vec3u, @builtin(local_invocation_index) lane : u32) {
  let share = (at.y * groups_per_row + at.x) * 8u + lane;
  if (share >= best.share) { return; }
  let keeps = sampler.load(0u) > 0.0;
  var best_key = 0u;
  var best_id = 0u;
  let end = min((share + 1u) * slices_per_share, (logits.id + 3u) / 4u);
  for (var slice = share * slices_per_share; slice < end; slice++) {
    let found = keys_of(slice);
    if keeps { keys.store4(found, slice); }
    let most = max4(found);
    if most > best_key {
      best_key = most;
      best_id = 4u * slice + select(select(select(3u, 2u, found.z == most), 1u, found.y == most), 0u, found.x == most);
    }
  }
  best.store(best_key, share, 0u);
  best.store(best_id, share, 1u);
}
)");

constexpr auto kScanGroups = JoinTexts(kScanCommon, R"(
@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) at : vec3u, @builtin(local_invocation_index) lane : u32) {
  let share = at.y * groups_per_row + at.x;
  if (share >= best.share) { return; }
  let keeps = sampler.load(0u) > 0.0;
  var best_key = 0u;
  var best_id = 0xffffffffu;
  let end = min((share + 1u) * slices_per_share, (logits.id + 3u) / 4u);
  for (var slice = share * slices_per_share + lane; slice < end; slice += 128u) {
    let found = keys_of(slice);
    if keeps { keys.store4(found, slice); }
    let most = max4(found);
    if most > best_key {
      best_key = most;
      best_id = 4u * slice + select(select(select(3u, 2u, found.z == most), 1u, found.y == most), 0u, found.x == most);
    }
  }
  let most = unit_max(best_key);
  let id = unit_min(select(0xffffffffu, best_id, best_key == most));
  if lane == 0u {
    best.store(most, share, 0u);
    best.store(id, share, 1u);
  }
}
)");

// ---- Second dispatch: filters and choice ----

constexpr char kChooseCommon[] = R"(
tensor tokens[position] : read_write as i32;
tensor run[field] : read_write as i32;
tensor sampler[setting] : read;
tensor keys[id] : read as u32;
tensor best[share, which] : read as u32;

fn logit_of(key : u32) -> f32 {
  return bitcast<f32>(key ^ select(0xffffffffu, 0x80000000u, (key >> 31u) == 1u));
}
fn key_of(logit : f32) -> u32 {
  let bits = bitcast<u32>(select(logit, 0.0, logit == 0.0));
  return bits ^ select(0x80000000u, 0xffffffffu, (bits >> 31u) == 1u);
}
fn mix_bits(bits : u32) -> u32 {
  var x = bits;
  x = (x ^ (x >> 16u)) * 0x7feb352du;
  x = (x ^ (x >> 15u)) * 0x846ca68bu;
  return x ^ (x >> 16u);
}
fn seed_word(i : u32) -> u32 { return u32(sampler.load(i)) | (u32(sampler.load(i + 1u)) << 16u); }
fn noise_base(position : u32) -> u32 {
  return mix_bits(mix_bits(mix_bits(seed_word(6u) + 0x9e3779b9u) ^ seed_word(8u)) ^ position);
}
// The logarithm of numbers near 1 is not worth much on GPUs: there a series takes its place.
fn gumbel(hash : u32) -> f32 {
  let t = min((f32(hash) + 0.5) * 2.3283064365386963e-10, 0.99999994);
  if t < 0.125 {
    return -log(t * (1.0 + t * (0.5 + t * (0.33333333 + t * (0.25 + t * (0.2 + t * (0.16666667 + t * (0.14285714 + t * 0.125))))))));
  }
  return -log(-log(1.0 - t));
}
fn score_of(key : u32, id : u32, base : u32) -> f32 {
  return logit_of(key) / sampler.load(0u) + gumbel(mix_bits(base ^ mix_bits(id ^ 0x68bc21ebu)));
}
// The least key that min-p leaves.
fn min_p_key(largest : f32) -> u32 {
  if sampler.load(3u) <= 0.0 { return 0u; }
  return key_of(largest + log(min(sampler.load(3u), 1.0)));
}
fn move_on(chosen : u32, position : i32, count : i32) {
  if count <= 0 { return; }
  let next = position + count;
  const context = i32(tokens.position) - 1;
  if next <= context { tokens.store(i32(chosen), u32(next)); }
  run.store(next, 0u);
  run.store(select(0, 1, next < context), 1u);
  run.store(select(1, 0, next < context), 3u);
}
)";

constexpr auto kChooseDirect = JoinTexts(kChooseCommon, R"(
var<private> bins : array<f32, 256>;

// The largest key for which the keys that are at least as large weigh `wanted` or more; keys below `least` weigh nothing. Counts
// are exact in f32 as far as vocabularies go. With `is_share` the weight of a key is its probability and `wanted` a share of the
// whole.
fn select_key(wanted : f32, least : u32, is_share : bool, largest : f32) -> u32 {
  var prefix = 0u;
  var left = wanted;
  for (var digit = 0u; digit < 4u; digit++) {
    let shift = 24u - 8u * digit;
    for (var i = 0u; i < 256u; i++) { bins[i] = 0.0; }
    for (var id = 0u; id < keys.id; id++) {
      let key = keys.load(id);
      if key >= least && (digit == 0u || key >> (shift + 8u) == prefix) {
        bins[(key >> shift) & 255u] += select(1.0, exp(logit_of(key) - largest), is_share);
      }
    }
    if digit == 0u && is_share {
      var total = 0.0;
      for (var i = 0u; i < 256u; i++) { total += bins[i]; }
      left = wanted * total;
    }
    // Where rounding leaves a rest, the last digit that weighs anything.
    var chosen = 256u;
    for (var i = 256u; i > 0u; i--) {
      if bins[i - 1u] > 0.0 {
        chosen = i - 1u;
        if bins[i - 1u] >= left { break; }
        left -= bins[i - 1u];
      }
    }
    prefix = prefix * 256u + min(chosen, 255u);
  }
  return prefix;
}

@compute @workgroup_size(1)
fn main() {
  var best_key = 0u;
  var chosen = 0u;
  for (var i = 0u; i < best.share; i++) {
    let key = best.load(i, 0u);
    if key > best_key {
      best_key = key;
      chosen = best.load(i, 1u);
    }
  }
  let position = run.load(0u);
  let count = run.load(1u);
  if sampler.load(0u) > 0.0 {
    let largest = logit_of(best_key);
    var threshold = 0u;
    let top_k = sampler.load(1u);
    if top_k >= 1.0 && top_k < f32(keys.id) { threshold = select_key(top_k, 0u, false, largest); }
    if sampler.load(2u) < 1.0 { threshold = max(threshold, select_key(sampler.load(2u), threshold, true, largest)); }
    threshold = max(threshold, min_p_key(largest));
    let base = noise_base(u32(position + count));
    var best_score = -3.0e38;
    for (var id = 0u; id < keys.id; id++) {
      let key = keys.load(id);
      if key >= threshold {
        let score = score_of(key, id, base);
        if score > best_score {
          best_score = score;
          chosen = id;
        }
      }
    }
  }
  move_on(chosen, position, count);
}
)");

constexpr auto kChooseGroups = JoinTexts(kChooseCommon, R"(
const lanes : u32;

// As in the direct kernel, with digits of four bits.
fn select_key(wanted : f32, least : u32, is_share : bool, largest : f32, @builtin(local_invocation_index) lane : u32) -> u32 {
  var prefix = 0u;
  var left = wanted;
  for (var digit = 0u; digit < 8u; digit++) {
    let shift = 28u - 4u * digit;
    var bins = array(vec4f(0.0), vec4f(0.0), vec4f(0.0), vec4f(0.0));
    for (var slice = lane; slice < (keys.id + 3u) / 4u; slice += lanes) {
      let four = keys.load4(slice);
      let inside = inside4(slice, keys.id);
      let found = array(four.x, four.y, four.z, four.w);
      let is_inside = array(inside.x, inside.y, inside.z, inside.w);
      @unroll for (var i = 0u; i < 4u; i++) {
        let key = found[i];
        if is_inside[i] && key >= least && (digit == 0u || key >> (shift + 4u) == prefix) {
          let bin = (key >> shift) & 15u;
          let weight = select(1.0, exp(logit_of(key) - largest), is_share);
          @unroll for (var q = 0u; q < 4u; q++) {
            bins[q] += select(vec4f(0.0), vec4f(weight), vec4u(0u, 1u, 2u, 3u) + 4u * q == vec4u(bin));
          }
        }
      }
    }
    @unroll for (var q = 0u; q < 4u; q++) { bins[q] = unit_sum(bins[q]); }
    if digit == 0u && is_share { left = wanted * sum4(bins[0] + bins[1] + bins[2] + bins[3]); }
    var chosen = 16u;
    var is_found = false;
    @unroll for (var q = 4u; q > 0u; q--) {
      let weights = array(bins[q - 1u].x, bins[q - 1u].y, bins[q - 1u].z, bins[q - 1u].w);
      @unroll for (var i = 4u; i > 0u; i--) {
        let weight = weights[i - 1u];
        if !is_found && weight > 0.0 {
          chosen = 4u * (q - 1u) + i - 1u;
          is_found = weight >= left;
          if !is_found { left -= weight; }
        }
      }
    }
    prefix = prefix * 16u + min(chosen, 15u);
  }
  return prefix;
}

@compute @workgroup_size(lanes)
fn main(@builtin(local_invocation_index) lane : u32) {
  let position = run.load(0u);
  let count = run.load(1u);
  var best_key = 0u;
  var best_id = 0xffffffffu;
  for (var i = lane; i < best.share; i += lanes) {
    let key = best.load(i, 0u);
    if key > best_key {
      best_key = key;
      best_id = best.load(i, 1u);
    }
  }
  let most = unit_max(best_key);
  var chosen = unit_min(select(0xffffffffu, best_id, best_key == most));
  if sampler.load(0u) > 0.0 {
    let largest = logit_of(most);
    var threshold = 0u;
    let top_k = sampler.load(1u);
    if top_k >= 1.0 && top_k < f32(keys.id) { threshold = select_key(top_k, 0u, false, largest); }
    if sampler.load(2u) < 1.0 { threshold = max(threshold, select_key(sampler.load(2u), threshold, true, largest)); }
    threshold = max(threshold, min_p_key(largest));
    let base = noise_base(u32(position + count));
    var best_score = -3.0e38;
    var id_of_best = chosen;
    for (var slice = lane; slice < (keys.id + 3u) / 4u; slice += lanes) {
      let four = keys.load4(slice);
      let inside = inside4(slice, keys.id);
      let found = array(four.x, four.y, four.z, four.w);
      let is_inside = array(inside.x, inside.y, inside.z, inside.w);
      @unroll for (var i = 0u; i < 4u; i++) {
        if is_inside[i] && found[i] >= threshold {
          let score = score_of(found[i], 4u * slice + i, base);
          if score > best_score {
            best_score = score;
            id_of_best = 4u * slice + i;
          }
        }
      }
    }
    let best_of_all = unit_max(best_score);
    chosen = unit_min(select(0xffffffffu, id_of_best, best_score == best_of_all));
  }
  storageBarrier();
  workgroupBarrier();
  if lane == 0u { move_on(chosen, position, count); }
}
)");

template <bool groups>
Result<OpPlan> Plan(const KernelRequest& request) {
  const int64_t vocabulary = InputShape(request.call, 0)[1], slices = Slices(vocabulary);
  const int64_t slices_per_share = groups ? 512 : 128, shares = DivideUp(slices, slices_per_share);
  OpPlan plan;
  plan.tensors = {{.type = {DType::kU32, Shape{vocabulary}}}, {.type = {DType::kU32, Shape{shares, 2}}}};
  const TensorArgument keys{.name = "keys", .kind = TensorArgument::Kind::kPlan, .index = 0};
  const TensorArgument best{.name = "best", .kind = TensorArgument::Kind::kPlan, .index = 1};
  const TensorArgument tokens = OutputArgument("tokens", 0), step = OutputArgument("run", 1),
                       sampler = InputArgument("sampler", 3);
  KernelDispatch scan{.kernel_name = "sample_scan",
                      .kernel_text = groups ? kScanGroups.data() : kScanDirect.data(),
                      .consts = {{"slices_per_share", double(slices_per_share)}},
                      .tensors = {InputArgument("logits", 0), tokens, step, sampler, keys, best},
                      .flops = double(vocabulary)};
  SetGroupGrid(scan, request, groups ? shares : DivideUp(shares, 8));
  KernelDispatch choose{.kernel_name = "sample_choose",
                        .kernel_text = groups ? kChooseGroups.data() : kChooseDirect.data(),
                        .tensors = {tokens, step, sampler, keys, best},
                        .flops = 100.0 * double(vocabulary),
                        .stores_result = true};
  if (groups) {
    int64_t lanes = 64;
    while (lanes < 1024 && lanes * 4 <= slices && lanes * 2 <= int64_t(request.target.max_invocations) &&
           lanes * 2 <= int64_t(request.target.max_workgroup_size[0])) {
      lanes *= 2;
    }
    choose.consts["lanes"] = double(lanes);
  }
  plan.dispatches = {std::move(scan), std::move(choose)};
  return plan;
}

constexpr KernelVariant kVariants[] = {
    {.name = "groups",
     .what = "a workgroup per share of the vocabulary, and one that chooses",
     .accepts = [](const KernelRequest& request) { return !request.target.is_software; },
     .plan = Plan<true>,
     .no_epilogue = true},
    {.name = "direct",
     .what = "an invocation per share of the vocabulary, and one that chooses",
     .accepts = AcceptAlways,
     .plan = Plan<false>,
     .no_epilogue = true},
};
constexpr OpKernels kKernels = {.variants = kVariants};

}  // namespace

extern const OpDef op_sample = {.name = kOp, .infer = Infer, .reference = Reference, .updates = kUpdates, .kernels = &kKernels};

}  // namespace leeway
