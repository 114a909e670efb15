// SPDX-License-Identifier: Apache-2.0
#include "headrace/cli/terminal.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <deque>

#include "headrace/base/environment.h"
#include "headrace/base/log.h"
#include "headrace/base/thread.h"

namespace headrace::cli {

namespace {

constexpr base::Micros kRedraw{100'000};
constexpr base::Micros kPlainLine{10'000'000};
constexpr base::Micros kRateWindow{30'000'000};
constexpr size_t kSamplesMax = 128;

std::string_view level_text(base::LogLevel level) {
  switch (level) {
    case base::LogLevel::debug: return "debug";
    case base::LogLevel::info: return "info";
    case base::LogLevel::warning: return "warning";
    case base::LogLevel::error: return "error";
    case base::LogLevel::off: return "off";
  }
  return "off";
}

/// Columns that `text` takes: code points of UTF-8 (names in tables are seldom wider than one
/// column each).
size_t shown_width(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0U) != 0x80U; }));
}

/// Length of the beginning of `text` that takes at most `columns`; no code point is cut.
size_t bytes_of_width(std::string_view text, size_t columns) {
  size_t at = 0;
  for (size_t width = 0; at < text.size(); ++at) {
    const bool starts = (static_cast<uint8_t>(text[at]) & 0xC0U) != 0x80U;
    width += starts ? 1U : 0U;
    if (width > columns) {
      break;
    }
  }
  return at;
}

std::string bar_text(int64_t done, int64_t total, size_t width, bool colour) {
  const double part = total <= 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
  const auto full =
      static_cast<size_t>(std::lround(std::clamp(part, 0.0, 1.0) * static_cast<double>(width)));
  std::string bar;
  for (size_t i = 0; i < width; ++i) {
    bar += i < full ? "━" : "─";
    if (colour && i + 1 == full) {
      bar += "\x1b[0;2m";
    }
  }
  return colour ? (full == 0 ? "\x1b[2m" : "\x1b[32m") + bar + "\x1b[0m" : bar;
}

}  // namespace

bool stderr_is_terminal() {
  return ::isatty(STDERR_FILENO) == 1 && base::environment("TERM").value_or("") != "dumb";
}

bool use_colour(int fd) {
  return ::isatty(fd) == 1 && base::environment("TERM").value_or("") != "dumb" &&
         !base::environment("NO_COLOR");
}

Screen stderr_screen() {
  Screen screen;
  screen.terminal = stderr_is_terminal();
  screen.colour = use_colour(STDERR_FILENO);
  winsize size = {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    screen.columns = size.ws_col;
  }
  screen.write = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  };
  return screen;
}

struct Progress::State {
  State(std::string_view label_in, int64_t total_in, base::Clock& clock_in, Screen screen_in)
      : label(printable(label_in)),
        total(total_in),
        clock(clock_in),
        screen(std::move(screen_in)),
        started(clock.monotonic()) {}

  struct Sample {
    base::Micros at;
    int64_t done;
  };

  const std::string label;
  const int64_t total;
  base::Clock& clock;
  const Screen screen;
  const base::Micros started;

  base::Mutex mu;  // leaf: held while drawing, so that a log line and the bar never mix
  Counts counted HR_GUARDED_BY(mu);
  std::deque<Sample> samples HR_GUARDED_BY(mu);
  base::Micros drawn_at HR_GUARDED_BY(mu){0};
  bool drawn HR_GUARDED_BY(mu) = false;
  bool finished HR_GUARDED_BY(mu) = false;

  void note_sample(base::Micros now) HR_REQUIRES(mu) {
    // The first sample may stand above zero: a resumed run has items that cost nothing now.
    if (!samples.empty() && now - samples.back().at < kRateWindow / kSamplesMax) {
      if (samples.size() > 1) {
        samples.back().done = counted.done;
      }
      return;
    }
    samples.push_back({now, counted.done});
    while (samples.size() > 2 &&
           (samples.size() > kSamplesMax || now - samples[1].at >= kRateWindow)) {
      samples.pop_front();
    }
  }

  double rate(base::Micros now) const HR_REQUIRES(mu) {
    if (samples.empty() || now <= samples.front().at) {
      return 0.0;
    }
    constexpr double kShortest = 0.1;  // of less time a rate says nothing
    const double seconds = std::chrono::duration<double>(now - samples.front().at).count();
    if (seconds < kShortest) {
      return 0.0;
    }
    return static_cast<double>(counted.done - samples.front().done) / seconds;
  }

  /// "120/414, 3.9/s, ETA 1 min 15 s, 2 running, 3 waiting to retry, 1 failed"
  std::string counts(base::Micros now, bool last) const HR_REQUIRES(mu) {
    std::string text = fmt::format("{}/{}", counted.done, total);
    const double per_second = rate(now);
    if (per_second > 0.0) {
      text += fmt::format(", {:.{}f}/s", per_second, per_second < 10 ? 2 : 0);
    }
    const double left = counted.eta_seconds >= 0.0 ? counted.eta_seconds
                        : per_second > 0.0 ? static_cast<double>(total - counted.done) / per_second
                                           : -1.0;
    if (last) {
      text += ", " + duration_text(std::chrono::duration<double>(now - started).count());
    } else {
      if (left >= 0.0) {
        text += ", ETA " + duration_text(left < 10.0 ? left : std::round(left));
      }
      text += fmt::format(", {} running", counted.running);
      if (counted.waiting > 0) {
        text += fmt::format(", {} waiting to retry", counted.waiting);
      }
    }
    text += fmt::format(", {} failed", counted.failed);
    if (counted.cancelled > 0) {
      text += fmt::format(", {} cancelled", counted.cancelled);
    }
    if (counted.skipped > 0) {
      text += fmt::format(", {} not started", counted.skipped);
    }
    return text;
  }

  void draw(base::Micros now, bool last) HR_REQUIRES(mu) {
    drawn_at = now;
    if (!screen.terminal) {
      drawn = true;
      screen.write(label + ": " + counts(now, last) + "\n");
      return;
    }
    const std::string right = counts(now, last);
    const double part =
        total <= 0 ? 1.0 : static_cast<double>(counted.done) / static_cast<double>(total);
    const std::string left = fmt::format("{} {:3.0f} %", label, std::floor(part * 100.0));
    const auto columns = static_cast<size_t>(std::max(10, screen.columns - 1));
    const size_t used = shown_width(left) + shown_width(right) + 2;
    // Cut before colours come in: their escapes take no column.
    std::string line = left + " " + right;
    if (used + 6 <= columns) {
      const size_t width = std::min<size_t>(columns - used - 1, 40);
      line = left + " " + bar_text(counted.done, total, width, screen.colour) + " " + right;
    } else {
      line.resize(bytes_of_width(line, columns));
    }
    screen.write("\r" + line + "\x1b[K" + (last ? "\n" : ""));
    drawn = true;
  }

  void log_line(base::LogLevel level, std::string_view text) HR_EXCLUDES(mu) {
    const std::string line = fmt::format("{} {} {}\n", base::utc_text(clock.wall(), 3),
                                         level_text(level), printable(text));
    const base::MutexLock lock(mu);
    if (screen.terminal && drawn && !finished) {
      screen.write("\r\x1b[K" + line);
      draw(clock.monotonic(), false);
    } else {
      screen.write(line);
    }
  }
};

Progress::Progress(std::string label, int64_t total, base::Clock& clock, Screen screen)
    : state_(std::make_unique<State>(label, total, clock, std::move(screen))) {
  State* state = state_.get();
  {
    const base::MutexLock lock(state->mu);
    state->drawn_at = state->started;
  }
  base::set_log_sink(
      [state](base::LogLevel level, std::string_view text) { state->log_line(level, text); });
}

Progress::~Progress() {
  finish();
  base::set_log_sink(nullptr);
}

void Progress::update(const Counts& counts) {
  const base::MutexLock lock(state_->mu);
  const base::Micros now = state_->clock.monotonic();
  state_->counted = counts;
  state_->note_sample(now);
  const bool first = state_->screen.terminal && !state_->drawn;
  const base::Micros interval = state_->screen.terminal ? kRedraw : kPlainLine;
  if (!state_->finished && (first || now - state_->drawn_at >= interval)) {
    state_->draw(now, false);
  }
}

void Progress::finish() {
  const base::MutexLock lock(state_->mu);
  if (!state_->finished) {
    state_->draw(state_->clock.monotonic(), true);
    state_->finished = true;
  }
}

TextTable::TextTable(std::vector<std::string> header) {
  for (std::string& name : header) {
    name = printable(name);
  }
  rows_.push_back(std::move(header));
}

void TextTable::add(std::vector<std::string> row) {
  row.resize(rows_.front().size());
  for (std::string& cell : row) {
    cell = printable(cell);
  }
  rows_.push_back(std::move(row));
}

std::string TextTable::text() const {
  const size_t columns = rows_.front().size();
  std::vector<size_t> widths(columns, 0);
  std::vector<bool> numeric(columns, rows_.size() > 1);
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t c = 0; c < columns; ++c) {
      const std::string& cell = rows_[r][c];
      widths[c] = std::max(widths[c], shown_width(cell));
      const bool number =
          cell.empty() || cell == "-" || cell.find_first_not_of("0123456789.,+-e% ") == cell.npos;
      numeric[c] = numeric[c] && (r == 0 || number);
    }
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t c = 0; c < columns; ++c) {
      const std::string pad(widths[c] - shown_width(row[c]), ' ');
      line += (c == 0 ? "" : "  ") + (numeric[c] ? pad + row[c] : row[c] + pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string duration_text(double seconds) {
  if (!(seconds >= 0.0)) {
    return "?";
  }
  if (seconds < 0.0995) {
    return fmt::format("{:.0f} ms", seconds * 1000.0);
  }
  if (seconds < 9.95) {
    return fmt::format("{:.1f} s", seconds);
  }
  const auto whole = static_cast<int64_t>(std::llround(std::min(seconds, 1e15)));
  if (whole < 60) {
    return fmt::format("{} s", whole);
  }
  if (whole < 3600) {
    return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  }
  if (whole < 100 * 3600) {
    return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
  }
  return fmt::format("{} d {:02} h", whole / 86400, whole % 86400 / 3600);
}

namespace {

// Signal handlers reach nothing but statics; these two are written by the handler alone.
std::atomic<int> signals_seen{0};
std::atomic<int> signal_event{-1};
static_assert(std::atomic<int>::is_always_lock_free);

void on_interrupt(int) {
  const int saved = errno;
  if (signals_seen.fetch_add(1) > 0) {
    ::_exit(130);
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written =
      ::write(signal_event.load(), &one, sizeof one);  // the counter cannot overflow: one write
  errno = saved;
}

}  // namespace

void install_interrupt_handler() {
  if (signal_event.load() >= 0) {
    return;
  }
  signal_event.store(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  ::sigemptyset(&action.sa_mask);
  // No SA_RESTART: a blocking call of the command returns EINTR and sees interrupted().
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return signals_seen.load() > 0; }

int interrupt_fd() { return signal_event.load(); }

}  // namespace headrace::cli
