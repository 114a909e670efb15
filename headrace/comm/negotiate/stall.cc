// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "headrace/comm/negotiate/negotiator.h"

namespace headrace::comm {

namespace {

constexpr size_t kNamesShown = 6;

/// Letters to insert, remove or change (Levenshtein), for names that are nearly the same.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::optional<Negotiator::Wait> Negotiator::oldest_wait() const {
  std::optional<Wait> oldest;
  uint64_t least = UINT64_MAX;
  const auto self = static_cast<size_t>(rank_);
  const auto look = [&](const std::string& name, NamedKind kind, uint64_t order, auto is_there) {
    if (order >= least || !is_there(self)) {
      return;
    }
    for (size_t rank = 0; rank < world_ranks_.size(); ++rank) {
      if (!is_there(rank)) {
        least = order;
        oldest = Wait{&name, kind, static_cast<int>(rank)};
        return;
      }
    }
  };
  for (const auto& [name, entry] : table_) {
    const auto is_there = [&](size_t rank) {
      return entry.requests[rank] != nullptr || joined_[rank];
    };
    look(name, first_request(entry.requests).kind, entry.order, is_there);
  }
  for (const Slot& slot : slots_) {
    if (slot.ready_count > 0) {
      look(slot.agreed->name, slot.agreed->any().kind, slot.order,
           [&](size_t rank) { return slot.ready[rank]; });
    }
  }
  return oldest;
}

std::vector<Stall> Negotiator::stalled(base::Micros since) const {
  std::vector<std::pair<uint64_t, Stall>> found;
  const auto add = [&](const std::string& name, base::Micros first, uint64_t order, auto is_there) {
    if (first > since) {
      return;
    }
    Stall stall{.name = name, .since = first, .ready = {}, .missing = {}};
    for (size_t rank = 0; rank < world_ranks_.size(); ++rank) {
      (is_there(rank) ? stall.ready : stall.missing).push_back(static_cast<int>(rank));
    }
    if (!stall.missing.empty()) {
      found.emplace_back(order, std::move(stall));
    }
  };
  for (const auto& [name, entry] : table_) {
    add(name, entry.since, entry.order,
        [&](size_t rank) { return entry.requests[rank] != nullptr || joined_[rank]; });
  }
  for (const Slot& slot : slots_) {
    if (slot.ready_count > 0) {
      add(slot.agreed->name, slot.since, slot.order, [&](size_t rank) { return slot.ready[rank]; });
    }
  }
  for (const auto& [key, group] : groups_) {
    const std::string name = fmt::format("{} (with {} of the {} members of its group)",
                                         group.ready.front()->name, group.ready.size(), group.size);
    if (group.since <= since) {  // all ranks have these members; nobody has the others
      Stall stall{.name = name, .since = group.since, .ready = {}, .missing = {}};
      for (size_t rank = 0; rank < world_ranks_.size(); ++rank) {
        stall.ready.push_back(static_cast<int>(rank));
        stall.missing.push_back(static_cast<int>(rank));
      }
      found.emplace_back(group.order, std::move(stall));
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Stall> out;
  for (auto& [order, stall] : found) {
    out.push_back(std::move(stall));
  }
  return out;
}

std::string Negotiator::nearest_pending(const std::string& name, int rank) const {
  std::string best;
  size_t distance = name.size() / 2 + 1;  // beyond that they have nothing in common
  const auto look = [&](const std::string& other) {
    const size_t of_other = other == name ? distance + 1 : edit_distance(name, other);
    if (of_other < distance || (of_other == distance && !best.empty() && other < best)) {
      best = other;
      distance = of_other;
    }
  };
  for (const auto& [other, entry] : table_) {
    if (entry.requests[static_cast<size_t>(rank)] != nullptr) {
      look(other);
    }
  }
  for (const Slot& slot : slots_) {
    if (slot.ready_count > 0 && slot.ready[static_cast<size_t>(rank)]) {
      look(slot.agreed->name);
    }
  }
  return best;
}

std::string Negotiator::stall_report(const std::vector<Stall>& stalls, base::Micros now) const {
  std::string text =
      "one or more tensors were submitted by a subset of ranks, which wait for the others:";
  for (size_t i = 0; i < std::min(stalls.size(), kNamesShown); ++i) {
    const Stall& stall = stalls[i];
    std::vector<int> ready;
    for (const int rank : stall.ready) {
      ready.push_back(world_ranks_[static_cast<size_t>(rank)]);
    }
    text += fmt::format("\n  {} for {} s on {}", stall.name,
                        std::chrono::duration_cast<std::chrono::seconds>(now - stall.since).count(),
                        ranks_text(ready));
  }
  if (stalls.size() > kNamesShown) {
    text += fmt::format("\n  and {} more", stalls.size() - kNamesShown);
  }
  text += "\nMissing ranks:";
  for (size_t rank = 0; rank < world_ranks_.size(); ++rank) {
    std::vector<std::string> names;
    for (const Stall& stall : stalls) {
      if (std::find(stall.missing.begin(), stall.missing.end(), static_cast<int>(rank)) !=
          stall.missing.end()) {
        names.push_back(stall.name);
      }
    }
    if (names.empty()) {
      continue;
    }
    const size_t more = names.size() - std::min(names.size(), kNamesShown);
    const std::string first = names.front();
    names.resize(std::min(names.size(), kNamesShown));
    text += fmt::format("\n{}: [{}{}]", world_ranks_[rank], fmt::join(names, ", "),
                        more == 0 ? "" : fmt::format(", and {} more", more));
    if (const auto near = nearest_pending(first, static_cast<int>(rank)); !near.empty()) {
      text += fmt::format("; it waits for \"{}\" itself", near);
    }
    const auto& last = last_names_[rank];
    text += last.empty() ? "; it has submitted nothing so far"
                         : fmt::format("; its last: {}", fmt::join(last, ", "));
  }
  return text;
}

}  // namespace headrace::comm
