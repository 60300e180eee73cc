// How an operator runs on a GPU: a ladder of variants, each a plan of one or more dispatches of kernels over named tensors. The
// runtime adds placements, views and epilogues; an operator never sees a layout, a storage or a device.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op_def.h"
#include "shader/compile.h"
#include "shader/target.h"

namespace leeway {

// What a variant is asked with.
struct KernelRequest {
  const OpCall& call;  // operand types as the node sees them
  const shader::Target& target;
  bool prefer_f16 = false;    // activations and weights are stored as f16
  const OpDef* op = nullptr;  // the operator that is asked; generic plans need it
};

// A tensor of the plan that is neither input nor output.
struct PlanTensor {
  TensorType type;
  // >= 0: made once at load from constant input `constant_input` by `map` (coordinates here -> coordinates there, already as
  // the node sees it), zero outside. -1: scratch of each run.
  int constant_input = -1;
  // More constant inputs whose rows follow those of the first, along axis 0. Without a map, and in types that come to lie in
  // one format.
  std::vector<int> stacked_inputs;
  CoordMap map;
};

struct TensorArgument {
  enum class Kind : uint8_t { kInput, kOutput, kPlan };
  std::string name;  // of the kernel's declaration
  Kind kind = Kind::kInput;
  int index = 0;  // input, output, or index in OpPlan::tensors
  // How the kernel sees it; empty shape list (rank 0 with no map) means: as it is.
  Shape shape;
  CoordMap map;       // kernel coordinates -> coordinates of the tensor
  bool as_is = true;  // shape and map do not apply
};

// An elementwise operator that runs by itself: its function, applied where the dispatch stores output 0, before the node's
// epilogue. The value that the kernel stores is the operator's chained input, its operands are these inputs of the node, in
// order, broadcast (numpy rules) to the shape of output 0.
struct OwnStep {
  ValueMap function;  // operands empty
  std::vector<int> inputs;
};

struct KernelDispatch {
  std::string kernel_name;
  std::string_view kernel_text;  // static storage
  std::map<std::string, shader::ConstValue> consts;
  std::vector<TensorArgument> tensors;
  uint32_t workgroups[3] = {1, 1, 1};
  double flops = 0;  // of the whole dispatch, for reports
  // This dispatch stores (a part of) output 0, and the node's epilogue is applied there. All dispatches of a plan that store
  // output 0 have it; together they store each element once, through store/store4 only.
  bool stores_result = false;
  // Applied at the same place, before the epilogue. Only with stores_result.
  std::vector<OwnStep> own_steps;
};

struct OpPlan {
  std::vector<PlanTensor> tensors;
  std::vector<KernelDispatch> dispatches;
};

struct KernelVariant {
  const char* name;  // "direct", "tiled"
  const char* what;  // one line: what it adds to the one below it
  bool (*accepts)(const KernelRequest& request);
  Result<OpPlan> (*plan)(const KernelRequest& request);
  // True: where no value map may be spliced into its stores.
  bool no_epilogue = false;
};

struct OpKernels {
  std::span<const KernelVariant> variants;  // best first; the last accepts everything that `infer` lets through, or says no
};

// Plans for operators without kernels of their own: elementwise (value_map), movement and scatter, over one generic kernel
// that works on any rank by merging axes. An error with kUnsupported where the operator is none of these.
Result<OpPlan> GenericPlan(const OpDef& op, const KernelRequest& request);

// The variants of `op` that accept the request, best first, generic plans included; empty: CPU only. request.op is `op`, here
// and when the variant's plan is asked for.
std::vector<const KernelVariant*> AcceptingVariants(const OpDef& op, const KernelRequest& request);

}  // namespace leeway
