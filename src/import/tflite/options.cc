#include "import/tflite/options.h"

#include "base/strings.h"
#include "flatbuffers/reflection_generated.h"
#include "import/tflite/tflite_bfbs_generated.h"

namespace leeway::tflite {
namespace {

using flatbuffers::Table;
using reflection::BaseType;

const reflection::Schema& Schema() { return *reflection::GetSchema(tflite_schema::ModelBinarySchema::data()); }

const reflection::Enum* FindEnum(const char* name) { return Schema().enums()->LookupByKey(name); }

// Whole numbers of any width, widened.
int64_t ReadInteger(const Table& table, const reflection::Field& field) {
  uint16_t at = field.offset();
  int64_t fallback = field.default_integer();
  switch (field.type()->base_type()) {
    case BaseType::Bool:
    case BaseType::UByte:
    case BaseType::UType: return table.GetField<uint8_t>(at, uint8_t(fallback));
    case BaseType::Byte: return table.GetField<int8_t>(at, int8_t(fallback));
    case BaseType::Short: return table.GetField<int16_t>(at, int16_t(fallback));
    case BaseType::UShort: return table.GetField<uint16_t>(at, uint16_t(fallback));
    case BaseType::Int: return table.GetField<int32_t>(at, int32_t(fallback));
    case BaseType::UInt: return table.GetField<uint32_t>(at, uint32_t(fallback));
    case BaseType::Long: return table.GetField<int64_t>(at, fallback);
    default: return int64_t(table.GetField<uint64_t>(at, uint64_t(fallback)));
  }
}

template <class T, class To>
std::vector<To> ReadVector(const Table& table, const reflection::Field& field) {
  std::vector<To> values;
  if (auto* vector = table.GetPointer<const flatbuffers::Vector<T>*>(field.offset())) {
    for (T value : *vector) values.push_back(To(value));
  }
  return values;
}

Result<std::string> EnumText(const reflection::Field& field, int64_t value) {
  const reflection::Enum* enumeration = Schema().enums()->Get(flatbuffers::uoffset_t(field.type()->index()));
  if (enumeration == FindEnum("leeway.tflite_schema.TensorType")) {
    if (auto dtype = DTypeOf(tflite_schema::TensorType(value))) return std::string(DTypeName(*dtype));
  }
  for (const reflection::EnumVal* known : *enumeration->values()) {
    if (known->value() == value) return known->name()->str();
  }
  return Error{Code::kInvalidModel,
               StrCat("The option ", field.name()->str(), " has the value ", value, ", which the format does not know.")};
}

bool IsDeclaredAsNumber(std::span<const AttrField> declared, const std::string& name) {
  for (const AttrField& field : declared) {
    if (name == field.name) return std::holds_alternative<int64_t>(field.fallback);
  }
  return false;
}

Status ReadTable(const Table& table, const reflection::Object& type, std::span<const AttrField> declared, AttrSet& attrs) {
  for (const reflection::Field* field : *type.fields()) {
    if (field->deprecated()) continue;
    std::string name = field->name()->str();
    switch (field->type()->base_type()) {
      case BaseType::Bool: attrs.Set(name, ReadInteger(table, *field) != 0); break;
      case BaseType::UByte:
      case BaseType::UType:
      case BaseType::Byte:
      case BaseType::Short:
      case BaseType::UShort:
      case BaseType::Int:
      case BaseType::UInt:
      case BaseType::Long:
      case BaseType::ULong: {
        int64_t value = ReadInteger(table, *field);
        if (field->type()->index() < 0) {
          attrs.Set(name, value);
          break;
        }
        ASSIGN_OR_RETURN(std::string text, EnumText(*field, value));
        if (IsDeclaredAsNumber(declared, name)) {
          attrs.Set(name, value);
        } else {
          attrs.Set(name, std::move(text));
        }
        break;
      }
      case BaseType::Float:
        attrs.Set(name, double(table.GetField<float>(field->offset(), float(field->default_real()))));
        break;
      case BaseType::Double: attrs.Set(name, table.GetField<double>(field->offset(), field->default_real())); break;
      case BaseType::String: {
        auto* text = table.GetPointer<const flatbuffers::String*>(field->offset());
        attrs.Set(name, text ? text->str() : std::string());
        break;
      }
      case BaseType::Vector:
        switch (field->type()->element()) {
          case BaseType::Int: attrs.Set(name, ReadVector<int32_t, int64_t>(table, *field)); break;
          case BaseType::UInt: attrs.Set(name, ReadVector<uint32_t, int64_t>(table, *field)); break;
          case BaseType::Long: attrs.Set(name, ReadVector<int64_t, int64_t>(table, *field)); break;
          case BaseType::Bool: attrs.Set(name, ReadVector<uint8_t, int64_t>(table, *field)); break;
          case BaseType::Float: attrs.Set(name, ReadVector<float, double>(table, *field)); break;
          default: break;
        }
        break;
      default: break;
    }
  }
  return {};
}

// The table type behind a tag of a union, null for a tag that the format does not have.
const reflection::Object* UnionMember(const char* enum_name, int64_t tag) {
  for (const reflection::EnumVal* member : *FindEnum(enum_name)->values()) {
    if (member->value() == tag && tag != 0)
      return Schema().objects()->Get(flatbuffers::uoffset_t(member->union_type()->index()));
  }
  return nullptr;
}

}  // namespace

Result<AttrSet> ReadOptions(const tflite_schema::Operator& op, std::span<const AttrField> declared) {
  AttrSet attrs;
  struct Options {
    const char* union_name;
    int64_t tag;
    const void* table;
  };
  for (const Options& options :
       {Options{"leeway.tflite_schema.BuiltinOptions", int64_t(op.builtin_options_type()), op.builtin_options()},
        Options{"leeway.tflite_schema.BuiltinOptions2", int64_t(op.builtin_options_2_type()), op.builtin_options_2()}}) {
    if (options.tag == 0 || !options.table) continue;
    const reflection::Object* type = UnionMember(options.union_name, options.tag);
    if (!type) return Error{Code::kInvalidModel, StrCat("Its options are of the unknown kind ", options.tag, ".")};
    RETURN_IF_ERROR(ReadTable(*static_cast<const Table*>(options.table), *type, declared, attrs));
  }
  return attrs;
}

std::optional<DType> DTypeOf(tflite_schema::TensorType type) {
  using tflite_schema::TensorType;
  switch (type) {
    case TensorType::FLOAT32: return DType::kF32;
    case TensorType::FLOAT16: return DType::kF16;
    case TensorType::BFLOAT16: return DType::kBF16;
    case TensorType::FLOAT64: return DType::kF64;
    case TensorType::INT64: return DType::kI64;
    case TensorType::INT32: return DType::kI32;
    case TensorType::INT16: return DType::kI16;
    case TensorType::INT8: return DType::kI8;
    case TensorType::INT4: return DType::kI4;
    case TensorType::INT2: return DType::kI2;
    case TensorType::UINT64: return DType::kU64;
    case TensorType::UINT32: return DType::kU32;
    case TensorType::UINT16: return DType::kU16;
    case TensorType::UINT8: return DType::kU8;
    case TensorType::UINT4: return DType::kU4;
    case TensorType::BOOL: return DType::kBool;
    case TensorType::STRING:
    case TensorType::COMPLEX64:
    case TensorType::COMPLEX128:
    case TensorType::RESOURCE:
    case TensorType::VARIANT:
    case TensorType::FLOAT8_E4M3FN:
    case TensorType::FLOAT8_E5M2: return std::nullopt;
  }
  return std::nullopt;
}

std::string TypeName(tflite_schema::TensorType type) {
  const char* name = tflite_schema::EnumNameTensorType(type);
  return *name ? name : StrCat("number ", int(type));
}

}  // namespace leeway::tflite
