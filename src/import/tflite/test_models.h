// Small .tflite files made in memory, right or wrong as a test wants them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "import/tflite/tflite_generated.h"

namespace leeway::tflite {

struct TestTensor {
  std::string name;
  std::vector<int32_t> shape;
  tflite_schema::TensorType type = tflite_schema::TensorType::FLOAT32;
  std::vector<uint8_t> data = {};  // empty: not a constant
  std::vector<float> scale = {};
  std::vector<int64_t> zero_point = {};
  int32_t quantized_dimension = 0;
  int32_t buffer = -1;  // >= 0: this buffer whatever `data` says
  bool is_variable = false;
};

struct TestOp {
  tflite_schema::BuiltinOperator code = tflite_schema::BuiltinOperator::ADD;
  std::vector<int32_t> inputs, outputs;
  std::string custom_code = {};
  int32_t opcode_index = -1;  // >= 0: this one whatever `code` says
  // Writes the options; returns their offset.
  tflite_schema::BuiltinOptions options_type = tflite_schema::BuiltinOptions::NONE;
  std::function<flatbuffers::Offset<void>(flatbuffers::FlatBufferBuilder&)> options = {};
  int32_t composite_subgraph = -1;  // >= 0: the options of a composite that unfolds to it
};

struct TestSubgraph {
  std::vector<TestTensor> tensors;
  std::vector<int32_t> inputs, outputs;
  std::vector<TestOp> ops;
};

struct TestModel {
  std::vector<TestSubgraph> subgraphs;
  uint32_t version = 3;
  // Signature "serve" over subgraph 0: names to tensors.
  std::vector<std::pair<std::string, uint32_t>> signature_inputs = {}, signature_outputs = {};
  bool data_behind = false;  // constants lie behind the FlatBuffer, found by their offsets
};

std::vector<std::byte> WriteTestModel(const TestModel& model);

// Bytes of values, for TestTensor::data.
template <class T>
std::vector<uint8_t> BytesOf(const std::vector<T>& values) {
  auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  return {bytes, bytes + values.size() * sizeof(T)};
}

// A network of a few kinds of operators: constants, options, activation, optional input, signature. For truncation and fuzzing.
TestModel SmallNetwork();

}  // namespace leeway::tflite
