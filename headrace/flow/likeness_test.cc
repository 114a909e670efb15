// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "headrace/flow/likeness_internal.h"

namespace headrace::flow {

namespace {

ItemFailure failure(const std::string& message, const std::string& key, int64_t index,
                    const std::string& item) {
  return {"fit", "not_found", message, names_of_item(key, index, item)};
}

/// Of items that are their own keys.
bool same(const std::string& a, const std::string& key_a, const std::string& b,
          const std::string& key_b) {
  return alike(failure(a, key_a, 0, '"' + key_a + '"'), failure(b, key_b, 1, '"' + key_b + '"'));
}

}  // namespace

TEST_CASE("failures are alike when only what names the item differs") {
  CHECK(same("no column y", "H1", "no column y", "H2"));
  CHECK(same("no column y in lake/H1.csv", "H1", "no column y in lake/H22.csv", "H22"));
  CHECK(same("H1: no column y; H1 is left out", "H1", "H2: no column y; H2 is left out", "H2"));
  CHECK(same("in items/a%2Fb/fit.1.log: a/b", "a/b", "in items/c%2Fd/fit.1.log: c/d", "c/d"));
  CHECK(same("H1", "H1", "H2", "H2"));
  CHECK(same("", "H1", "", "H2"));
}

TEST_CASE("a key that is a number does not hide the other numbers of a message") {
  const auto numbered = [](const std::string& message, int64_t index) {
    return failure(message, std::to_string(index), index, std::to_string(index));
  };
  CHECK(alike(numbered("exit code 1", 1), numbered("exit code 1", 2)));
  CHECK(alike(numbered("item 1: exit code 1", 1), numbered("item 2: exit code 1", 2)));
  CHECK(!alike(numbered("exit code 1", 1), numbered("exit code 3", 2)));
  CHECK(!alike(numbered("exit code 17", 7), numbered("exit code 18", 8)));  // no whole word
}

TEST_CASE("what an item's members say is its own, each under its name") {
  const ItemFailure a = failure("lake/a.csv has no column y", "0", 0,
                                R"({"path": "lake/a.csv", "horizon": 48, "deep": {"x": 1}})");
  const ItemFailure b = failure("lake/other.csv has no column y", "1", 1,
                                R"({"path": "lake/other.csv", "horizon": 24})");
  const ItemFailure c = failure("lake/a.csv has no column y", "1", 1, R"({"table": "lake/a.csv"})");
  CHECK(alike(a, b));
  CHECK(alike(a, c));  // word for word
  CHECK(!alike(b, c));
}

TEST_CASE("other activities, codes and texts are other failures") {
  ItemFailure a = failure("no luck", "a", 0, "\"a\"");
  ItemFailure b = failure("no luck", "b", 1, "\"b\"");
  REQUIRE(alike(a, b));
  b.code = "corrupt";
  CHECK(!alike(a, b));
  b.code = a.code;
  b.activity = "load";
  CHECK(!alike(a, b));
  CHECK(!same("no luck", "a", "no luck today", "b"));
  CHECK(!same("no luck today", "a", "no luck", "b"));
  CHECK(!same("at a: x", "a", "at c: x", "b"));
  CHECK(!same("took 1.5 s", "a", "took 1.6 s", "b"));
}

}  // namespace headrace::flow
