// SPDX-License-Identifier: Apache-2.0
// Process sets whose ranks are threads of one process, for tests: the sanitizers see all of them.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "headrace/base/shm_segment.h"
#include "headrace/base/thread.h"
#include "headrace/comm/process_set_internal.h"
#include "headrace/comm/shm_transport_internal.h"

namespace headrace::comm::testing {

/// A node of `ranks` ranks with memory for `sets` sets over all of them.
class ThreadNode {
 public:
  explicit ThreadNode(int ranks, ShmGeometry geometry, int sets = 1)
      : geometry_(geometry), ranks_(ranks), sets_(sets) {
    geometry_.ranks = ranks;
    const size_t bells = sizeof(BellLine) * static_cast<size_t>(ranks);
    bells_ = make(bells);
    for (int i = 0; i < sets; ++i) {
      memories_.push_back(make(geometry_.segment_bytes()));
    }
  }

  /// Call body(rank, sets) on each rank, all at once, each with process sets of its own.
  using Sets = std::vector<std::unique_ptr<ProcessSet>>;
  void each(const std::function<void(int, Sets&)>& body, SpinBudget spin = {.turns = 200}) {
    std::vector<base::Thread> threads;
    for (int rank = 0; rank < ranks_; ++rank) {
      threads.emplace_back("rank", [this, rank, spin, &body] {
        const NodeBells bells(reinterpret_cast<BellLine*>(bells_.data()), rank);
        auto progress = std::make_shared<Progress>(bells, spin);
        Sets sets;
        for (int i = 0; i < sets_; ++i) {
          sets.push_back(make_set(i, rank, bells, progress, spin));
        }
        body(rank, sets);
      });
    }
  }

 private:
  static base::ShmMapping make(size_t bytes) {
    auto segment = base::ShmSegment::create("comm test", bytes);
    REQUIRE(segment.ok());
    auto mapping = segment->map();
    REQUIRE(mapping.ok());
    return std::move(*mapping);
  }

  std::unique_ptr<ProcessSet> make_set(int index, int rank, const NodeBells& bells,
                                       const std::shared_ptr<Progress>& progress, SpinBudget spin) {
    std::vector<int> all(static_cast<size_t>(ranks_));
    std::iota(all.begin(), all.end(), 0);
    auto state = std::make_unique<ProcessSet::State>();
    // The memory is this node's; the mapping of a set that owns none is empty.
    state->queue = std::make_shared<SetQueue>(
        std::make_unique<ShmTransport>(
            base::ShmMapping(),
            ShmChannel(memories_[static_cast<size_t>(index)].data(), geometry_, rank, bells, all)),
        static_cast<uint64_t>(index), all, rank,
        std::make_shared<SetObserver>(std::make_shared<SetFlight>(0, false, all, rank),
                                      std::make_shared<CommMetrics>(nullptr, ranks_, 0), false, all,
                                      rank));
    state->progress = progress;
    state->world_ranks = all;
    state->rank = rank;
    state->spin = spin;
    progress->add(state->queue);
    return std::make_unique<ProcessSet>(std::move(state));
  }

  ShmGeometry geometry_;
  int ranks_;
  int sets_;
  base::ShmMapping bells_;
  std::vector<base::ShmMapping> memories_;
};

}  // namespace headrace::comm::testing
