// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "headrace/base/log.h"
#include "headrace/flow/custom.h"
#include "headrace/flow/driver_internal.h"
#include "headrace/flow/run_folder_internal.h"
#include "headrace/flow/run_list.h"
#include "headrace/flow/secret_outputs_internal.h"

namespace headrace::flow {

namespace {

using base::Micros;

constexpr Micros kProgressEvery = std::chrono::milliseconds(100);
constexpr int kWaitMaxMs = 60'000;
constexpr int kActionsPerTurn = 256;  // then signals and cancels are looked at
constexpr double kSlowSeconds = 1.0;  // from here on a .meta.json costs nothing that shows

/// Marks of the loop's own descriptors; smaller numbers are slots.
enum Wakeup : uint32_t { kCommits = 0xFFFF0000U, kInterrupt, kFolder };

std::string host_name() {
  char host[256] = "unknown";
  ::gethostname(host, sizeof host - 1);
  return host;
}

WorkerPoolOptions with_metrics(WorkerPoolOptions options, const RunMetrics& metrics) {
  options.start_seconds = metrics.pool_start_seconds();
  options.hello.metrics = metrics.on();
  return options;
}

/// Empty a counter or a queue of notices.
void drain(int fd) {
  char buffer[4096];
  [[maybe_unused]] const ssize_t count = ::read(fd, buffer, sizeof buffer);
}

}  // namespace

Driver::Driver(Journal journal, std::unique_ptr<Engine> engine, const RunHeader& header,
               const RunOptions& options, base::Fd epoll, WorkerPoolOptions pool)
    : metrics_(options.metrics ? header.run_id : ""),
      journal_(std::move(journal)),
      engine_(std::move(engine)),
      header_(header),
      options_(options),
      epoll_(std::move(epoll)),
      pool_(WorkerPool::make(with_metrics(std::move(pool), metrics_), epoll_.get())),
      flights_(static_cast<size_t>(options.slots)),
      wall_begin_(std::max(base::system_clock().wall(), engine_->now())),
      monotonic_begin_(base::system_clock().monotonic()) {
  journal_.time_commits(metrics_.journal_sync_seconds());
}

Result<std::unique_ptr<Driver>> Driver::make(Journal journal, std::unique_ptr<Engine> engine,
                                             const RunHeader& header, const RunOptions& options) {
  WorkerPoolOptions pool;
  pool.command = options.worker_command;
  pool.run_folder = options.folder;
  pool.hello.run_id = header.run_id;
  pool.hello.run_folder = options.folder.string();
  pool.hello.pipeline_folder = header.pipeline_path.parent_path().string();
  pool.hello.grace_ms = options.grace.count();
  pool.slots = options.slots;
  base::Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) {
    return errno_error(errno, "making the engine's event loop");
  }
  std::unique_ptr<Driver> driver(new Driver(std::move(journal), std::move(engine), header, options,
                                            std::move(epoll), std::move(pool)));
  HR_TRY(driver->watch());
  return driver;
}

Result<void> Driver::watch() {
  inotify_ = base::Fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify_.valid() ||
      ::inotify_add_watch(inotify_.get(), options_.folder.c_str(), IN_CLOSE_WRITE) < 0) {
    return errno_error(errno, "watching the run's folder " + options_.folder.string());
  }
  const std::pair<int, Wakeup> sources[] = {{journal_.commit_event_fd(), kCommits},
                                            {options_.interrupt_fd, kInterrupt},
                                            {inotify_.get(), kFolder}};
  for (const auto& [fd, source] : sources) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u32 = source;
    if (fd >= 0 && ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return errno_error(errno, "watching the engine's descriptors");
    }
  }
  return {};
}

/// Wall time that never goes back: within this process it grows with the monotonic clock, and it
/// begins behind the last event of the journal.
Micros Driver::now() const {
  return wall_begin_ + (base::system_clock().monotonic() - monotonic_begin_);
}

Result<void> Driver::take(Event event, std::string_view attempt_path) {
  event.now = std::max(now(), engine_->now());
  HR_TRY(journal_.append(event, attempt_path));
  HR_TRY(engine_->step(std::move(event), &actions_));
  for (Report& report : actions_.reports) {
    metrics_.told(report);
    untold_.emplace_back(journal_.appended(), std::move(report));
  }
  actions_.reports.clear();
  tell_retries();
  return {};
}

/// A disk that is full lets items wait in silence otherwise. Once for failures that read the same.
void Driver::tell_retries() {
  for (RetryWait& retry : actions_.retries) {
    if (retry.message != told_retry_) {
      base::log_warning(fmt::format("flow: {} failed and is tried again in {} s: {}", retry.path,
                                    retry.seconds, retry.message));
      told_retry_ = std::move(retry.message);
    }
  }
  actions_.retries.clear();
}

bool Driver::has_to_act() const {
  return !actions_.start.empty() || !actions_.stop.empty() || !actions_.evaluate_items.empty();
}

/// Do what the engine wants, and what follows from that; a part of it when it is much, because
/// loops in loops can go on for hours.
Result<void> Driver::act() {
  for (int left = kActionsPerTurn; left > 0 && has_to_act();) {
    if (flushed_ != journal_.appended()) {
      HR_TRY(journal_.flush());
      flushed_ = journal_.appended();
    }
    Actions todo;
    std::swap(todo, actions_);
    auto& loops = todo.evaluate_items;
    const auto now_done = std::min(std::ssize(loops), static_cast<std::ptrdiff_t>(left));
    actions_.evaluate_items.assign(loops.begin() + now_done, loops.end());
    loops.resize(static_cast<size_t>(now_done));
    left -= 1 + static_cast<int>(now_done);
    for (const uint64_t run : loops) {
      HR_TRY(give_items(run));
    }
    for (const StartAttempt& start : todo.start) {
      HR_TRY(begin(start));
    }
    for (const StopAttempt& one : todo.stop) {
      HR_TRY(stop(one));
    }
  }
  return {};
}

Result<void> Driver::stop(const StopAttempt& stop) {
  for (size_t i = 0; i < flights_.size(); ++i) {
    const int slot = static_cast<int>(i);
    if (flights_[i].attempt != stop.attempt) {
      continue;
    }
    if (waiting_.erase(slot) == 0) {
      flights_[i].timeout = stop.message;
      pool_.stop(slot);
      continue;
    }
    AttemptEnded ended;
    ended.attempt = std::exchange(flights_[i].attempt, 0);
    ended.outcome.kind = Outcome::Kind::lost;
    ended.outcome.error = {"WorkerLost", "its worker could not be started", "SystemError", ""};
    HR_TRY(take({Micros(0), std::move(ended)}, flights_[i].path));
  }
  return {};
}

/// Hand a call to its slot's worker. When that cannot be started it is tried again, with growing
/// pauses; a slot that can start none for long ends the run, which goes on when it is resumed.
Result<void> Driver::hand_over(int slot, CallFrame frame) {
  constexpr Micros kPauseMin = std::chrono::milliseconds(100);
  constexpr Micros kPauseMax = std::chrono::seconds(10);
  const Result<void> called = pool_.call(slot, frame);
  if (called.ok()) {
    waiting_.erase(slot);
    return {};
  }
  const Micros at = base::system_clock().monotonic();
  const auto [it, fresh] = waiting_.try_emplace(slot);
  Waiting& waiting = it->second;
  if (fresh) {
    waiting.since = at;
    waiting.frame = std::move(frame);
    base::log_warning("flow: " + called.error().message() + "; trying again");
  } else if (at - waiting.since >= options_.worker_patience) {
    Error error = called.error();
    error.add_context(fmt::format("no worker could be started in slot {} for {:.1f} s", slot,
                                  std::chrono::duration<double>(at - waiting.since).count()));
    error.add_note("nothing that had ended is lost; continue with: headrace flow resume " +
                   run_reference(options_.folder));
    return error;
  }
  waiting.pause = fresh ? kPauseMin : std::min(waiting.pause * 2, kPauseMax);
  waiting.again_at = std::min(at + waiting.pause, waiting.since + options_.worker_patience);
  return {};
}

Result<void> Driver::hand_over_again() {
  std::vector<std::pair<int, CallFrame>> due;
  for (const auto& [slot, waiting] : waiting_) {
    if (waiting.again_at <= base::system_clock().monotonic()) {
      due.emplace_back(slot, waiting.frame);
    }
  }
  for (auto& [slot, frame] : due) {
    HR_TRY(hand_over(slot, std::move(frame)));
  }
  return {};
}

Result<void> Driver::begin(const StartAttempt& start) {
  AttemptEnded ended;
  ended.attempt = start.attempt;
  auto call = engine_->evaluate_call(start.attempt);
  if (!call.ok()) {
    ended.outcome.kind = Outcome::Kind::not_started;
    ended.outcome.error = {"InvalidTemplate", engine_->secrets().masked(call.error().message()),
                           "UserError", ""};
    const auto known = engine_->describe(start.attempt);
    return take({Micros(0), std::move(ended)}, known ? known->path : "");
  }
  if (const auto it = finished_.find({call->path, call->digest}); it != finished_.end()) {
    ended.outcome = it->second;
    ended.outcome.reused = true;
    metrics_.reused();
    return take({Micros(0), std::move(ended)}, call->path);
  }
  metrics_.attempt_begins(start);
  CallFrame frame;
  frame.attempt = start.attempt;
  frame.number = call->attempt;
  frame.activity = call->activity->name;
  frame.type = call->activity->type;
  frame.log = log_path(call->item_key, call->activity->name, call->attempt);
  frame.item_key = call->item_key;
  frame.properties = std::move(call->properties);
  frame.secure_input = call->activity->policy.secure_input;
  frame.secure_output = call->activity->policy.secure_output;
  Secrets secrets = call_secrets(*call, frame.properties);
  secrets.add(engine_->secrets());
  frame.secrets = secrets.texts();
  InFlight& flight = flights_[static_cast<size_t>(start.slot)];
  flight = {start.attempt,
            call->attempt,
            std::move(call->path),
            std::move(call->item_key),
            call->activity,
            call->digest,
            std::move(secrets),
            std::chrono::duration<double>(start.waited).count(),
            ""};
  return hand_over(start.slot, std::move(frame));
}

Result<void> Driver::give_items(uint64_t run) {
  auto items = engine_->evaluate_items(run);
  ItemsKnown known;
  known.run = run;
  if (items.ok()) {
    known.items = *std::move(items);
  } else if (items.error().code() == Errc::not_found) {
    return {};  // cancelled in the same turn
  } else {
    std::string message = engine_->secrets().masked(items.error().message());
    const size_t colon = message.find(": ");
    known.error =
        ActivityError{message.substr(0, colon), message.substr(colon + 2), "UserError", ""};
  }
  return take({Micros(0), std::move(known)});
}

Result<void> Driver::take_ended(WorkerPool::Ended ended) {
  InFlight& flight = flights_[static_cast<size_t>(ended.slot)];
  ended.outcome.digest = flight.digest;
  ended.outcome.retry_useless = retry_is_useless(ended.outcome, *flight.activity);
  // An output with a secret in it is as secure as one that is said to be.
  ended.outcome.output_kept =
      !flight.activity->policy.secure_output && !flight.secrets.found_in(ended.outcome.output);
  if (!ended.outcome.output_kept && ended.outcome.kind == Outcome::Kind::succeeded) {
    HR_TRY(ended.outcome.output_key, keep_secret_output(options_.folder, ended.outcome.output));
  }
  ended.outcome.error.code = flight.secrets.masked(ended.outcome.error.code);
  ended.outcome.error.message = flight.secrets.masked(ended.outcome.error.message);
  if (ended.outcome.kind == Outcome::Kind::lost) {
    end_left_commands({flight});  // the next attempt should not meet it
  }
  if (ended.outcome.kind != Outcome::Kind::succeeded || ended.seconds >= kSlowSeconds) {
    write_meta(ended, flight);
  }
  flight.attempt = 0;
  AttemptEnded event;
  event.attempt = ended.attempt;
  event.outcome = std::move(ended.outcome);
  return take({Micros(0), std::move(event)}, flight.path);
}

/// What a killed worker could not end, and we have perhaps not heard of.
void Driver::end_left_commands(const std::vector<InFlight>& flights) const {
  std::vector<CutShort> attempts;
  for (const InFlight& flight : flights) {
    attempts.push_back({flight.activity, flight.item_key, flight.number});
  }
  const auto ended = kill_left_commands(header_.run_id, options_.folder, std::move(attempts),
                                        std::chrono::seconds(1));
  if (!ended.ok()) {
    base::log_warning("flow: " + ended.error().message());
  }
}

/// Beside the log: for people and scripts that look into the folder. The journal does without.
void Driver::write_meta(const WorkerPool::Ended& ended, const InFlight& flight) const {
  const Outcome& outcome = ended.outcome;
  const Micros end = now();
  const Micros begin = end - Micros(static_cast<int64_t>(ended.seconds * 1e6));
  Json meta = Json::object({{"activity", flight.activity->name},
                            {"type", flight.activity->type},
                            {"path", flight.path},
                            {"item", flight.item_key},
                            {"attempt", flight.number},
                            {"started", base::utc_text(begin, 3)},
                            {"ended", base::utc_text(end, 3)},
                            {"seconds", ended.seconds},
                            {"queue_seconds", flight.queued_seconds},
                            {"cpu_seconds", outcome.cpu_seconds},
                            {"peak_rss_bytes", outcome.peak_rss_bytes},
                            {"slot", ended.slot},
                            {"pid", outcome.pid},
                            {"host", host_name()},
                            {"succeeded", outcome.kind == Outcome::Kind::succeeded}});
  if (!outcome.exit.empty()) {
    meta.set("exit", outcome.exit);
  }
  if (outcome.kind != Outcome::Kind::succeeded) {
    const bool timed_out = !flight.timeout.empty();
    meta.set("error", Json::object({{"code", timed_out ? "Timeout" : outcome.error.code},
                                    {"message", timed_out ? flight.timeout : outcome.error.message},
                                    {"lost", outcome.kind == Outcome::Kind::lost}}));
  }
  base::Path path =
      options_.folder / log_path(flight.item_key, flight.activity->name, flight.number);
  path.replace_extension(".meta.json");
  const auto write = [&]() -> Result<void> {
    HR_TRY(base::make_folders(path.parent_path()));
    HR_TRY(auto fd, base::open_file(path, O_WRONLY | O_CREAT | O_TRUNC, 0600));
    return base::write_all(fd.get(), meta.dump(2) + "\n", path);
  };
  if (const Result<void> written = write(); !written.ok()) {
    base::log_warning("flow: " + written.error().message());
  }
}

Result<void> Driver::take_cancels() {
  drain(inotify_.get());
  for (std::string& item : take_cancel_requests(options_.folder)) {
    if (!engine_->ended()) {
      HR_TRY(take({Micros(0), CancelRequested{std::move(item)}}));
    }
  }
  return {};
}

/// Reports go out when the disk has the records they follow from.
void Driver::tell() {
  const uint64_t durable = journal_.committed();
  while (!untold_.empty() && untold_.front().first <= durable) {
    if (options_.on_report) {
      options_.on_report(untold_.front().second);
    }
    untold_.pop_front();
  }
}

void Driver::show_progress(bool last) {
  const Micros at = base::system_clock().monotonic();
  if (options_.on_progress && (last || at >= progress_at_)) {
    EngineProgress progress = engine_->progress();
    progress.items_waiting_retry = engine_->item_states().waiting_retry;
    progress.items_running -= progress.items_waiting_retry;
    options_.on_progress(progress);
    progress_at_ = at + kProgressEvery;
  }
}

int Driver::wait_ms() const {
  int64_t wait = has_to_act() ? 0 : kWaitMaxMs;
  const auto until = [&](Micros left) {
    wait = std::min(wait, std::max<int64_t>(0, (left.count() + 999) / 1000));
  };
  if (const auto deadline = engine_->next_deadline()) {
    until(*deadline - now());
  }
  if (const auto deadline = pool_.next_deadline()) {
    until(*deadline - base::system_clock().monotonic());
  }
  for (const auto& [slot, waiting] : waiting_) {
    until(waiting.again_at - base::system_clock().monotonic());
  }
  if (options_.on_progress) {
    wait = std::min<int64_t>(wait, 1000);
  }
  if (metrics_.on()) {
    until(metrics_.update_at() - base::system_clock().monotonic());
  }
  return static_cast<int>(wait);
}

Result<bool> Driver::turn() {
  constexpr int kEventsMax = 64;
  epoll_event events[kEventsMax];
  const int count = ::epoll_wait(epoll_.get(), events, kEventsMax, wait_ms());
  bool committed = false;
  ended_.clear();
  for (int i = 0; i < count; ++i) {
    switch (events[i].data.u32) {
      case kInterrupt: return false;
      case kFolder: HR_TRY(take_cancels()); break;
      case kCommits:
        drain(journal_.commit_event_fd());
        committed = true;
        break;
      default: pool_.on_event(static_cast<int>(events[i].data.u32), &ended_);
    }
  }
  pool_.on_time();
  HR_TRY(hand_over_again());
  for (WorkerPool::Ended& ended : ended_) {
    HR_TRY(take_ended(std::move(ended)));
  }
  if (const auto deadline = engine_->next_deadline(); deadline && *deadline <= now()) {
    HR_TRY(take({Micros(0), Tick{}}));
  }
  HR_TRY(act());
  if (committed) {
    tell();
  }
  show_progress(false);
  if (const Micros at = base::system_clock().monotonic(); metrics_.due(at)) {
    metrics_.update(*engine_, pool_, at);
  }
  return true;
}

/// The last numbers and the summary, when all workers are gone and the journal is whole. A disk
/// that does not take them is no failure.
void Driver::keep_numbers() {
  metrics_.update(*engine_, pool_, base::system_clock().monotonic());
  if (const Result<void> kept = metrics_.keep(options_.folder); !kept.ok()) {
    base::log_warning("flow: " + kept.error().message());
  }
  if (const Result<void> kept = keep_summary(options_.folder, header_, *engine_, engine_->now());
      !kept.ok()) {
    base::log_warning("flow: " + kept.error().message());
  }
}

Result<RunResult> Driver::loop() {
  RunResult result;
  result.run_id = header_.run_id;
  HR_TRY(take_cancels());
  HR_TRY(act());
  while (!engine_->ended()) {
    HR_TRY(const bool go_on, turn());
    if (!go_on) {
      result.interrupted = true;
      // Says until when the run was worked on; one that is due would begin what nobody does.
      const auto deadline = engine_->next_deadline();
      if (!deadline || *deadline > now()) {
        HR_TRY(take({Micros(0), Tick{}}));
      }
      break;
    }
  }
  constexpr auto kInterruptGrace = std::chrono::milliseconds(300);
  constexpr auto kEndGrace = std::chrono::seconds(2);
  pool_.shut_down(result.interrupted ? kInterruptGrace : kEndGrace);
  std::erase_if(flights_, [](const InFlight& flight) { return flight.attempt == 0; });
  end_left_commands(flights_);
  HR_TRY(journal_.wait_committed());
  tell();
  keep_numbers();
  show_progress(true);
  result.status = engine_->status();
  result.error = engine_->error();
  result.return_value = engine_->told(engine_->return_value());
  result.progress = engine_->progress();
  return result;
}

Result<RunResult> Driver::run(Event first) {
  HR_TRY(take(std::move(first)));
  return loop();
}

}  // namespace headrace::flow
