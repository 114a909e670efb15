// SPDX-License-Identifier: Apache-2.0
// Talk to the job's meeting point: set, get, wait, count, compare.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/wire/channel.h"
#include "headrace/wire/endpoint.h"
#include "headrace/wire/secret.h"
#include "headrace/wire/store.h"

namespace headrace::wire {

struct StoreClientOptions {
  Endpoint endpoint = {};
  std::string job_id = {};
  uint64_t generation = 0;         ///< what this process believes; told to the server, not compared
  const Secret* secret = nullptr;  ///< borrowed for connect(); null: none
  bool insecure = false;           ///< allow a server of the network without a secret
};

/// What compare_and_set() found and did.
struct Swap {
  bool done = false;
  std::optional<std::string> value;  ///< the key's value now; none when it is not there
};

/// One connection to a StoreServer. Move-only. Not thread-safe: one client per thread, so that a
/// long wait of one holds nobody else up.
///
/// Every call ends by its deadline; errors name the server and the keys. A lost connection is made
/// again, with pauses, until the deadline; the request is repeated then where that changes nothing:
/// in all calls but add() and compare_and_set(), which give `io` when it is not known whether the
/// server has done it. Codes: `timeout`; `io`; `auth_failed`, `mismatch`, `corrupt` from the
/// handshake; `out_of_memory` (the server's bounds), `invalid_argument` (a key or value above its).
class HR_API StoreClient {
 public:
  /// Connect, as long as the server is not up yet until the deadline. `invalid_argument` for a
  /// server that is not on this machine, without a secret, unless `insecure`.
  static Result<StoreClient> connect(const StoreClientOptions& options,
                                     const base::Deadline& deadline);

  /// A time to live above zero lets the key end then, unless it is set again before.
  Result<void> set(std::string_view key, std::string_view value, const base::Deadline& deadline,
                   base::Micros time_to_live = base::Micros::zero());
  Result<std::optional<std::string>> get(std::string_view key, const base::Deadline& deadline);
  /// Wait until all keys are there at once. The `timeout` names those that are missing.
  Result<void> wait(std::span<const std::string> keys, const base::Deadline& deadline);
  /// Wait until at least `count` keys begin with `prefix`; how many do. The `timeout` says how many
  /// there are.
  Result<int64_t> wait_count(std::string_view prefix, int64_t count,
                             const base::Deadline& deadline);
  /// Add to the whole number that a key holds as text, 0 when it is not there; the sum.
  /// `mismatch` when the value is no number.
  Result<int64_t> add(std::string_view key, int64_t number, const base::Deadline& deadline);
  /// Set a key if its value is `expected`; nullopt: if it is not there.
  Result<Swap> compare_and_set(std::string_view key, std::optional<std::string_view> expected,
                               std::string_view value, const base::Deadline& deadline,
                               base::Micros time_to_live = base::Micros::zero());
  /// Whether it was there.
  Result<bool> remove(std::string_view key, const base::Deadline& deadline);
  /// All keys that begin with `prefix`, sorted, with their values. Larger lists come in parts: keys
  /// that come and go meanwhile may be in it or not.
  Result<std::vector<std::pair<std::string, std::string>>> list(std::string_view prefix,
                                                                const base::Deadline& deadline);

  const Endpoint& endpoint() const { return options_.endpoint; }

 private:
  struct Call;
  explicit StoreClient(const StoreClientOptions& options);
  Result<void> reconnect(const base::Deadline& deadline);
  Result<StoreMessage> call(Call call, const base::Deadline& deadline);
  Result<StoreMessage> attempt(const Call& call, const base::Deadline& deadline, bool* sent);
  Error error_of(const Call& call, const StoreMessage& answer, base::Micros limit) const;

  StoreClientOptions options_;
  std::optional<Secret> secret_;
  std::optional<Channel> channel_;
  uint64_t next_id_ = 1;
};

}  // namespace headrace::wire
