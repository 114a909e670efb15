// SPDX-License-Identifier: Apache-2.0
// The text of --help, made from the commands' data.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "headrace/cli/args.h"

namespace headrace::cli {

namespace {

constexpr size_t kWidth = 96;

struct Noun {
  std::string_view name;
  std::string_view summary;
};

constexpr std::array kNouns = {
    Noun{"forecast", "train, predict, backtest and evaluate DeepAR models"},
    Noun{"flow", "run, resume and inspect pipelines"},
    Noun{"expr", "evaluate one expression of a pipeline"},
    Noun{"models", "the registry: models, versions, aliases, metrics"},
    Noun{"lake", "look into tables of Parquet, CSV and JSON lines"},
    Noun{"timeline", "traces of what ranks did"},
    Noun{"run", "start the ranks of a job: a script of Horovod's, of torch.distributed, or any"},
    Noun{"agent", "start ranks on this machine for a launcher on another one"},
    Noun{"doctor", "what works here, and why the rest does not"},
};

std::string_view first_word(std::string_view name) { return name.substr(0, name.find(' ')); }

/// `text` in lines of at most kWidth columns, all but the first indented by `indent`.
std::string wrapped(std::string_view text, size_t indent) {
  std::string out;
  size_t column = indent;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(" \n"), text.size());
    if (column > indent && column + 1 + end > kWidth) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += text.substr(0, end);
    column += end;
    if (end < text.size() && text[end] == '\n') {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string option_heading(const Option& option) {
  std::string heading = option.name;
  if (const size_t comma = heading.find(','); comma != std::string::npos) {
    heading.insert(comma + 1, " ");
  }
  switch (option.kind) {
    case OptionKind::flag: return heading;
    case OptionKind::text: return heading + (option.choices.empty() ? " TEXT" : " CHOICE");
    case OptionKind::integer: return heading + " INTEGER";
    case OptionKind::number: return heading + " NUMBER";
  }
  return heading;
}

bool is_positional(const Option& option) { return !option.name.starts_with("-"); }

std::string positional_text(const Option& option) {
  std::string text = option.name;
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (option.repeated) {
    text += "...";
  }
  return option.required ? text : "[" + text + "]";
}

/// "train one model" -> "Train one model."
std::string as_sentence(std::string text) {
  if (!text.empty()) {
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    if (!text.ends_with('.')) {
      text += '.';
    }
  }
  return text;
}

std::string option_help(const Option& option) {
  std::string text = as_sentence(option.help);
  if (!option.choices.empty()) {
    text += fmt::format(" One of: {}.", fmt::join(option.choices, ", "));
  }
  if (option.repeated) {
    text += " May be repeated.";
  }
  if (option.required) {
    text += " Required.";
  }
  if (!option.default_text.empty() && option.kind != OptionKind::flag) {
    text += fmt::format(" Default: {}.", option.default_text);
  }
  return text;
}

std::string two_columns(const std::vector<std::pair<std::string, std::string>>& rows) {
  size_t left = 0;
  for (const auto& [heading, text] : rows) {
    left = std::max(left, std::min<size_t>(heading.size(), 30));
  }
  std::string out;
  for (const auto& [heading, text] : rows) {
    out += "  " + heading;
    const size_t indent = left + 4;
    if (heading.size() > left) {
      out += '\n' + std::string(indent, ' ');
    } else {
      out += std::string(left + 2 - heading.size(), ' ');
    }
    out += wrapped(text, indent) + "\n";
  }
  return out;
}

std::string example_lines(const std::vector<std::string>& examples) {
  std::string out;
  for (const std::string& example : examples) {
    out += "  " + example + "\n";
  }
  return out;
}

}  // namespace

std::string root_help(const std::vector<Command>& commands, std::string_view version) {
  std::string out = fmt::format(
      "headrace {}: deep learning on data-lake data\n\nUsage: headrace NOUN [VERB] [OPTIONS]\n\n"
      "Nouns:\n",
      version);
  std::vector<std::pair<std::string, std::string>> rows;
  std::vector<std::string> examples;
  for (const Noun& noun : kNouns) {
    for (const Command& command : commands) {
      if (first_word(command.name) == noun.name) {
        if (rows.empty() || rows.back().first != noun.name) {
          rows.emplace_back(noun.name, noun.summary);
          if (!command.examples.empty()) {
            examples.push_back(command.examples.front());
          }
        }
      }
    }
  }
  out += two_columns(rows) + "\nOptions:\n";
  out += two_columns({{"-h, --help", "Show this text; after a noun or a verb, its own."},
                      {"--version", "Print the version."},
                      {"--json", "Print the result as one JSON value (every command)."}});
  out += "\nExamples:\n" + example_lines(examples);
  return out +
         "\nExit codes: 0 done, 1 failed in part or in whole, 2 wrong arguments or input, "
         "3 cancelled,\n130 interrupted (resumable).\n";
}

std::string noun_help(const std::vector<Command>& commands, std::string_view noun) {
  std::vector<std::pair<std::string, std::string>> rows;
  std::vector<std::string> examples;
  for (const Command& command : commands) {
    if (!command.hidden && first_word(command.name) == noun) {
      const bool has_verb = command.name.size() > noun.size();
      rows.emplace_back(has_verb ? command.name.substr(noun.size() + 1) : command.name,
                        command.summary);
      if (!command.examples.empty()) {
        examples.push_back(command.examples.front());
      }
    }
  }
  std::string out = fmt::format("Usage: headrace {} VERB [OPTIONS]\n\n", noun);
  for (const Noun& known : kNouns) {
    if (known.name == noun) {
      out += fmt::format("{}: {}\n\n", noun, known.summary);
    }
  }
  out += "Verbs:\n" + two_columns(rows);
  if (!examples.empty()) {
    out += "\nExamples:\n" + example_lines(examples);
  }
  return out + fmt::format("\n`headrace {} VERB --help` shows a verb's options.\n", noun);
}

std::string command_help(const Command& command) {
  std::string usage = "Usage: headrace " + command.name;
  std::vector<std::pair<std::string, std::string>> positionals;
  std::vector<std::pair<std::string, std::string>> options;
  for (const Option& option : command.options) {
    if (option.hidden) {
      continue;
    }
    if (is_positional(option)) {
      usage += " " + positional_text(option);
      positionals.emplace_back(positional_text(option), option_help(option));
    } else {
      options.emplace_back(option_heading(option), option_help(option));
    }
  }
  options.emplace_back("--json", "Print the result as one JSON value.");
  options.emplace_back("-h, --help", "Show this text.");
  // Another program's command line ends ours: options stand before it.
  usage = command.rest.empty() ? usage + " [OPTIONS]"
                               : "Usage: headrace " + command.name + " [OPTIONS] " +
                                     usage.substr(usage.rfind(' ') + 1);
  std::string out = usage + "\n\n" + wrapped(as_sentence(command.summary), 0) + "\n";
  if (!command.details.empty()) {
    out += "\n" + wrapped(command.details, 0) + "\n";
  }
  if (!positionals.empty()) {
    out += "\nArguments:\n" + two_columns(positionals);
  }
  out += "\nOptions:\n" + two_columns(options);
  if (!command.examples.empty()) {
    out += "\nExamples:\n" + example_lines(command.examples);
  }
  return out;
}

}  // namespace headrace::cli
