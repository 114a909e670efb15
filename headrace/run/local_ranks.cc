// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/local_ranks.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <utility>

#include "headrace/base/board.h"
#include "headrace/base/board_folder.h"
#include "headrace/base/board_values.h"

namespace headrace::run {

namespace {

/// A script of Python that the system does not take for a program needs its interpreter named.
void suggest_python(const std::string& program, Error* error) {
  if (program.ends_with(".py")) {
    error->add_note(fmt::format("a script of Python also runs as: python {}", program));
  }
}

}  // namespace

LocalRanks::Boards::~Boards() {
  if (!folder.empty()) {
    base::remove_dead_boards(folder);
  }
}

LocalRanks::LocalRanks(proc::Supervisor supervisor, std::string_view job)
    : supervisor_(std::move(supervisor)) {
  const bool is_plain = !job.empty() && std::all_of(job.begin(), job.end(), [](unsigned char one) {
    return std::isalnum(one) != 0;
  });
  if (is_plain) {
    boards_.folder = base::board_folder(job);
  }
}

Result<std::unique_ptr<LocalRanks>> LocalRanks::make(std::string_view job) {
  HR_TRY(auto supervisor, proc::Supervisor::make());
  return std::unique_ptr<LocalRanks>(new LocalRanks(std::move(supervisor), job));
}

/// Of a rank that has ended. Its process may have been another one than the one we started.
std::string LocalRanks::take_metrics(int rank) const {
  base::BoardSnapshot all;
  if (!boards_.folder.empty()) {
    for (const base::Path& path : base::boards_in(boards_.folder)) {
      const auto one = base::read_board_file(path);
      if (one.ok() && one->rank == rank && !base::board_is_alive(path)) {
        base::add_board(&all, *one);
        ::unlink(path.c_str());
      }
    }
  }
  return all.metrics.empty() ? "" : base::board_values(all).dump(2) + "\n";
}

Result<void> LocalRanks::start(std::vector<RankStart> ranks) {
  for (RankStart& start : ranks) {
    proc::ChildOptions options;
    options.argv = std::move(start.argv);
    const std::string program = options.argv.empty() ? std::string() : options.argv.front();
    options.environment = std::move(start.variables);
    options.empty_environment = start.whole_environment;
    options.folder = start.folder;
    options.cores = std::move(start.cores);
    options.lines_bytes_max = std::numeric_limits<int64_t>::max();
    options.on_bytes = [this, rank = start.rank](proc::Stream stream, std::string_view bytes) {
      if (events_ != nullptr && events_->on_bytes) {
        events_->on_bytes(rank, stream == proc::Stream::out ? Stream::out : Stream::err, bytes);
      }
    };
    auto id = supervisor_.start(std::move(options));
    if (!id.ok()) {
      suggest_python(program, &id.error());
      return std::move(id.error().add_context(fmt::format("rank {}", start.rank)));
    }
    ranks_.emplace(*id, start.rank);
  }
  return {};
}

int LocalRanks::event_fd() const { return supervisor_.event_fd(); }
short LocalRanks::wanted_events() const { return POLLIN; }
Millis LocalRanks::pump_within() const { return Millis(60000); }

Result<void> LocalRanks::pump(const RankEvents& events, bool want_output) {
  if (!want_output) {
    return {};  // output and ends come together
  }
  events_ = &events;
  for (const proc::Supervisor::Ended& ended : supervisor_.poll(Millis(0))) {
    const auto it = ranks_.find(ended.id);
    const proc::Exit& exit = ended.exit;
    const RankEnd end = {.rank = it->second,
                         .pid = exit.pid,
                         .code = exit.code,
                         .signal = exit.signal,
                         .ok = exit.ok(),
                         .text = exit.text(),
                         .wall_ms = exit.wall.count(),
                         .metrics = take_metrics(it->second)};
    ranks_.erase(it);
    events.on_end(end);
  }
  events_ = nullptr;
  return {};
}

void LocalRanks::stop(std::string_view reason, Millis grace) {
  for (const auto& [id, rank] : ranks_) {
    supervisor_.find(id)->begin_stop(reason, grace);
  }
}

std::vector<int> LocalRanks::running() const {
  std::vector<int> all;
  for (const auto& [id, rank] : ranks_) {
    all.push_back(rank);
  }
  return all;
}

}  // namespace headrace::run
