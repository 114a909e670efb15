// SPDX-License-Identifier: Apache-2.0
#include "headrace/wire/store_client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "headrace/base/printable.h"
#include "headrace/wire/socket_internal.h"

namespace headrace::wire {

namespace {

using base::Micros;
using std::chrono::milliseconds;

constexpr Micros kPauseFirst = milliseconds(10);
constexpr Micros kPauseMost = std::chrono::seconds(1);
// The server ends a wait this much before the client does, so that its answer, which names what is
// missing, is there in time.
constexpr Micros kAnswerMargin = milliseconds(50);
constexpr size_t kNamedKeysMax = 8;

uint64_t milliseconds_of(Micros duration) {
  const auto count =
      std::chrono::ceil<milliseconds>(std::min<Micros>(duration, std::chrono::hours(24)));
  return static_cast<uint64_t>(std::max<int64_t>(0, count.count()));
}

/// What a wait tells the server of the time that is left.
uint64_t wait_milliseconds(Micros left) {
  const Micros most = std::min<Micros>(left, std::chrono::hours(24));
  const Micros margin = std::min(kAnswerMargin, most / 4);
  return static_cast<uint64_t>(std::chrono::floor<milliseconds>(most - margin).count());
}

/// "a", "b" and 3 more
std::string names_text(std::span<const std::string> keys, size_t all) {
  std::string out;
  const size_t named = std::min(keys.size(), kNamedKeysMax);
  for (size_t i = 0; i < named; ++i) {
    out += fmt::format("{}\"{}\"", i == 0 ? "" : ", ", base::printable(keys[i]));
  }
  return all > named ? fmt::format("{} and {} more", out, all - named) : out;
}

/// Whether another connection may do better.
bool may_pass(const Error& error) { return error.code() == Errc::io || error.code() == Errc::busy; }

}  // namespace

/// One request, and how to speak of it.
struct StoreClient::Call {
  StoreOp op = StoreOp::get;
  StoreMessage request;
  std::string what;  // "setting \"a\""
  bool repeatable = true;
  bool waits = false;
};

StoreClient::StoreClient(const StoreClientOptions& options) : options_(options) {
  if (options.secret != nullptr) {
    secret_ = options.secret->copy();
  }
  options_.secret = nullptr;
}

Result<StoreClient> StoreClient::connect(const StoreClientOptions& options,
                                         const base::Deadline& deadline) {
  if (options.secret == nullptr && !options.insecure && !options.endpoint.is_loopback()) {
    return Error{
        Errc::invalid_argument,
        fmt::format("store {}: not without a secret: whoever answers at that address could "
                    "steer the job. Give this process the job's secret "
                    "(HEADRACE_SECRET_FILE)",
                    options.endpoint.text())};
  }
  StoreClient client(options);
  if (auto connected = client.reconnect(deadline); !connected.ok()) {
    return std::move(connected.error().add_context("store"));
  }
  return client;
}

/// Connect until it works, the deadline passes, or trying again cannot help.
Result<void> StoreClient::reconnect(const base::Deadline& deadline) {
  const HandshakeOptions handshake{.service = Service::store,
                                   .job_id = options_.job_id,
                                   .generation = options_.generation,
                                   .secret = secret_.has_value() ? &*secret_ : nullptr};
  Backoff backoff(kPauseFirst, kPauseMost);
  std::string before;  // why the try before the last one ended
  for (;;) {
    auto channel = Channel::connect(options_.endpoint, handshake, deadline, {.retry = true});
    if (channel.ok()) {
      channel_ = *std::move(channel);
      return {};
    }
    Error error = std::move(channel).error();
    if (!may_pass(error) || deadline.passed()) {
      const Errc code = may_pass(error) ? Errc::timeout : error.code();
      std::string text = error.message();
      if (code == Errc::timeout && !before.empty()) {
        text += fmt::format(" (before that, {})", before);
      }
      return Error{code, std::move(text)};
    }
    before = error.message();
    backoff.wait(deadline);
  }
}

/// Send the request over the connection there is, and wait for its answer.
Result<StoreMessage> StoreClient::attempt(const Call& call, const base::Deadline& deadline,
                                          bool* sent) {
  StoreMessage request = call.request;
  request.id = next_id_++;
  if (call.waits) {
    request.detail = wait_milliseconds(deadline.left());
  }
  Frame frame{
      .type = static_cast<uint16_t>(call.op), .flags = 0, .payload = encode_store_message(request)};
  *sent = true;  // from here on the server may have it
  HR_TRY(channel_->send(frame, deadline));
  for (;;) {
    HR_TRY(frame, channel_->receive(deadline));
    HR_TRY(StoreMessage answer, decode_store_message(frame.payload), channel_->peer());
    if (answer.id == request.id) {
      return answer;
    }
    // The answer to a call whose deadline passed: nobody waits for it any more.
  }
}

Error StoreClient::error_of(const Call& call, const StoreMessage& answer, Micros limit) const {
  const std::string front = fmt::format("store {}: {}", options_.endpoint.text(), call.what);
  const std::string why =
      answer.texts.empty() ? "no reason was given" : base::printable(answer.texts.front());
  switch (static_cast<StoreStatus>(answer.detail)) {
    case StoreStatus::timeout:
      if (call.op == StoreOp::wait_count) {
        return Error{Errc::timeout, fmt::format("{}: there are {} after {}", front, answer.number,
                                                duration_text(limit))};
      }
      return Error{Errc::timeout,
                   fmt::format("{}: after {} missing: {}", front, duration_text(limit),
                               names_text(answer.texts, static_cast<size_t>(answer.number)))};
    case StoreStatus::mismatch: return Error{Errc::mismatch, front + ": " + why};
    case StoreStatus::full: return Error{Errc::out_of_memory, front + ": " + why};
    case StoreStatus::refused: return Error{Errc::invalid_argument, front + ": " + why};
    default:
      return Error{Errc::corrupt,
                   fmt::format("{}: the server answers with the status {}", front, answer.detail)};
  }
}

Result<StoreMessage> StoreClient::call(Call call, const base::Deadline& deadline) {
  const Micros limit = deadline.left();
  Backoff backoff(kPauseFirst, kPauseMost);
  std::string lost;  // what ended the connection, when it was ended
  for (;;) {
    bool sent = false;
    Result<StoreMessage> answer = StoreMessage();
    if (!channel_.has_value()) {
      if (auto connected = reconnect(deadline); !connected.ok()) {
        answer = std::move(connected).error();
      }
    }
    if (channel_.has_value()) {
      answer = attempt(call, deadline, &sent);
    }
    if (answer.ok()) {
      const auto status = static_cast<StoreStatus>(answer->detail);
      if (status == StoreStatus::ok || status == StoreStatus::not_found) {
        return answer;
      }
      if (status == StoreStatus::timeout && deadline.left() > 2 * kAnswerMargin) {
        continue;  // the server's own bound for waits is shorter than the deadline
      }
      return error_of(call, *answer, limit);
    }
    Error error = std::move(answer).error();
    if (error.code() != Errc::timeout) {
      channel_.reset();
    }
    const bool again = error.code() == Errc::io && (call.repeatable || !sent);
    if (!again || deadline.passed()) {
      std::string text =
          fmt::format("store {}: {}: {}", options_.endpoint.text(), call.what, error.message());
      if (!lost.empty()) {
        text += fmt::format(" (before that, {})", lost);
      }
      if (sent && !call.repeatable) {
        text += "; it is not known whether the server did it";
      }
      return Error{again ? Errc::timeout : error.code(), std::move(text)};
    }
    lost = error.message();
    backoff.wait(deadline);
  }
}

// ---- calls ----

Result<void> StoreClient::set(std::string_view key, std::string_view value,
                              const base::Deadline& deadline, Micros time_to_live) {
  HR_TRY(call({.op = StoreOp::set,
               .request = {.detail = milliseconds_of(time_to_live),
                           .texts = {std::string(key), std::string(value)}},
               .what = fmt::format("setting \"{}\"", base::printable(key))},
              deadline));
  return {};
}

Result<std::optional<std::string>> StoreClient::get(std::string_view key,
                                                    const base::Deadline& deadline) {
  HR_TRY(StoreMessage answer, call({.op = StoreOp::get,
                                    .request = {.texts = {std::string(key)}},
                                    .what = fmt::format("getting \"{}\"", base::printable(key))},
                                   deadline));
  if (static_cast<StoreStatus>(answer.detail) == StoreStatus::not_found || answer.texts.empty()) {
    return std::optional<std::string>();
  }
  return std::optional<std::string>(std::move(answer.texts.front()));
}

Result<void> StoreClient::wait(std::span<const std::string> keys, const base::Deadline& deadline) {
  if (keys.empty()) {
    return {};
  }
  HR_TRY(call({.op = StoreOp::wait,
               .request = {.texts = std::vector<std::string>(keys.begin(), keys.end())},
               .what = "waiting for " + names_text(keys, keys.size()),
               .waits = true},
              deadline));
  return {};
}

Result<int64_t> StoreClient::wait_count(std::string_view prefix, int64_t count,
                                        const base::Deadline& deadline) {
  HR_TRY(const StoreMessage answer,
         call({.op = StoreOp::wait_count,
               .request = {.number = count, .texts = {std::string(prefix)}},
               .what = fmt::format("waiting for {} keys \"{}...\"", count, base::printable(prefix)),
               .waits = true},
              deadline));
  return answer.number;
}

Result<int64_t> StoreClient::add(std::string_view key, int64_t number,
                                 const base::Deadline& deadline) {
  HR_TRY(const StoreMessage answer,
         call({.op = StoreOp::add,
               .request = {.number = number, .texts = {std::string(key)}},
               .what = fmt::format("adding {} to \"{}\"", number, base::printable(key)),
               .repeatable = false},
              deadline));
  return answer.number;
}

Result<Swap> StoreClient::compare_and_set(std::string_view key,
                                          std::optional<std::string_view> expected,
                                          std::string_view value, const base::Deadline& deadline,
                                          Micros time_to_live) {
  StoreMessage request{.detail = milliseconds_of(time_to_live),
                       .texts = {std::string(key), std::string(value)}};
  if (expected.has_value()) {
    request.texts.emplace_back(*expected);
  }
  HR_TRY(StoreMessage answer,
         call({.op = StoreOp::compare_and_set,
               .request = std::move(request),
               .what = fmt::format("comparing and setting \"{}\"", base::printable(key)),
               .repeatable = false},
              deadline));
  Swap swap{.done = answer.number != 0, .value = std::nullopt};
  if (!answer.texts.empty()) {
    swap.value = std::move(answer.texts.front());
  }
  return swap;
}

Result<bool> StoreClient::remove(std::string_view key, const base::Deadline& deadline) {
  HR_TRY(const StoreMessage answer,
         call({.op = StoreOp::remove,
               .request = {.texts = {std::string(key)}},
               .what = fmt::format("removing \"{}\"", base::printable(key))},
              deadline));
  return answer.number != 0;
}

Result<std::vector<std::pair<std::string, std::string>>> StoreClient::list(
    std::string_view prefix, const base::Deadline& deadline) {
  std::vector<std::pair<std::string, std::string>> out;
  for (;;) {
    const std::string behind = out.empty() ? std::string() : out.back().first;
    HR_TRY(StoreMessage answer,
           call({.op = StoreOp::list,
                 .request = {.texts = {std::string(prefix), behind}},
                 .what = fmt::format("listing \"{}...\"", base::printable(prefix))},
                deadline));
    for (size_t i = 0; i + 1 < answer.texts.size(); i += 2) {
      out.emplace_back(std::move(answer.texts[i]), std::move(answer.texts[i + 1]));
    }
    if (answer.number == 0 || answer.texts.empty()) {
      return out;
    }
  }
}

}  // namespace headrace::wire
