// What the graph knows about an operator: attributes, shape rule, CPU reference, and the properties that passes ask for. The
// kernels are behind OpKernels, which ops/ defines. An operator is one file in src/ops; the build collects them (op_table).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tensor/host_tensor.h"
#include "tensor/virtual_tensor.h"

namespace leeway {

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;
  bool operator==(const TensorType&) const = default;
  std::string ToString() const;  // "f32[1, 256, 256, 3]"
};

struct Quantization {
  std::vector<float> scales;         // one, or one per index of `axis`
  std::vector<int64_t> zero_points;  // as many
  int axis = 0;
};

using AttrValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;

class AttrSet {
 public:
  void Set(std::string name, AttrValue value) { values_[std::move(name)] = std::move(value); }
  void Erase(std::string_view name) {
    if (auto it = values_.find(name); it != values_.end()) values_.erase(it);
  }
  bool Has(std::string_view name) const { return values_.find(name) != values_.end(); }
  const AttrValue* Find(std::string_view name) const;
  // The value, or `fallback` where it is absent or of another kind (GetFloat takes whole numbers too).
  bool GetBool(std::string_view name, bool fallback = false) const;
  int64_t GetInt(std::string_view name, int64_t fallback = 0) const;
  double GetFloat(std::string_view name, double fallback = 0) const;
  std::string GetString(std::string_view name, std::string_view fallback = "") const;
  std::vector<int64_t> GetInts(std::string_view name) const;
  const std::map<std::string, AttrValue, std::less<>>& values() const { return values_; }
  std::string ToString() const;  // "axis=1, keep_dims=true"

 private:
  std::map<std::string, AttrValue, std::less<>> values_;
};

// One attribute: its name (the field name of the .tflite options table where there is one), default, and a line for the docs.
struct AttrField {
  const char* name;
  AttrValue fallback;
  const char* doc;
};

struct OperandInfo {
  TensorType type;
  const HostTensor* constant = nullptr;  // the value where it is known
  const Quantization* quantization = nullptr;
  bool absent = false;  // an optional input that is not given
};

// A node as its operator sees it.
struct OpCall {
  const AttrSet& attrs;
  std::span<const OperandInfo> inputs;
  std::span<const TensorType> outputs;   // empty in `infer`
  std::string_view custom_options = {};  // the raw bytes of a custom operator
};

// An output coordinate's place in one input: y[c] = inside(c) ? inputs[source][coords(c)] : outside.
struct Movement {
  int source = 0;  // which input is moved
  CoordMap map;    // output coordinates -> coordinates of that input
};

// The same, per input, for an operator that lays inputs side by side (concat, pack): input i goes to output coordinates
// place(c), and the places of all inputs cover the output exactly.
struct Scatter {
  std::vector<CoordMap> places;
};  // one per input: input coordinates -> output coordinates

struct OpKernels;  // ops/op_kernels.h

struct OpDef {
  const char* name = "";  // "conv_2d"
  std::span<const AttrField> attrs = {};
  // Output types from attributes and inputs; refuses what the operator cannot take, naming the input.
  Result<std::vector<TensorType>> (*infer)(const OpCall& call) = nullptr;
  // Plain loops, double accumulation: oracle and fallback. `outputs` have their types from `infer`, zero-filled.
  Status (*reference)(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) = nullptr;

  // Elementwise operators: the function that turns the value of input `chained` into the output's value, the other inputs
  // being its operands in order (their coordinates are the output's, broadcast by the caller). Null: not elementwise.
  // ValueMap::operands stays empty here.
  Result<ValueMap> (*value_map)(const OpCall& call, int chained) = nullptr;
  // Operators that only move elements (one of the two), or null.
  Result<Movement> (*movement)(const OpCall& call) = nullptr;
  Result<Scatter> (*scatter)(const OpCall& call) = nullptr;
  // True: movement keeps row-major order (reshape, squeeze): an alias where the layout is kLinear.
  bool is_reshape = false;
  // True: the outputs follow from the types of the inputs alone (shape, rank, zeros_like), so they are known before a run.
  bool needs_types_only = false;
  // True: input 0 is [batch, height, width, channels], and the attributes `pad_before` and `pad_after` (height, width) are rows
  // and columns of zeros that the operator sees around it, as if a pad node stood before it: `padding` counts from there.
  bool accepts_explicit_padding = false;
  // Outputs that are inputs with some elements changed, in the same memory: a kernel binds the output alone and may read what
  // it does not write; the reference finds the input's elements in the output and an empty tensor for the input.
  struct Update {
    int output = 0, input = 0;
  };
  std::span<const Update> updates = {};

  const OpKernels* kernels = nullptr;  // null: only the above, or only the CPU

  // Builtin operator names of the .tflite format ("CONV_2D") or "custom:Name".
  std::span<const char* const> tflite = {};
};

// The table of all operators, by name; null if there is none. Made by the build from the files in src/ops.
const OpDef* FindOp(std::string_view name);
const OpDef* FindOpForTflite(std::string_view tflite_name);
std::span<const OpDef* const> AllOps();

}  // namespace leeway
