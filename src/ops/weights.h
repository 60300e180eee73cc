// Weights and biases: what references read of them, and how plans bring them into the form that a kernel wants.
#pragma once

#include "ops/op_kernels.h"
#include "ops/operands.h"

namespace leeway {

// Input `i`, if it is given, is a float tensor of `count` elements.
Status ExpectBias(const OpCall& call, const char* op, size_t i, int64_t count);
std::vector<double> BiasOrZeros(const OpCall& call, std::span<const HostTensor> inputs, size_t i, int64_t count);

// A row of a matrix of any float type, block-quantized ones too.
std::vector<float> RowToF32(const HostTensor& matrix, int64_t row);

// Stores row-major f32 results into an output of a float type.
void StoreF32(HostTensor& tensor, std::span<const float> values);

// An argument `name` that reads input `input` as a tensor of `shape` through `map`: made once at load where the input is
// constant, read through the map at each run where it is not.
void AddWeights(OpPlan& plan, KernelDispatch& dispatch, const KernelRequest& request, std::string name, int input, Shape shape,
                CoordMap map);
// An argument of `count` elements, or of `shape`: input `input`, or zeros where that is absent (made from `any_input`, which is
// given).
void AddBias(OpPlan& plan, KernelDispatch& dispatch, const KernelRequest& request, std::string name, int input, int any_input,
             int64_t count);
void AddBias(OpPlan& plan, KernelDispatch& dispatch, const KernelRequest& request, std::string name, int input, int any_input,
             Shape shape);

}  // namespace leeway
