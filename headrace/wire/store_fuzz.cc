// SPDX-License-Identifier: Apache-2.0
// Whatever comes over a connection, cutting it into frames ends with frames or an error; whatever
// clients ask, the store answers each request at most once and keeps its bounds.
#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "headrace/base/check.h"
#include "headrace/wire/frame.h"
#include "headrace/wire/store.h"

namespace {

using headrace::wire::FrameReader;
using headrace::wire::Secret;
using headrace::wire::StoreLimits;
using headrace::wire::StoreOp;
using headrace::wire::StoreState;
using std::chrono::milliseconds;

/// The frames of `bytes`, told as texts, and "corrupt" where they end.
std::vector<std::string> frames_of(std::string_view bytes, size_t piece) {
  const std::array<std::byte, Secret::kBytes> key = {};
  FrameReader reader(Secret::from_bytes(key), 4096);
  std::vector<std::string> out;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    reader.append(bytes.substr(at, piece));
    for (;;) {
      auto frame = reader.next();
      if (!frame.ok()) {
        out.emplace_back("corrupt");
        return out;
      }
      if (!frame->has_value()) {
        break;
      }
      static_cast<void>(headrace::wire::decode_store_message((*frame)->payload));
      out.push_back(std::to_string((*frame)->type) + (*frame)->payload);
    }
  }
  return out;
}

/// Requests of a few clients: per request a byte of client and operation, one of time that passes,
/// two of length, then its message.
void run_requests(std::string_view bytes) {
  StoreLimits limits;
  limits.key_bytes_max = 16;
  limits.value_bytes_max = 64;
  limits.total_bytes_max = 4096;
  limits.wait_keys_max = 32;
  limits.waits_per_client_max = 4;
  limits.list_bytes_max = 64;
  limits.wait_ms_max = 1000;
  StoreState state(limits);
  headrace::base::Micros now = std::chrono::hours(1);
  size_t asked = 0;
  size_t answered = 0;
  while (bytes.size() >= 4) {
    const auto first = static_cast<unsigned char>(bytes[0]);
    now += milliseconds(static_cast<unsigned char>(bytes[1]));
    const size_t length =
        static_cast<unsigned char>(bytes[2]) + (size_t{static_cast<unsigned char>(bytes[3])} << 8U);
    const std::string_view payload = bytes.substr(4, length);
    bytes.remove_prefix(4 + payload.size());
    const StoreState::Client client = first >> 4U;
    auto message = headrace::wire::decode_store_message(payload);
    if (message.ok()) {
      HR_CHECK(headrace::wire::encode_store_message(*message) == payload, "written otherwise");
      state.on_request(client, static_cast<StoreOp>(first & 15U), *std::move(message), now);
      ++asked;
    } else {
      state.on_client_gone(client);
    }
    answered += state.take_answers().size();
    HR_CHECK(answered + state.waits() <= asked, "more answers than questions");
    HR_CHECK(state.bytes() <= limits.total_bytes_max, "above the bound");
  }
  state.on_time(now + std::chrono::hours(1));
  HR_CHECK(state.waits() == 0, "a wait without end");
  HR_CHECK(!state.next_time().has_value(), "time goes on for nothing");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if ((data[0] & 1U) != 0) {
    const auto whole = frames_of(rest, size);
    HR_CHECK(frames_of(rest, size / 3 + 1) == whole, "frames depend on how their bytes came");
  } else {
    run_requests(rest);
  }
  return 0;
}
