// SPDX-License-Identifier: Apache-2.0
#include "headrace/cli/args.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <memory>
#include <set>

#include <CLI/CLI.hpp>

#include "headrace/base/json.h"
#include "headrace/cli/terminal.h"

namespace headrace::cli {

namespace {

/// Edits (insert, delete, replace, swap of neighbours) between two words.
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
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

/// "--horizon" or "-p,--param" -> "horizon", "param"; a positional is its own key.
std::string key_of(const Option& option) {
  const size_t start = option.name.rfind("--");
  if (start != std::string::npos) {
    return option.name.substr(start + 2);
  }
  return option.name.substr(option.name.find_first_not_of('-'));
}

bool is_positional(const Option& option) { return !option.name.starts_with("-"); }

/// The long form, as messages name it.
std::string shown_name(const Option& option) {
  return is_positional(option) ? option.name : "--" + key_of(option);
}

std::vector<std::string> option_names(const Command& command) {
  std::vector<std::string> names = {"--json", "--help"};
  for (const Option& option : command.options) {
    if (!is_positional(option) && !option.hidden) {
      names.push_back(shown_name(option));
    }
  }
  return names;
}

Parsed usage_error(std::string message, bool json, std::string_view hint_command) {
  Parsed parsed;
  parsed.error = !json;
  parsed.exit_code = kExitUsage;
  const std::string hint =
      fmt::format("`headrace {}--help` shows what there is",
                  hint_command.empty() ? std::string() : std::string(hint_command) + " ");
  if (json) {
    parsed.text = Json::object({{"error", Json::object({{"code", errc_name(Errc::invalid_argument)},
                                                        {"message", message + "; " + hint}})}})
                      .dump() +
                  "\n";
  } else {
    parsed.text = "headrace: " + printable(message, true) + "; " + hint + "\n";
  }
  return parsed;
}

Parsed shown(std::string text) {
  Parsed parsed;
  parsed.text = std::move(text);
  return parsed;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? std::string() : fmt::format("; did you mean \"{}\"?", near);
}

/// Words of the command line before its options, and options that may stand before the command.
struct Leading {
  std::vector<std::string> words;
  size_t consumed = 0;
  bool json = false;
  bool help = false;
  bool version = false;
};

const Command* find_command(const std::vector<Command>& commands,
                            const std::vector<std::string>& words, size_t* used) {
  const Command* found = nullptr;
  std::string name;
  for (size_t i = 0; i < words.size() && i < 3; ++i) {
    name += (i == 0 ? "" : " ") + words[i];
    for (const Command& command : commands) {
      if (command.name == name) {
        found = &command;
        *used = i + 1;
      }
    }
  }
  return found;
}

std::set<std::string> nouns_of(const std::vector<Command>& commands) {
  std::set<std::string> nouns;
  for (const Command& command : commands) {
    nouns.insert(command.name.substr(0, command.name.find(' ')));
  }
  return nouns;
}

/// The commands that have this word as their verb, in words; "" where there is none.
std::string commands_with_verb(const std::vector<Command>& commands, const std::string& verb) {
  std::string text;
  for (const Command& command : commands) {
    if (!command.hidden && command.name.ends_with(" " + verb)) {
      text += fmt::format("{}\"{}\"", text.empty() ? "" : " or ", command.name);
    }
  }
  return text.empty() ? "" : "; did you mean " + text + "?";
}

Parsed no_such_command(const std::vector<Command>& commands, const std::string& noun,
                       const std::string& verb, bool json) {
  const std::set<std::string> nouns = nouns_of(commands);
  if (!nouns.contains(noun)) {
    const std::vector<std::string> names(nouns.begin(), nouns.end());
    const std::string verbs = commands_with_verb(commands, noun);
    return usage_error(fmt::format("there is no command \"{}\"{}", noun,
                                   verbs.empty() ? did_you_mean(noun, names) : verbs),
                       json, "");
  }
  std::vector<std::string> verbs;
  for (const Command& command : commands) {
    if (!command.hidden && command.name.starts_with(noun + " ")) {
      verbs.push_back(command.name.substr(noun.size() + 1));
    }
  }
  return usage_error(
      fmt::format("\"{}\" has no verb \"{}\"{}", noun, verb, did_you_mean(verb, verbs)), json,
      noun);
}

/// "a whole number from 0 to 4096"
std::string range_text(const Option& option) {
  const std::string what = option.kind == OptionKind::integer ? "a whole number" : "a number";
  const bool low = std::isfinite(option.at_least);
  const bool high = std::isfinite(option.at_most);
  return low && high
             ? fmt::format("{} from {:.15g} to {:.15g}", what, option.at_least, option.at_most)
         : low  ? fmt::format("{} of at least {:.15g}", what, option.at_least)
         : high ? fmt::format("{} of at most {:.15g}", what, option.at_most)
                : what;
}

bool in_range(const Option& option, const std::string& value) {
  const char* end = value.data() + value.size();
  int64_t integer = 0;
  double number = 0;
  const bool whole = option.kind == OptionKind::integer;
  const auto [stop, error] = whole ? std::from_chars(value.data(), end, integer)
                                   : std::from_chars(value.data(), end, number);
  if (whole) {
    number = static_cast<double>(integer);
  }
  return error == std::errc() && stop == end && std::isfinite(number) &&
         number >= option.at_least && number <= option.at_most;
}

/// The value is of the option's kind and one of its choices; else what is wrong with it.
std::string value_problem(const Option& option, const std::string& value) {
  const bool number = option.kind == OptionKind::integer || option.kind == OptionKind::number;
  if (number && !in_range(option, value)) {
    return fmt::format("{} takes {}, not \"{}\"", shown_name(option), range_text(option), value);
  }
  if (!option.choices.empty() && std::ranges::find(option.choices, value) == option.choices.end()) {
    return fmt::format("{} is one of {}, not \"{}\"{}", shown_name(option),
                       fmt::join(option.choices, ", "), value, did_you_mean(value, option.choices));
  }
  return {};
}

/// One command's options in the parser library: it only splits words into values; what is required
/// or allowed is decided here, so that messages are ours.
class Splitter {
 public:
  explicit Splitter(const Command& command) : command_(command), app_("", "headrace") {
    app_.set_help_flag("");
    app_.allow_extras();
    app_.add_flag("--json", json_);
    app_.add_flag("-h,--help", help_);
    values_.resize(command.options.size());
    added_.resize(command.options.size(), nullptr);
    app_.add_option("ARGUMENTS", positionals_)->expected(0, CLI::detail::expected_max_vector_size);
    for (size_t i = 0; i < command.options.size(); ++i) {
      const Option& option = command.options[i];
      if (option.kind == OptionKind::flag) {
        added_[i] = app_.add_flag(option.name);
      } else if (!is_positional(option)) {
        added_[i] = app_.add_option(option.name, values_[i]);
        added_[i]->expected(1)->allow_extra_args(false);
        added_[i]->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
      }
    }
  }

  /// Empty, or what cannot be split.
  std::string split(std::vector<std::string> words) {
    std::ranges::reverse(words);  // the library takes them from the back
    try {
      app_.parse(words);
    } catch (const CLI::ArgumentMismatch& error) {
      return without_value(error.what());
    } catch (const CLI::ParseError& error) {
      std::string text = error.what();
      while (text.ends_with('\n') || text.ends_with('.')) {
        text.pop_back();
      }
      return text;
    }
    deal_positionals();
    return {};
  }

  /// Unknown options, and arguments that no positional takes.
  std::vector<std::string> extras() const {
    std::vector<std::string> all = app_.remaining();
    all.insert(all.end(), positionals_.begin(), positionals_.end());
    return all;
  }
  bool json() const { return json_; }
  bool help() const { return help_; }
  bool flag(size_t i) const { return added_[i]->count() > 0; }
  const std::vector<std::string>& values(size_t i) const { return values_[i]; }

 private:
  /// The library names the option first: "--slots: 1 required TEXT missing".
  std::string without_value(std::string_view text) const {
    const std::string_view name = text.substr(0, text.find(':'));
    for (const Option& option : command_.options) {
      if (!is_positional(option) && shown_name(option) == name) {
        return fmt::format("{} needs a value: {}", name, option.help);
      }
    }
    return std::string(text);
  }

  /// Hand the positionals out in order; a repeated one leaves one word to each that follows it.
  void deal_positionals() {
    size_t open = 0;
    for (const Option& option : command_.options) {
      open += is_positional(option) && !option.repeated ? 1U : 0U;
    }
    auto next = positionals_.begin();
    for (size_t i = 0; i < command_.options.size(); ++i) {
      if (!is_positional(command_.options[i])) {
        continue;
      }
      auto left = static_cast<size_t>(positionals_.end() - next);
      size_t take = std::min<size_t>(left, 1);
      if (command_.options[i].repeated) {
        take = left - std::min(left, open);
      } else {
        --open;
      }
      const auto end = next + static_cast<std::ptrdiff_t>(take);
      values_[i].assign(next, end);
      next = end;
    }
    positionals_.erase(positionals_.begin(), next);
  }

  const Command& command_;
  CLI::App app_;
  bool json_ = false;
  bool help_ = false;
  std::vector<std::string> positionals_;
  std::vector<std::vector<std::string>> values_;
  std::vector<CLI::Option*> added_;
};

/// The option that a word means: its name here with `_` for `-`, or one that others have; "" =
/// none.
std::string meant(const Command& command, std::string word) {
  std::ranges::replace(word, '_', '-');
  for (const Option& option : command.options) {
    const bool is_own = !is_positional(option) && key_of(option) == word;
    if (is_own || std::ranges::find(option.elsewhere, word) != option.elsewhere.end()) {
      return shown_name(option);
    }
  }
  return {};
}

/// "prediction_length=48", which some would write for "--horizon 48"; "" = it is no such thing.
std::string assignment_problem(const Command& command, const std::string& word) {
  const size_t equals = word.find('=');
  const std::string option =
      equals == std::string::npos ? std::string() : meant(command, word.substr(0, equals));
  return option.empty() ? std::string()
                        : fmt::format(
                              "\"{}\" does not take the argument \"{}\"; options begin "
                              "with dashes: {} {}",
                              command.name, word, option, word.substr(equals + 1));
}

std::string extras_problem(const Command& command, const std::vector<std::string>& extras) {
  for (const std::string& extra : extras) {
    if (extra.size() > 1 && extra.starts_with("-") && extra != "--") {
      const std::string name = extra.substr(0, extra.find('='));
      const size_t letters = std::min(name.find_first_not_of('-'), name.size());
      const std::string known = meant(command, name.substr(letters));
      return fmt::format("\"{}\" has no option {}{}", command.name, name,
                         known.empty() ? did_you_mean(name, option_names(command))
                                       : fmt::format("; did you mean \"{}\"?", known));
    }
  }
  for (const std::string& extra : extras) {
    if (std::string problem = assignment_problem(command, extra); !problem.empty()) {
      return problem;
    }
  }
  return extras.empty() ? std::string()
                        : fmt::format("\"{}\" does not take the argument \"{}\"", command.name,
                                      extras.front());
}

/// "prediction_length=48" in the place of a table. Not "item_id=7", which may be a folder of one,
/// nor "horizon=48": the names of options here are words that folders have.
std::string positional_problem(const Command& command, const std::string& value) {
  std::error_code code;
  if (std::filesystem::exists(value, code)) {
    return {};  // "h=5" of a partitioned table
  }
  std::string word = value.substr(0, value.find('='));
  std::ranges::replace(word, '_', '-');
  const bool is_elsewhere = std::ranges::any_of(command.options, [&](const Option& option) {
    return option.kind != OptionKind::text &&
           std::ranges::find(option.elsewhere, word) != option.elsewhere.end();
  });
  return is_elsewhere ? assignment_problem(command, value) : std::string();
}

/// Check and collect; empty, or the first problem.
std::string collect(const Command& command, const Splitter& splitter, Arguments* arguments) {
  for (size_t i = 0; i < command.options.size(); ++i) {
    const Option& option = command.options[i];
    if (option.kind == OptionKind::flag) {
      if (splitter.flag(i)) {
        arguments->add(key_of(option), "true");
      }
      continue;
    }
    const std::vector<std::string>& values = splitter.values(i);
    if (values.empty() && option.required) {
      return fmt::format("\"{}\" needs {}: {}", command.name, shown_name(option), option.help);
    }
    if (values.size() > 1 && !option.repeated) {
      return fmt::format("{} is given {} times, with \"{}\" and \"{}\"; give it once",
                         shown_name(option), values.size(), values[0], values[1]);
    }
    for (const std::string& value : values) {
      std::string problem = value_problem(option, value);
      if (problem.empty() && is_positional(option)) {
        problem = positional_problem(command, value);
      }
      if (!problem.empty()) {
        return problem;
      }
      arguments->add(key_of(option), value);
    }
    if (values.empty() && !option.default_text.empty()) {
      arguments->add(key_of(option), option.default_text);
    }
  }
  return {};
}

/// Whether `word` is an option that takes the word behind it as its value.
bool takes_next(const Command& command, const std::string& word) {
  for (const Option& option : command.options) {
    std::string_view names = option.name;
    while (!is_positional(option) && !names.empty()) {
      const size_t comma = std::min(names.find(','), names.size());
      if (names.substr(0, comma) == word) {
        return option.kind != OptionKind::flag;
      }
      names.remove_prefix(std::min(comma + 1, names.size()));
    }
  }
  return false;
}

/// Put our own spelling in the place of others', and take another program's command line off the
/// end of `words`.
std::vector<std::string> take_rest(const Command& command, std::vector<std::string>* words) {
  for (size_t i = 0; i < words->size(); ++i) {
    std::string& word = (*words)[i];
    if (word == "--" || !word.starts_with("-")) {
      const auto at = words->begin() + static_cast<std::ptrdiff_t>(i);
      const std::vector<std::string> rest(at + (word == "--" ? 1 : 0), words->end());
      words->erase(at, words->end());
      return rest;
    }
    const size_t name_end = std::min(word.find('='), word.size());
    for (const auto& [theirs, ours] : command.spellings) {
      if (word.substr(0, name_end) == theirs) {
        word.replace(0, name_end, ours);
        break;
      }
    }
    if (takes_next(command, word)) {
      ++i;
    }
  }
  return {};
}

Parsed parse_command(const Command& command, std::vector<std::string> words, bool json) {
  Splitter splitter(command);
  const std::vector<std::string> rest =
      command.rest.empty() ? std::vector<std::string>() : take_rest(command, &words);
  // Asked before parsing, so that errors of the parser itself also come as JSON.
  json = json || std::ranges::find(words, "--json") != words.end();
  const std::string problem = splitter.split(std::move(words));
  if (splitter.help()) {
    return shown(command_help(command));
  }
  if (!problem.empty()) {
    return usage_error(problem, json, command.name);
  }
  const std::string extras = extras_problem(command, splitter.extras());
  if (!extras.empty()) {
    return usage_error(extras, json, command.name);
  }
  Parsed parsed;
  for (const std::string& word : rest) {
    parsed.arguments.add(command.rest, word);
  }
  const std::string wrong = collect(command, splitter, &parsed.arguments);
  if (!wrong.empty()) {
    return usage_error(wrong, json, command.name);
  }
  if (json || splitter.json()) {
    parsed.arguments.add("json", "true");
  }
  parsed.command = &command;
  return parsed;
}

Leading read_leading(const std::vector<std::string>& words) {
  Leading leading;
  for (const std::string& word : words) {
    if (word == "--json") {
      leading.json = true;
    } else if (word == "--help" || word == "-h") {
      leading.help = true;
    } else if (word == "--version") {
      leading.version = true;
    } else {
      break;
    }
    ++leading.consumed;
  }
  for (size_t i = leading.consumed; i < words.size() && !words[i].starts_with("-"); ++i) {
    leading.words.push_back(words[i]);
  }
  return leading;
}

}  // namespace

bool Arguments::has(std::string_view name) const { return values_.contains(name); }

bool Arguments::flag(std::string_view name) const { return has(name); }

std::string Arguments::text(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::string() : found->second.front();
}

std::vector<std::string> Arguments::texts(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::vector<std::string>() : found->second;
}

std::optional<int64_t> Arguments::integer(std::string_view name) const {
  const std::string value = text(name);
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

std::optional<double> Arguments::number(std::string_view name) const {
  const std::string value = text(name);
  double number = 0;
  const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

void Arguments::add(std::string name, std::string value) {
  values_[std::move(name)].push_back(std::move(value));
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_edits = 0;
  for (const std::string& candidate : candidates) {
    const size_t edits = edit_distance(word, candidate);
    if (best.empty() || edits < best_edits) {
      best = candidate;
      best_edits = edits;
    }
  }
  // A third of the letters may be wrong; a beginning of the name always counts.
  for (const std::string& candidate : candidates) {
    if (word.size() > 2 && candidate.starts_with(word)) {
      return candidate;
    }
  }
  return best_edits <= std::max<size_t>(1, word.size() / 3) ? best : std::string();
}

int report_error(const Error& error, bool json) {
  if (json) {
    const Json document = Json::object({{"error", Json::object({{"code", errc_name(error.code())},
                                                                {"message", error.message()}})}});
    fmt::print("{}\n", document.dump());
  } else {
    fmt::print(stderr, "headrace: {}\n", printable(error.message(), true));
  }
  const bool usage = error.code() == Errc::invalid_argument || error.code() == Errc::not_found;
  return usage ? kExitUsage : kExitFailed;
}

Parsed parse_command_line(const std::vector<Command>& commands,
                          const std::vector<std::string>& words, std::string_view version) {
  const Leading leading = read_leading(words);
  if (leading.version) {
    return shown(leading.json ? Json::object({{"version", version}}).dump() + "\n"
                              : fmt::format("headrace {}\n", version));
  }
  if (leading.words.empty()) {
    const bool more = leading.consumed < words.size();
    if (more) {
      const std::string& word = words[leading.consumed];
      return usage_error(fmt::format("there is no option {}{}", word,
                                     did_you_mean(word, {"--help", "--version", "--json"})),
                         leading.json || std::ranges::find(words, "--json") != words.end(), "");
    }
    return leading.help ? shown(root_help(commands, version))
                        : usage_error("no command is given", leading.json, "");
  }
  size_t used = 0;
  const Command* command = find_command(commands, leading.words, &used);
  if (command != nullptr) {
    if (leading.help) {
      return shown(command_help(*command));
    }
    const auto rest = words.begin() + static_cast<std::ptrdiff_t>(leading.consumed + used);
    return parse_command(*command, {rest, words.end()}, leading.json);
  }
  const std::string& noun = leading.words.front();
  const bool json = leading.json || std::ranges::find(words, "--json") != words.end();
  if (leading.words.size() == 1 && nouns_of(commands).contains(noun)) {
    const auto rest = words.begin() + static_cast<std::ptrdiff_t>(leading.consumed + 1);
    const bool help = leading.help || std::find(rest, words.end(), "--help") != words.end() ||
                      std::find(rest, words.end(), "-h") != words.end();
    return help ? shown(noun_help(commands, noun))
                : usage_error(fmt::format("\"{}\" needs a verb", noun), json, noun);
  }
  return no_such_command(commands, noun, leading.words.size() > 1 ? leading.words[1] : "", json);
}

}  // namespace headrace::cli
