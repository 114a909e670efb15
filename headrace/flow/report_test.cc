// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/report.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

namespace headrace::flow {
namespace {

using std::chrono::seconds;

ReportPlot plot_of(int history, double level) {
  ReportPlot plot;
  plot.start = "2015-07-01T00:00:00";
  plot.step_seconds = 3600;
  for (int t = 0; t < history; ++t) {
    plot.history.push_back(level * (1.0 + 0.1234567 * std::sin(t)));
  }
  for (int k = 0; k < 48; ++k) {
    plot.actual.push_back(level * 1.1111111);
    plot.median.push_back(level * 1.0123456);
  }
  for (const int percent : {50, 80, 95}) {
    ReportBand band;
    band.percent = percent;
    band.low.assign(48, level * (1.0 - 0.00345678 * percent));
    band.high.assign(48, level * (1.0 + 0.00345678 * percent));
    plot.bands.push_back(band);
  }
  return plot;
}

ReportItem item_of(const std::string& key) {
  ReportItem item;
  item.key = key;
  item.activity = "train";
  item.status = Status::succeeded;
  item.seconds = 1.5;
  item.attempts = 1;
  item.metrics = Json::object({{"mase", 0.9}, {"mase_naive", 1.2}});
  item.labels = Json::object({{"winner", "local"}});
  item.plot = plot_of(336, 1000.0);
  return item;
}

ReportData one_item_report() {
  ReportData data;
  data.title = "m4_hourly";
  data.run_id = "r1";
  data.columns = {{"mase", "MASE", ""}};
  data.labels = {{"winner", "Chosen", ""}};
  data.scores = {{"MASE", "", {{"mase", "headrace", ""}, {"mase_naive", "seasonal naive", ""}}}};
  data.items.push_back(item_of("H1"));
  return data;
}

/// The data inside the page, as the page's script will read it.
Json data_in(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const size_t from = page.find(open) + open.size();
  return parse_json(page.substr(from, page.find("</script>", from) - from)).value();
}

TEST_CASE("a report is one file that names nothing outside itself") {
  const std::string page = render_report(one_item_report()).value();

  CHECK(page.starts_with("<!doctype html>"));
  CHECK(page.find("<title>m4_hourly · r1</title>") != std::string::npos);
  CHECK(page.find("{{") == std::string::npos);
  CHECK(page.find("src=") == std::string::npos);
  CHECK(page.find("@import") == std::string::npos);
  CHECK(page.find("url(http") == std::string::npos);
  // The one address is the name of SVG, which is never fetched.
  const size_t address = page.find("://");
  CHECK(page.substr(address - 4, 30) == "http://www.w3.org/2000/svg\";\n\n");
  CHECK(page.find("://", address + 3) == std::string::npos);
}

TEST_CASE("texts of a run cannot end the element they stand in") {
  ReportData data = one_item_report();
  data.title = "{{data}} & <b>";
  data.items[0].key = "</script><script>alert(1)</script>";
  data.items[0].error = ActivityError{"internal", "<!-- \"\n{{script}}", "SystemError", "train"};

  const std::string page = render_report(data).value();

  CHECK(page.find("<title>{{data}} &amp; &lt;b&gt; · r1</title>") != std::string::npos);
  CHECK(page.find("<script>alert") == std::string::npos);
  CHECK(page.find("<!--") == std::string::npos);
  const Json read = data_in(page);
  const Json& item = read.at("items").items()[0];
  CHECK(item.at("key").string() == data.items[0].key);
  CHECK(item.at("error").at("message").string() == data.items[0].error->message);
}

TEST_CASE("numbers keep four significant digits and missing ones become null") {
  ReportData data = one_item_report();
  ReportPlot& plot = *data.items[0].plot;
  plot.history = {123.4567, 70301.6, 0.000123456, std::nan(""), -2.0, 1234567.0, INFINITY};

  const Json read = data_in(render_report(data).value());

  const Json& item = read.at("items").items()[0];
  const Json& history = item.at("plot").at("history");
  CHECK(history == parse_json("[123.5, 70302, 0.0001235, null, -2, 1235000, null]").value());
  CHECK(read.at("metricNames") == parse_json(R"(["mase", "mase_naive"])").value());
  CHECK(item.at("metrics") == parse_json("[0.9, 1.2]").value());
  CHECK(item.at("plot").at("bands").items()[0].at("percent").integer() == 95);  // widest first
}

TEST_CASE("414 items of 336 and 48 steps with three bands stay under 6 MB") {
  ReportData data = one_item_report();
  for (int i = 2; i <= 414; ++i) {
    data.items.push_back(item_of("H" + std::to_string(i)));
    data.items.back().plot = plot_of(336, 10.0 * i * i);
  }

  const std::string page = render_report(data).value();

  CHECK(page.size() < 6'000'000);
  CHECK(data_in(page).at("items").items().size() == 414);
}

TEST_CASE("a plot whose vectors disagree is refused with the item's key") {
  ReportData data = one_item_report();
  data.items[0].plot->bands[1].high.pop_back();
  CHECK(render_report(data).error().message() ==
        "flow: report: item \"H1\": the 80 % band has 48 low and 47 high values for a horizon of "
        "48");

  data = one_item_report();
  data.items[0].plot->actual.pop_back();
  CHECK(render_report(data).error().code() == Errc::invalid_argument);
}

TEST_CASE("a run's state gives activities with their times and items with their errors") {
  RunState run;
  run.run_id = "r7";
  run.pipeline = "nightly";
  run.status = Status::in_progress;
  run.started = seconds(1000);
  run.driven_by = "this test";
  run.parameters = Json::object({{"n", 3}});
  ActivityState each;
  each.name = each.path = "train";
  each.type = "ForEach";
  each.status = Status::in_progress;
  each.started = seconds(1002);
  ItemState done;
  done.key = "a";
  done.status = Status::succeeded;
  done.started = seconds(1002);
  done.ended = seconds(1005);
  done.cpu_seconds = 2.5;
  ItemState failed = done;
  failed.key = "b";
  failed.status = Status::failed;
  failed.error = ActivityError{"invalid_argument", "no values", "UserError", "train"};
  each.items = {done, failed, ItemState{}};
  run.activities = {each};

  const ReportData data = report_data(run, seconds(1010));
  const Json read = data_in(render_report(data).value());

  CHECK(read.at("status").string() == "InProgress");
  CHECK(read.at("ended").string().empty());
  CHECK(read.at("seconds").number() == 10.0);
  CHECK(read.at("idle").number() == 0.0);
  CHECK(read.at("started").string() == "1970-01-01T00:16:40Z");
  CHECK(read.at("parameters") == parse_json(R"([["n", "3"]])").value());
  const Json& activity = read.at("activities").items()[0];
  CHECK(activity.at("started").number() == 2.0);
  CHECK(activity.at("seconds").number() == 8.0);
  CHECK(activity.at("items").number() == 3.0);
  REQUIRE(data.items.size() == 3);
  CHECK(data.items[0].seconds == 3.0);
  CHECK(data.items[0].cpu_seconds == 2.5);
  CHECK(data.items[1].error->message == "no values");
  CHECK(data.items[2].status == Status::queued);
}

}  // namespace
TEST_CASE("the time in which nobody drove a run is not counted as worked") {
  RunState run;
  run.status = Status::in_progress;
  run.started = seconds(1000);
  run.last_event = seconds(1100);
  run.pauses = {{seconds(1010), seconds(1070)}, {seconds(1080), seconds(1085)}};
  ActivityState one;
  one.started = seconds(1005);
  one.status = Status::in_progress;
  run.activities = {one};

  CHECK(run.worked_seconds(seconds(1000), seconds(1100)) == 35.0);  // 100 - 60 - 5
  CHECK(run.worked_seconds(seconds(1020), seconds(1075)) == 5.0);
  const ReportData data = report_data(run, seconds(9000));  // it has stopped again at 1100
  CHECK(data.seconds == 35.0);
  CHECK(data.idle_seconds == 65.0);
  CHECK(data.activities[0].started_seconds == 5.0);
  CHECK(data.activities[0].seconds == 30.0);
}

}  // namespace headrace::flow
