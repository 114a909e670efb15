// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "headrace/base/pool.h"
#include "headrace/comm/forks_internal.h"
#include "headrace/comm/liveness_internal.h"
#include "headrace/comm/process_set_internal.h"
#include "headrace/comm/rendezvous_internal.h"

namespace headrace::comm {

struct Context::State {
  ForkMark mark;
  Config config;
  Topology topology;
  std::vector<RankInfo> infos;
  NodeMemory memory;  // bells, then the channel of the world
  SpinBudget spin;
  NodeBells bells;
  std::shared_ptr<Progress> progress;
  std::unique_ptr<ProcessSet> world;
  std::unique_ptr<Liveness> liveness;  // last: it calls into the others

  std::unique_ptr<ProcessSet> make_set(base::ShmMapping mapping, std::byte* memory_of_set,
                                       std::vector<int> world_ranks, int rank);
  void on_death(int rank);
};

namespace {

size_t bell_bytes(int ranks) { return sizeof(BellLine) * static_cast<size_t>(ranks); }

/// Where ranks outnumber cores, whom one waits for may need this very core.
SpinBudget spin_budget(int local_world_size) {
  return {.crowded = local_world_size > base::usable_cores()};
}

Result<NodeMemory> share_node_memory(const Config& config, const StoreTable& store,
                                     const Topology& topology, size_t bytes) {
  if (topology.local_rank != 0) {
    HR_TRY(const auto offer, fetch_offer(config, store, topology.node_rank));
    return NodeMemory::open(offer);
  }
  auto memory = NodeMemory::make(bytes);
  HR_TRY(publish_offer(
      config, store, topology.node_rank,
      memory.ok() ? Result<MemoryOffer>(memory->offer()) : Result<MemoryOffer>(memory.error())));
  return memory;
}

Result<void> check(const Config& config) {
  if (config.world_size < 1 || config.world_size > kNodeRanksMax || config.rank < 0 ||
      config.rank >= config.world_size) {
    return Error{
        Errc::invalid_argument,
        fmt::format("comm: rank {} of {} ranks; a rank is in [0, world size), and there are "
                    "at most {}",
                    config.rank, config.world_size, kNodeRanksMax)};
  }
  return {};
}

}  // namespace

std::unique_ptr<ProcessSet> Context::State::make_set(base::ShmMapping mapping,
                                                     std::byte* memory_of_set,
                                                     std::vector<int> world_ranks, int rank) {
  auto state = std::make_unique<ProcessSet::State>();
  const auto ranks = static_cast<int>(world_ranks.size());
  // Places among the ranks of the node: all ranks are on one node, in the order of the world.
  state->queue = std::make_shared<SetQueue>(
      std::move(mapping),
      ShmChannel(memory_of_set, ShmGeometry::choose(ranks), rank, bells, world_ranks));
  state->progress = progress;
  state->world_ranks = std::move(world_ranks);
  state->rank = rank;
  state->spin = spin;
  state->timeout = config.timeout;
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

Result<std::unique_ptr<Context>> Context::init(const Config& config, const StoreTable& store) {
  HR_TRY(check(config));
  HR_TRY(auto infos, meet(config, store));
  Topology topology = topology_of(infos, config.rank);
  if (topology.nodes > 1) {
    return Error{Errc::unsupported,
                 fmt::format("comm: ranks on {} nodes ({} and others), and this version has no "
                             "transport between nodes yet; start all ranks on one host and in one "
                             "container",
                             topology.nodes, topology.hosts.front())};
  }
  const size_t bytes =
      bell_bytes(kNodeRanksMax) + ShmGeometry::choose(config.world_size).segment_bytes();
  HR_TRY(auto memory, share_node_memory(config, store, topology, bytes));

  const SpinBudget spin = spin_budget(topology.local_world_size);
  const NodeBells bells(reinterpret_cast<BellLine*>(memory.data()), topology.local_rank);
  std::byte* channel = memory.data() + bell_bytes(kNodeRanksMax);
  auto state =
      std::unique_ptr<State>(new State{{}, config, topology, infos, std::move(memory), spin, bells,
                                       std::make_shared<Progress>(bells, spin), nullptr, nullptr});
  std::vector<int> all(infos.size());
  std::iota(all.begin(), all.end(), 0);
  state->world = state->make_set({}, channel, all, config.rank);
  std::vector<Liveness::Peer> peers;
  for (int rank = 0; rank < config.world_size; ++rank) {
    const int64_t pid = infos[static_cast<size_t>(rank)].pid;
    if (rank != config.rank && pid != infos[static_cast<size_t>(config.rank)].pid) {
      peers.push_back({rank, pid});
    }
  }
  HR_TRY(state->liveness,
         Liveness::start(peers, [raw = state.get()](int rank) { raw->on_death(rank); }));
  HR_TRY(state->world->barrier({.timeout = config.init_timeout, .blocking = true}).wait());
  state->memory.settle();  // all have opened it
  return std::make_unique<Context>(std::move(state));
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

Result<std::unique_ptr<ProcessSet>> Context::split(ProcessSet& parent, int color, int key) {
  struct Entry {
    int64_t color;
    int64_t key;
    MemoryOffer offer;
    int64_t failed;
  };
  static_assert(std::is_trivially_copyable_v<Entry>);
  const auto self = static_cast<size_t>(parent.rank());
  const auto exchange = [&](Entry mine) -> Result<std::vector<Entry>> {
    std::vector<Entry> all(static_cast<size_t>(parent.size()));
    HR_TRY(parent
               .all_gather(ConstBuffer(&mine, sizeof mine, Dtype::u8),
                           Buffer{all.data(), sizeof(Entry) * all.size(), Dtype::u8},
                           {.name = "split", .blocking = true})
               .wait());
    return all;
  };
  HR_TRY(const auto wishes, exchange({color, key, {}, 0}));
  std::vector<size_t> members;
  for (size_t r = 0; r < wishes.size(); ++r) {
    if (color >= 0 && wishes[r].color == color) {
      members.push_back(r);
    }
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](size_t a, size_t b) { return wishes[a].key < wishes[b].key; });

  // The first rank of each set makes its memory; all hear of all offers.
  const bool leads = color >= 0 && members.front() == self;
  Result<NodeMemory> memory = Error{Errc::internal, "comm: no memory of a set was asked for"};
  if (leads) {
    const auto ranks = static_cast<int>(members.size());
    memory = NodeMemory::make(ShmGeometry::choose(ranks).segment_bytes());
  }
  Entry mine = {color, key, {}, leads && !memory.ok() ? 1 : 0};
  if (leads && memory.ok()) {
    mine.offer = memory->offer();
  }
  HR_TRY(const auto offers, exchange(mine));
  if (color >= 0 && !leads && offers[members.front()].failed == 0) {
    memory = NodeMemory::open(offers[members.front()].offer);
  }
  const bool good = color < 0 || memory.ok();
  HR_TRY(const auto outcomes, exchange({color, key, {}, good ? 0 : 1}));
  for (const Entry& one : outcomes) {
    if (one.failed != 0) {  // the same on all ranks
      return good ? Error{Errc::out_of_memory,
                          "comm: a rank could not get the memory of a new "
                          "process set; see the others' errors"}
                  : std::move(memory).error();
    }
  }
  if (color < 0) {
    return std::unique_ptr<ProcessSet>();
  }
  memory->settle();
  std::vector<int> world_ranks;
  int rank = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    world_ranks.push_back(parent.world_ranks()[members[i]]);
    rank = members[i] == self ? static_cast<int>(i) : rank;
  }
  std::byte* data = memory->data();
  return state_->make_set(std::move(*memory).take_mapping(), data, std::move(world_ranks), rank);
}

void Context::fail(const Error& error) {
  if (!state_->mark.forked()) {
    state_->progress->fail_all(error);
  }
}

}  // namespace headrace::comm
