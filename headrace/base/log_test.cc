// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/log.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <regex>

#include "headrace/base/file.h"
#include "headrace/base/test_folder.h"

namespace headrace::base {

namespace {

/// What `body` writes to stderr.
template <typename Body>
std::string stderr_of(const Body& body) {
  const TestFolder folder;
  const Path path = folder.path() / "stderr";
  const int kept = ::dup(STDERR_FILENO);
  const auto file = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
  ::dup2(file->get(), STDERR_FILENO);
  body();
  ::dup2(kept, STDERR_FILENO);
  ::close(kept);
  return read_file(path).value_or("");
}

}  // namespace

TEST_CASE("a line of the log begins with the time in UTC, as RFC 3339 has it") {
  const std::string line = stderr_of([] { log_warning("slow disk"); });

  // 2026-11-29T23:30:01.123Z
  CHECK(std::regex_match(
      line, std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z warning slow disk\n)")));
}

TEST_CASE("control characters of what a log line quotes are shown, not sent") {
  const std::string line = stderr_of([] { log_warning("item a\x1b[2J\nb failed"); });

  CHECK(line.ends_with("Z warning item a\\x1b[2J\\x0ab failed\n"));
}

}  // namespace headrace::base
