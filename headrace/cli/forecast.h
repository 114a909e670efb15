// SPDX-License-Identifier: Apache-2.0
// The bodies of the forecast commands; each returns an exit code.
#pragma once

#include "headrace/cli/command.h"

namespace headrace::cli {

int forecast_train(const Arguments& arguments);
int forecast_predict(const Arguments& arguments);
int forecast_backtest(const Arguments& arguments);
int forecast_evaluate(const Arguments& arguments);
int forecast_plot(const Arguments& arguments);

}  // namespace headrace::cli
