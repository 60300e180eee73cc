#include "graph/passes/passes.h"

#include <chrono>

#include "base/strings.h"
#include "graph/passes/concat_in_place.h"
#include "graph/passes/fold_constants.h"
#include "graph/passes/fold_pad.h"
#include "graph/passes/fuse_elementwise.h"
#include "graph/passes/fuse_movements.h"
#include "graph/passes/remove_dead.h"
#include "graph/passes/simplify.h"

namespace leeway {
namespace {

constexpr Pass kPasses[] = {
    {"fold_constants", FoldConstants},
    {"simplify", Simplify},
    {"remove_dead", RemoveDead},
    {"fold_pad", FoldPad},                  // before views: padding that an operator does itself needs no bounds check
    {"fuse_elementwise", FuseElementwise},  // before views: a node that stores elsewhere takes no more steps
    {"fuse_movements", FuseMovements},      // before concat: what stands between a node and its concat goes first
    {"concat_in_place", ConcatInPlace},
    {"remove_unused_values", RemoveDead},  // what the others left over
};

}  // namespace

std::span<const Pass> AllPasses() { return kPasses; }

Result<std::vector<PassReport>> RunPasses(Graph& graph, const PassOptions& options) {
  for (const std::string& name : options.disabled) {
    bool known = false;
    for (const Pass& pass : kPasses) known |= name == pass.name;
    if (!known) {
      std::vector<std::string> names;
      for (const Pass& pass : kPasses) names.push_back(pass.name);
      return Error{Code::kInvalidArgument,
                   StrCat("There is no pass \"", name, "\" to switch off; the passes are ", Join(names, ", "), ".")};
    }
  }
  std::vector<PassReport> reports;
  for (const Pass& pass : kPasses) {
    PassReport report{pass.name};
    report.disabled = options.disabled.contains(pass.name);
    if (!report.disabled) {
      auto start = std::chrono::steady_clock::now();
      ASSIGN_OR_RETURN_CONTEXT(report.changes, pass.run(graph), StrCat("in pass ", pass.name));
      RETURN_IF_ERROR_CONTEXT(Verify(graph), StrCat("after pass ", pass.name));
      report.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace leeway
