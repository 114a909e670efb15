// SPDX-License-Identifier: Apache-2.0
// A TCP port that a rank may listen at later.
#pragma once

#include <cstdint>
#include <utility>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/wire/endpoint.h"

namespace headrace::run {

/// A port that nobody listens at, held for this process: no other launcher on this machine takes it
/// while the object lives. It lies below the ports that the kernel gives to outgoing connections.
/// The port itself is left open, for the rank.
class HR_API ReservedPort {
 public:
  /// `busy` when none is found.
  static Result<ReservedPort> take();
  uint16_t number() const { return number_; }

 private:
  ReservedPort(uint16_t number, wire::Listener hold) : number_(number), hold_(std::move(hold)) {}
  uint16_t number_;
  wire::Listener hold_;  // a name in Linux' abstract space, which goes with this process
};

}  // namespace headrace::run
