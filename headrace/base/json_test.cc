// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/json.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

using headrace::Errc;
using headrace::Json;
using headrace::JsonWarning;
using headrace::parse_json;

namespace {

std::string error_of(std::string_view text) {
  const auto result = parse_json(text, "f.json");
  return result.ok() ? "parsed" : result.error().message();
}

}  // namespace

TEST_CASE("values keep their kind, order and offset") {
  const auto json =
      parse_json(R"({"b": [1, 1.5, -0, "x\u00e9\ud83d\ude00"], "a": null, "c": true})");

  REQUIRE(json.ok());
  CHECK(json->members()[0].first == "b");
  const Json& b = json->at("b");
  CHECK(b.offset() == 6);
  CHECK(b.items()[0].is_integer());
  CHECK(b.items()[1].number() == 1.5);
  CHECK(b.items()[3].string() == "x\xC3\xA9\xF0\x9F\x98\x80");
  CHECK(json->dump() == "{\"b\":[1,1.5,0,\"x\xC3\xA9\xF0\x9F\x98\x80\"],\"a\":null,\"c\":true}");
  CHECK(json->dump(0, true).starts_with("{\"a\":null"));
}

TEST_CASE("a syntax error names file, line, column and what was expected") {
  CHECK(error_of("{\n  \"a\": 1,\n  \"b\" 2\n}") ==
        "f.json:3:7: unexpected '2'; expected ':' after the key \"b\"");
  CHECK(error_of("{\"a\": \"x\n}") == "f.json:1:7: the string is not closed on its line");
  CHECK(error_of("[1, 2") == "f.json:1:1: this [ is never closed");
  CHECK(error_of("[1,]") == "f.json:1:3: a comma before ']'");
  CHECK(error_of("{'a': 1}") == "f.json:1:2: unexpected '''; expected a key in double quotes");
  CHECK(error_of("{\"a\":1,\"a\":2}") == "f.json:1:8: the key \"a\" stands here twice");
  CHECK(error_of("01") == "f.json:1:1: a number must not begin with 0");
  CHECK(error_of("1.e3").find("digit after the decimal point") != std::string::npos);
  CHECK(error_of("[1] x").find("after the end") != std::string::npos);
  CHECK(error_of("\"\xC0\x80\"").find("not UTF-8") != std::string::npos);
  CHECK(error_of("\"\\ud800\"").find("surrogate") != std::string::npos);
  CHECK(error_of("tru").find("did you mean true") != std::string::npos);
  CHECK(error_of("") == "f.json:1:1: the text is empty; expected a value");
  CHECK(error_of("1e400").find("beyond the range") != std::string::npos);
}

TEST_CASE("depth is bounded") {
  const std::string deep(100000, '[');

  const auto result = parse_json(deep, "f.json");

  REQUIRE(!result.ok());
  CHECK(result.error().message().find("nested deeper than 256") != std::string::npos);
}

TEST_CASE(
    "the tolerant parser takes comments, trailing commas, a BOM and duplicate keys, each with a "
    "warning") {
  std::vector<JsonWarning> warnings;

  const auto json =
      parse_json("\xEF\xBB\xBF{ // first\n \"a\": [1, 2,], /* x */ \"b\": 1, \"b\": 2,}", "f.json",
                 {.tolerant = true}, &warnings);

  REQUIRE(json.ok());
  CHECK(json->at("a").items().size() == 2);
  CHECK(json->at("b").integer() == 2);
  CHECK(json->members().size() == 2);
  CHECK(warnings.size() == 6);
}

TEST_CASE("numbers read back the same") {
  for (const double value : {0.1, 1e300, 5e-324, -2.5, 1e21, 123456789.0, 1.0 / 3.0}) {
    const auto back = parse_json(headrace::number_text(value));
    REQUIRE(back.ok());
    CHECK(back->number() == value);
  }
  CHECK(parse_json("9223372036854775807")->integer() == INT64_MAX);
  CHECK(parse_json("9223372036854775808")->kind() == Json::Kind::real);
}

TEST_CASE("a zero keeps its sign") {
  for (const char* text : {"-0.0", "-0e9", "[-0.0]"}) {
    const Json value = *parse_json(text);
    CHECK(parse_json(value.dump())->dump() == value.dump());
  }
  CHECK(std::signbit(parse_json(Json(-0.0).dump())->number()));
  CHECK(Json(0.0).dump() == "0");
}

TEST_CASE("equality ignores order of members and kind of number") {
  CHECK(*parse_json(R"({"a":1,"b":[2.0]})") == *parse_json(R"({"b":[2],"a":1.0})"));
  CHECK_FALSE(*parse_json(R"({"a":1})") == *parse_json(R"({"a":"1"})"));
}

TEST_CASE("an exact text keeps integers and reals apart") {
  const Json value = Json::object({{"r", 2.0}, {"i", 2}, {"a", Json::Array{-0.0, 1e30, 0.5}}});

  CHECK(value.dump_exact() == R"json({"r":2.0,"i":2,"a":[-0.0,1e+30,0.5]})json");

  const Json back = *parse_json(value.dump_exact());
  CHECK(back.at("r").kind() == Json::Kind::real);
  CHECK(back.at("i").kind() == Json::Kind::integer);
  CHECK(back.at("a").items()[0].kind() == Json::Kind::real);
}

TEST_CASE("bytes that are no UTF-8 become U+FFFD, and a cut never splits a character") {
  CHECK(headrace::utf8_text("Gr\xC3\xBC\xC3\x9F") == "Gr\xC3\xBC\xC3\x9F");
  CHECK(headrace::utf8_text("Gr\xF6sse") == "Gr\xEF\xBF\xBDsse");
  CHECK(headrace::utf8_text("\xC3") == "\xEF\xBF\xBD");
  CHECK(headrace::utf8_text("\xED\xA0\x80") == "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  CHECK(headrace::utf8_text("a\xC3\xBC", 2) == "a");
  CHECK(headrace::utf8_text("a\xC3\xBC", 3) == "a\xC3\xBC");
  CHECK(headrace::utf8_text("ab\xFF", 4) == "ab");
}
