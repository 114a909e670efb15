// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/table_spec.h"

#include <doctest/doctest.h>

namespace headrace::jobs {

TEST_CASE("a table's description comes back from its JSON") {
  TableSpec spec;
  spec.url = "lake";
  for (const TableText& text : table_texts()) {
    spec.*text.field = text.name;
  }
  spec.allow_missing_columns = true;
  const TableSpec back = table_spec_of(to_json(spec));
  CHECK(back.url == "lake");
  CHECK(back.zone == "zone");
  CHECK(back.aggregate == "aggregate");
  CHECK(back.allow_missing_columns);
  CHECK(to_json(back) == to_json(spec));
}

TEST_CASE("what a description lacks keeps its default") {
  const TableSpec spec = table_spec_of(
      Json::object({{"url", "t"}, {"categories", Json(Json::Array{Json("a"), Json("b")})}}));
  CHECK(spec.aggregate == "error");
  CHECK(spec.frequency.empty());
  CHECK_FALSE(spec.allow_missing_columns);
  CHECK(spec.categories == std::vector<std::string>{"a", "b"});
}

}  // namespace headrace::jobs
