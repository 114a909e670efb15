// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/text.h"

#include <locale.h>
#include <wctype.h>

#include <algorithm>
#include <vector>

namespace headrace::flow {

namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
char ascii_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }

/// Decode the code point at `*at` and move on. Malformed bytes count as U+FFFD, one byte each.
char32_t next_code(std::string_view text, size_t* at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(*at);
  const size_t length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  static constexpr unsigned kLeadMask[] = {0, 0x7F, 31, 15, 7};
  static constexpr char32_t kLowest[] = {0, 0, 0x80, 0x800, 0x10000};
  char32_t code = lead & kLeadMask[length];
  bool good = length > 0 && *at + length <= text.size();
  for (size_t i = 1; good && i < length; ++i) {
    good = (byte(*at + i) & 0xC0U) == 0x80U;
    code = (code << 6U) | (byte(*at + i) & 63U);
  }
  if (!good || code < kLowest[length] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
    ++*at;
    return 0xFFFD;
  }
  *at += length;
  return code;
}

void append_code(char32_t code, std::string* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0U | (code >> 6U));
    put(0x80U | (code & 63U));
  } else if (code < 0x10000) {
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

/// glibc's built-in Unicode tables, whatever the user's locale is (glibc 2.35 and later).
locale_t unicode_locale() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale;
}

std::string map_case(std::string_view text, bool upper) {
  std::string out;
  out.reserve(text.size());
  if (is_ascii(text)) {
    for (const char c : text) {
      out.push_back(upper ? ascii_upper(c) : ascii_lower(c));
    }
    return out;
  }
  const locale_t locale = unicode_locale();
  for (size_t at = 0; at < text.size();) {
    char32_t code = next_code(text, &at);
    if (locale != nullptr) {
      const auto wide = static_cast<wint_t>(code);
      code = static_cast<char32_t>(upper ? towupper_l(wide, locale) : towlower_l(wide, locale));
    }
    append_code(code, &out);
  }
  return out;
}

bool is_white_space(char32_t code) {
  return (code >= 9 && code <= 13) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    last[j] = j;
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] =
          std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

int64_t utf16_length(std::string_view text) {
  if (is_ascii(text)) {
    return static_cast<int64_t>(text.size());
  }
  int64_t units = 0;
  for (size_t at = 0; at < text.size();) {
    units += next_code(text, &at) < 0x10000 ? 1 : 2;
  }
  return units;
}

std::u16string to_utf16(std::string_view text) {
  std::u16string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t code = next_code(text, &at);
    if (code < 0x10000) {
      out.push_back(static_cast<char16_t>(code));
    } else {
      out.push_back(static_cast<char16_t>(0xD800U + ((code - 0x10000U) >> 10U)));
      out.push_back(static_cast<char16_t>(0xDC00U + ((code - 0x10000U) & 0x3FFU)));
    }
  }
  return out;
}

std::string from_utf16(std::u16string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    const char32_t unit = text[at];
    const bool high = unit >= 0xD800 && unit < 0xDC00;
    const bool low = unit >= 0xDC00 && unit < 0xE000;
    const bool paired =
        high && at + 1 < text.size() && text[at + 1] >= 0xDC00 && text[at + 1] < 0xE000;
    if (paired) {
      const char32_t second = text[++at];
      append_code(0x10000U + ((unit - 0xD800U) << 10U) + (second - 0xDC00U), &out);
    } else {
      append_code(high || low ? char32_t{0xFFFD} : unit, &out);
    }
  }
  return out;
}

std::string lower_text(std::string_view text) { return map_case(text, false); }
std::string upper_text(std::string_view text) { return map_case(text, true); }

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
        return ascii_lower(x) == ascii_lower(y);
      })) {
    return true;
  }
  return !is_ascii(a) && !is_ascii(b) && lower_text(a) == lower_text(b);
}

std::string_view trim_text(std::string_view text) {
  size_t begin = text.size();
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    if (!is_white_space(next_code(text, &at))) {
      begin = std::min(begin, start);
      end = at;
    }
  }
  return begin >= end ? std::string_view() : text.substr(begin, end - begin);
}

std::optional<std::string> nearest_name(std::string_view wanted,
                                        std::span<const std::string> names) {
  const std::string lower = lower_text(wanted.substr(0, 100));
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(1, lower.size() / 3) + 1;
  for (const std::string& name : names) {
    if (name.size() > 100) {
      continue;
    }
    const size_t distance = edit_distance(lower, lower_text(name));
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view wanted, std::span<const std::string> names) {
  const auto best = nearest_name(wanted, names);
  return best ? "; did you mean '" + *best + "'?" : "";
}

std::string name_list(std::span<const std::string> names, size_t count_max) {
  if (names.empty()) {
    return "none";
  }
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), count_max); ++i) {
    out += (i > 0 ? ", '" : "'") + names[i] + "'";
  }
  return names.size() > count_max ? out + ", ..." : out;
}

}  // namespace headrace::flow
