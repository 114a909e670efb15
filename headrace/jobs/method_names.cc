// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/method_names.h"

#include <array>

namespace headrace::jobs {

namespace {

struct Names {
  std::string_view candidate;
  std::string_view label;
  std::string_view spoken;
};

constexpr std::array<Names, 6> kNames = {{
    {"local", "local", "DeepAR local"},
    {"global", "global", "DeepAR global"},
    {"earlier", "earlier", "earlier DeepAR"},
    {"seasonal_naive", "seasonal naive (intervals)", "seasonal naive (intervals)"},
    {"naive2", "Naive2 (intervals)", "Naive2 (intervals)"},
    {"last_value", "last value", "last value"},
}};

constexpr std::string_view kWithNaive = "+naive";

std::string_view find(std::string_view candidate, std::string_view Names::* column) {
  for (const Names& names : kNames) {
    if (names.candidate == candidate) {
      return names.*column;
    }
  }
  return candidate;
}

}  // namespace

std::string candidate_label(std::string_view candidate) {
  return std::string(find(candidate, &Names::label));
}

std::string spoken_candidate(std::string_view candidate) {
  if (candidate.ends_with(kWithNaive)) {
    candidate.remove_suffix(kWithNaive.size());
    return std::string(find(candidate, &Names::spoken)) + ", averaged with seasonal naive";
  }
  return std::string(find(candidate, &Names::spoken));
}

}  // namespace headrace::jobs
