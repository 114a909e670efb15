// SPDX-License-Identifier: Apache-2.0
#include <sodium.h>

#include <algorithm>

#include "headrace/base/check.h"
#include "headrace/wire/crypto_internal.h"

namespace headrace::wire {

namespace {

const unsigned char* raw(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

Digest hmac_sha256(std::span<const std::byte> key, std::initializer_list<std::string_view> parts) {
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, raw(key), key.size());
  for (const std::string_view part : parts) {
    crypto_auth_hmacsha256_update(&state, raw(bytes_of(part)), part.size());
  }
  Digest digest;
  crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(digest.data()));
  sodium_memzero(&state, sizeof state);
  return digest;
}

void hkdf_sha256(std::span<const std::byte> salt, std::span<const std::byte> key,
                 std::string_view info, std::span<std::byte> out) {
  HR_CHECK(out.size() <= size_t{255} * 32, "HKDF-SHA256 gives at most 8,160 bytes");
  Digest extracted = hmac_sha256(salt, {text_of(key)});
  Digest block = {};
  size_t filled = 0;
  for (unsigned char number = 1; filled < out.size(); ++number) {
    const char counter = static_cast<char>(number);
    // T(0) is empty, T(n) = HMAC(PRK, T(n - 1) | info | n).
    const std::string_view previous = number == 1 ? std::string_view() : text_of(block);
    block = hmac_sha256(extracted, {previous, info, std::string_view(&counter, 1)});
    const size_t take = std::min(block.size(), out.size() - filled);
    std::copy_n(block.begin(), take, out.begin() + static_cast<std::ptrdiff_t>(filled));
    filled += take;
  }
  wipe(extracted);
  wipe(block);
}

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

void wipe(std::span<std::byte> bytes) { sodium_memzero(bytes.data(), bytes.size()); }

}  // namespace headrace::wire
