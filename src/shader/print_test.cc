// Kernels that use every builtin function and every statement, printed for all four languages, looked at by each language's own
// compiler; and what is printed as MSL runs on the CPU and is compared with what it should compute.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>

#include "base/strings.h"
#include "check_text.h"
#include "kernel_corpus.h"
#include "metal/msl_cpu.h"
#include "shader/builtins.h"
#include "shader/compile.h"
#include "tensor/address.h"

namespace leeway::shader {
namespace {

using TestTensors = CorpusTensors;

constexpr Language kLanguages[] = {Language::kWgsl, Language::kOpenClC, Language::kGlslEs, Language::kMsl};

Target TargetFor(Language language) {
  Target target = TypicalTarget(language);
  if (language == Language::kOpenClC || language == Language::kGlslEs) {  // what such a device may have, too
    target.subgroups = true;
    target.subgroup_min = target.subgroup_max = 32;
  }
  return target;
}

struct Printed {
  KernelText text;
  std::map<std::string, VirtualTensor> tensors;
};

Result<Printed> PrintFor(std::string_view kernel, const TestTensors& tensors, const std::map<std::string, ConstValue>& consts,
                         const Target& target, const PrintOptions& options = {},
                         const std::function<void(LoweredKernel&)>& edit = nullptr) {
  ASSIGN_OR_RETURN(Module module, Parse(kernel, "test"));
  Specialization specialization;
  specialization.consts = consts;
  for (const auto& [name, tensor] : tensors) {
    VirtualTensor view;
    view.shape = tensor.data.shape();
    ASSIGN_OR_RETURN(view.placement, PlaceTensor(tensor.data.shape(), tensor.stored.value_or(StorageDType(tensor.data.dtype())),
                                                 tensor.layout, tensor.storage, target.storage));
    specialization.tensors[name] = std::move(view);
  }
  ASSIGN_OR_RETURN(BoundKernel bound, Bind(module, specialization, target));
  ASSIGN_OR_RETURN(LoweredKernel lowered, Lower(bound, target));
  if (edit) edit(lowered);
  ASSIGN_OR_RETURN(KernelText text, Print(lowered, target, options));
  return Printed{std::move(text), std::move(specialization.tensors)};
}

KernelText MustPrint(std::string_view kernel, const TestTensors& tensors, const std::map<std::string, ConstValue>& consts,
                     const Target& target) {
  auto printed = PrintFor(kernel, tensors, consts, target);
  EXPECT_TRUE(printed.ok()) << LanguageName(target.language) << ": " << (printed.ok() ? "" : printed.error().message);
  return printed.ok() ? printed->text : KernelText{};
}

// Runs the kernel as printed for Metal; `tensors` are read and written.
void RunAsMsl(std::string_view kernel, TestTensors& tensors, const std::map<std::string, ConstValue>& consts,
              std::array<uint32_t, 3> workgroups, std::span<const std::byte> params = {},
              msl::Order order = msl::Order::kShuffled) {
  if (auto can = msl::CanCompile(); !can.ok()) {
    ASSERT_FALSE(CheckersRequired()) << can.error().message;
    GTEST_SKIP() << can.error().message;
  }
  auto printed = PrintFor(kernel, tensors, consts, TargetFor(Language::kMsl));
  ASSERT_TRUE(printed.ok()) << printed.error().message;
  const KernelText& text = printed->text;
  auto library = msl::Compile(text.text, LEEWAY_SOURCE_DIR "/tests/metal/msl", LEEWAY_BINARY_DIR "/msl_cache");
  ASSERT_TRUE(library.ok()) << library.error().message << text.text;
  msl::Bindings bindings;
  std::vector<std::unique_ptr<msl::GuardedBytes>> memory;
  std::vector<std::unique_ptr<msl::Texture>> textures;
  std::map<std::string, msl::GuardedBytes*> storage;
  int buffer_count = 0, texture_count = 0;
  for (const BindingInfo& binding : text.bindings) {
    if (binding.kind == BindingInfo::Kind::kParams) {
      ASSERT_EQ(params.size(), text.params_bytes);
      memory.push_back(std::make_unique<msl::GuardedBytes>(params));
      bindings.buffer[buffer_count++] = memory.back()->address();
      continue;
    }
    if (binding.kind == BindingInfo::Kind::kScratch) {
      std::vector<std::byte> zeros(binding.scratch_bytes);
      memory.push_back(std::make_unique<msl::GuardedBytes>(zeros));
      bindings.buffer[buffer_count++] = memory.back()->address();
      continue;
    }
    const Placement& placement = printed->tensors.at(binding.tensor).placement;
    std::vector<std::byte> packed = PackForStorage(tensors.at(binding.tensor).data, placement);
    memory.push_back(std::make_unique<msl::GuardedBytes>(packed));
    storage[binding.tensor] = memory.back().get();
    if (binding.kind == BindingInfo::Kind::kBuffer) {
      bindings.buffer[buffer_count++] = memory.back()->address();
      continue;
    }
    const auto& extent = placement.texture_extent;
    textures.push_back(std::make_unique<msl::Texture>(msl::Texture{reinterpret_cast<void*>(memory.back()->address()),
                                                                   std::max(extent[0], 1u), std::max(extent[1], 1u),
                                                                   std::max(extent[2], 1u), placement.dtype == DType::kF16}));
    bindings.texture[texture_count++] = reinterpret_cast<uint64_t>(textures.back().get());
  }
  auto ran = msl::Run((*library)->kernels.at(text.entry_point), bindings, workgroups,
                      {text.workgroup_size[0], text.workgroup_size[1], text.workgroup_size[2]}, order);
  ASSERT_TRUE(ran.ok()) << ran.error().message << text.text;
  for (auto& [name, tensor] : tensors) {
    auto it = storage.find(name);
    if (it == storage.end()) continue;
    tensor.data = UnpackFromStorage(it->second->bytes(), printed->tensors.at(name).placement, tensor.data.dtype());
  }
}

// Texts that are looked at in one go, language by language.
class Accepted {
 public:
  void Add(std::string_view kernel, const TestTensors& tensors, const std::map<std::string, ConstValue>& consts,
           Language language) {
    KernelText text = MustPrint(kernel, tensors, consts, TargetFor(language));
    if (!text.text.empty()) texts_[language].push_back(std::move(text));
  }
  void Expect() {
    for (const auto& [language, texts] : texts_) {
      if (language == Language::kWgsl) continue;  // by a device
      if (!CanCheck(language).ok()) {
        EXPECT_FALSE(CheckersRequired()) << CanCheck(language).error().message;
        continue;
      }
      auto checked = CheckTexts(texts);
      EXPECT_TRUE(checked.ok()) << checked.error().message;
    }
  }

 private:
  std::map<Language, std::vector<KernelText>> texts_;
};

TEST(PrintedCorpus, IsAcceptedByTheCompilersOfEachLanguage) {
  Accepted accepted;
  for (const CorpusKernel& kernel : KernelCorpus()) {
    for (Language language : kLanguages) {
      if (kernel.needs_f16 && language == Language::kGlslEs) continue;
      accepted.Add(kernel.text, kernel.tensors, kernel.consts, language);
    }
  }
  accepted.Expect();
}

class PrintedCorpusRun : public testing::TestWithParam<CorpusKernel> {};
TEST_P(PrintedCorpusRun, IsRightAsMsl) {
  CorpusTensors tensors = GetParam().tensors;
  RunAsMsl(GetParam().text, tensors, GetParam().consts, GetParam().workgroups, GetParam().params);
  if (HasFatalFailure() || IsSkipped()) return;
  GetParam().expect(tensors, {});
}
INSTANTIATE_TEST_SUITE_P(All, PrintedCorpusRun, testing::ValuesIn(KernelCorpus()),
                         [](const auto& info) { return info.param.name; });

TEST(PrintedCorpus, HasEveryBuiltinFunction) {
  std::string all;
  for (const CorpusKernel& kernel : KernelCorpus()) all += kernel.text;
  for (const BuiltinInfo& info : AllBuiltins()) {
    if (info.is_matrix()) continue;  // of WGSL alone: see SubgroupMatrices
    EXPECT_NE(all.find(StrCat(info.name, "(")), std::string::npos) << info.name << " is in no kernel";
  }
}

TEST(Printed, ShiftsBehindLessAreNoTemplates) {
  auto module = Parse(R"(
tensor y[n] : write;
param count : u32;
@compute @workgroup_size(1)
fn main() {
  for (var i = 0u; i < (count + 3u) / 4u; i++) { y.store(1.0, i); }
})",
                      "m");
  ASSERT_TRUE(module.ok()) << module.error().message;
  Specialization specialization;
  VirtualTensor y;
  y.shape = y.placement.shape = {32};
  specialization.tensors["y"] = y;
  auto text = Compile(*module, specialization, TypicalTarget(Language::kWgsl));
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_NE(text->text.find(" < (("), std::string::npos) << text->text;
}

TEST(Printed, SubgroupMatrices) {
  constexpr std::string_view kText = R"(
tensor y[n] : write;
var<workgroup> halves : array<f16, 512>;
var<workgroup> sums : array<f32, 256>;
@compute @workgroup_size(32)
fn main(@builtin(local_invocation_index) at : u32) {
  halves[at] = 1.0h;
  workgroupBarrier();
  var s : array<subgroup_matrix_sum, 2>;
  let l = subgroupMatrixLoadLeft(&halves, at / 32u, 16u);
  s[1] = subgroupMatrixMultiplyAdd(l, subgroupMatrixLoadRight(&halves, 256u, 16u), s[0]);
  s[1] = subgroupMatrixMultiplyAdd(l, subgroupMatrixLoadRightTransposed(&halves, 256u, 16u), s[1]);
  subgroupMatrixStore(&sums, 0u, 16u, s[1]);
  workgroupBarrier();
  y.store(sums[at], at);
})";
  Target target = TypicalTarget(Language::kWgsl);
  target.f16 = target.subgroups = target.subgroup_matrix = true;
  target.subgroup_min = target.subgroup_max = 32;
  auto module = Parse(kText, "m");
  ASSERT_TRUE(module.ok()) << module.error().message;
  Specialization specialization;
  VirtualTensor y;
  y.shape = y.placement.shape = {32};
  specialization.tensors["y"] = y;
  auto text = Compile(*module, specialization, target);
  ASSERT_TRUE(text.ok()) << text.error().message;
  for (const char* part :
       {"enable chromium_experimental_subgroup_matrix;", "diagnostic(off, chromium.subgroup_matrix_uniformity);",
        "var s_0 : subgroup_matrix_result<f32, 16, 16> = subgroup_matrix_result<f32, 16, 16>();",
        "subgroupMatrixLoad<subgroup_matrix_left<f16, 16, 16>>(&halves, at >> 5u, false, 16u)",
        "subgroupMatrixLoad<subgroup_matrix_right<f16, 16, 16>>(&halves, 256u, true, 16u)",
        "subgroupMatrixStore(&sums, 0u, s_1, false, 16u)", "subgroupMatrixMultiplyAccumulate(l, "}) {
    EXPECT_NE(text->text.find(part), std::string::npos) << part << " is not in\n" << text->text;
  }
  target.subgroup_matrix = false;
  EXPECT_FALSE(Compile(*module, specialization, target).ok());
}

TEST(PrintedCorpus, MissesABarrierWhenOneIsTakenOut) {  // that the runner can see a race at all
  for (const CorpusKernel& kernel : KernelCorpus()) {
    if (kernel.name != "sharing") continue;
    constexpr std::string_view barrier = "    workgroupBarrier();\n";
    std::string broken = kernel.text;
    broken.erase(broken.find(barrier), barrier.size());
    CorpusTensors right = kernel.tensors, wrong = kernel.tensors;
    RunAsMsl(kernel.text, right, {}, kernel.workgroups, kernel.params);
    if (HasFatalFailure() || IsSkipped()) return;
    RunAsMsl(broken, wrong, {}, kernel.workgroups, kernel.params);
    EXPECT_NE(right["y"].data.Get(1), wrong["y"].data.Get(1));
  }
}

constexpr std::string_view kScaleSlices = R"(
tensor x[row, column, channel] : read;
tensor y[row, column, channel] : write;
@compute @workgroup_size(4, 4)
fn main(@builtin(global_invocation_id) id : vec3u) {
  if (id.x >= y.column || id.y >= y.row) { return; }
  for (var s = 0u; s < (y.channel + 3u) / 4u; s++) {
    y.store4(x.load4(id.y, id.x, s) * 2.0 + 1.0, id.y, id.x, s);
  }
}
)";

TEST(PrintedTypes, HalfIsAnErrorWhereTheLanguageHasNone) {
  constexpr std::string_view kernel = R"(
tensor y[n] : write;
@compute @workgroup_size(1) fn main(@builtin(workgroup_id) id : vec3u) { y.store(f32(f16(id.x) * 0.5h), 0u); }
)";
  TestTensors tensors{{"y", {HostTensor(DType::kF32, {1})}}};
  EXPECT_TRUE(PrintFor(kernel, tensors, {}, TargetFor(Language::kMsl)).ok());
  auto printed = PrintFor(kernel, tensors, {}, TargetFor(Language::kGlslEs));
  ASSERT_FALSE(printed.ok());
  EXPECT_NE(printed.error().message.find("f16"), std::string::npos) << printed.error().message;
}

TEST(PrintedTypes, HalfWithoutTheTypeIsPackedInWords) {
  Target target = TargetFor(Language::kOpenClC);
  target.f16 = false;
  TestTensors tensors{{"x", {HostTensor(DType::kF32, {2, 4, 8}), Layout::kSliced4, Storage::kBuffer, DType::kF16}},
                      {"y", {HostTensor(DType::kF32, {2, 4, 8}), Layout::kSliced4, Storage::kBuffer, DType::kF16}}};
  KernelText text = MustPrint(kScaleSlices, tensors, {}, target);
  EXPECT_NE(text.text.find("vload_half2"), std::string::npos) << text.text;
  EXPECT_NE(text.text.find("vstore_half2"), std::string::npos) << text.text;
  EXPECT_EQ(text.text.find("cl_khr_fp16"), std::string::npos) << text.text;
  LEEWAY_NEED_CHECKER(Language::kOpenClC);
  auto checked = CheckTexts({&text, 1});
  EXPECT_TRUE(checked.ok()) << checked.error().message;
}
// ---- Text ---------------------------------------------------------------------------------------------------------------

TEST(PrintedText, IsTheSameEachTimeAndKeepsNames) {
  TestTensors tensors{{"x", {HostTensor(DType::kF32, {3, 5, 6}), Layout::kSliced4}},
                      {"y", {HostTensor(DType::kF32, {3, 5, 6}), Layout::kSliced4}}};
  for (Language language : kLanguages) {
    KernelText once = MustPrint(kScaleSlices, tensors, {}, TargetFor(language));
    KernelText again = MustPrint(kScaleSlices, tensors, {}, TargetFor(language));
    EXPECT_EQ(once.text, again.text);
    // In OpenCL C a hash of the text follows, so that texts can share a program.
    EXPECT_TRUE(once.entry_point.starts_with(language == Language::kGlslEs ? "main" : "test")) << once.entry_point;
    EXPECT_EQ(once.workgroup_size[1], 4u);
    ASSERT_EQ(once.bindings.size(), 2u);
    EXPECT_EQ(once.bindings[0].tensor, "x");
  }
}

TEST(PrintedText, LeadsToLinesOfTheKernelWhenAsked) {
  TestTensors tensors{{"x", {HostTensor(DType::kF32, {3, 5, 6}), Layout::kSliced4}},
                      {"y", {HostTensor(DType::kF32, {3, 5, 6}), Layout::kSliced4}}};
  PrintOptions options;
  options.line_numbers = true;
  const std::pair<Language, const char*> marks[] = {{Language::kWgsl, "// test.kernel:6\n"},
                                                    {Language::kOpenClC, "#line 6 \"test.kernel\"\n"},
                                                    {Language::kGlslEs, "#line 6\n"},
                                                    {Language::kMsl, "#line 6 \"test.kernel\"\n"}};
  for (auto [language, mark] : marks) {
    auto printed = PrintFor(kScaleSlices, tensors, {}, TargetFor(language), options);
    ASSERT_TRUE(printed.ok()) << printed.error().message;
    EXPECT_NE(printed->text.text.find(mark), std::string::npos) << printed->text.text;
    if (!CanCheck(language).ok()) continue;
    auto checked = CheckTexts({&printed->text, 1});
    EXPECT_TRUE(checked.ok()) << checked.error().message;
  }
}

void ReplaceNumber(Expr* expr, double from, double to) {
  if (!expr) return;
  if (expr->kind == ExprKind::kLiteral && expr->literal.is_float && expr->literal.f == from) expr->literal.f = to;
  for (ExprPtr& arg : expr->args) ReplaceNumber(arg.get(), from, to);
}

TEST(PrintedText, NumbersThatAreNotFiniteAndTheLeastInt) {
  constexpr std::string_view kernel = R"(
tensor y[n] : write;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) id : vec3u) {
  let v = f32(id.x);
  y.store(max(v - 12345.0, 1.0), 0u);
  y.store(min(v + 54321.0, 2.0), 1u);
  y.store(f32(-2147483648 + i32(id.x)), 2u);
  y.store(v * -0.0, 3u);
}
)";
  // The checker lets no such constant through, but folding in a later pass may make one.
  auto edit = [](LoweredKernel& kernel) {
    for (Function& f : kernel.module.functions) {
      for (StmtPtr& s : f.body) {
        ReplaceNumber(s->value.get(), 12345.0, std::numeric_limits<double>::infinity());
        ReplaceNumber(s->value.get(), 54321.0, std::numeric_limits<double>::infinity());
      }
    }
  };
  TestTensors tensors{{"y", {HostTensor(DType::kF32, {4})}}};
  const std::pair<Language, const char*> infinities[] = {{Language::kWgsl, "bitcast<f32>(lw_infinity_bits)"},
                                                         {Language::kOpenClC, "INFINITY"},
                                                         {Language::kGlslEs, "uintBitsToFloat(0x7f800000u)"},
                                                         {Language::kMsl, "INFINITY"}};
  for (auto [language, text] : infinities) {
    auto printed = PrintFor(kernel, tensors, {}, TargetFor(language), {}, edit);
    ASSERT_TRUE(printed.ok()) << printed.error().message;
    EXPECT_NE(printed->text.text.find(text), std::string::npos) << printed->text.text;
    if (!CanCheck(language).ok()) continue;
    auto checked = CheckTexts({&printed->text, 1});
    EXPECT_TRUE(checked.ok()) << checked.error().message;
  }
  RunAsMsl(kernel, tensors, {}, {1, 1, 1});
  if (HasFatalFailure() || IsSkipped()) return;
  auto y = tensors["y"].data.as<float>();
  EXPECT_EQ(y[2], -2147483648.0f);
  EXPECT_TRUE(y[3] == 0.0f && std::signbit(y[3]));
}

TEST(PrintedText, CheckersNoticeMistakes) {
  TestTensors tensors{{"x", {HostTensor(DType::kF32, {3, 5, 6}), Layout::kSliced4}},
                      {"y", {HostTensor(DType::kF32, {3, 5, 6}), Layout::kSliced4}}};
  for (Language language : {Language::kOpenClC, Language::kGlslEs, Language::kMsl}) {
    LEEWAY_NEED_CHECKER(language);
    KernelText text = MustPrint(kScaleSlices, tensors, {}, TargetFor(language));
    size_t at = text.text.rfind("};") == std::string::npos ? text.text.rfind("}") : text.text.rfind("}");
    text.text.insert(at, "  undeclared_name += 1;\n");
    auto checked = CheckTexts({&text, 1});
    ASSERT_FALSE(checked.ok());
    EXPECT_NE(checked.error().message.find("undeclared_name"), std::string::npos);
    EXPECT_NE(checked.error().message.find("test"), std::string::npos);
  }
}

}  // namespace
}  // namespace leeway::shader
