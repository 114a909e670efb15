// SPDX-License-Identifier: Apache-2.0
#include "headrace/cli/forecast_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "headrace/cli/terminal.h"

namespace headrace::cli {

namespace {

std::string flag_name(std::string_view option) {
  std::string name(option);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::vector<std::string> elsewhere(std::string_view option) {
  std::vector<std::string> names;
  for (const std::string_view name : forecast::names_elsewhere(option)) {
    names.push_back(flag_name(name));
  }
  return names;
}

bool is_boolean(const forecast::OptionInfo& info) { return info.type == "boolean"; }

/// What is on by default is turned off by `--no-NAME`.
bool is_on(const forecast::OptionInfo& info) { return info.default_text == "true"; }

std::string shown_name(const forecast::OptionInfo& info) {
  return (is_boolean(info) && is_on(info) ? "no-" : "") + flag_name(info.name);
}

OptionKind kind_of(const forecast::OptionInfo& info) {
  const bool automatic = info.default_text == "auto";  // the word must stay possible
  return is_boolean(info)         ? OptionKind::flag
         : automatic              ? OptionKind::text
         : info.type == "integer" ? OptionKind::integer
         : info.type == "number"  ? OptionKind::number
                                  : OptionKind::text;
}

/// A list that help may break into lines.
std::string spaced(std::string_view list) {
  std::string out;
  for (const char c : list) {
    out += c;
    out += c == ',' ? " " : "";
  }
  return out;
}

}  // namespace

std::vector<Option> table_options() {
  std::vector<Option> options = {
      {.name = "--format",
       .help = "of the table; default by the ending of its name",
       .choices = {"parquet", "csv", "wide_csv", "jsonl"}},
      {.name = "--id",
       .help = "column of the item ids; default as a model's, if one is named, then item_id, "
               "unique_id"},
      {.name = "--time",
       .help =
           "column of the time stamps; default as a model's, if one is named, then timestamp, ds"},
      {.name = "--target",
       .help = "column of the values; default as a model's, if one is named, then target, y"},
      {.name = "--frequency",
       .help = "step of the series: h, D, 15min, W, MS, ...; default the most common step"},
      {.name = "--metadata",
       .help = "file that describes a GluonTS data set: its frequency and horizon where none are "
               "given; default the metadata.json beside train/ and test/"},
      {.name = "--static-table",
       .help = "second table with a row per item: where --categories and --static-reals are "
               "looked for too"},
      {.name = "--start", .help = "first stamp of a wide table; default 1970-01-01"},
      {.name = "--aggregate",
       .help = "what to do with several rows of one item and stamp",
       .default_text = "error",
       .choices = {"error", "sum", "mean", "last"}},
      {.name = "--zone",
       .help = "UTC: stamps with a zone are instants, those without are taken for UTC",
       .choices = {"UTC"}},
      {.name = "--allow-missing-columns",
       .help = "a file that lacks a column of the others gives nulls",
       .kind = OptionKind::flag},
  };
  for (Option& option : options) {
    option.elsewhere = elsewhere(option.name.substr(2));
  }
  return options;
}

Result<jobs::TableSpec> table_spec(const Arguments& arguments) {
  jobs::TableSpec spec;
  spec.url = arguments.text("table");
  for (const jobs::TableText& text : jobs::table_texts()) {
    spec.*text.field = arguments.text(flag_name(text.name));
  }
  spec.allow_missing_columns = arguments.flag("allow-missing-columns");
  return spec;
}

Result<void> follow_metadata(jobs::TableSpec* spec, Json* train) {
  HR_TRY(auto settled, jobs::settle_table(*spec));
  *spec = std::move(settled.spec);
  if (settled.horizon > 0 && train->find("horizon") == nullptr) {
    train->set("horizon", settled.horizon);
  }
  return {};
}

Result<void> name_covariates(const forecast::TrainOptions& options, jobs::TableSpec* spec) {
  spec->categories = options.categories;
  spec->static_reals = options.static_reals;
  spec->dynamic_reals = options.dynamic_reals;
  return jobs::check_static_named(*spec);
}

void follow_model(const jobs::ModelFacts& model, jobs::TableSpec* spec) {
  spec->categories = model.spec.categories;
  spec->static_reals = model.spec.static_reals;
  spec->dynamic_reals = model.spec.dynamic_reals;
  if (spec->frequency.empty()) {
    spec->frequency = model.spec.frequency.name();
  }
  spec->learned = model.columns;
}

Result<void> check_output(const base::Path& path) {
  std::error_code code;
  const auto refused = [&](const std::string& what) {
    return Error{Errc::invalid_argument, path.string() + ": " + what};
  };
  const base::Path folder = path.has_parent_path() ? path.parent_path() : base::Path(".");
  const auto found = std::filesystem::status(folder, code);
  if (found.type() == std::filesystem::file_type::not_found) {
    return refused("there is no folder " + folder.string() + "; make it first");
  }
  if (std::filesystem::exists(found) && !std::filesystem::is_directory(found)) {
    return refused(folder.string() + " is no folder; name another place");
  }
  if (std::filesystem::is_directory(path, code) || !path.has_filename()) {
    return refused("is a folder; name a file in it");
  }
  // What a file begins as tells the rest: rights, a disk that is read-only, a name too long.
  const auto begun = base::FileReplacement::begin(path);
  if (!begun.ok() && begun.error().code() == Errc::io) {
    return Error{Errc::invalid_argument, begun.error().message()};
  }
  return begun.ok() ? Result<void>() : begun.error();
}

void print_lines(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) {
    fmt::print(stderr, "{}\n", printable(note, true));
  }
}

void print_errors(const std::vector<forecast::ItemError>& errors) {
  constexpr size_t kShown = 20;
  for (size_t i = 0; i < std::min(errors.size(), kShown); ++i) {
    fmt::print(stderr, "failed: {}: {}\n", printable(errors[i].item),
               printable(errors[i].error.message(), true));
  }
  if (errors.size() > kShown) {
    fmt::print(stderr, "failed: {} more items\n", errors.size() - kShown);
  }
}

Json errors_json(const std::vector<forecast::ItemError>& errors) {
  Json out = Json::array();
  for (const forecast::ItemError& bad : errors) {
    out.push_back(Json::object({{"item", bad.item},
                                {"code", errc_name(bad.error.code())},
                                {"message", bad.error.message()}}));
  }
  return out;
}

std::vector<Option> option_flags(std::span<const forecast::OptionInfo> infos) {
  std::vector<Option> flags;
  for (const forecast::OptionInfo& info : infos) {
    Option option;
    option.name = "--" + shown_name(info);
    option.help =
        std::string(is_boolean(info) && is_on(info) ? "do not: " : "") + std::string(info.help);
    option.kind = kind_of(info);
    option.at_least = info.min;
    option.at_most = info.max;
    option.choices.assign(info.choices.begin(), info.choices.end());
    option.elsewhere = elsewhere(info.name);
    if (!info.default_text.empty() && !is_boolean(info)) {
      option.help += " [" + spaced(info.default_text) + "]";
    }
    flags.push_back(std::move(option));
  }
  return flags;
}

Result<Json> given_options(const Arguments& arguments,
                           std::span<const forecast::OptionInfo> infos) {
  Json out = Json::object();
  for (const forecast::OptionInfo& info : infos) {
    const std::string name = shown_name(info);
    if (is_boolean(info) && arguments.flag(name)) {
      out.set(info.name, !is_on(info));
    } else if (!is_boolean(info) && arguments.has(name)) {
      out.set(info.name, arguments.text(name));
    }
  }
  return out;
}

std::vector<forecast::OptionInfo> forecast_infos() {
  auto infos = forecast::predict_option_list();
  std::erase_if(infos, [](const forecast::OptionInfo& info) {  // of training too, or of files alone
    return info.name == "horizon" || info.name == "seed" || info.name == "keep_samples";
  });
  return infos;
}

std::vector<Option> join_options(std::initializer_list<std::vector<Option>> lists) {
  std::vector<Option> all;
  for (const std::vector<Option>& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

}  // namespace headrace::cli
