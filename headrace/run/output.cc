// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace headrace::run {

namespace {

// A pipe that poll() calls writable takes this much at once (PIPE_BUF).
constexpr size_t kPieceBytes = 4096;
constexpr size_t kLastErrors = 20;
constexpr size_t kLastErrorBytes = 512;

size_t index_of(Stream stream) { return static_cast<size_t>(stream); }

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

/// At most `most` bytes from the start, not ending within a character.
size_t whole_characters(std::string_view text, size_t most) {
  if (text.size() <= most) {
    return text.size();
  }
  size_t end = most;
  while (end > 0 && most - end < 4 && is_continuation(text[end])) {
    --end;
  }
  return end == 0 || is_continuation(text[end]) ? most : end;
}

std::string_view without_end(std::string_view line) {
  const size_t last = line.find_last_not_of("\r\n");
  return last == std::string_view::npos ? std::string_view() : line.substr(0, last + 1);
}

}  // namespace

std::vector<std::string> LineCutter::feed(std::string_view bytes) {
  std::vector<std::string> lines;
  const auto emit = [&](size_t count) {
    lines.push_back(line_.substr(0, count));
    line_.erase(0, count);
  };
  while (!bytes.empty()) {
    if (line_.ends_with('\r') && bytes.front() != '\n') {
      emit(line_.size());
    }
    const size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size() - 1);
    line_.append(bytes.substr(0, end + 1));
    bytes.remove_prefix(end + 1);
    while (line_.size() > bytes_max_) {
      emit(whole_characters(line_, bytes_max_));
      lines.back() += '\n';
    }
    if (line_.ends_with('\n')) {
      emit(line_.size());
    }
  }
  return lines;
}

std::string LineCutter::finish() {
  if (!line_.empty() && !line_.ends_with('\r')) {
    line_ += '\n';
  }
  return std::exchange(line_, {});
}

void OutputQueue::put(Stream stream, std::string_view text) {
  if (broken_ || text.empty()) {
    return;
  }
  bytes_ += text.size();
  if (!pieces_.empty() && pieces_.back().stream == stream && pieces_.back().written == 0 &&
      pieces_.back().text.size() + text.size() <= 16 * kPieceBytes) {
    pieces_.back().text += text;
    return;
  }
  pieces_.push_back({stream, std::string(text)});
}

int OutputQueue::waiting_fd() const {
  return pieces_.empty() ? -1 : fds_[index_of(pieces_.front().stream)];
}

/// Write one piece; false when the descriptor takes nothing now.
bool OutputQueue::write_front() {
  Piece& piece = pieces_.front();
  const int fd = fds_[index_of(piece.stream)];
  pollfd ready = {fd, POLLOUT, 0};
  if (::poll(&ready, 1, 0) <= 0) {
    return false;
  }
  std::string_view rest = std::string_view(piece.text).substr(piece.written);
  if (rest.size() > kPieceBytes) {
    const size_t line_end = rest.rfind('\n', kPieceBytes - 1);
    rest = rest.substr(0, line_end == std::string_view::npos ? kPieceBytes : line_end + 1);
  }
  const ssize_t count = ::write(fd, rest.data(), rest.size());
  if (count < 0) {
    if (errno == EINTR || errno == EAGAIN) {
      return false;
    }
    broken_ = true;
    pieces_.clear();
    bytes_ = 0;
    return false;
  }
  piece.written += static_cast<size_t>(count);
  bytes_ -= static_cast<size_t>(count);
  if (piece.written == piece.text.size()) {
    pieces_.pop_front();
  }
  return true;
}

void OutputQueue::flush() {
  while (!pieces_.empty() && write_front()) {
  }
}

Result<RankOutput> RankOutput::make(const RankOutputOptions& options, OutputQueue* queue) {
  RankOutput output(options, queue);
  output.ranks_ = std::vector<RankState>(static_cast<size_t>(options.ranks));
  const size_t width = fmt::to_string(std::max(options.ranks - 1, 0)).size();
  for (int rank = 0; rank < options.ranks; ++rank) {
    RankState& state = output.ranks_[static_cast<size_t>(rank)];
    state.prefixes = {fmt::format("[{}]<stdout>:", rank), fmt::format("[{}]<stderr>:", rank)};
    if (options.folder.empty()) {
      continue;
    }
    const base::Path folder = options.folder / fmt::format("rank.{:0{}}", rank, width);
    HR_TRY(base::make_folders(folder));
    for (const Stream stream : {Stream::out, Stream::err}) {
      RankStream& one = state.streams[index_of(stream)];
      one.path = folder / (stream == Stream::out ? "stdout" : "stderr");
      HR_TRY(one.file, base::open_file(one.path, O_WRONLY | O_CREAT | O_TRUNC));
    }
  }
  return output;
}

void RankOutput::keep(int rank, std::string_view name, std::string_view text) {
  const base::Path& beside = ranks_[static_cast<size_t>(rank)].streams[index_of(Stream::out)].path;
  if (beside.empty()) {
    return;
  }
  const auto kept = base::replace_file(beside.parent_path() / name, text);
  if (!kept.ok() && file_problem_.empty()) {
    file_problem_ = kept.error().message();
  }
}

void RankOutput::put(RankState* state, Stream stream, std::string_view line) {
  if (stream == Stream::err) {
    const std::string_view text = without_end(line);
    state->last_errors.emplace_back(text.substr(0, whole_characters(text, kLastErrorBytes)));
    if (state->last_errors.size() > kLastErrors) {
      state->last_errors.pop_front();
    }
  }
  std::string shown;
  if (options_.timestamps) {
    shown = base::utc_text(base::system_clock().wall(), 3);
  }
  shown += state->prefixes[index_of(stream)];
  shown += line;
  queue_->put(stream, shown);
}

void RankOutput::on_bytes(int rank, Stream stream, std::string_view bytes) {
  RankState& state = ranks_[static_cast<size_t>(rank)];
  RankStream& one = state.streams[index_of(stream)];
  if (one.file.valid()) {
    const Result<void> written = base::write_all(one.file.get(), bytes, one.path);
    if (!written.ok()) {
      one.file.reset();
      if (file_problem_.empty()) {
        file_problem_ = written.error().message();
      }
    }
  }
  for (const std::string& line : one.cutter.feed(bytes)) {
    put(&state, stream, line);
  }
}

void RankOutput::finish(int rank) {
  RankState& state = ranks_[static_cast<size_t>(rank)];
  for (const Stream stream : {Stream::out, Stream::err}) {
    RankStream& one = state.streams[index_of(stream)];
    const std::string rest = one.cutter.finish();
    if (!rest.empty()) {
      put(&state, stream, rest);
    }
    one.file.reset();
  }
}

std::vector<std::string> RankOutput::last_errors(int rank) const {
  const RankState& state = ranks_[static_cast<size_t>(rank)];
  return {state.last_errors.begin(), state.last_errors.end()};
}

}  // namespace headrace::run
