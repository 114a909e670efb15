// SPDX-License-Identifier: Apache-2.0
// How candidates and methods are called where people read them.
#pragma once

#include <string>
#include <string_view>

namespace headrace::jobs {

/// In tables: as it is called in files ("local+naive"), but for the naive methods, which compete
/// with the intervals of their past errors: "seasonal naive (intervals)". Their rows in a
/// comparison with what came are point forecasts, and called "seasonal naive" and "Naive2".
std::string candidate_label(std::string_view candidate);

/// In full: "DeepAR local, averaged with seasonal naive".
std::string spoken_candidate(std::string_view candidate);

}  // namespace headrace::jobs
