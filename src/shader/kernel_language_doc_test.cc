// Runs the examples of docs/kernel-language.md.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/strings.h"
#include "shader/builtins.h"
#include "shader/interpret.h"
#include "shader/prelude.h"
#include "shader/value_map.h"
#include "tensor/address.h"

namespace leeway::shader {
namespace {

std::string ReadDoc() {
  std::ifstream file(LEEWAY_SOURCE_DIR "/docs/kernel-language.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Example {
  std::string kind, text;
  int line = 0;
};

std::vector<Example> Examples() {
  std::vector<Example> examples;
  std::stringstream doc(ReadDoc());
  std::string line;
  bool inside = false;
  for (int number = 1; std::getline(doc, line); ++number) {
    if (line.substr(0, 3) == "```") {
      if (!inside) examples.push_back({line.substr(3), "", number});
      inside = !inside;
    } else if (inside) {
      examples.back().text += line + "\n";
    }
  }
  return examples;
}

// `name[1, 2] = 3`, `name = {1, 2}`, `name[1, 2]`, separated by commas.
struct Item {
  std::string name;
  std::vector<double> in_brackets, values;
  bool has_brackets = false, is_list = false;
};

std::vector<Item> Items(std::string_view text) {
  std::vector<Item> items;
  std::stringstream in{std::string(text)};
  auto skip = [&] { in >> std::ws; };
  while (skip(), in.good() && in.peek() != EOF) {
    Item item;
    while (std::isalnum(in.peek()) || in.peek() == '_') item.name += char(in.get());
    skip();
    auto list = [&](char close, std::vector<double>& out) {
      in.get();
      while (skip(), in.peek() != close && in.good()) {
        double value = 0;
        in >> value;
        out.push_back(value);
        skip();
        if (in.peek() == ',') in.get();
      }
      in.get();
    };
    if (in.peek() == '[') {
      item.has_brackets = true;
      list(']', item.in_brackets);
      skip();
    }
    if (in.peek() == '=') {
      in.get();
      skip();
      if (in.peek() == '{') {
        item.is_list = true;
        list('}', item.values);
      } else {
        item.values.resize(1);
        in >> item.values[0];
      }
      skip();
    }
    items.push_back(std::move(item));
    if (in.peek() == ',')
      in.get();
    else
      break;
  }
  return items;
}

// What follows `// WORD` in its line; empty if there is none.
std::string Directive(const std::string& text, const char* word) {
  std::string mark = StrCat("// ", word, " ");
  size_t at = text.find(mark);
  if (at == std::string::npos) return "";
  at += mark.size();
  return text.substr(at, text.find('\n', at) - at);
}

struct Setup {
  Module module;
  Specialization specialization;
  Target target;
  uint32_t workgroups[3] = {1, 1, 1};
  std::vector<std::byte> params;
};

Result<Setup> Prepare(const Example& example) {
  Setup setup;
  ASSIGN_OR_RETURN(setup.module, Parse(example.text, "example"));
  if (example.text.find("subgroup_matrix") != std::string::npos) {
    setup.target.f16 = setup.target.subgroups = setup.target.subgroup_matrix = true;
    setup.target.subgroup_min = setup.target.subgroup_max = 32;
  }
  setup.params.resize(256);
  for (const Item& item : Items(Directive(example.text, "with"))) {
    bool is_param = false;
    uint32_t offset = 0;
    for (const ParamDecl& p : setup.module.params) {
      if (p.name == item.name) {
        uint32_t value = uint32_t(item.values[0]);
        std::memcpy(&setup.params[offset], &value, 4);
        is_param = true;
      }
      offset += 4;
    }
    if (is_param) continue;
    if (item.has_brackets) {
      VirtualTensor tensor;
      std::vector<int64_t> extents(item.in_brackets.begin(), item.in_brackets.end());
      tensor.shape = Shape(std::span<const int64_t>(extents));
      DType dtype = DType::kF32;
      for (const TensorDecl& t : setup.module.tensors) {
        if (t.name == item.name && t.value != Scalar::kF32) dtype = t.value == Scalar::kI32 ? DType::kI32 : DType::kU32;
      }
      ASSIGN_OR_RETURN(tensor.placement, PlaceTensor(tensor.shape, dtype, Layout::kPadded4, Storage::kBuffer, {}));
      setup.specialization.tensors.emplace(item.name, std::move(tensor));
    } else if (item.name == "workgroups") {
      for (size_t i = 0; i < item.values.size(); ++i) setup.workgroups[i] = uint32_t(item.values[i]);
    } else if (item.is_list) {
      setup.specialization.consts.emplace(item.name, ConstValue(item.values));
    } else {
      setup.specialization.consts.emplace(item.name, ConstValue(item.values[0]));
    }
  }
  return setup;
}

TEST(KernelLanguageDoc, ExamplesRun) {
  int count = 0;
  for (const Example& example : Examples()) {
    if (example.kind != "kernel") continue;
    ++count;
    SCOPED_TRACE(StrCat("docs/kernel-language.md:", example.line));
    auto setup = Prepare(example);
    ASSERT_TRUE(setup.ok()) << setup.error().message;
    auto kernel = Bind(setup->module, setup->specialization, setup->target);
    ASSERT_TRUE(kernel.ok()) << kernel.error().message;

    std::map<std::string, std::vector<std::byte>> storage;
    InterpretMemory memory;
    memory.params = setup->params;
    for (const auto& [name, tensor] : kernel->tensors) {
      HostTensor host(tensor.placement.dtype, tensor.shape);
      for (int64_t i = 0; i < host.element_count(); ++i) host.Set(i, double(i));
      storage[name] = PackForStorage(host, tensor.placement);
      memory.tensors[name] = storage[name];
    }
    InterpretOptions options;
    if (setup->target.subgroup_min > 0) options.subgroup_size = setup->target.subgroup_min;
    auto result = Interpret(*kernel, setup->workgroups, memory, options);
    ASSERT_TRUE(result.ok()) << result.error().message;
    for (const Fault& fault : result->faults) ADD_FAILURE() << fault.message;

    std::vector<Item> expected = Items(Directive(example.text, "gives"));
    EXPECT_FALSE(expected.empty());
    for (const Item& item : expected) {
      const VirtualTensor& tensor = kernel->tensors.at(item.name);
      HostTensor host = UnpackFromStorage(storage[item.name], tensor.placement, tensor.placement.dtype);
      int64_t index = 0;
      ASSERT_EQ(int(item.in_brackets.size()), tensor.shape.rank());
      for (int axis = 0; axis < tensor.shape.rank(); ++axis) {
        index = index * tensor.shape[axis] + int64_t(item.in_brackets[size_t(axis)]);
      }
      EXPECT_NEAR(host.Get(index), item.values[0], 2e-5 * std::max(1e-3, std::abs(item.values[0])))
          << item.name << " " << index;
    }
    // The text of the tree is a kernel of the same meaning.
    auto again = Parse(Format(setup->module), "example");
    ASSERT_TRUE(again.ok()) << again.error().message;
    auto bound_again = Bind(*again, setup->specialization, setup->target);
    ASSERT_TRUE(bound_again.ok()) << bound_again.error().message;
    EXPECT_EQ(Format(bound_again->module), Format(kernel->module));
  }
  EXPECT_GE(count, 7);
}

TEST(KernelLanguageDoc, ErrorsReadAsWritten) {
  int count = 0;
  for (const Example& example : Examples()) {
    if (example.kind != "kernel-error") continue;
    ++count;
    auto setup = Prepare(example);
    ASSERT_TRUE(setup.ok()) << setup.error().message;
    auto kernel = Bind(setup->module, setup->specialization, setup->target);
    ASSERT_FALSE(kernel.ok()) << example.line;
    EXPECT_EQ(kernel.error().message, StrCat("example.kernel:", Directive(example.text, "error:"))) << example.line;
  }
  EXPECT_GE(count, 2);
}

TEST(KernelLanguageDoc, ValueMapsInstantiate) {
  int count = 0;
  for (const Example& example : Examples()) {
    if (example.kind != "value-map") continue;
    ++count;
    ValueMap map;
    map.text = example.text;
    for (const Item& item : Items(Directive(example.text, "with"))) {
      if (item.name == "operands")
        map.operands.resize(size_t(item.values[0]));
      else
        map.consts[item.name] = item.values[0];
    }
    for (bool is_vector : {false, true}) {
      auto module = InstantiateValueMap(map, is_vector, "f", {}, "example");
      EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().message);
    }
  }
  EXPECT_GE(count, 1);
}

TEST(KernelLanguageDoc, NamesEveryFunction) {
  std::string doc = ReadDoc();
  for (const BuiltinInfo& info : AllBuiltins()) {
    EXPECT_NE(doc.find(StrCat("`", info.name, "`")), std::string::npos) << info.name;
  }
  for (const Function& f : Prelude().functions) {
    bool is_there =
        doc.find(StrCat("`", f.name, "`")) != std::string::npos || doc.find(StrCat("`", f.name, "(")) != std::string::npos;
    EXPECT_TRUE(is_there) << f.name;
  }
}

}  // namespace
}  // namespace leeway::shader
