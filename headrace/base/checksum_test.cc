// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/checksum.h"

#include <doctest/doctest.h>

#include <vector>

namespace headrace::base {

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string blake2b(std::string_view text) {
  Blake2b256 hash;
  hash.update(bytes_of(text));
  return hex(hash.finish());
}

/// The input of xxHash's own sanity check: top bytes of a multiplicative sequence.
std::string sanity_input(size_t length) {
  constexpr uint64_t kPrime64 = 11400714785074694797U;
  uint64_t state = 2654435761U;
  std::string text;
  for (size_t i = 0; i < length; ++i) {
    text.push_back(static_cast<char>(state >> 56U));
    state *= kPrime64;
  }
  return text;
}

}  // namespace

TEST_CASE("BLAKE2b-256 gives what Python's hashlib gives") {
  // hashlib.blake2b(text, digest_size=32).hexdigest(), CPython 3.11.
  CHECK(blake2b("") == "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
  CHECK(blake2b("abc") == "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
  std::string all;
  for (int i = 0; i < 256; ++i) {
    all.push_back(static_cast<char>(i));
  }
  CHECK(blake2b(all) == "39a7eb9fedc19aabc83425c6755dd90e6f9d0c804964a1f4aaeea3b9fb599835");
  CHECK(blake2b(std::string(1000, 'a')) ==
        "e00b0ddbf1e2cdaf5c898e1a5e8826ea3a2c339bcf2a478da2e5fca9ff126672");
}

TEST_CASE("BLAKE2b-256 does not depend on how the input is cut") {
  Blake2b256 hash;
  for (int i = 0; i < 1000; ++i) {
    hash.update(bytes_of("a"));
  }
  CHECK(hex(hash.finish()) == blake2b(std::string(1000, 'a')));
}

TEST_CASE("XXH3-64 gives the values of LLVM's own implementation") {
  // llvm/unittests/Support/xxhashTest.cpp: a xorshift stream of 2243 bytes, each length class.
  std::string text;
  uint64_t x = 1;
  for (int i = 0; i < 2243; ++i) {
    x ^= x << 13U;
    x ^= x >> 7U;
    x ^= x << 17U;
    text.push_back(static_cast<char>(x));
  }
  const std::vector<std::pair<size_t, uint64_t>> cases = {
      {0, 0x2d06800538d394c2U},   {1, 0xd0d496e05c553485U},   {3, 0x6ea2d59aca5c3778U},
      {8, 0xabc1413da6cd0209U},   {16, 0x7e46916754d7c9b8U},  {17, 0xed4be912ba5f836dU},
      {128, 0x06a146ee9a2da378U}, {129, 0xbc7138129bf065daU}, {512, 0xcdfa6b6268e3650fU},
      {2243, 0x0979f786a24edde7U}};
  for (const auto& [length, expected] : cases) {
    CAPTURE(length);
    CHECK(xxh3_64(std::string_view(text).substr(0, length)) == expected);
    CHECK(xxh3_64(bytes_of(std::string_view(text).substr(0, length))) == expected);
  }
}

TEST_CASE("a seeded XXH3-64 gives the published values, in one piece or two") {
  // XSUM_XXH3_testdata of xxHash 0.8 (cli/xsum_sanity_check.c).
  constexpr uint64_t kSeed = 11400714785074694797U;
  struct Case {
    size_t length;
    uint64_t seed;
    uint64_t expected;
  };
  const std::vector<Case> cases = {
      {1, 0, 0xC44BDFF4074EECDBU},   {1, kSeed, 0x032BE332DD766EF8U},
      {6, 0, 0x27B56A84CD2D7325U},   {6, kSeed, 0x84589C116AB59AB9U},
      {24, 0, 0xA3FE70BF9D3510EBU},  {24, kSeed, 0x850E80FC35BDD690U},
      {195, 0, 0xCD94217EE362EC3AU}, {195, kSeed, 0xBA68003D370CB3D9U},
  };
  for (const Case& c : cases) {
    CAPTURE(c.length);
    const std::string text = sanity_input(c.length);
    CHECK(xxh3_64_seeded(c.seed, text) == c.expected);
    CHECK(xxh3_64_seeded(c.seed, text.substr(0, c.length / 2), text.substr(c.length / 2)) ==
          c.expected);
  }
}

TEST_CASE("XXH3-128 of nothing is the published value in big-endian order") {
  CHECK(hex(xxh3_128({})) == "99aa06d3014798d86001c324468d497f");
}

}  // namespace headrace::base
