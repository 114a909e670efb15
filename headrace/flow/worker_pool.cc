// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/worker_pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "headrace/base/log.h"
#include "headrace/flow/run_folder_internal.h"
#include "headrace/proc/child.h"

namespace headrace::flow {

namespace {

using base::Fd;
using base::Micros;

constexpr auto kKillMargin = std::chrono::seconds(2);  // a worker that ends its command needs less
constexpr Micros kNever = Micros::max();
constexpr int kSocketNumber = 3;  // of the worker's end, in the worker

Micros now() { return base::system_clock().monotonic(); }

/// Last line of a file, for messages; "" when there is none or none may be told.
std::string last_line(int fd, const LogPrivacy& privacy) {
  constexpr size_t kShown = 512;
  if (privacy.secure_output) {
    return "";
  }
  // With so much before it that no secret is cut.
  std::string text(kShown + privacy.secrets.bytes_max(), '\0');
  const off_t size = ::lseek(fd, 0, SEEK_END);
  const off_t begin = std::max<off_t>(0, size - static_cast<off_t>(text.size()));
  const ssize_t count = size > 0 ? ::pread(fd, text.data(), text.size(), begin) : 0;
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, count)));
  text = privacy.secrets.masked(text);
  const bool cut = begin > 0 || text.size() > kShown;
  text.erase(0, text.size() - std::min(text.size(), kShown));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) {
    text.pop_back();
  }
  const size_t newline = text.rfind('\n');
  text = newline == std::string::npos ? text : text.substr(newline + 1);
  std::erase_if(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
  if (cut && newline == std::string::npos) {  // the cut may have split a character
    const auto inside = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; };
    text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), inside));
  }
  return utf8_text(text);
}

struct Slot {
  std::optional<proc::Child> child;
  Fd socket;
  Fd output;  ///< what the worker prints
  FrameReader reader;
  std::string outbox;  ///< what did not fit into the socket
  uint64_t attempt = 0;
  bool busy = false;
  bool broken = false;  ///< the connection is gone; the process will be in a moment
  int64_t group = 0;    ///< of a running command
  Micros began{0};
  Micros kill_at = kNever;
  std::string log;
  LogPrivacy privacy;
  bool ready = false;  ///< it takes calls
  WorkerUse use = WorkerUse::starting;
  Micros since{0};  ///< it has this use
};

}  // namespace

struct WorkerPool::State {
  WorkerPoolOptions options;
  int epoll = -1;
  std::vector<Slot> slots;
  int64_t processes = 0;
  std::array<Micros, kWorkerUses.size()> spent = {};  ///< by uses that are over

  void turn_to(Slot* slot, WorkerUse use);
  Result<void> watch(int fd, int slot, uint32_t events, int operation);
  Result<void> spawn(int index);
  /// True when something came.
  bool read_frames(int index, std::vector<Ended>* ended);
  void take(int index, const FrameReader::Frame& frame, std::vector<Ended>* ended);
  void break_off(int index);
  void reap(int index, std::vector<Ended>* ended);
  void kill_hard(int index);
};

/// From now on its time counts as `use`.
void WorkerPool::State::turn_to(Slot* slot, WorkerUse use) {
  const Micros at = now();
  spent[static_cast<size_t>(slot->use)] += at - slot->since;
  slot->use = use;
  slot->since = at;
}

Result<void> WorkerPool::State::watch(int fd, int slot, uint32_t events, int operation) {
  epoll_event event = {};
  event.events = events;
  event.data.u32 = static_cast<uint32_t>(slot);
  if (::epoll_ctl(epoll, operation, fd, &event) != 0) {
    return errno_error(errno, "watching a worker");
  }
  return {};
}

Result<void> WorkerPool::State::spawn(int index) {
  Slot& slot = slots[static_cast<size_t>(index)];
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return errno_error(errno, "making a worker's connection");
  }
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  ::fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  const base::Path output = worker_output_path(options.run_folder, index);
  HR_TRY(base::make_folders(output.parent_path()));
  HR_TRY(slot.output, base::open_file(output, O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600));
  proc::ChildOptions child;
  for (std::string word : options.command) {
    if (word == "{fd}") {
      word = std::to_string(kSocketNumber);
    }
    child.argv.push_back(std::move(word));
  }
  child.out = {.to = proc::Output::To::file, .path = output};
  child.err = {.to = proc::Output::To::with_out, .path = {}};
  child.fds = {{theirs.get(), kSocketNumber}};
  child.threads = 1;
  // When we are gone the worker ends its command with the whole group, then itself. Killed at once
  // it could not, and what the command's shell has started would live on.
  child.die_with_parent = false;
  const Micros began = now();
  HR_TRY(slot.child, proc::Child::spawn(std::move(child)));
  slot.socket = std::move(ours);
  slot.reader = FrameReader();
  slot.outbox = encode(options.hello);
  slot.broken = false;
  slot.group = 0;
  slot.kill_at = kNever;
  slot.ready = false;
  slot.use = WorkerUse::starting;
  slot.since = began;
  ++processes;
  Result<void> watched = watch(slot.socket.get(), index, EPOLLIN, EPOLL_CTL_ADD);
  if (watched.ok()) {
    watched = watch(slot.child->event_fd(), index, EPOLLIN, EPOLL_CTL_ADD);
  }
  if (!watched.ok()) {
    slot.socket.reset();
    slot.child.reset();
    --processes;
  }
  return watched;
}

bool WorkerPool::State::read_frames(int index, std::vector<Ended>* ended) {
  Slot& slot = slots[static_cast<size_t>(index)];
  if (!slot.socket.valid()) {
    return false;
  }
  if (!slot.outbox.empty()) {
    static_cast<void>(send_some(slot.socket.get(), &slot.outbox));  // a broken one is seen below
    static_cast<void>(watch(slot.socket.get(), index,
                            slot.outbox.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD));
  }
  const auto read = slot.reader.read_from(slot.socket.get());
  bool good = read.ok() && *read != FrameReader::Read::closed;
  while (good) {
    const auto frame = slot.reader.next();
    good = frame.ok();
    if (!good || !*frame) {
      break;
    }
    take(index, **frame, ended);
  }
  if (!good) {
    // What came before the end of the connection counts.
    for (auto frame = slot.reader.next(); frame.ok() && *frame; frame = slot.reader.next()) {
      take(index, **frame, ended);
    }
    break_off(index);
  }
  return good && *read == FrameReader::Read::data;
}

void WorkerPool::State::take(int index, const FrameReader::Frame& frame,
                             std::vector<Ended>* ended) {
  Slot& slot = slots[static_cast<size_t>(index)];
  if (frame.type == FrameType::group) {
    slot.group = decode_group(frame.payload).value_or(0);
    return;
  }
  if (frame.type == FrameType::ready) {
    options.start_seconds.observe(now() - slot.since);
    slot.ready = true;
    turn_to(&slot, slot.busy ? WorkerUse::busy : WorkerUse::idle);
    return;
  }
  auto result = decode_result(frame.payload);
  if (frame.type != FrameType::result || !result || !slot.busy || result->attempt != slot.attempt) {
    return;
  }
  Ended end;
  end.attempt = slot.attempt;
  end.slot = index;
  end.seconds = result->seconds;
  end.began = slot.began;
  end.log = std::move(slot.log);
  Outcome& outcome = end.outcome;
  outcome.kind = result->ok ? Outcome::Kind::succeeded : Outcome::Kind::failed;
  outcome.output = std::move(result->output);
  outcome.error.code = std::move(result->error_code);
  outcome.error.message = std::move(result->error_message);
  outcome.exit = std::move(result->exit);
  outcome.cpu_seconds = result->cpu_seconds;
  outcome.peak_rss_bytes = result->peak_rss_bytes;
  outcome.pid = slot.child->pid();
  slot.busy = false;
  slot.kill_at = kNever;
  if (slot.use == WorkerUse::busy) {
    turn_to(&slot, WorkerUse::idle);
  }
  ended->push_back(std::move(end));
}

/// The connection is gone: so is the process, or it will be.
void WorkerPool::State::break_off(int index) {
  Slot& slot = slots[static_cast<size_t>(index)];
  slot.socket.reset();
  slot.broken = true;
  if (slot.child) {
    turn_to(&slot, WorkerUse::draining);
  }
  if (slot.child && slot.child->exit() == nullptr && slot.kill_at == kNever) {
    slot.kill_at = now() + std::chrono::seconds(1);  // it is most likely dying by itself
  }
}

void WorkerPool::State::kill_hard(int index) {
  Slot& slot = slots[static_cast<size_t>(index)];
  if (slot.group > 0) {
    ::kill(static_cast<pid_t>(-slot.group), SIGKILL);
  }
  slot.child->begin_stop("it did not stop by itself", proc::Millis(0));
}

void WorkerPool::State::reap(int index, std::vector<Ended>* ended) {
  Slot& slot = slots[static_cast<size_t>(index)];
  if (!slot.child || !slot.child->pump()) {
    return;
  }
  if (slot.socket.valid()) {
    read_frames(index, ended);  // it may have answered before it died
  }
  if (slot.group > 0) {
    ::kill(static_cast<pid_t>(-slot.group), SIGKILL);  // its command must not outlive it
    slot.group = 0;
  }
  const proc::Exit exit = *slot.child->exit();
  if (slot.busy) {
    Ended end;
    end.attempt = slot.attempt;
    end.slot = index;
    end.began = slot.began;
    end.seconds = std::chrono::duration<double>(now() - slot.began).count();
    end.log = std::move(slot.log);
    end.outcome.kind = Outcome::Kind::lost;
    end.outcome.pid = exit.pid;
    end.outcome.exit = exit.text();
    end.outcome.cpu_seconds = std::chrono::duration<double>(exit.cpu).count();
    end.outcome.peak_rss_bytes = exit.resident_bytes_max;
    const std::string line = last_line(slot.output.get(), slot.privacy);
    end.outcome.error = {
        "WorkerLost",
        "its worker ended with " + exit.text() + (line.empty() ? "" : "; its last line: " + line),
        "SystemError", ""};
    const auto moved =
        move_output_to_log(slot.output.get(), options.run_folder / end.log, slot.privacy);
    if (!moved.ok()) {
      base::log_warning("flow: " + moved.error().message());
    }
    slot.busy = false;
    ended->push_back(std::move(end));
  }
  turn_to(&slot, WorkerUse::draining);
  slot.child.reset();
  slot.socket.reset();
  slot.kill_at = kNever;
  --processes;
}

WorkerPool::WorkerPool(std::unique_ptr<State> state) : state_(std::move(state)) {}
WorkerPool::WorkerPool(WorkerPool&&) noexcept = default;
WorkerPool& WorkerPool::operator=(WorkerPool&&) noexcept = default;
WorkerPool::~WorkerPool() {
  if (state_ != nullptr) {
    shut_down(std::chrono::milliseconds(0));
  }
}

WorkerPool WorkerPool::make(WorkerPoolOptions options, int epoll) {
  auto state = std::make_unique<State>();
  state->slots.resize(static_cast<size_t>(options.slots));
  state->options = std::move(options);
  state->epoll = epoll;
  return WorkerPool(std::move(state));
}

int64_t WorkerPool::processes() const { return state_->processes; }

std::array<int64_t, kWorkerUses.size()> WorkerPool::uses() const {
  std::array<int64_t, kWorkerUses.size()> counts = {};
  for (const Slot& slot : state_->slots) {
    counts[static_cast<size_t>(slot.use)] += slot.child ? 1 : 0;
  }
  return counts;
}

std::array<Micros, kWorkerUses.size()> WorkerPool::times() const {
  std::array<Micros, kWorkerUses.size()> all = state_->spent;
  for (const Slot& slot : state_->slots) {
    all[static_cast<size_t>(slot.use)] += slot.child ? now() - slot.since : Micros(0);
  }
  return all;
}

Result<void> WorkerPool::call(int index, const CallFrame& frame) {
  Slot& slot = state_->slots[static_cast<size_t>(index)];
  if (slot.broken && slot.child) {
    // Its end was reported with its last attempt, or it died idle: make room for a new one now.
    auto end = slot.child->stop("its connection broke", proc::Millis(0));
    if (!end.ok()) {
      return end.error();
    }
    std::vector<Ended> none;
    state_->reap(index, &none);
  }
  if (!slot.child) {
    HR_TRY(state_->spawn(index));
  }
  slot.attempt = frame.attempt;
  slot.busy = true;
  slot.began = now();
  if (slot.ready) {
    state_->turn_to(&slot, WorkerUse::busy);
  }
  slot.log = frame.log;
  slot.privacy = {frame.secure_output, {}};
  for (const std::string& secret : frame.secrets) {
    slot.privacy.secrets.insert(secret);
  }
  slot.outbox += encode(frame);
  static_cast<void>(send_some(slot.socket.get(), &slot.outbox));  // a dead worker shows by its end
  if (!slot.outbox.empty()) {
    return state_->watch(slot.socket.get(), index, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
  }
  return {};
}

void WorkerPool::stop(int index) {
  Slot& slot = state_->slots[static_cast<size_t>(index)];
  if (!slot.busy || !slot.child) {
    return;
  }
  const auto grace = proc::Millis(state_->options.hello.grace_ms);
  if (slot.group > 0 && slot.socket.valid()) {
    slot.outbox += encode_stop();
    static_cast<void>(send_some(slot.socket.get(), &slot.outbox));
    slot.kill_at = now() + grace + kKillMargin;
  } else {
    slot.child->begin_stop("asked to stop", grace);
    state_->turn_to(&slot, WorkerUse::draining);
  }
}

void WorkerPool::on_event(int slot, std::vector<Ended>* ended) {
  // A frame is the rule, an end the exception: the process is only asked when nothing came.
  if (!state_->read_frames(slot, ended)) {
    state_->reap(slot, ended);
  }
}

void WorkerPool::on_time() {
  for (size_t i = 0; i < state_->slots.size(); ++i) {
    Slot& slot = state_->slots[i];
    if (slot.kill_at != kNever && now() >= slot.kill_at) {
      slot.kill_at = kNever;
      if (slot.child) {
        state_->kill_hard(static_cast<int>(i));
      }
    }
  }
}

std::optional<Micros> WorkerPool::next_deadline() const {
  Micros next = kNever;
  for (const Slot& slot : state_->slots) {
    next = std::min(next, slot.kill_at);
  }
  return next == kNever ? std::nullopt : std::optional(next);
}

void WorkerPool::shut_down(std::chrono::milliseconds grace) {
  std::vector<Ended> lost;
  for (size_t i = 0; i < state_->slots.size(); ++i) {
    Slot& slot = state_->slots[i];
    if (!slot.child) {
      continue;
    }
    slot.socket.reset();  // an idle worker, and a command's, end by that
    if (slot.busy) {
      slot.child->begin_stop("the run stops", grace);
    }
  }
  const Micros until = now() + grace;
  bool killed = false;
  while (state_->processes > 0) {
    const Micros left = until - now();
    if (left <= Micros(0)) {
      if (killed) {
        return;  // the destructor of Child has the last word
      }
      killed = true;
      for (size_t i = 0; i < state_->slots.size(); ++i) {
        if (state_->slots[i].child) {
          state_->kill_hard(static_cast<int>(i));
        }
      }
    }
    std::vector<pollfd> ends;
    for (const Slot& slot : state_->slots) {
      if (slot.child) {
        ends.push_back({slot.child->event_fd(), POLLIN, 0});
      }
    }
    ::poll(ends.data(), ends.size(), killed ? 5000 : static_cast<int>(left.count() / 1000 + 1));
    for (size_t i = 0; i < state_->slots.size(); ++i) {
      state_->reap(static_cast<int>(i), &lost);
    }
  }
}

}  // namespace headrace::flow
