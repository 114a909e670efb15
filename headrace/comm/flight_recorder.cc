// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "headrace/base/dtype.h"
#include "headrace/base/log.h"
#include "headrace/comm/algo/call.h"
#include "headrace/comm/flight_recorder_internal.h"
#include "headrace/comm/negotiate/request.h"

namespace headrace::comm {

namespace {

Json time_of(base::Micros at) { return at == base::Micros{} ? Json() : Json(at.count()); }

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

Json json_of(const Error& error) {
  Json json =
      Json::object({{"code", errc_name(error.code())}, {"message", utf8_text(error.message())}});
  if (error.origin()) {
    json.set("rank", error.origin()->rank);
    json.set("host", error.origin()->host);
    json.set("pid", error.origin()->pid);
  }
  return json;
}

}  // namespace

bool SetFlight::set_failure(const Error& error) {
  const base::MutexLock lock(mutex_);
  if (failure_) {
    return false;
  }
  failure_ = error;
  return true;
}

Json SetFlight::json_of(const FlightEntry& entry) const {
  const auto kind = static_cast<Kind>(entry.kind);
  const auto named = static_cast<NamedKind>(entry.kind);
  Json one =
      Json::object({{"sequence", entry.sequence},
                    {"name", utf8_text(entry.name)},
                    {"kind", is_named_ ? named_kind_name(named) : kind_name(kind)},
                    {"dtype", dtype_name(static_cast<Dtype>(entry.dtype))},
                    {"bytes", entry.bytes},
                    {"state", flight_state_name(entry.state)},
                    {"algorithm", is_named_ ? Json() : Json(algorithm_name(entry.algorithm))},
                    {"submit_us", time_of(entry.submitted)},
                    {"start_us", time_of(entry.started)},
                    {"end_us", time_of(entry.ended)}});
  if (is_named_ ? is_reduction(named) : is_reduction(kind)) {
    one.set("op", op_name(static_cast<Op>(entry.op)));
  }
  if (entry.waits_for >= 0 && entry.waits_for < std::ssize(world_ranks_)) {
    one.set("waits_for", world_ranks_[static_cast<size_t>(entry.waits_for)]);
  }
  return one;
}

Json SetFlight::json() const {
  Json ranks = Json::array();
  for (const int one : world_ranks_) {
    ranks.push_back(one);
  }
  Json operations = Json::array();
  for (const FlightEntry& entry : ring_.read()) {
    operations.push_back(json_of(entry));
  }
  const base::MutexLock lock(mutex_);
  return Json::object({{"set", fmt::format("{:016x}", id_)},
                       {"mode", is_named_ ? "named" : "ordered"},
                       {"world_ranks", std::move(ranks)},
                       {"rank", rank_},
                       {"failure", failure_ ? comm::json_of(*failure_) : Json()},
                       {"operations", std::move(operations)}});
}

std::shared_ptr<SetFlight> FlightRecorder::add(uint64_t id, bool is_named,
                                               std::vector<int> world_ranks, int rank) {
  const std::string_view advice =
      options_.has_user && options_.folder.empty()
          ? "; with HEADRACE_COMM_FLIGHT_DIR=FOLDER each rank writes there what it did last"
          : "";
  auto made = std::make_shared<SetFlight>(id, is_named, std::move(world_ranks), rank, advice);
  const base::MutexLock lock(mutex_);
  std::erase_if(sets_, [](const auto& one) { return one.expired(); });
  sets_.push_back(made);
  return made;
}

std::string FlightRecorder::text(std::string_view reason) const {
  std::vector<std::shared_ptr<SetFlight>> sets;
  {
    const base::MutexLock lock(mutex_);
    for (const auto& one : sets_) {
      if (auto there = one.lock()) {
        sets.push_back(std::move(there));
      }
    }
  }
  Json all = Json::array();
  for (const auto& one : sets) {
    all.push_back(one->json());
  }
  base::Clock& clock = base::system_clock();
  return Json::object({{"format", "headrace-flight-1"},
                       {"reason", reason},
                       {"rank", options_.rank},
                       {"world_size", options_.world_size},
                       {"host", utf8_text(host_name())},
                       {"pid", int64_t{::getpid()}},
                       {"job", utf8_text(options_.job)},
                       {"generation", options_.generation},
                       {"at", base::utc_text(clock.wall(), 6)},
                       {"now_us", clock.monotonic().count()},
                       {"sets", std::move(all)}})
             .dump(1) +
         "\n";
}

void FlightRecorder::write(std::string_view reason, uint64_t number) const {
  const base::Path file = options_.folder / fmt::format("headrace-flight-rank{}-pid{}-{}.json",
                                                        options_.rank, ::getpid(), number);
  Result<void> good =
      options_.folder.empty() ? Result<void>() : base::make_folders(options_.folder);
  if (good.ok()) {
    good = base::replace_file(file, text(reason));
  }
  if (good.ok()) {
    base::log_info(fmt::format("comm: rank {} has written what it did last to {} ({})",
                               options_.rank, std::filesystem::absolute(file).string(), reason));
  } else {
    base::log_warning(fmt::format(
        "comm: rank {} cannot write what it did last ({}): {}; name another folder with "
        "HEADRACE_COMM_FLIGHT_DIR",
        options_.rank, reason, good.error().message()));
  }
}

}  // namespace headrace::comm
