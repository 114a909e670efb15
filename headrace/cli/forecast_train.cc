// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/checksum.h"
#include "headrace/base/pool.h"
#include "headrace/base/random.h"
#include "headrace/base/thread.h"
#include "headrace/cli/forecast.h"
#include "headrace/cli/forecast_options.h"
#include "headrace/cli/mlflow.h"
#include "headrace/cli/terminal.h"
#include "headrace/flow/engine.h"
#include "headrace/flow/run.h"
#include "headrace/forecast/forecaster.h"
#include "headrace/jobs/actuals.h"
#include "headrace/jobs/forecast_pipeline.h"
#include "headrace/jobs/job_ranks.h"
#include "headrace/jobs/model_store.h"
#include "headrace/jobs/predict_many.h"
#include "headrace/registry/name.h"

namespace headrace::cli {

namespace {

/// "lake/sales-2026.parquet" gives "sales-2026"; what the registry does not allow becomes '_'.
Result<std::string> model_name(const Arguments& arguments) {
  if (arguments.has("model")) {
    std::string given = arguments.text("model");
    HR_TRY(registry::check_name(given));
    return given;
  }
  std::string url = arguments.text("table");
  while (url.ends_with('/')) {
    url.pop_back();
  }
  std::string name = base::Path(url).stem().string();
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '_'; }, '_');
  return name.empty() ? "forecast" : name;
}

Result<Json> train_json(const Arguments& arguments, jobs::TableSpec* table) {
  const auto infos = forecast::train_option_list();
  HR_TRY(Json given, given_options(arguments, infos));
  HR_TRY(follow_metadata(table, &given));
  forecast::TrainOptions options;
  HR_TRY(forecast::set_options(&options, given));
  const auto scope = arguments.flag("global") ? forecast::Scope::global : forecast::Scope::local;
  HR_TRY(forecast::resolve(options, scope));
  return given;
}

/// What a warm start needs equal, where it was not given, is as the stored model was trained.
void follow_options(const forecast::Model& warm, Json* given) {
  for (const char* name : {"categories", "static_reals", "dynamic_reals", "unknown_category", "age",
                           "distribution", "hidden", "layers"}) {
    const Json* value = warm.options.find(name);
    if (given->find(name) == nullptr && value != nullptr) {
      given->set(name, *value);
    }
  }
}

/// What `--warm-start` names, by its version where it is one model of all series.
struct WarmStart {
  forecast::Model model;  ///< of a set: one of them
  std::string reference;
  bool of_each = false;  ///< a set
};

/// Find it before a run is made; options that were not given, and the table's columns and
/// frequency, are as it was trained. Nothing when none is named.
Result<std::optional<WarmStart>> start_from(const Arguments& arguments, jobs::TableSpec* table,
                                            Json* given) {
  const std::string name = arguments.text("warm-start");
  if (name.empty()) {
    return std::optional<WarmStart>();
  }
  HR_TRY(const base::Path folder, registry::registry_path(arguments.text("registry")));
  HR_TRY(const auto registry,
         registry::Registry::open(folder, {.create = false, .read_only = true}));
  HR_TRY(const auto set, jobs::find_models(registry, name), "--warm-start");
  if (!set.shared && arguments.flag("global")) {
    return Error{Errc::invalid_argument, "--warm-start: " + name +
                                             " names a model per item; a model of all series "
                                             "starts from one of all series"};
  }
  HR_TRY(const auto facts, jobs::facts_of_models(registry, name), "--warm-start");
  WarmStart out;
  HR_TRY(out.model, jobs::load_model(registry, facts.reference), "--warm-start");
  out.reference = set.shared ? set.shared->reference() : name;
  out.of_each = !set.shared;
  follow_options(out.model, given);
  if (table->frequency.empty()) {
    table->frequency = out.model.spec.frequency.name();
  }
  table->learned = out.model.columns;
  if (table->format == "wide_csv" && table->start.empty()) {
    table->start = table->learned.start;  // a pipeline says it
  }
  return std::optional(std::move(out));
}

/// What training from it would refuse whatever the values.
Result<void> check_start(const std::optional<WarmStart>& warm,
                         const forecast::TrainOptions& options, forecast::Scope scope,
                         const jobs::TableSpec& table) {
  // Items of a set that a naive method forecasts start from nothing, and say so.
  if (!warm || (warm->of_each && warm->model.method != forecast::Method::deepar)) {
    return {};
  }
  HR_TRY(const auto frequency, forecast::parse_frequency(table.frequency));
  auto fits = forecast::check_warm_start(warm->model, options, scope, frequency);
  if (!fits.ok()) {
    return std::move(std::move(fits).error().add_context(warm->reference));
  }
  return {};
}

/// The frequency of the whole table: an item alone may tell another. Where stamps of some rows are
/// damaged it stays open, since the items of other rows can still be trained.
Result<void> settle_frequency(bool quiet, jobs::TableSpec* table) {
  const bool given = !table->frequency.empty();
  const auto frequency = jobs::table_frequency(*table);
  if (!frequency.ok() && frequency.error().code() == Errc::corrupt) {
    return {};
  }
  if (!frequency.ok()) {
    return frequency.error();
  }
  table->frequency = frequency->name();
  if (!given && !quiet) {
    say(stderr, "the frequency is {}, the most common step\n", table->frequency);
  }
  return {};
}

/// The columns of the model that this one starts from, where they are other than the usual ones:
/// a pipeline says them.
Result<void> settle_columns(jobs::TableSpec* table) {
  if (table->learned.empty()) {
    return {};
  }
  HR_TRY(const forecast::ColumnNames found, jobs::table_columns(*table));
  jobs::TableSpec usual = *table;
  usual.learned = {};
  if (const auto same = jobs::table_columns(usual); !same.ok() || *same != found) {
    table->id = found.id;
    table->time = found.time;
    table->target = found.target;
  }
  return {};
}

void print_trained(const Arguments& arguments, const std::string& model, const base::Path& folder,
                   const forecast::Trained& trained, const forecast::SeriesSet& set) {
  if (!arguments.flag("json")) {
    print_errors(set.errors);
    const forecast::ModelSpec& spec = trained.model.spec;
    say(stdout, "frequency {}, season {}, horizon {}, {} series\n", spec.frequency.name(),
        spec.season, spec.horizon, set.series.size());
    say(stdout, "registered {} in {}\n", model, folder.string());
    return;
  }
  Json notes = Json::array();
  for (const auto* list : {&set.notes, &trained.notes}) {
    for (const std::string& note : *list) {
      notes.push_back(note);
    }
  }
  fmt::print("{}\n", Json::object({{"model", model},
                                   {"registry", folder.string()},
                                   {"training", trained.model.training},
                                   {"errors", errors_json(set.errors)},
                                   {"notes", std::move(notes)}})
                         .dump());
}

/// The options of forecasts; who judges them needs the median.
Result<Json> predict_json(const Arguments& arguments) {
  const auto infos = forecast_infos();
  HR_TRY(Json given, given_options(arguments, infos));
  std::string name = given.members().empty() ? "" : given.members().front().first;
  for (const char* judging : {"actuals", "actuals-start", "actuals-format"}) {
    if (arguments.flag("global") && arguments.has(judging)) {
      return Error{Errc::invalid_argument,
                   fmt::format("--{} is for forecasts, and --global makes none; predict with the "
                               "model, then: headrace forecast evaluate FORECASTS --history TABLE "
                               "--actuals ACTUALS",
                               judging)};
    }
  }
  if (arguments.flag("global") && !name.empty()) {
    std::replace(name.begin(), name.end(), '_', '-');
    return Error{Errc::invalid_argument,
                 "--" + name + " is for forecasts, and --global makes none; tell it to predict"};
  }
  forecast::PredictOptions options;
  HR_TRY(forecast::set_options(&options, given));
  if (arguments.has("actuals") &&
      std::ranges::find(options.quantiles, 0.5) == options.quantiles.end()) {
    return Error{Errc::invalid_argument, "--quantiles " + arguments.text("quantiles") +
                                             " lacks the median, by which --actuals judges; add "
                                             "0.5"};
  }
  return given;
}

/// The registry that the models go to, which can be written. A place where the system has none is
/// wrong input, as the place of any other output.
Result<registry::Registry> make_registry(const std::string& told) {
  HR_TRY(const base::Path folder, registry::registry_path(told));
  auto made = registry::Registry::open(folder);
  const Result<void> writable =
      made.ok() ? made->check_writable() : Result<void>(std::move(made).error());
  if (writable.ok()) {
    return made;
  }
  const Error& error = writable.error();
  const bool place = error.code() == Errc::io || error.code() == Errc::already_exists;
  return place ? Error{Errc::invalid_argument, error.message()} : error;
}

/// All that the training of a global model is made of, on each rank that takes part.
struct GlobalTraining {
  std::string name;
  jobs::TableSpec spec;
  Json given;
  std::optional<WarmStart> warm;
  forecast::TrainOptions options;
  base::Path folder;
  std::optional<registry::Registry> registry;  ///< of the rank that writes
  jobs::SeriesTable table;
  base::Micros started{};
};

/// Read what is to be trained on; `writes`: the model is to be registered from here.
Result<GlobalTraining> prepare_global(const Arguments& arguments, bool writes) {
  GlobalTraining out;
  HR_TRY(out.name, model_name(arguments));
  HR_TRY(predict_json(arguments));
  HR_TRY(out.spec, table_spec(arguments));
  HR_TRY(out.given, train_json(arguments, &out.spec));
  HR_TRY(out.warm, start_from(arguments, &out.spec, &out.given));
  HR_TRY(forecast::set_options(&out.options, out.given));
  HR_TRY(name_covariates(out.options, &out.spec));
  HR_TRY(check_start(out.warm, out.options, forecast::Scope::global, out.spec));
  HR_TRY(out.folder, registry::registry_path(arguments.text("registry")));
  out.started = base::system_clock().wall();
  if (writes) {
    HR_TRY(out.registry, make_registry(arguments.text("registry")));
  }
  HR_TRY(out.table, jobs::load_series(out.spec));
  if (writes) {
    print_lines(out.table.set.notes);
  }
  HR_TRY(forecast::need_series(out.table.set, out.spec.url));
  return out;
}

/// What would make the ranks train different models.
std::vector<jobs::RankFact> rank_facts(const GlobalTraining& training) {
  std::string start = "none";
  if (training.warm) {
    base::Xxh3Stream128 hash;
    for (const std::vector<float>& member : training.warm->model.members) {
      hash.update(std::as_bytes(std::span(member)));
    }
    start = base::hex(hash.finish()) + " of " + training.warm->reference;
  }
  std::vector<jobs::RankFact> facts = {
      {"the version of headrace", HEADRACE_VERSION},
      {"the instruction set (HEADRACE_FORECAST_ISA)", forecast::instruction_set()},
      {"what was read of the table",
       fmt::format("{} series, hash {}", training.table.set.series.size(),
                   jobs::data_hash_of(training.table.set.series))},
      {"what --warm-start names", start}};
  const Json options = forecast::to_json(training.options);
  for (const auto& [name, value] : options.members()) {
    std::string text = value.dump();
    if (text.size() > jobs::kRankFactBytes) {
      text = fmt::format("hash {:016x}", base::derive_seed(0, text));
    }
    facts.push_back({"the option " + name, std::move(text)});
  }
  return facts;
}

/// Fewer windows than ranks leave some without work.
void note_idle_ranks(const forecast::TrainOptions& options, const jobs::JobRanks& ranks) {
  if (options.batch < ranks.size()) {
    print_lines(
        {fmt::format("a batch of {} windows is divided among {} ranks, which leaves {} "
                     "without work; start fewer, or raise --batch",
                     options.batch, ranks.size(), ranks.size() - options.batch)});
  }
}

/// Train; with other ranks together with them, and their errors are this one's.
Result<forecast::Trained> fit_global(const GlobalTraining& training, jobs::JobRanks* ranks) {
  HR_TRY(const auto resolved, forecast::resolve(training.options, forecast::Scope::global));
  install_interrupt_handler();
  forecast::TrainContext context;
  context.threads = base::usable_cores();
  context.warm = training.warm ? &training.warm->model : nullptr;
  context.ranks = ranks;
  context.stop = interrupted;
  std::optional<Progress> progress;
  base::Mutex progress_mu;  // members may train on threads of their own
  int64_t epochs = 0;
  if (ranks == nullptr || ranks->rank() == 0) {
    progress.emplace("epochs", int64_t{std::max(1, resolved.members)} * resolved.epochs);
    const int running = ranks == nullptr ? context.threads : ranks->size();
    context.progress = [&, running](const forecast::TrainProgress&) {
      const base::MutexLock lock(progress_mu);
      progress->update(++epochs, 0, running);
      return true;
    };
  }
  auto trained = forecast::train_global(training.table.set.series, training.options, context);
  if (progress) {
    progress->finish();
  }
  if (ranks != nullptr) {
    HR_TRY(ranks->agree(trained.ok() ? Result<void>() : Result<void>(trained.error())));
  }
  return trained;
}

Result<registry::Version> register_global(GlobalTraining* training,
                                          const forecast::Trained& trained) {
  jobs::ModelRecord record;
  record.name = training->name;
  record.lineage.run = flow::new_run_id();
  record.lineage.run_kind = "train";
  record.lineage.code_version = HEADRACE_VERSION;
  record.lineage.environment = jobs::training_environment();
  record.lineage.data_hash = jobs::data_hash_of(training->table.set.series);
  record.lineage.table = training->table.snapshot;
  record.tags = {{"scope", "global"}};
  if (training->warm) {
    record.parent = training->warm->reference;
  }
  HR_TRY(auto version, jobs::add_model(&*training->registry, trained.model, std::move(record)));
  HR_TRY(training->registry->end_run({.run = version.lineage.run,
                                      .status = "Succeeded",
                                      .started = training->started,
                                      .ended = base::system_clock().wall()}));
  return version;
}

/// With `ranks` rank 0 alone writes and prints.
Result<int> train_global(const Arguments& arguments, jobs::JobRanks* ranks) {
  const bool writes = ranks == nullptr || ranks->rank() == 0;
  auto prepared = prepare_global(arguments, writes);
  if (ranks != nullptr) {
    HR_TRY(ranks->agree(prepared.ok() ? Result<void>() : Result<void>(prepared.error())));
    HR_TRY(ranks->check_same(rank_facts(*prepared)));
  }
  HR_TRY(GlobalTraining training, std::move(prepared));
  if (ranks != nullptr && writes) {
    note_idle_ranks(training.options, *ranks);
  }
  HR_TRY(forecast::Trained trained, fit_global(training, ranks));
  if (!writes) {
    return kExitOk;
  }
  print_lines(trained.notes);
  trained.model.columns = training.table.set.columns;
  HR_TRY(const auto version, register_global(&training, trained));
  const forecast::SeriesSet& set = training.table.set;
  print_trained(arguments, version.reference(), training.folder, trained, set);
  return push_at_end(version.lineage.run, std::span(&training.folder, 1), arguments.flag("json"),
                     set.errors.empty() ? kExitOk : kExitFailed);
}

/// What is told as it stands here, for a pipeline that may run elsewhere.
Result<jobs::ForecastPipeline> told_pipeline(const Arguments& arguments) {
  jobs::ForecastPipeline spec;
  HR_TRY(spec.name, model_name(arguments));
  HR_TRY(spec.table, table_spec(arguments));
  HR_TRY(spec.train, train_json(arguments, &spec.table));
  const auto absolute = [](const std::string& url) {
    const bool remote = url.empty() || url.find("://") != std::string::npos;
    return remote ? url : std::filesystem::absolute(url).string();
  };
  HR_TRY(spec.predict, predict_json(arguments));
  spec.table.url = absolute(spec.table.url);
  spec.table.metadata = absolute(spec.table.metadata);
  spec.table.static_table = absolute(spec.table.static_table);
  spec.actuals = absolute(arguments.text("actuals"));
  spec.actuals_start = arguments.text("actuals-start");
  spec.actuals_format = arguments.text("actuals-format");
  HR_TRY(registry::registry_path(arguments.text("registry")));
  spec.registry = absolute(arguments.text("registry"));
  spec.global_members = static_cast<int>(arguments.integer("global-members").value_or(3));
  spec.slots = static_cast<int>(arguments.integer("slots").value_or(0));
  return spec;
}

/// The table of what came is read when all is trained: what is wrong with it is told before.
Result<void> settle_actuals(jobs::ForecastPipeline* spec) {
  if (spec->actuals.empty()) {
    return {};
  }
  HR_TRY(spec->actuals, jobs::actuals_url(spec->actuals, spec->table.metadata), "actuals");
  jobs::TableSpec read =
      jobs::actuals_spec(spec->table, {spec->actuals, spec->actuals_start, spec->actuals_format});
  for (auto* covariates : {&read.categories, &read.static_reals, &read.dynamic_reals}) {
    covariates->clear();  // an evaluation reads none
  }
  jobs::TableSpec past = spec->table;
  for (auto* covariates : {&past.categories, &past.static_reals, &past.dynamic_reals}) {
    covariates->clear();
  }
  return jobs::check_actuals(read, past);
}

/// A run ends with files of its forecasts, which a table's folder would be read with from then on.
Result<void> check_run_apart(const base::Path& runs, const Arguments& arguments) {
  for (const char* name : {"forecasts.parquet", "forecasts.csv"}) {
    const base::Path folder = arguments.has("dir") ? runs : runs / "RUN";
    if (auto apart = check_apart(folder / name, arguments); !apart.ok()) {
      return std::move(apart).error().add_note(
          "--dir, or HEADRACE_RUNS, names another folder for the run");
    }
  }
  return {};
}

/// Write the pipeline of this training and run it as `headrace flow run` would.
Result<int> train_local(const Arguments& arguments) {
  const base::Path runs =
      arguments.has("dir") ? base::Path(arguments.text("dir")) : flow::runs_folder();
  HR_TRY(check_run_apart(runs, arguments));
  HR_TRY(jobs::ForecastPipeline spec, told_pipeline(arguments));
  HR_TRY(const auto warm, start_from(arguments, &spec.table, &spec.train));
  spec.warm_start = warm ? warm->reference : "";
  // What is wrong with the table or the options is told before a run is made.
  forecast::TrainOptions options;
  HR_TRY(forecast::set_options(&options, spec.train));
  HR_TRY(name_covariates(options, &spec.table));
  HR_TRY(check_start(warm, options, forecast::Scope::local, spec.table));
  HR_TRY(jobs::check_table(spec.table));
  HR_TRY(settle_columns(&spec.table));
  HR_TRY(settle_frequency(arguments.flag("json"), &spec.table));
  if (const auto readable = settle_actuals(&spec); !readable.ok()) {
    report_error(readable.error(), arguments.flag("json"));
    return kExitUsage;  // wrong input, whatever is wrong with it
  }
  HR_TRY(const Json pipeline, jobs::forecast_pipeline(spec));

  if (arguments.has("dir")) {
    HR_TRY(flow::check_folder(runs));
  }
  HR_TRY(make_registry(spec.registry));
  HR_TRY(base::make_folders(runs));
  // A model's name may have folders, and be longer than a file's.
  std::string stem = spec.name;
  std::ranges::replace(stem, '/', '-');
  const base::Path document =
      runs / (flow::item_folder_name(stem) + "-" + flow::new_run_id().substr(0, 8) + ".json");
  HR_TRY(base::replace_file(document, pipeline.dump(2) + "\n"));
  Arguments run;
  run.add("pipeline", document.string());
  for (const char* name : {"dir", "slots"}) {
    if (arguments.has(name)) {
      run.add(name, arguments.text(name));
    }
  }
  if (arguments.flag("json")) {
    run.add("json", "true");
  }
  for (const Command& command : flow_commands()) {
    if (command.name == "flow run") {
      return command.run(run);
    }
  }
  return Error{Errc::internal, "flow run is missing from this binary"};
}

/// Local models are shared out by the pipeline's slots, not by ranks.
Result<int> train_local_alone(const Arguments& arguments) {
  HR_TRY(const auto place, jobs::JobRanks::place());
  if (place.size == 1) {
    return train_local(arguments);
  }
  if (place.rank != 0) {
    return kExitOk;  // rank 0 tells it
  }
  return Error{Errc::invalid_argument,
               fmt::format("{} ranks were started, and one model per series is trained by one "
                           "process, as many series at a time as --slots says; start it without "
                           "ranks, or add --global for one model that all ranks train together",
                           place.size)};
}

/// With the other ranks of the job, where a launcher started some. `told`: rank 0 tells the error.
Result<int> train_global_together(const Arguments& arguments, bool* told) {
  HR_TRY(const auto ranks, jobs::JobRanks::join());
  Result<int> result = train_global(arguments, ranks.get());
  *told = ranks != nullptr && ranks->is_told_by_first();
  return result;
}

}  // namespace

int forecast_train(const Arguments& arguments) {
  const bool json = arguments.flag("json");
  if (arguments.flag("global") && arguments.flag("local")) {
    return report_error(Error{Errc::invalid_argument, "--local and --global exclude each other"},
                        json);
  }
  bool is_told = false;
  const Result<int> result = arguments.flag("global") ? train_global_together(arguments, &is_told)
                                                      : train_local_alone(arguments);
  if (result.ok()) {
    return *result;
  }
  if (is_told) {
    return interrupted() ? kExitInterrupted : kExitOk;
  }
  return finish_error(result.error(),
                      "nothing was kept (the training of a global model cannot be resumed)", json);
}

}  // namespace headrace::cli
