#include "cli/inputs.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/npz.h"
#include "base/strings.h"
#include "cli/common.h"

namespace leeway::cli {
namespace {

std::optional<DType> FromNumpy(const std::string& descr) {
  static const std::pair<const char*, DType> kTypes[] = {{"<f4", DType::kF32}, {"<f2", DType::kF16}, {"<f8", DType::kF64},
                                                         {"<i8", DType::kI64}, {"<i4", DType::kI32}, {"<i2", DType::kI16},
                                                         {"|i1", DType::kI8},  {"<u8", DType::kU64}, {"<u4", DType::kU32},
                                                         {"<u2", DType::kU16}, {"|u1", DType::kU8},  {"|b1", DType::kBool}};
  for (const auto& [text, dtype] : kTypes)
    if (descr == text) return dtype;
  return std::nullopt;
}

// numpy has no bfloat16, no blocks and no 4-bit types: those are saved as f32 and i8.
NpyArray ToNumpy(const HostTensor& tensor) {
  HostTensor source = tensor;
  const char* descr = "<f4";
  switch (tensor.dtype()) {
    case DType::kF32: descr = "<f4"; break;
    case DType::kF16: descr = "<f2"; break;
    case DType::kBF16:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ8_0:
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
    case DType::kIQ4_NL: source = tensor.ConvertTo(DType::kF32); break;
    case DType::kF64: descr = "<f8"; break;
    case DType::kI64: descr = "<i8"; break;
    case DType::kI32: descr = "<i4"; break;
    case DType::kI16: descr = "<i2"; break;
    case DType::kI8: descr = "|i1"; break;
    case DType::kU64: descr = "<u8"; break;
    case DType::kU32: descr = "<u4"; break;
    case DType::kU16: descr = "<u2"; break;
    case DType::kU8: descr = "|u1"; break;
    case DType::kBool: descr = "|b1"; break;
    case DType::kI4:
    case DType::kU4:
    case DType::kI2: source = tensor.ConvertTo(DType::kI8), descr = "|i1"; break;
  }
  return {descr, {tensor.shape().begin(), tensor.shape().end()}, {source.bytes().begin(), source.bytes().end()}};
}

// "name=file" where `name` is one of the model's; else the whole text is the file.
std::pair<std::string, std::string> SplitName(const std::string& text, const std::vector<TensorInfo>& tensors) {
  const size_t equals = text.rfind('=');
  if (equals != std::string::npos) {
    const std::string name = text.substr(0, equals);
    for (const TensorInfo& t : tensors)
      if (t.name == name) return {name, text.substr(equals + 1)};
  }
  return {"", text};
}

bool EndsWith(const std::string& text, const char* ending) {
  const size_t n = std::strlen(ending);
  if (text.size() < n) return false;
  for (size_t i = 0; i < n; ++i)
    if (std::tolower(static_cast<unsigned char>(text[text.size() - n + i])) != ending[i]) return false;
  return true;
}

Status SetArray(CompiledModel& model, int index, const NpyArray& array, const std::string& file) {
  const TensorInfo& info = model.inputs()[size_t(index)];
  const std::optional<DType> dtype = FromNumpy(array.descr);
  if (!dtype) {
    return Error{Code::kUnsupported, StrCat("The array for input ", info.name, " in ", file, " has the type ", array.descr,
                                            ", which is none of numpy's number types.")};
  }
  auto without_ones = [](const std::vector<int64_t>& shape) {
    std::vector<int64_t> out;
    for (int64_t extent : shape)
      if (extent != 1) out.push_back(extent);
    return out;
  };
  if (without_ones(array.shape) != without_ones(info.shape)) {
    return Error{Code::kInvalidArgument, StrCat("The array for input ", info.name, " in ", file, " has the shape [",
                                                Join(array.shape, ", "), "], and the model expects ", ShapeText(info), ".")};
  }
  if (IsFloat(*dtype) != IsFloat(info.dtype)) {
    return Error{Code::kInvalidArgument, StrCat("The array for input ", info.name, " in ", file, " has the type ",
                                                DTypeName(*dtype), ", and the model expects ", ShapeText(info), ".")};
  }
  const HostTensor tensor(*dtype, Shape(std::span<const int64_t>(info.shape)), array.bytes, nullptr);
  return model.SetInput(index, tensor.ConvertTo(info.dtype).bytes());
}

// The same draw as the reference outputs of tests/goldens were made with: splitmix64 of the running number of the value.
double Draw01(uint64_t i) {
  uint64_t z = (i + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return double((z ^ (z >> 31)) >> 40) / double(1 << 24);
}

std::optional<std::vector<float>> Numbers(const std::string& text) {
  std::vector<float> out;
  const char* at = text.c_str();
  while (*at) {
    char* end = nullptr;
    const float v = std::strtof(at, &end);
    if (end == at) {
      ++at;
      continue;
    }
    out.push_back(v);
    at = end;
  }
  if (out.empty()) return std::nullopt;
  return out;
}

}  // namespace

std::vector<TensorShape> ToShapes(const std::vector<TensorInfo>& tensors) {
  std::vector<TensorShape> shapes;
  for (const TensorInfo& t : tensors) shapes.push_back({t.name, t.dtype, Shape(std::span<const int64_t>(t.shape))});
  return shapes;
}

void AddInputArguments(CLI::App& command, InputArguments& a) {
  command.add_option("-i,--input", a.pictures, "A picture or a .npy file, for the only input or as name=file; may be repeated");
  command.add_option("--inputs", a.npz, "A .npz file with arrays by input name");
  command
      .add_option_function<std::vector<float>>(
          "--range", [&a](const std::vector<float>& r) { a.low = r[0], a.high = r[1]; },
          "What black and white become in a float input, as `-1 1` (default: what the model says, else 0 1)")
      ->expected(2);
  command.add_option("--mean", a.mean, "Subtracted from 0..255, one or one a channel")->expected(1, 4);
  command.add_option("--std", a.deviation, "Then divided by, one or one a channel")->expected(1, 4);
  command.add_option("--fit", a.fit, "How a picture of another aspect goes in")->check(CLI::IsMember({"stretch", "letterbox"}));
  command.add_flag("--random", a.random, "Draw inputs that are not given at random (the same in each call) instead of zeros");
}

Result<InputsSet> SetInputs(CompiledModel& model, const Meaning& meaning, const InputArguments& a) {
  InputsSet set;
  const std::vector<TensorInfo>& infos = model.inputs();
  std::vector<bool> given(infos.size(), false);

  if (!a.npz.empty()) {
    ASSIGN_OR_RETURN(auto arrays, ReadArrayFile(a.npz));
    for (const auto& [name, array] : arrays) {
      int index = 0;
      if (!(name.empty() && infos.size() == 1)) {
        ASSIGN_OR_RETURN_CONTEXT(index, model.InputIndex(name), StrCat("reading ", a.npz));
      }
      RETURN_IF_ERROR(SetArray(model, index, array, a.npz));
      given[size_t(index)] = true;
    }
  }

  for (const std::string& text : a.pictures) {
    const auto [name, file] = SplitName(text, infos);
    int index = 0;
    if (!name.empty()) {
      ASSIGN_OR_RETURN(index, model.InputIndex(name));
    } else if (infos.size() != 1) {
      std::vector<std::string> names;
      for (const TensorInfo& t : infos) names.push_back(t.name);
      return Error{Code::kInvalidArgument,
                   StrCat("The model has ", infos.size(), " inputs, so --input needs a name, as in name=", file,
                          "; they are: ", Join(names, ", "), ".")};
    }
    const TensorInfo& info = infos[size_t(index)];
    given[size_t(index)] = true;
    if (EndsWith(file, ".npy") || EndsWith(file, ".npz")) {
      ASSIGN_OR_RETURN(auto arrays, ReadArrayFile(file));
      if (arrays.size() != 1) {
        return Error{Code::kInvalidArgument,
                     StrCat("The file ", file, " holds ", arrays.size(), " arrays; use --inputs for several, by name.")};
      }
      RETURN_IF_ERROR(SetArray(model, index, arrays[0].second, file));
      continue;
    }

    ASSIGN_OR_RETURN(Image picture, LoadImage(file));
    InputRule rule = meaning.input;
    std::vector<float> mean = a.mean, deviation = a.deviation;
    if (IsFloat(info.dtype) && mean.empty() && deviation.empty() && !a.low) {
      const auto& metadata = model.metadata();
      const auto file_mean = metadata.find("normalization.mean"), file_std = metadata.find("normalization.std");
      if (file_mean != metadata.end() && file_std != metadata.end()) {
        const auto m = Numbers(file_mean->second), d = Numbers(file_std->second);
        if (m && d) {
          mean = *m, deviation = *d;
          set.said.push_back("picture: normalized as the file's metadata says");
        }
      }
      if (mean.empty()) {
        set.said.push_back(StrCat("picture: black is ", rule.low, " and white is ", rule.high,
                                  meaning.kind == Meaning::Kind::kNone
                                      ? " (say --range or --mean and --std if the model wants another)"
                                      : StrCat(", as models for ", meaning.what, " expect")));
      }
    }
    if (a.low) rule.low = *a.low, rule.high = *a.high;
    if (!a.fit.empty()) rule.letterbox = a.fit == "letterbox";
    if (!mean.empty() || !deviation.empty()) rule.low = 0, rule.high = 255;
    const Shape shape(std::span<const int64_t>(info.shape));
    ASSIGN_OR_RETURN_CONTEXT(ImageInput input, ImageToTensor(picture, info.dtype, shape, rule),
                             StrCat("putting ", file, " into input ", info.name));
    if (!mean.empty() || !deviation.empty()) {
      const int64_t channels = shape[3];
      for (const auto* values : {&mean, &deviation}) {
        if (values->size() > 1 && int64_t(values->size()) != channels) {
          return Error{Code::kInvalidArgument, StrCat("--mean and --std take one value or one for each of the ", channels,
                                                      " channels; ", values->size(), " are given.")};
        }
      }
      auto pick = [](const std::vector<float>& v, int64_t c, float fallback) {
        return v.empty() ? fallback : v.size() == 1 ? v[0] : v[size_t(c)];
      };
      for (int64_t i = 0; i < input.tensor.element_count(); ++i) {
        const float divisor = pick(deviation, i % channels, 1);
        if (divisor == 0) return Error{Code::kInvalidArgument, "--std is 0, which nothing can be divided by."};
        input.tensor.Set(i, (input.tensor.Get(i) - pick(mean, i % channels, 0)) / divisor);
      }
    }
    RETURN_IF_ERROR(model.SetInput(index, input.tensor.bytes()));
    set.picture = PictureInput{std::move(picture), input.fit, shape};
  }

  uint64_t number = 0;
  for (size_t i = 0; i < infos.size(); ++i) {
    const Shape shape(std::span<const int64_t>(infos[i].shape));
    const int64_t count = shape.element_count();
    if (!given[i] && a.random) {
      HostTensor tensor(infos[i].dtype, shape);
      const bool is_float = IsFloat(infos[i].dtype);
      const double low = infos[i].dtype == DType::kI8 ? -100 : 0;
      for (int64_t k = 0; k < count; ++k) {
        const double u = Draw01(number + uint64_t(k));
        const auto whole = uint64_t(u * (1 << 24));
        tensor.Set(k, is_float                         ? u
                      : infos[i].dtype == DType::kBool ? double(whole % 2)
                                                       : low + double(whole % uint64_t(100 - low)));
      }
      RETURN_IF_ERROR(model.SetInput(int(i), tensor.bytes()));
    } else if (!given[i]) {
      set.said.push_back(StrCat("input ", infos[i].name, ": not given, all zeros"));
    }
    number += uint64_t(count);
  }
  return set;
}

std::vector<HostTensor> GetOutputs(const CompiledModel& model) {
  std::vector<HostTensor> tensors;
  for (size_t i = 0; i < model.outputs().size(); ++i) {
    const TensorInfo& info = model.outputs()[i];
    HostTensor tensor(info.dtype, Shape(std::span<const int64_t>(info.shape)));
    const auto bytes = model.OutputBytes(int(i));
    std::copy_n(bytes.begin(), std::min(bytes.size(), tensor.bytes().size()), tensor.mutable_bytes().begin());
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Status SaveOutputs(const CompiledModel& model, const std::vector<HostTensor>& outputs, const std::string& target) {
  const auto [name, file] = SplitName(target, model.outputs());
  std::vector<std::byte> bytes;
  if (EndsWith(file, ".npz")) {
    std::vector<std::pair<std::string, NpyArray>> arrays;
    for (size_t i = 0; i < outputs.size(); ++i)
      if (name.empty() || name == model.outputs()[i].name) arrays.emplace_back(model.outputs()[i].name, ToNumpy(outputs[i]));
    ASSIGN_OR_RETURN_CONTEXT(bytes, WriteNpz(arrays), StrCat("writing ", file));
  } else if (EndsWith(file, ".npy")) {
    int index = 0;
    if (!name.empty()) {
      ASSIGN_OR_RETURN(index, model.OutputIndex(name));
    } else if (outputs.size() != 1) {
      return Error{Code::kInvalidArgument, StrCat("The model has ", outputs.size(), " outputs: name one, as in name=", file,
                                                  ", or save all to a .npz file.")};
    }
    bytes = WriteNpy(ToNumpy(outputs[size_t(index)]));
  } else {
    return Error{Code::kInvalidArgument, StrCat("--outputs takes .npz or .npy files; ", file, " is neither.")};
  }
  std::FILE* out = std::fopen(file.c_str(), "wb");
  const bool written = out && std::fwrite(bytes.data(), 1, bytes.size(), out) == bytes.size();
  const bool closed = out && std::fclose(out) == 0;
  if (!written || !closed) return Error{Code::kIo, StrCat("The file ", file, " can't be written.")};
  return {};
}

}  // namespace leeway::cli
