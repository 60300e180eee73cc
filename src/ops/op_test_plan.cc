#include "ops/op_test_plan.h"

#include <cmath>
#include <cstring>
#include <random>

#include "base/hash.h"
#include "base/strings.h"
#include "tensor/address.h"
#include "tensor/block_pack.h"

namespace leeway::op_test {

namespace {

constexpr const char* kAddText = "fn apply(v : V, other : V) -> V { return v + other; }";
constexpr const char* kReluText = "fn apply(v : V) -> V { return max(v, V(0.0)); }";

// Calls visit(row-major index, coordinates) for every element.
template <class Visit>
void ForEachElement(const Shape& shape, Visit&& visit) {
  const int64_t count = shape.element_count();
  std::vector<int64_t> coords(size_t(shape.rank()));
  for (int64_t i = 0; i < count; ++i) {
    visit(i, coords);
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      if (++coords[size_t(axis)] < shape[axis]) break;
      coords[size_t(axis)] = 0;
    }
  }
}

// Row-major index in `inner` of the coordinates that `map` gives; -1 where there is no element.
int64_t MappedIndex(const CoordMap& map, const Shape& inner, std::span<const int64_t> coords, int64_t identity) {
  if (map.inside && map.inside->Evaluate(coords) == 0) return -1;
  if (map.is_identity()) return inner.rank() == 0 ? 0 : identity;
  int64_t index = 0;
  for (int axis = 0; axis < inner.rank(); ++axis) {
    const int64_t at = map.coords[size_t(axis)].Evaluate(coords);
    CHECK(at >= 0 && at < inner[axis]);
    index = index * inner[axis] + at;
  }
  return index;
}

// The type in device memory: activations are 32 bits wide (16 where halves are wanted), constants as they are.
DType StoredDType(DType dtype, bool constant, bool f16) {
  const DType stored = StorageDType(dtype);
  if (IsFloat(stored)) return f16 ? DType::kF16 : DType::kF32;
  if (constant) return stored;
  if (stored == DType::kI8) return DType::kI32;
  if (stored == DType::kU8) return DType::kU32;
  return stored;
}

// What the accessors of all dispatches of a plan allow for one tensor.
struct Uses {
  bool stored = false, stored_by_element = false, read_write = false;
};

void NoteUses(const shader::Expr& e, const std::string& tensor, Uses& uses) {
  if (e.kind == shader::ExprKind::kTensorCall && e.name == tensor) {
    if (e.method == "store") uses.stored_by_element = true;
    if (e.method == "store" || e.method == "store4") uses.stored = true;
  }
  for (const auto& arg : e.args) NoteUses(*arg, tensor, uses);
}
void NoteUses(const shader::Stmt& s, const std::string& tensor, Uses& uses) {
  for (const shader::ExprPtr* e : {&s.target, &s.value}) {
    if (*e) NoteUses(**e, tensor, uses);
  }
  for (const shader::StmtPtr* child : {&s.init, &s.update}) {
    if (*child) NoteUses(**child, tensor, uses);
  }
  for (const auto& child : s.body) NoteUses(*child, tensor, uses);
  for (const auto& child : s.else_body) NoteUses(*child, tensor, uses);
  for (const auto& c : s.cases) {
    for (const auto& child : c.body) NoteUses(*child, tensor, uses);
  }
}

Result<Uses> UsesOf(const OpPlan& plan, TensorArgument::Kind kind, int index) {
  Uses uses;
  for (const KernelDispatch& dispatch : plan.dispatches) {
    for (const TensorArgument& argument : dispatch.tensors) {
      if (argument.kind != kind || argument.index != index) continue;
      ASSIGN_OR_RETURN(shader::Module module, shader::Parse(dispatch.kernel_text, dispatch.kernel_name));
      for (const auto& decl : module.tensors) {
        if (decl.name == argument.name && decl.access == shader::Access::kReadWrite) uses.read_write = true;
      }
      for (const auto& f : module.functions) {
        for (const auto& s : f.body) NoteUses(*s, argument.name, uses);
      }
    }
  }
  return uses;
}

bool IsTexelStorage(Storage storage) { return storage != Storage::kBuffer; }

// The choice for one tensor.
struct Choice {
  Layout layout;
  Storage storage;
  bool in_parts;
};
Choice ChooseFor(const TestConfig& config, DType dtype, const Uses& uses, std::mt19937_64& random) {
  Choice choice{config.layout, config.storage, config.in_parts};
  if (config.mixed) {
    choice.layout = Layout(random() % 3);
    choice.storage = Storage(random() % 5);
    choice.in_parts = random() % 4 == 0;
  }
  const bool texel_type = dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kI32 || dtype == DType::kU32;
  const bool buffer_only =
      uses.read_write || uses.stored_by_element || !texel_type || (uses.stored && choice.storage == Storage::kImageBuffer);
  if (buffer_only) choice.storage = Storage::kBuffer;
  if (IsTexelStorage(choice.storage) && choice.layout == Layout::kLinear) choice.layout = Layout::kPadded4;
  if (choice.storage != Storage::kBuffer) choice.in_parts = false;
  return choice;
}

Result<Placement> PlaceBy(const Choice& choice, const Shape& shape, DType dtype, const shader::Target& target) {
  ASSIGN_OR_RETURN(Placement placement, PlaceTensor(shape, dtype, choice.layout, choice.storage, target.storage));
  // Smaller parts than a device would ask for: the tensors of tests are small.
  const int64_t half = (placement.storage_elements() / 2 + 3) / 4 * 4;
  if (choice.in_parts && half > 0 && half < placement.storage_elements()) placement.elements_per_part = half;
  return placement;
}

// Elements of the storage that belong to no element of the tensor, and bytes beyond.
void FillPadding(const Placement& placement, std::vector<std::byte>& bytes) {
  HostTensor ones(placement.dtype, placement.shape);
  for (int64_t i = 0; i < ones.element_count(); ++i) ones.Set(i, 1);
  const std::vector<std::byte> mask = PackForStorage(ones, placement);
  const size_t size = DTypeBits(placement.dtype) / 8;
  for (size_t at = 0; at + size <= bytes.size() && at + size <= mask.size(); at += size) {
    bool used = false;
    for (size_t k = 0; k < size; ++k) used = used || mask[at + k] != std::byte(0);
    if (!used) std::fill_n(bytes.begin() + long(at), size, std::byte(0xff));  // NaN, -1, 255
  }
}

// The storage of a tensor of which the node sees `host` through placed.view. Elements outside the view are garbage.
std::vector<std::byte> PackViewed(const HostTensor& host, const PlacedValue& placed) {
  HostTensor whole = host;
  if (!placed.view.is_identity()) {
    whole = HostTensor(host.dtype(), placed.placement.shape);
    for (int64_t i = 0; i < whole.element_count(); ++i) whole.Set(i, 1e4);
    ForEachElement(host.shape(), [&](int64_t i, const std::vector<int64_t>& coords) {
      whole.Set(MappedIndex(placed.view, whole.shape(), coords, i), host.Get(i));
    });
  }
  std::vector<std::byte> bytes = PackForStorage(whole, placed.placement);
  FillPadding(placed.placement, bytes);
  return bytes;
}

HostTensor UnpackViewed(const TestTensor& tensor) {
  const HostTensor whole = UnpackFromStorage(tensor.bytes, tensor.placed.placement, tensor.host.dtype());
  if (tensor.placed.view.is_identity()) return whole;
  HostTensor host(tensor.host.dtype(), tensor.host.shape());
  ForEachElement(host.shape(), [&](int64_t i, const std::vector<int64_t>& coords) {
    host.Set(i, whole.Get(MappedIndex(tensor.placed.view, whole.shape(), coords, i)));
  });
  return host;
}

std::vector<PlacedValue> PlacedOf(const std::vector<TestTensor>& tensors) {
  std::vector<PlacedValue> placed;
  for (const TestTensor& tensor : tensors) placed.push_back(tensor.placed);
  return placed;
}

// Axes in the opposite order.
PlacedValue Transposed(const Shape& shape) {
  PlacedValue placed;
  placed.shape = shape;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    placed.placement.shape.push_back(shape[axis]);
    placed.view.coords.push_back(IndexExpr::Axis(axis));
  }
  return placed;
}

// In the middle of a larger tensor along axis 0.
PlacedValue Embedded(const Shape& shape) {
  PlacedValue placed;
  placed.shape = shape;
  placed.placement.shape = shape;
  placed.placement.shape[0] += 2;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    placed.view.coords.push_back(axis == 0 ? IndexExpr::Axis(0) + IndexExpr::Const(1) : IndexExpr::Axis(axis));
  }
  return placed;
}

// Block-quantized constants stay so: quants and factors, the latter as halves where halves are wanted.
Result<TestTensor> MakeQuantized(HostTensor host, const TestConfig& config, const shader::Target& target) {
  TestTensor tensor;
  const BlockFormat format = BlockFormatOf(host.dtype(), config.f16);
  tensor.placed.shape = host.shape();
  ASSIGN_OR_RETURN(tensor.placed.placement, PlaceQuantized(host.shape(), format, target.storage));
  Placement& placement = tensor.placed.placement;
  if (config.in_parts) {
    const int64_t rows = (host.shape()[0] + 1) / 2;
    if (rows < host.shape()[0]) placement.elements_per_part = rows * QuantsOf(placement).shape[1];
  }
  const size_t elements = size_t(host.element_count());
  tensor.bytes.resize(size_t(QuantsOf(placement).storage_bytes()));
  tensor.factor_bytes.resize(size_t(FactorsOf(placement).storage_bytes()), std::byte(0xff));
  PackBlocks(host.dtype(), host.bytes(), format, std::span(tensor.bytes).first(QuantsBytes(format, elements)),
             std::span(tensor.factor_bytes).first(FactorsBytes(format, elements)));
  tensor.host = std::move(host);
  return tensor;
}

Result<TestTensor> MakeTensor(HostTensor host, PlacedValue placed, bool constant, const TestConfig& config, const Uses& uses,
                              const shader::Target& target, std::mt19937_64& random) {
  TestTensor tensor;
  if (IsBlockQuantized(host.dtype())) return MakeQuantized(std::move(host), config, target);
  const DType dtype = StoredDType(host.dtype(), constant, config.f16);
  const Choice choice = ChooseFor(config, dtype, uses, random);
  ASSIGN_OR_RETURN(placed.placement, PlaceBy(choice, placed.placement.shape, dtype, target));
  tensor.placed = std::move(placed);
  tensor.host = std::move(host);
  tensor.bytes = PackViewed(tensor.host, tensor.placed);
  return tensor;
}

// Rows of quantized constants, one below the other.
HostTensor Stacked(const PreparedRow& row, const PlanTensor& made) {
  const HostTensor& first = row.inputs[size_t(made.constant_input)];
  HostTensor whole(first.dtype(), made.type.shape);
  const std::span<std::byte> bytes = whole.mutable_bytes();
  size_t at = first.bytes().size();
  std::copy(first.bytes().begin(), first.bytes().end(), bytes.begin());
  for (int input : made.stacked_inputs) {
    const std::span<const std::byte> more = row.inputs[size_t(input)].bytes();
    std::copy(more.begin(), more.end(), bytes.begin() + long(at));
    at += more.size();
  }
  return whole;
}

PlacedValue AsItIs(const Shape& shape) {
  PlacedValue placed;
  placed.shape = shape;
  placed.placement.shape = shape;
  return placed;
}

}  // namespace

std::vector<TestConfig> ConfigsFor(const PreparedRow& row) {
  double work = 0;
  for (const TensorType& type : row.output_types) work += double(type.shape.element_count()) * row.row->terms;
  for (const HostTensor& input : row.inputs) work += double(input.element_count());
  using enum Layout;
  std::vector<TestConfig> configs = {
      {.name = "padded4", .epilogue = true},
      {.name = "linear", .layout = kLinear},
      {.name = "sliced4 f16", .layout = kSliced4, .f16 = true, .epilogue = true},
  };
  if (work > 1e6) return {configs[0]};
  if (work > 3e4) return configs;
  const TestConfig more[] = {
      {.name = "linear, epilogue", .layout = kLinear, .epilogue = true},
      {.name = "linear f16", .layout = kLinear, .f16 = true},
      {.name = "sliced4", .layout = kSliced4},
      {.name = "padded4 f16", .f16 = true},
      {.name = "padded4 in parts", .in_parts = true},
      {.name = "linear in parts", .layout = kLinear, .in_parts = true, .epilogue = true},
      {.name = "sliced4 f16 in parts", .layout = kSliced4, .f16 = true, .in_parts = true},
      {.name = "views", .views = true, .epilogue = true},
      {.name = "views sliced4", .layout = kSliced4, .views = true},
      {.name = "image buffer", .storage = Storage::kImageBuffer, .epilogue = true},
      {.name = "texture 2d sliced4 f16", .layout = kSliced4, .storage = Storage::kTexture2D, .f16 = true, .epilogue = true},
      {.name = "texture 2d padded4", .storage = Storage::kTexture2D},
      {.name = "texture 2d array sliced4", .layout = kSliced4, .storage = Storage::kTexture2DArray},
      {.name = "texture 3d sliced4 f16", .layout = kSliced4, .storage = Storage::kTexture3D, .f16 = true},
      {.name = "mixed", .mixed = true, .epilogue = true},
  };
  configs.insert(configs.end(), std::begin(more), std::end(more));
  return configs;
}

Placement TestPiece::placement() const {
  const Placement& whole = tensor->placed.placement;
  if (!whole.format) return whole;
  return is_factors ? FactorsOf(whole) : QuantsOf(whole);
}

TestPiece TestPlan::Find(const AssembledDispatch::Source& source) {
  using Kind = AssembledDispatch::Source::Kind;
  const bool is_factors = source.piece == AssembledDispatch::Source::Piece::kFactors;
  switch (source.kind) {
    case Kind::kInput: return {&inputs[size_t(source.index)], is_factors};
    case Kind::kOutput: return {&outputs[size_t(source.index)], is_factors};
    case Kind::kPlan: return {&plan_tensors[size_t(source.index)], is_factors};
    case Kind::kStepOperand: return {&step_operands[size_t(source.index)][size_t(source.operand)], is_factors};
  }
  return {};
}

void TestPlan::ClearOutputs() {
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::fill(outputs[i].bytes.begin(), outputs[i].bytes.end(), std::byte(0xff));
    if (!updated_bytes[i].empty()) outputs[i].bytes = updated_bytes[i];
  }
  for (size_t i = 0; i < plan_tensors.size(); ++i) {
    if (plan.tensors[i].constant_input >= 0) continue;
    std::fill(plan_tensors[i].bytes.begin(), plan_tensors[i].bytes.end(), std::byte(0xff));
  }
}

std::string TestPlan::CheckOutputs() const {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string difference = Compare(UnpackViewed(outputs[i]), expected[i], tolerances[i]);
    if (!difference.empty()) return StrCat("Output ", i, ": ", difference);
    // Nothing may be written outside the view.
    const TestTensor& output = outputs[i];
    if (output.placed.view.is_identity()) continue;
    HostTensor inside(DType::kU32, output.placed.placement.shape);
    ForEachElement(output.placed.shape, [&](int64_t k, const std::vector<int64_t>& coords) {
      inside.Set(MappedIndex(output.placed.view, inside.shape(), coords, k), 1);
    });
    Placement as_bits = output.placed.placement;
    as_bits.dtype = as_bits.dtype == DType::kF16 ? DType::kU16 : DType::kU32;
    const HostTensor bits = UnpackFromStorage(output.bytes, as_bits, as_bits.dtype);
    for (int64_t k = 0; k < inside.element_count(); ++k) {
      const double untouched = as_bits.dtype == DType::kU16 ? 65535.0 : 4294967295.0;
      if (inside.Get(k) == 0 && bits.Get(k) != untouched)
        return StrCat("Output ", i, ": element ", k, " outside its view is written");
    }
  }
  return "";
}

Result<std::unique_ptr<TestPlan>> PlanRow(const PreparedRow& row, const KernelVariant& variant, const TestConfig& config,
                                          const shader::Target& target) {
  auto test = std::make_unique<TestPlan>();
  test->label = StrCat(row.op->name, "/", row.row->name, ", variant ", variant.name, ", ", config.name);
  const OpCall call = row.call();
  const KernelRequest request{call, target, config.f16, row.op};
  ASSIGN_OR_RETURN_CONTEXT(test->plan, variant.plan(request), "while planning");
  std::mt19937_64 random(row.seed ^ HashText(StrCat(variant.name, config.name)));
  const OpPlan& plan = test->plan;
  using Kind = TensorArgument::Kind;

  for (size_t i = 0; i < row.inputs.size(); ++i) {
    ASSIGN_OR_RETURN(Uses uses, UsesOf(plan, Kind::kInput, int(i)));
    const bool constant = row.operands[i].constant != nullptr;
    const Shape& shape = row.inputs[i].shape();
    PlacedValue placed = config.views && !constant && shape.rank() > 1 ? Transposed(shape) : AsItIs(shape);
    ASSIGN_OR_RETURN(TestTensor tensor, MakeTensor(row.inputs[i], placed, constant, config, uses, target, random));
    test->inputs.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < row.outputs.size(); ++i) {
    ASSIGN_OR_RETURN(Uses uses, UsesOf(plan, Kind::kOutput, int(i)));
    uses.stored = true;
    const Shape& shape = row.outputs[i].shape();
    const int updated = row.UpdatedInput(int(i));
    PlacedValue placed = config.views && i == 0 && shape.rank() > 0 && updated < 0 ? Embedded(shape) : AsItIs(shape);
    const HostTensor host = updated < 0 ? HostTensor(row.outputs[i].dtype(), shape) : row.inputs[size_t(updated)];
    ASSIGN_OR_RETURN(TestTensor tensor, MakeTensor(host, placed, false, config, uses, target, random));
    test->updated_bytes.push_back(updated < 0 ? std::vector<std::byte>() : tensor.bytes);
    test->outputs.push_back(std::move(tensor));
    test->expected.push_back(row.outputs[i]);
  }
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const PlanTensor& made = plan.tensors[i];
    HostTensor host(made.type.dtype, made.type.shape);
    if (made.constant_input >= 0 && IsBlockQuantized(row.inputs[size_t(made.constant_input)].dtype())) {
      host = Stacked(row, made);
    } else if (made.constant_input >= 0) {
      const HostTensor& from = row.inputs[size_t(made.constant_input)];
      ForEachElement(host.shape(), [&](int64_t k, const std::vector<int64_t>& coords) {
        const int64_t index = MappedIndex(made.map, from.shape(), coords, k);
        if (index >= 0) host.Set(k, from.Get(index));
      });
    }
    ASSIGN_OR_RETURN(Uses uses, UsesOf(plan, Kind::kPlan, int(i)));
    ASSIGN_OR_RETURN(TestTensor tensor,
                     MakeTensor(host, AsItIs(host.shape()), made.constant_input >= 0, config, uses, target, random));
    test->plan_tensors.push_back(std::move(tensor));
  }

  std::vector<PlacedStep> epilogue;
  const bool has_epilogue =
      config.epilogue && !variant.no_epilogue && !row.outputs.empty() && row.outputs[0].dtype() == DType::kF32;
  if (has_epilogue) {
    HostTensor& expected = test->expected[0];
    const Shape& shape = expected.shape();
    Shape operand_shape;
    if (shape.rank() > 0) operand_shape.push_back(shape.at(-1));
    HostTensor operand(DType::kF32, operand_shape);
    for (int64_t i = 0; i < operand.element_count(); ++i) operand.Set(i, double(i % 5) * 0.25 - 0.5);
    for (int64_t i = 0; i < expected.element_count(); ++i) {
      const double added = expected.Get(i) + operand.Get(operand.element_count() == 0 ? 0 : i % operand.element_count());
      expected.Set(i, std::isnan(added) ? added : std::max(0.0, added));
    }
    ASSIGN_OR_RETURN(TestTensor tensor, MakeTensor(operand, AsItIs(operand_shape), false, config, Uses{}, target, random));
    PlacedStep add, relu;
    add.function.text = kAddText;
    add.operands = {tensor.placed};
    add.result_shape = shape;
    relu.function.text = kReluText;
    relu.function.zero_to_zero = true;
    relu.result_shape = shape;
    epilogue = {add, relu};
    test->step_operands.resize(2);
    test->step_operands[0].push_back(std::move(tensor));
    test->label += ", with an epilogue";
  }
  for (size_t i = 0; i < test->expected.size(); ++i) {
    test->tolerances.push_back(RowTolerance(*row.row, row.outputs[i], config.f16));
    // The added row lies within half of one.
    if (i == 0 && has_epilogue) test->tolerances[0].absolute += test->tolerances[0].relative;
  }
  for (const KernelDispatch& dispatch : plan.dispatches) {
    ASSIGN_OR_RETURN_CONTEXT(
        AssembledDispatch assembled,
        AssembleDispatch(dispatch, PlacedOf(test->inputs), PlacedOf(test->outputs), PlacedOf(test->plan_tensors),
                         dispatch.stores_result ? std::span<const PlacedStep>(epilogue) : std::span<const PlacedStep>()),
        StrCat("while assembling ", dispatch.kernel_name));
    test->dispatches.push_back(std::move(assembled));
  }
  test->ClearOutputs();
  return test;
}

std::vector<const KernelVariant*> VariantsFor(const PreparedRow& row, const shader::Target& target, bool f16) {
  const OpCall call = row.call();
  const KernelRequest request{call, target, f16, row.op};
  std::vector<const KernelVariant*> variants = AcceptingVariants(*row.op, request);
  if (row.row->cpu_only) {
    EXPECT_TRUE(variants.empty()) << "Variant " << variants[0]->name << " accepts a row that is said to be for the CPU only.";
  } else if (row.row->least_subgroup == 0 || (target.subgroups && target.subgroup_min == target.subgroup_max &&
                                              target.subgroup_min >= row.row->least_subgroup)) {
    EXPECT_FALSE(variants.empty()) << "No variant accepts the row.";
  }
  return variants;
}

}  // namespace leeway::op_test
