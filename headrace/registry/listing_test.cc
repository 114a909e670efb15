// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "headrace/registry/query.h"
#include "headrace/registry/test_models.h"

namespace headrace::registry {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

/// Rows only: no files.
NewVersion row(const std::string& name, std::vector<Metric> metrics) {
  NewVersion version;
  version.name = name;
  version.kind = "test";
  version.metrics = std::move(metrics);
  return version;
}

std::vector<std::string> names(const Registry& registry, Query query) {
  std::vector<std::string> out;
  must(registry.for_each(query, [&](const Version& version) -> Result<void> {
    out.push_back(version.reference());
    return {};
  }));
  return out;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a listing is the same whatever the page size, in every order") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  for (int i = 0; i < 40; ++i) {
    const double value = i % 7 == 0 ? kNan : i % 5 == 0 ? kInf : i % 3;
    std::vector<Metric> metrics = {{"mase", value, {}}};
    if (i % 11 == 0) {
      metrics.clear();
    }
    must(registry.add(row("m/" + std::to_string(i % 13), metrics)));
  }
  for (const char* order : {"name", "created", "version", "mase"}) {
    for (const bool descending : {false, true}) {
      CAPTURE(order);
      CAPTURE(descending);
      Query query{.order_by = order, .descending = descending, .limit = 1000};
      const Names all = names(registry, query);
      CHECK(std::set<std::string>(all.begin(), all.end()).size() == 40);
      for (const int64_t limit : {1, 2, 7, 39, 40}) {
        query.limit = limit;
        CHECK(names(registry, query) == all);
      }
    }
  }
}

TEST_CASE("order by a metric puts NaN behind the numbers and models without it last") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  must(registry.add(row("none", {})));
  must(registry.add(row("nan", {{"x", kNan, {}}})));
  must(registry.add(row("inf", {{"x", kInf, {}}})));
  must(registry.add(row("low", {{"x", -kInf, {}}})));
  must(registry.add(row("zero", {{"x", -0.0, {}}})));
  must(registry.add(row("tiny", {{"x", std::numeric_limits<double>::denorm_min(), {}}})));
  CHECK(names(registry, {.order_by = "x"}) ==
        Names{"low:1", "zero:1", "tiny:1", "inf:1", "nan:1", "none:1"});
  CHECK(names(registry, {.order_by = "x", .descending = true}) ==
        Names{"inf:1", "tiny:1", "zero:1", "low:1", "nan:1", "none:1"});
}

TEST_CASE("conditions choose what they say") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  NewVersion a = row("a", {{"mase", 0.5, {}}, {"naive_mase", 1.0, {}}});
  a.params = {{"cells", "40"}};
  a.tags = {{"team", "it's"}};
  a.lineage.item = "H1";
  must(registry.add(a));
  NewVersion b = row("b", {{"mase", 1.5, {}}, {"naive_mase", 1.0, {}}, {"odd name", 1.0, {}}});
  b.params = {{"cells", "9"}};
  must(registry.add(b));
  must(registry.add(row("c", {{"mase", kNan, {}}})));
  const auto where = [&](const char* text) {
    Query query;
    query.where = text;
    return names(registry, query);
  };
  CHECK(where("mase < 1") == Names{"a:1"});
  CHECK(where("mase < naive_mase") == Names{"a:1"});
  CHECK(where("mase >= naive_mase") == Names{"b:1"});
  CHECK(where("not mase < 1") == Names{"b:1", "c:1"});
  CHECK(where("mase is nan") == Names{"c:1"});
  CHECK(where("mase < 1 or mase is nan") == Names{"a:1", "c:1"});
  CHECK(where("(mase < 1 or mase > 1) and param.cells > 10") == Names{"a:1"});
  CHECK(where("param.cells = '9'") == Names{"b:1"});
  CHECK(where("tag.team = 'it''s'") == Names{"a:1"});
  CHECK(where("\"odd name\" = 1") == Names{"b:1"});
  CHECK(where("item = 'H1' and version = 1") == Names{"a:1"});
  CHECK(where("mase > -inf or naive_mase < 1e300") == Names{"a:1", "b:1"});
  CHECK(where("mase < 1 AND NOT (naive_mase <> 1)") == Names{"a:1"});
  CHECK(where("absent = 1") == Names{});
}

TEST_CASE("a condition with an error says the column and runs nothing") {
  for (const char* text : {"mase", "mase <", "< 1", "mase < 1 and", "mase < 1)", "(mase < 1",
                           "mase < 'x", "mase < 1x", "mase is null", "1 is nan", "mase << 1",
                           "mase < 1; DROP TABLE model", "mase < 1e999", "a = 1 b = 2"}) {
    CAPTURE(text);
    const auto result = compile_where(text);
    REQUIRE(!result.ok());
    CHECK(result.error().code() == Errc::invalid_argument);
    CHECK(result.error().message().find("column") != std::string::npos);
  }
  std::string deep(60, '(');
  CHECK(!compile_where(deep + "a < 1" + std::string(60, ')')).ok());
}

TEST_CASE("patterns, aliases, runs, tags, times and latest restrict a listing") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  for (const char* name : {"m4", "m4/a", "m4/b", "m4/b/c", "m4-x", "m40"}) {
    NewVersion version = row(name, {});
    version.lineage.run = name == std::string("m4/a") ? "r1" : "r2";
    version.tags = {{"letter", std::string(1, name[std::string(name).size() - 1])}};
    must(registry.add(version));
    must(registry.add(row(name, {})));
  }
  must(registry.set_alias(must(parse_reference("m4/b:1")), "champion"));
  CHECK(names(registry, {.pattern = "m4", .latest_only = true}) ==
        Names{"m4:2", "m4/a:2", "m4/b:2", "m4/b/c:2"});
  CHECK(names(registry, {.pattern = "m4/*", .latest_only = true}) == Names{"m4/a:2", "m4/b:2"});
  CHECK(names(registry, {.pattern = "m4/**", .latest_only = true, .limit = 1}) ==
        Names{"m4/a:2", "m4/b:2", "m4/b/c:2"});
  CHECK(names(registry, {.run = "r1"}) == Names{"m4/a:1"});
  CHECK(names(registry, {.alias = "champion"}) == Names{"m4/b:1"});
  CHECK(names(registry, {.tags = {{"letter", "x"}}}) == Names{"m4-x:1"});
  CHECK(names(registry, {.created_to = base::Micros(1)}).empty());
  CHECK(must(registry.count({.pattern = "m4/**"})) == 6);
  CHECK(code_of(registry.list({.limit = 0})) == Errc::invalid_argument);
  CHECK(code_of(registry.list({.cursor = "x"})) == Errc::invalid_argument);
}

}  // namespace headrace::registry
