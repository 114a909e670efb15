// SPDX-License-Identifier: Apache-2.0
// The job's meeting point as a state machine: keys, values, and who waits for what. No sockets, no
// clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/export.h"
#include "headrace/base/result.h"

namespace headrace::wire {

/// What a client asks. The number is the type of its frame; the answer's has kStoreAnswerBit too.
enum class StoreOp : uint16_t {
  set = 1,
  get = 2,
  wait = 3,
  add = 4,
  compare_and_set = 5,
  remove = 6,
  list = 7,
  wait_count = 8,
};
inline constexpr uint16_t kStoreAnswerBit = 0x80;

enum class StoreStatus : uint32_t {
  ok = 0,
  not_found = 1,
  timeout = 2,
  mismatch = 3,  ///< the value is no number
  full = 4,      ///< a bound of the server; the answer's text says which
  refused = 5,   ///< the request makes no sense; the text says why
};

/// A request or an answer. What the fields mean for each operation: docs/formats/wire.md.
struct StoreMessage {
  uint64_t id = 0;  ///< chosen by the client; the answer has it too
  int64_t number = 0;
  uint64_t detail = 0;  ///< of a request milliseconds, of an answer its StoreStatus
  std::vector<std::string> texts = {};
  bool operator==(const StoreMessage&) const = default;
};
HR_API std::string encode_store_message(const StoreMessage& message);
/// `corrupt` for whatever encode_store_message does not write.
HR_API Result<StoreMessage> decode_store_message(std::string_view payload);

struct StoreLimits {
  size_t key_bytes_max = 1024;
  size_t value_bytes_max = size_t{8} << 20;
  size_t total_bytes_max = size_t{256} << 20;  ///< keys, values and what keeping them costs
  size_t wait_keys_max = 4'000'000;            ///< keys that all waits together name
  size_t waits_per_client_max = 16;
  size_t list_bytes_max = size_t{4} << 20;     ///< of one answer; the client asks for the rest
  uint64_t wait_ms_max = 24ULL * 3600 * 1000;  ///< longer waits end then
};

/// Keys and values in memory, with waits and times to live. Events come in with their time, answers
/// are taken out. Setting n keys and waiting for their count costs O(n log n) for all n ranks
/// together. Not thread-safe.
class HR_API StoreState {
 public:
  using Client = uint64_t;
  struct Answer {
    Client client = 0;
    StoreOp op = StoreOp::get;
    StoreMessage message;
  };
  explicit StoreState(const StoreLimits& limits = {}) : limits_(limits) {}

  /// A request; its answer is there at once, but for waits.
  void on_request(Client client, StoreOp op, StoreMessage request, base::Micros now);
  /// The client has gone: what it waited for does not matter any more.
  void on_client_gone(Client client);
  /// Time passes: keys and waits end. Call it at next_time() or soon after.
  void on_time(base::Micros now);
  std::optional<base::Micros> next_time() const;
  std::vector<Answer> take_answers() { return std::exchange(answers_, {}); }

  size_t keys() const { return entries_.size(); }
  size_t bytes() const { return bytes_; }
  size_t waits() const { return waits_.size(); }

 private:
  using WaitId = uint64_t;
  using Time = base::Micros;
  struct Entry {
    std::string value;
    std::optional<Time> ends;
  };
  struct Wait {
    Client client = 0;
    uint64_t request = 0;
    StoreOp op = StoreOp::wait;
    Time ends = {};
    std::vector<std::string> keys;  // sorted; of wait_count the prefix alone
    size_t missing = 0;             // keys that are not there
    int64_t count = 0;              // of wait_count: how many there must be
  };
  struct Prefix {
    int64_t count = 0;                           // keys that begin so
    std::set<std::pair<int64_t, WaitId>> waits;  // by the count they wait for
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  void set(Client client, const StoreMessage& request, Time now);
  void get(Client client, const StoreMessage& request);
  void wait(Client client, StoreMessage request, Time now);
  void add(Client client, const StoreMessage& request);
  void compare_and_set(Client client, const StoreMessage& request, Time now);
  void remove(Client client, const StoreMessage& request);
  void list(Client client, const StoreMessage& request);
  void wait_count(Client client, const StoreMessage& request, Time now);

  std::optional<std::string> bad_request(StoreOp op, const StoreMessage& request) const;
  void answer(Client client, StoreOp op, uint64_t request, StoreStatus status, int64_t number = 0,
              std::vector<std::string> texts = {});
  bool put(const std::string& key, std::string value, std::optional<Time> ends);
  void erase(Entries::iterator at);
  void key_came(const std::string& key);
  void key_went(const std::string& key);
  bool may_wait(Client client, const StoreMessage& request, StoreOp op, size_t keys);
  WaitId begin_wait(Wait wait);
  void end_wait(WaitId id, StoreStatus status);
  void forget_wait(WaitId id);
  std::vector<std::string> missing_of(const Wait& wait) const;

  const StoreLimits limits_;
  Entries entries_;
  size_t bytes_ = 0;
  std::set<std::pair<Time, std::string>> expiries_;
  std::unordered_map<WaitId, Wait> waits_;
  std::set<std::pair<Time, WaitId>> wait_ends_;
  std::map<std::string, std::set<WaitId>, std::less<>> waits_by_key_;
  std::map<std::string, Prefix, std::less<>> prefixes_;
  std::unordered_map<Client, std::set<WaitId>> waits_by_client_;
  size_t wait_keys_ = 0;
  WaitId next_wait_ = 1;
  std::vector<Answer> answers_;
};

}  // namespace headrace::wire
