// Table tests of operators. A row is a set of operands and attributes; it is run
//   - through the shape rule and the CPU reference,
//   - through each kernel variant that accepts it, before and after lowering, on the interpreter, for the layouts, storages
//     and element types that the kernel's accessors allow, with and without an epilogue (here, in ops_test),
//   - on every device present (kernel_device_test in src/runtime, which links the same tables),
// and everything must agree with the reference.
//
//   OP_TEST(conv_2d, {
//       {.name = "odd_channels", .inputs = {Tensor({2, 5, 7, 3}), Weights({5, 3, 3, 3}), Weights({5})},
//        .attrs = {{"padding", "SAME"}, {"stride_w", 2}, {"stride_h", 2}}, .terms = 27},
//       {.name = "one_pixel", .inputs = {Tensor({1, 1, 1, 4}), Weights({8, 1, 1, 4}), Absent()}},
//   });
//
// The names in the table are in namespace leeway::op_test; the file says `using namespace leeway::op_test;`.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/op_def.h"
#include "ops/op_kernels.h"

namespace leeway::op_test {

// One input of a row. Values are drawn evenly from [low, high] (integers: whole numbers of it) unless they are given.
struct Operand {
  DType dtype = DType::kF32;
  Shape shape;
  bool constant = false;  // known when kernels are planned: weights, shapes
  bool absent = false;    // an optional input that is not given
  std::optional<double> low, high;
  std::vector<double> values;  // given values, row-major; empty: drawn
  std::shared_ptr<const Quantization> quantization;

  Operand Range(double low, double high) const;
  Operand Quantized(std::vector<float> scales, std::vector<int64_t> zero_points, int axis = 0) const;
};
Operand Tensor(Shape shape, DType dtype = DType::kF32);                                      // an activation
Operand Weights(Shape shape, DType dtype = DType::kF32);                                     // a constant with drawn values
Operand Values(Shape shape, std::vector<double> values, DType dtype = DType::kF32);          // an activation with these
Operand ConstantValues(Shape shape, std::vector<double> values, DType dtype = DType::kI32);  // a constant with these
Operand Absent();

struct OpTestRow {
  const char* name = "";
  std::vector<Operand> inputs;
  std::vector<std::pair<const char*, AttrValue>> attrs;
  // How many terms the longest sum behind an output element has: allows sqrt(terms) times the error of one operation.
  double terms = 1;
  // Error of one operation in f32, relative to |expected| + the output's largest magnitude. 0: the usual (2e-6).
  double tolerance = 0;
  // What output 0 must be, where the row is also a test of the reference: row-major values; empty: not checked.
  std::vector<double> expected;
  std::string custom_options;
  // Only the reference is run: no variant is expected to accept the row. Otherwise a row that no variant accepts fails.
  bool cpu_only = false;
  // Its variants want subgroups of this many lanes or more, of a certain size; targets that have none need not accept it.
  uint32_t least_subgroup = 0;
};

// A row with its values drawn: what the reference made of it, and what kernels are compared with.
struct PreparedRow {
  const OpDef* op = nullptr;
  const OpTestRow* row = nullptr;
  uint64_t seed = 0;
  AttrSet attrs;
  std::vector<HostTensor> inputs;  // an absent one is an empty tensor
  std::vector<OperandInfo> operands;
  std::vector<TensorType> output_types;
  std::vector<HostTensor> outputs;  // of the reference
  // The input that output `output` updates in place (OpDef::updates), or -1.
  int UpdatedInput(int output) const;

  PreparedRow() = default;
  PreparedRow(const PreparedRow&) = delete;  // operands point into inputs
  PreparedRow& operator=(const PreparedRow&) = delete;
  OpCall call() const { return {attrs, operands, output_types, row->custom_options}; }
};
// Draws the values and runs shape rule and reference. With `f16`, float values are first rounded to f16, so that what is
// compared is the kernel and not the rounding of its inputs. Failures are GoogleTest's; null then.
std::unique_ptr<PreparedRow> Prepare(const std::string& op_name, const OpTestRow& row, bool f16);

// Runs the reference of an operator on given inputs: for tests of references. Outputs or the error of `infer` or `reference`.
Result<std::vector<HostTensor>> RunReference(const std::string& op_name, std::vector<HostTensor> inputs, const AttrSet& attrs,
                                             std::string custom_options = {});

// How far results may be off: |got - want| <= absolute + relative * |want|.
struct Tolerance {
  double absolute = 0, relative = 0;
};
Tolerance RowTolerance(const OpTestRow& row, const HostTensor& want, bool f16);
// "" where all elements agree; else the worst one, with coordinates and both values. Infinities and NaN must be equal.
std::string Compare(const HostTensor& got, const HostTensor& want, const Tolerance& tolerance);

// What a registered row runs: the interpreter, unless the program sets something else before RUN_ALL_TESTS.
using RowRunner = std::function<void(const std::string& op_name, const OpTestRow& row)>;
void SetRowRunner(RowRunner runner);

// Registers every row as the GoogleTest "Kernels.<op>/<row>".
class Registration {
 public:
  Registration(const char* op_name, const char* file, int line, std::vector<OpTestRow> rows);
};

#define OP_TEST(op_name, ...)                                                                        \
  static const ::leeway::op_test::Registration LEEWAY_OP_TEST_NAME(op_test_registration_, __LINE__)( \
      #op_name, __FILE__, __LINE__, std::vector<::leeway::op_test::OpTestRow> __VA_ARGS__)
#define LEEWAY_OP_TEST_NAME(prefix, line) LEEWAY_OP_TEST_NAME_INNER(prefix, line)
#define LEEWAY_OP_TEST_NAME_INNER(prefix, line) prefix##line

}  // namespace leeway::op_test
