// Whether bytes are text.
#pragma once

#include <string_view>

namespace leeway {

// Well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool IsUtf8(std::string_view bytes);

}  // namespace leeway
