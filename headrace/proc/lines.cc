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
  lines_.push_back(utf8_text(line, kLastLineBytes));  // for messages, which are JSON in the end
  bytes_ += lines_.back().size();
  while (lines_.size() > kLastLines || bytes_ > kLastBytes) {
    bytes_ -= lines_.front().size();
    lines_.pop_front();
  }
}

}  // namespace headrace::proc
