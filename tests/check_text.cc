#include "check_text.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/strings.h"

namespace leeway::shader {

namespace {

// Gone at the end of the scope.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / "leeway-texts-XXXXXX") {
    if (!mkdtemp(path_.data())) path_.clear();
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Outcome {
  bool ok = false;
  std::string output;
};
Outcome RunCommand(const std::string& command, const std::string& folder) {
  Outcome outcome;
  outcome.ok = std::system(StrCat("cd ", folder, " && ", command, " >output.txt 2>&1").c_str()) == 0;
  std::ifstream file(folder + "/output.txt");
  std::stringstream text;
  text << file.rdbuf();
  outcome.output = text.str();
  return outcome;
}

const char* ToolFor(Language language) {
  switch (language) {
    case Language::kWgsl: return nullptr;
    case Language::kOpenClC: return "clang-15";
    case Language::kGlslEs: return "glslangValidator";
    case Language::kMsl: return "clang-15";
  }
  return nullptr;
}

// The device's extension list: none but these, so that what is used without being asked for is noticed.
constexpr char kOpenClC[] =
    "clang-15 -x cl -cl-std=CL3.0 -target spir64-unknown-unknown -Xclang -cl-ext=-all,+cl_khr_fp16,+cl_khr_subgroups,"
    "+__opencl_c_subgroups,+__opencl_c_images,+__opencl_c_3d_image_writes,+cl_khr_3d_image_writes,+cl_khr_subgroup_ballot,"
    "+cl_khr_subgroup_shuffle,+cl_khr_subgroup_shuffle_relative,+cl_khr_subgroup_non_uniform_arithmetic,"
    "+cl_khr_integer_dot_product -Wall -Werror -Wno-unused -Wno-self-assign -Wno-tautological-compare -Wno-unknown-pragmas "
    "-Wno-ignored-pragmas -fsyntax-only";
constexpr char kMsl[] =
    "clang-15 -x clcpp -cl-std=CLC++2021 -cl-no-stdinc -Xclang -cl-ext=-all,+cl_khr_fp16,"
    "+__cl_clang_non_portable_kernel_param_types,+__opencl_c_generic_address_space -Wall -Werror -Wno-unknown-attributes "
    "-Wno-unused -Wno-self-assign -Wno-tautological-compare -fsyntax-only -I" LEEWAY_SOURCE_DIR "/tests/metal/msl";

Status Failure(std::span<const KernelText> texts, const std::string& output) {
  std::string message = output;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (output.find(StrCat("k", i, ".")) == std::string::npos) continue;
    message += StrCat("---- k", i, ": ", texts[i].name, "\n", texts[i].text);
  }
  return Error{Code::kInvalidArgument, StrCat("The checker of ", LanguageName(texts[0].language), " says:\n", message)};
}

}  // namespace

Status CanCheck(Language language) {
  const char* tool = ToolFor(language);
  if (!tool) return Error{Code::kNotFound, StrCat("Texts in ", LanguageName(language), " are checked by a device.")};
  if (std::system(StrCat("command -v ", tool, " >/dev/null 2>&1").c_str()) == 0) return {};
  return Error{Code::kNotFound, StrCat("The checker ", tool, " of ", LanguageName(language), " is not installed.")};
}

bool CheckersRequired() {
  const char* value = std::getenv("LEEWAY_REQUIRE_CHECKERS");
  return value && std::string(value) == "1";
}

Status CheckTexts(std::span<const KernelText> texts) {
  if (texts.empty()) return {};
  Language language = texts[0].language;
  RETURN_IF_ERROR(CanCheck(language));
  Folder folder;
  if (folder.path().empty()) return Error{Code::kIo, "A temporary folder cannot be made."};
  const char* ending = language == Language::kGlslEs ? ".comp" : language == Language::kMsl ? ".metal" : ".cl";
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].language != language) {
      return Error{Code::kInvalidArgument, "Texts of two languages cannot be checked in one call."};
    }
    std::ofstream(StrCat(folder.path(), "/k", i, ending)) << texts[i].text;
  }
  std::string command;
  if (language == Language::kMsl) {
    // One translation unit for all, a namespace for each: reading metal_stdlib takes longer than all the rest.
    std::ofstream all(folder.path() + "/all.metal");
    all << "#include <metal_stdlib>\n";
    for (size_t i = 0; i < texts.size(); ++i) {  // kernels have C linkage, so the namespace does not keep them apart
      const std::string& entry = texts[i].entry_point;
      all << "#define " << entry << " k" << i << "_" << entry << "\nnamespace k" << i << " {\n#include \"k" << i
          << ".metal\"\n}\n#undef " << entry << "\n";
    }
    command = StrCat(kMsl, " all.metal");
  } else {
    command = language == Language::kGlslEs ? "glslangValidator" : kOpenClC;
    for (size_t i = 0; i < texts.size(); ++i) command += StrCat(" k", i, ending);
  }
  Outcome outcome = RunCommand(command, folder.path());
  if (!outcome.ok) return Failure(texts, outcome.output);
  return {};
}

}  // namespace leeway::shader
