// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/job_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "headrace/base/environment.h"
#include "headrace/comm/environment.h"

namespace headrace::jobs {

namespace {

/// A text on its way between ranks, cut where it is longer.
template <size_t kBytes>
struct ShortText {
  std::array<char, kBytes> bytes = {};

  void set(const std::string& text) {
    std::copy_n(text.begin(), std::min(text.size(), kBytes - 1), bytes.begin());
  }
  std::string text() const { return {bytes.begin(), std::find(bytes.begin(), bytes.end(), '\0')}; }
};

using FactText = ShortText<kRankFactBytes + 1>;

/// How something went on one rank.
struct Outcome {
  int32_t failed = 0;
  int32_t code = 0;
  ShortText<2040> message;
};

template <typename T>
Result<std::vector<T>> from_all(comm::ProcessSet& set, std::span<const T> mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(mine.size() * static_cast<size_t>(set.size()));
  HR_TRY(set.all_gather(comm::ConstBuffer(mine.data(), mine.size_bytes(), Dtype::u8),
                        comm::Buffer{all.data(), all.size() * sizeof(T), Dtype::u8},
                        {.name = "training ranks", .blocking = true})
             .wait());
  return all;
}

}  // namespace

Result<JobRanks::Place> JobRanks::place() {
  HR_TRY(const auto environment, comm::read_job_environment(base::environment));
  return Place{environment.rank, environment.size};
}

Result<std::unique_ptr<JobRanks>> JobRanks::join() {
  HR_TRY(const Place where, place());
  if (where.size == 1) {
    return std::unique_ptr<JobRanks>();
  }
  HR_TRY(auto joined, comm::join_job());
  return std::make_unique<JobRanks>(std::move(joined.context));
}

Result<void> JobRanks::sum(const comm::Buffer& buffer) {
  return context_->world()
      .all_reduce(buffer, comm::Op::sum, {.name = "training sums", .blocking = true})
      .wait();
}

Result<void> JobRanks::sum(std::span<float> values) {
  return sum(comm::Buffer{values.data(), values.size(), Dtype::f32});
}

Result<void> JobRanks::sum(std::span<double> values) {
  return sum(comm::Buffer{values.data(), values.size(), Dtype::f64});
}

Result<void> JobRanks::copy_from_first(std::span<float> values) {
  return context_->world()
      .broadcast(comm::Buffer{values.data(), values.size(), Dtype::f32}, 0,
                 {.name = "training start", .blocking = true})
      .wait();
}

std::string JobRanks::name_of(size_t rank) const {
  return fmt::format("rank {} on {}", rank, context_->topology().hosts[rank]);
}

Result<void> JobRanks::agree(const Result<void>& mine) {
  agreed_ = false;
  Outcome outcome;
  if (!mine.ok()) {
    outcome.failed = 1;
    outcome.code = static_cast<int32_t>(mine.error().code());
    outcome.message.set(mine.error().message());
  }
  const auto all = from_all(context_->world(), std::span<const Outcome>(&outcome, 1));
  if (!all.ok()) {
    return mine.ok() ? all.error() : mine;  // the first cause
  }
  const auto bad =
      std::find_if(all->begin(), all->end(), [](const Outcome& one) { return one.failed != 0; });
  if (bad == all->end()) {
    return {};
  }
  agreed_ = true;
  const bool is_common = std::all_of(all->begin(), all->end(), [&](const Outcome& one) {
    return one.failed != 0 && one.message.bytes == bad->message.bytes;
  });
  if (is_common) {
    return mine;
  }
  return Error{static_cast<Errc>(bad->code),
               name_of(static_cast<size_t>(bad - all->begin())) + ": " + bad->message.text()};
}

Result<void> JobRanks::check_same(std::span<const RankFact> facts) {
  agreed_ = false;
  std::vector<FactText> mine(facts.size());
  for (size_t f = 0; f < facts.size(); ++f) {
    mine[f].set(facts[f].value);
  }
  HR_TRY(const auto all, from_all(context_->world(), std::span<const FactText>(mine)));
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t f = i % facts.size();
    if (all[i].bytes == all[f].bytes) {
      continue;
    }
    agreed_ = true;
    return Error{Errc::mismatch,
                 fmt::format("{} is \"{}\" on {} and \"{}\" on {}; the ranks of one training need "
                             "the same",
                             facts[f].name, all[f].text(), name_of(0), all[i].text(),
                             name_of(i / facts.size()))};
  }
  return {};
}

}  // namespace headrace::jobs
