#include "runtime/plan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "base/hash.h"
#include "base/strings.h"
#include "runtime/weight_store.h"
#include "shader/compile.h"
#include "shader/share.h"

namespace leeway {
namespace {

using shader::BindingInfo;
using shader::KernelText;

// A node as its operator sees it, with the memory behind the spans.
struct NodeCall {
  NodeCall(const Graph& graph, const Node& node)
      : operands(NodeOperands(graph, node)),
        outputs(NodeOutputTypes(graph, node)),
        call{node.attrs, operands, outputs, node.custom_options} {}
  NodeCall(const NodeCall&) = delete;
  NodeCall& operator=(const NodeCall&) = delete;
  std::vector<OperandInfo> operands;
  std::vector<TensorType> outputs;
  OpCall call;
};

struct CompiledDispatch {
  AssembledDispatch assembled;
  KernelText text;
  // For sharing: the kernel with all its numbers still in it, and the two parts of it.
  std::optional<shader::LoweredKernel> lowered;
  shader::KernelOutline outline;
  std::vector<std::byte> params;  // of `text`
};

// What is decided about a node on the device.
struct NodePlan {
  std::vector<const KernelVariant*> variants;  // best first
  size_t variant = 0;
  OpPlan plan;
  std::vector<Placement> plan_placements;  // of plan.tensors
  std::vector<CompiledDispatch> dispatches;
  bool nothing_to_do = false;
};

class Planner {
 public:
  Planner(Graph graph, const DeviceInfo* device, const PlanOptions& options, ThreadPool& pool)
      : device_(device), options_(options), pool_(pool) {
    plan_.graph = std::move(graph);
  }

  Result<LaunchPlan> Make() {
    RETURN_IF_ERROR(PlanNodes());
    if (options_.require_gpu) RETURN_IF_ERROR(RequireAllOnGpu(plan_.graph, sides_));
    MakeRun();
    if (SharesPrograms()) SharePrograms();
    RETURN_IF_ERROR(MakeDispatches());
    RETURN_IF_ERROR(PlaceResources());
    MakeBorders();
    CutSubmissions();
    MakeReports();
    return std::move(plan_);
  }

 private:
  // ---- Kernels ---------------------------------------------------------------------------------------------------------

  // Nodes to variants, variants to compiled kernels; whatever a kernel cannot take is changed and tried again, so that what
  // comes out is the best that works.
  Status PlanNodes() {
    while (true) {
      const size_t count = plan_.graph.nodes.size();
      sides_.assign(count, NodeSide{});
      nodes_.clear();
      nodes_.resize(count);
      RETURN_IF_ERROR(PlaceValues());
      for (size_t n = 0; n < count; ++n) StartNode(int(n));
      JoinSides(plan_.graph, sides_);
      ASSIGN_OR_RETURN(const bool changed, CompileNodes());
      if (!changed) return {};
    }
  }

  const shader::Target& target() const { return device_->target; }

  // The placements of all values that are not constants.
  Status PlaceValues() {
    const Graph& graph = plan_.graph;
    placements_.assign(graph.values.size(), Placement{});
    roles_.assign(graph.values.size(), TensorRole::kActivation);
    for (ValueId id : graph.outputs) roles_[size_t(id)] = TensorRole::kOutput;
    for (ValueId id : graph.inputs) roles_[size_t(id)] = TensorRole::kInput;
    FindStates();
    for (size_t v = 0; v < graph.values.size(); ++v) {
      if (state_of_[v] < 0) continue;
      roles_[v] = graph.states[size_t(state_of_[v])].may_be_f16 ? TensorRole::kCache : TensorRole::kState;
    }
    if (!device_) return {};
    plain_values_.resize(graph.values.size(), false);
    too_large_.assign(graph.values.size(), "");
    for (size_t v = 0; v < graph.values.size(); ++v) {
      if (graph.values[v].constant) continue;
      SelectOptions select = options_.select;
      if (plain_values_[v]) select.forced = kPlainStorage;
      if (KeepsF32(ValueId(v))) select.precision = Precision::kF32;
      auto placement =
          ChoosePlacement(graph.values[v].type, roles_[v], graph.values[v].type.dtype, select, defaults(), target());
      if (placement.ok()) {
        placements_[v] = *placement;
      } else {
        too_large_[v] = placement.error().message;
      }
    }
    return {};
  }

  // Which values lie in the memory of which state.
  void FindStates() {
    const Graph& graph = plan_.graph;
    state_of_.assign(graph.values.size(), -1);
    for (size_t s = 0; s < graph.states.size(); ++s) state_of_[size_t(graph.states[s].before)] = int(s);
    for (const Node& node : graph.nodes) {
      for (const auto& update : node.op->updates) {
        state_of_[size_t(node.outputs[size_t(update.output)])] = state_of_[size_t(node.inputs[size_t(update.input)])];
      }
    }
  }

  bool KeepsF32(ValueId id) const {
    return roles_[size_t(id)] == TensorRole::kActivation && options_.keeps_f32 &&
           options_.keeps_f32(plan_.graph.value(id).name);
  }

  const ClassDefaults& defaults() const { return DefaultsForClass(device_->device_class, device_->is_software); }

  void ToCpu(int node, std::string reason) { sides_[size_t(node)] = {false, std::move(reason)}; }

  // The variants that a node may run as.
  void StartNode(int n) {
    const Node& node = plan_.graph.nodes[size_t(n)];
    if (!device_) return ToCpu(n, "there is no device");
    if (auto it = cpu_nodes_.find(node.outputs[0]); it != cpu_nodes_.end()) return ToCpu(n, it->second);
    if (IsExcluded(plan_.graph, n, options_.excluded_nodes)) return ToCpu(n, "it is excluded by the caller");
    NodePlan& planned = nodes_[size_t(n)];
    const NodeCall call(plan_.graph, node);
    bool all_empty = true;
    for (const auto& type : call.outputs) all_empty &= type.shape.element_count() == 0;
    if (all_empty) {
      planned.nothing_to_do = true;
      return;
    }
    for (const auto& list : {node.inputs, node.outputs}) {
      for (ValueId id : list) {
        if (id != kNoValue && !too_large_[size_t(id)].empty()) return ToCpu(n, too_large_[size_t(id)]);
      }
    }
    const KernelRequest request{call.call, target(), options_.select.precision == Precision::kF16 && target().f16, node.op};
    planned.variants = AcceptingVariants(*node.op, request);
    if (planned.variants.empty()) {
      auto generic = GenericPlan(*node.op, request);
      return ToCpu(n, StrCat("no kernel takes it", generic.ok() ? "" : StrCat(": ", generic.error().message)));
    }
    auto& variants = planned.variants;
    if (!options_.variant.empty()) {
      std::stable_partition(variants.begin(), variants.end(),
                            [&](const KernelVariant* v) { return options_.variant == v->name; });
    }
    if (!node.epilogue.empty()) {
      std::stable_partition(variants.begin(), variants.end(), [](const KernelVariant* v) { return !v->no_epilogue; });
    }
  }

  // True: the graph was changed, start again.
  Result<bool> CompileNodes() {
    std::vector<int> pending;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (sides_[n].on_gpu && !nodes_[n].nothing_to_do) pending.push_back(int(n));
    }
    const int total = int(pending.size());
    while (!pending.empty()) {
      std::vector<std::string> reasons(pending.size());
      // Plans first: they name the texts, each of which is parsed once.
      pool_.For(int64_t(pending.size()), [&](int64_t i) { reasons[size_t(i)] = PlanOne(pending[size_t(i)]); });
      for (size_t i = 0; i < pending.size(); ++i) {
        if (!reasons[i].empty()) continue;
        for (const auto& dispatch : nodes_[size_t(pending[i])].plan.dispatches) {
          auto [it, is_new] = modules_.try_emplace(dispatch.kernel_text.data());
          if (!is_new) continue;
          auto module = shader::Parse(dispatch.kernel_text, dispatch.kernel_name);
          if (!module.ok()) return module.error();
          it->second = std::make_unique<shader::Module>(std::move(*module));
        }
      }
      pool_.For(int64_t(pending.size()), [&](int64_t i) {
        if (reasons[size_t(i)].empty()) reasons[size_t(i)] = CompileOne(pending[size_t(i)]);
      });
      std::set<int> again;
      for (size_t i = 0; i < pending.size(); ++i) {
        if (reasons[i].empty()) continue;
        ASSIGN_OR_RETURN(const bool changed, Adjust(pending[i], reasons[i], again));
        if (changed) return true;
      }
      pending.assign(again.begin(), again.end());
      if (options_.progress && !options_.progress(total - int(pending.size()), total)) {
        return Error{Code::kCancelled, "The caller ended the load while kernels were compiled."};
      }
    }
    return false;
  }

  std::string PlanOne(int n) {
    const Node& node = plan_.graph.nodes[size_t(n)];
    NodePlan& planned = nodes_[size_t(n)];
    const KernelVariant& variant = *planned.variants[planned.variant];
    if (variant.no_epilogue && !node.epilogue.empty()) return StrCat("variant ", variant.name, " takes no fused operators");
    const NodeCall call(plan_.graph, node);
    const KernelRequest request{call.call, target(), options_.select.precision == Precision::kF16 && target().f16, node.op};
    auto plan = variant.plan(request);
    if (!plan.ok()) return StrCat("variant ", variant.name, ": ", plan.error().message);
    planned.plan = std::move(*plan);
    planned.plan_placements.clear();
    for (const auto& tensor : planned.plan.tensors) {
      TensorRole role = TensorRole::kActivation;
      DType source = tensor.type.dtype;
      if (tensor.constant_input >= 0) {
        role = TensorRole::kWeights;
        source = SourceDType(node.inputs[size_t(tensor.constant_input)]);
      }
      SelectOptions select = options_.select;
      if (plain_nodes_.contains(node.outputs[0])) select.forced = kPlainStorage;
      if (MayStayQuantized(node, tensor, source)) {
        if (auto quantized = ChooseQuantizedPlacement(tensor.type, source, target())) {
          planned.plan_placements.push_back(*quantized);
          continue;
        }
      }
      if (!tensor.stacked_inputs.empty()) return StrCat("variant ", variant.name, ": rows of plain constants are not stacked");
      auto placement = ChoosePlacement(tensor.type, role, source, select, defaults(), target());
      if (!placement.ok()) return StrCat("variant ", variant.name, ": ", placement.error().message);
      planned.plan_placements.push_back(*placement);
    }
    return "";
  }

  // A constant that a plan takes as it is, or rows of several.
  bool MayStayQuantized(const Node& node, const PlanTensor& tensor, DType source) const {
    if (tensor.constant_input < 0 || !IsBlockQuantized(source) || !tensor.map.is_identity() || tensor.map.inside) return false;
    int64_t rows = 0;
    auto fits = [&](int input) {
      const Shape& shape = plan_.graph.value(node.inputs[size_t(input)]).type.shape;
      rows += shape[0];
      return MayBeQuantized(node, size_t(input)) && shape.rank() == 2 && shape[1] == tensor.type.shape.at(-1);
    };
    return fits(tensor.constant_input) && std::all_of(tensor.stacked_inputs.begin(), tensor.stacked_inputs.end(), fits) &&
           tensor.type.shape.rank() == 2 && rows == tensor.type.shape[0];
  }

  DType SourceDType(ValueId id) const {
    const Value& value = plan_.graph.value(id);
    return value.constant ? value.constant->dtype() : value.type.dtype;
  }

  // `quantized`: a block-quantized constant may stay so.
  Result<Placement> PlacementOf(ValueId id, bool plain, bool quantized) const {
    const Value& value = plan_.graph.value(id);
    if (!value.constant) return placements_[size_t(id)];
    if (quantized) {
      if (auto placement = ChooseQuantizedPlacement(value.type, SourceDType(id), target())) return *placement;
    }
    SelectOptions select = options_.select;
    if (plain) select.forced = kPlainStorage;
    return ChoosePlacement(value.type, TensorRole::kWeights, SourceDType(id), select, defaults(), target());
  }

  // Kernels read quantized constants as they are; where one of a node could not, all inputs of that node are widened.
  bool MayBeQuantized(const Node& node, size_t input) const {
    const bool viewed = input < node.input_views.size() && node.input_views[input];
    return !viewed && !widened_nodes_.contains(node.outputs[0]);
  }
  bool HasQuantized(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId id) { return id != kNoValue && IsBlockQuantized(SourceDType(id)); });
  }

  std::string CompileOne(int n) {
    const Node& node = plan_.graph.nodes[size_t(n)];
    NodePlan& planned = nodes_[size_t(n)];
    const KernelVariant& variant = *planned.variants[planned.variant];
    auto status = CompileNode(node, planned);
    return status.ok() ? "" : StrCat("variant ", variant.name, ": ", status.error().message);
  }

  Status CompileNode(const Node& node, NodePlan& planned) {
    const Graph& graph = plan_.graph;
    const bool plain = plain_nodes_.contains(node.outputs[0]);
    const NodeCall call(graph, node);
    std::vector<PlacedValue> inputs, outputs, tensors;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      PlacedValue placed;
      if (node.inputs[i] != kNoValue) {
        placed.shape = call.operands[i].type.shape;
        if (i < node.input_views.size() && node.input_views[i]) placed.view = node.input_views[i]->map;
        // A constant that is too large to be placed as it is may still be used through a plan tensor.
        const bool quantized = MayBeQuantized(node, i);
        if (auto placement = PlacementOf(node.inputs[i], plain, quantized); placement.ok()) placed.placement = *placement;
      }
      inputs.push_back(std::move(placed));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      PlacedValue placed;
      placed.placement = placements_[size_t(node.outputs[i])];
      placed.shape = graph.value(node.outputs[i]).type.shape;
      if (i == 0 && node.output_view) {
        placed.shape = node.output_view->shape;
        placed.view = node.output_view->map;
      }
      outputs.push_back(std::move(placed));
    }
    for (size_t i = 0; i < planned.plan.tensors.size(); ++i) {
      tensors.push_back({planned.plan.tensors[i].type.shape, {}, planned.plan_placements[i]});
    }
    std::vector<PlacedStep> epilogue;
    TensorType in_flight = call.outputs[0];
    for (const auto& step : node.epilogue) {
      const std::vector<OperandInfo> operands = StepOperands(graph, step, in_flight);
      const std::vector<TensorType> result = {step.result};
      ASSIGN_OR_RETURN(ValueMap function, step.op->value_map(OpCall{step.attrs, operands, result}, step.chained));
      PlacedStep placed{.function = std::move(function), .operands = {}, .result_shape = step.result.shape};
      for (size_t i = 0; i < step.inputs.size(); ++i) {
        if (int(i) == step.chained || step.inputs[i] == kNoValue) continue;
        ASSIGN_OR_RETURN(Placement placement, PlacementOf(step.inputs[i], plain, false));
        CoordMap view = i < step.input_views.size() && step.input_views[i] ? step.input_views[i]->map : CoordMap{};
        placed.operands.push_back({operands[i].type.shape, std::move(view), placement});
      }
      epilogue.push_back(std::move(placed));
      in_flight = step.result;
    }
    planned.dispatches.clear();
    for (const auto& dispatch : planned.plan.dispatches) {
      for (uint32_t workgroups : dispatch.workgroups) {
        if (workgroups > target().max_workgroups) {
          return Error{Code::kUnsupported,
                       StrCat("Kernel ", dispatch.kernel_name, " needs ", workgroups,
                              " workgroups along one axis, and the device allows ", target().max_workgroups, ".")};
        }
      }
      CompiledDispatch compiled;
      ASSIGN_OR_RETURN(compiled.assembled, AssembleDispatch(dispatch, inputs, outputs, tensors, epilogue));
      ASSIGN_OR_RETURN(const shader::BoundKernel bound,
                       shader::Bind(*modules_.at(dispatch.kernel_text.data()), compiled.assembled.specialization, target()));
      ASSIGN_OR_RETURN(const shader::LoweredKernel lowered, shader::Lower(bound, target()));
      ASSIGN_OR_RETURN(compiled.text, shader::Print(lowered, target()));
      if (compiled.text.params_bytes > 0 && !compiled.text.params.empty()) {
        return Error{Code::kUnsupported, StrCat("Kernel ", dispatch.kernel_name, " has a parameter (",
                                                compiled.text.params[0].name, "), and a model's run has no values for it.")};
      }
      if (SharesPrograms()) {
        ASSIGN_OR_RETURN(compiled.lowered, shader::LowerForSharing(bound, target()));
        compiled.outline = shader::OutlineOf(*compiled.lowered, HowToShare());
      }
      planned.dispatches.push_back(std::move(compiled));
    }
    return {};
  }

  // SwiftShader takes 50 to 200 ms for a program, NVIDIA's driver 20. PoCL's compiler makes code of half the speed where
  // extents are params, so kernels in OpenCL keep their numbers.
  bool SharesPrograms() const { return options_.share_programs && device_ && target().language == shader::Language::kWgsl; }
  shader::ShareOptions HowToShare() const { return {.loop_lengths = target().is_software}; }

  // Kernels that look alike get the text of one that takes their numbers as params.
  void SharePrograms() {
    std::map<std::string_view, std::vector<CompiledDispatch*>> alike;
    std::vector<std::vector<CompiledDispatch*>*> groups;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (!sides_[n].on_gpu || nodes_[n].nothing_to_do) continue;
      for (CompiledDispatch& compiled : nodes_[n].dispatches) alike[compiled.outline.text].push_back(&compiled);
    }
    for (auto& [text, group] : alike) {
      if (group.size() > 1) groups.push_back(&group);
    }
    pool_.For(int64_t(groups.size()), [&](int64_t g) {
      auto& group = *groups[size_t(g)];
      std::vector<const std::vector<int64_t>*> numbers;
      for (const CompiledDispatch* compiled : group) numbers.push_back(&compiled->outline.numbers);
      auto shared = shader::ShareKernels(*group[0]->lowered, numbers, HowToShare());
      if (!shared || shared->kernel.params.empty()) return;  // equal ones have equal texts
      auto text = shader::Print(shared->kernel, target());
      if (!text.ok()) return;
      for (size_t k = 0; k < group.size(); ++k) {
        group[k]->text = *text;
        group[k]->params = std::move(shared->params[k]);
      }
    });
  }

  // A node did not compile: changes what it can change, mildest first. True: the graph was changed.
  Result<bool> Adjust(int n, const std::string& reason, std::set<int>& again) {
    Node& node = plan_.graph.nodes[size_t(n)];
    NodePlan& planned = nodes_[size_t(n)];
    // 1. Tensors that lie in something special become plain, and with them all nodes that touch them.
    bool moved =
        plain_nodes_.insert(node.outputs[0]).second && options_.select.forced && !(*options_.select.forced == kPlainStorage);
    for (ValueId id : ValuesOf(node)) {
      if (plan_.graph.value(id).constant || IsPlain(placements_[size_t(id)])) continue;
      plain_values_[size_t(id)] = true;
      ASSIGN_OR_RETURN(placements_[size_t(id)],
                       ChoosePlacement(plan_.graph.value(id).type, roles_[size_t(id)], plan_.graph.value(id).type.dtype,
                                       {options_.select.precision, kPlainStorage}, defaults(), target()));
      moved = true;
      for (size_t other = 0; other < nodes_.size(); ++other) {
        if (!sides_[other].on_gpu || nodes_[other].nothing_to_do) continue;
        const auto values = ValuesOf(plan_.graph.nodes[other]);
        if (std::find(values.begin(), values.end(), id) != values.end()) again.insert(int(other));
      }
    }
    if (moved) {
      again.insert(n);
      return false;
    }
    // 2. What was fused into it becomes nodes of their own again.
    if (!node.epilogue.empty()) {
      Unfuse(n);
      return true;
    }
    // 3. A simpler variant.
    if (planned.variant + 1 < planned.variants.size()) {
      ++planned.variant;
      again.insert(n);
      return false;
    }
    // 4. Plain numbers instead of blocks.
    if (HasQuantized(node) && widened_nodes_.insert(node.outputs[0]).second) {
      planned.variant = 0;
      again.insert(n);
      return false;
    }
    // 5. The CPU. Those that fill the same value follow it, so they start again.
    cpu_nodes_[node.outputs[0]] = reason;
    ToCpu(n, reason);
    return node.output_view.has_value();
  }

  std::vector<ValueId> ValuesOf(const Node& node) const {
    std::vector<ValueId> values;
    auto add = [&](ValueId id) {
      if (id != kNoValue) values.push_back(id);
    };
    for (ValueId id : node.inputs) add(id);
    for (ValueId id : node.outputs) add(id);
    for (const auto& step : node.epilogue) {
      for (ValueId id : step.inputs) add(id);
    }
    return values;
  }

  // The fused steps of a node become nodes after it, with values between.
  void Unfuse(int n) {
    Graph& graph = plan_.graph;
    Node node = std::move(graph.nodes[size_t(n)]);
    const ValueId final_value = node.outputs[0];
    auto final_view = std::move(node.output_view);
    node.output_view.reset();
    std::vector<FusedStep> steps = std::move(node.epilogue);
    node.epilogue.clear();
    std::vector<Node> nodes;
    auto add_value = [&](size_t number, const TensorType& type) {
      Value value;
      value.quantization = steps[number].in_flight_quantization;
      value.name = StrCat(graph.value(final_value).name, "/unfused", number);
      value.type = type;
      return graph.AddValue(std::move(value));
    };
    ValueId in_flight = add_value(0, node.result);
    node.outputs[0] = in_flight;
    nodes.push_back(std::move(node));
    for (size_t i = 0; i < steps.size(); ++i) {
      FusedStep& step = steps[i];
      const bool is_last = i + 1 == steps.size();
      Node single;
      single.name = StrCat(nodes[0].name, "/", step.op->name);
      single.op = step.op;
      single.attrs = std::move(step.attrs);
      single.inputs = std::move(step.inputs);
      single.inputs[size_t(step.chained)] = in_flight;
      single.input_views = std::move(step.input_views);
      single.result = step.result;
      if (is_last) {
        single.outputs = {final_value};
        single.output_view = std::move(final_view);
      } else {
        in_flight = add_value(i + 1, step.result);
        single.outputs = {in_flight};
      }
      nodes.push_back(std::move(single));
    }
    graph.nodes.erase(graph.nodes.begin() + n);
    graph.nodes.insert(graph.nodes.begin() + n, std::make_move_iterator(nodes.begin()), std::make_move_iterator(nodes.end()));
  }

  // ---- The run -----------------------------------------------------------------------------------------------------------

  void MakeRun() {
    for (const PlacementStep& step : MakeSteps(plan_.graph, sides_)) {
      PlanStep planned;
      planned.on_gpu = step.on_gpu;
      planned.nodes = step.nodes;
      plan_.steps.push_back(std::move(planned));
    }
  }

  // Equal constants are one: the first constant with the same bytes.
  std::shared_ptr<const HostTensor> Canonical(const std::shared_ptr<const HostTensor>& constant) {
    if (auto it = canonical_.find(constant.get()); it != canonical_.end()) return it->second;
    const auto bytes = constant->bytes();
    // The whole of a large constant is compared only where a sample agrees.
    uint64_t hash = HashBytes(bytes.first(std::min<size_t>(bytes.size(), 256)), bytes.size());
    if (bytes.size() > 512) hash = HashBytes(bytes.subspan(bytes.size() / 2, 256), hash);
    auto& candidates = by_sample_[hash];
    for (const auto& other : candidates) {
      if (other->dtype() == constant->dtype() && other->shape() == constant->shape() && other->bytes().size() == bytes.size() &&
          std::memcmp(other->bytes().data(), bytes.data(), bytes.size()) == 0) {
        return canonical_[constant.get()] = other;
      }
    }
    candidates.push_back(constant);
    return canonical_[constant.get()] = constant;
  }

  using Piece = AssembledDispatch::Source::Piece;

  // `chosen` with a format: the resource is that piece of it.
  int ConstantResource(std::string name, const std::shared_ptr<const HostTensor>& constant, CoordMap map,
                       const Placement& chosen, Piece piece = Piece::kWhole,
                       std::vector<std::shared_ptr<const HostTensor>> stacked = {}) {
    auto canonical = Canonical(constant);
    for (auto& more : stacked) more = Canonical(more);
    auto& made = constants_[canonical.get()];
    const Placement placement = piece == Piece::kQuants    ? QuantsOf(chosen)
                                : piece == Piece::kFactors ? FactorsOf(chosen)
                                                           : chosen;
    for (int r : made) {
      const auto& resource = plan_.resources[size_t(r)];
      if (resource.piece == piece && resource.format == chosen.format && resource.stacked == stacked &&
          SamePlacement(resource.placement, placement) && SameMap(resource.map, map)) {
        return r;
      }
    }
    PlanResource resource;
    resource.kind = PlanResource::Kind::kConstant;
    resource.name = std::move(name);
    resource.placement = placement;
    resource.size_bytes = uint64_t(placement.storage_bytes());
    resource.constant = std::move(canonical);
    resource.map = std::move(map);
    resource.format = chosen.format;
    resource.piece = piece;
    resource.stacked = std::move(stacked);
    made.push_back(int(plan_.resources.size()));
    plan_.resources.push_back(std::move(resource));
    return made.back();
  }

  int ValueResource(ValueId id) {
    int& r = plan_.value_resource[size_t(id)];
    if (r >= 0) return r;
    PlanResource resource;
    switch (roles_[size_t(id)]) {
      case TensorRole::kInput: resource.kind = PlanResource::Kind::kInput; break;
      case TensorRole::kOutput: resource.kind = PlanResource::Kind::kOutput; break;
      case TensorRole::kState:
      case TensorRole::kCache: resource.kind = PlanResource::Kind::kState; break;
      case TensorRole::kActivation:
      case TensorRole::kWeights: resource.kind = PlanResource::Kind::kActivation; break;
    }
    resource.name = plan_.graph.value(id).name;
    resource.value = id;
    resource.placement = placements_[size_t(id)];
    resource.size_bytes = uint64_t(resource.placement.storage_bytes());
    resource.first = INT32_MAX;
    resource.last = -1;
    r = int(plan_.resources.size());
    plan_.resources.push_back(std::move(resource));
    return r;
  }

  Result<int> InputResource(ValueId id, bool plain, Piece piece) {
    const Value& value = plan_.graph.value(id);
    if (!value.constant) return ValueResource(id);
    ASSIGN_OR_RETURN(Placement placement, PlacementOf(id, plain, piece != Piece::kWhole));
    return ConstantResource(value.name, value.constant, {}, placement, piece);
  }

  Result<int> PlanTensorResource(int n, int tensor, Piece piece, std::vector<int>& made) {
    if (piece == Piece::kWhole && made[size_t(tensor)] >= 0) return made[size_t(tensor)];
    const Node& node = plan_.graph.nodes[size_t(n)];
    const NodePlan& planned = nodes_[size_t(n)];
    const PlanTensor& wanted = planned.plan.tensors[size_t(tensor)];
    const Placement& placement = planned.plan_placements[size_t(tensor)];
    if (wanted.constant_input >= 0) {
      const size_t input = size_t(wanted.constant_input);
      const Value& value = plan_.graph.value(node.inputs[input]);
      if (!value.constant) {
        return Error{Code::kInternal,
                     StrCat("Input ", input, " of ", NodeLabel(plan_.graph, n), " is used as a constant and is none.")};
      }
      CoordMap map = wanted.map;
      if (input < node.input_views.size() && node.input_views[input]) {
        ASSIGN_OR_RETURN(map, Compose(wanted.map, node.input_views[input]->map));
      }
      std::vector<std::shared_ptr<const HostTensor>> stacked;
      for (int more : wanted.stacked_inputs) stacked.push_back(plan_.graph.value(node.inputs[size_t(more)]).constant);
      const int resource = ConstantResource(value.name, value.constant, std::move(map), placement, piece, std::move(stacked));
      if (piece != Piece::kWhole) return resource;
      made[size_t(tensor)] = resource;
    } else {
      PlanResource resource;
      resource.kind = PlanResource::Kind::kScratch;
      resource.name = StrCat(node.name, "/scratch", tensor);
      resource.placement = placement;
      resource.size_bytes = uint64_t(placement.storage_bytes());
      resource.first = INT32_MAX;
      resource.last = -1;
      made[size_t(tensor)] = int(plan_.resources.size());
      plan_.resources.push_back(std::move(resource));
    }
    return made[size_t(tensor)];
  }

  Result<int> SourceResource(int n, const AssembledDispatch::Source& source, std::vector<int>& made) {
    const Node& node = plan_.graph.nodes[size_t(n)];
    const bool plain = plain_nodes_.contains(node.outputs[0]);
    switch (source.kind) {
      case AssembledDispatch::Source::Kind::kInput:
        return InputResource(node.inputs[size_t(source.index)], plain, source.piece);
      case AssembledDispatch::Source::Kind::kOutput: return ValueResource(node.outputs[size_t(source.index)]);
      case AssembledDispatch::Source::Kind::kPlan: return PlanTensorResource(n, source.index, source.piece, made);
      case AssembledDispatch::Source::Kind::kStepOperand: {
        const FusedStep& step = node.epilogue[size_t(source.index)];
        int operand = 0;
        for (size_t i = 0; i < step.inputs.size(); ++i) {
          if (int(i) == step.chained || step.inputs[i] == kNoValue) continue;
          if (operand++ == source.operand) return InputResource(step.inputs[i], plain, Piece::kWhole);
        }
        break;
      }
    }
    return Error{Code::kInternal,
                 StrCat("A tensor of ", NodeLabel(plan_.graph, n), " is bound to an operand that does not exist.")};
  }

  // States are on the device whoever uses them there: other plans may.
  Status MakeStates() {
    for (const GraphState& state : plan_.graph.states) {
      PlanState planned{state.name, state.before, state.after, plan_.graph.value(state.before).type, -1};
      if (device_ && planned.type.shape.element_count() > 0) {
        if (const std::string& reason = too_large_[size_t(state.before)]; !reason.empty()) {
          return Error{Code::kUnsupported, StrCat("The state \"", state.name, "\" has no place on the device: ", reason)};
        }
        PlanResource resource;
        resource.kind = PlanResource::Kind::kState;
        resource.name = state.name;
        resource.value = state.before;
        resource.placement = placements_[size_t(state.before)];
        resource.size_bytes = uint64_t(resource.placement.storage_bytes());
        planned.resource = int(plan_.resources.size());
        plan_.resources.push_back(std::move(resource));
      }
      plan_.states.push_back(std::move(planned));
    }
    for (size_t v = 0; v < state_of_.size(); ++v) {
      if (state_of_[v] >= 0) plan_.value_resource[v] = plan_.states[size_t(state_of_[v])].resource;
    }
    return {};
  }

  Status MakeDispatches() {
    plan_.value_resource.assign(plan_.graph.values.size(), -1);
    FindStates();
    RETURN_IF_ERROR(MakeStates());
    std::map<std::string, int> kernels;  // by text and entry point
    for (PlanStep& step : plan_.steps) {
      if (!step.on_gpu) {
        ++position_;
        continue;
      }
      step.first_dispatch = int(plan_.dispatches.size());
      for (int n : step.nodes)
        RETURN_IF_ERROR_CONTEXT(MakeDispatchesOf(n, kernels), StrCat("in node ", NodeLabel(plan_.graph, n)));
      step.last_dispatch = int(plan_.dispatches.size());
    }
    return {};
  }

  Status MakeDispatchesOf(int n, std::map<std::string, int>& kernels) {
    NodePlan& planned = nodes_[size_t(n)];
    std::vector<int> made(planned.plan.tensors.size(), -1);
    for (size_t d = 0; d < planned.dispatches.size(); ++d) {
      const KernelDispatch& source = planned.plan.dispatches[d];
      CompiledDispatch& compiled = planned.dispatches[d];
      if (source.workgroups[0] == 0 || source.workgroups[1] == 0 || source.workgroups[2] == 0) continue;
      PlanDispatch dispatch;
      dispatch.node = n;
      dispatch.kernel_text = source.kernel_text;
      dispatch.kernel_name = source.kernel_name;
      std::set<int> read, written;
      for (const BindingInfo& binding : compiled.text.bindings) {
        PlanDispatch::Binding bound;
        bound.part = binding.part;
        if (binding.kind == BindingInfo::Kind::kScratch) {
          bound.resource = int(plan_.resources.size());
          PlanResource scratch;
          scratch.kind = PlanResource::Kind::kKernelScratch;
          scratch.name = StrCat(source.kernel_name, "/", binding.name);
          scratch.size_bytes = binding.scratch_bytes;
          plan_.resources.push_back(std::move(scratch));
        } else if (binding.kind != BindingInfo::Kind::kParams) {
          auto it = compiled.assembled.sources.find(binding.tensor);
          if (it == compiled.assembled.sources.end()) {
            return Error{Code::kInternal, StrCat("Kernel ", source.kernel_name, " binds a tensor \"", binding.tensor,
                                                 "\" that nothing stands behind.")};
          }
          ASSIGN_OR_RETURN(bound.resource, SourceResource(n, it->second, made));
          (binding.access == shader::Access::kRead ? read : written).insert(bound.resource);
        }
        dispatch.bindings.push_back(bound);
      }
      for (int r : read) Touch(r, dispatch.info.read_bytes);
      for (int r : written) Touch(r, dispatch.info.write_bytes);
      // The rule of device.h: no buffer is read and written by one dispatch.
      for (int w : written) {
        for (int r : read) {
          if (r == w) {
            return Error{Code::kInternal, StrCat("Kernel ", source.kernel_name, " reads and writes tensor ",
                                                 plan_.resources[size_t(r)].name, " through two bindings.")};
          }
          conflicts_.insert({std::min(r, w), std::max(r, w)});
        }
      }
      auto [it, is_new] = kernels.try_emplace(compiled.text.entry_point + "\n" + compiled.text.text, int(plan_.kernels.size()));
      dispatch.kernel = it->second;
      dispatch.params_offset_bytes = uint32_t(plan_.params.size());
      plan_.params.insert(plan_.params.end(), compiled.params.begin(), compiled.params.end());
      dispatch.info.node = n;
      dispatch.info.label = NodeLabel(plan_.graph, n);
      dispatch.info.kernel = source.kernel_name;
      dispatch.info.variant = planned.variants[planned.variant]->name;
      dispatch.info.flops = source.flops;
      for (int axis = 0; axis < 3; ++axis) {
        dispatch.info.workgroups[axis] = source.workgroups[axis];
        dispatch.info.workgroup_size[axis] = compiled.text.workgroup_size[axis];
      }
      dispatch.specialization = std::move(compiled.assembled.specialization);
      if (is_new) plan_.kernels.push_back(std::move(compiled.text));
      plan_.dispatches.push_back(std::move(dispatch));
      ++position_;
    }
    return {};
  }

  // The resource is used by the dispatch at this position.
  void Touch(int r, uint64_t& bytes) {
    PlanResource& resource = plan_.resources[size_t(r)];
    bytes += resource.size_bytes;
    if (resource.kind == PlanResource::Kind::kConstant) return;
    resource.first = std::min(resource.first, position_);
    resource.last = std::max(resource.last, position_);
  }

  // ---- Memory --------------------------------------------------------------------------------------------------------------

  Status PlaceResources() {
    // What crosses a border lives while the CPU works too.
    int position = 0;
    for (const PlanStep& step : plan_.steps) {
      if (step.on_gpu) {
        position += step.last_dispatch - step.first_dispatch;
        continue;
      }
      for (int n : step.nodes) {
        for (ValueId id : ValuesOf(plan_.graph.nodes[size_t(n)])) {
          const int r = plan_.value_resource[size_t(id)];
          if (r < 0) continue;
          auto& resource = plan_.resources[size_t(r)];
          resource.first = std::min(resource.first, position);
          resource.last = std::max(resource.last, position);
        }
      }
      ++position;
    }
    const uint64_t max_buffer = device_ && device_->max_buffer_bytes > 0 ? device_->max_buffer_bytes : uint64_t(1) << 40;

    std::vector<int> activations, inputs, outputs, constants, alone;
    for (size_t r = 0; r < plan_.resources.size(); ++r) {
      PlanResource& resource = plan_.resources[r];
      if (IsTextureResource(resource)) continue;
      switch (resource.kind) {
        case PlanResource::Kind::kActivation:
        case PlanResource::Kind::kScratch: activations.push_back(int(r)); break;
        case PlanResource::Kind::kInput: inputs.push_back(int(r)); break;
        case PlanResource::Kind::kOutput: outputs.push_back(int(r)); break;
        case PlanResource::Kind::kConstant: constants.push_back(int(r)); break;
        case PlanResource::Kind::kState:
        case PlanResource::Kind::kKernelScratch: alone.push_back(int(r)); break;
      }
    }
    ASSIGN_OR_RETURN(plan_.activation_plan, PlaceGroup(activations, max_buffer, options_.reuse_memory && !options_.keep_values,
                                                       PlanResource::Kind::kActivation, &plan_.activation_items));
    ASSIGN_OR_RETURN(MemoryPlan input_plan, PlaceGroup(inputs, max_buffer, false, PlanResource::Kind::kInput, nullptr));
    if (input_plan.buffer_bytes.size() == 1) plan_.input_buffer = plan_.resources[size_t(inputs[0])].buffer;
    RETURN_IF_ERROR(PlaceGroup(outputs, max_buffer, false, PlanResource::Kind::kOutput, nullptr));
    // Weights: one after another in as few buffers as the device allows; 256 MiB are granted everywhere.
    RETURN_IF_ERROR(PlaceInRow(constants, max_buffer));
    for (int r : alone) {
      PlanResource& resource = plan_.resources[size_t(r)];
      resource.buffer = int(plan_.buffers.size());
      plan_.buffers.push_back({resource.size_bytes, resource.name, resource.kind});
      (resource.kind == PlanResource::Kind::kState ? plan_.memory.states_bytes : plan_.memory.other_bytes) +=
          resource.size_bytes;
    }
    PlaceTextures();

    plan_.memory.activations_bytes += uint64_t(plan_.activation_plan.total_bytes);
    plan_.memory.activations_without_reuse_bytes += uint64_t(plan_.activation_plan.without_reuse_bytes);
    plan_.memory.activations_lower_bound_bytes += uint64_t(plan_.activation_plan.lower_bound_bytes);
    plan_.memory.strategy = plan_.activation_plan.strategy;
    for (const auto& resource : plan_.resources) {
      if (resource.kind == PlanResource::Kind::kInput || resource.kind == PlanResource::Kind::kOutput) {
        plan_.memory.io_bytes += (resource.size_bytes + kOffsetAlignment - 1) / kOffsetAlignment * kOffsetAlignment;
      }
    }
    plan_.memory.total_bytes = plan_.memory.weights_bytes + plan_.memory.activations_bytes + plan_.memory.io_bytes +
                               plan_.memory.states_bytes + plan_.memory.other_bytes;
    return {};
  }

  // PoCL makes no image of a part of a buffer.
  bool NeedsOwnStart(const PlanResource& resource) const {
    return target().image_buffer && resource.placement.storage == Storage::kImageBuffer;
  }

  static bool IsTextureResource(const PlanResource& resource) {
    if (resource.kind == PlanResource::Kind::kKernelScratch) return false;
    const Storage storage = resource.placement.storage;
    return storage == Storage::kTexture2D || storage == Storage::kTexture2DArray || storage == Storage::kTexture3D;
  }

  Result<MemoryPlan> PlaceGroup(const std::vector<int>& group, uint64_t max_buffer, bool reuse, PlanResource::Kind kind,
                                std::vector<MemoryItem>* items_out) {
    std::map<int, int> index;  // resource to item
    std::vector<MemoryItem> items;
    for (int r : group) {
      const PlanResource& resource = plan_.resources[size_t(r)];
      index[r] = int(items.size());
      items.push_back({resource.name, int64_t(resource.size_bytes), resource.first, std::max(resource.first, resource.last),
                       NeedsOwnStart(resource)});
    }
    MemoryConflicts conflicts;
    for (auto [a, b] : conflicts_) {
      if (index.contains(a) && index.contains(b)) conflicts.push_back({index[a], index[b]});
    }
    ASSIGN_OR_RETURN(MemoryPlan plan, PlanMemory(items, {.max_buffer_bytes = int64_t(max_buffer), .reuse = reuse}, conflicts));
    const int first_buffer = int(plan_.buffers.size());
    const char* label = kind == PlanResource::Kind::kInput    ? "inputs"
                        : kind == PlanResource::Kind::kOutput ? "outputs"
                                                              : "activations";
    for (size_t b = 0; b < plan.buffer_bytes.size(); ++b) {
      plan_.buffers.push_back({uint64_t(plan.buffer_bytes[b]), StrCat(label, " ", b), kind});
    }
    for (size_t i = 0; i < group.size(); ++i) {
      PlanResource& resource = plan_.resources[size_t(group[i])];
      resource.buffer = first_buffer + plan.slots[i].buffer;
      resource.offset_bytes = uint64_t(plan.slots[i].offset_bytes);
    }
    if (items_out) *items_out = std::move(items);
    return plan;
  }

  Status PlaceInRow(const std::vector<int>& group, uint64_t max_buffer) {
    constexpr PlanResource::Kind kKind = PlanResource::Kind::kConstant;
    int buffer = -1;
    int number = 0;
    for (int r : group) {
      PlanResource& resource = plan_.resources[size_t(r)];
      const uint64_t size = (resource.size_bytes + kOffsetAlignment - 1) / kOffsetAlignment * kOffsetAlignment;
      if (size > max_buffer) {
        return Error{Code::kUnsupported, StrCat("Weights ", resource.name, " need ", size,
                                                " bytes, more than the greatest buffer of the device (", max_buffer, ").")};
      }
      if (NeedsOwnStart(resource)) {
        resource.buffer = int(plan_.buffers.size());
        plan_.buffers.push_back({size, StrCat("weights ", number++), kKind});
        plan_.memory.weights_bytes += size;
        continue;
      }
      if (buffer < 0 || plan_.buffers[size_t(buffer)].size_bytes + size > max_buffer) {
        buffer = int(plan_.buffers.size());
        plan_.buffers.push_back({0, StrCat("weights ", number++), kKind});
      }
      resource.buffer = buffer;
      resource.offset_bytes = plan_.buffers[size_t(buffer)].size_bytes;
      plan_.buffers[size_t(buffer)].size_bytes += size;
      plan_.memory.weights_bytes += size;
    }
    return {};
  }

  // Textures of equal format and extent are shared by tensors that are not alive together.
  void PlaceTextures() {
    std::vector<int> order;
    for (size_t r = 0; r < plan_.resources.size(); ++r) {
      if (IsTextureResource(plan_.resources[r])) order.push_back(int(r));
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return plan_.resources[size_t(a)].first < plan_.resources[size_t(b)].first; });
    std::vector<int> busy_until;
    for (int r : order) {
      PlanResource& resource = plan_.resources[size_t(r)];
      const TextureSpec spec{resource.placement.storage, resource.placement.dtype, resource.placement.texture_extent};
      const bool pooled = resource.kind == PlanResource::Kind::kActivation || resource.kind == PlanResource::Kind::kScratch;
      if (pooled) plan_.memory.activations_without_reuse_bytes += resource.size_bytes;
      if (pooled && options_.reuse_memory && !options_.keep_values) {
        for (size_t t = 0; t < plan_.textures.size() && resource.texture < 0; ++t) {
          const TextureSpec& other = plan_.textures[t].spec;
          if (busy_until[t] < resource.first && other.storage == spec.storage && other.dtype == spec.dtype &&
              other.extent == spec.extent) {
            resource.texture = int(t);
          }
        }
      }
      if (resource.texture < 0) {
        resource.texture = int(plan_.textures.size());
        plan_.textures.push_back({spec, resource.name});
        busy_until.push_back(0);
        if (pooled) plan_.memory.activations_bytes += resource.size_bytes;
        if (resource.kind == PlanResource::Kind::kConstant) plan_.memory.weights_bytes += resource.size_bytes;
      }
      busy_until[size_t(resource.texture)] = pooled ? resource.last : INT32_MAX;
    }
  }

  // What each CPU step needs from the device and leaves there.
  void MakeBorders() {
    std::vector<bool> on_device(plan_.graph.values.size(), false), on_host(plan_.graph.values.size(), false);
    for (ValueId id : plan_.graph.inputs) {
      on_device[size_t(id)] = true;
      on_host[size_t(id)] = state_of_[size_t(id)] < 0 || !device_;
    }
    for (PlanStep& step : plan_.steps) {
      if (step.on_gpu) {
        for (int n : step.nodes) {
          for (ValueId id : plan_.graph.nodes[size_t(n)].outputs) {
            if (id != kNoValue) on_device[size_t(id)] = true, on_host[size_t(id)] = false;
          }
        }
        continue;
      }
      std::set<ValueId> downloads, written;
      for (int n : step.nodes) {
        const Node& node = plan_.graph.nodes[size_t(n)];
        auto need = [&](ValueId id) {
          if (id == kNoValue || plan_.graph.value(id).constant || on_host[size_t(id)] || written.contains(id)) return;
          downloads.insert(id);
        };
        for (ValueId id : node.inputs) need(id);
        for (const auto& fused : node.epilogue) {
          for (ValueId id : fused.inputs) need(id);
        }
        for (ValueId id : node.outputs) {
          if (id != kNoValue) written.insert(id);
        }
        // What is updated further has given its memory away.
        for (const auto& update : node.op->updates) written.erase(node.inputs[size_t(update.input)]);
      }
      for (ValueId id : downloads) {
        if (plan_.value_resource[size_t(id)] < 0) continue;  // an empty tensor
        step.downloads.push_back({plan_.value_resource[size_t(id)], id});
        on_host[size_t(id)] = true;
      }
      for (ValueId id : written) {
        on_host[size_t(id)] = true;
        if (plan_.value_resource[size_t(id)] < 0) continue;  // only the CPU reads it
        step.uploads.push_back({plan_.value_resource[size_t(id)], id});
        on_device[size_t(id)] = true;
      }
    }
  }

  void CutSubmissions() {
    if (!device_) return;
    const double most = defaults().max_flops_per_submission;
    for (PlanStep& step : plan_.steps) {
      if (!step.on_gpu) continue;
      double flops = 0;
      for (int d = step.first_dispatch; d < step.last_dispatch; ++d) {
        const double more = plan_.dispatches[size_t(d)].info.flops;
        if (d == step.first_dispatch || (flops > 0 && flops + more > most)) {
          step.submissions.push_back(d);
          flops = 0;
        }
        flops += more;
      }
    }
  }

  void MakeReports() {
    PlacementReport& report = plan_.placement;
    for (size_t n = 0; n < plan_.graph.nodes.size(); ++n) {
      const Node& node = plan_.graph.nodes[n];
      NodePlacement placed;
      placed.node = int(n);
      placed.name = node.name;
      placed.op = node.op->name;
      placed.label = NodeLabel(plan_.graph, int(n));
      placed.on_gpu = sides_[n].on_gpu;
      placed.reason = sides_[n].reason;
      if (placed.on_gpu && !nodes_[n].variants.empty()) placed.variant = nodes_[n].variants[nodes_[n].variant]->name;
      (placed.on_gpu ? report.nodes_on_gpu : report.nodes_on_cpu)++;
      report.nodes.push_back(std::move(placed));
    }
    for (const auto& dispatch : plan_.dispatches) report.nodes[size_t(dispatch.node)].dispatches++;
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      if (s > 0) ++report.handovers;
      for (auto [r, value] : plan_.steps[s].downloads) report.handover_bytes += plan_.resources[size_t(r)].size_bytes;
      for (auto [r, value] : plan_.steps[s].uploads) report.handover_bytes += plan_.resources[size_t(r)].size_bytes;
    }
    if (device_ && options_.select.precision == Precision::kF16 && !target().f16) {
      report.notes.push_back("f16 is asked for and the device does not have it: f32 is used");
    }
  }

  const DeviceInfo* device_;
  const PlanOptions& options_;
  ThreadPool& pool_;
  LaunchPlan plan_;
  std::vector<NodeSide> sides_;
  std::vector<NodePlan> nodes_;
  std::vector<Placement> placements_;
  std::vector<TensorRole> roles_;
  std::vector<int> state_of_;           // by value: the state in whose memory it lies, -1: none
  std::vector<std::string> too_large_;  // by value: why it has no placement
  // What adjusting has decided; kept when planning starts again. Nodes are known by their first output.
  std::vector<bool> plain_values_;
  std::set<ValueId> plain_nodes_, widened_nodes_;
  std::map<ValueId, std::string> cpu_nodes_;
  std::map<const char*, std::unique_ptr<shader::Module>> modules_;  // by address of the text
  std::map<const HostTensor*, std::shared_ptr<const HostTensor>> canonical_;
  std::map<uint64_t, std::vector<std::shared_ptr<const HostTensor>>> by_sample_;
  std::map<const HostTensor*, std::vector<int>> constants_;
  std::set<std::pair<int, int>> conflicts_;
  int position_ = 0;
};

}  // namespace

Result<LaunchPlan> MakePlan(Graph graph, const DeviceInfo* device, const PlanOptions& options, ThreadPool& pool) {
  return Planner(std::move(graph), device, options, pool).Make();
}

std::string PlanToText(const LaunchPlan& plan) {
  std::string out;
  auto where = [&](const PlanResource& resource) {
    if (resource.texture >= 0) return StrCat("texture ", resource.texture);
    return StrCat("buffer ", resource.buffer, " + ", resource.offset_bytes);
  };
  auto kind = [](const PlanResource& resource) {
    switch (resource.kind) {
      case PlanResource::Kind::kActivation: return "activation";
      case PlanResource::Kind::kScratch: return "scratch";
      case PlanResource::Kind::kConstant: return "constant";
      case PlanResource::Kind::kInput: return "input";
      case PlanResource::Kind::kOutput: return "output";
      case PlanResource::Kind::kState: return "state";
      case PlanResource::Kind::kKernelScratch: return "kernel scratch";
    }
    return "?";
  };
  out += StrCat("tensors (", plan.resources.size(), ")\n");
  for (size_t r = 0; r < plan.resources.size(); ++r) {
    const auto& resource = plan.resources[r];
    out += StrCat("  %", r, "  ", kind(resource), "  ");
    if (resource.kind != PlanResource::Kind::kKernelScratch) {
      const auto& placement = resource.placement;
      out += StrCat(DTypeName(placement.dtype), placement.shape.ToString(), "  ", LayoutName(placement.layout), " ",
                    StorageName(placement.storage), "  ");
      if (placement.part_count() > 1) out += StrCat(placement.part_count(), " parts  ");
    }
    out += StrCat(resource.size_bytes, " bytes  ", where(resource), "  ", resource.name, "\n");
  }
  out += StrCat("steps (", plan.steps.size(), ")\n");
  for (const auto& step : plan.steps) {
    if (!step.on_gpu) {
      out += "  cpu:";
      for (int n : step.nodes) out += StrCat(" ", NodeLabel(plan.graph, n));
      out += StrCat("  (", step.downloads.size(), " tensors from the device, ", step.uploads.size(), " to it)\n");
      continue;
    }
    out += StrCat("  gpu: dispatches ", step.first_dispatch, " to ", step.last_dispatch - 1, " in ", step.submissions.size(),
                  " submissions\n");
    for (int d = step.first_dispatch; d < step.last_dispatch; ++d) {
      const auto& dispatch = plan.dispatches[size_t(d)];
      const auto& info = dispatch.info;
      out += StrCat("    ", d, "  ", info.label, "  ", info.kernel, " [", info.variant, "]  kernel ", dispatch.kernel,
                    "  workgroups ", info.workgroups[0], "x", info.workgroups[1], "x", info.workgroups[2], " of ",
                    info.workgroup_size[0], "x", info.workgroup_size[1], "x", info.workgroup_size[2], " ");
      for (const auto& binding : dispatch.bindings) {
        if (binding.resource >= 0) out += StrCat(" %", binding.resource);
      }
      out += "\n";
    }
  }
  return out;
}

}  // namespace leeway
