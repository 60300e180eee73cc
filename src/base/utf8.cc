#include "base/utf8.h"

#include <cstdint>

namespace leeway {

bool IsUtf8(std::string_view bytes) {
  size_t i = 0;
  while (i < bytes.size()) {
    const uint8_t lead = uint8_t(bytes[i++]);
    if (lead < 0x80) continue;
    if (lead < 0xC2 || lead > 0xF4) return false;
    const int more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    // The first continuation byte is where overlong forms, surrogates and too large characters show.
    uint8_t low = 0x80, high = 0xBF;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
    for (int k = 0; k < more; ++k, ++i) {
      if (i == bytes.size()) return false;
      const uint8_t byte = uint8_t(bytes[i]);
      if (byte < low || byte > high) return false;
      low = 0x80, high = 0xBF;
    }
  }
  return true;
}

}  // namespace leeway
