#include "import/gguf/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/strings.h"
#include "base/utf8.h"

namespace leeway {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are read as they lie");

template <class T>
T Load(const std::byte* at) {
  T value;  // nothing in the metadata is aligned
  std::memcpy(&value, at, sizeof(T));
  return value;
}

struct TypeRow {
  const char* name;
  uint32_t bytes;  // 0: string or array
};
constexpr std::array<TypeRow, 13> kTypes = {{{"u8", 1},
                                             {"i8", 1},
                                             {"u16", 2},
                                             {"i16", 2},
                                             {"u32", 4},
                                             {"i32", 4},
                                             {"f32", 4},
                                             {"bool", 1},
                                             {"string", 0},
                                             {"array", 0},
                                             {"u64", 8},
                                             {"i64", 8},
                                             {"f64", 8}}};

// Element types of tensors by the format's number. Without a dtype: named in the refusal.
struct TensorTypeRow {
  uint32_t id;
  const char* name;
  std::optional<DType> dtype;
};
constexpr TensorTypeRow kTensorTypes[] = {
    {0, "F32", DType::kF32},
    {1, "F16", DType::kF16},
    {2, "Q4_0", DType::kQ4_0},
    {3, "Q4_1", DType::kQ4_1},
    {4, "Q4_2, which the format has dropped", {}},
    {5, "Q4_3, which the format has dropped", {}},
    {6, "Q5_0", DType::kQ5_0},
    {7, "Q5_1", DType::kQ5_1},
    {8, "Q8_0", DType::kQ8_0},
    {9, "Q8_1", {}},
    {10, "Q2_K", DType::kQ2_K},
    {11, "Q3_K", DType::kQ3_K},
    {12, "Q4_K", DType::kQ4_K},
    {13, "Q5_K", DType::kQ5_K},
    {14, "Q6_K", DType::kQ6_K},
    {15, "Q8_K", {}},
    {16, "IQ2_XXS", {}},
    {17, "IQ2_XS", {}},
    {18, "IQ3_XXS", {}},
    {19, "IQ1_S", {}},
    {20, "IQ4_NL", DType::kIQ4_NL},
    {21, "IQ3_S", {}},
    {22, "IQ2_S", {}},
    {23, "IQ4_XS", {}},
    {24, "I8", DType::kI8},
    {25, "I16", DType::kI16},
    {26, "I32", DType::kI32},
    {27, "I64", DType::kI64},
    {28, "F64", DType::kF64},
    {29, "IQ1_M", {}},
    {30, "BF16", DType::kBF16},
    {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},
    {39, "MXFP4", {}},
    {40, "NVFP4", {}},
    {41, "Q1_0", {}},
    {42, "Q2_0", {}},
};

// Names are text that messages and tables show.
bool IsName(std::string_view name) { return !name.empty() && name.find('\0') == std::string_view::npos && IsUtf8(name); }

// A name as a message may show it, whatever its bytes are.
std::string Shown(std::string_view name) {
  constexpr size_t kMost = 80;
  std::string text = "\"";
  for (char c : name.substr(0, kMost)) text += c >= 0x20 && c < 0x7f ? c : '?';
  if (name.size() > kMost) text += "...";
  return text + "\"";
}

constexpr uint64_t kLongestString = uint64_t(1) << 30, kMostElements = uint64_t(1) << 30;
// Records of the shortest names: what bounds the counts before anything is allocated.
constexpr uint64_t kSmallestEntry = 8 + 1 + 4 + 1, kSmallestTensor = 8 + 1 + 4 + 4 + 8;

}  // namespace

const char* GgufTypeName(GgufType type) { return kTypes[size_t(type)].name; }

std::optional<uint32_t> GgufTensorTypeId(DType dtype) {
  for (const TensorTypeRow& row : kTensorTypes) {
    if (row.dtype == dtype) return row.id;
  }
  return std::nullopt;
}

std::optional<int64_t> GgufValue::Int(uint64_t i) const {
  CHECK(i < count_);
  auto at = [&]<class T>(T) { return Load<T>(bytes_.data() + i * sizeof(T)); };
  switch (type_) {
    case GgufType::kU8: return at(uint8_t{});
    case GgufType::kI8: return at(int8_t{});
    case GgufType::kU16: return at(uint16_t{});
    case GgufType::kI16: return at(int16_t{});
    case GgufType::kU32: return at(uint32_t{});
    case GgufType::kI32: return at(int32_t{});
    case GgufType::kI64: return at(int64_t{});
    case GgufType::kU64: {
      const uint64_t value = at(uint64_t{});
      if (value > uint64_t(INT64_MAX)) return std::nullopt;
      return int64_t(value);
    }
    case GgufType::kF32:
    case GgufType::kF64:
    case GgufType::kBool:
    case GgufType::kString:
    case GgufType::kArray: return std::nullopt;
  }
  CHECK(false);
}

std::optional<double> GgufValue::Number(uint64_t i) const {
  CHECK(i < count_);
  if (type_ == GgufType::kF32) return Load<float>(bytes_.data() + i * 4);
  if (type_ == GgufType::kF64) return Load<double>(bytes_.data() + i * 8);
  const std::optional<int64_t> integer = Int(i);
  if (!integer) return std::nullopt;
  return double(*integer);
}

std::optional<bool> GgufValue::Bool(uint64_t i) const {
  CHECK(i < count_);
  if (type_ != GgufType::kBool) return std::nullopt;
  return bytes_[i] != std::byte(0);
}

std::optional<std::string_view> GgufValue::String(uint64_t i) const {
  CHECK(i < count_);
  if (type_ != GgufType::kString) return std::nullopt;
  return strings_[i];
}

std::string GgufValue::TypeText() const {
  return is_array_ ? StrCat("array of ", count_, " ", GgufTypeName(type_)) : GgufTypeName(type_);
}

// Reads from the front to the back; every length is compared with what is left before it is believed.
class GgufReader {
 public:
  explicit GgufReader(std::shared_ptr<const MappedFile> file) : bytes_(file->bytes()) { gguf_.file_ = std::move(file); }

  Result<std::shared_ptr<const GgufFile>> Run() {
    ASSIGN_OR_RETURN(const Counts counts, Header());
    gguf_.entries_.reserve(counts.entries);
    gguf_.entry_index_.reserve(counts.entries);
    for (uint64_t i = 0; i < counts.entries; ++i) RETURN_IF_ERROR(ReadEntry(i));
    ASSIGN_OR_RETURN(const uint64_t alignment, Alignment());
    gguf_.tensors_.reserve(counts.tensors);
    gguf_.tensor_index_.reserve(counts.tensors);
    for (uint64_t i = 0; i < counts.tensors; ++i) RETURN_IF_ERROR(ReadTensor(i));
    if (counts.tensors > 0) RETURN_IF_ERROR(PlaceTensors(alignment));
    return std::shared_ptr<const GgufFile>(new GgufFile(std::move(gguf_)));
  }

 private:
  struct Counts {
    uint64_t entries, tensors;
  };

  template <class... Parts>
  Error Bad(const Parts&... parts) const {
    return Error{Code::kInvalidModel, StrCat("The GGUF file \"", gguf_.path(), "\" ", parts..., ".")};
  }
  template <class... Parts>
  Error Foreign(const Parts&... parts) const {
    return Error{Code::kUnsupported, StrCat("The GGUF file \"", gguf_.path(), "\" ", parts..., ".")};
  }

  uint64_t left() const { return bytes_.size() - at_; }

  template <class T>
  Result<T> Take(std::string_view what) {
    if (left() < sizeof(T)) return Bad("ends at byte ", bytes_.size(), ", within ", what);
    const T value = Load<T>(bytes_.data() + at_);
    at_ += sizeof(T);
    return value;
  }

  Result<std::string_view> TakeString(std::string_view what) {
    ASSIGN_OR_RETURN(const uint64_t length, Take<uint64_t>(what));
    if (length > left() || length > kLongestString) {
      return Bad("has a string of ", length, " bytes for ", what, ", where ", left(), " bytes are left");
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, length);
    at_ += length;
    return text;
  }

  Result<Counts> Header() {
    if (!GgufFile::LooksLikeIt(bytes_)) return Bad("does not begin with the bytes \"GGUF\"");
    at_ = 4;
    ASSIGN_OR_RETURN(gguf_.version_, Take<uint32_t>("the header"));
    if ((gguf_.version_ & 0xffff) == 0) return Foreign("has big-endian numbers; only little-endian files are read");
    if (gguf_.version_ != 2 && gguf_.version_ != 3) {
      return Foreign("is of version ", gguf_.version_, "; versions 2 and 3 are read");
    }
    Counts counts;
    ASSIGN_OR_RETURN(counts.tensors, Take<uint64_t>("the header"));
    ASSIGN_OR_RETURN(counts.entries, Take<uint64_t>("the header"));
    if (counts.entries > left() / kSmallestEntry) {
      return Bad("says that it has ", counts.entries, " metadata entries, more than ", left(), " bytes can hold");
    }
    if (counts.tensors > left() / kSmallestTensor) {
      return Bad("says that it has ", counts.tensors, " tensors, more than ", left(), " bytes can describe");
    }
    return counts;
  }

  Status ReadEntry(uint64_t i) {
    ASSIGN_OR_RETURN(const std::string_view key, TakeString(StrCat("the key of metadata entry ", i)));
    if (!IsName(key)) return Bad("has the key ", Shown(key), " for metadata entry ", i, ", which is empty or no text");
    const std::string what = StrCat("the value of key ", Shown(key));
    ASSIGN_OR_RETURN(const uint32_t type, Take<uint32_t>(what));
    GgufValue value;
    if (type == uint32_t(GgufType::kArray)) {
      ASSIGN_OR_RETURN(const uint32_t element_type, Take<uint32_t>(what));
      if (element_type == uint32_t(GgufType::kArray)) return Foreign("has an array of arrays for key ", Shown(key));
      ASSIGN_OR_RETURN(value.count_, Take<uint64_t>(what));
      value.is_array_ = true;
      RETURN_IF_ERROR(ReadElements(key, what, element_type, value));
    } else {
      RETURN_IF_ERROR(ReadElements(key, what, type, value));
    }
    if (!gguf_.entry_index_.emplace(key, gguf_.entries_.size()).second) return Bad("has the key ", Shown(key), " twice");
    gguf_.entries_.push_back({key, std::move(value)});
    return {};
  }

  Status ReadElements(std::string_view key, const std::string& what, uint32_t type, GgufValue& value) {
    if (type >= kTypes.size()) return Bad("has a value of type ", type, " for key ", Shown(key), "; types 0 to 12 exist");
    value.type_ = GgufType(type);
    const uint64_t item = value.type_ == GgufType::kString ? 8 : kTypes[type].bytes;
    if (value.count_ > kMostElements || value.count_ > left() / item) {
      return Bad("has ", value.count_, " elements of ", kTypes[type].name, " for key ", Shown(key), ", where ", left(),
                 " bytes are left");
    }
    if (value.type_ == GgufType::kString) {
      value.strings_.reserve(value.count_);
      for (uint64_t i = 0; i < value.count_; ++i) {
        ASSIGN_OR_RETURN(const std::string_view text, TakeString(what));
        value.strings_.push_back(text);
      }
      return {};
    }
    value.bytes_ = bytes_.subspan(at_, value.count_ * item);
    at_ += value.count_ * item;
    if (value.type_ == GgufType::kBool) {
      for (std::byte b : value.bytes_) {
        if (b > std::byte(1)) return Bad("has a bool of ", int(b), " for key ", Shown(key), "; expected 0 or 1");
      }
    }
    return {};
  }

  Result<uint64_t> Alignment() const {
    const GgufValue* value = gguf_.Find("general.alignment");
    if (value == nullptr) return uint64_t(32);
    if (value->type() != GgufType::kU32 || value->is_array()) {
      return Bad("has ", value->TypeText(), " for key \"general.alignment\"; expected u32");
    }
    const uint64_t alignment = uint64_t(*value->Int());
    if (alignment < 8 || !std::has_single_bit(alignment)) {
      return Bad("has general.alignment ", alignment, "; expected a power of two of at least 8");
    }
    return alignment;
  }

  Status ReadTensor(uint64_t i) {
    GgufTensor tensor;
    ASSIGN_OR_RETURN(tensor.name, TakeString(StrCat("the name of tensor ", i)));
    if (!IsName(tensor.name)) return Bad("has the name ", Shown(tensor.name), " for tensor ", i, ", which is empty or no text");
    if (tensor.name.size() >= 64)
      return Bad("has a tensor name of ", tensor.name.size(), " bytes, ", Shown(tensor.name), "; expected less than 64");
    const std::string what = StrCat("the description of tensor ", Shown(tensor.name));
    ASSIGN_OR_RETURN(const uint32_t rank, Take<uint32_t>(what));
    if (rank > 4) return Bad("has ", rank, " axes for tensor ", Shown(tensor.name), "; expected at most 4");
    std::array<int64_t, 4> extents{};
    int64_t count = 1;
    for (uint32_t axis = rank; axis-- > 0;) {  // the fastest axis comes first in the file
      ASSIGN_OR_RETURN(extents[axis], Take<int64_t>(what));
      if (extents[axis] < 0) {
        return Bad("has extent ", uint64_t(extents[axis]), " in tensor ", Shown(tensor.name), ", more than can be counted");
      }
      // An extent of 0 must not hide that the others overflow: shapes are multiplied in any order later.
      if (__builtin_mul_overflow(count, std::max<int64_t>(extents[axis], 1), &count)) {
        return Bad("has more elements in tensor ", Shown(tensor.name), " than can be counted");
      }
    }
    tensor.shape = Shape(std::span<const int64_t>(extents.data(), rank));
    ASSIGN_OR_RETURN(const uint32_t type, Take<uint32_t>(what));
    ASSIGN_OR_RETURN(tensor.dtype, TensorType(type, tensor.name));
    const int64_t block = int64_t(BlockElements(tensor.dtype)), row = rank > 0 ? extents[rank - 1] : 1;
    if (row % block != 0) {
      return Bad("has rows of ", row, " elements in tensor ", Shown(tensor.name), ", which are no whole blocks of ", block,
                 ", as ", DTypeName(tensor.dtype), " needs");
    }
    // At most 8 bytes an element.
    if (count > INT64_MAX / 8) return Bad("has more elements in tensor ", Shown(tensor.name), " than can be counted");
    ASSIGN_OR_RETURN(tensor.offset,
                     Take<uint64_t>(what));  // within the data section; PlaceTensors makes it one within the file
    if (!gguf_.tensor_index_.emplace(tensor.name, gguf_.tensors_.size()).second) {
      return Bad("has the tensor ", Shown(tensor.name), " twice");
    }
    gguf_.tensors_.push_back(tensor);
    return {};
  }

  Result<DType> TensorType(uint32_t id, std::string_view tensor) const {
    for (const TensorTypeRow& row : kTensorTypes) {
      if (row.id != id) continue;
      if (row.dtype) return *row.dtype;
      return Foreign("has the tensor ", Shown(tensor), " of type ", id, " (", row.name, "), which Leeway does not read");
    }
    return Bad("has the tensor ", Shown(tensor), " of type ", id, ", which the format does not have");
  }

  Status PlaceTensors(uint64_t alignment) {
    const uint64_t data = (at_ + alignment - 1) / alignment * alignment;
    std::vector<const GgufTensor*> by_offset;
    by_offset.reserve(gguf_.tensors_.size());
    for (GgufTensor& tensor : gguf_.tensors_) {
      if (tensor.offset % alignment != 0) {
        return Bad("has the tensor ", Shown(tensor.name), " at offset ", tensor.offset, ", no multiple of ", alignment);
      }
      const uint64_t size = DTypeBytes(tensor.dtype, size_t(tensor.shape.element_count()));
      if (data > bytes_.size() || tensor.offset > bytes_.size() - data || size > bytes_.size() - data - tensor.offset) {
        return Bad("has the tensor ", Shown(tensor.name), " of ", size, " bytes at offset ", tensor.offset,
                   " of the data, which begin at ", data, " of ", bytes_.size(), " bytes");
      }
      tensor.offset += data;
      tensor.bytes = bytes_.subspan(tensor.offset, size);
      if (size > 0) by_offset.push_back(&tensor);
    }
    std::sort(by_offset.begin(), by_offset.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < by_offset.size(); ++i) {
      if (by_offset[i]->offset < by_offset[i - 1]->offset + by_offset[i - 1]->bytes.size()) {
        return Bad("has the tensors ", Shown(by_offset[i - 1]->name), " and ", Shown(by_offset[i]->name),
                   " at overlapping places");
      }
    }
    return {};
  }

  GgufFile gguf_;
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
};

bool GgufFile::LooksLikeIt(std::span<const std::byte> start_of_file) {
  return start_of_file.size() >= 4 && std::memcmp(start_of_file.data(), "GGUF", 4) == 0;
}

Result<std::shared_ptr<const GgufFile>> GgufFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
  return Read(std::move(file));
}

Result<std::shared_ptr<const GgufFile>> GgufFile::Read(std::shared_ptr<const MappedFile> file) {
  return GgufReader(std::move(file)).Run();
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto found = entry_index_.find(key);
  return found == entry_index_.end() ? nullptr : &entries_[found->second].value;
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

HostTensor GgufFile::View(const GgufTensor& tensor) const {
  return HostTensor(tensor.dtype, tensor.shape, tensor.bytes, file_);
}

namespace {

Error Missing(const GgufFile& file, std::string_view key) {
  return Error{Code::kInvalidModel, StrCat("The GGUF file \"", file.path(), "\" has no key \"", key, "\".")};
}
Error WrongKind(const GgufFile& file, std::string_view key, const GgufValue& value, std::string_view expected) {
  return Error{Code::kInvalidModel, StrCat("The GGUF file \"", file.path(), "\" has ", value.TypeText(), " for key \"", key,
                                           "\"; expected ", expected, ".")};
}

template <class T>
Result<T> One(const GgufFile& file, std::string_view key, std::string_view expected,
              std::optional<T> (GgufValue::*get)(uint64_t) const) {
  const GgufValue* value = file.Find(key);
  if (value == nullptr) return Missing(file, key);
  if (!value->is_array()) {
    if (std::optional<T> item = (value->*get)(0)) return *item;
  }
  return WrongKind(file, key, *value, expected);
}

template <class T, class Item>
Result<std::vector<T>> All(const GgufFile& file, std::string_view key, std::string_view expected,
                           std::optional<Item> (GgufValue::*get)(uint64_t) const) {
  const GgufValue* value = file.Find(key);
  if (value == nullptr) return Missing(file, key);
  std::vector<T> items;
  if (value->is_array()) {
    items.reserve(value->count());
    for (uint64_t i = 0; i < value->count(); ++i) {
      const std::optional<Item> item = (value->*get)(i);
      if (!item) break;
      items.push_back(T(*item));
    }
    if (items.size() == value->count()) return items;
  }
  return WrongKind(file, key, *value, expected);
}

}  // namespace

Result<int64_t> GgufFile::Int(std::string_view key) const { return One(*this, key, "an integer", &GgufValue::Int); }
Result<double> GgufFile::Number(std::string_view key) const { return One(*this, key, "a number", &GgufValue::Number); }
Result<bool> GgufFile::Bool(std::string_view key) const { return One(*this, key, "a bool", &GgufValue::Bool); }
Result<std::string_view> GgufFile::String(std::string_view key) const {
  return One(*this, key, "a string", &GgufValue::String);
}

Result<std::span<const std::string_view>> GgufFile::Strings(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(*this, key);
  if (!value->is_array() || value->type() != GgufType::kString) return WrongKind(*this, key, *value, "an array of strings");
  return value->strings();
}
Result<std::vector<int64_t>> GgufFile::Ints(std::string_view key) const {
  return All<int64_t>(*this, key, "an array of integers", &GgufValue::Int);
}
Result<std::vector<float>> GgufFile::Floats(std::string_view key) const {
  return All<float>(*this, key, "an array of numbers", &GgufValue::Number);
}

}  // namespace leeway
