// SPDX-License-Identifier: Apache-2.0
// How the ranks of a job come to have a Network: addresses through the store, then connections.
#pragma once

#include <memory>

#include "headrace/comm/rendezvous_internal.h"
#include "headrace/comm/transport/network.h"

namespace headrace::comm {

/// Listen, tell all ranks where, and connect with all. All ranks call it; where one of them fails
/// all get an error, as a rule its.
Result<std::shared_ptr<Network>> join_network(const Config& config, const StoreTable& store,
                                              const Meeting& meeting, const NetworkEvents& events);

/// A Network for messages between ranks that share memory: local sockets, no control connections.
Result<std::shared_ptr<Network>> open_mailbox(const Config& config, const Meeting& meeting,
                                              NetworkEvents events);

}  // namespace headrace::comm
