// The functions of the OpenCL loader that we use, found by name when it is opened.
#pragma once

#include <CL/cl.h>

#include <string>

#include "base/result.h"

namespace leeway::opencl {

// clang-format off
#define LEEWAY_OPENCL_FUNCTIONS(X)                                                                     \
  X(clGetPlatformIDs) X(clGetPlatformInfo) X(clGetDeviceIDs) X(clGetDeviceInfo)                        \
  X(clCreateContext) X(clReleaseContext) X(clCreateCommandQueue) X(clReleaseCommandQueue)              \
  X(clCreateBuffer) X(clCreateSubBuffer) X(clCreateImage) X(clRetainMemObject) X(clReleaseMemObject)   \
  X(clCreateProgramWithSource) X(clCreateProgramWithBinary) X(clBuildProgram) X(clGetProgramBuildInfo) \
  X(clGetProgramInfo) X(clRetainProgram) X(clReleaseProgram) X(clCreateKernel) X(clSetKernelArg)       \
  X(clReleaseKernel) X(clEnqueueNDRangeKernel) X(clEnqueueReadBuffer) X(clEnqueueWriteBuffer)          \
  X(clEnqueueReadImage) X(clEnqueueWriteImage) X(clEnqueueMapBuffer) X(clEnqueueUnmapMemObject)        \
  X(clEnqueueMarkerWithWaitList) X(clEnqueueBarrierWithWaitList) X(clFlush) X(clFinish)                \
  X(clGetEventInfo) X(clGetEventProfilingInfo) X(clWaitForEvents) X(clReleaseEvent)
// clang-format on

struct Api {
#define LEEWAY_POINTER(name) decltype(&::name) name = nullptr;
  LEEWAY_OPENCL_FUNCTIONS(LEEWAY_POINTER)
#undef LEEWAY_POINTER
  std::string path;  // of the library
};

// Opens the loader once per process: LEEWAY_OPENCL_LIBRARY from the environment, or else the system's.
const Result<Api>& GetApi();

// "CL_OUT_OF_RESOURCES (-5)"
std::string StatusName(cl_int status);
// The error of a call that failed; memory codes become kOutOfMemory.
Error CallError(const char* call, cl_int status);

}  // namespace leeway::opencl
