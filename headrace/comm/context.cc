// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "headrace/base/pool.h"
#include "headrace/base/random.h"
#include "headrace/comm/flight_watch_internal.h"
#include "headrace/comm/forks_internal.h"
#include "headrace/comm/join_network_internal.h"
#include "headrace/comm/liveness_internal.h"
#include "headrace/comm/nodes_transport_internal.h"
#include "headrace/comm/process_set_internal.h"
#include "headrace/comm/rendezvous_internal.h"
#include "headrace/comm/shm_transport_internal.h"
#include "headrace/comm/tcp_transport_internal.h"

namespace headrace::comm {

struct Context::State {
  ForkMark mark;
  Config config;
  Topology topology;
  std::vector<RankInfo> infos;
  NodeMemory memory;  // bells, then the channel of the world if its ranks share memory
  SpinBudget spin;
  NodeBells bells;
  std::shared_ptr<Progress> progress;
  std::shared_ptr<Network> network;  // null for a rank alone
  std::shared_ptr<CommMetrics> metrics;
  std::shared_ptr<FlightRecorder> recorder;
  std::unique_ptr<ProcessSet> world;
  std::unique_ptr<Liveness> liveness;  // last but one: it calls into the others
  bool watched = false;                // by FlightWatch

  /// Up to what needs all ranks; `meeting` is the first that did.
  static Result<std::unique_ptr<State>> make(const Config& config, const StoreTable& store,
                                             const Meeting& meeting);

  /// What a new set has: memory, connections, or both.
  struct Means {
    uint64_t set = 0;
    base::ShmMapping mapping;
    std::byte* memory = nullptr;
    std::vector<base::Fd> connections;
  };
  Result<std::unique_ptr<ProcessSet>> make_set(Means means, std::vector<int> world_ranks, int rank);
  Result<std::unique_ptr<SetTransport>> make_transport(Means means,
                                                       const std::vector<int>& world_ranks,
                                                       int rank);
  Result<void> watch_processes();
  bool shares_memory(int world_rank) const;
  /// Some rank of the set shares memory with another one.
  bool has_memory(const std::vector<int>& world_ranks) const;
  /// Ranks of the set that share memory with this one, as places among the node's.
  std::vector<int> places_of(const std::vector<int>& world_ranks) const;
  void on_death(int rank);
  ~State() {
    if (watched && !mark.forked()) {
      FlightWatch::instance().remove(recorder.get());
    }
  }
};

namespace {

size_t bell_bytes(int ranks) { return sizeof(BellLine) * static_cast<size_t>(ranks); }

/// Where ranks outnumber cores, whom one waits for may need this very core.
///
/// A turn over sockets is a system call; what does not come within some ten microseconds is better
/// slept for, as the kernel needs this core to bring it.
SpinBudget spin_budget(const Config& config, int local_world_size, bool tcp) {
  constexpr uint32_t kSocketTurns = 60;
  constexpr uint32_t kTurnsOfMicro = 20;
  const bool crowded = local_world_size > base::usable_cores();
  if (config.spin) {
    const auto micros = std::clamp<int64_t>(config.spin->count(), 0, 10'000'000);
    return {.turns = static_cast<uint32_t>(micros) * kTurnsOfMicro, .crowded = crowded};
  }
  if (tcp) {
    return {.turns = crowded ? 0 : kSocketTurns, .crowded = crowded};
  }
  return {.crowded = crowded};
}

ShmGeometry geometry_of(const Config& config, int ranks) {
  return ShmGeometry::choose(ranks, config.small_bytes, config.chunk_bytes);
}

Result<NodeMemory> share_node_memory(const Config& config, const StoreTable& store,
                                     const Meeting& meeting, const Topology& topology,
                                     size_t bytes) {
  if (topology.local_rank != 0) {
    const auto& nodes = topology.node_of;
    const auto leader = std::find(nodes.begin(), nodes.end(), topology.node_rank) - nodes.begin();
    HR_TRY(const auto offer, fetch_offer(config, store, topology.node_rank,
                                         meeting.ranks[static_cast<size_t>(leader)]));
    return NodeMemory::open(offer);
  }
  auto memory = NodeMemory::make(bytes);
  HR_TRY(publish_offer(
      config, store, topology.node_rank,
      memory.ok() ? Result<MemoryOffer>(memory->offer()) : Result<MemoryOffer>(memory.error())));
  return memory;
}

constexpr uint64_t kPieceBytesMost = uint64_t{16} << 20;

Result<void> check(const Config& config) {
  if (config.world_size < 1 || config.world_size > kNodeRanksMax || config.rank < 0 ||
      config.rank >= config.world_size) {
    return Error{
        Errc::invalid_argument,
        fmt::format("comm: rank {} of {} ranks; a rank is in [0, world size), and there are "
                    "at most {}",
                    config.rank, config.world_size, kNodeRanksMax)};
  }
  if (config.streams < 1 || config.streams > TcpLinks::kStreamsMax) {
    return Error{Errc::invalid_argument,
                 fmt::format("comm: {} streams between two ranks; there may be 1 to {}",
                             config.streams, TcpLinks::kStreamsMax)};
  }
  if (std::max(config.chunk_bytes, config.small_bytes) > kPieceBytesMost) {
    return Error{Errc::invalid_argument,
                 fmt::format("comm: chunk_bytes is {} and small_bytes {}; each is at most {}, for "
                             "every rank has memory for some of them",
                             config.chunk_bytes, config.small_bytes, kPieceBytesMost)};
  }
  return {};
}

}  // namespace

bool Context::State::shares_memory(int world_rank) const {
  return config.transport != Transport::tcp &&
         topology.node_of[static_cast<size_t>(world_rank)] == topology.node_rank;
}

bool Context::State::has_memory(const std::vector<int>& world_ranks) const {
  std::set<int> nodes;
  for (const int one : world_ranks) {
    nodes.insert(topology.node_of[static_cast<size_t>(one)]);
  }
  return config.transport != Transport::tcp && nodes.size() < world_ranks.size();
}

std::vector<int> Context::State::places_of(const std::vector<int>& world_ranks) const {
  std::vector<int> places;
  for (const int one : world_ranks) {
    if (one == config.rank || shares_memory(one)) {
      places.push_back(topology.place_of(one));
    }
  }
  return places;
}

Result<std::unique_ptr<SetTransport>> Context::State::make_transport(
    Means means, const std::vector<int>& world_ranks, int rank) {
  std::optional<ShmChannel> channel;
  if (means.memory != nullptr) {
    auto places = places_of(world_ranks);
    const auto local = std::find(places.begin(), places.end(), topology.local_rank);
    const auto index = static_cast<int>(local - places.begin());
    const auto geometry = geometry_of(config, static_cast<int>(places.size()));
    channel.emplace(means.memory, geometry, index, bells, std::move(places));
    std::vector<int> told;
    std::copy_if(world_ranks.begin(), world_ranks.end(), std::back_inserter(told),
                 [this](int one) { return one == config.rank || shares_memory(one); });
    channel->call_ranks(std::move(told));
  }
  if (means.connections.empty()) {
    return std::unique_ptr<SetTransport>(
        std::make_unique<ShmTransport>(std::move(means.mapping), *std::move(channel)));
  }
  HR_TRY(auto links, TcpLinks::make(rank, std::move(means.connections),
                                    {.streams = config.streams, .checks = config.crc}));
  std::vector<int> node_of;
  for (const int one : world_ranks) {
    node_of.push_back(topology.node_of[static_cast<size_t>(one)]);
  }
  auto tcp = std::make_unique<TcpTransport>(
      std::move(links),
      TcpTransport::Members{means.set, world_ranks, NodeTree::of(node_of), config.small_bytes},
      network.get());
  if (!channel) {
    return std::unique_ptr<SetTransport>(std::move(tcp));
  }
  return std::unique_ptr<SetTransport>(std::make_unique<NodesTransport>(
      std::move(tcp), std::move(means.mapping), *std::move(channel)));
}

Result<std::unique_ptr<ProcessSet>> Context::State::make_set(Means means,
                                                             std::vector<int> world_ranks,
                                                             int rank) {
  auto state = std::make_unique<ProcessSet::State>();
  state->id = means.set;
  HR_TRY(auto transport, make_transport(std::move(means), world_ranks, rank));
  const bool on_sockets = transport->shared_memory() == nullptr;
  const auto observer = std::make_shared<SetObserver>(
      recorder->add(state->id, false, world_ranks, rank), metrics, on_sockets, world_ranks, rank);
  state->queue =
      std::make_shared<SetQueue>(std::move(transport), state->id, world_ranks, rank, observer);
  state->queue->on_failure([fail = network == nullptr ? nullptr : network->mail_failer(),
                            id = state->id, observer, recorder = recorder](const Error& error) {
    if (fail != nullptr) {
      fail(id, error);
    }
    // That somebody has closed or aborted a set is no failure to be looked into.
    if (observer->failed(error) && error.code() != Errc::cancelled && recorder->writes_failures()) {
      FlightWatch::instance().write_soon(recorder.get(), "failure: " + error.message());
    }
  });
  state->progress = progress;
  state->network = network;
  state->world_ranks = std::move(world_ranks);
  state->rank = rank;
  state->spin = spin;
  state->timeout = config.timeout;
  state->gpu_settings = {config.gpu_folders, config.gpu_staging};
  state->wire16 = config.wire16;
  progress->add(state->queue);
  return std::make_unique<ProcessSet>(std::move(state));
}

void Context::State::on_death(int rank) {
  if (world->closed(rank)) {
    return;  // it has left in order
  }
  const RankInfo& info = infos[static_cast<size_t>(rank)];
  Error error(Errc::peer_dead, fmt::format("comm: rank {} on {} (process {}) died; see its output",
                                           rank, info.host, info.pid));
  Origin origin;
  origin.rank = rank;
  origin.host = info.host;
  origin.pid = info.pid;
  error.set_origin(std::move(origin));
  progress->fail_sets_of(rank, error);
}

/// Of ranks that share memory with this one.
Result<void> Context::State::watch_processes() {
  std::vector<Liveness::Peer> peers;
  for (int rank = 0; rank < config.world_size; ++rank) {
    const int64_t pid = infos[static_cast<size_t>(rank)].pid;
    if (shares_memory(rank) && pid != infos[static_cast<size_t>(config.rank)].pid) {
      peers.push_back({rank, pid});
    }
  }
  HR_TRY(liveness, Liveness::start(peers, [this](int rank) { on_death(rank); }));
  return {};
}

namespace {

NetworkEvents events_of(const std::shared_ptr<Progress>& progress, const NodeBells& bells) {
  const std::weak_ptr<Progress> weak = progress;
  return {
      .on_dead =
          [weak](int rank, const Error& error) {
            if (const auto there = weak.lock()) {
              there->fail_sets_of(rank, error);
            }
          },
      .on_set_failed =
          [weak](uint64_t set, const Error& error) {
            if (const auto there = weak.lock()) {
              there->fail_set(set, error);
            }
          },
      .on_ready = [bells] { bells.ring_self(); },
  };
}

/// Bells of the node, and its memory of the world.
Result<NodeMemory> memory_for(const Config& config, const StoreTable& store, const Meeting& meeting,
                              const Topology& topology, bool tcp) {
  if (tcp && config.transport == Transport::tcp) {
    return NodeMemory::make(bell_bytes(1));
  }
  const size_t channel = geometry_of(config, topology.local_world_size).segment_bytes();
  return share_node_memory(config, store, meeting, topology, bell_bytes(kNodeRanksMax) + channel);
}

/// All ranks have what they need. Who has not cannot be heard over what was to be shared: the store
/// tells.
Result<void> first_barrier(const Config& config, const StoreTable& store, ProcessSet& world) {
  constexpr auto kLook = std::chrono::seconds(1);
  const Work work = world.barrier({.timeout = config.init_timeout,
                                   .blocking = true,
                                   .blocking_limit = kLook,
                                   .negotiates = true});
  while (!work.done()) {
    if (const auto failed = published_failure(config, store)) {
      return *failed;
    }
    static_cast<void>(work.wait(kLook));
  }
  auto outcome = work.wait();
  if (!outcome.ok()) {  // who could not start may have ended since: why counts for more
    if (auto failed = published_failure(config, store)) {
      return *std::move(failed);
    }
  }
  return outcome;
}

}  // namespace

Result<std::unique_ptr<Context::State>> Context::State::make(const Config& config,
                                                             const StoreTable& store,
                                                             const Meeting& meeting) {
  Topology topology = topology_of(meeting.ranks, config.rank);
  const bool tcp =
      config.world_size > 1 && (topology.nodes > 1 || config.transport == Transport::tcp);
  if (topology.nodes > 1 && config.transport == Transport::shm) {
    return Error{Errc::unsupported,
                 fmt::format("comm: ranks on {} nodes ({} and others) cannot share memory; set "
                             "transport to auto or tcp, or start all ranks on one host and in one "
                             "container",
                             topology.nodes, topology.hosts.front())};
  }
  auto memory = memory_for(config, store, meeting, topology, tcp);
  if (!memory.ok()) {
    if (tcp) {  // the other nodes wait for an address
      static_cast<void>(tell_all(config, store, "address", memory.error()));
    }
    return std::move(memory).error();
  }
  const SpinBudget spin = spin_budget(config, topology.local_world_size, tcp);
  const bool own_bells = tcp && config.transport == Transport::tcp;
  const NodeBells bells(reinterpret_cast<BellLine*>(memory->data()),
                        own_bells ? 0 : topology.local_rank);
  std::byte* channel = memory->data() + bell_bytes(kNodeRanksMax);
  auto progress = std::make_shared<Progress>(bells, spin);
  auto metrics = std::make_shared<CommMetrics>(config.board, config.world_size, config.generation);
  auto recorder = std::make_shared<FlightRecorder>(
      FlightRecorder::Options{config.rank, config.world_size, config.job, config.generation,
                              config.flight_folder, config.flight_signal});
  auto state = std::unique_ptr<State>(new State{{},
                                                config,
                                                topology,
                                                meeting.ranks,
                                                *std::move(memory),
                                                spin,
                                                bells,
                                                progress,
                                                nullptr,
                                                std::move(metrics),
                                                std::move(recorder),
                                                nullptr,
                                                nullptr});
  if (config.flight_signal || !config.flight_folder.empty()) {
    FlightWatch::instance().add(state->recorder, config.flight_signal);
    state->watched = true;
  }
  std::vector<int> all(static_cast<size_t>(config.world_size));
  std::iota(all.begin(), all.end(), 0);
  State::Means means;
  means.set = 1;
  means.memory = !tcp || state->has_memory(all) ? channel : nullptr;
  if (tcp) {
    HR_TRY(state->network, join_network(config, store, meeting, events_of(progress, bells)));
    HR_TRY(means.connections,
           state->network->connect(means.set, all, config.rank,
                                   base::Deadline::in(config.init_timeout), config.streams));
  }
  if (!tcp && config.world_size > 1) {
    HR_TRY(state->network, open_mailbox(config, meeting, events_of(progress, bells)));
  }
  HR_TRY(state->world, state->make_set(std::move(means), all, config.rank));
  HR_TRY(state->watch_processes());
  return state;
}

Result<std::unique_ptr<Context>> Context::init(const Config& config, const StoreTable& store) {
  HR_TRY(check(config));
  HR_TRY(const auto meeting, meet(config, store));
  auto state = State::make(config, store, meeting);
  if (!state.ok()) {
    const RankInfo& own = meeting.ranks[static_cast<size_t>(config.rank)];
    publish_failure(
        config, store,
        {state.error().code(), fmt::format("comm: rank {} on {} cannot take part: {}", config.rank,
                                           own.host, state.error().message())});
    return std::move(state).error();
  }
  HR_TRY(first_barrier(config, store, *(*state)->world));
  (*state)->memory.settle();  // all have opened it
  return std::make_unique<Context>(*std::move(state));
}

std::string_view transport_name(Transport transport) {
  constexpr std::string_view kNames[] = {"auto", "shm", "tcp"};
  return kNames[static_cast<size_t>(transport)];
}

Result<Transport> transport_of_name(std::string_view name) {
  for (const auto one : {Transport::automatic, Transport::shm, Transport::tcp}) {
    if (name == transport_name(one)) {
      return one;
    }
  }
  return Error{Errc::invalid_argument,
               fmt::format("comm: transport \"{}\"; it is auto, shm or tcp", name)};
}

Context::Context(std::unique_ptr<State> state) : state_(std::move(state)) {}
Context::~Context() {
  if (state_ != nullptr && state_->mark.forked()) {
    static_cast<void>(state_.release());  // its threads and what it shares are the parent's
  }
}

ProcessSet& Context::world() const { return *state_->world; }
const Topology& Context::topology() const { return state_->topology; }
const Config& Context::config() const { return state_->config; }

namespace {

/// What a rank says of itself while a set is split.
struct SplitEntry {
  int64_t color;
  int64_t key;
  MemoryOffer offer;
  int64_t failed;
};
static_assert(std::is_trivially_copyable_v<SplitEntry>);

Result<std::vector<SplitEntry>> exchange(ProcessSet& parent, const SplitEntry& mine) {
  std::vector<SplitEntry> all(static_cast<size_t>(parent.size()));
  HR_TRY(parent
             .all_gather(ConstBuffer(&mine, sizeof mine, Dtype::u8),
                         Buffer{all.data(), sizeof(SplitEntry) * all.size(), Dtype::u8},
                         {.name = "split", .blocking = true, .negotiates = true})
             .wait());
  return all;
}

/// Ranks of the parent with the same color, in the order of their keys.
std::vector<size_t> members_of(const std::vector<SplitEntry>& wishes, int color) {
  std::vector<size_t> members;
  for (size_t r = 0; r < wishes.size(); ++r) {
    if (color >= 0 && wishes[r].color == color) {
      members.push_back(r);
    }
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](size_t a, size_t b) { return wishes[a].key < wishes[b].key; });
  return members;
}

// A rank that waits for a connection cannot hear of another's failure to make it.
constexpr base::Micros kConnectMost = std::chrono::seconds(30);

}  // namespace

Result<std::unique_ptr<ProcessSet>> Context::split(ProcessSet& parent, int color, int key) {
  State& state = *state_;
  const auto self = static_cast<size_t>(parent.rank());
  SplitEntry mine = {color, key, {}, 0};
  HR_TRY(const auto wishes, exchange(parent, mine));
  const std::vector<size_t> members = members_of(wishes, color);
  std::vector<int> world_ranks;
  for (const size_t one : members) {
    world_ranks.push_back(parent.world_ranks()[one]);
  }
  const auto rank =
      static_cast<int>(std::find(members.begin(), members.end(), self) - members.begin());
  const bool alone = world_ranks.size() == 1;
  const bool shares = color >= 0 && (alone || state.has_memory(world_ranks));
  const bool connects = !alone && !std::all_of(world_ranks.begin(), world_ranks.end(),
                                               [&](int one) { return state.shares_memory(one); });
  // The first rank of each node of the set makes its memory; all hear of all offers.
  const auto first = std::find_if(members.begin(), members.end(), [&](size_t one) {
    return one == self || state.shares_memory(parent.world_ranks()[one]);
  });
  const bool leads = shares && *first == self;
  Result<NodeMemory> memory = Error{Errc::internal, "comm: no memory of a set was asked for"};
  if (leads) {
    const auto ranks = static_cast<int>(state.places_of(world_ranks).size());
    memory = NodeMemory::make(geometry_of(state.config, ranks).segment_bytes());
    mine.failed = memory.ok() ? 0 : 1;
    mine.offer = memory.ok() ? memory->offer() : MemoryOffer();
  }
  HR_TRY(const auto offers, exchange(parent, mine));
  State::Means means;
  means.set = base::derive_seed(base::derive_seed(parent.state_->id, ++parent.state_->splits),
                                static_cast<uint64_t>(color));
  Result<void> good;
  if (shares) {
    if (!leads && offers[*first].failed == 0) {
      memory = NodeMemory::open(offers[*first].offer);
    }
    good = memory.ok() ? Result<void>() : memory.error();
  }
  if (color >= 0 && connects && good.ok()) {
    auto connections = state.network->connect(
        means.set, world_ranks, rank, base::Deadline::in(kConnectMost), state.config.streams);
    good = connections.ok() ? Result<void>() : connections.error();
    means.connections = connections.ok() ? *std::move(connections) : std::vector<base::Fd>();
  }
  mine.failed = good.ok() ? 0 : 1;
  HR_TRY(const auto outcomes, exchange(parent, mine));
  for (const SplitEntry& one : outcomes) {
    if (one.failed != 0) {  // the same on all ranks
      return good.ok() ? Error{Errc::out_of_memory,
                               "comm: a rank could not get the memory or the connections of a new "
                               "process set; see the others' errors"}
                       : std::move(good).error();
    }
  }
  if (color < 0) {
    return std::unique_ptr<ProcessSet>();
  }
  if (memory.ok()) {
    memory->settle();
    means.memory = memory->data();
    means.mapping = std::move(*memory).take_mapping();
  }
  return state.make_set(std::move(means), std::move(world_ranks), rank);
}

const std::shared_ptr<FlightRecorder>& Context::flight_recorder() const { return state_->recorder; }
const std::shared_ptr<CommMetrics>& Context::metrics() const { return state_->metrics; }

std::string Context::flight_record() const { return state_->recorder->text("asked for"); }

void Context::flush_metrics() const { state_->progress->flush_metrics(); }

void Context::fail(const Error& error) {
  if (!state_->mark.forked()) {
    state_->progress->fail_all(error);
  }
}

}  // namespace headrace::comm
