// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/board_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "headrace/base/clock.h"

namespace headrace::base {

namespace {

Path boards_root() {
  struct statvfs space = {};
  constexpr uint64_t kNeeded = uint64_t{16} << 20;
  // Its size, not what is free: all processes of a run must come to the same answer.
  const bool roomy =
      ::statvfs("/dev/shm", &space) == 0 && uint64_t{space.f_blocks} * space.f_frsize >= kNeeded;
  std::error_code code;
  const Path root = roomy ? Path("/dev/shm") : std::filesystem::temp_directory_path(code);
  return root / ("headrace-" + std::to_string(::getuid()));
}

BoardSnapshot::Metric* find_same(BoardSnapshot* all, const BoardSnapshot::Metric& one) {
  const auto found = std::find_if(all->metrics.begin(), all->metrics.end(), [&](const auto& other) {
    return other.name == one.name && other.labels == one.labels && other.type == one.type;
  });
  return found == all->metrics.end() ? nullptr : &*found;
}

}  // namespace

Path board_folder(std::string_view run) { return boards_root() / run; }

std::optional<uint64_t> start_ticks_of(int64_t pid) {
  const auto text = read_file("/proc/" + std::to_string(pid) + "/stat", 8192);
  if (!text.ok()) {
    return std::nullopt;
  }
  size_t at = text->rfind(')');  // the name before it may hold blanks
  for (int field = 2; field < 22 && at != std::string::npos; ++field) {
    at = text->find(' ', at + 1);
  }
  uint64_t ticks = 0;
  if (at == std::string::npos ||
      std::from_chars(text->data() + at + 1, text->data() + text->size(), ticks).ec !=
          std::errc()) {
    return std::nullopt;
  }
  return ticks;
}

std::vector<Path> boards_in(const Path& folder) {
  std::vector<Path> boards;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code)) {
    if (entry.path().extension() == ".board") {
      boards.push_back(entry.path());
    }
  }
  std::sort(boards.begin(), boards.end());
  return boards;
}

bool board_is_alive(const Path& board) {
  const auto fd = open_file(board, O_RDONLY | O_NOFOLLOW);
  return fd.ok() && ::flock(fd->get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

void remove_dead_boards(const Path& folder) {
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code)) {
    const Path extension = entry.path().extension();
    if ((extension == ".board" || extension == ".new") && !board_is_alive(entry.path())) {
      ::unlink(entry.path().c_str());
    }
  }
  ::rmdir(folder.c_str());  // fails while something is in it
}

void remove_left_boards(Micros age) {
  const Micros before = system_clock().wall() - age;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(boards_root(), code)) {
    struct stat info = {};
    const bool left = ::lstat(entry.path().c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                      Micros(std::chrono::seconds(info.st_mtime)) < before;
    const auto boards = left ? boards_in(entry.path()) : std::vector<Path>();
    if (left && std::none_of(boards.begin(), boards.end(), board_is_alive)) {
      remove_dead_boards(entry.path());
    }
  }
}

void add_board(BoardSnapshot* all, const BoardSnapshot& one) {
  for (const BoardSnapshot::Metric& metric : one.metrics) {
    BoardSnapshot::Metric* same = find_same(all, metric);
    if (same == nullptr) {
      all->metrics.push_back(metric);
    } else if (metric.type != MetricType::gauge) {
      same->count += metric.count;
      same->value += metric.value;
      for (size_t i = 0; i < metric.buckets.size(); ++i) {
        same->buckets[i] += metric.buckets[i];
      }
    }
  }
}

void fold_board(Board* board, const BoardSnapshot& one) {
  for (const BoardSnapshot::Metric& metric : one.metrics) {
    const MetricInfo info = {metric.name, metric.type, metric.unit, ""};
    if (metric.type == MetricType::counter) {
      board->counter(info, metric.labels).add(metric.count);
    } else if (metric.type == MetricType::histogram) {
      board->histogram(info, metric.labels)
          .add(metric.buckets, static_cast<uint64_t>(std::max(0.0, metric.value)));
    }
  }
}

}  // namespace headrace::base
