// SPDX-License-Identifier: Apache-2.0
#include "headrace/cli/terminal.h"

#include <doctest/doctest.h>

#include "headrace/base/log.h"

namespace headrace::cli {

namespace {

class FakeClock final : public base::Clock {
 public:
  base::Micros monotonic() override { return now; }
  base::Micros wall() override { return base::Micros(1'796'000'000'000'000) + now; }
  base::Micros now{5'000'000};
};

struct Recorder {
  std::string text;
  Screen screen(bool terminal, int columns = 80) {
    Screen made;
    made.terminal = terminal;
    made.columns = columns;
    made.write = [this](std::string_view piece) { text += piece; };
    return made;
  }
  /// What a terminal would show: carriage returns overwrite, "erase to end of line" is dropped.
  std::string last_line() const {
    const size_t start = text.rfind('\r');
    std::string line = start == std::string::npos ? text : text.substr(start + 1);
    return line.substr(0, line.find('\x1b'));
  }
};

size_t count(const std::string& text, std::string_view part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

bool contains(const std::string& text, std::string_view part) { return count(text, part) > 0; }

}  // namespace

TEST_CASE("a terminal gets one line that is redrawn at most ten times a second") {
  FakeClock clock;
  Recorder recorder;
  Progress progress("train", 1000, clock, recorder.screen(true));

  for (int i = 0; i <= 1000; ++i) {  // 10 s in steps of 10 ms
    progress.update(i, 3, 2);
    clock.now += base::Micros(10'000);
  }

  const size_t redraws = count(recorder.text, "\r");
  CHECK(redraws >= 95);
  CHECK(redraws <= 101);
  CHECK(count(recorder.text, "\n") == 0);
  progress.finish();
  progress.finish();
  CHECK(count(recorder.text, "\n") == 1);
}

TEST_CASE("the line shows items, rate, time left, running and failed items") {
  FakeClock clock;
  Recorder recorder;
  Progress progress("train", 414, clock, recorder.screen(true, 120));
  progress.update(0, 0, 2);

  clock.now += std::chrono::seconds(20);
  progress.update(100, 1, 2);

  // 100 items in 20 s are 5.00 a second; the other 314 take 62.8 s.
  CHECK(contains(recorder.last_line(), "train  24 %"));
  CHECK(contains(recorder.last_line(), "100/414, 5.00/s, ETA 1 min 03 s, 2 running, 1 failed"));
  CHECK(contains(recorder.last_line(), "━"));
}

TEST_CASE("items that were done before a resume do not count for the rate") {
  FakeClock clock;
  Recorder recorder;
  Progress progress("train", 400, clock, recorder.screen(true, 120));
  progress.update(300, 0, 2);

  clock.now += std::chrono::seconds(10);
  progress.update(310, 0, 2);

  CHECK(contains(recorder.last_line(), "310/400, 1.00/s, ETA 1 min 30 s"));
}

TEST_CASE("the rate follows the last half minute") {
  FakeClock clock;
  Recorder recorder;
  Progress progress("train", 100000, clock, recorder.screen(true, 120));
  int64_t done = 0;
  for (int i = 0; i < 100; ++i, clock.now += std::chrono::seconds(1)) {
    progress.update(done += 100, 0, 2);
  }
  for (int i = 0; i < 40; ++i, clock.now += std::chrono::seconds(1)) {
    progress.update(done += 20, 0, 2);
  }

  CHECK(contains(recorder.last_line(), ", 20/s,"));
}

TEST_CASE("the line counts items that wait for their next try, when there are any") {
  FakeClock clock;
  Recorder recorder;
  Progress progress("train", 10, clock, recorder.screen(true, 120));

  progress.update({.done = 1, .failed = 0, .running = 2, .waiting = 3});
  CHECK(contains(recorder.last_line(), "1/10, 2 running, 3 waiting to retry, 0 failed"));
  clock.now += std::chrono::seconds(1);
  progress.update({.done = 1, .failed = 0, .running = 5});
  CHECK(!contains(recorder.last_line(), "waiting"));
}

TEST_CASE("a known time left is shown instead of the estimate") {
  FakeClock clock;
  Recorder recorder;
  Progress progress("train", 10, clock, recorder.screen(true, 120));

  progress.update({.running = 1, .eta_seconds = 42.0});

  CHECK(contains(recorder.last_line(), "ETA 42 s"));
}

TEST_CASE("no line is wider than the terminal") {
  for (const int columns : {20, 40, 61, 80, 200}) {
    FakeClock clock;
    Recorder recorder;
    Progress progress("train", 414, clock, recorder.screen(true, columns));
    clock.now += std::chrono::seconds(20);
    progress.update(100, 1, 2);

    size_t width = 0;
    for (const char c : recorder.last_line()) {
      width += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1U : 0U;
    }
    CAPTURE(columns);
    CHECK(width < static_cast<size_t>(columns));
  }
}

TEST_CASE("a coloured line shows the same as one without colours") {
  for (const int columns : {20, 40, 61, 80, 200}) {
    FakeClock clock;
    Recorder plain;
    Recorder coloured;
    Progress first("train", 414, clock, plain.screen(true, columns));
    Screen screen = coloured.screen(true, columns);
    screen.colour = true;
    Progress second("train", 414, clock, screen);
    clock.now += std::chrono::seconds(20);
    first.update(100, 1, 2);
    second.update(100, 1, 2);

    std::string text = coloured.text.substr(coloured.text.rfind('\r') + 1);
    for (size_t at = text.find('\x1b'); at != std::string::npos; at = text.find('\x1b')) {
      text.erase(at, text.find_first_of("mK", at) + 1 - at);
    }
    CAPTURE(columns);
    CHECK(text == plain.last_line());
  }
}

TEST_CASE("elsewhere a plain line comes every ten seconds and at the end, without escapes") {
  FakeClock clock;
  Recorder recorder;
  {
    Progress progress("train", 414, clock, recorder.screen(false));
    for (int i = 0; i < 25; ++i, clock.now += std::chrono::seconds(1)) {
      progress.update(i, 0, 2);
    }
    CHECK(count(recorder.text, "\n") == 2);
  }

  CHECK(count(recorder.text, "\n") == 3);
  CHECK(!contains(recorder.text, "\x1b"));
  CHECK(!contains(recorder.text, "\r"));
  CHECK(contains(recorder.text, "train: 10/414, 1.00/s, ETA 6 min 44 s, 2 running, 0 failed\n"));
  CHECK(contains(recorder.text, "train: 24/414, 0.96/s, 25 s, 0 failed\n"));
}

TEST_CASE("a log line stands above the bar, which is drawn again below it") {
  FakeClock clock;
  Recorder recorder;
  Progress progress("train", 4, clock, recorder.screen(true));
  progress.update(1, 0, 1);
  recorder.text.clear();

  base::log_warning("H7 is slow");

  CHECK(recorder.text.starts_with("\r\x1b[K"));
  CHECK(contains(recorder.text, " warning H7 is slow\n\r"));
  CHECK(contains(recorder.last_line(), "1/4"));
}

TEST_CASE("a table aligns its columns, numbers to the right") {
  TextTable table({"item", "MASE", "note"});
  table.add({"H1", "0.5", "short"});
  table.add({"größer", "12.25", ""});
  table.add({"H3"});

  CHECK(table.text() ==
        "item     MASE  note\n"
        "H1        0.5  short\n"
        "größer  12.25\n"
        "H3\n");
}

TEST_CASE("control characters are shown, not sent to the terminal") {
  CHECK(printable("a\x1b[31mb\a\n\tc\x7F") == R"(a\x1b[31mb\x07\x0a\x09c\x7f)");
  CHECK(printable("two\n\tlines\r", true) == "two\n\tlines\\x0d");
  CHECK(printable("CSI \xC2\x9B, gr\xC3\xBC\xC3\x9F \xC2\xA0.") ==
        "CSI \\x9b, gr\xC3\xBC\xC3\x9F \xC2\xA0.");
  // Bytes of no character: some terminals take a lone 0x9b for CSI.
  CHECK(printable("\x80 \x9b[2J \x9f") == R"(\x80 \x9b[2J \x9f)");
  CHECK(printable("\xE2\x82 \xF0\x9F\x98") == R"(\xe2\x82 \xf0\x9f\x98)");  // cut short
  CHECK(printable("\xC0\x9B \xE0\x82\x9B \xED\xA0\x80 \xFF") ==  // overlong, surrogate, none
        R"(\xc0\x9b \xe0\x82\x9b \xed\xa0\x80 \xff)");
  // What turns the direction of text, separates lines or is not seen; joiners stay.
  CHECK(printable("a\u202Ecod.exe\u2066 \u200B\u2028\uFEFF\u00AD") ==
        R"(a\u202ecod.exe\u2066 \u200b\u2028\ufeff\u00ad)");
  CHECK(printable("x\U000E0041", true) == R"(x\U000e0041)");
  CHECK(printable("\u0645\u06CC\u200C\u062E \U0001F468\u200D\U0001F469") ==
        "\u0645\u06CC\u200C\u062E \U0001F468\u200D\U0001F469");
  for (const std::string text : {"größer 漢字 😀 é", "a\xC2\xA0", "\xF4\x8F\xBF\xBF"}) {
    CHECK(printable(text) == text);
    CHECK(printable(printable(text + "\x9b")) == text + "\\x9b");
  }
  TextTable table({"item\a"});
  table.add({"H1\nH2"});
  CHECK(table.text() == "item\\x07\nH1\\x0aH2\n");
}

TEST_CASE("durations read as people say them") {
  CHECK(duration_text(0.0) == "0 ms");
  CHECK(duration_text(0.012) == "12 ms");
  CHECK(duration_text(0.0996) == "0.1 s");
  CHECK(duration_text(4.24) == "4.2 s");
  CHECK(duration_text(9.96) == "10 s");
  CHECK(duration_text(59.7) == "1 min 00 s");
  CHECK(duration_text(190) == "3 min 10 s");
  CHECK(duration_text(3725) == "1 h 02 min");
  CHECK(duration_text(400000) == "4 d 15 h");
  CHECK(duration_text(-1) == "?");
}

}  // namespace headrace::cli
