// SPDX-License-Identifier: Apache-2.0
#include "headrace/wire/secret.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>
#include <type_traits>

#include "headrace/base/test_folder.h"

namespace headrace::wire {

namespace {

/// The reading end of a pipe that gives `text` and ends.
base::Fd pipe_of(const std::string& text) {
  std::array<int, 2> ends = {-1, -1};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const base::Fd writer(ends[1]);
  REQUIRE(base::write_all(writer.get(), text, "the pipe").ok());
  return base::Fd(ends[0]);
}

void write_with_mode(const base::Path& path, const std::string& text, unsigned mode) {
  REQUIRE(base::replace_file(path, text, mode).ok());
}

}  // namespace

TEST_CASE("a secret is written for its owner alone and read back") {
  const base::TestFolder folder;
  const Secret secret = Secret::generate();

  REQUIRE(secret.write_file(folder / "secret").ok());

  struct stat info = {};
  REQUIRE(::stat((folder / "secret").c_str(), &info) == 0);
  CHECK((info.st_mode & 07777U) == 0600U);
  CHECK(info.st_size == 32);
  const auto read = Secret::read_file(folder / "secret");
  REQUIRE(read.ok());
  CHECK(read->equals(secret));
  CHECK_FALSE(Secret::generate().equals(secret));
}

TEST_CASE("a secret that others may read is refused with the way out") {
  const base::TestFolder folder;
  for (const unsigned mode : {0644U, 0640U, 0604U, 0620U}) {
    write_with_mode(folder / "secret", std::string(32, 's'), mode);
    const auto read = Secret::read_file(folder / "secret");
    REQUIRE(!read.ok());
    CHECK(read.error().code() == Errc::invalid_argument);
    CHECK(read.error().message().find("chmod 600") != std::string::npos);
  }
}

TEST_CASE("a secret has exactly 32 bytes, and no message shows any of them") {
  const base::TestFolder folder;
  for (const size_t bytes : {0U, 31U, 33U, 64U, 5000U}) {
    write_with_mode(folder / "secret", std::string(bytes, 'Q'), 0600);
    const auto read = Secret::read_file(folder / "secret");
    REQUIRE(!read.ok());
    CHECK(read.error().code() == Errc::invalid_argument);
    CHECK(read.error().message().find("QQ") == std::string::npos);
  }
  CHECK(Secret::read_file(folder / "none").error().code() == Errc::not_found);
  CHECK(Secret::read_file(folder.path()).error().code() == Errc::invalid_argument);
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK(Secret::read_file(folder / "pipe").error().code() == Errc::invalid_argument);
}

TEST_CASE("a secret comes through a descriptor that a parent handed down") {
  const auto read = Secret::read_descriptor(pipe_of(std::string(32, 'x')));
  REQUIRE(read.ok());
  CHECK(read->bytes()[31] == std::byte{'x'});

  CHECK(Secret::read_descriptor(pipe_of("short")).error().code() == Errc::invalid_argument);
  CHECK(Secret::read_descriptor(pipe_of(std::string(33, 'x'))).error().code() ==
        Errc::invalid_argument);
}

TEST_CASE("a secret that was moved or has gone leaves no bytes behind") {
  static_assert(!std::is_copy_constructible_v<Secret>);
  Secret first = Secret::generate();
  const Secret second = first.copy();

  const Secret third = std::move(first);

  CHECK(third.equals(second));
  const std::array<std::byte, 32> zeros = {};
  CHECK(first.equals(Secret::from_bytes(zeros)));  // NOLINT(bugprone-use-after-move): the point

  alignas(Secret) std::array<std::byte, sizeof(Secret)> place = {};
  auto* inside = new (place.data()) Secret(second.copy());
  CHECK(place != std::array<std::byte, sizeof(Secret)>{});
  inside->~Secret();
  CHECK(place == std::array<std::byte, sizeof(Secret)>{});
}

TEST_CASE("a derived secret is the same for who knows the first, and another for each purpose") {
  const Secret first = Secret::generate();
  CHECK(first.derive("job 1").equals(first.copy().derive("job 1")));
  CHECK_FALSE(first.derive("job 1").equals(first.derive("job 2")));
  CHECK_FALSE(first.derive("job 1").equals(first));
  CHECK_FALSE(first.derive("job 1").equals(Secret::generate().derive("job 1")));
}

}  // namespace headrace::wire
