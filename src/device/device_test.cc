#include "device/device.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/strings.h"
#include "device/backend.h"
#include "device/known_answers.h"
#include "device/measure.h"
#include "device/record_check.h"
#include "device/webgpu/adapters.h"
#include "device/webgpu/dawn_extensions.h"

namespace leeway {
namespace {

using shader::Access;
using shader::BindingInfo;
using shader::KernelText;
using shader::Language;
using shader::Type;

// LEEWAY_TEST_DEVICES: comma-separated names for OpenDevice that have to be there. Unset: whatever is found.
std::vector<std::string> DeviceNames() {
  std::vector<std::string> names;
  if (const char* list = std::getenv("LEEWAY_TEST_DEVICES"); list && *list) {
    std::string rest = list;
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      names.push_back(rest.substr(0, comma));
      rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
    return names;
  }
  for (const BackendReport& report : ListDevices()) {
    for (const FoundDevice& device : report.devices) names.push_back(StrCat(report.api, ":", device.index));
  }
  return names;
}

template <class T>
std::span<const std::byte> Bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

BindingInfo BufferBinding(const char* name, Access access) {
  BindingInfo info;
  info.name = name;
  info.access = access;
  return info;
}

BindingInfo TextureBinding(const char* name, BindingInfo::Kind kind, const char* dim, const char* format) {
  BindingInfo info;
  info.name = name;
  info.kind = kind;
  info.access = kind == BindingInfo::Kind::kStorageTexture ? Access::kWrite : Access::kRead;
  info.type.kind = Type::Kind::kTexture;
  info.type.texture_dim = dim;
  info.type.texel_format = format;
  return info;
}

// y[i] = 2 * x[i] + y[i], in both languages.
KernelText Saxpy(Language language) {
  KernelText kernel;
  kernel.name = "saxpy";
  kernel.language = language;
  kernel.entry_point = "saxpy";
  kernel.workgroup_size[0] = 32;
  kernel.bindings = {BufferBinding("x", Access::kRead), BufferBinding("y", Access::kReadWrite)};
  kernel.text = language == Language::kWgsl ? R"(
@group(0) @binding(0) var<storage, read> x : array<f32>;
@group(0) @binding(1) var<storage, read_write> y : array<f32>;
@compute @workgroup_size(32) fn saxpy(@builtin(global_invocation_id) id : vec3u) { y[id.x] = 2.0 * x[id.x] + y[id.x]; }
)"
                                            : R"(
__attribute__((reqd_work_group_size(32, 1, 1)))
kernel void saxpy(global const float* x, global float* y) {
  size_t i = get_global_id(0);
  y[i] = 2.0f * x[i] + y[i];
}
)";
  return kernel;
}

// y[i] = scale * i + shift, with params: immediates, a uniform or arguments.
KernelText Ramp(Language language, bool immediates) {
  KernelText kernel;
  kernel.name = "ramp";
  kernel.language = language;
  kernel.entry_point = "ramp";
  kernel.workgroup_size[0] = 32;
  kernel.bindings = {BufferBinding("y", Access::kWrite)};
  kernel.params = {{"scale", Type::Of(shader::Scalar::kF32), 0}, {"shift", Type::Of(shader::Scalar::kU32), 4}};
  kernel.params_bytes = 8;
  if (language == Language::kOpenClC) {
    kernel.text = R"(
kernel void ramp(global float* y, float scale, uint shift) { y[get_global_id(0)] = scale * get_global_id(0) + shift; }
)";
    return kernel;
  }
  kernel.text = R"(
struct Params { scale : f32, shift : u32 };
@group(0) @binding(0) var<storage, read_write> y : array<f32>;
)";
  if (immediates) {
    kernel.text = StrCat("requires immediate_address_space;\n", kernel.text, "var<immediate> params : Params;\n");
  } else {
    kernel.text += "@group(0) @binding(1) var<uniform> params : Params;\n";
    BindingInfo params;
    params.name = "params";
    params.kind = BindingInfo::Kind::kParams;
    kernel.bindings.push_back(params);
  }
  kernel.text += R"(
@compute @workgroup_size(32) fn ramp(@builtin(global_invocation_id) id : vec3u) {
  y[id.x] = params.scale * f32(id.x) + f32(params.shift);
}
)";
  return kernel;
}

std::unique_ptr<Pipeline> MustCompile(Device& device, const KernelText& kernel) {
  auto compiling = device.StartCompile(kernel);
  if (!compiling.ok()) {
    ADD_FAILURE() << compiling.error().message;
    return nullptr;
  }
  Status status = device.Wait(compiling->ready);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return status.ok() ? std::move(compiling->pipeline) : nullptr;
}

template <class T>
std::unique_ptr<Buffer> Upload(Device& device, const std::vector<T>& values) {
  auto buffer = device.CreateBuffer(values.size() * sizeof(T), "test");
  EXPECT_TRUE(buffer.ok()) << buffer.error().message;
  Status status = device.Write(**buffer, 0, Bytes(values));
  EXPECT_TRUE(status.ok()) << status.error().message;
  return std::move(*buffer);
}

template <class T = float>
std::vector<T> Download(Device& device, Buffer& buffer, size_t count, size_t first = 0) {
  std::vector<T> values;
  auto event = device.Read({{&buffer, first * sizeof(T), count * sizeof(T)}},
                           [&](Result<std::vector<std::span<const std::byte>>> parts) {
                             ASSERT_TRUE(parts.ok()) << parts.error().message;
                             values.resize((*parts)[0].size() / sizeof(T));
                             std::memcpy(values.data(), (*parts)[0].data(), (*parts)[0].size());
                           });
  EXPECT_TRUE(event.ok()) << event.error().message;
  Status status = device.Wait(*event);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return values;
}

Dispatch MakeDispatch(const Pipeline& pipeline, std::vector<BindingResource> bindings, uint32_t groups,
                      const char* label = "test") {
  Dispatch dispatch;
  dispatch.pipeline = &pipeline;
  dispatch.bindings = std::move(bindings);
  dispatch.workgroups[0] = groups;
  dispatch.label = label;
  return dispatch;
}

class EveryDevice : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto opened = OpenDevice(GetParam(), {});
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    device_ = std::move(*opened);
    language_ = device_->info().target.language;
  }
  Device& device() { return *device_; }

  std::unique_ptr<Device> device_;
  Language language_ = Language::kWgsl;
};

TEST(Devices, AreThoseThatTheRunAsksFor) {
  const std::vector<std::string> names = DeviceNames();
  if (names.empty()) GTEST_SKIP() << "no device is found, and LEEWAY_TEST_DEVICES asks for none";
  for (const std::string& name : names) {
    auto device = OpenDevice(name, {});
    EXPECT_TRUE(device.ok()) << device.error().message;
  }
}

TEST(Devices, ReportSaysWhyAnApiIsMissing) {
  for (const BackendReport& report : ListDevices()) EXPECT_FALSE(report.message.empty()) << report.api;
}

TEST(Devices, RefuseNamesThatFitNothing) {
  auto unknown_api = OpenDevice("vulkan", {});
  ASSERT_FALSE(unknown_api.ok());
  EXPECT_EQ(unknown_api.error().code, Code::kInvalidArgument);
  EXPECT_NE(unknown_api.error().message.find("webgpu"), std::string::npos);
  auto unknown_name = OpenDevice("opencl:no such device", {});
  ASSERT_FALSE(unknown_name.ok());
  EXPECT_EQ(unknown_name.error().code, Code::kNotFound);
}

TEST_P(EveryDevice, DescribesItself) {
  const DeviceInfo& info = device().info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_FALSE(info.driver.empty());
  EXPECT_FALSE(info.device_class.empty());
  EXPECT_FALSE(info.cache_key.empty());
  EXPECT_EQ(info.is_software, info.target.is_software);
  EXPECT_GE(info.max_buffer_bytes, uint64_t(info.target.storage.max_binding_bytes));
  EXPECT_GE(info.target.max_invocations, 128u);
  EXPECT_GE(info.target.max_storage_buffers, 8u);
  EXPECT_GE(info.target.core_count_estimate, 1u);
}

TEST_P(EveryDevice, GivesTheKnownAnswers) {
  const DeviceInfo& info = device().info();
  EXPECT_GE(info.known_answers.size(), 5u);
  for (const KnownAnswer& answer : info.known_answers) EXPECT_TRUE(answer.passed) << answer.name << ": " << answer.detail;
}

TEST_P(EveryDevice, KeepsKnownAnswersAndSwitchesOffWhatFails) {
  BackendDevice& backend = static_cast<BackendDevice&>(device());
  const std::string folder = StrCat(testing::TempDir(), "leeway_known_answers");
  std::filesystem::remove_all(folder);
  ForgetKnownAnswers();
  ASSERT_TRUE(RunKnownAnswers(backend, folder).ok());
  ASSERT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  const std::filesystem::path file = std::filesystem::directory_iterator(folder)->path();
  std::string text;
  {
    std::ifstream in(file);
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  // As if barriers had been found wrong.
  const size_t at = text.find("1\tworkgroup barriers");
  ASSERT_NE(at, std::string::npos) << text;
  text[at] = '0';
  std::ofstream(file) << text;
  ForgetKnownAnswers();
  ASSERT_TRUE(RunKnownAnswers(backend, folder).ok());
  EXPECT_EQ(device().info().target.max_workgroup_bytes, 0u);
  ForgetKnownAnswers();
  std::filesystem::remove_all(folder);
}

TEST_P(EveryDevice, MeasuresItsSpeed) {
  auto speed = MeasureDevice(device());
  ASSERT_TRUE(speed.ok()) << speed.error().message;
  EXPECT_GT(speed->read_bytes_per_second, 1e7);
  EXPECT_LT(speed->read_bytes_per_second, 1e14);
  EXPECT_GT(speed->f32_flops, 1e7);
  EXPECT_LT(speed->f32_flops, 1e15);
  EXPECT_EQ(speed->f16_flops > 0, device().info().target.f16);
  EXPECT_GT(speed->dispatch_seconds, 1e-8);
  EXPECT_GT(speed->round_trip_seconds, 1e-7);
  RecordProperty("speed", StrCat(speed->read_bytes_per_second / 1e9, " GB/s, ", speed->f32_flops / 1e9, " GFLOP/s, f16 ",
                                 speed->f16_flops / 1e9, ", dispatch ", speed->dispatch_seconds * 1e6, " us, round trip ",
                                 speed->round_trip_seconds * 1e6, " us"));
}

TEST_P(EveryDevice, WritesAndReadsRanges) {
  std::vector<uint32_t> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = uint32_t(i * 2654435761u);
  auto buffer = Upload(device(), values);
  EXPECT_EQ(Download<uint32_t>(device(), *buffer, values.size()), values);
  const std::vector<uint32_t> patch = {7, 8, 9};
  ASSERT_TRUE(device().Write(*buffer, 40, Bytes(patch)).ok());
  std::copy(patch.begin(), patch.end(), values.begin() + 10);
  EXPECT_EQ(Download<uint32_t>(device(), *buffer, 20, 5), std::vector<uint32_t>(values.begin() + 5, values.begin() + 25));
}

TEST_P(EveryDevice, ReadsSeveralRangesAtOnce) {
  auto a = Upload(device(), std::vector<float>{1, 2, 3, 4}), b = Upload(device(), std::vector<float>{5, 6, 7, 8, 9});
  std::vector<std::vector<float>> got;
  auto event = device().Read({{a.get(), 4, 8}, {b.get(), 0, 20}, {a.get(), 0, 0}}, [&](auto parts) {
    ASSERT_TRUE(parts.ok());
    for (auto part : *parts) {
      auto* first = reinterpret_cast<const float*>(part.data());
      got.emplace_back(first, first + part.size() / 4);
    }
  });
  ASSERT_TRUE(event.ok());
  ASSERT_TRUE(device().Wait(*event).ok());
  EXPECT_EQ(got, (std::vector<std::vector<float>>{{2, 3}, {5, 6, 7, 8, 9}, {}}));
}

TEST_P(EveryDevice, RefusesRangesOutside) {
  auto buffer = Upload(device(), std::vector<float>(4));
  const std::vector<float> five(5);
  EXPECT_EQ(device().Write(*buffer, 0, Bytes(five)).error().code, Code::kInvalidArgument);
  EXPECT_EQ(device().Write(*buffer, 2, Bytes(std::vector<float>(1))).error().code, Code::kInvalidArgument);
  auto read = device().Read({{buffer.get(), 16, 4}}, nullptr);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Code::kInvalidArgument);
  EXPECT_TRUE(device().status().ok());
}

TEST_P(EveryDevice, EmptyBufferIsUsable) {
  auto buffer = device().CreateBuffer(0, "empty");
  ASSERT_TRUE(buffer.ok());
  EXPECT_GT((*buffer)->size_bytes(), 0u);
}

TEST_P(EveryDevice, CountsItsBytes) {
  const uint64_t before = device().allocated_bytes();
  auto buffer = device().CreateBuffer(1 << 20, "megabyte");
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(device().allocated_bytes(), before + (1 << 20));
  buffer->reset();
  EXPECT_EQ(device().allocated_bytes(), before);
}

TEST_P(EveryDevice, TellsWhenABufferIsTooLarge) {
  auto buffer = device().CreateBuffer(uint64_t(1) << 50, "petabyte");
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().code, Code::kOutOfMemory);
  EXPECT_NE(buffer.error().message.find("petabyte"), std::string::npos);
  EXPECT_TRUE(device().status().ok());
}

TEST_P(EveryDevice, ReplaysADependentChain) {
  auto pipeline = MustCompile(device(), Saxpy(language_));
  ASSERT_TRUE(pipeline);
  auto x = Upload(device(), std::vector<float>(64, 1)), y = Upload(device(), std::vector<float>(64, 0));
  // y += 2x, x += 2y, y += 2x
  auto recording =
      device().Record({MakeDispatch(*pipeline, {{x.get()}, {y.get()}}, 2), MakeDispatch(*pipeline, {{y.get()}, {x.get()}}, 2),
                       MakeDispatch(*pipeline, {{x.get()}, {y.get()}}, 2)});
  ASSERT_TRUE(recording.ok()) << recording.error().message;
  float want_x = 1, want_y = 0;
  for (int run = 0; run < 3; ++run) {
    auto event = device().Submit(**recording, {});
    ASSERT_TRUE(event.ok()) << event.error().message;
    want_y += 2 * want_x, want_x += 2 * want_y, want_y += 2 * want_x;
    if (run == 1) { ASSERT_TRUE(device().Wait(*event).ok()); }
  }
  EXPECT_EQ(Download(device(), *x, 64), std::vector<float>(64, want_x));
  EXPECT_EQ(Download(device(), *y, 64), std::vector<float>(64, want_y));
}

TEST_P(EveryDevice, SubmitsAndReadsInOneGo) {
  auto pipeline = MustCompile(device(), Saxpy(language_));
  ASSERT_TRUE(pipeline);
  auto x = Upload(device(), std::vector<float>(64, 3)), y = Upload(device(), std::vector<float>(64, 1));
  auto recording = device().Record({MakeDispatch(*pipeline, {{x.get()}, {y.get()}}, 2)});
  ASSERT_TRUE(recording.ok());
  std::vector<float> results;
  std::vector<EventPtr> events;
  int continuations = 0;
  for (int run = 0; run < 12; ++run) {  // more in flight than buffers are kept for
    auto event = device().SubmitAndRead(**recording, {}, {{y.get(), 0, 256}}, [&](auto parts) {
      ASSERT_TRUE(parts.ok());
      results.push_back(*reinterpret_cast<const float*>((*parts)[0].data()));
    });
    ASSERT_TRUE(event.ok()) << event.error().message;
    (*event)->OnDone([&] { ++continuations; });
    events.push_back(*event);
  }
  for (auto& event : events) ASSERT_TRUE(device().Wait(event).ok());
  device().Poll();
  EXPECT_EQ(continuations, 12);
  for (int run = 0; run < 12; ++run) EXPECT_EQ(results[size_t(run)], 1 + 6.0f * float(run + 1));
}

TEST_P(EveryDevice, BindsPartsOfABuffer) {
  auto pipeline = MustCompile(device(), Saxpy(language_));
  ASSERT_TRUE(pipeline);
  const uint64_t step = device().info().buffer_offset_alignment;
  std::vector<float> values(step / 4 * 3, 5);
  auto x = Upload(device(), values), y = Upload(device(), std::vector<float>(values.size(), 0));
  auto recording = device().Record({MakeDispatch(*pipeline, {{x.get(), step, 128}, {y.get(), 2 * step, 128}}, 1)});
  ASSERT_TRUE(recording.ok()) << recording.error().message;
  ASSERT_TRUE(device().Submit(**recording, {}).ok());
  std::vector<float> want(values.size(), 0);
  std::fill_n(want.begin() + long(step / 4 * 2), 32, 10.0f);
  EXPECT_EQ(Download(device(), *y, values.size()), want);
}

TEST_P(EveryDevice, KeepsWhatARecordingUses) {
  auto pipeline = MustCompile(device(), Saxpy(language_));
  ASSERT_TRUE(pipeline);
  auto y = Upload(device(), std::vector<float>(64, 1));
  Result<std::unique_ptr<Recording>> recording = Error{};
  {
    const uint64_t step = device().info().buffer_offset_alignment;
    auto x = Upload(device(), std::vector<float>(step, 3));
    recording = device().Record({MakeDispatch(*pipeline, {{x.get(), step, 256}, {y.get()}}, 2)});
    ASSERT_TRUE(recording.ok()) << recording.error().message;
    pipeline.reset();
  }
  ASSERT_TRUE(device().Submit(**recording, {}).ok());
  EXPECT_EQ(Download(device(), *y, 64), std::vector<float>(64, 7));
}

TEST_P(EveryDevice, PassesParams) {
  std::vector<bool> ways = {false};
  if (device().info().target.immediates) ways.push_back(true);
  for (bool immediates : ways) {
    auto pipeline = MustCompile(device(), Ramp(language_, immediates));
    ASSERT_TRUE(pipeline);
    auto a = Upload(device(), std::vector<float>(32)), b = Upload(device(), std::vector<float>(32));
    const size_t binding_count = Ramp(language_, immediates).bindings.size();
    std::vector<BindingResource> to_a(binding_count), to_b(binding_count);
    to_a[0].buffer = a.get();
    to_b[0].buffer = b.get();
    Dispatch first = MakeDispatch(*pipeline, to_a, 1), second = MakeDispatch(*pipeline, to_b, 1);
    second.params_offset_bytes = 8;
    auto recording = device().Record({first, second});
    ASSERT_TRUE(recording.ok()) << recording.error().message;
    for (float scale : {2.0f, 0.5f}) {
      struct {
        float scale;
        uint32_t shift;
      } params[2] = {{scale, 1}, {-scale, 100}};
      SubmitOptions options;
      options.params = std::as_bytes(std::span(params));
      ASSERT_TRUE(device().Submit(**recording, options).ok());
      const auto got_a = Download(device(), *a, 32), got_b = Download(device(), *b, 32);
      for (int i = 0; i < 32; ++i) {
        EXPECT_EQ(got_a[size_t(i)], scale * float(i) + 1);
        EXPECT_EQ(got_b[size_t(i)], -scale * float(i) + 100);
      }
    }
    auto too_few = device().Submit(**recording, {});
    ASSERT_FALSE(too_few.ok());
    EXPECT_EQ(too_few.error().code, Code::kInvalidArgument);
  }
}

TEST_P(EveryDevice, SkipsEmptyGridsAndEmptyRecordings) {
  auto pipeline = MustCompile(device(), Saxpy(language_));
  ASSERT_TRUE(pipeline);
  auto x = Upload(device(), std::vector<float>(64, 3)), y = Upload(device(), std::vector<float>(64, 1));
  auto recording = device().Record({MakeDispatch(*pipeline, {{x.get()}, {y.get()}}, 0)});
  ASSERT_TRUE(recording.ok());
  ASSERT_TRUE(device().Wait(*device().Submit(**recording, {})).ok());
  auto nothing = device().Record({});
  ASSERT_TRUE(nothing.ok());
  ASSERT_TRUE(device().Wait(*device().Submit(**nothing, {})).ok());
  EXPECT_EQ(Download(device(), *y, 64), std::vector<float>(64, 1));
}

TEST_P(EveryDevice, TimesEachDispatch) {
  if (!device().info().timestamps) GTEST_SKIP() << "the device has no time stamps";
  auto pipeline = MustCompile(device(), Saxpy(language_));
  ASSERT_TRUE(pipeline);
  auto x = Upload(device(), std::vector<float>(1 << 18, 3)), y = Upload(device(), std::vector<float>(1 << 18, 1));
  auto recording =
      device().Record({MakeDispatch(*pipeline, {{x.get()}, {y.get()}}, (1 << 18) / 32),
                       MakeDispatch(*pipeline, {{x.get()}, {y.get()}}, 0), MakeDispatch(*pipeline, {{x.get()}, {y.get()}}, 1)});
  ASSERT_TRUE(recording.ok());
  EXPECT_TRUE(device().ReadTimestamps(**recording).empty());
  SubmitOptions options;
  options.timestamps = true;
  for (int run = 0; run < 2; ++run) {
    ASSERT_TRUE(device().Wait(*device().Submit(**recording, {})).ok());  // between, on the ordinary way
    ASSERT_TRUE(device().Wait(*device().Submit(**recording, options)).ok());
    const auto times = device().ReadTimestamps(**recording);
    ASSERT_EQ(times.size(), 3u);
    EXPECT_GT(times[0], 1000u);  // 3 MB cannot be moved in a microsecond
    EXPECT_LT(times[0], 10'000'000'000u);
  }
  EXPECT_EQ(Download(device(), *y, 1)[0], 1 + 6 * 4 * 2);  // the third dispatch repeats the first workgroup
}

TEST_P(EveryDevice, NamesKernelAndLineOfACompileError) {
  KernelText kernel = Saxpy(language_);
  kernel.text = "\n\nthis is no kernel;\n";
  auto compiling = device().StartCompile(kernel);
  ASSERT_TRUE(compiling.ok());
  const Status status = device().Wait(compiling->ready);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("saxpy"), std::string::npos) << status.error().message;
  EXPECT_NE(status.error().message.find("3:"), std::string::npos) << status.error().message;
  // The device stays usable.
  EXPECT_TRUE(MustCompile(device(), Saxpy(language_)));
}

TEST_P(EveryDevice, CompilesSeveralKernelsAtOnce) {
  std::vector<Device::Compiling> compiling;
  for (int i = 0; i < 6; ++i) {
    auto started = device().StartCompile(Saxpy(language_));
    ASSERT_TRUE(started.ok());
    compiling.push_back(std::move(*started));
  }
  for (auto it = compiling.rbegin(); it != compiling.rend(); ++it) EXPECT_TRUE(device().Wait(it->ready).ok());
}

TEST_P(EveryDevice, ReusesAProgramBinary) {
  auto pipeline = MustCompile(device(), Saxpy(language_));
  ASSERT_TRUE(pipeline);
  const std::vector<std::byte> binary = device().PipelineBinary(*pipeline);
  if (device().info().api != "opencl") {
    EXPECT_TRUE(binary.empty());
    GTEST_SKIP() << "the API has no program binaries";
  }
  ASSERT_FALSE(binary.empty());
  for (std::vector<std::byte> bytes : {binary, std::vector<std::byte>(100, std::byte{7})}) {  // the second is rubbish
    auto compiling = device().StartCompileFromBinary(Saxpy(language_), bytes);
    ASSERT_TRUE(compiling.ok());
    ASSERT_TRUE(device().Wait(compiling->ready).ok());
    auto x = Upload(device(), std::vector<float>(32, 3)), y = Upload(device(), std::vector<float>(32, 1));
    auto recording = device().Record({MakeDispatch(*compiling->pipeline, {{x.get()}, {y.get()}}, 1)});
    ASSERT_TRUE(recording.ok());
    ASSERT_TRUE(device().Submit(**recording, {}).ok());
    EXPECT_EQ(Download(device(), *y, 32), std::vector<float>(32, 7));
  }
}

TEST_P(EveryDevice, RefusesWhatMayNotBeBoundTogether) {
  auto pipeline = MustCompile(device(), Saxpy(language_));
  ASSERT_TRUE(pipeline);
  auto x = Upload(device(), std::vector<float>(1024)), y = Upload(device(), std::vector<float>(1024));
  auto refused = [&](std::vector<BindingResource> bindings, const char* word) {
    auto recording = device().Record({MakeDispatch(*pipeline, std::move(bindings), 1, "the label")});
    ASSERT_FALSE(recording.ok()) << word;
    EXPECT_EQ(recording.error().code, Code::kInvalidArgument);
    EXPECT_NE(recording.error().message.find(word), std::string::npos) << recording.error().message;
    EXPECT_NE(recording.error().message.find("the label"), std::string::npos) << recording.error().message;
  };
  const uint64_t step = device().info().buffer_offset_alignment;
  refused({{x.get(), 0, 128}, {x.get(), step, 128}}, "same buffer");
  refused({{x.get()}}, "bindings");
  refused({{x.get()}, {}}, "needs a buffer");
  refused({{x.get(), 4, 128}, {y.get()}}, "alignment");
  refused({{x.get(), 0, 1 << 20}, {y.get()}}, "of a buffer of");
}

KernelText TextureKernel(Language language, const char* dim, bool write) {
  KernelText kernel;
  kernel.language = language;
  kernel.name = StrCat(write ? "write_" : "read_", dim);
  kernel.entry_point = "run";
  kernel.workgroup_size[0] = 4;
  const bool is_2d = std::strcmp(dim, "2d") == 0, is_3d = std::strcmp(dim, "3d") == 0,
             is_buffer = std::strcmp(dim, "buffer") == 0;
  kernel.bindings = {
      TextureBinding("t", write ? BindingInfo::Kind::kStorageTexture : BindingInfo::Kind::kSampledTexture, dim, "rgba32float"),
      BufferBinding("b", write ? Access::kRead : Access::kWrite)};
  // Texel (x, y, z) is element x + 4 y + 12 z of the buffer; extents 4 x 3 x 2.
  if (language == Language::kWgsl) {
    const std::string type = is_2d ? "2d" : is_3d ? "3d" : "2d_array";
    const std::string at = is_2d ? "id.xy" : is_3d ? "id" : "id.xy, id.z";
    kernel.text = StrCat("@group(0) @binding(0) var t : ",
                         write ? StrCat("texture_storage_", type, "<rgba32float, write>") : StrCat("texture_", type, "<f32>"),
                         ";\n@group(0) @binding(1) var<storage, ", write ? "read" : "read_write", "> b : array<vec4f>;\n",
                         "@compute @workgroup_size(4) fn run(@builtin(global_invocation_id) id : vec3u) {\n  let i = id.x + 4u "
                         "* id.y + 12u * id.z;\n  ",
                         write ? StrCat("textureStore(t, ", at, ", b[i]);")
                               : StrCat("b[i] = textureLoad(t, ", at, is_2d || is_3d ? ", 0);" : ", 0);"),
                         "\n}\n");
  } else {
    const std::string type = is_2d ? "image2d_t" : is_3d ? "image3d_t" : is_buffer ? "image1d_buffer_t" : "image2d_array_t";
    const std::string at = is_2d ? "(int2)(x, y)" : is_buffer ? "i" : "(int4)(x, y, z, 0)";
    kernel.text =
        StrCat(is_3d && write ? "#pragma OPENCL EXTENSION cl_khr_3d_image_writes : enable\n" : "", "kernel void run(",
               write ? "write_only " : "read_only ", type, " t, global ", write ? "const " : "", "float4* b) {\n",
               "  int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2), i = x + 4 * y + 12 * z;\n  ",
               write ? StrCat("write_imagef(t, ", at, ", b[i]);") : StrCat("b[i] = read_imagef(t, ", at, ");"), "\n}\n");
  }
  return kernel;
}

TEST_P(EveryDevice, ReadsAndWritesTextures) {
  struct Case {
    Storage storage;
    const char* dim;
    uint32_t depth;
  };
  for (const Case& c : {Case{Storage::kTexture2D, "2d", 1}, Case{Storage::kTexture2DArray, "2d_array", 2},
                        Case{Storage::kTexture2DArray, "2d_array", 1}, Case{Storage::kTexture3D, "3d", 2}}) {
    SCOPED_TRACE(StrCat(c.dim, " ", c.depth));
    std::vector<float> texels(size_t(4 * 3 * 4) * c.depth);
    for (size_t i = 0; i < texels.size(); ++i) texels[i] = float(i) * 0.5f - 3;
    TextureSpec spec;
    spec.storage = c.storage;
    spec.extent = {4, 3, c.depth};
    auto texture = device().CreateTexture(spec, "test");
    ASSERT_TRUE(texture.ok()) << texture.error().message;
    ASSERT_TRUE(device().WriteTexture(**texture, Bytes(texels)).ok());
    auto out = Upload(device(), std::vector<float>(texels.size()));
    auto reader = MustCompile(device(), TextureKernel(language_, c.dim, false));
    ASSERT_TRUE(reader);
    BindingResource bound;
    bound.texture = texture->get();
    Dispatch read = MakeDispatch(*reader, {bound, {out.get()}}, 1);
    read.workgroups[1] = 3;
    read.workgroups[2] = c.depth;
    auto recording = device().Record({read});
    ASSERT_TRUE(recording.ok()) << recording.error().message;
    ASSERT_TRUE(device().Submit(**recording, {}).ok());
    EXPECT_EQ(Download(device(), *out, texels.size()), texels);

    for (float& t : texels) t = 7 - 2 * t;
    auto in = Upload(device(), texels);
    auto writer = MustCompile(device(), TextureKernel(language_, c.dim, true));
    ASSERT_TRUE(writer);
    Dispatch write = MakeDispatch(*writer, {bound, {in.get()}}, 1);
    write.workgroups[1] = 3;
    write.workgroups[2] = c.depth;
    recording = device().Record({write});
    ASSERT_TRUE(recording.ok()) << recording.error().message;
    ASSERT_TRUE(device().Submit(**recording, {}).ok());
    std::vector<float> got;
    auto event = device().ReadTexture(**texture, [&](auto parts) {
      ASSERT_TRUE(parts.ok()) << parts.error().message;
      auto* first = reinterpret_cast<const float*>((*parts)[0].data());
      got.assign(first, first + (*parts)[0].size() / 4);
    });
    ASSERT_TRUE(event.ok());
    ASSERT_TRUE(device().Wait(*event).ok());
    EXPECT_EQ(got, texels);
  }
}

TEST_P(EveryDevice, ReadsImageBuffers) {
  if (!device().info().target.image_buffer) GTEST_SKIP() << "the API has no image buffers";
  std::vector<float> texels(12 * 4);
  for (size_t i = 0; i < texels.size(); ++i) texels[i] = float(i) - 20;
  auto in = Upload(device(), texels), out = Upload(device(), std::vector<float>(texels.size()));
  auto pipeline = MustCompile(device(), TextureKernel(language_, "buffer", false));
  ASSERT_TRUE(pipeline);
  Dispatch dispatch = MakeDispatch(*pipeline, {{in.get()}, {out.get()}}, 1);
  dispatch.workgroups[1] = 3;
  auto recording = device().Record({dispatch});
  ASSERT_TRUE(recording.ok()) << recording.error().message;
  ASSERT_TRUE(device().Submit(**recording, {}).ok());
  EXPECT_EQ(Download(device(), *out, texels.size()), texels);
}

TEST_P(EveryDevice, WorksBesideASecondOne) {
  auto other = OpenDevice(GetParam(), {});
  ASSERT_TRUE(other.ok()) << other.error().message;
  auto run = [&](Device& device, float x_value) {
    auto pipeline = MustCompile(device, Saxpy(language_));
    auto x = Upload(device, std::vector<float>(32, x_value)), y = Upload(device, std::vector<float>(32, 1));
    auto recording = device.Record({MakeDispatch(*pipeline, {{x.get()}, {y.get()}}, 1)});
    EXPECT_TRUE(device.Submit(**recording, {}).ok());
    return Download(device, *y, 1)[0];
  };
  EXPECT_EQ(run(device(), 1), 3);
  EXPECT_EQ(run(**other, 2), 5);
  EXPECT_EQ(run(device(), 3), 7);
  device_.reset();
  EXPECT_EQ(run(**other, 4), 9);
}

TEST_P(EveryDevice, ObjectsMayOutliveTheDevice) {
  auto pipeline = MustCompile(device(), Saxpy(language_));
  auto x = Upload(device(), std::vector<float>(32)), y = Upload(device(), std::vector<float>(32));
  auto recording = device().Record({MakeDispatch(*pipeline, {{x.get()}, {y.get()}}, 1)});
  ASSERT_TRUE(recording.ok());
  auto event = device().SubmitAndRead(**recording, {}, {{y.get(), 0, 128}}, [](auto) {});
  ASSERT_TRUE(event.ok());
  device_.reset();
}

size_t OpenFiles() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Of this process, in MiB.
double ResidentMegabytes() {
  long pages = 0, resident = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return double(resident) * 4096 / (1 << 20);
}

TEST_P(EveryDevice, LeavesNothingBehindAfter200Cycles) {
  device_.reset();
  size_t files_before = 0;
  double megabytes_before = 0;
  for (int cycle = 0; cycle < 200; ++cycle) {
    if (cycle == 50) {
      files_before = OpenFiles();
      megabytes_before = ResidentMegabytes();
    }
    auto opened = OpenDevice(GetParam(), {});
    ASSERT_TRUE(opened.ok()) << "cycle " << cycle << ": " << opened.error().message;
    auto buffer = Upload(**opened, std::vector<float>(64, float(cycle)));
    ASSERT_EQ(Download(**opened, *buffer, 1)[0], float(cycle));
  }
  EXPECT_LE(OpenFiles(), files_before);
  // Drivers keep some memory for themselves; 0.1 MiB a cycle would be a leak of ours.
  EXPECT_LE(ResidentMegabytes(), megabytes_before + 15);
  RecordProperty("growth_mib", std::to_string(ResidentMegabytes() - megabytes_before));
}

TEST_P(EveryDevice, FailsTheOrderedAllocation) {
  FaultPlan plan;
  plan.fail_allocation = 2;
  auto faulty = WithFaults(std::move(device_), plan);
  for (int i = 0; i < 5; ++i) {
    auto buffer = faulty->CreateBuffer(64, StrCat("number ", i));
    EXPECT_EQ(buffer.ok(), i != 2) << i;
    if (!buffer.ok()) { EXPECT_EQ(buffer.error().code, Code::kOutOfMemory); }
  }
}

TEST_P(EveryDevice, LosesTheDeviceAtTheOrderedSubmission) {
  FaultPlan plan;
  plan.lose_at_submit = 1;
  auto faulty = WithFaults(std::move(device_), plan);
  auto pipeline = MustCompile(*faulty, Saxpy(language_));
  auto x = Upload(*faulty, std::vector<float>(32)), y = Upload(*faulty, std::vector<float>(32));
  auto recording = faulty->Record({MakeDispatch(*pipeline, {{x.get()}, {y.get()}}, 1)});
  ASSERT_TRUE(recording.ok());
  ASSERT_TRUE(faulty->Wait(*faulty->Submit(**recording, {})).ok());
  Code got = Code::kInternal;
  auto event = faulty->SubmitAndRead(**recording, {}, {{y.get(), 0, 128}}, [&](auto parts) {
    ASSERT_FALSE(parts.ok());
    got = parts.error().code;
  });
  ASSERT_TRUE(event.ok());
  EXPECT_FALSE((*event)->done());
  EXPECT_EQ(faulty->Wait(*event).error().code, Code::kDeviceLost);
  EXPECT_EQ(got, Code::kDeviceLost);
  EXPECT_EQ(faulty->status().error().code, Code::kDeviceLost);
  EXPECT_EQ(faulty->CreateBuffer(64, "late").error().code, Code::kDeviceLost);
}

TEST_P(EveryDevice, FailsTheOrderedCompile) {
  FaultPlan plan;
  plan.fail_compile = 1;
  auto faulty = WithFaults(std::move(device_), plan);
  EXPECT_TRUE(MustCompile(*faulty, Saxpy(language_)));
  auto second = faulty->StartCompile(Saxpy(language_));
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE(faulty->Wait(second->ready).ok());
  EXPECT_TRUE(MustCompile(*faulty, Saxpy(language_)));
}

TEST_P(EveryDevice, TakesSmallerLimitsOnOrder) {
  OpenOptions minimal, tiny;
  minimal.minimal_limits = true;
  tiny.tiny_limits = true;
  auto small = OpenDevice(GetParam(), minimal), smaller = OpenDevice(GetParam(), tiny);
  ASSERT_TRUE(small.ok()) << small.error().message;
  ASSERT_TRUE(smaller.ok()) << smaller.error().message;
  EXPECT_LE((*small)->info().target.storage.max_binding_bytes, 128 << 20);
  EXPECT_LE((*small)->info().target.max_storage_buffers, 8u);
  EXPECT_LE((*smaller)->info().target.storage.max_binding_bytes, 1 << 20);
  OpenOptions plain;
  plain.no_f16 = plain.no_subgroups = true;
  auto without = OpenDevice(GetParam(), plain);
  ASSERT_TRUE(without.ok());
  EXPECT_FALSE((*without)->info().target.f16);
  EXPECT_FALSE((*without)->info().target.subgroups);
}

INSTANTIATE_TEST_SUITE_P(Device, EveryDevice, testing::ValuesIn(DeviceNames()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
});
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryDevice);

TEST(DawnExtensions, HaveTheNamesThatWeGiveThem) {
  auto opened = webgpu::GetApi().ok() ? webgpu::OpenAdapter({}, nullptr, {}) : Result<webgpu::Opened>(webgpu::GetApi().error());
  if (!opened.ok()) GTEST_SKIP() << opened.error().message;
  const webgpu::Core& core = *opened->core;
  for (const webgpu::DawnExtension& extension : webgpu::kDawnExtensions) {
    Status status = webgpu::CheckDawnExtension(core.instance(), core.adapter.get(), extension.type, extension.name);
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
  EXPECT_TRUE(webgpu::IsDawnFeature(webgpu::kSubgroupMatrix));
  EXPECT_FALSE(webgpu::IsDawnFeature({WGPUFeatureName_Subgroups, webgpu::kSubgroupMatrix.name}));
  // The check itself tells a wrong number, and a name of which ours is only the beginning.
  EXPECT_FALSE(webgpu::CheckDawnExtension(core.instance(), core.adapter.get(), static_cast<WGPUSType>(0x00050013),
                                          webgpu::kDawnToggles.name)
                   .ok());
  EXPECT_FALSE(webgpu::CheckDawnExtension(core.instance(), core.adapter.get(), webgpu::kDawnToggles.type, "DawnToggles").ok());
}

}  // namespace
}  // namespace leeway
