// SPDX-License-Identifier: Apache-2.0
#include "headrace/proc/child.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>

#include "headrace/base/clock.h"
#include "headrace/base/test_folder.h"

namespace headrace::proc {

namespace {

constexpr Millis kLong{30000};
using Lines = std::vector<std::string>;

ChildOptions shell(const std::string& script) {
  ChildOptions options;
  options.argv = {"sh", "-c", script};
  return options;
}

Exit run(ChildOptions options, Lines* out = nullptr, Lines* err = nullptr) {
  options.on_line = [out, err](Stream stream, std::string_view line) {
    Lines* lines = stream == Stream::out ? out : err;
    if (lines != nullptr) {
      lines->emplace_back(line);
    }
  };
  Result<Child> child = Child::spawn(std::move(options));
  REQUIRE(child.ok());
  Result<Exit> exit = child->wait(kLong);
  REQUIRE(exit.ok());
  return *exit;
}

int64_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

/// Whether a process runs; a zombie does not.
bool runs(int64_t pid) {
  const auto text = base::read_file("/proc/" + std::to_string(pid) + "/stat", 4096);
  return text.ok() && text->find(") Z ") == std::string::npos;
}

/// Wait for `pid` to be gone; false after 10 s.
bool goes_away(int64_t pid) {
  const base::Deadline deadline = base::Deadline::in(std::chrono::seconds(10));
  while (runs(pid) && !deadline.passed()) {
    base::sleep_for(std::chrono::milliseconds(2));
  }
  return !runs(pid);
}

int64_t number(const std::string& text) {
  int64_t value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

TEST_CASE("both streams arrive line by line and the exit code is told") {
  Lines out;
  Lines err;
  const Exit exit = run(shell("echo one; echo bad >&2; printf two; exit 3"), &out, &err);
  CHECK(out == Lines{"one", "two"});
  CHECK(err == Lines{"bad"});
  CHECK(exit.code == 3);
  CHECK(exit.text() == "exit code 3");
  CHECK_FALSE(exit.ok());
  CHECK(exit.last_lines.size() == 3);
  CHECK(exit.resident_bytes_max > 100000);
  const Error error = exit.to_error("activity \"a\"");
  CHECK(error.code() == Errc::child_failed);
  CHECK(error.message().find("activity \"a\": process ") == 0);
  CHECK(error.message().find("exit code 3") != std::string::npos);
  CHECK(error.message().find("; its last line: ") != std::string::npos);
  CHECK(error.origin()->exit == "exit code 3");
  CHECK(error.origin()->pid == exit.pid);
}

TEST_CASE("a death by signal is named") {
  for (const auto& [number, name] :
       {std::pair(SIGSEGV, "SIGSEGV"), std::pair(SIGKILL, "SIGKILL"), std::pair(SIGABRT, "SIGABRT"),
        std::pair(SIGTERM, "SIGTERM")}) {
    ChildOptions options = shell("kill -" + std::to_string(number) + " $$");
    options.limits = {{RLIMIT_CORE, 0}};
    const Exit exit = run(std::move(options));
    CHECK(exit.signal == number);
    CHECK(exit.code == -1);
    CHECK(exit.text() == name);
    CHECK_FALSE(exit.out_of_memory);
  }
  CHECK(signal_name(40) == "signal 40");
}

TEST_CASE("argv, folder and environment arrive as given") {
  const base::TestFolder folder;
  ChildOptions options = shell("printf '%s\\n' \"$0\" \"$1\" \"$PWD\" \"$NEW\" \"${HOME-unset}\"");
  options.argv.insert(options.argv.end(), {"a b", "c'\"$d"});
  options.folder = folder.path();
  options.environment = {{"NEW", "x=y"}, {"NEW", "the last wins"}};
  options.environment_removed = {"HOME"};
  Lines out;
  CHECK(run(std::move(options), &out).ok());
  CHECK(out == Lines{"a b", "c'\"$d", folder.path().string(), "the last wins", "unset"});
}

TEST_CASE("an empty environment holds what is set and nothing else") {
  ChildOptions options;
  options.argv = {"env"};
  options.empty_environment = true;
  options.environment = {{"ONLY", "1"}};
  options.threads = 2;
  Lines out;
  CHECK(run(std::move(options), &out).ok());
  CHECK(out == Lines{"MKL_NUM_THREADS=2", "NUMEXPR_NUM_THREADS=2", "OMP_NUM_THREADS=2", "ONLY=1",
                     "OPENBLAS_NUM_THREADS=2", "RAYON_NUM_THREADS=2"});
}

TEST_CASE("what cannot be started says why and leaves nothing") {
  const base::TestFolder folder;
  const int64_t before = open_descriptors();
  const auto code = [](ChildOptions options) {
    const auto child = Child::spawn(std::move(options));
    REQUIRE_FALSE(child.ok());
    return child.error();
  };
  ChildOptions options;
  CHECK(code(options).code() == Errc::invalid_argument);
  options.argv = {"no-such-program-here"};
  CHECK(code(options).code() == Errc::not_found);
  CHECK(code(options).message().find("no-such-program-here") != std::string::npos);
  options.argv = {"/no/such/program"};
  CHECK(code(options).code() == Errc::not_found);
  options.argv = {"sh"};
  options.folder = folder / "none";
  CHECK(code(options).code() == Errc::not_found);
  CHECK(code(options).message().find("none") != std::string::npos);
  REQUIRE(base::replace_file(folder / "data", "not a program", 0755).ok());
  options.folder.clear();
  options.argv = {(folder / "data").string()};
  CHECK(code(options).message().find("#!") != std::string::npos);
  options.argv = {folder.path().string()};
  CHECK(code(options).code() == Errc::io);
  options.argv = {"sh"};
  options.fds = {{.fd = 0, .number = 2}};
  CHECK(code(options).code() == Errc::invalid_argument);
  CHECK(open_descriptors() == before);
}

TEST_CASE("input comes from nothing, a text, a file or a pipe") {
  const base::TestFolder folder;
  Lines out;
  ChildOptions options = shell("cat; echo end");
  CHECK(run(options, &out).ok());
  CHECK(out == Lines{"end"});

  out.clear();
  options.input.from = Input::From::text;
  options.input.text = std::string(300000, 'x') + "\nlast\n";
  options.line_bytes_max = 400000;
  CHECK(run(options, &out).ok());
  REQUIRE(out.size() == 3);
  CHECK(out[0].size() == 300000);
  CHECK(out[1] == "last");

  out.clear();
  REQUIRE(base::replace_file(folder / "in", "from a file\n").ok());
  options.input = {.from = Input::From::file, .path = folder / "in", .text = {}};
  CHECK(run(options, &out).ok());
  CHECK(out == Lines{"from a file", "end"});

  out.clear();
  options.input = {.from = Input::From::pipe, .path = {}, .text = {}};
  options.on_line = [&out](Stream, std::string_view line) { out.emplace_back(line); };
  Child child = *Child::spawn(options);
  REQUIRE(base::write_all(child.input_fd(), std::string_view("piped\n"), "pipe").ok());
  CHECK(child.wait(Millis(20)).error().code() == Errc::timeout);
  child.close_input();
  CHECK(child.wait(kLong)->ok());
  CHECK(out == Lines{"piped", "end"});
}

TEST_CASE("output goes to a file, both streams in the order of writing") {
  const base::TestFolder folder;
  ChildOptions options = shell("echo one; echo two >&2; echo three");
  options.out = {.to = Output::To::file, .path = folder / "log"};
  options.err = {.to = Output::To::with_out, .path = {}};
  CHECK(run(options).ok());
  CHECK(run(options).ok());
  CHECK(*base::read_file(folder / "log") == "one\ntwo\nthree\none\ntwo\nthree\n");

  Lines out;
  options.out = {.to = Output::To::lines, .path = {}};
  CHECK(run(options, &out).ok());
  CHECK(out == Lines{"one", "two", "three"});
}

TEST_CASE("passed descriptors arrive under their numbers, also crossed ones, and no others") {
  const base::TestFolder folder;
  base::Fd files[2];
  for (const int i : {0, 1}) {
    files[i] = *base::open_file(folder / std::to_string(i), O_RDWR | O_CREAT);
  }
  const int leaked = ::dup(files[0].get());  // dup: without close-on-exec
  ChildOptions options =
      shell("echo zero >&" + std::to_string(files[1].get()) + "; echo one >&" +
            std::to_string(files[0].get()) + "; ls /proc/self/fd | tr '\\n' ' '");
  options.fds = {{.fd = files[0].get(), .number = files[1].get()},
                 {.fd = files[1].get(), .number = files[0].get()}};
  Lines out;
  const bool ok = run(std::move(options), &out).ok();
  ::close(leaked);
  CHECK(ok);
  CHECK(*base::read_file(folder / "0") == "zero\n");
  CHECK(*base::read_file(folder / "1") == "one\n");
  REQUIRE(out.size() == 1);
  // 0, 1, 2, the two passed, and the one by which ls reads the folder.
  CHECK(std::count(out[0].begin(), out[0].end(), ' ') == 6);
}

TEST_CASE("lines are bounded in length and in all; the rest is counted") {
  ChildOptions options = shell("head -c 3000000 /dev/zero | tr '\\0' x; echo; seq 1000");
  options.line_bytes_max = 100;
  options.lines_bytes_max = 1000;
  Lines out;
  const Exit exit = run(std::move(options), &out);
  REQUIRE(!out.empty());
  CHECK(out[0] == std::string(100, 'x') + " [2999900 more bytes]");
  CHECK(out.back().size() < 10);
  CHECK(exit.dropped_lines == 1001 - std::ssize(out));
  CHECK(exit.last_lines.back() == "1000");
}

TEST_CASE("a time limit stops the child and the end says so") {
  ChildOptions options = shell("echo begun; sleep 100");
  options.timeout = Millis(150);
  const Exit exit = run(std::move(options));
  CHECK(exit.signal == SIGTERM);
  CHECK(exit.text() == "SIGTERM (stopped: timeout of 0.15 s)");
  CHECK(exit.to_error("x").code() == Errc::timeout);
  CHECK(exit.wall < Millis(20000));
}

TEST_CASE("a child that ends well after a stop still counts as stopped") {
  ChildOptions options =
      shell("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.01; done");
  Lines out;
  bool ready = false;
  options.on_line = [&](Stream stream, std::string_view line) {
    if (stream == Stream::out) {  // some shells say "Terminated" on the other one
      out.emplace_back(line);
      ready = true;
    }
  };
  Child child = *Child::spawn(std::move(options));
  while (!ready) {
    REQUIRE(child.wait(Millis(10)).error().code() == Errc::timeout);
  }
  const Exit exit = *child.stop("cancelled by the user", Millis(20000));
  CHECK(exit.code == 0);
  CHECK_FALSE(exit.ok());
  CHECK(exit.to_error("x").code() == Errc::cancelled);
  CHECK(out == Lines{"ready", "saved"});
}

TEST_CASE("who ignores SIGTERM gets SIGKILL after the grace, with all its children") {
  ChildOptions options = shell(
      "trap '' TERM; sh -c 'trap \"\" TERM; echo $$; sleep 1000' & wait; sleep 1000; sleep 1000");
  int64_t grandchild = -1;
  options.on_line = [&](Stream, std::string_view line) { grandchild = number(std::string(line)); };
  Child child = *Child::spawn(std::move(options));
  while (grandchild < 0) {
    REQUIRE(child.wait(Millis(10)).error().code() == Errc::timeout);
  }
  const Exit exit = *child.stop("test", Millis(100));
  CHECK(exit.signal == SIGKILL);
  CHECK(exit.text() == "SIGKILL (stopped: test)");
  CHECK(exit.wall >= Millis(100));
  CHECK(goes_away(grandchild));
}

TEST_CASE("what a child leaves behind in its group is killed when it ends") {
  ChildOptions options = shell("sleep 1000 & echo $!; exit 0");
  Lines out;
  const Exit exit = run(std::move(options), &out);
  CHECK(exit.ok());
  REQUIRE(out.size() == 1);
  CHECK(goes_away(number(out[0])));
}

TEST_CASE("a process that left the group and holds the pipe open does not delay the end") {
  ChildOptions options = shell("setsid sh -c 'echo $$; exec sleep 1000' & sleep 0.2; echo done");
  Lines out;
  const Exit exit = run(std::move(options), &out);
  CHECK(exit.ok());
  REQUIRE(out.size() == 2);
  CHECK(out.back() == "done");
  const int64_t runaway = number(out[0]);
  CHECK(runs(runaway));
  ::kill(static_cast<pid_t>(runaway), SIGKILL);
}

TEST_CASE("letting a child go ends it and its group at once") {
  int64_t grandchild = -1;
  int64_t pid = -1;
  {
    ChildOptions options = shell("sleep 1000 & echo $!; wait");
    options.on_line = [&](Stream, std::string_view line) {
      grandchild = number(std::string(line));
    };
    Child child = *Child::spawn(std::move(options));
    pid = child.pid();
    while (grandchild < 0) {
      REQUIRE(child.wait(Millis(10)).error().code() == Errc::timeout);
    }
  }
  CHECK_FALSE(runs(pid));
  CHECK(goes_away(grandchild));
}

/// Not a test: the process in the middle for the one below, which runs it by name and kills it.
TEST_CASE("helper: start a child and tell its pid" * doctest::skip()) {
  Child child = *Child::spawn(shell("sleep 1000"));
  const std::string line = "\npid=" + std::to_string(child.pid()) + "\n";
  CHECK(::write(1, line.data(), line.size()) == std::ssize(line));
  CHECK(child.wait(Millis(60000)).ok());
}

TEST_CASE("a child dies with the process that started it, even if that was killed") {
  ChildOptions options;
  options.argv = {std::filesystem::read_symlink("/proc/self/exe").string(), "--no-skip",
                  "--test-case=helper: start a child and tell its pid"};
  int64_t grandchild = -1;
  options.on_line = [&grandchild](Stream, std::string_view line) {
    if (line.rfind("pid=", 0) == 0) {
      grandchild = number(std::string(line.substr(4)));
    }
  };
  Child child = *Child::spawn(std::move(options));
  const base::Deadline deadline = base::Deadline::in(std::chrono::seconds(30));
  while (grandchild < 0 && !deadline.passed()) {
    REQUIRE_FALSE(child.wait(Millis(10)).ok());
  }
  REQUIRE(grandchild > 0);
  CHECK(runs(grandchild));
  ::kill(static_cast<pid_t>(child.pid()), SIGKILL);
  CHECK(child.wait(kLong)->signal == SIGKILL);
  CHECK(goes_away(grandchild));
}

TEST_CASE("heartbeats keep a child alive; their absence stops it") {
  ChildOptions options = shell(
      "for i in 1 2 3 4 5 6; do sleep 0.1; echo >&$HEADRACE_HEARTBEAT_FD; done; echo quiet; sleep "
      "1000");
  options.heartbeat = Millis(2000);
  options.grace = Millis(1000);
  Lines out;
  const Exit exit = run(std::move(options), &out);
  CHECK(out == Lines{"quiet"});
  CHECK(exit.wall >= Millis(2500));
  CHECK(exit.stopped == "timeout: no heartbeat for 2 s");
}

TEST_CASE("a memory limit makes large allocations fail") {
  ChildOptions options;
  options.argv = {"dd", "if=/dev/zero", "of=/dev/null", "bs=512M", "count=1"};
  options.memory_bytes_max = int64_t{64} << 20;
  Lines err;
  const Exit exit = run(std::move(options), nullptr, &err);
  CHECK(exit.code == 1);
  REQUIRE(!err.empty());
  CHECK(err[0].find("memory") != std::string::npos);
}

TEST_CASE("a child runs on the cores it is given") {
  cpu_set_t ours;
  REQUIRE(::sched_getaffinity(0, sizeof ours, &ours) == 0);
  int last = -1;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    last = CPU_ISSET(core, &ours) ? core : last;
  }
  ChildOptions options = shell("grep Cpus_allowed_list /proc/self/status | cut -f2");
  options.cores = {last};
  Lines out;
  CHECK(run(std::move(options), &out).ok());
  CHECK(out == Lines{std::to_string(last)});
}

TEST_CASE("the bytes of a child come as they are, whatever its lines are") {
  ChildOptions options = shell("printf 'a\\r\\nb\\rc'; printf '\\377' >&2");
  std::string bytes[2];
  options.on_bytes = [&bytes](Stream stream, std::string_view piece) {
    bytes[static_cast<size_t>(stream)] += piece;
  };
  Lines out;
  CHECK(run(std::move(options), &out).ok());
  CHECK(bytes[0] == "a\r\nb\rc");
  CHECK(bytes[1] == "\377");
  CHECK(out.size() == 2);
}

TEST_CASE("resource limits and priority reach the child") {
  ChildOptions options = shell("ulimit -n; nice");
  options.limits = {{RLIMIT_NOFILE, 37}};
  options.nice = 3;
  Lines out;
  CHECK(run(std::move(options), &out).ok());
  REQUIRE(out.size() == 2);
  CHECK(out[0] == "37");
  CHECK(number(out[1]) >= 3);
}

TEST_CASE("signals that this process ignores or handles are normal in the child") {
  struct sigaction before = {};
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  REQUIRE(::sigaction(SIGPIPE, &ignore, &before) == 0);
  // `yes` ends by SIGPIPE (128 + 13 in the shell's count) only if the signal is not ignored.
  ChildOptions options;
  options.argv = {"bash", "-c", "yes | head -n 1; echo ${PIPESTATUS[0]}"};
  Lines out;
  const Exit exit = run(std::move(options), &out);
  ::sigaction(SIGPIPE, &before, nullptr);
  CHECK(exit.ok());
  CHECK(out == Lines{"y", "141"});
}

TEST_CASE("a thousand children leave no descriptor, no zombie and no group") {
  run(shell("true"));
  const int64_t before = open_descriptors();
  for (int i = 0; i < 1000; ++i) {
    ChildOptions options;
    options.argv = {"true"};
    REQUIRE(run(std::move(options)).ok());
  }
  CHECK(open_descriptors() == before);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
}

TEST_CASE("a child ends for its owner also when SIGCHLD is ignored") {
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  ChildOptions options = shell("true");

  Result<Child> child = Child::spawn(std::move(options));
  REQUIRE(child.ok());
  const Result<Exit> exit = child->wait(kLong);

  ::signal(SIGCHLD, before);
  REQUIRE(exit.ok());
  CHECK(!exit->ok());
  CHECK(exit->code == -1);
  CHECK(exit->text() == "an unknown exit code (its end was taken by somebody else)");
}

}  // namespace headrace::proc
