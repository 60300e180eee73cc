#include "cli/image.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

namespace leeway::cli {
namespace {

Image Plain(int width, int height, uint8_t r, uint8_t g, uint8_t b) {
  Image image{width, height, {}};
  for (int i = 0; i < width * height; ++i) image.rgba.insert(image.rgba.end(), {r, g, b, 255});
  return image;
}

TEST(Resize, KeepsValuesAtTheSameSize) {
  std::vector<float> values;
  for (int i = 0; i < 5 * 3 * 2; ++i) values.push_back(float(i * i % 17));
  EXPECT_EQ(Resize(values, 5, 3, 2, 5, 3), values);
}

TEST(Resize, KeepsAConstantAtAnySize) {
  const std::vector<float> values(7 * 5, 3.5f);
  for (int width : {1, 2, 7, 9, 31})
    for (int height : {1, 4, 5, 20})
      for (float v : Resize(values, 7, 5, 1, width, height)) EXPECT_NEAR(v, 3.5f, 1e-5f) << width << " x " << height;
}

TEST(Resize, EnlargesBetweenPixelCentres) {
  // Pillow's bilinear filter on [0, 4] to four pixels: centres at .25, .75, 1.25, 1.75 of the source.
  const std::vector<float> out = Resize(std::vector<float>{0, 4}, 2, 1, 1, 4, 1);
  const std::vector<float> want = {0, 1, 3, 4};
  ASSERT_EQ(out.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(out[i], want[i], 1e-5f);
}

TEST(Resize, ShrinkingAveragesAllPixels) {
  const std::vector<float> out = Resize(std::vector<float>{0, 0, 8, 8}, 4, 1, 1, 1, 1);
  EXPECT_NEAR(out[0], 4, 1e-4f);
}

TEST(ImageToTensor, MapsBytesToTheRange) {
  auto input = ImageToTensor(Plain(4, 4, 255, 0, 51), DType::kF32, {1, 2, 2, 3}, {-1, 1, false});
  ASSERT_TRUE(input.ok()) << input.error().message;
  EXPECT_FLOAT_EQ(float(input->tensor.Get(0)), 1);
  EXPECT_FLOAT_EQ(float(input->tensor.Get(1)), -1);
  EXPECT_NEAR(float(input->tensor.Get(2)), -0.6f, 1e-6f);
  auto bytes = ImageToTensor(Plain(4, 4, 255, 0, 51), DType::kI8, {1, 2, 2, 3}, {});
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(bytes->tensor.Get(0), 127);
  EXPECT_EQ(bytes->tensor.Get(1), -128);
}

TEST(ImageToTensor, LetterboxKeepsTheAspect) {
  auto input = ImageToTensor(Plain(20, 10, 255, 255, 255), DType::kF32, {1, 8, 8, 1}, {0, 1, true});
  ASSERT_TRUE(input.ok());
  EXPECT_FLOAT_EQ(input->fit.top, 0.25f);
  EXPECT_FLOAT_EQ(input->fit.height, 0.5f);
  EXPECT_EQ(input->tensor.Get(0), 0);                  // a bar
  EXPECT_NEAR(input->tensor.Get(4 * 8 + 3), 1, 1e-6);  // the picture
}

TEST(ImageToTensor, RefusesOtherShapes) {
  for (const Shape& shape : {Shape{1, 8, 8}, Shape{2, 8, 8, 3}, Shape{1, 8, 8, 2}, Shape{1, 0, 8, 3}}) {
    auto input = ImageToTensor(Plain(2, 2, 1, 2, 3), DType::kF32, shape, {});
    ASSERT_FALSE(input.ok()) << shape.ToString();
    EXPECT_EQ(input.error().code, Code::kInvalidArgument);
  }
}

TEST(LoadImage, NamesTheFileThatIsNoPicture) {
  const std::string path = testing::TempDir() + "/no_picture.png";
  std::FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  std::fputs("this is text", file);
  std::fclose(file);
  for (const std::string& name : {path, testing::TempDir() + "/absent.png"}) {
    auto image = LoadImage(name);
    ASSERT_FALSE(image.ok());
    EXPECT_NE(image.error().message.find(name), std::string::npos);
  }
}

TEST(SavePng, ReadsBackTheSame) {
  const std::string path = testing::TempDir() + "/leeway_image.png";
  Image image = Plain(3, 2, 9, 200, 31);
  image.at(2, 1)[0] = 77;
  ASSERT_TRUE(SavePng(image, path).ok());
  auto back = LoadImage(path);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->rgba, image.rgba);
  EXPECT_FALSE(SavePng(image, "/no/such/folder/x.png").ok());
}

}  // namespace
}  // namespace leeway::cli
