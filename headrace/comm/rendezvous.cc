// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "headrace/base/json.h"
#include "headrace/comm/rendezvous_internal.h"

namespace headrace::comm {

namespace {

// Raised when what ranks say to one another changes; ranks of different numbers refuse to meet.
constexpr int64_t kProtocol = 1;
// Rank 0 waits that much shorter than the others, so that they hear from it who did not come.
constexpr base::Micros kAnswerTime = std::chrono::seconds(5);

std::string key_of(const Config& config, std::string_view what) {
  return fmt::format("{}/{}/{}", config.job, config.generation, what);
}

Json settings_of(const Config& config) {
  return Json::object({{"protocol", kProtocol},
                       {"world_size", config.world_size},
                       {"timeout_ms", int64_t{config.timeout.count()}}});
}

Json entry_of(const Config& config) {
  char host[256] = "unknown";
  ::gethostname(host, sizeof host - 1);
  return Json::object({{"pid", int64_t{::getpid()}},
                       {"host", std::string(host)},
                       {"node", node_identity()},
                       {"settings", settings_of(config)}});
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

/// Rank 0: entries of all ranks.
Result<Json> collect(const Config& config, const StoreTable& store, base::Deadline deadline) {
  Json all = Json::array();
  std::vector<int> missing;
  Error last(Errc::timeout, "");
  for (int rank = 0; rank < config.world_size; ++rank) {
    // Once the time is over, who else is there is still worth a short look.
    auto text = store.get(key_of(config, fmt::format("rank/{}", rank)), deadline);
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

Result<std::vector<RankInfo>> infos_of(const Json& answer) {
  if (const Json* error = answer.find("error")) {
    const int64_t code = answer.get_integer("code");
    const bool known = code >= 0 && code <= static_cast<int64_t>(Errc::internal);
    return Error{known ? static_cast<Errc>(code) : Errc::internal, error->string()};
  }
  std::vector<RankInfo> infos;
  for (const Json& entry : answer.at("ranks").items()) {
    infos.push_back({entry.get_integer("pid"), entry.get_string("host"), entry.get_string("node")});
  }
  return infos;
}

}  // namespace

Result<std::vector<RankInfo>> meet(const Config& config, const StoreTable& store) {
  const base::Micros limit = config.init_timeout;
  HR_TRY(store.set(key_of(config, fmt::format("rank/{}", config.rank)), entry_of(config).dump()));
  if (config.rank != 0) {
    auto text = store.get(key_of(config, "world"), base::Deadline::in(limit + kAnswerTime));
    if (!text.ok() && text.error().code() == Errc::timeout) {
      return Error{Errc::timeout, fmt::format("comm: rank {} waited {} s for rank 0, which did not "
                                              "come; see its output",
                                              config.rank, config.init_timeout.count() / 1000)};
    }
    HR_TRY(text);
    HR_TRY(auto answer, parse_json(*text, "answer of rank 0"));
    return infos_of(answer);
  }
  auto entries = collect(config, store, base::Deadline::in(limit));
  const Json answer =
      entries.ok() ? Json::object({{"ranks", *entries}}) : answer_of(entries.error());
  HR_TRY(store.set(key_of(config, "world"), answer.dump()));
  return infos_of(answer);
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

Result<MemoryOffer> fetch_offer(const Config& config, const StoreTable& store, int node) {
  HR_TRY(auto text, store.get(key_of(config, fmt::format("node/{}", node)),
                              base::Deadline::in(config.init_timeout)));
  HR_TRY(auto entry, parse_json(text, "offer of a node"));
  if (const Json* error = entry.find("error")) {
    return Error{static_cast<Errc>(entry.get_integer("code")), error->string()};
  }
  MemoryOffer offer;
  offer.pid = entry.get_integer("pid");
  offer.fd = entry.get_integer("fd");
  offer.bytes = static_cast<uint64_t>(entry.get_integer("bytes"));
  offer.token = {static_cast<uint64_t>(entry.get_integer("token0")),
                 static_cast<uint64_t>(entry.get_integer("token1"))};
  return offer;
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
