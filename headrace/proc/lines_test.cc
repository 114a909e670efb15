// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "headrace/proc/lines_internal.h"

namespace headrace::proc {

namespace {

using Lines = std::vector<std::string>;

Lines split(const std::vector<std::string>& pieces, int64_t bytes_max = 100) {
  LineSplitter splitter(bytes_max);
  Lines out;
  const auto keep = [&out](std::string_view line) { out.emplace_back(line); };
  for (const std::string& piece : pieces) {
    splitter.feed(piece, keep);
  }
  splitter.finish(keep);
  return out;
}

}  // namespace

TEST_CASE("lines are the same however the bytes are cut into reads") {
  const std::string text = "one\n\ntwo\r\nthree \xC3\xA4 \r four\nlast without an end";
  const Lines expected = {"one", "", "two", "three \xC3\xA4 \r four", "last without an end"};
  CHECK(split({text}) == expected);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    CHECK(split({text.substr(0, cut), text.substr(cut)}) == expected);
  }
  std::vector<std::string> single;
  for (const char c : text) {
    single.emplace_back(1, c);
  }
  CHECK(split(single) == expected);
}

TEST_CASE("a line above the bound is given once, cut, and tells what is missing") {
  CHECK(split({std::string(10, 'a') + "\nb\n"}, 10) == Lines{std::string(10, 'a'), "b"});
  CHECK(split({std::string(11, 'a') + "\nb\n"}, 10) ==
        Lines{std::string(10, 'a') + " [1 more bytes]", "b"});
  CHECK(split({std::string(8, 'a'), std::string(8, 'b'), std::string(8, 'c') + "\n"}, 10) ==
        Lines{"aaaaaaaabb [14 more bytes]"});
}

TEST_CASE("nothing gives no line, an empty line gives one") {
  CHECK(split({}).empty());
  CHECK(split({""}).empty());
  CHECK(split({"\n"}) == Lines{""});
}

TEST_CASE("the last lines are kept within 20 lines and 4 KiB") {
  LastLines last;
  for (int i = 0; i < 100; ++i) {
    last.add(std::to_string(i));
  }
  Lines lines = last.take();
  CHECK(lines.size() == 20);
  CHECK(lines.front() == "80");
  CHECK(lines.back() == "99");
  for (int i = 0; i < 100; ++i) {
    last.add(std::string(1000, 'x'));
  }
  lines = last.take();
  size_t bytes = 0;
  for (const std::string& line : lines) {
    bytes += line.size();
  }
  CHECK(bytes <= 4096);
  CHECK(lines.size() >= 4);
}

TEST_CASE("last lines are UTF-8 whatever was written, and end at a character") {
  LastLines last;
  last.add("Gr\xF6sse");
  last.add(std::string(511, 'x') + "\xC3\xBC");

  const auto lines = last.take();

  CHECK(lines[0] == "Gr\xEF\xBF\xBDsse");
  CHECK(lines[1] == std::string(511, 'x'));
}

TEST_CASE("the last lines are the newest ones that fit together") {
  LastLines last;
  last.add("first");
  for (int i = 0; i < 8; ++i) {
    last.add(std::string(510, 'x'));
  }
  CHECK(last.take().size() == 9);  // 4085 bytes
  last.add("0123456789");
  CHECK(last.take().size() == 10);  // 4095 bytes
  last.add("ab");
  CHECK(last.take().size() == 10);  // without "first"
}

}  // namespace headrace::proc
