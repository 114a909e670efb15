// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <vector>

#include "headrace/base/test_folder.h"
#include "headrace/base/thread.h"

namespace headrace::base {

TEST_CASE("a replaced file has the new text and mode and leaves nothing beside it") {
  const TestFolder folder;
  const Path path = folder / "state.json";
  REQUIRE(replace_file(path, "old").ok());
  REQUIRE(replace_file(path, "new", 0600).ok());
  CHECK(*read_file(path) == "new");
  struct stat info = {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777U) == 0600);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a replacement that does not fit leaves the old file whole and nothing beside it") {
  TestFolder folder;
  if (!folder.mount_tiny(64 * 1024)) {
    MESSAGE("skipped: mounting a tmpfs needs root");
    return;
  }
  const Path path = folder / "state.json";
  REQUIRE(replace_file(path, "old").ok());
  const Result<void> full = replace_file(path, std::string(256 * 1024, 'x'));
  REQUIRE_FALSE(full.ok());
  CHECK(full.error().code() == Errc::out_of_space);
  CHECK(*read_file(path) == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("replacing through links replaces what they lead to, and the links stay") {
  const TestFolder folder;
  REQUIRE(make_folders(folder / "away").ok());
  REQUIRE(replace_file(folder / "away/data", "old").ok());
  std::filesystem::create_symlink("away/data", folder / "inner");
  std::filesystem::create_symlink("inner", folder / "link");
  REQUIRE(replace_file(folder / "link", "new").ok());
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(std::filesystem::is_symlink(folder / "inner"));
  CHECK(*read_file(folder / "away/data") == "new");
  CHECK(std::distance(std::filesystem::directory_iterator(folder / "away"), {}) == 1);

  std::filesystem::create_symlink("away/later", folder / "dangling");
  REQUIRE(replace_file(folder / "dangling", "made").ok());
  CHECK(std::filesystem::is_symlink(folder / "dangling"));
  CHECK(*read_file(folder / "away/later") == "made");

  std::filesystem::create_symlink("b", folder / "a");
  std::filesystem::create_symlink("a", folder / "b");
  CHECK_FALSE(replace_file(folder / "a", "x").ok());
}

TEST_CASE("what is no regular file is not replaced; the message says what it is") {
  const TestFolder folder;
  const auto refused = [](const Path& path, std::string_view what) {
    CAPTURE(path.string());
    const Result<void> done = replace_file(path, "x");
    REQUIRE_FALSE(done.ok());
    CHECK(done.error().code() == Errc::invalid_argument);
    CHECK(done.error().message().find(what) != std::string::npos);
    CHECK(check_replaceable(path).error().message() == done.error().message());
  };
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
  refused(folder / "fifo", "is a pipe");
  std::filesystem::create_symlink("fifo", folder / "link");
  refused(folder / "link", "is a pipe");
  refused(folder.path(), "is a folder");
  CHECK(std::filesystem::is_fifo(folder / "fifo"));
  CHECK(check_replaceable(folder / "none").ok());

  int ends[2] = {-1, -1};  // as /dev/stdout in a pipeline
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const Fd read_end(ends[0]);
  const Fd write_end(ends[1]);
  refused("/proc/self/fd/" + std::to_string(ends[1]), "is a pipe");

  if (::mknod((folder / "null").c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0) {
    MESSAGE("skipped for a device: making one needs root");
    return;
  }
  refused(folder / "null", "is a device");
  CHECK(std::filesystem::is_character_file(folder / "null"));
}

TEST_CASE("reading names the path and says what is wrong with it") {
  const TestFolder folder;
  const auto missing = read_file(folder / "none");
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().code() == Errc::not_found);
  CHECK(missing.error().message().find("none") != std::string::npos);
  CHECK(read_file(folder.path()).error().code() == Errc::invalid_argument);
  REQUIRE(replace_file(folder / "big", std::string(5000, 'x')).ok());
  CHECK(read_file(folder / "big", 4999).error().code() == Errc::invalid_argument);
  CHECK(read_file(folder / "big", 5000)->size() == 5000);
}

TEST_CASE("files of the system that have no length are read whole") {
  CHECK(read_file("/proc/self/status")->find("Pid:") != std::string::npos);
}

TEST_CASE("folders are made with their parents, and the one in the way is named") {
  const TestFolder folder;
  CHECK(make_folders(folder / "a/b/c").ok());
  CHECK(make_folders(folder / "a/b/c").ok());
  REQUIRE(replace_file(folder / "file", "x").ok());
  const auto blocked = make_folders(folder / "file/b");
  REQUIRE_FALSE(blocked.ok());
  CHECK(blocked.error().message().find("file/b") != std::string::npos);
}

TEST_CASE("a descriptor is closed once, by whoever owns it last") {
  const TestFolder folder;
  REQUIRE(replace_file(folder / "f", "x").ok());
  int number = -1;
  {
    Fd first = *open_file(folder / "f", O_RDONLY);
    number = first.get();
    const Fd second = std::move(first);
    CHECK(second.valid());
    CHECK(::fcntl(number, F_GETFD) == FD_CLOEXEC);
  }
  CHECK(::fcntl(number, F_GETFD) == -1);
}

TEST_CASE("a file that is too large is refused before its bytes are asked for") {
  const TestFolder folder;
  const Path path = folder / "large";
  const auto made = open_file(path, O_WRONLY | O_CREAT);
  REQUIRE(made.ok());
  REQUIRE(::ftruncate(made->get(), int64_t{1} << 40) == 0);  // more than memory, but no blocks

  const auto refused = read_file(path, 1 << 20);

  REQUIRE(!refused.ok());
  CHECK(refused.error().code() == Errc::invalid_argument);
  CHECK(read_file("/proc/self/status", 16).error().code() == Errc::invalid_argument);
  REQUIRE(replace_file(path, std::string(5000, 'x')).ok());
  CHECK(read_file(path, 5000)->size() == 5000);
  CHECK(!read_file(path, 4999).ok());
}

namespace {

/// Leave a socket at `path`.
void make_socket(const Path& path) {
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  REQUIRE(path.string().size() < sizeof address.sun_path);
  path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
}

}  // namespace

TEST_CASE("what is no regular file is named and neither waited for nor read") {
  const TestFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  REQUIRE(make_folders(folder / "folder").ok());
  make_socket(folder / "socket");
  std::filesystem::create_symlink("/dev/zero", folder / "device");
  const std::pair<const char*, const char*> kinds[] = {
      {"pipe", "a pipe"}, {"folder", "a folder"}, {"socket", "a socket"}, {"device", "a device"}};
  for (const auto& [name, what] : kinds) {
    CAPTURE(name);
    const Result<std::string> read = read_file(folder / name, 1 << 20);
    const Result<Fd> opened = open_file(folder / name, O_RDONLY);
    const Result<Fd> written = open_file(folder / name, O_WRONLY | O_CREAT | O_APPEND);
    REQUIRE_FALSE(read.ok());
    REQUIRE_FALSE(opened.ok());
    REQUIRE_FALSE(written.ok());
    for (const Error& error : {read.error(), opened.error(), written.error()}) {
      CHECK(error.code() == Errc::invalid_argument);
      CHECK(error.message().find((folder / name).string() + " is " + what) != std::string::npos);
    }
  }
}

TEST_CASE("an input that a person names may be a pipe or a device") {
  const TestFolder folder;
  const Path path = folder / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  Thread writer("hr-test", [path] {
    const auto fd = open_any_file(path, O_WRONLY);  // waits for its reader
    static_cast<void>(write_all(fd->get(), "through a pipe", path));
  });
  CHECK(read_input(path).value_or("") == "through a pipe");
  CHECK(read_input("/dev/null").value_or("?").empty());
  CHECK_FALSE(read_input(folder.path()).ok());
}

}  // namespace headrace::base
