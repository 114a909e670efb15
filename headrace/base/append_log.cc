// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/append_log.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/checksum.h"
#include "headrace/base/clock.h"
#include "headrace/base/file_lock.h"
#include "headrace/base/thread.h"

namespace headrace::base {

namespace {

// The layout is docs/formats/append-log.md.
constexpr std::string_view kMagic = "HRLOG001";
constexpr int64_t kHeaderBytes = 16;
constexpr int64_t kWindowBytes = int64_t{1} << 20;
/// Looking for valid records behind a damaged one hashes at most this much; a log that needs more
/// is called corrupt, because nothing may be cut in doubt.
constexpr int64_t kSearchBytesMax = int64_t{1} << 30;

using OnRecord = std::function<Result<void>(uint8_t type, std::string_view payload)>;

void put_le(uint64_t value, int bytes, char* out) {
  for (int i = 0; i < bytes; ++i) {
    out[i] = static_cast<char>((value >> (8 * i)) & 0xFFU);
  }
}

uint64_t get_le(const char* bytes, int count) {
  uint64_t value = 0;
  for (int i = 0; i < count; ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

uint64_t record_sum(uint8_t type, std::string_view payload, int64_t offset) {
  const char head = static_cast<char>(type);
  return xxh3_64_seeded(static_cast<uint64_t>(offset), std::string_view(&head, 1), payload);
}

/// A moving view of the first `size` bytes of a file: bounded memory whatever the file's length.
class Window {
 public:
  Window(int fd, Path path, int64_t size) : fd_(fd), path_(std::move(path)), size_(size) {}

  int64_t size() const { return size_; }

  /// Bytes [offset, offset + count); the caller has checked that they lie within size(). Valid
  /// until the next call.
  Result<std::string_view> at(int64_t offset, int64_t count) {
    if (offset < begin_ || offset + count > begin_ + static_cast<int64_t>(bytes_.size())) {
      HR_TRY(load(offset, std::min(std::max(count, kWindowBytes), size_ - offset)));
    }
    return std::string_view(bytes_).substr(static_cast<size_t>(offset - begin_),
                                           static_cast<size_t>(count));
  }

 private:
  Result<void> load(int64_t offset, int64_t count) {
    bytes_.resize(static_cast<size_t>(count));
    begin_ = offset;
    int64_t used = 0;
    while (used < count) {
      const ssize_t got = ::pread(fd_, bytes_.data() + used, static_cast<size_t>(count - used),
                                  static_cast<off_t>(offset + used));
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got <= 0) {
        bytes_.clear();
        return got < 0 ? errno_error(errno, "reading " + path_.string())
                       : Error{Errc::io, "reading " + path_.string() +
                                             ": the file became shorter while it was read"};
      }
      used += got;
    }
    return {};
  }

  int fd_;
  Path path_;
  int64_t size_;
  int64_t begin_ = 0;
  std::string bytes_;
};

struct Record {
  uint8_t type = 0;
  std::string_view payload;
  int64_t end = 0;  ///< file offset behind the record
};

/// The record at `offset`, or nullopt when the bytes there are none. Adds what was hashed.
Result<std::optional<Record>> record_at(Window& window, int64_t offset, int64_t* hashed) {
  if (offset + kHeaderBytes > window.size()) {
    return std::optional<Record>();
  }
  HR_TRY(const auto head, window.at(offset, kHeaderBytes));
  const auto length = static_cast<int64_t>(get_le(head.data(), 4));
  const auto type = static_cast<uint8_t>(head[4]);
  const uint64_t sum = get_le(head.data() + 8, 8);
  if (head.substr(5, 3) != std::string_view("\0\0\0", 3) || length > kAppendLogPayloadMax ||
      offset + kHeaderBytes + length > window.size()) {
    return std::optional<Record>();
  }
  HR_TRY(const auto whole, window.at(offset, kHeaderBytes + length));
  const std::string_view payload = whole.substr(static_cast<size_t>(kHeaderBytes));
  *hashed += length + kHeaderBytes;
  if (record_sum(type, payload, offset) != sum) {
    return std::optional<Record>();
  }
  return std::optional<Record>(Record{type, payload, offset + kHeaderBytes + length});
}

/// Whether a valid record begins anywhere behind `offset`. Sums are seeded by the offset, so old
/// bytes at another place do not count.
Result<bool> valid_record_after(Window& window, int64_t offset) {
  int64_t hashed = 0;
  for (int64_t at = offset + 1; at + kHeaderBytes <= window.size(); ++at) {
    HR_TRY(const auto record, record_at(window, at, &hashed));
    if (record.has_value() || hashed > kSearchBytesMax) {
      return true;
    }
  }
  return false;
}

/// Hand every record to `on_record`; returns the offset behind the last whole one.
Result<int64_t> replay(int fd, const Path& path, const OnRecord& on_record) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) {
    return errno_error(errno, "reading " + path.string());
  }
  Window window(fd, path, info.st_size);
  const auto magic_bytes = std::min<int64_t>(window.size(), std::ssize(kMagic));
  HR_TRY(const auto magic, window.at(0, magic_bytes));
  if (magic != kMagic.substr(0, static_cast<size_t>(magic_bytes))) {
    return Error{Errc::corrupt, path.string() +
                                    " is not an append log: it does not begin with HRLOG001; "
                                    "name another file"};
  }
  if (magic_bytes < std::ssize(kMagic)) {
    return 0;  // new, or torn while it was made
  }
  int64_t offset = std::ssize(kMagic);
  int64_t count = 0;
  int64_t hashed = 0;
  while (offset < window.size()) {
    HR_TRY(const auto record, record_at(window, offset, &hashed));
    if (!record.has_value()) {
      HR_TRY(const bool follows, valid_record_after(window, offset));
      if (follows) {
        return Error{Errc::corrupt,
                     path.string() + ": record " + std::to_string(count + 1) + " at offset " +
                         std::to_string(offset) + " of " + std::to_string(window.size()) +
                         " bytes is damaged and valid records follow it; restore the file from a "
                         "copy, or cut it there with `truncate -s " +
                         std::to_string(offset) + "` and lose what follows"};
      }
      break;
    }
    HR_TRY(on_record(record->type, record->payload));
    offset = record->end;
    ++count;
  }
  return offset;
}

/// "pid 12 (name)" of the process that holds a flock on the file, from /proc/locks.
std::string lock_holder(int fd) {
  struct stat info = {};
  const Result<std::string> locks = read_file("/proc/locks");
  if (::fstat(fd, &info) != 0 || !locks.ok()) {
    return "another process";
  }
  // A line: "1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF" with the pid and MAJOR:MINOR:INODE.
  const std::string inode = ":" + std::to_string(info.st_ino) + " ";
  size_t begin = 0;
  while (begin < locks->size()) {
    const size_t end = std::min(locks->find('\n', begin), locks->size());
    const std::string line = locks->substr(begin, end - begin);
    begin = end + 1;
    const size_t kind = line.find("WRITE ");
    if (line.find("FLOCK") == std::string::npos || line.find(inode) == std::string::npos ||
        line.find("->") != std::string::npos || kind == std::string::npos) {
      continue;
    }
    const std::string pid = line.substr(kind + 6, line.find(' ', kind + 6) - kind - 6);
    std::string name = read_file("/proc/" + pid + "/comm", 4096).value_or("");
    while (!name.empty() && name.back() == '\n') {
      name.pop_back();
    }
    return "pid " + pid + (name.empty() ? "" : " (" + name + ")");
  }
  return "another process";
}

Result<void> lock_exclusive(int fd, const Path& path, std::chrono::milliseconds wait) {
  HR_TRY(const bool locked, lock_open_file(fd, path, wait.count()));
  if (!locked) {
    return Error{Errc::busy, path.string() + " is being written by " + lock_holder(fd) +
                                 "; wait for it to end or stop it"};
  }
  return {};
}

/// Cut what lies behind `end` (or begin a new log) and leave the file position there.
Result<int64_t> prepare_end(int fd, const Path& path, int64_t end, bool sync) {
  if (::ftruncate(fd, end) != 0 || ::lseek(fd, end, SEEK_SET) != end) {
    return errno_error(errno, "cutting " + path.string() + " to " + std::to_string(end) + " bytes");
  }
  if (end == 0) {
    HR_TRY(write_all(fd, kMagic, path));
    end = std::ssize(kMagic);
  }
  if (sync) {
    HR_TRY(sync_data(fd, path));
    HR_TRY(sync_folder(path.parent_path()));
  }
  return end;
}

}  // namespace

struct AppendLog::State {
  State(Fd file, Path name, const AppendLogOptions& chosen, int64_t end)
      : fd(std::move(file)), path(std::move(name)), options(chosen), next_offset(end) {}

  ~State() {
    {
      const MutexLock lock(mu);
      stopping = true;
    }
    work.notify_all();
  }

  /// Body of the commit thread: one write and one fdatasync for all that waits.
  void run();
  /// Write what was appended and not yet written; the sequence number of its last record.
  Result<uint64_t> write_pending() HR_EXCLUDES(write_mu, mu);
  /// Wait for something to commit; false when the log closes and nothing waits.
  bool wait_for_batch(Micros not_before) HR_EXCLUDES(mu);

  const Fd fd;
  const Path path;
  const AppendLogOptions options;
  Fd event;

  Mutex write_mu;  // taken before `mu`; held while writing, so that records keep their order
  std::string writing HR_GUARDED_BY(write_mu);
  Mutex mu;      // leaf: nothing is locked and no file is touched while it is held
  CondVar work;  // records wait, or the log closes
  CondVar done;  // committed grew, the disk failed, or room was made
  std::string pending HR_GUARDED_BY(mu);
  int64_t pending_records HR_GUARDED_BY(mu) = 0;  ///< appended since the last commit began
  int64_t next_offset HR_GUARDED_BY(mu);
  uint64_t appended HR_GUARDED_BY(mu) = 0;
  uint64_t committed HR_GUARDED_BY(mu) = 0;
  std::optional<Error> failure HR_GUARDED_BY(mu);
  bool stopping HR_GUARDED_BY(mu) = false;
  Histogram commit_seconds HR_GUARDED_BY(mu);
  Thread thread;  // last: it stops before what it uses goes
};

bool AppendLog::State::wait_for_batch(Micros not_before) {
  const MutexLock lock(mu);
  constexpr auto kIdle = std::chrono::seconds(60);
  while (pending_records == 0 && !stopping) {
    work.wait_for(mu, kIdle, [this]() HR_REQUIRES(mu) { return pending_records > 0 || stopping; });
  }
  const Micros pause = not_before - system_clock().monotonic();
  if (pause > Micros::zero()) {
    work.wait_for(mu, pause, [this]() HR_REQUIRES(mu) {
      return pending_records >= options.commit_records || stopping;
    });
  }
  const bool any = pending_records > 0;
  pending_records = 0;
  return any;
}

Result<uint64_t> AppendLog::State::write_pending() {
  const MutexLock write_lock(write_mu);
  uint64_t last = 0;
  {
    const MutexLock lock(mu);
    if (failure.has_value()) {
      return *failure;
    }
    writing.clear();
    writing.swap(pending);
    last = appended;
  }
  if (writing.empty()) {
    return last;
  }
  Result<void> written = write_all(fd.get(), writing, path);
  if (!written.ok()) {
    {
      const MutexLock lock(mu);
      failure = written.error();
    }
    done.notify_all();
    return std::move(written).error();
  }
  return last;
}

void AppendLog::State::run() {
  Micros not_before{0};
  while (wait_for_batch(not_before)) {
    const Micros began = system_clock().monotonic();
    not_before = began + options.commit_interval;
    const Result<uint64_t> last = write_pending();
    Result<void> result = last.ok() ? Result<void>() : Result<void>(last.error());
    if (result.ok() && options.sync) {
      result = sync_data(fd.get(), path);
    }
    const bool failed = !result.ok();
    {
      const MutexLock lock(mu);
      if (failed) {
        failure = std::move(result).error();
      } else {
        committed = *last;
        commit_seconds.observe(system_clock().monotonic() - began);
      }
    }
    done.notify_all();
    const uint64_t one = 1;
    // The counter of an eventfd cannot fill up in practice; if it did, it would be readable anyway.
    [[maybe_unused]] const ssize_t written = ::write(event.get(), &one, sizeof one);
    if (failed) {
      return;
    }
  }
}

AppendLog::AppendLog(std::unique_ptr<State> state) : state_(std::move(state)) {}
AppendLog::AppendLog(AppendLog&&) noexcept = default;
AppendLog& AppendLog::operator=(AppendLog&&) noexcept = default;
AppendLog::~AppendLog() = default;

Result<AppendLog> AppendLog::open(const Path& path, const AppendLogOptions& options,
                                  const OnRecord& on_record) {
  HR_TRY(auto fd, open_file(path, O_RDWR | O_CREAT));
  HR_TRY(lock_exclusive(fd.get(), path, options.lock_wait));
  HR_TRY(int64_t end, replay(fd.get(), path, on_record));
  HR_TRY(end, prepare_end(fd.get(), path, end, options.sync));
  auto state = std::make_unique<State>(std::move(fd), path, options, end);
  state->event = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state->event.valid()) {
    return errno_error(errno, "making the commit event of " + path.string());
  }
  state->thread = Thread("hr-append-log", [raw = state.get()] { raw->run(); });
  return AppendLog(std::move(state));
}

Result<uint64_t> AppendLog::append(uint8_t type, std::string_view payload) {
  State& state = *state_;
  if (std::ssize(payload) > kAppendLogPayloadMax) {
    return Error{Errc::invalid_argument, state.path.string() + ": a record of " +
                                             std::to_string(payload.size()) +
                                             " bytes is longer than the " +
                                             std::to_string(kAppendLogPayloadMax) + " allowed"};
  }
  constexpr auto kWait = std::chrono::seconds(60);
  uint64_t sequence = 0;
  bool wake = false;
  {
    const MutexLock lock(state.mu);
    const auto room = [&state]() HR_REQUIRES(state.mu) {
      return state.failure.has_value() ||
             std::ssize(state.pending) < state.options.pending_bytes_max;
    };
    if (!room() && !state.done.wait_for(state.mu, kWait, room)) {
      return Error{Errc::timeout, state.path.string() + ": the disk took none of " +
                                      std::to_string(state.pending.size()) +
                                      " waiting bytes within 60 s"};
    }
    if (state.failure.has_value()) {
      return *state.failure;
    }
    char head[kHeaderBytes] = {};
    put_le(payload.size(), 4, head);
    head[4] = static_cast<char>(type);
    put_le(record_sum(type, payload, state.next_offset), 8, head + 8);
    state.pending.append(head, sizeof head).append(payload);
    state.next_offset += kHeaderBytes + std::ssize(payload);
    ++state.pending_records;
    sequence = ++state.appended;
    wake = state.pending_records == 1 || state.pending_records == state.options.commit_records;
  }
  if (wake) {
    state.work.notify_one();
  }
  return sequence;
}

Result<void> AppendLog::flush() {
  HR_TRY(state_->write_pending());
  return {};
}

uint64_t AppendLog::committed() const {
  const MutexLock lock(state_->mu);
  return state_->committed;
}

Result<void> AppendLog::wait_committed(uint64_t sequence, std::chrono::milliseconds timeout) {
  State& state = *state_;
  const MutexLock lock(state.mu);
  state.done.wait_for(state.mu, timeout, [&state, sequence]() HR_REQUIRES(state.mu) {
    return state.committed >= sequence || state.failure.has_value();
  });
  if (state.committed >= sequence) {
    return {};
  }
  if (state.failure.has_value()) {
    return *state.failure;
  }
  return Error{Errc::timeout, state.path.string() + ": record " + std::to_string(sequence) +
                                  " was not durable within " + std::to_string(timeout.count()) +
                                  " ms; the disk has " + std::to_string(state.committed)};
}

int AppendLog::commit_event_fd() const { return state_->event.get(); }

void AppendLog::time_commits(Histogram seconds) {
  const MutexLock lock(state_->mu);
  state_->commit_seconds = seconds;
}

Result<void> AppendLog::status() const {
  const MutexLock lock(state_->mu);
  return state_->failure.has_value() ? Result<void>(*state_->failure) : Result<void>();
}

Result<void> AppendLog::read(const Path& path, const OnRecord& on_record) {
  HR_TRY(auto fd, open_file(path, O_RDONLY));
  HR_TRY(replay(fd.get(), path, on_record));
  return {};
}

}  // namespace headrace::base
