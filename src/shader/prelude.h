// Functions in the kernel language itself that every kernel may call; Bind adds those that are used.
#pragma once

#include <string>
#include <string_view>

#include "shader/ast.h"

namespace leeway::shader {

// Parsed once. The functions are generic: a parameter type V takes any scalar or vector, V4 any vector of four numbers, and E
// is the scalar of that; each use makes an instance with a suffix, as in sum4_vec4f. A parameter of type N is a u32; where the
// caller's is constant the instance has it bound, as in inside4_10. Besides what every kernel knows the texts may use these
// constants: unit_lanes, the extent of the workgroup in x; unit_invocations, all its invocations; unit_is_subgroup,
// unit_is_subgroups and unit_is_part_of_subgroup, whether a unit is one, several, or a part of a subgroup.
const Module& Prelude();

const Function* FindPreludeFunction(std::string_view name);  // null: there is none
const VarDecl* FindPreludeVar(std::string_view name);
// "sum4_vec4f": a name that an instance may have, so nothing else can.
bool IsPreludeInstanceName(std::string_view name);
// "f32", "vec4f": the suffix of an instance for a type.
std::string PreludeSuffix(const Type& type);

}  // namespace leeway::shader
