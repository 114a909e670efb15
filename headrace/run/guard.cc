// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/guard.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <system_error>

#include "headrace/base/environment.h"
#include "headrace/base/log.h"
#include "headrace/base/random.h"
#include "headrace/proc/stray.h"

namespace headrace::run {

namespace {

constexpr proc::Millis kKillLimit{10000};
constexpr proc::Millis kFinishLimit{15000};

}  // namespace

Result<Guard> Guard::start(const std::string& program, const base::Path& folder) {
  const std::string id = new_id();
  proc::ChildOptions options;
  options.argv = {program, "run-guard", id, folder.string()};
  options.environment_removed = {"HEADRACE_GUARD"};  // or the guard of an outer job kills it first
  options.input.from = proc::Input::From::pipe;
  options.out.to = proc::Output::To::null;
  options.err.to = proc::Output::To::inherit;
  options.folder = "/";
  options.die_with_parent = false;
  auto child = proc::Child::spawn(std::move(options));
  if (!child.ok()) {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    return std::move(child.error().add_context("starting the guard of the job"));
  }
  return Guard(id, *std::move(child));
}

void Guard::finish() {
  child_.close_input();
  const auto end = child_.wait(kFinishLimit);
  if (!end.ok()) {
    base::log_warning("run: the guard of the job: " + end.error().message());
  }
}

int run_guard(const std::string& id, const base::Path& folder) {
  // Only the end of the launcher ends it: neither a terminal's signals nor a reader that has gone.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) {
    std::signal(number, SIG_IGN);
  }
  char byte = 0;
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
    if (count == 0 || (count < 0 && errno != EINTR)) {
      break;
    }
  }
  const auto killed = proc::kill_strays(
      [&id](const proc::Environment& environment) {
        return proc::value_in(environment, "HEADRACE_GUARD") == id;
      },
      kKillLimit);
  if (!killed.ok()) {
    base::log_warning("run: " + killed.error().message());
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return killed.ok() ? 0 : 1;
}

Result<base::Path> make_private_folder() {
  std::error_code code;
  const base::Path below = std::filesystem::temp_directory_path(code);
  std::string pattern = ((code ? base::Path("/tmp") : below) / "headrace-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    return errno_error(errno, "making a private folder " + pattern + " (TMPDIR chooses where)");
  }
  return base::Path(pattern);
}

std::string new_id() {
  std::array<std::byte, 16> bytes = {};
  base::random_bytes(bytes);
  std::string id;
  for (const std::byte byte : bytes) {
    id += fmt::format("{:02x}", std::to_integer<int>(byte));
  }
  return id;
}

}  // namespace headrace::run
