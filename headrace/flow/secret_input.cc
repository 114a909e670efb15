// SPDX-License-Identifier: Apache-2.0
// What a secure input is put together from: parts of it are as secret as the whole.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "headrace/base/environment.h"
#include "headrace/flow/engine.h"
#include "headrace/flow/pipeline.h"
#include "headrace/flow/secrets.h"

namespace headrace::flow {

namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kAround = "'\"`;|&()<>{}[],";  // of a word in a command
constexpr std::string_view kBetween = ":@,;|&()<>'\"`";   // of its parts

/// Words of the shell, and of the messages in which an attempt's end is told.
constexpr std::string_view kPlainWords[] = {
    "echo",  "exit",    "test",  "then", "else",     "elif", "done",  "while",
    "until", "case",    "esac",  "eval", "exec",     "trap", "unset", "export",
    "shift", "return",  "break", "read", "continue", "true", "false", "printf",
    "local", "command", "ended", "with", "code",     "last", "line",  "signal"};

/// Does PATH lead to a program of this name?
bool is_program(const std::string& word) {
  if (word.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-") !=
      std::string::npos) {
    return false;
  }
  const std::string path = base::environment("PATH").value_or("/usr/bin:/bin");
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    if (end > begin &&
        ::access((path.substr(begin, end - begin) + "/" + word).c_str(), X_OK) == 0) {
      return true;
    }
    begin = end + 1;
  }
  return false;
}

/// What may be told although it stands in a secure input.
bool is_public(const std::string& word) {
  std::error_code code;
  return word.starts_with("--") || word.starts_with('$') || word.starts_with("HR_PARAM_") ||
         word.starts_with("HEADRACE_") ||
         std::ranges::find(kPlainWords, word) != std::end(kPlainWords) ||
         (word.find('/') != std::string::npos ? std::filesystem::exists(word, code)
                                              : is_program(word));
}

void add_part(std::string_view part, Secrets* secrets) {
  const std::string text(part);
  if (text.size() >= kSecretBytesMin && !is_public(text)) {
    secrets->insert(text);
  }
}

/// Call `visit` for the pieces between any of `marks`.
template <typename Visit>
void split(std::string_view text, std::string_view marks, const Visit& visit) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of(marks, begin), text.size());
    if (end > begin) {
      visit(text.substr(begin, end - begin));
    }
    begin = end + 1;
  }
}

void add_word(std::string_view word, Secrets* secrets) {
  const size_t first = word.starts_with("$(") ? 2 : word.find_first_not_of(kAround);
  if (first >= word.size()) {
    return;
  }
  word = word.substr(first, word.find_last_not_of(kAround) + 1 - first);
  if (word.starts_with("${")) {
    return;
  }
  add_part(word, secrets);
  if (word.size() > 2 && word[0] == '-' && word[1] != '-') {
    add_part(word.substr(2), secrets);  // -pPASSWORD
  }
  split(word, kBetween, [&](std::string_view piece) {
    add_part(piece, secrets);
    if (const size_t equals = piece.find('='); equals != std::string_view::npos) {
      add_part(piece.substr(equals + 1), secrets);  // the name before it tells nothing
    }
  });
}

void add_words(std::string_view text, Secrets* secrets) {
  split(text, kSpace, [&](std::string_view word) { add_word(word, secrets); });
  for (const char quote : {'\'', '"'}) {
    for (size_t open = text.find(quote); open < text.size(); open = text.find(quote, open)) {
      const size_t close = std::min(text.find(quote, open + 1), text.size());
      add_part(text.substr(open + 1, close - open - 1), secrets);
      open = std::min(close + 1, text.size());
    }
  }
}

void add_texts(const Json& value, Secrets* secrets) {
  if (value.is_string()) {
    add_words(value.string(), secrets);
  }
  for (const Json& one : value.is_array() ? value.items() : Json::Array{}) {
    add_texts(one, secrets);
  }
  for (const Json::Member& member : value.is_object() ? value.members() : Json::Object{}) {
    add_texts(member.second, secrets);
  }
}

}  // namespace

void add_input_parts(const Json& properties, const Template& source, Secrets* secrets) {
  add_texts(properties, secrets);
  std::vector<Expression> expressions;
  source.append_expressions(&expressions);
  for (const Expression& expression : expressions) {
    for (const std::string& text : quoted_texts(expression.text())) {
      add_part(text, secrets);
      add_words(text, secrets);
    }
  }
}

Secrets call_secrets(const CallSpec& call, std::string_view properties) {
  Secrets secrets = call.secrets;
  if (call.activity->policy.secure_input) {
    add_input_parts(parse_json(properties).value_or(Json()), call.activity->properties, &secrets);
  }
  return secrets;
}

}  // namespace headrace::flow
