// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "headrace/flow/channel_internal.h"
#include "headrace/flow/codec_internal.h"

namespace headrace::flow {

namespace {

constexpr size_t kHeadBytes = 8;  // length, type, three zeros
constexpr size_t kReadBytes = size_t{64} << 10;

class FrameBuilder {
 public:
  explicit FrameBuilder(FrameType type) : writer_(&bytes_) {
    writer_.put(uint32_t{0}).put(static_cast<uint32_t>(type));
  }
  FieldWriter& fields() { return writer_; }
  std::string take() {
    const auto length = static_cast<uint32_t>(bytes_.size() - kHeadBytes);
    std::memcpy(bytes_.data(), &length, sizeof length);
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
  FieldWriter writer_;
};

}  // namespace

std::string encode(const HelloFrame& frame) {
  FrameBuilder out(FrameType::hello);
  out.fields().put_text(frame.run_id).put_text(frame.run_folder).put_text(frame.pipeline_folder);
  out.fields().put(frame.grace_ms).put(static_cast<uint8_t>(frame.metrics ? 1 : 0));
  return out.take();
}

std::optional<HelloFrame> decode_hello(std::string_view payload) {
  FieldReader in(payload);
  HelloFrame frame;
  frame.run_id = in.get_text();
  frame.run_folder = in.get_text();
  frame.pipeline_folder = in.get_text();
  frame.grace_ms = in.get<int64_t>();
  frame.metrics = in.get<uint8_t>() != 0;
  return in.complete() ? std::optional(std::move(frame)) : std::nullopt;
}

std::string encode(const CallFrame& frame) {
  FrameBuilder out(FrameType::call);
  out.fields().put(frame.attempt).put(frame.number).put_text(frame.activity).put_text(frame.type);
  out.fields().put_text(frame.item_key).put_text(frame.log).put_text(frame.properties);
  out.fields().put(static_cast<uint8_t>(frame.secure_input ? 1 : 0));
  out.fields().put(static_cast<uint8_t>(frame.secure_output ? 1 : 0));
  for (const std::string& secret : frame.secrets) {
    out.fields().put_text(secret);
  }
  return out.take();
}

std::optional<CallFrame> decode_call(std::string_view payload) {
  FieldReader in(payload);
  CallFrame frame;
  frame.attempt = in.get<uint64_t>();
  frame.number = in.get<int32_t>();
  frame.activity = in.get_text();
  frame.type = in.get_text();
  frame.item_key = in.get_text();
  frame.log = in.get_text();
  frame.properties = in.get_text();
  frame.secure_input = in.get<uint8_t>() != 0;
  frame.secure_output = in.get<uint8_t>() != 0;
  while (in.good() && in.left() > 0) {
    frame.secrets.emplace_back(in.get_text());
  }
  return in.complete() ? std::optional(std::move(frame)) : std::nullopt;
}

std::string encode(const ResultFrame& frame) {
  FrameBuilder out(FrameType::result);
  out.fields().put(frame.attempt).put(static_cast<uint8_t>(frame.ok ? 1 : 0));
  out.fields().put_text(frame.output).put_text(frame.error_code).put_text(frame.error_message);
  out.fields().put_text(frame.exit);
  out.fields().put(frame.cpu_seconds).put(frame.seconds).put(frame.peak_rss_bytes);
  return out.take();
}

std::optional<ResultFrame> decode_result(std::string_view payload) {
  FieldReader in(payload);
  ResultFrame frame;
  frame.attempt = in.get<uint64_t>();
  frame.ok = in.get<uint8_t>() != 0;
  frame.output = in.get_text();
  frame.error_code = in.get_text();
  frame.error_message = in.get_text();
  frame.exit = in.get_text();
  frame.cpu_seconds = in.get<double>();
  frame.seconds = in.get<double>();
  frame.peak_rss_bytes = in.get<int64_t>();
  return in.complete() ? std::optional(std::move(frame)) : std::nullopt;
}

std::string encode_stop() { return FrameBuilder(FrameType::stop).take(); }

std::string encode_ready() { return FrameBuilder(FrameType::ready).take(); }

std::string encode_group(int64_t group) {
  FrameBuilder out(FrameType::group);
  out.fields().put(group);
  return out.take();
}

std::optional<int64_t> decode_group(std::string_view payload) {
  FieldReader in(payload);
  const auto group = in.get<int64_t>();
  return in.complete() ? std::optional(group) : std::nullopt;
}

Result<FrameReader::Read> FrameReader::read_from(int fd) {
  if (taken_ > 0) {
    std::memmove(bytes_.data(), bytes_.data() + taken_, used_ - taken_);
    used_ -= taken_;
    taken_ = 0;
  }
  if (bytes_.size() < used_ + kReadBytes) {
    bytes_.resize(used_ + kReadBytes);
  }
  for (;;) {
    const ssize_t count = ::read(fd, bytes_.data() + used_, bytes_.size() - used_);
    if (count > 0) {
      used_ += static_cast<size_t>(count);
      return Read::data;
    }
    if (count == 0 || errno == ECONNRESET) {
      return Read::closed;
    }
    if (errno == EAGAIN) {
      return Read::nothing;
    }
    if (errno != EINTR) {
      return errno_error(errno, "reading from a worker's connection");
    }
  }
}

Result<std::optional<FrameReader::Frame>> FrameReader::next() {
  if (used_ - taken_ < kHeadBytes) {
    return std::optional<Frame>();
  }
  uint32_t length = 0;
  uint32_t type = 0;
  std::memcpy(&length, bytes_.data() + taken_, sizeof length);
  std::memcpy(&type, bytes_.data() + taken_ + sizeof length, sizeof type);
  const bool known = (type >= 1 && type <= 3) || (type >= 16 && type <= 18);
  if (!known || int64_t{length} > kFrameBytesMax) {
    return Error{Errc::corrupt, fmt::format("a worker's connection carries a frame of type {} and "
                                            "{} bytes, which is none of ours",
                                            type, length)};
  }
  if (used_ - taken_ < kHeadBytes + length) {
    return std::optional<Frame>();
  }
  Frame frame;
  frame.type = static_cast<FrameType>(type);
  frame.payload = std::string_view(bytes_).substr(taken_ + kHeadBytes, length);
  taken_ += kHeadBytes + length;
  return std::optional<Frame>(frame);
}

Result<void> send_some(int fd, std::string* bytes) {
  size_t sent = 0;
  while (sent < bytes->size()) {
    const ssize_t count = ::send(fd, bytes->data() + sent, bytes->size() - sent, MSG_NOSIGNAL);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      return errno_error(errno, "writing to a worker's connection");
    }
  }
  bytes->erase(0, sent);
  return {};
}

Result<void> send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
    } else if (errno != EINTR) {
      return errno_error(errno, "writing to the engine's connection");
    }
  }
  return {};
}

}  // namespace headrace::flow
