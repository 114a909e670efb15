// SPDX-License-Identifier: Apache-2.0
#include "headrace/wire/endpoint.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <vector>

#include "headrace/base/thread.h"
#include "headrace/wire/socket_internal.h"
#include "headrace/wire/test_peers.h"

namespace headrace::wire {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("an endpoint has one text form, which reads back") {
  for (const std::string& text :
       std::vector<std::string>{"10.0.0.5:4711", "node-3.cluster:1", "[::1]:65535",
                                "[2001:db8::7]:80", "unix:headrace-job/7", "localhost:0"}) {
    const auto endpoint = Endpoint::parse(text);
    REQUIRE(endpoint.ok());
    CHECK(endpoint->text() == text);
  }
}

TEST_CASE("a text that is no endpoint is refused with the forms that are") {
  const std::string long_name(108, 'n');
  for (const std::string& text : std::vector<std::string>{
           std::string(), std::string("host"), std::string("host:"), std::string(":80"),
           std::string("host:65536"), std::string("host:-1"), std::string("host:8x"),
           std::string("::1:80"), std::string("[host]:80"), std::string("[]:80"),
           std::string("[10.0.0.5]:80"), std::string("ho st:80"), std::string("http://host:80"),
           std::string("unix:"), "unix:" + long_name, std::string("unix:a\nb")}) {
    CAPTURE(text);
    const auto endpoint = Endpoint::parse(text);
    REQUIRE(!endpoint.ok());
    CHECK(endpoint.error().code() == Errc::invalid_argument);
    CHECK(endpoint.error().message().find("write HOST:PORT") != std::string::npos);
  }
}

TEST_CASE("what only this machine reaches is known as such") {
  CHECK(Endpoint::tcp("127.0.0.1", 1).is_loopback());
  CHECK(Endpoint::tcp("127.8.9.10", 1).is_loopback());
  CHECK(Endpoint::tcp("::1", 1).is_loopback());
  CHECK(Endpoint::tcp("::ffff:127.0.0.1", 1).is_loopback());
  CHECK(Endpoint::tcp("localhost", 1).is_loopback());
  CHECK(Endpoint::unix_name("x").is_loopback());
  CHECK_FALSE(Endpoint::tcp("0.0.0.0", 1).is_loopback());
  CHECK_FALSE(Endpoint::tcp("::", 1).is_loopback());
  CHECK_FALSE(Endpoint::tcp("10.0.0.5", 1).is_loopback());
  CHECK_FALSE(Endpoint::tcp("node-3", 1).is_loopback());
  CHECK_FALSE(Endpoint::tcp("localhost.evil.example", 1).is_loopback());
}

TEST_CASE("bytes go over TCP and over an abstract name") {
  std::vector<Endpoint> places = {Endpoint::tcp("127.0.0.1", 0), Endpoint::tcp("localhost", 0),
                                  unix_endpoint()};
  if (Listener::bind(Endpoint::tcp("::1", 0)).ok()) {
    places.push_back(Endpoint::tcp("::1", 0));
  } else {
    MESSAGE("IPv6 is left out: this machine has no ::1");
  }
  for (const Endpoint& place : places) {
    CAPTURE(place.text());
    auto listener = Listener::bind(place);
    REQUIRE(listener.ok());
    auto none = listener->accept();
    REQUIRE(none.ok());
    CHECK_FALSE(none->has_value());

    auto client = connect(listener->endpoint(), in_time());
    REQUIRE(client.ok());
    auto server = listener->accept(in_time());
    REQUIRE(server.ok());

    REQUIRE(::send(client->get(), "abc", 3, 0) == 3);
    REQUIRE(wait_ready(server->get(), POLLIN, in_time()));
    char bytes[4] = {};
    CHECK(::recv(server->get(), bytes, sizeof bytes, 0) == 3);
    CHECK(std::string(bytes) == "abc");
  }
}

TEST_CASE("both ends of a TCP connection send at once and notice a peer that has gone") {
  auto listener = Listener::bind(Endpoint::tcp("127.0.0.1", 0));
  REQUIRE(listener.ok());
  const auto client = connect(listener->endpoint(), in_time());
  REQUIRE(client.ok());
  const auto server = listener->accept(in_time());
  REQUIRE(server.ok());
  for (const int fd : {client->get(), server->get()}) {
    const auto option = [fd](int level, int name) {
      int value = 0;
      socklen_t bytes = sizeof value;
      CHECK(::getsockopt(fd, level, name, &value, &bytes) == 0);
      return value;
    };
    CHECK(option(IPPROTO_TCP, TCP_NODELAY) != 0);
    CHECK(option(SOL_SOCKET, SO_KEEPALIVE) != 0);
    CHECK(option(IPPROTO_TCP, TCP_USER_TIMEOUT) == 10'000);
  }
}

TEST_CASE("BBR is left for an algorithm that does not pace; others stay") {
  auto listener = Listener::bind(Endpoint::tcp("127.0.0.1", 0));
  REQUIRE(listener.ok());
  const auto client = connect(listener->endpoint(), in_time());
  REQUIRE(client.ok());
  const auto now = [&client] {
    char name[16] = {};
    socklen_t bytes = sizeof name - 1;
    CHECK(::getsockopt(client->get(), IPPROTO_TCP, TCP_CONGESTION, name, &bytes) == 0);
    return std::string(name);
  };
  const auto set = [&client](std::string_view name) {
    const auto bytes = static_cast<socklen_t>(name.size());
    return ::setsockopt(client->get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), bytes) == 0;
  };
  REQUIRE(set("reno"));  // every kernel has it and everybody may
  avoid_pacing(client->get());
  CHECK(now() == "reno");
  if (!set("bbr")) {
    MESSAGE("this kernel has no BBR: that it is left cannot be seen here");
    return;
  }
  avoid_pacing(client->get());
  CHECK((now() == "cubic" || now() == "reno"));
}

TEST_CASE("a port where nobody listens refuses at once, and the error names it") {
  const Endpoint gone = free_port();
  const auto before = base::system_clock().monotonic();

  const auto fd = connect(gone, in_time());

  REQUIRE(!fd.ok());
  CHECK(fd.error().code() == Errc::io);
  CHECK(fd.error().message().find(gone.text() + ": refused") != std::string::npos);
  CHECK(base::system_clock().monotonic() - before < seconds(1));
  CHECK(connect(unix_endpoint(), in_time()).error().code() == Errc::io);
}

TEST_CASE("a server that is not up yet is waited for until the deadline and no longer") {
  const Endpoint gone = free_port();
  const auto late = connect(gone, base::Deadline::in(milliseconds(200)), {.retry = true});
  REQUIRE(!late.ok());
  CHECK(late.error().code() == Errc::timeout);
  CHECK(late.error().message().find(gone.text() + ": refused") != std::string::npos);
  CHECK(late.error().message().find("tries within") != std::string::npos);

  std::optional<Result<base::Fd>> client;
  base::Thread thread("client", [&] { client = connect(gone, in_time(), {.retry = true}); });
  auto listener = Listener::bind(gone);
  REQUIRE(listener.ok());
  CHECK(listener->accept(in_time()).ok());
  thread.join();
  CHECK(client->ok());
}

TEST_CASE("an address that swallows packets ends at the deadline") {
  // Reserved for documentation (RFC 5737): nobody answers there. Some networks say so at once.
  const auto before = base::system_clock().monotonic();
  const auto fd = connect(Endpoint::tcp("192.0.2.1", 4711), base::Deadline::in(milliseconds(200)));
  REQUIRE(!fd.ok());
  CHECK(fd.error().message().find("192.0.2.1:4711: ") != std::string::npos);
  CHECK(base::system_clock().monotonic() - before < seconds(2));
}

TEST_CASE("of several addresses the one that answers is taken, or all are named") {
  auto listener = Listener::bind(Endpoint::tcp("127.0.0.1", 0));
  REQUIRE(listener.ok());
  const std::vector<Endpoint> some = {free_port(), Endpoint::tcp("192.0.2.1", 4711),
                                      listener->endpoint()};
  const auto found = connect_first(some, in_time());
  REQUIRE(found.ok());
  CHECK(found->index == 2);

  const std::vector<Endpoint> none = {free_port(), unix_endpoint()};
  const auto lost = connect_first(none, in_time());
  REQUIRE(!lost.ok());
  CHECK(lost.error().message().find(none[0].text()) != std::string::npos);
  CHECK(lost.error().message().find(none[1].text()) != std::string::npos);
}

TEST_CASE("places that cannot be listened at or connected to are told apart") {
  auto listener = Listener::bind(Endpoint::tcp("127.0.0.1", 0));
  REQUIRE(listener.ok());
  CHECK(Listener::bind(listener->endpoint()).error().code() == Errc::busy);
  const Endpoint name = unix_endpoint();
  const auto taken = Listener::bind(name);
  REQUIRE(taken.ok());
  CHECK(Listener::bind(name).error().code() == Errc::busy);
  CHECK(Listener::bind(Endpoint::tcp("192.0.2.1", 0)).error().code() == Errc::invalid_argument);
  CHECK(Listener::bind(Endpoint::tcp("some-host", 0)).error().code() == Errc::invalid_argument);
  CHECK(connect(Endpoint::tcp("127.0.0.1", 0), in_time()).error().code() == Errc::invalid_argument);
  CHECK(listener->accept(base::Deadline::in(milliseconds(1))).error().code() == Errc::timeout);
}

TEST_CASE("a host that does not exist is looked up within the deadline") {
#if defined(__SANITIZE_THREAD__)
  MESSAGE("skipped: the thread sanitizer does not know the C library's own threads");
#else
  const auto before = base::system_clock().monotonic();
  const auto fd =
      connect(Endpoint::tcp("no-such-host.invalid", 4711), base::Deadline::in(milliseconds(500)));
  REQUIRE(!fd.ok());
  CHECK((fd.error().code() == Errc::not_found || fd.error().code() == Errc::timeout));
  CHECK(fd.error().message().find("no-such-host.invalid") != std::string::npos);
  CHECK(base::system_clock().monotonic() - before < seconds(5));
#endif
}

TEST_CASE("pauses grow up to their bound and are never in step") {
  Backoff backoff(milliseconds(10), milliseconds(100));
  base::Micros most = milliseconds(10);
  for (int i = 0; i < 20; ++i) {
    const base::Micros pause = backoff.next();
    CHECK(pause >= most / 2);
    CHECK(pause <= most);
    most = std::min<base::Micros>(most * 2, milliseconds(100));
  }
}

TEST_CASE("listening, connecting and refusing leave no descriptor behind") {
  const int64_t before = open_descriptors();
  for (int i = 0; i < 10; ++i) {
    auto listener = Listener::bind(Endpoint::tcp("127.0.0.1", 0));
    REQUIRE(listener.ok());
    const auto client = connect(listener->endpoint(), in_time());
    const auto server = listener->accept(in_time());
    static_cast<void>(connect(free_port(), in_time()));
  }
  CHECK(open_descriptors() == before);
}

}  // namespace headrace::wire
