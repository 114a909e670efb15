// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/transport/mail.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "headrace/base/log.h"
#include "headrace/wire/endpoint.h"

namespace headrace::comm {

namespace {

constexpr size_t kLetterBytesMost = size_t{16} << 10;
constexpr uint64_t kKeptBytesMost = uint64_t{1} << 20;  // of letters to one rank, not handed out
constexpr size_t kCallBytes = size_t{1} << 20;          // of one system call: others get their turn
constexpr base::Micros kNever = std::chrono::hours(1);
constexpr base::Micros kLook = std::chrono::milliseconds(50);

/// Call `done` once.
template <class Pointer>
void finish(const Pointer& one, const Result<void>& how, int rank) {
  if (auto done = std::exchange(one->done, nullptr)) {
    done(how, rank);
  }
}

template <class Value>
std::vector<std::shared_ptr<Value>> alive(std::vector<std::weak_ptr<Value>>* list) {
  std::vector<std::shared_ptr<Value>> out;
  std::erase_if(*list, [&out](const std::weak_ptr<Value>& one) {
    const auto there = one.lock();
    if (there == nullptr || there->done == nullptr) {
      return true;
    }
    out.push_back(there);
    return false;
  });
  return out;
}

}  // namespace

void Mail::adopt(int rank, base::Fd fd, bool outgoing) {
  const int none = 0;  // see TcpLinks: a slow reader is not dead
  static_cast<void>(::setsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &none, sizeof none));
  wire::avoid_pacing(fd.get());
  static_cast<void>(::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK));
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = kKey + streams_.size();
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd.get(), &event) != 0) {
    base::log_warning(errno_error(errno, "comm: watching a connection").message());
    if (outgoing) {
      on_lost_(rank);
    }
    return;
  }
  if (outgoing) {
    stream_to_[rank] = streams_.size();
  }
  Stream stream;
  stream.fd = std::move(fd);
  stream.rank = rank;
  stream.outgoing = outgoing;
  streams_.push_back(std::move(stream));
}

void Mail::on_event(uint64_t key) {
  const auto stream = static_cast<size_t>(key - kKey);
  flush(stream);
  read(stream);
}

void Mail::queue(size_t stream, const MailHeader& header, SendPointer send) {
  streams_[stream].out.push_back({header, std::move(send)});
  flush(stream);
}

void Mail::flush(size_t index) {
  while (!streams_[index].out.empty() && streams_[index].fd.valid()) {
    Stream& stream = streams_[index];
    Outgoing& first = stream.out.front();
    std::array<iovec, 2> parts;
    size_t count = 0;
    const size_t head = sizeof first.header;
    if (first.gone < head) {
      parts[count++] = {reinterpret_cast<std::byte*>(&first.header) + first.gone,
                        head - first.gone};
    }
    const size_t bytes = first.send != nullptr ? first.send->bytes : 0;
    const size_t done = std::max(first.gone, head) - head;
    if (done < bytes) {
      parts[count++] = {const_cast<std::byte*>(first.send->data) + done, bytes - done};
    }
    msghdr message = {};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(stream.fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) {
        continue;
      }
      if (errno != EAGAIN) {
        broke(index, std::strerror(errno));
      }
      return;
    }
    first.gone += static_cast<size_t>(sent);
    if (first.gone == head + bytes) {
      const SendPointer ended = std::move(first.send);
      stream.out.pop_front();
      if (ended != nullptr) {
        finish(ended, {}, stream.rank);
      }
    }
  }
}

void Mail::send(MailSend send) {
  auto pointer = std::make_shared<MailSend>(std::move(send));
  if (const auto failed = failed_.find(pointer->set); failed != failed_.end()) {
    finish(pointer, failed->second, pointer->to);
    return;
  }
  const auto found = stream_to_.find(pointer->to);
  if (found == stream_to_.end()) {  // since it was opened
    finish(pointer,
           Error{Errc::io, fmt::format("{}: the connection to rank {} has ended; send it again",
                                       pointer->what, pointer->to)},
           pointer->to);
    return;
  }
  sends_.push_back(pointer);
  const size_t index = found->second;
  Stream& stream = streams_[index];
  MailHeader header = {.type = MailHeader::letter,
                       .tag = pointer->tag,
                       .set = pointer->set,
                       .bytes = pointer->bytes,
                       .id = next_id_++};
  if (pointer->bytes <= kLetterBytesMost && stream.kept_bytes + pointer->bytes <= kKeptBytesMost) {
    // A header is kept too, so that a message of no bytes counts.
    stream.kept_bytes += pointer->bytes + sizeof header;
    queue(index, header, pointer);
    return;
  }
  header.type = MailHeader::offer;
  stream.offers[header.id] = pointer;
  queue(index, header);
}

Mail::ReceivePointer Mail::match(int from, const MailHeader& header) {
  auto& receives = sets_[header.set].receives;
  const auto found = std::find_if(receives.begin(), receives.end(), [&](const auto& one) {
    return one->tag == header.tag && (one->from < 0 || one->from == from);
  });
  if (found == receives.end()) {
    return nullptr;
  }
  auto receive = *found;
  receives.erase(found);
  return receive;
}

void Mail::receive(MailReceive receive) {
  auto pointer = std::make_shared<MailReceive>(std::move(receive));
  receives_.push_back(pointer);
  if (const auto failed = failed_.find(pointer->set); failed != failed_.end()) {
    finish(pointer, failed->second, pointer->from);
    return;
  }
  Set& set = sets_[pointer->set];
  const auto found = std::find_if(set.unclaimed.begin(), set.unclaimed.end(), [&](const auto& one) {
    return one->claimed == nullptr && one->header.tag == pointer->tag &&
           (pointer->from < 0 || pointer->from == one->from);
  });
  if (found == set.unclaimed.end()) {
    set.receives.push_back(std::move(pointer));
    return;
  }
  const auto message = *found;
  if (message->header.type == MailHeader::offer) {
    set.unclaimed.erase(found);
    take_offer(message->stream, message->header, pointer);
  } else if (message->whole) {
    set.unclaimed.erase(found);
    hand_over(message, pointer);
  } else {
    message->claimed = std::move(pointer);
  }
}

/// A message that has come whole.
void Mail::hand_over(const UnclaimedPointer& unclaimed, const ReceivePointer& receive) {
  const size_t bytes = unclaimed->data.size();
  queue(unclaimed->stream, {.type = MailHeader::taken, .bytes = bytes + sizeof(MailHeader)});
  if (bytes != receive->bytes) {
    finish(
        receive,
        Error{Errc::mismatch, fmt::format("{}: rank {} sends {} bytes, there is room for {}",
                                          receive->what, unclaimed->from, bytes, receive->bytes)},
        unclaimed->from);
    return;
  }
  if (bytes > 0) {
    std::memcpy(receive->data, unclaimed->data.data(), bytes);
  }
  finish(receive, {}, unclaimed->from);
}

void Mail::take_offer(size_t index, const MailHeader& header, const ReceivePointer& receive) {
  Stream& stream = streams_[index];
  MailHeader answer = {.type = MailHeader::accept, .id = header.id};
  if (header.bytes != receive->bytes) {
    answer.type = MailHeader::refuse;
    answer.bytes = receive->bytes;
    finish(receive,
           Error{Errc::mismatch,
                 fmt::format("{}: rank {} sends {} bytes, there is room for {}", receive->what,
                             stream.rank, header.bytes, receive->bytes)},
           stream.rank);
  } else {
    stream.accepted[header.id] = receive;
  }
  queue(index, answer);
}

void Mail::read(size_t index) {
  while (streams_[index].fd.valid()) {
    Stream& stream = streams_[index];
    std::array<std::byte, 4096> nowhere;
    iovec part = {reinterpret_cast<std::byte*>(&stream.in) + stream.in_bytes,
                  sizeof stream.in - stream.in_bytes};
    const bool in_header = stream.in_bytes < sizeof stream.in;
    if (!in_header) {
      part = stream.to != nullptr ? iovec{stream.to, std::min(stream.left, kCallBytes)}
                                  : iovec{nowhere.data(), std::min(stream.left, nowhere.size())};
    }
    const ssize_t count = ::recv(stream.fd.get(), part.iov_base, part.iov_len, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0 && errno == EAGAIN) {
      return;
    }
    if (count <= 0) {
      broke(index, count == 0 ? "it closed the connection" : std::strerror(errno));
      return;
    }
    const auto bytes = static_cast<size_t>(count);
    stream.arrived += bytes;
    if (in_header) {
      stream.in_bytes += bytes;
      if (stream.in_bytes == sizeof stream.in) {
        on_header(index);
      }
    } else {
      stream.left -= bytes;
      stream.to = stream.to != nullptr ? stream.to + bytes : nullptr;
    }
    if (streams_[index].in_bytes == sizeof(MailHeader) && streams_[index].left == 0) {
      on_end(index);
    }
  }
}

void Mail::on_header(size_t index) {
  Stream& stream = streams_[index];
  const MailHeader header = stream.in;
  stream.left = 0;
  stream.to = nullptr;
  if (header.type == MailHeader::content) {
    stream.left = header.bytes;
    const auto found = stream.accepted.find(header.id);
    if (found != stream.accepted.end() && found->second->bytes == header.bytes) {
      stream.receive = found->second;
      stream.to = found->second->data;
      stream.accepted.erase(found);
    }
  } else if (header.type == MailHeader::letter) {
    if (header.bytes > kLetterBytesMost) {
      broke(index, "it says what no rank of this version would");
      return;
    }
    stream.left = header.bytes;
    stream.receive = match(stream.rank, header);
    if (stream.receive != nullptr && stream.receive->bytes == header.bytes) {
      stream.to = stream.receive->data;
      return;
    }
    auto message = std::make_shared<Unclaimed>();
    message->header = header;
    message->from = stream.rank;
    message->stream = index;
    message->data.resize(header.bytes);
    message->claimed = std::exchange(stream.receive, nullptr);
    stream.to = message->data.data();
    stream.unclaimed = message;
    sets_[header.set].unclaimed.push_back(std::move(message));
  } else {
    on_message(index);
  }
}

/// What has no bytes behind its header.
void Mail::on_message(size_t index) {
  Stream& stream = streams_[index];
  const MailHeader header = stream.in;
  if (header.type == MailHeader::offer) {
    if (const auto receive = match(stream.rank, header)) {
      take_offer(index, header, receive);
      return;
    }
    auto message = std::make_shared<Unclaimed>();
    message->header = header;
    message->from = stream.rank;
    message->stream = index;
    if (failed_.contains(header.set)) {
      refuse(message);
    } else {
      sets_[header.set].unclaimed.push_back(std::move(message));
    }
  } else if (header.type == MailHeader::taken) {
    stream.kept_bytes -= std::min(stream.kept_bytes, header.bytes);
  } else if (const auto found = stream.offers.find(header.id); found != stream.offers.end()) {
    const SendPointer send = found->second;
    if (header.type == MailHeader::ended) {
      send->set_ended = true;  // the reason may be on its way
      return;
    }
    stream.offers.erase(found);
    if (header.type == MailHeader::accept) {
      queue(index, {.type = MailHeader::content, .bytes = send->bytes, .id = header.id}, send);
    } else {
      finish(send,
             Error{Errc::mismatch, fmt::format("{}: {} bytes, rank {} has room for {}", send->what,
                                               send->bytes, stream.rank, header.bytes)},
             stream.rank);
    }
  }
}

/// A message and what follows its header are there.
void Mail::on_end(size_t index) {
  Stream& stream = streams_[index];
  stream.in_bytes = 0;
  if (const auto receive = std::exchange(stream.receive, nullptr)) {
    if (stream.in.type == MailHeader::letter) {
      queue(index, {.type = MailHeader::taken, .bytes = stream.in.bytes + sizeof(MailHeader)});
    }
    finish(receive, {}, streams_[index].rank);
  } else if (const auto message = std::exchange(stream.unclaimed, nullptr)) {
    message->whole = true;
    if (const auto claimed = std::exchange(message->claimed, nullptr)) {
      std::erase(sets_[message->header.set].unclaimed, message);
      hand_over(message, claimed);
    } else if (failed_.contains(message->header.set)) {
      std::erase(sets_[message->header.set].unclaimed, message);
      refuse(message);
    }
  }
}

void Mail::broke(size_t index, const std::string& why) {
  Stream& stream = streams_[index];
  stream.fd.reset();
  const auto place = stream_to_.find(stream.rank);
  if (place != stream_to_.end() && place->second == index) {
    stream_to_.erase(place);
    on_lost_(stream.rank);
  }
  const auto text = [&](const std::string& what) {
    return Error{Errc::io,
                 fmt::format("{}: the connection to rank {} ended: {}", what, stream.rank, why)};
  };
  std::vector<SendPointer> sends;
  std::vector<ReceivePointer> receives;
  for (Outgoing& one : stream.out) {
    if (one.send != nullptr) {
      sends.push_back(one.send);
    }
  }
  for (const auto& [id, one] : stream.offers) {
    sends.push_back(one);
  }
  for (const auto& [id, one] : stream.accepted) {
    receives.push_back(one);
  }
  if (stream.receive != nullptr) {
    receives.push_back(std::exchange(stream.receive, nullptr));
  }
  if (stream.unclaimed != nullptr && stream.unclaimed->claimed != nullptr) {
    receives.push_back(stream.unclaimed->claimed);
  }
  stream.out.clear();
  stream.offers.clear();
  stream.accepted.clear();
  // Offers cannot be taken up any longer; letters that have come whole can.
  for (auto& [id, set] : sets_) {
    std::erase_if(set.unclaimed, [index](const UnclaimedPointer& one) {
      return one->stream == index && !one->whole;
    });
  }
  for (const auto& one : sends) {
    finish(one, text(one->what), stream.rank);
  }
  for (const auto& one : receives) {
    finish(one, text(one->what), stream.rank);
  }
}

void Mail::drop(const ReceivePointer& receive, const Error& error) {
  std::erase(sets_[receive->set].receives, receive);
  for (const auto& one : sets_[receive->set].unclaimed) {
    if (one->claimed == receive) {
      one->claimed = nullptr;
    }
  }
  for (Stream& stream : streams_) {
    std::erase_if(stream.accepted, [&](const auto& one) { return one.second == receive; });
    if (stream.receive == receive) {
      stream.receive = nullptr;
      stream.to = nullptr;
    }
  }
  finish(receive, error, receive->from);
}

void Mail::drop(const SendPointer& send, const Error& error) {
  for (size_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = streams_[i];
    std::erase_if(stream.offers, [&](const auto& one) { return one.second == send; });
    const auto found = std::find_if(stream.out.begin(), stream.out.end(),
                                    [&](const Outgoing& one) { return one.send == send; });
    if (found != stream.out.end() && found->gone == 0) {
      if (found->header.type == MailHeader::letter) {
        stream.kept_bytes -= send->bytes + sizeof(MailHeader);
      }
      stream.out.erase(found);
    } else if (found != stream.out.end() && !keep_rest(*found)) {
      finish(send, error, send->to);
      broke(i, "a message to it was given up in the middle");
    }
  }
  finish(send, error, send->to);
}

/// Other messages come after it, of other sets too: it goes on from a copy.
bool Mail::keep_rest(Outgoing& one) {
  const size_t bytes = one.send->bytes;
  const size_t done = std::max(one.gone, sizeof one.header) - sizeof one.header;
  one.rest.reset(new (std::nothrow) std::byte[bytes - done + 1]);
  if (one.rest == nullptr) {
    return false;
  }
  if (done < bytes) {
    std::memcpy(one.rest.get(), one.send->data + done, bytes - done);
  }
  one.gone = std::min(one.gone, sizeof one.header);
  auto copy = std::make_shared<MailSend>();
  copy->bytes = bytes - done;
  copy->data = one.rest.get();
  one.send = std::move(copy);
  return true;
}

std::vector<Mail::SendPointer> Mail::sends_under_way() { return alive(&sends_); }
std::vector<Mail::ReceivePointer> Mail::receives_under_way() { return alive(&receives_); }

void Mail::fail_set(uint64_t set, const Error& error) {
  for (const auto& one : sends_under_way()) {
    if (one->set == set) {
      drop(one, error);
    }
  }
  for (const auto& one : receives_under_way()) {
    if (one->set == set) {
      drop(one, error);
    }
  }
  const auto kept = std::exchange(sets_[set].unclaimed, {});
  sets_.erase(set);
  failed_.insert({set, error});
  for (const auto& one : kept) {
    refuse(one);
  }
}

/// Nobody will ask for it: its set has ended.
void Mail::refuse(const UnclaimedPointer& one) {
  if (one->header.type == MailHeader::offer) {
    queue(one->stream, {.type = MailHeader::ended, .id = one->header.id});
  } else if (one->whole) {
    queue(one->stream, {.type = MailHeader::taken, .bytes = one->data.size() + sizeof(MailHeader)});
  }
}

std::vector<std::pair<int, base::Fd>> Mail::release() {
  std::vector<std::pair<int, base::Fd>> out;
  for (Stream& stream : streams_) {
    if (stream.fd.valid()) {
      ::shutdown(stream.fd.get(), SHUT_WR);
      out.emplace_back(stream.rank, std::move(stream.fd));
    }
  }
  return out;
}

/// What is being sent goes on: the other side reads it, and throws it away if it must.
void Mail::check_offers() {
  std::vector<std::pair<SendPointer, std::string>> ended;
  for (const Stream& stream : streams_) {
    for (const auto& [id, one] : stream.offers) {
      std::string hopeless = one->hopeless ? one->hopeless() : std::string();
      if (hopeless.empty() && one->set_ended) {
        hopeless = fmt::format("the process set has ended on rank {}", one->to);
      }
      if (!hopeless.empty() && std::exchange(one->seems_hopeless, true)) {
        ended.emplace_back(one, std::move(hopeless));  // no better reason has come
      }
    }
  }
  for (const auto& [one, hopeless] : ended) {
    drop(one, {Errc::cancelled, one->what + ": " + hopeless});
  }
}

/// Its sender has gone, and what was under way has come: nothing more did between two looks.
bool Mail::is_hopeless(MailReceive& receive, std::string* why) const {
  *why = receive.hopeless ? receive.hopeless() : std::string();
  if (why->empty()) {
    return false;
  }
  uint64_t arrived = 0;
  bool filled = false;
  for (const Stream& stream : streams_) {
    if (!stream.outgoing && (receive.from < 0 || stream.rank == receive.from)) {
      arrived += stream.arrived;
      const auto* claimed = stream.unclaimed != nullptr ? stream.unclaimed->claimed.get() : nullptr;
      filled = filled || stream.receive.get() == &receive || claimed == &receive;
    }
  }
  const bool seemed = std::exchange(receive.seems_hopeless, true);
  return std::exchange(receive.arrived, arrived) == arrived && seemed && !filled;
}

base::Micros Mail::check() {
  const auto sends = sends_under_way();
  const auto receives = receives_under_way();
  for (const auto& one : sends) {
    if (one->deadline.passed()) {
      drop(one, {Errc::timeout, fmt::format("{} reached its time limit: rank {} does not take it",
                                            one->what, one->to)});
    }
  }
  check_offers();
  for (const auto& one : receives) {
    std::string hopeless;
    if (one->deadline.passed()) {
      drop(one, {Errc::timeout, one->what + " reached its time limit: nobody sent it"});
    } else if (is_hopeless(*one, &hopeless)) {
      drop(one, {Errc::cancelled, one->what + ": " + hopeless});
    }
  }
  return sends.empty() && receives.empty() ? kNever : kLook;
}

}  // namespace headrace::comm
