// SPDX-License-Identifier: Apache-2.0
// Reductions of 32-bit floats that travel in 16 bits.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "headrace/comm/set_transport_internal.h"

namespace headrace::comm {

/// The next operation of a set, in 16 bits where the call says so. `scratch` is kept from operation
/// to operation; it and the call must outlive this one.
std::unique_ptr<Operation> start_operation(SetTransport& transport, const Call& call,
                                           std::vector<std::byte>& scratch);

}  // namespace headrace::comm
