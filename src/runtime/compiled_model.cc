#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "base/mapped_file.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "graph/passes/passes.h"
#include "import/tflite/tflite.h"
#include "leeway/leeway.h"
#include "ops/evaluate.h"
#include "runtime/check.h"
#include "runtime/device_plan.h"
#include "runtime/host_values.h"
#include "runtime/pack.h"
#include "runtime/plan.h"
#include "runtime/program_cache.h"

namespace leeway {
namespace {

using ReadResult = Result<std::vector<std::span<const std::byte>>>;

double Now() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

// The event of a run. One is kept and used again where nobody else holds it any more.
class RunEvent : public Event {
 public:
  bool done() const override { return done_; }
  Status status() const override { return status_; }
  void OnDone(std::function<void()> continuation) override {
    if (done_) return continuation();
    continuations_.push_back(std::move(continuation));
  }
  void Restart() {
    done_ = false;
    status_ = {};
  }
  void Finish(Status status) {
    done_ = true;
    status_ = std::move(status);
    auto continuations = std::move(continuations_);
    continuations_.clear();
    for (auto& continuation : continuations) continuation();
  }

 private:
  bool done_ = false;
  Status status_;
  std::vector<std::function<void()>> continuations_;
};

// A graph input on its way to the device.
struct InputSlot {
  ValueId value = kNoValue;
  std::span<std::byte> user;      // what the caller fills: row-major elements
  std::vector<std::byte> owned;   // behind `user`, unless that lies in the staging bytes
  std::vector<std::byte> packed;  // what is written where it is not staged
  int resource = -1;              // -1: only the CPU reads it
  bool staged = false;            // lies in the one input buffer
  bool direct = false;            // `user` is the staging itself
};

struct OutputSlot {
  ValueId value = kNoValue;
  std::vector<std::byte> bytes;
  int resource = -1;  // -1: comes from the host
  // Where it is in what is read: the request and the offset in it, or a texture.
  int request = -1;
  uint64_t offset_bytes = 0;
};

std::vector<TensorInfo> DescribeTensors(const Graph& graph, const std::vector<ValueId>& ids,
                                        const std::vector<std::pair<std::string, ValueId>>* names) {
  std::vector<TensorInfo> infos;
  for (ValueId id : ids) {
    const Value& value = graph.value(id);
    TensorInfo info;
    info.name = value.name;
    if (names) {
      for (const auto& [name, named] : *names) {
        if (named == id) info.name = name;
      }
    }
    info.dtype = value.type.dtype;
    info.shape.assign(value.type.shape.begin(), value.type.shape.end());
    info.size_bytes = DTypeBytes(value.type.dtype, size_t(value.type.shape.element_count()));
    if (value.quantization && value.quantization->scales.size() == 1) {
      info.scale = value.quantization->scales[0];
      if (!value.quantization->zero_points.empty()) info.zero_point = value.quantization->zero_points[0];
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

bool IsOnCpu(const CompileOptions& options) { return !options.shared_device && options.device == "cpu"; }

Result<PlanOptions> MakePlanOptions(const CompileOptions& options) {
  PlanOptions plan;
  plan.select.precision = options.precision;
  if (!options.storage.empty()) { ASSIGN_OR_RETURN(plan.select.forced, ParseStorage(options.storage)); }
  plan.variant = options.variant;
  plan.excluded_nodes = options.excluded_nodes;
  plan.reuse_memory = options.reuse_memory;
  plan.require_gpu = options.require_gpu;
  plan.share_programs = true;
  if (options.progress) {
    plan.progress = [&options](int done, int total) { return options.progress({"planning", done, total}); };
  }
  return plan;
}

Result<std::shared_ptr<Device>> OpenFor(const CompileOptions& options) {
  if (options.shared_device) return options.shared_device;
  OpenOptions open = options.device_options;
  if (!open.log) open.log = options.log;
  if (!open.cache_folder) open.cache_folder = options.cache_folder;
  return OpenSharedDevice(options.device, open);
}

PassOptions PassOptionsOf(const CompileOptions& options) {
  PassOptions passes;
  passes.disabled = options.disabled_passes;
  if (passes.disabled.erase("all") > 0) {
    for (const auto& pass : AllPasses()) passes.disabled.insert(pass.name);
  }
  return passes;
}

}  // namespace

struct CompiledModel::State {
  CompileOptions options;
  Graph imported, optimized;
  std::vector<TensorInfo> inputs, outputs;
  LoadReport load;

  // Rebuild makes all of these anew.
  std::shared_ptr<Device> device;  // null: everything on the CPU
  LaunchPlan plan;
  std::unique_ptr<DevicePlan> objects;
  std::vector<DispatchInfo> dispatches;
  std::vector<InputSlot> input_slots;
  std::vector<std::byte> staging;
  std::vector<OutputSlot> output_slots;
  std::vector<ReadRequest> output_reads;
  std::vector<int> output_textures;  // slots
  HostValues host_values;

  // The run that is going.
  std::shared_ptr<RunEvent> run_event;
  bool ready = false;  // everything above is there
  bool running = false;
  std::atomic<bool> cancelled{false};
  size_t step = 0, submission = 0;
  std::vector<EventPtr> submitted;  // of the whole run
  EventPtr outputs_read;            // set where the last submission brings the outputs with it
  EventPtr awaited;                 // what the run waits for
  Error read_error;
  bool read_failed = false, downloaded = false;
  size_t next_texture = 0;
  bool timestamps = false;
  // What callbacks that come after their run has ended, or after the model has gone, can see that from.
  uint64_t run_number = 0;
  std::shared_ptr<const bool> alive = std::make_shared<const bool>(true);
  // f, but only for this run.
  template <class F>
  auto OfThisRun(F f) {
    return [this, number = run_number, weak = std::weak_ptr<const bool>(alive), f = std::move(f)](auto&&... arguments) {
      if (!weak.expired() && run_number == number) f(std::forward<decltype(arguments)>(arguments)...);
    };
  }

  static Result<std::unique_ptr<State>> Load(std::span<const std::byte> bytes, const std::string& name,
                                             std::shared_ptr<const void> keep_alive, const CompileOptions& options);
  Status Build();
  void MakeSlots();

  Result<EventPtr> Start(bool with_timestamps);
  Status WriteInputs();
  void Advance();
  Result<bool> AdvanceGpu(const PlanStep& planned);
  Result<bool> AdvanceCpu(const PlanStep& planned);
  Result<bool> AdvanceOutputs();
  bool Await(const EventPtr& event);
  void Finish(Status status);
  void UnpackOutput(OutputSlot& slot, std::span<const std::byte> storage);
  void UnpackOutputs(ReadResult read);
  void FinishHostOutputs();
  Status WaitFor(const EventPtr& event);
};

// ---- Loading -------------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<CompiledModel::State>> CompiledModel::State::Load(std::span<const std::byte> bytes,
                                                                         const std::string& name,
                                                                         std::shared_ptr<const void> keep_alive,
                                                                         const CompileOptions& options) {
  auto state = std::make_unique<State>();
  state->options = options;
  const double start = Now();
  auto progress = [&](const char* stage, int done, int total) {
    return options.progress && !options.progress({stage, done, total})
               ? Status(Error{Code::kCancelled, "The caller ended the load."})
               : Status();
  };
  RETURN_IF_ERROR(progress("importing", 0, 1));

  // Opening a device takes as long as reading a model; both at once, with the log kept in order for the caller's thread.
  std::vector<std::string> log;
  CompileOptions open_options = options;
  open_options.log = [&log](const std::string& line) { log.push_back(line); };
  if (open_options.device_options.log) open_options.device_options.log = open_options.log;
  Result<std::shared_ptr<Device>> device = std::shared_ptr<Device>();
  Result<Graph> graph = Error{};
  Result<std::vector<PassReport>> reports = Error{};
  ThreadPool pool(options.threads);
  pool.For(2, [&](int64_t side) {
    const double begin = Now();
    if (side == 0) {
      if (!IsOnCpu(options)) device = OpenFor(open_options);
      state->load.open_device_ms = Now() - begin;
      return;
    }
    graph = ImportTflite(bytes, name, keep_alive);
    state->load.import_ms = Now() - begin;
    if (!graph.ok()) return;
    state->imported = *graph;
    const double passes_begin = Now();
    reports = RunPasses(*graph, PassOptionsOf(options));
    state->load.passes_ms = Now() - passes_begin;
  });
  const auto& logger = options.device_options.log ? options.device_options.log : options.log;
  if (logger) {
    for (const auto& line : log) logger(line);
  }
  if (!graph.ok()) return graph.error();
  if (!reports.ok()) return reports.error();
  if (!device.ok()) return device.error();
  RETURN_IF_ERROR(progress("importing", 1, 1));

  for (const auto& report : *reports)
    state->load.passes.push_back({report.name, report.milliseconds, report.changes, report.disabled});
  state->optimized = std::move(*graph);
  state->load.nodes_before = int(state->imported.nodes.size());
  state->load.nodes_after = int(state->optimized.nodes.size());
  state->device = std::move(*device);
  const Graph& final_graph = state->optimized;
  const Signature* signature = final_graph.signatures.empty() ? nullptr : &final_graph.signatures[0];
  state->inputs = DescribeTensors(final_graph, final_graph.inputs, signature ? &signature->inputs : nullptr);
  state->outputs = DescribeTensors(final_graph, final_graph.outputs, signature ? &signature->outputs : nullptr);
  RETURN_IF_ERROR(state->Build());
  state->load.total_ms = Now() - start;
  return state;
}

// From the graph and the device to something that runs.
Status CompiledModel::State::Build() {
  ASSIGN_OR_RETURN(PlanOptions plan_options, MakePlanOptions(options));
  ThreadPool pool(options.threads);
  const double start = Now();
  ASSIGN_OR_RETURN(plan, MakePlan(optimized, device ? &device->info() : nullptr, plan_options, pool));
  load.plan_ms = Now() - start;
  load.dispatches = int(plan.dispatches.size());
  load.pipelines = int(plan.kernels.size());
  if (options.log) {
    for (const auto& note : plan.placement.notes) options.log(note);
  }
  if (device) {
    ProgramCache cache(options.cache_folder ? *options.cache_folder : ProgramCache::DefaultFolder());
    std::function<bool(int, int)> progress;
    if (options.progress) progress = [&](int done, int total) { return options.progress({"compiling", done, total}); };
    ASSIGN_OR_RETURN(objects, DevicePlan::Make(plan, *device, cache, pool, progress));
    load.compile_ms = objects->report.compile_ms;
    load.upload_ms = objects->report.upload_ms;
    load.cache_hits = objects->report.cache_hits;
    load.cache_misses = objects->report.cache_misses;
  }
  dispatches.clear();
  for (const auto& dispatch : plan.dispatches) dispatches.push_back(dispatch.info);
  MakeSlots();
  return {};
}

void CompiledModel::State::MakeSlots() {
  const Graph& graph = plan.graph;
  const std::vector<InputSlot> before = std::move(input_slots);
  const std::vector<std::byte> staging_before = std::move(staging);
  input_slots.clear();
  staging.assign(plan.input_buffer >= 0 ? size_t(plan.buffers[size_t(plan.input_buffer)].size_bytes) : 0, std::byte(0));
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    InputSlot slot;
    slot.value = graph.inputs[i];
    slot.resource = plan.value_resource[size_t(slot.value)];
    if (slot.resource >= 0) {
      const PlanResource& resource = plan.resources[size_t(slot.resource)];
      slot.staged = resource.buffer >= 0 && resource.buffer == plan.input_buffer;
      slot.direct = slot.staged && IsRowMajorCopy(resource.placement, inputs[i].dtype);
      if (slot.direct) slot.user = std::span(staging).subspan(resource.offset_bytes, inputs[i].size_bytes);
      if (!slot.staged) slot.packed.resize(resource.size_bytes);
    }
    if (!slot.direct) {
      slot.owned.resize(inputs[i].size_bytes);
      slot.user = slot.owned;
    }
    // What the caller had set stays.
    if (i < before.size()) std::memcpy(slot.user.data(), before[i].user.data(), slot.user.size());
    input_slots.push_back(std::move(slot));
    // A moved vector keeps its bytes where they are, so `user` stays right.
  }

  output_slots.clear();
  output_reads.clear();
  output_textures.clear();
  std::map<int, std::pair<uint64_t, uint64_t>> ranges;  // by buffer
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    OutputSlot slot;
    slot.value = graph.outputs[i];
    slot.bytes.resize(outputs[i].size_bytes);
    // Inputs and constants that are outputs as well come from the host.
    const bool written = !graph.value(slot.value).constant &&
                         std::find(graph.inputs.begin(), graph.inputs.end(), slot.value) == graph.inputs.end();
    slot.resource = written ? plan.value_resource[size_t(slot.value)] : -1;
    for (const auto& planned : plan.steps) {  // the CPU has it as well
      if (planned.on_gpu) continue;
      for (int n : planned.nodes) {
        const auto& node_outputs = graph.nodes[size_t(n)].outputs;
        if (std::find(node_outputs.begin(), node_outputs.end(), slot.value) != node_outputs.end()) slot.resource = -1;
      }
    }
    if (slot.resource >= 0) {
      const PlanResource& resource = plan.resources[size_t(slot.resource)];
      if (resource.texture >= 0) {
        output_textures.push_back(int(i));
      } else {
        auto [it, is_new] =
            ranges.try_emplace(resource.buffer, resource.offset_bytes, resource.offset_bytes + resource.size_bytes);
        it->second.first = std::min(it->second.first, resource.offset_bytes);
        it->second.second = std::max(it->second.second, resource.offset_bytes + resource.size_bytes);
      }
    }
    output_slots.push_back(std::move(slot));
  }
  for (auto& slot : output_slots) {
    if (slot.resource < 0 || plan.resources[size_t(slot.resource)].texture >= 0) continue;
    const PlanResource& resource = plan.resources[size_t(slot.resource)];
    slot.request = int(std::distance(ranges.begin(), ranges.find(resource.buffer)));
    slot.offset_bytes = resource.offset_bytes - ranges[resource.buffer].first;
  }
  for (const auto& [buffer, range] : ranges) {
    output_reads.push_back({objects->buffers[size_t(buffer)].get(), range.first, range.second - range.first});
  }

  host_values = HostValues(plan);
  ready = true;
}

// ---- Running -------------------------------------------------------------------------------------------------------------

Result<EventPtr> CompiledModel::State::Start(bool with_timestamps) {
  if (running) {
    return Error{Code::kInvalidArgument, "A run of this model is going; the next one may start when its event is done."};
  }
  if (!ready) return Error{Code::kDeviceLost, "The model has no device any more; Rebuild makes a new one."};
  if (!run_event || run_event.use_count() > 1) run_event = std::make_shared<RunEvent>();
  run_event->Restart();
  cancelled.store(false);
  step = 0;
  submission = 0;
  submitted.clear();
  outputs_read = nullptr;
  next_texture = 0;
  downloaded = false;
  read_failed = false;
  timestamps = with_timestamps;
  for (const auto& slot : input_slots) {  // looked at where they are
    const TensorType& type = plan.graph.value(slot.value).type;
    host_values[slot.value] = HostTensor(type.dtype, type.shape, slot.user, nullptr);
  }
  if (device) RETURN_IF_ERROR(WriteInputs());
  running = true;
  std::shared_ptr<RunEvent> event = run_event;
  Advance();
  return EventPtr(event);
}

Status CompiledModel::State::WriteInputs() {
  bool any_staged = false;
  for (auto& slot : input_slots) {
    if (slot.resource < 0) continue;
    const PlanResource& resource = plan.resources[size_t(slot.resource)];
    any_staged |= slot.staged;
    if (slot.direct) continue;
    const std::span<std::byte> target =
        slot.staged ? std::span(staging).subspan(resource.offset_bytes, resource.size_bytes) : std::span(slot.packed);
    PackThroughMap(host_values[slot.value], {}, resource.placement, target);
    if (slot.staged) continue;
    RETURN_IF_ERROR(objects->Write(*device, slot.resource, slot.packed));
  }
  if (any_staged) RETURN_IF_ERROR(device->Write(*objects->buffers[size_t(plan.input_buffer)], 0, staging));
  return {};
}

// Waits for the event without blocking: true if it is done already, otherwise the run goes on when it is.
bool CompiledModel::State::Await(const EventPtr& event) {
  if (event->done()) return true;
  awaited = event;
  event->OnDone(OfThisRun([this] { Advance(); }));
  return false;
}

void CompiledModel::State::Finish(Status status) {
  running = false;
  ++run_number;
  awaited = nullptr;
  // A submission may have failed without the read after it noticing.
  for (const auto& done : submitted) {
    if (status.ok() && done->done()) status = done->status();
  }
  submitted.clear();
  outputs_read = nullptr;
  std::shared_ptr<RunEvent> event = run_event;
  event->Finish(std::move(status));
}

// Does whatever can be done without waiting. Called again by the event that is waited for.
void CompiledModel::State::Advance() {
  awaited = nullptr;
  while (true) {
    const bool at_end = step == plan.steps.size();
    // With everything submitted the outputs are as good as there.
    if (!at_end && cancelled.load()) return Finish(Error{Code::kCancelled, "The run was cancelled."});
    Result<bool> done = at_end                    ? AdvanceOutputs()
                        : plan.steps[step].on_gpu ? AdvanceGpu(plan.steps[step])
                                                  : AdvanceCpu(plan.steps[step]);
    if (!done.ok()) return Finish(done.error());
    if (!*done) return;  // an event will call again
    if (at_end) return Finish({});
    ++step;
    submission = 0;
    downloaded = false;
  }
}

// True: the step is done, as far as the host is concerned. Submissions are in order; of a long step only two are under way, so
// that cancelling takes effect.
Result<bool> CompiledModel::State::AdvanceGpu(const PlanStep&) {
  auto& recordings = objects->recordings[step];
  while (submission < recordings.size()) {
    if (submission >= 2) {
      const EventPtr earlier = submitted[submitted.size() - 2];
      if (!Await(earlier)) return false;
      if (Status status = earlier->status(); !status.ok()) return status.error();
      if (cancelled.load()) return Error{Code::kCancelled, "The run was cancelled."};
    }
    Recording& recording = *recordings[submission++];
    const SubmitOptions submit{.params = plan.params, .timestamps = timestamps};
    const bool is_last = step + 1 == plan.steps.size() && submission == recordings.size();
    if (is_last && !output_reads.empty() && output_textures.empty()) {
      ASSIGN_OR_RETURN(outputs_read, device->SubmitAndRead(recording, submit, output_reads, OfThisRun([this](ReadResult read) {
                                                             UnpackOutputs(std::move(read));
                                                           })));
    } else {
      ASSIGN_OR_RETURN(EventPtr event, device->Submit(recording, submit));
      submitted.push_back(std::move(event));
    }
  }
  return true;
}

Result<bool> CompiledModel::State::AdvanceCpu(const PlanStep& planned) {
  if (!downloaded) {
    std::vector<ReadRequest> requests;
    std::vector<PlanTransfer> buffers, textures;
    for (const PlanTransfer& transfer : planned.downloads) {
      const PlanResource& resource = plan.resources[size_t(transfer.resource)];
      if (resource.texture >= 0) {
        textures.push_back(transfer);
      } else {
        buffers.push_back(transfer);
        const auto& where = objects->locations[size_t(transfer.resource)];
        requests.push_back({where.buffer, where.offset_bytes, resource.size_bytes});
      }
    }
    auto failed = [this](const Error& error) {
      read_failed = true;
      read_error = error;
    };
    if (submission < textures.size()) {  // one at a time; `submission` counts them
      const PlanTransfer transfer = textures[submission];
      ASSIGN_OR_RETURN(
          EventPtr event,
          device->ReadTexture(*objects->locations[size_t(transfer.resource)].texture, OfThisRun([=](ReadResult read) {
            read.ok() ? host_values.Unpack(transfer, (*read)[0]) : failed(read.error());
          })));
      ++submission;
      if (!Await(event)) return false;
    } else {
      downloaded = true;
      if (!requests.empty()) {
        ASSIGN_OR_RETURN(EventPtr event, device->Read(std::move(requests), OfThisRun([=](ReadResult read) {
                                                        if (!read.ok()) return failed(read.error());
                                                        for (size_t i = 0; i < buffers.size(); ++i)
                                                          host_values.Unpack(buffers[i], (*read)[i]);
                                                      })));
        if (!Await(event)) return false;
      }
    }
    if (read_failed) return read_error;
    return AdvanceCpu(planned);
  }
  if (read_failed) return read_error;
  for (int n : planned.nodes) {
    if (cancelled.load()) return Error{Code::kCancelled, "The run was cancelled."};
    RETURN_IF_ERROR(host_values.Evaluate(n));
  }
  for (const PlanTransfer& transfer : planned.uploads) {
    RETURN_IF_ERROR(objects->Write(*device, transfer.resource, host_values.Pack(transfer)));
  }
  return true;
}

void CompiledModel::State::UnpackOutputs(ReadResult read) {
  read_failed = !read.ok();
  if (!read.ok()) {
    read_error = read.error();
    return;
  }
  for (auto& slot : output_slots) {
    if (slot.request >= 0) UnpackOutput(slot, (*read)[size_t(slot.request)].subspan(slot.offset_bytes));
  }
}

void CompiledModel::State::UnpackOutput(OutputSlot& slot, std::span<const std::byte> storage) {
  UnpackInto(storage, plan.resources[size_t(slot.resource)].placement, plan.graph.value(slot.value).type.dtype, slot.bytes);
}

Result<bool> CompiledModel::State::AdvanceOutputs() {
  if (read_failed) return read_error;
  while (next_texture < output_textures.size()) {
    OutputSlot& slot = output_slots[size_t(output_textures[next_texture++])];
    Texture& texture = *objects->textures[size_t(plan.resources[size_t(slot.resource)].texture)];
    ASSIGN_OR_RETURN(EventPtr event, device->ReadTexture(texture, OfThisRun([this, &slot](ReadResult read) {
                                                           read_failed = !read.ok();
                                                           if (read.ok()) {
                                                             UnpackOutput(slot, (*read)[0]);
                                                           } else {
                                                             read_error = read.error();
                                                           }
                                                         })));
    if (!Await(event)) return false;
    if (read_failed) return read_error;
  }
  if (!downloaded) {
    downloaded = true;
    if (!outputs_read && !output_reads.empty()) {
      ASSIGN_OR_RETURN(outputs_read,
                       device->Read(output_reads, OfThisRun([this](ReadResult read) { UnpackOutputs(std::move(read)); })));
    }
    if (outputs_read && !Await(outputs_read)) return false;
  }
  if (read_failed) return read_error;
  if (outputs_read && !outputs_read->status().ok()) return outputs_read->status().error();
  FinishHostOutputs();
  return true;
}

void CompiledModel::State::FinishHostOutputs() {
  for (auto& slot : output_slots) {
    if (slot.resource >= 0) continue;
    const Value& value = plan.graph.value(slot.value);
    const HostTensor& tensor = value.constant ? *value.constant : host_values[slot.value];
    if (tensor.bytes().size() == slot.bytes.size() && tensor.dtype() == value.type.dtype) {
      if (!slot.bytes.empty()) std::memcpy(slot.bytes.data(), tensor.bytes().data(), slot.bytes.size());
    } else if (value.constant) {  // stored narrower than its type
      const HostTensor converted = tensor.ConvertTo(value.type.dtype);
      std::memcpy(slot.bytes.data(), converted.bytes().data(), slot.bytes.size());
    }
  }
}

Status CompiledModel::State::WaitFor(const EventPtr& event) {
  while (!event->done()) {
    if (!running || !awaited) {
      return Error{Code::kInvalidArgument, "The event that is waited for belongs to no run of this model that is going."};
    }
    const EventPtr inner = awaited;
    const Status status = device->Wait(inner);
    // Usually the run has gone on by now, or ended with what failed.
    if (!event->done() && awaited == inner) {
      Finish(status.ok() ? Error{Code::kInternal, "The device waited for an event in vain."} : status.error());
    }
  }
  return event->status();
}

// ---- The public face
// ---------------------------------------------------------------------------------------------------------

CompiledModel::CompiledModel(std::unique_ptr<State> state) : state_(std::move(state)) {}
CompiledModel::CompiledModel(CompiledModel&&) noexcept = default;
CompiledModel& CompiledModel::operator=(CompiledModel&& other) noexcept {
  if (this != &other) {
    CompiledModel old(std::move(*this));  // waits for its run
    state_ = std::move(other.state_);
  }
  return *this;
}

CompiledModel::~CompiledModel() {
  if (!state_ || !state_->running) return;
  state_->cancelled.store(true);
  (void)state_->WaitFor(state_->run_event);
}

Result<CompiledModel> CompiledModel::FromFile(const std::string& path, const CompileOptions& options) {
  ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
  const auto bytes = file->bytes();
  ASSIGN_OR_RETURN(auto state, State::Load(bytes, path, std::move(file), options));
  return CompiledModel(std::move(state));
}

Result<CompiledModel> CompiledModel::FromMemory(std::span<const std::byte> bytes, const CompileOptions& options,
                                                std::shared_ptr<const void> keep_alive) {
  constexpr char kName[] = "model in memory";
  if (!keep_alive) {
    auto copy = MappedFile::FromBytes(std::vector<std::byte>(bytes.begin(), bytes.end()), kName);
    bytes = copy->bytes();
    keep_alive = std::move(copy);
  }
  ASSIGN_OR_RETURN(auto state, State::Load(bytes, kName, std::move(keep_alive), options));
  return CompiledModel(std::move(state));
}

const std::string& CompiledModel::name() const { return state_->optimized.name; }
const std::vector<TensorInfo>& CompiledModel::inputs() const { return state_->inputs; }
const std::vector<TensorInfo>& CompiledModel::outputs() const { return state_->outputs; }
const std::map<std::string, std::string>& CompiledModel::metadata() const { return state_->imported.metadata; }

namespace {

Result<int> FindTensor(const std::vector<TensorInfo>& tensors, std::string_view name, const char* what) {
  std::string names;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == name) return int(i);
    names += StrCat(i ? ", " : "", "\"", tensors[i].name, "\"");
  }
  return Error{Code::kNotFound, StrCat("The model has no ", what, " \"", name, "\"; there are ", names, ".")};
}

Status CheckIndex(const std::vector<TensorInfo>& tensors, int index, const char* what) {
  if (index >= 0 && index < int(tensors.size())) return {};
  return Error{Code::kInvalidArgument,
               StrCat("The model has ", tensors.size(), " ", what, "s, and number ", index, " is asked for.")};
}

}  // namespace

Result<int> CompiledModel::InputIndex(std::string_view name) const { return FindTensor(state_->inputs, name, "input"); }
Result<int> CompiledModel::OutputIndex(std::string_view name) const { return FindTensor(state_->outputs, name, "output"); }

Status CompiledModel::SetInput(int index, std::span<const std::byte> bytes) {
  RETURN_IF_ERROR(CheckIndex(state_->inputs, index, "input"));
  const TensorInfo& info = state_->inputs[size_t(index)];
  if (bytes.size() != info.size_bytes) {
    return Error{Code::kInvalidArgument,
                 StrCat("Input \"", info.name, "\" takes ", info.size_bytes, " bytes (", DTypeName(info.dtype),
                        Shape(info.shape).ToString(), "), and ", bytes.size(), " are given.")};
  }
  if (!bytes.empty()) std::memcpy(state_->input_slots[size_t(index)].user.data(), bytes.data(), bytes.size());
  return {};
}

Status CompiledModel::SetInput(std::string_view name, std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(int index, InputIndex(name));
  return SetInput(index, bytes);
}

std::span<std::byte> CompiledModel::InputBytes(int index) {
  if (!CheckIndex(state_->inputs, index, "input").ok()) return {};
  return state_->input_slots[size_t(index)].user;
}

Status CompiledModel::Run() {
  ASSIGN_OR_RETURN(EventPtr event, RunAsync());
  return Wait(event);
}

Result<EventPtr> CompiledModel::RunAsync() { return state_->Start(false); }

void CompiledModel::Poll() {
  if (state_->device) state_->device->Poll();
}

Status CompiledModel::Wait(const EventPtr& event) { return state_->WaitFor(event); }
void CompiledModel::Cancel() { state_->cancelled.store(true); }

std::span<const std::byte> CompiledModel::OutputBytes(int index) const {
  if (!CheckIndex(state_->outputs, index, "output").ok()) return {};
  return state_->output_slots[size_t(index)].bytes;
}

Status CompiledModel::GetOutput(int index, std::span<std::byte> bytes) const {
  RETURN_IF_ERROR(CheckIndex(state_->outputs, index, "output"));
  const TensorInfo& info = state_->outputs[size_t(index)];
  if (bytes.size() != info.size_bytes) {
    return Error{Code::kInvalidArgument,
                 StrCat("Output \"", info.name, "\" has ", info.size_bytes, " bytes (", DTypeName(info.dtype),
                        Shape(info.shape).ToString(), "), and there is room for ", bytes.size(), ".")};
  }
  if (!bytes.empty()) std::memcpy(bytes.data(), state_->output_slots[size_t(index)].bytes.data(), bytes.size());
  return {};
}

Status CompiledModel::GetOutput(std::string_view name, std::span<std::byte> bytes) const {
  ASSIGN_OR_RETURN(int index, OutputIndex(name));
  return GetOutput(index, bytes);
}

Status CompiledModel::Rebuild(std::optional<std::string> device) {
  State& state = *state_;
  if (state.running) {
    state.cancelled.store(true);
    (void)state.WaitFor(state.run_event);
  }
  if (device) {
    state.options.device = *device;
    state.options.shared_device = nullptr;
  }
  state.ready = false;
  state.objects = nullptr;
  state.output_reads.clear();
  // A shared device is the caller's to replace: it is opened again only where it is the model's own.
  if (!state.options.shared_device) {
    state.device = nullptr;
    if (!IsOnCpu(state.options)) { ASSIGN_OR_RETURN(state.device, OpenFor(state.options)); }
  }
  return state.Build();
}

DeviceSummary CompiledModel::device() const {
  if (state_->device) return DescribeDevice(*state_->device);
  DeviceSummary summary;
  summary.api = "cpu";
  summary.name = "CPU reference";
  summary.device_class = "cpu";
  return summary;
}

const PlacementReport& CompiledModel::placement() const { return state_->plan.placement; }

MemoryReport CompiledModel::memory() const {
  MemoryReport report = state_->plan.memory;
  if (state_->device) report.device_bytes = state_->device->allocated_bytes();
  return report;
}

const LoadReport& CompiledModel::load_report() const { return state_->load; }
const std::vector<DispatchInfo>& CompiledModel::dispatches() const { return state_->dispatches; }

Result<Profile> CompiledModel::ProfileRun() {
  State& state = *state_;
  Profile profile;
  profile.has_timestamps = state.device && state.device->info().timestamps;
  const double start = Now();
  ASSIGN_OR_RETURN(EventPtr event, state.Start(profile.has_timestamps));
  profile.write_ms = Now() - start;
  RETURN_IF_ERROR(Wait(event));
  profile.total_ms = Now() - start;
  if (!profile.has_timestamps) return profile;
  for (size_t s = 0; s < state.plan.steps.size(); ++s) {
    const PlanStep& planned = state.plan.steps[s];
    for (size_t r = 0; r < state.objects->recordings[s].size(); ++r) {
      const auto times = state.device->ReadTimestamps(*state.objects->recordings[s][r]);
      for (size_t i = 0; i < times.size(); ++i) {
        const double gpu_ms = double(times[i]) / 1e6;
        profile.dispatches.push_back({planned.submissions[r] + int(i), gpu_ms});
        profile.gpu_ms += gpu_ms;
      }
    }
  }
  return profile;
}

Result<CheckReport> CompiledModel::Check(const CheckOptions& options) {
  State& state = *state_;
  if (!state.device) {
    return Error{Code::kInvalidArgument, "The model runs on the CPU reference: there is nothing to compare it with."};
  }
  if (state.running) return Error{Code::kInvalidArgument, "A run of this model is going."};
  ASSIGN_OR_RETURN(PlanOptions plan_options, MakePlanOptions(state.options));
  std::vector<HostTensor> inputs;
  for (const auto& slot : state.input_slots) {
    const TensorType& type = state.plan.graph.value(slot.value).type;
    inputs.push_back(HostTensor(type.dtype, type.shape, slot.user, nullptr));
  }
  ProgramCache cache(state.options.cache_folder ? *state.options.cache_folder : ProgramCache::DefaultFolder());
  return CheckNodes(state.optimized, inputs, *state.device, plan_options, options, cache);
}

std::string CompiledModel::GraphTextBefore() const { return Format(state_->imported); }
std::string CompiledModel::GraphTextAfter() const { return Format(state_->plan.graph); }
std::string CompiledModel::PlanText() const { return PlanToText(state_->plan); }
std::string CompiledModel::MemoryPlanText() const {
  return leeway::MemoryPlanText(state_->plan.activation_items, state_->plan.activation_plan);
}
std::string CompiledModel::MemoryPlanSvg() const {
  return leeway::MemoryPlanSvg(state_->plan.activation_items, state_->plan.activation_plan);
}

Result<std::string> CompiledModel::ProgramText(int dispatch) const {
  const auto& plan = state_->plan;
  if (dispatch < 0 || dispatch >= int(plan.dispatches.size())) {
    return Error{Code::kInvalidArgument,
                 StrCat("The plan has ", plan.dispatches.size(), " dispatches, and number ", dispatch, " is asked for.")};
  }
  return plan.kernels[size_t(plan.dispatches[size_t(dispatch)].kernel)].text;
}

Result<std::string> CompiledModel::ProgramText(int dispatch, std::string_view language) const {
  RETURN_IF_ERROR(ProgramText(dispatch));
  const PlanDispatch& planned = state_->plan.dispatches[size_t(dispatch)];
  if (language == "kernel") return std::string(planned.kernel_text);
  for (auto candidate :
       {shader::Language::kWgsl, shader::Language::kOpenClC, shader::Language::kGlslEs, shader::Language::kMsl}) {
    if (language != shader::LanguageName(candidate)) continue;
    ASSIGN_OR_RETURN(shader::Module module, shader::Parse(planned.kernel_text, planned.kernel_name));
    ASSIGN_OR_RETURN(shader::KernelText text,
                     shader::Compile(module, planned.specialization, shader::TypicalTarget(candidate)));
    return text.text;
  }
  return Error{Code::kInvalidArgument,
               StrCat("There is no language \"", language, "\"; there are kernel, wgsl, opencl, glsl, msl.")};
}

Result<MemoryReport> EstimateMemory(const std::string& path, const CompileOptions& options) {
  ASSIGN_OR_RETURN(Graph graph, ImportTflite(path));
  RETURN_IF_ERROR(RunPasses(graph, PassOptionsOf(options)));
  ASSIGN_OR_RETURN(PlanOptions plan_options, MakePlanOptions(options));
  std::shared_ptr<Device> device;
  if (!IsOnCpu(options)) { ASSIGN_OR_RETURN(device, OpenFor(options)); }
  ThreadPool pool(options.threads);
  ASSIGN_OR_RETURN(LaunchPlan plan, MakePlan(std::move(graph), device ? &device->info() : nullptr, plan_options, pool));
  return plan.memory;
}

const char* VersionText() { return "0.1.0"; }

// ---- Devices -------------------------------------------------------------------------------------------------------------

Result<std::shared_ptr<Device>> OpenSharedDevice(std::string_view wanted, const OpenOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Device> device, OpenDevice(wanted, options));
  return std::shared_ptr<Device>(std::move(device));
}

DeviceSummary DescribeDevice(const Device& device) {
  const DeviceInfo& info = device.info();
  const shader::Target& target = info.target;
  DeviceSummary summary;
  summary.api = info.api;
  summary.name = info.name;
  summary.driver = info.driver;
  summary.vendor = info.vendor;
  summary.device_class = info.device_class;
  summary.is_software = info.is_software;
  summary.memory_bytes = info.memory_bytes;
  summary.max_buffer_bytes = info.max_buffer_bytes;
  summary.timestamps = info.timestamps;
  summary.features = {{"f16", target.f16},
                      {"subgroups", target.subgroups},
                      {"subgroup_matrix", target.subgroup_matrix},
                      {"packed_dot", target.packed_dot},
                      {"immediates", target.immediates},
                      {"image_buffer", target.image_buffer},
                      {"float_textures_write", target.float_textures_write},
                      {"timestamps", info.timestamps}};
  summary.limits = {{"max_binding_bytes", uint64_t(target.storage.max_binding_bytes)},
                    {"max_buffer_bytes", info.max_buffer_bytes},
                    {"max_storage_buffers", target.max_storage_buffers},
                    {"max_sampled_textures", target.max_sampled_textures},
                    {"max_storage_textures", target.max_storage_textures},
                    {"max_invocations", target.max_invocations},
                    {"max_workgroup_bytes", target.max_workgroup_bytes},
                    {"max_workgroups", target.max_workgroups},
                    {"max_texture_2d", target.storage.max_texture_2d},
                    {"max_texture_3d", target.storage.max_texture_3d},
                    {"max_texture_layers", target.storage.max_texture_layers},
                    {"max_image_buffer_texels", uint64_t(target.storage.max_image_buffer_texels)},
                    {"subgroup_min", target.subgroup_min},
                    {"subgroup_max", target.subgroup_max}};
  summary.known_answers = info.known_answers;
  summary.quirks = info.quirks;
  return summary;
}

}  // namespace leeway
