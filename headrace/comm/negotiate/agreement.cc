// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "headrace/comm/algo/told_name.h"
#include "headrace/comm/negotiate/negotiator.h"

namespace headrace::comm {

namespace {

using Requests = std::span<const std::shared_ptr<const Request>>;
using TextOf = std::function<std::string(const Request&)>;

constexpr size_t kRanksShown = 8;

bool has_rows(NamedKind kind) {
  return kind == NamedKind::all_gather || kind == NamedKind::all_to_all ||
         kind == NamedKind::reduce_scatter;
}

/// "float32 on ranks 0-2, float64 on rank 3"; empty when all are equal.
std::string differences(Requests requests, std::span<const int> world_ranks,
                        const TextOf& text_of) {
  std::vector<std::pair<std::string, std::vector<int>>> values;
  for (size_t rank = 0; rank < requests.size(); ++rank) {
    if (requests[rank] == nullptr) {
      continue;
    }
    std::string text = text_of(*requests[rank]);
    auto found = std::find_if(values.begin(), values.end(),
                              [&](const auto& one) { return one.first == text; });
    if (found == values.end()) {
      found = values.insert(found, {std::move(text), {}});
    }
    found->second.push_back(world_ranks[rank]);
  }
  if (values.size() < 2) {
    return {};
  }
  std::string all;
  for (const auto& [text, ranks] : values) {
    all += fmt::format("{}{} on {}", all.empty() ? "" : ", ", text, ranks_text(ranks));
  }
  return all;
}

std::optional<std::string> shape_problem(NamedKind kind, Requests requests,
                                         std::span<const int> world_ranks) {
  const auto differ = [&](const TextOf& text_of) {
    return differences(requests, world_ranks, text_of);
  };
  const std::string_view name = named_kind_name(kind);
  if (kind == NamedKind::all_gather || kind == NamedKind::all_to_all) {
    if (const auto text =
            differ([](const Request& r) { return fmt::format("{}", r.shape.size()); });
        !text.empty()) {
      return fmt::format("Mismatched {} tensor shapes: number of dimensions is {}", name, text);
    }
    const size_t dimensions = first_request(requests).shape.size();
    for (size_t d = 1; d < dimensions; ++d) {
      if (const auto text = differ([d](const Request& r) { return fmt::format("{}", r.shape[d]); });
          !text.empty()) {
        return fmt::format("Mismatched {} tensor shapes: dimension {} is {}", name, d, text);
      }
    }
  } else if (const auto text = differ([](const Request& r) { return shape_text(r.shape); });
             !text.empty()) {
    return fmt::format("Mismatched {} tensor shapes: {}", name, text);
  }
  return std::nullopt;
}

std::optional<std::string> problem(Requests requests, std::span<const int> world_ranks) {
  const auto differ = [&](const TextOf& text_of) {
    return differences(requests, world_ranks, text_of);
  };
  if (const auto text =
          differ([](const Request& r) { return std::string(named_kind_name(r.kind)); });
      !text.empty()) {
    return "Mismatched operations: " + text;
  }
  const Request& one = first_request(requests);
  if (const auto text = differ([](const Request& r) { return std::string(dtype_name(r.dtype)); });
      !text.empty()) {
    return "Mismatched data types: " + text;
  }
  if (has_rows(one.kind) && std::any_of(requests.begin(), requests.end(), [](const auto& r) {
        return r != nullptr && r->shape.empty();
      })) {
    return fmt::format("{} of a rank-zero tensor: it needs at least one dimension",
                       named_kind_name(one.kind));
  }
  if (auto text = shape_problem(one.kind, requests, world_ranks)) {
    return text;
  }
  if (is_reduction(one.kind)) {
    if (const auto text = differ([](const Request& r) { return std::string(op_name(r.op)); });
        !text.empty()) {
      return "Mismatched reduction operation: " + text;
    }
    if (const auto text = differ(
            [](const Request& r) { return fmt::format("{} and {}", r.prescale, r.postscale); });
        !text.empty()) {
      return "Mismatched prescale and/or postscale factors: " + text;
    }
    if (const auto text = differ([](const Request& r) {
          return r.wire16 ? std::string(wire16_name(*r.wire16)) : std::string("as the job");
        });
        !text.empty()) {
      return "Mismatched types on the wire: " + text;
    }
  }
  if (const auto text = differ([&](const Request& r) {
        return fmt::format("{}", world_ranks[static_cast<size_t>(r.root)]);
      });
      one.kind == NamedKind::broadcast && !text.empty()) {
    return "Mismatched broadcast root ranks: " + text;
  }
  if (const auto text = differ([](const Request& r) { return shape_text(r.splits); });
      one.kind != NamedKind::all_to_all && !text.empty()) {
    return "Mismatched process sets: " + text;
  }
  if (const auto text = differ([](const Request& r) {
        return fmt::format("\"{}\" of {}", told_name(r.group), r.group_size);
      });
      !text.empty()) {
    return "Mismatched groups: " + text;
  }
  return std::nullopt;
}

}  // namespace

std::string ranks_text(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  size_t shown = 0;
  for (size_t i = 0; i < ranks.size() && shown < kRanksShown;) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) {
      ++end;
    }
    text += shown == 0 ? "" : ", ";
    text +=
        end - i == 1 ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[end - 1]);
    ++shown;
    i = end;
    if (shown == kRanksShown && i < ranks.size()) {
      text += fmt::format(" and {} more", ranks.size() - i);
    }
  }
  return text;
}

std::optional<Error> check_agreement(const std::string& name, Requests requests,
                                     std::span<const int> world_ranks) {
  for (const auto& one : requests) {
    if (one != nullptr && one->root >= static_cast<int>(world_ranks.size())) {
      return Error{Errc::mismatch, fmt::format("comm: \"{}\": root {} is not in the process set",
                                               told_name(name), one->root)};
    }
  }
  const auto what = problem(requests, world_ranks);
  for (size_t rank = 0; rank < requests.size() && !what; ++rank) {
    const auto& one = requests[rank];
    if (one != nullptr && one->kind == NamedKind::all_to_all &&
        one->splits.size() != world_ranks.size()) {
      return Error{Errc::mismatch,
                   fmt::format("comm: \"{}\": rank {} sent {} splits for {} ranks", told_name(name),
                               world_ranks[rank], one->splits.size(), world_ranks.size())};
    }
  }
  if (what) {
    return Error{Errc::mismatch, fmt::format("comm: \"{}\": {}", told_name(name), *what)};
  }
  return std::nullopt;
}

}  // namespace headrace::comm
