#include "ops/linear_panels.h"

#include <algorithm>

#include "ops/assemble.h"
#include "ops/cpu_target.h"
#include "ops/dispatch.h"
#include "ops/weights.h"

namespace leeway {
namespace {

// A workgroup of one invocation has sixteen outputs of a panel of rows. A part of the weights' rows becomes numbers once,
// output by output side by side, and meets all rows of the panel, `together` of them at a time. Loops over sixteen single
// elements become two vector instructions each in compilers for CPUs with vectors of eight; sums of six rows are twelve
// registers.
constexpr std::string_view kText = R"(
tensor x[row, inner] : read;
weights w[output, inner];
weights bias[output];
tensor y[row, output] : write;
const use_bias : bool;
const together : u32;
const depth : u32;   // elements of the weights' rows that are held at once
const panel : u32;   // rows of a workgroup, a multiple of `together`

const outputs = 16u;
var<workgroup> tile : array<f32, depth * outputs>;
var<workgroup> part : array<f32, panel * outputs>;

fn number(code : u32) -> f32 { return f32(bitcast<i32>(code)); }
fn weight_row(first : u32, o : u32) -> u32 {
  if (w.output % outputs == 0u) { return first + o; } else { return min(first + o, w.output - 1u); }
}

// Element e of `begin` on to tile[e * outputs ...].
fn fill(first : u32, begin : u32, elements : u32) {
  if (w.bits == 0u) {
    for (var s = 0u; s < (elements + 3u) / 4u; s++) {
      for (var o = 0u; o < outputs; o++) {
        let v = w.load4(weight_row(first, o), begin / 4u + s);
        for (var j = 0u; j < 4u; j++) { tile[(4u * s + j) * outputs + o] = v[j]; }
      }
    }
  } else {
    // A half is sixteen elements, which have one factor in all formats: one nibble of four words, or four words of bytes.
    for (var half = begin / 16u; half < (begin + elements) / 16u; half++) {
      var scale = array<f32, outputs>();
      var minimum = array<f32, outputs>();
      for (var o = 0u; o < outputs; o++) {
        let row = weight_row(first, o);
        scale[o] = w.scale(row, half * 16u / w.group);
        minimum[o] = w.minimum(row, half * 16u / w.group) - f32(w.offset) * scale[o];
      }
      for (var i = 0u; i < 4u; i++) {
        var words = array<u32, outputs>();
        let at = (16u * half - begin + 4u * i) * outputs;
        if (w.bits == 4u) {
          let shift = half % 2u * 4u;
          for (var o = 0u; o < outputs; o++) { words[o] = w.word(weight_row(first, o), half / 2u * 4u + i) >> shift; }
          for (var o = 0u; o < outputs; o++) { tile[at + o] = number(words[o] & 15u) * scale[o] + minimum[o]; }
          for (var o = 0u; o < outputs; o++) { tile[at + outputs + o] = number((words[o] >> 8u) & 15u) * scale[o] + minimum[o]; }
          for (var o = 0u; o < outputs; o++) {
            tile[at + 2u * outputs + o] = number((words[o] >> 16u) & 15u) * scale[o] + minimum[o];
          }
          for (var o = 0u; o < outputs; o++) {
            tile[at + 3u * outputs + o] = number((words[o] >> 24u) & 15u) * scale[o] + minimum[o];
          }
        } else {
          for (var o = 0u; o < outputs; o++) { words[o] = w.word(weight_row(first, o), half * 4u + i); }
          for (var o = 0u; o < outputs; o++) {
            tile[at + o] = f32(bitcast<i32>(words[o] << 24u) >> 24u) * scale[o] + minimum[o];
          }
          for (var o = 0u; o < outputs; o++) {
            tile[at + outputs + o] = f32(bitcast<i32>(words[o] << 16u) >> 24u) * scale[o] + minimum[o];
          }
          for (var o = 0u; o < outputs; o++) {
            tile[at + 2u * outputs + o] = f32(bitcast<i32>(words[o] << 8u) >> 24u) * scale[o] + minimum[o];
          }
          for (var o = 0u; o < outputs; o++) {
            tile[at + 3u * outputs + o] = f32(bitcast<i32>(words[o]) >> 24u) * scale[o] + minimum[o];
          }
        }
      }
    }
  }
}

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group : vec3u) {
  let first = group.x * outputs;
  let first_row = group.y * panel;
  let rows = min(panel, x.row - first_row);
  // Zero, but no compiler knows: Mesa unrolls loops over constant extents without measure.
  let zero = group.x >> 31u;
  for (var begin = 0u; begin < w.inner + zero; begin += depth) {
    let elements = min(depth, w.inner - begin);
    fill(first, begin, elements);
    for (var row = 0u; row < rows; row += together) {
      var row_of = array<u32, together>();
      @unroll for (var r = 0u; r < together; r++) { row_of[r] = first_row + min(row + r, rows - 1u); }
      var sums = array<f32, together * outputs>();
      if (begin > 0u) {
        @unroll for (var i = 0u; i < together * outputs; i++) { sums[i] = part[row * outputs + i]; }
      }
      for (var s = 0u; s < (elements + 3u) / 4u; s++) {
        @unroll for (var j = 0u; j < 4u; j++) {
          @unroll for (var r = 0u; r < together; r++) {
            let v = x.load(row_of[r], begin + 4u * s + j);
            @unroll for (var o = 0u; o < outputs; o++) {
              sums[r * outputs + o] += v * tile[(4u * s + j) * outputs + o];
            }
          }
        }
      }
      @unroll for (var i = 0u; i < together * outputs; i++) { part[row * outputs + i] = sums[i]; }
    }
  }
  for (var row = 0u; row < rows; row++) {
    for (var q = 0u; q < outputs / 4u; q++) {
      let slice = first / 4u + q;
      if (4u * slice < y.output) {
        let at = row * outputs + 4u * q;
        var v = vec4f(part[at], part[at + 1u], part[at + 2u], part[at + 3u]);
        if (use_bias) { v += bias.load4(slice); }
        y.store4(v, first_row + row, slice);
      }
    }
  }
}
)";

constexpr int64_t kOutputs = 16, kMostRows = 64;

struct PanelShape {
  int64_t rows, inner, outputs;  // of the product
  int64_t together, depth, panel;
};

PanelShape ShapeOf(const OpCall& call) {
  const Shape& w = InputShape(call, 1);
  PanelShape s{InputShape(call, 0).element_count() / w[1], w[1], w[0], 4, 256, 0};
  const int64_t rows = std::min(s.rows, kMostRows);
  // Six use more of the registers; not where many of their last would be for nothing.
  if (DivideUp(rows, 6) * 6 - rows <= 2) s.together = 6;
  s.panel = DivideUp(rows, s.together) * s.together;
  for (int64_t depth = 256; depth >= 96; depth -= 32) {
    if (s.inner % depth == 0) {
      s.depth = depth;
      break;
    }
  }
  return s;
}

}  // namespace

bool AcceptLinearPanels(const KernelRequest& request) {
  const PanelShape s = ShapeOf(request.call);
  // Single elements of x are read, four to a slice.
  return RunsWorkgroupsOnThreads(request.target) && s.rows >= 4 && s.inner % 4 == 0 &&
         4 * kOutputs * (s.depth + s.panel) <= int64_t(request.target.max_workgroup_bytes);
}

Result<OpPlan> PlanLinearPanels(const KernelRequest& request) {
  const OpCall& call = request.call;
  const PanelShape s = ShapeOf(call);
  OpPlan plan;
  if (s.outputs == 0) return plan;
  const Shape x{s.rows, s.inner}, y{s.rows, s.outputs};
  KernelDispatch dispatch{.kernel_name = "linear_panels", .kernel_text = kText, .stores_result = true};
  dispatch.tensors = {InputArgument("x", 0, x, ReshapeMap(InputShape(call, 0), x)), InputArgument("w", 1),
                      OutputArgument("y", 0, y, ReshapeMap(call.outputs[0].shape, y))};
  const bool use_bias = HasInput(call, 2);
  dispatch.consts = {
      {"use_bias", use_bias}, {"together", double(s.together)}, {"depth", double(s.depth)}, {"panel", double(s.panel)}};
  if (use_bias) AddBias(plan, dispatch, request, "bias", 2, 1, s.outputs);
  dispatch.flops = 2.0 * double(s.rows) * double(s.outputs) * double(s.inner);
  dispatch.workgroups[0] = uint32_t(DivideUp(s.outputs, kOutputs));
  dispatch.workgroups[1] = uint32_t(DivideUp(s.rows, s.panel));
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

}  // namespace leeway
