// SPDX-License-Identifier: Apache-2.0
// How ranks find one another in the store: one key from each, one answer for all.
#pragma once

#include <string>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/comm/context.h"
#include "headrace/comm/transport/node_memory.h"

namespace headrace::comm {

/// What a rank says of itself.
struct RankInfo {
  int64_t pid = 0;
  std::string host;
  std::string node;  ///< node_identity()
};

/// Store this rank's entry, wait for those of all others. Rank 0 collects and answers, so the store
/// sees 2n operations. All ranks get the same error when one does not come or differs.
Result<std::vector<RankInfo>> meet(const Config& config, const StoreTable& store);

/// Hand the offer of the first rank of a node to the others of that node.
Result<void> publish_offer(const Config& config, const StoreTable& store, int node,
                           const Result<MemoryOffer>& offer);
Result<MemoryOffer> fetch_offer(const Config& config, const StoreTable& store, int node);

/// Nodes in the order of their first ranks.
Topology topology_of(const std::vector<RankInfo>& ranks, int rank);

}  // namespace headrace::comm
