#include "import/safetensors/safetensors.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <unordered_set>

#include "base/strings.h"

namespace leeway {
namespace {

static_assert(std::endian::native == std::endian::little, ".safetensors files are read as they lie");

using nlohmann::json;

constexpr uint64_t kLongestHeader = 100'000'000;
constexpr uint64_t kLargestIndexBytes = 64 << 20;

struct TypeRow {
  const char* name;
  std::optional<DType> dtype;
};
constexpr TypeRow kTypes[] = {
    {"F32", DType::kF32}, {"F16", DType::kF16}, {"BF16", DType::kBF16}, {"F64", DType::kF64}, {"I64", DType::kI64},
    {"I32", DType::kI32}, {"I16", DType::kI16}, {"I8", DType::kI8},     {"U64", DType::kU64}, {"U32", DType::kU32},
    {"U16", DType::kU16}, {"U8", DType::kU8},   {"BOOL", DType::kBool}, {"F8_E5M2", {}},      {"F8_E4M3", {}},
    {"F8_E8M0", {}},      {"F4", {}},           {"F6_E2M3", {}},        {"F6_E3M2", {}},      {"C64", {}},
};

// A name as a message may show it.
std::string Shown(std::string_view name) {
  constexpr size_t kMost = 120;
  std::string text = "\"";
  for (char c : name.substr(0, kMost)) text += c >= 0x20 && c != 0x7f ? c : '?';
  if (name.size() > kMost) text += "...";
  return text + "\"";
}

// What the header says of a tensor, before it is compared with the file.
struct Entry {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::vector<uint64_t> offsets;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

// Takes the header as a stream of events, so that a large one is never a tree, and duplicate keys are seen. A false from an
// event ends the parse; `fault` then says why.
class HeaderEvents {
 public:
  std::vector<Entry> entries;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string fault;

  bool start_object(size_t) {
    switch (state_) {
      case State::kStart: state_ = State::kNames; return true;
      case State::kEntryOrMetadata: state_ = is_metadata_ ? State::kMetadata : State::kFields; return true;
      case State::kSkipped: return Deeper();
      default: return Unexpected("an object");
    }
  }
  bool end_object() {
    switch (state_) {
      case State::kNames: state_ = State::kEnd; return true;
      case State::kMetadata: state_ = State::kNames; return true;
      case State::kFields: {
        const Entry& entry = entries.back();
        const char* missing = !entry.has_dtype     ? "dtype"
                              : !entry.has_shape   ? "shape"
                              : !entry.has_offsets ? "data_offsets"
                                                   : nullptr;
        if (missing != nullptr) return Fail("has no \"", missing, "\" for ", Place());
        state_ = State::kNames;
        return true;
      }
      default: return Shallower();
    }
  }
  bool start_array(size_t) {
    switch (state_) {
      case State::kShapeValue: state_ = State::kShape; return true;
      case State::kOffsetsValue: state_ = State::kOffsets; return true;
      case State::kSkipped: return Deeper();
      default: return Unexpected("an array");
    }
  }
  bool end_array() {
    if (state_ == State::kShape || state_ == State::kOffsets) {
      state_ = State::kFields;
      return true;
    }
    return Shallower();
  }
  bool key(std::string& name) {
    switch (state_) {
      case State::kNames:
        if (!names_.insert(name).second) return Fail("has ", Shown(name), " twice");
        is_metadata_ = name == "__metadata__";
        if (!is_metadata_) entries.push_back(Entry{.name = name});
        state_ = State::kEntryOrMetadata;
        return true;
      case State::kMetadata:
        for (const auto& [key, value] : metadata) {
          if (key == name) return Fail("has ", Shown(name), " twice in \"__metadata__\"");
        }
        if (metadata.size() >= 1024) return Fail("has more than 1024 texts in \"__metadata__\"");
        metadata.emplace_back(name, "");
        state_ = State::kMetadataValue;
        return true;
      case State::kFields: {
        Entry& entry = entries.back();
        bool* seen = name == "dtype"          ? &entry.has_dtype
                     : name == "shape"        ? &entry.has_shape
                     : name == "data_offsets" ? &entry.has_offsets
                                              : nullptr;
        if (seen == nullptr) {
          state_ = State::kSkipped;
          return true;
        }
        if (*seen) return Fail("has \"", name, "\" twice for ", Place());
        *seen = true;
        state_ = seen == &entry.has_dtype   ? State::kDTypeValue
                 : seen == &entry.has_shape ? State::kShapeValue
                                            : State::kOffsetsValue;
        return true;
      }
      default: return true;  // within something that is skipped
    }
  }
  bool string(std::string& text) {
    switch (state_) {
      case State::kDTypeValue:
        entries.back().dtype = text;
        state_ = State::kFields;
        return true;
      case State::kMetadataValue:
        metadata.back().second = text;
        state_ = State::kMetadata;
        return true;
      default: return Skip("a string");
    }
  }
  bool number_unsigned(uint64_t number) {
    switch (state_) {
      case State::kShape:
        if (number > uint64_t(INT64_MAX)) return Fail("has extent ", number, " in ", Place());
        if (entries.back().shape.size() >= size_t(Shape::kMaxRank)) {
          return Fail("has more than ", Shape::kMaxRank, " axes in ", Place());
        }
        entries.back().shape.push_back(int64_t(number));
        return true;
      case State::kOffsets:
        if (entries.back().offsets.size() >= 2) return Fail("has more than two data_offsets for ", Place());
        entries.back().offsets.push_back(number);
        return true;
      default: return Skip("a number");
    }
  }
  bool number_integer(int64_t) { return Skip("a negative number"); }
  bool number_float(double, const std::string&) { return Skip("a fraction"); }
  bool null() { return Skip("null"); }
  bool boolean(bool) { return Skip("a bool"); }
  bool binary(std::vector<uint8_t>&) { return Fail("is no text"); }
  template <class Exception>
  bool parse_error(size_t position, const std::string&, const Exception&) {
    return fault.empty() ? Fail("is no JSON; the fault is near its byte ", position) : false;
  }

 private:
  // Where in the header the next event is.
  enum class State {
    kStart,
    kNames,            // in the outermost object
    kEntryOrMetadata,  // after a name
    kMetadata,
    kMetadataValue,
    kFields,  // in the object of a tensor
    kDTypeValue,
    kShapeValue,
    kOffsetsValue,
    kShape,
    kOffsets,
    kSkipped,  // the value of a field that means nothing here, depth_ deep in it
    kEnd,
  };

  template <class... Parts>
  bool Fail(const Parts&... parts) {
    fault = StrCat(parts...);
    return false;
  }
  std::string Place() const { return is_metadata_ ? "\"__metadata__\"" : StrCat("tensor ", Shown(entries.back().name)); }
  bool Unexpected(const char* what) {
    if (state_ == State::kStart) return Fail("is ", what, "; expected an object");
    return Fail("has ", what, " for ", Place(), " where the format wants something else");
  }
  // A single value: fine where it is skipped.
  bool Skip(const char* what) {
    if (state_ != State::kSkipped) return Unexpected(what);
    if (depth_ == 0) state_ = State::kFields;
    return true;
  }
  bool Deeper() {
    constexpr int kDeepest = 32;
    return ++depth_ <= kDeepest || Fail("is nested more than ", kDeepest, " deep in ", Place());
  }
  bool Shallower() {
    if (--depth_ == 0) state_ = State::kFields;
    return true;
  }

  State state_ = State::kStart;
  bool is_metadata_ = false;
  int depth_ = 0;
  std::unordered_set<std::string> names_;
};

}  // namespace

class SafetensorsReader {
 public:
  explicit SafetensorsReader(std::shared_ptr<const MappedFile> file) { file_.file_ = std::move(file); }

  Result<std::shared_ptr<const SafetensorsFile>> Run() {
    const std::span<const std::byte> bytes = file_.file_->bytes();
    if (bytes.size() < 8) return Bad("has ", bytes.size(), " bytes; expected at least the 8 of the header's length");
    uint64_t length;
    std::memcpy(&length, bytes.data(), 8);
    if (length > kLongestHeader || length > bytes.size() - 8) {
      return Bad("has a header of ", length, " bytes; expected at most ", std::min<uint64_t>(kLongestHeader, bytes.size() - 8));
    }
    const auto* text = reinterpret_cast<const char*>(bytes.data()) + 8;
    if (length == 0 || text[0] != '{') return Bad("has a header that does not begin with {");
    HeaderEvents events;
    if (!json::sax_parse(text, text + length, &events)) return Bad("has a header that ", events.fault);
    const std::span<const std::byte> data = bytes.subspan(8 + length);
    file_.metadata_ = std::move(events.metadata);
    file_.tensors_.reserve(events.entries.size());
    for (Entry& entry : events.entries) {
      ASSIGN_OR_RETURN(SafetensorsTensor tensor, Check(entry, data));
      tensor.offset += 8 + length;
      file_.tensors_.push_back(std::move(tensor));
    }
    // Empty tensors come before the ones that begin where they do.
    std::sort(file_.tensors_.begin(), file_.tensors_.end(), [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
      return std::pair(a.offset, a.bytes.size()) < std::pair(b.offset, b.bytes.size());
    });
    uint64_t end = 8 + length;
    for (const SafetensorsTensor& tensor : file_.tensors_) {
      if (tensor.offset != end) {
        return Bad("has the tensor ", Shown(tensor.name), " at byte ", tensor.offset, "; the tensor before it ends at byte ",
                   end);
      }
      end += tensor.bytes.size();
    }
    if (end != bytes.size()) return Bad("has ", bytes.size(), " bytes; its tensors end at byte ", end);
    for (size_t i = 0; i < file_.tensors_.size(); ++i) file_.index_.emplace(file_.tensors_[i].name, i);
    return std::shared_ptr<const SafetensorsFile>(new SafetensorsFile(std::move(file_)));
  }

 private:
  template <class... Parts>
  Error Bad(const Parts&... parts) const {
    return Error{Code::kInvalidModel, StrCat("The safetensors file \"", file_.path(), "\" ", parts..., ".")};
  }

  Result<SafetensorsTensor> Check(Entry& entry, std::span<const std::byte> data) const {
    SafetensorsTensor tensor;
    const TypeRow* type =
        std::find_if(std::begin(kTypes), std::end(kTypes), [&](auto& row) { return entry.dtype == row.name; });
    if (type == std::end(kTypes)) {
      return Bad("has the tensor ", Shown(entry.name), " of type ", Shown(entry.dtype), ", which the format does not have");
    }
    if (!type->dtype) {
      return Error{Code::kUnsupported, StrCat("The safetensors file \"", file_.path(), "\" has the tensor ", Shown(entry.name),
                                              " of type ", type->name, ", which Leeway does not read.")};
    }
    if (entry.offsets.size() != 2)
      return Bad("has ", entry.offsets.size(), " data_offsets for tensor ", Shown(entry.name), "; expected two");
    int64_t count = 1;
    for (int64_t extent : entry.shape) {
      // An extent of 0 must not hide that the others overflow: shapes are multiplied in any order later.
      if (__builtin_mul_overflow(count, std::max<int64_t>(extent, 1), &count) || count > INT64_MAX / 8) {
        return Bad("has more elements in tensor ", Shown(entry.name), " than can be counted");
      }
    }
    tensor.dtype = *type->dtype;
    tensor.shape = Shape(entry.shape);
    const uint64_t begin = entry.offsets[0], end = entry.offsets[1];
    if (begin > end || end > data.size()) {
      return Bad("has the tensor ", Shown(entry.name), " at bytes ", begin, " to ", end, " of the data, which are ",
                 data.size(), " bytes");
    }
    const uint64_t size = DTypeBytes(tensor.dtype, size_t(tensor.shape.element_count()));
    if (end - begin != size) {
      return Bad("has ", end - begin, " bytes for tensor ", Shown(entry.name), "; ", DTypeName(tensor.dtype),
                 tensor.shape.ToString(), " takes ", size);
    }
    tensor.name = std::move(entry.name);
    tensor.bytes = data.subspan(begin, size);
    tensor.offset = begin;
    return tensor;
  }

  SafetensorsFile file_;
};

Result<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
  return Read(std::move(file));
}

Result<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::Read(std::shared_ptr<const MappedFile> file) {
  return SafetensorsReader(std::move(file)).Run();
}

const SafetensorsTensor* SafetensorsFile::FindTensor(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

HostTensor SafetensorsFile::View(const SafetensorsTensor& tensor) const {
  const size_t alignment = std::max<size_t>(DTypeBits(tensor.dtype) / 8, 1);
  HostTensor view(tensor.dtype, tensor.shape, tensor.bytes, file_);
  if (reinterpret_cast<uintptr_t>(tensor.bytes.data()) % alignment != 0) view.mutable_bytes();
  return view;
}

namespace {

bool Exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

// The index: tensor name -> shard.
Result<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  auto bad = [&](const auto&... parts) {
    return Error{Code::kInvalidModel, StrCat("The index \"", path, "\" ", parts..., ".")};
  };
  ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  if (file->bytes().size() > kLargestIndexBytes)
    return bad("has ", file->bytes().size(), " bytes, more than ", kLargestIndexBytes);
  const auto* text = reinterpret_cast<const char*>(file->bytes().data());
  const json index = json::parse(text, text + file->bytes().size(), nullptr, /*allow_exceptions=*/false);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    return bad("is no JSON object with a \"weight_map\"");
  }
  std::map<std::string, std::string> shards;
  for (const auto& [name, shard] : index["weight_map"].items()) {
    if (!shard.is_string()) return bad("has no file name for tensor ", Shown(name));
    const std::string& file_name = shard.get_ref<const std::string&>();
    if (file_name.empty() || file_name[0] == '.' ||
        file_name.find_first_of(std::string_view("/\\:\0", 4)) != std::string::npos) {
      return bad("names the file ", Shown(file_name), " for tensor ", Shown(name), "; expected one in the same folder");
    }
    shards.emplace(name, file_name);
  }
  if (shards.empty()) return bad("lists no tensor");
  return shards;
}

}  // namespace

Result<std::shared_ptr<const SafetensorsFolder>> SafetensorsFolder::Open(const std::string& folder) {
  auto opened = std::make_shared<SafetensorsFolder>();
  const std::string index_path = folder + "/model.safetensors.index.json", single_path = folder + "/model.safetensors";
  if (!Exists(index_path)) {
    ASSIGN_OR_RETURN(auto file, SafetensorsFile::Open(single_path));
    opened->files_.push_back(std::move(file));
    return std::shared_ptr<const SafetensorsFolder>(std::move(opened));
  }
  ASSIGN_OR_RETURN(const auto shards, ReadIndex(index_path));
  std::map<std::string, const SafetensorsFile*> by_name;
  for (const auto& [name, shard] : shards) {
    if (by_name.contains(shard)) continue;
    ASSIGN_OR_RETURN_CONTEXT(auto file, SafetensorsFile::Open(StrCat(folder, "/", shard)),
                             StrCat("a shard of \"", index_path, "\""));
    by_name[shard] = file.get();
    opened->files_.push_back(std::move(file));
  }
  for (const auto& [name, shard] : shards) {
    if (by_name[shard]->FindTensor(name) == nullptr) {
      return Error{Code::kInvalidModel, StrCat("The index \"", index_path, "\" says that ", shard, " has the tensor ",
                                               Shown(name), ", but it has none of that name.")};
    }
  }
  for (const auto& file : opened->files_) {
    for (const SafetensorsTensor& tensor : file->tensors()) {
      const auto listed = shards.find(tensor.name);
      if (listed == shards.end() || by_name[listed->second] != file.get()) {
        return Error{Code::kInvalidModel, StrCat("The safetensors file \"", file->path(), "\" has the tensor ",
                                                 Shown(tensor.name), ", which the index does not list there.")};
      }
    }
  }
  return std::shared_ptr<const SafetensorsFolder>(std::move(opened));
}

}  // namespace leeway
