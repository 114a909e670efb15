// SPDX-License-Identifier: Apache-2.0
// A child process we own: started in a group of its own, limited, heard line by line, ended as a
// group, its end explained.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"

namespace headrace::proc {

using Millis = std::chrono::milliseconds;

enum class Stream : uint8_t { out, err };

/// What the child reads as standard input.
struct Input {
  enum class From : uint8_t { null, inherit, file, text, pipe };
  From from = From::null;
  base::Path path;   ///< for `file`
  std::string text;  ///< for `text`: given through an unnamed file, whole and seekable
};

/// Where the child's standard output or error goes.
struct Output {
  enum class To : uint8_t {
    null,
    inherit,
    file,      ///< appended to `path`, which is made if need be; the child writes it itself
    lines,     ///< through a pipe, line by line, to `on_line`
    with_out,  ///< for errors only: the same place as standard output, in the order of writing
  };
  To to = To::null;
  base::Path path;
};

/// Tells another thread of a child's group while the child is being started: what the child starts
/// must not live on because nobody had heard of it yet. To end it for good, set `called_off`, then
/// kill the group if there is one: whichever comes first, nothing of the program goes on.
struct GroupNotice {
  std::atomic<int64_t> group{0};        ///< set before anything of the program runs
  std::atomic<bool> called_off{false};  ///< a child that sees it does not start its program
};

/// A descriptor the child gets under `number` (>= 3). The caller keeps its own and closes it.
struct PassedFd {
  int fd = -1;
  int number = -1;
};

/// setrlimit(2): `resource` is RLIMIT_...; soft and hard limit become `value`.
struct ResourceLimit {
  int resource = 0;
  uint64_t value = 0;
};

struct ChildOptions {
  /// argv[0] is the program: a path, or a name that is looked up in the child's PATH. A relative
  /// path counts from `folder`.
  std::vector<std::string> argv;
  /// Set on top of this process's environment (or of nothing, with `empty_environment`).
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> environment_removed;
  bool empty_environment = false;
  base::Path folder;  ///< working folder; empty: ours

  Input input;
  Output out = {.to = Output::To::lines, .path = {}};
  Output err = {.to = Output::To::lines, .path = {}};
  /// Called from pump(), wait() and stop() for each line, without its end ("\n" or "\r\n").
  std::function<void(Stream stream, std::string_view line)> on_line;
  /// The same bytes as they came, line ends and all; not bounded by `lines_bytes_max`.
  std::function<void(Stream stream, std::string_view bytes)> on_bytes;
  int64_t line_bytes_max = int64_t{64} << 10;   ///< a longer line is cut there
  int64_t lines_bytes_max = int64_t{16} << 20;  ///< in all to `on_line`; later lines are counted
  std::vector<PassedFd> fds;                    ///< no other descriptor of ours reaches the child

  int threads = 0;               ///< > 0: OMP_NUM_THREADS and its like say so
  std::vector<int> cores;        ///< to run on (sched_setaffinity); empty: those of ours
  int64_t memory_bytes_max = 0;  ///< > 0: private memory (RLIMIT_DATA); allocations above it fail
  int nice = 0;                  ///< added to ours
  std::vector<ResourceLimit> limits;
  Millis timeout{0};  ///< > 0: stopped after this long; the end says so
  /// > 0: HEADRACE_HEARTBEAT_FD names a descriptor; a child that writes no byte to it for this long
  /// is stopped; the end says so.
  Millis heartbeat{0};
  Millis grace{10000};  ///< between SIGTERM and SIGKILL when a timeout stops the child
  /// SIGKILL the child when we end, however. Linux ties that to the *thread* which starts the
  /// child: start long-lived children from a thread that outlives them, or set this to false.
  bool die_with_parent = true;
  GroupNotice* notice = nullptr;  ///< told of the group; must outlive spawn()
};

/// How a child ended.
struct HR_API Exit {
  int code = -1;               ///< exit code; -1 when a signal ended it, or when nobody knows
  int signal = 0;              ///< signal that ended it, or 0
  bool out_of_memory = false;  ///< the kernel killed it for lack of memory
  std::string stopped;         ///< why we stopped it ("timeout of 5 s"), empty when we did not
  Millis wall{0};
  Millis cpu{0};                        ///< user + system, with its waited-for children
  int64_t resident_bytes_max = 0;       ///< peak of the largest process
  bool leftovers = false;               ///< processes of its group outlived it and were killed
  int64_t dropped_lines = 0;            ///< lines beyond `lines_bytes_max`
  std::vector<std::string> last_lines;  ///< at most 20 lines and 4 KiB, both streams
  int64_t pid = -1;

  bool ok() const { return code == 0 && stopped.empty(); }
  /// "exit code 3", "SIGSEGV", "SIGKILL (out of memory)", "SIGTERM (stopped: timeout of 5 s)".
  std::string text() const;
  /// `what` + how it ended + its last line; the code is out_of_memory, timeout (stopped by a
  /// timeout), cancelled (stopped by the caller) or child_failed. REQUIRES !ok().
  Error to_error(std::string_view what) const;
};

/// One running child. Move-only, not thread-safe. Whoever owns it must pump it (or wait for it):
/// output that nobody reads stops the child. The destructor kills the whole group and waits at most
/// 5 s.
class HR_API Child {
 public:
  /// `not_found` when the program or the folder is not there; `invalid_argument` for bad options;
  /// `cancelled` when it was called off.
  static Result<Child> spawn(ChildOptions options);
  Child(Child&&) noexcept;
  Child& operator=(Child&&) noexcept;
  ~Child();

  int64_t pid() const;
  /// Readable when pump() has something to do; for an event loop.
  int event_fd() const;
  /// Write end of the child's input with Input::From::pipe; else -1. Blocking; SIGPIPE is the
  /// caller's to ignore.
  int input_fd() const;
  void close_input();

  /// Deliver what is there and act on what is due, without waiting. True once the child has ended
  /// and all it wrote was delivered.
  bool pump();
  /// Pump until the end. `timeout` when it still runs after `limit`; it goes on running then.
  Result<Exit> wait(Millis limit);
  /// Send `number` to the whole group.
  void signal(int number);
  /// Begin to end it: SIGTERM to the group now, SIGKILL after `grace`. Does not wait. The first
  /// reason stays.
  void begin_stop(std::string_view reason, Millis grace);
  /// begin_stop and wait for the end: at most `grace` + 5 s (`timeout` when even SIGKILL does not
  /// end it, which the kernel may do to a process that hangs in a file system).
  Result<Exit> stop(std::string_view reason, Millis grace);
  /// How it ended; nullptr while it runs.
  const Exit* exit() const;

 private:
  struct State;
  explicit Child(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// "SIGKILL", "SIGTERM", ...; "signal 40" for those without a name.
HR_API std::string signal_name(int number);

}  // namespace headrace::proc
