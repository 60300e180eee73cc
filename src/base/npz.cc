#include "base/npz.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/mapped_file.h"
#include "base/strings.h"

namespace leeway {
namespace {

using Bytes = std::span<const std::byte>;

Error Bad(const std::string& name, std::string what) {
  return Error{Code::kInvalidArgument, StrCat("The array file \"", name, "\" is damaged: ", what)};
}

uint32_t Load(Bytes bytes, size_t at, int size) {
  uint32_t value = 0;
  for (int i = 0; i < size; ++i) value |= uint32_t(bytes[at + size_t(i)]) << (8 * i);
  return value;
}
void Store(std::vector<std::byte>& out, uint64_t value, int size) {
  for (int i = 0; i < size; ++i) out.push_back(std::byte(value >> (8 * i)));
}
void StoreText(std::vector<std::byte>& out, std::string_view text) {
  auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// The header is a Python dictionary with three keys; the parser takes exactly what NumPy writes and what a person could.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  struct Header {
    std::string descr;
    bool fortran = false;
    std::vector<int64_t> shape;
  };

  Result<Header> Parse() {
    Header header;
    bool has_descr = false, has_order = false, has_shape = false;
    if (!Take('{')) return Expected("'{'");
    while (!Take('}')) {
      ASSIGN_OR_RETURN(std::string key, Text());
      if (!Take(':')) return Expected("':'");
      if (key == "descr") {
        ASSIGN_OR_RETURN(header.descr, Text());
        has_descr = true;
      } else if (key == "fortran_order") {
        if (TakeWord("True")) {
          header.fortran = true;
        } else if (!TakeWord("False")) {
          return Expected("True or False");
        }
        has_order = true;
      } else if (key == "shape") {
        if (!Take('(')) return Expected("'('");
        while (!Take(')')) {
          ASSIGN_OR_RETURN(int64_t extent, Number());
          header.shape.push_back(extent);
          if (!Take(',')) {
            if (!Take(')')) return Expected("',' or ')'");
            break;
          }
        }
        has_shape = true;
      } else {
        return Bad(name_, StrCat("its header has the unknown key \"", key, "\"."));
      }
      if (!Take(',')) {
        if (!Take('}')) return Expected("',' or '}'");
        break;
      }
    }
    if (!has_descr || !has_order || !has_shape) return Bad(name_, "its header lacks descr, fortran_order or shape.");
    return header;
  }

 private:
  void Skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool Take(char c) {
    Skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool TakeWord(std::string_view word) {
    Skip();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  Result<std::string> Text() {
    Skip();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return Expected("a quoted text");
    char quote = text_[at_++];
    size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) return Expected("the end of a quoted text");
    std::string text(text_.substr(at_, end - at_));
    at_ = end + 1;
    return text;
  }
  Result<int64_t> Number() {
    Skip();
    int64_t value = 0;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0) return Expected("an extent");
    at_ = size_t(end - text_.data());
    return value;
  }
  Error Expected(const char* what) const { return Bad(name_, StrCat("its header has no ", what, " at byte ", at_, ".")); }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
};

void SwapBytes(std::vector<std::byte>& bytes, size_t item) {
  for (size_t at = 0; at + item <= bytes.size(); at += item)
    std::reverse(bytes.begin() + std::ptrdiff_t(at), bytes.begin() + std::ptrdiff_t(at + item));
}

// First axis fastest -> last axis fastest.
std::vector<std::byte> FromFortran(const std::vector<std::byte>& bytes, const std::vector<int64_t>& shape, size_t item) {
  std::vector<std::byte> out(bytes.size());
  std::vector<int64_t> coords(shape.size());
  std::vector<size_t> stride(shape.size());
  size_t step = 1;
  for (size_t i = 0; i < shape.size(); ++i) stride[i] = step, step *= size_t(shape[i]);
  for (size_t to = 0; to + item <= out.size(); to += item) {
    size_t from = 0;
    for (size_t i = 0; i < shape.size(); ++i) from += size_t(coords[i]) * stride[i];
    std::memcpy(out.data() + to, bytes.data() + from * item, item);
    for (size_t i = shape.size(); i-- > 0;) {
      if (++coords[i] < shape[i]) break;
      coords[i] = 0;
    }
  }
  return out;
}

Result<std::vector<std::byte>> Inflate(Bytes packed, size_t size, const std::string& name) {
  // Deflate packs to no less than 1/1032: a size beyond that is a lie, and would only serve to make us allocate.
  if (size / 1040 > packed.size() + 1)
    return Bad(name, StrCat("an entry of ", packed.size(), " packed bytes claims ", size, "."));
  std::vector<std::byte> out(size);
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return Error{Code::kOutOfMemory, "No memory to unpack an array file."};
  std::byte spare{};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
  stream.next_out = reinterpret_cast<Bytef*>(size ? out.data() : &spare);
  size_t left_in = packed.size(), left_out = size;
  constexpr size_t kChunk = 1u << 30;  // zlib counts in unsigned int
  int status = Z_OK;
  while (status == Z_OK) {
    if (stream.avail_in == 0 && left_in) stream.avail_in = uInt(std::min(left_in, kChunk)), left_in -= stream.avail_in;
    if (stream.avail_out == 0 && left_out) stream.avail_out = uInt(std::min(left_out, kChunk)), left_out -= stream.avail_out;
    status = inflate(&stream, Z_NO_FLUSH);
    if (status == Z_BUF_ERROR && ((stream.avail_in == 0 && left_in) || (stream.avail_out == 0 && left_out))) status = Z_OK;
  }
  bool whole = status == Z_STREAM_END && left_out == 0 && stream.avail_out == 0;
  inflateEnd(&stream);
  if (!whole) return Bad(name, StrCat("an entry does not unpack to the ", size, " bytes that the directory states."));
  return out;
}

constexpr uint32_t kLocalHeader = 0x04034b50, kDirectoryEntry = 0x02014b50, kDirectoryEnd = 0x06054b50;

}  // namespace

int64_t NpyArray::element_count() const {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

size_t NpyItemSize(const std::string& descr) {
  if (descr.size() < 3 || (descr[0] != '<' && descr[0] != '>' && descr[0] != '|' && descr[0] != '=')) return 0;
  size_t size = 0;
  auto [end, error] = std::from_chars(descr.data() + 2, descr.data() + descr.size(), size);
  if (error != std::errc() || end != descr.data() + descr.size()) return 0;
  switch (descr[1]) {
    case 'f': return size == 2 || size == 4 || size == 8 ? size : 0;
    case 'i':
    case 'u': return size == 1 || size == 2 || size == 4 || size == 8 ? size : 0;
    case 'b': return size == 1 ? size : 0;
    default: return 0;
  }
}

Result<NpyArray> ReadNpy(std::span<const std::byte> bytes, const std::string& name) {
  constexpr char kMagic[] = "\x93NUMPY";
  if (bytes.size() < 10 || std::memcmp(bytes.data(), kMagic, 6) != 0)
    return Bad(name, "it does not begin as an .npy file does.");
  int version = int(bytes[6]);
  if (version < 1 || version > 3) return Bad(name, StrCat("it has the unknown version ", version, "."));
  size_t start = version == 1 ? 10 : 12;
  if (bytes.size() < start) return Bad(name, "it ends inside its header.");
  size_t length = Load(bytes, 8, version == 1 ? 2 : 4);
  if (length > bytes.size() - start) return Bad(name, "it ends inside its header.");
  std::string_view text(reinterpret_cast<const char*>(bytes.data()) + start, length);
  ASSIGN_OR_RETURN(HeaderParser::Header header, HeaderParser(text, name).Parse());
  size_t item = NpyItemSize(header.descr);
  if (item == 0) {
    return Error{Code::kUnsupported, StrCat("The array file \"", name, "\" has elements of type \"", header.descr,
                                            "\"; expected floats, integers or bool.")};
  }
  Bytes data = bytes.subspan(start + length);
  size_t count = 1;
  for (int64_t extent : header.shape) {
    if (extent != 0 && count > std::numeric_limits<size_t>::max() / 16 / size_t(extent))
      return Bad(name, "its shape is too large.");
    count *= size_t(extent);
  }
  if (count * item != data.size()) {
    return Bad(name, StrCat("it holds ", data.size(), " bytes of data, its shape [", Join(header.shape, ", "), "] needs ",
                            count * item, "."));
  }
  NpyArray array{header.descr, header.shape, {data.begin(), data.end()}};
  if (array.descr[0] == '>') {
    SwapBytes(array.bytes, item);
    array.descr[0] = '<';
  }
  if (array.descr[0] == '=') array.descr[0] = '<';
  if (item == 1) array.descr[0] = '|';
  if (header.fortran && header.shape.size() > 1) array.bytes = FromFortran(array.bytes, array.shape, item);
  return array;
}

Result<std::vector<std::pair<std::string, NpyArray>>> ReadNpz(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.size() < 22) return Bad(name, "it is too short for a zip archive.");
  // The end record is the last thing but for a comment of up to 64 KiB.
  size_t end = bytes.size() - 22, lowest = end > 65535 ? end - 65535 : 0;
  while (Load(bytes, end, 4) != kDirectoryEnd) {
    if (end == lowest) return Bad(name, "it has no directory of a zip archive.");
    --end;
  }
  size_t count = Load(bytes, end + 10, 2), at = Load(bytes, end + 16, 4);
  if (count == 0xffff || at == 0xffffffff)
    return Error{Code::kUnsupported, StrCat("The archive \"", name, "\" is a zip64 archive.")};
  std::vector<std::pair<std::string, NpyArray>> arrays;
  for (size_t i = 0; i < count; ++i) {
    if (at > end || end - at < 46 || Load(bytes, at, 4) != kDirectoryEntry)
      return Bad(name, StrCat("directory entry ", i, " is broken."));
    uint32_t flags = Load(bytes, at + 8, 2), method = Load(bytes, at + 10, 2), crc = Load(bytes, at + 16, 4);
    size_t packed = Load(bytes, at + 20, 4), size = Load(bytes, at + 24, 4), name_length = Load(bytes, at + 28, 2);
    size_t skip = Load(bytes, at + 30, 2) + Load(bytes, at + 32, 2), local = Load(bytes, at + 42, 4);
    if (name_length + skip > end - at - 46) return Bad(name, StrCat("directory entry ", i, " is broken."));
    std::string entry(reinterpret_cast<const char*>(bytes.data()) + at + 46, name_length);
    at += 46 + name_length + skip;
    std::string label = StrCat(name, ":", entry);
    if (flags & 1) return Error{Code::kUnsupported, StrCat("The entry \"", label, "\" is encrypted.")};
    if (local > bytes.size() || bytes.size() - local < 30 || Load(bytes, local, 4) != kLocalHeader)
      return Bad(label, "its header is broken.");
    size_t start = local + 30 + Load(bytes, local + 26, 2) + Load(bytes, local + 28, 2);
    if (start > bytes.size() || packed > bytes.size() - start) return Bad(label, "it reaches beyond the end of the file.");
    std::vector<std::byte> unpacked;
    Bytes data = bytes.subspan(start, packed);
    if (method == 8) {
      ASSIGN_OR_RETURN(unpacked, Inflate(data, size, label));
      data = unpacked;
    } else if (method != 0 || packed != size) {
      return Error{Code::kUnsupported, StrCat("The entry \"", label, "\" is packed by method ", method, "; expected 0 or 8.")};
    }
    uint32_t found = uint32_t(crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(data.data()), data.size()));
    if (found != crc) return Bad(label, "its checksum does not match.");
    ASSIGN_OR_RETURN(NpyArray array, ReadNpy(data, label));
    if (entry.size() > 4 && entry.ends_with(".npy")) entry.resize(entry.size() - 4);
    arrays.emplace_back(std::move(entry), std::move(array));
  }
  return arrays;
}

Result<std::vector<std::pair<std::string, NpyArray>>> ReadArrayFile(const std::string& path) {
  ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  if (file->bytes().size() >= 4 && std::memcmp(file->bytes().data(), "PK", 2) == 0) return ReadNpz(file->bytes(), path);
  ASSIGN_OR_RETURN(NpyArray array, ReadNpy(file->bytes(), path));
  std::vector<std::pair<std::string, NpyArray>> arrays;
  arrays.emplace_back("", std::move(array));
  return arrays;
}

std::vector<std::byte> WriteNpy(const NpyArray& array) {
  std::string header = StrCat("{'descr': '", array.descr, "', 'fortran_order': False, 'shape': (", Join(array.shape, ", "),
                              array.shape.size() == 1 ? ",)" : ")", ", }");
  size_t total = (10 + header.size() + 1 + 63) / 64 * 64;  // the data starts at a multiple of 64
  header.resize(total - 11, ' ');
  header += '\n';
  std::vector<std::byte> out;
  out.reserve(total + array.bytes.size());
  StoreText(out, std::string_view("\x93NUMPY\x01\x00", 8));
  Store(out, header.size(), 2);
  StoreText(out, header);
  out.insert(out.end(), array.bytes.begin(), array.bytes.end());
  return out;
}

Result<std::vector<std::byte>> WriteNpz(const std::vector<std::pair<std::string, NpyArray>>& arrays, bool compress) {
  std::vector<std::byte> out, directory;
  for (const auto& [name, array] : arrays) {
    std::string entry = name + ".npy";
    std::vector<std::byte> data = WriteNpy(array), packed;
    uint32_t crc = uint32_t(crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(data.data()), data.size()));
    size_t size = data.size();
    if (size >= 0xffffffffu || out.size() >= 0xffffffffu || entry.size() > 0xffff || arrays.size() >= 0xffff)
      return Error{Code::kUnsupported,
                   StrCat("The array \"", name, "\" does not fit into an .npz archive of less than 4 GiB.")};
    if (compress) {
      z_stream stream = {};
      if (deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return Error{Code::kOutOfMemory, "No memory to pack an array file."};
      packed.resize(deflateBound(&stream, size));
      stream.next_in = reinterpret_cast<Bytef*>(data.data());
      stream.avail_in = uInt(size);
      stream.next_out = reinterpret_cast<Bytef*>(packed.data());
      stream.avail_out = uInt(packed.size());
      int status = deflate(&stream, Z_FINISH);
      CHECK(status == Z_STREAM_END);
      packed.resize(packed.size() - stream.avail_out);
      deflateEnd(&stream);
      data = std::move(packed);
    }
    auto common = [&](std::vector<std::byte>& to) {
      Store(to, 20, 2);
      Store(to, 0, 2);
      Store(to, compress ? 8 : 0, 2);
      Store(to, 0, 2);
      Store(to, 0x21, 2);  // 1 January 1980: the same arrays give the same bytes
      Store(to, crc, 4);
      Store(to, data.size(), 4);
      Store(to, size, 4);
      Store(to, entry.size(), 2);
      Store(to, 0, 2);
    };
    Store(directory, kDirectoryEntry, 4);
    Store(directory, 20, 2);
    common(directory);
    Store(directory, 0, 2);
    Store(directory, 0, 2);
    Store(directory, 0, 2);
    Store(directory, 0, 4);
    Store(directory, out.size(), 4);
    StoreText(directory, entry);
    Store(out, kLocalHeader, 4);
    common(out);
    StoreText(out, entry);
    out.insert(out.end(), data.begin(), data.end());
  }
  size_t start = out.size();
  if (start + directory.size() >= 0xffffffffu)
    return Error{Code::kUnsupported, "The arrays do not fit into an .npz archive of less than 4 GiB."};
  out.insert(out.end(), directory.begin(), directory.end());
  Store(out, kDirectoryEnd, 4);
  Store(out, 0, 4);
  Store(out, arrays.size(), 2);
  Store(out, arrays.size(), 2);
  Store(out, directory.size(), 4);
  Store(out, start, 4);
  Store(out, 0, 2);
  return out;
}

}  // namespace leeway
