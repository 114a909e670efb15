// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/negotiate/negotiator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace headrace::comm {

namespace {

// What a part of a message is; on the wire.
enum class Part : uint8_t { slots, request, join, shutdown };

constexpr size_t kLastNames = 5;

Response single(Response::What what, ReadyTensor tensor, std::optional<Error> error = {}) {
  Response response;
  response.what = what;
  response.tensors.push_back(std::move(tensor));
  response.error = std::move(error);
  return response;
}

using Requests = std::vector<std::shared_ptr<const Request>>;

Requests::const_iterator first_of(const Requests& requests) {
  return std::find_if(requests.begin(), requests.end(),
                      [](const auto& one) { return one != nullptr; });
}

/// All ranks that have it say that it belongs to one and the same group.
bool is_grouped(const Requests& requests) {
  const Request& one = **first_of(requests);
  return !one.group.empty() &&
         std::all_of(requests.begin(), requests.end(), [&](const auto& other) {
           return other == nullptr ||
                  (other->group == one.group && other->group_size == one.group_size);
         });
}

bool is_cached(NamedKind kind) {
  return kind != NamedKind::barrier && kind != NamedKind::add_set && kind != NamedKind::remove_set;
}

}  // namespace

const Request& ReadyTensor::any() const { return **first_of(requests); }

Negotiator::Negotiator(int rank, std::vector<int> world_ranks, NegotiatorOptions options)
    : rank_(rank),
      world_ranks_(std::move(world_ranks)),
      options_(options),
      joined_(world_ranks_.size(), false),
      last_names_(world_ranks_.size()) {}

void Negotiator::submit(const std::string& name, const Request& request) {
  std::string encoded = encode(request);
  const auto slot = slot_of_.find(name);
  if (slot != slot_of_.end() &&
      slots_[slot->second].encoded[static_cast<size_t>(rank_)] == encoded) {
    slots_ready_.push_back(slot->second);
    return;
  }
  MessageWriter out;
  out.number(static_cast<uint64_t>(Part::request));
  out.text(name);
  out.text(encoded);
  news_ += out.bytes();
}

void Negotiator::join() {
  MessageWriter out;
  out.number(static_cast<uint64_t>(Part::join));
  news_ += out.bytes();
}

void Negotiator::shutdown(Errc code, std::string_view reason) {
  MessageWriter out;
  out.number(static_cast<uint64_t>(Part::shutdown));
  out.number(static_cast<uint64_t>(code));
  out.text(reason);
  news_ += out.bytes();
}

std::string Negotiator::message() {
  MessageWriter out;
  for (size_t i = 0; i < slots_ready_.size();) {
    size_t end = i + 1;
    while (end < slots_ready_.size() && slots_ready_[end] == slots_ready_[end - 1] + 1) {
      ++end;
    }
    out.number(static_cast<uint64_t>(Part::slots));
    out.number(slots_ready_[i]);
    out.number(end - i);
    i = end;
  }
  slots_ready_.clear();
  return std::move(out).bytes() + std::exchange(news_, {});
}

bool Negotiator::take_message(int rank, std::string_view message, base::Micros now) {
  MessageReader in(message);
  while (in.good() && !in.at_end()) {
    switch (static_cast<Part>(in.number(static_cast<uint64_t>(Part::shutdown)))) {
      case Part::slots: {
        const uint64_t first = in.number(slots_.size());
        const uint64_t count = in.number(slots_.size() - first);
        for (uint64_t i = first; in.good() && i < first + count; ++i) {
          take(rank, slots_[i].name, slots_[i].requests[static_cast<size_t>(rank)], now);
        }
        break;
      }
      case Part::request: {
        const std::string name(in.text());
        auto request = decode_request(in.text());
        if (!in.good() || !request.ok()) {
          return false;
        }
        take(rank, name, std::make_shared<const Request>(*std::move(request)), now);
        break;
      }
      case Part::join:
        joined_now_ = true;
        joined_count_ += joined_[static_cast<size_t>(rank)] ? 0 : 1;
        joined_[static_cast<size_t>(rank)] = true;
        joined_last_ = rank;
        break;
      case Part::shutdown: {
        const auto code = static_cast<Errc>(in.number(static_cast<uint64_t>(Errc::internal)));
        const std::string reason(in.text());
        if (in.good() && !end_) {
          end_ = Response{
              .what = Response::What::shutdown, .error = Error(code, reason), .rank = rank};
        }
        break;
      }
    }
  }
  return in.good();
}

void Negotiator::take(int rank, const std::string& name, std::shared_ptr<const Request> request,
                      base::Micros now) {
  const auto [found, is_new] = table_.try_emplace(name);
  Entry& entry = found->second;
  if (is_new) {
    entry.requests.resize(world_ranks_.size());
    entry.since = now;
    entry.order = orders_++;
  }
  entry.requests[static_cast<size_t>(rank)] = std::move(request);
  touched_.push_back(name);
  auto& last = last_names_[static_cast<size_t>(rank)];
  last.push_back(name);
  if (last.size() > kLastNames) {
    last.pop_front();
  }
}

Result<std::vector<Response>> Negotiator::receive(std::span<const std::string_view> messages,
                                                  base::Micros now) {
  touched_.clear();
  joined_now_ = false;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    if (!take_message(static_cast<int>(rank), messages[rank], now)) {
      return Error{Errc::corrupt,
                   fmt::format("comm: rank {} sent a message that cannot be read; all "
                               "ranks must run the same version of headrace",
                               world_ranks_[rank])};
    }
  }
  if (joined_now_) {  // what waited for those that have joined waits no longer
    std::vector<std::pair<uint64_t, std::string>> all;
    for (const auto& [name, entry] : table_) {
      all.emplace_back(entry.order, name);
    }
    std::sort(all.begin(), all.end());
    touched_.clear();
    for (auto& [order, name] : all) {
      touched_.push_back(std::move(name));
    }
  }
  std::vector<Response> out;
  release_ready(out);
  out = fuse(std::move(out), options_);
  if (joined_count_ == static_cast<int>(joined_.size())) {
    out.push_back(Response{.what = Response::What::joined, .rank = joined_last_});
    joined_.assign(joined_.size(), false);
    joined_count_ = 0;
  }
  if (end_) {
    out.push_back(*std::exchange(end_, std::nullopt));
  }
  return out;
}

bool Negotiator::is_ready(const Entry& entry) const {
  for (size_t rank = 0; rank < entry.requests.size(); ++rank) {
    if (entry.requests[rank] == nullptr && !joined_[rank]) {
      return false;
    }
  }
  return !entry.released;
}

void Negotiator::release_ready(std::vector<Response>& out) {
  for (const std::string& name : touched_) {
    const auto found = table_.find(name);
    if (found == table_.end() || !is_ready(found->second)) {
      continue;
    }
    Entry& entry = found->second;
    entry.released = true;
    auto error = check(name, entry);
    if (is_grouped(entry.requests)) {
      release_grouped(name, entry, std::move(error), out);
    } else {
      release({name}, std::move(error), out);
    }
  }
}

void Negotiator::release_grouped(const std::string& name, const Entry& entry,
                                 std::optional<Error> error, std::vector<Response>& out) {
  const Request& request = **first_of(entry.requests);
  const std::string key = request.group;
  const uint32_t size = request.group_size;
  Group& group = groups_[key];
  group.ready.push_back(name);
  if (error && !group.error) {
    group.error = std::move(error);
  }
  if (group.ready.size() >= size) {
    Group all = std::move(group);
    groups_.erase(key);
    release(std::move(all.ready), std::move(all.error), out);
  }
}

void Negotiator::release(std::vector<std::string> names, std::optional<Error> error,
                         std::vector<Response>& out) {
  for (std::string& name : names) {
    auto entry = table_.extract(name);
    ReadyTensor tensor{std::move(name), std::move(entry.mapped().requests)};
    if (!error) {
      remember(tensor);
    }
    out.push_back(
        single(error ? Response::What::fail : Response::What::run, std::move(tensor), error));
  }
}

void Negotiator::remember(const ReadyTensor& tensor) {
  const bool whole = std::all_of(tensor.requests.begin(), tensor.requests.end(),
                                 [](const auto& one) { return one != nullptr; });
  if (options_.cache_capacity == 0 || !whole || !is_cached(tensor.any().kind)) {
    return;
  }
  uint32_t index = 0;
  const auto known = slot_of_.find(tensor.name);
  if (known != slot_of_.end()) {
    index = known->second;
  } else if (slots_.size() < options_.cache_capacity) {
    index = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    const auto oldest = std::min_element(
        slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) { return a.used < b.used; });
    index = static_cast<uint32_t>(oldest - slots_.begin());
    slot_of_.erase(oldest->name);
    *oldest = Slot{};
  }
  Slot& slot = slots_[index];
  slot.used = ++clock_;
  if (slot.requests == tensor.requests) {
    return;
  }
  if (known == slot_of_.end()) {
    slot.name = tensor.name;
    slot_of_[tensor.name] = index;
    slot.encoded.resize(tensor.requests.size());
    slot.requests.resize(tensor.requests.size());
  }
  for (size_t rank = 0; rank < tensor.requests.size(); ++rank) {
    if (slot.requests[rank] != tensor.requests[rank]) {
      slot.requests[rank] = tensor.requests[rank];
      slot.encoded[rank] = encode(*tensor.requests[rank]);
    }
  }
}

std::optional<Error> Negotiator::check(const std::string& name, const Entry& entry) const {
  if (auto error = check_agreement(name, entry.requests, world_ranks_)) {
    return error;
  }
  std::vector<int> joined;
  NamedKind kind{};
  for (size_t rank = 0; rank < entry.requests.size(); ++rank) {
    if (entry.requests[rank] == nullptr) {
      joined.push_back(world_ranks_[rank]);
    } else {
      kind = entry.requests[rank]->kind;
    }
  }
  if (!joined.empty() && kind != NamedKind::allreduce && kind != NamedKind::barrier) {
    return Error{
        Errc::mismatch,
        fmt::format("comm: {} \"{}\" is not supported with Join: {} joined and has no data for it",
                    named_kind_name(kind), name, ranks_text(joined))};
  }
  return std::nullopt;
}

}  // namespace headrace::comm
