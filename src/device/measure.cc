#include "device/measure.h"

#include <algorithm>
#include <chrono>

#include "base/strings.h"
#include "device/kernel_runner.h"

namespace leeway {
namespace {

// Each invocation sums slices that lie a whole grid apart, so that neighbours read neighbours.
constexpr std::string_view kStream = R"(
tensor x[element] : read;
tensor y[invocation] : write;
const lanes : u32;
const invocations : u32;
@compute @workgroup_size(lanes)
fn main(@builtin(global_invocation_id) id : vec3u) {
  let slices = x.element / 4u;
  var a = vec4f(0.0);
  var b = vec4f(0.0);
  var c = vec4f(0.0);
  var d = vec4f(0.0);
  for (var s = id.x; s + 3u * invocations < slices; s += 4u * invocations) {
    a += x.load4(s);
    b += x.load4(s + invocations);
    c += x.load4(s + 2u * invocations);
    d += x.load4(s + 3u * invocations);
  }
  let sum = a + b + c + d;
  y.store(sum.x + sum.y + sum.z + sum.w, id.x);
}
)";

constexpr std::string_view kArithmetic = R"(
tensor x[element] : read;
tensor y[invocation] : write;
const lanes : u32;
const rounds : u32;
@compute @workgroup_size(lanes)
fn main(@builtin(global_invocation_id) id : vec3u) {
  let m = x.load4(0u);
  var a = m * f32(id.x);
  var b = a + m;
  var c = b + m;
  var d = c + m;
  for (var r = 0u; r < rounds; r++) {
    a = fma(a, m, m);
    b = fma(b, m, m);
    c = fma(c, m, m);
    d = fma(d, m, m);
  }
  let sum = a + b + c + d;
  y.store(sum.x + sum.y + sum.z + sum.w, id.x);
}
)";

constexpr std::string_view kHalfArithmetic = R"(
tensor x[element] : read;
tensor y[invocation] : write;
const lanes : u32;
const rounds : u32;
@compute @workgroup_size(lanes)
fn main(@builtin(global_invocation_id) id : vec3u) {
  let m = vec4<f16>(x.load4(0u));
  var a = m * f16(f32(id.x % 7u));
  var b = a + m;
  var c = b + m;
  var d = c + m;
  for (var r = 0u; r < rounds; r++) {
    a = fma(a, m, m);
    b = fma(b, m, m);
    c = fma(c, m, m);
    d = fma(d, m, m);
  }
  let sum = vec4f(a + b + c + d);
  y.store(sum.x + sum.y + sum.z + sum.w, id.x);
}
)";

constexpr std::string_view kLink = R"(
tensor x[element] : read;
tensor y[element] : write;
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id : vec3u) {
  y.store(x.load(id.x) * 0.5 + 1.0, id.x);
}
)";

using Seconds = std::chrono::duration<double>;

// The best of some runs of `count` times the dispatch, in seconds for one. Long enough that clocks are up and starting costs
// vanish.
Result<double> TimeDispatch(Device& device, const std::vector<Dispatch>& once) {
  double best = 1e30;
  size_t count = 1;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(250);
  for (int run = 0; run < 3 || std::chrono::steady_clock::now() < end; ++run) {
    std::vector<Dispatch> dispatches;
    for (size_t i = 0; i < count; ++i) dispatches.insert(dispatches.end(), once.begin(), once.end());
    ASSIGN_OR_RETURN(std::unique_ptr<Recording> recording, device.Record(std::move(dispatches)));
    const auto start = std::chrono::steady_clock::now();
    ASSIGN_OR_RETURN(EventPtr event, device.Submit(*recording, {}));
    RETURN_IF_ERROR(device.Wait(event));
    const double seconds = Seconds(std::chrono::steady_clock::now() - start).count();
    best = std::min(best, seconds / double(count));
    if (seconds < 0.02 && count < 512) {  // too short to tell
      count *= 4;
      --run;
    }
  }
  return best;
}

RunTensor MakeTensor(const char* name, int64_t elements, bool is_output = false) {
  RunTensor tensor;
  tensor.name = name;
  tensor.value = HostTensor(DType::kF32, {elements});
  tensor.is_output = is_output;
  return tensor;
}

Result<double> TimeKernel(Device& device, const KernelRun& run) {
  ASSIGN_OR_RETURN(PreparedKernel kernel, PreparedKernel::Start(device, run, device.info().target));
  RETURN_IF_ERROR(kernel.Finish(device));
  return TimeDispatch(device, {kernel.MakeDispatch()});
}

}  // namespace

Result<DeviceSpeed> MeasureDevice(Device& device) {
  const DeviceInfo& info = device.info();
  const shader::Target& target = info.target;
  DeviceSpeed speed;
  const uint32_t lanes = std::min(info.is_software ? 64u : 256u, target.max_invocations);
  const uint32_t cores = std::max(1u, target.core_count_estimate);
  const uint32_t groups = info.is_software ? 4 * cores : std::min(8 * cores, target.max_workgroups);
  const int64_t invocations = int64_t(groups) * lanes;

  // Four times the largest cache that we know of on either kind, where one binding may be that large.
  int64_t stream_bytes = info.is_software ? int64_t(128) << 20 : int64_t(256) << 20;
  stream_bytes = std::min({stream_bytes, target.storage.max_binding_bytes, int64_t(info.max_buffer_bytes)});
  const int64_t step_bytes = invocations * 64;
  stream_bytes = std::max(step_bytes, stream_bytes / step_bytes * step_bytes);
  {
    KernelRun run = {"measure_stream",
                     kStream,
                     {{"lanes", double(lanes)}, {"invocations", double(invocations)}},
                     {MakeTensor("x", stream_bytes / 4), MakeTensor("y", invocations, true)},
                     {groups, 1, 1}};
    ASSIGN_OR_RETURN_CONTEXT(const double seconds, TimeKernel(device, run), "while measuring the memory's speed");
    speed.read_bytes_per_second = double(stream_bytes) / seconds;
  }

  const double rounds = info.is_software ? 2000 : 4000;
  for (bool half : {false, true}) {
    if (half && !target.f16) continue;
    KernelRun run = {"measure_arithmetic",
                     half ? kHalfArithmetic : kArithmetic,
                     {{"lanes", double(lanes)}, {"rounds", rounds}},
                     {MakeTensor("x", 4), MakeTensor("y", invocations, true)},
                     {groups, 1, 1}};
    for (int i = 0; i < 4; ++i) run.tensors[0].value.Set(i, 0.25 + 0.125 * i);
    ASSIGN_OR_RETURN_CONTEXT(const double seconds, TimeKernel(device, run), "while measuring arithmetic");
    (half ? speed.f16_flops : speed.f32_flops) = double(invocations) * rounds * 4 * 4 * 2 / seconds;
  }

  KernelRun there = {"measure_link", kLink, {}, {MakeTensor("x", 32), MakeTensor("y", 32, true)}};
  ASSIGN_OR_RETURN(PreparedKernel link, PreparedKernel::Start(device, there, target));
  RETURN_IF_ERROR(link.Finish(device));
  Dispatch forth = link.MakeDispatch(), back = forth;
  // Reads what the other wrote, so neither can start early.
  std::swap(back.bindings[0], back.bindings[1]);
  ASSIGN_OR_RETURN(const double pair_seconds, TimeDispatch(device, {forth, back}));
  speed.dispatch_seconds = pair_seconds / 2;

  ASSIGN_OR_RETURN(std::unique_ptr<Recording> recording, device.Record({forth}));
  speed.round_trip_seconds = 1e30;
  Buffer* written = nullptr;
  for (size_t i = 0; i < link.text().bindings.size(); ++i) {
    if (link.text().bindings[i].tensor == "y") written = forth.bindings[i].buffer;
  }
  for (int run = 0; run < 50; ++run) {
    const auto start = std::chrono::steady_clock::now();
    ASSIGN_OR_RETURN(EventPtr event, device.SubmitAndRead(*recording, {}, {{written, 0, 4}}, nullptr));
    RETURN_IF_ERROR(device.Wait(event));
    speed.round_trip_seconds = std::min(speed.round_trip_seconds, Seconds(std::chrono::steady_clock::now() - start).count());
  }
  return speed;
}

}  // namespace leeway
