// SPDX-License-Identifier: Apache-2.0
// Cancelling a run, or one of its items, from another process.
#include <fmt/format.h>

#include <algorithm>

#include "headrace/base/clock.h"
#include "headrace/flow/replay.h"
#include "headrace/flow/run.h"
#include "headrace/flow/run_folder_internal.h"
#include "headrace/flow/run_list.h"

namespace headrace::flow {

namespace {

/// What the journal says of the run, and of one of its items.
struct Standing {
  Status run = Status::queued;
  std::optional<Status> item;
};

Result<Standing> read_standing(const base::Path& run_folder, std::string_view item) {
  Standing standing;
  ReplayOptions options;
  options.on_report = [&](const Report& report) {
    if (report.kind == Report::Kind::item && report.key == item) {
      standing.item = report.status;
    }
  };
  options.on_restart = [&] { standing.item.reset(); };
  options.run_folder = run_folder;
  Replay replay(std::move(options));
  HR_TRY(base::AppendLog::read(
      journal_path(run_folder),
      [&](uint8_t type, std::string_view payload) { return replay.on_record(type, payload); }));
  if (replay.empty()) {
    return standing;
  }
  standing.run = replay.engine().status();
  if (const auto open = replay.engine().item_status(item)) {
    standing.item = open;
  }
  return standing;
}

Error nothing_to_cancel(std::string what) {
  return Error{Errc::not_found, std::move(what) + ", so there is nothing to cancel"};
}

Result<void> check_item(const base::Path& run_folder, std::string_view item) {
  HR_TRY(const Standing standing, read_standing(run_folder, item));
  if (!standing.item) {
    return Error{Errc::not_found,
                 fmt::format("no ForEach that has begun has an item '{}'; headrace flow status {} "
                             "--items lists them",
                             item, run_reference(run_folder))};
  }
  if (is_final(*standing.item)) {
    return nothing_to_cancel(
        fmt::format("item '{}' has ended already: {}", item, status_name(*standing.item)));
  }
  return {};
}

/// The engine has taken the request for an item: what came of it? False: not written down yet.
Result<bool> item_cancelled(const base::Path& run_folder, std::string_view item) {
  HR_TRY(const Standing standing, read_standing(run_folder, item));
  if (!standing.item || *standing.item == Status::cancelled ||
      *standing.item == Status::canceling) {
    return true;  // of a loop inside an item nothing is left when the loop is over
  }
  if (is_final(*standing.item)) {
    return nothing_to_cancel(fmt::format("item '{}' ended before the request reached it: {}", item,
                                         status_name(*standing.item)));
  }
  return false;
}

/// The engine is gone.
Result<void> judge_end(const base::Path& run_folder, std::string_view item) {
  HR_TRY(const Standing standing, read_standing(run_folder, item));
  if (standing.run == Status::cancelled || standing.item == Status::cancelled) {
    return {};
  }
  if (is_final(standing.run)) {
    return nothing_to_cancel(fmt::format("{} ended before the request reached it: {}",
                                         run_folder.string(), status_name(standing.run)));
  }
  return Error{
      Errc::not_found,
      fmt::format("{} is not being run any more, but it is not cancelled: its engine was "
                  "stopped before it took the request; go on with: headrace flow resume {}",
                  run_folder.string(), run_reference(run_folder))};
}

}  // namespace

Result<void> cancel_run(const base::Path& run_folder, std::string_view item,
                        std::chrono::milliseconds timeout) {
  constexpr base::Micros kPauseMax = std::chrono::milliseconds(500);
  const base::Deadline deadline = base::Deadline::in(timeout);
  const auto holder = lock_holder(run_folder);
  if (!holder) {
    return nothing_to_cancel(run_folder.string() + " is not being run now");
  }
  if (!item.empty()) {
    HR_TRY(check_item(run_folder, item));
  }
  HR_TRY(request_cancel(run_folder, item));
  // The engine takes the request (the file goes), writes it down, and gives the run back when all
  // is stopped.
  for (base::Micros pause = std::chrono::milliseconds(10);;
       pause = std::min(pause * 2, kPauseMax)) {
    std::error_code code;
    const bool taken = !std::filesystem::exists(cancel_path(run_folder), code);
    if (!lock_holder(run_folder)) {
      drop_cancel_requests(run_folder);
      return judge_end(run_folder, item);
    }
    if (taken && !item.empty()) {
      HR_TRY(const bool done, item_cancelled(run_folder, item));
      if (done) {
        return {};
      }
    }
    if (deadline.passed()) {
      drop_cancel_requests(run_folder);
      return Error{Errc::timeout,
                   fmt::format("{} did not {} within {} ms", *holder,
                               taken ? "stop" : "take the request", timeout.count())};
    }
    base::sleep_for(std::min<base::Micros>(pause, deadline.left()));
  }
}

}  // namespace headrace::flow
