// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/forecast_store.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "headrace/base/test_folder.h"
#include "headrace/jobs/example_forecast_test.h"

namespace headrace::jobs {

namespace {

using Stored = std::map<std::string, ItemForecast>;

ForecastWriter open_writer(const base::Path& run) {
  auto writer = ForecastWriter::open(run);
  REQUIRE_MESSAGE(writer.ok(), (writer.ok() ? "" : writer.error().message()));
  return *std::move(writer);
}

Stored read_all(const base::Path& run) {
  auto stored = read_forecasts(run);
  REQUIRE_MESSAGE(stored.ok(), (stored.ok() ? "" : stored.error().message()));
  return *std::move(stored);
}

}  // namespace

TEST_CASE("a stored forecast comes back as it was, numbers that are none included") {
  const base::TestFolder run;
  ItemForecast item = example_forecast("a/b \"c\"");
  item.forecast.quantiles[0] = std::numeric_limits<double>::quiet_NaN();
  item.forecast.quantiles[1] = -std::numeric_limits<double>::infinity();
  item.forecast.quantiles[4] = std::numeric_limits<double>::infinity();
  item.forecast.mean[1] = 0.1 + 0.2;
  item.forecast.method = forecast::Method::seasonal_naive;
  item.forecast.limited_values = 3;
  REQUIRE(open_writer(run.path()).append(item).ok());

  const Stored stored = read_all(run.path());

  REQUIRE(stored.size() == 1);
  const ItemForecast& back = stored.at(item.forecast.id);
  CHECK(back.forecast.frequency.name() == "D");
  CHECK(back.forecast.start_us == item.forecast.start_us);
  CHECK(back.forecast.levels == item.forecast.levels);
  CHECK(std::isnan(back.forecast.quantiles[0]));
  CHECK(back.forecast.quantiles[1] == item.forecast.quantiles[1]);
  CHECK(back.forecast.quantiles[4] == item.forecast.quantiles[4]);
  CHECK(back.forecast.mean == item.forecast.mean);
  CHECK(back.forecast.method == forecast::Method::seasonal_naive);
  CHECK(back.forecast.limited_values == 3);
  CHECK(back.winner == "local");
  CHECK(back.model == item.model);
  CHECK(back.seconds == 0.25);
  CHECK(back.notes == item.notes);
  CHECK(back.scores == item.scores);
}

TEST_CASE("each writer has a log of its own, and of an item written twice the later counts") {
  const base::TestFolder run;
  CHECK(read_all(run.path()).empty());  // nothing is there yet
  {
    ForecastWriter one = open_writer(run.path());
    ForecastWriter other = open_writer(run.path());
    REQUIRE(other.append(example_forecast("a", 1.0)).ok());
    REQUIRE(one.append(example_forecast("b", 2.0)).ok());
    REQUIRE(one.append(example_forecast("a", 3.0)).ok());  // a retry, in the log that sorts first
  }
  CHECK(std::filesystem::exists(run / "forecasts/worker-1.log"));

  REQUIRE(open_writer(run.path()).append(example_forecast("c", 4.0)).ok());

  const Stored stored = read_all(run.path());
  CHECK(stored.size() == 3);
  CHECK(stored.at("a").forecast.mean[0] == 3.0);
  CHECK(!std::filesystem::exists(run / "forecasts/worker-2.log"));  // a free log is taken up
}

TEST_CASE("a torn tail costs the record that was being written, and the next writer goes on") {
  const base::TestFolder run;
  const base::Path log = run / "forecasts/worker-0.log";
  REQUIRE(open_writer(run.path()).append(example_forecast("a")).ok());
  const auto whole = std::filesystem::file_size(log);
  REQUIRE(open_writer(run.path()).append(example_forecast("b")).ok());
  const auto longer = std::filesystem::file_size(log);

  for (const auto size : {longer - 1, whole + 17, whole + 1}) {
    CAPTURE(size);
    std::filesystem::resize_file(log, size);
    const Stored stored = read_all(run.path());
    CHECK(stored.size() == 1);
    CHECK(stored.contains("a"));
  }
  REQUIRE(open_writer(run.path()).append(example_forecast("c")).ok());
  CHECK(read_all(run.path()).size() == 2);
}

TEST_CASE("a record whose numbers do not fit its horizon is corrupt and names log and item") {
  const base::TestFolder run;
  ItemForecast item = example_forecast("a");
  item.forecast.quantiles.pop_back();
  REQUIRE(open_writer(run.path()).append(item).ok());

  const auto stored = read_forecasts(run.path());

  REQUIRE(!stored.ok());
  CHECK(stored.error().code() == Errc::corrupt);
  CHECK(stored.error().message().find("worker-0.log") != std::string::npos);
  CHECK(stored.error().message().find("item \"a\": 5 quantile values") != std::string::npos);
}

}  // namespace headrace::jobs
