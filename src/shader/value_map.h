// Value maps (tensor/virtual_tensor.h) as functions of the kernel language. Lowering splices them in; the interpreter calls
// them on the tree before lowering.
//
// The text of a value map may name these types, each the scalar or the vector of four of it, as the accessor is scalar
// (load, store) or not (load4, store4):
//   V  the value in flight (ValueMap::value)     R  the result (ValueMap::result)
//   F  f32    I  i32    U  u32    B  bool
// as in `fn apply(v : V, keep : B) -> V { return select(V(0.0), v, keep); }`. Its constants have the scalar type of V.
#pragma once

#include <string>

#include "shader/compile.h"

namespace leeway::shader {

// A checked module whose functions are those that the map needs, callees first, the last one being the map itself under the
// name `function_name`. `kernel` names it in messages. The map's operands are not looked at beyond their number.
Result<Module> InstantiateValueMap(const ValueMap& map, bool is_vector, std::string_view function_name, const Target& target,
                                   std::string_view kernel);

// Puts the functions, constants and variables of `from` that `into` does not have yet (by name) before those of `into`.
void MergeModule(Module& into, Module from);

// The scalar type in which kernels see elements stored as `dtype`: f32 for floats, i32, u32 or bool.
Scalar ValueScalar(DType dtype);

}  // namespace leeway::shader
