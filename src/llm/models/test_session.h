// For tests: a session on the CPU references. States by name, and runs of graphs that share them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "llm/models/models.h"
#include "ops/evaluate.h"
#include "ops/sample.h"
#include "ops/step.h"

namespace leeway::llm {

class TestSession {
 public:
  TestSession(const LlmModel& model, StageShape shape) : model_(model), shape_(shape) {
    states_["tokens"] = HostTensor(DType::kI32, {shape.context + 1});
    states_["step"] = HostTensor(DType::kI32, {kStepElements});
    SetSampler({});
  }
  void SetSampler(const SamplerSettings& settings) {
    states_["sampler"] = HostTensor::FromF32({kSamplerElements}, SamplerValues(settings));
  }
  void SetTokens(const std::vector<int>& ids, int64_t at = 0) {
    for (size_t i = 0; i < ids.size(); ++i) states_["tokens"].Set(at + int64_t(i), ids[i]);
  }
  int Token(int64_t position) const { return int(states_.at("tokens").Get(position)); }
  const HostTensor& state(const std::string& name) const { return states_.at(name); }

  // One run; the logits, where the stage has some.
  std::vector<float> Run(int64_t position, int64_t count, int64_t rows, bool logits, bool sample = false,
                         const std::function<void(Graph&)>& change = {}) {
    StageShape shape = shape_;
    shape.rows = rows, shape.logits = logits, shape.sample = sample;
    auto graph = BuildGraph(model_, shape);
    if (!graph.ok()) {
      ADD_FAILURE() << graph.error().message;
      return {};
    }
    if (const Status status = Verify(*graph); !status.ok()) ADD_FAILURE() << status.error().message << Format(*graph);
    if (change) change(*graph);
    if (position >= 0) {
      states_["step"].Set(0, double(position));
      states_["step"].Set(1, double(count));
    }
    std::vector<HostTensor> inputs;
    for (ValueId id : graph->inputs) {
      const Value& value = graph->value(id);
      auto known = states_.find(value.name);
      inputs.push_back(known == states_.end() ? HostTensor(value.type.dtype, value.type.shape) : std::move(known->second));
    }
    auto outputs = Evaluate(*graph, inputs);
    if (!outputs.ok()) {
      ADD_FAILURE() << outputs.error().message;
      return {};
    }
    size_t next = 0;
    std::vector<float> result;
    if (logits) result = (*outputs)[next++].ToF32();
    for (const GraphState& state : graph->states) states_[state.name] = std::move((*outputs)[next++]);
    return result;
  }

  // The prompt in chunks; the logits after its last token.
  std::vector<float> Prefill(const std::vector<int>& ids, int64_t chunk) {
    SetTokens(ids);
    std::vector<float> logits;
    for (int64_t at = 0; at < int64_t(ids.size()); at += chunk) {
      const int64_t count = std::min<int64_t>(chunk, int64_t(ids.size()) - at);
      logits = Run(at, count, chunk, at + count == int64_t(ids.size()));
    }
    return logits;
  }

 private:
  const LlmModel& model_;
  StageShape shape_;
  std::map<std::string, HostTensor> states_;
};

inline int Best(const std::vector<float>& logits) {
  return int(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace leeway::llm
