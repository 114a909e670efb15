// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/run_state.h"

namespace headrace::flow {

std::string_view status_name(Status status) {
  switch (status) {
    case Status::queued: return "Queued";
    case Status::in_progress: return "InProgress";
    case Status::succeeded: return "Succeeded";
    case Status::failed: return "Failed";
    case Status::skipped: return "Skipped";
    case Status::canceling: return "Canceling";
    case Status::cancelled: return "Cancelled";
  }
  return "Queued";
}

bool is_final(Status status) {
  return status == Status::succeeded || status == Status::failed || status == Status::skipped ||
         status == Status::cancelled;
}

}  // namespace headrace::flow
