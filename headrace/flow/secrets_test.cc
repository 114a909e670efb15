// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/secrets.h"

#include <doctest/doctest.h>

#include <string>

namespace headrace::flow {

TEST_CASE("secrets are hidden wherever they stand, the longest first, short ones not") {
  Secrets secrets;
  secrets.add(Json::object({{"a", "hunter2"}, {"b", Json(Json::Array{"hunter2-more", 1234567})}}));
  secrets.add_text("abc");

  CHECK(secrets.masked("x hunter2 hunter2-more hunter 1234567 abc") == "x *** *** hunter *** abc");
  CHECK(secrets.found_in("+hunter2+"));
  CHECK(!secrets.found_in("hunter"));
}

TEST_CASE("a secret of several lines is hidden as a whole, line by line and as JSON writes it") {
  Secrets secrets;
  secrets.add_text("first \"line\"\r\nsecond line\n");

  CHECK(secrets.masked("a first \"line\"\r\nsecond line\n.") == "a ***.");
  CHECK(secrets.masked("only second line.") == "only ***.");
  CHECK(secrets.masked(R"json({"k":"first \"line\"\r\nsecond line\n"})json") ==
        R"json({"k":"***"})json");
}

TEST_CASE("a stream hides secrets wherever its pieces are cut") {
  Secrets secrets;
  secrets.add_text("hunter2");
  secrets.add_text("hunter2 and more");
  const std::string text = "hunhunter2 hunter2 and more, hunter2 and hunter";

  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      SecretStream stream(secrets);
      std::string out;
      stream.add(text.substr(0, first), &out);
      stream.add(text.substr(first, second - first), &out);
      stream.add(text.substr(second), &out);
      stream.finish(&out);
      REQUIRE(out == "hun*** ***, *** and hunter");
    }
  }
}

TEST_CASE("what a stream cannot hide comes out at once") {
  Secrets secrets;
  secrets.add_text("hunter2");
  SecretStream stream(secrets);
  std::string out;

  stream.add("done\n", &out);

  CHECK(out == "done\n");
}

TEST_CASE("hidden JSON holds no secret and is revealed as it was") {
  Secrets secrets;
  secrets.add_text("hun\"ter\n2 is long");
  secrets.add_text("12345");
  const Json item = Json::object(
      {{"k", "x hun\"ter\n2 is long y"}, {"n", 12345}, {"list", Json(Json::Array{"12345", true})}});

  const std::string hidden = secrets.hide(item.dump());

  CHECK(hidden.find("hun") == std::string::npos);
  CHECK(hidden.find("\"12345\"") == std::string::npos);
  CHECK(parse_json(hidden).ok());
  CHECK(*parse_json(secrets.reveal(hidden)) == item);
}

TEST_CASE("a vault's secret is named by an environment variable") {
  CHECK(vault_variable("my-vault", "db.key") == "HEADRACE_SECRET_MY_VAULT_DB_KEY");
  const auto secret = vault_secret("no", "such");
  REQUIRE(!secret.ok());
  CHECK(secret.error().message().find("HEADRACE_SECRET_NO_SUCH") != std::string::npos);
}

TEST_CASE("numbers and booleans that are secret are hidden in JSON and come back as they were") {
  Secrets secrets;
  secrets.add_marked(*parse_json(
      R"({"a": [{"type": "securestring", "value": 98.7612}, {"type": "SecureString", "value": true}]})"));
  const Json item =
      *parse_json(R"({"n": 98.7612, "t": "98.7612", "b": true, "other": [1234, false]})");

  const std::string hidden = secrets.hide(item.dump());

  CHECK(hidden.find("98.7612") == std::string::npos);
  CHECK(hidden.find("true") == std::string::npos);
  CHECK(parse_json(hidden).ok());
  CHECK(secrets.reveal(hidden) == item.dump());
}

TEST_CASE("what a value marks as secure goes out of it, also where the type is misspelt") {
  const Json value = *parse_json(
      R"([{"x": {"type": "SecureString", "value": "s1"}}, {"type": "SecureStrng", "value": 2},
                      {"type": "String", "value": "kept"}])");
  CHECK(has_marked_secret(value));
  CHECK(misspelt_secret(value) == "SecureStrng");
  CHECK(without_marked_secrets(value).dump() ==
        R"([{"x":{"type":"SecureString","value":"***"}},{"type":"SecureStrng","value":"***"},)"
        R"({"type":"String","value":"kept"}])");
}

TEST_CASE("texts in quotes of an expression are found, with quotes inside") {
  CHECK(quoted_texts("@concat('a b', 'it''s', \"no\", '')") ==
        std::vector<std::string>{"a b", "it's", ""});
  CHECK(quoted_texts("@concat('open").size() == 1);
  CHECK(quoted_texts("plain").empty());
}

}  // namespace headrace::flow
