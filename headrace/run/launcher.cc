// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/launcher.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "headrace/base/clock.h"
#include "headrace/base/log.h"
#include "headrace/base/pool.h"
#include "headrace/base/printable.h"
#include "headrace/run/guard.h"
#include "headrace/run/local_ranks.h"
#include "headrace/run/output.h"
#include "headrace/run/port.h"
#include "headrace/wire/secret.h"
#include "headrace/wire/store_server.h"

namespace headrace::run {

namespace {

using base::Micros;

constexpr Millis kGrace{5000};
// A host that does not tell of its ranks' ends this long after they were to be killed is given up.
constexpr Millis kGiveUp{15000};
// A reader that takes nothing for so long will not come back.
constexpr Millis kDrain{600000};

/// One job, from the first process to the last line.
class Job {
 public:
  explicit Job(const LaunchOptions& options)
      : options_(options), queue_(options.out_fd, options.err_fd) {}
  Result<LaunchOutcome> run();

 private:
  Result<void> prepare();
  Result<void> start_ranks();
  Result<void> loop();
  void wait_for_events();
  Result<void> pump();
  void on_end(const RankEnd& end);
  void stop(std::string_view reason);
  bool any_running() const;
  void drain();
  LaunchOutcome outcome();
  std::string failure_text() const;
  Variables variables_of(const Place& place, const CoreShare& share) const;
  void say(const std::string& text) const;

  const LaunchOptions& options_;
  OutputQueue queue_;
  std::vector<Place> places_;
  std::optional<RankOutput> output_;
  std::string id_ = new_job_id();
  JobFacts facts_;
  std::optional<Guard> guard_;
  std::optional<wire::Secret> secret_;
  std::unique_ptr<wire::StoreServer> store_;
  std::optional<ReservedPort> master_port_;
  std::vector<std::unique_ptr<RankHost>> hosts_;
  std::optional<RankEnd> first_failure_;
  int stopped_by_us_ = 0;
  std::optional<base::Deadline> give_up_;
  bool interrupted_ = false;
  bool owner_gone_ = false;
};

void Job::say(const std::string& text) const {
  if (options_.verbose) {
    base::log_info("run: " + text);
  }
}

Result<void> Job::prepare() {
  HR_TRY(places_, place_ranks(options_.hosts, options_.ranks));
  HR_TRY(output_, RankOutput::make({.timestamps = options_.timestamps,
                                    .folder = options_.output_folder,
                                    .ranks = options_.ranks},
                                   &queue_));
  HR_TRY(const base::Path folder, make_private_folder());
  HR_TRY(guard_, Guard::start(options_.program, id_, folder));
  secret_ = wire::Secret::generate();
  const base::Path secret_file = folder / "secret";
  HR_TRY(secret_->write_file(secret_file));
  HR_TRY(store_, wire::StoreServer::start({.job_id = id_, .secret = &*secret_}));
  HR_TRY(master_port_, ReservedPort::take());
  facts_.job = id_;
  facts_.store = store_->endpoint().text();
  facts_.secret_file = secret_file.string();
  facts_.master_address = "127.0.0.1";
  facts_.master_port = master_port_->number();
  facts_.start_timeout_s = options_.start_timeout_s;
  facts_.settings = options_.settings;
  for (const Place& place : places_) {
    if (place.local_rank == 0) {
      facts_.host_sizes.push_back(place.local_size);
    }
  }
  return {};
}

Variables Job::variables_of(const Place& place, const CoreShare& share) const {
  Variables all = thread_variables(share.threads);
  for (auto& variable : rank_variables(place, facts_)) {
    all.push_back(std::move(variable));
  }
  return all;
}

Result<void> Job::start_ranks() {
  // All hosts are this machine: their ranks divide its cores among them.
  HR_TRY(const auto shares,
         divide_cores(own_cores(), base::usable_cores(), options_.ranks, options_.cores_per_rank));
  HR_TRY(auto local, LocalRanks::make());
  std::vector<RankStart> starts;
  for (const Place& place : places_) {
    const CoreShare& share = shares[static_cast<size_t>(place.rank)];
    starts.push_back({.rank = place.rank,
                      .argv = options_.command,
                      .variables = variables_of(place, share),
                      .cores = share.cores});
  }
  hosts_.push_back(std::move(local));
  say(fmt::format("starting {} ranks; store at {}, MASTER_PORT {}", options_.ranks, facts_.store,
                  facts_.master_port));
  return hosts_.back()->start(std::move(starts));
}

bool Job::any_running() const {
  return std::any_of(hosts_.begin(), hosts_.end(),
                     [](const auto& host) { return !host->running().empty(); });
}

void Job::stop(std::string_view reason) {
  if (give_up_) {
    return;
  }
  give_up_ = base::Deadline::in(kGrace + kGiveUp);
  for (const auto& host : hosts_) {
    stopped_by_us_ += static_cast<int>(host->running().size());
    host->stop(reason, kGrace);
  }
}

void Job::on_end(const RankEnd& end) {
  output_->finish(end.rank);
  say(fmt::format("rank {} (process {}) ended with {} after {:.1f} s", end.rank, end.pid, end.text,
                  static_cast<double>(end.wall_ms) / 1e3));
  if (!end.ok && !first_failure_ && !interrupted_) {
    first_failure_ = end;
  }
}

Result<void> Job::pump() {
  const RankEvents events = {
      .on_bytes = [this](int rank, Stream stream,
                         std::string_view bytes) { output_->on_bytes(rank, stream, bytes); },
      .on_end = [this](const RankEnd& end) { on_end(end); },
  };
  for (const auto& host : hosts_) {
    HR_TRY(host->pump(events));
  }
  return {};
}

void Job::wait_for_events() {
  std::vector<pollfd> fds;
  const auto add = [&fds](int fd, short events) {
    if (fd >= 0) {
      fds.push_back({fd, events, 0});
    }
  };
  Millis limit{60000};
  if (!queue_.full()) {
    for (const auto& host : hosts_) {
      add(host->event_fd(), host->wanted_events());
      limit = std::min(limit, host->pump_within());
    }
  }
  if (!interrupted_) {
    add(options_.interrupt_fd, POLLIN);
  }
  if (!owner_gone_) {
    add(options_.owner_fd, POLLIN);
  }
  add(queue_.waiting_fd(), POLLOUT);
  if (give_up_) {
    limit = std::min(limit, std::chrono::duration_cast<Millis>(give_up_->left()) + Millis(1));
  }
  ::poll(fds.data(), fds.size(), static_cast<int>(limit.count()));
  for (const pollfd& fd : fds) {
    interrupted_ = interrupted_ || (fd.fd == options_.interrupt_fd && fd.revents != 0);
    owner_gone_ = owner_gone_ || (fd.fd == options_.owner_fd && fd.revents != 0);
  }
}

Result<void> Job::loop() {
  while (any_running()) {
    wait_for_events();
    if (interrupted_ || owner_gone_) {
      interrupted_ = true;
      stop("the launcher was interrupted");
    }
    queue_.flush();
    if (!queue_.full() || give_up_) {
      HR_TRY(pump());
    }
    if (first_failure_) {
      stop(fmt::format("rank {} ended with {}", first_failure_->rank, first_failure_->text));
    }
    if (give_up_ && give_up_->passed()) {
      break;
    }
  }
  return {};
}

/// The ranks are gone; what they said may still wait for a slow reader.
void Job::drain() {
  queue_.flush();
  while (!queue_.empty()) {
    pollfd fds[2] = {{queue_.waiting_fd(), POLLOUT, 0}, {options_.interrupt_fd, POLLIN, 0}};
    const bool asked_before = interrupted_;
    const int ready = ::poll(fds, asked_before ? 1 : 2, static_cast<int>(kDrain.count()));
    if (ready == 0 || (!asked_before && fds[1].revents != 0)) {
      base::log_warning("run: the rest of the ranks' output was not taken by its reader");
      return;
    }
    queue_.flush();
  }
}

std::string Job::failure_text() const {
  const RankEnd& end = *first_failure_;
  const Place& place = places_[static_cast<size_t>(end.rank)];
  std::string text = fmt::format(
      "Horovod detected that one or more processes exited with non-zero status: rank {} on {} "
      "(process {}) was the first, with {} after {:.1f} s{}.\nProcess name: {}\nExit code: {}\n",
      end.rank, base::printable(place.host_name), end.pid, end.text,
      static_cast<double>(end.wall_ms) / 1e3,
      stopped_by_us_ == 0 ? std::string()
                          : fmt::format("; {} other{} stopped", stopped_by_us_,
                                        stopped_by_us_ == 1 ? " was" : "s were"),
      end.rank, end.signal != 0 ? -end.signal : end.code);
  const std::vector<std::string> lines = output_->last_errors(end.rank);
  if (lines.empty()) {
    return text + fmt::format("Rank {} wrote nothing on stderr.\n", end.rank);
  }
  text += fmt::format("Last lines of rank {} on stderr:\n", end.rank);
  for (const std::string& line : lines) {
    text += "  " + base::printable(line) + "\n";
  }
  return text;
}

LaunchOutcome Job::outcome() {
  LaunchOutcome outcome;
  std::vector<int> left;
  for (const auto& host : hosts_) {
    const std::vector<int> running = host->running();
    left.insert(left.end(), running.begin(), running.end());
  }
  if (first_failure_) {
    outcome.failed_rank = first_failure_->rank;
    outcome.message = failure_text();
  } else if (interrupted_) {
    outcome.interrupted = true;
    outcome.message = fmt::format("run: interrupted; the ranks were stopped\n");
  }
  if (!left.empty()) {
    outcome.message +=
        fmt::format("run: no end was heard of rank{} {} within {} s of SIGKILL\n",
                    left.size() == 1 ? "" : "s", fmt::join(left, ", "), kGiveUp.count() / 1000);
  }
  if (!output_->file_problem().empty()) {
    outcome.message += "run: " + output_->file_problem() + "\n";
  }
  return outcome;
}

Result<LaunchOutcome> Job::run() {
  HR_TRY(prepare());
  const Result<void> started = start_ranks();
  const Result<void> looped = started.ok() ? loop() : Result<void>();
  LaunchOutcome result = outcome();
  hosts_.clear();  // ends what is left of them
  guard_->finish();
  drain();
  HR_TRY(started);
  HR_TRY(looped);
  return result;
}

}  // namespace

Result<LaunchOutcome> launch(const LaunchOptions& options) {
  auto job = std::make_unique<Job>(options);
  return job->run();
}

}  // namespace headrace::run
