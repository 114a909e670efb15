// SPDX-License-Identifier: Apache-2.0
#include "headrace/proc/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "headrace/base/clock.h"
#include "headrace/base/log.h"
#include "headrace/proc/lines_internal.h"
#include "headrace/proc/memory_internal.h"
#include "headrace/proc/spawn_internal.h"

namespace headrace::proc {

namespace {

using base::Fd;
using base::Micros;

constexpr Micros kNever = Micros::max();
constexpr Millis kKillWait{5000};
/// What is read of one stream in one turn, so that one loud child does not starve the others.
constexpr int64_t kTurnBytes = int64_t{1} << 20;

Micros now() { return base::system_clock().monotonic(); }

struct Pipe {
  Fd read_end;
  Fd write_end;
};

Result<Pipe> make_pipe() {
  int fds[2] = {-1, -1};
  if (::pipe2(fds, O_CLOEXEC) != 0) {
    return errno_error(errno, "making a pipe");
  }
  return Pipe{Fd(fds[0]), Fd(fds[1])};
}

void set_nonblocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

Result<Fd> text_file(std::string_view text) {
  Fd fd(::memfd_create("headrace-input", MFD_CLOEXEC));
  if (!fd.valid()) {
    return errno_error(errno, "making an unnamed file for a child's input");
  }
  HR_TRY(base::write_all(fd.get(), text, "the child's input"));
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

/// Ends of the child's descriptors that this process holds until the child has its own.
struct Plumbing {
  std::vector<Fd> theirs;
  std::vector<std::pair<int, int>> fds;
  Fd input;
  std::array<Fd, 2> streams;
  Fd heartbeat;

  void give(Fd fd, int number) {
    fds.emplace_back(fd.get(), number);
    theirs.push_back(std::move(fd));
  }
};

Result<void> plumb_input(const Input& input, Plumbing* out) {
  switch (input.from) {
    case Input::From::inherit: return {};
    case Input::From::null: {
      HR_TRY(auto fd, base::open_any_file("/dev/null", O_RDONLY));
      out->give(std::move(fd), 0);
      return {};
    }
    case Input::From::file: {
      HR_TRY(auto fd, base::open_any_file(input.path, O_RDONLY));
      out->give(std::move(fd), 0);
      return {};
    }
    case Input::From::text: {
      HR_TRY(auto fd, text_file(input.text));
      out->give(std::move(fd), 0);
      return {};
    }
    case Input::From::pipe: {
      HR_TRY(auto pipe, make_pipe());
      out->give(std::move(pipe.read_end), 0);
      out->input = std::move(pipe.write_end);
      return {};
    }
  }
  return {};
}

Result<void> plumb_output(const Output& output, Stream stream, Plumbing* out) {
  const int number = stream == Stream::out ? 1 : 2;
  switch (output.to) {
    case Output::To::inherit: return {};
    case Output::To::null: {
      HR_TRY(auto fd, base::open_any_file("/dev/null", O_WRONLY));
      out->give(std::move(fd), number);
      return {};
    }
    case Output::To::file: {
      HR_TRY(auto fd, base::open_any_file(output.path, O_WRONLY | O_CREAT | O_APPEND));
      out->give(std::move(fd), number);
      return {};
    }
    case Output::To::lines: {
      HR_TRY(auto pipe, make_pipe());
      out->give(std::move(pipe.write_end), number);
      set_nonblocking(pipe.read_end.get());
      out->streams[static_cast<size_t>(stream)] = std::move(pipe.read_end);
      return {};
    }
    case Output::To::with_out: {
      const auto place = std::find_if(out->fds.begin(), out->fds.end(),
                                      [](const auto& pair) { return pair.second == 1; });
      out->fds.emplace_back(place == out->fds.end() ? 1 : place->first, 2);
      return {};
    }
  }
  return {};
}

Result<void> check_options(const ChildOptions& options) {
  if (options.argv.empty() || options.argv.front().empty()) {
    return Error{Errc::invalid_argument, "starting a process: no program is named"};
  }
  if (options.out.to == Output::To::with_out) {
    return Error{Errc::invalid_argument, "starting a process: only `err` can go with `out`"};
  }
  const auto refuse_nul = [&](std::string_view what, const std::string& text) -> Result<void> {
    if (text.find('\0') == std::string::npos) {
      return {};
    }
    return Error{Errc::invalid_argument,
                 fmt::format("starting {}: {} holds a NUL character, which would cut it",
                             options.argv.front(), what)};
  };
  for (const std::string& argument : options.argv) {
    HR_TRY(refuse_nul("an argument", argument));
  }
  for (const auto& [name, value] : options.environment) {
    HR_TRY(refuse_nul("the name of an environment variable", name));
    HR_TRY(refuse_nul("environment variable " + name, value));
  }
  for (const PassedFd& passed : options.fds) {
    if (passed.fd < 0 || passed.number < 3) {
      return Error{Errc::invalid_argument,
                   fmt::format("starting {}: descriptor {} cannot be passed as number {}; numbers "
                               "begin at 3",
                               options.argv.front(), passed.fd, passed.number)};
    }
  }
  return {};
}

Result<SpawnPlan> plan_of(ChildOptions& options, Plumbing* plumbing) {
  SpawnPlan plan;
  HR_TRY(plumb_input(options.input, plumbing));
  HR_TRY(plumb_output(options.out, Stream::out, plumbing));
  HR_TRY(plumb_output(options.err, Stream::err, plumbing));
  int free_number = 3;
  for (const PassedFd& passed : options.fds) {
    plumbing->fds.emplace_back(passed.fd, passed.number);
    free_number = std::max(free_number, passed.number + 1);
  }
  if (options.heartbeat.count() > 0) {
    HR_TRY(auto pipe, make_pipe());
    set_nonblocking(pipe.read_end.get());
    plumbing->give(std::move(pipe.write_end), free_number);
    plumbing->heartbeat = std::move(pipe.read_end);
    options.environment.emplace_back("HEADRACE_HEARTBEAT_FD", std::to_string(free_number));
  }
  plan.environment = child_environment(options);
  HR_TRY(plan.program, find_program(options.argv.front(), plan.environment));
  plan.argv = options.argv;
  plan.folder = options.folder.string();
  plan.fds = plumbing->fds;
  plan.limits = options.limits;
  if (options.memory_bytes_max > 0) {
    plan.limits.push_back({RLIMIT_DATA, static_cast<uint64_t>(options.memory_bytes_max)});
  }
  plan.nice = options.nice;
  plan.cores = core_mask(options.cores);
  plan.die_with_parent = options.die_with_parent;
  plan.notice = options.notice;
  return plan;
}

}  // namespace

struct Child::State {
  ChildOptions options;
  int64_t pid = -1;
  Fd pidfd;
  Fd events;  // epoll of all below
  Fd timer;
  Fd input;
  Fd heartbeat;
  std::array<Fd, 2> streams;
  std::array<LineSplitter, 2> splitters;
  LastLines last_lines;
  int64_t lines_bytes = 0;
  int64_t dropped_lines = 0;
  int64_t kills_before = 0;
  Micros started{0};
  Micros run_until = kNever;
  Micros beat_until = kNever;
  Micros kill_at = kNever;
  std::string stopped;
  bool ended = false;
  Exit exit;

  explicit State(ChildOptions chosen)
      : options(std::move(chosen)),
        splitters{LineSplitter(options.line_bytes_max), LineSplitter(options.line_bytes_max)} {}

  Result<void> watch(int fd);
  void arm();
  bool read_stream(Stream stream);
  void read_heartbeat();
  void deliver(Stream stream, std::string_view line);
  void act_on_time();
  bool reap();
  void begin_stop(std::string_view reason, Millis grace);
};

Result<void> Child::State::watch(int fd) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(events.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return errno_error(errno, "watching a child");
  }
  return {};
}

/// Set the timer to the next thing that is due.
void Child::State::arm() {
  const Micros next = std::min({run_until, beat_until, kill_at});
  if (next == kNever) {
    return;
  }
  if (!timer.valid()) {
    timer = Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    const Result<void> watched = watch(timer.get());
    if (!watched.ok()) {
      base::log_warning("proc: " + watched.error().message());
    }
  }
  itimerspec when = {};
  when.it_value.tv_sec = next.count() / 1000000;
  when.it_value.tv_nsec = (next.count() % 1000000) * 1000 + 1;  // 0 would disarm it
  ::timerfd_settime(timer.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void Child::State::deliver(Stream stream, std::string_view line) {
  last_lines.add(line);
  lines_bytes += std::ssize(line) + 1;
  if (lines_bytes > options.lines_bytes_max) {
    ++dropped_lines;
  } else if (options.on_line) {
    options.on_line(stream, line);
  }
}

/// Read what is there; true when the stream is over or empty for now, false when more may wait.
bool Child::State::read_stream(Stream stream) {
  Fd& fd = streams[static_cast<size_t>(stream)];
  LineSplitter& splitter = splitters[static_cast<size_t>(stream)];
  const auto on_line = [this, stream](std::string_view line) { deliver(stream, line); };
  char buffer[65536];
  for (int64_t taken = 0; fd.valid() && taken < kTurnBytes;) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count > 0) {
      taken += count;
      if (options.on_bytes) {
        options.on_bytes(stream, {buffer, static_cast<size_t>(count)});
      }
      splitter.feed({buffer, static_cast<size_t>(count)}, on_line);
    } else if (count == 0) {
      fd.reset();  // closing takes it out of the epoll set
      splitter.finish(on_line);
    } else if (errno == EAGAIN) {
      return true;
    } else if (errno != EINTR) {
      fd.reset();
    }
  }
  return !fd.valid();
}

void Child::State::read_heartbeat() {
  char buffer[4096];
  while (heartbeat.valid()) {
    const ssize_t count = ::read(heartbeat.get(), buffer, sizeof buffer);
    if (count > 0) {
      beat_until = now() + options.heartbeat;
      arm();
    } else if (count == 0) {
      heartbeat.reset();  // the child closed it: the time since its last beat still counts
    } else if (errno != EINTR) {
      return;
    }
  }
}

void Child::State::act_on_time() {
  const Micros at = now();
  if (at >= run_until) {
    run_until = kNever;
    begin_stop(fmt::format("timeout of {} s", static_cast<double>(options.timeout.count()) / 1e3),
               options.grace);
  }
  if (at >= beat_until) {
    beat_until = kNever;
    begin_stop(fmt::format("timeout: no heartbeat for {} s",
                           static_cast<double>(options.heartbeat.count()) / 1e3),
               options.grace);
  }
  if (at >= kill_at) {
    kill_at = now() + kKillWait;  // again later: a group may be forking
    ::kill(static_cast<pid_t>(-pid), SIGKILL);
  }
  arm();
}

void Child::State::begin_stop(std::string_view reason, Millis grace) {
  if (ended) {
    return;
  }
  if (stopped.empty()) {
    stopped = reason.empty() ? "asked to" : std::string(reason);
  }
  ::kill(static_cast<pid_t>(-pid), SIGTERM);
  ::kill(static_cast<pid_t>(-pid), SIGCONT);  // a stopped process would not see SIGTERM
  kill_at = std::min(kill_at, now() + grace);
  run_until = kNever;
  beat_until = kNever;
  arm();
}

/// Collect the end, if it has come; kills what is left of the group while the pid is still ours.
bool Child::State::reap() {
  siginfo_t info = {};
  if (::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd.get()), &info,
               WEXITED | WNOHANG | WNOWAIT) != 0) {
    if (errno != ECHILD) {
      return false;
    }
    // Ended, and its end was taken by somebody else: the kernel, when SIGCHLD is ignored, or a
    // wait for any child. Its number may be another group's by now, so nothing is killed.
    exit.pid = pid;
    exit.wall = std::chrono::duration_cast<Millis>(now() - started);
    exit.stopped = stopped;
    ended = true;
    return true;
  }
  if (info.si_pid == 0) {
    return false;
  }
  // The zombie keeps its number, so the group cannot be anybody else's yet.
  ::kill(static_cast<pid_t>(-pid), SIGKILL);
  rusage usage = {};
  ::syscall(SYS_waitid, P_PIDFD, pidfd.get(), &info, WEXITED | WNOHANG, &usage);
  // The leader is gone now, so a group that is still there has other members (dying ones).
  exit.leftovers = ::kill(static_cast<pid_t>(-pid), 0) == 0;
  exit.pid = pid;
  exit.code = info.si_code == CLD_EXITED ? info.si_status : -1;
  exit.signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
  exit.wall = std::chrono::duration_cast<Millis>(now() - started);
  const auto millis = [](const timeval& time) {
    return Millis(time.tv_sec * 1000 + time.tv_usec / 1000);
  };
  exit.cpu = millis(usage.ru_utime) + millis(usage.ru_stime);
  exit.resident_bytes_max = int64_t{usage.ru_maxrss} << 10;
  exit.stopped = stopped;
  exit.out_of_memory =
      exit.signal == SIGKILL && stopped.empty() && out_of_memory_kills() > kills_before;
  ended = true;
  return true;
}

Child::Child(std::unique_ptr<State> state) : state_(std::move(state)) {}
Child::Child(Child&&) noexcept = default;

Child& Child::operator=(Child&& other) noexcept {
  Child old(std::move(*this));  // ends the child that was held
  state_ = std::move(other.state_);
  return *this;
}

Child::~Child() {
  if (state_ == nullptr || state_->ended) {
    return;
  }
  state_->options.on_line = nullptr;
  state_->options.on_bytes = nullptr;
  const Result<Exit> end = stop("its owner let it go", Millis(0));
  if (!end.ok()) {
    base::log_warning("proc: " + end.error().message());
  }
}

Result<Child> Child::spawn(ChildOptions options) {
  HR_TRY(check_options(options));
  auto state = std::make_unique<State>(std::move(options));
  Plumbing plumbing;
  HR_TRY(const SpawnPlan plan, plan_of(state->options, &plumbing));
  state->events = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!state->events.valid()) {
    return errno_error(errno, "watching a child");
  }
  state->kills_before = out_of_memory_kills();
  state->started = now();
  HR_TRY(auto spawned, spawn_process(plan));
  state->pid = spawned.pid;
  state->pidfd = std::move(spawned.pidfd);
  state->input = std::move(plumbing.input);
  state->streams = std::move(plumbing.streams);
  state->heartbeat = std::move(plumbing.heartbeat);
  Child child(std::move(state));  // from here on its destructor ends the process
  State& made = *child.state_;
  for (const int fd :
       {made.pidfd.get(), made.heartbeat.get(), made.streams[0].get(), made.streams[1].get()}) {
    if (fd >= 0) {
      HR_TRY(made.watch(fd));
    }
  }
  if (made.options.timeout.count() > 0) {
    made.run_until = made.started + made.options.timeout;
  }
  if (made.options.heartbeat.count() > 0) {
    made.beat_until = made.started + made.options.heartbeat;
  }
  made.arm();
  return child;
}

int64_t Child::pid() const { return state_->pid; }
int Child::event_fd() const { return state_->events.get(); }
int Child::input_fd() const { return state_->input.get(); }
void Child::close_input() { state_->input.reset(); }
const Exit* Child::exit() const { return state_->ended ? &state_->exit : nullptr; }

bool Child::pump() {
  State& state = *state_;
  if (state.ended) {
    return true;
  }
  state.read_heartbeat();
  state.act_on_time();
  const bool ended = state.reap();
  // After the end the streams are read until they are empty, not until they are closed: a process
  // that left the group may hold them open for ever.
  bool drained = true;
  for (const Stream stream : {Stream::out, Stream::err}) {
    drained = state.read_stream(stream) && drained;
  }
  if (!ended) {
    return false;
  }
  for (int turn = 0; !drained && turn < 4; ++turn) {
    const bool out_drained = state.read_stream(Stream::out);
    drained = state.read_stream(Stream::err) && out_drained;  // both are read in each turn
  }
  for (const Stream stream : {Stream::out, Stream::err}) {
    if (state.streams[static_cast<size_t>(stream)].valid()) {
      state.splitters[static_cast<size_t>(stream)].finish(
          [&state, stream](std::string_view line) { state.deliver(stream, line); });
      state.streams[static_cast<size_t>(stream)].reset();
    }
  }
  state.input.reset();
  state.exit.last_lines = state.last_lines.take();
  state.exit.dropped_lines = state.dropped_lines;
  return true;
}

Result<Exit> Child::wait(Millis limit) {
  const base::Deadline deadline = base::Deadline::in(limit);
  while (!pump()) {
    const Micros left = deadline.left();
    if (left == Micros::zero()) {
      return Error{Errc::timeout, fmt::format("process {} ({}) still runs after {} s", pid(),
                                              state_->options.argv.front(),
                                              static_cast<double>(limit.count()) / 1e3)};
    }
    epoll_event event = {};
    const int64_t millis = std::min<int64_t>((left.count() + 999) / 1000, 60000);
    ::epoll_wait(state_->events.get(), &event, 1, static_cast<int>(millis));
  }
  return state_->exit;
}

void Child::signal(int number) {
  if (!state_->ended) {
    ::kill(static_cast<pid_t>(-state_->pid), number);
  }
}

void Child::begin_stop(std::string_view reason, Millis grace) { state_->begin_stop(reason, grace); }

Result<Exit> Child::stop(std::string_view reason, Millis grace) {
  state_->begin_stop(reason, grace);
  if (grace.count() <= 0 && !state_->ended) {
    signal(SIGKILL);
  }
  return wait(grace + kKillWait);
}

}  // namespace headrace::proc
