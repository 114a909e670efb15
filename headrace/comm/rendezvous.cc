// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <utility>

#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/base/random.h"
#include "headrace/comm/rendezvous_internal.h"

namespace headrace::comm {

namespace {

// Raised when what ranks say to one another changes; ranks of different numbers refuse to meet.
constexpr int64_t kProtocol = 4;
// Rank 0 waits that much shorter than the others, so that they hear from it who did not come.
constexpr base::Micros kAnswerTime = std::chrono::seconds(5);

/// A look at what else may have happened follows.
base::Deadline soon(const base::Deadline& deadline) {
  return base::Deadline::in(std::min<base::Micros>(deadline.left(), std::chrono::seconds(1)));
}

std::string key_of(const Config& config, std::string_view what) {
  return fmt::format("{}/{}/{}", config.job, config.generation, what);
}

Json settings_of(const Config& config) {
  return Json::object({{"protocol", kProtocol},
                       {"world_size", config.world_size},
                       {"timeout_ms", int64_t{config.timeout.count()}},
                       {"transport", std::string(transport_name(config.transport))},
                       {"hb_ms", int64_t{config.hb_ms.count()}},
                       {"hb_miss", config.hb_miss},
                       {"gpu_staging", config.gpu_staging},
                       {"streams", config.streams},
                       {"crc", config.crc},
                       {"chunk_bytes", static_cast<int64_t>(config.chunk_bytes)},
                       {"small_bytes", static_cast<int64_t>(config.small_bytes)},
                       {"wire16", std::string(wire16_name(config.wire16))},
                       {"secured", config.secret != nullptr}});
}

std::string hex_of(const wire::Secret& secret) {
  std::string out;
  for (const std::byte one : secret.bytes()) {
    out += fmt::format("{:02x}", static_cast<unsigned>(one));
  }
  return out;
}

Result<wire::Secret> secret_of(const std::string& hex) {
  std::array<std::byte, wire::Secret::kBytes> bytes = {};
  bool good = hex.size() == 2 * bytes.size();
  for (size_t i = 0; good && i < bytes.size(); ++i) {
    unsigned value = 0;
    const char* begin = hex.data() + 2 * i;
    good = std::from_chars(begin, begin + 2, value, 16).ptr == begin + 2;
    bytes[i] = static_cast<std::byte>(value);
  }
  if (!good) {
    return Error{Errc::corrupt, "comm: the secret that rank 0 hands out is none"};
  }
  return wire::Secret::from_bytes(bytes);
}

/// Nobody else has it.
std::string mailbox_name() {
  std::array<std::byte, 16> random = {};
  base::random_bytes(random);
  std::string name = "headrace-";
  for (const std::byte one : random) {
    name += fmt::format("{:02x}", static_cast<unsigned>(one));
  }
  return name;
}

/// Where the loopback address leads: the machine and, on it, the network namespace.
std::string machine_identity() {
  const std::string boot =
      base::read_file("/proc/sys/kernel/random/boot_id", 64).value_or("no boot id");
  struct stat info = {};
  const bool known = ::stat("/proc/self/ns/net", &info) == 0;
  return fmt::format("{} net:{}", boot.substr(0, 36), known ? info.st_ino : 0);
}

Json entry_of(const Config& config) {
  char host[256] = "unknown";
  ::gethostname(host, sizeof host - 1);
  Json entry = Json::object({{"pid", int64_t{::getpid()}},
                             {"host", std::string(host)},
                             {"node", config.node.empty() ? node_identity() : config.node},
                             {"mailbox", mailbox_name()},
                             {"machine", machine_identity()},
                             {"settings", settings_of(config)}});
  if (config.rank == 0 && config.secret == nullptr) {
    entry.set("secret", hex_of(wire::Secret::generate()));
  }
  return entry;
}

Json answer_of(const Error& error) {
  return Json::object({{"code", static_cast<int>(error.code())}, {"error", error.message()}});
}

Result<void> check_equal(const Json& ours, const Json& theirs, int rank) {
  for (const auto& [name, value] : ours.members()) {
    const Json* other = theirs.find(name);
    if (other == nullptr || !(*other == value)) {
      return Error{
          Errc::mismatch,
          fmt::format("comm: {} is {} on rank 0 and {} on rank {}; start all ranks with the "
                      "same settings and the same version of headrace",
                      name, value.dump(), other == nullptr ? "unknown" : other->dump(), rank)};
    }
  }
  return {};
}

Error error_of(const Json& answer, const Json& text) {
  const int64_t code = answer.get_integer("code");
  const bool known = code >= 0 && code <= static_cast<int64_t>(Errc::internal);
  return {known ? static_cast<Errc>(code) : Errc::internal, text.string()};
}

/// Rank 0: what all ranks have said.
Result<Json> collect(const Config& config, const StoreTable& store, std::string_view what,
                     base::Deadline deadline) {
  Json all = Json::array();
  std::vector<int> missing;
  for (int rank = 0; rank < config.world_size; ++rank) {
    // Once the time is over, who else is there is still worth a short look.
    auto text = store.get(key_of(config, fmt::format("{}/{}", what, rank)), deadline);
    if (!text.ok()) {
      if (text.error().code() != Errc::timeout) {
        return std::move(text).error();
      }
      missing.push_back(rank);
      continue;
    }
    HR_TRY(auto entry, parse_json(*text, "entry of a rank"));
    if (const Json* settings = entry.find("settings")) {
      HR_TRY(check_equal(settings_of(config), *settings, rank));
    }
    if (const Json* error = entry.find("error")) {
      return error_of(entry, *error);
    }
    all.push_back(std::move(entry));
  }
  if (!missing.empty()) {
    return Error{Errc::timeout,
                 fmt::format("comm: {} of {} ranks did not come within {} s: {}; see their output, "
                             "or raise init_timeout",
                             missing.size(), config.world_size, config.init_timeout.count() / 1000,
                             fmt::join(missing, ", "))};
  }
  return all;
}

/// Rank 0's answer; on rank 0 make it.
Result<Json> answer_for(const Config& config, const StoreTable& store, std::string_view what) {
  const base::Micros limit = config.init_timeout;
  const std::string key = key_of(config, fmt::format("{}/all", what));
  if (config.rank == 0) {
    auto entries = collect(config, store, what, base::Deadline::in(limit));
    const Json answer =
        entries.ok() ? Json::object({{"ranks", *entries}}) : answer_of(entries.error());
    HR_TRY(store.set(key, answer.dump()));
    return answer;
  }
  auto text = store.get(key, base::Deadline::in(limit + kAnswerTime));
  if (!text.ok() && text.error().code() == Errc::timeout) {
    return Error{Errc::timeout, fmt::format("comm: rank {} waited {} s for rank 0, which did not "
                                            "come; see its output",
                                            config.rank, config.init_timeout.count() / 1000)};
  }
  HR_TRY(text);
  return parse_json(*text, "answer of rank 0");
}

/// Say `entry` to all; what all have said.
Result<Json> exchange(const Config& config, const StoreTable& store, std::string_view what,
                      const Json& entry) {
  HR_TRY(store.set(key_of(config, fmt::format("{}/{}", what, config.rank)), entry.dump()));
  HR_TRY(const auto answer, answer_for(config, store, what));
  if (const Json* error = answer.find("error")) {
    return error_of(answer, *error);
  }
  return answer.at("ranks");
}

}  // namespace

Result<Meeting> meet(const Config& config, const StoreTable& store) {
  HR_TRY(const auto ranks, exchange(config, store, "rank", entry_of(config)));
  Meeting meeting;
  meeting.secret = config.secret;
  for (const Json& entry : ranks.items()) {
    meeting.ranks.push_back({entry.get_integer("pid"), entry.get_string("host"),
                             entry.get_string("node"), entry.get_string("mailbox"),
                             entry.get_string("machine")});
  }
  if (meeting.secret == nullptr) {
    HR_TRY(auto secret, secret_of(ranks.items().front().get_string("secret")));
    meeting.secret = std::make_shared<const wire::Secret>(std::move(secret));
  }
  return meeting;
}

Result<std::vector<std::string>> tell_all(const Config& config, const StoreTable& store,
                                          std::string_view what, const Result<std::string>& ours) {
  const Json entry = ours.ok() ? Json::object({{"says", *ours}}) : answer_of(ours.error());
  HR_TRY(const auto ranks, exchange(config, store, what, entry));
  std::vector<std::string> out;
  for (const Json& one : ranks.items()) {
    out.push_back(one.get_string("says"));
  }
  return out;
}

Result<void> publish_offer(const Config& config, const StoreTable& store, int node,
                           const Result<MemoryOffer>& offer) {
  Json entry = offer.ok() ? Json::object({{"pid", offer->pid},
                                          {"fd", offer->fd},
                                          {"bytes", offer->bytes},
                                          {"token0", offer->token[0]},
                                          {"token1", offer->token[1]}})
                          : answer_of(offer.error());
  return store.set(key_of(config, fmt::format("node/{}", node)), entry.dump());
}

Result<MemoryOffer> fetch_offer(const Config& config, const StoreTable& store, int node,
                                const RankInfo& leader) {
  const std::string key = key_of(config, fmt::format("node/{}", node));
  const auto deadline = base::Deadline::in(config.init_timeout);
  Result<std::string> text = store.get(key, soon(deadline));
  while (!text.ok() && text.error().code() == Errc::timeout && !deadline.passed()) {
    if (::kill(static_cast<pid_t>(leader.pid), 0) != 0 && errno == ESRCH) {
      return Error{Errc::peer_dead,
                   fmt::format("comm: process {} on {}, which makes the memory of its node, died "
                               "before the ranks had met; see its output",
                               leader.pid, leader.host)};
    }
    text = store.get(key, soon(deadline));
  }
  HR_TRY(text);
  HR_TRY(auto entry, parse_json(*text, "offer of a node"));
  if (const Json* error = entry.find("error")) {
    return error_of(entry, *error);
  }
  MemoryOffer offer;
  offer.pid = entry.get_integer("pid");
  offer.fd = entry.get_integer("fd");
  offer.bytes = static_cast<uint64_t>(entry.get_integer("bytes"));
  offer.token = {static_cast<uint64_t>(entry.get_integer("token0")),
                 static_cast<uint64_t>(entry.get_integer("token1"))};
  return offer;
}

void publish_failure(const Config& config, const StoreTable& store, const Error& error) {
  if (!published_failure(config, store)) {
    static_cast<void>(store.set(key_of(config, "failed"), answer_of(error).dump()));
  }
}

std::optional<Error> published_failure(const Config& config, const StoreTable& store) {
  const auto text = store.get(key_of(config, "failed"), base::Deadline::in(base::Micros(0)));
  if (!text.ok()) {
    return std::nullopt;
  }
  const auto entry = parse_json(*text, "why a rank cannot take part");
  const Json* error = entry.ok() ? entry->find("error") : nullptr;
  return error == nullptr ? std::nullopt : std::optional(error_of(*entry, *error));
}

int Topology::place_of(int rank) const {
  const auto end = node_of.begin() + rank;
  return static_cast<int>(std::count(node_of.begin(), end, *end));
}

Topology topology_of(const std::vector<RankInfo>& ranks, int rank) {
  Topology topology;
  std::vector<std::string> nodes;
  std::vector<int> sizes;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto found = std::find(nodes.begin(), nodes.end(), ranks[r].node);
    const auto node = static_cast<size_t>(found - nodes.begin());
    if (found == nodes.end()) {
      nodes.push_back(ranks[r].node);
      sizes.push_back(0);
    }
    if (static_cast<int>(r) == rank) {
      topology.node_rank = static_cast<int>(node);
      topology.local_rank = sizes[node];
    }
    ++sizes[node];
    topology.hosts.push_back(ranks[r].host);
    topology.node_of.push_back(static_cast<int>(node));
  }
  topology.nodes = static_cast<int>(nodes.size());
  topology.local_world_size = sizes[static_cast<size_t>(topology.node_rank)];
  return topology;
}

}  // namespace headrace::comm
