// SPDX-License-Identifier: Apache-2.0
// Whatever a stranger sends, a handshake ends with an error or waits; how the bytes were cut makes
// no difference. Secret and nonces are those of docs/formats/wire.md, so that its messages, which
// are in the corpus, lead through all steps.
#include <string>

#include "headrace/base/check.h"
#include "headrace/wire/handshake.h"

namespace {

using headrace::wire::Handshake;
using headrace::wire::Nonce;
using headrace::wire::Secret;
using headrace::wire::Side;

/// How it ended, and what was sent.
std::string outcome(Side side, const headrace::wire::HandshakeOptions& options,
                    std::string_view bytes, size_t piece) {
  Nonce nonce;
  nonce.fill(side == Side::initiator ? std::byte{0x11} : std::byte{0x22});
  auto handshake = Handshake::make(side, options, nonce);
  HR_CHECK(handshake.ok(), "a fixed job id");
  std::string sent = handshake->step({}).out;
  size_t taken = 0;
  while (taken < bytes.size()) {
    const std::string_view some = bytes.substr(taken, piece);
    const Handshake::Step step = handshake->step(some);
    HR_CHECK(step.taken <= some.size(), "took more than there was");
    HR_CHECK(!(step.done && step.error.has_value()), "done with an error");
    sent += step.out;
    taken += step.taken;
    if (step.error.has_value()) {
      return sent + step.error->message();
    }
    if (step.done) {
      static_cast<void>(handshake->take_keys());
      return sent + "done " + std::to_string(taken);
    }
    HR_CHECK(step.taken == some.size(), "neither ended nor took all");
  }
  HR_CHECK(taken <= headrace::wire::kHandshakeBytesMax, "a handshake without end");
  return sent + "waiting";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  std::array<std::byte, Secret::kBytes> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(i);
  }
  const Secret secret = Secret::from_bytes(bytes);
  headrace::wire::HandshakeOptions options{.job_id = "job-7", .generation = 3};
  options.secret = (data[0] & 2U) != 0 ? &secret : nullptr;
  options.any_generation = (data[0] & 4U) != 0;
  const Side side = (data[0] & 1U) != 0 ? Side::initiator : Side::acceptor;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string whole = outcome(side, options, rest, size);
  HR_CHECK(outcome(side, options, rest, 1) == whole, "the end depends on how the bytes came");
  HR_CHECK(outcome(side, options, rest, 7) == whole, "the end depends on how the bytes came");
  return 0;
}
