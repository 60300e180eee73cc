// A row of a table test made ready to run: a variant's plan with every tensor placed in one of the ways that its kernels
// allow. What runs it (the interpreter, a device) binds the bytes by name and compares the outputs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/assemble.h"
#include "ops/op_test.h"

namespace leeway::op_test {

// How the tensors of a run lie, and what is fused.
struct TestConfig {
  std::string name;
  Layout layout = Layout::kPadded4;
  Storage storage = Storage::kBuffer;
  bool f16 = false;
  bool in_parts = false;  // two or more bindings for each tensor that is large enough
  bool mixed = false;     // every tensor in its own way, by the row's seed
  bool views = false;     // inputs are read through a transposition, output 0 lies inside a larger tensor
  bool epilogue = false;  // adds a row and applies relu to output 0

  // Where the device or the kernel may refuse: a kernel that stores single elements can't write a texture.
  bool may_be_unsupported() const { return storage != Storage::kBuffer || mixed; }
};
// Every way on small rows, the important ones on larger ones.
std::vector<TestConfig> ConfigsFor(const PreparedRow& row);

struct TestTensor {
  HostTensor host;  // as the node sees it
  PlacedValue placed;
  std::vector<std::byte> bytes;         // the storage, padding filled with what a kernel must not use
  std::vector<std::byte> factor_bytes;  // of a placement with a format, whose quants are `bytes`
};

// A tensor, and which of its pieces a binding means.
struct TestPiece {
  TestTensor* tensor = nullptr;
  bool is_factors = false;

  std::vector<std::byte>& bytes() const { return is_factors ? tensor->factor_bytes : tensor->bytes; }
  Placement placement() const;
  auto operator<=>(const TestPiece&) const = default;
};

struct TestPlan {
  std::string label;  // conv_2d/odd_channels, variant direct, sliced4 f16
  OpPlan plan;
  std::vector<TestTensor> inputs, outputs, plan_tensors;
  std::vector<std::vector<TestTensor>> step_operands;
  std::vector<AssembledDispatch> dispatches;  // as plan.dispatches
  std::vector<HostTensor> expected;           // per output, epilogue applied
  std::vector<Tolerance> tolerances;
  std::vector<std::vector<std::byte>> updated_bytes;  // per output: what it holds before a run; empty: anything

  TestPiece Find(const AssembledDispatch::Source& source);
  // Puts garbage into what kernels have to write, and what they update back to what it was.
  void ClearOutputs();
  // "" or what is wrong with the outputs' bytes.
  std::string CheckOutputs() const;
};
// `row` must have been prepared with config.f16.
Result<std::unique_ptr<TestPlan>> PlanRow(const PreparedRow& row, const KernelVariant& variant, const TestConfig& config,
                                          const shader::Target& target);

// Every row of the program, in the order of registration.
struct RegisteredRow {
  std::string op_name;
  const OpTestRow* row = nullptr;
};
const std::vector<RegisteredRow>& RegisteredRows();

// The variants to run on `target`, with GoogleTest failures where there should be some.
std::vector<const KernelVariant*> VariantsFor(const PreparedRow& row, const shader::Target& target, bool f16);

}  // namespace leeway::op_test
