// Runs rows of table tests on the interpreter, before and after lowering, and prints their kernels for every target.
#include <map>
#include <set>

#include "base/strings.h"
#include "check_text.h"
#include "ops/op_test_plan.h"
#include "shader/interpret.h"

namespace leeway::op_test {

namespace {

using shader::Language;
using shader::Target;

enum class Stage { kBound, kLowered };

// Runs one dispatch of the plan. What the kernel does wrong is a GoogleTest failure.
Status RunDispatch(TestPlan& test, size_t index, Stage stage, const Target& target) {
  const KernelDispatch& dispatch = test.plan.dispatches[index];
  const AssembledDispatch& assembled = test.dispatches[index];
  ASSIGN_OR_RETURN(shader::Module module, shader::Parse(dispatch.kernel_text, dispatch.kernel_name));
  ASSIGN_OR_RETURN(shader::BoundKernel bound, shader::Bind(module, assembled.specialization, target));
  shader::InterpretMemory memory;
  memory.placements = shader::PlacementsOf(assembled.specialization.tensors);
  for (const auto& [name, source] : assembled.sources) memory.tensors[name] = test.Find(source).bytes();
  shader::InterpretOptions options;
  options.subgroup_size = target.subgroup_min > 0 ? target.subgroup_min : 4;
  auto run = [&]() -> Result<shader::InterpretResult> {
    if (stage == Stage::kBound) return shader::Interpret(bound, dispatch.workgroups, memory, options);
    ASSIGN_OR_RETURN(shader::LoweredKernel lowered, shader::Lower(bound, target));
    return shader::Interpret(lowered, dispatch.workgroups, memory, options);
  };
  ASSIGN_OR_RETURN(shader::InterpretResult result, run());
  for (const shader::Fault& fault : result.faults) ADD_FAILURE() << fault.message;
  return {};
}

// True if any kernel of the plan uses subgroup functions, so that other sizes are worth a run.
bool UsesSubgroups(const TestPlan& test, const Target& target) {
  for (size_t i = 0; i < test.dispatches.size(); ++i) {
    const KernelDispatch& dispatch = test.plan.dispatches[i];
    auto module = shader::Parse(dispatch.kernel_text, dispatch.kernel_name);
    if (!module.ok()) continue;
    auto bound = shader::Bind(*module, test.dispatches[i].specialization, target);
    if (bound.ok() && bound->uses_subgroups) return true;
  }
  return false;
}

void RunConfig(const PreparedRow& row, const KernelVariant& variant, const TestConfig& config, const Target& target) {
  // Without f16 in the language a half is half a word, which can't be stored by itself.
  const bool may_be_unsupported = config.may_be_unsupported() || (config.f16 && !target.f16);
  auto test = PlanRow(row, variant, config, target);
  if (!test.ok()) {
    if (may_be_unsupported && test.error().code == Code::kUnsupported) return;
    ADD_FAILURE() << "variant " << variant.name << ", " << config.name << ": " << test.error().message;
    return;
  }
  for (Stage stage : {Stage::kBound, Stage::kLowered}) {
    SCOPED_TRACE(StrCat((*test)->label, stage == Stage::kBound ? ", before lowering" : ", after lowering", ", ",
                        target.is_software ? "software target" : "target", target.f16 ? " with f16" : " without f16",
                        target.subgroups ? StrCat(" and subgroups of ", target.subgroup_min) : std::string()));
    (*test)->ClearOutputs();
    for (size_t i = 0; i < (*test)->dispatches.size(); ++i) {
      const Status status = RunDispatch(**test, i, stage, target);
      if (status.ok()) continue;
      if (may_be_unsupported && status.error().code == Code::kUnsupported) return;
      ADD_FAILURE() << status.error().message;
      return;
    }
    EXPECT_EQ((*test)->CheckOutputs(), "");
    if (testing::Test::HasFailure()) return;
  }
}

Target InterpretedTarget(uint32_t subgroup_size) {
  Target target = shader::TypicalTarget(Language::kWgsl);
  target.f16 = true;
  target.subgroups = subgroup_size > 0;
  target.subgroup_matrix = target.subgroups && target.f16;
  target.subgroup_min = target.subgroup_max = subgroup_size;
  target.max_storage_buffers = 32;  // so that tensors can be in parts
  return target;
}

void PrintAll(const PreparedRow& row, bool f16) {
  for (Language language : {Language::kWgsl, Language::kOpenClC, Language::kGlslEs, Language::kMsl}) {
    const Target target = shader::TypicalTarget(language);
    for (const KernelVariant* variant : VariantsFor(row, target, f16)) {
      SCOPED_TRACE(StrCat("variant ", variant->name, " printed as ", shader::LanguageName(language)));
      const TestConfig config{.name = f16 ? "sliced4 f16" : "padded4",
                              .layout = f16 ? Layout::kSliced4 : Layout::kPadded4,
                              .f16 = f16,
                              .epilogue = true};
      auto test = PlanRow(row, *variant, config, target);
      ASSERT_TRUE(test.ok()) << test.error().message;
      for (size_t i = 0; i < (*test)->dispatches.size(); ++i) {
        const KernelDispatch& dispatch = (*test)->plan.dispatches[i];
        auto module = shader::Parse(dispatch.kernel_text, dispatch.kernel_name);
        ASSERT_TRUE(module.ok()) << module.error().message;
        auto text = shader::Compile(*module, (*test)->dispatches[i].specialization, target);
        // Halves stored one by one need f16 in the language; the runtime keeps such tensors in f32 where there is none.
        if (!text.ok() && f16 && !target.f16 && text.error().code == Code::kUnsupported) continue;
        ASSERT_TRUE(text.ok()) << text.error().message;
        EXPECT_FALSE(text->text.empty());
      }
    }
  }
}

void RunRow(const std::string& op_name, const OpTestRow& op_row) {
  const auto row = Prepare(op_name, op_row, false);
  if (!row) return;
  SCOPED_TRACE(StrCat(op_name, "/", op_row.name, ", LEEWAY_TEST_SEED=", row->seed));
  if (op_row.cpu_only) {
    VariantsFor(*row, InterpretedTarget(4), false);
    return;
  }
  const auto half_row = Prepare(op_name, op_row, true);
  if (!half_row) return;
  auto prepared = [&](bool f16) -> const PreparedRow& { return f16 ? *half_row : *row; };

  Target minimal = shader::MinimalWgslTarget();
  Target software = InterpretedTarget(4);
  software.is_software = true;
  software.language = Language::kOpenClC;
  const uint32_t lanes = std::max(op_row.least_subgroup, 4u);
  const Target subgroups = InterpretedTarget(lanes), wide_subgroups = InterpretedTarget(2 * lanes);
  const std::vector<TestConfig> configs = ConfigsFor(*row);
  std::set<const KernelVariant*> done;
  for (const KernelVariant* variant : VariantsFor(*row, subgroups, false)) {
    done.insert(variant);
    for (const TestConfig& config : configs) {
      RunConfig(prepared(config.f16), *variant, config, subgroups);
      if (testing::Test::HasFailure()) return;
    }
    auto test = PlanRow(*row, *variant, configs[0], wide_subgroups);
    if (test.ok() && UsesSubgroups(**test, wide_subgroups)) RunConfig(*row, *variant, configs[0], wide_subgroups);
  }
  // Targets that are asked other things, or answer otherwise: the variants they add, and halves without f16 in the language.
  for (const Target* target : {&minimal, &software}) {
    for (const KernelVariant* variant : VariantsFor(*row, *target, false)) {
      const bool is_new = done.insert(variant).second;
      for (const TestConfig& config : configs) {
        if (!is_new && !(target == &minimal && config.name == configs.back().name)) continue;
        if (!is_new && config.may_be_unsupported()) continue;
        if (target == &minimal && (config.in_parts || config.mixed)) continue;
        RunConfig(prepared(config.f16), *variant, config, *target);
        if (testing::Test::HasFailure()) return;
      }
      if (target == &minimal) {
        const TestConfig half{.name = "sliced4 f16", .layout = Layout::kSliced4, .f16 = true, .epilogue = true};
        RunConfig(*half_row, *variant, half, *target);
      }
      if (testing::Test::HasFailure()) return;
    }
  }
  PrintAll(*row, false);
  PrintAll(*half_row, true);
}

const bool kRunnerIsSet = [] {
  SetRowRunner(RunRow);
  return true;
}();

TEST(OpTableRows, EveryOperatorThatCanRunOnADeviceHasARow) {
  std::set<std::string> tested;
  for (const RegisteredRow& row : RegisteredRows()) {
    if (!row.row->cpu_only) tested.insert(row.op_name);
  }
  std::string missing;
  for (const OpDef* op : AllOps()) {
    const bool runs = op->kernels != nullptr || op->value_map != nullptr || op->movement != nullptr || op->scatter != nullptr;
    if (runs && !tested.count(op->name)) missing += StrCat(" ", op->name);
  }
  EXPECT_EQ(missing, "");
}

// The texts of every variant for a language, from the first rows that it accepts.
std::vector<shader::KernelText> TextsFor(Language language) {
  constexpr int kRowsPerVariant = 2;
  const Target target = shader::TypicalTarget(language);
  std::map<std::pair<std::string, const KernelVariant*>, int> rows_done;
  std::vector<shader::KernelText> texts;
  std::set<std::string> known;
  for (const RegisteredRow& registered : RegisteredRows()) {
    if (registered.row->cpu_only) continue;
    for (bool f16 : {false, true}) {
      const auto row = Prepare(registered.op_name, *registered.row, f16);
      if (!row) return texts;
      for (const KernelVariant* variant : VariantsFor(*row, target, f16)) {
        if (f16 ? rows_done[{registered.op_name, variant}] > kRowsPerVariant
                : ++rows_done[{registered.op_name, variant}] > kRowsPerVariant) {
          continue;
        }
        const TestConfig config{.name = "texts",
                                .layout = f16 ? Layout::kSliced4 : Layout::kPadded4,
                                .storage = f16 ? Storage::kTexture2DArray : Storage::kBuffer,
                                .f16 = f16,
                                .epilogue = true};
        auto test = PlanRow(*row, *variant, config, target);
        if (!test.ok()) continue;  // the row's own test says so
        for (size_t i = 0; i < (*test)->dispatches.size(); ++i) {
          const KernelDispatch& dispatch = (*test)->plan.dispatches[i];
          auto module = shader::Parse(dispatch.kernel_text, dispatch.kernel_name);
          if (!module.ok()) continue;
          auto text = shader::Compile(*module, (*test)->dispatches[i].specialization, target);
          if (text.ok() && known.insert(text->text).second) texts.push_back(*text);
        }
      }
    }
  }
  return texts;
}

class OpTables : public testing::TestWithParam<Language> {};

TEST_P(OpTables, TextsAreTakenByAnotherCompiler) {
  LEEWAY_NEED_CHECKER(GetParam());
  const std::vector<shader::KernelText> texts = TextsFor(GetParam());
  EXPECT_FALSE(texts.empty());
  constexpr size_t kBatch = 100;
  for (size_t first = 0; first < texts.size(); first += kBatch) {
    const Status status = shader::CheckTexts(std::span(texts).subspan(first, std::min(kBatch, texts.size() - first)));
    EXPECT_TRUE(status.ok()) << status.error().message.substr(0, 20000);
  }
}

INSTANTIATE_TEST_SUITE_P(, OpTables, testing::Values(Language::kOpenClC, Language::kGlslEs, Language::kMsl),
                         [](const auto& info) { return std::string(shader::LanguageName(info.param)); });

}  // namespace

}  // namespace leeway::op_test
