#include "metal/msl_cpu.h"

#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>

#include "base/hash.h"
#include "base/strings.h"

namespace leeway::msl {

namespace {

// ---- Signatures. Our kernels have plain ones: `kernel void name(type name [[attribute]], ...)`.

std::string Trim(const std::string& text) {
  size_t begin = text.find_first_not_of(" \t\n"), end = text.find_last_not_of(" \t\n");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

std::string WithoutComments(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) {
      while (i < text.size() && text[i] != '\n') ++i;
      out += '\n';
    } else {
      out += text[i];
    }
  }
  return out;
}

Argument ReadArgument(const std::string& text) {
  size_t open = text.find("[["), close = text.find("]]");
  Argument argument;
  argument.attribute = Trim(text.substr(open + 2, close - open - 2));
  size_t paren = argument.attribute.find('(');
  if (paren != std::string::npos) {
    argument.index = std::atoi(argument.attribute.c_str() + paren + 1);
    argument.attribute.resize(paren);
  }
  std::string declaration = Trim(text.substr(0, open));
  size_t n = declaration.size();
  while (n && (std::isalnum(static_cast<unsigned char>(declaration[n - 1])) || declaration[n - 1] == '_')) --n;
  argument.name = declaration.substr(n);
  argument.type = Trim(declaration.substr(0, n));
  return argument;
}

std::vector<Kernel> ReadSignatures(const std::string& commented) {
  std::string text = WithoutComments(commented);
  std::vector<Kernel> kernels;
  for (size_t at = 0; (at = text.find("kernel void ", at)) != std::string::npos;) {
    at += 12;
    size_t open = text.find('(', at), begin = open + 1;
    Kernel kernel;
    kernel.name = Trim(text.substr(at, open - at));
    int depth = 0, angle = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      char c = text[i];
      if (c == '<') ++angle;
      if (c == '>') --angle;
      if (c == '(' || c == '[') ++depth;
      if (depth == 0 && (c == ')' || (c == ',' && angle == 0))) {
        std::string part = text.substr(begin, i - begin);
        if (part.find("[[") != std::string::npos) kernel.arguments.push_back(ReadArgument(part));
        begin = i + 1;
        if (c == ')') break;
      }
      if (c == ')' || c == ']') --depth;
    }
    kernels.push_back(kernel);
  }
  return kernels;
}

// ---- The generated caller: a C function per kernel that casts what the runner has to what the kernel declares. Read from
// the text, not from our printer, so that the printed [[buffer(2)]] itself is what is tested.

const char kCaller[] = R"(
struct lw_bindings { ulong buffer[31], texture[128], threadgroup_at[31]; };
struct lw_ids { uint thread_position_in_grid[3], threadgroup_position_in_grid[3], thread_position_in_threadgroup[3],
  threads_per_threadgroup[3], threadgroups_per_grid[3], threads_per_grid[3], thread_index_in_threadgroup[3],
  simdgroup_index_in_threadgroup[3], thread_index_in_simdgroup[3], simdgroups_per_threadgroup[3], threads_per_simdgroup[3]; };
template <typename T> struct lw_id;
template <> struct lw_id<uint> { static uint of(const device uint* p) { return p[0]; } };
template <> struct lw_id<uint2> { static uint2 of(const device uint* p) { return uint2{p[0], p[1]}; } };
template <> struct lw_id<uint3> { static uint3 of(const device uint* p) { return uint3{p[0], p[1], p[2]}; } };
template <typename T> T lw_texture_at(ulong at) { T t; t.t = *(const thread metal::lw_texture*)at; return t; }
)";

std::string Caller(const Kernel& kernel) {
  std::string text = StrCat("extern \"C\" void lw_call_", kernel.name,
                            "(const device lw_bindings* b, const device lw_ids* i) {\n  ", kernel.name, "(");
  bool first = true;
  for (const Argument& argument : kernel.arguments) {
    std::string type = argument.type, value;
    bool reference = !type.empty() && type.back() == '&';
    if (reference) type.back() = '*';
    if (argument.attribute == "buffer") {
      value = StrCat("(", type, ")b->buffer[", argument.index, "]");
    } else if (argument.attribute == "threadgroup") {
      value = StrCat("(", type, ")b->threadgroup_at[", argument.index, "]");
    } else if (argument.attribute == "texture") {
      value = StrCat("lw_texture_at<", type, ">(b->texture[", argument.index, "])");
    } else {
      value = StrCat("lw_id<", type, ">::of(i->", argument.attribute, ")");
    }
    text += StrCat(first ? "" : ", ", reference ? "*" : "", value);
    first = false;
  }
  return text + ");\n}\n";
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Clang() {
  const char* clang = std::getenv("MSL_CLANG");
  return clang ? clang : "clang-15";
}

// The zeroed memory of a loaded object, which holds its threadgroup variables and nothing else.
struct ZeroMemory {
  const char* path;
  char* at = nullptr;
  size_t bytes = 0;
};
int FindZeroMemory(dl_phdr_info* info, size_t, void* user) {
  auto* zero = static_cast<ZeroMemory*>(user);
  if (std::strcmp(info->dlpi_name, zero->path) != 0) return 0;
  for (int n = 0; n < info->dlpi_phnum; ++n) {
    const auto& part = info->dlpi_phdr[n];
    if (part.p_type == PT_LOAD && part.p_memsz > part.p_filesz) {
      zero->at = reinterpret_cast<char*>(info->dlpi_addr + part.p_vaddr + part.p_filesz);
      zero->bytes = part.p_memsz - part.p_filesz;
    }
  }
  return 1;
}

}  // namespace

Status CanCompile() {
  static const int status = std::system(StrCat("command -v ", Clang(), " >/dev/null 2>&1").c_str());
  if (status == 0) return {};
  return Error{Code::kNotFound, StrCat("The compiler ", Clang(), " is not installed.")};
}

Result<std::unique_ptr<Library>> Compile(const std::string& text, const std::string& headers, const std::string& cache) {
  return Compile({&text, 1}, headers, cache);
}

Result<std::unique_ptr<Library>> Compile(std::span<const std::string> texts, const std::string& headers,
                                         const std::string& cache) {
  std::vector<Kernel> kernels;
  std::string whole = StrCat("#include <metal_stdlib>\n", kCaller);
  for (size_t i = 0; i < texts.size(); ++i) {
    whole += StrCat("namespace lw_text_", i, " {\n#line 1 \"kernel", i, ".metal\"\n", texts[i], "\n#line 1 \"caller\"\n");
    for (Kernel& kernel : ReadSignatures(texts[i])) {
      whole += Caller(kernel);
      kernel.fibers = texts[i].find("barrier(") != std::string::npos || texts[i].find("simd") != std::string::npos;
      kernels.push_back(std::move(kernel));
    }
    whole += "}\n";
  }
  const char* flags = std::getenv("MSL_FLAGS") ? std::getenv("MSL_FLAGS") : "-O1";
  std::string compiler =
      StrCat(Clang(), " ", flags,
             " -x clcpp -cl-std=CLC++2021 -cl-no-stdinc -Xclang -cl-ext=-all,+cl_khr_fp16,"
             "+__cl_clang_non_portable_kernel_param_types,+__opencl_c_generic_address_space -Wall "
             "-Wno-unknown-attributes -Wno-unused -Wno-self-assign -Wno-tautological-compare -fPIC -shared -nostartfiles -I",
             headers);
  std::error_code ignored;
  std::filesystem::create_directories(cache, ignored);
  uint64_t key = HashText(ReadFile(headers + "/metal_stdlib"), HashText(compiler, HashText(whole)));
  std::string object = StrCat(cache, "/", key, ".so");
  if (!std::filesystem::exists(object)) {
    std::string base = StrCat(cache, "/", key, "-", uint64_t(getpid()));
    std::ofstream(base + ".metal") << whole;
    int status = std::system(StrCat(compiler, " ", base, ".metal -o ", base, ".so -lm 2>", base, ".txt").c_str());
    std::string messages = ReadFile(base + ".txt");
    std::filesystem::remove(base + ".txt", ignored);
    // Warnings count: what clang doubts, Apple's compiler may refuse.
    if (status != 0 || !messages.empty()) {
      std::filesystem::remove(base + ".so", ignored);
      return Error{Code::kInvalidArgument, StrCat("The text does not compile as MSL:\n", messages)};
    }
    std::filesystem::remove(base + ".metal", ignored);
    std::filesystem::rename(base + ".so", object, ignored);
  }
  void* handle = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return Error{Code::kInternal, StrCat("The compiled kernel does not load: ", dlerror())};
  ZeroMemory zero{object.c_str()};
  dl_iterate_phdr(FindZeroMemory, &zero);
  auto library = std::make_unique<Library>();
  for (Kernel& kernel : kernels) {
    kernel.call = reinterpret_cast<void (*)(const Bindings*, const Ids*)>(dlsym(handle, ("lw_call_" + kernel.name).c_str()));
    kernel.threadgroup_memory = zero.at;
    kernel.threadgroup_bytes = zero.bytes;
    library->kernels[kernel.name] = kernel;
  }
  return library;
}

GuardedBytes::GuardedBytes(std::span<const std::byte> bytes) : size_(bytes.size()) {
  const size_t whole = (size_ + 15) / 16 * 16;
  pages_ = (whole + 4095) / 4096 * 4096;
  base_ = static_cast<char*>(mmap(nullptr, pages_ + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(base_ + pages_, 4096, PROT_NONE);
  data_ = reinterpret_cast<std::byte*>(base_ + pages_ - whole);
  if (size_) std::memcpy(data_, bytes.data(), size_);
}
GuardedBytes::~GuardedBytes() { munmap(base_, pages_ + 4096); }

// ---- Fibers

extern "C" void lw_switch(void** save_here, void* go_there);
#if defined(__x86_64__)
asm(".text\n.globl lw_switch\nlw_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");
#elif defined(__aarch64__)
asm(".text\n.globl lw_switch\nlw_switch:\nsub sp,sp,#160\n"
    "stp x19,x20,[sp]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\nstp x27,x28,[sp,#64]\nstp "
    "x29,x30,[sp,#80]\n"
    "stp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\nmov x9,sp\nstr x9,[x0]\nmov "
    "sp,x1\n"
    "ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\nldp x27,x28,[sp,#64]\nldp "
    "x29,x30,[sp,#80]\n"
    "ldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\nadd sp,sp,#160\nret\n");
#endif

namespace {

constexpr size_t kStackBytes = 64 * 1024;
constexpr uint32_t kSimdgroup = 32;

enum class State { kReady, kBarrier, kSimd, kDone };
struct Lane {
  void* stack_pointer;
  State state;
  const void* site;  // of the barrier it waits at
  Ids ids;
};
struct alignas(64) Slots {
  char data[2][kSimdgroup][64];
  uint32_t active[2];
  int turn;
};
struct Runner {
  const Kernel* kernel;
  const Bindings* bindings;
  std::vector<Lane> lanes;
  std::vector<Slots> simdgroups;
  char* stacks = nullptr;
  size_t stack_count = 0;
  void* main_stack_pointer;
  uint32_t now;
};
thread_local Runner* runner;

void Wait(State state, const void* site) {
  Runner* r = runner;
  Lane& lane = r->lanes[r->now];
  lane.state = state;
  lane.site = site;
  lw_switch(&lane.stack_pointer, r->main_stack_pointer);
}

void Entry() {
  Runner* r = runner;
  r->kernel->call(r->bindings, &r->lanes[r->now].ids);
  Wait(State::kDone, nullptr);
  std::abort();
}

void MakeFiber(Runner& r, uint32_t n) {
  auto* top = reinterpret_cast<uint64_t*>(r.stacks + (n + 1) * kStackBytes);
#if defined(__x86_64__)
  *--top = 0;  // keeps the stack 16-aligned after the return into Entry
  *--top = reinterpret_cast<uint64_t>(&Entry);
  for (int i = 0; i < 6; ++i) *--top = 0;
#else
  top -= 20;
  std::memset(top, 0, 160);
  top[11] = reinterpret_cast<uint64_t>(&Entry);
#endif
  r.lanes[n].stack_pointer = top;
}

thread_local sigjmp_buf fault;
void OnFault(int signal, siginfo_t*, void*) { siglongjmp(fault, signal); }

// Lets the lanes of [begin, end) go on if all that live wait in `state` at one place.
bool Release(Runner& r, uint32_t begin, uint32_t end, State state, uint32_t* active) {
  const void* site = nullptr;
  uint32_t mask = 0;
  for (uint32_t i = begin; i < end; ++i) {
    Lane& lane = r.lanes[i];
    if (lane.state == State::kDone) continue;
    if (lane.state != state || (site && lane.site != site)) return false;
    site = lane.site;
    mask |= 1u << (i % kSimdgroup);
  }
  if (!site) return false;
  for (uint32_t i = begin; i < end; ++i) {
    if (r.lanes[i].state == state) r.lanes[i].state = State::kReady;
  }
  if (active) *active = mask;
  return true;
}

// One threadgroup. Shuffled: a random simdgroup runs as far as it gets before another one is picked.
Status RunGroup(Runner& r, Order order, std::mt19937& random) {
  uint32_t count = uint32_t(r.lanes.size());
  for (uint32_t i = 0; i < count; ++i) {
    r.lanes[i].state = State::kReady;
    MakeFiber(r, i);
  }
  for (Slots& slots : r.simdgroups) slots.turn = 0;
  std::vector<uint32_t> which(r.simdgroups.size()), lanes(kSimdgroup);
  std::iota(which.begin(), which.end(), 0);
  std::iota(lanes.begin(), lanes.end(), 0);
  if (order == Order::kReverse) {
    std::reverse(which.begin(), which.end());
    std::reverse(lanes.begin(), lanes.end());
  }
  while (true) {
    if (order == Order::kShuffled) std::shuffle(which.begin(), which.end(), random);
    for (uint32_t g : which) {
      uint32_t begin = g * kSimdgroup, end = std::min(begin + kSimdgroup, count);
      Slots& slots = r.simdgroups[g];
      while (true) {
        if (order == Order::kShuffled) std::shuffle(lanes.begin(), lanes.end(), random);
        for (uint32_t i : lanes) {
          if (begin + i >= end || r.lanes[begin + i].state != State::kReady) continue;
          r.now = begin + i;
          lw_switch(&r.main_stack_pointer, r.lanes[begin + i].stack_pointer);
        }
        if (!Release(r, begin, end, State::kSimd, &slots.active[slots.turn])) break;
        slots.turn ^= 1;
      }
    }
    if (std::all_of(r.lanes.begin(), r.lanes.end(), [](const Lane& lane) { return lane.state == State::kDone; })) return {};
    if (!Release(r, 0, count, State::kBarrier, nullptr)) {
      return Error{Code::kInternal,
                   StrCat("Invocations of the kernel ", r.kernel->name, " wait at different barriers or simdgroup functions.")};
    }
  }
}

void FillIds(Ids& ids, uint32_t index, const uint32_t at[3], const uint32_t count[3], const uint32_t size[3]) {
  uint32_t in[3] = {index % size[0], index / size[0] % size[1], index / size[0] / size[1]};
  uint32_t lanes = size[0] * size[1] * size[2];
  for (int axis = 0; axis < 3; ++axis) {
    ids.thread_position_in_threadgroup[axis] = in[axis];
    ids.threadgroup_position_in_grid[axis] = at[axis];
    ids.thread_position_in_grid[axis] = at[axis] * size[axis] + in[axis];
    ids.threads_per_threadgroup[axis] = size[axis];
    ids.threadgroups_per_grid[axis] = count[axis];
    ids.threads_per_grid[axis] = count[axis] * size[axis];
  }
  ids.thread_index_in_threadgroup[0] = index;
  ids.simdgroup_index_in_threadgroup[0] = index / kSimdgroup;
  ids.thread_index_in_simdgroup[0] = index % kSimdgroup;
  ids.simdgroups_per_threadgroup[0] = (lanes + kSimdgroup - 1) / kSimdgroup;
  ids.threads_per_simdgroup[0] = kSimdgroup;
}

}  // namespace

// What metal_stdlib calls.
extern "C" {
void lw_barrier(uint32_t scope) { Wait(scope ? State::kSimd : State::kBarrier, __builtin_return_address(0)); }
const void* lw_exchange(const void* value, uint32_t bytes) {
  Runner* r = runner;
  Slots& slots = r->simdgroups[r->now / kSimdgroup];
  int turn = slots.turn;
  std::memcpy(slots.data[turn][r->now % kSimdgroup], value, bytes);
  Wait(State::kSimd, __builtin_return_address(0));
  return slots.data[turn];
}
uint32_t lw_active() {
  Slots& slots = runner->simdgroups[runner->now / kSimdgroup];
  return slots.active[slots.turn ^ 1];
}
uint32_t lw_lane() { return runner->now % kSimdgroup; }
}

Status Run(const Kernel& kernel, const Bindings& bindings, std::array<uint32_t, 3> threadgroups, std::array<uint32_t, 3> group,
           Order order) {
  static thread_local Runner r;
  runner = &r;
  r.kernel = &kernel;
  r.bindings = &bindings;
  uint32_t lanes = group[0] * group[1] * group[2];
  if (kernel.fibers && r.stack_count < lanes) {
    if (r.stacks) munmap(r.stacks, r.stack_count * kStackBytes);
    r.stacks = static_cast<char*>(
        mmap(nullptr, lanes * kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    r.stack_count = lanes;
  }
  static thread_local std::vector<char> signal_stack;
  if (signal_stack.empty()) {
    signal_stack.resize(65536);
    stack_t stack{};
    stack.ss_sp = signal_stack.data();
    stack.ss_size = signal_stack.size();
    sigaltstack(&stack, nullptr);
  }
  const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};  // SIGILL: MSL_FLAGS with -fsanitize=... -fsanitize-trap=all
  struct sigaction on {
  }, before[4];
  on.sa_sigaction = OnFault;
  on.sa_flags = SA_ONSTACK | SA_SIGINFO;
  for (int i = 0; i < 4; ++i) sigaction(signals[i], &on, &before[i]);
  Status status;
  if (int signal = sigsetjmp(fault, 1)) {
    status = Error{Code::kInternal, StrCat("The kernel ", kernel.name,
                                           signal == SIGFPE   ? " divides by zero."
                                           : signal == SIGILL ? " does what is not defined."
                                                              : " touches memory outside of every buffer.")};
  } else {
    std::mt19937 random(12345);
    uint32_t total = threadgroups[0] * threadgroups[1] * threadgroups[2];
    for (uint32_t n = 0; n < total && status.ok(); ++n) {
      uint32_t t = order == Order::kReverse ? total - 1 - n : n;
      uint32_t at[3] = {t % threadgroups[0], t / threadgroups[0] % threadgroups[1], t / threadgroups[0] / threadgroups[1]};
      r.lanes.resize(lanes);
      r.simdgroups.resize((lanes + kSimdgroup - 1) / kSimdgroup);
      if (kernel.fibers && kernel.threadgroup_bytes) std::memset(kernel.threadgroup_memory, 0xff, kernel.threadgroup_bytes);
      for (uint32_t i = 0; i < lanes; ++i) FillIds(r.lanes[i].ids, i, at, threadgroups.data(), group.data());
      if (kernel.fibers) {
        status = RunGroup(r, order, random);
      } else {
        for (uint32_t i = 0; i < lanes; ++i) kernel.call(&bindings, &r.lanes[i].ids);
      }
    }
  }
  for (int i = 0; i < 4; ++i) sigaction(signals[i], &before[i], nullptr);
  return status;
}

}  // namespace leeway::msl
