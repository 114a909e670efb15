// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/output.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include "headrace/base/random.h"
#include "headrace/base/test_folder.h"

namespace headrace::run {

namespace {

using Lines = std::vector<std::string>;

struct TestPipe {
  base::Fd read_end;
  base::Fd write_end;
  TestPipe() {
    int fds[2] = {-1, -1};
    REQUIRE(::pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0);
    read_end = base::Fd(fds[0]);
    write_end = base::Fd(fds[1]);
  }
  std::string take() const {
    std::string all;
    char buffer[65536];
    for (;;) {
      const ssize_t count = ::read(read_end.get(), buffer, sizeof buffer);
      if (count <= 0) {
        return all;
      }
      all.append(buffer, static_cast<size_t>(count));
    }
  }
};

}  // namespace

TEST_CASE("lines keep their ends") {
  LineCutter cutter;
  CHECK(cutter.feed("a\nb\r\nc\rd") == Lines{"a\n", "b\r\n", "c\r"});
  CHECK(cutter.finish() == "d\n");
  CHECK(cutter.finish().empty());
}

TEST_CASE("an end that comes in two pieces is one end") {
  LineCutter cutter;
  CHECK(cutter.feed("a\r").empty());
  CHECK(cutter.feed("\nb\r") == Lines{"a\r\n"});
  CHECK(cutter.feed("c") == Lines{"b\r"});
  CHECK(cutter.finish() == "c\n");
  CHECK(cutter.feed("d\r").empty());
  CHECK(cutter.finish() == "d\r");
}

TEST_CASE("no byte is lost or moved, however the stream is cut") {
  const uint64_t seed = 7;
  base::Rng rng(seed);
  CAPTURE(seed);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (uint64_t i = rng.below(400); i > 0; --i) {
      constexpr std::string_view kAlphabet = "ab\n\r\xc3\xa9\xff";
      text += kAlphabet[rng.below(kAlphabet.size())];
    }
    LineCutter cutter;
    std::string joined;
    for (std::string_view rest = text; !rest.empty();) {
      const size_t size = std::min<size_t>(rest.size(), 1 + rng.below(7));
      for (const std::string& line : cutter.feed(rest.substr(0, size))) {
        CHECK((line.ends_with('\n') || line.ends_with('\r')));
        CHECK(line.find('\n') >= line.size() - 1);
        joined += line;
      }
      rest.remove_prefix(size);
    }
    joined += cutter.finish();
    if (!text.empty() && !text.ends_with('\n') && !text.ends_with('\r')) {
      text += '\n';
    }
    CHECK(joined == text);
  }
}

TEST_CASE("a line without end is cut between characters") {
  LineCutter cutter(8);
  const Lines lines = cutter.feed("abcdefg\xc3\xa9xyz\n");
  CHECK(lines == Lines{"abcdefg\n", "\xc3\xa9xyz\n"});
}

TEST_CASE("two streams keep the order in which they came") {
  const TestPipe pipe;
  OutputQueue queue(pipe.write_end.get(), pipe.write_end.get());
  queue.put(Stream::out, "1\n");
  queue.put(Stream::err, "2\n");
  queue.put(Stream::out, "3\n");
  queue.flush();
  CHECK(queue.empty());
  CHECK(pipe.take() == "1\n2\n3\n");
}

TEST_CASE("what a reader does not take waits, and the queue says when it is full") {
  const TestPipe pipe;
  OutputQueue queue(pipe.write_end.get(), pipe.write_end.get());
  const std::string line = std::string(999, 'x') + "\n";
  size_t put = 0;
  while (!queue.full()) {
    queue.put(Stream::out, line);
    queue.flush();
    put += line.size();
  }
  CHECK(queue.waiting_fd() == pipe.write_end.get());
  size_t taken = 0;
  while (!queue.empty()) {
    taken += pipe.take().size();
    queue.flush();
  }
  CHECK(taken + pipe.take().size() == put);
  CHECK_FALSE(queue.full());
}

TEST_CASE("lines have their rank in front, the last of stderr are kept, files hold the bytes") {
  const base::TestFolder folder;
  const TestPipe pipe;
  OutputQueue queue(pipe.write_end.get(), pipe.write_end.get());
  auto output =
      RankOutput::make({.timestamps = false, .folder = folder.path(), .ranks = 2}, &queue);
  REQUIRE(output.ok());
  output->on_bytes(1, Stream::out, "a\nb");
  for (int i = 0; i < 30; ++i) {
    output->on_bytes(0, Stream::err, std::to_string(i) + "\r\n");
  }
  output->finish(1);
  queue.flush();
  const std::string text = pipe.take();
  CHECK(text.starts_with("[1]<stdout>:a\n[0]<stderr>:0\r\n"));
  CHECK(text.ends_with("[1]<stdout>:b\n"));
  const Lines last = output->last_errors(0);
  REQUIRE(last.size() == 20);
  CHECK(last.front() == "10");
  CHECK(last.back() == "29");
  CHECK(*base::read_file(folder.path() / "rank.1/stdout") == "a\nb");
}

}  // namespace headrace::run
