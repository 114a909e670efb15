// SPDX-License-Identifier: Apache-2.0
// Many children, one descriptor to wait for.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/proc/child.h"

namespace headrace::proc {

using ChildId = int64_t;  ///< 1, 2, ... in the order of starting; never used twice

/// Own children and tell of their ends. Not thread-safe. The destructor kills all groups and waits
/// at most 5 s.
class HR_API Supervisor {
 public:
  struct Ended {
    ChildId id = 0;
    Exit exit;
  };

  /// `children_max` bounds what runs at once.
  static Result<Supervisor> make(int64_t children_max = 4096);
  Supervisor(Supervisor&&) noexcept;
  Supervisor& operator=(Supervisor&&) noexcept;
  ~Supervisor();

  /// Readable when poll() has something to do; for an event loop.
  int event_fd() const;
  /// `busy` when `children_max` run already; else as Child::spawn.
  Result<ChildId> start(ChildOptions options);
  /// Wait up to `limit` for something to happen, deliver lines, act on timeouts; returns the
  /// children that ended. They are forgotten then.
  std::vector<Ended> poll(Millis limit);
  /// A running child, or nullptr.
  Child* find(ChildId id);
  int64_t running() const;
  /// Stop all: SIGTERM, `grace`, SIGKILL; returns those that ended within `grace` + 5 s.
  std::vector<Ended> stop_all(std::string_view reason, Millis grace);

 private:
  struct State;
  explicit Supervisor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace headrace::proc
