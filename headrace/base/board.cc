// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/board.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "headrace/base/board_folder.h"
#include "headrace/base/board_layout_internal.h"
#include "headrace/base/clock.h"
#include "headrace/base/log.h"
#include "headrace/base/metric_names.h"
#include "headrace/base/thread.h"

namespace headrace::base {

namespace {

/// Where handles without a board count.
std::atomic<uint64_t>* nowhere() {
  alignas(64) static std::atomic<uint64_t> cells[Histogram::kBuckets + 2];
  return cells;
}

const uint64_t kAbsent = std::bit_cast<uint64_t>(std::numeric_limits<double>::quiet_NaN());

void put_text(std::string_view text, std::span<char> out) {
  const size_t count = std::min(text.size(), out.size() - 1);
  std::copy_n(text.data(), count, out.data());
  out[count] = '\0';
}

/// Boards of this process, for the handler of fork() only: it may take no lock.
constexpr size_t kBoardsMax = 16;
std::atomic<void*> boards_of_process[kBoardsMax];

/// In the child of a fork: put private memory in place of every board, so that the handles which
/// the child inherited count nowhere.
void detach_boards() {
  for (std::atomic<void*>& place : boards_of_process) {
    void* pages = place.load(std::memory_order_relaxed);
    if (pages != nullptr) {
      ::mmap(pages, kBoardBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
             -1, 0);
    }
  }
}

void remember_board(void* pages) {
  [[maybe_unused]] static const int registered = ::pthread_atfork(nullptr, nullptr, detach_boards);
  for (std::atomic<void*>& place : boards_of_process) {
    void* empty = nullptr;
    if (place.compare_exchange_strong(empty, pages, std::memory_order_relaxed)) {
      return;
    }
  }
}

void forget_board(void* pages) {
  for (std::atomic<void*>& place : boards_of_process) {
    void* expected = pages;
    place.compare_exchange_strong(expected, nullptr, std::memory_order_relaxed);
  }
}

/// A folder below one where everybody may write: another user may have been there first.
Result<void> make_private_folder(const Path& place) {
  struct stat info = {};
  if (::mkdir(place.c_str(), 0700) == 0) {
    return {};
  }
  if (errno != EEXIST || ::lstat(place.c_str(), &info) != 0) {
    return errno_error(errno, "making folder " + place.string());
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid()) {
    return Error{Errc::io, place.string() + " is no folder of this user; remove it"};
  }
  if ((info.st_mode & 077U) != 0 && ::chmod(place.c_str(), 0700) != 0) {
    return errno_error(errno, "closing " + place.string() + " to others");
  }
  return {};
}

Result<void> make_board_folder(const BoardOptions& options, const Path& folder) {
  if (!options.folder.empty()) {
    return make_folders(folder);
  }
  HR_TRY(make_folders(folder.parent_path().parent_path()));
  HR_TRY(make_private_folder(folder.parent_path()));
  return make_private_folder(folder);
}

/// The file of a board, locked for as long as it is open before anybody can see it by its name.
Result<Fd> make_board_file(const Path& path) {
  const Path made = path.string() + ".new";
  ::unlink(made.c_str());  // the name is ours alone: it holds our pid and start
  HR_TRY(auto fd, open_file(made, O_RDWR | O_CREAT | O_EXCL, 0600));
  // Space is reserved now: a full /dev/shm must not kill the process with SIGBUS later.
  int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(kBoardBytes));
  if (error == 0 &&
      (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 || ::link(made.c_str(), path.c_str()) != 0)) {
    error = errno;
  }
  ::unlink(made.c_str());
  if (error != 0) {
    return errno_error(error, "making the metrics board " + path.string());
  }
  return fd;
}

}  // namespace

Counter::Counter() : first_(nowhere()) {}
Gauge::Gauge() : cell_(nowhere()) {}
Histogram::Histogram() : cells_(nowhere()) {}

uint32_t Counter::stripe() const {
  static std::atomic<uint32_t> next{0};
  thread_local const uint32_t mine = next.fetch_add(1, std::memory_order_relaxed);
  return mine & mask_;
}

void Gauge::set(double value) {
  cell_->store(std::bit_cast<uint64_t>(value), std::memory_order_relaxed);
}

void Gauge::raise(double value) {
  uint64_t seen = cell_->load(std::memory_order_relaxed);
  while (!(std::bit_cast<double>(seen) >= value) &&
         !cell_->compare_exchange_weak(seen, std::bit_cast<uint64_t>(value),
                                       std::memory_order_relaxed)) {
  }
}

int Histogram::bucket_of(uint64_t steps) {
  if (steps == 0) {
    return 0;
  }
  const int octave = static_cast<int>(std::bit_width(steps)) - 1;
  const int half = octave == 0 ? 0 : static_cast<int>((steps >> (octave - 1)) & 1U);
  return std::min(1 + 2 * octave + half, kBuckets - 1);
}

double Histogram::upper_bound(int index) {
  if (index >= kBuckets - 1) {
    return std::numeric_limits<double>::infinity();
  }
  if (index == 0) {
    return 1.0;
  }
  const double octave = std::ldexp(1.0, (index - 1) / 2);
  return (index - 1) % 2 == 0 ? 1.5 * octave : 2.0 * octave;
}

void Histogram::observe(uint64_t steps) {
  cells_[bucket_of(steps)].fetch_add(1, std::memory_order_relaxed);
  cells_[kBuckets].fetch_add(steps, std::memory_order_relaxed);
  cells_[kBuckets + 1].fetch_add(1, std::memory_order_relaxed);
}

void Histogram::add(std::span<const uint64_t, kBuckets> buckets, uint64_t sum) {
  uint64_t count = 0;
  for (size_t i = 0; i < buckets.size(); ++i) {
    cells_[i].fetch_add(buckets[i], std::memory_order_relaxed);
    count += buckets[i];
  }
  cells_[kBuckets].fetch_add(sum, std::memory_order_relaxed);
  cells_[kBuckets + 1].fetch_add(count, std::memory_order_relaxed);
}

struct Board::State {
  Path path;
  bool keep = false;
  bool own_folder = false;  ///< it was not named: an empty one is nobody's
  std::byte* pages = nullptr;
  Fd fd;  ///< its lock says that we live

  Mutex mu;  // leaf; counting takes no lock, only the making of handles does
  std::map<std::string, const BoardEntry*, std::less<>> known HR_GUARDED_BY(mu);
  uint32_t slots_used HR_GUARDED_BY(mu) = 0;
  uint32_t histograms_used HR_GUARDED_BY(mu) = 0;
  bool warned HR_GUARDED_BY(mu) = false;
  Counter overflow;

  ~State() {
    forget_board(pages);
    ::munmap(pages, kBoardBytes);
    if (!keep) {
      ::unlink(path.c_str());
      if (own_folder) {
        ::rmdir(path.parent_path().c_str());  // fails, and shall, while other boards lie there
      }
    }
  }
  BoardHeader& header() { return *reinterpret_cast<BoardHeader*>(pages); }
  std::atomic<uint64_t>* cells(const BoardEntry& entry);
  const BoardEntry* find_or_add(const MetricInfo& info, std::string_view labels, uint8_t stripes);
  void refuse(const MetricInfo& info, std::string_view why) HR_REQUIRES(mu);
};

std::atomic<uint64_t>* Board::State::cells(const BoardEntry& entry) {
  const bool wide = entry.type == static_cast<uint8_t>(MetricType::histogram);
  const uint64_t offset = wide ? header().histograms_offset + entry.place * kBoardHistogramBytes
                               : header().slots_offset + entry.place * kBoardSlotBytes;
  return reinterpret_cast<std::atomic<uint64_t>*>(pages + offset);
}

void Board::State::refuse(const MetricInfo& info, std::string_view why) {
  overflow.add();
  if (!warned) {
    warned = true;
    log_warning("metrics: \"" + std::string(info.name) + "\" is not counted: " + std::string(why) +
                "; watch.overflow tells how many more");
  }
}

/// The entry, or nullptr when there is no place for it.
const BoardEntry* Board::State::find_or_add(const MetricInfo& info, std::string_view labels,
                                            uint8_t stripes) {
  const std::string key = std::string(info.name) + "{" + std::string(labels) + "}";
  const MutexLock lock(mu);
  const auto found = known.find(key);
  if (found != known.end()) {
    if (found->second->type == static_cast<uint8_t>(info.type)) {
      return found->second;
    }
    refuse(info, "the name is taken by a metric of another type");
    return nullptr;
  }
  BoardHeader& head = header();
  const uint32_t index = head.entries.load(std::memory_order_relaxed);
  const bool wide = info.type == MetricType::histogram;
  uint32_t& used = wide ? histograms_used : slots_used;
  if (index >= head.entries_max || used + stripes > (wide ? head.histograms : head.slots)) {
    refuse(info, "the board is full");
    return nullptr;
  }
  if (info.name.size() >= sizeof(BoardEntry::name) ||
      info.unit.size() >= sizeof(BoardEntry::unit) || labels.size() >= sizeof(BoardEntry::labels)) {
    refuse(info, "its name, unit or labels are too long");
    return nullptr;
  }
  auto* entry = reinterpret_cast<BoardEntry*>(pages + head.catalogue_offset) + index;
  put_text(info.name, entry->name);
  put_text(labels, entry->labels);
  put_text(info.unit, entry->unit);
  entry->type = static_cast<uint8_t>(info.type);
  entry->stripes = stripes;
  entry->place = used;
  used += stripes;
  if (info.type == MetricType::gauge) {
    cells(*entry)->store(kAbsent, std::memory_order_relaxed);
  }
  head.entries.store(index + 1, std::memory_order_release);  // pairs with the acquire in read_board
  known.emplace(key, entry);
  return entry;
}

Board::Board(std::unique_ptr<State> state) : state_(std::move(state)) {}
Board::~Board() = default;

Result<std::unique_ptr<Board>> Board::create(const BoardOptions& options) {
  const Path folder = options.folder.empty() ? board_folder(options.run) : options.folder;
  HR_TRY(make_board_folder(options, folder));
  const uint64_t ticks = start_ticks_of(::getpid()).value_or(0);
  const Path path = folder / (std::to_string(::getpid()) + "-" + std::to_string(ticks) + ".board");
  HR_TRY(auto fd, make_board_file(path));
  void* pages = ::mmap(nullptr, kBoardBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (pages == MAP_FAILED) {
    const int error = errno;
    ::unlink(path.c_str());
    return errno_error(error, "making the metrics board " + path.string());
  }
  auto state = std::make_unique<State>();
  state->path = path;
  state->keep = options.keep;
  state->own_folder = options.folder.empty();
  state->pages = static_cast<std::byte*>(pages);
  state->fd = std::move(fd);
  remember_board(pages);
  BoardHeader& head = state->header();
  head.header_bytes = 4096;
  head.entry_bytes = sizeof(BoardEntry);
  head.total_bytes = kBoardBytes;
  head.entries_max = kBoardSlots + kBoardHistograms;
  head.slots = kBoardSlots;
  head.histograms = kBoardHistograms;
  head.catalogue_offset = head.header_bytes;
  head.slots_offset = head.catalogue_offset + uint64_t{head.entries_max} * sizeof(BoardEntry);
  head.histograms_offset = head.slots_offset + kBoardSlots * kBoardSlotBytes;
  head.pid = ::getpid();
  head.start_ticks = ticks;
  head.rank = options.rank;
  head.local_rank = options.local_rank;
  head.role = static_cast<uint32_t>(options.role);
  put_text(read_file("/proc/sys/kernel/random/boot_id", 64).value_or("").substr(0, 36),
           head.boot_id);
  put_text(options.run, head.run);
  ::gethostname(head.host, sizeof head.host - 1);
  std::memcpy(head.magic, kBoardMagic, sizeof head.magic);
  std::unique_ptr<Board> board(new Board(std::move(state)));
  board->state_->overflow = board->counter(metric("watch.overflow"));
  board->beat();
  return board;
}

Counter Board::counter(const MetricInfo& info, std::string_view labels, bool striped) {
  const uint8_t stripes = striped ? 8 : 1;
  const BoardEntry* entry = state_->find_or_add(info, labels, stripes);
  return entry == nullptr ? Counter() : Counter(state_->cells(*entry), entry->stripes);
}

Gauge Board::gauge(const MetricInfo& info, std::string_view labels) {
  const BoardEntry* entry = state_->find_or_add(info, labels, 1);
  return entry == nullptr ? Gauge() : Gauge(state_->cells(*entry));
}

Histogram Board::histogram(const MetricInfo& info, std::string_view labels) {
  const BoardEntry* entry = state_->find_or_add(info, labels, 1);
  return entry == nullptr ? Histogram() : Histogram(state_->cells(*entry));
}

void Board::set_state(BoardState state) {
  state_->header().state.store(static_cast<uint32_t>(state), std::memory_order_relaxed);
}

void Board::beat() {
  const auto now = std::chrono::nanoseconds(system_clock().monotonic());
  state_->header().heartbeat_ns.store(static_cast<uint64_t>(now.count()),
                                      std::memory_order_relaxed);
  state_->header().heartbeats.fetch_add(1, std::memory_order_relaxed);
}

const Path& Board::path() const { return state_->path; }

}  // namespace headrace::base
