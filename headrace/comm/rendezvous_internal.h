// SPDX-License-Identifier: Apache-2.0
// How ranks find one another in the store: one key from each, one answer for all.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/comm/context.h"
#include "headrace/comm/transport/node_memory.h"
#include "headrace/wire/secret.h"

namespace headrace::comm {

/// What a rank says of itself.
struct RankInfo {
  int64_t pid = 0;
  std::string host;
  std::string node;     ///< node_identity(), or what the configuration says
  std::string mailbox;  ///< name of its local socket
  std::string machine;  ///< equal where the loopback address leads to the same place
};

/// What all ranks know after they have met.
struct Meeting {
  std::vector<RankInfo> ranks;
  std::shared_ptr<const wire::Secret> secret;  ///< of the job, or of this membership
};

/// Store this rank's entry, wait for those of all others. Rank 0 collects and answers, so the store
/// sees 2n operations. All ranks get the same error when one does not come or differs.
Result<Meeting> meet(const Config& config, const StoreTable& store);

/// Say something to all ranks and hear what each says, by rank; 2n operations of the store. `what`
/// names the exchange, each only once. An error of one rank is told to all.
Result<std::vector<std::string>> tell_all(const Config& config, const StoreTable& store,
                                          std::string_view what, const Result<std::string>& ours);

/// Hand the offer of the first rank of a node, `leader`, to the others of that node. `peer_dead`
/// when it has ended instead.
Result<void> publish_offer(const Config& config, const StoreTable& store, int node,
                           const Result<MemoryOffer>& offer);
Result<MemoryOffer> fetch_offer(const Config& config, const StoreTable& store, int node,
                                const RankInfo& leader);

/// This rank cannot take part after all: the others, who wait for it, shall hear why. The first one
/// to say so counts.
void publish_failure(const Config& config, const StoreTable& store, const Error& error);
/// What a rank has published so, without waiting.
std::optional<Error> published_failure(const Config& config, const StoreTable& store);

/// Nodes in the order of their first ranks.
Topology topology_of(const std::vector<RankInfo>& ranks, int rank);

}  // namespace headrace::comm
