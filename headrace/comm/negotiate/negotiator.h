// SPDX-License-Identifier: Apache-2.0
// Who has what ready, and what is to be done next: the named mode without its I/O.
//
// All ranks of a process set exchange what is new with them, all of it with all, and each feeds the
// same messages into its own copy of this state machine. So all copies stay equal and all ranks
// come to the same decisions, without one that decides for the others.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/result.h"
#include "headrace/comm/negotiate/autotune.h"
#include "headrace/comm/negotiate/request.h"

namespace headrace::comm {

struct NegotiatorOptions {
  uint64_t fusion_bytes = uint64_t{128} << 20;  ///< that tensors done together may have; 0: none
  uint32_t cache_capacity = 1024;               ///< names whose requests are remembered; 0: none
  bool group_fusion = true;                     ///< groups may be fused with other tensors
  std::string settings = {};  ///< compared once with the other ranks', for all that must be equal
};

/// A name, and what the ranks want done under it.
struct Agreed {
  std::string name;
  /// By rank; null for ranks that have joined before they submitted it.
  std::vector<std::shared_ptr<const Request>> requests;

  const Request& any() const;  ///< of the first rank that has one
  bool is_whole() const;       ///< all ranks have one
};
/// All ranks have it ready.
using ReadyTensor = std::shared_ptr<const Agreed>;

/// What all ranks do next.
struct Response {
  enum class What : uint8_t {
    run,       ///< one tensor, or several allreduces of one kind, type and scale
    fail,      ///< `error` for these tensors
    joined,    ///< all ranks have joined, `rank` last
    shutdown,  ///< the end, asked for by `rank`, with `error` for everything pending
  };
  What what = What::run;
  std::vector<ReadyTensor> tensors = {};
  std::optional<Error> error = {};
  int rank = -1;  ///< of this set
};

/// A name that some ranks wait for.
struct Stall {
  std::string name;
  base::Micros since{};      ///< when the first rank said that it is ready
  std::vector<int> ready;    ///< ranks of this set
  std::vector<int> missing;  ///< ranks of this set
};

class Negotiator {
 public:
  /// `world_ranks` of the set, for messages.
  Negotiator(int rank, std::vector<int> world_ranks, NegotiatorOptions options);

  /// This rank has it ready; `encoded` is its request. The caller sees to it that no name is
  /// pending twice.
  void submit(const std::string& name, const std::string& encoded);
  void join();
  /// All ranks are to use this from the turn of the next message on. Rank 0 of the set alone.
  void tune(const Tuned& tuned);
  /// What all ranks use since the last receive(), if that has changed it.
  std::optional<Tuned> take_tuned() { return std::exchange(tuned_, std::nullopt); }
  /// Ask for the end of all operations on all ranks.
  void shutdown(Errc code, std::string_view reason);

  /// There is something that the others do not know.
  bool has_news() const { return !news_.empty() || !slots_ready_.empty(); }
  /// What is new, for all ranks; it counts as sent.
  std::string message();
  /// Take the messages of all ranks, by rank. `corrupt` when one cannot be read.
  Result<std::vector<Response>> receive(std::span<const std::string_view> messages,
                                        base::Micros now);

  /// Called from receive() for each rank that has a tensor ready; null: nobody asks.
  using Observer = std::function<void(const std::string& name, NamedKind kind, int rank)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

  /// Some rank waits for others.
  bool waiting() const {
    return !table_.empty() || slots_waiting_ > 0 || joined_count_ > 0 || !groups_.empty();
  }
  /// What this rank has had ready for longest, and a rank that has not; nullopt: nothing.
  struct Wait {
    const std::string* name = nullptr;  ///< until the next change
    NamedKind kind = NamedKind::all_reduce;
    int missing = -1;  ///< rank of this set
  };
  std::optional<Wait> oldest_wait() const;
  /// Names that have waited since before `since`, the oldest first.
  std::vector<Stall> stalled(base::Micros since) const;
  /// One text for all of these, for people: who waits how long for whom, what the missing ranks
  /// wait for themselves, and what they did last. `now` is on the clock of receive().
  std::string stall_report(const std::vector<Stall>& stalls, base::Micros now) const;

 private:
  struct Entry {
    std::vector<std::shared_ptr<const Request>> requests;
    base::Micros since{};
    uint64_t order = 0;  // of its first submission
  };
  /// A name that was agreed on before. Who has it ready again is counted here, without its name,
  /// as long as all say it by the number of the slot.
  struct Slot {
    ReadyTensor agreed;
    std::vector<std::string> encoded;  // by rank
    uint64_t used = 0;
    std::vector<bool> ready;  // by rank
    uint32_t ready_count = 0;
    base::Micros since{};
    uint64_t order = 0;
  };
  struct Group {
    base::Micros since{};
    uint64_t order = 0;
    uint32_t size = 0;
    std::vector<ReadyTensor> ready;
    std::optional<Error> error;
  };

  std::optional<Error> compare_settings();
  bool take_message(int rank, std::string_view message, base::Micros now);
  void take(int rank, const std::string& name, std::shared_ptr<const Request> request,
            base::Micros now);
  bool take_slots(int rank, MessageReader& in, base::Micros now);
  void remember_name(int rank, const std::string& name);
  /// What is counted in the slot goes to the table of names.
  void spill(Slot& slot);
  bool is_ready(const Entry& entry) const;
  void release_ready(std::vector<Response>& out);
  void release(const ReadyTensor& tensor, std::optional<Error> error, std::vector<Response>& out);
  void fail_groups_of(const Agreed& tensor, const Error& error, std::vector<Response>& out);
  void release_one(const ReadyTensor& tensor, const std::optional<Error>& error,
                   std::vector<Response>& out);
  void remember(const ReadyTensor& tensor);
  uint32_t free_slot();
  std::optional<Error> check(const Agreed& tensor) const;
  std::string nearest_pending(const std::string& name, int rank) const;

  const int rank_;
  const std::vector<int> world_ranks_;
  NegotiatorOptions options_;  // fusion_bytes changes, on all ranks in the same turn
  std::optional<Tuned> tuned_;

  bool settings_sent_ = false;
  std::vector<std::string> settings_;  // by rank
  base::Micros now_{};                 // of the turn under way
  std::vector<uint32_t> slots_ready_;  // of this rank, not sent yet
  std::string news_;                   // the rest, encoded

  std::unordered_map<std::string, Entry> table_;
  std::vector<std::string> touched_;  // names of the table, by the messages under way
  std::vector<uint32_t> slots_full_;  // that all ranks have ready, by the messages under way
  std::vector<ReadyTensor> to_run_;   // of this turn
  std::unordered_map<std::string, Group> groups_;
  std::vector<bool> joined_;
  int joined_count_ = 0;
  int joined_last_ = -1;
  bool joined_now_ = false;
  std::optional<Response> end_;

  std::vector<Slot> slots_;
  uint32_t slots_waiting_ = 0;  // that some ranks have ready
  std::unordered_map<std::string, uint32_t> slot_of_;
  uint64_t clock_ = 0;                               // of uses of slots
  uint64_t orders_ = 0;                              // of entries
  std::vector<std::deque<std::string>> last_names_;  // by rank
  Observer observer_;
};

/// What is to be run, allreduces that may be done together in one response.
std::vector<Response> fuse(std::vector<ReadyTensor> tensors, const NegotiatorOptions& options);

/// What is wrong when ranks do not agree on a tensor; nullopt when all is well.
std::optional<Error> check_agreement(const std::string& name,
                                     std::span<const std::shared_ptr<const Request>> requests,
                                     std::span<const int> world_ranks);

/// Of the first rank that has one; there is one.
const Request& first_request(std::span<const std::shared_ptr<const Request>> requests);

/// "rank 3", "ranks 0-2, 5", at most eight of them.
std::string ranks_text(std::span<const int> ranks);

}  // namespace headrace::comm
