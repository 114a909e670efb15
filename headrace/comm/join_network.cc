// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "headrace/base/json.h"
#include "headrace/comm/join_network_internal.h"
#include "headrace/wire/interface.h"

namespace headrace::comm {

namespace {

constexpr int kMeshRanksMax = 512;
constexpr uint16_t kAnyPort = 0;
constexpr base::Micros kMeetMost = std::chrono::seconds(60);

bool one_machine(const Meeting& meeting) {
  return std::all_of(meeting.ranks.begin(), meeting.ranks.end(), [&](const RankInfo& one) {
    return one.machine == meeting.ranks.front().machine;
  });
}

/// Where ranks of other machines may try, by literal addresses: names are never looked up.
Result<std::vector<std::string>> network_addresses(const Config& config) {
  HR_TRY(const auto filter, wire::InterfaceFilter::parse(config.iface), "comm: iface");
  HR_TRY(const auto local, wire::local_addresses());
  std::vector<std::string> out;
  for (const auto& one : filter.choose(local.network)) {
    out.push_back(one.address);
  }
  if (out.empty()) {
    return Error{
        Errc::unsupported,
        fmt::format("comm: rank {} has no address that other machines could reach{}", config.rank,
                    config.iface.empty() ? "" : ": iface is \"" + config.iface + "\"")};
  }
  return out;
}

NetworkOptions options_of(const Config& config, const Meeting& meeting) {
  const RankInfo& own = meeting.ranks[static_cast<size_t>(config.rank)];
  NetworkOptions options;
  options.rank = config.rank;
  options.host = own.host;
  options.job = config.job;
  options.generation = config.generation;
  options.secret = meeting.secret;
  options.silence = std::max<base::Micros>(config.hb_ms * config.hb_miss, std::chrono::seconds(1));
  return options;
}

Result<std::shared_ptr<Network>> listen_at(uint16_t port, const NetworkOptions& options, bool alone,
                                           const NetworkEvents& events) {
  if (alone) {
    return Network::start(options, wire::Endpoint::tcp("127.0.0.1", port), events);
  }
  auto both = Network::start(options, wire::Endpoint::tcp("::", port), events);
  return both.ok() || both.error().code() == Errc::busy  // else there is no IPv6
             ? std::move(both)
             : Network::start(options, wire::Endpoint::tcp("0.0.0.0", port), events);
}

Result<std::shared_ptr<Network>> listen(const Config& config, const Meeting& meeting,
                                        const NetworkEvents& events) {
  const NetworkOptions options = options_of(config, meeting);
  const bool alone = one_machine(meeting);
  if (config.ports.first == 0) {
    return listen_at(kAnyPort, options, alone, events);
  }
  const int ports = config.ports.last - config.ports.first + 1;
  for (int i = 0; i < ports; ++i) {
    // Ranks of a host begin at different ones.
    const auto port = static_cast<uint16_t>(config.ports.first + (config.rank % ports + i) % ports);
    auto network = listen_at(port, options, alone, events);
    if (network.ok() || network.error().code() != Errc::busy) {
      return network;
    }
  }
  return Error{Errc::busy,
               fmt::format("comm: rank {} on {} finds no free port in port_range {}-{}; every rank "
                           "of a host needs one, and one that has just ended may still hold its",
                           config.rank, options.host, config.ports.first, config.ports.last)};
}

Result<std::string> entry_of(const Config& config, const Meeting& meeting,
                             const Result<std::shared_ptr<Network>>& network) {
  if (!network.ok()) {
    return network.error();
  }
  Json addresses = Json::array();
  if (!one_machine(meeting)) {
    HR_TRY(const auto found, network_addresses(config));
    for (const std::string& one : found) {
      addresses.push_back(one);
    }
  }
  return Json::object({{"port", int64_t{(*network)->port()}}, {"addresses", addresses}}).dump();
}

Result<std::vector<NetworkPeer>> peers_of(const Config& config, const Meeting& meeting,
                                          const std::vector<std::string>& entries) {
  const RankInfo& own = meeting.ranks[static_cast<size_t>(config.rank)];
  std::vector<NetworkPeer> peers;
  for (size_t r = 0; r < entries.size(); ++r) {
    HR_TRY(const auto entry, parse_json(entries[r], "addresses of a rank"));
    const auto port = static_cast<uint16_t>(entry.get_integer("port"));
    NetworkPeer peer;
    peer.host = meeting.ranks[r].host;
    if (meeting.ranks[r].machine == own.machine) {
      peer.endpoints.push_back(wire::Endpoint::tcp("127.0.0.1", port));
    } else {
      for (const Json& address : entry.at("addresses").items()) {
        peer.endpoints.push_back(wire::Endpoint::tcp(address.string(), port));
      }
    }
    peers.push_back(std::move(peer));
  }
  return peers;
}

}  // namespace

Result<std::shared_ptr<Network>> join_network(const Config& config, const StoreTable& store,
                                              const Meeting& meeting, const NetworkEvents& events) {
  if (config.world_size > kMeshRanksMax) {
    return Error{Errc::unsupported,
                 fmt::format("comm: {} ranks with TCP between them; each rank connects with all "
                             "others, which this version does for at most {}",
                             config.world_size, kMeshRanksMax)};
  }
  auto network = listen(config, meeting, events);
  HR_TRY(const auto entries,
         tell_all(config, store, "address", entry_of(config, meeting, network)));
  HR_TRY(auto peers, peers_of(config, meeting, entries));
  (*network)->know(std::move(peers));
  // All are there by now: who does not connect has died since, or cannot be reached.
  const base::Micros most = std::min<base::Micros>(config.init_timeout, kMeetMost);
  HR_TRY((*network)->meet(base::Deadline::in(most)));
  return network;
}

Result<std::shared_ptr<Network>> open_mailbox(const Config& config, const Meeting& meeting,
                                              NetworkEvents events) {
  std::vector<NetworkPeer> peers;
  for (const RankInfo& one : meeting.ranks) {
    peers.push_back({one.host, {wire::Endpoint::unix_name(one.mailbox)}});
  }
  const auto own = peers[static_cast<size_t>(config.rank)].endpoints.front();
  HR_TRY(auto network, Network::start(options_of(config, meeting), own, std::move(events)));
  network->know(std::move(peers));
  return network;
}

}  // namespace headrace::comm
