// The metadata block that some .tflite files carry ("TFLITE_METADATA").
#pragma once

#include <map>
#include <span>
#include <string>

namespace leeway::tflite {

// Fills the entries that Graph::metadata describes from the block's bytes. A block that is damaged or of another kind adds
// nothing: it is a hint about the pictures, the model means the same without it.
void ReadMetadata(std::span<const std::byte> bytes, std::map<std::string, std::string>& metadata);

}  // namespace leeway::tflite
