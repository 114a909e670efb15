// SPDX-License-Identifier: Apache-2.0
// Requests and answers as bytes. Layout: docs/formats/wire.md.
#include <fmt/format.h>

#include "headrace/wire/little_endian_internal.h"
#include "headrace/wire/store.h"

namespace headrace::wire {

namespace {

constexpr size_t kHeadBytes = 28;

Error corrupt(std::string_view why) {
  return Error{Errc::corrupt, fmt::format("a store message {}", why)};
}

}  // namespace

std::string encode_store_message(const StoreMessage& message) {
  std::string out;
  size_t bytes = kHeadBytes;
  for (const std::string& text : message.texts) {
    bytes += sizeof(uint32_t) + text.size();
  }
  out.reserve(bytes);
  wire::put(&out, message.id);
  wire::put(&out, message.number);
  wire::put(&out, message.detail);
  wire::put(&out, static_cast<uint32_t>(message.texts.size()));
  for (const std::string& text : message.texts) {
    wire::put(&out, static_cast<uint32_t>(text.size()));
    out += text;
  }
  return out;
}

Result<StoreMessage> decode_store_message(std::string_view payload) {
  if (payload.size() < kHeadBytes) {
    return corrupt(
        fmt::format("has {} bytes, at least {} are its head", payload.size(), kHeadBytes));
  }
  StoreMessage message;
  message.id = wire::get<uint64_t>(payload, 0);
  message.number = wire::get<int64_t>(payload, 8);
  message.detail = wire::get<uint64_t>(payload, 16);
  const auto count = wire::get<uint32_t>(payload, 24);
  std::string_view rest = payload.substr(kHeadBytes);
  if (count > rest.size() / sizeof(uint32_t)) {
    return corrupt(fmt::format("says it has {} texts in {} bytes", count, rest.size()));
  }
  message.texts.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    if (rest.size() < sizeof(uint32_t)) {
      return corrupt(fmt::format("ends before text {} of {}", i, count));
    }
    const auto bytes = wire::get<uint32_t>(rest, 0);
    rest.remove_prefix(sizeof(uint32_t));
    if (bytes > rest.size()) {
      return corrupt(fmt::format("ends within text {} of {}", i, count));
    }
    message.texts.emplace_back(rest.substr(0, bytes));
    rest.remove_prefix(bytes);
  }
  if (!rest.empty()) {
    return corrupt(fmt::format("has {} bytes behind its last text", rest.size()));
  }
  return message;
}

}  // namespace headrace::wire
