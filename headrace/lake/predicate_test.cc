// SPDX-License-Identifier: Apache-2.0
#include "headrace/lake/predicate.h"

#include <doctest/doctest.h>

#include <cmath>

#include "headrace/base/random.h"
#include "headrace/lake/test_tables.h"

namespace headrace::lake {

namespace {

Schema schema() {
  return {{.name = "i", .type = Type::int64},  {.name = "r", .type = Type::float64},
          {.name = "s", .type = Type::string}, {.name = "t", .type = Type::timestamp_us},
          {.name = "d", .type = Type::date},   {.name = "b", .type = Type::boolean}};
}

Result<Value> bound(const std::string& text) {
  HR_TRY(const auto condition, parse_condition(text));
  HR_TRY(const auto predicate, bind_predicate({condition}, schema()));
  return predicate[0].values[0];
}

}  // namespace

TEST_CASE("conditions on the command line are column, operator, value") {
  const auto parsed = [](const char* text) { return *parse_condition(text); };
  CHECK(parsed("a==1").op == Op::equal);
  CHECK(parsed("a = 1").column == "a");
  CHECK(parsed("a<1").op == Op::less);
  CHECK(parsed("a <= 1").op == Op::less_equal);
  CHECK(parsed("a>1").op == Op::greater);
  CHECK(parsed("a>=x y").values[0] == Value(std::string("x y")));
  CHECK(parsed("a in x, y ,z").op == Op::in);
  CHECK(parsed("a in x, y ,z").values.size() == 3);
  CHECK(parsed("a == x in y").values[0] == Value(std::string("x in y")));
  for (const char* bad : {"", "a", "==1", "a in ", " in x"}) {
    CAPTURE(bad);
    CHECK(parse_condition(bad).error().code() == Errc::invalid_argument);
  }
}

TEST_CASE("values get the type of their column or are refused") {
  CHECK(*bound("i==5") == Value(int64_t{5}));
  CHECK(*bound("i==1e3") == Value(int64_t{1000}));
  CHECK(*bound("i<2.5") == Value(2.5));
  CHECK(*bound("r==5") == Value(5.0));
  CHECK(*bound("s==5") == Value(std::string("5")));
  CHECK(*bound("t>=2015-07-01") == Value(int64_t{1435708800000000}));
  CHECK(*bound("t>=2015-07-01T02:00:00+02:00") == Value(int64_t{1435708800000000}));
  CHECK(*bound("d==2015-07-01") == Value(int64_t{16617}));
  CHECK(*bound("b==true") == Value(true));
  for (const char* bad : {"i==x", "r==x", "t==x", "d==2015-07-01T10:00:00", "b==1"}) {
    CAPTURE(bad);
    CHECK(bound(bad).error().code() == Errc::invalid_argument);
  }
  CHECK(bound("none==1").error().code() == Errc::not_found);
  CHECK(contains(bound("none==1").error().message(), "found: \"i\", \"r\", \"s\""));
}

TEST_CASE("null and NaN fulfil nothing; integers and reals compare exactly") {
  const Batch batch{{nulled(integers("i", {1, 2, 3}), {1}), reals("r", {NAN, 2.0, -0.0}),
                     texts("s", {"a", std::nullopt, "b"})}};
  const auto rows = [&batch](const Condition& condition) {
    return matching_rows({condition}, batch);
  };
  using Rows = std::vector<int64_t>;
  CHECK(rows({"i", Op::greater_equal, {int64_t{1}}}) == Rows{0, 2});
  CHECK(rows({"i", Op::less, {2.5}}) == Rows{0});
  CHECK(rows({"r", Op::less, {1e300}}) == Rows{1, 2});
  CHECK(rows({"r", Op::equal, {0.0}}) == Rows{2});
  CHECK(rows({"r", Op::equal, {static_cast<double>(NAN)}}).empty());
  CHECK(rows({"s", Op::greater_equal, {"a"}}) == Rows{0, 2});
  CHECK(rows({"s", Op::in, {"b", "c"}}) == Rows{2});
  CHECK(rows({"s", Op::in, {}}).empty());
  // 2^53 + 1 is no double: an exact comparison tells it from 2^53.
  CHECK(compare_values(int64_t{9007199254740993}, 9007199254740992.0) == 1);
  CHECK_FALSE(compare_values(std::monostate(), int64_t{1}).has_value());
}

TEST_CASE("a row group is passed over only if no row of it can fulfil the condition") {
  // Property: for random values and conditions, if some value matches, the range may match.
  base::Rng rng(20261129);
  int excluded = 0;
  for (int turn = 0; turn < 20000; ++turn) {
    std::vector<int64_t> values;
    for (uint64_t i = 0; i < 1 + rng.below(4); ++i) {
      values.push_back(static_cast<int64_t>(rng.below(10)));
    }
    const Range range{.min = *std::min_element(values.begin(), values.end()),
                      .max = *std::max_element(values.begin(), values.end())};
    Condition condition{.column = "i", .op = static_cast<Op>(rng.below(6))};
    for (uint64_t i = 0; i < (condition.op == Op::in ? rng.below(3) : 1); ++i) {
      condition.values.emplace_back(static_cast<int64_t>(rng.below(12)) - 1);
    }
    const bool some = !matching_rows({condition}, {{integers("i", values)}}).empty();
    const bool may = may_match(condition, range);
    CHECK((!some || may));
    excluded += may ? 0 : 1;
    CHECK(may_match(condition, {}) == (condition.op != Op::in || !condition.values.empty()));
    CHECK_FALSE(may_match(condition, {.min = {}, .max = {}, .all_null = true}));
  }
  CHECK(excluded > 3000);
}

}  // namespace headrace::lake
