// SPDX-License-Identifier: Apache-2.0
#include "headrace/wire/channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "headrace/base/check.h"
#include "headrace/wire/socket_internal.h"

namespace headrace::wire {

namespace {

constexpr size_t kQueuedBytesMax = size_t{64} << 20;
constexpr size_t kReadBytes = size_t{64} << 10;
constexpr uint16_t kDescriptorFrame = kFrameTypeReserved + 1;
constexpr base::Micros kShakeMost = std::chrono::seconds(2);  // while other addresses are left
constexpr size_t kDescriptorsMax = 16;  // that came and were not asked for yet

bool is_unix(int fd) {
  int domain = 0;
  socklen_t bytes = sizeof domain;
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX;
}

Result<PeerCredentials> credentials_of(int fd, const std::string& peer) {
  ucred credentials = {};
  socklen_t bytes = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) {
    return errno_error(errno, peer + ": asking who it is");
  }
  return PeerCredentials{.pid = credentials.pid, .uid = credentials.uid, .gid = credentials.gid};
}

/// Room for the descriptors of one message, aligned as the kernel's header wants it.
union Control {
  cmsghdr header;
  std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))> bytes;
};

/// Take over the descriptors of a received message.
void take_descriptors(msghdr* message, std::deque<base::Fd>* out) {
  for (cmsghdr* part = CMSG_FIRSTHDR(message); part != nullptr; part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      out->emplace_back(fd);
    }
  }
}

}  // namespace

// ---- handshake ----

Result<ChannelHandshake> ChannelHandshake::begin(base::Fd fd, Side side,
                                                 const HandshakeOptions& options,
                                                 std::string peer) {
  if (is_unix(fd.get())) {
    HR_TRY(const PeerCredentials credentials, credentials_of(fd.get(), peer));
    // An abstract name has no owner: whoever takes it first answers there.
    if (credentials.uid != ::geteuid() && credentials.uid != 0) {
      return Error{Errc::auth_failed,
                   fmt::format("{}: process {} belongs to user {}, this one to user {}", peer,
                               credentials.pid, credentials.uid, ::geteuid())};
    }
  }
  HR_TRY(Handshake handshake, Handshake::make(side, options, make_nonce()), peer);
  return ChannelHandshake(std::move(fd), std::move(peer), std::move(handshake));
}

Error ChannelHandshake::with_peer(Error error) const { return std::move(error.add_context(peer_)); }

Result<void> ChannelHandshake::write_out() {
  while (!out_.empty()) {
    const ssize_t count = ::send(fd_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (count < 0) {
      if (errno == EINTR) {
        continue;
      }
      if (errno == EAGAIN) {
        return {};
      }
      return with_peer(errno_error(errno, "sending the handshake"));
    }
    out_.erase(0, static_cast<size_t>(count));
  }
  return {};
}

Result<bool> ChannelHandshake::advance() {
  if (!begun_) {
    begun_ = true;
    out_ += handshake_.step({}).out;
  }
  HR_TRY(write_out());
  while (!done_) {
    // Looked at before it is taken: bytes behind the handshake belong to the channel.
    std::array<char, kHandshakeBytesMax> buffer;
    const ssize_t count = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_PEEK);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0 && errno == EAGAIN) {
      return false;
    }
    if (count < 0) {
      return with_peer(errno_error(errno, "receiving the handshake"));
    }
    if (count == 0) {
      return with_peer(
          Error{Errc::io,
                handshake_.heard()
                    ? "it closed the connection in the middle of the handshake: it may know "
                      "another secret, or none; its log says why"
                    : "it closed the connection before it said anything of headrace's protocol"});
    }
    Handshake::Step step =
        handshake_.step(std::string_view(buffer.data(), static_cast<size_t>(count)));
    static_cast<void>(::recv(fd_.get(), buffer.data(), step.taken, 0));
    done_ = step.done;
    out_ += step.out;
    const Result<void> written = write_out();
    if (step.error.has_value()) {
      return with_peer(*std::move(step.error));
    }
    HR_TRY(written);
  }
  return out_.empty();
}

Channel ChannelHandshake::finish() && {
  HR_CHECK(done_ && out_.empty(), "the handshake is not done");
  return Channel(std::move(fd_), std::move(peer_), std::move(handshake_));
}

namespace {

Result<Channel> shake(base::Fd fd, Side side, const HandshakeOptions& options,
                      const std::string& peer, const base::Deadline& deadline) {
  const base::Micros limit = deadline.left();
  HR_TRY(auto handshake, ChannelHandshake::begin(std::move(fd), side, options, peer));
  for (;;) {
    HR_TRY(const bool done, handshake.advance());
    if (done) {
      return std::move(handshake).finish();
    }
    const auto events = static_cast<short>(handshake.wants_write() ? POLLIN | POLLOUT : POLLIN);
    if (!wait_ready(handshake.fd(), events, deadline)) {
      return Error{Errc::timeout,
                   fmt::format("{}: it did not answer the handshake within {}; does a headrace of "
                               "this job listen there?",
                               peer, duration_text(limit))};
    }
  }
}

}  // namespace

Result<Channel> Channel::connect(const Endpoint& endpoint, const HandshakeOptions& options,
                                 const base::Deadline& deadline,
                                 const ConnectOptions& connect_options) {
  HR_TRY(base::Fd fd, wire::connect(endpoint, deadline, connect_options));
  return shake(std::move(fd), Side::initiator, options, endpoint.text(), deadline);
}

Result<Channel> Channel::connect(std::span<const Endpoint> endpoints,
                                 const HandshakeOptions& options, const base::Deadline& deadline,
                                 const ConnectOptions& connect_options) {
  std::vector<Endpoint> places(endpoints.begin(), endpoints.end());
  std::optional<Error> first;
  const auto failed = [&first](Error error) {
    if (first.has_value()) {
      first->add_note(error.message());
    } else {
      first = std::move(error);
    }
    return *first;
  };
  for (;;) {
    auto connected = connect_first(places, deadline, connect_options);
    if (!connected.ok()) {
      return failed(std::move(connected).error());
    }
    const std::string peer = places[connected->index].text();
    const bool last = places.size() == 1;
    // A stranger that says nothing must not take the time of the others.
    const auto limit = last ? deadline : base::Deadline::in(std::min(deadline.left(), kShakeMost));
    auto channel = shake(std::move(connected->fd), Side::initiator, options, peer, limit);
    if (channel.ok()) {
      return channel;
    }
    Error error = failed(std::move(channel).error());
    if (last) {
      return error;
    }
    places.erase(places.begin() + static_cast<std::ptrdiff_t>(connected->index));
  }
}

Result<Channel> Channel::accept(base::Fd fd, const HandshakeOptions& options,
                                const base::Deadline& deadline) {
  const std::string peer = peer_text(fd.get());
  return shake(std::move(fd), Side::acceptor, options, peer, deadline);
}

// ---- messages ----

Channel::Channel(base::Fd fd, std::string peer, Handshake handshake)
    : Channel(std::move(fd), std::move(peer), handshake.take_keys()) {
  peer_generation_ = handshake.peer_generation();
  service_ = handshake.peer_service();
}

Channel::Channel(base::Fd fd, std::string peer, SessionKeys keys)
    : fd_(std::move(fd)),
      peer_(std::move(peer)),
      local_(is_unix(fd_.get())),
      sealer_(std::move(keys.send)),
      reader_(std::move(keys.receive)) {}

Error Channel::closed(int error_number) const {
  if (error_number == 0 || error_number == EPIPE || error_number == ECONNRESET) {
    return Error{Errc::io, fmt::format("{} closed the connection{}", peer_,
                                       error_number == ECONNRESET ? " (reset)" : "")};
  }
  return errno_error(error_number, "the connection to " + peer_);
}

Error Channel::timed_out(std::string_view what, base::Micros limit) const {
  return Error{Errc::timeout, fmt::format("{} {} within {}", peer_, what, duration_text(limit))};
}

Result<void> Channel::queue(const Frame& frame) {
  if (queued_bytes() > kQueuedBytesMax) {
    return Error{Errc::busy, fmt::format("{} does not take what is sent to it: {} bytes wait",
                                         peer_, queued_bytes())};
  }
  if (out_begin_ == out_.size()) {
    out_.clear();
    out_begin_ = 0;
  }
  return sealer_.seal(frame, &out_);
}

Result<bool> Channel::flush() {
  while (wants_write()) {
    const ssize_t count = ::send(fd_.get(), out_.data() + out_begin_, queued_bytes(), MSG_NOSIGNAL);
    if (count < 0) {
      if (errno == EINTR) {
        continue;
      }
      if (errno == EAGAIN) {
        return false;
      }
      return closed(errno);
    }
    out_begin_ += static_cast<size_t>(count);
  }
  out_.clear();
  out_begin_ = 0;
  if (out_.capacity() > kReadBytes) {
    out_.shrink_to_fit();  // one large message must not keep its memory for ever
  }
  return true;
}

/// Read once; false when nothing is there now.
Result<bool> Channel::fill() {
  std::array<char, kReadBytes> buffer;
  Control control;
  iovec part = {.iov_base = buffer.data(), .iov_len = buffer.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (local_) {
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
  }
  for (;;) {
    const ssize_t count = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
    if (count > 0) {
      take_descriptors(&message, &descriptors_);
      if ((message.msg_flags & MSG_CTRUNC) != 0) {  // those that follow would be taken for it
        return Error{Errc::io, peer_ +
                                   " sent a descriptor that this process could not take; has it "
                                   "too many open (ulimit -n)?"};
      }
      if (descriptors_.size() > kDescriptorsMax) {
        return Error{Errc::corrupt, fmt::format("{} sent {} descriptors that nobody asked for",
                                                peer_, descriptors_.size())};
      }
      reader_.append(std::string_view(buffer.data(), static_cast<size_t>(count)));
      return true;
    }
    if (count == 0) {
      return closed(0);
    }
    if (errno == EAGAIN) {
      return false;
    }
    if (errno != EINTR) {
      return closed(errno);
    }
  }
}

Result<std::optional<Frame>> Channel::try_receive() {
  for (;;) {
    auto frame = reader_.next();
    if (!frame.ok()) {
      return std::move(frame.error().add_context(peer_));
    }
    if (frame->has_value()) {
      return frame;
    }
    HR_TRY(const bool more, fill());
    if (!more) {
      return std::optional<Frame>();
    }
  }
}

Result<void> Channel::send(const Frame& frame, const base::Deadline& deadline) {
  const base::Micros limit = deadline.left();
  HR_TRY(queue(frame));
  for (;;) {
    HR_TRY(const bool all, flush());
    if (all) {
      return {};
    }
    if (!wait_ready(fd_.get(), POLLOUT, deadline)) {
      return timed_out("did not take a message", limit);
    }
  }
}

Result<Frame> Channel::next_of(bool descriptor, const base::Deadline& deadline) {
  const base::Micros limit = deadline.left();
  for (;;) {
    HR_TRY(auto frame, try_receive());
    if (frame.has_value()) {
      if ((frame->type == kDescriptorFrame) != descriptor) {
        return Error{Errc::mismatch, fmt::format("{} sent {} where {} was expected", peer_,
                                                 descriptor ? "a message" : "a descriptor",
                                                 descriptor ? "a descriptor" : "a message")};
      }
      return *std::move(frame);
    }
    if (!wait_ready(fd_.get(), POLLIN, deadline)) {
      return timed_out("sent nothing", limit);
    }
  }
}

Result<Frame> Channel::receive(const base::Deadline& deadline) { return next_of(false, deadline); }

// ---- descriptors ----

Result<void> Channel::send_descriptor(int fd, const base::Deadline& deadline) {
  if (!local_) {
    return Error{Errc::unsupported,
                 peer_ + ": a descriptor goes only through a Unix socket, this is TCP"};
  }
  const base::Micros limit = deadline.left();
  while (wants_write()) {  // messages before it keep their place
    HR_TRY(const bool all, flush());
    if (!all && !wait_ready(fd_.get(), POLLOUT, deadline)) {
      return timed_out("did not take the messages before a descriptor", limit);
    }
  }
  HR_TRY(queue({.type = kDescriptorFrame, .flags = 0, .payload = {}}));
  // The descriptor rides on the frame's first byte: the kernel hands both over together.
  Control control = {};
  iovec part = {.iov_base = out_.data(), .iov_len = out_.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = CMSG_SPACE(sizeof fd);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  for (;;) {
    const ssize_t count = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (count >= 0) {
      out_begin_ += static_cast<size_t>(count);
      break;
    }
    if (errno == EAGAIN) {
      if (!wait_ready(fd_.get(), POLLOUT, deadline)) {
        return timed_out("did not take a descriptor", limit);
      }
    } else if (errno != EINTR) {
      return closed(errno);
    }
  }
  for (;;) {
    HR_TRY(const bool all, flush());
    if (all) {
      return {};
    }
    if (!wait_ready(fd_.get(), POLLOUT, deadline)) {
      return timed_out("did not take a descriptor", limit);
    }
  }
}

Result<base::Fd> Channel::receive_descriptor(const base::Deadline& deadline) {
  if (!local_) {
    return Error{Errc::unsupported,
                 peer_ + ": a descriptor comes only through a Unix socket, this is TCP"};
  }
  HR_TRY(next_of(true, deadline));
  if (descriptors_.empty()) {
    return Error{Errc::corrupt, peer_ + " announced a descriptor and sent none"};
  }
  base::Fd fd = std::move(descriptors_.front());
  descriptors_.pop_front();
  return fd;
}

Result<PeerCredentials> Channel::peer_credentials() const {
  if (!local_) {
    return Error{Errc::unsupported, peer_ + ": only a Unix socket knows the process at its end"};
  }
  return credentials_of(fd_.get(), peer_);
}

Result<base::Fd> Channel::release() && {
  if (wants_write() || reader_.buffered_bytes() > 0) {
    return Error{Errc::busy, fmt::format("the connection to {} has messages under way: {} bytes to "
                                         "go out, {} not read",
                                         peer_, queued_bytes(), reader_.buffered_bytes())};
  }
  return std::move(fd_);
}

}  // namespace headrace::wire
