#include "shader/splice.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/result.h"
#include "base/strings.h"
#include "shader/build_tree.h"
#include "shader/index_code.h"
#include "shader/value_map.h"
#include "shader/value_range.h"
#include "tensor/address.h"

namespace leeway::shader {
namespace {

using namespace build;

const Type kU32Type = Type::Of(Scalar::kU32);
const Type kBoolType = Type::Of(Scalar::kBool);

// What the elements of a binding are, and so how a slice or an element is reached.
enum class Form : uint8_t {
  kVectors,    // array<vec4<T>>, a slice each
  kScalars,    // array<T>
  kHalfPairs,  // array<vec2<u32>>: a slice of f16, for targets without that type
  kHalfWords,  // array<u32>: two f16 each
  kByteWords,  // array<u32>: four i8 or u8 each
  kTexels,     // texture_2d, 2d_array, 3d
  kImage,      // an image buffer: texels by slice
};

// A placed tensor and its bindings.
struct Placed {
  std::string id;    // "x", "x#1"
  std::string name;  // of the binding, or the beginning of the parts' names
  const VirtualTensor* tensor = nullptr;
  const TensorDecl* decl = nullptr;  // null: an operand
  Access access = Access::kRead;
  Form form = Form::kVectors;
  Scalar stored = Scalar::kF32;   // element type in the storage
  Scalar natural = Scalar::kF32;  // what a fetch gives: f16 widened, packed bytes as i32 or u32
  Type resource;
  std::vector<std::string> parts;
  std::string fetch_slice, fetch_element, put_slice, put_element;  // functions that choose the part, once they exist
  bool used = false;
};

bool IsPackedByte(DType dtype) { return dtype == DType::kI8 || dtype == DType::kU8; }

Scalar NaturalScalar(DType dtype) {
  if (IsFloat(dtype)) return Scalar::kF32;
  return IsSignedInt(dtype) ? Scalar::kI32 : Scalar::kU32;
}
// In flight through value maps: a bool is a u32 of 0 or 1.
Scalar InFlight(Scalar value) { return value == Scalar::kBool ? Scalar::kU32 : value; }

Type Sized(Scalar scalar, int rows) { return rows == 1 ? Type::Of(scalar) : Type::Vector(scalar, rows); }

ExprPtr Convert(ExprPtr value, Scalar to) {
  Scalar from = value->type.scalar;
  if (from == to) return value;
  int rows = value->type.IsVector() ? value->type.rows : 1;
  bool to_integer = to == Scalar::kI32 || to == Scalar::kU32;
  if (to_integer && (from == Scalar::kF32 || from == Scalar::kF16)) {
    Type type = value->type;
    value = Call("round", List(std::move(value)), type);  // storing rounds to nearest; the conversion alone would cut off
  }
  return ConstructOf(Sized(to, rows), std::move(value));
}

ExprPtr Splat(ExprPtr scalar, int rows) {
  if (rows == 1) return scalar;
  Type type = Type::Vector(scalar->type.scalar, rows);
  return ConstructOf(type, std::move(scalar));
}

const char* const kLanes[] = {"x", "y", "z", "w"};

// How the four elements of a slice, as the kernel sees it, lie in the placed tensor.
struct SlicePlan {
  enum class Path : uint8_t {
    kVector,  // together, as one slice
    kSplat,   // all four are the same element
    kLanes,   // each for itself
  };
  Path path = Path::kLanes;
  // Per lane (kVector, kSplat: only the first): coordinates of the placed tensor over the kernel's axes, the last of which
  // is the slice. kVector: the last coordinate is a slice too.
  std::array<std::vector<IndexExpr>, 4> coords;
  std::array<std::optional<IndexExpr>, 4> inside;
  std::vector<int64_t> extents;  // of the axes, the last one in slices
  int last_extent = 1;           // in elements
  // Stores on kVector: the last slice of the kernel is not the last of the placed tensor, so its lanes beyond the edge belong
  // to other elements.
  bool tail_by_lanes = false;

  int tail() const { return last_extent % 4; }  // lanes of the last slice that are inside; 0: all
  int64_t full_slices() const { return last_extent / 4; }
  // Lane `lane` is inside in every slice.
  bool AlwaysInside(int lane) const { return tail() == 0 || lane < tail(); }
  bool NeverInside(int lane) const { return last_extent <= lane; }
};

std::vector<IndexExpr> MappedCoords(const VirtualTensor& tensor, std::span<const IndexExpr> axes) {
  std::vector<IndexExpr> coords;
  if (tensor.placement.shape.rank() == 0) return coords;
  if (tensor.map.is_identity()) return {axes.begin(), axes.end()};
  for (const IndexExpr& e : tensor.map.coords) coords.push_back(e.Substitute(axes));
  return coords;
}

SlicePlan PlanSlice(const VirtualTensor& tensor) {
  SlicePlan plan;
  int rank = tensor.shape.rank();
  int last = int(tensor.shape.at(-1));
  plan.last_extent = last;
  for (int i = 0; i < rank; ++i) plan.extents.push_back(tensor.shape[i]);
  plan.extents.back() = (last + 3) / 4;

  // The last axis as slice and lane, the lane being an axis of its own.
  std::vector<int64_t> with_lane = plan.extents;
  with_lane.push_back(std::min(4, last));
  std::vector<IndexExpr> axes;
  for (int i = 0; i < rank; ++i) axes.push_back(IndexExpr::Axis(i));
  IndexExpr slice = IndexExpr::Axis(rank - 1), lane = IndexExpr::Axis(rank);
  axes.back() = slice * IndexExpr::Const(4) + lane;
  std::vector<IndexExpr> coords = MappedCoords(tensor, axes);
  for (IndexExpr& e : coords) e = e.SimplifiedFor(with_lane);
  std::optional<IndexExpr> inside;
  if (tensor.map.inside) inside = tensor.map.inside->Substitute(axes).SimplifiedFor(with_lane);
  if (inside && inside->IsConst() && inside->value() != 0) inside.reset();

  bool same_inside = !inside || !inside->Uses(rank);
  bool same_element = std::none_of(coords.begin(), coords.end(), [&](const IndexExpr& e) { return e.Uses(rank); });
  if (same_inside && same_element && last > 1) {
    plan.path = SlicePlan::Path::kSplat;
    plan.coords[0] = coords;
    plan.inside[0] = inside;
    return plan;
  }
  if (same_inside && !coords.empty() && HasAlignedSlices(tensor.placement)) {
    bool others_same = std::none_of(coords.begin(), coords.end() - 1, [&](const IndexExpr& e) { return e.Uses(rank); });
    // An axis of one element has no lane to follow; its slice lies together anyway.
    IndexExpr first = last == 1 ? coords.back() : coords.back() - lane;
    first = first.SimplifiedFor(with_lane);
    if (others_same && !first.Uses(rank) && Mod(first, 4).SimplifiedFor(with_lane).IsConst(0)) {
      plan.path = SlicePlan::Path::kVector;
      plan.coords[0] = coords;
      plan.coords[0].back() = Div(first, 4).SimplifiedFor(plan.extents);
      plan.inside[0] = inside;
      if (plan.tail() != 0) {
        std::vector<IndexExpr> at_end = axes;
        at_end.back() = IndexExpr::Const(last - 1);
        IndexExpr end = MappedCoords(tensor, at_end).back();
        plan.tail_by_lanes = end.Bounds(plan.extents).low < tensor.placement.shape.at(-1) - 1;
      }
      return plan;
    }
  }
  for (int i = 0; i < 4; ++i) {
    // A lane beyond the edge stays at the last element: no load is outside, and masking follows.
    IndexExpr element = slice * IndexExpr::Const(4) + IndexExpr::Const(i);
    axes.back() = plan.AlwaysInside(i) ? element : Min(element, IndexExpr::Const(last - 1));
    plan.coords[size_t(i)] = MappedCoords(tensor, axes);
    for (IndexExpr& e : plan.coords[size_t(i)]) e = e.SimplifiedFor(plan.extents);
    if (tensor.map.inside) { plan.inside[size_t(i)] = tensor.map.inside->Substitute(axes).SimplifiedFor(plan.extents); }
  }
  return plan;
}

class Splicer {
 public:
  Splicer(const BoundKernel& kernel, const Target& target, LoweredKernel& out)
      : kernel_(kernel), target_(target), out_(out), module_(out.module), names_(out.module) {}

  Status Run() {
    FindUses();
    for (const TensorDecl& decl : kernel_.module.tensors) {
      auto found = kernel_.tensors.find(decl.name);
      if (found == kernel_.tensors.end()) {
        return Fail(Code::kInvalidArgument, decl.name, "it has no virtual tensor in the specialization");
      }
      RETURN_IF_ERROR(AddPlaced(found->second, decl.name, decl.name, &decl, decl.access));
    }
    // The tensors' names are free now: bindings take them.
    module_.tensors.clear();
    proven_ = ProvenCoordinates(module_, kernel_);
    std::vector<Function> kernel_functions = std::move(module_.functions);
    module_.functions.clear();
    for (Function& f : kernel_functions) {
      VisitExprs(f, [&](ExprPtr& e) {
        if (e->kind == ExprKind::kTensorCall) ReplaceAccessor(e);
      });
      if (failure_) return *failure_;
    }
    // Value maps may have brought functions of the prelude that the kernel uses too.
    std::set<std::string> present;
    for (const Function& f : module_.functions) present.insert(f.name);
    for (Function& f : kernel_functions) {
      if (!present.count(f.name)) module_.functions.push_back(std::move(f));
    }
    for (Function& f : module_.functions) names_.RenameLocals(f);
    return AddBindings();
  }

 private:
  // ---- Placed tensors ----

  struct Uses {
    bool store = false, store4 = false, load4_or_zero = false;
  };

  void FindUses() {
    for (Function& f : module_.functions) {
      VisitExprs(f, [&](ExprPtr& e) {
        if (e->kind != ExprKind::kTensorCall) return;
        if (e->method == "store") uses_[e->name].store = true;
        if (e->method == "store4") uses_[e->name].store4 = true;
      });
    }
  }

  Error Fail(Code code, const std::string& tensor, const std::string& what) const {
    return Error{code, StrCat(kernel_.module.name, ".kernel: tensor ", tensor, " cannot be lowered to ",
                              LanguageName(target_.language), ": ", what, ".")};
  }

  Status AddPlaced(const VirtualTensor& tensor, const std::string& id, const std::string& name, const TensorDecl* decl,
                   Access access) {
    if (decl && tensor.shape.rank() != int(decl->axes.size())) {
      return Fail(Code::kInvalidArgument, id,
                  StrCat("it is declared with ", decl->axes.size(), " axes and bound to ", tensor.shape.ToString()));
    }
    int coords = int(tensor.map.coords.size()), placed_rank = tensor.placement.shape.rank();
    if (coords != placed_rank && !(coords == 0 && (placed_rank == tensor.shape.rank() || placed_rank == 0))) {
      return Fail(Code::kInvalidArgument, id,
                  StrCat("its map gives ", coords, " coordinates for the placed shape ", tensor.placement.shape.ToString()));
    }
    Placed placed;
    placed.id = id;
    placed.tensor = &tensor;
    placed.decl = decl;
    placed.access = access;
    placed.natural = NaturalScalar(tensor.placement.dtype);
    RETURN_IF_ERROR(ChooseForm(placed));
    // The names that the declared tensors free are taken by their own bindings; all others are new.
    int parts = tensor.placement.part_count();
    placed.name = name;
    if (parts == 1) {
      placed.parts.push_back(decl ? name : names_.Global(name));
    } else {
      for (int i = 0; i < parts; ++i) placed.parts.push_back(names_.Global(StrCat(name, "_part_", i)));
    }
    order_.push_back(id);
    placed_.emplace(id, std::move(placed));
    int number = 0;
    for (const ValueMap& map : tensor.value_maps) {
      for (const VirtualTensor& operand : map.operands) {
        RETURN_IF_ERROR(AddPlaced(operand, StrCat(id, "#", number), StrCat(name, "_operand_", number), nullptr, Access::kRead));
        ++number;
      }
    }
    return {};
  }

  Status ChooseForm(Placed& placed) {
    const VirtualTensor& tensor = *placed.tensor;
    const Placement& p = tensor.placement;
    DType dtype = p.dtype;
    bool is_read = placed.access == Access::kRead, is_half = dtype == DType::kF16;
    if (StorageDType(dtype) != dtype) {
      return Fail(Code::kInvalidArgument, placed.id, StrCat("storages do not hold ", DTypeName(dtype)));
    }
    const Uses& uses = uses_[placed.id];
    // Stores of single elements: the kernel's own, or because slices do not lie together.
    bool scalar_stores = false;
    if (!is_read) {
      scalar_stores = uses.store;
      if (uses.store4 && tensor.shape.rank() > 0 && tensor.shape.element_count() > 0) {
        SlicePlan plan = PlanSlice(tensor);
        scalar_stores = scalar_stores || plan.path != SlicePlan::Path::kVector || plan.tail_by_lanes;
      }
      if (IsPackedByte(dtype))
        return Fail(Code::kUnsupported, placed.id, StrCat("tensors of packed ", DTypeName(dtype), " are read-only"));
    }
    placed.stored = is_half && target_.f16 ? Scalar::kF16 : placed.natural;
    if (IsTexture(p.storage)) {
      std::string where = StrCat("placed in a ", StorageName(p.storage), " it ");
      if (placed.access == Access::kReadWrite) {
        return Fail(Code::kUnsupported, placed.id, where + "can be read or written, not both (read_write)");
      }
      if (scalar_stores) {
        return Fail(Code::kUnsupported, placed.id, where + "can only be stored by whole slices (store4), not by element");
      }
      if (!is_read && IsFloat(dtype) && !target_.float_textures_write) {
        return Fail(Code::kUnsupported, placed.id, where + "cannot be written on this target");
      }
      placed.form = Form::kTexels;
      placed.resource.kind = Type::Kind::kTexture;
      placed.resource.scalar = placed.natural;
      placed.resource.texture_dim = p.storage == Storage::kTexture2D   ? "2d"
                                    : p.storage == Storage::kTexture3D ? "3d"
                                                                       : "2d_array";
      if (!is_read) {
        placed.resource.texel_format = is_half                ? "rgba16float"
                                       : dtype == DType::kF32 ? "rgba32float"
                                       : dtype == DType::kI32 ? "rgba32sint"
                                                              : "rgba32uint";
      }
      return {};
    }
    if (p.storage == Storage::kImageBuffer && target_.image_buffer && is_read && !IsPackedByte(dtype)) {
      placed.form = Form::kImage;
      placed.resource.kind = Type::Kind::kTexture;
      placed.resource.scalar = placed.natural;
      placed.resource.texture_dim = "buffer";
      return {};
    }
    bool aligned = HasAlignedSlices(p);
    if (IsPackedByte(dtype)) {
      placed.form = Form::kByteWords;
      placed.resource = Type::Array(kU32Type, 0);
    } else if (is_half && !target_.f16) {
      if (scalar_stores) {
        return Fail(
            Code::kUnsupported, placed.id,
            "it is stored by element as f16, which is half a word here; the target has no f16, so f32 storage is needed");
      }
      placed.form = aligned ? Form::kHalfPairs : Form::kHalfWords;
      placed.resource = Type::Array(aligned ? Type::Vector(Scalar::kU32, 2) : kU32Type, 0);
    } else if (aligned && !scalar_stores) {
      placed.form = Form::kVectors;
      placed.resource = Type::Array(Vec4(placed.stored), 0);
    } else {
      // Writing one component of a vector may touch the whole vector, so element stores need elements.
      placed.form = Form::kScalars;
      placed.resource = Type::Array(Type::Of(placed.stored), 0);
    }
    return {};
  }

  ExprPtr Resource(const Placed& placed, int part) const {
    return Name(placed.parts[size_t(part)], placed.resource, Symbol::kModuleVar);
  }

  // ---- Fetching and putting: one part, index as an expression that is cheap to repeat (a name or literal) ----

  ExprPtr Widened(const Placed& placed, ExprPtr value) const { return Convert(std::move(value), placed.natural); }

  ExprPtr FetchSliceOfPart(FunctionWriter& w, const Placed& placed, int part, const Expr& slice) {
    auto at = [&](ExprPtr index) { return Index(Resource(placed, part), std::move(index), *placed.resource.element); };
    Type vec2f = Type::Vector(Scalar::kF32, 2), vec4 = Vec4(placed.natural);
    switch (placed.form) {
      case Form::kVectors: return Widened(placed, at(Clone(slice)));
      case Form::kScalars: {
        std::string first = w.Let("first", Binary("*", Clone(slice), U32(4), kU32Type));
        std::vector<ExprPtr> lanes;
        lanes.push_back(at(w.Ref(first)));
        for (int i = 1; i < 4; ++i) lanes.push_back(at(Binary("+", w.Ref(first), U32(i), kU32Type)));
        return Widened(placed, Construct(Vec4(placed.stored), std::move(lanes)));
      }
      case Form::kHalfPairs: {
        std::string pair = w.Let("pair", at(Clone(slice)));
        auto half = [&](const char* member) {
          return Call("unpack2x16float", List(Member(w.Ref(pair), member, kU32Type)), vec2f);
        };
        return ConstructOf(vec4, half("x"), half("y"));
      }
      case Form::kByteWords: {
        Type vec4u = Vec4(Scalar::kU32);
        auto four = [&](int a, int b, int c, int d) { return ConstructOf(vec4u, U32(a), U32(b), U32(c), U32(d)); };
        ExprPtr word = ConstructOf(vec4u, at(Clone(slice)));
        if (placed.natural == Scalar::kU32) {
          return Binary("&", Binary(">>", std::move(word), four(0, 8, 16, 24), vec4u), Splat(U32(255), 4), vec4u);
        }
        // Each byte to the top, then down again with its sign.
        ExprPtr top = ConstructOf(vec4, Binary("<<", std::move(word), four(24, 16, 8, 0), vec4u));
        return Binary(">>", std::move(top), Splat(U32(24), 4), vec4);
      }
      case Form::kImage:
        return Call("textureLoad", List(Resource(placed, part), ConstructOf(Type::Of(Scalar::kI32), Clone(slice)), I32(0)),
                    vec4);
      case Form::kHalfWords:
      case Form::kTexels: break;
    }
    // Slices of kHalfWords never lie together; texels have coordinates.
    CheckFailed("the form has slices by index", __FILE__, __LINE__);
  }

  // `element` is the element index; `slice` and `lane` are its quotient and remainder by 4, null: to be computed.
  ExprPtr FetchElementOfPart(FunctionWriter& w, const Placed& placed, int part, const Expr& element, const Expr* slice,
                             const Expr* lane) {
    auto at = [&](ExprPtr index) { return Index(Resource(placed, part), std::move(index), *placed.resource.element); };
    auto slice_of = [&] { return slice ? Clone(*slice) : Binary(">>", Clone(element), U32(2), kU32Type); };
    auto lane_of = [&] { return lane ? Clone(*lane) : Binary("&", Clone(element), U32(3), kU32Type); };
    Type vec2f = Type::Vector(Scalar::kF32, 2), f32 = Type::Of(Scalar::kF32);
    switch (placed.form) {
      case Form::kVectors: return Widened(placed, Index(at(slice_of()), lane_of(), Type::Of(placed.stored)));
      case Form::kScalars: return Widened(placed, at(Clone(element)));
      case Form::kHalfPairs:
      case Form::kHalfWords: {
        ExprPtr word;
        if (placed.form == Form::kHalfWords) {
          word = at(Binary(">>", Clone(element), U32(1), kU32Type));
        } else {
          word = Index(at(slice_of()), Binary(">>", lane_of(), U32(1), kU32Type), kU32Type);
        }
        std::string halves = w.Let("halves", Call("unpack2x16float", List(std::move(word)), vec2f));
        ExprPtr odd = Binary("==", Binary("&", Clone(element), U32(1), kU32Type), U32(1), kBoolType);
        return Call("select", List(Member(w.Ref(halves), "x", f32), Member(w.Ref(halves), "y", f32), std::move(odd)), f32);
      }
      case Form::kByteWords: {
        ExprPtr shift = Binary("*", lane_of(), U32(8), kU32Type);
        if (placed.natural == Scalar::kU32) {
          return Binary("&", Binary(">>", at(slice_of()), std::move(shift), kU32Type), U32(255), kU32Type);
        }
        Type i32 = Type::Of(Scalar::kI32);
        ExprPtr top = Binary("<<", at(slice_of()), Binary("-", U32(24), std::move(shift), kU32Type), kU32Type);
        return Binary(">>", ConstructOf(i32, std::move(top)), U32(24), i32);
      }
      case Form::kImage: {
        std::string texel = w.Let("texel", FetchSliceOfPart(w, placed, part, *slice_of()));
        return PickLane(w, texel, *lane_of());
      }
      case Form::kTexels: break;
    }
    CheckFailed("the form has elements by index", __FILE__, __LINE__);
  }

  // Lane by number of a vector in a let. Vectors that are values cannot be indexed everywhere.
  ExprPtr PickLane(FunctionWriter& w, const std::string& vector, const Expr& lane) {
    Scalar scalar = w.Ref(vector)->type.scalar;
    Type type = Type::Of(scalar);
    auto member = [&](int i) { return Member(w.Ref(vector), kLanes[i], type); };
    if (lane.kind == ExprKind::kLiteral) return member(int(lane.literal.i));
    std::string number = w.Let("lane", Clone(lane));
    auto is = [&](const char* op, int i) { return Binary(op, w.Ref(number), U32(i), kBoolType); };
    ExprPtr low = Call("select", List(member(0), member(1), is("==", 1)), type);
    ExprPtr high = Call("select", List(member(2), member(3), is("==", 3)), type);
    return Call("select", List(std::move(low), std::move(high), is(">", 1)), type);
  }

  void PutSliceOfPart(FunctionWriter& w, const Placed& placed, int part, const Expr& slice, const std::string& value) {
    auto at = [&](ExprPtr index) { return Index(Resource(placed, part), std::move(index), *placed.resource.element); };
    Type vec2f = Type::Vector(Scalar::kF32, 2);
    switch (placed.form) {
      case Form::kVectors: w.Add(Assign(at(Clone(slice)), Convert(w.Ref(value), placed.stored))); return;
      case Form::kScalars: {
        std::string first = w.Let("first", Binary("*", Clone(slice), U32(4), kU32Type));
        for (int i = 0; i < 4; ++i) {
          ExprPtr index = i == 0 ? w.Ref(first) : Binary("+", w.Ref(first), U32(i), kU32Type);
          w.Add(
              Assign(at(std::move(index)), Convert(Member(w.Ref(value), kLanes[i], Type::Of(placed.natural)), placed.stored)));
        }
        return;
      }
      case Form::kHalfPairs: {
        auto half = [&](const char* lanes) {
          return Call("pack2x16float", List(Member(w.Ref(value), lanes, vec2f)), kU32Type);
        };
        w.Add(Assign(at(Clone(slice)), ConstructOf(Type::Vector(Scalar::kU32, 2), half("xy"), half("zw"))));
        return;
      }
      case Form::kHalfWords:
      case Form::kByteWords:
      case Form::kTexels:
      case Form::kImage: break;
    }
    CheckFailed("ChooseForm gives the others to nothing that is written by slice in a buffer", __FILE__, __LINE__);
  }

  void PutElementOfPart(FunctionWriter& w, const Placed& placed, int part, const Expr& element, ExprPtr value) {
    CHECK(placed.form == Form::kScalars);
    w.Add(Assign(Index(Resource(placed, part), Clone(element), *placed.resource.element),
                 Convert(std::move(value), placed.stored)));
  }

  // ---- The same over all parts ----

  // A function that finds the part of `index` (a slice or an element) and does `access` there.
  template <class Access>
  std::string PartFunction(Placed& placed, const std::string& suffix, bool by_slice, const Type& result, const Type* value_type,
                           Access&& access) {
    std::string name = names_.Global(placed.name + suffix);
    FunctionWriter w(names_, name, result);
    std::string index = w.Parameter("index", kU32Type);
    std::string value = value_type ? w.Parameter("value", *value_type) : "";
    int64_t per_part = placed.tensor->placement.elements_per_part / (by_slice ? 4 : 1);
    int parts = int(placed.parts.size());
    for (int part = 0; part + 1 < parts; ++part) {
      std::vector<StmtPtr> block;
      w.Into(&block);
      std::string local = index;
      if (part > 0) local = w.Let("local", Binary("-", w.Ref(index), U32(part * per_part), kU32Type));
      access(w, part, *w.Ref(local), value);
      w.Into(nullptr);
      w.Add(If(Binary("<", w.Ref(index), U32((part + 1) * per_part), kBoolType), std::move(block)));
    }
    std::string local = w.Let("local", Binary("-", w.Ref(index), U32((parts - 1) * per_part), kU32Type));
    access(w, parts - 1, *w.Ref(local), value);
    module_.functions.push_back(w.Take());
    return name;
  }

  ExprPtr FetchSlice(FunctionWriter& w, Placed& placed, ExprPtr slice) {
    if (placed.parts.size() == 1) {
      std::string name = w.Let("slice_at", std::move(slice));
      return FetchSliceOfPart(w, placed, 0, *w.Ref(name));
    }
    Type vec4 = Vec4(placed.natural);
    if (placed.fetch_slice.empty()) {
      placed.fetch_slice = PartFunction(placed, "_fetch4", true, vec4, nullptr,
                                        [&](FunctionWriter& f, int part, const Expr& local, const std::string&) {
                                          f.Add(Return(FetchSliceOfPart(f, placed, part, local)));
                                        });
    }
    return Call(placed.fetch_slice, List(std::move(slice)), vec4);
  }

  ExprPtr FetchElement(FunctionWriter& w, Placed& placed, ExprPtr element, ExprPtr slice, ExprPtr lane) {
    if (placed.parts.size() == 1) return FetchElementOfPart(w, placed, 0, *element, slice.get(), lane.get());
    Type type = Type::Of(placed.natural);
    if (placed.fetch_element.empty()) {
      placed.fetch_element = PartFunction(placed, "_fetch", false, type, nullptr,
                                          [&](FunctionWriter& f, int part, const Expr& local, const std::string&) {
                                            f.Add(Return(FetchElementOfPart(f, placed, part, local, nullptr, nullptr)));
                                          });
    }
    return Call(placed.fetch_element, List(std::move(element)), type);
  }

  void PutSlice(FunctionWriter& w, Placed& placed, ExprPtr slice, const std::string& value) {
    if (placed.parts.size() == 1) {
      std::string name = w.Let("slice_at", std::move(slice));
      return PutSliceOfPart(w, placed, 0, *w.Ref(name), value);
    }
    Type vec4 = Vec4(placed.natural);
    if (placed.put_slice.empty()) {
      placed.put_slice = PartFunction(placed, "_put4", true, Type::Void(), &vec4,
                                      [&](FunctionWriter& f, int part, const Expr& local, const std::string& v) {
                                        PutSliceOfPart(f, placed, part, local, v);
                                        if (part + 1 < int(placed.parts.size())) f.Add(Return(nullptr));
                                      });
    }
    w.Add(CallStatement(Call(placed.put_slice, List(std::move(slice), w.Ref(value)), Type::Void())));
  }

  void PutElement(FunctionWriter& w, Placed& placed, ExprPtr element, ExprPtr value) {
    if (placed.parts.size() == 1) {
      std::string name = w.Let("at", std::move(element));
      return PutElementOfPart(w, placed, 0, *w.Ref(name), std::move(value));
    }
    Type type = Type::Of(placed.natural);
    if (placed.put_element.empty()) {
      placed.put_element = PartFunction(placed, "_put", false, Type::Void(), &type,
                                        [&](FunctionWriter& f, int part, const Expr& local, const std::string& v) {
                                          PutElementOfPart(f, placed, part, local, f.Ref(v));
                                          if (part + 1 < int(placed.parts.size())) f.Add(Return(nullptr));
                                        });
    }
    w.Add(CallStatement(Call(placed.put_element, List(std::move(element), std::move(value)), Type::Void())));
  }

  // ---- Texels ----

  std::vector<ExprPtr> TexelArguments(const Placed& placed, std::vector<ExprPtr> at) {
    Type i32 = Type::Of(Scalar::kI32);
    for (ExprPtr& e : at) e = ConstructOf(i32, std::move(e));
    std::vector<ExprPtr> args = List(Resource(placed, 0));
    const std::string& dim = placed.resource.texture_dim;
    if (dim == "3d") {
      args.push_back(ConstructOf(Type::Vector(Scalar::kI32, 3), std::move(at[0]), std::move(at[1]), std::move(at[2])));
      return args;
    }
    args.push_back(ConstructOf(Type::Vector(Scalar::kI32, 2), std::move(at[0]), std::move(at[1])));
    if (dim == "2d_array") args.push_back(std::move(at[2]));
    return args;
  }

  // ---- Loads ----

  // A load of the placed tensor behind `placed` at one place: index expressions and what they are in code.
  struct Site {
    std::vector<IndexExpr> texel;          // kTexels: the texel
    std::optional<IndexExpr> element;      // elements: the element index
    std::optional<IndexExpr> slice, lane;  // slices: the slice index; elements of texels, vectors: both
  };

  Site SliceSite(const Placed& placed, std::span<const IndexExpr> coords) const {
    const Placement& p = placed.tensor->placement;
    std::vector<IndexExpr> address = SliceAddress(p, coords);
    Site site;
    if (placed.form == Form::kTexels) {
      site.texel = address;
    } else if (p.layout == Layout::kLinear) {
      site.slice = LinearSlice(p, coords);
    } else {
      site.slice = address[0];
    }
    return site;
  }
  // A linear layout with aligned slices: the element address of the slice's first element, by 4.
  static IndexExpr LinearSlice(const Placement& p, std::span<const IndexExpr> coords) {
    if (coords.empty()) return {};
    std::vector<IndexExpr> first(coords.begin(), coords.end());
    first.back() = first.back() * IndexExpr::Const(4);
    return Div(ElementAddress(p, first), 4);
  }

  Site ElementSite(const Placed& placed, std::span<const IndexExpr> coords) const {
    const Placement& p = placed.tensor->placement;
    Site site;
    if (placed.form == Form::kTexels) {
      std::vector<IndexExpr> slice_coords(coords.begin(), coords.end());
      site.lane = coords.empty() ? IndexExpr() : Mod(coords.back(), 4);
      if (!slice_coords.empty()) slice_coords.back() = Div(coords.back(), 4);
      site.texel = SliceAddress(p, slice_coords);
      return site;
    }
    site.element = ElementAddress(p, coords);
    site.slice = Div(*site.element, 4);
    site.lane = Mod(*site.element, 4);
    return site;
  }

  // The expressions of a site that its fetch will need.
  void SimplifyAndCount(const Placed& placed, Site& site, IndexCode& code, std::span<const int64_t> extents) const {
    for (IndexExpr& e : site.texel) {
      e = e.SimplifiedFor(extents);
      code.Count(e);
    }
    for (auto* e : {&site.element, &site.slice, &site.lane}) {
      if (*e) **e = (*e)->SimplifiedFor(extents);
    }
    if (placed.parts.size() > 1 || placed.form == Form::kScalars || placed.form == Form::kHalfWords) {
      if (site.element) return code.Count(*site.element);
      if (site.slice) return code.Count(*site.slice);
    }
    if (site.slice) code.Count(*site.slice);
    if (site.lane) code.Count(*site.lane);
  }

  // Zero, a place that always exists, where `condition` (a let; empty: none) does not hold.
  static ExprPtr Guarded(FunctionWriter& w, ExprPtr index, const std::string& condition) {
    if (condition.empty() || index->kind == ExprKind::kLiteral) return index;
    return Call("select", List(U32(0), std::move(index), w.Ref(condition)), kU32Type);
  }

  // The value at a site in its natural type, four of it or one.
  ExprPtr Fetch(FunctionWriter& w, Placed& placed, const Site& site, IndexCode& code, bool by_slice,
                const std::string& condition) {
    auto coded = [&](const IndexExpr& e) { return Guarded(w, code.AsU32(e), condition); };
    if (placed.form == Form::kTexels) {
      std::vector<ExprPtr> at;
      for (const IndexExpr& e : site.texel) at.push_back(coded(e));
      std::vector<ExprPtr> args = TexelArguments(placed, std::move(at));
      args.push_back(I32(0));
      ExprPtr texel = Call("textureLoad", std::move(args), Vec4(placed.natural));
      if (by_slice) return texel;
      std::string name = w.Let("texel", std::move(texel));
      return PickLane(w, name, *code.AsU32(*site.lane));
    }
    if (by_slice) return FetchSlice(w, placed, coded(*site.slice));
    bool whole_element = placed.parts.size() > 1 || placed.form == Form::kScalars || placed.form == Form::kHalfWords;
    if (whole_element) {
      std::string at = w.Let("at", coded(*site.element));
      return FetchElement(w, placed, w.Ref(at), nullptr, nullptr);
    }
    ExprPtr slice = coded(*site.slice), lane = coded(*site.lane);
    // Only the parity of the element is asked for there: that of its lane.
    ExprPtr parity = Clone(*lane);
    return FetchElement(w, placed, std::move(parity), std::move(slice), std::move(lane));
  }

  static uint32_t AllCoordinates(const Placed& placed) { return (1u << placed.tensor->shape.rank()) - 1; }

  std::vector<std::string> CoordNames(const Placed& placed, bool by_slice) const {
    std::string root = placed.id.substr(0, placed.id.find('#'));
    std::vector<std::string> names;
    for (const TensorDecl& decl : kernel_.module.tensors) {
      if (decl.name == root) names = decl.axes;
    }
    if (by_slice && !names.empty()) names.back() = "slice";
    return names;
  }

  // The name of the function that loads from `id`: by slice or by element, zero outside where or_zero. As `result`, the scalar
  // type that is asked for. `masked`: lanes beyond the edge are zero, otherwise they may be anything. `proven`: coordinates
  // (one bit each) that need no check.
  std::string LoadFunction(const std::string& id, bool by_slice, bool or_zero, bool masked, Scalar result, uint32_t proven) {
    Placed& placed = placed_.at(id);
    if ((proven & AllCoordinates(placed)) == AllCoordinates(placed)) or_zero = false;
    std::string key = StrCat(id, by_slice ? "/load4" : "/load", or_zero ? StrCat("_or_zero", proven) : "",
                             masked ? "" : "/unmasked", ScalarName(result));
    std::string& known = accessors_[key];
    if (!known.empty()) return known;
    placed.used = true;
    const VirtualTensor& tensor = *placed.tensor;
    int rows = by_slice ? 4 : 1;
    Type result_type = Sized(result, rows);
    std::string name = names_.Global(StrCat(placed.name, by_slice ? "_load4" : "_load", or_zero ? "_or_zero" : ""));
    FunctionWriter w(names_, name, result_type);
    std::vector<std::string> axes;
    for (const std::string& axis : CoordNames(placed, by_slice)) axes.push_back(w.Parameter(axis, kU32Type));
    auto finish = [&](ExprPtr value) {
      w.Add(Return(std::move(value)));
      module_.functions.push_back(w.Take());
      return accessors_[key] = name;
    };
    if (tensor.shape.element_count() == 0) return finish(Splat(Number(0, result), rows));

    // Everything that is to be addressed, then counted for common subexpressions, then written.
    SlicePlan plan;
    std::vector<Site> sites;
    std::vector<std::optional<IndexExpr>> insides;
    std::vector<int64_t> extents(tensor.shape.begin(), tensor.shape.end());
    bool fetch_by_slice = false;
    if (by_slice) {
      plan = PlanSlice(tensor);
      extents = plan.extents;
      fetch_by_slice = plan.path == SlicePlan::Path::kVector;
      for (int i = 0; i < (plan.path == SlicePlan::Path::kLanes ? 4 : 1); ++i) {
        sites.push_back(fetch_by_slice ? SliceSite(placed, plan.coords[size_t(i)])
                                       : ElementSite(placed, plan.coords[size_t(i)]));
        insides.push_back(plan.inside[size_t(i)]);
      }
    } else {
      std::vector<IndexExpr> coords;
      for (int i = 0; i < tensor.shape.rank(); ++i) coords.push_back(IndexExpr::Axis(i));
      sites.push_back(ElementSite(placed, MappedCoords(tensor, coords)));
      insides.push_back(tensor.map.inside);
    }
    IndexCode code(w, names_, module_, axes, extents, or_zero);
    for (auto& inside : insides) {
      if (!inside) continue;
      inside = inside->SimplifiedFor(extents);
      if (inside->IsConst() && inside->value() != 0) {
        inside.reset();
      } else {
        code.Count(*inside);
      }
    }
    for (Site& site : sites) SimplifyAndCount(placed, site, code, extents);

    std::string in_bounds;  // of the kernel's coordinates
    if (or_zero) {
      ExprPtr condition;
      for (size_t i = 0; i < axes.size(); ++i) {
        if (proven >> i & 1) continue;
        ExprPtr below = Binary("<", w.Ref(axes[i]), U32(extents[i]), kBoolType);
        condition = condition ? Binary("&&", std::move(condition), std::move(below), kBoolType) : std::move(below);
      }
      if (condition) in_bounds = w.Let("in_bounds", std::move(condition));
    }
    // With nothing in between, one selection serves the map's edge and the tensor's.
    bool merged = tensor.map.outside == 0 && tensor.value_maps.empty() &&
                  std::all_of(insides.begin(), insides.end(), [](const auto& inside) { return inside.has_value(); });
    std::vector<ExprPtr> values;
    std::map<std::string, std::string> conditions;  // lanes often share theirs
    for (size_t i = 0; i < sites.size(); ++i) {
      if (by_slice && plan.path == SlicePlan::Path::kLanes && plan.NeverInside(int(i))) {
        values.push_back(Number(0, placed.natural));
        continue;
      }
      std::string exists = in_bounds, inside_name;
      if (insides[i]) {
        std::string& shared = conditions[insides[i]->ToString()];
        if (shared.empty()) shared = w.Let("inside", code.AsBool(*insides[i]));
        inside_name = shared;
        exists = inside_name;
        if (!in_bounds.empty()) {
          std::string& joined = conditions["&" + inside_name];
          if (joined.empty()) joined = w.Let("exists", Binary("&&", w.Ref(in_bounds), w.Ref(inside_name), kBoolType));
          exists = joined;
        }
      }
      ExprPtr value = Fetch(w, placed, sites[i], code, fetch_by_slice, exists);
      if (insides[i]) {
        ExprPtr outside = Splat(Number(tensor.map.outside, placed.natural), fetch_by_slice ? 4 : 1);
        Type type = value->type;
        value = Call("select", List(std::move(outside), std::move(value), w.Ref(merged ? exists : inside_name)), type);
      }
      // A name for each lane keeps the text readable and the fetches in order.
      if (sites.size() > 1) value = w.Ref(w.Let(StrCat("lane_", i), std::move(value)));
      values.push_back(std::move(value));
    }
    ExprPtr value;
    if (values.size() > 1) {
      value = Construct(Vec4(placed.natural), std::move(values));
    } else {
      value = std::move(values[0]);
      if (by_slice && !fetch_by_slice) value = Splat(std::move(value), 4);
    }
    value = ApplyValueMaps(w, placed, std::move(value), axes, by_slice, or_zero, proven);
    value = Convert(std::move(value), result);
    if (or_zero && !in_bounds.empty() && !merged) {
      value = Call("select", List(Splat(Number(0, result), rows), std::move(value), w.Ref(in_bounds)), result_type);
    }
    if (by_slice && masked && plan.tail() != 0) value = MaskTail(w, plan, axes.back(), std::move(value));
    return finish(std::move(value));
  }

  // Zero in the lanes of the last slice that are beyond the edge.
  ExprPtr MaskTail(FunctionWriter& w, const SlicePlan& plan, const std::string& slice, ExprPtr value) {
    Type type = value->type;
    std::string whole = w.Let("v", std::move(value));
    std::vector<ExprPtr> lanes;
    for (int i = 0; i < 4; ++i) {
      lanes.push_back(i < plan.tail() ? Member(w.Ref(whole), kLanes[i], Type::Of(type.scalar)) : Number(0, type.scalar));
    }
    ExprPtr cut = Construct(type, std::move(lanes));
    if (plan.full_slices() == 0) return cut;
    ExprPtr is_last = Binary("==", w.Ref(slice), U32(plan.full_slices()), kBoolType);
    return Call("select", List(w.Ref(whole), std::move(cut), std::move(is_last)), type);
  }

  ExprPtr ApplyValueMaps(FunctionWriter& w, Placed& placed, ExprPtr value, const std::vector<std::string>& axes, bool by_slice,
                         bool or_zero, uint32_t proven) {
    int number = 0, map_number = 0;
    for (const ValueMap& map : placed.tensor->value_maps) {
      std::string function = ValueMapFunction(placed, map, map_number++, by_slice);
      if (failure_) return value;
      // Copied, because loads of the operands add functions.
      std::vector<Parameter> parameters;
      Type result;
      for (const Function& f : module_.functions) {
        if (f.name == function) parameters = f.parameters, result = f.result;
      }
      CHECK(parameters.size() == map.operands.size() + 1);
      std::vector<ExprPtr> args = List(Convert(std::move(value), parameters[0].type.scalar));
      for (size_t k = 0; k < map.operands.size(); ++k) {
        // The operand as the type that the text takes it in.
        Scalar wanted = parameters[k + 1].type.scalar;
        std::string load = LoadFunction(StrCat(placed.id, "#", number++), by_slice, or_zero, false, wanted, proven);
        if (failure_) return value;
        std::vector<ExprPtr> coords;
        for (const std::string& axis : axes) coords.push_back(w.Ref(axis));
        args.push_back(Call(load, std::move(coords), Sized(wanted, by_slice ? 4 : 1)));
      }
      value = Call(function, std::move(args), result);
      value = w.Ref(w.Let("mapped", std::move(value)));
    }
    return value;
  }

  std::string ValueMapFunction(Placed& placed, const ValueMap& map, int number, bool by_slice) {
    std::string& known = accessors_[StrCat(placed.id, "/map", number, by_slice ? "/4" : "")];
    if (!known.empty()) return known;
    std::string name = names_.Global(StrCat(placed.name, "_map_", number, by_slice ? "_4" : ""));
    auto made = InstantiateValueMap(map, by_slice, name, target_, kernel_.module.name);
    if (!made.ok()) {
      failure_ = WithContext(made.error(), StrCat("value map ", number, " of tensor ", placed.id));
      return known;
    }
    Module functions = std::move(made).value();
    for (const Function& f : functions.functions) names_.AddGlobal(f.name);
    for (const ConstDecl& c : functions.consts) names_.AddGlobal(c.name);
    for (Function& f : functions.functions) names_.RenameLocals(f);
    MergeModule(module_, std::move(functions));
    return known = name;
  }

  // ---- Stores ----

  std::string StoreFunction(const std::string& id, bool by_slice, Scalar given) {
    Placed& placed = placed_.at(id);
    std::string key = StrCat(id, by_slice ? "/store4" : "/store", ScalarName(given));
    std::string& known = accessors_[key];
    if (!known.empty()) return known;
    placed.used = true;
    const VirtualTensor& tensor = *placed.tensor;
    int rows = by_slice ? 4 : 1;
    std::string name = names_.Global(StrCat(placed.name, by_slice ? "_store4" : "_store"));
    FunctionWriter w(names_, name, Type::Void());
    std::string parameter = w.Parameter("value", Sized(given, rows));
    std::vector<std::string> axes;
    for (const std::string& axis : CoordNames(placed, by_slice)) axes.push_back(w.Parameter(axis, kU32Type));
    auto finish = [&] {
      module_.functions.push_back(w.Take());
      return accessors_[key] = name;
    };
    if (tensor.shape.element_count() == 0) return finish();

    SlicePlan plan;
    std::vector<Site> sites;         // by element
    std::optional<Site> slice_site;  // of a whole slice
    std::vector<std::optional<IndexExpr>> insides;
    std::vector<int64_t> extents(tensor.shape.begin(), tensor.shape.end());
    if (by_slice) {
      plan = PlanSlice(tensor);
      extents = plan.extents;
      if (plan.path == SlicePlan::Path::kVector) {
        slice_site = SliceSite(placed, plan.coords[0]);
        insides.push_back(plan.inside[0]);
        if (plan.tail_by_lanes) {
          // The last slice by element: coordinates of its lanes from those of the slice.
          for (int i = 0; i < plan.tail(); ++i) {
            std::vector<IndexExpr> coords = plan.coords[0];
            coords.back() = coords.back() * IndexExpr::Const(4) + IndexExpr::Const(i);
            sites.push_back(ElementSite(placed, coords));
          }
        }
      } else {
        if (plan.path == SlicePlan::Path::kSplat) {
          failure_ = Fail(Code::kInvalidArgument, id, "its map stores four elements to the same place");
          return {};
        }
        for (int i = 0; i < std::min(4, plan.last_extent); ++i) {
          sites.push_back(ElementSite(placed, plan.coords[size_t(i)]));
          insides.push_back(plan.inside[size_t(i)]);
        }
      }
    } else {
      std::vector<IndexExpr> coords;
      for (int i = 0; i < tensor.shape.rank(); ++i) coords.push_back(IndexExpr::Axis(i));
      sites.push_back(ElementSite(placed, MappedCoords(tensor, coords)));
      insides.push_back(tensor.map.inside);
    }
    IndexCode code(w, names_, module_, axes, extents, false);
    bool lane_conditions = false;
    for (auto& inside : insides) {
      if (!inside) continue;
      inside = inside->SimplifiedFor(extents);
      if (inside->IsConst() && inside->value() != 0) {
        inside.reset();
      } else {
        code.Count(*inside);
      }
    }
    if (slice_site) SimplifyAndCount(placed, *slice_site, code, extents);
    for (Site& site : sites) SimplifyAndCount(placed, site, code, extents);
    for (auto& inside : insides) lane_conditions = lane_conditions || !(inside == insides[0]);
    if (!insides.empty() && insides[0] && !lane_conditions) {
      ExprPtr outside = Not(code.AsBool(*insides[0]));
      std::vector<StmtPtr> leave;
      leave.push_back(Return(nullptr));
      w.Add(If(std::move(outside), std::move(leave)));
    }
    ExprPtr mapped = ApplyValueMaps(w, placed, ConvertToFlight(w.Ref(parameter)), axes, by_slice, false, 0);
    if (failure_) return {};
    std::string value = w.Let("stored", Convert(std::move(mapped), placed.natural));

    if (placed.form == Form::kTexels) {
      CHECK(slice_site);
      std::vector<ExprPtr> at;
      for (const IndexExpr& e : slice_site->texel) at.push_back(code.AsU32(e));
      std::vector<ExprPtr> args = TexelArguments(placed, std::move(at));
      args.push_back(w.Ref(value));
      w.Add(CallStatement(Call("textureStore", std::move(args), Type::Void())));
      return finish();
    }
    // Addresses come before any branch: lets of common parts must be seen in all of them.
    std::vector<std::string> at;
    for (size_t i = 0; i < sites.size(); ++i) at.push_back(w.Let(StrCat("at_", i), code.AsU32(*sites[i].element)));
    auto put_lane = [&](size_t i) {
      ExprPtr lane = rows == 1 ? w.Ref(value) : Member(w.Ref(value), kLanes[i], Type::Of(placed.natural));
      PutElement(w, placed, w.Ref(at[i]), std::move(lane));
    };
    if (slice_site) {
      std::string slice_at = w.Let("slice_at", code.AsU32(*slice_site->slice));
      if (!plan.tail_by_lanes) {
        PutSlice(w, placed, w.Ref(slice_at), value);
        return finish();
      }
      std::vector<StmtPtr> whole, tail;
      w.Into(&tail);
      for (size_t i = 0; i < sites.size(); ++i) put_lane(i);
      if (plan.full_slices() == 0) {
        w.Into(nullptr);
        for (StmtPtr& s : tail) w.Add(std::move(s));
        return finish();
      }
      w.Into(&whole);
      PutSlice(w, placed, w.Ref(slice_at), value);
      w.Into(nullptr);
      w.Add(If(Binary("<", w.Ref(axes.back()), U32(plan.full_slices()), kBoolType), std::move(whole), std::move(tail)));
      return finish();
    }
    if (!by_slice) {
      put_lane(0);
      return finish();
    }
    for (size_t i = 0; i < sites.size(); ++i) {
      ExprPtr condition;
      if (!plan.AlwaysInside(int(i))) condition = Binary("<", w.Ref(axes.back()), U32(plan.full_slices()), kBoolType);
      if (lane_conditions && insides[i]) {
        ExprPtr inside = code.AsBool(*insides[i]);
        condition = condition ? Binary("&&", std::move(condition), std::move(inside), kBoolType) : std::move(inside);
      }
      if (!condition) {
        put_lane(i);
        continue;
      }
      std::vector<StmtPtr> block, *outer = w.into();
      w.Into(&block);
      put_lane(i);
      w.Into(outer);
      w.Add(If(std::move(condition), std::move(block)));
    }
    return finish();
  }

  static ExprPtr ConvertToFlight(ExprPtr value) {
    Scalar to = InFlight(value->type.scalar);
    return Convert(std::move(value), to);
  }

  // ---- Accessors ----

  static ExprPtr Coordinate(ExprPtr e) { return Convert(std::move(e), Scalar::kU32); }

  void ReplaceAccessor(ExprPtr& e) {
    if (failure_) return;
    const TensorDecl* decl = nullptr;
    for (const TensorDecl& d : kernel_.module.tensors) {
      if (d.name == e->name) decl = &d;
    }
    CHECK(decl);
    const VirtualTensor& tensor = kernel_.tensors.at(e->name);
    Location at = e->at;
    if (e->method == "is_inside") {
      ExprPtr condition;
      for (size_t i = 0; i < e->args.size(); ++i) {
        ExprPtr below = Binary("<", Coordinate(std::move(e->args[i])), U32(tensor.shape[int(i)]), kBoolType);
        condition = condition ? Binary("&&", std::move(condition), std::move(below), kBoolType) : std::move(below);
      }
      e = condition ? std::move(condition) : Bool(true);
      e->at = at;
      return;
    }
    bool is_store = e->method == "store" || e->method == "store4";
    bool by_slice = e->method.find('4') != std::string::npos;
    bool or_zero = e->method == "load_or_zero" || e->method == "load4_or_zero";
    std::string function;
    if (is_store) {
      function = StoreFunction(e->name, by_slice, e->args[0]->type.scalar);
    } else {
      auto proven = proven_.find(e.get());
      function = LoadFunction(e->name, by_slice, or_zero, true, e->type.scalar, proven == proven_.end() ? 0 : proven->second);
    }
    if (failure_) return;
    std::vector<ExprPtr> args = std::move(e->args);
    for (size_t i = is_store ? 1 : 0; i < args.size(); ++i) args[i] = Coordinate(std::move(args[i]));
    e = Call(function, std::move(args), is_store ? Type::Void() : e->type);
    e->at = at;
  }

  // ---- Bindings ----

  Status AddBindings() {
    uint32_t buffers = 0, sampled = 0, written = 0;
    std::vector<std::string> buffer_names;
    for (const BindingInfo& binding : out_.bindings) {
      if (binding.kind == BindingInfo::Kind::kScratch || binding.kind == BindingInfo::Kind::kBuffer) {
        ++buffers;
        buffer_names.push_back(binding.name);
      }
    }
    for (const std::string& id : order_) {
      Placed& placed = placed_.at(id);
      if (!placed.used) continue;
      if (placed.stored == Scalar::kF16 && placed.resource.kind == Type::Kind::kArray) out_.uses_f16 = true;
      for (size_t part = 0; part < placed.parts.size(); ++part) {
        BindingInfo binding;
        binding.name = placed.parts[part];
        binding.access = placed.access;
        binding.tensor = id;
        binding.part = int(part);
        binding.type = placed.resource;
        VarDecl var;
        var.name = binding.name;
        var.type = placed.resource;
        var.access = placed.access;
        var.binding = int(out_.bindings.size());
        if (placed.resource.kind == Type::Kind::kTexture) {
          var.space = "texture";
          bool stored = placed.access != Access::kRead;
          binding.kind = stored ? BindingInfo::Kind::kStorageTexture : BindingInfo::Kind::kSampledTexture;
          ++(stored ? written : sampled);
        } else {
          var.space = "storage";
          binding.kind = BindingInfo::Kind::kBuffer;
          buffer_names.push_back(binding.name);
          ++buffers;
        }
        module_.vars.push_back(std::move(var));
        out_.bindings.push_back(std::move(binding));
      }
    }
    auto too_many = [&](uint32_t count, const char* what, uint32_t limit, const char* limit_name, const std::string& list) {
      return Error{Code::kUnsupported, StrCat(kernel_.module.name, ".kernel needs ", count, " ", what, list, ", and ",
                                              limit_name, " of the target is ", limit, ".")};
    };
    if (buffers > target_.max_storage_buffers) {
      return too_many(buffers, "storage buffers", target_.max_storage_buffers, "max_storage_buffers",
                      StrCat(" (", Join(buffer_names, ", "), ")"));
    }
    if (sampled > target_.max_sampled_textures) {
      return too_many(sampled, "sampled textures", target_.max_sampled_textures, "max_sampled_textures", "");
    }
    if (written > target_.max_storage_textures) {
      return too_many(written, "written textures", target_.max_storage_textures, "max_storage_textures", "");
    }
    return {};
  }

  const BoundKernel& kernel_;
  const Target& target_;
  LoweredKernel& out_;
  Module& module_;
  ModuleNames names_;
  std::map<std::string, Uses> uses_;
  std::vector<std::string> order_;
  std::map<std::string, Placed> placed_;
  std::map<std::string, std::string> accessors_;
  std::map<const Expr*, uint32_t> proven_;  // see ProvenCoordinates
  std::optional<Error> failure_;
};

}  // namespace

Status SpliceTensors(const BoundKernel& kernel, const Target& target, LoweredKernel& out) {
  return Splicer(kernel, target, out).Run();
}

}  // namespace leeway::shader
