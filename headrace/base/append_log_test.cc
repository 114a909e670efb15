// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/append_log.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/base/checksum.h"
#include "headrace/base/clock.h"
#include "headrace/base/test_folder.h"
#include "headrace/base/thread.h"

namespace headrace::base {

namespace {

using Records = std::vector<std::pair<int, std::string>>;

auto into(Records* records) {
  return [records](uint8_t type, std::string_view payload) -> Result<void> {
    records->emplace_back(type, std::string(payload));
    return {};
  };
}

Result<void> ignore(uint8_t, std::string_view) { return {}; }

Records read_records(const Path& path) {
  Records records;
  const Result<void> result = AppendLog::read(path, into(&records));
  if (!result.ok()) {
    records.emplace_back(-1, result.error().message());
  }
  return records;
}

/// A log with three records of 5, 6 and 7 bytes: offsets 8, 29, 51; size 74.
void write_three(const Path& path) {
  AppendLog log = *AppendLog::open(path, {}, ignore);
  REQUIRE(log.append(1, "first").ok());
  REQUIRE(log.append(2, "second").ok());
  REQUIRE(log.append(3, "seventh").ok());
}

void put_byte(const Path& path, size_t offset, char value) {
  std::string text = *read_file(path);
  text[offset] = value;
  REQUIRE(replace_file(path, text).ok());
}

}  // namespace

TEST_CASE("what was appended is there when the log is opened again, in order") {
  const TestFolder folder;
  write_three(folder / "log");
  Records records;
  {
    AppendLog log = *AppendLog::open(folder / "log", {}, into(&records));
    CHECK(*log.append(9, std::string("\0binary\0", 8)) == 1);
  }
  CHECK(records == Records{{1, "first"}, {2, "second"}, {3, "seventh"}});
  CHECK(read_records(folder / "log").back() == std::pair(9, std::string("\0binary\0", 8)));
}

TEST_CASE("the bytes are those of the worked example in docs/formats/append-log.md") {
  const TestFolder folder;
  {
    AppendLog log = *AppendLog::open(folder / "log", {}, ignore);
    REQUIRE(log.append(1, "abc").ok());
    REQUIRE(log.append(2, "").ok());
  }
  const std::string text = *read_file(folder / "log");
  // The sums come from Python: xxhash.xxh3_64_intdigest(b"\x01abc", seed=8), (b"\x02", seed=27).
  CHECK(hex(std::as_bytes(std::span(text))) ==
        "48524c4f47303031"
        "0300000001000000"
        "026b3d732bcc9f7c"
        "616263"
        "0000000002000000"
        "edae2d2edc4ae63f");
}

TEST_CASE("a torn tail is cut at every place it can tear") {
  const TestFolder folder;
  write_three(folder / "whole");
  const std::string whole = *read_file(folder / "whole");
  REQUIRE(whole.size() == 74);
  const auto kept = [](size_t size) {
    return size >= 74 ? 3U : size >= 51 ? 2U : size >= 29 ? 1U : 0U;
  };
  for (size_t size = 0; size <= whole.size(); ++size) {
    CAPTURE(size);
    const Path path = folder / "torn";
    REQUIRE(replace_file(path, whole.substr(0, size)).ok());
    CHECK(read_records(path).size() == kept(size));
    Records records;
    {
      auto log = AppendLog::open(path, {.sync = false}, into(&records));
      REQUIRE(log.ok());
      CHECK(records.size() == kept(size));
      REQUIRE(log->append(7, "after").ok());
    }
    const Records after = read_records(path);
    CHECK(after.size() == kept(size) + 1);
    CHECK(after.back() == std::pair(7, std::string("after")));
  }
}

TEST_CASE("a damaged last record and a tail of zeros count as torn") {
  const TestFolder folder;
  write_three(folder / "log");
  put_byte(folder / "log", 70, 'X');
  CHECK(read_records(folder / "log").size() == 2);
  write_three(folder / "zeros");
  REQUIRE(
      replace_file(folder / "zeros", *read_file(folder / "zeros") + std::string(9000, '\0')).ok());
  Records records;
  REQUIRE(AppendLog::open(folder / "zeros", {}, into(&records)).ok());
  CHECK(records.size() == 3);
  CHECK(read_file(folder / "zeros")->size() == 74);
}

TEST_CASE("damage before valid records is corrupt, names its offset and cuts nothing") {
  const TestFolder folder;
  const Path path = folder / "log";
  for (size_t offset = 29; offset < 51; ++offset) {  // every byte of the second record
    CAPTURE(offset);
    std::filesystem::remove(path);
    write_three(path);
    const std::string before = *read_file(path);
    put_byte(path, offset, static_cast<char>(before[offset] ^ 0x10));
    const auto opened = AppendLog::open(path, {}, ignore);
    REQUIRE_FALSE(opened.ok());
    CHECK(opened.error().code() == Errc::corrupt);
    CHECK(opened.error().message().find("record 2 at offset 29") != std::string::npos);
    CHECK(read_file(path)->size() == 74);
    CHECK_FALSE(AppendLog::read(path, ignore).ok());
  }
}

TEST_CASE("a record that was moved to another place is not taken for valid") {
  const TestFolder folder;
  write_three(folder / "log");
  const std::string whole = *read_file(folder / "log");
  const std::string moved = whole.substr(0, 8) + whole.substr(29);
  REQUIRE(replace_file(folder / "log", moved).ok());
  CHECK(read_records(folder / "log").empty());
}

TEST_CASE("a file that is no log is refused and left alone") {
  const TestFolder folder;
  REQUIRE(replace_file(folder / "notes", "dear diary, today").ok());
  const auto opened = AppendLog::open(folder / "notes", {}, ignore);
  REQUIRE_FALSE(opened.ok());
  CHECK(opened.error().code() == Errc::corrupt);
  CHECK(*read_file(folder / "notes") == "dear diary, today");
  CHECK(AppendLog::read(folder / "none", ignore).error().code() == Errc::not_found);
}

TEST_CASE("a second writer is refused and told the first one's pid") {
  const TestFolder folder;
  const auto first = AppendLog::open(folder / "log", {}, ignore);
  REQUIRE(first.ok());
  const auto second = AppendLog::open(folder / "log", {}, ignore);
  REQUIRE_FALSE(second.ok());
  CHECK(second.error().code() == Errc::busy);
  const std::string message = second.error().message();
  const bool named = message.find("pid " + std::to_string(::getpid())) != std::string::npos;
  const bool unlisted = message.find("another process") != std::string::npos;
  CHECK((named || unlisted));  // some sandboxes list no locks in /proc/locks
}

TEST_CASE("an error of the reader's function stops the replay and comes back") {
  const TestFolder folder;
  write_three(folder / "log");
  int seen = 0;
  const auto stop_at_second = [&seen](uint8_t, std::string_view) -> Result<void> {
    return ++seen < 2 ? Result<void>() : Error{Errc::mismatch, "not of this run"};
  };
  CHECK(AppendLog::read(folder / "log", stop_at_second).error().message() == "not of this run");
  CHECK(AppendLog::open(folder / "log", {}, stop_at_second).error().code() == Errc::mismatch);
}

TEST_CASE("many threads append at once; each waits until its record is durable") {
  const TestFolder folder;
  {
    AppendLog log = *AppendLog::open(folder / "log",
                                     {.commit_interval = std::chrono::microseconds(200)}, ignore);
    std::vector<Thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back("writer", [&log, t] {
        for (int i = 0; i < 100; ++i) {
          const auto sequence = log.append(static_cast<uint8_t>(t), std::to_string(i));
          HR_CHECK(sequence.ok(), "append");
          HR_CHECK(log.wait_committed(*sequence).ok(), "commit");
          HR_CHECK(log.committed() >= *sequence, "committed");
        }
      });
    }
  }
  std::vector<int> next(4, 0);
  for (const auto& [type, payload] : read_records(folder / "log")) {
    CHECK(payload == std::to_string(next[static_cast<size_t>(type)]++));
  }
  CHECK(next == std::vector<int>(4, 100));
}

TEST_CASE("the commit event becomes readable when records are durable") {
  const TestFolder folder;
  AppendLog log = *AppendLog::open(folder / "log", {}, ignore);
  const uint64_t last = *log.append(1, "x");
  pollfd waited = {.fd = log.commit_event_fd(), .events = POLLIN, .revents = 0};
  REQUIRE(::poll(&waited, 1, 30000) == 1);
  uint64_t count = 0;
  CHECK(::read(waited.fd, &count, sizeof count) == sizeof count);
  CHECK(log.wait_committed(last).ok());
  CHECK(log.committed() == 1);
}

TEST_CASE("records that wait are committed together") {
  const TestFolder folder;
  AppendLog log = *AppendLog::open(
      folder / "log", {.commit_interval = std::chrono::seconds(50), .commit_records = 100}, ignore);
  REQUIRE(log.wait_committed(*log.append(1, "the first goes out at once")).ok());
  uint64_t last = 0;
  for (int i = 0; i < 99; ++i) {
    last = *log.append(1, "x");
  }
  CHECK(log.wait_committed(last, std::chrono::milliseconds(20)).error().code() == Errc::timeout);
  last = *log.append(1, "the hundredth");
  CHECK(log.wait_committed(last, std::chrono::seconds(30)).ok());
}

TEST_CASE("flush gives records to the kernel long before they are durable") {
  const TestFolder folder;
  AppendLog log =
      *AppendLog::open(folder / "log", {.commit_interval = std::chrono::hours(1)}, ignore);
  const auto first = log.append(1, "first");
  REQUIRE(first.ok());
  REQUIRE(log.wait_committed(*first).ok());
  REQUIRE(log.append(2, "second").ok());
  REQUIRE(log.append(3, "third").ok());

  REQUIRE(log.flush().ok());
  REQUIRE(log.flush().ok());  // nothing more to do

  CHECK(read_records(folder / "log") == Records{{1, "first"}, {2, "second"}, {3, "third"}});
  CHECK(log.committed() == 1);
}

TEST_CASE("a payload above the bound is refused") {
  const TestFolder folder;
  AppendLog log = *AppendLog::open(folder / "log", {}, ignore);
  const std::string huge(static_cast<size_t>(kAppendLogPayloadMax) + 1, 'x');
  CHECK(log.append(1, huge).error().code() == Errc::invalid_argument);
  CHECK(*log.append(1, "small") == 1);
}

TEST_CASE("a full disk fails the record and every one after it, and keeps what was durable") {
  TestFolder folder;
  if (!folder.mount_tiny(256 * 1024)) {
    MESSAGE("skipped: mounting a tmpfs needs root");
    return;
  }
  const Path path = folder / "log";
  uint64_t durable = 0;
  {
    AppendLog log = *AppendLog::open(path, {}, ignore);
    const std::string payload(10000, 'p');
    Result<void> written;
    for (int i = 0; i < 100 && written.ok(); ++i) {
      const auto sequence = log.append(1, payload);
      written = sequence.ok() ? log.wait_committed(*sequence) : Result<void>(sequence.error());
    }
    REQUIRE_FALSE(written.ok());
    CHECK(written.error().code() == Errc::out_of_space);
    durable = log.committed();
    CHECK(durable > 10);
    CHECK(log.append(1, "x").error().code() == Errc::out_of_space);
    CHECK(log.status().error().code() == Errc::out_of_space);
    CHECK(log.wait_committed(durable).ok());
  }
  CHECK(read_records(path).size() == durable);
}

TEST_CASE("a log that another thread is writing can be read at any moment") {
  const TestFolder folder;
  const Path path = folder / "log";
  AppendLog log = *AppendLog::open(path, {.sync = false}, ignore);
  Thread writer("writer", [&log] {
    for (int i = 0; i < 2000; ++i) {
      HR_CHECK(log.append(1, std::string(static_cast<size_t>(i % 700), 'y')).ok(), "append");
    }
  });
  size_t seen = 0;
  const Deadline deadline = Deadline::in(std::chrono::seconds(60));
  while (seen < 2000 && !deadline.passed()) {
    const Records records = read_records(path);
    REQUIRE((records.empty() || records.back().first != -1));
    REQUIRE(records.size() >= seen);
    seen = records.size();
  }
  CHECK(seen == 2000);
}

TEST_CASE("a log that somebody holds is busy, or waited for") {
  const TestFolder folder;
  const Path path = folder / "log";
  const auto ignore = [](uint8_t, std::string_view) { return Result<void>(); };
  std::optional<AppendLog> holder = *AppendLog::open(path, {}, ignore);
  AppendLogOptions patient;
  patient.lock_wait = std::chrono::milliseconds(20);
  CHECK(AppendLog::open(path, patient, ignore).error().code() == Errc::busy);

  patient.lock_wait = std::chrono::seconds(20);
  bool opened = false;
  std::atomic<bool> refused{false};
  Thread other("opener", [&] {
    refused = !AppendLog::open(path, {}, ignore).ok();
    opened = AppendLog::open(path, patient, ignore).ok();
  });
  const Deadline deadline = Deadline::in(std::chrono::seconds(20));
  while (!refused && !deadline.passed()) {
    std::this_thread::yield();
  }
  holder.reset();
  other.join();

  CHECK(opened);
}

}  // namespace headrace::base
