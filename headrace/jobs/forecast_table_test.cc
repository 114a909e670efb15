// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/forecast_table.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "headrace/lake/arrow_c.h"
#include "headrace/lake/test_tables.h"

namespace headrace::jobs {

namespace {

using forecast::parse_frequency;

constexpr int64_t kDay = 86'400'000'000;
constexpr int64_t kFirst =
    16'617;  // 2015-07-01 in days since 1970: date -ud 2015-07-01 +%s / 86400

Result<std::vector<forecast::Forecast>> forecasts_in(lake::Batch batch,
                                                     const char* frequency = nullptr) {
  const auto reader = lake::reader_of(std::move(batch));
  return frequency == nullptr ? forecasts_of(*reader, "rows")
                              : forecasts_of(*reader, "rows", parse_frequency(frequency).value());
}

/// Two daily steps of one item.
lake::Batch two_days() {
  return {{lake::texts("item_id", {"A", "A"}),
           lake::stamps("timestamp", {kFirst * kDay, (kFirst + 1) * kDay}),
           lake::reals("mean", {10.0, 11.0}), lake::reals("q0.1", {9.0, 9.5}),
           lake::reals("q0.9", {11.0, 12.5}),
           lake::texts("model", {"seasonal_naive", "seasonal_naive"})}};
}

lake::Batch with(lake::Batch batch, lake::Column column) {
  for (lake::Column& own : batch.columns) {
    if (own.field.name == column.field.name) {
      own = std::move(column);
      return batch;
    }
  }
  batch.columns.push_back(std::move(column));
  return batch;
}

forecast::Forecast constant_forecast() {
  forecast::Forecast out;
  out.id = std::string("A");
  out.frequency = parse_frequency("D").value();
  out.start_us = kFirst * kDay;
  out.horizon = 3;
  out.levels = {0.1, 0.5, 0.9};
  out.quantiles.assign(9, 10.0);
  out.mean.assign(3, 10.0);
  return out;
}

}  // namespace

TEST_CASE("a forecast table is read whatever type its columns came in") {
  const struct {
    const char* what;
    lake::Column column;
  } cases[] = {
      {"as written", lake::reals("mean", {10.0, 11.0})},
      {"means of whole numbers", lake::integers("mean", {10, 11})},
      {"quantiles of whole numbers", lake::integers("q0.1", {9, 9})},
      {"dates", lake::integers("timestamp", {kFirst, kFirst + 1}, lake::Type::date)},
      {"item ids that are numbers", lake::integers("item_id", {7, 7})},
      {"another column", lake::texts("remark", {"x", "y"})},
  };
  for (const auto& one : cases) {
    CAPTURE(one.what);
    const auto read = forecasts_in(with(two_days(), one.column));
    REQUIRE(read.ok());
    REQUIRE(read->size() == 1);
    const forecast::Forecast& first = read->front();
    CHECK(first.frequency.name() == "D");
    CHECK(first.start_us == kFirst * kDay);
    CHECK(first.mean == std::vector<double>{10.0, 11.0});
    CHECK(first.levels == std::vector<double>{0.1, 0.9});
    CHECK(first.quantiles[0] == 9.0);
    CHECK(first.quantiles[3] == 12.5);
    CHECK(first.method == forecast::Method::seasonal_naive);
  }
}

TEST_CASE("a forecast table that cannot be read names the column, the row or the step") {
  const struct {
    lake::Column column;
    const char* part;
  } cases[] = {
      {lake::texts("timestamp", {"soon", "later"}), "\"timestamp\""},
      {lake::texts("mean", {"10", "11"}), "\"mean\""},
      {lake::texts("q0.9", {"10", "11"}), "\"q0.9\""},
      {lake::reals("item_id", {0.5, 0.5}), "\"item_id\""},
      {lake::nulled(lake::reals("mean", {10.0, 11.0}), {1}), "row 1, item \"A\""},
      {lake::nulled(lake::stamps("timestamp", {kFirst * kDay, 0}), {1}), "row 1, item \"A\""},
      {lake::texts("model", {"oracle", "oracle"}), "oracle"},
      {lake::stamps("timestamp", {kFirst * kDay, (kFirst + 2) * kDay}), "2015-07-02"},
      {lake::stamps("timestamp", {kFirst * kDay, kFirst * kDay}), "2015-07-02"},
  };
  for (const auto& one : cases) {
    CAPTURE(one.part);
    const auto read = forecasts_in(with(two_days(), one.column), "D");
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().code() == Errc::invalid_argument);
    CHECK(lake::contains(read.error().message(), one.part));
  }
  lake::Batch no_levels = two_days();
  no_levels.columns.resize(3);
  CHECK(forecasts_in(no_levels).error().code() == Errc::not_found);
}

TEST_CASE("a horizon of one is read where the frequency is told") {
  lake::Batch one = lake::take_rows(two_days(), {0});
  CHECK(lake::contains(forecasts_in(one).error().message(), "frequency"));
  const auto read = forecasts_in(one, "W");
  REQUIRE(read.ok());
  CHECK(read->front().horizon == 1);
  CHECK(read->front().frequency.name() == "W");
}

TEST_CASE("ids and stamps are found, whatever their columns are called in the table of items") {
  const base::TestFolder folder;
  const forecast::Forecast forecast = constant_forecast();
  for (const char* name : {"f.csv", "f.parquet"}) {
    const base::Path path = folder.path() / name;
    for (const auto& [id, time] : {std::pair("model", "day"), std::pair("step", "mean"),
                                   std::pair("q0.5", "samples"), std::pair("shop", "day")}) {
      CAPTURE(id);
      const forecast::ColumnNames names = {id, time, "sales"};
      REQUIRE(write_forecasts(path, {&forecast, 1}, names).ok());
      const auto read = read_forecast_table(path, {}, names);
      REQUIRE_MESSAGE(read.ok(), (read.ok() ? "" : read.error().message()));
      CHECK(read->front().id == "A");
      CHECK(read->front().start_us == forecast.start_us);
      CHECK(read->front().samples == forecast.samples);
    }
  }
  // Somebody else's file, without "step".
  const auto reader = lake::reader_of(two_days());
  CHECK(forecasts_of(*reader, "rows", {}, {"model", "mean", ""})->front().id == "A");
}

TEST_CASE("what was written is read again, a constant in CSV included") {
  const base::TestFolder folder;
  forecast::Forecast sampled = constant_forecast();
  sampled.samples.assign(6, 10.0F);
  for (const forecast::Forecast& forecast : {constant_forecast(), sampled}) {
    for (const char* name : {"f.csv", "f.parquet"}) {
      CAPTURE(name);
      REQUIRE(write_forecasts(folder.path() / name, {&forecast, 1}).ok());
      const auto read = read_forecast_table(folder.path() / name);
      REQUIRE(read.ok());
      CHECK(read->front().mean == forecast.mean);
      CHECK(read->front().quantiles == forecast.quantiles);
      CHECK(read->front().start_us == forecast.start_us);
    }
  }
}

}  // namespace headrace::jobs
