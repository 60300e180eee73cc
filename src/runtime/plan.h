// The launch plan: a graph turned into a fixed list of dispatches over placed tensors, with every kernel's text, every byte of
// memory and every border between GPU and CPU decided. It is made on paper, from what the device says about itself;
// device_plan.h makes the objects.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "device/device.h"
#include "graph/graph.h"
#include "leeway/leeway.h"
#include "ops/assemble.h"
#include "runtime/memory_plan.h"
#include "runtime/placement.h"
#include "runtime/select.h"

namespace leeway {

struct PlanOptions {
  SelectOptions select;
  std::string variant;
  std::vector<std::string> excluded_nodes;
  bool reuse_memory = true;
  bool require_gpu = false;
  // Values between nodes, by name, that are stored in f32 whatever the precision: their range is too large for halves. May be
  // null.
  std::function<bool(const std::string& value)> keeps_f32;
  // True: every value stays readable after a run (no reuse); for checks.
  bool keep_values = false;
  // Where programs are dear to compile and numbers known to the compiler gain nothing, kernels that differ in whole numbers
  // alone become one program, which takes them as params. False: each kernel has its numbers in its text.
  bool share_programs = false;
  // How many pieces of work were done, of how many; false cancels. May be null.
  std::function<bool(int done, int total)> progress;
};

// A tensor that has device memory.
struct PlanResource {
  enum class Kind : uint8_t { kActivation, kScratch, kConstant, kInput, kOutput, kState, kKernelScratch };
  Kind kind = Kind::kActivation;
  std::string name;
  ValueId value = kNoValue;  // kActivation, kInput, kOutput; of kState the one before the run
  Placement placement;       // not of kKernelScratch
  uint64_t size_bytes = 0;
  // kConstant: element c of the placed tensor is constant[map(c)]. With a format it is a piece of a quantized constant as
  // PackBlocks makes it (then there is no map).
  std::shared_ptr<const HostTensor> constant;
  CoordMap map;
  // With a format: constants whose rows follow.
  std::vector<std::shared_ptr<const HostTensor>> stacked;
  std::optional<BlockFormat> format;
  AssembledDispatch::Source::Piece piece = AssembledDispatch::Source::Piece::kWhole;
  // Where it is: a part of a buffer, or a texture.
  int buffer = -1;
  uint64_t offset_bytes = 0;
  int texture = -1;
  int first = 0, last = 0;  // positions in a run
};

struct PlanBuffer {
  uint64_t size_bytes = 0;
  std::string label;
  // kActivation stands for kScratch too. Kernel scratch and states begin as zeros; each state has a buffer of its own.
  PlanResource::Kind kind = PlanResource::Kind::kActivation;
};
struct PlanTexture {
  TextureSpec spec;
  std::string label;
};

struct PlanDispatch {
  int node = 0;
  int kernel = 0;  // index in LaunchPlan::kernels
  struct Binding {
    int resource = -1;
    int part = 0;
  };
  std::vector<Binding> bindings;     // as KernelText::bindings; no resource: params
  uint32_t params_offset_bytes = 0;  // in LaunchPlan::params
  DispatchInfo info;
  // What the kernel was made from, so that it can be made again for another target.
  std::string_view kernel_text;
  std::string kernel_name;
  shader::Specialization specialization;
};

// A value on its way over the border between device and host.
struct PlanTransfer {
  int resource = -1;
  ValueId value = kNoValue;
};

// A state of the graph: all values that lie in its memory have one resource.
struct PlanState {
  std::string name;
  ValueId before = kNoValue, after = kNoValue;
  TensorType type;
  int resource = -1;  // -1 without a device, and of empty tensors
};

struct PlanStep {
  bool on_gpu = true;
  // On the GPU: dispatches [first, last), cut into submissions that begin at these dispatches.
  int first_dispatch = 0, last_dispatch = 0;
  std::vector<int> submissions;
  // On the CPU: nodes, what has to come from the device before, and what goes there afterwards.
  std::vector<int> nodes;
  std::vector<PlanTransfer> downloads, uploads;
};

struct LaunchPlan {
  Graph graph;
  std::vector<shader::KernelText> kernels;  // each text once
  std::vector<PlanDispatch> dispatches;
  std::vector<std::byte> params;  // what every Submit gets
  std::vector<PlanResource> resources;
  std::vector<int> value_resource;  // by ValueId; -1: none on the device
  std::vector<PlanBuffer> buffers;
  std::vector<PlanTexture> textures;
  std::vector<PlanStep> steps;
  std::vector<PlanState> states;  // as Graph::states
  PlacementReport placement;
  MemoryReport memory;
  // What the memory planner was asked and said, for drawings.
  std::vector<MemoryItem> activation_items;
  MemoryPlan activation_plan;
  int input_buffer = -1;  // holds all inputs that are in buffers
};

// `device` null: everything on the CPU.
Result<LaunchPlan> MakePlan(Graph graph, const DeviceInfo* device, const PlanOptions& options, ThreadPool& pool);

// The plan for people.
std::string PlanToText(const LaunchPlan& plan);

}  // namespace leeway
