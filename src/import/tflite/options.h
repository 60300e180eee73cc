// Options tables of operators as attributes, by the names that tflite.fbs gives the fields.
#pragma once

#include <optional>
#include <span>

#include "graph/op_def.h"
#include "import/tflite/tflite_generated.h"

namespace leeway::tflite {

// The table of an operator's options (of either union) as attributes; absent fields have the format's defaults, byte vectors
// are left out. No options at all: an empty set. An enumeration becomes the name of its value, or its number where `declared`
// holds the attribute as a whole number.
Result<AttrSet> ReadOptions(const tflite_schema::Operator& op, std::span<const AttrField> declared);

// Our element type, or none where we have no such type (texts, complex numbers, resources, 8-bit floats).
std::optional<DType> DTypeOf(tflite_schema::TensorType type);
// "FLOAT32", or "number 99" for a value outside the format.
std::string TypeName(tflite_schema::TensorType type);

}  // namespace leeway::tflite
