// SPDX-License-Identifier: Apache-2.0
// State of one ForEach that runs: its items, what they left behind, and how they failed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headrace/flow/engine.h"
#include "headrace/flow/likeness_internal.h"

namespace headrace::flow {

struct ActivityRun;
struct Scope;

/// What an iteration did to one variable.
struct VariableChange {
  bool set = false;
  Json value;            ///< with `set`
  Json::Array appended;  ///< after that
};
using VariableChanges = std::map<std::string, VariableChange, std::less<>>;

/// Failures of items that look alike.
struct ErrorGroup {
  std::string message;
  std::string activity;
  int64_t count = 0;
  std::vector<std::string> keys;  ///< the first three
  std::string log;                ///< of the first
};

struct ForEachRun {
  ItemList items;
  int64_t next = 0;  ///< index of the item to start next
  int64_t running = 0;
  int64_t batch = 1;
  int64_t succeeded = 0;
  int64_t failed = 0;
  int64_t skipped = 0;
  int64_t cancelled = 0;
  int64_t cancelled_waiting = 0;  ///< of these, with an index of `next` or above
  bool stopped = false;           ///< nothing more starts
  FailureBudget budget;
  std::map<int64_t, std::unique_ptr<Scope>> live;
  std::vector<Status> statuses;      ///< by item
  std::vector<std::string> outputs;  ///< by item, JSON text; empty unless an expression may look
  std::vector<ErrorGroup> errors;    ///< bounded
  int64_t errors_left_out = 0;
  std::unique_ptr<ItemFailure> first_failure;
  bool all_alike = true;     ///< every failure so far is like the first
  int64_t broken_after = 0;  ///< failures after which the circuit breaker stopped it; 0: it did not
  /// By variable: the value set by the highest index so far, and all appended elements by index.
  struct Merge {
    int64_t set_index = -1;
    Json value;
    std::map<int64_t, Json::Array> appended;
  };
  std::map<std::string, Merge, std::less<>> variables;
};

/// An item of a ForEach that runs.
struct ItemPlace {
  ForEachRun* loop = nullptr;
  const ActivityRun* run = nullptr;
  int64_t index = 0;
};

}  // namespace headrace::flow
