// kernel_text_test: the kernels of all operators run as MSL. Each row of the operator tables is planned for Metal and printed,
// and the texts run on the CPU and are compared with the reference. (WGSL and OpenCL C run in kernel_device_test; ops_test
// shows the texts of all languages to their compilers.)
//
// The tests are "Kernels.<op>/<row>", which print and collect, then "Texts.msl" over all that was collected: the compiler is
// started few times, for many texts each.
#include <algorithm>
#include <cstdlib>

#include "base/strings.h"
#include "check_text.h"
#include "metal/msl_cpu.h"
#include "ops/op_test_plan.h"

namespace leeway::op_test {

namespace {

using shader::KernelText;
using shader::Language;

constexpr size_t kTextsPerRun = 64;

// A planned row and its texts in MSL.
struct MslRun {
  std::unique_ptr<TestPlan> plan;
  std::vector<KernelText> texts;  // per dispatch
};
struct Collected {
  std::vector<MslRun> runs;
  int kernel_count = 0;
};
Collected& All() {
  static Collected all;
  return all;
}

shader::Target MslTarget() {
  shader::Target target = shader::TypicalTarget(Language::kMsl);
  target.image_buffer = false;
  return target;
}

// Every text has an entry point of its own name, so that many can be compiled together.
Result<KernelText> PrintDispatch(const TestPlan& plan, size_t index, const shader::Target& target) {
  const KernelDispatch& dispatch = plan.plan.dispatches[index];
  ASSIGN_OR_RETURN(shader::Module module, shader::Parse(dispatch.kernel_text, dispatch.kernel_name));
  module.name = StrCat(module.name, "_", All().kernel_count++);
  return shader::Compile(module, plan.dispatches[index].specialization, target);
}

void CollectRow(const std::string& op_name, const OpTestRow& op_row) {
  if (op_row.cpu_only) return;
  const auto row = Prepare(op_name, op_row, false), half_row = Prepare(op_name, op_row, true);
  if (!row || !half_row) return;
  const std::vector<TestConfig> configs = ConfigsFor(*row);
  const shader::Target target = MslTarget();
  size_t way = row->seed % configs.size();  // one way for each row and variant, so that all are met over the tables
  for (const KernelVariant* variant : VariantsFor(*row, target, false)) {
    const TestConfig& config = configs[way++ % configs.size()];
    const bool may_refuse = config.may_be_unsupported() || config.in_parts;
    auto plan = PlanRow(config.f16 ? *half_row : *row, *variant, config, target);
    if (!plan.ok()) {
      if (may_refuse && plan.error().code == Code::kUnsupported) continue;
      ADD_FAILURE() << "variant " << variant->name << ", " << config.name << ": " << plan.error().message;
      continue;
    }
    SCOPED_TRACE((*plan)->label);
    MslRun run;
    for (size_t i = 0; i < (*plan)->plan.dispatches.size(); ++i) {
      auto text = PrintDispatch(**plan, i, target);
      if (!text.ok()) {
        EXPECT_TRUE(may_refuse && text.error().code == Code::kUnsupported) << text.error().message;
        run.texts.clear();
        break;
      }
      run.texts.push_back(std::move(*text));
    }
    if (run.texts.empty()) continue;
    run.plan = std::move(*plan);
    All().runs.push_back(std::move(run));
  }
}

Status RunAsMsl(MslRun& run, const std::map<std::string, const msl::Kernel*>& kernels) {
  std::map<TestPiece, std::vector<std::unique_ptr<msl::GuardedBytes>>> memory;  // per part
  std::vector<std::unique_ptr<msl::GuardedBytes>> scratches;
  TestPlan& test = *run.plan;
  for (size_t i = 0; i < run.texts.size(); ++i) {
    const KernelDispatch& dispatch = test.plan.dispatches[i];
    const KernelText& text = run.texts[i];
    if (dispatch.workgroups[0] == 0 || dispatch.workgroups[1] == 0 || dispatch.workgroups[2] == 0) continue;
    msl::Bindings bindings;
    std::vector<std::unique_ptr<msl::Texture>> textures;
    int buffers = 0, texture_count = 0;
    for (const shader::BindingInfo& binding : text.bindings) {
      if (binding.kind == shader::BindingInfo::Kind::kScratch) {
        scratches.push_back(std::make_unique<msl::GuardedBytes>(std::vector<std::byte>(binding.scratch_bytes)));
        bindings.buffer[buffers++] = scratches.back()->address();
        continue;
      }
      auto source = test.dispatches[i].sources.find(binding.tensor);
      if (source == test.dispatches[i].sources.end()) {
        return Error{Code::kInternal,
                     StrCat("Binding ", binding.name, " is for tensor ", binding.tensor, ", which is not known.")};
      }
      const TestPiece tensor = test.Find(source->second);
      const Placement placement = tensor.placement();
      auto& parts = memory[tensor];
      if (parts.empty()) {
        const size_t part_bytes = placement.elements_per_part > 0
                                      ? size_t(placement.elements_per_part) * DTypeBits(placement.dtype) / 8
                                      : tensor.bytes().size();
        for (int part = 0; part < placement.part_count(); ++part) {
          const size_t begin = part_bytes * size_t(part);
          parts.push_back(std::make_unique<msl::GuardedBytes>(
              std::span(tensor.bytes()).subspan(begin, std::min(part_bytes, tensor.bytes().size() - begin))));
        }
      }
      const uint64_t address = parts[size_t(binding.part)]->address();
      if (binding.kind == shader::BindingInfo::Kind::kBuffer) {
        bindings.buffer[buffers++] = address;
        continue;
      }
      const auto& extent = placement.texture_extent;
      textures.push_back(std::make_unique<msl::Texture>(msl::Texture{reinterpret_cast<void*>(address), std::max(extent[0], 1u),
                                                                     std::max(extent[1], 1u), std::max(extent[2], 1u),
                                                                     placement.dtype == DType::kF16}));
      bindings.texture[texture_count++] = reinterpret_cast<uint64_t>(textures.back().get());
    }
    const uint32_t *groups = dispatch.workgroups, *size = text.workgroup_size;
    RETURN_IF_ERROR_CONTEXT(msl::Run(*kernels.at(text.entry_point), bindings, {groups[0], groups[1], groups[2]},
                                     {size[0], size[1], size[2]}, msl::Order::kShuffled),
                            text.text);
  }
  for (TestTensor& output : test.outputs) {
    auto made = memory.find({&output, false});
    if (made == memory.end()) continue;
    auto to = output.bytes.begin();
    for (const auto& part : made->second) to = std::copy(part->bytes().begin(), part->bytes().end(), to);
  }
  return {};
}

class MslTest : public testing::Test {
 public:
  void TestBody() override {
    LEEWAY_NEED_CHECKER(Language::kMsl);
    std::vector<MslRun>& runs = All().runs;
    RecordProperty("runs", int(runs.size()));
    for (size_t at = 0; at < runs.size(); at += kTextsPerRun) {
      const std::span<MslRun> some = std::span(runs).subspan(at, std::min(kTextsPerRun, runs.size() - at));
      std::vector<std::string> texts;
      for (const MslRun& run : some) {
        for (const KernelText& text : run.texts) texts.push_back(text.text);
      }
      auto library = msl::Compile(texts, LEEWAY_SOURCE_DIR "/tests/metal/msl", LEEWAY_BINARY_DIR "/msl_cache");
      if (!library.ok()) {
        ADD_FAILURE() << library.error().message;
        continue;
      }
      std::map<std::string, const msl::Kernel*> kernels;
      for (const auto& [name, kernel] : (*library)->kernels) kernels[name] = &kernel;
      for (MslRun& run : some) {
        SCOPED_TRACE(run.plan->label);
        const Status status = RunAsMsl(run, kernels);
        if (!status.ok()) {
          ADD_FAILURE() << status.error().message;
          continue;
        }
        EXPECT_EQ(run.plan->CheckOutputs(), "");
      }
    }
  }
};

}  // namespace

}  // namespace leeway::op_test

int main(int argc, char** argv) {
  using namespace leeway::op_test;
  testing::InitGoogleTest(&argc, argv);
  if (testing::GTEST_FLAG(filter) == "*") testing::GTEST_FLAG(filter) = "Kernels.*:Texts.*";  // not the tests of references
  SetRowRunner(CollectRow);
  testing::RegisterTest("Texts", "msl", nullptr, nullptr, __FILE__, __LINE__, []() -> testing::Test* { return new MslTest; });
  return RUN_ALL_TESTS();
}
