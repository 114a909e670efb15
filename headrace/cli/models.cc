// SPDX-License-Identifier: Apache-2.0
// `headrace models show|get|diff|history|sql`: look at what is registered.
#include "headrace/cli/models.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "headrace/base/clock.h"
#include "headrace/base/thread.h"
#include "headrace/cli/terminal.h"
#include "headrace/forecast/onnx.h"
#include "headrace/jobs/model_store.h"

namespace headrace::cli {

namespace models {

namespace {

void print_pairs(const char* title, const std::vector<registry::Pair>& pairs) {
  if (pairs.empty()) {
    return;
  }
  say(stdout, "\n{}\n", title);
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
  line("run status", lineage.run_status);
  const auto time = [](base::Micros at) {
    return at.count() == 0 ? std::string() : base::utc_text(at);
  };
  line("run started", time(lineage.run_started));
  line("run ended", time(lineage.run_ended));
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

void print_line(const char* name, const std::string& text) {
  if (!text.empty()) {
    say(stdout, "  {:<24} {}\n", name, text);
  }
}

/// What a forecaster's header says that matters to who uses it.
void print_task(const Json& header) {
  for (const char* name : {"frequency", "horizon", "season", "context", "members"}) {
    if (const Json* value = header.find(name); value != nullptr) {
      print_line(name, value->is_string() ? value->string() : value->dump());
    }
  }
  if (const Json* columns = header.find("columns"); columns != nullptr) {
    print_line("columns", fmt::format("{} {} {}", columns->get_string("id"),
                                      columns->get_string("time"), columns->get_string("target")));
  }
}

void print_metrics(const registry::Version& version, bool all) {
  size_t left_out = 0;
  fmt::print("{}", version.metrics.empty() ? "" : "\nmetrics\n");
  for (const registry::Metric& metric : version.metrics) {
    if (!all && is_of_candidate(metric.name)) {
      ++left_out;
      continue;
    }
    say(stdout, "  {:<24} {}{}\n", metric.name, number(metric.value),
        metric.step ? fmt::format("  (step {})", *metric.step) : "");
  }
  if (left_out > 0) {
    say(stdout, "  and {} of what it was compared with\n", left_out);
  }
}

void print_files(const registry::Version& version) {
  fmt::print("\nfiles\n");
  for (const registry::StoredArtifact& artifact : version.artifacts) {
    say(stdout, "  {:<24} {} bytes, {}{}\n", artifact.path, artifact.bytes,
        artifact.hash.substr(0, 12),
        artifact.slot ? fmt::format(", record {} of a bundle", *artifact.slot) : "");
  }
}

void print_version(const registry::Version& version, const Json& header, bool all) {
  print_line("kind", version.kind);
  print_line("created", base::utc_text(version.created));
  print_line("aliases", joined(version.aliases));
  if (all) {
    print_line("uid", version.uid);
  } else {
    print_line("item", version.lineage.item);
    print_line("run", version.lineage.run);
    print_line("table", version.lineage.table ? version.lineage.table->url : "");
  }
  if (header.is_object()) {
    print_task(header);
  }
  print_metrics(version, all);
  print_pairs("params", version.params);
  print_pairs("tags", version.tags);
  print_files(version);
  if (!all) {
    fmt::print("\n--all shows its lineage and header too, --json all of it\n");
    return;
  }
  print_lineage(version);
  if (!header.is_null()) {
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
    return kExitOk;
  }
  say(stdout, "{}{}\n", version.reference(), version.deleted ? " (deleted)" : "");
  if (arguments.flag("lineage")) {
    print_lineage(version);
  } else {
    print_version(version, header, arguments.flag("all"));
  }
  return kExitOk;
}

/// encoder.onnx and decoder.onnx of a forecasting model; of an ensemble a numbered pair per member.
Result<std::vector<base::Path>> export_onnx(const registry::Registry& opened,
                                            const registry::Version& version,
                                            const base::Path& folder, bool force) {
  HR_TRY(const forecast::Model model, jobs::load_model(opened, version.reference()));
  if (model.members.empty()) {
    return Error{Errc::invalid_argument, version.reference() + " is of kind " + version.kind +
                                             ", which has no network to export"};
  }
  std::vector<std::pair<base::Path, std::string>> files;
  for (int member = 0; member < static_cast<int>(model.members.size()); ++member) {
    HR_TRY(auto graphs, forecast::to_onnx(model, member));
    const std::string mark = model.members.size() > 1 ? fmt::format("-{}", member) : "";
    files.emplace_back(folder / ("encoder" + mark + ".onnx"), std::move(graphs.encoder));
    files.emplace_back(folder / ("decoder" + mark + ".onnx"), std::move(graphs.decoder));
  }
  for (const auto& [path, bytes] : files) {
    std::error_code code;
    if (!force && std::filesystem::exists(path, code)) {
      return Error{Errc::already_exists, path.string() +
                                             " is there already; name another folder, or "
                                             "overwrite it (--force)"};
    }
  }
  HR_TRY(base::make_folders(folder));
  std::vector<base::Path> written;
  for (const auto& [path, bytes] : files) {
    HR_TRY(base::replace_file(path, bytes));
    written.push_back(path);
  }
  return written;
}

/// ONNX files that were registered with the version, else those of its network.
Result<std::vector<base::Path>> get_onnx(const registry::Registry& opened,
                                         registry::Version version, const base::Path& folder,
                                         bool force) {
  const registry::Version whole = version;
  std::erase_if(version.artifacts, [](const registry::StoredArtifact& artifact) {
    return !artifact.path.ends_with(".onnx");
  });
  return version.artifacts.empty() ? export_onnx(opened, whole, folder, force)
                                   : opened.get(version, folder, force);
}

Result<int> run_get(const Arguments& arguments) {
  HR_TRY(const auto opened, open_registry(arguments, Access::read));
  HR_TRY(const auto version, opened.find(arguments.text("reference")));
  const std::string folder = arguments.text("out");
  const bool force = arguments.flag("force");
  HR_TRY(const auto written, arguments.flag("onnx") ? get_onnx(opened, version, folder, force)
                                                    : opened.get(version, folder, force));
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
  say(stdout, "\n{}{}\n", title, difference.members().empty() ? ": the same" : "");
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

/// A function of SQLite over long texts is one step of its machine, in which a query cannot be
/// asked to stop. While this lives, a query that goes on for a second after it should have ended
/// takes the process with it: its connection only reads, and there is nothing to put in order.
class QueryLimit {
 public:
  QueryLimit(double seconds, bool json)
      : seconds_(seconds), json_(json), thread_("query limit", [this] { watch(); }) {}
  QueryLimit(const QueryLimit&) = delete;
  QueryLimit& operator=(const QueryLimit&) = delete;
  ~QueryLimit() {
    const base::MutexLock lock(mu_);
    done_ = true;
    changed_.notify_all();
  }

 private:
  void watch() {
    constexpr base::Micros kLook{100'000};
    constexpr base::Micros kGrace{1'000'000};
    const base::Micros begin = now();
    std::optional<base::Micros> stopped;
    const base::MutexLock lock(mu_);
    while (
        !changed_.wait_for(mu_, kLook, [this]() HR_NO_THREAD_SAFETY_ANALYSIS { return done_; })) {
      if (interrupted() && !stopped) {
        stopped = now();
      }
      if (stopped && now() - *stopped > kGrace) {
        std::_Exit(kExitInterrupted);
      }
      const double late = std::chrono::duration<double>(now() - begin - kGrace).count();
      if (seconds_ > 0.0 && late > seconds_) {
        const int code = report_error(registry::select_timeout(seconds_), json_);
        std::fflush(stdout);
        std::_Exit(code);
      }
    }
  }
  static base::Micros now() { return base::system_clock().monotonic(); }

  const double seconds_;
  const bool json_;
  base::Mutex mu_;  // leaf
  base::CondVar changed_;
  bool done_ HR_GUARDED_BY(mu_) = false;
  base::Thread thread_;  // last: it uses the others
};

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
  const double seconds = arguments.number("timeout").value_or(0.0);
  install_interrupt_handler();
  registry::SelectOptions options;
  options.timeout = base::Micros(static_cast<int64_t>(seconds * 1e6));
  options.stop = interrupted;
  const auto done = [&] {
    const QueryLimit limit(seconds, json);
    return opened.sql(arguments.text("query"), take, options);
  }();
  if (!done.ok() && interrupted()) {
    return kExitInterrupted;
  }
  HR_TRY(done);
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

std::string joined(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) {
    out += (out.empty() ? "" : ",") + text;
  }
  return out;
}

bool is_of_candidate(const std::string& metric) { return metric.find('.') != std::string::npos; }

std::string number(double value) {
  return std::isnan(value) ? "NaN" : fmt::format("{:.4g}", value);
}

std::vector<Command> reading_commands() {
  return {
      list_command(),
      {.name = "models show",
       .summary = "show one version: what it is for, metrics, files; lineage and header",
       .examples = {"headrace models show m4_hourly/H1@champion"},
       .options = {registry_option(),
                   reference_option(),
                   {.name = "--all",
                    .help = "lineage, header and the metrics of what it was compared with too",
                    .kind = OptionKind::flag},
                   {.name = "--lineage",
                    .help = "only where it came from",
                    .kind = OptionKind::flag}},
       .run = runs(run_show)},
      {.name = "models get",
       .summary = "copy a version's files into a folder",
       .details = "The model file opens with any safetensors reader.",
       .examples = {"headrace models get m4_hourly/H1 --out h1/",
                    "headrace models get demand --onnx --out demand/"},
       .options = {registry_option(),
                   reference_option(),
                   {.name = "--out", .help = "folder to write into", .required = true},
                   {.name = "--onnx",
                    .help = "only ONNX files: those registered with it, else its network exported",
                    .kind = OptionKind::flag},
                   {.name = "--force",
                    .help = "overwrite files that are there",
                    .kind = OptionKind::flag}},
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
       .options = {registry_option(),
                   {.name = "query", .help = "one SELECT", .required = true},
                   {.name = "--timeout",
                    .help = "seconds it may take; 0 = no limit",
                    .kind = OptionKind::number,
                    .default_text = "60",
                    .at_least = 0,
                    .at_most = 1e9}},
       .run = runs(run_sql)}};
}

}  // namespace models

std::vector<Command> models_commands() {
  std::vector<Command> commands = models::reading_commands();
  std::ranges::move(models::changing_commands(), std::back_inserter(commands));
  return commands;
}

}  // namespace headrace::cli
