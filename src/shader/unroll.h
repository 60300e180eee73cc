// For kernels that multiply matrices: printed loops are left to a driver's compiler, and one that does not unroll them keeps
// arrays of matrices in memory.
#pragma once

#include "shader/ast.h"

namespace leeway::shader {

// Is a matrix of a subgroup, or an array of them, declared in the function?
bool DeclaresMatrices(const Function& function);

// Loops with @unroll over constant bounds become their rounds, one after another, in functions that declare matrices. Names of
// locals stay unique in their function.
void UnrollMatrixLoops(Module& module);

// Arrays of matrices that are only indexed by constants become variables, one for each element. After Simplify.
void SplitMatrixArrays(Module& module);

}  // namespace leeway::shader
