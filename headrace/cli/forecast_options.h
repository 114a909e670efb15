// SPDX-License-Identifier: Apache-2.0
// Options that the forecast commands share: where the table is, and one flag per training option.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/cli/command.h"
#include "headrace/forecast/model.h"
#include "headrace/forecast/options.h"
#include "headrace/jobs/predict_many.h"
#include "headrace/jobs/series_table.h"

namespace headrace::cli {

std::vector<Option> table_options();
Result<jobs::TableSpec> table_spec(const Arguments& arguments);

/// The metadata of a GluonTS data set: the table becomes what is read in fact, and training has its
/// horizon where none is given.
Result<void> follow_metadata(jobs::TableSpec* spec, Json* train);

/// The covariates that training reads beside the target. `invalid_argument`: a table of static ones
/// and none of them.
Result<void> name_covariates(const forecast::TrainOptions& options, jobs::TableSpec* spec);
/// Those of a trained model, its frequency and the names of its columns where none are given.
void follow_model(const jobs::ModelFacts& model, jobs::TableSpec* spec);

/// Flags out of an option table: "learning_rate" is --learning-rate.
std::vector<Option> option_flags(std::span<const forecast::OptionInfo> infos);
/// The flags that were given, as an object by option name: for `set_options` and pipelines.
Result<Json> given_options(const Arguments& arguments, std::span<const forecast::OptionInfo> infos);

/// What forecasts of a run or a backtest can be told beside the options of training.
std::vector<forecast::OptionInfo> forecast_infos();

/// Several lists after one another.
std::vector<Option> join_options(std::initializer_list<std::vector<Option>> lists);

/// Whether a file can be written under this name, asked before the work it is to hold.
/// `invalid_argument`: its folder is not there, it is a folder itself, or the system refuses it.
Result<void> check_output(const base::Path& path);

/// Notes to stderr.
void print_lines(const std::vector<std::string>& notes);
/// Items that failed, to stderr; the first of them when there are many.
void print_errors(const std::vector<forecast::ItemError>& errors);
/// [{"item", "code", "message"}, ...]
Json errors_json(const std::vector<forecast::ItemError>& errors);

}  // namespace headrace::cli
