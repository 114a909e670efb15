// SPDX-License-Identifier: Apache-2.0
// Whatever bytes another rank sends as its news, a negotiator takes them or refuses them, and two
// of them that take the same messages stay equal.
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/check.h"
#include "headrace/comm/negotiate/negotiator.h"

namespace {

using headrace::comm::Negotiator;
using headrace::comm::Response;

/// Up to the next byte 0xFF.
std::string_view take_piece(std::string_view& rest) {
  const size_t end = rest.find('\xFF');
  const std::string_view piece = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return piece;
}

std::string text_of(const std::vector<Response>& responses) {
  std::string text;
  for (const Response& one : responses) {
    text += std::to_string(static_cast<int>(one.what)) + (one.error ? one.error->message() : "");
    for (const auto& tensor : one.tensors) {
      text += tensor->name + ";";
      HR_CHECK(tensor->requests.size() == 2, "one request per rank");
    }
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const headrace::comm::NegotiatorOptions options = {.fusion_bytes = 4096, .cache_capacity = 3};
  Negotiator first(0, {0, 1}, options);
  Negotiator second(1, {0, 1}, options);
  for (int turn = 0; turn < 8 && !rest.empty(); ++turn) {
    const std::string_view messages[] = {take_piece(rest), take_piece(rest)};
    const auto one = first.receive(messages, {});
    const auto other = second.receive(messages, {});
    HR_CHECK(one.ok() == other.ok(), "both ranks take the same");
    if (!one.ok()) {
      return 0;
    }
    HR_CHECK(text_of(*one) == text_of(*other), "both ranks do the same");
    static_cast<void>(first.stall_report(first.stalled(headrace::base::Micros{1}), {}));
  }
  const auto request =
      headrace::comm::decode_request(std::string_view(reinterpret_cast<const char*>(data), size));
  if (request.ok()) {
    const auto again = headrace::comm::decode_request(encode(*request));
    HR_CHECK(again.ok() && encode(*again) == encode(*request), "what was read can be written");
  }
  return 0;
}
