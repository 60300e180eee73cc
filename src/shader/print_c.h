// The three languages that look like C: declarations with the type first, no continuing block, bools that are no vectors, and
// (but for GLSL) pointers with address spaces, arrays that are no values, and resources that are arguments of the kernel.
#pragma once

#include "shader/printer.h"

namespace leeway::shader {

class CPrinter : public Printer {
 protected:
  using Printer::Printer;

  // ---- what a language says
  virtual std::string SpaceWord(std::string_view space) const = 0;  // "function" -> "thread "; with its blank
  virtual std::string_view const_word() const { return "const "; }  // of a local that is never written
  virtual std::string_view constant_word() const = 0;               // of a table in the module: "__constant "
  virtual std::string_view zero_braces() const = 0;                 // what makes an array or struct zero: "{0}"
  virtual std::string ZeroText(const Type& type) = 0;
  virtual void PutStructValue(const Expr& expr) = 0;
  virtual bool resources_are_arguments() const { return true; }
  virtual bool arrays_are_values() const { return false; }
  // The declarations and values with which a function gets what the kernel's arguments and variables are.
  virtual std::string PassedDeclaration(const GlobalName& global) = 0;
  virtual void PutShiftAmount(const Expr& amount) { PutOperand(amount, Level::kShift, true); }

  // "float4 name[8]", "thread float* name", "uint name"
  std::string Declarator(const Type& type, std::string_view name);
  std::string PointerDeclarator(std::string_view space, const Type& pointee, std::string_view name, bool is_const = false);
  std::string ParameterList(const Function& function, std::string_view first = {});
  void PutSignature(const Function& function);
  void PutArrayCopy(const Type& type, const std::string& target, const std::string& source);
  void PutBraces(const Expr& construct);
  // One scalar for all lanes where the other operand is a vector.
  void PutSplat(const Expr& expr, const Type& as);
  void PutVariables();  // workgroup and private variables, at the beginning of the kernel
  void PutConstants();  // the constants of the module that are used
  void PutStructs(std::string_view before, bool is_typedef);
  std::string PrintToString(const Expr& expr);
  // "storage", "workgroup", "constant" or "" (a variable of a function): where a place lies.
  std::string_view SpaceOfPlace(const Expr& place, bool* is_const) const;
  // A lane of a vector in memory as an element of an array of scalars: `((device const float*)x)[n]` for x[n >> 2u][n & 3u],
  // `((device const float*)&x[a])[b]` for other indices unless `whole_only`. False, and nothing printed, where it is neither.
  bool PutMemoryLane(const Expr& expr, bool whole_only);
  virtual std::string MemoryScalar(const Type& vector) = 0;  // the type of a lane as stored
  bool IsArray(const Type& type) const { return Resolve(type).kind == Type::Kind::kArray; }

  void PutDeclaration(const Stmt& stmt) override;
  void PutAssign(const Stmt& stmt) override;
  void PutDiscard(const Expr& value) override;
  void PutLoop(const Stmt& stmt) override;
  void PutSwitch(const Stmt& stmt) override;
  void PutFunction(const Function& function) override;
  Level PutGlobal(const GlobalName& global) override;
  Level PutAddressOf(const Expr& operand) override;
  Level PutDereference(const Expr& pointer) override;
  Level PutBinary(const Expr& expr) override;
  Level PutUserCall(const Expr& expr, const Function& callee) override;

  bool in_entry_ = false;
};

}  // namespace leeway::shader
