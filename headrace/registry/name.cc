// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/name.h"

#include <algorithm>

#include "headrace/base/json.h"
#include "headrace/registry/limits.h"

namespace headrace::registry {

namespace {

// The empty set sign, encoded: no key gives this, because letters beyond ASCII are never encoded.
constexpr std::string_view kEmptyKey = "%E2%88%85";
constexpr std::string_view kRefused = "\\:@*?#";

bool is_control(char c) {
  const auto u = static_cast<unsigned char>(c);
  return u < 0x20 || u == 0x7F;
}

/// C1 controls U+0080 to U+009F are the two bytes C2 80 to C2 9F.
bool is_c1_control(std::string_view text, size_t at) {
  return static_cast<unsigned char>(text[at]) == 0xC2U && at + 1 < text.size() &&
         static_cast<unsigned char>(text[at + 1]) <= 0x9FU;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  if (c >= 'a' && c <= 'f') {
    return c - 'a' + 10;
  }
  if (c >= 'A' && c <= 'F') {
    return c - 'A' + 10;
  }
  return -1;
}

bool is_escape(std::string_view text, size_t at) {
  return at + 2 < text.size() && text[at] == '%' && hex_value(text[at + 1]) >= 0 &&
         hex_value(text[at + 2]) >= 0;
}

Error bad_name(std::string_view name, const std::string& why) {
  return Error{Errc::invalid_argument,
               "registry: model name " + json_quote(name.substr(0, 600)) + ": " + why};
}

void append_percent(char c, std::string* out) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  const auto u = static_cast<unsigned char>(c);
  out->push_back('%');
  out->push_back(kDigits[u >> 4U]);
  out->push_back(kDigits[u & 15U]);
}

std::string percent_text(char c) {
  std::string text;
  append_percent(c, &text);
  return text;
}

Result<void> check_segment(std::string_view name, std::string_view segment, size_t begin) {
  if (segment.empty()) {
    return bad_name(name, "empty segment at byte " + std::to_string(begin));
  }
  if (static_cast<int64_t>(segment.size()) > kSegmentBytesMax) {
    return bad_name(name, "the segment at byte " + std::to_string(begin) + " has " +
                              std::to_string(segment.size()) + " bytes; at most " +
                              std::to_string(kSegmentBytesMax) + " are allowed");
  }
  if (segment == "." || segment == "..") {
    return bad_name(name, "the segment \"" + std::string(segment) + "\" is not allowed");
  }
  if (segment.front() == ' ' || segment.back() == ' ') {
    return bad_name(
        name, "the segment at byte " + std::to_string(begin) + " begins or ends with a blank");
  }
  for (size_t i = 0; i < segment.size(); ++i) {
    const std::string where = " at byte " + std::to_string(begin + i);
    if (is_control(segment[i]) || is_c1_control(segment, i)) {
      return bad_name(name, "control character" + where);
    }
    if (kRefused.find(segment[i]) != std::string_view::npos) {
      return bad_name(name, "'" + std::string(1, segment[i]) + "'" + where +
                                " is not allowed; leave it out, or write it as " +
                                percent_text(segment[i]));
    }
    if (segment[i] == '%' && !is_escape(segment, i)) {
      return bad_name(name, "'%'" + where + " must be followed by two hex digits");
    }
  }
  return {};
}

}  // namespace

Result<void> check_name(std::string_view name) {
  if (name.empty()) {
    return bad_name(name, "it is empty");
  }
  if (static_cast<int64_t>(name.size()) > kNameBytesMax) {
    return bad_name(name, "it has " + std::to_string(name.size()) + " bytes; at most " +
                              std::to_string(kNameBytesMax) + " are allowed");
  }
  if (!is_utf8(name)) {
    return bad_name(name, "it is not UTF-8");
  }
  int64_t segments = 0;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    HR_TRY(check_segment(name, name.substr(begin, end - begin), begin));
    ++segments;
    begin = end + 1;
  }
  if (segments > kSegmentsMax) {
    return bad_name(name, "it has " + std::to_string(segments) + " segments; at most " +
                              std::to_string(kSegmentsMax) + " are allowed");
  }
  if (to_nfc(name) != name) {
    return bad_name(name, "it is not in Unicode normalisation form C; pass it through " +
                              std::string("unicodedata.normalize(\"NFC\", name) first"));
  }
  return {};
}

Result<void> check_alias(std::string_view alias) {
  const auto bad = [&](const std::string& why) {
    return Error{Errc::invalid_argument,
                 "registry: alias " + json_quote(alias.substr(0, 100)) + ": " + why};
  };
  if (alias.empty() || static_cast<int64_t>(alias.size()) > kAliasBytesMax) {
    return bad("1 to " + std::to_string(kAliasBytesMax) + " characters are needed");
  }
  for (size_t i = 0; i < alias.size(); ++i) {
    const char c = alias[i];
    const bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (!word && (i == 0 || (c != '_' && c != '-'))) {
      return bad("only a-z, 0-9, '_' and '-' are allowed, the first a letter or digit");
    }
  }
  if (alias == "latest") {
    return bad("\"latest\" always means the newest version and cannot be set");
  }
  if (alias.size() > 1 && alias[0] == 'v' &&
      std::all_of(alias.begin() + 1, alias.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return bad("'v' with digits reads as a version number");
  }
  return {};
}

Result<void> check_key(std::string_view key, std::string_view what) {
  const auto bad = [&](const std::string& why) {
    return Error{Errc::invalid_argument, "registry: " + std::string(what) + " name " +
                                             json_quote(key.substr(0, 300)) + ": " + why};
  };
  if (key.empty() || static_cast<int64_t>(key.size()) > kKeyBytesMax) {
    return bad("it has " + std::to_string(key.size()) + " bytes; 1 to " +
               std::to_string(kKeyBytesMax) + " are allowed");
  }
  if (!is_utf8(key)) {
    return bad("it is not UTF-8");
  }
  if (std::any_of(key.begin(), key.end(), is_control)) {
    return bad("it holds a control character");
  }
  return {};
}

std::string encode_segment(std::string_view item_key) {
  if (item_key.empty()) {
    return std::string(kEmptyKey);
  }
  const bool utf8 = is_utf8(item_key);
  const std::string text = to_nfc(item_key);
  std::string out;
  bool escaped = false;  // what was put last, so that a mark would go with its hex digit
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const size_t mark = escaped && utf8 ? mark_bytes(text, i) : 0;
    const bool edge_blank = c == ' ' && (i == 0 || i + 1 == text.size());
    const bool high = (static_cast<unsigned char>(c) & 0x80U) != 0;
    escaped = true;
    if (mark > 0) {
      for (size_t k = 0; k < mark; ++k) {
        append_percent(text[i + k], &out);
      }
      i += mark - 1;
    } else if (is_control(c) || c == '/' || c == '%' ||
               kRefused.find(c) != std::string_view::npos || edge_blank || (high && !utf8)) {
      append_percent(c, &out);
    } else if (is_c1_control(text, i)) {
      append_percent(c, &out);
      append_percent(text[++i], &out);
    } else {
      out.push_back(c);
      escaped = false;
    }
  }
  if (out == ".") {
    return "%2E";
  }
  if (out == "..") {
    return "%2E%2E";
  }
  return out;
}

std::string decode_segment(std::string_view segment) {
  if (segment == kEmptyKey) {
    return "";
  }
  std::string out;
  for (size_t i = 0; i < segment.size(); ++i) {
    if (is_escape(segment, i)) {
      out.push_back(static_cast<char>(hex_value(segment[i + 1]) * 16 + hex_value(segment[i + 2])));
      i += 2;
    } else {
      out.push_back(segment[i]);
    }
  }
  return out;
}

bool Pattern::matches(std::string_view name) const {
  if (kind == Kind::all) {
    return true;
  }
  if (kind == Kind::tree && name == prefix) {
    return true;
  }
  if (name.size() <= prefix.size() + 1 || name.substr(0, prefix.size()) != prefix ||
      name[prefix.size()] != '/') {
    return false;
  }
  return kind != Kind::children || name.find('/', prefix.size() + 1) == std::string_view::npos;
}

Result<Pattern> parse_pattern(std::string_view text) {
  Pattern pattern;
  if (text.empty() || text == "**") {
    return pattern;
  }
  pattern.kind = Pattern::Kind::tree;
  if (text.size() > 3 && text.substr(text.size() - 3) == "/**") {
    pattern.kind = Pattern::Kind::below;
    text.remove_suffix(3);
  } else if (text.size() > 2 && text.substr(text.size() - 2) == "/*") {
    pattern.kind = Pattern::Kind::children;
    text.remove_suffix(2);
  } else if (text.find('*') != std::string_view::npos) {
    return Error{Errc::invalid_argument,
                 "registry: pattern " + json_quote(text) +
                     ": '*' may stand at the end only, as PREFIX/* (direct children) or PREFIX/** "
                     "(everything below)"};
  } else if (text.back() == '/') {
    text.remove_suffix(1);
  }
  HR_TRY(check_name(text));
  pattern.prefix = std::string(text);
  return pattern;
}

}  // namespace headrace::registry
