// SPDX-License-Identifier: Apache-2.0
// What a secure input is put together from: parts of it are as secret as the whole.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "headrace/base/environment.h"
#include "headrace/flow/custom.h"
#include "headrace/flow/engine.h"
#include "headrace/flow/pipeline.h"
#include "headrace/flow/secrets.h"
#include "headrace/flow/value.h"

namespace headrace::flow {

namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kAround = "'\"`;|&()<>{}[],";  // of a word in a command
constexpr std::string_view kBetween = ":@,;|&()<>'\"`";   // of its parts
constexpr std::string_view kInBraces = ":-=+?%#/^,@}";    // of ${NAME:-text} behind the name
constexpr std::string_view kNameBytes =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

/// Words of the shell, and of the messages in which an attempt's end is told.
constexpr std::string_view kPlainWords[] = {
    "echo",  "exit",    "test",  "then", "else",     "elif", "done",  "while",
    "until", "case",    "esac",  "eval", "exec",     "trap", "unset", "export",
    "shift", "return",  "break", "read", "continue", "true", "false", "printf",
    "local", "command", "ended", "with", "code",     "last", "line",  "signal"};

/// For each byte of a command: does the shell take it as it is, in single quotes or behind a
/// backslash?
std::vector<bool> bytes_as_they_are(std::string_view command) {
  std::vector<bool> as_it_is(command.size());
  char quote = 0;
  for (size_t at = 0; at < command.size(); ++at) {
    const char c = command[at];
    as_it_is[at] = quote == '\'';
    if (c == '\\' && quote != '\'') {
      ++at;
      if (at < command.size()) {
        as_it_is[at] = true;
      }
    } else if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    }
  }
  return as_it_is;
}

/// NAME of $NAME and ${NAME}, whose end may be cut off; else empty.
std::string_view variable_of(std::string_view part) {
  if (!part.starts_with('$')) {
    return {};
  }
  part.remove_prefix(part.starts_with("${") ? 2 : 1);
  part.remove_suffix(part.ends_with('}') ? 1 : 0);
  return part.find_first_not_of(kNameBytes) == std::string_view::npos ? part : std::string_view();
}

/// "--dry-run". With a capital or a digit it may as well be a password.
bool is_option(std::string_view word) {
  return word.starts_with("--") && word.size() > 2 && word[2] != '-' &&
         std::ranges::all_of(word, [](char c) { return c == '-' || (c >= 'a' && c <= 'z'); });
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

class PartFinder {
 public:
  PartFinder(const Json& properties, KnownWords* known, Secrets* secrets)
      : given_(command_variables(properties)), known_(*known), secrets_(*secrets) {}

  /// The command first: what else there is may be too much.
  void add_all(const Json& properties) {
    const Json* command = properties.find("command");
    if (command != nullptr && command->is_string() && command->string().size() <= kPartsBytesMax) {
      as_it_is_ = bytes_as_they_are(command->string());
      add_words(command->string());
      as_it_is_.clear();
    }
    for (const Json::Member& member : members_of(&properties)) {
      if (&member.second != command || !command->is_string()) {
        add_texts(member.second);
      }
    }
  }

  void add_quoted(const std::string& text) {
    add_part(text);
    add_words(text);
  }

 private:
  void add_texts(const Json& value) {
    if (value.is_string()) {
      add_words(value.string());
    }
    for (const Json& one : items_of(&value)) {
      add_texts(one);
    }
    for (const Json::Member& member : members_of(&value)) {
      add_texts(member.second);
    }
  }

  void add_words(std::string_view text) {
    if (text.size() > kPartsBytesMax) {
      return;
    }
    text_ = text;
    split(text, kSpace, [&](std::string_view word) { add_word(word); });
    for (const char quote : {'\'', '"'}) {
      for (size_t open = text.find(quote); open < text.size(); open = text.find(quote, open)) {
        const size_t close = std::min(text.find(quote, open + 1), text.size());
        add_part(text.substr(open + 1, close - open - 1));
        open = std::min(close + 1, text.size());
      }
    }
    text_ = {};
  }

  void add_word(std::string_view word) {
    const size_t first = word.starts_with("$(") ? 2 : word.find_first_not_of(kAround);
    if (first >= word.size()) {
      return;
    }
    word = word.substr(first, word.find_last_not_of(kAround) + 1 - first);
    add_part(word);
    if (word.size() > 2 && word[0] == '-' && word[1] != '-') {
      add_part(word.substr(2));  // -pPASSWORD
    }
    if (word.starts_with("${")) {  // what stands in the variable's place tells as much as its value
      const size_t end = std::min(word.find_first_not_of(kNameBytes, 2), word.size());
      split(word.substr(end), kInBraces, [&](std::string_view piece) { add_part(piece); });
    }
    split(word, kBetween, [&](std::string_view piece) {
      add_part(piece);
      if (const size_t equals = piece.find('='); equals != std::string_view::npos) {
        add_part(piece.substr(equals + 1));  // the name before it tells nothing
      }
    });
  }

  void add_part(std::string_view part) {
    if (part.size() < kSecretBytesMin || parts_left_ == 0) {
      return;
    }
    --parts_left_;
    if (is_public(part)) {
      return;
    }
    secrets_.insert(part);
    if (part.find('\\') != std::string_view::npos) {
      std::string unescaped(part);
      std::erase(unescaped, '\\');
      secrets_.insert(unescaped);
    }
  }

  /// What may be told although it stands in a secure input.
  bool is_public(std::string_view part) {
    const std::string word(part);
    std::error_code code;
    return is_option(part) || is_variable(part) ||
           std::ranges::find(given_, word) != given_.end() ||
           std::ranges::find(kPlainWords, part) != std::end(kPlainWords) ||
           (part.find('/') != std::string_view::npos ? std::filesystem::exists(word, code)
                                                     : known_.is_program(word));
  }

  /// A variable that the command is given, where the shell puts its value in.
  bool is_variable(std::string_view part) const {
    const bool in_command = !as_it_is_.empty() && part.data() >= text_.data() &&
                            part.data() < text_.data() + text_.size();
    if (!in_command || as_it_is_[static_cast<size_t>(part.data() - text_.data())]) {
      return false;
    }
    const std::string name(variable_of(part));
    return !name.empty() &&
           (std::ranges::find(given_, name) != given_.end() || base::environment(name).has_value());
  }

  std::vector<std::string> given_;
  KnownWords& known_;
  Secrets& secrets_;
  size_t parts_left_ = kPartsMax;
  std::string_view text_;       // whose words are taken now
  std::vector<bool> as_it_is_;  // by byte, while that is the command
};

}  // namespace

bool KnownWords::is_program(const std::string& word) {
  constexpr size_t kWordsMax = 10'000;
  if (const auto it = programs_.find(word); it != programs_.end()) {
    return it->second;
  }
  bool found = false;
  if (word.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-") ==
      std::string::npos) {
    const std::string path = base::environment("PATH").value_or("/usr/bin:/bin");
    split(path, ":", [&](std::string_view folder) {
      found = found || ::access((std::string(folder) + "/" + word).c_str(), X_OK) == 0;
    });
  }
  if (programs_.size() >= kWordsMax) {
    programs_.clear();
  }
  programs_.emplace(word, found);
  return found;
}

void add_input_parts(const Json& properties, const Template& source, KnownWords* known,
                     Secrets* secrets) {
  PartFinder finder(properties, known, secrets);
  finder.add_all(properties);
  std::vector<Expression> expressions;
  source.append_expressions(&expressions);
  for (const Expression& expression : expressions) {
    for (const std::string& text : quoted_texts(expression.text())) {
      finder.add_quoted(text);
    }
  }
}

Secrets call_secrets(const CallSpec& call, std::string_view properties, KnownWords* known) {
  Secrets secrets = call.secrets;
  if (call.activity->policy.secure_input) {
    add_input_parts(parse_json(properties).value_or(Json()), call.activity->properties, known,
                    &secrets);
  }
  return secrets;
}

}  // namespace headrace::flow
