#include "import/tflite/tflite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <random>

#include "base/strings.h"
#include "import/tflite/constants.h"
#include "import/tflite/test_models.h"

namespace leeway {
namespace {

using namespace tflite;
using tflite_schema::ActivationFunctionType;
using tflite_schema::BuiltinOperator;
using tflite_schema::BuiltinOptions;
using tflite_schema::TensorType;

// Reading alone is under test here: no operator is known, nodes carry the types of the file.
const OpDef* NoOp(std::string_view) { return nullptr; }
constexpr TfliteOptions kReadOnly{.find_op = NoOp, .keep_unknown_ops = true};

const AttrField kConvAttrs[] = {{"padding", std::string("SAME"), ""}, {"stride_w", int64_t{1}, ""}};
const AttrField kNumberAttrs[] = {
    {"padding", int64_t{0}, ""}, {"output_type", std::string("f32"), ""}, {"output_scale", 1.0, ""}};
const OpDef kConv{.name = "conv", .attrs = kConvAttrs};
const OpDef kNumbered{.name = "numbered", .attrs = kNumberAttrs};
const OpDef kRelu6{.name = "relu6"};
const OpDef kOther{.name = "other"};

const OpDef* SomeOps(std::string_view name) {
  if (name == "CONV_2D") return &kConv;
  if (name == "AVERAGE_POOL_2D") return &kNumbered;
  if (name == "RELU6") return &kRelu6;
  if (name == "RESHAPE" || name == "SOFTMAX" || name == "ADD" || name == "FULLY_CONNECTED" || name == "GATHER") return &kOther;
  return nullptr;
}

Result<Graph> Import(const TestModel& model, const TfliteOptions& options = kReadOnly) {
  return ImportTflite(MappedFile::FromBytes(WriteTestModel(model), "test.tflite"), options);
}

std::string Refusal(const TestModel& model, const TfliteOptions& options = kReadOnly) {
  auto graph = Import(model, options);
  return graph.ok() ? "accepted" : graph.error().message;
}
#define EXPECT_REFUSED(model, part)                                             \
  do {                                                                          \
    std::string message = Refusal(model);                                       \
    EXPECT_NE(message.find(part), std::string::npos) << "message: " << message; \
  } while (false)

TEST(Tflite, ANetworkBecomesNodesWithAttributesAndNames) {
  for (bool data_behind : {false, true}) {
    TestModel model = SmallNetwork();
    model.data_behind = data_behind;
    auto graph = Import(model, {.find_op = SomeOps});
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    ASSERT_EQ(graph->nodes.size(), 4u) << Format(*graph);
    const Node& conv = graph->nodes[0];
    EXPECT_STREQ(conv.op->name, "conv");
    EXPECT_EQ(conv.attrs.GetString("padding"), "SAME");
    EXPECT_EQ(conv.attrs.GetInt("stride_w"), 2);
    EXPECT_EQ(conv.attrs.GetInt("dilation_w_factor"), 1) << "a default of the format that is not zero";
    EXPECT_FALSE(conv.attrs.Has("fused_activation_function"));
    EXPECT_EQ(conv.name, "conv/linear");
    const Node& relu = graph->nodes[1];
    EXPECT_STREQ(relu.op->name, "relu6");
    EXPECT_EQ(relu.name, "conv");
    EXPECT_EQ(relu.inputs, conv.outputs);
    const Value& filter = graph->value(conv.inputs[1]);
    EXPECT_EQ(filter.type.ToString(), "f32[3, 1, 1, 2]");
    EXPECT_EQ(filter.constant->Get(4), 5);
    EXPECT_EQ(graph->nodes[3].attrs.GetFloat("beta"), 1);
    ASSERT_EQ(graph->signatures.size(), 1u);
    EXPECT_EQ(graph->signatures[0].key, "serve");
    EXPECT_EQ(graph->signatures[0].inputs[0].first, "x");
    EXPECT_EQ(graph->signatures[0].inputs[0].second, graph->inputs[0]);
    EXPECT_EQ(graph->signatures[0].outputs[0].second, graph->outputs[0]);
  }
}

TEST(Tflite, WeightsAreViewsOfTheFile) {
  auto file = MappedFile::FromBytes(WriteTestModel(SmallNetwork()), "test.tflite");
  auto graph = ImportTflite(file, {.find_op = SomeOps});
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  const std::byte* filter = graph->value(graph->nodes[0].inputs[1]).constant->bytes().data();
  EXPECT_GE(filter, file->bytes().data());
  EXPECT_LT(filter, file->bytes().data() + file->bytes().size());
  long uses = file.use_count();
  EXPECT_GT(uses, 1);
  file.reset();  // the graph keeps the bytes
  EXPECT_EQ(graph->value(graph->nodes[0].inputs[1]).constant->Get(0), 1);
}

TEST(Tflite, AttributesComeAsTheOperatorDeclaresThem) {
  TestModel model{
      {{.tensors = {{.name = "x", .shape = {1, 4, 4, 1}, .type = TensorType::INT8, .scale = {0.5f}, .zero_point = {3}},
                    {.name = "y", .shape = {1, 2, 2, 1}, .type = TensorType::INT8, .scale = {0.25f}, .zero_point = {3}}},
        .inputs = {0},
        .outputs = {1},
        .ops = {{.code = BuiltinOperator::AVERAGE_POOL_2D,
                 .inputs = {0},
                 .outputs = {1},
                 .options_type = BuiltinOptions::Pool2DOptions,
                 .options = [](auto& b) {
                   return tflite_schema::CreatePool2DOptions(b, tflite_schema::Padding::VALID, 2, 2, 2, 2).Union();
                 }}}}}};
  auto graph = Import(model, {.find_op = SomeOps});
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  const AttrSet& attrs = graph->nodes[0].attrs;
  EXPECT_EQ(attrs.GetInt("padding", -1), 1);
  EXPECT_EQ(attrs.GetString("output_type"), "i8");
  EXPECT_EQ(attrs.GetFloat("output_scale"), 0.25);
}

TEST(Tflite, UnknownOperatorsAreNamedAllAtOnce) {
  TestModel model{{{.tensors = {{.name = "x", .shape = {2}},
                                {.name = "a", .shape = {2}},
                                {.name = "b", .shape = {2}},
                                {.name = "c", .shape = {2}}},
                    .inputs = {0},
                    .outputs = {3},
                    .ops = {{.code = BuiltinOperator::WHERE, .inputs = {0}, .outputs = {1}},
                            {.code = BuiltinOperator::CUSTOM, .inputs = {1}, .outputs = {2}, .custom_code = "Mine"},
                            {.code = BuiltinOperator::WHERE, .inputs = {2}, .outputs = {3}}}}}};
  std::string message = Refusal(model, {.find_op = SomeOps});
  EXPECT_NE(message.find("WHERE (2 nodes), custom:Mine (1 node)"), std::string::npos) << message;
  auto kept = Import(model);
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  EXPECT_STREQ(kept->nodes[1].op->name, "custom:Mine");
  EXPECT_EQ(kept->foreign_ops.size(), 2u);
}

TEST(Tflite, StorageOfConstantsIsUnpacked) {
  std::vector<uint16_t> halves = {F32ToF16(1.5f), F32ToF16(-2)};
  TestModel model{
      {{.tensors = {{.name = "x", .shape = {2}},
                    {.name = "half", .shape = {2}, .type = TensorType::FLOAT16, .data = BytesOf(halves)},
                    {.name = "wide", .shape = {2}},
                    {.name = "q", .shape = {2}, .type = TensorType::INT8, .data = {3, 255}, .scale = {0.5f}, .zero_point = {1}},
                    {.name = "real", .shape = {2}},
                    {.name = "y", .shape = {2}},
                    {.name = "z", .shape = {2}}},
        .inputs = {0},
        .outputs = {6},
        .ops = {{.code = BuiltinOperator::DEQUANTIZE, .inputs = {1}, .outputs = {2}},
                {.code = BuiltinOperator::DEQUANTIZE, .inputs = {3}, .outputs = {4}},
                {.code = BuiltinOperator::ADD, .inputs = {0, 2}, .outputs = {5}},
                {.code = BuiltinOperator::ADD, .inputs = {5, 4}, .outputs = {6}}}}}};
  auto graph = Import(model);
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  ASSERT_EQ(graph->nodes.size(), 2u) << Format(*graph);
  const Value& wide = graph->value(graph->nodes[0].inputs[1]);
  EXPECT_EQ(wide.type.dtype, DType::kF32);
  EXPECT_EQ(wide.constant->dtype(), DType::kF16) << "half the bytes to upload";
  EXPECT_EQ(wide.constant->Get(1), -2);
  const Value& real = graph->value(graph->nodes[1].inputs[1]);
  EXPECT_EQ(real.constant->Get(0), 1);
  EXPECT_EQ(real.constant->Get(1), -1);
}

TEST(Tflite, QuantizedWeightsOfAFloatOperatorBecomeFloats) {
  TestModel model{{{.tensors = {{.name = "x", .shape = {1, 2}},
                                {.name = "w",
                                 .shape = {2, 2},
                                 .type = TensorType::INT8,
                                 .data = {1, 2, 3, 4},
                                 .scale = {1, 10},
                                 .zero_point = {0, 0}},
                                {.name = "y", .shape = {1, 2}},
                                {.name = "ids", .shape = {1}, .type = TensorType::INT32},
                                {.name = "row",
                                 .shape = {1, 2},
                                 .type = TensorType::INT8,
                                 .scale = {1, 10},
                                 .zero_point = {0, 0},
                                 .quantized_dimension = 1}},
                    .inputs = {0, 3},
                    .outputs = {2, 4},
                    .ops = {{.code = BuiltinOperator::FULLY_CONNECTED, .inputs = {0, 1, -1}, .outputs = {2}},
                            {.code = BuiltinOperator::GATHER, .inputs = {1, 3}, .outputs = {4}}}}}};
  auto graph = Import(model, {.find_op = SomeOps});
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  const Value& w = graph->value(graph->nodes[0].inputs[1]);
  EXPECT_EQ(w.type.dtype, DType::kF32);
  EXPECT_EQ(w.constant->Get(2), 30) << "row 1 has scale 10";
  EXPECT_EQ(graph->nodes[0].inputs[2], kNoValue);
  EXPECT_EQ(graph->value(graph->nodes[1].inputs[0]).type.dtype, DType::kI8) << "rows are gathered as they are";
}

TEST(Tflite, AnUnknownCompositeBecomesItsDecomposition) {
  TestSubgraph main{.tensors = {{.name = "x", .shape = {2}}, {.name = "y", .shape = {2}}},
                    .inputs = {0},
                    .outputs = {1},
                    .ops = {{.code = BuiltinOperator::STABLEHLO_COMPOSITE,
                             .inputs = {0},
                             .outputs = {1},
                             .custom_code = "lib.twice",
                             .composite_subgraph = 1}}};
  TestSubgraph inner{.tensors = {{.name = "a", .shape = {2}}, {.name = "b", .shape = {2}}},
                     .inputs = {0},
                     .outputs = {1},
                     .ops = {{.code = BuiltinOperator::ADD, .inputs = {0, 0}, .outputs = {1}}}};
  auto graph = Import({{main, inner}}, {.find_op = SomeOps});
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  ASSERT_EQ(graph->nodes.size(), 1u);
  EXPECT_EQ(graph->nodes[0].name, "y/b");
  EXPECT_EQ(graph->nodes[0].inputs, (std::vector<ValueId>{graph->inputs[0], graph->inputs[0]}));

  inner.ops = {{.code = BuiltinOperator::STABLEHLO_COMPOSITE,
                .inputs = {0},
                .outputs = {1},
                .custom_code = "lib.self",
                .composite_subgraph = 1}};
  EXPECT_REFUSED((TestModel{{main, inner}}), "call themselves");
  main.ops[0].composite_subgraph = 7;
  EXPECT_REFUSED((TestModel{{main, inner}}), "subgraph 7 of 2");
}

TEST(Tflite, RefusalsNameWhatIsWrong) {
  TestModel good = SmallNetwork();
  auto change = [&](auto edit) {
    TestModel model = good;
    edit(model);
    return model;
  };
  using M = TestModel&;
  ASSERT_EQ(Refusal(good), "accepted");
  EXPECT_REFUSED(change([](M m) { m.version = 2; }), "version 2, expected 3");
  EXPECT_REFUSED(change([](M m) {
                   m.subgraphs.clear();
                   m.signature_inputs.clear();
                 }),
                 "no subgraph");
  EXPECT_REFUSED(change([](M m) { m.subgraphs[0].inputs = {7}; }), "an input of subgraph 0 names tensor 7 of 7");
  EXPECT_REFUSED(change([](M m) { m.subgraphs[0].inputs = {0, 0}; }), "listed twice");
  EXPECT_REFUSED(change([](M m) { m.subgraphs[0].outputs = {-1}; }), "an output of subgraph 0 names tensor -1");
  EXPECT_REFUSED(change([](M m) {
                   m.subgraphs[0].ops[1].inputs = {3, 99};
                 }),
                 "an input of operator 1 of subgraph 0 names tensor 99");
  EXPECT_REFUSED(change([](M m) { m.subgraphs[0].ops[1].outputs = {-1}; }), "an output of operator 1");
  EXPECT_REFUSED(change([](M m) { m.subgraphs[0].ops[1].opcode_index = 3; }), "operator code 3 of 3");
  EXPECT_REFUSED(change([](M m) { m.subgraphs[0].tensors[1].buffer = 99; }), "tensor 1 of subgraph 0 names buffer 99");
  EXPECT_REFUSED(change([](M m) { m.subgraphs[0].tensors[1].data.pop_back(); }),
                 "tensor 1 \"filter\" of f32[3, 1, 1, 2] needs 24 bytes");
  EXPECT_REFUSED(change([](M m) { m.subgraphs[0].tensors[1].shape[0] = -3; }), "tensor 1 \"filter\"");
  EXPECT_REFUSED(change([](M m) { m.subgraphs[0].tensors[1].shape = {1 << 30, 1 << 30, 1 << 30}; }), "tensor 1 \"filter\"");
  EXPECT_REFUSED(change([](M m) { m.subgraphs[0].tensors[3].shape = {1, 1, 1, 1, 1, 1, 1, 1, 12}; }), "tensor 3 \"conv\"");
  EXPECT_REFUSED(change([](M m) { m.subgraphs[0].tensors[3].type = TensorType::COMPLEX64; }), "COMPLEX64");
  EXPECT_REFUSED(change([](M m) { m.subgraphs[0].tensors[3].type = TensorType(99); }), "number 99");
  EXPECT_REFUSED(change([](M m) { m.subgraphs[0].tensors[2].data.clear(); }), "tensor 2 \"bias\" is read before it is written");
  EXPECT_REFUSED(change([](M m) { m.subgraphs[0].tensors[2].is_variable = true; }), "is a variable");
  EXPECT_REFUSED(change([](M m) { m.subgraphs[0].ops[2].outputs = {3}; }), "tensor 3 \"conv\" is written twice");
  EXPECT_REFUSED(change([](M m) { m.subgraphs[0].ops[2].outputs = {0}; }), "tensor 0 \"image\" is written twice");
  EXPECT_REFUSED(change([](M m) { m.subgraphs[0].ops[2].outputs = {}; }), "without outputs");
  EXPECT_REFUSED(change([](M m) { m.subgraphs[0].ops[2].code = BuiltinOperator::CUSTOM; }), "custom operator without a name");
  EXPECT_REFUSED(change([](M m) { m.signature_inputs = {{"x", 6}}; }), "names tensor 6 as input \"x\"");
  EXPECT_REFUSED(change([](M m) { m.signature_outputs = {{"y", 1000}}; }), "names tensor 1000 as output");
  auto quantized = [&](std::vector<float> scale, std::vector<int64_t> zero_point, int axis) {
    TestModel m = good;
    TestTensor& shape = m.subgraphs[0].tensors[4];
    shape.scale = std::move(scale), shape.zero_point = std::move(zero_point), shape.quantized_dimension = axis;
    return m;
  };
  EXPECT_REFUSED(quantized({1, 2}, {0}, 0), "2 scales and 1 zero points");
  EXPECT_REFUSED(quantized({0}, {0}, 0), "scale 0");
  EXPECT_REFUSED(quantized({INFINITY}, {0}, 0), "scale inf");
  EXPECT_REFUSED(quantized({1, 2}, {0, 0}, 1), "axis 1 of [2]");
  EXPECT_REFUSED(quantized({1, 2, 3}, {0, 0, 0}, 0), "3 scales for axis 0 of [2]");
  std::string missing = Refusal(good, {.signature = "other", .find_op = NoOp, .keep_unknown_ops = true});
  EXPECT_NE(missing.find("it has [serve]"), std::string::npos) << missing;
}

TEST(Tflite, FilesThatAreNoModelsAreRefused) {
  auto message = [](std::vector<std::byte> bytes) {
    auto graph = ImportTflite(MappedFile::FromBytes(std::move(bytes), "x"), kReadOnly);
    return graph.ok() ? "accepted" : graph.error().message;
  };
  EXPECT_NE(message({}).find("0 bytes"), std::string::npos);
  EXPECT_NE(message(std::vector<std::byte>(64, std::byte('A'))).find("\"AAAA\", expected \"TFL3\""), std::string::npos);
  auto bytes = WriteTestModel(SmallNetwork());
  std::fill(bytes.begin() + 8, bytes.begin() + 64, std::byte(0xff));
  EXPECT_NE(message(bytes).find("damaged"), std::string::npos);
}

TEST(Tflite, TruncationAtEveryOffsetIsRefused) {
  for (bool data_behind : {false, true}) {
    TestModel model = SmallNetwork();
    model.data_behind = data_behind;
    auto bytes = WriteTestModel(model);
    for (size_t n = 0; n < bytes.size(); ++n) {
      auto graph = ImportTflite(MappedFile::FromBytes({bytes.begin(), bytes.begin() + std::ptrdiff_t(n)}, "cut"), kReadOnly);
      // FlatBuffers end with padding of the last vector; cutting that loses nothing.
      if (graph.ok()) { EXPECT_GE(n + 16, bytes.size()) << n; }
    }
  }
}

TEST(Tflite, ConstantsAtOddAddressesAreCopied) {
  auto bytes = WriteTestModel(SmallNetwork());
  std::vector<std::byte> shifted(bytes.size() + 64);
  for (size_t shift = 1; shift < 16; ++shift) {
    std::copy(bytes.begin(), bytes.end(), shifted.begin() + std::ptrdiff_t(shift));
    auto graph = ImportTflite(std::span(shifted).subspan(shift, bytes.size()), "shifted", nullptr, {.find_op = SomeOps});
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    const HostTensor& filter = *graph->value(graph->nodes[0].inputs[1]).constant;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(filter.bytes().data()) % 4, 0u);
    EXPECT_EQ(filter.Get(5), 6);
  }
}

// -- Sparse tensors --------------------------------------------------------------------------------------------------------

struct SparseForm {
  std::vector<int> order;                   // of the tensor's axes, then of the axes inside blocks
  std::vector<std::pair<int, int>> blocks;  // axis and size
  std::vector<bool> sparse;                 // by level
};

// Writes a dense tensor in a sparse form: the tree of levels, elements at its leaves.
struct SparseWriter {
  const HostTensor& dense;
  const SparseForm& form;
  std::vector<int64_t> extents;  // of the blocked axes
  std::vector<std::vector<int32_t>> segments, indices;
  std::vector<float> stored;

  SparseWriter(const HostTensor& tensor, const SparseForm& f)
      : dense(tensor), form(f), segments(f.order.size(), {0}), indices(f.order.size()) {
    for (int i = 0; i < tensor.shape().rank(); ++i) extents.push_back(tensor.shape()[i]);
    for (auto [axis, size] : form.blocks) extents[size_t(axis)] /= size, extents.push_back(size);
    std::vector<int64_t> coords(extents.size());
    Write(0, coords);
  }

  int64_t Element(const std::vector<int64_t>& coords) const {
    int64_t element = 0;
    for (int i = 0; i < dense.shape().rank(); ++i) {
      int64_t c = coords[size_t(i)];
      for (size_t b = 0; b < form.blocks.size(); ++b) {
        if (form.blocks[b].first == i) c = c * form.blocks[b].second + coords[size_t(dense.shape().rank()) + b];
      }
      element = element * dense.shape()[i] + c;
    }
    return element;
  }
  bool HasElements(size_t level, std::vector<int64_t>& coords) const {
    if (level == form.order.size()) return dense.Get(Element(coords)) != 0;
    size_t axis = size_t(form.order[level]);
    for (coords[axis] = 0; coords[axis] < extents[axis]; ++coords[axis])
      if (HasElements(level + 1, coords)) return coords[axis] = 0, true;
    return coords[axis] = 0, false;
  }
  void Write(size_t level, std::vector<int64_t>& coords) {
    if (level == form.order.size()) {
      stored.push_back(float(dense.Get(Element(coords))));
      return;
    }
    size_t axis = size_t(form.order[level]);
    for (int64_t c = 0; c < extents[axis]; ++c) {
      coords[axis] = c;
      if (form.sparse[level]) {
        std::vector<int64_t> probe = coords;
        if (!HasElements(level + 1, probe)) continue;
        indices[level].push_back(int32_t(c));
      }
      Write(level + 1, coords);
    }
    coords[axis] = 0;
    if (form.sparse[level]) segments[level].push_back(int32_t(indices[level].size()));
  }

  const tflite_schema::SparsityParameters* Table(flatbuffers::FlatBufferBuilder& b, int width) const {
    std::vector<flatbuffers::Offset<tflite_schema::DimensionMetadata>> dims;
    auto vector =
        [&](const std::vector<int32_t>& values) -> std::pair<tflite_schema::SparseIndexVector, flatbuffers::Offset<void>> {
      if (width == 8) {
        std::vector<uint8_t> narrow(values.begin(), values.end());
        return {tflite_schema::SparseIndexVector::Uint8Vector, tflite_schema::CreateUint8VectorDirect(b, &narrow).Union()};
      }
      if (width == 16) {
        std::vector<uint16_t> narrow(values.begin(), values.end());
        return {tflite_schema::SparseIndexVector::Uint16Vector, tflite_schema::CreateUint16VectorDirect(b, &narrow).Union()};
      }
      return {tflite_schema::SparseIndexVector::Int32Vector, tflite_schema::CreateInt32VectorDirect(b, &values).Union()};
    };
    for (size_t level = 0; level < form.order.size(); ++level) {
      if (form.sparse[level]) {
        auto [segment_type, segment] = vector(segments[level]);
        auto [index_type, index] = vector(indices[level]);
        dims.push_back(tflite_schema::CreateDimensionMetadata(b, tflite_schema::DimensionType::SPARSE_CSR, 0, segment_type,
                                                              segment, index_type, index));
      } else {
        dims.push_back(tflite_schema::CreateDimensionMetadata(b, tflite_schema::DimensionType::DENSE,
                                                              int32_t(extents[size_t(form.order[level])])));
      }
    }
    std::vector<int32_t> order(form.order.begin(), form.order.end()), map;
    for (auto [axis, size] : form.blocks) map.push_back(axis);
    b.Finish(tflite_schema::CreateSparsityParametersDirect(b, &order, &map, &dims));
    return flatbuffers::GetRoot<tflite_schema::SparsityParameters>(b.GetBufferPointer());
  }
};

TEST(TfliteSparse, EveryFormUnpacksToTheDenseTensor) {
  const SparseForm forms[] = {
      {{0, 1}, {}, {false, true}},
      {{0, 1}, {}, {true, true}},
      {{1, 0}, {}, {false, true}},
      {{1, 0}, {}, {true, false}},
      {{0, 1, 2}, {{1, 4}}, {false, true, false}},
      {{0, 1, 2, 3}, {{0, 2}, {1, 4}}, {false, true, false, false}},
      {{0, 1, 3, 2}, {{0, 2}, {1, 2}}, {true, true, false, false}},
  };
  std::mt19937 random(7);
  for (const SparseForm& form : forms) {
    for (int width : {8, 16, 32}) {
      HostTensor dense(DType::kF32, {6, 8});
      for (int64_t i = 0; i < dense.element_count(); ++i) dense.Set(i, random() % 4 == 0 ? double(random() % 100 + 1) : 0);
      SparseWriter writer(dense, form);
      flatbuffers::FlatBufferBuilder builder;
      auto read = Densify(*writer.Table(builder, width), DType::kF32, dense.shape(), std::as_bytes(std::span(writer.stored)));
      ASSERT_TRUE(read.ok()) << read.error().message;
      for (int64_t i = 0; i < dense.element_count(); ++i) ASSERT_EQ(read->Get(i), dense.Get(i)) << i;
    }
  }
}

TEST(TfliteSparse, DescriptionsThatLieAreRefused) {
  HostTensor dense(DType::kF32, {6, 8});
  for (int64_t i = 0; i < 48; i += 5) dense.Set(i, 1);
  SparseForm form{{0, 1}, {}, {false, true}};
  auto refused = [&](auto edit, size_t drop_values = 0) {
    SparseWriter writer(dense, form);
    edit(writer);
    writer.stored.resize(writer.stored.size() - drop_values);
    flatbuffers::FlatBufferBuilder builder;
    return !Densify(*writer.Table(builder, 32), DType::kF32, dense.shape(), std::as_bytes(std::span(writer.stored))).ok();
  };
  EXPECT_FALSE(refused([](SparseWriter&) {}));
  EXPECT_TRUE(refused([](SparseWriter&) {}, 1));
  EXPECT_TRUE(refused([](SparseWriter& w) { w.indices[1][0] = 8; }));
  EXPECT_TRUE(refused([](SparseWriter& w) { w.indices[1][0] = -1; }));
  EXPECT_TRUE(refused([](SparseWriter& w) { w.indices[1].push_back(0); }));
  EXPECT_TRUE(refused([](SparseWriter& w) { w.segments[1][1] = 1000; }));
  EXPECT_TRUE(refused([](SparseWriter& w) { w.segments[1][0] = 1; }));
  EXPECT_TRUE(refused([](SparseWriter& w) { w.segments[1].pop_back(); }));
  EXPECT_TRUE(refused([](SparseWriter& w) { w.extents[0] = 5; }));
}

// -- Real files --------------------------------------------------------------------------------------------------------------

std::vector<std::string> ModelsIn(const std::string& folder) {
  std::vector<std::string> paths;
  if (!std::filesystem::is_directory(folder)) return paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".tflite") paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST(TfliteFiles, EveryGoldenModelIsRead) {
  auto paths = ModelsIn(LEEWAY_SOURCE_DIR "/tests/goldens/tflite-ops");
  ASSERT_GT(paths.size(), 250u);
  int refused = 0;
  for (const std::string& path : paths) {
    auto graph = ImportTflite(path, kReadOnly);
    if (graph.ok()) {
      EXPECT_FALSE(graph->nodes.empty()) << path;
      continue;
    }
    // Only what has no place in a graph of tensors may be refused, and by name.
    EXPECT_EQ(graph.error().code, Code::kUnsupported) << graph.error().message;
    std::cout << graph.error().message << "\n";
    ++refused;
  }
  EXPECT_LE(refused, 4);
}

TEST(TfliteFiles, EveryRealModelIsRead) {
  const char* given = std::getenv("LEEWAY_MODELS");
  auto paths = ModelsIn(given ? given : LEEWAY_SOURCE_DIR "/.cache/models");
  if (paths.empty()) GTEST_SKIP() << "no models in LEEWAY_MODELS or .cache/models";
  for (const std::string& path : paths) {
    auto graph = ImportTflite(path, kReadOnly);
    if (path.find("/wake_") != std::string::npos) {  // streaming models with variables
      EXPECT_FALSE(graph.ok());
      if (!graph.ok()) { EXPECT_NE(graph.error().message.find("variables"), std::string::npos) << graph.error().message; }
      continue;
    }
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    EXPECT_GT(graph->nodes.size(), 10u) << path;
    EXPECT_FALSE(graph->outputs.empty()) << path;
    if (path.find("selfie_segmentation.tflite") != std::string::npos) {
      EXPECT_EQ(graph->metadata["input0.mean"], "0");
      EXPECT_EQ(graph->metadata["input0.std"], "255");
    }
  }
}

}  // namespace
}  // namespace leeway
