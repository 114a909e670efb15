// SPDX-License-Identifier: Apache-2.0
// The store over sockets: clients that work, clients that do not, and everybody at once.
#include "headrace/wire/store_server.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/log.h"
#include "headrace/base/thread.h"
#include "headrace/wire/socket_internal.h"
#include "headrace/wire/store_client.h"
#include "headrace/wire/test_peers.h"

namespace headrace::wire {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A server of job "job", and clients of it. Log lines are kept, not printed.
struct Job {
  base::Mutex mu;
  std::vector<std::string> lines HR_GUARDED_BY(mu);
  Secret secret = Secret::generate();
  std::unique_ptr<StoreServer> server;

  explicit Job(StoreServerOptions options = {}) {
    base::set_log_sink([this](base::LogLevel, std::string_view line) {
      const base::MutexLock lock(mu);
      lines.emplace_back(line);
    });
    options.job_id = "job";
    options.secret = &secret;
    auto started = StoreServer::start(options);
    REQUIRE(started.ok());
    server = *std::move(started);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    server.reset();
    base::set_log_sink(nullptr);
  }
  StoreClientOptions options() const {
    return {.endpoint = server->endpoint(), .job_id = "job", .secret = &secret};
  }
  StoreClient client() const {
    auto client = StoreClient::connect(options(), in_time());
    REQUIRE(client.ok());
    return *std::move(client);
  }
  base::Fd stranger() const {
    auto fd = connect(server->endpoint(), in_time());
    REQUIRE(fd.ok());
    return *std::move(fd);
  }
  bool has_line(std::string_view part) {
    const base::MutexLock lock(mu);
    return std::any_of(lines.begin(), lines.end(), [part](const std::string& line) {
      return line.find(part) != std::string::npos;
    });
  }
};

/// Whether the other side closes; no client of ours gets there.
bool is_closed(const base::Fd& fd) {
  const base::Deadline deadline = in_time();
  char byte = 0;
  while (wait_ready(fd.get(), POLLIN, deadline)) {
    if (::recv(fd.get(), &byte, 1, 0) <= 0) {
      return true;
    }
  }
  return false;
}

/// Room for `count` descriptors; false, with the reason printed, when there is none.
bool has_descriptors(rlim_t count) {
  rlimit limit = {};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  if (limit.rlim_cur < count) {
    limit.rlim_cur = std::min(count, limit.rlim_max);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  }
  if (limit.rlim_cur < count) {
    MESSAGE("skipped: needs ", count, " descriptors, this process may have ", limit.rlim_cur);
  }
  return limit.rlim_cur >= count;
}

}  // namespace

TEST_CASE("clients set, get, add, compare, list and remove over the wire") {
  const Job job;
  StoreClient one = job.client();
  StoreClient two = job.client();
  const base::Deadline deadline = in_time();

  REQUIRE(one.set("rank/0", "10.0.0.5:1", deadline).ok());
  REQUIRE(two.set("rank/1", std::string("\0\x01", 2), deadline).ok());
  CHECK(**two.get("rank/0", deadline) == "10.0.0.5:1");
  CHECK_FALSE(two.get("rank/7", deadline)->has_value());
  CHECK(*one.add("n", 2, deadline) == 2);
  CHECK(*two.add("n", 3, deadline) == 5);
  CHECK(two.add("rank/0", 1, deadline).error().code() == Errc::mismatch);

  CHECK(one.compare_and_set("fault", std::nullopt, "rank 3", deadline)->done);
  const auto lost = two.compare_and_set("fault", std::nullopt, "rank 4", deadline);
  REQUIRE(lost.ok());
  CHECK_FALSE(lost->done);
  CHECK(lost->value == "rank 3");

  const auto list = two.list("rank/", deadline);
  REQUIRE(list.ok());
  REQUIRE(list->size() == 2);
  CHECK((*list)[1] == std::pair<std::string, std::string>("rank/1", std::string("\0\x01", 2)));
  CHECK(*one.remove("rank/0", deadline));
  CHECK_FALSE(*one.remove("rank/0", deadline));
  CHECK(one.set("", "x", deadline).error().code() == Errc::invalid_argument);
}

TEST_CASE("a list that is larger than one frame comes whole") {
  const Job job;
  StoreClient client = job.client();
  const std::string value(size_t{3} << 20, 'v');
  for (int i = 0; i < 7; ++i) {
    REQUIRE(client.set("large/" + std::to_string(i), value, in_time()).ok());
  }
  const auto list = client.list("large/", in_time());
  REQUIRE(list.ok());
  CHECK(list->size() == 7);
  CHECK(list->back().second == value);
}

TEST_CASE("ranks meet by one set and one wait each, and one list") {
  const Job job;
  constexpr int kRanks = 16;
  std::vector<base::Thread> ranks;
  std::array<size_t, kRanks> seen = {};
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back("rank", [&, rank] {
      auto client = StoreClient::connect(job.options(), in_time());
      if (client.ok() && client->set("rank/" + std::to_string(rank), "x", in_time()).ok() &&
          client->wait_count("rank/", kRanks, in_time()).ok()) {
        seen[static_cast<size_t>(rank)] = client->list("rank/", in_time())->size();
      }
    });
  }
  ranks.clear();
  for (const size_t count : seen) {
    CHECK(count == kRanks);
  }
}

TEST_CASE("a wait that ends without its keys names them, within its deadline") {
  const Job job;
  StoreClient client = job.client();
  REQUIRE(client.set("rank/1", "", in_time()).ok());
  const std::vector<std::string> keys = {"rank/0", "rank/1", "rank/2"};
  const auto before = base::system_clock().monotonic();

  const auto waited = client.wait(keys, base::Deadline::in(milliseconds(300)));

  CHECK(base::system_clock().monotonic() - before < seconds(2));
  REQUIRE(!waited.ok());
  CHECK(waited.error().code() == Errc::timeout);
  const std::string& text = waited.error().message();
  CHECK(text.find(job.server->endpoint().text()) != std::string::npos);
  CHECK(text.find("missing: \"rank/0\", \"rank/2\"") != std::string::npos);

  const auto counted = client.wait_count("rank/", 3, base::Deadline::in(milliseconds(300)));
  REQUIRE(!counted.ok());
  CHECK(counted.error().code() == Errc::timeout);
  CHECK(counted.error().message().find("waiting for 3 keys \"rank/...\": there are 1 after") !=
        std::string::npos);
  CHECK(client.get("rank/1", in_time())->has_value());  // the connection goes on
}

TEST_CASE("a wait ends as soon as its key comes from another client") {
  const Job job;
  std::optional<Result<void>> waited;
  base::Thread thread("waiter", [&] {
    auto client = StoreClient::connect(job.options(), in_time());
    const std::vector<std::string> keys = {"go"};
    waited = client->wait(keys, in_time());
  });
  REQUIRE(eventually([&] { return job.server->stats().waits == 1; }));
  StoreClient client = job.client();
  REQUIRE(client.set("go", "", in_time()).ok());
  thread.join();
  CHECK(waited->ok());
}

TEST_CASE("a deadline beyond the server's bound for waits is waited for all the same") {
  StoreServerOptions options;
  options.limits.wait_ms_max = 20;
  const Job job(options);
  StoreClient client = job.client();
  const auto before = base::system_clock().monotonic();
  CHECK(client.wait_count("x", 1, base::Deadline::in(milliseconds(400))).error().code() ==
        Errc::timeout);
  CHECK(base::system_clock().monotonic() - before >= milliseconds(250));
}

TEST_CASE("a key with a time to live goes without anybody asking") {
  const Job job;
  StoreClient client = job.client();
  REQUIRE(client.set("lease", "x", in_time(), milliseconds(20)).ok());
  CHECK(eventually([&] { return job.server->stats().keys == 0; }));
}

TEST_CASE("a server that ends in the middle of a wait is named within the client's deadline") {
  Job job;
  const std::string name = job.server->endpoint().text();
  std::optional<Result<void>> waited;
  base::Micros took = {};
  base::Thread thread("waiter", [&] {
    auto client = StoreClient::connect(job.options(), in_time());
    const std::vector<std::string> keys = {"never"};
    const auto before = base::system_clock().monotonic();
    waited = client->wait(keys, base::Deadline::in(seconds(1)));
    took = base::system_clock().monotonic() - before;
  });
  REQUIRE(eventually([&] { return job.server->stats().waits == 1; }));
  job.server->stop();
  thread.join();
  REQUIRE(!waited->ok());
  CHECK(waited->error().code() == Errc::timeout);
  CHECK(waited->error().message().find("store " + name + ": waiting for \"never\"") !=
        std::string::npos);
  CHECK(waited->error().message().find("closed the connection") != std::string::npos);
  CHECK(took < seconds(3));
}

TEST_CASE("a wait goes on over a server that comes back at the same place") {
  Job job;
  const Endpoint place = job.server->endpoint();
  std::optional<Result<void>> waited;
  base::Thread thread("waiter", [options = job.options(), &waited] {
    auto client = StoreClient::connect(options, in_time());
    const std::vector<std::string> keys = {"go"};
    waited = client->wait(keys, in_time());
  });
  REQUIRE(eventually([&] { return job.server->stats().waits == 1; }));
  job.server.reset();
  StoreServerOptions again;
  again.endpoint = place;
  again.job_id = "job";
  again.secret = &job.secret;
  auto started = StoreServer::start(again);
  REQUIRE(started.ok());
  job.server = *std::move(started);
  StoreClient client = job.client();
  REQUIRE(client.set("go", "", in_time()).ok());
  thread.join();
  CHECK(waited->ok());
}

TEST_CASE("a request that must not be done twice is not repeated over a lost connection") {
  Job job;
  StoreClient client = job.client();
  job.server->stop();
  const auto added = client.add("n", 1, in_time());
  REQUIRE(!added.ok());
  CHECK(added.error().code() == Errc::io);
  CHECK(added.error().message().find("not known whether the server did it") != std::string::npos);
}

TEST_CASE("a wrong secret or job is refused within a second, and nobody else notices") {
  Job job;
  StoreClient honest = job.client();
  const Secret other = Secret::generate();
  StoreClientOptions options = job.options();
  options.secret = &other;
  const auto before = base::system_clock().monotonic();
  const auto wrong = StoreClient::connect(options, in_time());
  CHECK(base::system_clock().monotonic() - before < seconds(1));
  REQUIRE(!wrong.ok());
  CHECK(wrong.error().code() == Errc::auth_failed);
  CHECK(wrong.error().message().find(job.server->endpoint().text()) != std::string::npos);

  options.secret = nullptr;
  CHECK(StoreClient::connect(options, in_time()).error().code() == Errc::auth_failed);
  options = job.options();
  options.job_id = "another";
  CHECK(StoreClient::connect(options, in_time()).error().code() == Errc::mismatch);

  CHECK(honest.set("a", "1", in_time()).ok());
  REQUIRE(eventually([&] { return job.server->stats().rejected == 3; }));
  CHECK(job.server->stats().accepted == 1);
  CHECK(job.has_line("it belongs to job \"another\", this is job \"job\""));
}

TEST_CASE("garbage, scans and silence are closed while the job goes on") {
  StoreServerOptions options;
  options.handshake_limit = milliseconds(200);
  Job job(options);
  StoreClient honest = job.client();

  const base::Fd garbage = job.stranger();
  REQUIRE(::send(garbage.get(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL) == 18);
  const base::Fd silent = job.stranger();
  const base::Fd slow = job.stranger();
  REQUIRE(::send(slow.get(), "HRW", 3, MSG_NOSIGNAL) == 3);
  {
    const base::Fd scan = job.stranger();
  }

  REQUIRE(honest.set("a", "1", in_time()).ok());
  CHECK(is_closed(garbage));
  CHECK(is_closed(silent));
  CHECK(is_closed(slow));
  REQUIRE(eventually([&] { return job.server->stats().rejected == 4; }));
  CHECK(job.server->stats().pending == 0);
  CHECK(**honest.get("a", in_time()) == "1");
  CHECK(job.has_line("it does not speak headrace's protocol"));
  CHECK(job.has_line("it did not end its handshake within 200 ms"));
  CHECK(job.has_line("before it said anything"));
}

TEST_CASE("a crowd of silent connections does not keep clients out") {
  StoreServerOptions options;
  options.pending_max = 16;
  options.handshake_limit = seconds(30);
  Job job(options);
  std::vector<base::Fd> crowd;
  for (int i = 0; i < 64; ++i) {
    crowd.push_back(job.stranger());
  }
  StoreClient client = job.client();
  CHECK(client.set("a", "1", in_time()).ok());
  CHECK(job.server->stats().pending <= 16);
}

TEST_CASE("many refused connections make few log lines") {
  Job job;
  for (int i = 0; i < 200; ++i) {
    const base::Fd fd = job.stranger();
    REQUIRE(::send(fd.get(), "x", 1, MSG_NOSIGNAL) == 1);
    REQUIRE(is_closed(fd));
  }
  CHECK(job.server->stats().rejected >= 199);
  const base::MutexLock lock(job.mu);
  CHECK(job.lines.size() <= 22);  // the ten seconds may end once meanwhile
}

TEST_CASE("an authenticated client that sends nonsense loses its connection, not the job") {
  Job job;
  StoreClient honest = job.client();
  const HandshakeOptions handshake{.job_id = "job", .secret = &job.secret};
  auto broken = Channel::connect(job.server->endpoint(), handshake, in_time());
  REQUIRE(broken.ok());
  REQUIRE(broken->send({.type = 1, .flags = 0, .payload = "no message"}, in_time()).ok());
  CHECK(broken->receive(in_time()).error().code() == Errc::io);

  auto forged = Channel::connect(job.server->endpoint(), handshake, in_time());
  REQUIRE(forged.ok());
  const std::string bytes(200, '\0');
  REQUIRE(::send(forged->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == 200);
  CHECK(forged->receive(in_time()).error().code() == Errc::io);

  auto large = Channel::connect(job.server->endpoint(), handshake, in_time());
  REQUIRE(large.ok());
  REQUIRE(::send(large->fd(), "\xff\xff\xff\xff", 4, MSG_NOSIGNAL) == 4);
  CHECK(large->receive(in_time()).error().code() == Errc::io);

  CHECK(honest.set("a", "1", in_time()).ok());
  CHECK(job.has_line("the tag of frame 0 does not fit"));
}

TEST_CASE("a client that does not read its answers is not asked for more") {
  Job job;
  StoreClient honest = job.client();
  REQUIRE(honest.set("large", std::string(size_t{2} << 20, 'x'), in_time()).ok());
  auto deaf =
      Channel::connect(job.server->endpoint(), {.job_id = "job", .secret = &job.secret}, in_time());
  REQUIRE(deaf.ok());
  for (uint64_t i = 1; i <= 30; ++i) {
    const StoreMessage request{.id = i, .texts = {"large"}};
    REQUIRE(deaf->send({.type = 2, .flags = 0, .payload = encode_store_message(request)}, in_time())
                .ok());
  }
  CHECK(honest.get("large", in_time())->has_value());
  CHECK(job.server->stats().requests < 25);
  for (uint64_t i = 1; i <= 30; ++i) {  // and when it reads, all answers come
    const auto frame = deaf->receive(in_time());
    REQUIRE(frame.ok());
    CHECK(decode_store_message(frame->payload)->id == i);
  }
}

TEST_CASE("a full server says so to who has the secret") {
  StoreServerOptions options;
  options.clients_max = 1;
  const Job job(options);
  StoreClient first = job.client();
  REQUIRE(first.set("a", "1", in_time()).ok());
  const auto second = StoreClient::connect(job.options(), base::Deadline::in(milliseconds(200)));
  REQUIRE(!second.ok());
  CHECK(second.error().code() == Errc::timeout);
  CHECK(second.error().message().find("as many clients as it takes") != std::string::npos);
}

TEST_CASE("an address of the network is not listened at or trusted without a secret") {
  StoreServerOptions options;
  options.endpoint = Endpoint::tcp("0.0.0.0", 0);
  const auto refused = StoreServer::start(options);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code() == Errc::invalid_argument);
  CHECK(refused.error().message().find("without a secret") != std::string::npos);
  options.insecure = true;
  const auto allowed = StoreServer::start(options);
  REQUIRE(allowed.ok());

  StoreClientOptions client{.endpoint = Endpoint::tcp("192.0.2.1", 4711)};
  CHECK(StoreClient::connect(client, in_time()).error().code() == Errc::invalid_argument);
  client.endpoint = Endpoint::tcp("127.0.0.1", (*allowed)->endpoint().port);
  CHECK(StoreClient::connect(client, in_time()).ok());
}

TEST_CASE("a store may have an abstract name instead of a port") {
  StoreServerOptions options;
  options.endpoint = unix_endpoint();
  const Job job(options);
  StoreClient client = job.client();
  CHECK(client.set("a", "1", in_time()).ok());
}

TEST_CASE("two thousand clients meet at once") {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int kClients = 400;
#else
  constexpr int kClients = 2000;
#endif
  if (!has_descriptors(2 * kClients + 200)) {
    return;
  }
  const Job job;
  std::vector<Channel> clients;
  const HandshakeOptions handshake{.job_id = "job", .secret = &job.secret};
  const auto before = base::system_clock().monotonic();
  for (int i = 0; i < kClients; ++i) {
    auto client = Channel::connect(job.server->endpoint(), handshake, in_time());
    REQUIRE(client.ok());
    clients.push_back(*std::move(client));
  }
  for (int i = 0; i < kClients; ++i) {
    const StoreMessage set{.id = 1, .texts = {"rank/" + std::to_string(i), "x"}};
    const StoreMessage wait{.id = 2, .number = kClients, .detail = 30'000, .texts = {"rank/"}};
    Channel& client = clients[static_cast<size_t>(i)];
    REQUIRE(
        client.send({.type = 1, .flags = 0, .payload = encode_store_message(set)}, in_time()).ok());
    REQUIRE(client.send({.type = 8, .flags = 0, .payload = encode_store_message(wait)}, in_time())
                .ok());
  }
  for (Channel& client : clients) {
    REQUIRE(client.receive(in_time()).ok());
    const auto frame = client.receive(in_time());
    REQUIRE(frame.ok());
    CHECK(decode_store_message(frame->payload)->number == kClients);
  }
  CHECK(job.server->stats().clients == kClients);
  MESSAGE(kClients, " clients met in ", duration_text(base::system_clock().monotonic() - before));
}

TEST_CASE("a burst of connections beyond the waiting room is served in turn") {
  StoreServerOptions options;
  options.pending_max = 32;
  const Job job(options);
  std::vector<base::Thread> threads;
  std::array<bool, 16> met = {};
  for (size_t i = 0; i < met.size(); ++i) {
    threads.emplace_back("burst", [&, i] {
      bool all = true;
      for (int k = 0; k < 20; ++k) {
        auto client = StoreClient::connect(job.options(), in_time());
        all = all && client.ok() && client->add("n", 1, in_time()).ok();
      }
      met[i] = all;
    });
  }
  threads.clear();
  CHECK(std::all_of(met.begin(), met.end(), [](bool all) { return all; }));
  StoreClient client = job.client();
  CHECK(*client.add("n", 0, in_time()) == 320);
}

TEST_CASE("servers that start and end leave no descriptor behind") {
  const int64_t before = open_descriptors();
  for (int i = 0; i < 5; ++i) {
    const Job job;
    StoreClient client = job.client();
    const base::Fd stranger = job.stranger();
    REQUIRE(client.set("a", "1", in_time()).ok());
  }
  CHECK(open_descriptors() == before);
}

}  // namespace headrace::wire
