#include "base/cache_folder.h"

#include <cstdlib>

namespace leeway {

std::string UserCacheFolder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache == '/') return std::string(cache) + "/leeway";
  if (const char* home = std::getenv("HOME"); home && *home == '/') return std::string(home) + "/.cache/leeway";
  return "";
}

}  // namespace leeway
