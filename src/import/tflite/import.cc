#include <algorithm>
#include <cmath>
#include <functional>

#include "base/strings.h"
#include "graph/passes/fold_constants.h"
#include "import/tflite/constants.h"
#include "import/tflite/metadata.h"
#include "import/tflite/options.h"
#include "import/tflite/tflite.h"

namespace leeway {
namespace {

using flatbuffers::uoffset_t;
using tflite_schema::BuiltinOperator;
using Bytes = std::span<const std::byte>;

constexpr int kMaxDepth = 32;                // of tables in tables; the format needs 6
constexpr uoffset_t kMaxTables = 4'000'000;  // the largest real models have some ten thousand
constexpr int kMaxCompositeDepth = 8;
constexpr ValueId kUnset = -2;
// What is computed while reading: shapes, positions, axes.
constexpr int64_t kMaxFoldedElements = 1024;

std::string Text(const flatbuffers::String* text) { return text ? text->str() : std::string(); }

template <class T>
size_t Size(const flatbuffers::Vector<T>* vector) {
  return vector ? vector->size() : 0;
}

class TfliteImporter {
 public:
  TfliteImporter(Bytes bytes, std::string name, std::shared_ptr<const void> file, const TfliteOptions& options)
      : bytes_(bytes), options_(options), find_op_(options.find_op ? options.find_op : FindOpForTflite) {
    graph_.name = std::move(name);
    graph_.file = std::move(file);
  }

  Result<Graph> Run() {
    RETURN_IF_ERROR(Open());
    ASSIGN_OR_RETURN(uint32_t main, FindSubgraph());
    RETURN_IF_ERROR(CheckIndices());
    RETURN_IF_ERROR(CheckOperators(main));
    Scope scope = OpenScope(main, "");
    for (size_t i = 0; i < Size(scope.subgraph->inputs()); ++i) {
      int32_t tensor = scope.subgraph->inputs()->Get(uoffset_t(i));
      if (scope.values[size_t(tensor)] != kUnset)
        return Bad(StrCat("input ", i, ", ", TensorLabel(scope, tensor), ", is listed twice"));
      ASSIGN_OR_RETURN(ValueId id, AddTensor(scope, tensor));
      scope.values[size_t(tensor)] = id;
      graph_.inputs.push_back(id);
    }
    RETURN_IF_ERROR(ImportOperators(scope, 0));
    for (size_t i = 0; i < Size(scope.subgraph->outputs()); ++i) {
      ASSIGN_OR_RETURN_CONTEXT(ValueId id, Read(scope, scope.subgraph->outputs()->Get(uoffset_t(i))),
                               StrCat("output ", i, " of \"", graph_.name, "\""));
      graph_.outputs.push_back(id);
    }
    RETURN_IF_ERROR(ImportSignatures(scope, main));
    ImportMetadata();
    RETURN_IF_ERROR(Verify(graph_));
    return std::move(graph_);
  }

 private:
  struct Scope {
    uint32_t index = 0;
    const tflite_schema::SubGraph* subgraph = nullptr;
    std::vector<ValueId> values;  // of its tensors; kUnset: not written yet
    std::string prefix;           // of names, inside composites
  };

  Error Bad(std::string what) const {
    return Error{Code::kInvalidModel, StrCat("The model \"", graph_.name, "\" is invalid: ", what, ".")};
  }
  Error Unsupported(std::string what) const {
    return Error{Code::kUnsupported, StrCat("The model \"", graph_.name, "\" needs what this build cannot do: ", what, ".")};
  }

  // -- The file --------------------------------------------------------------------------------------------------------

  Status Open() {
    if (bytes_.size() < 8) return Bad(StrCat("it has ", bytes_.size(), " bytes, too few for a header"));
    if (reinterpret_cast<uintptr_t>(bytes_.data()) % 16 != 0) {
      auto aligned = std::make_shared<std::vector<std::byte>>(bytes_.begin(), bytes_.end());
      bytes_ = *aligned;
      graph_.file = std::move(aligned);
    }
    auto* data = reinterpret_cast<const uint8_t*>(bytes_.data());
    if (!tflite_schema::ModelBufferHasIdentifier(data)) {
      std::string found;
      for (size_t i = 4; i < 8; ++i) found += char(bytes_[i]) >= ' ' && char(bytes_[i]) <= '~' ? char(bytes_[i]) : '?';
      return Bad(StrCat("bytes 4 to 7 are \"", found, "\", expected \"TFL3\""));
    }
    // A FlatBuffer ends below 2 GiB; weights may follow it (Buffer.offset).
    size_t size = std::min<size_t>(bytes_.size(), FLATBUFFERS_MAX_BUFFER_SIZE - 1);
    flatbuffers::Verifier verifier(data, size, kMaxDepth, kMaxTables);
    if (!tflite_schema::VerifyModelBuffer(verifier))
      return Bad(
          StrCat("its tables are damaged or truncated (", bytes_.size(), " bytes do not pass the FlatBuffers verifier)"));
    model_ = tflite_schema::GetModel(data);
    if (model_->version() != 3) return Bad(StrCat("it has format version ", model_->version(), ", expected 3"));
    if (Size(model_->subgraphs()) == 0) return Bad("it has no subgraph");
    if (Size(model_->buffers()) == 0) return Bad("it has no buffers");
    return {};
  }

  Result<uint32_t> FindSubgraph() const {
    if (options_.signature.empty()) return uint32_t(0);
    std::vector<std::string> keys;
    for (size_t i = 0; i < Size(model_->signature_defs()); ++i) {
      const auto* signature = model_->signature_defs()->Get(uoffset_t(i));
      keys.push_back(Text(signature->signature_key()));
      if (keys.back() == options_.signature) {
        if (signature->subgraph_index() >= model_->subgraphs()->size())
          return Bad(StrCat("signature \"", keys.back(), "\" names subgraph ", signature->subgraph_index(), " of ",
                            model_->subgraphs()->size()));
        return signature->subgraph_index();
      }
    }
    return Error{Code::kNotFound, StrCat("The model \"", graph_.name, "\" has no signature \"", options_.signature,
                                         "\"; it has [", Join(keys, ", "), "].")};
  }

  // Every index in every subgraph, so that nothing after this need look.
  Status CheckIndices() const {
    size_t codes = Size(model_->operator_codes()), buffers = Size(model_->buffers());
    for (uoffset_t s = 0; s < model_->subgraphs()->size(); ++s) {
      const auto* subgraph = model_->subgraphs()->Get(s);
      size_t tensors = Size(subgraph->tensors());
      for (uoffset_t t = 0; t < tensors; ++t) {
        const auto* tensor = subgraph->tensors()->Get(t);
        if (tensor->buffer() >= buffers)
          return Bad(StrCat("tensor ", t, " of subgraph ", s, " names buffer ", tensor->buffer(), " of ", buffers));
      }
      auto check = [&](const flatbuffers::Vector<int32_t>* indices, bool optional, std::string what) -> Status {
        for (size_t i = 0; i < Size(indices); ++i) {
          int32_t index = indices->Get(uoffset_t(i));
          if (index == -1 && optional) continue;
          if (index < 0 || size_t(index) >= tensors)
            return Bad(StrCat(what, " of subgraph ", s, " names tensor ", index, " of ", tensors));
        }
        return {};
      };
      RETURN_IF_ERROR(check(subgraph->inputs(), false, "an input"));
      RETURN_IF_ERROR(check(subgraph->outputs(), false, "an output"));
      for (size_t o = 0; o < Size(subgraph->operators()); ++o) {
        const auto* op = subgraph->operators()->Get(uoffset_t(o));
        if (op->opcode_index() >= codes)
          return Bad(StrCat("operator ", o, " of subgraph ", s, " names operator code ", op->opcode_index(), " of ", codes));
        if (!op->inputs() || !op->outputs())
          return Bad(StrCat("operator ", o, " of subgraph ", s, " has no list of inputs or of outputs"));
        RETURN_IF_ERROR(check(op->inputs(), true, StrCat("an input of operator ", o)));
        RETURN_IF_ERROR(check(op->outputs(), false, StrCat("an output of operator ", o)));
      }
    }
    for (size_t i = 0; i < Size(model_->metadata()); ++i) {
      uint32_t buffer = model_->metadata()->Get(uoffset_t(i))->buffer();
      if (buffer >= buffers) return Bad(StrCat("metadata ", i, " names buffer ", buffer, " of ", buffers));
    }
    return {};
  }

  // The bytes of a buffer, in the table or behind it.
  Result<Bytes> BufferBytes(uint32_t index) const {
    const auto* buffer = model_->buffers()->Get(index);
    if (buffer->offset() > 1) {
      if (buffer->offset() > bytes_.size() || buffer->size() > bytes_.size() - buffer->offset()) {
        return Bad(StrCat("buffer ", index, " lies at ", buffer->offset(), " with ", buffer->size(), " bytes, the file has ",
                          bytes_.size()));
      }
      return bytes_.subspan(size_t(buffer->offset()), size_t(buffer->size()));
    }
    if (!buffer->data()) return Bytes();
    return std::as_bytes(std::span(buffer->data()->data(), buffer->data()->size()));
  }

  // -- Operators -------------------------------------------------------------------------------------------------------

  BuiltinOperator CodeOf(const tflite_schema::Operator& op) const {
    const auto* code = model_->operator_codes()->Get(op.opcode_index());
    return BuiltinOperator(std::max(int32_t(code->deprecated_builtin_code()), int32_t(code->builtin_code())));
  }

  const tflite_schema::StableHLOCompositeOptions* CompositeOf(const tflite_schema::Operator& op) const {
    return CodeOf(op) == BuiltinOperator::STABLEHLO_COMPOSITE ? op.builtin_options_2_as_StableHLOCompositeOptions() : nullptr;
  }

  std::string OpName(const tflite_schema::Operator& op) const {
    BuiltinOperator code = CodeOf(op);
    if (code == BuiltinOperator::CUSTOM)
      return StrCat("custom:", Text(model_->operator_codes()->Get(op.opcode_index())->custom_code()));
    if (auto* composite = CompositeOf(op)) return StrCat("composite:", Text(composite->name()));
    const char* name = tflite_schema::EnumNameBuiltinOperator(code);
    return *name ? name : StrCat("number ", int(code));
  }

  // Operators that reading itself replaces.
  static bool IsStorageOperator(BuiltinOperator code) {
    return code == BuiltinOperator::DENSIFY || code == BuiltinOperator::DEQUANTIZE;
  }

  // All that is unknown is named at once, before anything is built.
  Status CheckOperators(uint32_t main) {
    std::map<std::string, int> unknown;
    RETURN_IF_ERROR(CollectUnknown(main, 0, unknown));
    if (unknown.empty() || options_.keep_unknown_ops) return {};
    std::vector<std::string> texts;
    for (const auto& [name, count] : unknown) texts.push_back(StrCat(name, " (", count, count == 1 ? " node)" : " nodes)"));
    return Unsupported(StrCat("the operators ", Join(texts, ", "), " are not known"));
  }

  Status CollectUnknown(uint32_t index, int depth, std::map<std::string, int>& unknown) {
    if (depth > kMaxCompositeDepth)
      return Bad(StrCat("its composites are nested more than ", kMaxCompositeDepth, " deep or call themselves"));
    const auto* subgraph = model_->subgraphs()->Get(index);
    for (size_t o = 0; o < Size(subgraph->operators()); ++o) {
      const auto* op = subgraph->operators()->Get(uoffset_t(o));
      if (++visited_operators_ > 1'000'000) return Bad("its composites unfold to more than a million operators");
      std::string name = OpName(*op);
      if (name == "custom:") return Bad(StrCat("operator ", o, " of subgraph ", index, " is a custom operator without a name"));
      if (find_op_(name) || CodeOf(*op) == BuiltinOperator::DENSIFY) continue;
      if (auto* composite = CompositeOf(*op)) {
        int32_t inner = composite->decomposition_subgraph_index();
        if (inner < 0 || uint32_t(inner) >= model_->subgraphs()->size())
          return Bad(StrCat("composite \"", Text(composite->name()), "\" names subgraph ", inner, " of ",
                            model_->subgraphs()->size()));
        RETURN_IF_ERROR(CollectUnknown(uint32_t(inner), depth + 1, unknown));
        continue;
      }
      if (!IsStorageOperator(CodeOf(*op))) ++unknown[name];
    }
    return {};
  }

  const OpDef* ForeignOp(const std::string& name) {
    for (const auto& op : graph_.foreign_ops)
      if (name == op->name) return op.get();
    struct Named {
      std::string name;
      OpDef op;
    };
    auto named = std::make_shared<Named>();
    named->name = name;
    named->op.name = named->name.c_str();
    graph_.foreign_ops.push_back(std::shared_ptr<const OpDef>(named, &named->op));
    return graph_.foreign_ops.back().get();
  }

  Scope OpenScope(uint32_t index, std::string prefix) const {
    const auto* subgraph = model_->subgraphs()->Get(index);
    return Scope{index, subgraph, std::vector<ValueId>(Size(subgraph->tensors()), kUnset), std::move(prefix)};
  }

  Status ImportOperators(Scope& scope, int depth) {
    for (size_t o = 0; o < Size(scope.subgraph->operators()); ++o) {
      const auto* op = scope.subgraph->operators()->Get(uoffset_t(o));
      std::string label = StrCat("while reading operator ", o, " [", OpName(*op));
      if (op->outputs()->size() > 0) label += StrCat(" \"", TensorName(scope, op->outputs()->Get(0)), "\"");
      RETURN_IF_ERROR_CONTEXT(ImportOperator(scope, *op, depth), StrCat(label, "] of \"", graph_.name, "\""));
    }
    return {};
  }

  Status ImportOperator(Scope& scope, const tflite_schema::Operator& op, int depth) {
    for (int32_t tensor : *op.outputs()) {
      if (scope.values[size_t(tensor)] != kUnset) return Bad(StrCat(TensorLabel(scope, tensor), " is written twice"));
    }
    if (op.outputs()->size() == 0) return Unsupported("an operator without outputs, which acts on variables");
    const OpDef* def = find_op_(OpName(op));
    if (auto* composite = CompositeOf(op); composite && !def) return Decompose(scope, op, *composite, depth);

    Node node;
    node.name = scope.prefix + TensorName(scope, op.outputs()->Get(0));
    for (int32_t tensor : *op.inputs()) {
      if (tensor == -1) {
        node.inputs.push_back(kNoValue);
        continue;
      }
      ASSIGN_OR_RETURN(ValueId id, Read(scope, tensor));
      node.inputs.push_back(id);
    }
    ASSIGN_OR_RETURN(bool stored, ImportStorageOperator(scope, op, node));
    if (stored) return {};
    if (!def) {
      if (IsStorageOperator(CodeOf(op)) && !options_.keep_unknown_ops)
        return Unsupported(StrCat(OpName(op), " of a value that is not constant"));
      def = ForeignOp(OpName(op));
    }
    node.op = def;
    ASSIGN_OR_RETURN(node.attrs, tflite::ReadOptions(op, def->attrs));
    ASSIGN_OR_RETURN(node.custom_options, CustomOptions(op));
    std::string activation = node.attrs.GetString("fused_activation_function", "NONE");
    node.attrs.Erase("fused_activation_function");
    if (node.attrs.GetString("weights_format", "DEFAULT") != "DEFAULT")
      return Unsupported("weights in the shuffled format of old 8-bit CPUs");
    SetResultAttrs(scope, op.outputs()->Get(0), node);
    DequantizeWeights(scope, op, node);
    return AddNode(scope, op, std::move(node), activation);
  }

  // DENSIFY and DEQUANTIZE of constants: the result is a constant. True: done.
  Result<bool> ImportStorageOperator(Scope& scope, const tflite_schema::Operator& op, const Node& node) {
    if (!IsStorageOperator(CodeOf(op)) || node.inputs.size() != 1 || op.outputs()->size() != 1 || node.inputs[0] == kNoValue)
      return false;
    Value input = graph_.value(node.inputs[0]);
    if (!input.constant) return false;
    int32_t tensor = op.outputs()->Get(0);
    if (CodeOf(op) == BuiltinOperator::DENSIFY) {  // reading the constant has unpacked it
      scope.values[size_t(tensor)] = node.inputs[0];
      return true;
    }
    ASSIGN_OR_RETURN(TensorType type, TypeOf(scope, tensor));
    if (type.dtype != DType::kF32) return false;
    Value value;
    value.name = node.name;
    value.type = {DType::kF32, input.type.shape};
    if (IsFloat(input.type.dtype)) {
      value.constant = input.constant;
    } else if (input.quantization) {
      value.constant = std::make_shared<const HostTensor>(tflite::Dequantize(*input.constant, *input.quantization));
    } else {
      return Bad(StrCat("DEQUANTIZE reads ", TensorLabel(scope, op.inputs()->Get(0)), ", which has no scale"));
    }
    scope.values[size_t(tensor)] = graph_.AddValue(std::move(value));
    return true;
  }

  // Dynamic-range models: an operator on floats whose weights are quantized integers computes with the numbers that they stand
  // for.
  void DequantizeWeights(const Scope& scope, const tflite_schema::Operator& op, Node& node) {
    if (CodeOf(op) == BuiltinOperator::DEQUANTIZE) return;
    auto output = tflite::DTypeOf(scope.subgraph->tensors()->Get(uoffset_t(op.outputs()->Get(0)))->type());
    if (!output || !IsFloat(*output)) return;
    bool has_float_input = false;
    for (ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      const Value& value = graph_.value(id);
      if (!value.constant && !IsFloat(value.type.dtype)) return;
      has_float_input |= IsFloat(value.type.dtype);
    }
    if (!has_float_input) return;
    for (ValueId& id : node.inputs) {
      if (id != kNoValue && graph_.value(id).constant && IsQuantized(id)) id = DequantizedConstant(id);
    }
  }

  bool IsQuantized(ValueId id) const { return graph_.value(id).quantization && !IsFloat(graph_.value(id).type.dtype); }

  ValueId DequantizedConstant(ValueId id) {
    auto known = dequantized_.find(id);
    if (known != dequantized_.end()) return known->second;
    const Value& value = graph_.value(id);
    ValueId plain = graph_.AddConstant(value.name, tflite::Dequantize(*value.constant, *value.quantization));
    return dequantized_[id] = plain;
  }

  void SetResultAttrs(const Scope& scope, int32_t tensor, Node& node) const {
    auto dtype = tflite::DTypeOf(scope.subgraph->tensors()->Get(uoffset_t(tensor))->type());
    auto quantization = QuantizationOf(scope, tensor);
    bool has_scale = quantization.ok() && *quantization && (*quantization)->scales.size() == 1;
    for (const AttrField& field : node.op->attrs) {
      std::string_view name = field.name;
      bool is_type = name == "dtype" || name == "output_type" || name == "out_type" || name == "out_data_type";
      if (dtype && is_type && std::holds_alternative<std::string>(field.fallback))
        node.attrs.Set(field.name, DTypeName(*dtype));
      if (has_scale && (name == "scale" || name == "output_scale"))
        node.attrs.Set(field.name, double((*quantization)->scales[0]));
      if (has_scale && (name == "zero_point" || name == "output_zero_point"))
        node.attrs.Set(field.name, (*quantization)->zero_points[0]);
    }
  }

  Result<std::string> CustomOptions(const tflite_schema::Operator& op) const {
    Bytes bytes;
    if (auto* composite = CompositeOf(op)) {
      if (composite->composite_attributes())
        bytes = std::as_bytes(std::span(composite->composite_attributes()->data(), composite->composite_attributes()->size()));
    } else if (op.large_custom_options_offset() > 1) {
      uint64_t offset = op.large_custom_options_offset(), size = op.large_custom_options_size();
      if (offset > bytes_.size() || size > bytes_.size() - offset)
        return Bad(StrCat("custom options lie at ", offset, " with ", size, " bytes, the file has ", bytes_.size()));
      bytes = bytes_.subspan(size_t(offset), size_t(size));
    } else if (op.custom_options()) {
      bytes = std::as_bytes(std::span(op.custom_options()->data(), op.custom_options()->size()));
    }
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  Status Decompose(Scope& scope, const tflite_schema::Operator& op, const tflite_schema::StableHLOCompositeOptions& composite,
                   int depth) {
    Scope inner = OpenScope(uint32_t(composite.decomposition_subgraph_index()),
                            StrCat(scope.prefix, TensorName(scope, op.outputs()->Get(0)), "/"));
    size_t inputs = Size(inner.subgraph->inputs()), outputs = Size(inner.subgraph->outputs());
    if (inputs != op.inputs()->size() || outputs != op.outputs()->size()) {
      return Bad(StrCat("composite \"", Text(composite.name()), "\" has ", op.inputs()->size(), " inputs and ",
                        op.outputs()->size(), " outputs, its subgraph ", inputs, " and ", outputs));
    }
    for (uoffset_t i = 0; i < inputs; ++i) {
      if (op.inputs()->Get(i) == -1) continue;
      ASSIGN_OR_RETURN(ValueId id, Read(scope, op.inputs()->Get(i)));
      inner.values[size_t(inner.subgraph->inputs()->Get(i))] = id;
    }
    RETURN_IF_ERROR(ImportOperators(inner, depth + 1));
    for (uoffset_t i = 0; i < outputs; ++i) {
      ASSIGN_OR_RETURN(ValueId id, Read(inner, inner.subgraph->outputs()->Get(i)));
      scope.values[size_t(op.outputs()->Get(i))] = id;
    }
    return {};
  }

  Result<std::vector<TensorType>> InferTypes(const Node& node) const {
    std::vector<OperandInfo> operands = NodeOperands(graph_, node);
    return node.op->infer(OpCall{node.attrs, operands, {}, node.custom_options});
  }

  // Adds a node of an elementwise operator of the format by its name: RELU, DEQUANTIZE, QUANTIZE.
  Result<ValueId> AddUnary(const std::string& op_name, ValueId input, std::string name,
                           std::function<void(Node&)> set_attrs = {}) {
    Node node;
    node.name = std::move(name);
    node.op = find_op_(op_name);
    if (!node.op && options_.keep_unknown_ops) node.op = ForeignOp(op_name);
    if (!node.op) return Unsupported(StrCat("the operator ", op_name, " is not known"));
    node.inputs = {input};
    if (set_attrs) set_attrs(node);
    Value result;
    result.name = node.name;
    result.type = graph_.value(input).type;
    if (node.op->infer) {
      ASSIGN_OR_RETURN(std::vector<TensorType> types, InferTypes(node));
      if (types.size() != 1) return Unsupported(StrCat("the operator ", op_name, " with ", types.size(), " results"));
      result.type = types[0];
    }
    node.outputs = {graph_.AddValue(std::move(result))};
    ASSIGN_OR_RETURN(bool folded, FoldIfSmall(node));
    ValueId output = node.outputs[0];
    if (!folded) graph_.nodes.push_back(std::move(node));
    return output;
  }

  // The node's quantized inputs as the real numbers that they stand for. False: it has none.
  Result<bool> ReadInputsAsReal(Node& node) {
    bool changed = false;
    for (ValueId& id : node.inputs) {
      if (id == kNoValue || !IsQuantized(id)) continue;
      changed = true;
      if (graph_.value(id).constant) {
        id = DequantizedConstant(id);
      } else if (auto known = dequantized_.find(id); known != dequantized_.end()) {
        id = known->second;
      } else {
        ASSIGN_OR_RETURN(ValueId real, AddUnary("DEQUANTIZE", id, graph_.value(id).name + "/real"));
        id = dequantized_[id] = real;
      }
    }
    return changed;
  }

  Status AddNode(Scope& scope, const tflite_schema::Operator& op, Node node, const std::string& activation) {
    std::vector<TensorType> file_types, types;
    for (int32_t tensor : *op.outputs()) {
      ASSIGN_OR_RETURN(TensorType type, TypeOf(scope, tensor));
      file_types.push_back(type);
    }
    bool in_real = false;
    if (node.op->infer) {
      auto inferred = InferTypes(node);
      bool quantized_activation = activation != "NONE" && !IsFloat(file_types[0].dtype);
      if (quantized_activation || (!inferred.ok() && inferred.error().code == Code::kUnsupported)) {
        ASSIGN_OR_RETURN(in_real, ReadInputsAsReal(node));
        if (in_real) {
          auto again = InferTypes(node);
          if (!again.ok() && inferred.ok()) return again.error();
          if (again.ok()) inferred = std::move(again);
        }
      }
      if (!inferred.ok()) return inferred.error();
      types = std::move(inferred).value();
      if (types.size() != file_types.size())
        return Bad(StrCat("it has ", file_types.size(), " outputs, expected ", types.size()));
      for (size_t i = 0; i < types.size(); ++i) {
        if (types[i].dtype == file_types[i].dtype || (in_real && types[i].dtype == DType::kF32)) continue;
        return Unsupported(StrCat("output ", i, " is ", DTypeName(file_types[i].dtype), " in the file, the operator gives ",
                                  DTypeName(types[i].dtype)));
      }
    } else {
      types = file_types;
    }

    // The value of each output, then what still has to be done with it: activation, quantization.
    std::vector<ValueId> results;
    for (size_t i = 0; i < types.size(); ++i) {
      int32_t tensor = op.outputs()->Get(uoffset_t(i));
      bool is_last = activation == "NONE" && types[i].dtype == file_types[i].dtype;
      Value value;
      value.name = scope.prefix + TensorName(scope, tensor);
      if (!is_last) value.name += activation == "NONE" ? "/real" : "/linear";
      value.type = types[i];
      if (is_last) { ASSIGN_OR_RETURN(value.quantization, QuantizationOf(scope, tensor)); }
      results.push_back(graph_.AddValue(std::move(value)));
    }
    node.outputs = results;
    node.name = graph_.value(results[0]).name;
    ASSIGN_OR_RETURN(bool folded, FoldIfSmall(node));
    if (!folded) graph_.nodes.push_back(std::move(node));
    for (size_t i = 0; i < types.size(); ++i) {
      int32_t tensor = op.outputs()->Get(uoffset_t(i));
      std::string name = scope.prefix + TensorName(scope, tensor);
      bool quantize = types[i].dtype != file_types[i].dtype;
      if (activation != "NONE") {
        if (types.size() != 1)
          return Unsupported(StrCat("the fused activation ", activation, " of an operator with ", types.size(), " outputs"));
        ASSIGN_OR_RETURN(results[i], AddUnary(activation, results[i], quantize ? name + "/real" : name));
        if (!quantize && graph_.value(results[i]).type != types[i])
          return Unsupported(StrCat("the fused activation ", activation, " of ", types[i].ToString()));
      }
      if (quantize) {
        ASSIGN_OR_RETURN(std::shared_ptr<const Quantization> quantization, QuantizationOf(scope, tensor));
        if (!quantization || quantization->scales.size() != 1)
          return Unsupported(StrCat(TensorLabel(scope, tensor), " is computed and has no single scale"));
        ASSIGN_OR_RETURN(results[i],
                         AddUnary("QUANTIZE", results[i], name, [&](Node& after) { SetResultAttrs(scope, tensor, after); }));
        Value& value = graph_.values[size_t(results[i])];
        if (value.type.dtype != file_types[i].dtype)
          return Unsupported(StrCat(TensorLabel(scope, tensor), " is ", DTypeName(file_types[i].dtype),
                                    ", to which real numbers cannot be quantized"));
        value.quantization = std::move(quantization);
      }
      scope.values[size_t(tensor)] = results[i];
    }
    return {};
  }

  Result<bool> FoldIfSmall(const Node& node) {
    int64_t elements = 0;
    for (ValueId id : node.outputs) elements += graph_.value(id).type.shape.element_count();
    if (elements > kMaxFoldedElements) return false;
    return FoldNode(graph_, node);
  }

  // -- Tensors ---------------------------------------------------------------------------------------------------------

  std::string TensorName(const Scope& scope, int32_t tensor) const {
    return Text(scope.subgraph->tensors()->Get(uoffset_t(tensor))->name());
  }

  std::string TensorLabel(const Scope& scope, int32_t tensor) const {
    return StrCat("tensor ", tensor, " \"", scope.prefix, TensorName(scope, tensor), "\"");
  }

  Result<TensorType> TypeOf(const Scope& scope, int32_t tensor) const {
    const auto* t = scope.subgraph->tensors()->Get(uoffset_t(tensor));
    auto dtype = tflite::DTypeOf(t->type());
    if (!dtype) return Unsupported(StrCat(TensorLabel(scope, tensor), " has elements of type ", tflite::TypeName(t->type())));
    std::vector<int64_t> extents;
    for (size_t i = 0; i < Size(t->shape()); ++i) extents.push_back(t->shape()->Get(uoffset_t(i)));
    ASSIGN_OR_RETURN_CONTEXT(Shape shape, Shape::FromUntrusted(extents),
                             StrCat(TensorLabel(scope, tensor), " of \"", graph_.name, "\""));
    return TensorType{*dtype, shape};
  }

  // Null where the tensor is not quantized.
  Result<std::shared_ptr<const Quantization>> QuantizationOf(const Scope& scope, int32_t tensor) const {
    const auto* t = scope.subgraph->tensors()->Get(uoffset_t(tensor));
    const auto* q = t->quantization();
    ASSIGN_OR_RETURN(TensorType type, TypeOf(scope, tensor));
    std::shared_ptr<const Quantization> none;
    if (!q || IsFloat(type.dtype) || type.dtype == DType::kBool) return none;
    if (q->details_type() != tflite_schema::QuantizationDetails::NONE) {
      return Unsupported(StrCat(TensorLabel(scope, tensor), " is quantized by ",
                                tflite_schema::EnumNameQuantizationDetails(q->details_type()), " (tag ", int(q->details_type()),
                                ")"));
    }
    size_t scales = Size(q->scale()), zero_points = Size(q->zero_point());
    if (scales == 0) return none;
    if (zero_points != scales && zero_points != 0)
      return Bad(StrCat(TensorLabel(scope, tensor), " has ", scales, " scales and ", zero_points, " zero points"));
    Quantization result;
    for (size_t i = 0; i < scales; ++i) {
      float scale = q->scale()->Get(uoffset_t(i));
      if (!std::isfinite(scale) || scale <= 0) return Bad(StrCat(TensorLabel(scope, tensor), " has scale ", scale, " at ", i));
      result.scales.push_back(scale);
      result.zero_points.push_back(zero_points ? q->zero_point()->Get(uoffset_t(i)) : 0);
    }
    if (scales > 1) {
      result.axis = q->quantized_dimension();
      if (result.axis < 0 || result.axis >= type.shape.rank())
        return Bad(StrCat(TensorLabel(scope, tensor), " is quantized along axis ", result.axis, " of ", type.shape.ToString()));
      if (type.shape[result.axis] != int64_t(scales)) {
        return Bad(StrCat(TensorLabel(scope, tensor), " has ", scales, " scales for axis ", result.axis, " of ",
                          type.shape.ToString()));
      }
    }
    return std::make_shared<const Quantization>(std::move(result));
  }

  Result<ValueId> AddTensor(const Scope& scope, int32_t tensor) {
    Value value;
    value.name = scope.prefix + TensorName(scope, tensor);
    ASSIGN_OR_RETURN(value.type, TypeOf(scope, tensor));
    ASSIGN_OR_RETURN(value.quantization, QuantizationOf(scope, tensor));
    return graph_.AddValue(std::move(value));
  }

  // The value of a tensor that is read: written before, or a constant of the file.
  Result<ValueId> Read(Scope& scope, int32_t tensor) {
    ValueId& known = scope.values[size_t(tensor)];
    if (known != kUnset) return known;
    const auto* t = scope.subgraph->tensors()->Get(uoffset_t(tensor));
    ASSIGN_OR_RETURN(TensorType type, TypeOf(scope, tensor));
    if (t->is_variable()) return Unsupported(StrCat(TensorLabel(scope, tensor), " is a variable, kept from run to run"));
    if (t->external_buffer() != 0)
      return Unsupported(
          StrCat(TensorLabel(scope, tensor), " lies in external buffer ", t->external_buffer(), ", outside the file"));
    ASSIGN_OR_RETURN(Bytes bytes, BufferBytes(t->buffer()));
    if (bytes.empty() && type.shape.element_count() != 0)
      return Bad(StrCat(TensorLabel(scope, tensor), " is read before it is written"));
    ASSIGN_OR_RETURN_CONTEXT(HostTensor constant, ReadConstant(scope, tensor, type, bytes), TensorLabel(scope, tensor));
    Value value;
    value.name = scope.prefix + TensorName(scope, tensor);
    value.type = type;
    value.constant = std::make_shared<const HostTensor>(std::move(constant));
    ASSIGN_OR_RETURN(value.quantization, QuantizationOf(scope, tensor));
    known = graph_.AddValue(std::move(value));
    return known;
  }

  Result<HostTensor> ReadConstant(const Scope& scope, int32_t tensor, const TensorType& type, Bytes bytes) const {
    const auto* t = scope.subgraph->tensors()->Get(uoffset_t(tensor));
    // With dimensions or without: an entry without them is how a dense tensor is written by some converters.
    if (t->sparsity() && Size(t->sparsity()->dim_metadata()) > 0)
      return tflite::Densify(*t->sparsity(), type.dtype, type.shape, bytes);
    size_t expected = DTypeBytes(type.dtype, size_t(type.shape.element_count()));
    if (bytes.size() != expected)
      return Bad(StrCat(TensorLabel(scope, tensor), " of ", type.ToString(), " needs ", expected, " bytes, buffer ",
                        t->buffer(), " has ", bytes.size()));
    if (type.dtype == DType::kBool) {
      for (std::byte b : bytes)
        if (b > std::byte(1)) return Bad(StrCat(TensorLabel(scope, tensor), " is bool and holds ", int(b)));
    }
    size_t alignment = std::max<size_t>(DTypeBits(type.dtype) / 8, 1);
    if (reinterpret_cast<uintptr_t>(bytes.data()) % alignment != 0) {
      HostTensor copy(type.dtype, type.shape);
      std::copy(bytes.begin(), bytes.end(), copy.mutable_bytes().begin());
      return copy;
    }
    return HostTensor(type.dtype, type.shape, bytes, graph_.file);
  }

  // -- Names and texts -------------------------------------------------------------------------------------------------

  Status ImportSignatures(const Scope& scope, uint32_t main) {
    for (size_t i = 0; i < Size(model_->signature_defs()); ++i) {
      const auto* def = model_->signature_defs()->Get(uoffset_t(i));
      if (def->subgraph_index() != main) continue;
      Signature signature{Text(def->signature_key()), {}, {}};
      auto read = [&](const auto* maps, auto& names, const std::vector<ValueId>& known, const char* what) -> Status {
        for (size_t m = 0; m < Size(maps); ++m) {
          uint32_t tensor = maps->Get(uoffset_t(m))->tensor_index();
          std::string name = Text(maps->Get(uoffset_t(m))->name());
          ValueId id = tensor < scope.values.size() ? scope.values[tensor] : kUnset;
          if (std::find(known.begin(), known.end(), id) == known.end())
            return Bad(StrCat("signature \"", signature.key, "\" names tensor ", tensor, " as ", what, " \"", name,
                              "\", which it is not"));
          names.emplace_back(std::move(name), id);
        }
        return {};
      };
      RETURN_IF_ERROR(read(def->inputs(), signature.inputs, graph_.inputs, "input"));
      RETURN_IF_ERROR(read(def->outputs(), signature.outputs, graph_.outputs, "output"));
      graph_.signatures.push_back(std::move(signature));
    }
    return {};
  }

  void ImportMetadata() {
    if (model_->description() && model_->description()->size() > 0)
      graph_.metadata["description"] = Text(model_->description());
    for (size_t i = 0; i < Size(model_->metadata()); ++i) {
      const auto* entry = model_->metadata()->Get(uoffset_t(i));
      std::string name = Text(entry->name());
      auto bytes = BufferBytes(entry->buffer());
      if (!bytes.ok()) continue;
      if (name == "TFLITE_METADATA") {
        tflite::ReadMetadata(*bytes, graph_.metadata);
      } else if (name == "min_runtime_version" || name == "reduced_precision_support") {
        std::string text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
        graph_.metadata[name] = text.substr(0, text.find('\0'));
      }
    }
  }

  Bytes bytes_;
  const TfliteOptions& options_;
  const OpDef* (*find_op_)(std::string_view);
  const tflite_schema::Model* model_ = nullptr;
  Graph graph_;
  std::map<ValueId, ValueId> dequantized_;
  int64_t visited_operators_ = 0;
};

}  // namespace

Result<Graph> ImportTflite(std::span<const std::byte> bytes, std::string name, std::shared_ptr<const void> file,
                           const TfliteOptions& options) {
  return TfliteImporter(bytes, std::move(name), std::move(file), options).Run();
}

Result<Graph> ImportTflite(std::shared_ptr<const MappedFile> file, const TfliteOptions& options) {
  Bytes bytes = file->bytes();
  std::string name = file->path();
  return ImportTflite(bytes, std::move(name), std::move(file), options);
}

Result<Graph> ImportTflite(const std::string& path, const TfliteOptions& options) {
  ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  return ImportTflite(std::move(file), options);
}

}  // namespace leeway
