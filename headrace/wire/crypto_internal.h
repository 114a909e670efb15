// SPDX-License-Identifier: Apache-2.0
// The two functions that the handshake and the frames are made of: HMAC-SHA-256 and HKDF-SHA256.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace headrace::wire {

using Digest = std::array<std::byte, 32>;

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// HMAC-SHA-256 (RFC 2104, RFC 4231) of the parts, one behind the other.
Digest hmac_sha256(std::span<const std::byte> key, std::initializer_list<std::string_view> parts);

/// HKDF with SHA-256 (RFC 5869): fill `out`, at most 255 * 32 bytes.
void hkdf_sha256(std::span<const std::byte> salt, std::span<const std::byte> key,
                 std::string_view info, std::span<std::byte> out);

/// Compare in constant time; unequal lengths are unequal.
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);

/// Overwrite, in a way the compiler does not take out.
void wipe(std::span<std::byte> bytes);

}  // namespace headrace::wire
