// What operators of language models ask of the tensor that says where a run stands, `step` i32[8]:
//   [0] position of the run's first row, [1] how many of its rows are valid (0 .. rows), [2] free for the caller,
//   [3] 1 when nothing can be generated any more, the rest 0.
// Rows of activations beyond [1] hold anything; nobody stores them in a state.
#pragma once

#include <algorithm>

#include "ops/operands.h"

namespace leeway {

inline constexpr int64_t kStepElements = 8;
enum class StepField { kPosition = 0, kCount = 1, kUser = 2, kStopped = 3 };

// Input `i` is i32[8].
Status ExpectStep(const OpCall& call, const char* op, size_t i);

struct RowPositions {
  int64_t position = 0, count = 0;
};
RowPositions StepOf(const HostTensor& step);

// The attribute `last` of operators whose rows have positions: false, row r is the run's row r; true, the rows are the last
// valid ones of the run.
inline constexpr const char* kLastRowsDoc = "The rows are the last valid ones of the run, not its first.";
inline int64_t FirstPosition(const RowPositions& step, int64_t rows, bool last) {
  return last ? step.position + step.count - rows : step.position;
}
inline int64_t ValidRows(const RowPositions& step, int64_t rows, bool last) { return last ? rows : std::min(step.count, rows); }

}  // namespace leeway
