#include <cstring>

#include "import/tflite/test_models.h"

namespace leeway::tflite {

using namespace tflite_schema;

namespace {

// With offsets of the constants' bytes, which are known only once the table is written: it is written twice.
flatbuffers::DetachedBuffer WriteTables(const TestModel& model, uint64_t behind, std::vector<uint8_t>& data_behind) {
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<Buffer>> buffers = {CreateBuffer(builder)};
  std::vector<flatbuffers::Offset<OperatorCode>> codes;
  std::vector<flatbuffers::Offset<SubGraph>> subgraphs;
  for (const TestSubgraph& subgraph : model.subgraphs) {
    std::vector<flatbuffers::Offset<Tensor>> tensors;
    for (const TestTensor& tensor : subgraph.tensors) {
      uint32_t buffer = 0;
      if (!tensor.data.empty()) {
        buffer = uint32_t(buffers.size());
        if (model.data_behind) {
          buffers.push_back(CreateBuffer(builder, 0, behind + data_behind.size(), tensor.data.size()));
          data_behind.insert(data_behind.end(), tensor.data.begin(), tensor.data.end());
        } else {
          builder.ForceVectorAlignment(tensor.data.size(), 1, 16);
          buffers.push_back(CreateBuffer(builder, builder.CreateVector(tensor.data)));
        }
      }
      if (tensor.buffer >= 0) buffer = uint32_t(tensor.buffer);
      flatbuffers::Offset<QuantizationParameters> quantization = 0;
      if (!tensor.scale.empty()) {
        quantization = CreateQuantizationParametersDirect(builder, nullptr, nullptr, &tensor.scale, &tensor.zero_point,
                                                          QuantizationDetails::NONE, 0, tensor.quantized_dimension);
      }
      tensors.push_back(CreateTensorDirect(builder, &tensor.shape, tensor.type, buffer, tensor.name.c_str(), quantization,
                                           tensor.is_variable));
    }
    std::vector<flatbuffers::Offset<Operator>> ops;
    for (const TestOp& op : subgraph.ops) {
      uint32_t code = op.opcode_index >= 0 ? uint32_t(op.opcode_index) : uint32_t(codes.size());
      bool old = int32_t(op.code) < 127;
      codes.push_back(CreateOperatorCodeDirect(builder, old ? int8_t(op.code) : int8_t(127),
                                               op.custom_code.empty() ? nullptr : op.custom_code.c_str(), 1, op.code));
      auto inputs = builder.CreateVector(op.inputs), outputs = builder.CreateVector(op.outputs);
      flatbuffers::Offset<void> options = op.options ? op.options(builder) : 0;
      flatbuffers::Offset<void> options_2 = 0;
      if (op.composite_subgraph >= 0)
        options_2 = CreateStableHLOCompositeOptionsDirect(builder, op.custom_code.c_str(), op.composite_subgraph).Union();
      OperatorBuilder table(builder);
      table.add_opcode_index(code);
      table.add_inputs(inputs);
      table.add_outputs(outputs);
      if (op.options) {
        table.add_builtin_options_type(op.options_type);
        table.add_builtin_options(options);
      }
      if (op.composite_subgraph >= 0) {
        table.add_builtin_options_2_type(BuiltinOptions2::StableHLOCompositeOptions);
        table.add_builtin_options_2(options_2);
      }
      ops.push_back(table.Finish());
    }
    subgraphs.push_back(CreateSubGraphDirect(builder, &tensors, &subgraph.inputs, &subgraph.outputs, &ops, "main"));
  }
  std::vector<flatbuffers::Offset<SignatureDef>> signatures;
  if (!model.signature_inputs.empty()) {
    std::vector<flatbuffers::Offset<TensorMap>> inputs, outputs;
    for (const auto& [name, tensor] : model.signature_inputs)
      inputs.push_back(CreateTensorMapDirect(builder, name.c_str(), tensor));
    for (const auto& [name, tensor] : model.signature_outputs)
      outputs.push_back(CreateTensorMapDirect(builder, name.c_str(), tensor));
    signatures.push_back(CreateSignatureDefDirect(builder, &inputs, &outputs, "serve", 0));
  }
  FinishModelBuffer(
      builder, CreateModelDirect(builder, model.version, &codes, &subgraphs, "test", &buffers, nullptr, nullptr, &signatures));
  return builder.Release();
}

}  // namespace

std::vector<std::byte> WriteTestModel(const TestModel& model) {
  std::vector<uint8_t> data;
  flatbuffers::DetachedBuffer tables = WriteTables(model, 1 << 20, data);
  uint64_t behind = (tables.size() + 15) / 16 * 16;
  data.clear();
  tables = WriteTables(model, behind, data);
  std::vector<std::byte> bytes(model.data_behind ? size_t(behind) + data.size() : tables.size());
  std::memcpy(bytes.data(), tables.data(), tables.size());
  if (model.data_behind) std::memcpy(bytes.data() + behind, data.data(), data.size());
  return bytes;
}

TestModel SmallNetwork() {
  TestSubgraph main;
  main.tensors = {{.name = "image", .shape = {1, 4, 4, 2}},
                  {.name = "filter", .shape = {3, 1, 1, 2}, .data = BytesOf<float>({1, 2, 3, 4, 5, 6})},
                  {.name = "bias", .shape = {3}, .data = BytesOf<float>({0.5f, -1, 2})},
                  {.name = "conv", .shape = {1, 2, 2, 3}},
                  {.name = "shape", .shape = {2}, .type = TensorType::INT32, .data = BytesOf<int32_t>({1, 12})},
                  {.name = "flat", .shape = {1, 12}},
                  {.name = "result", .shape = {1, 12}}};
  main.inputs = {0};
  main.outputs = {6};
  main.ops = {
      {.code = BuiltinOperator::CONV_2D,
       .inputs = {0, 1, 2},
       .outputs = {3},
       .options_type = BuiltinOptions::Conv2DOptions,
       .options = [](auto& b) { return CreateConv2DOptions(b, Padding::SAME, 2, 2, ActivationFunctionType::RELU6).Union(); }},
      {.code = BuiltinOperator::RESHAPE, .inputs = {3, 4}, .outputs = {5}},
      {.code = BuiltinOperator::SOFTMAX,
       .inputs = {5},
       .outputs = {6},
       .options_type = BuiltinOptions::SoftmaxOptions,
       .options = [](auto& b) { return CreateSoftmaxOptions(b, 1.0f).Union(); }}};
  TestModel model{{main}};
  model.signature_inputs = {{"x", 0}};
  model.signature_outputs = {{"y", 6}};
  return model;
}

}  // namespace leeway::tflite
