// Language models as their files describe them: sizes and rules of the network, and the tensors by one set of names.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/host_tensor.h"

namespace leeway {
class LlmFile;
}

namespace leeway::llm {

// A value of a file's metadata: numbers (bools as 0 and 1) or texts, one or a list.
struct MetaValue {
  std::vector<double> numbers;
  std::vector<std::string> texts;
  bool is_list = false;
};

// What a model is made from, whatever the file: GGUF with its metadata, or safetensors with config.json, whose objects inside
// of objects are named by paths ("rope_scaling.factor").
struct ModelFile {
  enum class Format : uint8_t { kGguf, kSafetensors } format = Format::kGguf;
  std::string path;
  std::map<std::string, MetaValue> metadata;
  std::map<std::string, std::shared_ptr<const HostTensor>> tensors;  // by the file's names
  std::shared_ptr<const void> keep_alive;
};
// Views of the file's tensors, and its metadata without the vocabulary. (model_file.cc)
Result<ModelFile> ModelFileOf(std::shared_ptr<const LlmFile> file);
// Metadata from the text of a config.json; a text part of a larger model ("text_config") is taken for the whole.
Result<std::map<std::string, MetaValue>> MetadataFromJson(std::string_view text, const std::string& path);

struct RopeConfig {
  double base = 10000;
  int64_t rotated = 0;          // elements of a head that are rotated
  bool interleaved = false;     // pairs are neighbours
  std::vector<double> factors;  // frequency i is divided by factors[i]; empty: by 1
  bool operator==(const RopeConfig&) const = default;
};

struct LayerConfig {
  int64_t heads = 0, kv_heads = 0, head_size = 0;
  int64_t inner = 0;   // width of the feed-forward block
  int64_t window = 0;  // positions that attention sees; 0: all
  int rope = 0;        // of ModelConfig::ropes
  int kv_layer = 0;    // the layer whose cache it reads: its own, or an earlier one's
  bool operator==(const LayerConfig&) const = default;
};

enum class Activation : uint8_t { kSilu, kGeluTanh };

struct ModelConfig {
  std::string architecture;  // as GGUF names it
  std::string name;          // of the model; may be empty
  int64_t width = 0, vocabulary = 0;
  int64_t context = 0;  // that it was trained for
  double epsilon = 1e-6;
  double embedding_scale = 1;
  double score_scale = 1;
  double score_softcap = 0, logit_softcap = 0;  // 0: none
  Activation activation = Activation::kSilu;
  bool has_head_norms = false;  // queries and keys of each head are normed
  std::vector<LayerConfig> layers;
  std::vector<RopeConfig> ropes;
};

// A model that can be built: tensors have the names and contents of GGUF files of its architecture.
struct LlmModel {
  ModelConfig config;
  std::map<std::string, std::shared_ptr<const HostTensor>, std::less<>> tensors;
  std::shared_ptr<const void> keep_alive;

  const HostTensor* Find(std::string_view name) const;
  // Logits come from the table of embeddings.
  bool has_tied_head() const { return Find("output.weight") == nullptr; }
};

// Refuses, by name: unknown architectures; metadata that is missing or contradicts itself or the tensors; tensors that are
// missing, of another shape, or not known to the architecture, so that nothing that a file says is left out in silence.
Result<LlmModel> MakeModel(ModelFile file);

}  // namespace leeway::llm
