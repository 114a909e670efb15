// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/activities.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/board.h"
#include "headrace/base/log.h"
#include "headrace/jobs/evaluation.h"
#include "headrace/jobs/forecast_properties.h"
#include "headrace/jobs/forecast_store.h"
#include "headrace/jobs/local_plan.h"
#include "headrace/jobs/model_store.h"
#include "headrace/jobs/predict_many.h"
#include "headrace/jobs/run_registries.h"
#include "headrace/jobs/series_cache.h"
#include "headrace/jobs/series_table.h"
#include "headrace/jobs/worker_metrics.h"
#include "headrace/registry/name.h"

namespace headrace::jobs {

namespace {

constexpr std::string_view kRegistryNote = "registry.txt";  // in the run's folder

/// What a warm worker keeps from item to item: open registries, the start models, its forecast log,
/// the table it read last.
struct WorkerState {
  std::optional<std::unique_ptr<base::Board>> board;  ///< made with the first registry; may be null
  std::map<std::string, std::shared_ptr<registry::Registry>> registries;
  std::map<std::string, std::shared_ptr<const forecast::Model>> ensembles;
  std::map<std::string, std::shared_ptr<ForecastWriter>> writers;
  SeriesCache series;
  std::optional<WorkerMetrics> metrics;
};

/// The process's board, for the engine to add up; null when none is wanted or none can be made.
base::Board* board_of(WorkerState* state, const flow::ActivityCall& call) {
  if (!state->board) {
    state->board.emplace();
    base::BoardOptions options;
    options.run = call.run_id;
    options.role = base::BoardRole::instance;
    options.keep = true;
    if (call.metrics) {
      auto made = base::Board::create(options);
      if (made.ok()) {
        state->board = *std::move(made);
      } else {
        base::log_warning("this worker goes on without metrics: " + made.error().message());
      }
    }
  }
  return state->board->get();
}

WorkerMetrics& metrics_in(WorkerState* state, const flow::ActivityCall& call) {
  if (!state->metrics) {
    state->metrics.emplace(board_of(state, call));
  }
  return *state->metrics;
}

/// The registry of a run whose pipeline names none: the one it began with, which its folder keeps.
/// A resumed run may find another environment, and its models belong together.
Result<base::Path> registry_of_run(const flow::ActivityCall& call) {
  const base::Path note = call.run_folder / kRegistryNote;
  const auto now = registry::registry_path("");
  const auto kept = base::read_file(note);
  if (!kept.ok() && kept.error().code() != Errc::not_found) {
    return kept.error();
  }
  if (!kept.ok()) {
    HR_TRY(const base::Path folder, now);
    std::error_code code;
    const base::Path absolute = std::filesystem::absolute(folder, code);
    HR_TRY(base::replace_file(note, absolute.string()));
    return absolute;
  }
  const base::Path folder = *kept;
  if (!now.ok() ||
      std::filesystem::absolute(*now).lexically_normal() != folder.lexically_normal()) {
    base::log_warning("this run goes on in the registry that it began with, " + folder.string() +
                      ", although the environment names another registry");
  }
  return folder;
}

Result<std::shared_ptr<registry::Registry>> open_registry(WorkerState* state,
                                                          const flow::ActivityCall& call,
                                                          const std::string& option) {
  HR_TRY(const base::Path folder,
         option.empty() ? registry_of_run(call) : registry::registry_path(option));
  std::shared_ptr<registry::Registry>& known = state->registries[folder.string()];
  if (known == nullptr) {
    HR_TRY(auto opened, registry::Registry::open(folder, {.command = "headrace flow worker",
                                                          .board = board_of(state, call)}));
    HR_TRY(note_registry(call.run_folder, folder));
    known = std::make_shared<registry::Registry>(std::move(opened));
  }
  return known;
}

Result<std::shared_ptr<const forecast::Model>> load_ensemble(
    WorkerState* state, const registry::Registry& registry,
    const std::vector<std::string>& references) {
  std::string key = registry.uuid();
  for (const std::string& reference : references) {
    key += "\n" + reference;
  }
  std::shared_ptr<const forecast::Model>& known = state->ensembles[key];
  if (known == nullptr) {
    std::vector<forecast::Model> models;
    for (const std::string& reference : references) {
      HR_TRY(auto model, load_model(registry, reference), "warm_start");
      models.push_back(std::move(model));
    }
    HR_TRY(auto joined, join_members(std::move(models)));
    known = std::make_shared<const forecast::Model>(std::move(joined));
  }
  return known;
}

/// What one item starts from.
struct Start {
  std::shared_ptr<const forecast::Model> model;  ///< null: from nothing
  std::string reference;                         ///< of the model, or of the first of an ensemble
  bool own = false;                              ///< the item's earlier model, not one of all
};

Result<registry::Version> find_uid(const registry::Registry& registry, const std::string& uid) {
  registry::Query query;
  query.uid = uid;
  query.limit = 1;
  HR_TRY(auto page, registry.list(query));
  if (uid.empty() || page.versions.empty()) {
    return Error{Errc::not_found, "registry: no version has the uid \"" + uid + "\""};
  }
  return std::move(page.versions.front());
}

/// The item's own earlier model; none, with a note, where it has none with weights. What this run
/// registered itself, before a worker was lost, is no earlier one: its parent is.
Result<Start> own_start(const registry::Registry& registry, const ModelSet& set,
                        const flow::ActivityCall& call, const std::string& item) {
  auto version = registry.find(set.reference(item));
  if (version.ok() && version->lineage.run == call.run_id) {
    version = find_uid(registry, version->parent);
  }
  if (!version.ok() && version.error().code() != Errc::not_found) {
    return std::move(version).error();
  }
  if (!version.ok()) {
    base::log_info(item + " has no earlier model; it starts from nothing");
    return Start{nullptr, "", true};
  }
  HR_TRY(auto model, load_model(registry, version->reference()), "warm_start");
  if (model.method != forecast::Method::deepar) {
    base::log_info(version->reference() + " has no weights to start from");
    return Start{nullptr, "", true};
  }
  return Start{std::make_shared<const forecast::Model>(std::move(model)), version->reference(),
               true};
}

Result<Start> find_start(WorkerState* state, const registry::Registry& registry,
                         const flow::ActivityCall& call, const ForecastProperties& properties) {
  if (properties.warm_start.empty()) {
    return Start{};
  }
  if (properties.warm_start.size() == 1) {
    HR_TRY(const ModelSet set, find_models(registry, properties.warm_start.front()), "warm_start");
    if (!set.shared) {
      return own_start(registry, set, call, properties.item);
    }
  }
  HR_TRY(auto model, load_ensemble(state, registry, properties.warm_start));
  return Start{std::move(model), properties.warm_start.front(), false};
}

Result<std::shared_ptr<ForecastWriter>> open_writer(WorkerState* state,
                                                    const base::Path& run_folder) {
  std::shared_ptr<ForecastWriter>& known = state->writers[run_folder.string()];
  if (known == nullptr) {
    HR_TRY(auto opened, ForecastWriter::open(run_folder));
    known = std::make_shared<ForecastWriter>(std::move(opened));
  }
  return known;
}

std::string once_key(const flow::ActivityCall& call, const std::string& item) {
  return call.run_id + "/" + call.activity + "/" + item;
}

registry::Lineage lineage_of(const flow::ActivityCall& call, const SeriesTable& table,
                             const std::string& item) {
  registry::Lineage lineage;
  lineage.run = call.run_id;
  lineage.run_kind = "flow";
  lineage.item = item;
  lineage.attempt = call.attempt;
  lineage.table = table.snapshot;
  lineage.code_version = HEADRACE_VERSION;
  lineage.environment = training_environment();
  lineage.data_hash = data_hash_of(table.set.series);
  return lineage;
}

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) {
    base::log_info(note);
  }
}

Result<Json> run_items(const ForecastProperties& properties) {
  HR_TRY(const auto items, list_items(properties.table));
  Json::Array ids(items.begin(), items.end());
  const auto count = static_cast<int64_t>(ids.size());
  return Json::object({{"items", Json(std::move(ids))}, {"count", count}});
}

Result<Json> run_train_global(WorkerState* state, const flow::ActivityCall& call,
                              const ForecastProperties& properties) {
  HR_TRY(auto registry, open_registry(state, call, properties.registry));
  HR_TRY(registry->check_writable());
  HR_TRY(const SeriesTable table, load_series(properties.table));
  print_notes(table.set.notes);
  HR_TRY(forecast::need_series(table.set, properties.table.url));
  for (const forecast::ItemError& bad : table.set.errors) {
    base::log_warning("left out of the global model: " + bad.error.message());
  }
  forecast::TrainContext context;
  context.threads = properties.threads;
  HR_TRY(auto trained, forecast::train_global(table.set.series, properties.train, context));
  print_notes(trained.notes);
  trained.model.columns = table.set.columns;

  ModelRecord record;
  record.name = properties.model;
  record.once = once_key(call, call.item_key.empty() ? "global" : call.item_key);
  record.lineage = lineage_of(call, table, "");
  record.tags = {{"scope", "global"}};
  HR_TRY(const auto version, add_model(registry.get(), trained.model, std::move(record)));
  return Json::object({{"model", version.reference()},
                       {"series", static_cast<int64_t>(table.set.series.size())},
                       {"left_out", static_cast<int64_t>(table.set.errors.size())},
                       {"training", trained.model.training}});
}

std::vector<registry::Metric> metrics_of(const LocalOutcome& outcome) {
  std::vector<registry::Metric> metrics;
  for (const forecast::CandidateScore& score : outcome.scores) {
    if (outcome.criterion == "quantile_loss") {  // what was compared, where no other has a value
      metrics.push_back({score.name + ".quantile_loss", score.score, std::nullopt});
    }
    for (const auto& [name, value] : score.metrics.named()) {
      metrics.push_back({score.name + "." + name, value, std::nullopt});
      if (score.name == outcome.winner) {
        metrics.push_back({name, value, std::nullopt});
      }
    }
  }
  return metrics;
}

ItemForecast stored_item(LocalOutcome outcome, std::string reference) {
  ItemForecast item;
  item.forecast = std::move(outcome.forecast);
  item.winner = outcome.winner;
  item.model = std::move(reference);
  item.season = outcome.model.spec.season;
  item.columns = outcome.model.columns;
  item.seconds = outcome.seconds;
  item.notes = std::move(outcome.notes);
  for (const forecast::CandidateScore& score : outcome.scores) {
    item.scores[score.name] = score.metrics.named();
  }
  return item;
}

Result<Json> run_train_local(WorkerState* state, const flow::ActivityCall& call,
                             const ForecastProperties& properties) {
  HR_TRY(auto registry, open_registry(state, call, properties.registry));
  HR_TRY(const Start start, find_start(state, *registry, call, properties));
  TableSpec spec = properties.table;
  if (start.model != nullptr && spec.frequency.empty()) {  // one item alone may tell another
    spec.frequency = start.model->spec.frequency.name();
  }
  HR_TRY(const SeriesTable table, state->series.load(spec, properties.item));
  WorkerMetrics& metrics = metrics_in(state, call);
  metrics.count_read(table);
  if (!table.set.errors.empty()) {
    return table.set.errors.front().error;
  }
  if (table.set.series.empty()) {
    return Error{Errc::not_found,
                 "forecast: " + properties.table.url + " has no item \"" + properties.item + "\""};
  }
  LocalPlan plan{.train = properties.train,
                 .select = properties.select,
                 .predict = properties.predict,
                 .choose = properties.choose};
  if (start.model != nullptr) {
    plan.global = start.model.get();
    plan.global_name = start.own ? "earlier" : "global";
    plan.warm_start = properties.start_warm;
    HR_TRY(forecast::set_options(&plan.train, properties.train_warm));
  }
  HR_TRY(LocalOutcome outcome, train_one(table.set.series.front(), plan));
  print_notes(outcome.notes);
  outcome.model.columns = table.set.columns;

  ModelRecord record;
  record.name = properties.model + "/" + registry::encode_segment(properties.item);
  record.once = once_key(call, properties.item);
  record.lineage = lineage_of(call, table, properties.item);
  record.metrics = metrics_of(outcome);
  record.metrics.push_back({"naive_share", outcome.naive_share, std::nullopt});
  record.tags = {{"scope", "local"}, {"winner", outcome.winner}};
  if (start.model != nullptr) {
    record.parent = start.reference;
  }
  HR_TRY(const auto version, add_model(registry.get(), outcome.model, std::move(record)));
  metrics.count_trained(outcome);

  Json output = Json::object({{"model", version.reference()},
                              {"winner", outcome.winner},
                              {"naive_share", outcome.naive_share},
                              {"seconds", outcome.seconds},
                              {"bytes_read", table.bytes_read}});
  for (const forecast::CandidateScore& score : outcome.scores) {
    output.set("score_" + score.name, score.score);
  }
  HR_TRY(auto writer, open_writer(state, call.run_folder));
  HR_TRY(writer->append(stored_item(std::move(outcome), version.reference())));
  return output;
}

Result<Json> run_forecast(WorkerState* state, const flow::ActivityCall& call) {
  HR_TRY(const ForecastProperties properties,
         read_forecast_properties(call.type_properties, call.pipeline_folder));
  switch (properties.operation) {
    case ForecastOperation::items: return run_items(properties);
    case ForecastOperation::train_global: return run_train_global(state, call, properties);
    case ForecastOperation::train_local: {
      auto output = run_train_local(state, call, properties);
      if (!output.ok()) {
        metrics_in(state, call).count_failed();
      }
      return output;
    }
    case ForecastOperation::evaluate: {
      return evaluate_run(call.run_folder, properties.table, properties.actuals);
    }
  }
  return Error{Errc::internal, "forecast: an operation without code"};
}

}  // namespace

flow::ActivityTable activity_table() {
  flow::ActivityTable table;
  const auto state = std::make_shared<WorkerState>();
  table.add(
      {.type = "HeadraceForecast",
       .hidden = false,
       .run = [state](const flow::ActivityCall& call) { return run_forecast(state.get(), call); },
       .check = check_forecast_properties,
       .required = {"operation", "table"},
       .optional = forecast_property_names()});
  table.add(
      {.type = "NoOp",
       .hidden = true,
       .run = [](const flow::ActivityCall& call) -> Result<Json> { return call.type_properties; },
       .check = {},
       .required = {},
       .optional = {"value"}});
  return table;
}

}  // namespace headrace::jobs
