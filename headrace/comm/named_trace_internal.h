// SPDX-License-Identifier: Apache-2.0
// What a NamedSet tells a timeline.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

#include "headrace/comm/negotiate/negotiator.h"
#include "headrace/comm/timeline.h"

namespace headrace::comm {

/// The engine's thread calls it; without a timeline nothing is done.
class NamedTrace {
 public:
  void set_timeline(std::shared_ptr<Timeline> timeline);
  bool is_on() const { return timeline_ != nullptr; }

  void cycle();
  /// NEGOTIATE_<OP>: from the first rank that is ready, each with a mark, to the last.
  void ready(const std::string& name, NamedKind kind, int rank);
  /// <OP>, with QUEUE in it until the activity that follows.
  void decided(const Response& response);
  /// An activity of all tensors of a response in place of the one before; empty: none.
  void activity(const Response& response, std::string_view what);
  void done(const Response& response);

 private:
  std::shared_ptr<Timeline> timeline_;
  std::unordered_set<std::string> negotiating_;
  std::unordered_set<std::string> decided_;
  std::unordered_set<std::string> active_;
};

}  // namespace headrace::comm
