// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace headrace::run {

namespace {

constexpr int kSlotsMax = 65536;

std::optional<int> count_of(std::string_view text) {
  int count = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool whole = code == std::errc() && end == text.data() + text.size();
  return whole && count >= 1 && count <= kSlotsMax ? std::optional(count) : std::nullopt;
}

Result<Host> parse_host(std::string_view text) {
  std::string_view name = text;
  std::string_view slots;
  bool has_slots = false;
  const size_t bracket = text.find(']');
  const size_t colon = text.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) {
    name = text.substr(0, colon);
    slots = text.substr(colon + 1);
    has_slots = true;
  }
  if (name.starts_with('[') && name.ends_with(']')) {
    name = name.substr(1, name.size() - 2);
  }
  if (name.empty() || name.find_first_of(" \t=") != std::string_view::npos) {
    return Error{Errc::invalid_argument,
                 fmt::format("\"{}\" names no host; write NAME or NAME:SLOTS", text)};
  }
  Host host{std::string(name), 1};
  if (has_slots) {
    const auto count = count_of(slots);
    if (!count) {
      return Error{Errc::invalid_argument,
                   fmt::format("\"{}\": \"{}\" is no number of slots from 1 to {}; an IPv6 address "
                               "stands in brackets",
                               text, slots, kSlotsMax)};
    }
    host.slots = *count;
  }
  return host;
}

Result<void> add(Host host, std::vector<Host>* hosts) {
  for (const Host& other : *hosts) {
    if (other.name == host.name) {
      return Error{
          Errc::invalid_argument,
          fmt::format("the host {} is given twice; give it once, with all its slots", host.name)};
    }
  }
  hosts->push_back(std::move(host));
  return {};
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

Result<Host> parse_hostfile_line(std::string_view line) {
  const size_t blank = line.find_first_of(" \t");
  if (blank == std::string_view::npos) {
    return parse_host(line);
  }
  const std::string_view rest = trimmed(line.substr(blank));
  HR_TRY(Host host, parse_host(line.substr(0, blank)));
  const auto count =
      rest.starts_with("slots=") ? count_of(trimmed(rest.substr(6))) : std::optional<int>();
  if (!count) {
    return Error{Errc::invalid_argument,
                 fmt::format("\"{}\" behind the host's name is not slots=N with N from 1 to {}",
                             rest, kSlotsMax)};
  }
  host.slots = *count;
  return host;
}

}  // namespace

Result<std::vector<Host>> parse_hosts(std::string_view text) {
  std::vector<Host> hosts;
  for (;;) {
    const size_t comma = text.find(',');
    HR_TRY(Host host, parse_host(trimmed(text.substr(0, comma))), "hosts");
    HR_TRY(add(std::move(host), &hosts));
    if (comma == std::string_view::npos) {
      return hosts;
    }
    text.remove_prefix(comma + 1);
  }
}

Result<std::vector<Host>> parse_hostfile(std::string_view text, std::string_view file_name) {
  std::vector<Host> hosts;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) {
      continue;
    }
    const std::string where = fmt::format("{}, line {}", file_name, number);
    HR_TRY(Host host, parse_hostfile_line(line), where);
    Result<void> added = add(std::move(host), &hosts);
    if (!added.ok()) {
      return added.error().add_context(where);
    }
  }
  if (hosts.empty()) {
    return Error{Errc::invalid_argument,
                 fmt::format("{} names no host; write one a line, NAME slots=N", file_name)};
  }
  return hosts;
}

int slots_of(const std::vector<Host>& hosts) {
  int slots = 0;
  for (const Host& host : hosts) {
    slots += host.slots;
  }
  return slots;
}

Result<std::vector<Place>> place_ranks(const std::vector<Host>& hosts, int ranks) {
  if (ranks < 1) {
    return Error{Errc::invalid_argument, fmt::format("{} ranks; there is at least one", ranks)};
  }
  if (slots_of(hosts) < ranks) {
    return Error{
        Errc::invalid_argument,
        fmt::format("{} ranks are asked for, and the hosts have {} slots in all; give more "
                    "slots (-H NAME:SLOTS) or a smaller -np",
                    ranks, slots_of(hosts))};
  }
  std::vector<Place> places;
  std::vector<int> sizes(hosts.size(), 0);
  for (size_t host = 0; host < hosts.size(); ++host) {
    for (; sizes[host] < hosts[host].slots && std::ssize(places) < ranks; ++sizes[host]) {
      places.push_back({.rank = static_cast<int>(places.size()),
                        .size = ranks,
                        .local_rank = sizes[host],
                        .host = host,
                        .host_name = hosts[host].name});
    }
  }
  for (Place& place : places) {
    place.local_size = sizes[place.host];
    place.cross_size = 0;
    for (size_t host = 0; host < hosts.size(); ++host) {
      const bool has_peer = sizes[host] > place.local_rank;
      place.cross_rank += has_peer && host < place.host ? 1 : 0;
      place.cross_size += has_peer ? 1 : 0;
    }
  }
  return places;
}

}  // namespace headrace::run
