// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

#include "headrace/base/cores_internal.h"
#include "headrace/base/pool.h"

namespace headrace::base {

namespace {

std::string_view trimmed(std::string_view text) {
  const size_t end = text.find_first_of(" \n");
  return text.substr(0, end);
}

std::optional<double> number_in(std::string_view text) {
  double value = 0.0;
  const std::string_view digits = trimmed(text);
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (code != std::errc() || end != digits.data() + digits.size() || value <= 0.0) {
    return std::nullopt;  // "max" and -1 mean no quota
  }
  return value;
}

/// Quota of one folder of the v2 tree ("200000 100000" or "max 100000") or of v1's two files.
std::optional<double> quota_of(const Path& folder) {
  const auto cpu_max = read_file(folder / "cpu.max", 4096);
  if (cpu_max.ok()) {
    const size_t blank = cpu_max->find(' ');
    const auto quota = number_in(*cpu_max);
    const auto period =
        blank == std::string::npos ? std::nullopt : number_in(cpu_max->substr(blank + 1));
    return quota && period ? std::optional<double>(*quota / *period) : std::nullopt;
  }
  const auto quota_us = read_file(folder / "cpu.cfs_quota_us", 4096);
  const auto period_us = read_file(folder / "cpu.cfs_period_us", 4096);
  if (!quota_us.ok() || !period_us.ok()) {
    return std::nullopt;
  }
  const auto quota = number_in(*quota_us);
  const auto period = number_in(*period_us);
  return quota && period ? std::optional<double>(*quota / *period) : std::nullopt;
}

/// Least quota from `root`/`group` up to `root`. Folders that are not there (a container sees its
/// own group as the root) are passed over.
std::optional<double> least_quota(const Path& root, const Path& group) {
  std::optional<double> least = quota_of(root);
  Path folder = root;
  for (const Path& part : group.relative_path()) {
    folder /= part;
    const std::optional<double> quota = quota_of(folder);
    if (quota && (!least || *quota < *least)) {
      least = quota;
    }
  }
  return least;
}

bool lists_cpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == "cpu") {
      return true;
    }
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

int affinity_cores() {
  for (int cpus = 1024; cpus <= (1 << 20); cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(cpus));
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    const bool good = ::sched_getaffinity(0, bytes, set) == 0;
    const int count = good ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (good) {
      return std::max(1, count);
    }
  }
  return 1;
}

}  // namespace

std::optional<double> cgroup_core_quota(const Path& membership, const Path& root) {
  const auto text = read_file(membership, 1 << 20);
  if (!text.ok()) {
    return std::nullopt;
  }
  std::string_view rest = *text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) {
      continue;
    }
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const Path group(line.substr(second + 1));
    std::optional<double> quota;
    if (controllers.empty()) {
      quota = least_quota(root, group);
    } else if (lists_cpu(controllers)) {
      const Path joined = root / Path(controllers);
      quota = least_quota(std::filesystem::exists(joined) ? joined : root / "cpu", group);
    }
    if (quota) {
      return quota;
    }
  }
  return std::nullopt;
}

int usable_cores() {
  const int cores = affinity_cores();
  const auto quota = cgroup_core_quota("/proc/self/cgroup", "/sys/fs/cgroup");
  return quota ? std::clamp(static_cast<int>(std::ceil(*quota)), 1, cores) : cores;
}

}  // namespace headrace::base
