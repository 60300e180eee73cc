// Reads .tflite models into graphs. Weights stay where they are in the file; nothing in the file is trusted.
//
// What becomes what:
// - An operator becomes a node with the operator that FindOpForTflite finds for its name ("CONV_2D"), "custom:<code>" or
//   "composite:<name>". A composite that is not known becomes its decomposition. The fields of its options become attributes
//   of the same names, absent ones with the format's defaults: numbers and bools as they are, enumerations as the names of
//   their values (`padding` = "SAME" or "VALID", `mode` = "REFLECT") or, where the operator declares the attribute as a whole
//   number, as numbers; element types as our names (`out_data_type` = "f32").
// - `fused_activation_function` becomes a node of its own (RELU, RELU_N1_TO_1, RELU6, TANH); operators never see it.
// - Attributes that an operator declares (OpDef::attrs) under these names are filled in from the tensor of output 0: `dtype`,
//   `output_type`, `out_type` and `out_data_type`, declared as texts, its element type; `scale` and `zero_point` (or
//   `output_scale`, `output_zero_point`), its quantization where it has one for the whole tensor.
// - DENSIFY of a constant, DEQUANTIZE of a constant, and quantized weights of a float operator (dynamic range models) become
//   constants: f16 stays f16 under an f32 value, integers become f32.
// - Where an operator does not take quantized activations, it runs on the real numbers: DEQUANTIZE before it, QUANTIZE behind.
// The
//   results are those of the integer kernels but for the rounding of single steps.
// - Nodes that compute small constants from constants or from types (shapes) are computed here.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/mapped_file.h"
#include "base/result.h"
#include "graph/graph.h"

namespace leeway {

struct TfliteOptions {
  // The signature whose subgraph is read; empty: the first subgraph.
  std::string signature;
  // Finds operators by their .tflite name; null is FindOpForTflite.
  const OpDef* (*find_op)(std::string_view tflite_name) = nullptr;
  // True: an operator that is not found becomes a node with an operator of Graph::foreign_ops and the types of the file, so
  // that the graph can be looked at. False: an error that names all of them.
  bool keep_unknown_ops = false;
};

Result<Graph> ImportTflite(const std::string& path, const TfliteOptions& options = {});
Result<Graph> ImportTflite(std::shared_ptr<const MappedFile> file, const TfliteOptions& options = {});
// The same over a part of a file, such as a section of a container. `bytes` lie in `file` or are kept alive by it.
Result<Graph> ImportTflite(std::span<const std::byte> bytes, std::string name, std::shared_ptr<const void> file,
                           const TfliteOptions& options = {});

}  // namespace leeway
