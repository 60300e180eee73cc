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
  bool prefer_f16 = false;  // activations and weights are stored as f16
};

// A tensor of the plan that is neither input nor output.
struct PlanTensor {
  TensorType type;
  // >= 0: made once at load from constant input `constant_input` by `map` (coordinates here -> coordinates there, already as
  // the node sees it), zero outside. -1: scratch of each run.
  int constant_input = -1;
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

struct KernelDispatch {
  std::string kernel_name;
  std::string_view kernel_text;  // static storage
  std::map<std::string, shader::ConstValue> consts;
  std::vector<TensorArgument> tensors;
  uint32_t workgroups[3] = {1, 1, 1};
  double flops = 0;  // of the whole dispatch, for reports
  // The node's epilogue is applied where this dispatch stores output 0. Exactly one dispatch of a plan has it, and that
  // dispatch stores each element of output 0 once, through store/store4 only.
  bool stores_result = false;
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

// The variants of `op` that accept the request, best first, generic plans included; empty: CPU only.
std::vector<const KernelVariant*> AcceptingVariants(const OpDef& op, const KernelRequest& request);

}  // namespace leeway
