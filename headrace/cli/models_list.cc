// SPDX-License-Identifier: Apache-2.0
// `headrace models list`: versions as a table, CSV or JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/cli/models.h"
#include "headrace/cli/terminal.h"

namespace headrace::cli::models {

namespace {

constexpr size_t kMetricColumnsMax = 4;    // with --csv
constexpr size_t kMetricColumnsShown = 2;  // on a terminal of 80 columns
constexpr size_t kNamesShown = 20;
constexpr const char* kMainMetrics[] = {"mase", "mean_wql"};

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

/// Which metrics get a column: those asked for, else the one of the order and the first few, the
/// main ones of forecasters and the version's own before those of candidates.
std::vector<std::string> metric_columns(const Arguments& arguments, const registry::Query& query,
                                        const std::vector<registry::Version>& versions) {
  if (arguments.has("metrics")) {
    return split_list(arguments.text("metrics"));
  }
  const size_t most = arguments.flag("all")   ? SIZE_MAX
                      : arguments.flag("csv") ? kMetricColumnsMax
                                              : kMetricColumnsShown;
  std::vector<std::string> columns;
  const auto add = [&](const std::string& name) {
    if (columns.size() < most && std::ranges::find(columns, name) == columns.end()) {
      columns.push_back(name);
    }
  };
  if (query.order_by != "name" && query.order_by != "version" && query.order_by != "created") {
    add(query.order_by);
  }
  const auto add_where = [&](const auto& wanted) {
    for (const registry::Version& version : versions) {
      for (const registry::Metric& metric : version.metrics) {
        if (wanted(metric.name)) {
          add(metric.name);
        }
      }
    }
  };
  if (!arguments.flag("csv")) {
    for (const char* main : kMainMetrics) {
      add_where([&](const std::string& name) { return name == main; });
    }
    add_where([](const std::string& name) { return !is_of_candidate(name); });
  }
  add_where([](const std::string&) { return true; });
  return columns;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string out = "\"";
  for (const char c : text) {
    out += c == '"' ? std::string("\"\"") : std::string(1, c);
  }
  return out + "\"";
}

void print_csv(const std::vector<std::string>& header,
               const std::vector<std::vector<std::string>>& rows) {
  const auto line = [](const std::vector<std::string>& fields) {
    std::string out;
    for (size_t i = 0; i < fields.size(); ++i) {
      out += (i == 0 ? "" : ",") + csv_field(fields[i]);
    }
    fmt::print("{}\n", ::isatty(STDOUT_FILENO) == 1 ? printable(out) : out);
  };
  line(header);
  std::ranges::for_each(rows, line);
}

/// As JSON spells it, without the quotes of NaN and infinities.
std::string exact_text(double value) {
  const std::string text = Json(value).dump();
  return text.front() == '"' ? text.substr(1, text.size() - 2) : text;
}

/// The columns of a listing before the metrics.
std::vector<std::string> plain_columns(const Arguments& arguments) {
  std::vector<std::string> columns = {"name", "version"};
  if (arguments.flag("all") || arguments.flag("csv")) {
    columns.emplace_back("kind");
  }
  if (arguments.flag("all")) {
    columns.emplace_back("item");
  }
  columns.insert(columns.end(), {"aliases", "created"});
  if (arguments.flag("deleted")) {
    columns.emplace_back("deleted");
  }
  return columns;
}

std::vector<std::string> row_of(const registry::Version& version,
                                const std::vector<std::string>& columns,
                                const std::vector<std::string>& metrics, bool exact) {
  const std::map<std::string, std::string> plain = {
      {"name", version.name},
      {"version", std::to_string(version.version)},
      {"kind", version.kind},
      {"item", version.lineage.item},
      {"aliases", joined(version.aliases)},
      {"created", base::utc_text(version.created, exact ? 6 : 0)},
      {"deleted", version.deleted ? base::utc_text(version.deleted_at, exact ? 6 : 0) : ""}};
  std::vector<std::string> row;
  for (const std::string& name : columns) {
    row.push_back(plain.at(name));
  }
  for (const std::string& name : metrics) {
    const double* value = version.metric(name);
    row.push_back(value == nullptr ? "" : exact ? exact_text(*value) : number(*value));
  }
  return row;
}

struct Listed {
  std::vector<registry::Version> versions;
  bool more = false;
};

Result<Listed> read_listing(const registry::Registry& opened, registry::Query query,
                            int64_t limit) {
  Listed listed;
  for (;;) {
    const auto have = static_cast<int64_t>(listed.versions.size());
    query.limit = limit == 0 ? 10'000 : std::min<int64_t>(limit - have, 10'000);
    HR_TRY(auto page, opened.list(query));
    std::ranges::move(page.versions, std::back_inserter(listed.versions));
    listed.more = !page.next.empty();
    if (page.next.empty() ||
        (limit != 0 && static_cast<int64_t>(listed.versions.size()) >= limit)) {
      return listed;
    }
    query.cursor = page.next;
  }
}

void print_listing(const Arguments& arguments, const registry::Registry& opened,
                   const registry::Query& query, const Listed& listed) {
  if (arguments.flag("json")) {
    Json rows = Json::array();
    for (const registry::Version& version : listed.versions) {
      rows.push_back(registry::to_json(version));
    }
    print_json(Json::object({{"registry", opened.folder().string()},
                             {"more", listed.more},
                             {"versions", std::move(rows)}}));
    return;
  }
  const std::vector<std::string> metrics = metric_columns(arguments, query, listed.versions);
  const std::vector<std::string> plain = plain_columns(arguments);
  std::vector<std::string> header = plain;
  header.insert(header.end(), metrics.begin(), metrics.end());
  const bool csv = arguments.flag("csv");
  std::vector<std::vector<std::string>> rows;
  for (const registry::Version& version : listed.versions) {
    rows.push_back(row_of(version, plain, metrics, csv));
  }
  say(stderr, "registry: {}\n", opened.folder().string());
  if (csv) {
    print_csv(header, rows);
    return;
  }
  if (rows.empty()) {
    say(stderr, "nothing matches\n");
    return;
  }
  TextTable table(header);
  for (auto& row : rows) {
    table.add(std::move(row));
  }
  fmt::print("{}", table.text());
  if (listed.more) {
    fmt::print(stderr, "there is more; --limit 0 shows all\n");
  }
}

Result<int> list_unpushed(const Arguments& arguments, const registry::Registry& opened) {
  HR_TRY(const auto pushes, opened.pushes("", true, 100'000));
  if (arguments.flag("json")) {
    Json rows = Json::array();
    for (const registry::Push& push : pushes) {
      rows.push_back(Json::object({{"version", push.reference},
                                   {"uid", push.uid},
                                   {"target", push.target},
                                   {"state", push.state},
                                   {"tries", push.tries},
                                   {"error", push.error.empty() ? Json() : Json(push.error)}}));
    }
    print_json(Json::object({{"registry", opened.folder().string()}, {"pushes", rows}}));
  } else {
    TextTable table({"version", "target", "state", "tries", "last error"});
    for (const registry::Push& push : pushes) {
      table.add({push.reference, push.target, push.state, std::to_string(push.tries), push.error});
    }
    say(stderr, "registry: {}\n", opened.folder().string());
    fmt::print("{}", table.text());
  }
  return pushes.empty() ? kExitOk : kExitFailed;
}

/// "no version has a metric "mas"; there are: mase, rmse".
Result<std::string> absent_text(const registry::Registry& opened, const registry::AskedName& one) {
  HR_TRY(auto names, opened.known_names(one.table));
  std::ranges::stable_partition(names, [](const auto& name) { return !is_of_candidate(name); });
  const size_t left = names.size() - std::min(names.size(), kNamesShown);
  names.resize(names.size() - left);
  return fmt::format("no version has a {} \"{}\"; there are{}{}{}", one.table, one.name,
                     names.empty() ? " none" : ": ", fmt::join(names, ", "),
                     left > 0 ? fmt::format(" and {} more", left) : "");
}

/// No order can be made by what no version has.
Result<void> check_order(const registry::Registry& opened, const std::string& order) {
  registry::Query query;
  query.order_by = order;
  HR_TRY(const auto unknown, opened.unknown_names(query));
  if (unknown.empty()) {
    return {};
  }
  HR_TRY(const std::string absent, absent_text(opened, unknown.front()));
  return Error{Errc::invalid_argument,
               "--sort takes name, created, version or a metric: " + absent};
}

/// Say which names of conditions and columns no version has.
Result<void> tell_unknown(const Arguments& arguments, const registry::Registry& opened,
                          const registry::Query& query) {
  HR_TRY(auto unknown, opened.unknown_names(query));
  for (const std::string& name : split_list(arguments.text("metrics"))) {
    registry::Query one;
    one.order_by = name;
    HR_TRY(const auto more, opened.unknown_names(one));
    unknown.insert(unknown.end(), more.begin(), more.end());
  }
  for (const registry::AskedName& one : unknown) {
    HR_TRY(const std::string absent, absent_text(opened, one));
    say(stderr, "{}\n", absent);
  }
  return {};
}

Result<int> run_list(const Arguments& arguments) {
  HR_TRY(const auto opened, open_registry(arguments, Access::read));
  if (arguments.flag("unpushed")) {
    return list_unpushed(arguments, opened);
  }
  HR_TRY(registry::Query query, selection(arguments, arguments.text("pattern")));
  query.latest_only = arguments.flag("latest");
  query.include_deleted = arguments.flag("deleted");
  std::string sort = arguments.text("sort");
  query.descending = arguments.flag("descending");
  if (sort.starts_with("-")) {
    query.descending = true;
    sort.erase(0, 1);
  }
  query.order_by = sort.empty() ? "name" : sort;
  const int64_t limit = arguments.integer("limit").value_or(100);
  HR_TRY(check_order(opened, query.order_by));
  HR_TRY(const Listed listed, read_listing(opened, query, limit));
  print_listing(arguments, opened, query, listed);
  HR_TRY(tell_unknown(arguments, opened, query));
  return listed.versions.empty() ? kExitFailed : kExitOk;
}

}  // namespace

Command list_command() {
  std::vector<Option> list_options = {
      registry_option(),
      {.name = "pattern", .help = "NAME (it and all below it), PREFIX/* or PREFIX/**"}};
  for (Option& option : selection_options()) {
    list_options.push_back(std::move(option));
  }
  const std::vector<Option> more = {
      {.name = "--sort", .help = "name, created, version or a metric; -mase is descending"},
      {.name = "--descending", .help = "turn the order round", .kind = OptionKind::flag},
      {.name = "--latest",
       .help = "only the newest version of each model",
       .kind = OptionKind::flag},
      {.name = "--deleted",
       .help = "deleted versions too, with when they were deleted",
       .kind = OptionKind::flag},
      {.name = "--metrics", .help = "metrics to show, with commas between them"},
      {.name = "--limit",
       .help = "rows at most; 0 = all",
       .kind = OptionKind::integer,
       .default_text = "100",
       .at_least = 0},
      {.name = "--csv", .help = "comma-separated values", .kind = OptionKind::flag},
      {.name = "--all", .help = "all columns: kind, item, all metrics", .kind = OptionKind::flag},
      {.name = "--unpushed",
       .help = "versions whose hand-over to MLflow is not done",
       .kind = OptionKind::flag}};
  list_options.insert(list_options.end(), more.begin(), more.end());
  return {.name = "models list",
          .summary = "list registered versions",
          .details = "NaN or an absent metric compares as false. Exit code 1: nothing matched.",
          .examples =
              {"headrace models list",
               "headrace models list m4_hourly --where 'mase < seasonal_naive.mase' --sort mase",
               "headrace models list --latest --csv --limit 0"},
          .options = list_options,
          .run = [](const Arguments& arguments) { return finish(arguments, run_list(arguments)); }};
}

}  // namespace headrace::cli::models
