// SPDX-License-Identifier: Apache-2.0
// Checksums and content names, one function each: XXH3 for records, BLAKE2b-256 for
// content-addressed objects.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/export.h"

namespace headrace::base {

/// XXH3, 64 bits (Yann Collet's xxHash 0.8 specification).
HR_API uint64_t xxh3_64(std::span<const std::byte> bytes);
HR_API uint64_t xxh3_64(std::string_view text);
/// The same with a seed, over `first` followed by `second` as if they were one text.
HR_API uint64_t xxh3_64_seeded(uint64_t seed, std::string_view first, std::string_view second = {});
/// XXH3, 128 bits, canonical (big-endian) byte order.
HR_API std::array<std::byte, 16> xxh3_128(std::span<const std::byte> bytes);

/// XXH3-128 of bytes that come in pieces; `finish` gives what xxh3_128 gives for all of them.
class HR_API Xxh3Stream128 {
 public:
  Xxh3Stream128();
  Xxh3Stream128(Xxh3Stream128&&) noexcept;
  Xxh3Stream128& operator=(Xxh3Stream128&&) noexcept;
  ~Xxh3Stream128();
  void update(std::span<const std::byte> bytes);
  std::array<std::byte, 16> finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// BLAKE2b with 32 bytes of output and no key (RFC 7693): what `b2sum -l 256` prints.
class HR_API Blake2b256 {
 public:
  Blake2b256();
  Blake2b256(Blake2b256&&) noexcept;
  Blake2b256& operator=(Blake2b256&&) noexcept;
  ~Blake2b256();
  void update(std::span<const std::byte> bytes);
  std::array<std::byte, 32> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Lower-case hex.
HR_API std::string hex(std::span<const std::byte> bytes);

}  // namespace headrace::base
