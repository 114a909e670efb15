// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/file_lock.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/test_folder.h"
#include "headrace/base/thread.h"

namespace headrace::base {

namespace {

/// How long a sleeper may sleep that nobody wakes, which is told by it.
constexpr Micros kUnwoken = std::chrono::seconds(20);

/// Call `wake` until a thread that sleeps at `fd`'s bell, where `text` stands, has woken: it may
/// come before the other sleeps. Returns how long that slept; 0 when no bell hung there.
template <typename Wake>
Micros slept_until(int fd, uint32_t text, Wake wake) {
  std::atomic<bool> over = false;
  Micros slept{0};
  {
    const Thread sleeper("sleeper", [&] {
      const Micros began = system_clock().monotonic();
      if (LockBell(fd).doze(text, kUnwoken)) {
        slept = system_clock().monotonic() - began;
      }
      over = true;
    });
    while (!over) {
      wake();
      sleep_for(std::chrono::microseconds(100));
    }
  }
  return slept;
}

uint32_t word_of(const char* text) {
  uint32_t word = 0;
  std::memcpy(&word, text, sizeof word);
  return word;
}

}  // namespace

TEST_CASE("a second holder of a lock is told who has it") {
  const TestFolder folder;
  const Path path = folder / "lock";
  {
    const auto first = FileLock::acquire(path, 0, holder_description("headrace flow run"));
    REQUIRE(first.ok());
    const auto second = FileLock::acquire(path, 10, "me");
    REQUIRE_FALSE(second.ok());
    CHECK(second.error().code() == Errc::busy);
    CHECK(second.error().message().find("headrace flow run") != std::string::npos);
    CHECK(second.error().message().find("pid ") != std::string::npos);
  }
  CHECK(FileLock::acquire(path, 0).ok());
}

TEST_CASE("a waiting holder gets the lock when it is let go") {
  const TestFolder folder;
  const Path path = folder / "lock";
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  {
    std::vector<Thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back("holder", [&] {
        for (int turn = 0; turn < 25; ++turn) {
          const auto lock = FileLock::acquire(path, 30000);
          if (!lock.ok()) {
            most = 1000;
            return;
          }
          most = std::max(most.load(), ++inside);
          --inside;
        }
      });
    }
  }
  CHECK(most == 1);
}

TEST_CASE("whoever sleeps at a lock's file is woken by the bell of another mapping of it") {
  const TestFolder folder;
  REQUIRE(replace_file(folder / "lock", "pid 1").ok());
  const Fd ours = *open_file(folder / "lock", O_RDWR);
  const Fd theirs = *open_file(folder / "lock", O_RDONLY);
  const LockBell bell(theirs.get());
  const Micros slept = slept_until(ours.get(), word_of("pid "), [&] { bell.ring(); });
  CHECK(slept > Micros(0));
  CHECK(slept < kUnwoken);
}

TEST_CASE("letting a lock go rings for who sleeps at its file") {
  const TestFolder folder;
  const Path path = folder / "lock";
  REQUIRE(replace_file(path, "pid 1").ok());
  const Fd ours = *open_file(path, O_RDWR);
  int held = 0;
  int refused = 0;
  const Micros slept = slept_until(ours.get(), word_of("pid "), [&] {
    ++(FileLock::acquire(path, 0, "pid 1").ok() ? held : refused);  // and lets it go
  });
  CHECK(slept > Micros(0));
  CHECK(slept < kUnwoken);
  CHECK(held > 0);
  CHECK(refused == 0);
}

TEST_CASE("nobody sleeps at a file that has other text, none, or less than before") {
  const TestFolder folder;
  REQUIRE(replace_file(folder / "lock", "pid 1").ok());
  const Fd fd = *open_file(folder / "lock", O_RDWR);
  const LockBell bell(fd.get());
  CHECK_FALSE(bell.doze(word_of("else"), std::chrono::hours(1)));
  REQUIRE(::ftruncate(fd.get(), 0) == 0);
  CHECK_FALSE(bell.doze(word_of("pid "), std::chrono::hours(1)));
  CHECK_FALSE(LockBell().doze(word_of("pid "), std::chrono::hours(1)));
  const Fd folder_fd = *open_any_file(folder.path(), O_RDONLY);  // cannot be mapped
  CHECK_FALSE(LockBell(folder_fd.get()).doze(word_of("pid "), std::chrono::hours(1)));
  bell.ring();
  LockBell().ring();
}

TEST_CASE("a lock whose holder was killed goes to who waits, though nobody rang") {
  const TestFolder folder;
  const Path path = folder / "lock";
  int ready[2] = {-1, -1};
  REQUIRE(::pipe(ready) == 0);
  const pid_t holder = ::fork();
  REQUIRE(holder >= 0);
  if (holder == 0) {
    const auto lock = FileLock::acquire(path, 0, holder_description("a test"));
    const bool told = ::write(ready[1], lock.ok() ? "y" : "n", 1) == 1;
    ::kill(::getpid(), told ? SIGKILL : SIGABRT);
  }
  ::close(ready[1]);  // so that the end of a child which says nothing is the end of the read
  char answer = 0;
  CHECK(::read(ready[0], &answer, 1) == 1);
  CHECK(answer == 'y');
  CHECK(FileLock::acquire(path, 60'000, holder_description("next")).ok());
  CHECK(::waitpid(holder, nullptr, 0) == holder);
  ::close(ready[0]);
}

TEST_CASE("what a lock's file says is what its last holder wrote, shorter texts included") {
  const TestFolder folder;
  const Path path = folder / "lock";
  REQUIRE(FileLock::acquire(path, 0, "a long description").ok());
  REQUIRE(FileLock::acquire(path, 0, "short").ok());
  CHECK(*read_file(path) == "short");
  REQUIRE(FileLock::acquire(path, 0).ok());
  CHECK(*read_file(path) == "short");
}

}  // namespace headrace::base
