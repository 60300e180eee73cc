#include "llm/tokenizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

#include "base/strings.h"
#include "llm/merge_symbols.h"
#include "llm/pre_tokenizer.h"
#include "llm/token_table.h"
#include "llm/token_trie.h"
#include "llm/unicode.h"

namespace leeway::llm {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
// Longer tokens are refused: they only make work, and real ones have some hundred bytes.
constexpr size_t kMaxTokenBytes = 4096;
// Longer stretches without a marker are cut, so that places fit 32 bits and memory stays in bounds.
constexpr size_t kMaxStretchBytes = size_t(64) << 20;

// GPT-2's alphabet: printable bytes stand for themselves, the 68 others for U+0100 and onwards.
struct ByteAlphabet {
  std::array<uint16_t, 256> character_of{};
  std::array<int16_t, 256 + 68> byte_of{};
};
constexpr ByteAlphabet MakeByteAlphabet() {
  ByteAlphabet alphabet;
  for (int16_t& byte : alphabet.byte_of) byte = -1;
  uint16_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const uint16_t character = is_printable ? uint16_t(byte) : next++;
    alphabet.character_of[size_t(byte)] = character;
    alphabet.byte_of[character] = int16_t(byte);
  }
  return alphabet;
}
constexpr ByteAlphabet kAlphabet = MakeByteAlphabet();

std::string ToAlphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) AppendCharacter(text, kAlphabet.character_of[uint8_t(byte)]);
  return text;
}

void AppendFromAlphabet(std::string& bytes, std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Character c = ReadCharacter(text, at);
    if (c.is_valid && c.value < kAlphabet.byte_of.size() && kAlphabet.byte_of[c.value] >= 0) {
      bytes += char(kAlphabet.byte_of[c.value]);
    } else {
      bytes += text.substr(at, c.size_bytes);
    }
    at += c.size_bytes;
  }
}

void AppendReplaced(std::string& out, std::string_view text, std::string_view from, std::string_view to) {
  for (size_t at = 0;;) {
    const size_t found = text.find(from, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) return;
    out += to;
    at = found + from.size();
  }
}

// The byte that <0xXX> names, -1 for other spellings.
int ByteOfSpelling(std::string_view s) {
  if (s.size() != 6 || !s.starts_with("<0x") || s[5] != '>') return -1;
  int value = 0;
  for (const char c : s.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

// A number that is the smaller the greater the score is.
uint32_t OrderOfScore(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 becomes 0
  return ~(bits & 0x80000000u ? ~bits : bits | 0x80000000u);
}

constexpr std::string_view kStopNames[] = {"<|eot_id|>", "<|im_end|>",    "<|end|>",         "<end_of_turn>",
                                           "<turn|>",    "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>"};

bool IsWordCharacter(std::string_view text, size_t at) {
  const Character c = ReadCharacter(text, at);
  if (!c.is_valid) return false;
  const CharacterClass cls = ClassOf(c.value);
  return cls == CharacterClass::kLetter || cls == CharacterClass::kNumber || c.value == '_';
}

size_t BeginOfCharacterBefore(std::string_view text, size_t at) {
  size_t begin = at - 1;
  while (begin > 0 && at - begin < 4 && (uint8_t(text[begin]) & 0xC0) == 0x80) --begin;
  return ReadCharacter(text, begin).size_bytes == at - begin ? begin : at - 1;
}

}  // namespace

struct Tokenizer::State {
  TokenizerData data;
  std::string bytes;              // of all tokens
  std::vector<uint32_t> offsets;  // of each token's bytes, and the end
  TokenTable words;               // what merges may make: no control, unknown or byte tokens
  MergeTable merges;
  std::vector<uint32_t> orders;  // kSentencePiece: OrderOfScore of each token
  TokenTrie markers;             // what is cut out of the text first: control, unknown and user-defined tokens
  TokenTrie unigrams;
  double unknown_score = 0;
  std::array<TokenId, 256> byte_tokens{};
  std::unordered_map<TokenId, AddedTokenRule> rules;
  std::vector<TokenId> stop_tokens;

  TokenKind KindOf(size_t id) const { return data.kinds.empty() ? TokenKind::kNormal : data.kinds[id]; }
  bool IsControl(size_t id) const { return KindOf(id) == TokenKind::kControl || KindOf(id) == TokenKind::kUnknown; }
  std::string_view BytesOf(size_t id) const {
    return std::string_view(bytes).substr(offsets[id], offsets[id + 1] - offsets[id]);
  }

  Status Check() const;
  void BuildBytes();
  Status BuildTables();
  struct Run;
};

// One call of Encode.
struct Tokenizer::State::Run {
  const State& s;
  std::vector<TokenId>& out;
  MergeScratch scratch;
  std::string escaped, spelled;
  std::unordered_map<std::string_view, size_t> unused_parts;

  bool last_is_unknown = false;  // and nothing came since

  void EmitUnknown() {
    if (s.data.unknown == kNoToken || (s.data.fuse_unknown && last_is_unknown)) return;
    out.push_back(s.data.unknown);
    last_is_unknown = true;
  }
  void Emit(TokenId id) {
    out.push_back(id);
    last_is_unknown = false;
  }
  // A character that is no token.
  void EmitBytes(std::string_view bytes) {
    bool all = s.data.byte_fallback;
    for (const char byte : bytes) all = all && s.byte_tokens[uint8_t(byte)] != kNoToken;
    if (!all) return EmitUnknown();
    for (const char byte : bytes) Emit(s.byte_tokens[uint8_t(byte)]);
  }

  void PushSymbol(size_t begin, size_t size, TokenId id) {
    const int32_t i = int32_t(scratch.symbols.size());
    if (i > 0) scratch.symbols.back().next = i;
    scratch.symbols.push_back({uint32_t(begin), uint32_t(size), id, i - 1, -1});
  }

  void EncodeSentencePiece(std::string_view text) {
    scratch.symbols.clear();
    for (size_t at = 0; at < text.size();) {
      const size_t size = ReadCharacter(text, at).size_bytes;
      PushSymbol(at, size, kNoToken);
      at += size;
    }
    unused_parts.clear();
    MergeSymbols(scratch, [&](const Symbol& left, const Symbol& right) -> MergeCandidate {
      const std::string_view whole = text.substr(left.begin_bytes, left.size_bytes + right.size_bytes);
      const TokenId id = s.words.Find(whole);
      if (id == kNoToken) return {0, kNoToken};
      if (s.KindOf(size_t(id)) == TokenKind::kUnused) unused_parts[whole] = left.size_bytes;
      return {s.orders[size_t(id)], id};
    });
    for (const Symbol& symbol : scratch.symbols) {
      if (symbol.size_bytes > 0) EmitPiece(text.substr(symbol.begin_bytes, symbol.size_bytes));
    }
  }
  // A piece that merges arrived at; unused tokens help on the way and are taken apart in the end.
  void EmitPiece(std::string_view piece) {
    const TokenId id = s.words.Find(piece);
    if (id != kNoToken && s.KindOf(size_t(id)) == TokenKind::kUnused) {
      if (const auto parts = unused_parts.find(piece); parts != unused_parts.end()) {
        EmitPiece(piece.substr(0, parts->second));  // parts are shorter than the longest token: the depth is bounded
        EmitPiece(piece.substr(parts->second));
        return;
      }
    }
    if (id != kNoToken) return Emit(id);
    EmitBytes(piece);
  }

  void MergeByRank() {
    MergeSymbols(scratch, [&](const Symbol& left, const Symbol& right) -> MergeCandidate {
      const MergeTable::Merge merge = s.merges.Find(left.id, right.id);
      return {merge.rank, merge.id};
    });
  }

  void EncodeByteLevel(std::string_view text) {
    PieceReader reader(s.data.pre_tokenizer, text);
    for (std::string_view piece = reader.Next(); !piece.empty(); piece = reader.Next()) {
      if (s.data.ignore_merges && piece.size() <= kMaxTokenBytes) {
        spelled = ToAlphabet(piece);
        if (const TokenId id = s.words.Find(spelled); id != kNoToken) {
          Emit(id);
          continue;
        }
      }
      scratch.symbols.clear();
      for (size_t i = 0; i < piece.size(); ++i) PushSymbol(i, 1, s.byte_tokens[uint8_t(piece[i])]);
      MergeByRank();
      for (const Symbol& symbol : scratch.symbols) {
        if (symbol.size_bytes == 0) continue;
        symbol.id == kNoToken ? EmitUnknown() : Emit(symbol.id);
      }
    }
  }

  void EncodeCharacters(std::string_view text) {
    PieceReader reader(s.data.pre_tokenizer, text);
    const bool whole_newlines = s.data.pre_tokenizer == PreTokenizer::kNewlineRuns;
    for (std::string_view piece = reader.Next(); !piece.empty(); piece = reader.Next()) {
      if (s.data.ignore_merges || (whole_newlines && piece[0] == '\n')) {
        if (const TokenId id = s.words.Find(piece); id != kNoToken) {
          Emit(id);
          continue;
        }
      }
      scratch.symbols.clear();
      for (size_t at = 0; at < piece.size();) {
        const size_t size = ReadCharacter(piece, at).size_bytes;
        const TokenId id = s.words.Find(piece.substr(at, size));
        bool all = id == kNoToken && s.data.byte_fallback;
        for (size_t i = 0; i < size && all; ++i) all = s.byte_tokens[uint8_t(piece[at + i])] != kNoToken;
        if (all) {
          for (size_t i = 0; i < size; ++i) PushSymbol(at + i, 1, s.byte_tokens[uint8_t(piece[at + i])]);
        } else {
          PushSymbol(at, size, id);
        }
        at += size;
      }
      MergeByRank();
      for (const Symbol& symbol : scratch.symbols) {
        if (symbol.size_bytes == 0) continue;
        symbol.id == kNoToken ? EmitUnknown() : Emit(symbol.id);
      }
    }
  }

  void EncodeUnigram(std::string_view text) {
    PieceReader reader(s.data.pre_tokenizer, text);
    struct Best {
      double score = -INFINITY;
      uint32_t begin = 0;
      TokenId id = kNoToken;
    };
    std::vector<Best> best;
    std::vector<std::pair<std::string_view, TokenId>> path;
    for (std::string_view piece = reader.Next(); !piece.empty(); piece = reader.Next()) {
      best.assign(piece.size() + 1, {});
      best[0].score = 0;
      for (size_t at = 0; at < piece.size();) {
        const size_t size = ReadCharacter(piece, at).size_bytes;
        bool has_single = false;
        s.unigrams.ForEachAt(piece, at, [&](TokenId id, size_t length) {
          Best& end = best[at + length];
          const double score = best[at].score + s.data.scores[size_t(id)];
          if (score > end.score) end = {score, uint32_t(at), id};
          has_single = has_single || length == size;
        });
        if (!has_single && best[at].score + s.unknown_score > best[at + size].score) {
          best[at + size] = {best[at].score + s.unknown_score, uint32_t(at), kNoToken};
        }
        at += size;
      }
      path.clear();
      for (size_t end = piece.size(); end > 0; end = best[end].begin) {
        path.push_back({piece.substr(best[end].begin, end - best[end].begin), best[end].id});
      }
      for (auto i = path.rbegin(); i != path.rend(); ++i) i->second == kNoToken ? EmitBytes(i->first) : Emit(i->second);
    }
  }

  // A stretch of text without markers. `after`: what stands before it.
  enum class After { kNothing, kMarker };
  void EncodeStretch(std::string_view text, After after) {
    for (bool is_first = true; !text.empty(); is_first = false) {
      size_t cut = std::min(kMaxStretchBytes, text.size());
      while (cut < text.size() && cut > kMaxStretchBytes - 4 && (uint8_t(text[cut]) & 0xC0) == 0x80) --cut;
      EncodeShortStretch(text.substr(0, cut), after, is_first);
      text.remove_prefix(cut);
    }
  }
  void EncodeShortStretch(std::string_view text, After after, bool may_have_prefix) {
    std::string normal;
    if (s.data.nfc) {
      normal = ToNfc(text);
      text = normal;
    }
    if (s.data.escapes_spaces) {
      escaped.clear();
      const bool has_prefix = may_have_prefix && (s.data.space_prefix == SpacePrefix::kAfterEachMarker ||
                                                  (s.data.space_prefix == SpacePrefix::kAtStart && after == After::kNothing));
      if (has_prefix && !(s.data.space_prefix_once && (text[0] == ' ' || text.starts_with(kSpaceMark)))) escaped += kSpaceMark;
      AppendReplaced(escaped, text, " ", kSpaceMark);
      text = escaped;
    }
    switch (s.data.model) {
      case TokenizerModel::kSentencePiece: return EncodeSentencePiece(text);
      case TokenizerModel::kByteLevelBpe: return EncodeByteLevel(text);
      case TokenizerModel::kBpe: return EncodeCharacters(text);
      case TokenizerModel::kUnigram: return EncodeUnigram(text);
    }
  }

  // The longest marker at `at`. A control token must end at `trusted_end` or before.
  std::pair<TokenId, size_t> MarkerAt(std::string_view text, size_t at, size_t trusted_end) const {
    std::pair<TokenId, size_t> best{kNoToken, 0};
    s.markers.ForEachAt(text, at, [&](TokenId id, size_t size) {
      if (s.IsControl(size_t(id)) && at + size > trusted_end) return;
      if (!s.rules.empty()) {
        const auto rule = s.rules.find(id);
        if (rule != s.rules.end() && rule->second.only_whole_word &&
            ((at > 0 && IsWordCharacter(text, BeginOfCharacterBefore(text, at))) ||
             (at + size < text.size() && IsWordCharacter(text, at + size)))) {
          return;
        }
      }
      best = {id, size};
    });
    return best;
  }

  // `trusted`: the stretches of the text where control tokens may stand, in order and apart from each other.
  void Encode(std::string_view text, std::span<const std::pair<size_t, size_t>> trusted) {
    size_t stretch = 0, next_trusted = 0;
    After after = After::kNothing;
    for (size_t at = 0; at < text.size();) {
      while (next_trusted < trusted.size() && trusted[next_trusted].second <= at) ++next_trusted;
      const size_t trusted_end =
          next_trusted < trusted.size() && trusted[next_trusted].first <= at ? trusted[next_trusted].second : at;
      const auto [id, size] = MarkerAt(text, at, trusted_end);
      if (id == kNoToken) {
        ++at;
        continue;
      }
      size_t end = at + size, stretch_end = at;
      if (const auto rule = s.rules.find(id); !s.rules.empty() && rule != s.rules.end()) {
        if (rule->second.takes_space_before) {
          while (stretch_end > stretch) {
            const size_t before = BeginOfCharacterBefore(text, stretch_end);
            if (before < stretch || ClassOf(ReadCharacter(text, before).value) != CharacterClass::kSpace) break;
            stretch_end = before;
          }
        }
        if (rule->second.takes_space_after) {
          while (end < text.size() && ClassOf(ReadCharacter(text, end).value) == CharacterClass::kSpace) {
            end += ReadCharacter(text, end).size_bytes;
          }
        }
      }
      EncodeStretch(text.substr(stretch, stretch_end - stretch), after);
      Emit(id);
      after = After::kMarker;
      at = stretch = end;
    }
    EncodeStretch(text.substr(stretch), after);
  }
};

Status Tokenizer::State::Check() const {
  const size_t count = data.tokens.size();
  if (count == 0) return Error{Code::kInvalidModel, "The tokenizer has no tokens."};
  if (count > size_t(1) << 30)
    return Error{Code::kInvalidModel, StrCat("The tokenizer has (", count, ") tokens, at most 2^30 are taken.")};
  size_t all_bytes = 0;
  for (size_t id = 0; id < count; ++id) {
    all_bytes += data.tokens[id].size();
    if (data.tokens[id].size() > kMaxTokenBytes) {
      return Error{Code::kInvalidModel, StrCat("Token ", id, " has (", data.tokens[id].size(), ") bytes, at most (",
                                               kMaxTokenBytes, ") are taken.")};
    }
  }
  if (all_bytes > UINT32_MAX) {
    return Error{Code::kInvalidModel, StrCat("The tokens have (", all_bytes, ") bytes together, at most 2^32 are taken.")};
  }
  if (!data.kinds.empty() && data.kinds.size() != count) {
    return Error{Code::kInvalidModel,
                 StrCat("The tokenizer has (", count, ") tokens and types of (", data.kinds.size(), ") of them.")};
  }
  for (size_t id = 0; id < data.kinds.size(); ++id) {
    const int32_t kind = int32_t(data.kinds[id]);
    if (kind < 1 || kind > 6) {
      return Error{Code::kInvalidModel, StrCat("Token ", id, " has the type (", kind, "), expected is 1 to 6.")};
    }
    if (data.kinds[id] == TokenKind::kByte && ByteOfSpelling(data.tokens[id]) < 0) {
      return Error{Code::kInvalidModel, StrCat("Token ", id, " is a byte token, but its spelling is \"", data.tokens[id],
                                               "\" and not <0x00> to <0xFF>.")};
    }
  }
  if (data.model == TokenizerModel::kSentencePiece || data.model == TokenizerModel::kUnigram) {
    if (data.scores.size() != count) {
      return Error{Code::kInvalidModel,
                   StrCat("The tokenizer has (", count, ") tokens and scores of (", data.scores.size(), ") of them.")};
    }
    for (size_t id = 0; id < count; ++id) {
      if (std::isnan(data.scores[id]))
        return Error{Code::kInvalidModel, StrCat("The score of token ", id, " is not a number.")};
    }
  }
  struct Named {
    const char* name;
    TokenId id;
  };
  for (const Named& named : {Named{"bos", data.bos},
                             {"eos", data.eos},
                             {"eot", data.eot},
                             {"eom", data.eom},
                             {"unknown", data.unknown},
                             {"padding", data.padding}}) {
    if (named.id < kNoToken || named.id >= TokenId(count)) {
      return Error{Code::kInvalidModel,
                   StrCat("The ", named.name, " token has the id (", named.id, "), the tokenizer has (", count, ") tokens.")};
    }
  }
  for (const AddedTokenRule& rule : data.added_token_rules) {
    if (rule.id < 0 || rule.id >= TokenId(count)) {
      return Error{Code::kInvalidModel,
                   StrCat("An added token has the id (", rule.id, "), the tokenizer has (", count, ") tokens.")};
    }
  }
  return {};
}

void Tokenizer::State::BuildBytes() {
  offsets.reserve(data.tokens.size() + 1);
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    offsets.push_back(uint32_t(bytes.size()));
    const std::string_view spelling = data.tokens[id];
    const TokenKind kind = KindOf(id);
    if (kind == TokenKind::kByte) {
      bytes += char(ByteOfSpelling(spelling));
    } else if (kind == TokenKind::kControl || kind == TokenKind::kUnknown ||
               (kind == TokenKind::kUserDefined && !data.unescapes_user_defined)) {
      bytes += spelling;
    } else if (data.model == TokenizerModel::kByteLevelBpe) {
      kind == TokenKind::kUserDefined ? void(bytes += spelling) : AppendFromAlphabet(bytes, spelling);
    } else if (data.escapes_spaces) {
      AppendReplaced(bytes, spelling, kSpaceMark, " ");
    } else {
      bytes += spelling;
    }
  }
  offsets.push_back(uint32_t(bytes.size()));
}

Status Tokenizer::State::BuildTables() {
  const size_t count = data.tokens.size();
  words = TokenTable(data.tokens, [&](TokenId id) {
    const TokenKind kind = KindOf(size_t(id));
    return !data.tokens[size_t(id)].empty() && kind != TokenKind::kControl && kind != TokenKind::kUnknown &&
           kind != TokenKind::kByte;
  });
  byte_tokens.fill(kNoToken);
  if (data.model == TokenizerModel::kByteLevelBpe) {
    bool any = false;
    for (int byte = 0; byte < 256; ++byte) {
      const char c = char(byte);
      byte_tokens[size_t(byte)] = words.Find(ToAlphabet({&c, 1}));
      any = any || byte_tokens[size_t(byte)] != kNoToken;
    }
    if (!any) return Error{Code::kInvalidModel, "None of the 256 bytes is a token of this byte-level tokenizer."};
  } else {
    for (size_t id = 0; id < count; ++id) {
      if (KindOf(id) == TokenKind::kByte) byte_tokens[size_t(ByteOfSpelling(data.tokens[id]))] = TokenId(id);
    }
  }
  for (size_t id = 0; id < count; ++id) {
    if (IsControl(id) || KindOf(id) == TokenKind::kUserDefined) markers.Add(data.tokens[id], TokenId(id));
  }
  for (const AddedTokenRule& rule : data.added_token_rules) rules.emplace(rule.id, rule);
  switch (data.model) {
    case TokenizerModel::kSentencePiece:
      orders.reserve(count);
      for (const float score : data.scores) orders.push_back(OrderOfScore(score));
      break;
    case TokenizerModel::kByteLevelBpe:
    case TokenizerModel::kBpe: {
      if (data.merges.size() > size_t(1) << 30) {
        return Error{Code::kInvalidModel,
                     StrCat("The tokenizer has (", data.merges.size(), ") merges, at most 2^30 are taken.")};
      }
      // A merge of parts that are no tokens, or into none, can't happen: files have such leftovers, and nothing is lost.
      merges = MergeTable(data.merges.size());
      std::string whole;
      for (size_t rank = 0; rank < data.merges.size(); ++rank) {
        const auto [left, right] = data.merges[rank];
        whole.assign(left);
        whole += right;
        const MergeTable::Merge merge{uint32_t(rank), words.Find(whole)};
        const TokenId left_id = words.Find(left), right_id = words.Find(right);
        if (merge.id != kNoToken && left_id != kNoToken && right_id != kNoToken) merges.Add(left_id, right_id, merge);
      }
      break;
    }
    case TokenizerModel::kUnigram: {
      float lowest = 0;
      for (size_t id = 0; id < count; ++id) {
        if (KindOf(id) != TokenKind::kNormal) continue;
        unigrams.Add(data.tokens[id], TokenId(id));
        lowest = std::min(lowest, data.scores[id]);
      }
      unknown_score = double(lowest) - 10;
      break;
    }
  }
  auto add_stop = [&](TokenId id) {
    if (id != kNoToken && std::find(stop_tokens.begin(), stop_tokens.end(), id) == stop_tokens.end()) stop_tokens.push_back(id);
  };
  for (const TokenId id : {data.eos, data.eot, data.eom}) add_stop(id);
  for (const std::string_view name : kStopNames) add_stop(markers.Find(name));
  return {};
}

Result<Tokenizer> Tokenizer::Create(TokenizerData data) {
  auto state = std::make_shared<State>();
  state->data = std::move(data);
  RETURN_IF_ERROR(state->Check());
  state->BuildBytes();
  RETURN_IF_ERROR(state->BuildTables());
  return Tokenizer(std::move(state));
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  std::vector<TokenId> ids;
  if (options.add_bos && bos() != kNoToken) ids.push_back(bos());
  const std::pair<size_t, size_t> everything[] = {{0, text.size()}};
  State::Run{*state_, ids}.Encode(text, std::span(everything).first(options.allow_special ? 1 : 0));
  return ids;
}

std::vector<TokenId> Tokenizer::Encode(std::span<const PromptPart> parts, EncodeOptions options) const {
  std::vector<TokenId> ids;
  if (options.add_bos && bos() != kNoToken) ids.push_back(bos());
  std::string text;
  std::vector<std::pair<size_t, size_t>> trusted;
  for (const PromptPart& part : parts) {
    if (part.text.empty()) continue;
    const size_t begin = text.size();
    text += part.text;
    if (!part.is_trusted) continue;
    if (!trusted.empty() && trusted.back().second == begin) {
      trusted.back().second = text.size();
    } else {
      trusted.push_back({begin, text.size()});
    }
  }
  State::Run{*state_, ids}.Encode(text, trusted);
  return ids;
}

std::string Tokenizer::Decode(std::span<const TokenId> tokens, const DecodeOptions& options) const {
  TextDecoder decoder(*this, options);
  std::string text;
  for (const TokenId token : tokens) text += decoder.Add(token);
  return text + decoder.Finish();
}

int Tokenizer::vocabulary_size() const { return int(state_->data.tokens.size()); }
namespace {
bool IsToken(TokenId id, int count) { return id >= 0 && id < count; }
}  // namespace
std::string_view Tokenizer::SpellingOf(TokenId id) const {
  return IsToken(id, vocabulary_size()) ? state_->data.tokens[size_t(id)] : std::string_view();
}
std::string_view Tokenizer::BytesOf(TokenId id) const {
  return IsToken(id, vocabulary_size()) ? state_->BytesOf(size_t(id)) : std::string_view();
}
TokenKind Tokenizer::KindOf(TokenId id) const {
  return IsToken(id, vocabulary_size()) ? state_->KindOf(size_t(id)) : TokenKind::kUnused;
}
bool Tokenizer::IsControl(TokenId id) const { return IsToken(id, vocabulary_size()) && state_->IsControl(size_t(id)); }
TokenId Tokenizer::Find(std::string_view spelling) const {
  const TokenId word = state_->words.Find(spelling);
  return word != kNoToken ? word : state_->markers.Find(spelling);
}
TokenId Tokenizer::bos() const { return state_->data.bos; }
TokenId Tokenizer::eos() const { return state_->data.eos; }
TokenId Tokenizer::padding() const { return state_->data.padding; }
bool Tokenizer::adds_bos() const { return state_->data.add_bos && bos() != kNoToken; }
std::span<const TokenId> Tokenizer::stop_tokens() const { return state_->stop_tokens; }
bool Tokenizer::IsStop(TokenId id) const {
  return std::find(state_->stop_tokens.begin(), state_->stop_tokens.end(), id) != state_->stop_tokens.end();
}
std::string_view Tokenizer::chat_template() const { return state_->data.chat_template; }
const TokenizerData& Tokenizer::data() const { return state_->data; }

void TextDecoder::FlushPending(std::string& text) {
  // Byte-level vocabularies replace the unfinished character, the others each of its bytes, as their reference decoders do.
  const bool once = tokenizer_.data().model == TokenizerModel::kByteLevelBpe;
  for (size_t i = 0; i < (once ? std::min<size_t>(pending_.size(), 1) : pending_.size()); ++i) text += kReplacement;
  pending_.clear();
}

std::string TextDecoder::Add(TokenId token) {
  std::string text;
  if (!IsToken(token, tokenizer_.vocabulary_size())) return text;
  std::string_view bytes = tokenizer_.BytesOf(token);
  if (tokenizer_.IsControl(token)) {
    FlushPending(text);
    const auto& shown = options_.shown_control;
    if (options_.show_control || std::find(shown.begin(), shown.end(), token) != shown.end()) text += ToValidUtf8(bytes);
    return text;
  }
  if (at_start_) {
    at_start_ = false;
    if (tokenizer_.data().space_prefix != SpacePrefix::kNever && bytes.starts_with(' ')) bytes.remove_prefix(1);
  }
  for (const char byte : bytes) {
    if (pending_.empty() && uint8_t(byte) < 0x80) {
      text += byte;
      continue;
    }
    pending_ += byte;
    while (!pending_.empty() && !IsBeginningOfCharacter(pending_)) {
      const Character c = ReadCharacter(pending_, 0);
      if (c.is_valid) {
        text += pending_;
        pending_.clear();
      } else {
        // The last byte broke the sequence, or is none that begins a character.
        const std::string rest = pending_.substr(c.size_bytes);
        pending_.resize(c.size_bytes);
        FlushPending(text);
        pending_ = rest;
        if (pending_.size() == 1 && uint8_t(pending_[0]) < 0x80) {
          text += pending_;
          pending_.clear();
        }
      }
    }
  }
  return text;
}

std::string TextDecoder::Finish() {
  std::string text;
  FlushPending(text);
  at_start_ = true;
  return text;
}

}  // namespace leeway::llm
