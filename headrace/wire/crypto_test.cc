// SPDX-License-Identifier: Apache-2.0
// Expected values are those of RFC 4231 (section 4) and RFC 5869 (appendix A).
#include <doctest/doctest.h>

#include <string>

#include "headrace/base/checksum.h"
#include "headrace/wire/crypto_internal.h"

namespace headrace::wire {

namespace {

/// `count` bytes that begin with `first` and grow by one.
std::string counting(int first, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    out.push_back(static_cast<char>(first + i));
  }
  return out;
}

std::string hmac_hex(const std::string& key, std::string_view text) {
  const std::string_view half = text.substr(0, text.size() / 2);
  const Digest parts = hmac_sha256(bytes_of(key), {half, text.substr(half.size())});
  CHECK(parts == hmac_sha256(bytes_of(key), {text}));
  return base::hex(parts);
}

std::string hkdf_hex(const std::string& salt, const std::string& key, const std::string& info,
                     size_t bytes) {
  std::string out(bytes, '\0');
  hkdf_sha256(bytes_of(salt), bytes_of(key), info,
              std::as_writable_bytes(std::span(out.data(), out.size())));
  return base::hex(bytes_of(out));
}

}  // namespace

TEST_CASE("HMAC-SHA-256 gives the values of RFC 4231") {
  CHECK(hmac_hex(std::string(20, '\x0b'), "Hi There") ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hmac_hex("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hmac_hex(std::string(20, '\xaa'), std::string(50, '\xdd')) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(hmac_hex(counting(1, 25), std::string(50, '\xcd')) ==
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  CHECK(hmac_hex(std::string(131, '\xaa'),
                 "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  CHECK(hmac_hex(std::string(131, '\xaa'),
                 "This is a test using a larger than block-size key and a larger than block-size "
                 "data. The key needs to be hashed before being used by the HMAC algorithm.") ==
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST_CASE("HKDF-SHA256 gives the values of RFC 5869") {
  CHECK(hkdf_hex(counting(0, 13), std::string(22, '\x0b'), counting(0xf0, 10), 42) ==
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
  CHECK(hkdf_hex(counting(0x60, 80), counting(0, 80), counting(0xb0, 80), 82) ==
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e"
        "590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87");
  CHECK(hkdf_hex("", std::string(22, '\x0b'), "", 42) ==
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8");
}

TEST_CASE("bytes are compared by length and content") {
  CHECK(equal_in_constant_time(bytes_of("abc"), bytes_of("abc")));
  CHECK_FALSE(equal_in_constant_time(bytes_of("abc"), bytes_of("abd")));
  CHECK_FALSE(equal_in_constant_time(bytes_of("abc"), bytes_of("ab")));
}

}  // namespace headrace::wire
