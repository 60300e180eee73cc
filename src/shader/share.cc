#include "shader/share.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/strings.h"
#include "shader/build_tree.h"
#include "shader/index_code.h"
#include "shader/simplify.h"
#include "shader/unroll.h"

namespace leeway::shader {
namespace {

bool IsNumber(const Expr& e) {
  return e.kind == ExprKind::kLiteral && (e.type.IsScalar(Scalar::kI32) || e.type.IsScalar(Scalar::kU32));
}

// Calls visit(expr) for each integer literal of the functions that may as well be a variable, always in the same order.
template <class Visit>
class NumberWalk {
 public:
  NumberWalk(const ShareOptions& options, Visit visit) : options_(options), visit_(std::move(visit)) {}

  void Walk(Module& module) {
    for (Function& f : module.functions) Walk(f.body);
  }

 private:
  void Walk(std::vector<StmtPtr>& body) {
    for (StmtPtr& s : body) Walk(*s);
  }

  void Walk(Stmt& s) {
    if (s.kind == StmtKind::kConst) return;  // has to be known
    const bool is_counted = s.kind == StmtKind::kFor && s.init && s.init->value && s.init->value->kind == ExprKind::kLiteral;
    const bool stays = s.kind == StmtKind::kFor && (s.unroll != 0 || (is_counted && !options_.loop_lengths));
    Walk(s.target);
    if (!stays) Walk(s.value);
    if (s.init && !stays) Walk(*s.init);
    if (s.update && !stays) Walk(*s.update);
    Walk(s.body);
    Walk(s.else_body);
    for (SwitchCase& c : s.cases) Walk(c.body);
  }

  void Walk(ExprPtr& e) {
    if (!e) return;
    if (IsNumber(*e)) return visit_(e);
    for (size_t i = 0; i < e->args.size(); ++i) {
      // A component of a vector by number is part of its name.
      if (e->kind == ExprKind::kIndex && i == 1 && e->args[0]->type.IsVector()) continue;
      Walk(e->args[i]);
    }
  }

  const ShareOptions& options_;
  Visit visit_;
};
template <class Visit>
void VisitNumbers(Module& module, const ShareOptions& options, Visit visit) {
  NumberWalk<Visit>(options, std::move(visit)).Walk(module);
}

}  // namespace

KernelOutline OutlineOf(const LoweredKernel& kernel, const ShareOptions& options) {
  KernelOutline outline;
  Module module = Clone(kernel.module);
  VisitNumbers(module, options, [&](ExprPtr& e) {
    outline.numbers.push_back(e->literal.i);
    e = build::Name(e->type.scalar == Scalar::kI32 ? "#i" : "#u", e->type, Symbol::kNone);
  });
  outline.text = Format(module);
  for (const BindingInfo& binding : kernel.bindings) {
    outline.text += StrCat(binding.name, " ", int(binding.kind), " ", int(binding.access), " ", binding.tensor, " ",
                           binding.part, " ", binding.type.ToString(), " ", binding.scratch_bytes, "\n");
  }
  outline.text +=
      StrCat(kernel.module.name, " ", kernel.workgroup_size[0], " ", kernel.workgroup_size[1], " ", kernel.workgroup_size[2]);
  return outline;
}

std::optional<SharedKernel> ShareKernels(const LoweredKernel& like, std::span<const std::vector<int64_t>* const> numbers,
                                         const ShareOptions& options) {
  if (!like.params.empty() || numbers.empty()) return std::nullopt;
  // Arrays of matrices are indexed by constants.
  const auto& functions = like.module.functions;
  if (std::any_of(functions.begin(), functions.end(), DeclaresMatrices)) return std::nullopt;
  SharedKernel shared;
  LoweredKernel& kernel = shared.kernel;
  kernel.module = Clone(like.module);
  kernel.bindings = like.bindings;
  std::copy(like.workgroup_size, like.workgroup_size + 3, kernel.workgroup_size);
  kernel.workgroup_bytes = like.workgroup_bytes;
  kernel.uses_subgroups = like.uses_subgroups;
  kernel.uses_f16 = like.uses_f16;
  kernel.uses_packed_dot = like.uses_packed_dot;
  kernel.uses_barriers = like.uses_barriers;
  Module& module = kernel.module;
  ModuleNames taken(module);
  std::vector<std::vector<int64_t>> columns;  // of each param the number of each kernel
  std::map<std::pair<Scalar, std::vector<int64_t>>, std::string> names;
  size_t position = 0;
  VisitNumbers(module, options, [&](ExprPtr& e) {
    std::vector<int64_t> column;
    bool differs = false;
    for (const auto* of_kernel : numbers) {
      column.push_back((*of_kernel)[position]);
      differs |= column.back() != column.front();
    }
    ++position;
    if (!differs) return;
    // The same numbers in two places are one param.
    std::string& name = names[{e->type.scalar, column}];
    if (name.empty()) {
      name = taken.Global(StrCat("number_", columns.size()));
      columns.push_back(std::move(column));
      module.params.push_back({name, e->type, {}});
    }
    e = build::Name(name, e->type, Symbol::kParam);
  });
  if (columns.size() > options.max_params) return std::nullopt;
  for (size_t p = 0; p < columns.size(); ++p) {
    kernel.params.push_back({module.params[p].name, module.params[p].type, uint32_t(4 * p)});
  }
  kernel.params_bytes = uint32_t((columns.size() * 4 + 15) / 16 * 16);
  for (size_t k = 0; k < numbers.size(); ++k) {
    auto& bytes = shared.params.emplace_back(kernel.params_bytes);
    for (size_t p = 0; p < columns.size(); ++p) {
      const uint32_t word = uint32_t(columns[p][k]);
      std::memcpy(bytes.data() + 4 * p, &word, sizeof word);
    }
  }
  Simplify(module);
  return shared;
}

}  // namespace leeway::shader
