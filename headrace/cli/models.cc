// SPDX-License-Identifier: Apache-2.0
// `headrace models list|show|get|diff|history|sql`: look at what is registered.
#include "headrace/cli/models.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "headrace/base/clock.h"
#include "headrace/cli/terminal.h"

namespace headrace::cli {

namespace models {

namespace {

constexpr size_t kMetricColumnsMax = 4;

std::string joined(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) {
    out += (out.empty() ? "" : ",") + text;
  }
  return out;
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

/// Which metrics get a column: those asked for, else the one of the order and the first few.
std::vector<std::string> metric_columns(const Arguments& arguments, const registry::Query& query,
                                        const std::vector<registry::Version>& versions) {
  if (arguments.has("metrics")) {
    return split_list(arguments.text("metrics"));
  }
  std::vector<std::string> columns;
  const auto add = [&columns](const std::string& name) {
    if (columns.size() < kMetricColumnsMax && std::ranges::find(columns, name) == columns.end()) {
      columns.push_back(name);
    }
  };
  if (query.order_by != "name" && query.order_by != "version" && query.order_by != "created") {
    add(query.order_by);
  }
  for (const registry::Version& version : versions) {
    for (const registry::Metric& metric : version.metrics) {
      add(metric.name);
    }
  }
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
    fmt::print("{}\n", out);
  };
  line(header);
  std::ranges::for_each(rows, line);
}

/// As JSON spells it, without the quotes of NaN and infinities.
std::string exact_text(double value) {
  const std::string text = Json(value).dump();
  return text.front() == '"' ? text.substr(1, text.size() - 2) : text;
}

std::vector<std::string> row_of(const registry::Version& version,
                                const std::vector<std::string>& metrics, bool exact) {
  std::vector<std::string> row = {version.name, std::to_string(version.version), version.kind,
                                  joined(version.aliases),
                                  base::utc_text(version.created, exact ? 6 : 0)};
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
  std::vector<std::string> header = {"name", "version", "kind", "aliases", "created"};
  header.insert(header.end(), metrics.begin(), metrics.end());
  const bool csv = arguments.flag("csv");
  std::vector<std::vector<std::string>> rows;
  for (const registry::Version& version : listed.versions) {
    rows.push_back(row_of(version, metrics, csv));
  }
  say(stderr, "registry: {}\n", opened.folder().string());
  if (csv) {
    print_csv(header, rows);
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

/// What lacks the metric comes last: when the first lacks it, all do.
Result<void> check_order(const registry::Query& query,
                         const std::vector<registry::Version>& versions) {
  constexpr size_t kShown = 20;
  const std::string& order = query.order_by;
  if (order == "name" || order == "version" || order == "created" || versions.empty() ||
      versions.front().metric(order) != nullptr) {
    return {};
  }
  std::set<std::string> metrics;
  for (const registry::Version& version : versions) {
    for (const registry::Metric& metric : version.metrics) {
      metrics.insert(metric.name);
    }
  }
  std::vector<std::string> names = {"name", "created", "version"};
  for (const std::string& name : metrics) {
    if (names.size() < kShown) {
      names.push_back(name);
    }
  }
  return Error{
      Errc::invalid_argument,
      fmt::format("--sort is one of {}{}, not \"{}\": no version here has such a metric",
                  fmt::join(names, ", "), metrics.size() + 3 > names.size() ? ", ..." : "", order)};
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
  HR_TRY(const Listed listed, read_listing(opened, query, limit));
  HR_TRY(check_order(query, listed.versions));
  print_listing(arguments, opened, query, listed);
  return listed.versions.empty() ? kExitFailed : kExitOk;
}

void print_pairs(const char* title, const std::vector<registry::Pair>& pairs) {
  if (pairs.empty()) {
    return;
  }
  fmt::print("\n{}\n", title);
  for (const registry::Pair& pair : pairs) {
    say(stdout, "  {:<24} {}\n", pair.name, pair.value);
  }
}

void print_lineage(const registry::Version& version) {
  const registry::Lineage& lineage = version.lineage;
  const auto line = [](const char* name, const std::string& text) {
    if (!text.empty()) {
      say(stdout, "  {:<24} {}\n", name, text);
    }
  };
  fmt::print("\nlineage\n");
  line("run", lineage.run);
  line("item", lineage.item);
  line("attempt", lineage.attempt == 0 ? "" : std::to_string(lineage.attempt));
  if (lineage.table) {
    line("table", lineage.table->url + " (" + lineage.table->format + ")");
    line("table version", lineage.table->version);
    line("table digest", lineage.table->digest);
    line("rows", lineage.table->rows < 0 ? "" : std::to_string(lineage.table->rows));
  }
  line("data hash", lineage.data_hash);
  line("code version", lineage.code_version);
  line("pipeline digest", lineage.pipeline_digest);
  line("parent", version.parent.empty() ? "" : "uid:" + version.parent);
  if (!lineage.environment.is_null()) {
    line("environment", lineage.environment.dump());
  }
}

void print_version(const registry::Version& version, const Json& header, bool lineage_only) {
  say(stdout, "{}{}\n", version.reference(), version.deleted ? " (deleted)" : "");
  if (!lineage_only) {
    say(stdout, "  {:<24} {}\n  {:<24} {}\n  {:<24} {}\n", "uid", version.uid, "kind", version.kind,
        "created", base::utc_text(version.created));
    if (!version.aliases.empty()) {
      say(stdout, "  {:<24} {}\n", "aliases", joined(version.aliases));
    }
    if (!version.metrics.empty()) {
      fmt::print("\nmetrics\n");
      for (const registry::Metric& metric : version.metrics) {
        say(stdout, "  {:<24} {}{}\n", metric.name, number(metric.value),
            metric.step ? fmt::format("  (step {})", *metric.step) : "");
      }
    }
    print_pairs("params", version.params);
    print_pairs("tags", version.tags);
    fmt::print("\nfiles\n");
    for (const registry::StoredArtifact& artifact : version.artifacts) {
      say(stdout, "  {:<24} {} bytes, {}{}\n", artifact.path, artifact.bytes,
          artifact.hash.substr(0, 12),
          artifact.slot ? fmt::format(", record {} of a bundle", *artifact.slot) : "");
    }
  }
  print_lineage(version);
  if (!lineage_only && !header.is_null()) {
    fmt::print("\nheader\n{}\n", printable(header.dump(2, true), true));
  }
}

/// Items of a bundle share a header that lies in the file only.
Json header_of(const registry::Registry& opened, const registry::Version& version) {
  if (!version.header.is_null()) {
    return version.header;
  }
  const auto file = opened.load(version);
  return file.ok() ? file->header() : Json();
}

Result<int> run_show(const Arguments& arguments) {
  HR_TRY(const auto opened, open_registry(arguments, Access::read));
  HR_TRY(const auto version, opened.find(arguments.text("reference")));
  const Json header = header_of(opened, version);
  if (arguments.flag("json")) {
    Json out = registry::to_json(version);
    out.set("header", header);
    print_json(out);
  } else {
    print_version(version, header, arguments.flag("lineage"));
  }
  return kExitOk;
}

Result<int> run_get(const Arguments& arguments) {
  HR_TRY(const auto opened, open_registry(arguments, Access::read));
  HR_TRY(auto version, opened.find(arguments.text("reference")));
  if (arguments.flag("onnx")) {
    std::erase_if(version.artifacts, [](const registry::StoredArtifact& artifact) {
      return !artifact.path.ends_with(".onnx");
    });
    if (version.artifacts.empty()) {
      return Error{Errc::not_found, version.reference() +
                                        " was registered without an ONNX file; get the model file "
                                        "and export it, or train with an ONNX export"};
    }
  }
  HR_TRY(const auto written, opened.get(version, arguments.text("out")));
  if (arguments.flag("json")) {
    Json files = Json::array();
    for (const auto& path : written) {
      files.push_back(path.string());
    }
    print_json(Json::object({{"version", version.reference()}, {"files", std::move(files)}}));
  } else {
    for (const auto& path : written) {
      say(stdout, "{}\n", path.string());
    }
    if (written.empty()) {
      say(stderr, "{} has no files: a model of kind {} needs none\n", version.reference(),
          version.kind);
    }
  }
  return kExitOk;
}

/// "a.b[2]" -> value, for every leaf.
void flatten(const Json& value, const std::string& path, std::map<std::string, std::string>* out) {
  if (value.is_object()) {
    for (const Json::Member& member : value.members()) {
      flatten(member.second, path.empty() ? member.first : path + "." + member.first, out);
    }
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.items().size(); ++i) {
      flatten(value.items()[i], path + "[" + std::to_string(i) + "]", out);
    }
  } else {
    out->emplace(path, value.dump());
  }
}

Json differences(const std::map<std::string, std::string>& left,
                 const std::map<std::string, std::string>& right) {
  std::set<std::string> keys;
  for (const auto* side : {&left, &right}) {
    for (const auto& [key, value] : *side) {
      keys.insert(key);
    }
  }
  Json out = Json::object();
  for (const std::string& key : keys) {
    const auto a = left.find(key);
    const auto b = right.find(key);
    const Json a_value = a == left.end() ? Json() : parse_json(a->second).value_or(Json());
    const Json b_value = b == right.end() ? Json() : parse_json(b->second).value_or(Json());
    if (!(a_value == b_value)) {
      out.set(key, Json::array().push_back(a_value).push_back(b_value));
    }
  }
  return out;
}

std::map<std::string, std::string> metric_map(const registry::Version& version) {
  std::map<std::string, std::string> out;
  for (const registry::Metric& metric : version.metrics) {
    out.emplace(metric.name, Json(metric.value).dump());
  }
  return out;
}

/// Euclidean norms of each F32 tensor on both sides and of their difference.
Json weight_norms(const registry::ModelFile& left, const registry::ModelFile& right) {
  Json out = Json::object();
  for (const registry::TensorView& view : left.tensors()) {
    const auto a = view.floats();
    const auto other = right.tensor(view.name);
    if (!a.ok() || !other.ok() || other->shape != view.shape || !other->floats().ok()) {
      out.set(view.name, Json::object({{"comparable", false}}));
      continue;
    }
    const auto b = *other->floats();
    double squares_a = 0.0;
    double squares_b = 0.0;
    double squares = 0.0;
    for (size_t i = 0; i < b.size(); ++i) {
      const double x = (*a)[i];
      const double y = b[i];
      squares_a += x * x;
      squares_b += y * y;
      squares += (x - y) * (x - y);
    }
    out.set(view.name, Json::object({{"norm_a", std::sqrt(squares_a)},
                                     {"norm_b", std::sqrt(squares_b)},
                                     {"norm_difference", std::sqrt(squares)}}));
  }
  return out;
}

void print_differences(const char* title, const Json& difference) {
  fmt::print("\n{}{}\n", title, difference.members().empty() ? ": the same" : "");
  for (const Json::Member& member : difference.members()) {
    say(stdout, "  {:<32} {} -> {}\n", member.first, member.second.items()[0].dump(),
        member.second.items()[1].dump());
  }
}

Result<int> run_diff(const Arguments& arguments) {
  HR_TRY(const auto opened, open_registry(arguments, Access::read));
  HR_TRY(const auto a, opened.find(arguments.text("a")));
  HR_TRY(const auto b, opened.find(arguments.text("b")));
  std::map<std::string, std::string> header_a;
  std::map<std::string, std::string> header_b;
  flatten(header_of(opened, a), "", &header_a);
  flatten(header_of(opened, b), "", &header_b);
  const Json header = differences(header_a, header_b);
  const Json metrics = differences(metric_map(a), metric_map(b));
  Json weights = Json::object();
  const auto file_a = opened.load(a);
  const auto file_b = opened.load(b);
  if (file_a.ok() && file_b.ok()) {
    weights = weight_norms(*file_a, *file_b);
  }
  if (arguments.flag("json")) {
    print_json(Json::object({{"a", a.reference()},
                             {"b", b.reference()},
                             {"header", header},
                             {"metrics", metrics},
                             {"weights", weights}}));
    return kExitOk;
  }
  say(stdout, "{} -> {}\n", a.reference(), b.reference());
  print_differences("metrics", metrics);
  print_differences("header", header);
  TextTable table({"weights", "norm a", "norm b", "norm of difference"});
  for (const Json::Member& member : weights.members()) {
    const Json& row = member.second;
    const bool comparable = row.find("norm_a") != nullptr;
    table.add({member.first, comparable ? number(row.get_number("norm_a")) : "",
               comparable ? number(row.get_number("norm_b")) : "",
               comparable ? number(row.get_number("norm_difference")) : "not comparable"});
  }
  fmt::print("\n{}", table.text());
  return kExitOk;
}

Result<int> run_history(const Arguments& arguments) {
  HR_TRY(const auto opened, open_registry(arguments, Access::read));
  HR_TRY(const auto changes, opened.history(arguments.text("name")));
  const auto version = [](int64_t number) {
    return number == 0 ? std::string("-") : std::to_string(number);
  };
  if (arguments.flag("json")) {
    Json rows = Json::array();
    for (const registry::AliasChange& change : changes) {
      rows.push_back(
          Json::object({{"alias", change.alias},
                        {"from", change.from_version == 0 ? Json() : Json(change.from_version)},
                        {"to", change.to_version == 0 ? Json() : Json(change.to_version)},
                        {"at", base::utc_text(change.at, 6)},
                        {"by", change.by},
                        {"reason", change.reason}}));
    }
    print_json(Json::object({{"name", arguments.text("name")}, {"changes", std::move(rows)}}));
    return kExitOk;
  }
  TextTable table({"at", "alias", "from", "to", "by", "reason"});
  for (const registry::AliasChange& change : changes) {
    table.add({base::utc_text(change.at), change.alias, version(change.from_version),
               version(change.to_version), change.by, change.reason});
  }
  fmt::print("{}", table.text());
  return kExitOk;
}

Result<int> run_sql(const Arguments& arguments) {
  HR_TRY(const auto opened, open_registry(arguments, Access::read));
  std::vector<std::string> names;
  Json rows = Json::array();
  std::vector<std::vector<std::string>> texts;
  const bool json = arguments.flag("json");
  const auto take = [&](std::span<const std::string> columns,
                        std::span<const Json> values) -> Result<void> {
    names.assign(columns.begin(), columns.end());
    Json row = Json::object();
    std::vector<std::string> text;
    for (size_t i = 0; i < values.size(); ++i) {
      row.set(columns[i], values[i]);
      text.push_back(values[i].is_string() ? values[i].string()
                     : values[i].is_null() ? ""
                                           : values[i].dump());
    }
    if (json) {
      rows.push_back(std::move(row));
    } else {
      texts.push_back(std::move(text));
    }
    return {};
  };
  HR_TRY(opened.sql(arguments.text("query"), take));
  if (json) {
    print_json(rows);
  } else if (!names.empty()) {
    TextTable table(names);
    for (auto& text : texts) {
      table.add(std::move(text));
    }
    fmt::print("{}", table.text());
  }
  return kExitOk;
}

std::function<int(const Arguments&)> runs(Result<int> (*body)(const Arguments&)) {
  return [body](const Arguments& arguments) { return finish(arguments, body(arguments)); };
}

Option reference_option(const char* name = "reference") {
  return {
      .name = name, .help = "NAME, NAME:7, NAME@alias, uid:HEX or run:RUN/ITEM", .required = true};
}

}  // namespace

Option registry_option() {
  return {.name = "--registry",
          .help = "folder of the registry (default: HEADRACE_REGISTRY, else the user's)"};
}

Result<registry::Registry> open_registry(const Arguments& arguments, Access access) {
  HR_TRY(const auto folder, registry::registry_path(arguments.text("registry")));
  return registry::Registry::open(folder, {.create = access == Access::create,
                                           .read_only = access == Access::read,
                                           .command = "headrace models"});
}

int finish(const Arguments& arguments, const Result<int>& result) {
  return result.ok() ? *result : report_error(result.error(), arguments.flag("json"));
}

std::vector<Option> selection_options() {
  return {{.name = "--where", .help = "condition, e.g. \"mase < 0.9 and param.cells = '40'\""},
          {.name = "--run", .help = "only versions of this run"},
          {.name = "--item", .help = "only versions of this item"},
          {.name = "--kind", .help = "only versions of this kind, e.g. deepar"},
          {.name = "--alias", .help = "only versions under this alias"},
          {.name = "--tag", .help = "only versions with tag NAME=VALUE", .repeated = true}};
}

Result<registry::Query> selection(const Arguments& arguments, std::string_view pattern) {
  registry::Query query;
  query.pattern = pattern;
  query.where = arguments.text("where");
  query.run = arguments.text("run");
  query.item = arguments.text("item");
  query.kind = arguments.text("kind");
  query.alias = arguments.text("alias");
  for (const std::string& tag : arguments.texts("tag")) {
    const size_t equals = tag.find('=');
    if (equals == std::string::npos) {
      return Error{Errc::invalid_argument, "--tag \"" + tag + "\" must be NAME=VALUE"};
    }
    query.tags.push_back({tag.substr(0, equals), tag.substr(equals + 1)});
  }
  return query;
}

void print_json(const Json& value) { fmt::print("{}\n", value.dump(2)); }

std::string number(double value) {
  return std::isnan(value) ? "NaN" : fmt::format("{:.4g}", value);
}

std::vector<Option> listing_options() {
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
      {.name = "--deleted", .help = "deleted versions too", .kind = OptionKind::flag},
      {.name = "--metrics", .help = "metrics to show, with commas between them"},
      {.name = "--limit",
       .help = "rows at most; 0 = all",
       .kind = OptionKind::integer,
       .default_text = "100",
       .at_least = 0},
      {.name = "--csv", .help = "comma-separated values", .kind = OptionKind::flag},
      {.name = "--unpushed",
       .help = "versions whose hand-over to MLflow is not done",
       .kind = OptionKind::flag}};
  list_options.insert(list_options.end(), more.begin(), more.end());
  return list_options;
}

std::vector<Command> reading_commands() {
  return {
      {.name = "models list",
       .summary = "list registered versions",
       .details = "NaN or an absent metric compares as false. Exit code 1: nothing matched.",
       .examples =
           {"headrace models list",
            "headrace models list m4_hourly --where 'mase < seasonal_naive.mase' --sort mase",
            "headrace models list --latest --csv --limit 0"},
       .options = listing_options(),
       .run = runs(run_list)},
      {.name = "models show",
       .summary = "show one version: metrics, files, lineage, header",
       .examples = {"headrace models show m4_hourly/H1@champion"},
       .options = {registry_option(),
                   reference_option(),
                   {.name = "--lineage",
                    .help = "only where it came from",
                    .kind = OptionKind::flag}},
       .run = runs(run_show)},
      {.name = "models get",
       .summary = "copy a version's files into a folder",
       .details = "The model file opens with any safetensors reader.",
       .examples = {"headrace models get m4_hourly/H1 --out h1/"},
       .options = {registry_option(),
                   reference_option(),
                   {.name = "--out", .help = "folder to write into", .required = true},
                   {.name = "--onnx", .help = "only ONNX files", .kind = OptionKind::flag}},
       .run = runs(run_get)},
      {.name = "models diff",
       .summary = "compare two versions: header, metrics, norms of the weights",
       .examples = {"headrace models diff m4_hourly/H1:1 m4_hourly/H1:2"},
       .options = {registry_option(), reference_option("a"), reference_option("b")},
       .run = runs(run_diff)},
      {.name = "models history",
       .summary = "show what a model's aliases pointed to, and when",
       .examples = {"headrace models history m4_hourly/H1"},
       .options = {registry_option(), {.name = "name", .help = "the model", .required = true}},
       .run = runs(run_history)},
      {.name = "models sql",
       .summary = "run one SELECT on the registry's tables",
       .details = "Reads only. Never open registry.db with another SQLite while headrace runs: "
                  "look at a copy made by `headrace models backup`.",
       .examples = {"headrace models sql 'SELECT name, next_version FROM model LIMIT 5'"},
       .options = {registry_option(), {.name = "query", .help = "one SELECT", .required = true}},
       .run = runs(run_sql)}};
}

}  // namespace models

std::vector<Command> models_commands() {
  std::vector<Command> commands = models::reading_commands();
  std::ranges::move(models::changing_commands(), std::back_inserter(commands));
  return commands;
}

}  // namespace headrace::cli
