#include "ops/op_test.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "base/hash.h"
#include "base/strings.h"
#include "block_types.h"
#include "ops/op_test_plan.h"

namespace leeway::op_test {

namespace {

RowRunner& CurrentRunner() {
  static RowRunner runner = [](const std::string& op_name, const OpTestRow& row) { Prepare(op_name, row, false); };
  return runner;
}

std::vector<RegisteredRow>& MutableRows() {
  static std::vector<RegisteredRow>& rows = *new std::vector<RegisteredRow>();
  return rows;
}

class RowTest : public testing::Test {
 public:
  RowTest(std::string op_name, const OpTestRow* row) : op_name_(std::move(op_name)), row_(row) {}
  void TestBody() override { CurrentRunner()(op_name_, *row_); }

 private:
  std::string op_name_;
  const OpTestRow* row_;
};

uint64_t SeedOf(const std::string& op_name, const OpTestRow& row) {
  if (const char* given = std::getenv("LEEWAY_TEST_SEED")) return std::strtoull(given, nullptr, 10);
  return HashText(StrCat(op_name, "/", row.name)) % 1000000;
}

bool IsUnsigned(DType dtype) {
  switch (dtype) {
    case DType::kU64:
    case DType::kU32:
    case DType::kU16:
    case DType::kU8:
    case DType::kU4: return true;
    default: return false;
  }
}

// Any bytes are blocks of any type, so every code occurs; the scales are drawn so that the values are of the order of one.
HostTensor DrawBlocks(const Operand& operand, std::mt19937_64& random) {
  HostTensor tensor(operand.dtype, operand.shape);
  const std::span<std::byte> bytes = tensor.mutable_bytes();
  for (std::byte& b : bytes) b = std::byte(random());
  const size_t block_bytes = BlockBytes(operand.dtype), block_elements = BlockElements(operand.dtype);
  std::uniform_real_distribution<float> values(0.2f, 1);
  // Codes go up to 16 or 127; those of K types are multiplied by scales of up to 127 besides.
  const bool bytewise = operand.dtype == DType::kQ8_0 || operand.dtype == DType::kIQ4_NL;
  const float largest = block_elements > 32 ? 1.0f / 1024 : bytewise ? 1.0f / 128 : 1.0f / 16;
  for (size_t block = 0; block * block_bytes < bytes.size(); ++block) {
    for (size_t at : HalvesOf(operand.dtype)) {
      const uint16_t half = F32ToF16(values(random) * largest * (random() % 2 ? 1.0f : -1.0f));
      std::memcpy(&bytes[block * block_bytes + at], &half, 2);
    }
  }
  return tensor;
}

HostTensor Draw(const Operand& operand, std::mt19937_64& random, bool f16) {
  if (IsBlockQuantized(operand.dtype)) return DrawBlocks(operand, random);
  HostTensor tensor(operand.dtype, operand.shape);
  const int64_t count = tensor.element_count();
  if (!operand.values.empty()) {
    if (int64_t(operand.values.size()) != count) {
      ADD_FAILURE() << "An operand of shape " << operand.shape.ToString() << " is given " << operand.values.size()
                    << " values.";
      return tensor;
    }
    for (int64_t i = 0; i < count; ++i) tensor.Set(i, operand.values[size_t(i)]);
  } else if (IsFloat(operand.dtype)) {
    std::uniform_real_distribution<double> values(operand.low.value_or(-1), operand.high.value_or(1));
    for (int64_t i = 0; i < count; ++i) tensor.Set(i, values(random));
  } else {
    const bool is_bool = operand.dtype == DType::kBool;
    const double low = operand.low.value_or(is_bool || IsUnsigned(operand.dtype) ? 0 : -7);
    const double high = operand.high.value_or(is_bool ? 1 : operand.dtype == DType::kI2 ? 1 : 7);
    std::uniform_int_distribution<int64_t> values{int64_t(low), int64_t(high)};
    for (int64_t i = 0; i < count; ++i) tensor.Set(i, double(values(random)));
  }
  if (f16 && IsFloat(operand.dtype)) {
    for (int64_t i = 0; i < count; ++i) tensor.Set(i, F16ToF32(F32ToF16(float(tensor.Get(i)))));
  }
  return tensor;
}

// The reference of an operator that updates inputs finds their elements in its outputs. The inputs that it is given.
std::vector<HostTensor> MoveUpdated(const OpDef& op, const std::vector<HostTensor>& inputs, std::vector<HostTensor>& outputs) {
  std::vector<HostTensor> others = inputs;
  for (const OpDef::Update& update : op.updates) {
    outputs[size_t(update.output)] = inputs[size_t(update.input)];
    others[size_t(update.input)] = HostTensor();
  }
  return others;
}

std::string CoordinatesText(const Shape& shape, int64_t index) {
  std::vector<int64_t> coords(size_t(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    coords[size_t(axis)] = index % shape[axis];
    index /= shape[axis];
  }
  return StrCat("[", Join(coords, ", "), "]");
}

}  // namespace

Operand Operand::Range(double low, double high) const {
  Operand result = *this;
  result.low = low;
  result.high = high;
  return result;
}

Operand Operand::Quantized(std::vector<float> scales, std::vector<int64_t> zero_points, int axis) const {
  Operand result = *this;
  result.quantization = std::make_shared<const Quantization>(Quantization{std::move(scales), std::move(zero_points), axis});
  return result;
}

Operand Tensor(Shape shape, DType dtype) {
  Operand operand;
  operand.dtype = dtype;
  operand.shape = shape;
  return operand;
}

Operand Weights(Shape shape, DType dtype) {
  Operand operand = Tensor(shape, dtype);
  operand.constant = true;
  return operand;
}

Operand Values(Shape shape, std::vector<double> values, DType dtype) {
  Operand operand = Tensor(shape, dtype);
  operand.values = std::move(values);
  return operand;
}

Operand ConstantValues(Shape shape, std::vector<double> values, DType dtype) {
  Operand operand = Values(shape, std::move(values), dtype);
  operand.constant = true;
  return operand;
}

Operand Absent() {
  Operand operand;
  operand.absent = true;
  return operand;
}

std::unique_ptr<PreparedRow> Prepare(const std::string& op_name, const OpTestRow& row, bool f16) {
  auto prepared = std::make_unique<PreparedRow>();
  prepared->op = FindOp(op_name);
  if (prepared->op == nullptr) {
    ADD_FAILURE() << "There is no operator " << op_name << ".";
    return nullptr;
  }
  prepared->row = &row;
  prepared->seed = SeedOf(op_name, row);
  SCOPED_TRACE(StrCat(op_name, "/", row.name, ", LEEWAY_TEST_SEED=", prepared->seed));
  for (const auto& [name, value] : row.attrs) prepared->attrs.Set(name, value);
  std::mt19937_64 random(prepared->seed);
  for (const Operand& operand : row.inputs) {
    prepared->inputs.push_back(operand.absent ? HostTensor(DType::kF32, {0}) : Draw(operand, random, f16));
  }
  for (size_t i = 0; i < row.inputs.size(); ++i) {
    const Operand& operand = row.inputs[i];
    OperandInfo info;
    info.absent = operand.absent;
    // Weights of these types are f32 to the graph.
    const bool narrow = IsBlockQuantized(operand.dtype) || operand.dtype == DType::kBF16;
    if (!operand.absent) info.type = {narrow ? DType::kF32 : operand.dtype, operand.shape};
    if (operand.constant) info.constant = &prepared->inputs[i];
    info.quantization = operand.quantization.get();
    prepared->operands.push_back(info);
  }
  auto types = prepared->op->infer({prepared->attrs, prepared->operands, {}, row.custom_options});
  if (!types.ok()) {
    ADD_FAILURE() << "The shape rule refuses the row: " << types.error().message;
    return nullptr;
  }
  prepared->output_types = *types;
  for (const TensorType& type : prepared->output_types) prepared->outputs.emplace_back(type.dtype, type.shape);
  const std::vector<HostTensor> inputs = MoveUpdated(*prepared->op, prepared->inputs, prepared->outputs);
  if (Status status = prepared->op->reference(prepared->call(), inputs, prepared->outputs); !status.ok()) {
    ADD_FAILURE() << "The reference fails: " << status.error().message;
    return nullptr;
  }
  if (!row.expected.empty()) {
    HostTensor expected(prepared->output_types[0].dtype, prepared->output_types[0].shape);
    if (int64_t(row.expected.size()) != expected.element_count()) {
      ADD_FAILURE() << "Output 0 has type " << prepared->output_types[0].ToString() << ", but " << row.expected.size()
                    << " values are expected.";
      return nullptr;
    }
    for (size_t i = 0; i < row.expected.size(); ++i) expected.Set(int64_t(i), row.expected[i]);
    EXPECT_EQ(Compare(prepared->outputs[0], expected, RowTolerance(row, expected, f16)), "") << "in output 0 of the reference";
  }
  return prepared;
}

int PreparedRow::UpdatedInput(int output) const {
  for (const OpDef::Update& update : op->updates) {
    if (update.output == output) return update.input;
  }
  return -1;
}

Result<std::vector<HostTensor>> RunReference(const std::string& op_name, std::vector<HostTensor> inputs, const AttrSet& attrs,
                                             std::string custom_options) {
  const OpDef* op = FindOp(op_name);
  if (op == nullptr) return Error{Code::kNotFound, StrCat("There is no operator ", op_name, ".")};
  std::vector<OperandInfo> operands;
  for (const HostTensor& input : inputs) operands.push_back({{input.dtype(), input.shape()}, &input});
  ASSIGN_OR_RETURN(std::vector<TensorType> types, op->infer({attrs, operands, {}, custom_options}));
  std::vector<HostTensor> outputs;
  for (const TensorType& type : types) outputs.emplace_back(type.dtype, type.shape);
  const std::vector<HostTensor> others = MoveUpdated(*op, inputs, outputs);
  RETURN_IF_ERROR(op->reference({attrs, operands, types, custom_options}, others, outputs));
  return outputs;
}

Tolerance RowTolerance(const OpTestRow& row, const HostTensor& want, bool f16) {
  if (!IsFloat(want.dtype())) return {};
  double largest = 0;
  for (int64_t i = 0; i < want.element_count(); ++i) {
    const double magnitude = std::fabs(want.Get(i));
    if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
  }
  const double f32_error = (row.tolerance > 0 ? row.tolerance : 2e-6) * std::sqrt(std::max(1.0, row.terms));
  // Half an ulp of f16 is 2^-12; intermediate tensors and weights are rounded too.
  const double error = f16 ? f32_error + 1.0 / 1024 : f32_error;
  return {error * largest + (f16 ? 1e-6 : 1e-30), error};
}

std::string Compare(const HostTensor& got, const HostTensor& want, const Tolerance& tolerance) {
  if (got.shape() != want.shape()) { return StrCat("shape ", got.shape().ToString(), ", expected ", want.shape().ToString()); }
  int64_t worst = -1, wrong = 0;
  double worst_excess = 0;
  for (int64_t i = 0; i < want.element_count(); ++i) {
    const double g = got.Get(i), w = want.Get(i);
    if (std::isnan(g) && std::isnan(w)) continue;
    if (g == w) continue;
    // Between a number and NaN or infinity the difference is not a number or infinite: never allowed.
    const double difference = std::fabs(g - w), allowed = tolerance.absolute + tolerance.relative * std::fabs(w);
    if (std::isfinite(difference) && difference <= allowed) continue;
    ++wrong;
    const double excess = std::isfinite(difference) ? difference - allowed : INFINITY;
    if (worst < 0 || excess > worst_excess) {
      worst = i;
      worst_excess = excess;
    }
  }
  if (wrong == 0) return "";
  return StrCat(wrong, " of ", want.element_count(), " elements differ; the worst at ", CoordinatesText(want.shape(), worst),
                ": got ", got.Get(worst), ", expected ", want.Get(worst), ", allowed difference ",
                tolerance.absolute + tolerance.relative * std::fabs(want.Get(worst)));
}

const std::vector<RegisteredRow>& RegisteredRows() { return MutableRows(); }

void SetRowRunner(RowRunner runner) { CurrentRunner() = std::move(runner); }

Registration::Registration(const char* op_name, const char* file, int line, std::vector<OpTestRow> rows) {
  // GoogleTest makes the tests long after this; the rows live as long as the program.
  static std::vector<std::unique_ptr<std::vector<OpTestRow>>>& tables =
      *new std::vector<std::unique_ptr<std::vector<OpTestRow>>>();
  tables.push_back(std::make_unique<std::vector<OpTestRow>>(std::move(rows)));
  for (const OpTestRow& row : *tables.back()) {
    const std::string name = StrCat(op_name, "/", row.name);
    MutableRows().push_back({op_name, &row});
    testing::RegisterTest("Kernels", name.c_str(), nullptr, nullptr, file, line,
                          [op = std::string(op_name), row = &row]() -> testing::Test* { return new RowTest(op, row); });
  }
}

// ---- Tests of the comparison itself: a table test is worth what it notices ---------------------------------------------

TEST(OpTest, CompareNamesTheWorstElement) {
  const HostTensor want = HostTensor::FromF32({2, 2}, std::vector<float>{1, 2, 3, 4});
  const HostTensor got = HostTensor::FromF32({2, 2}, std::vector<float>{1, 2.5f, 3.25f, 4});
  EXPECT_EQ(Compare(want, want, {}), "");
  EXPECT_EQ(Compare(got, want, {0.5, 0}), "");
  const std::string text = Compare(got, want, {0.125, 0});
  EXPECT_NE(text.find("2 of 4 elements differ; the worst at [0, 1]: got 2.5, expected 2"), std::string::npos) << text;
}

TEST(OpTest, CompareTakesNoNanAndNoInfinityForANumber) {
  const HostTensor want = HostTensor::FromF32({1}, std::vector<float>{1});
  for (float wrong : {NAN, INFINITY, -INFINITY}) {
    const HostTensor got = HostTensor::FromF32({1}, std::vector<float>{wrong});
    EXPECT_NE(Compare(got, want, {1e30, 1}), "");
    EXPECT_NE(Compare(want, got, {1e30, 1}), "");
    EXPECT_EQ(Compare(got, got, {}), "");
  }
}

TEST(OpTest, IntegersMustBeEqual) {
  const OpTestRow row{.name = "row", .tolerance = 1};
  const HostTensor want = HostTensor::FromI32({1}, std::vector<int32_t>{1000});
  const HostTensor got = HostTensor::FromI32({1}, std::vector<int32_t>{1001});
  EXPECT_NE(Compare(got, want, RowTolerance(row, want, true)), "");
}

}  // namespace leeway::op_test
