// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/score_table.h"

#include <doctest/doctest.h>

#include <set>
#include <string>

namespace headrace::jobs {

TEST_CASE("a table of scores has a column for each metric that has a name") {
  std::set<std::string> expected = {"step"};
  for (const auto& [name, value] : forecast::Metrics().named()) {  // 0 is a value: all are there
    expected.insert(name);
  }
  std::set<std::string> found;
  for (const lake::Column& column : step_scores(forecast::Scoreboard()).columns) {
    found.insert(column.field.name);
  }
  CHECK(found == expected);
  CHECK(found.contains("mase"));

  expected.erase("step");
  expected.insert({"item_id", "method"});
  found.clear();
  for (const lake::Column& column : item_scores(forecast::Comparison()).columns) {
    found.insert(column.field.name);
  }
  CHECK(found == expected);
}

}  // namespace headrace::jobs
