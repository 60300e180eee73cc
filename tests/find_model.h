// Where tests find real models and goldens that are not in the tree. What is not there is for the test to skip.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>

namespace leeway {

// A file of that name in the folders of LEEWAY_MODELS, separated by colons; unset: in .cache/models, .cache/converted and,
// beside the source, ../cache/models.
inline std::optional<std::string> FindModel(const std::string& file_name) {
  const std::string source = LEEWAY_SOURCE_DIR;
  const char* given = std::getenv("LEEWAY_MODELS");
  std::stringstream folders(given ? std::string(given)
                                  : source + "/.cache/models:" + source + "/.cache/converted:" + source + "/../cache/models");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::filesystem::path path = std::filesystem::path(folder) / file_name;
    if (std::filesystem::exists(path)) return path.string();
  }
  return std::nullopt;
}

// The folder of goldens shared between projects: LEEWAY_SHARED, or ../shared beside the source.
inline std::filesystem::path SharedFolder() {
  if (const char* given = std::getenv("LEEWAY_SHARED")) return given;
  return std::filesystem::path(LEEWAY_SOURCE_DIR) / "../shared";
}

}  // namespace leeway
