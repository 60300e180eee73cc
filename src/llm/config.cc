#include "llm/config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/strings.h"
#include "llm/models/graph_builder.h"

namespace leeway::llm {

const HostTensor* LlmModel::Find(std::string_view name) const {
  auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : found->second.get();
}

// ---- Files ----

namespace {

bool Append(const nlohmann::json& item, MetaValue& value) {
  if (item.is_boolean()) {
    value.numbers.push_back(item.get<bool>() ? 1 : 0);
  } else if (item.is_number()) {
    value.numbers.push_back(item.get<double>());
  } else if (item.is_string()) {
    value.texts.push_back(item.get<std::string>());
  } else {
    return false;
  }
  return true;
}

// Nulls are absent settings; lists of anything else are no settings of the network.
void Flatten(const nlohmann::json& object, const std::string& prefix, std::map<std::string, MetaValue>& out) {
  for (const auto& [key, item] : object.items()) {
    MetaValue value;
    if (item.is_object()) {
      Flatten(item, StrCat(prefix, key, "."), out);
    } else if (item.is_array()) {
      value.is_list = true;
      if (std::all_of(item.begin(), item.end(), [&](const nlohmann::json& one) { return Append(one, value); }))
        out[prefix + key] = std::move(value);
    } else if (Append(item, value)) {
      out[prefix + key] = std::move(value);
    }
  }
}

}  // namespace

Result<std::map<std::string, MetaValue>> MetadataFromJson(std::string_view text, const std::string& path) {
  const nlohmann::json parsed = nlohmann::json::parse(text, nullptr, false);
  if (!parsed.is_object())
    return Error{Code::kInvalidModel, StrCat("The file ", path, " is no JSON object; a model's configuration is one.")};
  const bool has_part = parsed.contains("text_config") && parsed["text_config"].is_object();
  std::map<std::string, MetaValue> metadata;
  Flatten(has_part ? parsed["text_config"] : parsed, "", metadata);
  return metadata;
}

// ---- ConfigReader ----

ConfigReader::ConfigReader(const ModelFile& file, std::string_view architecture)
    : file_(file), prefix_(StrCat(architecture, ".")) {}

const MetaValue* ConfigReader::Find(const char* gguf, const char* json) const {
  const char* name = is_gguf() ? gguf : json;
  if (name == nullptr) return nullptr;
  auto found = file_.metadata.find(is_gguf() ? prefix_ + name : std::string(name));
  return found == file_.metadata.end() ? nullptr : &found->second;
}

std::string ConfigReader::NameOf(const char* gguf, const char* json) const {
  return is_gguf() ? StrCat("\"", prefix_, gguf ? gguf : "", "\"") : StrCat("\"", json ? json : "", "\"");
}

void ConfigReader::Refuse(std::string what) {
  if (status_.ok()) status_ = Error{Code::kInvalidModel, StrCat(file_.path, ": ", what)};
}

double ConfigReader::Number(const char* gguf, const char* json) {
  const MetaValue* value = Find(gguf, json);
  if (value == nullptr) {
    Refuse(StrCat("The setting ", NameOf(gguf, json), " is missing."));
    return 0;
  }
  if (value->is_list || value->numbers.size() != 1 || !std::isfinite(value->numbers[0])) {
    Refuse(StrCat("The setting ", NameOf(gguf, json), " is expected to be one finite number."));
    return 0;
  }
  return value->numbers[0];
}

double ConfigReader::Number(const char* gguf, const char* json, double fallback) {
  return Find(gguf, json) == nullptr ? fallback : Number(gguf, json);
}

int64_t ConfigReader::Int(const char* gguf, const char* json) {
  const double number = Number(gguf, json);
  if (number != std::floor(number) || std::fabs(number) > 1e15) {
    Refuse(StrCat("The setting ", NameOf(gguf, json), " is ", number, "; a whole number is expected."));
    return 0;
  }
  return int64_t(number);
}

int64_t ConfigReader::Int(const char* gguf, const char* json, int64_t fallback) {
  return Find(gguf, json) == nullptr ? fallback : Int(gguf, json);
}

std::string ConfigReader::Text(const char* gguf, const char* json, std::string_view fallback) {
  const MetaValue* value = Find(gguf, json);
  if (value == nullptr) return std::string(fallback);
  if (value->is_list || value->texts.size() != 1) {
    Refuse(StrCat("The setting ", NameOf(gguf, json), " is expected to be a text."));
    return std::string(fallback);
  }
  return value->texts[0];
}

std::vector<std::string> ConfigReader::Texts(const char* gguf, const char* json) {
  const MetaValue* value = Find(gguf, json);
  if (value == nullptr) return {};
  if (!value->numbers.empty()) Refuse(StrCat("The setting ", NameOf(gguf, json), " is expected to be a list of texts."));
  return value->texts;
}

std::vector<int64_t> ConfigReader::PerLayer(const char* gguf, const char* json, int64_t layers, int64_t fallback) {
  const MetaValue* value = Find(gguf, json);
  if (value == nullptr || !value->is_list) {
    if (value == nullptr && fallback < 0) Refuse(StrCat("The setting ", NameOf(gguf, json), " is missing."));
    return std::vector<int64_t>(size_t(layers), Int(gguf, json, fallback));
  }
  if (int64_t(value->numbers.size()) != layers || !value->texts.empty()) {
    Refuse(StrCat("The setting ", NameOf(gguf, json), " has ", value->numbers.size(), " numbers; the model has ", layers,
                  " layers."));
    return std::vector<int64_t>(size_t(layers), 0);
  }
  std::vector<int64_t> numbers;
  for (double number : value->numbers) {
    if (number != std::floor(number) || std::fabs(number) > 1e15) {
      Refuse(StrCat("The setting ", NameOf(gguf, json), " has the number ", number, "; whole numbers are expected."));
      number = 0;
    }
    numbers.push_back(int64_t(number));
  }
  return numbers;
}

void ConfigReader::Expect(const char* gguf, const char* json, double value) {
  if (Find(gguf, json) == nullptr) return;
  if (const double got = Number(gguf, json); status_.ok() && got != value) {
    status_ = Error{Code::kUnsupported, StrCat(file_.path, ": The setting ", NameOf(gguf, json), " is ", got,
                                               "; models where it is not ", value, " are not supported.")};
  }
}

// ---- What families share ----

ModelConfig ReadCommonConfig(ConfigReader& reader, const char* architecture) {
  ModelConfig config;
  config.architecture = architecture;
  if (auto name = reader.file().metadata.find("general.name");
      name != reader.file().metadata.end() && !name->second.texts.empty())
    config.name = name->second.texts[0];
  auto positive = [&](const char* what, int64_t number, int64_t most) {
    if (number >= 1 && number <= most) return number;
    reader.Refuse(StrCat("The model has ", number, " ", what, "; 1 to ", most, " are expected."));
    return int64_t(1);
  };
  config.width = positive("hidden channels", reader.Int("embedding_length", "hidden_size"), 1 << 20);
  const int64_t layers = positive("layers", reader.Int("block_count", "num_hidden_layers"), 4096);
  config.context = positive("positions of context", reader.Int("context_length", "max_position_embeddings"), 1ll << 30);
  config.epsilon = reader.Number("attention.layer_norm_rms_epsilon", "rms_norm_eps");
  if (!(config.epsilon >= 0)) reader.Refuse(StrCat("The epsilon of norms is ", config.epsilon, "."));
  // The table of embeddings says how many tokens there are; files need not.
  for (const char* name : {"token_embd.weight", "model.embed_tokens.weight"}) {
    auto table = reader.file().tensors.find(name);
    if (table != reader.file().tensors.end() && table->second->shape().rank() == 2)
      config.vocabulary = table->second->shape()[0];
  }
  if (config.vocabulary == 0) reader.Refuse("The model has no table of token embeddings.");
  if (const int64_t said = reader.Int("vocab_size", "vocab_size", config.vocabulary); said != config.vocabulary)
    reader.Refuse(
        StrCat("The vocabulary is ", said, " by the settings, and the table of embeddings has ", config.vocabulary, " rows."));
  const std::vector<int64_t> heads = reader.PerLayer("attention.head_count", "num_attention_heads", layers, -1);
  const std::vector<int64_t> kv_heads =
      reader.PerLayer("attention.head_count_kv", "num_key_value_heads", layers, heads.empty() ? 1 : heads[0]);
  const std::vector<int64_t> inner = reader.PerLayer("feed_forward_length", "intermediate_size", layers, -1);
  const int64_t head_size = positive(
      "channels per head", reader.Int("attention.key_length", "head_dim", heads[0] > 0 ? config.width / heads[0] : 0), 1 << 16);
  if (const int64_t values = reader.Int("attention.value_length", nullptr, head_size); values != head_size)
    reader.Refuse(StrCat("Keys have ", head_size, " channels and values ", values, "; they are expected to be equal."));
  if (head_size % 2 != 0) reader.Refuse(StrCat("Heads have ", head_size, " channels; an even number is expected."));
  for (int64_t l = 0; l < layers; ++l) {
    LayerConfig layer{.heads = positive("heads", heads[size_t(l)], 1 << 16),
                      .kv_heads = positive("heads of keys", kv_heads[size_t(l)], 1 << 16),
                      .head_size = head_size,
                      .inner = positive("channels in the feed-forward block", inner[size_t(l)], 1 << 24),
                      .kv_layer = int(l)};
    if (layer.heads % layer.kv_heads != 0) {
      reader.Refuse(StrCat("Layer ", l, " has ", layer.heads, " heads for ", layer.kv_heads,
                           " heads of keys; a whole number for each is expected."));
    }
    config.layers.push_back(layer);
  }
  RopeConfig rope;
  rope.base = reader.Number("rope.freq_base", "rope_theta", 10000);
  if (!(rope.base > 0)) reader.Refuse(StrCat("The base of the rope is ", rope.base, "."));
  rope.rotated = reader.Int("rope.dimension_count", nullptr, head_size);
  if (rope.rotated < 2 || rope.rotated > head_size || rope.rotated % 2 != 0)
    reader.Refuse(StrCat("The rope turns ", rope.rotated, " of ", head_size, " channels; an even number of them is expected."));
  if (reader.status().ok()) rope.factors = ReadRopeFactors(reader, rope.base, rope.rotated);
  config.ropes.push_back(std::move(rope));
  return config;
}

std::vector<double> ReadRopeFactors(ConfigReader& reader, double base, int64_t rotated) {
  const size_t pairs = size_t(rotated / 2);
  if (reader.is_gguf()) {
    std::vector<double> factors;
    const std::string kind = reader.Text("rope.scaling.type", nullptr, "none");
    if (kind == "linear") {
      factors.assign(pairs, reader.Number("rope.scaling.factor", nullptr, 1));
    } else if (kind != "none") {
      reader.Refuse(StrCat("The rope is scaled by \"", kind, "\"; none and linear are known."));
    }
    auto tensor = reader.file().tensors.find("rope_freqs.weight");
    if (tensor == reader.file().tensors.end()) return factors;
    const HostTensor& given = *tensor->second;
    if (given.shape() != Shape{int64_t(pairs)} || given.dtype() != DType::kF32) {
      reader.Refuse(StrCat("The tensor \"rope_freqs.weight\" is ", DTypeName(given.dtype()), given.shape().ToString(), "; f32[",
                           pairs, "] is expected."));
      return {};
    }
    if (factors.empty()) factors.assign(pairs, 1.0);
    for (size_t i = 0; i < pairs; ++i) {
      factors[i] *= given.Get(int64_t(i));
      if (!(factors[i] > 0)) reader.Refuse(StrCat("The tensor \"rope_freqs.weight\" has the divisor ", factors[i], "."));
    }
    return factors;
  }
  const std::string kind = reader.Text(nullptr, "rope_scaling.rope_type", reader.Text(nullptr, "rope_scaling.type", "default"));
  if (kind == "default") return {};
  const double factor = reader.Number(nullptr, "rope_scaling.factor");
  if (!(factor > 0)) reader.Refuse(StrCat("The setting \"rope_scaling.factor\" is ", factor, "."));
  if (kind == "linear") return std::vector<double>(pairs, factor);
  if (kind != "llama3") {
    reader.Refuse(StrCat("The rope is scaled by \"", kind, "\"; default, linear and llama3 are known."));
    return {};
  }
  // Frequencies whose wave is long against the original context are divided, short ones are not, between them by share.
  const double low = reader.Number(nullptr, "rope_scaling.low_freq_factor"),
               high = reader.Number(nullptr, "rope_scaling.high_freq_factor"),
               original = reader.Number(nullptr, "rope_scaling.original_max_position_embeddings");
  if (!(high > low))
    reader.Refuse(StrCat("The rope's high_freq_factor ", high, " is not above its low_freq_factor ", low, "."));
  std::vector<double> factors;
  for (size_t i = 0; i < pairs; ++i) {
    const double wave = 2 * std::numbers::pi * std::pow(base, double(i) / double(pairs));
    const double kept = std::clamp((original / wave - low) / (high - low), 0.0, 1.0);
    factors.push_back(1 / ((1 - kept) / factor + kept));
  }
  return factors;
}

// ---- MakeModel ----

namespace {

// Names of safetensors that all families share; a leading "model." is taken off first.
constexpr TensorName kSharedNames[] = {
    {"embed_tokens.weight", "token_embd.weight"},
    {"norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"layers.*.input_layernorm.weight", "blk.*.attn_norm.weight"},
    {"layers.*.self_attn.q_proj.weight", "blk.*.attn_q.weight"},
    {"layers.*.self_attn.k_proj.weight", "blk.*.attn_k.weight"},
    {"layers.*.self_attn.v_proj.weight", "blk.*.attn_v.weight"},
    {"layers.*.self_attn.o_proj.weight", "blk.*.attn_output.weight"},
    {"layers.*.self_attn.q_norm.weight", "blk.*.attn_q_norm.weight"},
    {"layers.*.self_attn.k_norm.weight", "blk.*.attn_k_norm.weight"},
    {"layers.*.mlp.gate_proj.weight", "blk.*.ffn_gate.weight"},
    {"layers.*.mlp.up_proj.weight", "blk.*.ffn_up.weight"},
    {"layers.*.mlp.down_proj.weight", "blk.*.ffn_down.weight"},
};

// `name` by `map`, with the number in the place of the star; empty where the pattern does not fit.
std::string Renamed(std::string_view name, const TensorName& map) {
  const std::string_view from = map.safetensors, to = map.gguf;
  const size_t star = from.find('*');
  if (star == std::string_view::npos) return name == from ? std::string(to) : std::string();
  const std::string_view head = from.substr(0, star), tail = from.substr(star + 1);
  if (name.size() <= head.size() + tail.size() || !name.starts_with(head) || !name.ends_with(tail)) return {};
  const std::string_view number = name.substr(head.size(), name.size() - head.size() - tail.size());
  if (number.find_first_not_of("0123456789") != std::string_view::npos) return {};
  const size_t to_star = to.find('*');
  return StrCat(to.substr(0, to_star), number, to.substr(to_star + 1));
}

std::string GgufName(const Family& family, std::string_view name) {
  for (std::string_view prefix : {"language_model.model.", "model.language_model.", "model."}) {
    if (!name.starts_with(prefix)) continue;
    name.remove_prefix(prefix.size());
    break;
  }
  for (std::span<const TensorName> names : {family.names, std::span<const TensorName>(kSharedNames)}) {
    for (const TensorName& map : names) {
      if (std::string renamed = Renamed(name, map); !renamed.empty()) return renamed;
    }
  }
  return {};
}

std::shared_ptr<const HostTensor> PlusOne(const HostTensor& tensor) {
  std::vector<float> values = tensor.ToF32();
  for (float& value : values) value += 1;
  return std::make_shared<const HostTensor>(HostTensor::FromF32(tensor.shape(), values));
}

Result<const Family*> FamilyOf(const ModelFile& file) {
  std::string known;
  const bool is_gguf = file.format == ModelFile::Format::kGguf;
  const char* key = is_gguf ? "general.architecture" : "model_type";
  auto found = file.metadata.find(key);
  if (found == file.metadata.end() || found->second.texts.size() != 1)
    return Error{Code::kInvalidModel, StrCat(file.path, ": The setting \"", key, "\" is missing or no text.")};
  const std::string& name = found->second.texts[0];
  for (const Family* family : AllFamilies()) {
    if (is_gguf ? name == family->architecture
                : std::find(family->model_types.begin(), family->model_types.end(), name) != family->model_types.end())
      return family;
    known += StrCat(known.empty() ? "" : ", ", family->architecture);
  }
  return Error{Code::kUnsupported,
               StrCat(file.path, ": The architecture is \"", name, "\"; those that are supported are ", known, ".")};
}

}  // namespace

Result<LlmModel> MakeModel(ModelFile file) {
  ASSIGN_OR_RETURN(const Family* family, FamilyOf(file));
  ConfigReader reader(file, family->architecture);
  LlmModel model;
  model.config = ReadCommonConfig(reader, family->architecture);
  RETURN_IF_ERROR(reader.status());
  family->read(reader, model.config);
  RETURN_IF_ERROR(reader.status());
  model.keep_alive = file.keep_alive;
  for (const auto& [name, tensor] : file.tensors) {
    if (reader.is_gguf()) {
      if (name != "rope_freqs.weight") model.tensors.emplace(name, tensor);
      continue;
    }
    if (name.ends_with(".rotary_emb.inv_freq")) continue;  // follows from the settings
    const std::string renamed = GgufName(*family, name);
    if (renamed.empty())
      return Error{Code::kInvalidModel,
                   StrCat(file.path, ": Architecture ", family->architecture, " has no tensor \"", name, "\".")};
    const bool lacks_one = family->norms_lack_one && renamed.ends_with("norm.weight");
    model.tensors.emplace(renamed, lacks_one ? PlusOne(*tensor) : tensor);
  }
  const HostTensor *head = model.Find("output.weight"), *table = model.Find("token_embd.weight");
  if (head != nullptr && table != nullptr && reader.Int(nullptr, "tie_word_embeddings", 0) != 0) {
    if (head->dtype() != table->dtype() || !std::ranges::equal(head->bytes(), table->bytes())) {
      return Error{Code::kInvalidModel,
                   StrCat(file.path,
                          ": The setting \"tie_word_embeddings\" says that the head is the table of embeddings, and "
                          "the file has another head.")};
    }
    model.tensors.erase("output.weight");
  }
  // A graph finds what is missing or misshapen; nothing of a tensor's bytes is touched.
  GraphBuilder builder(model, {.rows = 1, .context = 1, .max_rows = 1, .logits = true});
  family->build(builder);
  RETURN_IF_ERROR_CONTEXT(builder.status(), StrCat("in ", file.path));
  for (const auto& [name, tensor] : model.tensors) {
    if (!builder.used_tensors().count(name))
      return Error{Code::kInvalidModel,
                   StrCat(file.path, ": Architecture ", family->architecture, " has no tensor \"", name, "\".")};
  }
  return model;
}

}  // namespace leeway::llm
