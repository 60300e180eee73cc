// Quantized tensors in kernels: before a kernel is checked, a tensor whose placement has a format becomes two plain ones, its
// quants and its factors, and functions in the kernel language that read them. From there on nothing knows of formats.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "shader/compile.h"

namespace leeway::shader {

bool IsQuantized(const VirtualTensor& tensor);
bool AnyQuantized(const std::map<std::string, VirtualTensor>& tensors);

// The accessor `method` of a quantized tensor as a call: "w_load4". Empty: quantized tensors have no such accessor.
std::string QuantizedFunction(const std::string& tensor, std::string_view method);
// Accessors that only quantized tensors have.
bool IsQuantizedMethod(std::string_view method);
// A fact about the format, as a constant that the kernel may ask of any tensor: "bits" and the like; all 0 for a tensor without
// a format. -1: there is no such fact.
int QuantizedFact(const VirtualTensor& tensor, std::string_view name);
bool IsBoolFact(std::string_view name);

struct Expanded {
  Module module;                                 // with the functions, and declarations of quants and factors
  std::map<std::string, VirtualTensor> tensors;  // with quants and factors
};
Result<Expanded> ExpandQuantized(const Module& module, const std::map<std::string, VirtualTensor>& tensors);

// The tensors that remain.
std::map<std::string, VirtualTensor> WithoutQuantized(std::map<std::string, VirtualTensor> tensors);

}  // namespace leeway::shader
