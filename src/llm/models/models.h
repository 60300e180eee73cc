// Graphs of language models. A family is one file here that registers itself in the table of models.cc: how its metadata is
// read, how its tensors are called, and how a layer is put together from the blocks of graph_builder.h.
#pragma once

#include "graph/graph.h"
#include "llm/config.h"

namespace leeway::llm {

// What a graph is built for. All graphs of one session have the same context and max_rows, and so the same states.
struct StageShape {
  int64_t rows = 1;      // of a run: 1 for decode, more for prefill
  int64_t context = 0;   // positions that there is room for
  int64_t max_rows = 1;  // of the largest stage that shares the states
  bool logits = false;   // an output "logits" f32[1, vocabulary], of the last valid row
  bool sample = false;   // the operator `sample` chooses the next token
};

// The states of a graph (graph.h), by name; k and v only for layers with a cache of their own:
//   step       i32[8]            (ops/step.h)
//   tokens     i32[context + 1]
//   sampler    f32[16]           (ops/sample.h) where the stage samples; never changed by it
//   k.<layer>  f32[kv_heads, slots, head_size], v.<layer>
// Inputs and outputs are the states in this order, "logits" the first output where it is asked for. Without logits and sample
// the last layer ends with its cache.
Result<Graph> BuildGraph(const LlmModel& model, const StageShape& shape);

// Slots of a layer's cache: the context, or a ring for its window.
int64_t CacheSlots(const LayerConfig& layer, const StageShape& shape);

// ---- For families ----

class GraphBuilder;

// Reads metadata by the names of both formats; the first thing that is wrong is kept and all later answers are fallbacks.
class ConfigReader {
 public:
  ConfigReader(const ModelFile& file, std::string_view architecture);
  bool is_gguf() const { return file_.format == ModelFile::Format::kGguf; }
  const ModelFile& file() const { return file_; }
  // `gguf` is without the architecture's prefix; null: the format has no such name.
  bool Has(const char* gguf, const char* json) const { return Find(gguf, json) != nullptr; }
  int64_t Int(const char* gguf, const char* json);                    // must be there
  int64_t Int(const char* gguf, const char* json, int64_t fallback);  // or not
  double Number(const char* gguf, const char* json);
  double Number(const char* gguf, const char* json, double fallback);
  std::string Text(const char* gguf, const char* json, std::string_view fallback);
  // One number for each layer: a list of that length, or one for all.
  std::vector<int64_t> PerLayer(const char* gguf, const char* json, int64_t layers, int64_t fallback);
  std::vector<std::string> Texts(const char* gguf, const char* json);  // empty where absent
  // Refuses, with the file's path put before.
  void Refuse(std::string what);
  // A setting that would change the result and is not known here must have the value that changes nothing.
  void Expect(const char* gguf, const char* json, double value);
  const Status& status() const { return status_; }

 private:
  const MetaValue* Find(const char* gguf, const char* json) const;
  std::string NameOf(const char* gguf, const char* json) const;
  const ModelFile& file_;
  std::string prefix_;
  Status status_;
};

// Sizes that all families have: width, layers with heads and inner widths, context, epsilon, vocabulary. One rope, full
// attention.
ModelConfig ReadCommonConfig(ConfigReader& reader, const char* architecture);
// Divisors of frequencies: the tensor rope_freqs.weight, or from config.json's rope_scaling ("llama3", "linear"), or none.
std::vector<double> ReadRopeFactors(ConfigReader& reader, double base, int64_t rotated);

struct TensorName {
  const char* safetensors;  // with * for the number of the layer: "layers.*.self_attn.q_proj.weight"
  const char* gguf;         // "blk.*.attn_q.weight"
};

struct Family {
  const char* architecture = "";                  // GGUF's general.architecture
  std::span<const char* const> model_types = {};  // config.json's model_type
  std::span<const TensorName> names = {};         // beyond those that all families share
  // The sums that every layer adds to exceed what halves hold: with activations stored in f16 these are f32 all the same.
  bool has_large_residuals = false;
  bool int8_by_default = false;                                       // decoding with activations in 8 bits passes its gate
  bool norms_lack_one = false;                                        // safetensors store norm weights minus 1, GGUF does not
  void (*read)(ConfigReader& reader, ModelConfig& config) = nullptr;  // after ReadCommonConfig
  void (*build)(GraphBuilder& builder) = nullptr;
};
// Whether a value of the family's graphs is stored in f32 whatever the precision.
bool KeepsF32(const Family& family, std::string_view value);
std::span<const Family* const> AllFamilies();
const Family* FindFamily(std::string_view architecture);

}  // namespace leeway::llm
