// SPDX-License-Identifier: Apache-2.0
// `headrace models alias|tag|delete|restore|export|import|gc|verify|backup|push`: change what is
// registered, or move it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>

#include "headrace/cli/mlflow.h"
#include "headrace/cli/models.h"
#include "headrace/cli/terminal.h"
#include "headrace/registry/name.h"

namespace headrace::cli::models {

namespace {

using registry::Registry;
using registry::Version;

/// "90s", "15m", "24h", "7d".
Result<base::Micros> parse_duration(const std::string& text) {
  int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, count);
  const std::map<char, int64_t> seconds = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
  const bool unit = parsed.ec == std::errc() && parsed.ptr + 1 == end;
  const auto found = unit ? seconds.find(*parsed.ptr) : seconds.end();
  if (found == seconds.end() || count < 0 || count > 1'000'000) {
    return Error{Errc::invalid_argument,
                 "\"" + text + "\" is no duration; write 90s, 15m, 24h or 7d"};
  }
  return base::Micros(std::chrono::seconds(count * found->second));
}

bool is_pattern(const std::string& text) { return text.ends_with("/*") || text.ends_with("/**"); }

/// All that match, the newest of each model last.
Result<std::vector<Version>> matching(const Registry& opened, registry::Query query) {
  std::vector<Version> versions;
  query.limit = 10'000;
  const auto take = [&](const Version& version) -> Result<void> {
    versions.push_back(version);
    return {};
  };
  HR_TRY(opened.for_each(query, take));
  return versions;
}

struct AliasTarget {
  registry::Reference reference;
  std::string text;
};

Result<std::vector<AliasTarget>> alias_targets(const Registry& opened, const Arguments& arguments) {
  const std::string text = arguments.text("reference");
  std::vector<AliasTarget> targets;
  if (!is_pattern(text)) {
    HR_TRY(auto reference, registry::parse_reference(text));
    targets.push_back({std::move(reference), text});
    return targets;
  }
  HR_TRY(const registry::Query query, selection(arguments, text));
  HR_TRY(const auto versions, matching(opened, query));
  std::map<std::string, int64_t> newest;
  for (const Version& version : versions) {
    newest[version.name] = std::max(newest[version.name], version.version);
  }
  for (const auto& [name, number] : newest) {
    registry::Reference reference;
    reference.kind = registry::Reference::Kind::version;
    reference.name = name;
    reference.version = number;
    targets.push_back({reference, registry::reference_text(reference)});
  }
  return targets;
}

void print_done(const Arguments& arguments, const char* key, const std::vector<std::string>& what,
                const std::string& sentence) {
  if (arguments.flag("json")) {
    Json rows = Json::array();
    for (const std::string& one : what) {
      rows.push_back(one);
    }
    print_json(Json::object({{key, std::move(rows)}, {"dry_run", arguments.flag("dry-run")}}));
    return;
  }
  for (const std::string& one : what) {
    say(stdout, "{}\n", one);
  }
  say(stderr, "{}{}\n", sentence, arguments.flag("dry-run") ? " (dry run)" : "");
}

/// The model of a reference; a bare name may have no version that is ready.
Result<std::string> name_of(const Registry& opened, const registry::Reference& reference) {
  if (!reference.name.empty()) {
    return reference.name;
  }
  HR_TRY(const Version version, opened.find(reference));
  return version.name;
}

/// "sales/north@champion: version 2 (before: 1)".
std::string change_text(const std::string& name, const std::string& alias,
                        const registry::AliasChange& change) {
  const auto text = [](int64_t version) {
    return version == 0 ? std::string("none") : std::to_string(version);
  };
  return fmt::format("{}@{}: {}{} (before: {})", name, alias,
                     change.to_version == 0 ? "" : "version ", text(change.to_version),
                     text(change.from_version));
}

Json version_json(int64_t version) { return version == 0 ? Json() : Json(version); }

Result<int> run_alias(const Arguments& arguments) {
  HR_TRY(auto opened, open_registry(arguments, Access::write));
  const std::string alias = arguments.text("name");
  HR_TRY(registry::check_alias(alias));
  HR_TRY(const auto targets, alias_targets(opened, arguments));
  registry::AliasOptions options;
  options.expect = arguments.integer("expect");
  options.remove = arguments.flag("remove");
  options.dry_run = arguments.flag("dry-run");
  options.reason = arguments.text("reason");
  std::vector<std::string> done;
  std::vector<std::string> lines;
  Json changes = Json::array();
  for (const AliasTarget& target : targets) {
    HR_TRY(const auto name, name_of(opened, target.reference));
    HR_TRY(const auto change, opened.set_alias(target.reference, alias, options));
    done.push_back(target.text);
    lines.push_back(change_text(name, alias, change));
    changes.push_back(Json::object({{"name", name},
                                    {"alias", alias},
                                    {"from", version_json(change.from_version)},
                                    {"to", version_json(change.to_version)}}));
  }
  if (arguments.flag("json")) {
    Json versions = Json::array();
    for (const std::string& one : done) {
      versions.push_back(one);
    }
    print_json(Json::object({{"versions", std::move(versions)},
                             {"changes", std::move(changes)},
                             {"dry_run", arguments.flag("dry-run")}}));
  } else {
    print_done(arguments, "versions", lines,
               fmt::format("alias {} {} for {}", alias, options.remove ? "removed" : "set",
                           counted(done.size(), "model")));
  }
  return done.empty() ? kExitFailed : kExitOk;
}

Result<int> run_tag(const Arguments& arguments) {
  HR_TRY(auto opened, open_registry(arguments, Access::write));
  HR_TRY(const auto reference, registry::parse_reference(arguments.text("reference")));
  std::vector<registry::Pair> set;
  std::vector<std::string> removed = arguments.texts("remove");
  for (const std::string& tag : arguments.texts("tags")) {
    const size_t equals = tag.find('=');
    if (equals == std::string::npos) {
      return Error{Errc::invalid_argument,
                   "\"" + tag + "\" must be NAME=VALUE; --remove NAME takes a tag away"};
    }
    set.push_back({tag.substr(0, equals), tag.substr(equals + 1)});
  }
  if (set.empty() && removed.empty()) {
    return Error{Errc::invalid_argument, "give NAME=VALUE or --remove NAME"};
  }
  HR_TRY(opened.set_tags(reference, set, removed));
  print_done(arguments, "tagged", {arguments.text("reference")},
             fmt::format("{} tags set, {} removed", set.size(), removed.size()));
  return kExitOk;
}

/// Whether to delete `what`: as the person says who sits there; where nobody does, by --yes alone.
Result<bool> confirmed(const Arguments& arguments, const std::string& what) {
  if (arguments.flag("dry-run") || arguments.flag("yes")) {
    return true;
  }
  if (::isatty(STDIN_FILENO) == 0) {
    return Error{Errc::invalid_argument, what + " would be deleted; add --yes"};
  }
  fmt::print(stderr, "delete {}? [y/N] ", what);
  char answer[16] = {};
  return std::fgets(answer, sizeof answer, stdin) != nullptr &&
         (answer[0] == 'y' || answer[0] == 'Y');
}

Result<int> delete_all(const Arguments& arguments, Registry* opened, const std::string& text) {
  if (!arguments.flag("all-versions")) {
    return Error{Errc::invalid_argument,
                 "\"" + text +
                     "\" names no single version; delete NAME:VERSION or NAME@alias, or add "
                     "--all-versions"};
  }
  HR_TRY(registry::Query query, selection(arguments, text));
  HR_TRY(auto versions, matching(*opened, query));
  if (!is_pattern(text)) {  // a name alone means that model, not what lies below it
    std::erase_if(versions, [&](const Version& version) { return version.name != text; });
  }
  HR_TRY(const bool go_on, confirmed(arguments, counted(versions.size(), "version")));
  if (!go_on) {
    return kExitFailed;
  }
  std::vector<std::string> done;
  for (const Version& version : versions) {
    HR_TRY(const auto reference, registry::parse_reference(version.reference()));
    if (!arguments.flag("dry-run")) {
      HR_TRY(opened->remove(reference, arguments.flag("force")));
    }
    done.push_back(version.reference());
  }
  print_done(arguments, "deleted", done, counted(done.size(), "version") + " deleted");
  return done.empty() ? kExitFailed : kExitOk;
}

Result<int> run_delete(const Arguments& arguments) {
  HR_TRY(auto opened, open_registry(arguments, Access::write));
  const std::string text = arguments.text("reference");
  if (is_pattern(text)) {
    return delete_all(arguments, &opened, text);
  }
  HR_TRY(const auto reference, registry::parse_reference(text));
  if (!reference.has_version) {
    return delete_all(arguments, &opened, text);
  }
  HR_TRY(const Version version, opened.find(reference));
  HR_TRY(const bool go_on, confirmed(arguments, version.reference()));
  if (!go_on) {
    return kExitFailed;
  }
  if (!arguments.flag("dry-run")) {
    // What was asked about, wherever "@latest" leads by now.
    HR_TRY(const auto same, registry::parse_reference("uid:" + version.uid));
    HR_TRY(opened.remove(same, arguments.flag("force")));
  }
  print_done(arguments, "deleted", {version.reference()},
             "deleted; headrace models restore brings it back until gc takes its files");
  return kExitOk;
}

/// All deleted versions of a set, as `delete --all-versions` took them.
Result<int> restore_all(const Arguments& arguments, Registry* opened, const std::string& text) {
  registry::Query query;
  query.pattern = text;
  query.include_deleted = true;
  HR_TRY(auto versions, matching(*opened, query));
  std::erase_if(versions, [](const Version& version) { return !version.deleted; });
  std::vector<std::string> done;
  std::vector<std::string> gone;
  for (const Version& version : versions) {
    HR_TRY(const auto reference, registry::parse_reference("uid:" + version.uid));
    const auto restored = opened->restore(reference);
    if (!restored.ok() && restored.error().code() != Errc::not_found) {
      return restored.error();
    }
    (restored.ok() ? done : gone).push_back(version.reference());
  }
  if (done.empty()) {
    return Error{Errc::not_found,
                 fmt::format("registry: {} has no deleted version that could be restored{}", text,
                             gone.empty() ? "" : ": gc took the files of those that were deleted")};
  }
  print_done(arguments, "restored", done,
             fmt::format("{} restored{}", counted(done.size(), "version"),
                         gone.empty() ? ""
                                      : fmt::format("; gc took the files of {} others: {}",
                                                    gone.size(), joined(gone))));
  return kExitOk;
}

Result<int> run_restore(const Arguments& arguments) {
  HR_TRY(auto opened, open_registry(arguments, Access::write));
  if (const std::string text = arguments.text("reference"); is_pattern(text)) {
    return restore_all(arguments, &opened, text);
  }
  HR_TRY(const auto reference, registry::parse_reference(arguments.text("reference")));
  HR_TRY(opened.restore(reference));
  print_done(arguments, "restored", {arguments.text("reference")}, "restored");
  return kExitOk;
}

Result<int> run_export(const Arguments& arguments) {
  HR_TRY(const auto opened, open_registry(arguments, Access::read));
  const std::string layout = arguments.text("layout");
  const std::string target = arguments.text("target");
  int64_t count = 0;
  if (layout == "hf") {
    HR_TRY(const Version version, opened.find(arguments.text("pattern")));
    HR_TRY(opened.export_folder(version, target, arguments.flag("force")));
    count = 1;
  } else {
    HR_TRY(registry::Query query, selection(arguments, arguments.text("pattern")));
    query.latest_only = arguments.flag("latest");
    query.limit = 10'000;
    HR_TRY(count, opened.count(query));
    if (count > 0) {
      HR_TRY(count, opened.export_file(query, target, arguments.flag("force")));
    }
  }
  if (arguments.flag("json")) {
    print_json(Json::object({{"versions", count}, {"target", target}}));
  } else {
    say(stdout, "{} in {}\n", counted(static_cast<size_t>(count), "version"), target);
  }
  return count == 0 ? kExitFailed : kExitOk;
}

Result<int> run_import(const Arguments& arguments) {
  HR_TRY(auto opened, open_registry(arguments, Access::create));
  const registry::Path source = arguments.text("source");
  std::error_code code;
  registry::ImportReport report;
  if (std::filesystem::is_directory(source, code)) {
    HR_TRY(report, opened.import_incoming(source));
  } else {
    HR_TRY(report, opened.import_file(source, {.keep_versions = arguments.flag("keep-versions")}));
  }
  if (arguments.flag("json")) {
    Json conflicts = Json::array();
    for (const std::string& conflict : report.conflicts) {
      conflicts.push_back(conflict);
    }
    print_json(Json::object(
        {{"added", report.added}, {"known", report.known}, {"conflicts", std::move(conflicts)}}));
  } else {
    fmt::print("{} added, {} were here already\n",
               counted(static_cast<size_t>(report.added), "version"), report.known);
    for (const std::string& conflict : report.conflicts) {
      say(stderr, "headrace: {}\n", conflict);
    }
  }
  return report.conflicts.empty() ? kExitOk : kExitFailed;
}

Result<int> run_gc(const Arguments& arguments) {
  HR_TRY(auto opened, open_registry(arguments, Access::write));
  registry::GcOptions options;
  HR_TRY(options.grace, parse_duration(arguments.text("grace")));
  HR_TRY(options.keep, parse_duration(arguments.text("keep")));
  options.dry_run = arguments.flag("dry-run");
  HR_TRY(const auto report, opened.gc(options));
  if (arguments.flag("json")) {
    Json damaged = Json::array();
    for (const std::string& part : report.damaged) {
      damaged.push_back(part);
    }
    print_json(Json::object({{"objects", report.objects},
                             {"damaged", std::move(damaged)},
                             {"bytes", report.bytes},
                             {"versions", report.versions},
                             {"stray", report.stray},
                             {"temporary", report.temporary},
                             {"bytes_kept", report.bytes_kept},
                             {"dry_run", options.dry_run}}));
  } else {
    fmt::print("{} objects of {} deleted versions, {} stray and {} temporary files: {} bytes{}\n",
               report.objects, report.versions, report.stray, report.temporary, report.bytes,
               options.dry_run ? " would go" : " gone");
    fmt::print("{} bytes are needed\n", report.bytes_kept);
    for (const std::string& part : report.damaged) {
      say(stderr, "headrace: {}\n", part);
    }
  }
  return report.damaged.empty() ? kExitOk : kExitFailed;
}

Result<int> run_verify(const Arguments& arguments) {
  const bool repair = arguments.flag("repair");
  HR_TRY(auto opened, open_registry(arguments, repair ? Access::write : Access::read));
  HR_TRY(const auto report, opened.verify({.deep = arguments.flag("deep"), .repair = repair}));
  if (arguments.flag("json")) {
    Json findings = Json::array();
    for (const registry::Finding& finding : report.findings) {
      findings.push_back(Json::object(
          {{"what", finding.what}, {"text", finding.text}, {"harmless", finding.harmless}}));
    }
    print_json(Json::object({{"clean", report.clean()},
                             {"versions", report.versions},
                             {"objects", report.objects},
                             {"bytes_read", report.bytes_read},
                             {"repaired", report.repaired},
                             {"findings", std::move(findings)}}));
  } else {
    for (const registry::Finding& finding : report.findings) {
      say(stdout, "{}{}: {}\n", finding.what, finding.harmless ? " (harmless)" : "", finding.text);
    }
    fmt::print("{} versions, {} objects: {}\n", report.versions, report.objects,
               report.clean() ? "clean" : "damaged");
    if (report.repaired > 0) {
      fmt::print("{} versions marked deleted, tagged headrace.damaged\n", report.repaired);
    }
  }
  return report.clean() ? kExitOk : kExitFailed;
}

/// Findings are exit code 1, so what could not be looked at is 2.
int verify_exit(const Arguments& arguments) {
  const Result<int> result = run_verify(arguments);
  if (result.ok()) {
    return *result;
  }
  report_error(result.error(), arguments.flag("json"));
  return kExitUsage;
}

Result<int> run_backup(const Arguments& arguments) {
  HR_TRY(const auto opened, open_registry(arguments, Access::read));
  const std::string target = arguments.text("target");
  HR_TRY(opened.backup(target));
  if (arguments.flag("json")) {
    print_json(Json::object({{"backup", target}}));
  } else {
    say(stdout, "{}\n", target);
  }
  return kExitOk;
}

/// The MLflow client is Python's.
Result<int> run_push(const Arguments& arguments) {
  HR_TRY(const auto folder, registry::registry_path(arguments.text("registry")));
  std::vector<std::string> words = {"push", "--registry", folder.string()};
  const auto pass = [&](const char* name) {
    if (arguments.has(name) && !arguments.text(name).empty()) {
      words.push_back(std::string("--") + name);
      words.push_back(arguments.text(name));
    }
  };
  for (const char* name : {"mlflow", "items", "give-up", "settle", "pattern", "run"}) {
    pass(name);
  }
  for (const char* name : {"follow", "all", "force", "json"}) {
    if (arguments.flag(name)) {
      words.push_back(std::string("--") + name);
    }
  }
  return run_mlflow(words);
}

std::function<int(const Arguments&)> runs(Result<int> (*body)(const Arguments&)) {
  return [body](const Arguments& arguments) { return finish(arguments, body(arguments)); };
}

Option version_option(const char* help) {
  return {.name = "reference", .help = help, .required = true};
}
Option dry_run_option() {
  return {.name = "--dry-run", .help = "say what would be done", .kind = OptionKind::flag};
}
std::vector<Option> with_selection(std::vector<Option> options) {
  for (Option& option : selection_options()) {
    options.push_back(std::move(option));
  }
  return options;
}

Command alias_command() {
  return {.name = "models alias",
          .summary = "point an alias to a version, or take it away",
          .details =
              "With a pattern, every model below it that has a matching version gets the alias "
              "on its newest one. Each change is logged (`headrace models history`).",
          .examples =
              {"headrace models alias m4_hourly/H1:2 champion --expect 1",
               "headrace models alias 'm4_hourly/*' champion --where 'mase < seasonal_naive.mase' "
               "--dry-run"},
          .options = with_selection(
              {registry_option(),
               version_option("version, or PREFIX/* or PREFIX/**"),
               {.name = "name", .help = "the alias", .required = true},
               {.name = "--expect",
                .help = "version it points to now, 0 = none; else nothing is done",
                .kind = OptionKind::integer,
                .at_least = 0},
               {.name = "--remove", .help = "take the alias away", .kind = OptionKind::flag},
               {.name = "--reason", .help = "stands in the log"},
               dry_run_option()}),
          .run = runs(run_alias)};
}

Command delete_command() {
  return {
      .name = "models delete",
      .summary = "hide a version; gc takes its files later",
      .examples = {"headrace models delete m4_hourly/H1:1",
                   "headrace models delete 'm4_hourly/*' --all-versions --dry-run"},
      .options = with_selection(
          {registry_option(),
           version_option("NAME:VERSION or NAME@alias; or with "
                          "--all-versions a name or pattern"),
           {.name = "--all-versions",
            .help = "every version that matches",
            .kind = OptionKind::flag},
           {.name = "--yes", .help = "do not ask", .kind = OptionKind::flag},
           {.name = "--force", .help = "also versions under an alias", .kind = OptionKind::flag},
           dry_run_option()}),
      .run = runs(run_delete)};
}

Command push_command() {
  return {
      .name = "models push",
      .summary = "hand versions over to MLflow",
      .details =
          "Where to: --mlflow, else MLFLOW_TRACKING_URI. The registry stays the source of "
          "truth; training never waits for MLflow.",
      .examples = {"headrace models push --all --mlflow http://127.0.0.1:5000"},
      .options = {registry_option(),
                  {.name = "--target",
                   .help = "kind of registry",
                   .default_text = "mlflow",
                   .choices = {"mlflow"}},
                  {.name = "--mlflow", .help = "tracking URI of MLflow"},
                  {.name = "--pattern", .help = "with --all: only these models"},
                  {.name = "--run", .help = "only what this run registered"},
                  {.name = "--all",
                   .help = "also versions registered while MLflow was off",
                   .kind = OptionKind::flag},
                  {.name = "--items",
                   .help = "bundle: one model per name prefix; runs: one each",
                   .default_text = "bundle",
                   .choices = {"bundle", "runs"}},
                  {.name = "--follow", .help = "go on until interrupted", .kind = OptionKind::flag},
                  {.name = "--settle",
                   .help = "with --follow: a run's items are pushed together once none was added "
                           "for so many seconds, or after 60 times that",
                   .kind = OptionKind::integer,
                   .default_text = "60",
                   .at_least = 0},
                  {.name = "--force",
                   .help = "overwrite aliases that were changed in MLflow",
                   .kind = OptionKind::flag},
                  {.name = "--give-up",
                   .help = "seconds of failing tries, each counted as ten minutes, after "
                           "which a version is given up",
                   .kind = OptionKind::integer,
                   .default_text = "604800",
                   .at_least = 0}},
      .run = runs(run_push)};
}

std::vector<Command> moving_commands() {
  return {
      {.name = "models export",
       .summary = "write versions with their files into one tar, or one version as a hub folder",
       .examples = {"headrace models export m4_hourly models.tar",
                    "headrace models export m4_hourly/H1 hub/ --layout hf"},
       .options = with_selection(
           {registry_option(),
            {.name = "pattern",
             .help = "NAME, PREFIX/*, PREFIX/**; with --layout hf a version",
             .required = true},
            {.name = "target", .help = "file (or folder with --layout hf)", .required = true},
            {.name = "--latest",
             .help = "only the newest version of each model",
             .kind = OptionKind::flag},
            {.name = "--force", .help = "overwrite a file that is there", .kind = OptionKind::flag},
            {.name = "--layout",
             .help = "tar, or hf: model.safetensors, config.json, README.md",
             .default_text = "tar",
             .choices = {"tar", "hf"}}}),
       .run = runs(run_export)},
      {.name = "models import",
       .summary = "take in an export, or a folder into which other hosts staged models",
       .details = "Importing twice changes nothing. Every file's hash is checked before a row is "
                  "written.",
       .examples = {"headrace models import models.tar"},
       .options = {registry_option(),
                   {.name = "source", .help = "file or folder", .required = true},
                   {.name = "--keep-versions",
                    .help = "fail where a version number is taken, instead of giving a new one",
                    .kind = OptionKind::flag}},
       .run = runs(run_import)},
      {.name = "models backup",
       .summary = "copy the whole registry into a new folder while it is in use",
       .examples = {"headrace models backup backup/"},
       .options = {registry_option(),
                   {.name = "target", .help = "new or empty folder", .required = true}},
       .run = runs(run_backup)},
      push_command()};
}

}  // namespace

std::vector<Command> changing_commands() {
  std::vector<Command> commands = {
      alias_command(),
      {.name = "models tag",
       .summary = "set or remove tags of a version, or of a model",
       .examples = {"headrace models tag m4_hourly/H1:1 reviewed=yes --remove draft"},
       .options = {registry_option(),
                   version_option("version; a bare NAME means the model"),
                   {.name = "tags", .help = "NAME=VALUE", .repeated = true},
                   {.name = "--remove", .help = "tag to remove", .repeated = true}},
       .run = runs(run_tag)},
      delete_command(),
      {.name = "models restore",
       .summary = "bring a deleted version back",
       .examples = {"headrace models restore m4_hourly/H1:1"},
       .options = {registry_option(), version_option("NAME:VERSION or uid:HEX")},
       .run = runs(run_restore)},
      {.name = "models gc",
       .summary = "remove files that no version needs",
       .examples = {"headrace models gc --dry-run"},
       .options = {registry_option(),
                   {.name = "--grace",
                    .help = "files younger than this stay",
                    .default_text = "24h"},
                   {.name = "--keep",
                    .help = "deleted versions can be restored so long",
                    .default_text = "7d"},
                   dry_run_option()},
       .run = runs(run_gc)},
      {.name = "models verify",
       .summary = "compare the database with the files",
       .details = "Exit code 0: clean; 1: findings; 2: it could not be checked.",
       .examples = {"headrace models verify --deep"},
       .options = {registry_option(),
                   {.name = "--deep",
                    .help = "read every file: hash, format, checksums",
                    .kind = OptionKind::flag},
                   {.name = "--repair",
                    .help = "mark versions with damaged files deleted; drops nothing",
                    .kind = OptionKind::flag}},
       .run = verify_exit}};
  std::ranges::move(moving_commands(), std::back_inserter(commands));
  return commands;
}

}  // namespace headrace::cli::models
