#include "base/result.h"
#include "base/strings.h"
#include "shader/build_tree.h"
#include "shader/builtins.h"
#include "shader/compile.h"
#include "shader/share.h"
#include "shader/simplify.h"
#include "shader/splice.h"
#include "shader/unroll.h"

namespace leeway::shader {
namespace {

using namespace build;

// Params in the order of declaration, by the rules of a uniform block; a bool is a u32 there.
void LayOutParams(const Module& module, LoweredKernel& out) {
  uint32_t offset = 0;
  for (const ParamDecl& param : module.params) {
    uint32_t rows = param.type.IsVector() ? param.type.rows : 1;
    uint32_t align = rows == 1 ? 4 : rows == 2 ? 8 : 16;
    offset = (offset + align - 1) / align * align;
    out.params.push_back({param.name, param.type, offset});
    offset += 4 * rows;
  }
  out.params_bytes = (offset + 15) / 16 * 16;
}

// Scratch memory becomes buffers.
void BindScratch(LoweredKernel& out) {
  Module& module = out.module;
  for (ScratchDecl& scratch : module.scratches) {
    BindingInfo binding;
    binding.name = scratch.name;
    binding.kind = BindingInfo::Kind::kScratch;
    binding.access = Access::kReadWrite;
    binding.type = scratch.type;
    binding.scratch_bytes = LayoutOf(scratch.type, module).size;
    VarDecl var;
    var.name = scratch.name;
    var.space = "storage";
    var.type = scratch.type;
    var.access = Access::kReadWrite;
    var.binding = int(out.bindings.size());
    var.at = scratch.at;
    module.vars.push_back(std::move(var));
    out.bindings.push_back(std::move(binding));
  }
  module.scratches.clear();
  for (Function& f : module.functions) {
    VisitExprs(f, [](ExprPtr& e) {
      if (e->kind == ExprKind::kName && e->symbol == Symbol::kScratch) e->symbol = Symbol::kModuleVar;
    });
  }
}

// Functions on bytes packed in words, as arithmetic. Every argument is used once, so nothing is computed twice.
ExprPtr PackedPolyfill(Builtin builtin, std::vector<ExprPtr>& args) {
  Type vec4i = Vec4(Scalar::kI32), vec4u = Vec4(Scalar::kU32);
  auto four = [&](int64_t a, int64_t b, int64_t c, int64_t d) { return ConstructOf(vec4u, U32(a), U32(b), U32(c), U32(d)); };
  auto same = [&](ExprPtr value, Scalar scalar) { return ConstructOf(Vec4(scalar), std::move(value)); };
  auto unsigned_bytes = [&](ExprPtr word) {
    ExprPtr shifted = Binary(">>", ConstructOf(vec4u, std::move(word)), four(0, 8, 16, 24), vec4u);
    return Binary("&", std::move(shifted), same(U32(255), Scalar::kU32), vec4u);
  };
  auto signed_bytes = [&](ExprPtr word) {
    ExprPtr top = Binary("<<", ConstructOf(vec4u, std::move(word)), four(24, 16, 8, 0), vec4u);
    return Binary(">>", ConstructOf(vec4i, std::move(top)), same(U32(24), Scalar::kU32), vec4i);
  };
  auto pack = [&](ExprPtr bytes) {
    if (bytes->type.scalar == Scalar::kI32) bytes = ConstructOf(vec4u, std::move(bytes));
    ExprPtr low = Binary("&", std::move(bytes), same(U32(255), Scalar::kU32), vec4u);
    return Call("dot", List(std::move(low), four(1, 1 << 8, 1 << 16, 1 << 24)), Type::Of(Scalar::kU32));
  };
  switch (builtin) {
    case Builtin::kDot4U8Packed:
      return Call("dot", List(unsigned_bytes(std::move(args[0])), unsigned_bytes(std::move(args[1]))), Type::Of(Scalar::kU32));
    case Builtin::kDot4I8Packed:
      return Call("dot", List(signed_bytes(std::move(args[0])), signed_bytes(std::move(args[1]))), Type::Of(Scalar::kI32));
    case Builtin::kUnpack4xI8: return signed_bytes(std::move(args[0]));
    case Builtin::kUnpack4xU8: return unsigned_bytes(std::move(args[0]));
    case Builtin::kPack4xI8:
    case Builtin::kPack4xU8: return pack(std::move(args[0]));
    case Builtin::kPack4xI8Clamp:
      return pack(Call("clamp", List(std::move(args[0]), same(I32(-128), Scalar::kI32), same(I32(127), Scalar::kI32)), vec4i));
    case Builtin::kPack4xU8Clamp: return pack(Call("min", List(std::move(args[0]), same(U32(255), Scalar::kU32)), vec4u));
    default: return nullptr;
  }
}

bool IsPackedBytes(Builtin builtin) {
  switch (builtin) {
    case Builtin::kDot4U8Packed:
    case Builtin::kDot4I8Packed:
    case Builtin::kPack4xI8:
    case Builtin::kPack4xU8:
    case Builtin::kPack4xI8Clamp:
    case Builtin::kPack4xU8Clamp:
    case Builtin::kUnpack4xI8:
    case Builtin::kUnpack4xU8: return true;
    default: return false;
  }
}

void LowerPackedBytes(const Target& target, LoweredKernel& out) {
  for (Function& f : out.module.functions) {
    VisitExprs(f, [&](ExprPtr& e) {
      if (e->kind != ExprKind::kCall || !IsPackedBytes(Builtin(e->builtin))) return;
      if (target.packed_dot) {
        out.uses_packed_dot = true;
        return;
      }
      Location at = e->at;
      ExprPtr arithmetic = PackedPolyfill(Builtin(e->builtin), e->args);
      e = std::move(arithmetic);
      e->at = at;
    });
  }
}

Result<LoweredKernel> LowerUnsimplified(const BoundKernel& kernel, const Target& target) {
  auto refuse = [&](const std::string& what) {
    return Error{Code::kUnsupported,
                 StrCat(kernel.module.name, ".kernel cannot be lowered to ", LanguageName(target.language), ": ", what, ".")};
  };
  if (kernel.uses_subgroups && !target.subgroups) return refuse("it uses subgroup functions, and the target has none");
  if (kernel.uses_f16 && !target.f16) return refuse("it computes in f16, and the target has no f16");

  LoweredKernel out;
  out.module = Clone(kernel.module);
  std::copy(kernel.workgroup_size, kernel.workgroup_size + 3, out.workgroup_size);
  out.workgroup_bytes = kernel.workgroup_bytes;
  out.uses_subgroups = kernel.uses_subgroups;
  out.uses_barriers = kernel.uses_barriers;
  out.uses_f16 = kernel.uses_f16;
  LayOutParams(out.module, out);
  BindScratch(out);
  RETURN_IF_ERROR(SpliceTensors(kernel, target, out));
  LowerPackedBytes(target, out);
  UnrollMatrixLoops(out.module);
  return out;
}

}  // namespace

Result<LoweredKernel> Lower(const BoundKernel& kernel, const Target& target) {
  ASSIGN_OR_RETURN(LoweredKernel out, LowerUnsimplified(kernel, target));
  Simplify(out.module);
  SplitMatrixArrays(out.module);
  return out;
}

Result<LoweredKernel> LowerForSharing(const BoundKernel& kernel, const Target& target) {
  ASSIGN_OR_RETURN(LoweredKernel out, LowerUnsimplified(kernel, target));
  FoldConstants(out.module);
  return out;
}

}  // namespace leeway::shader
