// SPDX-License-Identifier: Apache-2.0
#include "headrace/wire/handshake.h"

#include <fmt/format.h>

#include <algorithm>

#include "headrace/base/check.h"
#include "headrace/base/printable.h"
#include "headrace/base/random.h"
#include "headrace/wire/crypto_internal.h"
#include "headrace/wire/little_endian_internal.h"

namespace headrace::wire {

namespace {

constexpr std::string_view kMagic = "HRWIRE";
constexpr uint16_t kVersion = 1;
constexpr size_t kStartBytes = 8;  // magic and version, which hello and challenge begin with
constexpr size_t kHelloBytes = 40;
constexpr size_t kChallengeBytes = 64;
constexpr size_t kChallengeHeadBytes = 32;  // before its proof
constexpr size_t kProofBytes = 32;
constexpr size_t kVerdictHeadBytes = 16;  // before its tag
constexpr size_t kVerdictBytes = 32;
constexpr size_t kJobIdBytesMax = 255;
constexpr uint8_t kSecuredFlag = 1;

enum Verdict : uint16_t {
  accepted = 0,
  other_job = 1,
  other_generation = 2,
  other_service = 3,
  full = 4
};

std::string start_text() {
  std::string out(kMagic);
  put<uint16_t>(&out, kVersion);
  return out;
}

Secret no_secret() {
  const std::array<std::byte, Secret::kBytes> zeros = {};
  return Secret::from_bytes(zeros);
}

}  // namespace

std::string_view service_name(Service service) {
  switch (service) {
    case Service::store: return "store";
    case Service::control: return "control";
    case Service::data: return "data";
    case Service::agent: return "agent";
  }
  return "unknown service";
}

Nonce make_nonce() {
  Nonce nonce;
  base::random_bytes(nonce);
  return nonce;
}

Result<Handshake> Handshake::make(Side side, const HandshakeOptions& options, const Nonce& nonce) {
  if (options.job_id.size() > kJobIdBytesMax) {
    return Error{Errc::invalid_argument, fmt::format("the job id has {} bytes; at most {} may be",
                                                     options.job_id.size(), kJobIdBytesMax)};
  }
  return Handshake(side, options, nonce);
}

Handshake::Handshake(Side side, const HandshakeOptions& options, const Nonce& nonce)
    : side_(side),
      state_(side == Side::initiator ? State::start : State::hello),
      options_(options),
      key_(options.secret != nullptr ? options.secret->copy() : no_secret()),
      secured_(options.secret != nullptr),
      nonce_(nonce),
      peer_service_(options.service) {
  options_.secret = nullptr;
}

void Handshake::fail(Step* step, Errc code, std::string message) {
  state_ = State::failed;
  step->error = Error{code, std::move(message)};
}

size_t Handshake::wanted() const {
  switch (state_) {
    case State::hello:
      return message_.size() < kHelloBytes ? kHelloBytes
                                           : kHelloBytes + get<uint16_t>(message_, 10);
    case State::challenge: return kChallengeBytes;
    case State::proof: return kProofBytes;
    case State::verdict: return kVerdictBytes;
    default: return 0;
  }
}

/// What the bytes so far say of their sender: the first one that is wrong ends it.
std::optional<Error> Handshake::check_start() const {
  const size_t count = std::min(message_.size(), kMagic.size());
  if (std::string_view(message_).substr(0, count) != kMagic.substr(0, count)) {
    return Error{Errc::corrupt,
                 "it does not speak headrace's protocol; is it another program's port?"};
  }
  if (message_.size() >= kStartBytes && get<uint16_t>(message_, 6) != kVersion) {
    return Error{Errc::mismatch,
                 fmt::format("it speaks version {} of the protocol, this process version {}; use "
                             "one release of headrace on all machines",
                             get<uint16_t>(message_, 6), kVersion)};
  }
  if (state_ == State::hello && message_.size() >= 12 &&
      get<uint16_t>(message_, 10) > kJobIdBytesMax) {
    return Error{Errc::corrupt,
                 fmt::format("its hello says a job id of {} bytes; at most {} may be",
                             get<uint16_t>(message_, 10), kJobIdBytesMax)};
  }
  return std::nullopt;
}

Handshake::Step Handshake::step(std::string_view in) {
  Step step;
  if (state_ == State::start) {
    step.out = start_text();
    put<uint8_t>(&step.out, secured_ ? kSecuredFlag : 0);
    put<uint8_t>(&step.out, static_cast<uint8_t>(options_.service));
    put(&step.out, static_cast<uint16_t>(options_.job_id.size()));
    put<uint32_t>(&step.out, 0U);
    step.out += text_of(nonce_);
    put<uint64_t>(&step.out, options_.generation);
    step.out += options_.job_id;
    transcript_ = step.out;
    state_ = State::challenge;
  }
  while (state_ != State::done && state_ != State::failed) {
    const size_t more = std::min(wanted() - message_.size(), in.size() - step.taken);
    message_ += in.substr(step.taken, more);
    step.taken += more;
    if (state_ == State::hello || state_ == State::challenge) {
      if (auto wrong = check_start()) {
        if (wrong->code() == Errc::mismatch && side_ == Side::acceptor) {
          step.out += start_text();  // the other side can then say which versions met
        }
        state_ = State::failed;
        step.error = std::move(wrong);
        break;
      }
    }
    if (message_.size() < wanted()) {
      // wanted() grows once the length of a hello's job id is there
      if (step.taken == in.size()) {
        break;
      }
      continue;
    }
    handle(&step);
    message_.clear();
  }
  step.done = state_ == State::done;
  return step;
}

void Handshake::handle(Step* step) {
  heard_ = true;
  switch (state_) {
    case State::hello: return on_hello(step);
    case State::challenge: return on_challenge(step);
    case State::proof: return on_proof(step);
    case State::verdict: return on_verdict(step);
    default: return;
  }
}

std::string Handshake::proof_of(Side side) const {
  const bool initiator = side == Side::initiator;
  const Digest digest = hmac_sha256(
      key_.bytes(), {initiator ? "headrace wire 1 initiator" : "headrace wire 1 acceptor",
                     transcript_, initiator ? acceptor_proof_ : std::string()});
  return std::string(text_of(digest));
}

void Handshake::derive(std::string_view initiator_nonce, std::string_view acceptor_nonce) {
  const std::string salt = std::string(initiator_nonce) + std::string(acceptor_nonce);
  std::array<std::byte, 3 * Secret::kBytes> material;
  hkdf_sha256(bytes_of(salt), key_.bytes(), "headrace wire 1 keys" + transcript_, material);
  const std::span all(material);
  Secret to_acceptor = Secret::from_bytes(all.subspan<0, Secret::kBytes>());
  Secret to_initiator = Secret::from_bytes(all.subspan<Secret::kBytes, Secret::kBytes>());
  verdict_key_ = Secret::from_bytes(all.subspan<2 * Secret::kBytes, Secret::kBytes>());
  wipe(material);
  if (side_ == Side::initiator) {
    keys_ = SessionKeys{.send = std::move(to_acceptor), .receive = std::move(to_initiator)};
  } else {
    keys_ = SessionKeys{.send = std::move(to_initiator), .receive = std::move(to_acceptor)};
  }
}

void Handshake::on_hello(Step* step) {
  const auto flags = get<uint8_t>(message_, 8);
  peer_service_ = static_cast<Service>(get<uint8_t>(message_, 9));
  const std::string_view nonce = std::string_view(message_).substr(16, 16);
  peer_generation_ = get<uint64_t>(message_, 32);
  const std::string job_id = message_.substr(kHelloBytes);

  transcript_ = message_;
  std::string head = start_text();
  put<uint8_t>(&head, secured_ ? kSecuredFlag : 0);
  head.append(7, '\0');
  head += text_of(nonce_);
  transcript_ += head;
  step->out += head;
  if (((flags & kSecuredFlag) != 0) != secured_) {
    step->out.append(kProofBytes, '\0');  // the flags tell the other side why there is none
    return fail(step, Errc::auth_failed,
                secured_ ? "it has no secret, and this job has one"
                         : "it has a secret, and this side was started without one");
  }
  acceptor_proof_ = proof_of(Side::acceptor);
  step->out += acceptor_proof_;
  derive(nonce, text_of(nonce_));

  // Told only to who has proved itself; the reason here is for our own log.
  const bool known = peer_service_ >= Service::store && peer_service_ <= Service::agent;
  if (options_.any_service ? !known : peer_service_ != options_.service) {
    verdict_ = other_service;
  } else if (job_id != options_.job_id) {
    verdict_ = other_job;
  } else if (!options_.any_generation && peer_generation_ != options_.generation) {
    verdict_ = other_generation;
  } else if (options_.full) {
    verdict_ = full;
  }
  state_ = State::proof;
}

void Handshake::on_challenge(Step* step) {
  const bool secured = (get<uint8_t>(message_, 8) & kSecuredFlag) != 0;
  if (secured != secured_) {
    return fail(step, Errc::auth_failed,
                secured_
                    ? "it has no secret, and this job has one: is it a server of another job, "
                      "or one that was started without HEADRACE_SECRET_FILE?"
                    : "it wants a secret, and this process has none: set HEADRACE_SECRET_FILE");
  }
  transcript_ += std::string_view(message_).substr(0, kChallengeHeadBytes);
  acceptor_proof_ = message_.substr(kChallengeHeadBytes);
  const std::string expected = proof_of(Side::acceptor);
  if (!equal_in_constant_time(bytes_of(acceptor_proof_), bytes_of(expected))) {
    return fail(step, Errc::auth_failed,
                "it has another secret than this process: give both the secret of one job");
  }
  derive(text_of(nonce_), std::string_view(message_).substr(16, 16));
  step->out += proof_of(Side::initiator);
  state_ = State::verdict;
}

void Handshake::on_proof(Step* step) {
  if (!equal_in_constant_time(bytes_of(message_), bytes_of(proof_of(Side::initiator)))) {
    return fail(step, Errc::auth_failed, "it has another secret than this job");
  }
  const size_t begin = step->out.size();
  put<uint16_t>(&step->out, verdict_);
  step->out.append(6, '\0');
  put<uint64_t>(&step->out, options_.any_generation ? 0 : options_.generation);
  const Digest tag =
      hmac_sha256(verdict_key_->bytes(), {std::string_view(step->out).substr(begin)});
  step->out += text_of(tag).substr(0, kVerdictBytes - kVerdictHeadBytes);
  if (verdict_ == accepted) {
    state_ = State::done;
    return;
  }
  const std::string job_id = transcript_.substr(kHelloBytes, get<uint16_t>(transcript_, 10));
  switch (verdict_) {
    case other_service:
      return fail(step, Errc::mismatch,
                  fmt::format("it wants the service {}, this is {}",
                              service_name(static_cast<Service>(get<uint8_t>(transcript_, 9))),
                              service_name(options_.service)));
    case other_job:
      return fail(step, Errc::mismatch,
                  fmt::format("it belongs to job \"{}\", this is job \"{}\"",
                              base::printable(job_id), options_.job_id));
    case other_generation:
      return fail(step, Errc::mismatch,
                  fmt::format("it is of generation {}, the job is at {}", peer_generation_,
                              options_.generation));
    default: return fail(step, Errc::busy, "there is no room for one more");
  }
}

void Handshake::on_verdict(Step* step) {
  const std::string_view all = message_;
  const Digest tag = hmac_sha256(verdict_key_->bytes(), {all.substr(0, kVerdictHeadBytes)});
  if (!equal_in_constant_time(bytes_of(all.substr(kVerdictHeadBytes)),
                              std::span(tag).first(kVerdictBytes - kVerdictHeadBytes))) {
    return fail(step, Errc::corrupt, "its last answer of the handshake was altered on the way");
  }
  peer_generation_ = get<uint64_t>(all, 8);
  switch (get<uint16_t>(all, 0)) {
    case accepted: state_ = State::done; return;
    case other_job:
      return fail(step, Errc::mismatch,
                  fmt::format("it serves another job than \"{}\"", options_.job_id));
    case other_generation:
      return fail(step, Errc::mismatch,
                  fmt::format("the job is at generation {}, this process at {}", peer_generation_,
                              options_.generation));
    case other_service:
      return fail(step, Errc::mismatch,
                  fmt::format("it is not the job's {}", service_name(options_.service)));
    case full: return fail(step, Errc::busy, "it has as many clients as it takes");
    default:
      return fail(step, Errc::mismatch,
                  fmt::format("it answers with {}, which version {} of the protocol does not know",
                              get<uint16_t>(all, 0), kVersion));
  }
}

SessionKeys Handshake::take_keys() {
  HR_CHECK(state_ == State::done && keys_.has_value(), "the handshake is not done");
  SessionKeys keys = *std::move(keys_);
  keys_.reset();
  return keys;
}

}  // namespace headrace::wire
