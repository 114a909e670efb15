// SPDX-License-Identifier: Apache-2.0
// Expected values are the published examples of Data Factory's function reference, or follow by
// hand from the rules stated beside them.
#include "headrace/flow/expression.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "headrace/flow/text.h"

using headrace::Json;
using headrace::parse_json;
using headrace::Result;
using headrace::base::Micros;
using headrace::flow::Context;
using headrace::flow::Expression;
using headrace::flow::Reference;
using headrace::flow::Template;
using headrace::flow::Value;

namespace {

/// A context out of one JSON object; time stands still at 2018-03-01T00:00:00Z.
class TestContext final : public Context {
 public:
  explicit TestContext(std::string_view text = "{}") {
    auto parsed = parse_json(text);
    REQUIRE(parsed.ok());
    state_ = *std::move(parsed);
  }
  Result<Value> pipeline() override { return Value::borrow(state_.at("pipeline")); }
  Result<Value> parameter(std::string_view name) override { return get("parameters", name); }
  Result<Value> variable(std::string_view name) override { return get("variables", name); }
  Result<Value> activity(std::string_view name) override { return get("activities", name); }
  Result<Value> item(std::string_view) override { return Value::borrow(state_.at("item")); }
  Micros now() override { return Micros(1'519'862'400'000'000); }
  uint64_t random() override { return random_ += 0x9E3779B97F4A7C15U; }

 private:
  Result<Value> get(std::string_view group, std::string_view name) {
    const Json* value = state_.at(group).find(name);
    if (value == nullptr) {
      return headrace::Error{headrace::Errc::not_found, std::string(name) + " is not there"};
    }
    return Value::borrow(*value);
  }
  Json state_;
  uint64_t random_ = 1;
};

/// The value as compact JSON, or "error: MESSAGE".
std::string evaluate(std::string_view text, std::string_view context = "{}") {
  TestContext test_context(context);
  auto expression = Expression::parse(text, "pl.json:1:1");
  if (!expression.ok()) {
    return "error: " + expression.error().message();
  }
  auto value = expression->evaluate(test_context);
  return value.ok() ? value->dump() : "error: " + value.error().message();
}

struct Case {
  std::string_view expression;
  std::string_view expected;  ///< compact JSON; "error: " and a part of the message
};

void check_all(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    CAPTURE(one.expression);
    const std::string got = evaluate("@" + std::string(one.expression));
    if (one.expected.starts_with("error: ")) {
      CHECK(got.starts_with("error: "));
      CHECK_MESSAGE(got.find(one.expected.substr(7)) != std::string::npos, got);
    } else {
      CHECK(got == one.expected);
    }
  }
}

}  // namespace

TEST_CASE("a string is a literal, an expression or an interpolation by its at signs") {
  constexpr std::string_view kContext =
      R"({"pipeline": {"parameters": {"myString": "foo", "myNumber": 42, "f": 2.0, "no": null,
          "yes": true, "list": [1, "a"]}}})";
  const auto value = [&](std::string_view text) { return evaluate(text, kContext); };

  CHECK(!Expression::is_expression("parameters"));
  CHECK(!Expression::is_expression("parameters[1]"));
  CHECK(!Expression::is_expression(" @"));
  CHECK(value("@@") == R"("@")");
  CHECK(value("@pipeline().parameters.myString") == R"("foo")");
  CHECK(value("@{pipeline().parameters.myString}") == R"("foo")");
  CHECK(value("@pipeline().parameters.myNumber") == "42");
  CHECK(value("@{pipeline().parameters.myNumber}") == R"("42")");
  CHECK(value("Answer is: @{pipeline().parameters.myNumber}") == R"("Answer is: 42")");
  CHECK(value("@concat('Answer is: ', string(pipeline().parameters.myNumber))") ==
        R"("Answer is: 42")");
  CHECK(value("Answer is: @@{pipeline().parameters.myNumber}") ==
        R"("Answer is: @{pipeline().parameters.myNumber}")");
  CHECK(value("@@{x}") == R"("@{x}")");
  CHECK(value("@@a @{pipeline().parameters.myNumber}") == R"("@a 42")");
  CHECK(value("a@b @{'}{'} c") == R"("a@b }{ c")");
  CHECK(value("[@{pipeline().parameters.no}|@{pipeline().parameters.f}|@{pipeline().parameters.yes}"
              "|@{pipeline().parameters.list}]") == R"("[|2|True|[1,\"a\"]]")");
  CHECK(value("@ \n concat ( 'a' ,\n\t'b' ) ") == R"("ab")");
}

TEST_CASE("literals have the kinds of the grammar") {
  check_all({{"'it''s'", R"("it's")"},
             {"'\\n'", R"("\\n")"},
             {"'two\nlines'", R"("two\nlines")"},
             {"-1.5e3", "-1500"},
             {"9223372036854775807", "9223372036854775807"},
             {"TRUE", "true"},
             {"False", "false"},
             {"Null", "null"},
             {"9223372036854775808", "error: does not fit in 64 bits"},
             {"1x", "error: unexpected 'x' in a number"},
             {"'open", "error: (+1): the string is never closed"},
             {"\"a\"", "error: single quotes"}});
}

TEST_CASE("properties and elements are selected without regard to case, with safe forms") {
  constexpr std::string_view kContext =
      R"({"activities": {"A": {"output": {"Value": [10, {"my prop": "x"}], "two": 1, "TWO": 2,
          "none": null}}}, "item": {"name": "s1"}})";
  const auto value = [&](std::string_view text) { return evaluate(text, kContext); };

  CHECK(value("@activity('A').output.value[0]") == "10");
  CHECK(value("@activity('A').output.value[1]['my prop']") == R"("x")");
  CHECK(value("@ACTIVITY('A').Output.TWO") == "2");
  CHECK(value("@item().name") == R"("s1")");
  CHECK(value("@activity('A').output?.missing") == "null");
  CHECK(value("@activity('A').output.none?.deeper") == "null");
  CHECK(value("@activity('A').output.value?[7]") == "null");
  CHECK(value("@activity('A').output.none?['x']") == "null");
  CHECK(value("@json('[[1,2],[3]]')[0][1]") == "2");

  CHECK(value("@activity('A').output.filesRead") ==
        "error: pl.json:1:1 (+21): the expression 'activity('A').output.filesRead' cannot be "
        "evaluated because property 'filesRead' doesn't exist, available properties are 'Value, "
        "two, TWO, none'; '?.filesRead' gives null instead");
  CHECK(value("@activity('A').output.Two").find("ambiguous") != std::string::npos);
  CHECK(
      value("@activity('A').output.value[2]").find("index 2 is outside the array of 2 elements") !=
      std::string::npos);
  CHECK(value("@activity('A').output.value[-1]").find("outside") != std::string::npos);
  CHECK(value("@activity('A').output.value['0']").find("by an integer, not by string '0'") !=
        std::string::npos);
  CHECK(value("@activity('A').output.value.x").find("type 'Array'") != std::string::npos);
  CHECK(value("@item().name.first").find("not supported on values of type 'String'") !=
        std::string::npos);
  CHECK(value("@activity('A').output?.missing.deeper").find("cannot be selected from null") !=
        std::string::npos);
  CHECK(value("@activity('B').output").find("B is not there") != std::string::npos);
}

TEST_CASE("a syntax error names the place in the file and in the string, and the nearest name") {
  CHECK(evaluate("@and(true, concatt('a'))") ==
        "error: pl.json:1:1 (+11): unknown function 'concatt'; did you mean 'concat'?");
  CHECK(evaluate("@xpath(xml('<a/>'), 'a')").find("'xml' is not available yet") !=
        std::string::npos);
  CHECK(evaluate("@substring('a')") ==
        "error: pl.json:1:1 (+1): function 'substring' takes 2 to 3 arguments, got 1");
  CHECK(evaluate("@add(1").find("(+4): this '(' is never closed") != std::string::npos);
  CHECK(evaluate("@add(1 2)").find("(+7): unexpected '2'; expected ',' or ')'") !=
        std::string::npos);
  CHECK(evaluate("@add(1,)").find("(+7): unexpected ')'") != std::string::npos);
  CHECK(evaluate("@item() and more").find("after the end of the expression") != std::string::npos);
  CHECK(evaluate("a @{item() b").find("unexpected 'b'; expected '}'") != std::string::npos);
  CHECK(evaluate("a @{item()").find("(+2): this '@{' is never closed") != std::string::npos);
  CHECK(evaluate("@item").find("neither a function call nor a literal") != std::string::npos);
  CHECK(evaluate("@item().").find("expected a property name after '.'") != std::string::npos);
  CHECK(evaluate("@item()[0").find("this '[' is never closed") != std::string::npos);
  CHECK(evaluate("@item()?x").find("expected '.' or '[' after '?'") != std::string::npos);
  CHECK(evaluate("@").find("the text ends where an expression is expected") != std::string::npos);
  CHECK(evaluate("@" + std::string(100000, '(')).find("error: ") == 0);
  std::string deep = "1";
  for (int i = 0; i < 200; ++i) {
    deep = "array(" + deep + ")";
  }
  CHECK(evaluate("@" + deep).find("nested deeper than 100 calls") != std::string::npos);
}

TEST_CASE("only the needed arguments of if, and, or and coalesce are evaluated") {
  check_all({{"if(equals(1, 1), 'yes', div(1, 0))", R"("yes")"},
             {"if(false, div(1, 0), 'no')", R"("no")"},
             {"and(false, equals(div(1, 0), 1))", "false"},
             {"or(true, equals(div(1, 0), 1))", "true"},
             {"and(true, false)", "false"},
             {"or(false, true)", "true"},
             {"coalesce(null, 'hello', div(1, 0))", R"("hello")"},
             {"coalesce(null, true, false)", "true"},
             {"coalesce(null, null)", "null"},
             {"coalesce(div(1, 0))", "error: 'div'"},
             {"if('true', 1, 2)", "error: function 'if', argument 1: expected a boolean"},
             {"and(1, true)", "error: argument 1: expected a boolean, got integer 1"},
             {"or(false, null)", "error: argument 2: expected a boolean, got null"}});
}

TEST_CASE("what an expression would make has bounds, and the error names them") {
  std::string text = "'aaaaaaaaaaaaaaaa'";
  for (int i = 0; i < 9; ++i) {
    text = "replace(" + text + ", 'a', 'aaaaaaaaaaaaaaaa')";
  }
  // 16^6 bytes are made, the 16^7 that would follow are not.
  CHECK(evaluate("@" + text)
            .find("function 'replace': the result would be a text of 268435456 "
                  "bytes; at most 67108864 are possible") != std::string::npos);
  check_all({
      {"length(join(range(0, 3000000), '0123456789012345678901234567890'))",
       "error: function 'join': the result would be a text of 671088"},
      {"concat(range(0, 6000000), range(0, 6000000))",
       "error: function 'concat': the result would have 12000000 elements; at most 10000000"},
      {"createArray(range(0, 6000000), range(0, 6000000))",
       "error: function 'createArray': the result would have 12000002 elements"},
  });
}

TEST_CASE("string functions give the published results") {
  check_all({
      {"concat('Hello', 'World')", R"("HelloWorld")"},
      {"concat('a', null, 1, true, 1.5)", R"("a1True1.5")"},
      {"concat(createArray(1), createArray(2, 3))", "[1,2,3]"},
      {"concat()", "error: takes at least 1 argument, got 0"},
      {"endsWith('hello world', 'world')", "true"},
      {"endsWith('hello world', 'WORLD')", "true"},
      {"endsWith('hello world', 'universe')", "false"},
      {"endsWith(1, 'a')", "error: function 'endsWith', argument 1 (text): expected a string"},
      {"startsWith('hello world', 'hello')", "true"},
      {"startsWith('hello world', 'Hello')", "true"},
      {"startsWith('hello world', 'greeting')", "false"},
      {"startsWith('a', null)", "error: argument 2 (searchText): expected a string, got null"},
      {"indexOf('hello world', 'world')", "6"},
      {"indexOf('hello world', 'WORLD')", "6"},
      {"indexOf('hello', 'x')", "-1"},
      {"indexOf('hello', '')", "0"},
      {"indexOf('hello', 1)", "error: argument 2"},
      {"lastIndexOf('hello world, hello world', 'world')", "19"},
      {"lastIndexOf('hello', '')", "5"},
      {"lastIndexOf('hello', 'x')", "-1"},
      {"lastIndexOf(null, 'x')", "error: argument 1"},
      {"nthIndexOf('123456789123465789', '1', 2)", "9"},
      {"nthIndexOf('123456789123465789', '12', 3)", "-1"},
      {"nthIndexOf('abab', 'b', -1)", "3"},
      {"nthIndexOf('aaa', 'a', -3)", "0"},
      {"nthIndexOf('aaa', 'a', -4)", "-1"},
      {"nthIndexOf('aaa', 'a', -9223372036854775808)", "-1"},
      {"nthIndexOf('aaa', 'a', 9223372036854775807)", "-1"},
      {"slice('hello', -9223372036854775808, 9223372036854775807)", R"("hello")"},
      {"nthIndexOf('abab', '', 1)", "error: not empty"},
      {"replace('the old string', 'old', 'new')", R"("the new string")"},
      {"replace('aaa', 'a', 'aa')", R"("aaaaaa")"},
      {"replace('Old', 'old', 'new')", R"("Old")"},
      {"replace('a', '', 'b')", "error: argument 2 (oldText): expected a string that is not empty"},
      {"split('a;b;c', ';')", R"(["a","b","c"])"},
      {"split(';a;;', ';')", R"(["","a","",""])"},
      {"split('a<>b', '<>')", R"(["a","b"])"},
      {"split('ab', '')", R"(["ab"])"},
      {"split(createArray(), ';')", "error: expected a string, got array []"},
      {"substring('hello world', 6, 5)", R"("world")"},
      {"substring('hello world', 6)", R"("world")"},
      {"substring('abc', 3)", R"("")"},
      {"substring('h\xC3\xA9llo', 1, 2)", "\"\xC3\xA9l\""},
      {"substring('abc', 2, 2)", "error: a length from 0 to 1"},
      {"substring('abc', 4)", "error: an index from 0 to the length 3"},
      {"slice('Hello World', 2)", R"("llo World")"},
      {"slice('Hello World', -2)", R"("ld")"},
      {"slice('Hello World', 3, -1)", R"("lo Worl")"},
      {"slice('Hello World', 3, 3)", R"("")"},
      // Bytes that are no UTF-8 count as one character each, wherever they are counted.
      {"slice('Hel\xFF\xFF World', 66)", R"("")"},
      {"length('\xFF\xF0')", "2"},
      {"slice(1, 2)", "error: expected a string"},
      {"toLower('Hello World')", R"("hello world")"},
      {"toLower('\xC3\x89')", "\"\xC3\xA9\""},
      {"toLower('')", R"("")"},
      {"toLower(1)", "error: expected a string, got integer 1"},
      {"toUpper('Hello World')", R"("HELLO WORLD")"},
      {"toUpper('\xC3\xA9')", "\"\xC3\x89\""},
      {"toUpper('')", R"("")"},
      {"toUpper(null)", "error: expected a string, got null"},
      {"trim(' Hello World  ')", R"("Hello World")"},
      {"trim('\xC2\xA0\tx\n')", R"("x")"},
      {"trim('   ')", R"("")"},
      {"trim(true)", "error: expected a string"},
      {"isInt('10')", "true"},
      {"isInt('10.5')", "false"},
      {"isInt('')", "false"},
      {"isInt(10)", "error: expected a string"},
  });
}

TEST_CASE("guid has the five forms and version 4") {
  const auto length = [](std::string_view form) {
    return evaluate("@length(guid('" + std::string(form) + "'))");
  };

  CHECK(length("N") == "32");
  CHECK(length("D") == "36");
  CHECK(length("B") == "38");
  CHECK(length("p") == "38");
  CHECK(length("X") == "68");
  CHECK(evaluate("@substring(guid(), 14, 1)") == R"("4")");
  CHECK(evaluate("@guid('Q')").find("one of the formats") != std::string::npos);
}

TEST_CASE("collection functions give the published results") {
  check_all({
      {"contains('hello world', 'world')", "true"},
      {"contains('hello world', 'universe')", "false"},
      {"contains('hello world', 'World')", "false"},
      {"contains(createArray(1, 2), 2.0)", "true"},
      {"contains(json('{\"a\": null}'), 'a')", "true"},
      {"contains(1, 1)", "error: a string, an array or an object"},
      {"empty('')", "true"},
      {"empty('abc')", "false"},
      {"empty(createArray())", "true"},
      {"empty(json('{}'))", "true"},
      {"empty(null)", "true"},
      {"empty(0)", "error: got integer 0"},
      {"first('hello')", R"("h")"},
      {"first(createArray(0, 1, 2))", "0"},
      {"first(createArray())", "null"},
      {"first('')", R"("")"},
      {"first(1)", "error: a string or an array"},
      {"last('abcd')", R"("d")"},
      {"last(createArray(0, 1, 2, 3))", "3"},
      {"last(createArray())", "null"},
      {"last(json('{}'))", "error: a string or an array"},
      {"intersection(createArray(1, 2, 3), createArray(101, 2, 1, 10), createArray(6, 8, 1, 2))",
       "[1,2]"},
      {"intersection(json('{\"a\":1,\"b\":2}'), json('{\"a\":1,\"b\":3}'))", R"({"a":1})"},
      {"intersection(createArray(1, 1, 2), createArray(1))", "[1]"},
      {"intersection(createArray(), json('{}'))",
       "error: argument 2 (collection): expected an array"},
      {"join(createArray('a', 'b', 'c'), '.')", R"("a.b.c")"},
      {"join(createArray(1, true, null), '-')", R"("1-True-")"},
      {"join(createArray(), '.')", R"("")"},
      {"join('abc', '.')", "error: expected an array, got string 'abc'"},
      {"length('abcd')", "4"},
      {"length(createArray(0, 1, 2, 3))", "4"},
      {"length('\xF0\x9F\x98\x80')", "2"},
      {"length(null)", "error: a string or an array"},
      {"skip(createArray(0, 1, 2, 3), 1)", "[1,2,3]"},
      {"skip(createArray(0, 1), 5)", "[]"},
      {"skip(createArray(0, 1), 0)", "[0,1]"},
      {"skip(createArray(0, 1), -1)", "error: a count of at least 0"},
      {"take('abcde', 3)", R"("abc")"},
      {"take(createArray(0, 1, 2, 3, 4), 3)", "[0,1,2]"},
      {"take('ab', 9)", R"("ab")"},
      {"take(createArray(0), -1)", "error: a count of at least 0"},
      {"union(createArray(1, 2, 3), createArray(1, 2, 10, 101))", "[1,2,3,10,101]"},
      {"union(json('{\"a\":{\"x\":1},\"b\":1}'), json('{\"a\":{\"y\":2},\"b\":3}'))",
       R"({"a":{"x":1,"y":2},"b":3})"},
      {"union(createArray(1, 1), createArray())", "[1]"},
      {"union('a', 'b')", "error: an array or an object"},
      {"createArray('h', 'e', 1, null)", R"(["h","e",1,null])"},
      {"createArray()", "[]"},
      {"createArray(createArray())", "[[]]"},
      {"createObject('a', 1, 'b', createArray())", R"({"a":1,"b":[]})"},
      {"createObject()", "{}"},
      {"createObject('a', 1, 'a', 2)", R"({"a":2})"},
      {"createObject('a')", "error: come in pairs"},
      {"setProperty(json('{\"a\":1}'), 'a', 2)", R"({"a":2})"},
      {"setProperty(json('{}'), 'b', null)", R"({"b":null})"},
      {"setProperty(createObject('x', 1), 'y', 2).y", "2"},
      {"setProperty('a', 'b', 1)", "error: expected an object"},
      {"addProperty(json('{\"a\":1}'), 'b', 2)", R"({"a":1,"b":2})"},
      {"addProperty(json('{}'), 'b', createArray(1)).b[0]", "1"},
      {"addProperty(json('{\"a\":1}'), 'a', 2)", "error: already has a property 'a'"},
      {"removeProperty(json('{\"a\":1,\"b\":2}'), 'a')", R"({"b":2})"},
      {"removeProperty(json('{\"a\":1}'), 'x')", R"({"a":1})"},
      {"removeProperty(createArray(), 'x')", "error: expected an object"},
      {"chunk('abcdefgh', 3)", R"(["abc","def","gh"])"},
      {"chunk(createArray(1, 2, 3), 2)", "[[1,2],[3]]"},
      {"chunk(createArray(), 2)", "[]"},
      {"chunk('a', 0)", "error: a size of at least 1"},
      {"reverse(createArray(0, 1, 2))", "[2,1,0]"},
      {"reverse(createArray())", "[]"},
      {"reverse(createArray('a'))", R"(["a"])"},
      {"reverse('abc')", "error: expected an array"},
      {"sort(createArray(2, 1, 10, 1.5))", "[1,1.5,2,10]"},
      {"sort(createArray('b', 'a', 'B'))", R"(["B","a","b"])"},
      {"sort(createArray(createObject('n', 2), createObject('n', 1)), 'n')",
       R"([{"n":1},{"n":2}])"},
      {"sort(createArray(1, 'a'))", "error: all numbers or all strings"},
      {"equals(keyhash('a'), keyhash('a'))", "true"},
      {"equals(keyhash(json('{\"a\":1,\"b\":2}')), keyhash(json('{\"b\":2,\"a\":1}')))", "true"},
      {"equals(keyhash(1), keyhash(2))", "false"},
      {"keyhash()", "error: takes 1 argument, got 0"},
  });
}

TEST_CASE("comparisons follow kind and code units") {
  check_all({
      {"equals(true, 1)", "true"},
      {"equals('abc', 'abcd')", "false"},
      {"equals(1, 1.0)", "true"},
      {"equals('a', 'A')", "false"},
      {"equals('1', 1)", "false"},
      {"equals(null, '')", "false"},
      {"equals(null, null)", "true"},
      {"equals(json('{\"a\":[1]}'), json('{\"a\":[1.0]}'))", "true"},
      {"equals(1)", "error: takes 2 arguments, got 1"},
      {"not(false)", "true"},
      {"not(equals(1, 1))", "false"},
      {"not(not(true))", "true"},
      {"not('true')", "error: expected a boolean"},
      {"greater(10, 5)", "true"},
      {"greater('apple', 'banana')", "false"},
      {"greater(1.5, 1)", "true"},
      {"greater('a', 1)", "error: argument 2 (compareTo): expected a string"},
      {"greaterOrEquals(5, 5)", "true"},
      {"greaterOrEquals('apple', 'banana')", "false"},
      {"greaterOrEquals(5, 5.5)", "false"},
      {"greaterOrEquals(null, 1)", "error: argument 1 (value): expected a number or a string"},
      {"less(5, 10)", "true"},
      {"less('banana', 'apple')", "false"},
      {"less(9223372036854775806, 9223372036854775807)", "true"},
      {"less(1, 'a')", "error: argument 2 (compareTo): expected a number"},
      {"lessOrEquals(10, 10)", "true"},
      {"lessOrEquals('apply', 'apple')", "false"},
      {"lessOrEquals(1, 2)", "true"},
      {"lessOrEquals(true, 2)", "error: expected a number or a string"},
  });
}

TEST_CASE("arithmetic keeps integers, gives floats for floats and never wraps") {
  check_all({
      {"add(1, 1.5)", "2.5"},
      {"add(1, 2)", "3"},
      {"add(-1, 1)", "0"},
      {"add(9223372036854775807, 1)", "error: does not fit in 64 bits"},
      {"add('1', 1)", "error: argument 1 (summand1): expected a number"},
      {"sub(10.3, .3)", "10"},
      {"sub(1, 2)", "-1"},
      {"sub(-9223372036854775808, 1)", "error: does not fit in 64 bits"},
      {"sub(null, 1)", "error: expected a number"},
      {"mul(1, 2)", "2"},
      {"mul(1.5, 2)", "3"},
      {"mul(0, -5)", "0"},
      {"mul(4611686018427387904, 2)", "error: does not fit in 64 bits"},
      {"div(10, 5)", "2"},
      {"div(11, 5)", "2"},
      {"div(-11, 5)", "-2"},
      {"div(11, 5.0)", "2.2"},
      {"div(1, 0)", "error: a divisor that is not zero"},
      {"div(-9223372036854775808, -1)", "error: does not fit in 64 bits"},
      {"mod(3, 2)", "1"},
      {"mod(-3, 2)", "-1"},
      {"mod(3, -2)", "1"},
      {"mod(-9223372036854775808, -1)", "0"},
      {"mod(5.5, 2)", "1.5"},
      {"mod(1, 0)", "error: a divisor that is not zero"},
      {"max(1, 2, 3)", "3"},
      {"max(createArray(1, 2, 3))", "3"},
      {"max(1, 1.5)", "1.5"},
      {"max(createArray())", "error: an array that is not empty"},
      {"min(1, 2, 3)", "1"},
      {"min(createArray(1, 2, 3))", "1"},
      {"min(-1.5, 0)", "-1.5"},
      {"min('a')", "error: expected a number"},
      {"range(1, 4)", "[1,2,3,4]"},
      {"range(-1, 2)", "[-1,0]"},
      {"range(5, 0)", "[]"},
      {"range(1, -1)", "error: a count from 0 to"},
      {"rand(7, 8)", "7"},
      {"and(greaterOrEquals(rand(1, 5), 1), less(rand(1, 5), 5))", "true"},
      {"less(rand(-9223372036854775808, 9223372036854775807), 9223372036854775807)", "true"},
      {"rand(5, 5)", "error: a bound above the lower one, 5"},
  });
}

TEST_CASE("conversion functions give the published results") {
  check_all({
      {"array('hello')", R"(["hello"])"},
      {"array(createArray(1))", "[1]"},
      {"array(null)", "[null]"},
      {"array()", "error: takes 1 argument"},
      {"base64('hello')", R"("aGVsbG8=")"},
      {"base64('')", R"("")"},
      {"base64('ab')", R"("YWI=")"},
      {"base64(1)", "error: expected a string"},
      {"base64ToBinary('aGVsbG8=')",
       R"({"$content-type":"application/octet-stream","$content":"aGVsbG8="})"},
      {"base64ToBinary('a')", "error: base64 text"},
      {"base64ToString('aGVsbG8=')", R"("hello")"},
      {"base64ToString(base64('\xC3\xA9'))", "\"\xC3\xA9\""},
      {"base64ToString(binary('x'))", R"("x")"},
      {"base64ToString('*')", "error: base64 text"},
      {"decodeBase64('aGVsbG8=')", R"("hello")"},
      {"binary('hello')", R"({"$content-type":"application/octet-stream","$content":"aGVsbG8="})"},
      {"binary(1)", "error: expected a string"},
      {"bool(1)", "true"},
      {"bool(0)", "false"},
      {"bool('TRUE')", "true"},
      {"bool(false)", "false"},
      {"bool('yes')", "error: 0, 1, 'true' or 'false'"},
      {"bool(2)", "error: got integer 2"},
      {"dataUri('hello')", R"("data:text/plain;charset=utf-8;base64,aGVsbG8=")"},
      {"dataUri(1)", "error: expected a string"},
      {"dataUriToString('data:text/plain;charset=utf-8;base64,aGVsbG8=')", R"("hello")"},
      {"dataUriToString('data:,a%20b')", R"("a b")"},
      {"dataUriToString('http://x')", "error: a data URI"},
      {"dataUriToBinary('data:text/plain;charset=utf-8;base64,aGVsbG8=')['$content']",
       R"("aGVsbG8=")"},
      {"dataUriToBinary('x')", "error: a data URI"},
      {"decodeDataUri('data:text/plain;charset=utf-8;base64,aGVsbG8=')['$content']",
       R"("aGVsbG8=")"},
      {"encodeUriComponent('https://contoso.com')", R"("https%3A%2F%2Fcontoso.com")"},
      {"uriComponent('https://contoso.com')", R"("https%3A%2F%2Fcontoso.com")"},
      {"uriComponent('a b\xC3\xA9')", R"("a%20b%C3%A9")"},
      {"uriComponent(1)", "error: expected a string"},
      {"decodeUriComponent('https%3A%2F%2Fcontoso.com')", R"("https://contoso.com")"},
      {"uriComponentToString('https%3A%2F%2Fcontoso.com')", R"("https://contoso.com")"},
      {"uriComponentToString('100%')", R"("100%")"},
      {"uriComponentToString(null)", "error: expected a string"},
      {"uriComponentToBinary('a%20b')['$content']", R"("YSBi")"},
      {"uriComponentToBinary(1)", "error: expected a string"},
      {"float('10.333')", "10.333"},
      {"float(' 1e3 ')", "1000"},
      {"float(2)", "2"},
      {"float('a')", "error: a number or the text of one"},
      {"int('10')", "10"},
      {"int(10.0)", "10"},
      {"int('-3')", "-3"},
      {"int(1.5)", "error: expected an integer, got number 1.5"},
      {"int('1.5')", "error: the text of one"},
      {"json('[1, 2, 3]')", "[1,2,3]"},
      {"json('{\"fullName\": \"Sophia Owen\"}')", R"({"fullName":"Sophia Owen"})"},
      {"json(null)", "{}"},
      {"json('{')", "error: JSON text (text:1:"},
      {"string(10)", R"("10")"},
      {"string(createArray(1, 'a'))", R"("[1,\"a\"]")"},
      {"string(true)", R"("True")"},
      {"string(1.50)", R"("1.5")"},
      {"string()", "error: takes 1 argument"},
  });
}

TEST_CASE("date functions give the published results") {
  check_all({
      {"addDays('2018-03-15T13:00:00Z', 10)", R"("2018-03-25T13:00:00.0000000Z")"},
      {"addDays('2018-03-15T00:00:00Z', -5)", R"("2018-03-10T00:00:00.0000000Z")"},
      {"addDays('2018-03-15', 1, 'yyyy/MM/dd')", R"("2018/03/16")"},
      {"addDays('2018-03-15T00:00:00Z', 0.5)", "error: expected an integer"},
      {"addHours('2018-03-15T00:00:00Z', 10)", R"("2018-03-15T10:00:00.0000000Z")"},
      {"addHours('2018-03-15T15:00:00Z', -5)", R"("2018-03-15T10:00:00.0000000Z")"},
      {"addHours('x', 1)", "error: a date such as"},
      {"addMinutes('2018-03-15T00:10:00Z', 10)", R"("2018-03-15T00:20:00.0000000Z")"},
      {"addMinutes('2018-03-15T00:20:00Z', -5)", R"("2018-03-15T00:15:00.0000000Z")"},
      {"addMinutes(1, 1)", "error: expected a string"},
      {"addSeconds('2018-03-15T00:00:00Z', 10)", R"("2018-03-15T00:00:10.0000000Z")"},
      {"addSeconds('2018-03-15T00:00:30Z', -5)", R"("2018-03-15T00:00:25.0000000Z")"},
      {"addSeconds('9999-12-31T23:59:59Z', 1)", "error: outside the years 1 to 9999"},
      {"addToTime('2018-01-01T00:00:00Z', 1, 'Day')", R"("2018-01-02T00:00:00.0000000Z")"},
      {"addToTime('2018-01-01T00:00:00Z', 1, 'Day', 'D')", R"("Tuesday, January 2, 2018")"},
      {"addToTime('2020-01-31T00:00:00Z', 1, 'Month')", R"("2020-02-29T00:00:00.0000000Z")"},
      {"addToTime('2018-01-01T00:00:00Z', 1, 'Eon')", "error: one of Second, Minute"},
      {"subtractFromTime('2018-01-02T00:00:00Z', 1, 'Day')", R"("2018-01-01T00:00:00.0000000Z")"},
      {"subtractFromTime('2018-01-02T00:00:00Z', 1, 'Day', 'D')", R"("Monday, January 1, 2018")"},
      {"subtractFromTime('2018-03-31', 1, 'Month')", R"("2018-02-28T00:00:00.0000000Z")"},
      {"subtractFromTime('2018-01-02', '1', 'Day')", "error: expected an integer"},
      {"getFutureTime(5, 'Day')", R"("2018-03-06T00:00:00.0000000Z")"},
      {"getFutureTime(5, 'Day', 'D')", R"("Tuesday, March 6, 2018")"},
      {"getFutureTime(1, 'Hour', 'HH:mm')", R"("01:00")"},
      {"getFutureTime('5', 'Day')", "error: expected an integer"},
      {"getPastTime(5, 'Day')", R"("2018-02-24T00:00:00.0000000Z")"},
      {"getPastTime(5, 'Day', 'D')", R"("Saturday, February 24, 2018")"},
      {"getPastTime(1, 'Week', 'd')", R"("2/22/2018")"},
      {"getPastTime(1, 2)", "error: expected a string"},
      {"utcNow()", R"("2018-03-01T00:00:00.0000000Z")"},
      {"utcNow('yyyyMMdd')", R"("20180301")"},
      {"utcNow('D')", R"("Thursday, March 1, 2018")"},
      {"utcNow('x')", "error: not a standard date format"},
      {"dayOfMonth('2018-03-15T13:27:36Z')", "15"},
      {"dayOfWeek('2018-03-15T13:27:36Z')", "4"},
      {"dayOfYear('2018-03-15T13:27:36Z')", "74"},
      {"dayOfMonth('2018-02-29')", "error: a date such as"},
      {"dayOfWeek(null)", "error: expected a string"},
      {"dayOfYear('')", "error: a date such as"},
      {"formatDateTime('03/15/2018 12:00:00', 'yyyy-MM-ddTHH:mm:ss')", R"("2018-03-15T12:00:00")"},
      {"formatDateTime('2018-03-15T13:04:05.0670000Z', 'hh:mm:ss.fff tt')", R"("01:04:05.067 PM")"},
      {"formatDateTime('2018-03-15T01:00:00+02:00')", R"("2018-03-14T23:00:00.0000000Z")"},
      {"formatDateTime('2018-03-15', '\"day\" d MMM \\yy')", R"("day 15 Mar y18")"},
      {"formatDateTime('2018-03-15T00:00:00.5Z', 'ss.FFF')", R"("00.5")"},
      {"formatDateTime('2018-03-15', '''open')", "error: is never closed"},
      {"startOfDay('2018-03-15T13:30:30Z')", R"("2018-03-15T00:00:00.0000000Z")"},
      {"startOfDay('2018-03-15T13:30:30Z', 'r')", R"("Thu, 15 Mar 2018 00:00:00 GMT")"},
      {"startOfDay(1)", "error: expected a string"},
      {"startOfHour('2018-03-15T13:30:30Z')", R"("2018-03-15T13:00:00.0000000Z")"},
      {"startOfHour('2018-03-15T13:30:30Z', 't')", R"("1:00 PM")"},
      {"startOfHour('13:30')", "error: a date such as"},
      {"startOfMonth('2018-03-15T13:30:30Z')", R"("2018-03-01T00:00:00.0000000Z")"},
      {"startOfMonth('2018-03-15T13:30:30Z', 'yyyy-MM-dd')", R"("2018-03-01")"},
      {"startOfMonth('2018-13-01')", "error: a date such as"},
      // .NET's DateTime(1970, 1, 1).Ticks, as its reference gives it.
      {"ticks('1970-01-01T00:00:00Z')", "621355968000000000"},
      {"ticks('0001-01-01')", "0"},
      {"ticks('9999-12-31T23:59:59.9999999Z')", "3155378975999999999"},
      {"ticks('x')", "error: a date such as"},
      {"dateDifference('2015-02-08', '2018-07-30')", R"("1268.00:00:00")"},
      {"dateDifference('2018-01-01T12:00:00Z', '2018-01-01T11:59:58.5Z')",
       R"("-00:00:01.5000000")"},
      {"dateDifference('2018-01-01', '2018-01-01')", R"("00:00:00")"},
      {"dateDifference('2018-01-01', 1)", "error: expected a string"},
  });
}

TEST_CASE("the multi-line expression of a published pipeline is evaluated") {
  constexpr std::string_view kText =
      "@if(\nor(\nequals(activity('Get').output.state.life_cycle_state, 'PENDING'), "
      "equals(activity('Get').output.state.life_cycle_state, 'RUNNING')\n),\n'Running',\n"
      "activity('Get').output.state.result_state\n)";

  CHECK(evaluate(kText, R"({"activities": {"Get": {"output": {"state":
        {"life_cycle_state": "RUNNING"}}}}})") == R"("Running")");
  CHECK(evaluate(kText, R"({"activities": {"Get": {"output": {"state":
        {"life_cycle_state": "TERMINATED", "result_state": "SUCCESS"}}}}})") == R"("SUCCESS")");
}

TEST_CASE("references list what an expression needs") {
  const auto expression = Expression::parse(
      "@concat(pipeline().parameters.p, parameters('q'), variables('v'), activity('A').output, "
      "activity(item()).output, pipeline().globalParameters.g, trigger().startTime)");
  REQUIRE(expression.ok());

  std::string text;
  for (const Reference& reference : expression->references()) {
    text += std::to_string(static_cast<int>(reference.kind)) + ":" + reference.name + " ";
  }

  using Kind = Reference::Kind;
  const auto row = [](Kind kind, std::string_view name) {
    return std::to_string(static_cast<int>(kind)) + ":" + std::string(name) + " ";
  };
  CHECK(text == row(Kind::parameter, "p") + row(Kind::parameter, "q") + row(Kind::variable, "v") +
                    row(Kind::activity, "A") + row(Kind::any_activity, "") + row(Kind::item, "") +
                    row(Kind::global_parameter, "g") + row(Kind::trigger, "trigger"));
}

TEST_CASE("a template evaluates every expression inside a value and keeps the rest") {
  const auto json = parse_json(R"json({"a": "@add(1, 2)",
      "b": {"value": "@item().x", "type": "Expression"}, "c": ["n=@{item().x}", 5],
      "d": {"value": "plain", "type": "expression"},
      "e": {"type": "Expression", "content": "@null"}})json");
  REQUIRE(json.ok());
  std::vector<headrace::Error> errors;
  const auto where = [](int64_t offset) { return "f:" + std::to_string(offset); };
  const Template body = Template::compile(*json, where, &errors);
  REQUIRE(errors.empty());
  TestContext context(R"({"item": {"x": [7]}})");

  const auto value = body.evaluate(context);

  REQUIRE(value.ok());
  CHECK(value->dump() == R"({"a":3,"b":[7],"c":["n=[7]",5],"d":"plain","e":null})");
  CHECK(body.constant().dump() == R"({"c":[5],"d":"plain"})");
  CHECK(!body.is_constant());

  const auto bad = parse_json(R"json({"a": "@nope()", "b": "@item("})json");
  REQUIRE(bad.ok());
  Template::compile(*bad, where, &errors);
  REQUIRE(errors.size() == 2);
  CHECK(errors[0].message().starts_with("f:6 (+1): unknown function 'nope'"));
  CHECK(errors[1].message().starts_with("f:22 (+6): the text ends"));
}

TEST_CASE("nearest names ignore case and give up when nothing is near") {
  const std::vector<std::string> names = {"batchCount", "isSequential", "items"};

  CHECK(headrace::flow::nearest_name("batchcount", names) == "batchCount");
  CHECK(headrace::flow::nearest_name("item", names) == "items");
  CHECK(!headrace::flow::nearest_name("zzzz", names));
}
