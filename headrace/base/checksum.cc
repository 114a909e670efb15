// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/checksum.h"

#include <sodium.h>

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace headrace::base {

uint64_t xxh3_64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}
uint64_t xxh3_64(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

uint64_t xxh3_64_seeded(uint64_t seed, std::string_view first, std::string_view second) {
  XXH3_state_t state = {};
  XXH3_64bits_reset_withSeed(&state, seed);
  XXH3_64bits_update(&state, first.data(), first.size());
  XXH3_64bits_update(&state, second.data(), second.size());
  return XXH3_64bits_digest(&state);
}

namespace {

std::array<std::byte, 16> canonical_bytes(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  std::array<std::byte, 16> out = {};
  std::memcpy(out.data(), canonical.digest, out.size());
  return out;
}

}  // namespace

std::array<std::byte, 16> xxh3_128(std::span<const std::byte> bytes) {
  return canonical_bytes(XXH3_128bits(bytes.data(), bytes.size()));
}

struct Xxh3Stream128::State {
  XXH3_state_t hash;  // asks for 64 bytes of alignment, which operator new of C++17 honours
};

Xxh3Stream128::Xxh3Stream128() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->hash);
  XXH3_128bits_reset(&state_->hash);
}
Xxh3Stream128::Xxh3Stream128(Xxh3Stream128&&) noexcept = default;
Xxh3Stream128& Xxh3Stream128::operator=(Xxh3Stream128&&) noexcept = default;
Xxh3Stream128::~Xxh3Stream128() = default;

void Xxh3Stream128::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->hash, bytes.data(), bytes.size());
}

std::array<std::byte, 16> Xxh3Stream128::finish() const {
  return canonical_bytes(XXH3_128bits_digest(&state_->hash));
}

struct Blake2b256::State {
  crypto_generichash_state hash;
};

Blake2b256::Blake2b256() : state_(std::make_unique<State>()) {
  crypto_generichash_init(&state_->hash, nullptr, 0, 32);
}
Blake2b256::Blake2b256(Blake2b256&&) noexcept = default;
Blake2b256& Blake2b256::operator=(Blake2b256&&) noexcept = default;
Blake2b256::~Blake2b256() = default;

void Blake2b256::update(std::span<const std::byte> bytes) {
  crypto_generichash_update(&state_->hash, reinterpret_cast<const unsigned char*>(bytes.data()),
                            bytes.size());
}

std::array<std::byte, 32> Blake2b256::finish() {
  std::array<std::byte, 32> out = {};
  crypto_generichash_final(&state_->hash, reinterpret_cast<unsigned char*>(out.data()), out.size());
  return out;
}

std::string hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) {
    out.push_back(kDigits[std::to_integer<unsigned>(b) >> 4U]);
    out.push_back(kDigits[std::to_integer<unsigned>(b) & 15U]);
  }
  return out;
}

}  // namespace headrace::base
