#include "llm/engine.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

#include "base/hash.h"
#include "base/strings.h"
#include "graph/passes/passes.h"
#include "llm/decode_stages.h"
#include "llm/load_tokenizer.h"
#include "llm/models/models.h"
#include "llm/quantize_model.h"
#include "ops/cpu_target.h"

namespace leeway::llm {

double NowMs() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

namespace {

constexpr int kDefaultContext = 4096;

bool IsOnCpu(const EngineOptions& options) { return !options.shared_device && options.device == "cpu"; }

Status Progress(const EngineOptions& options, const char* stage, int done, int total) {
  if (!options.progress || options.progress({stage, done, total})) return {};
  return Error{Code::kCancelled, "The caller ended the load."};
}

// What identifies the model wherever its file lies: its configuration as the graph has it, and some bytes of every tensor.
uint64_t HashModel(const LlmFile& file) {
  uint64_t hash = HashText(file.architecture());
  for (const auto& [name, tensor] : file.tensors()) {
    const auto bytes = tensor.bytes();
    hash = HashText(StrCat(name, DTypeName(tensor.dtype()), tensor.shape().ToString()), hash);
    hash = HashBytes(bytes.first(std::min<size_t>(bytes.size(), 64)), hash);
    hash = HashBytes(bytes.last(std::min<size_t>(bytes.size(), 64)), hash);
  }
  return hash;
}

Result<LlmModel> ReadModel(const std::shared_ptr<const LlmFile>& file) {
  ASSIGN_OR_RETURN(ModelFile model_file, ModelFileOf(file));
  return MakeModel(std::move(model_file));
}

ModelInfo Describe(const LlmFile& file) {
  ModelInfo info;
  info.architecture = file.architecture();
  const auto name = file.config().String("general.name", "");
  info.name = name.ok() && !name->empty() ? *name : std::filesystem::path(file.path()).filename().string();
  std::map<std::string, ModelInfo::TypeShare> types;
  for (const auto& [tensor_name, tensor] : file.tensors()) {
    auto& share = types[DTypeName(tensor.dtype())];
    share.type = DTypeName(tensor.dtype());
    ++share.tensors;
    share.bytes += tensor.bytes().size();
    info.parameters += uint64_t(tensor.element_count());
    info.tensors.push_back(
        {std::string(tensor_name), share.type, {tensor.shape().begin(), tensor.shape().end()}, tensor.bytes().size()});
  }
  for (auto& [type, share] : types) info.types.push_back(std::move(share));
  std::stable_sort(info.types.begin(), info.types.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  info.has_chat_template = file.chat_template().has_value();
  return info;
}

// Rows of the plans. A software device compiles for long and gains little beyond a tile.
std::vector<int> ChooseRows(const EngineOptions& options, const Device* device, int context) {
  std::vector<int> rows = options.chunk_rows;
  if (rows.empty()) {
    if (!device) {
      rows = {32};
    } else if (device->info().is_software) {
      rows = {16, 64};
    } else {
      rows = {16, 64, 512};
    }
  }
  rows.push_back(1);
  for (int& r : rows) r = std::clamp(r, 1, context);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

struct Planned {
  int rows = 0;
  bool is_greedy = false;  // its sampling is fused away
  bool has_int8 = false;   // products with activations in 8 bits
  LaunchPlan plan;
  ValueId tokens = kNoValue, logits = kNoValue;
};

// Whether steps of decoding are made of the fused stages, as far as the device's kernels take them.
bool FusesDecoding(const EngineOptions& options, const DeviceInfo& device) {
  return options.fuse_decoding.value_or(!device.is_software || RunsWorkgroupsOnThreads(device.target));
}

// The graph of the model for so many rows. Its caches may be narrow.
Result<Graph> MakeGraph(const LlmModel& model, const StageShape& shape) {
  ASSIGN_OR_RETURN(Graph graph, BuildGraph(model, shape));
  for (GraphState& state : graph.states) {
    if (state.name.starts_with("k.") || state.name.starts_with("v.")) state.may_be_f16 = true;
  }
  return graph;
}

Result<Planned> MakePlanned(const LlmModel& model, const StageShape& shape, const EngineOptions& options,
                            const DeviceInfo* device, ThreadPool& pool, EngineReport& report, bool greedy = false) {
  const double start = NowMs();
  const std::string context = StrCat("while planning runs of (", shape.rows, ") tokens");
  Planned planned;
  planned.rows = int(shape.rows);
  ASSIGN_OR_RETURN_CONTEXT(Graph graph, MakeGraph(model, shape), context);
  if (shape.rows == 1 && device && FusesDecoding(options, *device)) {
    const auto fused = FuseDecodeStages(graph, device->target, {.greedy = greedy, .int8 = *options.int8_activations});
    if (!fused.ok()) return WithContext(fused.error(), context);
  }
  if (shape.rows > 1 && *options.half_prompts) {
    for (Node& node : graph.nodes) {
      const std::string_view name = node.op ? node.op->name : "";
      if (name == "linear" || name == "attention") node.attrs.Set("half_inputs", true);
    }
  }
  planned.is_greedy = greedy && std::none_of(graph.nodes.begin(), graph.nodes.end(),
                                             [](const Node& node) { return std::string_view(node.op->name) == "sample"; });
  planned.has_int8 = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                 [](const Node& node) { return node.attrs.GetString("activations", "") == "int8"; });
  PassOptions passes;
  passes.disabled = options.disabled_passes;
  if (passes.disabled.erase("all") > 0) {
    for (const auto& pass : AllPasses()) passes.disabled.insert(pass.name);
  }
  ASSIGN_OR_RETURN_CONTEXT(auto reports, RunPasses(graph, passes), context);
  report.build_ms += NowMs() - start;
  const double plan_start = NowMs();
  PlanOptions plan_options;
  plan_options.select.precision = options.precision;
  plan_options.select.f32_caches = options.f32_cache;
  plan_options.excluded_nodes = options.excluded_nodes;
  const Family* family = FindFamily(model.config.architecture);
  plan_options.keeps_f32 = [family](const std::string& value) { return KeepsF32(*family, value); };
  ASSIGN_OR_RETURN_CONTEXT(planned.plan, MakePlan(std::move(graph), device, plan_options, pool), context);
  report.plan_ms += NowMs() - plan_start;
  for (const PlanState& state : planned.plan.states) {
    if (state.name == kTokensState) planned.tokens = state.after;
  }
  if (shape.logits) planned.logits = planned.plan.graph.outputs[0];
  if (planned.tokens == kNoValue) return Error{Code::kInternal, "The model's graph has no state \"tokens\"."};
  return planned;
}

EngineMemory Estimate(std::span<const Planned> planned, const LlmFile& file, int context) {
  EngineMemory estimate;
  estimate.context = context;
  estimate.file_bytes = file.file_bytes();
  ActivationArena arena;
  std::set<std::tuple<const std::byte*, uint64_t, int>> weights;
  std::set<std::string> states;
  // What stages of decoding read as parts of stacks, the others read there too.
  for (const Planned& p : planned) {
    for (const PlanResource& resource : p.plan.resources) {
      if (resource.kind != PlanResource::Kind::kConstant) continue;
      for (const StackedPart& part : PartsOf(resource)) {
        weights.emplace(part.constant->bytes().data(), part.size_bytes, int(resource.piece));
      }
    }
  }
  std::set<std::tuple<std::vector<const std::byte*>, int>> stacks;
  for (const Planned& p : planned) {
    arena.Reserve(p.plan);
    for (const PlanResource& resource : p.plan.resources) {
      switch (resource.kind) {
        case PlanResource::Kind::kConstant:
          if (!resource.stacked.empty()) {
            std::vector<const std::byte*> stack{resource.constant->bytes().data()};
            for (const auto& more : resource.stacked) stack.push_back(more->bytes().data());
            if (stacks.emplace(std::move(stack), int(resource.piece)).second) estimate.weights_bytes += resource.size_bytes;
            break;
          }
          if (weights.emplace(resource.constant->bytes().data(), resource.size_bytes, int(resource.piece)).second) {
            estimate.weights_bytes += resource.size_bytes;
          }
          break;
        case PlanResource::Kind::kState:
          if (!states.insert(resource.name).second) break;
          (resource.name.starts_with("k.") || resource.name.starts_with("v.") ? estimate.cache_bytes
                                                                              : estimate.session_bytes) += resource.size_bytes;
          break;
        case PlanResource::Kind::kInput:
        case PlanResource::Kind::kOutput:
        case PlanResource::Kind::kKernelScratch: estimate.other_bytes += resource.size_bytes; break;
        case PlanResource::Kind::kActivation:
        case PlanResource::Kind::kScratch: break;
      }
    }
  }
  estimate.activations_bytes = arena.size_bytes();
  estimate.total_bytes = estimate.weights_bytes + estimate.activations_bytes + estimate.cache_bytes + estimate.session_bytes +
                         estimate.other_bytes;
  return estimate;
}

// Everything up to what allocates device memory.
struct Prepared {
  std::unique_ptr<Engine::State> state;
  std::vector<Planned> planned;
};

Result<Prepared> Prepare(const std::string& path, const EngineOptions& options) {
  Prepared prepared;
  prepared.state = std::make_unique<Engine::State>();
  Engine::State& state = *prepared.state;
  state.options = options;
  RETURN_IF_ERROR(Progress(options, "reading", 0, 1));
  const double start = NowMs();
  ASSIGN_OR_RETURN(state.file, LlmFile::Open(path));
  state.info = Describe(*state.file);
  ASSIGN_OR_RETURN(LlmModel model, ReadModel(state.file));
  // What is not said is decided by the family.
  if (!state.options.half_prompts) state.options.half_prompts = state.options.int8_activations.value_or(true);
  if (!state.options.int8_activations) {
    state.options.int8_activations = FindFamily(model.config.architecture)->int8_by_default;
  }
  state.info.layers = int(model.config.layers.size());
  state.info.trained_context = int(model.config.context);
  state.info.vocabulary = int(model.config.vocabulary);
  ASSIGN_OR_RETURN(state.tokenizer, LoadTokenizer(state.file));
  state.info.has_tokenizer = state.tokenizer.has_value();
  if (state.tokenizer) {
    // A template that is not understood does not keep the model from being used otherwise: ChatPrompt says why.
    auto chat_template = ChatTemplate::For(*state.tokenizer);
    if (chat_template.ok()) {
      state.chat_template = std::move(*chat_template);
    } else {
      state.no_template = chat_template.error();
    }
  }
  state.model_hash = HashModel(*state.file);
  state.report.read_ms = NowMs() - start;
  RETURN_IF_ERROR(Progress(options, "reading", 1, 1));

  const double open_start = NowMs();
  std::shared_ptr<Device> device = options.shared_device;
  if (!device && !IsOnCpu(options)) {
    OpenOptions open = options.device_options;
    if (!open.log) open.log = options.log;
    if (!open.cache_folder) open.cache_folder = options.cache_folder;
    ASSIGN_OR_RETURN(device, OpenSharedDevice(options.device, open));
  }
  state.report.open_device_ms = NowMs() - open_start;
  state.shared = std::make_unique<StageContext>(
      device, options.cache_folder ? *options.cache_folder : ProgramCache::DefaultFolder(), options.threads);
  if (options.quantize_bits != 0) {
    const double quantize_start = NowMs();
    RETURN_IF_ERROR(QuantizeModel(model, options.quantize_bits, state.shared->pool,
                                  [&](int done, int total) { return Progress(options, "quantizing", done, total); }));
    // Another model, as far as saved sessions go.
    state.model_hash = HashText(StrCat("quantized to ", options.quantize_bits), state.model_hash);
    state.report.read_ms += NowMs() - quantize_start;
  }

  if (options.context < 0) {
    return Error{Code::kInvalidArgument, StrCat("The context is (", options.context, ") tokens; it takes 0 or more.")};
  }
  state.context = options.context;
  if (state.context == 0) {
    state.context = state.info.trained_context > 0 ? std::min(state.info.trained_context, kDefaultContext) : kDefaultContext;
  }
  const std::vector<int> rows = ChooseRows(options, device.get(), state.context);
  // Decode steps in flight are taken back too when an answer ends.
  state.max_rewind = std::max(rows.back(), 4);
  for (size_t i = 0; i < rows.size(); ++i) {
    RETURN_IF_ERROR(Progress(options, "planning", int(i), int(rows.size())));
    // The plan for one token chooses the next; the others only fill the caches.
    const bool has_head = rows[i] == 1;
    const StageShape shape{
        .rows = rows[i], .context = state.context, .max_rows = state.max_rewind, .logits = has_head, .sample = has_head};
    ASSIGN_OR_RETURN(Planned planned, MakePlanned(model, shape, state.options, device ? &device->info() : nullptr,
                                                  state.shared->pool, state.report));
    if (options.log) {
      for (const auto& note : planned.plan.placement.notes) options.log(note);
    }
    prepared.planned.push_back(std::move(planned));
    if (!has_head || !device || !FusesDecoding(options, device->info())) continue;
    StageShape without_logits = shape;
    without_logits.logits = false;
    ASSIGN_OR_RETURN(Planned greedy, MakePlanned(model, without_logits, state.options, &device->info(), state.shared->pool,
                                                 state.report, true));
    if (greedy.is_greedy) prepared.planned.push_back(std::move(greedy));
  }
  RETURN_IF_ERROR(Progress(options, "planning", int(rows.size()), int(rows.size())));
  for (const Planned& planned : prepared.planned) state.has_int8 = state.has_int8 || planned.has_int8;
  state.memory = Estimate(prepared.planned, *state.file, state.context);
  return prepared;
}

}  // namespace

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

bool Engine::IsLanguageModel(const std::string& path) { return LlmFile::LooksLikeIt(path); }

Result<ModelInfo> Engine::Inspect(const std::string& path) {
  ASSIGN_OR_RETURN(auto file, LlmFile::Open(path));
  ModelInfo info = Describe(*file);
  ASSIGN_OR_RETURN(const LlmModel model, ReadModel(file));
  info.layers = int(model.config.layers.size());
  info.trained_context = int(model.config.context);
  info.vocabulary = int(model.config.vocabulary);
  ASSIGN_OR_RETURN(auto tokenizer, LoadTokenizer(file));
  info.has_tokenizer = tokenizer.has_value();
  return info;
}

Result<EngineMemory> Engine::EstimateMemory(const std::string& path, const EngineOptions& options) {
  ASSIGN_OR_RETURN(Prepared prepared, Prepare(path, options));
  return prepared.state->memory;
}

Result<std::shared_ptr<Engine>> Engine::Load(const std::string& path, const EngineOptions& options) {
  const double start = NowMs();
  ASSIGN_OR_RETURN(Prepared prepared, Prepare(path, options));
  State& state = *prepared.state;
  if (options.memory_limit_bytes > 0 && state.memory.total_bytes > options.memory_limit_bytes) {
    return Error{Code::kOutOfMemory,
                 StrCat("The model needs ", state.memory.total_bytes, " bytes of device memory (weights ",
                        state.memory.weights_bytes, ", caches ", state.memory.cache_bytes, ", activations ",
                        state.memory.activations_bytes, "), and the limit is ", options.memory_limit_bytes, ".")};
  }
  StageContext& shared = *state.shared;
  if (options.progress) {
    shared.weights.progress = [&options](uint64_t done, uint64_t total) {
      return options.progress({"uploading", int(done >> 10), int(total >> 10)});
    };
  }
  for (const Planned& planned : prepared.planned) shared.arena.Reserve(planned.plan);
  int compiled = 0, to_compile = 0;
  for (const Planned& planned : prepared.planned) to_compile += int(planned.plan.kernels.size());
  std::function<bool(int, int)> progress;
  if (options.progress) {
    progress = [&](int done, int) { return options.progress({"compiling", compiled + done, to_compile}); };
  }
  for (Planned& planned : prepared.planned) {
    ASSIGN_OR_RETURN(auto stage, Stage::Make(std::move(planned.plan), shared, progress));
    const DevicePlanReport report = stage->report();
    state.report.compile_ms += report.compile_ms;
    state.report.upload_ms += report.upload_ms;
    state.report.cache_hits += report.cache_hits;
    state.report.cache_misses += report.cache_misses;
    compiled += int(stage->plan().kernels.size());
    EngineStage made{planned.rows, std::move(stage), planned.tokens, planned.logits};
    if (planned.is_greedy) {
      state.greedy = std::move(made);
    } else {
      state.stages.push_back(std::move(made));
    }
  }
  shared.weights.progress = nullptr;
  state.report.total_ms = NowMs() - start;
  // What only the load needs is the caller's again.
  state.options.progress = nullptr;
  state.options.log = nullptr;
  return std::make_shared<Engine>(std::move(prepared.state));
}

const ModelInfo& Engine::model() const { return state_->info; }
int Engine::context() const { return state_->context; }
Precision Engine::precision() const { return state_->options.precision; }
bool Engine::int8_activations() const { return state_->has_int8; }
EngineMemory Engine::memory() const { return state_->memory; }
uint64_t Engine::device_bytes() const { return state_->device() ? state_->device()->allocated_bytes() : 0; }
const EngineReport& Engine::load_report() const { return state_->report; }

DeviceSummary Engine::device() const {
  if (state_->device()) return DescribeDevice(*state_->device());
  DeviceSummary summary;
  summary.api = "cpu";
  summary.name = "CPU reference";
  summary.device_class = "cpu";
  return summary;
}

std::vector<StageReport> Engine::stages() const {
  std::vector<StageReport> reports;
  std::vector<const EngineStage*> all;
  if (state_->greedy) all.push_back(&*state_->greedy);
  for (const auto& stage : state_->stages) all.push_back(&stage);
  for (const EngineStage* stage : all) {
    const LaunchPlan& plan = stage->stage->plan();
    StageReport report;
    report.rows = stage->rows;
    report.only_greedy = state_->greedy && stage == &*state_->greedy;
    report.dispatches = int(plan.dispatches.size());
    report.nodes_on_cpu = plan.placement.nodes_on_cpu;
    for (const auto& step : plan.steps) report.submissions += int(step.submissions.size());
    std::set<int> read;
    for (const auto& dispatch : plan.dispatches) {
      report.flops += dispatch.info.flops;
      report.kernels.push_back(dispatch.info);
      // Of the table of embeddings a run reads a few rows.
      if (std::string_view(plan.graph.nodes[size_t(dispatch.node)].op->name) == "embed_tokens") continue;
      for (const auto& binding : dispatch.bindings) {
        if (binding.resource < 0 || plan.resources[size_t(binding.resource)].kind != PlanResource::Kind::kConstant) continue;
        if (read.insert(binding.resource).second) {
          report.weights_read_bytes += plan.resources[size_t(binding.resource)].size_bytes;
        }
      }
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

Result<std::string> Engine::PlanText(int rows) const {
  std::string there;
  if (rows == 1 && state_->greedy) return PlanToText(state_->greedy->stage->plan());
  for (const auto& stage : state_->stages) {
    if (stage.rows == rows) return PlanToText(stage.stage->plan());
    there += StrCat(there.empty() ? "" : ", ", stage.rows);
  }
  return Error{Code::kNotFound, StrCat("There is no plan for (", rows, ") rows; there are plans for ", there, ".")};
}

namespace {
Error NoTokenizer(const LlmFile& file) {
  return {Code::kUnsupported, StrCat("The file ", file.path(), " has no tokenizer: prompts have to be given as tokens.")};
}
}  // namespace

Result<std::vector<int32_t>> Engine::Tokenize(std::string_view text, TokenizeOptions options) const {
  if (!state_->tokenizer) return NoTokenizer(*state_->file);
  const bool start = options.start && state_->tokenizer->adds_bos();
  return state_->tokenizer->Encode(text, EncodeOptions{.add_bos = start, .allow_special = options.special});
}

Result<std::vector<int32_t>> Engine::ChatPrompt(std::span<const Message> messages) const {
  if (!state_->tokenizer) return NoTokenizer(*state_->file);
  if (!state_->chat_template) return state_->no_template;
  std::vector<ChatMessage> given;
  for (const Message& message : messages) given.push_back({message.role, message.content, ""});
  ASSIGN_OR_RETURN(std::vector<PromptPart> parts, state_->chat_template->Render(given));
  return EncodePrompt(*state_->tokenizer, parts);
}

std::string Engine::Detokenize(std::span<const int32_t> ids, bool show_control) const {
  return state_->tokenizer ? state_->tokenizer->Decode(ids, {.show_control = show_control}) : "";
}

std::vector<int32_t> Engine::stop_tokens() const {
  if (!state_->tokenizer) return {};
  const auto stops = state_->tokenizer->stop_tokens();
  return {stops.begin(), stops.end()};
}

}  // namespace leeway::llm
