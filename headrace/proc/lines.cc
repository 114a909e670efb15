// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "headrace/base/json.h"
#include "headrace/proc/lines_internal.h"

namespace headrace::proc {

namespace {

constexpr size_t kLastLines = 20;
constexpr size_t kLastBytes = 4096;
constexpr size_t kLastLineBytes = 512;

}  // namespace

void LineSplitter::add(std::string_view piece) {
  begun_ = true;
  const size_t room = bytes_max_ - std::min(bytes_max_, line_.size());
  line_.append(piece.substr(0, room));
  missing_ += static_cast<int64_t>(piece.size() - std::min(room, piece.size()));
}

void LineSplitter::emit(const OnLine& on_line) {
  if (missing_ > 0) {
    line_ += " [" + std::to_string(missing_) + " more bytes]";
  } else if (!line_.empty() && line_.back() == '\r') {
    line_.pop_back();
  }
  on_line(line_);
  line_.clear();
  missing_ = 0;
  begun_ = false;
}

void LineSplitter::feed(std::string_view bytes, const OnLine& on_line) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    if (!begun_ && end != std::string_view::npos && end <= bytes_max_) {  // most lines: no copy
      const bool wide = end > 0 && bytes[end - 1] == '\r';
      on_line(bytes.substr(0, end - (wide ? 1 : 0)));
      bytes.remove_prefix(end + 1);
      continue;
    }
    add(bytes.substr(0, end));
    if (end == std::string_view::npos) {
      return;
    }
    emit(on_line);
    bytes.remove_prefix(end + 1);
  }
}

void LineSplitter::finish(const OnLine& on_line) {
  if (begun_) {
    emit(on_line);
  }
}

void LastLines::add(std::string_view line) {
  // A character that begins within the bound is whole; all else is for take(), which comes once.
  const std::string_view kept = line.substr(0, kLastLineBytes + 3);
  if (lines_.size() < kLastLines) {
    lines_.emplace_back(kept);
    return;
  }
  std::string reused = std::move(lines_.front());
  lines_.pop_front();
  reused.assign(kept);
  lines_.push_back(std::move(reused));
}

std::vector<std::string> LastLines::take() const {
  std::vector<std::string> texts;
  size_t bytes = 0;
  for (auto line = lines_.rbegin(); line != lines_.rend(); ++line) {
    texts.push_back(utf8_text(*line, kLastLineBytes));  // for messages, which are JSON in the end
    bytes += texts.back().size();
    if (bytes > kLastBytes) {
      texts.pop_back();
      break;
    }
  }
  std::reverse(texts.begin(), texts.end());
  return texts;
}

}  // namespace headrace::proc
