#include "runtime/weight_upload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/strings.h"
#include "block_types.h"
#include "runtime/check.h"
#include "runtime/device_plan.h"
#include "runtime/test_devices.h"
#include "runtime/weight_store.h"
#include "shader/interpret.h"
#include "tensor/block_pack.h"
#include "tensor/block_quant.h"

namespace leeway {
namespace {

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
  for (DType dtype : kBlockTypes) {
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
    for (DType dtype : kBlockTypes) {
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

// A stack of three matrices; the first and the last begin where a binding can, the second does not (its factors do not).
TEST(WeightStore, PartsOfAStackAreNotUploadedAgain) {
  using Piece = AssembledDispatch::Source::Piece;
  ThreadPool pool(2);
  std::vector<std::shared_ptr<const HostTensor>> matrices;
  for (const int64_t rows : {8, 24, 32}) {
    matrices.push_back(std::make_shared<HostTensor>(RandomBlocks(DType::kQ4_0, {rows, 256}, uint32_t(rows))));
  }
  const BlockFormat format = BlockFormatOf(DType::kQ4_0, true);
  auto resource_of = [&](std::vector<std::shared_ptr<const HostTensor>> stack, Piece piece) {
    PlanResource resource;
    resource.kind = PlanResource::Kind::kConstant;
    resource.name = "w";
    resource.format = format;
    resource.piece = piece;
    for (const auto& matrix : stack) {
      const size_t elements = size_t(matrix->element_count());
      resource.size_bytes += piece == Piece::kFactors ? FactorsBytes(format, elements) : QuantsBytes(format, elements);
    }
    resource.constant = stack[0];
    resource.stacked.assign(stack.begin() + 1, stack.end());
    return resource;
  };
  for (const std::string& name : TestDevices()) {
    SCOPED_TRACE(name);
    auto opened = OpenDevice(name, {});
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    Device& device = **opened;
    WeightStore store;
    for (const Piece piece : {Piece::kQuants, Piece::kFactors}) {
      const PlanResource stack[] = {resource_of(matrices, piece)};
      const auto at = store.Take(stack, device, pool);
      ASSERT_TRUE(at.ok()) << at.error().message;
    }
    for (size_t m = 0; m < matrices.size(); ++m) {
      const uint64_t before = store.size_bytes();
      const PlanResource alone[] = {resource_of({matrices[m]}, Piece::kQuants), resource_of({matrices[m]}, Piece::kFactors)};
      const auto at = store.Take(alone, device, pool);
      ASSERT_TRUE(at.ok()) << at.error().message;
      // Factors of eight rows of eight blocks are 128 bytes.
      EXPECT_EQ(store.size_bytes() == before, m != 1) << m;
      std::vector<float> got;
      auto event = device.Read({{(*at)[0].buffer, (*at)[0].offset_bytes, alone[0].size_bytes},
                                {(*at)[1].buffer, (*at)[1].offset_bytes, alone[1].size_bytes}},
                               [&](auto read) {
                                 ASSERT_TRUE(read.ok()) << read.error().message;
                                 got = Unpacked(format, (*read)[0], (*read)[1], size_t(matrices[m]->element_count()));
                               });
      ASSERT_TRUE(event.ok());
      ASSERT_TRUE(device.Wait(*event).ok());
      EXPECT_TRUE(got == matrices[m]->ToF32()) << m;
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

// A matrix that is larger than a binding is bound in parts, cut between rows.
TEST(QuantizedConstants, LargeOnesAreBoundInParts) {
  ThreadPool pool(2);
  ProgramCache cache("");
  const HostTensor w = RandomBlocks(DType::kQ8_0, {200, 64}, 6);
  std::vector<float> x(64);
  for (size_t i = 0; i < x.size(); ++i) x[i] = float(i % 7) / 4 - 0.7f;
  const std::vector<float> weights = w.ToF32();
  std::vector<double> expected(200, 0.0);
  double largest = 0;
  for (size_t o = 0; o < 200; ++o) {
    for (size_t i = 0; i < 64; ++i) expected[o] += double(weights[o * 64 + i]) * x[i];
    largest = std::max(largest, std::abs(expected[o]));
  }
  for (const std::string& name : TestDevices()) {
    SCOPED_TRACE(name);
    auto opened = OpenDevice(name, {});
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    Device& device = **opened;
    Graph graph;
    auto add_value = [&](const char* label, Shape shape) {
      Value value;
      value.name = label;
      value.type = {DType::kF32, shape};
      return graph.AddValue(std::move(value));
    };
    const ValueId input = add_value("x", {1, 64}), output = add_value("y", {1, 200});
    Node node;
    node.name = "linear";
    node.op = FindOp("linear");
    node.inputs = {input, graph.AddConstant("w", w)};
    node.outputs = {output};
    graph.nodes.push_back(std::move(node));
    graph.inputs = {input};
    graph.outputs = {output};
    // Room for 64 rows of quants and for all factors.
    DeviceInfo info = device.info();
    info.target.storage.max_binding_bytes = 5000;
    PlanOptions options;
    options.require_gpu = true;
    auto plan = MakePlan(std::move(graph), &info, options, pool);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    int parts = 0;
    for (const PlanResource& resource : plan->resources) {
      if (resource.piece == AssembledDispatch::Source::Piece::kQuants) parts = resource.placement.part_count();
    }
    EXPECT_EQ(parts, 4);
    auto objects = DevicePlan::Make(*plan, device, cache, pool, nullptr);
    ASSERT_TRUE(objects.ok()) << objects.error().message;
    ASSERT_TRUE((*objects)->Write(device, plan->value_resource[size_t(input)], std::as_bytes(std::span(x))).ok());
    for (const auto& step : (*objects)->recordings) {
      for (const auto& recording : step) ASSERT_TRUE(device.Submit(*recording, {}).ok());
    }
    const ResourceLocation& at = (*objects)->locations[size_t(plan->value_resource[size_t(output)])];
    auto event = device.Read({{at.buffer, at.offset_bytes, 800}}, [&](auto read) {
      ASSERT_TRUE(read.ok()) << read.error().message;
      const auto* y = reinterpret_cast<const float*>((*read)[0].data());
      for (size_t o = 0; o < 200; ++o) EXPECT_NEAR(y[o], expected[o], 1e-4 * largest) << "row " << o;
    });
    ASSERT_TRUE(event.ok());
    EXPECT_TRUE(device.Wait(*event).ok());
  }
}

}  // namespace
}  // namespace leeway
