// SPDX-License-Identifier: Apache-2.0
// What a person sees: a progress line with rate and ETA on a terminal, plain lines elsewhere;
// aligned tables; colours.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/printable.h"

namespace headrace::cli {

/// stderr is a terminal and TERM is not "dumb".
bool stderr_is_terminal();
/// Colours: only on a terminal and without NO_COLOR.
bool use_colour(int fd);

/// Where progress is drawn. `write` gets whole pieces of text, escape sequences included.
struct Screen {
  bool terminal = false;
  bool colour = false;
  int columns = 80;
  std::function<void(std::string_view)> write;
};
/// stderr as it is now.
Screen stderr_screen();

/// Progress of a known number of items on stderr. On a terminal one line is redrawn at most 10
/// times a second; elsewhere a plain line is printed every 10 s and at the end. Log lines are kept
/// apart from the bar. One Progress at a time (it takes the log's sink); not thread-safe but for
/// log lines of other threads.
class Progress {
 public:
  Progress(std::string label, int64_t total, base::Clock& clock = base::system_clock(),
           Screen screen = stderr_screen());
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Counts so far.
  struct Counts {
    int64_t done = 0;
    int64_t failed = 0;
    int64_t running = 0;
    int64_t waiting = 0;        ///< for their next try; shown when there are any
    int64_t cancelled = 0;      ///< not among `failed`; shown when there are any
    int64_t skipped = 0;        ///< never begun, nor among `failed`; shown when there are any
    double eta_seconds = -1.0;  ///< < 0: estimated from the rate
  };
  void update(const Counts& counts);
  void update(int64_t done, int64_t failed, int64_t running) { update({done, failed, running}); }
  /// Draw the last state and end the line; a second call does nothing.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

using base::printable;

/// Text on its way into a line for a person: printable(). Other values stay.
template <typename T>
auto shown(const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return printable(std::string_view(value));
  } else {
    return value;
  }
}

/// fmt::print for people: every text among `values` is made printable() and stays on its line.
template <typename... T>
void say(std::FILE* file, fmt::format_string<decltype(shown(std::declval<const T&>()))...> text,
         const T&... values) {
  fmt::print(file, text, shown(values)...);
}

/// Aligned columns with a header, cells made printable(); numbers right-aligned. For a pipe the
/// same text without colours.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);
  void add(std::vector<std::string> row);
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// "1 h 02 min", "3 min 10 s", "4.2 s", "12 ms".
std::string duration_text(double seconds);

/// Set by SIGINT/SIGTERM once `install_interrupt_handler` was called; a second signal ends the
/// process at once (130). May be called again: the handler stays, the flag is not cleared.
void install_interrupt_handler();
bool interrupted();
/// Becomes and stays readable at the first signal; for event loops. -1 before the handler is
/// installed.
int interrupt_fd();

}  // namespace headrace::cli
