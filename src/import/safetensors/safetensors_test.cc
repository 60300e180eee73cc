#include "import/safetensors/safetensors.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/strings.h"
#include "import/test_files.h"
#include "test_folder.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

Result<std::shared_ptr<const SafetensorsFile>> Parse(Bytes bytes) {
  return SafetensorsFile::Read(MappedFile::FromBytes(std::move(bytes), "test.safetensors"));
}
std::string Fault(const std::string& header, size_t data_bytes = 8) {
  auto file = Parse(SafetensorsBytes(header, Bytes(data_bytes)));
  return file.ok() ? "none" : file.error().message;
}
#define EXPECT_FAULT(header, part)                           \
  do {                                                       \
    std::string fault = Fault(header);                       \
    EXPECT_NE(fault.find(part), std::string::npos) << fault; \
  } while (false)

TEST(Safetensors, ReadsWhatIsWritten) {
  auto opened = Parse(TestSafetensorsFiles()[0]);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const SafetensorsFile& file = **opened;
  ASSERT_EQ(file.tensors().size(), 6u);
  ASSERT_EQ(file.metadata().size(), 1u);
  EXPECT_EQ(file.metadata()[0], (std::pair<std::string, std::string>("format", "pt")));
  const SafetensorsTensor* head = file.FindTensor("lm_head.weight");
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->dtype, DType::kF16);
  EXPECT_EQ(head->shape, (Shape{4, 8}));
  EXPECT_EQ(file.View(*head).ToF32(), TestGgufTensor(DType::kF16, {4, 8}).ToF32());
  EXPECT_EQ(file.FindTensor("scalar")->shape.rank(), 0);
  EXPECT_EQ(file.FindTensor("empty")->bytes.size(), 0u);
  EXPECT_EQ(file.FindTensor("nothing"), nullptr);
  for (Bytes& bytes : TestSafetensorsFiles()) EXPECT_TRUE(Parse(std::move(bytes)).ok());
}

TEST(Safetensors, ViewsOfOddPlacesAreCopies) {
  const std::string header =
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  Bytes data(9);
  const float numbers[] = {1.5f, -2};
  std::memcpy(data.data() + 1, numbers, 8);
  auto file = Parse(SafetensorsBytes(header, data));
  ASSERT_TRUE(file.ok()) << file.error().message;
  const HostTensor b = (*file)->View(*(*file)->FindTensor("b"));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.bytes().data()) % 4, 0u);
  EXPECT_EQ(b.ToF32(), (std::vector<float>{1.5f, -2}));
}

TEST(Safetensors, RefusesBrokenHeaders) {
  EXPECT_EQ(Fault(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"), "none");
  EXPECT_FAULT("", "has a header that does not begin with {");
  EXPECT_FAULT("[]", "has a header that does not begin with {");
  EXPECT_FAULT("{", "has a header that is no JSON; the fault is near its byte");
  EXPECT_FAULT("{}x", "is no JSON");
  EXPECT_FAULT("{\"\xff\":1}", "is no JSON");
  EXPECT_FAULT(R"({"a":1})", "has a number for tensor \"a\" where the format wants something else");
  EXPECT_FAULT(R"({"a":[]})", "has an array for tensor \"a\"");
  EXPECT_FAULT(R"({"a":{}})", "has no \"dtype\" for tensor \"a\"");
  EXPECT_FAULT(R"({"a":{"dtype":"F32"}})", "has no \"shape\" for tensor \"a\"");
  EXPECT_FAULT(R"({"a":{"dtype":"F32","shape":[2]}})", "has no \"data_offsets\" for tensor \"a\"");
  EXPECT_FAULT(R"({"a":{"dtype":1}})", "has a number for tensor \"a\"");
  EXPECT_FAULT(R"({"a":{"dtype":"F32","dtype":"F32"}})", "has \"dtype\" twice for tensor \"a\"");
  EXPECT_FAULT(R"({"a":{"shape":2}})", "has a number for tensor \"a\"");
  EXPECT_FAULT(R"({"a":{"shape":[-2]}})", "has a negative number for tensor \"a\"");
  EXPECT_FAULT(R"({"a":{"shape":[2.0]}})", "has a fraction for tensor \"a\"");
  EXPECT_FAULT(R"({"a":{"shape":["2"]}})", "has a string for tensor \"a\"");
  EXPECT_FAULT(R"({"a":{"shape":[[2]]}})", "has an array for tensor \"a\"");
  EXPECT_FAULT(R"({"a":{"shape":[18446744073709551615]}})", "has extent 18446744073709551615 in tensor \"a\"");
  EXPECT_FAULT(R"({"a":{"shape":[1,1,1,1,1,1,1,1,1]}})", "has more than 8 axes in tensor \"a\"");
  EXPECT_FAULT(R"({"a":{"data_offsets":[0,8,8]}})", "has more than two data_offsets");
  EXPECT_FAULT(R"({"a":{"data_offsets":["0","8"]}})", "has a string for tensor \"a\"");
  EXPECT_FAULT(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", "has 1 data_offsets for tensor \"a\"; expected two");
  EXPECT_FAULT(R"({"__metadata__":{"a":1}})", "has a number for \"__metadata__\"");
  EXPECT_FAULT(R"({"__metadata__":{"a":"b","a":"b"}})", "has \"a\" twice in \"__metadata__\"");
  EXPECT_FAULT(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
               "has \"a\" twice");
  EXPECT_FAULT(R"({"a":{"more":)" + std::string(40, '[') + std::string(40, ']') + "}}", "is nested more than 32 deep");
  EXPECT_FAULT(R"({"a":)" + std::string(100000, '['), "has an array for tensor \"a\"");
}

TEST(Safetensors, RefusesTensorsThatDoNotFitTheData) {
  EXPECT_FAULT(R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", "of type \"F31\", which the format does not have");
  EXPECT_FAULT(R"({"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})", "of type F8_E4M3, which Leeway does not read");
  EXPECT_FAULT(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "has 8 bytes for tensor \"a\"; f32[3] takes 12");
  EXPECT_FAULT(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})",
               "has the tensor \"a\" at bytes 0 to 12 of the data, which are 8 bytes");
  EXPECT_FAULT(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "at bytes 8 to 0");
  EXPECT_FAULT(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "its tensors end at byte");
  EXPECT_FAULT(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "has the tensor \"a\" at byte");
  EXPECT_FAULT(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
               "has the tensor \"b\" at byte");
  EXPECT_FAULT(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})",
               "has more elements in tensor \"a\" than can be counted");
  EXPECT_FAULT(R"({"a":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})",
               "has more elements in tensor \"a\" than can be counted");
  EXPECT_FAULT(R"({"a":{"dtype":"F32","shape":[1073741824,536870912],"data_offsets":[0,0]}})", "takes 2305843009213693952");
  Bytes bytes = SafetensorsBytes("{}", {});
  for (uint64_t length : {uint64_t{3}, uint64_t{100'000'001}, ~uint64_t{0}, ~uint64_t{7}}) {
    std::memcpy(bytes.data(), &length, 8);
    auto file = Parse(bytes);
    ASSERT_FALSE(file.ok());
    EXPECT_NE(file.error().message.find(StrCat("has a header of ", length, " bytes; expected at most 2")), std::string::npos);
  }
}

TEST(Safetensors, CutAtAnyByteIsRefused) {
  for (const Bytes& whole : TestSafetensorsFiles()) {
    for (size_t size = 0; size < whole.size(); ++size) {
      ASSERT_FALSE(Parse(Bytes(whole.begin(), whole.begin() + ptrdiff_t(size))).ok()) << size;
    }
  }
}

class Folder : public TestFolder {
 protected:
  std::string FolderFault() {
    auto opened = SafetensorsFolder::Open(folder_.string());
    return opened.ok() ? "none" : opened.error().message;
  }
  void WriteShards() {
    const std::vector<NamedHostTensor> first = {{"a", TestGgufTensor(DType::kF32, {3})}};
    const std::vector<NamedHostTensor> second = {{"b", TestGgufTensor(DType::kF16, {5})},
                                                 {"c", TestGgufTensor(DType::kF32, {2})}};
    Write("model-00001-of-00002.safetensors", WriteSafetensors(first));
    Write("model-00002-of-00002.safetensors", WriteSafetensors(second));
  }
  void WriteIndex(const std::string& map) { Write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}"); }

  static constexpr char kMap[] =
      R"("a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors","c":"model-00002-of-00002.safetensors")";
};

TEST_F(Folder, OneFileOrShards) {
  EXPECT_NE(FolderFault().find("model.safetensors\" cannot be opened"), std::string::npos) << FolderFault();
  Write("model.safetensors", TestSafetensorsFiles()[0]);
  EXPECT_EQ(FolderFault(), "none");
  WriteShards();
  WriteIndex(kMap);
  auto opened = SafetensorsFolder::Open(folder_.string());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  ASSERT_EQ((*opened)->files().size(), 2u);
  EXPECT_EQ((*opened)->files()[1]->tensors().size(), 2u);
}

TEST_F(Folder, RefusesABrokenIndex) {
  WriteShards();
  auto expect = [&](const std::string& map, const std::string& part) {
    WriteIndex(map);
    EXPECT_NE(FolderFault().find(part), std::string::npos) << FolderFault();
  };
  const std::string map = kMap;
  expect("", "lists no tensor");
  expect(map + R"(,"d":"model-00002-of-00002.safetensors")",
         "says that model-00002-of-00002.safetensors has the tensor \"d\", but it has none");
  expect(map + R"(,"d":"model-00003.safetensors")", "cannot be opened");
  expect(map + R"(,"d":"../model.safetensors")",
         "names the file \"../model.safetensors\" for tensor \"d\"; expected one in the same folder");
  expect(map + R"(,"d":"x/y")", "names the file");
  expect(map + R"(,"d":3)", "has no file name for tensor \"d\"");
  expect(R"("a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors")",
         "has the tensor \"c\", which the index does not list there");
  Write("model.safetensors.index.json", "[]");
  EXPECT_NE(FolderFault().find("is no JSON object with a \"weight_map\""), std::string::npos) << FolderFault();
}

}  // namespace
}  // namespace leeway
