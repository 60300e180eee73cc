#include "import/gguf/gguf.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/strings.h"
#include "import/gguf/gguf_writer.h"
#include "import/test_files.h"

namespace leeway {
namespace {

using Bytes = std::vector<std::byte>;

Result<std::shared_ptr<const GgufFile>> Parse(Bytes bytes) {
  return GgufFile::Read(MappedFile::FromBytes(std::move(bytes), "test.gguf"));
}
std::string Fault(Bytes bytes) {
  auto file = Parse(std::move(bytes));
  return file.ok() ? "none" : file.error().message;
}
#define EXPECT_FAULT(bytes, part)                            \
  do {                                                       \
    std::string fault = Fault(bytes);                        \
    EXPECT_NE(fault.find(part), std::string::npos) << fault; \
  } while (false)

template <class T>
void Overwrite(Bytes& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

TEST(Gguf, ReadsWhatIsWritten) {
  const Bytes bytes = TestGguf();
  auto opened = Parse(bytes);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const GgufFile& file = **opened;
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(*file.String("general.architecture"), "llama");
  EXPECT_EQ(*file.Int("llama.block_count"), 2);
  EXPECT_EQ(*file.Int("test.i8"), -7);
  EXPECT_EQ(*file.Int("test.u64"), int64_t(1) << 40);
  EXPECT_EQ(*file.Int("test.i64"), -(int64_t(1) << 40));
  EXPECT_EQ(*file.Number("llama.rope.freq_base"), 10000.0);
  EXPECT_EQ(*file.Number("test.f64"), 0.1);
  EXPECT_EQ(*file.Number("llama.block_count"), 2.0);
  EXPECT_TRUE(*file.Bool("tokenizer.ggml.add_bos_token"));
  auto tokens = file.Strings("tokenizer.ggml.tokens");
  ASSERT_TRUE(tokens.ok());
  ASSERT_EQ(tokens->size(), 4u);
  EXPECT_EQ((*tokens)[1], "\xE2\x96\x81the");
  EXPECT_EQ((*tokens)[3], "");
  // A view of the file, no copy.
  EXPECT_EQ((*file.Floats("tokenizer.ggml.scores"))[2], -2.5f);
  EXPECT_EQ(*file.Ints("tokenizer.ggml.token_type"), (std::vector<int64_t>{2, 1, 6, 5}));
  EXPECT_EQ(*file.Ints("test.empty"), std::vector<int64_t>{});
  EXPECT_EQ(file.Find("none"), nullptr);
  EXPECT_EQ(file.Find("tokenizer.ggml.tokens")->TypeText(), "array of 4 string");

  ASSERT_EQ(file.tensors().size(), 5u);
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->shape, (Shape{4, 32}));
  EXPECT_EQ(embedding->dtype, DType::kQ8_0);
  EXPECT_EQ(file.View(*embedding).ToF32(), TestGgufTensor(DType::kQ8_0, {4, 32}).ToF32());
  const GgufTensor* norm = file.FindTensor("output_norm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(norm->shape, Shape{32});
  EXPECT_EQ(file.View(*norm).ToF32(), TestGgufTensor(DType::kF32, {32}).ToF32());
  EXPECT_EQ(norm->offset % 32, 0u);
  EXPECT_EQ(file.FindTensor("output.weight"), nullptr);
  // The tensor outlives the file.
  const HostTensor view = file.View(*norm);
  opened = Error{};
  EXPECT_EQ(view.ToF32(), TestGgufTensor(DType::kF32, {32}).ToF32());
}

TEST(Gguf, VocabulariesAreViewsOfTheFile) {
  auto mapped = MappedFile::FromBytes(TestGguf(), "test.gguf");
  auto file = GgufFile::Read(mapped);
  ASSERT_TRUE(file.ok());
  const auto* start = reinterpret_cast<const char*>(mapped->bytes().data());
  const auto tokens = (*file)->Strings("tokenizer.ggml.tokens");
  ASSERT_TRUE(tokens.ok());
  for (std::string_view token : *tokens) {
    EXPECT_GE(token.data(), start);
    EXPECT_LE(token.data() + token.size(), start + mapped->bytes().size());
  }
}

TEST(Gguf, TheSmallestExampleOfTheFormat) {
  GgufWriter writer;
  writer.String("general.architecture", "llama");
  writer.Tensor("w", HostTensor(DType::kQ8_0, {32}));
  Bytes bytes = writer.Finish();
  EXPECT_EQ(bytes.size(), 162u);  // without the padding at the end
  auto file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ((*file)->tensors()[0].offset, 128u);
  bytes.resize(192);  // with it
  EXPECT_EQ(Fault(bytes), "none");
  EXPECT_EQ(Fault(writer.Finish(32, 2)), "none");
}

TEST(Gguf, TypedGettersNameKeyFileAndWhatIsThere) {
  auto file = Parse(TestGguf());
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->Int("nothing").error().message, "The GGUF file \"test.gguf\" has no key \"nothing\".");
  EXPECT_EQ((*file)->Int("general.architecture").error().message,
            "The GGUF file \"test.gguf\" has string for key \"general.architecture\"; expected an integer.");
  EXPECT_FALSE((*file)->Int("llama.rope.freq_base").ok());
  EXPECT_FALSE((*file)->Int("tokenizer.ggml.token_type").ok());
  EXPECT_FALSE((*file)->Ints("llama.block_count").ok());
  EXPECT_FALSE((*file)->Ints("tokenizer.ggml.scores").ok());
  EXPECT_FALSE((*file)->Floats("tokenizer.ggml.tokens").ok());
  EXPECT_FALSE((*file)->Strings("tokenizer.ggml.scores").ok());
  EXPECT_FALSE((*file)->Bool("llama.block_count").ok());
  EXPECT_FALSE((*file)->String("llama.block_count").ok());
  EXPECT_FALSE((*file)->Int("test.large").ok());  // beyond int64
  EXPECT_EQ((*file)->Find("test.large")->Int(), std::nullopt);
}

// A file of one entry or one tensor whose fields can be changed by position.
Bytes OneEntry() {
  GgufWriter writer;
  writer.Number("key", uint32_t{1});  // length at 24, key at 32, type at 35, value at 39
  return writer.Finish();
}
Bytes OneTensor(DType dtype = DType::kF32, Shape shape = {2, 32}) {
  GgufWriter writer;
  writer.Tensor("w", HostTensor(dtype, shape));  // length at 24, name at 32, rank at 33, dims at 37, type at 53, offset at 57
  return writer.Finish();
}

TEST(Gguf, RefusesBrokenHeaders) {
  auto change = [](auto edit) {
    Bytes bytes = OneTensor();
    edit(bytes);
    return bytes;
  };
  EXPECT_EQ(Fault(OneTensor()), "none");
  EXPECT_FAULT(Bytes{}, "does not begin with");
  EXPECT_FAULT(change([](Bytes& b) { b[3] = std::byte('X'); }), "does not begin with the bytes \"GGUF\"");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 4, uint32_t{1}); }), "is of version 1; versions 2 and 3 are read");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 4, uint32_t{4}); }), "is of version 4");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 4, uint32_t{0x03000000}); }), "has big-endian numbers");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 8, int64_t{-1}); }), "says that it has 18446744073709551615 tensors");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 8, int64_t{1000}); }), "says that it has 1000 tensors");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 16, int64_t{1} << 40); }), "says that it has 1099511627776 metadata entries");
}

TEST(Gguf, RefusesBrokenMetadata) {
  auto change = [](auto edit) {
    Bytes bytes = OneEntry();
    edit(bytes);
    return bytes;
  };
  EXPECT_EQ(Fault(OneEntry()), "none");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 24, uint64_t{100}); }),
               "has a string of 100 bytes for the key of metadata entry 0");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 24, ~uint64_t{0}); }), "has a string of 18446744073709551615 bytes");
  EXPECT_FAULT(change([](Bytes& b) { b[33] = std::byte(0); }), "which is empty or no text");
  EXPECT_FAULT(change([](Bytes& b) { b[33] = std::byte(0xff); }), "has the key \"k?y\" for metadata entry 0");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 35, uint32_t{13}); }), "has a value of type 13 for key \"key\"");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 35, uint32_t(GgufType::kU64)); }), "for key \"key\", where 4 bytes are left");
  EXPECT_FAULT(change([](Bytes& b) {
                 Overwrite(b, 35, uint32_t(GgufType::kBool));
                 b[39] = std::byte(2);
               }),
               "has a bool of 2 for key \"key\"");

  GgufWriter twice;
  twice.Number("a", 1);
  twice.Number("a", 2.0f);
  EXPECT_FAULT(twice.Finish(), "has the key \"a\" twice");

  GgufWriter array;
  array.Numbers("a", std::vector<int32_t>{1, 2, 3});  // type at 33, element type at 37, count at 41, elements at 49
  Bytes bytes = array.Finish();
  EXPECT_EQ(Fault(bytes), "none");
  Bytes nested = bytes, many = bytes, huge = bytes, odd = bytes;
  Overwrite(nested, 37, uint32_t(GgufType::kArray));
  EXPECT_FAULT(nested, "has an array of arrays for key \"a\"");
  Overwrite(many, 41, uint64_t{4});
  EXPECT_FAULT(many, "has 4 elements of i32 for key \"a\", where 12 bytes are left");
  Overwrite(huge, 41, ~uint64_t{0} / 4 + 2);  // times four it would fit
  EXPECT_FAULT(huge, "has 4611686018427387905 elements of i32");
  Overwrite(odd, 37, uint32_t{77});
  EXPECT_FAULT(odd, "has a value of type 77");

  for (auto [alignment, fault] : {std::pair{uint32_t{24}, "has general.alignment 24"},
                                  {uint32_t{4}, "has general.alignment 4"},
                                  {uint32_t{0}, "has general.alignment 0"}}) {
    GgufWriter writer;
    writer.Number("general.alignment", alignment);
    EXPECT_FAULT(writer.Finish(), fault);
  }
  GgufWriter writer;
  writer.Number("general.alignment", uint64_t{32});
  EXPECT_FAULT(writer.Finish(), "has u64 for key \"general.alignment\"; expected u32");
}

TEST(Gguf, TakesOtherAlignments) {
  for (uint32_t alignment : {8u, 64u, 4096u}) {
    GgufWriter writer;
    writer.Number("general.alignment", alignment);
    writer.Tensor("a", TestGgufTensor(DType::kQ4_0, {1, 32}));
    writer.Tensor("b", TestGgufTensor(DType::kF32, {3}));
    auto file = Parse(writer.Finish(alignment));
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ((*file)->View((*file)->tensors()[1]).ToF32(), TestGgufTensor(DType::kF32, {3}).ToF32());
  }
}

TEST(Gguf, RefusesBrokenTensors) {
  auto change = [](auto edit, DType dtype = DType::kF32) {
    Bytes bytes = OneTensor(dtype);
    edit(bytes);
    return bytes;
  };
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 24, uint64_t{0}); }),
               "has the name \"\" for tensor 0, which is empty or no text");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 24, uint64_t{70}); }), "for tensor 0");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 33, uint32_t{5}); }), "has 5 axes for tensor \"w\"");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 37, int64_t{-1}); }), "has extent 18446744073709551615 in tensor \"w\"");
  EXPECT_FAULT(change([](Bytes& b) {
                 Overwrite(b, 37, int64_t{1} << 40);
                 Overwrite(b, 45, int64_t{1} << 40);
               }),
               "has more elements in tensor \"w\" than can be counted");
  EXPECT_FAULT(change([](Bytes& b) {
                 Overwrite(b, 37, int64_t{1} << 40);
                 Overwrite(b, 45, int64_t{1} << 22);
               }),
               "has more elements in tensor \"w\" than can be counted");
  EXPECT_FAULT(change([](Bytes& b) {  // its bits do not fit 64 bits
                 Overwrite(b, 37, int64_t{1} << 30);
                 Overwrite(b, 45, int64_t{1} << 29);
               }),
               "has the tensor \"w\" of 2305843009213693952 bytes at offset 0");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 37, int64_t{33}); }), "has the tensor \"w\" of 264 bytes at offset 0");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 37, int64_t{40}); }, DType::kQ4_0),
               "has rows of 40 elements in tensor \"w\", which are no whole blocks of 32, as q4_0 needs");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 53, uint32_t{17}); }),
               "has the tensor \"w\" of type 17 (IQ2_XS), which Leeway does not read");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 53, uint32_t{31}); }),
               "has the tensor \"w\" of type 31, which the format does not have");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 57, uint64_t{16}); }),
               "has the tensor \"w\" at offset 16, no multiple of 32");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 57, uint64_t{32}); }),
               "has the tensor \"w\" of 256 bytes at offset 32 of the data, which begin at 96 of 352 bytes");
  EXPECT_FAULT(change([](Bytes& b) { Overwrite(b, 57, ~uint64_t{31}); }), "at offset 18446744073709551584 of the data");

  GgufWriter twice;
  twice.Tensor("a", HostTensor(DType::kF32, {8}));
  twice.Tensor("a", HostTensor(DType::kF32, {8}));
  EXPECT_FAULT(twice.Finish(), "has the tensor \"a\" twice");

  GgufWriter longest, too_long;
  longest.Tensor(std::string(63, 'n'), HostTensor(DType::kF32, {1}));
  too_long.Tensor(std::string(64, 'n'), HostTensor(DType::kF32, {1}));
  EXPECT_EQ(Fault(longest.Finish()), "none");
  EXPECT_FAULT(too_long.Finish(), "has a tensor name of 64 bytes");

  GgufWriter overlapping;
  overlapping.Tensor("a", HostTensor(DType::kF32, {16}));
  overlapping.Tensor("b", HostTensor(DType::kF32, {16}));
  Bytes bytes = overlapping.Finish();  // descriptions of 33 bytes from 24 on; b's offset at 24 + 33 + 25
  EXPECT_EQ(Fault(bytes), "none");
  Overwrite(bytes, 24 + 33 + 25, uint64_t{32});
  EXPECT_FAULT(bytes, "has the tensors \"a\" and \"b\" at overlapping places");
}

TEST(Gguf, OddShapesAreTensorsToo) {
  GgufWriter writer;
  writer.Tensor("scalar", TestGgufTensor(DType::kF32, {}));
  writer.Tensor("empty", HostTensor(DType::kF32, {3, 0}));
  writer.Tensor("last", TestGgufTensor(DType::kBF16, {2, 1, 3, 5}));
  auto file = Parse(writer.Finish());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ((*file)->tensors()[0].shape.rank(), 0);
  EXPECT_EQ((*file)->tensors()[1].bytes.size(), 0u);
  EXPECT_EQ((*file)->View((*file)->tensors()[2]).ToF32(), TestGgufTensor(DType::kBF16, {2, 1, 3, 5}).ToF32());
}

TEST(Gguf, CutAtAnyByteIsRefusedOrWhole) {
  const Bytes whole = TestGguf();
  for (size_t size = 0; size < whole.size(); ++size) {
    auto file = Parse(Bytes(whole.begin(), whole.begin() + ptrdiff_t(size)));
    ASSERT_FALSE(file.ok()) << size;
    ASSERT_NE(file.error().code, Code::kInternal);
  }
}

TEST(Gguf, NamesAMissingFile) {
  auto file = GgufFile::Open("/nowhere/model.gguf");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, Code::kNotFound);
  EXPECT_NE(file.error().message.find("/nowhere/model.gguf"), std::string::npos);
}

}  // namespace
}  // namespace leeway
