// SPDX-License-Identifier: Apache-2.0
// Unicode normalisation form C, UAX #15: decompose, order the marks, compose.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <vector>

#include "headrace/registry/name.h"

namespace headrace::registry {

namespace {

struct Decomposition {
  uint32_t code;
  uint32_t first;
  uint32_t second;
  uint8_t composes;
};

struct CombiningRange {
  uint32_t first;
  uint32_t last;
  uint8_t combining_class;
};

#include "headrace/registry/unicode_tables.inc"

// Hangul syllables are arithmetic (The Unicode Standard, section 3.12).
constexpr uint32_t kSyllableBase = 0xAC00;
constexpr uint32_t kLeadBase = 0x1100;
constexpr uint32_t kVowelBase = 0x1161;
constexpr uint32_t kTailBase = 0x11A7;
constexpr uint32_t kLeads = 19;
constexpr uint32_t kVowels = 21;
constexpr uint32_t kTails = 28;
constexpr uint32_t kSyllables = kLeads * kVowels * kTails;

/// Decode the sequence at `at` and move past it; nullopt when it is not well-formed (RFC 3629).
std::optional<uint32_t> next_code(std::string_view text, size_t* at) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? uint32_t{static_cast<unsigned char>(text[i])} : 0U;
  };
  const uint32_t lead = byte(*at);
  if (lead < 0x80U) {
    *at += 1;
    return lead;
  }
  const size_t length = lead >= 0xF0U ? 4 : lead >= 0xE0U ? 3 : 2;
  if (lead < 0xC2U || lead > 0xF4U) {
    return std::nullopt;
  }
  uint32_t code = lead & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(*at + i) & 0xC0U) != 0x80U) {
      return std::nullopt;
    }
    code = (code << 6U) | (byte(*at + i) & 63U);
  }
  static constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[length] || code > 0x10FFFFU || (code >= 0xD800U && code <= 0xDFFFU)) {
    return std::nullopt;
  }
  *at += length;
  return code;
}

void append_code(uint32_t code, std::string* out) {
  const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80U) {
    put(code);
  } else if (code < 0x800U) {
    put(0xC0U | (code >> 6U));
    put(0x80U | (code & 63U));
  } else if (code < 0x10000U) {
    put(0xE0U | (code >> 12U));
    put(0x80U | ((code >> 6U) & 63U));
    put(0x80U | (code & 63U));
  } else {
    put(0xF0U | (code >> 18U));
    put(0x80U | ((code >> 12U) & 63U));
    put(0x80U | ((code >> 6U) & 63U));
    put(0x80U | (code & 63U));
  }
}

int combining_class(uint32_t code) {
  const auto* const end = std::end(kCombining);
  const auto* const found = std::lower_bound(
      std::begin(kCombining), end, code,
      [](const CombiningRange& range, uint32_t value) { return range.last < value; });
  return found != end && found->first <= code ? found->combining_class : 0;
}

void decompose(uint32_t code, std::vector<uint32_t>* out) {
  if (code - kSyllableBase < kSyllables) {
    const uint32_t index = code - kSyllableBase;
    out->push_back(kLeadBase + index / (kVowels * kTails));
    out->push_back(kVowelBase + index % (kVowels * kTails) / kTails);
    if (index % kTails != 0) {
      out->push_back(kTailBase + index % kTails);
    }
    return;
  }
  const auto* const end = std::end(kDecompositions);
  const auto* const found =
      std::lower_bound(std::begin(kDecompositions), end, code,
                       [](const Decomposition& row, uint32_t value) { return row.code < value; });
  if (found == end || found->code != code) {
    out->push_back(code);
    return;
  }
  decompose(found->first, out);  // ends: each step lowers the depth of a finite table
  if (found->second != 0) {
    decompose(found->second, out);
  }
}

void order_marks(std::vector<uint32_t>* codes) {
  for (size_t begin = 0; begin < codes->size();) {
    if (combining_class((*codes)[begin]) == 0) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < codes->size() && combining_class((*codes)[end]) != 0) {
      ++end;
    }
    std::stable_sort(codes->begin() + static_cast<std::ptrdiff_t>(begin),
                     codes->begin() + static_cast<std::ptrdiff_t>(end), [](uint32_t a, uint32_t b) {
                       return combining_class(a) < combining_class(b);
                     });
    begin = end;
  }
}

std::optional<uint32_t> compose_pair(uint32_t first, uint32_t second) {
  if (first - kLeadBase < kLeads && second - kVowelBase < kVowels) {
    return kSyllableBase + ((first - kLeadBase) * kVowels + (second - kVowelBase)) * kTails;
  }
  if (first - kSyllableBase < kSyllables && (first - kSyllableBase) % kTails == 0 &&
      second - kTailBase - 1 < kTails - 1) {
    return first + (second - kTailBase);
  }
  static const auto* const pairs = [] {
    auto* map = new std::unordered_map<uint64_t, uint32_t>();
    for (const Decomposition& row : kDecompositions) {
      if (row.composes != 0) {
        map->emplace((uint64_t{row.first} << 32U) | row.second, row.code);
      }
    }
    return map;
  }();
  const auto found = pairs->find((uint64_t{first} << 32U) | second);
  return found == pairs->end() ? std::nullopt : std::optional<uint32_t>(found->second);
}

void compose(std::vector<uint32_t>* codes) {
  constexpr size_t kNone = SIZE_MAX;
  size_t starter = kNone;
  size_t kept = 0;
  int last_class = -1;  // class of the last mark kept after the starter; -1: none
  for (const uint32_t code : std::vector<uint32_t>(*codes)) {
    const int mark = combining_class(code);
    if (starter != kNone && last_class < mark) {
      if (const auto joined = compose_pair((*codes)[starter], code)) {
        (*codes)[starter] = *joined;
        continue;
      }
    }
    (*codes)[kept] = code;
    if (mark == 0) {
      starter = kept;
      last_class = -1;
    } else {
      last_class = mark;
    }
    ++kept;
  }
  codes->resize(kept);
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (!next_code(text, &at)) {
      return false;
    }
  }
  return true;
}

size_t mark_bytes(std::string_view text, size_t at) {
  size_t end = at;
  const auto code = next_code(text, &end);
  return code && combining_class(*code) != 0 ? end - at : 0;
}

std::string to_nfc(std::string_view text) {
  std::vector<uint32_t> codes;
  bool ascii = true;
  for (size_t at = 0; at < text.size();) {
    const auto code = next_code(text, &at);
    if (!code) {
      return std::string(text);
    }
    ascii = ascii && *code < 0x80U;
    decompose(*code, &codes);
  }
  if (ascii) {
    return std::string(text);
  }
  order_marks(&codes);
  compose(&codes);
  std::string out;
  for (const uint32_t code : codes) {
    append_code(code, &out);
  }
  return out;
}

}  // namespace headrace::registry
