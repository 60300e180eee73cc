#include "shader/quantized.h"

#include <algorithm>
#include <array>

#include "base/result.h"
#include "base/strings.h"
#include "shader/build_tree.h"
#include "shader/lexer.h"

namespace leeway::shader {
namespace {

// What a kernel calls when it reads the quantized tensor `$`. Coordinates are checked where the pieces are loaded. Pairs of
// factor and minimum lie side by side.
constexpr std::string_view kText = R"(
fn $_block(row : u32, block : u32) -> vec4u { return $_quants.load4(row, block); }
fn $_word(row : u32, word : u32) -> u32 { return $_quants.load(row, word); }
fn $_scale(row : u32, group : u32) -> f32 {
  if $.has_minimum { return $_factors.load(row, 2u * group); } else { return $_factors.load(row, group); }
}
fn $_minimum(row : u32, group : u32) -> f32 {
  if $.has_minimum { return $_factors.load(row, 2u * group + 1u); } else { return 0.0; }
}
fn $_codes4(row : u32, slice : u32) -> vec4i {
  if $.bits == 4u {
    let word = $_quants.load(row, slice / 8u * 4u + slice % 4u);
    let high = slice / 4u % 2u * 4u;
    return vec4i((vec4u(word) >> (vec4u(0u, 8u, 16u, 24u) + vec4u(high))) & vec4u(15u)) - vec4i(i32($.offset));
  } else {
    return unpack4xI8($_quants.load(row, slice));
  }
}
fn $_load4(row : u32, slice : u32) -> vec4f {
  let group = slice / ($.group / 4u);
  let scaled = vec4f($_codes4(row, slice)) * $_scale(row, group);
  if $.has_minimum { return scaled + $_minimum(row, group); } else { return scaled; }
}
fn $_load(row : u32, element : u32) -> f32 {
  let slice = $_load4(row, element / 4u);
  return slice[element % 4u];
}
fn $_is_inside(row : u32, element : u32) -> bool { return row < $.ROWS && element < $.ELEMENTS; }
fn $_load_or_zero(row : u32, element : u32) -> f32 {
  if row < $.ROWS && element < $.ELEMENTS { return $_load(row, element); }
  return 0.0;
}
fn $_load4_or_zero(row : u32, slice : u32) -> vec4f {
  if row < $.ROWS && slice < $.ELEMENTS / 4u { return $_load4(row, slice); }
  return vec4f(0.0);
}
)";

constexpr std::string_view kOwn[] = {"block", "word", "scale", "minimum", "codes4"};
constexpr std::string_view kCommon[] = {"load", "load4", "load_or_zero", "load4_or_zero", "is_inside"};
constexpr std::string_view kFacts[] = {"bits", "group", "block_elements", "offset", "has_minimum"};

std::string Replaced(std::string_view text, const std::string& tensor, const TensorDecl& decl) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '$') {
      out += tensor;
    } else if (text.substr(i, 4) == "ROWS") {
      out += decl.axes[0];
      i += 3;
    } else if (text.substr(i, 8) == "ELEMENTS") {
      out += decl.axes[1];
      i += 7;
    } else {
      out += text[i];
    }
  }
  return out;
}

void SetLocations(Function& function, Location at) {
  function.at = at;
  build::VisitExprs(function, [at](ExprPtr& e) { e->at = at; });
  for (StmtPtr& s : function.body) {
    build::VisitStatements(*s, [at](Stmt& stmt) { stmt.at = at; });
  }
}

}  // namespace

bool IsQuantized(const VirtualTensor& tensor) { return tensor.placement.format.has_value(); }

bool AnyQuantized(const std::map<std::string, VirtualTensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const auto& named) { return IsQuantized(named.second); });
}

bool IsQuantizedMethod(std::string_view method) { return std::ranges::find(kOwn, method) != std::end(kOwn); }

std::string QuantizedFunction(const std::string& tensor, std::string_view method) {
  if (!IsQuantizedMethod(method) && std::ranges::find(kCommon, method) == std::end(kCommon)) return {};
  return StrCat(tensor, "_", method);
}

bool IsBoolFact(std::string_view name) { return name == "has_minimum"; }

int QuantizedFact(const VirtualTensor& tensor, std::string_view name) {
  if (std::ranges::find(kFacts, name) == std::end(kFacts)) return -1;
  if (!tensor.placement.format) return 0;
  const BlockFormat& format = *tensor.placement.format;
  if (name == "bits") return format.bits;
  if (name == "group") return format.group;
  if (name == "block_elements") return format.block_elements();
  if (name == "offset") return format.offset();
  return format.has_minimum ? 1 : 0;
}

Result<Expanded> ExpandQuantized(const Module& module, const std::map<std::string, VirtualTensor>& tensors) {
  Expanded out{Clone(module), tensors};
  for (const auto& [name, tensor] : tensors) {
    if (!IsQuantized(tensor)) continue;
    const auto decl = std::ranges::find(module.tensors, name, &TensorDecl::name);
    if (decl == module.tensors.end()) continue;  // the checker says so
    auto refuse = [&, &name = name, at = decl->at](const std::string& what) {
      return KernelError(module.name, at, StrCat("the tensor ", name, " is quantized, so ", what));
    };
    if (decl->access != Access::kRead) return refuse("it is declared as read");
    if (decl->value != Scalar::kF32) return refuse("its elements are f32 in the kernel");
    if (decl->axes.size() != 2 || tensor.shape != tensor.placement.shape || !tensor.map.is_identity() || tensor.map.inside) {
      return Error{Code::kUnsupported, refuse("it is read as the matrix that it is, without a view").message};
    }
    if (!tensor.value_maps.empty()) return Error{Code::kUnsupported, refuse("no operator is fused into its loads").message};
    auto add = [&](const std::string& piece_name, const Placement& placement, const char* axis, Scalar value) {
      TensorDecl piece = *decl;
      piece.name = piece_name;
      piece.axes[1] = axis;
      if (piece.axes[0] == axis) piece.axes[0] = "row";
      piece.value = value;
      out.module.tensors.push_back(std::move(piece));
      VirtualTensor placed;
      placed.shape = placement.shape;
      placed.placement = placement;
      out.tensors[piece_name] = std::move(placed);
    };
    add(QuantsName(name), QuantsOf(tensor.placement), "word", Scalar::kU32);
    add(FactorsName(name), FactorsOf(tensor.placement), "factor", Scalar::kF32);
    ASSIGN_OR_RETURN(Module functions, Parse(Replaced(kText, name, *decl), module.name));
    for (Function& f : functions.functions) {
      // What goes wrong in there is told of the declaration.
      SetLocations(f, decl->at);
      out.module.functions.push_back(std::move(f));
    }
  }
  return out;
}

std::map<std::string, VirtualTensor> WithoutQuantized(std::map<std::string, VirtualTensor> tensors) {
  std::erase_if(tensors, [](const auto& named) { return IsQuantized(named.second); });
  return tensors;
}

}  // namespace leeway::shader
