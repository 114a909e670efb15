// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/run_report.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "headrace/base/clock.h"

namespace headrace::jobs {

namespace {

flow::ItemState trained(const std::string& key, const char* scope) {
  flow::ItemState out;
  out.key = key;
  out.outputs =
      Json::object({{"train", Json::object({{"training", Json::object({{"scope", scope}})}})}});
  return out;
}

void show(const flow::ActivityState& activity, flow::ReportData* data) {
  for (const flow::ItemState& item : activity.items) {
    flow::ReportItem shown;
    shown.key = item.key;
    shown.activity = activity.path;
    data->items.push_back(std::move(shown));
  }
}

}  // namespace

TEST_CASE("a model of all series is shown as one, an item of that name as itself") {
  flow::RunState run;
  run.activities.resize(2);
  run.activities[0].path = "global";
  run.activities[0].items = {trained("0", "global"), trained("1", "local"), {}};
  run.activities[1].path = "each";
  run.activities[1].items = {trained("0", "local"), trained("2", "local")};
  flow::ReportData data;
  for (const flow::ActivityState& activity : run.activities) {
    show(activity, &data);
  }

  name_global_models(run, &data);

  std::vector<std::string> keys;
  for (const flow::ReportItem& item : data.items) {
    keys.push_back(item.key);
  }
  CHECK(keys == std::vector<std::string>{"global model 0", "1", "", "0", "2"});
}

TEST_CASE("the report of a run of many items is made in time that grows with their number") {
  flow::RunState run;
  run.activities.resize(1);
  run.activities[0].path = "each";
  for (int i = 0; i < 100'000; ++i) {
    run.activities[0].items.push_back(trained("item " + std::to_string(i), "local"));
  }
  flow::ReportData data;
  show(run.activities[0], &data);
  const base::Micros begin = base::system_clock().monotonic();

  name_global_models(run, &data);

  // Every item with every other: 10^10 comparisons, the better part of a minute.
  CHECK(base::system_clock().monotonic() - begin < base::Micros(5'000'000));
}

}  // namespace headrace::jobs
