// Makes a lowered kernel shorter without changing what it does: integer and bool constants fold, x*1 and x+0 and the like
// vanish, unsigned division and remainder by powers of two become shifts and masks, branches on constants are resolved, lets
// and functions that nothing uses are dropped.
#pragma once

#include "shader/ast.h"

namespace leeway::shader {

void Simplify(Module& module);
// Only what follows from constants alone: none of x*1, x+0, shifts for divisions. What is left does not depend on which
// numbers they are, as far as possible (share.h).
void FoldConstants(Module& module);

}  // namespace leeway::shader
