// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/notes.h"

#include <doctest/doctest.h>

namespace headrace::forecast {

TEST_CASE("equal notes of many items are one sentence with their number and first names") {
  std::vector<Note> notes = {{"", "the frequency is h"}};
  for (const char* item : {"a", "b", "c", "d", "e", "f"}) {
    notes.push_back({item, "lags beyond 12 are left out"});
  }
  notes.push_back({"b", "lags beyond 12 are left out"});  // of another origin
  notes.push_back({"c", "only 3.2 % of 500 values are observed"});
  notes.push_back({"d", "only 12.5 % of 60 values are observed"});
  notes.push_back({"f", "took global"});
  notes.push_back({"", "the frequency is h"});

  CHECK(group_notes(notes) ==
        std::vector<std::string>{
            "the frequency is h", "6 items (a, b, c, d, e, ...): lags beyond 12 are left out",
            "2 items (c, d), of the first: only 3.2 % of 500 values are observed",
            "item \"f\": took global"});
  CHECK(group_notes({}).empty());
}

}  // namespace headrace::forecast
