// The public API of Leeway: machine-learning models on whatever GPU is there.
//
//   auto model = leeway::CompiledModel::FromFile("selfie_segmentation.tflite", {});
//   if (!model.ok()) return Fail(model.error().message);
//   model->SetInput(0, std::as_bytes(std::span(pixels)));
//   if (auto status = model->Run(); !status.ok()) return Fail(status.error().message);
//   std::span<const float> mask = model->OutputAs<float>(0);
//
// Values and Result; nothing throws, prints or ends the process. A model always runs: nodes that the device cannot take run on
// the CPU, and placement() says which and why (or ask for require_gpu).
//
// Threads: a CompiledModel may be used from one thread at a time; only Cancel may be called from any. A model opens a device
// of its own unless CompileOptions::shared_device is set, so two models on two threads do not disturb each other; models that
// share a device have to be used from one thread at a time together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "leeway/device.h"
#include "leeway/dtype.h"
#include "leeway/event.h"
#include "leeway/result.h"

namespace leeway {

// The version of the library, "0.1.0".
const char* VersionText();

enum class Precision : uint8_t {
  kF32,
  kF16,  // activations and weights are stored as f16 where the device can; sums are f32 always
};

struct LoadProgress {
  std::string stage;  // "importing", "planning", "compiling", "uploading"
  int done = 0, total = 0;
};

struct CompileOptions {
  // As OpenSharedDevice takes it; "cpu": every node by its CPU reference (slow, exact).
  std::string device;
  OpenOptions device_options;
  std::shared_ptr<Device> shared_device;  // instead of opening one; `device` and `device_options` are ignored then

  Precision precision = Precision::kF32;
  // True: loading fails with kUnsupported if any node would run on the CPU; the message names all of them with the reason.
  bool require_gpu = false;
  // Nodes to keep on the CPU: a node's number in the graph after passes, its name, or "op:conv_2d" for all of an operator.
  std::vector<std::string> excluded_nodes;

  // Where tensors lie, forced for all of them as far as kernels and device allow; empty: chosen by device class.
  // One of "linear", "padded4", "sliced4" (buffers), "image-buffer", "texture-2d", "texture-2d-array", "texture-3d".
  std::string storage;
  // The name of a kernel variant ("direct") to take wherever an operator has it and it accepts; empty: the best.
  std::string variant;
  std::set<std::string> disabled_passes;  // names as LoadReport::passes has them; "all": every one
  bool reuse_memory = true;               // false: every tensor has memory of its own, to find out whether reuse is at fault

  // Programs compiled earlier are kept in this folder (bounded, safe to share among processes). Not set: the user's cache
  // folder, $XDG_CACHE_HOME/leeway or ~/.cache/leeway. An empty string: none.
  std::optional<std::string> cache_folder;
  int threads = 0;  // for compiling and packing; 0: as many as the machine has cores

  std::function<void(const std::string&)> log;  // one line a call; may be null
  // Called on the loading thread between steps; returning false ends the load with kCancelled. May be null.
  std::function<bool(const LoadProgress&)> progress;
};

// One tensor of the outside. Bytes are row-major elements of `dtype`, nothing between them.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  size_t size_bytes = 0;
  // Affine quantization, real = (q - zero_point) * scale, per tensor; absent for plain tensors.
  std::optional<double> scale;
  int64_t zero_point = 0;
};

struct NodePlacement {
  int node = 0;       // number in the graph after passes
  std::string name;   // "stem/conv"
  std::string op;     // "conv_2d"
  std::string label;  // as messages have it: 12 [conv_2d "stem/conv"]
  bool on_gpu = false;
  std::string reason;   // why it is on the CPU; empty on the GPU
  std::string variant;  // of the kernel, on the GPU
  int dispatches = 0;
};
struct PlacementReport {
  std::vector<NodePlacement> nodes;
  int nodes_on_gpu = 0, nodes_on_cpu = 0;
  int handovers = 0;               // how often a run goes from GPU to CPU or back
  uint64_t handover_bytes = 0;     // copied in a run at these borders
  std::vector<std::string> notes;  // what else was not as asked: "f16 is not there: f32 is used"
};

// Device memory by what it is for.
struct MemoryReport {
  uint64_t weights_bytes = 0;
  uint64_t activations_bytes = 0;  // arenas and textures of values between nodes, scratch included
  uint64_t io_bytes = 0;           // inputs and outputs
  uint64_t states_bytes = 0;       // tensors that live on between runs
  uint64_t other_bytes = 0;        // parameters and the like
  uint64_t total_bytes = 0;
  // The planner's work: what activations would take without reuse, and the greatest number of bytes alive at once.
  uint64_t activations_without_reuse_bytes = 0;
  uint64_t activations_lower_bound_bytes = 0;
  std::string strategy;             // which planning strategy won
  uint64_t device_bytes = 0;        // what the device says is allocated now; 0 in an estimate
  uint64_t host_weights_bytes = 0;  // weights that CPU nodes keep in host memory of our own
};

struct PassSummary {
  std::string name;
  double milliseconds = 0;
  int changes = 0;
  bool disabled = false;
};
struct LoadReport {
  double open_device_ms = 0, import_ms = 0, passes_ms = 0, plan_ms = 0, compile_ms = 0, upload_ms = 0, total_ms = 0;
  std::vector<PassSummary> passes;
  int nodes_before = 0, nodes_after = 0;
  int dispatches = 0, pipelines = 0;
  int cache_hits = 0, cache_misses = 0;
};

// One dispatch of the launch plan.
struct DispatchInfo {
  int node = 0;        // number in the graph after passes
  std::string label;   // 12 [conv_2d "stem/conv"]
  std::string kernel;  // "conv_2d.direct"
  std::string variant;
  uint32_t workgroups[3] = {1, 1, 1};
  uint32_t workgroup_size[3] = {1, 1, 1};
  double flops = 0;
  uint64_t read_bytes = 0, write_bytes = 0;  // of the tensors that it touches, each once
};

struct DispatchTime {
  int dispatch = 0;  // index in CompiledModel::Dispatches
  double gpu_ms = 0;
};
struct Profile {
  bool has_timestamps = false;  // false: the device has none, and `dispatches` is empty
  std::vector<DispatchTime> dispatches;
  double gpu_ms = 0;    // sum
  double total_ms = 0;  // host time from start to outputs read
  double write_ms = 0;  // host time of writing inputs
};

// How one node's result on the device compares with its CPU reference, given the same inputs.
struct NodeCheck {
  int node = 0;
  std::string label;
  std::string value;          // name of the value compared
  double max_difference = 0;  // absolute
  double range = 0;           // of the reference: max - min over the finite elements
  int64_t at = 0;             // element of the greatest difference, row-major
  double device_value = 0, reference_value = 0;
  int64_t not_finite = 0;    // elements that are NaN or infinite on the device and finite in the reference
  double max_magnitude = 0;  // of the reference
  bool differs = false;
  bool leaves_f16 = false;  // the reference has elements beyond 65504
};
struct CheckOptions {
  // A node differs if max_difference > tolerance * max(range, max_magnitude * 1e-3), or, where its result has fewer than 16
  // elements, tolerance * max(range, max_magnitude); 0: 1e-4 in f32, 1e-2 in f16.
  double tolerance = 0;
  bool stop_at_first = false;
};
struct CheckReport {
  std::vector<NodeCheck> nodes;  // in the order of the graph; nodes on the CPU are not there
  int first_difference = -1;     // index in `nodes`, -1: none
  int first_beyond_f16 = -1;
};

class CompiledModel {
 public:
  // Maps the file; it must not be changed as long as the model lives.
  static Result<CompiledModel> FromFile(const std::string& path, const CompileOptions& options = {});
  // `keep_alive` is held as long as the model; without one the bytes are copied.
  static Result<CompiledModel> FromMemory(std::span<const std::byte> bytes, const CompileOptions& options = {},
                                          std::shared_ptr<const void> keep_alive = nullptr);

  CompiledModel(CompiledModel&&) noexcept;
  CompiledModel& operator=(CompiledModel&&) noexcept;
  ~CompiledModel();  // waits for a run that is going

  const std::string& name() const;
  const std::vector<TensorInfo>& inputs() const;
  const std::vector<TensorInfo>& outputs() const;
  // kNotFound names the tensors that there are. Names are those of the model's signature, or of its tensors.
  Result<int> InputIndex(std::string_view name) const;
  Result<int> OutputIndex(std::string_view name) const;
  // Small texts that the file carries: "normalization.mean", "description", ... as the importer found them.
  const std::map<std::string, std::string>& metadata() const;

  // Copies; the size must be the tensor's. Values stay until they are set again. Inputs start as zeros.
  Status SetInput(int index, std::span<const std::byte> bytes);
  Status SetInput(std::string_view name, std::span<const std::byte> bytes);
  // Where the caller may write the input in place, before a run: saves the copy. The size is the tensor's.
  std::span<std::byte> InputBytes(int index);

  // All of a run: writes inputs, runs, reads outputs.
  Status Run();
  // Starts a run. Inputs may be set again when it returns; outputs are there when the event is done. One run at a time: a
  // second one before the first is done is kInvalidArgument. Without a GPU the run is done on return.
  Result<EventPtr> RunAsync();
  // Drives a run that is going: continuations run inside these two. Poll never blocks.
  void Poll();
  Status Wait(const EventPtr& event);
  // From any thread: a run that is going ends with kCancelled at the next step between submissions. The model stays usable.
  void Cancel();

  // The result of the last run that was done; valid until the next run starts or the model is destroyed.
  std::span<const std::byte> OutputBytes(int index) const;
  Status GetOutput(int index, std::span<std::byte> bytes) const;
  Status GetOutput(std::string_view name, std::span<std::byte> bytes) const;
  template <class T>
  std::span<const T> OutputAs(int index) const {
    auto bytes = OutputBytes(index);
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  // After kDeviceLost: opens the device again (the same choice, or `device`) and builds everything from what the model still
  // holds. Works on a healthy model as well.
  Status Rebuild(std::optional<std::string> device = std::nullopt);

  DeviceSummary device() const;
  const PlacementReport& placement() const;
  MemoryReport memory() const;
  const LoadReport& load_report() const;
  const std::vector<DispatchInfo>& dispatches() const;

  // One run with the inputs as they are, timed per dispatch.
  Result<Profile> ProfileRun();
  // Every node on the device against its CPU reference, with the inputs as they are.
  Result<CheckReport> Check(const CheckOptions& options = {});

  // For people: the graph as imported and after the passes, placement with layouts, the launch plan, the memory plan.
  std::string GraphTextBefore() const;
  std::string GraphTextAfter() const;
  std::string PlanText() const;
  std::string MemoryPlanText() const;
  std::string MemoryPlanSvg() const;
  // The text of one dispatch's kernel as the device got it.
  Result<std::string> ProgramText(int dispatch) const;
  // The same kernel for another language: "wgsl", "opencl", "glsl", "msl" (typical limits), or "kernel": the kernel language.
  Result<std::string> ProgramText(int dispatch, std::string_view language) const;

 private:
  struct State;
  explicit CompiledModel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// What CompiledModel::memory would say, without allocating anything on the device.
Result<MemoryReport> EstimateMemory(const std::string& path, const CompileOptions& options = {});

}  // namespace leeway
