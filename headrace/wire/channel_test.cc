// SPDX-License-Identifier: Apache-2.0
#include "headrace/wire/channel.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "headrace/base/thread.h"
#include "headrace/wire/socket_internal.h"
#include "headrace/wire/test_peers.h"

namespace headrace::wire {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Frame text_frame(std::string text) { return {.type = 1, .flags = 0, .payload = std::move(text)}; }

base::Deadline at_once() { return base::Deadline::in(milliseconds(20)); }

/// What a client makes of a peer that does `act` with the connection.
Error error_against(const std::function<void(base::Fd)>& act, const Secret* secret,
                    base::Deadline deadline = in_time()) {
  auto listener = Listener::bind(Endpoint::tcp("127.0.0.1", 0));
  REQUIRE(listener.ok());
  base::Thread thread("peer", [&] {
    auto fd = listener->accept(in_time());
    if (fd.ok()) {
      act(*std::move(fd));
    }
  });
  const auto channel =
      Channel::connect(listener->endpoint(), {.job_id = "job", .secret = secret}, deadline);
  thread.join();
  REQUIRE(!channel.ok());
  CHECK(channel.error().message().starts_with(listener->endpoint().text() + ": "));
  return channel.error();
}

}  // namespace

TEST_CASE("messages go both ways over TCP and over a Unix socket") {
  const Secret secret = Secret::generate();
  for (const Endpoint& place : {Endpoint::tcp("127.0.0.1", 0), unix_endpoint()}) {
    Ends ends = connected_ends(place, {.job_id = "job", .generation = 4, .secret = &secret});
    CHECK(ends.server.peer_generation() == 4);

    REQUIRE(ends.client.send(text_frame("ping"), in_time()).ok());
    const auto ping = ends.server.receive(in_time());
    REQUIRE(ping.ok());
    CHECK(ping->payload == "ping");
    REQUIRE(ends.server.send(text_frame("pong"), in_time()).ok());
    REQUIRE(ends.server.send(text_frame("more"), in_time()).ok());
    CHECK(ends.client.receive(in_time())->payload == "pong");
    CHECK(ends.client.receive(in_time())->payload == "more");
  }
}

TEST_CASE(
    "the largest message goes through while the other side reads, and waits when it does not") {
  Ends ends = connected_ends(Endpoint::tcp("127.0.0.1", 0), {});
  const std::string large(kFramePayloadMax, 'x');

  const auto stuck = ends.client.send(text_frame(large), at_once());
  REQUIRE(!stuck.ok());
  CHECK(stuck.error().code() == Errc::timeout);
  CHECK(ends.client.wants_write());

  base::Thread thread("sender", [&] {
    while (!*ends.client.flush()) {
      base::sleep_for(milliseconds(1));
    }
  });
  const auto frame = ends.server.receive(in_time());
  thread.join();
  REQUIRE(frame.ok());
  CHECK(frame->payload == large);
}

TEST_CASE("an event loop queues, flushes and receives without waiting") {
  Ends ends = connected_ends(Endpoint::tcp("127.0.0.1", 0), {});
  auto nothing = ends.server.try_receive();
  REQUIRE(nothing.ok());
  CHECK_FALSE(nothing->has_value());

  REQUIRE(ends.client.queue(text_frame("a")).ok());
  REQUIRE(ends.client.queue(text_frame("b")).ok());
  CHECK(ends.client.queued_bytes() == 2 * 25);
  CHECK(*ends.client.flush());
  CHECK(ends.server.receive(in_time())->payload == "a");
  CHECK(ends.server.try_receive()->value().payload == "b");

  const std::string large(kFramePayloadMax, 'x');
  Result<void> queued;
  for (int i = 0; i < 6 && queued.ok(); ++i) {
    queued = ends.client.queue(text_frame(large));
  }
  REQUIRE(!queued.ok());
  CHECK(queued.error().code() == Errc::busy);
}

TEST_CASE("a wait for a message ends at its deadline, and for a peer that goes at once") {
  Ends ends = connected_ends(Endpoint::tcp("127.0.0.1", 0), {});
  CHECK(ends.client.receive(at_once()).error().code() == Errc::timeout);
  REQUIRE(ends.server.send(text_frame("late"), in_time()).ok());
  CHECK(ends.client.receive(in_time())->payload == "late");

  {
    const Channel gone = std::move(ends.server);
  }
  const auto before = base::system_clock().monotonic();
  const auto closed = ends.client.receive(in_time());
  REQUIRE(!closed.ok());
  CHECK(closed.error().code() == Errc::io);
  CHECK(closed.error().message().find("closed the connection") != std::string::npos);
  CHECK(base::system_clock().monotonic() - before < seconds(1));
}

TEST_CASE("a wrong secret is told within a second, and costs the listener one connection") {
  const Secret right = Secret::generate();
  const Secret wrong = Secret::generate();
  const auto before = base::system_clock().monotonic();

  const Error error = error_against(
      [&](base::Fd fd) {
        const auto server =
            Channel::accept(std::move(fd), {.job_id = "job", .secret = &right}, in_time());
        CHECK(!server.ok());
      },
      &wrong);

  CHECK(error.code() == Errc::auth_failed);
  CHECK(base::system_clock().monotonic() - before < seconds(1));
}

TEST_CASE("of a process' addresses the one is taken where the process is") {
  const Secret secret = Secret::generate();
  const Secret other = Secret::generate();
  auto stranger = Listener::bind(Endpoint::tcp("127.0.0.1", 0));
  auto meant = Listener::bind(Endpoint::tcp("127.0.0.1", 0));
  REQUIRE(stranger.ok());
  REQUIRE(meant.ok());
  const HandshakeOptions options{.job_id = "job", .secret = &secret};
  const auto serve = [](Listener* listener, const Secret* key, int count) {
    for (int i = 0; i < count; ++i) {
      auto fd = listener->accept(in_time());
      if (fd.ok()) {
        static_cast<void>(
            Channel::accept(*std::move(fd), {.job_id = "job", .secret = key}, in_time()));
      }
    }
  };
  {
    const std::vector<Endpoint> places = {stranger->endpoint(), free_port(), meant->endpoint()};
    base::Thread wrong("wrong", [&] { serve(&*stranger, &other, 1); });
    base::Thread right("right", [&] { serve(&*meant, &secret, 1); });
    const auto channel = Channel::connect(places, options, in_time());
    REQUIRE(channel.ok());
    CHECK(channel->peer() == meant->endpoint().text());
  }
  auto another = Listener::bind(Endpoint::tcp("127.0.0.1", 0));
  REQUIRE(another.ok());
  const std::vector<Endpoint> places = {another->endpoint(), free_port()};
  base::Thread wrong("wrong", [&] { serve(&*another, &other, 1); });
  const auto none = Channel::connect(places, options, in_time());
  REQUIRE(!none.ok());
  CHECK(none.error().code() == Errc::auth_failed);
  CHECK(none.error().message().find("note: connecting to " + places[1].text()) !=
        std::string::npos);
}

TEST_CASE("peers that are no headrace are told by what they do") {
  const Secret secret = Secret::generate();
  const Error garbage = error_against(
      [](base::Fd fd) {
        CHECK(::send(fd.get(), "SSH-2.0-x\r\n", 11, MSG_NOSIGNAL) == 11);
        char byte = 0;
        static_cast<void>(wait_ready(fd.get(), POLLIN, in_time()));
        while (::recv(fd.get(), &byte, 1, 0) > 0) {
        }
      },
      &secret);
  CHECK(garbage.code() == Errc::corrupt);

  const Error closed = error_against([](const base::Fd&) {}, &secret);
  CHECK(closed.code() == Errc::io);

  const Error silent = error_against(
      [](base::Fd fd) {  // until the client has given up
        char byte = 0;
        while (wait_ready(fd.get(), POLLIN, in_time()) && ::recv(fd.get(), &byte, 1, 0) > 0) {
        }
      },
      &secret, base::Deadline::in(milliseconds(100)));
  CHECK(silent.code() == Errc::timeout);
  CHECK(silent.message().find("it did not answer the handshake within") != std::string::npos);
}

TEST_CASE("bytes put into an authenticated connection from outside end it") {
  const Secret secret = Secret::generate();
  Ends ends = connected_ends(Endpoint::tcp("127.0.0.1", 0), {.secret = &secret});
  const std::string forged(
      "\x03\x00\x00\x00\x01\x00\x00\x00"
      "abc"
      "0123456789abcdef",
      27);
  REQUIRE(::send(ends.client.fd(), forged.data(), forged.size(), 0) == 27);
  const auto frame = ends.server.receive(in_time());
  REQUIRE(!frame.ok());
  CHECK(frame.error().code() == Errc::corrupt);
}

TEST_CASE("a descriptor goes through a Unix socket in order with the messages") {
  const Secret secret = Secret::generate();
  Ends ends = connected_ends(unix_endpoint(), {.secret = &secret});
  std::array<int, 2> pipe_ends = {-1, -1};
  REQUIRE(::pipe2(pipe_ends.data(), O_CLOEXEC) == 0);
  const base::Fd reader(pipe_ends[0]);
  {
    const base::Fd writer(pipe_ends[1]);
    REQUIRE(ends.client.send(text_frame("before"), in_time()).ok());
    REQUIRE(ends.client.send_descriptor(writer.get(), in_time()).ok());
    REQUIRE(ends.client.send(text_frame("after"), in_time()).ok());
  }

  CHECK(ends.server.receive(in_time())->payload == "before");
  {
    const auto writer = ends.server.receive_descriptor(in_time());
    REQUIRE(writer.ok());
    CHECK((::fcntl(writer->get(), F_GETFD) & FD_CLOEXEC) != 0);
    REQUIRE(base::write_all(writer->get(), "through", "the pipe").ok());
  }
  CHECK(ends.server.receive(in_time())->payload == "after");
  std::array<char, 16> bytes = {};
  CHECK(::read(reader.get(), bytes.data(), bytes.size()) == 7);
  CHECK(std::string(bytes.data()) == "through");

  const auto credentials = ends.server.peer_credentials();
  REQUIRE(credentials.ok());
  CHECK(credentials->pid == ::getpid());
  CHECK(credentials->uid == ::geteuid());
}

TEST_CASE("a message where a descriptor is expected is a mismatch, and TCP carries none") {
  Ends ends = connected_ends(unix_endpoint(), {});
  REQUIRE(ends.client.send(text_frame("x"), in_time()).ok());
  CHECK(ends.server.receive_descriptor(in_time()).error().code() == Errc::mismatch);
  REQUIRE(ends.server.send_descriptor(0, in_time()).ok());
  CHECK(ends.client.receive(in_time()).error().code() == Errc::mismatch);

  Ends tcp = connected_ends(Endpoint::tcp("127.0.0.1", 0), {});
  CHECK(tcp.client.send_descriptor(0, in_time()).error().code() == Errc::unsupported);
  CHECK(tcp.client.receive_descriptor(in_time()).error().code() == Errc::unsupported);
  CHECK(tcp.client.peer_credentials().error().code() == Errc::unsupported);
}

TEST_CASE("descriptors that nobody asked for are closed, and too many end the connection") {
  const int64_t before = open_descriptors();
  {
    Ends ends = connected_ends(unix_endpoint(), {});
    Result<void> sent;
    for (int i = 0; i < 17 && sent.ok(); ++i) {
      sent = ends.client.send_descriptor(ends.client.fd(), in_time());
    }
    REQUIRE(sent.ok());
    Result<Frame> frame = Frame();
    for (int i = 0; i < 17 && frame.ok(); ++i) {
      frame = ends.server.receive(in_time());
    }
    CHECK(!frame.ok());
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("a process of another user is refused at a Unix socket, whatever it knows") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root can become another user");
    return;
  }
  auto listener = Listener::bind(unix_endpoint());
  REQUIRE(listener.ok());
  const auto address = literal_addresses(listener->endpoint()).front();
  const pid_t child = ::fork();
  if (child == 0) {  // only what is safe after fork
    char byte = 0;
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const bool connected = ::setuid(65534) == 0 && ::connect(fd, address.get(), address.bytes) == 0;
    ::_exit(connected && ::recv(fd, &byte, 1, 0) == 0 ? 0 : 1);
  }
  auto fd = listener->accept(in_time());
  REQUIRE(fd.ok());
  const auto refused = Channel::accept(*std::move(fd), {}, in_time());
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code() == Errc::auth_failed);
  CHECK(refused.error().message().find("belongs to user 65534") != std::string::npos);
}

TEST_CASE("a connection is given away for bytes without frames when none are under way") {
  const Secret secret = Secret::generate();
  Ends ends =
      connected_ends(Endpoint::tcp("127.0.0.1", 0), {.service = Service::data, .secret = &secret});
  auto client = std::move(ends.client).release();
  auto server = std::move(ends.server).release();
  REQUIRE(client.ok());
  REQUIRE(server.ok());
  REQUIRE(::send(client->get(), "raw", 3, 0) == 3);
  REQUIRE(wait_ready(server->get(), POLLIN, in_time()));
  std::array<char, 4> bytes = {};
  CHECK(::recv(server->get(), bytes.data(), bytes.size(), 0) == 3);

  Ends busy = connected_ends(Endpoint::tcp("127.0.0.1", 0), {});
  REQUIRE(busy.client.queue(text_frame("x")).ok());
  CHECK(std::move(busy.client).release().error().code() == Errc::busy);
}

TEST_CASE("connections that succeed and that fail leave no descriptor behind") {
  const Secret secret = Secret::generate();
  const Secret other = Secret::generate();
  const int64_t before = open_descriptors();
  for (int i = 0; i < 5; ++i) {
    {
      const Ends ends = connected_ends(Endpoint::tcp("127.0.0.1", 0), {.secret = &secret});
    }
    const Error error = error_against(
        [&](base::Fd fd) {
          static_cast<void>(Channel::accept(std::move(fd), {.secret = &other}, in_time()));
        },
        &secret);
    CHECK(error.code() == Errc::auth_failed);
  }
  CHECK(open_descriptors() == before);
}

}  // namespace headrace::wire
