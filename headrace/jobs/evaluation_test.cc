// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/evaluation.h"

#include <doctest/doctest.h>

#include "headrace/base/test_folder.h"
#include "headrace/jobs/example_forecast_test.h"
#include "headrace/jobs/forecast_table.h"
#include "headrace/lake/test_tables.h"

namespace headrace::jobs {

namespace {

using base::TestFolder;

void store(const base::Path& run, const std::vector<ItemForecast>& items) {
  auto writer = ForecastWriter::open(run);
  REQUIRE(writer.ok());
  for (const ItemForecast& item : items) {
    REQUIRE(writer->append(item).ok());
  }
}

TableSpec csv(const TestFolder& folder, const std::string& name, const std::string& rows) {
  lake::put_file(folder / name, "item_id,timestamp,target\n" + rows);
  TableSpec spec;
  spec.url = (folder / name).string();
  spec.frequency = "D";
  return spec;
}

constexpr const char* kHistory = "a,2026-01-01,1\na,2026-01-02,3\na,2026-01-03,5\na,2026-01-04,7\n";

}  // namespace

// By hand. Daily values have season 1: the history 1 3 5 7 has a seasonal error of 2. Forecast are
// 7 7 with the band 5 ... 9, what came are 8 10, so that the errors are 1 and 3.
//   MASE      mean(1, 3) / 2 = 1
//   sMAPE     mean(200 * 1 / 15, 200 * 3 / 17) = 24.3137
//   ND        (1 + 3) / (8 + 10) = 0.2222, and so is wQL at 0.5
//   wQL(0.1)  2 * 0.1 * ((8 - 5) + (10 - 5)) / 18 = 0.08889
//   wQL(0.9)  2 * ((1 - 0.9) * (9 - 8) + 0.9 * (10 - 9)) / 18 = 0.11111
//   coverage  8 lies in the band, 10 does not: 0.5
// Seasonal naive repeats 7, which has the same absolute errors.
TEST_CASE("a run is judged against what came, as reckoned by hand") {
  const TestFolder run;
  store(run.path(), {example_forecast("a")});
  const TableSpec history = csv(run, "history.csv", kHistory);
  const TableSpec actuals = csv(run, "actuals.csv", "a,2026-01-05,8\na,2026-01-06,10\n");

  const auto summary = evaluate_run(run.path(), history, actuals);

  REQUIRE_MESSAGE(summary.ok(), (summary.ok() ? "" : summary.error().message()));
  CHECK(summary->get_integer("items") == 1);
  CHECK(summary->get_string("judged_on") == "actuals");
  CHECK(summary->at("winners").get_integer("local") == 1);
  const Json& model = summary->at("model");
  CHECK(model.get_number("mase") == doctest::Approx(1.0));
  CHECK(model.get_number("median_mase") == doctest::Approx(1.0));
  CHECK(model.get_number("smape") == doctest::Approx(100.0 * (1.0 / 15 + 3.0 / 17)));
  CHECK(model.get_number("nd") == doctest::Approx(4.0 / 18));
  CHECK(model.get_number("coverage_80") == doctest::Approx(0.5));
  CHECK(summary->at("seasonal_naive").get_number("mase") == doctest::Approx(1.0));

  const auto document = read_evaluation(run.path());
  REQUIRE(document.ok());
  const Json& item = document->at("items").at("a");
  CHECK(item.get_string("winner") == "local");
  CHECK(item.get_string("model") == "m/a:1");
  CHECK(item.at("metrics").get_number("mase") == doctest::Approx(1.0));
  CHECK(document->at("actuals").get_string("url") == actuals.url);
  const auto written = read_forecast_table(run / "forecasts.parquet");
  REQUIRE(written.ok());
  CHECK(written->at(0).quantiles == example_forecast("a").forecast.quantiles);
  CHECK(std::filesystem::exists(run / "forecasts.csv"));
}

TEST_CASE("a number that no item has is a dash, and constant items are told apart") {
  const TestFolder run;
  store(run.path(), {example_forecast("a"), example_forecast("z")});
  const TableSpec history =
      csv(run, "history.csv", "a,2026-01-01,4\na,2026-01-02,4\nz,2026-01-01,4\nz,2026-01-02,4\n");
  const TableSpec actuals = csv(run, "actuals.csv", "a,2026-01-05,0\nz,2026-01-05,0\n");

  const auto summary = evaluate_run(run.path(), history, actuals);

  REQUIRE_MESSAGE(summary.ok(), (summary.ok() ? "" : summary.error().message()));
  const std::string text = summary->get_string("text");
  CAPTURE(text);
  CHECK(text.find("nan") == std::string::npos);
  CHECK(text.find("\nheadrace                -        -   200.00") != std::string::npos);
  CHECK(text.find("\n2 items are constant before the forecast and have no MASE: a, z\n") !=
        std::string::npos);
}

TEST_CASE("the quantile losses are those reckoned by hand") {
  const TestFolder folder;
  const SeriesTable history = load_series(csv(folder, "history.csv", kHistory)).value();
  const SeriesTable actuals =
      load_series(csv(folder, "actuals.csv", "a,2026-01-05,8\na,2026-01-06,10\n")).value();
  const std::vector<forecast::Forecast> forecasts = {example_forecast("a").forecast};

  const auto comparison = judge(forecasts, history.set, actuals.set);

  REQUIRE(comparison.ok());
  const forecast::Metrics total = comparison->model.total();
  CHECK(total.wql.at(0.1) == doctest::Approx(2 * 0.1 * 8 / 18));
  CHECK(total.wql.at(0.5) == doctest::Approx(4.0 / 18));
  CHECK(total.wql.at(0.9) == doctest::Approx(2 * (0.1 + 0.9) / 18));
}

TEST_CASE("an item that cannot be judged says what is wrong with its rows") {
  const TestFolder folder;
  const std::string twice = "b,2026-01-01,1\nb,2026-01-01,2\n";
  const SeriesTable history = load_series(csv(folder, "history.csv", kHistory + twice)).value();
  const SeriesTable actuals = load_series(csv(folder, "actuals.csv",
                                              "a,2026-01-05,8\na,2026-01-06,10\n"
                                              "b,2026-01-05,8\nb,2026-01-06,10\n"))
                                  .value();
  const std::vector<forecast::Forecast> forecasts = {example_forecast("a").forecast,
                                                     example_forecast("b").forecast,
                                                     example_forecast("c").forecast};

  const auto comparison = judge(forecasts, history.set, actuals.set);

  REQUIRE(comparison.ok());
  CHECK(comparison->model.items().size() == 1);
  REQUIRE(comparison->errors.size() == 2);
  CHECK(comparison->errors[0].item == "b");
  CHECK(
      comparison->errors[0].error.message().starts_with("history: forecast: item \"b\": two rows"));
  CHECK(comparison->errors[1].item == "c");
}

TEST_CASE("without actual values the backtests are summed up") {
  const TestFolder run;
  ItemForecast other = example_forecast("b");
  other.winner = "seasonal_naive";
  other.scores = {{"local", {{"mase", 4.0}}}, {"seasonal_naive", {{"mase", 3.0}}}};
  store(run.path(), {example_forecast("a"), other});

  const auto summary = evaluate_run(run.path(), TableSpec(), TableSpec());

  REQUIRE(summary.ok());
  CHECK(summary->get_string("judged_on") == "backtest");
  CHECK(summary->at("local").get_number("mase") == doctest::Approx((1.0 + 4.0) / 2));
  CHECK(summary->at("seasonal_naive").get_number("mase") == doctest::Approx((2.0 + 3.0) / 2));
  CHECK(summary->at("winners").get_integer("seasonal_naive") == 1);
}

TEST_CASE("candidates are averaged over the items that all were scored on, and counted") {
  const TestFolder run;
  const auto item = [](const std::string& id, const std::string& winner,
                       const std::map<std::string, double>& mase) {
    ItemForecast out = example_forecast(id);
    out.winner = winner;
    out.season = 7;
    out.scores.clear();
    for (const auto& [name, value] : mase) {
      out.scores[name] = {{"mase", value}, {"mean_wql", value / 10}};
    }
    return out;
  };
  // "d" is too short for a model of its own: averages with it would flatter the global one.
  store(run.path(),
        {item("a", "local",
              {{"global", 3.0}, {"local", 1.0}, {"seasonal_naive", 4.0}, {"naive2", 6.0}}),
         item("b", "global+naive",
              {{"global", 2.0},
               {"local", 3.0},
               {"seasonal_naive", 3.0},
               {"global+naive", 1.5},
               {"naive2", 4.0}}),
         item("c", "seasonal_naive",
              {{"global", 4.0}, {"local", 5.0}, {"seasonal_naive", 2.0}, {"naive2", 5.0}}),
         item("d", "global", {{"global", 0.1}, {"seasonal_naive", 0.2}})});

  const auto summary = evaluate_run(run.path(), TableSpec(), TableSpec());

  REQUIRE(summary.ok());
  CHECK(summary->get_integer("common_items") == 3);
  CHECK(summary->at("global").get_number("mase") == doctest::Approx((3.0 + 2.0 + 4.0) / 3));
  CHECK(summary->at("global").get_integer("items") == 4);
  CHECK(summary->at("local").get_number("mase") == doctest::Approx((1.0 + 3.0 + 5.0) / 3));
  CHECK(summary->at("local").get_integer("items") == 3);
  CHECK(summary->at("as_chosen").get_number("mase") == doctest::Approx((1.0 + 1.5 + 2.0) / 3));
  CHECK(summary->at("global+naive").dump() == R"({"items":1})");  // no mean beside those of others
  CHECK(summary->get_string("text") ==
        "frequency D, season 7, horizon 2\n"
        "backtest scores, means over the 3 of 4 items that each method with a mean was scored on\n"
        "method                     chosen  scored     MASE  mean_wQL\n"
        "global                          1       4    3.000    0.3000\n"
        "global+naive                    1       1        -         -\n"
        "local                           1       3    3.000    0.3000\n"
        "Naive2 (intervals)              -       3    5.000    0.5000\n"
        "seasonal naive (intervals)      1       4    3.000    0.3000\n"
        "as chosen                       4       4    1.500    0.1500\n"
        "chosen: 1 global, 1 global+naive, 1 local, 1 seasonal naive (intervals)\n"
        "note: 4 items (a, b, c, d): a note\n");
  CHECK(summary->at("notes").items().at(0).string() == "4 items (a, b, c, d): a note");
}

TEST_CASE("a run without forecasts says where their absence is explained") {
  const TestFolder run;
  const auto summary = evaluate_run(run.path(), TableSpec(), TableSpec());
  REQUIRE(!summary.ok());
  CHECK(summary.error().code() == Errc::not_found);
  CHECK(summary.error().message().find("headrace flow status " + run.path().string() +
                                       " --items") != std::string::npos);
  CHECK(read_evaluation(run.path()).error().code() == Errc::not_found);
}

}  // namespace headrace::jobs
