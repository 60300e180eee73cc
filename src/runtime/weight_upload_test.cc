#include "runtime/weight_upload.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/strings.h"
#include "runtime/check.h"
#include "runtime/test_devices.h"
#include "shader/interpret.h"
#include "tensor/block_pack.h"
#include "tensor/block_quant.h"

namespace leeway {
namespace {

constexpr DType kTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kIQ4_NL,
                            DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

std::vector<size_t> HalvesOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K: return {0, 2};
    case DType::kQ2_K: return {80, 82};
    case DType::kQ3_K: return {108};
    case DType::kQ6_K: return {208};
    default: return {0};
  }
}

// Any bytes are blocks; the scales are numbers below 2, the smallest halves among them.
HostTensor RandomBlocks(DType dtype, Shape shape, uint32_t seed) {
  std::mt19937 random(seed);
  HostTensor tensor(dtype, shape);
  const auto bytes = tensor.mutable_bytes();
  for (std::byte& b : bytes) b = std::byte(random());
  for (size_t block = 0; block * BlockBytes(dtype) < bytes.size(); ++block) {
    for (size_t at : HalvesOf(dtype)) bytes[block * BlockBytes(dtype) + at + 1] &= std::byte(random() % 8 ? 0xBF : 0x83);
  }
  return tensor;
}

std::vector<float> Unpacked(const BlockFormat& format, std::span<const std::byte> quants, std::span<const std::byte> factors,
                            size_t elements) {
  std::vector<float> values(elements);
  UnpackPieces(format, quants, factors, values);
  return values;
}

TEST(RepackKernel, KeepsEveryElementOnTheInterpreter) {
  for (DType dtype : kTypes) {
    for (bool f16 : {true, false}) {
      for (size_t blocks : {size_t(1), size_t(6), size_t(7)}) {
        SCOPED_TRACE(StrCat(DTypeName(dtype), ", ", blocks, " blocks"));
        const BlockFormat format = BlockFormatOf(dtype, f16);
        const size_t elements = blocks * BlockElements(dtype);
        const HostTensor tensor = RandomBlocks(dtype, {1, int64_t(elements)}, 5);
        const RepackKernel kernel = RepackKernelFor(dtype, format, 7);
        auto bytes_of = [&](const char* name) {
          return std::vector<std::byte>(size_t(kernel.specialization.tensors.at(name).placement.storage_bytes()));
        };
        std::vector<std::byte> raw = bytes_of("raw"), quants = bytes_of("quants"), factors = bytes_of("factors");
        const uint32_t count = uint32_t(blocks);
        std::memcpy(raw.data(), &count, 4);
        std::memcpy(raw.data() + kRepackHeaderBytes, tensor.bytes().data(), tensor.bytes().size());
        const shader::Target target = shader::MinimalWgslTarget();
        auto module = shader::Parse(kernel.text, kernel.name);
        ASSERT_TRUE(module.ok()) << module.error().message;
        auto bound = shader::Bind(*module, kernel.specialization, target);
        ASSERT_TRUE(bound.ok()) << bound.error().message;
        auto lowered = shader::Lower(*bound, target);
        ASSERT_TRUE(lowered.ok()) << lowered.error().message;
        shader::InterpretMemory memory;
        memory.tensors = {{"raw", raw}, {"quants", quants}, {"factors", factors}};
        memory.placements = shader::PlacementsOf(kernel.specialization.tensors);
        const uint32_t groups[3] = {kernel.workgroups, 1, 1};
        auto result = shader::Interpret(*lowered, groups, memory, {});
        ASSERT_TRUE(result.ok()) << result.error().message;
        for (const auto& fault : result->faults) ADD_FAILURE() << fault.message;
        EXPECT_EQ(Unpacked(format, quants, factors, elements), tensor.ToF32());
        if (HasFailure()) return;
      }
    }
  }
}

// In slices, into the middle of a buffer, by kernels and by the host.
TEST(UploadQuantized, KeepsEveryElementOnDevices) {
  ThreadPool pool(2);
  for (const std::string& name : TestDevices()) {
    auto opened = OpenDevice(name, {});
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    Device& device = **opened;
    for (DType dtype : kTypes) {
      for (bool on_device : {true, false}) {
        SCOPED_TRACE(StrCat(name, ", ", DTypeName(dtype), on_device ? ", kernels" : ", host"));
        const size_t blocks = BlockElements(dtype) == 32 ? 2049 : 1027;
        const size_t elements = blocks * BlockElements(dtype);
        const HostTensor tensor = RandomBlocks(dtype, {1, int64_t(elements)}, 9);
        QuantizedUpload upload{.constant = &tensor, .format = BlockFormatOf(dtype, on_device), .name = "w"};
        const size_t quants_bytes = QuantsBytes(upload.format, elements);
        const size_t factors_bytes = (FactorsBytes(upload.format, elements) + 3) / 4 * 4;
        upload.quants_offset_bytes = 512;
        upload.factors_offset_bytes = (512 + quants_bytes + 255) / 256 * 256;
        auto buffer = device.CreateBuffer(upload.factors_offset_bytes + factors_bytes + 16, "w");
        ASSERT_TRUE(buffer.ok());
        upload.quants = upload.factors = buffer->get();
        const Status status =
            UploadQuantized(device, pool, {&upload, 1}, {.on_device = on_device, .slice_bytes = 1024 * BlockBytes(dtype)});
        ASSERT_TRUE(status.ok()) << status.error().message;
        std::vector<float> got;
        auto event = device.Read({{buffer->get(), upload.quants_offset_bytes, quants_bytes},
                                  {buffer->get(), upload.factors_offset_bytes, factors_bytes}},
                                 [&](auto read) {
                                   ASSERT_TRUE(read.ok()) << read.error().message;
                                   got = Unpacked(upload.format, (*read)[0], (*read)[1], elements);
                                 });
        ASSERT_TRUE(event.ok());
        ASSERT_TRUE(device.Wait(*event).ok());
        EXPECT_TRUE(got == tensor.ToF32());
        if (HasFailure()) return;
      }
    }
  }
}

// A graph with quantized constants: read as blocks by linear and embed_tokens (one tensor for both), and widened by an operator
// that takes them through a fused step.
TEST(QuantizedConstants, GraphsRunOnDevices) {
  ProgramCache cache("");
  for (const std::string& name : TestDevices()) {
    SCOPED_TRACE(name);
    auto opened = OpenDevice(name, {});
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    Graph graph;
    const ValueId table = graph.AddConstant("table", RandomBlocks(DType::kQ8_0, {50, 64}, 1));
    const ValueId up = graph.AddConstant("up", RandomBlocks(DType::kQ4_0, {96, 64}, 2));
    const ValueId down = graph.AddConstant("down", RandomBlocks(DType::kQ4_1, {64, 96}, 3));
    const ValueId added = graph.AddConstant("added", RandomBlocks(DType::kQ4_0, {2, 64}, 4));
    auto add_value = [&](const char* label, DType dtype, Shape shape) {
      Value value;
      value.name = label;
      value.type = {dtype, shape};
      return graph.AddValue(std::move(value));
    };
    auto add_node = [&](const char* op, std::vector<ValueId> inputs, Shape shape) {
      Node node;
      node.name = StrCat(op, graph.nodes.size());
      node.op = FindOp(op);
      ASSERT_NE(node.op, nullptr) << op;
      if (node.name[0] == 'e') node.attrs.Set("rows", int64_t{2});
      node.inputs = std::move(inputs);
      node.outputs = {add_value(node.name.c_str(), DType::kF32, shape)};
      graph.nodes.push_back(std::move(node));
    };
    const ValueId tokens = add_value("tokens", DType::kI32, {9}), step = add_value("step", DType::kI32, {8});
    graph.inputs = {tokens, step};
    add_node("embed_tokens", {table, tokens, step}, {2, 64});
    add_node("linear", {graph.nodes[0].outputs[0], up}, {2, 96});
    add_node("linear", {graph.nodes[1].outputs[0], down}, {2, 64});
    add_node("add", {graph.nodes[2].outputs[0], added}, {2, 64});
    add_node("linear", {graph.nodes[3].outputs[0], table}, {2, 50});
    graph.outputs = {graph.nodes[4].outputs[0]};
    ASSERT_TRUE(Verify(graph).ok()) << Verify(graph).error().message;
    const HostTensor ids = HostTensor::FromI32({9}, std::vector<int32_t>{1, 2, 3, 49, 5, 6, 7, 8, 9});
    const HostTensor at = HostTensor::FromI32({8}, std::vector<int32_t>{2, 2, 0, 0, 0, 0, 0, 0});
    const HostTensor inputs[] = {ids, at};
    PlanOptions options;
    options.require_gpu = true;
    auto report = CheckNodes(graph, inputs, **opened, options, {}, cache);
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_EQ(report->nodes.size(), 5u);
    EXPECT_EQ(report->first_difference, -1);
  }
}

}  // namespace
}  // namespace leeway
