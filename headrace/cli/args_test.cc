// SPDX-License-Identifier: Apache-2.0
#include "headrace/cli/args.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "headrace/base/json.h"
#include "headrace/base/test_folder.h"

namespace headrace::cli {

namespace {

Option option(std::string name, OptionKind kind, std::string help = "Help.") {
  Option made;
  made.name = std::move(name);
  made.kind = kind;
  made.help = std::move(help);
  return made;
}

std::vector<Command> sample_commands() {
  Command train;
  train.name = "forecast train";
  train.summary = "train models";
  train.details = "Each series gets a model of its own with --local.";
  train.examples = {"headrace forecast train lake/ --horizon 48 --local"};
  Option table = option("table", OptionKind::text, "Table to read.");
  table.required = true;
  Option horizon = option("--horizon", OptionKind::integer, "Steps to forecast.");
  horizon.required = true;
  Option level = option("--level", OptionKind::number, "Level in percent.");
  level.default_text = "80";
  Option family = option("--distribution", OptionKind::text, "Output distribution.");
  family.choices = {"student_t", "normal"};
  Option parameter = option("-p,--param", OptionKind::text, "NAME=VALUE.");
  parameter.repeated = true;
  Option items = option("item", OptionKind::text, "Items.");
  items.repeated = true;
  train.options = {table, horizon, level, family, parameter, option("--local", OptionKind::flag),
                   items};

  Command run;
  run.name = "flow run";
  run.summary = "Run a pipeline.";
  Command doctor;
  doctor.name = "doctor";
  doctor.summary = "Say what works.";
  return {train, run, doctor};
}

Parsed parse(std::vector<std::string> words) {
  static const std::vector<Command> commands = sample_commands();
  return parse_command_line(commands, words, "1.2.3");
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

void check_usage_error(std::vector<std::string> words, std::string_view message) {
  const Parsed parsed = parse(std::move(words));
  CAPTURE(message);
  CAPTURE(parsed.text);
  CHECK(parsed.command == nullptr);
  CHECK(parsed.error);
  CHECK(parsed.exit_code == 2);
  CHECK(parsed.text.starts_with("headrace: "));
  CHECK(contains(parsed.text, message));
}

}  // namespace

TEST_CASE("a command's values arrive under their long names") {
  const Parsed parsed = parse({"forecast", "train", "lake/", "--horizon", "48", "--local", "-p",
                               "a=1", "--param=b=2", "H1", "H2"});

  CAPTURE(parsed.text);
  REQUIRE(parsed.command != nullptr);
  const Arguments& arguments = parsed.arguments;
  CHECK(parsed.command->name == "forecast train");
  CHECK(arguments.text("table") == "lake/");
  CHECK(arguments.integer("horizon") == 48);
  CHECK(arguments.flag("local"));
  CHECK(!arguments.flag("json"));
  CHECK(arguments.texts("param") == std::vector<std::string>{"a=1", "b=2"});
  CHECK(arguments.texts("item") == std::vector<std::string>{"H1", "H2"});
  CHECK(arguments.number("level") == 80.0);
  CHECK(!arguments.has("distribution"));
  CHECK(arguments.text("distribution").empty());
}

TEST_CASE("a negative number is a value and not an option") {
  const Parsed parsed = parse({"forecast", "train", "t", "--horizon", "1", "--level", "-2.5e-3"});

  REQUIRE(parsed.command != nullptr);
  CHECK(parsed.arguments.number("level") == doctest::Approx(-0.0025));
}

TEST_CASE("--json may stand before or after the command") {
  CHECK(parse({"--json", "flow", "run"}).arguments.flag("json"));
  CHECK(parse({"flow", "run", "--json"}).arguments.flag("json"));
  CHECK(parse({"doctor", "--json"}).arguments.flag("json"));
}

TEST_CASE("an unknown option without a command is JSON wherever --json stands") {
  for (const auto& words : {std::vector<std::string>{"--json", "--bogus"}, {"--bogus", "--json"}}) {
    const Parsed parsed = parse(words);
    CHECK(parsed.exit_code == kExitUsage);
    CHECK(parsed.text.starts_with("{\"error\":"));
  }
}

TEST_CASE("an unknown command is answered with the nearest name and exit code 2") {
  check_usage_error({"forcast", "train"}, "no command \"forcast\"; did you mean \"forecast\"?");
  check_usage_error({"forecast", "tarin"},
                    "\"forecast\" has no verb \"tarin\"; did you mean \"train\"?");
  check_usage_error({"zebra"}, "there is no command \"zebra\"; `headrace --help`");
  check_usage_error({"forecast"}, "\"forecast\" needs a verb");
  check_usage_error({}, "no command is given");
  check_usage_error({"--verson"}, "there is no option --verson; did you mean \"--version\"?");
}

TEST_CASE("an unknown option is named before what is missing, with the nearest name") {
  check_usage_error({"forecast", "train", "--horizn", "48"},
                    "has no option --horizn; did you mean \"--horizon\"?");
  check_usage_error({"forecast", "train", "--horizn=48"},
                    "has no option --horizn; did you mean \"--horizon\"?");
  check_usage_error({"doctor", "-x"}, "\"doctor\" has no option -x");
  check_usage_error({"doctor", "extra"}, "\"doctor\" does not take the argument \"extra\"");
}

TEST_CASE("a wrong or missing value names the option, the value and what is taken") {
  check_usage_error({"forecast", "train", "t"}, "needs --horizon: Steps to forecast.");
  check_usage_error({"forecast", "train", "--horizon", "3"}, "needs table: Table to read.");
  check_usage_error({"forecast", "train", "t", "--horizon", "4x"},
                    "--horizon takes a whole number, not \"4x\"");
  check_usage_error({"forecast", "train", "t", "--horizon", "4", "--level", "high"},
                    "--level takes a number, not \"high\"");
  check_usage_error(
      {"forecast", "train", "t", "--horizon", "4", "--distribution", "norml"},
      "--distribution is one of student_t, normal, not \"norml\"; did you mean \"normal\"?");
  check_usage_error({"forecast", "train", "t", "--horizon", "4", "--horizon", "5"},
                    "--horizon is given 2 times, with \"4\" and \"5\"; give it once");
  check_usage_error({"forecast", "train", "t", "--horizon"}, "--horizon needs a value: Steps to");
  check_usage_error({"forecast", "train", "t", "--horizon="}, "--horizon needs a value: Steps to");
  check_usage_error({"forecast", "train", "t", "--horizon", ""},
                    "--horizon takes a whole number, not \"\"");
}

TEST_CASE("an assignment for a table is taken for an option, unless such a file is there") {
  std::vector<Command> commands = sample_commands();
  for (Option& one : commands.front().options) {
    if (one.name == "--horizon") {
      one.elsewhere = {"h"};
    }
  }
  const base::TestFolder folder;
  const base::WorkingFolder in(folder.path());
  const std::vector<std::string> words = {"forecast", "train", "h=5", "--horizon", "4"};

  const Parsed refused = parse_command_line(commands, words, "1");
  CHECK(refused.exit_code == kExitUsage);
  CHECK(contains(refused.text, "options begin with dashes: --horizon 5"));
  REQUIRE(base::make_folders("h=5").ok());
  const Parsed taken = parse_command_line(commands, words, "1");
  CAPTURE(taken.text);
  REQUIRE(taken.command != nullptr);
  CHECK(taken.arguments.text("table") == "h=5");
}

TEST_CASE("a number out of its range is answered with the range and the value given") {
  std::vector<Command> commands = sample_commands();
  for (Option& one : commands.front().options) {
    if (one.name == "--horizon") {
      one.at_least = 1;
      one.at_most = 100'000;
    } else if (one.name == "--level") {
      one.at_least = 0;
    }
  }
  const auto told = [&](const std::string& option, const std::string& value) {
    std::vector<std::string> words = {"forecast", "train", "t", option, value};
    if (option != "--horizon") {
      words.insert(words.end(), {"--horizon", "4"});
    }
    const Parsed parsed = parse_command_line(commands, words, "1");
    CHECK(parsed.exit_code == kExitUsage);
    return parsed.text.substr(0, parsed.text.find(';'));
  };
  for (const char* value :
       {"0", "-1", "100001", "99999999999999999999", "1e3", "4x", " 4", "0x4"}) {
    CHECK(told("--horizon", value) ==
          fmt::format("headrace: --horizon takes a whole number from 1 to 100000, not \"{}\"",
                      value));
  }
  for (const char* value : {"-0.5", "nan", "inf", "1e999", "x"}) {
    CHECK(told("--level", value) ==
          fmt::format("headrace: --level takes a number of at least 0, not \"{}\"", value));
  }
}

TEST_CASE("with --json a usage error is one JSON value for stdout") {
  const Parsed parsed = parse({"forecast", "train", "--json"});

  CHECK(parsed.exit_code == 2);
  CHECK(!parsed.error);
  const auto document = parse_json(parsed.text);
  REQUIRE(document.ok());
  CHECK(document->at("error").at("code").string() == "invalid_argument");
  CHECK(contains(document->at("error").at("message").string(), "needs table"));
}

TEST_CASE("help of a verb names its arguments, defaults, choices and examples") {
  const Parsed parsed = parse({"forecast", "train", "--help"});

  CHECK(parsed.exit_code == 0);
  CHECK(!parsed.error);
  CHECK(parsed.command == nullptr);
  for (const std::string_view part :
       {"Usage: headrace forecast train TABLE [ITEM...] [OPTIONS]", "\nTrain models.\n",
        "--horizon INTEGER", "Required.", "Default: 80.", "One of: student_t, normal.",
        "-p, --param TEXT", "May be repeated.", "--json", "-h, --help",
        "headrace forecast train lake/ --horizon 48 --local"}) {
    CAPTURE(part);
    CHECK(contains(parsed.text, part));
  }
  CHECK(parse({"--help", "forecast", "train"}).text == parsed.text);
  CHECK(parse({"forecast", "train", "t", "--horizon", "x", "-h"}).text == parsed.text);
}

TEST_CASE("help of the root and of a noun list what is below, with examples") {
  const std::string root = parse({"--help"}).text;
  CHECK(contains(root, "headrace 1.2.3"));
  CHECK(contains(root, "  forecast  "));
  CHECK(contains(root, "  doctor    "));
  CHECK(contains(root, "headrace forecast train lake/ --horizon 48 --local"));
  CHECK(!contains(root, "  models"));  // no command of that noun was given

  const std::string noun = parse({"forecast", "--help"}).text;
  CHECK(contains(noun, "  train  train models"));
}

TEST_CASE("the version is printed as text and as JSON") {
  CHECK(parse({"--version"}).text == "headrace 1.2.3\n");
  CHECK(parse({"--json", "--version"}).text == "{\"version\":\"1.2.3\"}\n");
}

TEST_CASE("no line of a help text is wider than 96 columns") {
  std::vector<Command> commands = sample_commands();
  for (int i = 0; i < 60; ++i) {
    commands[0].details += " word" + std::to_string(i);
    commands[0].options[1].help += " word" + std::to_string(i);
  }
  const std::string text = command_help(commands[0]);
  size_t start = 0;
  while (start < text.size()) {
    const size_t end = text.find('\n', start);
    CHECK(end - start <= 96);
    start = end + 1;
  }
}

TEST_CASE("the nearest name allows a third of the letters to be wrong") {
  CHECK(nearest("trian", {"train", "predict"}) == "train");
  CHECK(nearest("pred", {"train", "predict"}) == "predict");
  CHECK(nearest("xyzzy", {"train", "predict"}).empty());
  CHECK(nearest("x", {}).empty());
}

TEST_CASE("another program's command line is taken as it is") {
  Command run;
  run.name = "run";
  run.options = {{.name = "-n,--num-proc", .kind = OptionKind::integer},
                 {.name = "--verbose", .kind = OptionKind::flag},
                 {.name = "command", .repeated = true}};
  run.rest = "command";
  run.spellings = {{"-np", "--num-proc"}};
  const std::vector<Command> commands = {run};
  const auto parse = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "run");
    return parse_command_line(commands, words, "1");
  };
  using Words = std::vector<std::string>;
  auto parsed = parse({"-np", "4", "python", "-v", "--num-proc", "9", "--help"});
  REQUIRE(parsed.command != nullptr);
  CHECK(parsed.arguments.integer("num-proc") == 4);
  CHECK(parsed.arguments.texts("command") == Words{"python", "-v", "--num-proc", "9", "--help"});
  parsed = parse({"--num-proc=2", "--verbose", "--", "--odd", "-np"});
  REQUIRE(parsed.command != nullptr);
  CHECK(parsed.arguments.integer("num-proc") == 2);
  CHECK(parsed.arguments.texts("command") == Words{"--odd", "-np"});
  parsed = parse({"-n", "2"});
  REQUIRE(parsed.command != nullptr);
  CHECK(parsed.arguments.texts("command").empty());
  CHECK(parse({"-np=3", "x"}).arguments.integer("num-proc") == 3);
  CHECK(parse({"--frob", "x"}).command == nullptr);
  CHECK(parse({"--help"}).text.find("[OPTIONS] [COMMAND...]") != std::string::npos);
}

}  // namespace headrace::cli
