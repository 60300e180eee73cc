#include "shader/build_tree.h"

#include "shader/builtins.h"

namespace leeway::shader::build {

ExprPtr Call(std::string name, std::vector<ExprPtr> args, Type type) {
  ExprPtr e = WithArgs(ExprKind::kCall, std::move(type), std::move(args));
  if (const BuiltinInfo* info = FindBuiltin(name)) e->builtin = uint16_t(info->id);
  e->name = std::move(name);
  return e;
}

}  // namespace leeway::shader::build
