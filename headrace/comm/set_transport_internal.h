// SPDX-License-Identifier: Apache-2.0
// What a process set needs of whatever carries its bytes.
#pragma once

#include <memory>
#include <optional>

#include "headrace/base/clock.h"
#include "headrace/base/result.h"
#include "headrace/comm/algo/call.h"
#include "headrace/comm/algo/operation.h"

namespace headrace::comm {

class ShmTransport;

/// start(), the sleeping functions, called(), look_for_failure() and next_begun() are for whoever
/// drives the set, one thread at a time; the others are thread-safe.
class SetTransport {
 public:
  virtual ~SetTransport() = default;

  /// Of this process, in the set.
  virtual int rank() const = 0;

  /// The next operation of the set. `call` must outlive it.
  virtual std::unique_ptr<Operation> start(const Call& call) = 0;
  /// Between two operations: some other rank is known to be in the next one already.
  virtual bool next_begun() = 0;

  /// `rank` has closed the set, in order.
  virtual bool closed(int rank) const = 0;
  /// Have the others told of what has broken here, if anything; failure() knows once they decided.
  virtual void look_for_failure() {}
  /// What another rank has found the set to have failed with.
  virtual std::optional<Error> failure() = 0;
  /// Tell all ranks of a failure; the first one known here counts and is returned.
  virtual Error spread(const Error& error) = 0;
  /// Another rank has told of a failure: as spread(), but the others know.
  virtual void hear(const Error& error) = 0;
  /// Take part no longer, and let the others know.
  virtual void leave() = 0;

  /// To sleep: begin_sleep(), look once more whether there is nothing to do, doze(), end_sleep().
  virtual uint32_t begin_sleep() = 0;
  virtual void doze(uint32_t ticket, base::Micros most) = 0;
  virtual void end_sleep() = 0;
  /// Wake whoever sleeps so.
  virtual void wake() = 0;
  /// For ranks that begin operations when one of them has something to do. `next` and `ours` are
  /// numbers of operations of the set. Ask the others to begin operation `next` - 1 too.
  virtual void call_others(uint32_t next) = 0;
  /// Another rank has begun, or called to, an operation from `ours` on.
  virtual bool called(uint32_t ours) = 0;
  /// Like the sleeping functions above, until another rank calls.
  virtual uint32_t begin_idle() { return begin_sleep(); }
  virtual void doze_idle(uint32_t ticket, base::Micros most) { doze(ticket, most); }
  virtual void end_idle() { end_sleep(); }
  virtual void wake_idle() { wake(); }

  /// `rank`, whom this rank waits for, was last seen on the core of this thread.
  virtual bool shares_core_with(int) const { return false; }
  /// This one, if all ranks of the set share memory.
  virtual ShmTransport* shared_memory() { return nullptr; }

  /// The thread that drives several sets sleeps at the node's bell: ring it when there is something
  /// new to look at, once. For what rings the bell anyway there is nothing to do.
  virtual void ring_bell_once() = 0;
};

}  // namespace headrace::comm
