// SPDX-License-Identifier: Apache-2.0
// The ranks of a launcher's job as those of one training.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/comm/context.h"
#include "headrace/forecast/training_ranks.h"

namespace headrace::jobs {

/// What must be the same on all ranks, for people: {"the instruction set", "avx2"}.
struct RankFact {
  std::string name;
  std::string value;  ///< of which the first kRankFactBytes are compared
};
inline constexpr size_t kRankFactBytes = 95;

/// Calls are made by all ranks in the same order; each may fail with what the job has ended with:
/// `peer_dead` names a rank that died, `timeout` one that was waited for.
class HR_API JobRanks final : public forecast::TrainingRanks {
 public:
  explicit JobRanks(std::unique_ptr<comm::Context> context) : context_(std::move(context)) {}

  /// How many ranks the environment names, and which this one is; 1 and 0 where no launcher started
  /// this process. No rank is met. `invalid_argument` names the variable that is wrong.
  struct Place {
    int rank = 0;
    int size = 1;
  };
  static Result<Place> place();
  /// Meet the other ranks of the job that the environment names. Null where this process is its
  /// only rank. Errors: comm::join_job's.
  static Result<std::unique_ptr<JobRanks>> join();

  int rank() const override { return context_->world().rank(); }
  int size() const override { return context_->world().size(); }
  Result<void> sum(std::span<float> values) override;
  Result<void> sum(std::span<double> values) override;
  Result<void> copy_from_first(std::span<float> values) override;

  /// Tell all ranks how something went on this one; an error of one is one of all. The same text on
  /// all ranks: an error that all have is as it is, else it is that of the lowest rank that has
  /// one, which it names.
  Result<void> agree(const Result<void>& mine);
  /// All ranks have the error of the last `agree` or `check_same`: one of them is enough to tell
  /// it.
  bool is_told_by_first() const { return agreed_ && rank() != 0; }

  /// `mismatch` names the first fact that is not as rank 0 has it, and the rank.
  Result<void> check_same(std::span<const RankFact> facts);

 private:
  Result<void> sum(const comm::Buffer& buffer);
  std::string name_of(size_t rank) const;

  std::unique_ptr<comm::Context> context_;
  bool agreed_ = false;
};

}  // namespace headrace::jobs
