// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/negotiate/autotune.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>

#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/base/log.h"
#include "headrace/base/random.h"

namespace headrace::comm {

namespace {

constexpr size_t kSeenMost = 1000;
constexpr size_t kNamesMost = 100'000;
constexpr int64_t kCycleMostUs = 3'600'000'000;
constexpr double kWorthIt = 0.98;  // of the best score so far
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr std::array kFusions = {uint64_t{0}, kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB, 128 * kMiB};
constexpr std::array kCyclesUs = {0, 500, 1000, 2500, 5000, 10'000, 25'000};

/// The candidates with that of the user among them, in order; and where that is.
template <class Value>
size_t with(std::vector<Value>& candidates, Value start) {
  const auto place = std::lower_bound(candidates.begin(), candidates.end(), start);
  const auto index = static_cast<size_t>(place - candidates.begin());
  if (place == candidates.end() || *place != start) {
    candidates.insert(place, start);
  }
  return index;
}

/// "allreduce.noname.17": a number instead of a name, which does not come again.
bool is_numbered(std::string_view name) {
  constexpr std::string_view kMark = ".noname.";
  const size_t mark = name.find(kMark);
  return mark != std::string_view::npos &&
         name.find_first_not_of("0123456789", mark + kMark.size()) == std::string_view::npos;
}

double milliseconds(std::chrono::microseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

Autotuner::Autotuner(AutotuneOptions options, int ranks, Tuned start)
    : options_(std::move(options)),
      ranks_(ranks),
      fusions_(kFusions.begin(), kFusions.end()),
      cycles_(kCyclesUs.begin(), kCyclesUs.end()),
      warmups_left_(options_.warmup_samples),
      best_(start) {
  now_ = {with(fusions_, start.fusion_bytes), with(cycles_, start.cycle_time)};
  best_place_ = now_;
  if (!options_.log.empty()) {
    log_.open(options_.log, std::ios::trunc);
    if (!log_) {
      base::log_warning(fmt::format(
          "comm: autotune: {} cannot be written; the search goes on without it", options_.log));
    }
    log_ << "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,"
            "cycle_time_ms,tensor_fusion_threshold,score\n"
         << std::flush;
  }
}

Autotuner::~Autotuner() {
  if (!done_) {
    base::log_info(fmt::format(
        "comm: autotune: the job ended before the search did, after {} samples of {} steps; "
        "nothing is kept{}",
        scores_.size(), options_.steps_per_sample,
        scores_.empty()
            ? std::string()
            : fmt::format("; best so far: --fusion-threshold-mb {:g} --cycle-time-ms {:g}",
                          static_cast<double>(best_.fusion_bytes) / kMiB,
                          milliseconds(best_.cycle_time))));
  }
}

std::optional<Tuned> Autotuner::submitted(std::string_view name, uint64_t bytes, double waited) {
  if (done_ || is_numbered(name)) {
    return std::nullopt;
  }
  std::optional<Tuned> change;
  if (names_.contains(std::string(name)) || names_.size() > kNamesMost) {
    change = end_step(waited - waited_before_);
    names_.clear();
    signature_ = 0;
    waited_before_ = waited;
  }
  names_.emplace(name);
  signature_ += base::derive_seed(bytes, name);
  return change;
}

std::optional<Tuned> Autotuner::end_step(double seconds) {
  const uint64_t weight = weights_[signature_] += names_.size();
  // The first one has the parameters' broadcasts in it, and what else comes once.
  const bool again = weight > names_.size();
  if (again && scores_.empty() && signature_ != main_ && weight > weights_[main_]) {
    main_ = signature_;
    main_tensors_ = names_.size();
    seconds_.clear();
  }
  if (weights_.size() > kSeenMost) {
    weights_ = {{main_, weights_[main_]}};
  }
  if (signature_ != main_ || main_tensors_ == 0) {
    return std::nullopt;
  }
  seconds_.push_back(seconds);
  if (seconds_.size() < static_cast<size_t>(std::max(options_.steps_per_sample, 1))) {
    return std::nullopt;
  }
  const double mean =
      std::accumulate(seconds_.begin(), seconds_.end(), 0.0) / static_cast<double>(seconds_.size());
  seconds_.clear();
  return end_sample(mean);
}

std::optional<Tuned> Autotuner::end_sample(double score) {
  if (warmups_left_ > 0) {
    --warmups_left_;
    return std::nullopt;
  }
  if (scores_.empty()) {
    if (const auto before = winner_before()) {
      best_ = *before;
      done_ = true;
      base::log_info(fmt::format(
          "comm: autotune: an earlier run of this model on {} ranks found --fusion-threshold-mb "
          "{:g} --cycle-time-ms {:g} ({}); remove that file to search again",
          ranks_, static_cast<double>(best_.fusion_bytes) / kMiB, milliseconds(best_.cycle_time),
          winner_file()));
      return best_ == at(now_) ? std::nullopt : std::optional(best_);
    }
  }
  note(at(now_), score);
  const bool first = scores_.empty();
  scores_[now_] = score;
  if (first || score < kWorthIt * scores_[best_place_]) {
    best_place_ = now_;
    best_ = at(now_);
  }
  const auto next = neighbour();
  if (!next || scores_.size() >= static_cast<size_t>(std::max(options_.samples_most, 1))) {
    return finish();
  }
  now_ = *next;
  return at(now_);
}

/// One next to the best that has no score yet.
std::optional<Autotuner::Place> Autotuner::neighbour() const {
  const auto [fusion, cycle] = best_place_;
  std::vector<Place> places;
  if (!options_.fusion_fixed) {
    places.emplace_back(fusion - 1, cycle);  // wraps below the first one, which is past the end
    places.emplace_back(fusion + 1, cycle);
  }
  if (!options_.cycle_fixed) {
    places.emplace_back(fusion, cycle - 1);
    places.emplace_back(fusion, cycle + 1);
  }
  for (const Place& place : places) {
    if (place.first < fusions_.size() && place.second < cycles_.size() &&
        !scores_.contains(place)) {
      return place;
    }
  }
  return std::nullopt;
}

std::optional<Tuned> Autotuner::finish() {
  done_ = true;
  note(best_, scores_[best_place_]);
  log_.close();
  keep_winner();
  base::log_info(fmt::format(
      "comm: autotune: after {} samples --fusion-threshold-mb {:g} --cycle-time-ms {:g} is best: "
      "a step waits {:.3f} ms for {} tensors",
      scores_.size(), static_cast<double>(best_.fusion_bytes) / kMiB,
      milliseconds(best_.cycle_time), 1e3 * scores_[best_place_], main_tensors_));
  return now_ == best_place_ ? std::nullopt : std::optional(best_);
}

void Autotuner::note(const Tuned& tuned, double score) {
  if (log_.is_open()) {
    log_ << fmt::format("1,1,0,{},{:g},{},{:.9f}\n", options_.cache_enabled ? 1 : 0,
                        milliseconds(tuned.cycle_time), tuned.fusion_bytes, score)
         << std::flush;
  }
}

std::string Autotuner::winner_file() const {
  return fmt::format("{}/{:016x}-{}.json", options_.folder, main_, ranks_);
}

std::optional<Tuned> Autotuner::winner_before() const {
  if (options_.folder.empty() || options_.fusion_fixed || options_.cycle_fixed) {
    return std::nullopt;
  }
  const auto text = base::read_file(winner_file(), 4096);
  if (!text.ok()) {
    return std::nullopt;  // none, as a rule
  }
  const auto json = parse_json(*text);
  const int64_t fusion = json.ok() ? json->get_integer("fusion_bytes", -1) : -1;
  const int64_t cycle = json.ok() ? json->get_integer("cycle_time_us", -1) : -1;
  if (fusion < 0 || cycle < 0 || cycle > kCycleMostUs) {
    base::log_warning(
        fmt::format("comm: autotune: {} cannot be read and is not used", winner_file()));
    return std::nullopt;
  }
  return Tuned{static_cast<uint64_t>(fusion), std::chrono::microseconds(cycle)};
}

void Autotuner::keep_winner() const {
  if (options_.folder.empty() || options_.fusion_fixed || options_.cycle_fixed) {
    return;
  }
  auto good = base::make_folders(options_.folder);
  if (good.ok()) {
    good = base::replace_file(
        winner_file(),
        fmt::format("{{\"fusion_bytes\": {}, \"cycle_time_us\": {}, \"tensors\": {}, "
                    "\"ranks\": {}}}\n",
                    best_.fusion_bytes, best_.cycle_time.count(), main_tensors_, ranks_));
  }
  if (!good.ok()) {
    base::log_warning("comm: autotune: the winner is not kept for the next run: " +
                      good.error().message());
  }
}

}  // namespace headrace::comm
