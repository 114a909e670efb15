// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/name.h"

#include <doctest/doctest.h>

#include "headrace/base/random.h"
#include "headrace/registry/reference.h"
#include "headrace/registry/test_models.h"

namespace headrace::registry {

TEST_CASE("names that must be refused are refused, saying why") {
  const std::string long_segment(201, 'a');
  std::string long_name;
  for (int i = 0; i < 3; ++i) {
    long_name += std::string(170, 'a') + "/";
  }
  const std::string exact = long_name.substr(0, 511) + "b";  // 170+1+170+1+169+1
  REQUIRE(exact.size() == 512);
  const std::pair<std::string, std::string> cases[] = {
      {"", "empty"},
      {"a\\b", "'\\'"},
      {"a:b", "':'"},
      {"a@b", "'@'"},
      {"a*b", "'*'"},
      {"a?b", "'?'"},
      {"a#b", "'#'"},
      {"a%b", "hex digits"},
      {"a%4", "hex digits"},
      {"a%zz", "hex digits"},
      {std::string("a\0b", 3), "control"},
      {"a\x1f", "control"},
      {"a\x7f", "control"},
      {"a\xC2\x85", "control"},
      {" a", "blank"},
      {"a/b /c", "blank"},
      {".", "not allowed"},
      {"a/../b", "not allowed"},
      {"../a", "not allowed"},
      {"/a", "empty segment"},
      {"a/", "empty segment"},
      {"a//b", "empty segment"},
      {"a\xff", "UTF-8"},
      {"a\xED\xA0\x80", "UTF-8"},
      {"a\xC0\xAF", "UTF-8"},
      {long_segment, "201 bytes"},
      {exact + "c", "513 bytes"},
      {"1/2/3/4/5/6/7/8/9", "9 segments"},
      {"cafe\xCC\x81", "normalisation form C"}};  // e + combining acute
  for (const auto& [name, why] : cases) {
    CAPTURE(name);
    const auto result = check_name(name);
    REQUIRE(!result.ok());
    CHECK(result.error().code() == Errc::invalid_argument);
    CHECK(result.error().message().find(why) != std::string::npos);
  }
  for (const std::string& name :
       {std::string("m4_hourly/H123"), std::string("caf\xC3\xA9"), std::string("a%2Fb"),
        std::string("a b/c.d-e"), std::string("..a"), exact, std::string(200, 'a'),
        std::string("1/2/3/4/5/6/7/8"), std::string("\xEA\xB0\x80"),
        std::string("\xF0\x9F\x8C\x8A")}) {
    CAPTURE(name);
    CHECK(check_name(name).ok());
  }
}

TEST_CASE("normalisation form C gives what Python's unicodedata gives") {
  // unicodedata.normalize("NFC", ...), CPython 3.11, Unicode 14.
  const std::pair<const char*, const char*> cases[] = {
      {"e\xCC\x81", "\xC3\xA9"},
      {"\xC3\xA9\xCC\xA3", "\xE1\xBA\xB9\xCC\x81"},              // mark that sorts in front
      {"\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81"},  // Hangul
      {"\xE2\x84\xAB", "\xC3\x85"},                              // Angstrom sign
      {"\xCD\x84", "\xCC\x88\xCC\x81"},                          // excluded from composition
      {"\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC"},
      {"a\xCC\x95\xCC\x80\xD6\xAE\x62", "\xC3\xA0\xD6\xAE\xCC\x95\x62"}};
  for (const auto& [input, expected] : cases) {
    CAPTURE(input);
    CHECK(to_nfc(input) == expected);
    CHECK(to_nfc(expected) == expected);
  }
}

TEST_CASE("any item key becomes a segment and comes back") {
  base::Rng rng(7);
  MESSAGE("seed 7");
  for (int round = 0; round < 20'000; ++round) {
    std::string key;
    for (uint64_t length = rng.below(20); length > 0; --length) {
      static constexpr std::string_view kHard = "/\\:@*?#% .\x01\x7f\xC2\x85\xff";
      key.push_back(rng.below(2) == 0 ? kHard[rng.below(kHard.size())]
                                      : static_cast<char>(rng.below(256)));
    }
    const std::string segment = encode_segment(key);
    CAPTURE(key);
    CHECK(check_name(segment).ok());
    CHECK(decode_segment(segment) == to_nfc(key));
  }
  CHECK(decode_segment(encode_segment("")).empty());
  CHECK(encode_segment("..") == "%2E%2E");
  CHECK(encode_segment("a/b") == "a%2Fb");
  // An acute would turn the A of %2A into another letter: it is escaped too, and so are those
  // behind.
  CHECK(encode_segment("a*\xCC\xA7\xCC\x81z") == "a%2A%CC%A7%CC%81z");
  CHECK(encode_segment("*z\xCC\x81") == "%2A\xC5\xBA");
}

TEST_CASE("a printed reference parses to the same reference") {
  base::Rng rng(11);
  MESSAGE("seed 11");
  for (int round = 0; round < 20'000; ++round) {
    Reference reference;
    reference.kind = static_cast<Reference::Kind>(rng.below(5));
    std::string name = encode_segment("x" + std::to_string(rng.next()));
    if (rng.below(2) == 0) {
      name += "/" + encode_segment(std::string(1, static_cast<char>(rng.below(128))));
    }
    switch (reference.kind) {
      case Reference::Kind::latest:
        reference.name = name;
        reference.has_version = rng.below(2) == 0;
        break;
      case Reference::Kind::version:
        reference.name = name;
        reference.version = static_cast<int64_t>(rng.below(1'000'000)) + 1;
        break;
      case Reference::Kind::alias:
        reference.name = name;
        reference.alias = "a-" + std::to_string(rng.below(100));
        break;
      case Reference::Kind::uid:
        for (int i = 0; i < 32; ++i) {
          reference.uid.push_back("0123456789abcdef"[rng.below(16)]);
        }
        break;
      case Reference::Kind::run_item:
        reference.run = "run-" + std::to_string(rng.next());
        reference.item = "a/b:c@" + std::to_string(rng.next());
        break;
    }
    const std::string text = reference_text(reference);
    CAPTURE(text);
    const auto parsed = parse_reference(text);
    REQUIRE(parsed.ok());
    CHECK(*parsed == reference);
  }
}

TEST_CASE("references that mean nothing are refused") {
  for (const char* text : {"",       ":1",         "m:",    "m:0",
                           "m:01",   "m:-1",       "m:1x",  "m:99999999999999999999",
                           "m@",     "m@Champion", "m@v1",  "m@a.b",
                           "uid:12", "uid:XYZ",    "run:",  "run:a",
                           "run:/b", "run:a/",     "m:1@x", "../x"}) {
    CAPTURE(text);
    CHECK(!parse_reference(text).ok());
  }
  CHECK(check_alias("production-2").ok());
  CHECK(!check_alias("latest").ok());
  CHECK(!check_alias("v12").ok());
  CHECK(check_alias("v12a").ok());
  CHECK(check_alias(std::string(63, 'a')).ok());
  CHECK(!check_alias(std::string(64, 'a')).ok());
}

TEST_CASE("patterns match whole segments") {
  const auto matches = [](const char* pattern, const char* name) {
    return must(parse_pattern(pattern)).matches(name);
  };
  CHECK(matches("", "a/b"));
  CHECK(matches("m4", "m4"));
  CHECK(matches("m4", "m4/H1"));
  CHECK(!matches("m4", "m4x/H1"));
  CHECK(matches("m4/*", "m4/H1"));
  CHECK(!matches("m4/*", "m4"));
  CHECK(!matches("m4/*", "m4/a/b"));
  CHECK(matches("m4/**", "m4/a/b"));
  CHECK(!parse_pattern("m*").ok());
  CHECK(!parse_pattern("*/x").ok());
}

}  // namespace headrace::registry
