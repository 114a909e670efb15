// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/negotiate/negotiator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace headrace::comm {

namespace {

// What a part of a message is; on the wire.
enum class Part : uint8_t { slots, request, join, shutdown, settings, tuned };

constexpr size_t kLastNames = 5;
constexpr uint64_t kCycleMost = 3'600'000'000;  // us

using Requests = std::vector<std::shared_ptr<const Request>>;

/// All ranks that have it say that it belongs to one and the same group.
bool is_grouped(const Requests& requests) {
  const Request& one = first_request(requests);
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

const Request& first_request(std::span<const std::shared_ptr<const Request>> requests) {
  return **std::find_if(requests.begin(), requests.end(),
                        [](const auto& one) { return one != nullptr; });
}

const Request& Agreed::any() const { return first_request(requests); }
bool Agreed::is_whole() const {
  return std::find(requests.begin(), requests.end(), nullptr) == requests.end();
}

Negotiator::Negotiator(int rank, std::vector<int> world_ranks, NegotiatorOptions options)
    : rank_(rank),
      world_ranks_(std::move(world_ranks)),
      options_(std::move(options)),
      settings_(world_ranks_.size()),
      joined_(world_ranks_.size(), false),
      last_names_(world_ranks_.size()) {}

void Negotiator::submit(const std::string& name, const std::string& encoded) {
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

void Negotiator::tune(const Tuned& tuned) {
  MessageWriter out;
  out.number(static_cast<uint64_t>(Part::tuned));
  out.number(tuned.fusion_bytes);
  out.number(static_cast<uint64_t>(tuned.cycle_time.count()));
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
  if (!std::exchange(settings_sent_, true) && !options_.settings.empty()) {
    out.number(static_cast<uint64_t>(Part::settings));
    out.text(options_.settings);
  }
  return std::move(out).bytes() + std::exchange(news_, {});
}

bool Negotiator::take_message(int rank, std::string_view message, base::Micros now) {
  MessageReader in(message);
  while (in.good() && !in.at_end()) {
    switch (static_cast<Part>(in.number(static_cast<uint64_t>(Part::tuned)))) {
      case Part::settings: settings_[static_cast<size_t>(rank)] = in.text(); break;
      case Part::tuned: {
        const uint64_t fusion_bytes = in.number();
        const uint64_t cycle_us = in.number(kCycleMost);
        if (!in.good() || rank != 0) {
          return false;
        }
        options_.fusion_bytes = fusion_bytes;
        tuned_ = Tuned{fusion_bytes, std::chrono::microseconds(cycle_us)};
        break;
      }
      case Part::slots:
        if (!take_slots(rank, in, now)) {
          return false;
        }
        break;
      case Part::request: {
        const std::string name(in.text());
        auto request = decode_request(in.text());
        if (!in.good() || !request.ok()) {
          return false;
        }
        if (const auto slot = slot_of_.find(name); slot != slot_of_.end()) {
          spill(slots_[slot->second]);
        }
        if (observer_) {
          observer_(name, request->kind, rank);
        }
        take(rank, name, std::make_shared<const Request>(*std::move(request)), now);
        remember_name(rank, name);
        break;
      }
      case Part::join:
        for (Slot& slot : slots_) {
          spill(slot);
        }
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

bool Negotiator::take_slots(int rank, MessageReader& in, base::Micros now) {
  const uint64_t first = in.number(slots_.size());
  const uint64_t count = in.number(slots_.size() - first);
  if (!in.good()) {
    return false;
  }
  const auto place = static_cast<size_t>(rank);
  for (uint64_t i = first; i < first + count; ++i) {
    Slot& slot = slots_[i];
    if (observer_) {
      observer_(slot.agreed->name, slot.agreed->requests[place]->kind, rank);
    }
    if (joined_count_ > 0 || table_.contains(slot.agreed->name)) {
      spill(slot);
      take(rank, slot.agreed->name, slot.agreed->requests[place], now);
      continue;
    }
    if (slot.ready_count == 0) {
      slot.since = now;
      slot.order = orders_++;
      ++slots_waiting_;
    }
    slot.ready_count += slot.ready[place] ? 0 : 1;
    slot.ready[place] = true;
    if (slot.ready_count == slot.ready.size()) {
      slots_full_.push_back(static_cast<uint32_t>(i));
    }
  }
  for (uint64_t i = count > kLastNames ? first + count - kLastNames : first; i < first + count;
       ++i) {
    remember_name(rank, slots_[i].agreed->name);
  }
  return true;
}

void Negotiator::remember_name(int rank, const std::string& name) {
  auto& last = last_names_[static_cast<size_t>(rank)];
  last.push_back(name);
  if (last.size() > kLastNames) {
    last.pop_front();
  }
}

void Negotiator::spill(Slot& slot) {
  if (slot.ready_count == 0) {
    return;
  }
  const uint64_t order = slot.order;
  for (size_t rank = 0; rank < slot.ready.size(); ++rank) {
    if (slot.ready[rank]) {
      take(static_cast<int>(rank), slot.agreed->name, slot.agreed->requests[rank], slot.since);
    }
  }
  table_.at(slot.agreed->name).order = order;
  slot.ready.assign(slot.ready.size(), false);
  slot.ready_count = 0;
  --slots_waiting_;
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
}

Result<std::vector<Response>> Negotiator::receive(std::span<const std::string_view> messages,
                                                  base::Micros now) {
  touched_.clear();
  slots_full_.clear();
  joined_now_ = false;
  now_ = now;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    if (!take_message(static_cast<int>(rank), messages[rank], now)) {
      return Error{Errc::corrupt,
                   fmt::format("comm: rank {} sent a message that cannot be read; all "
                               "ranks must run the same version of headrace",
                               world_ranks_[rank])};
    }
  }
  if (auto differ = compare_settings()) {
    return *std::move(differ);
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
  for (Response& response : fuse(std::exchange(to_run_, {}), options_)) {
    out.push_back(std::move(response));
  }
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

std::optional<Error> Negotiator::compare_settings() {
  for (size_t rank = 1; rank < settings_.size(); ++rank) {
    if (settings_[rank] != settings_[0]) {
      return Error{
          Errc::mismatch,
          fmt::format("comm: the settings of ranks differ: rank {} has {}, rank {} has {}; "
                      "start all ranks with the same",
                      world_ranks_[0], settings_[0], world_ranks_[rank], settings_[rank])};
    }
  }
  return std::nullopt;
}

bool Negotiator::is_ready(const Entry& entry) const {
  for (size_t rank = 0; rank < entry.requests.size(); ++rank) {
    if (entry.requests[rank] == nullptr && !joined_[rank]) {
      return false;
    }
  }
  return true;
}

void Negotiator::release_ready(std::vector<Response>& out) {
  for (const uint32_t index : slots_full_) {
    Slot& slot = slots_[index];
    if (slot.ready_count < slot.ready.size()) {
      continue;  // spilled after it was full
    }
    slot.ready.assign(slot.ready.size(), false);
    slot.ready_count = 0;
    slot.used = ++clock_;
    --slots_waiting_;
    release(slot.agreed, std::nullopt, out);
  }
  for (size_t i = 0; i < touched_.size(); ++i) {  // it may grow: a slot that is taken away spills
    const std::string name = touched_[i];
    const auto found = table_.find(name);
    if (found == table_.end() || !is_ready(found->second)) {
      continue;
    }
    auto agreed = std::make_shared<Agreed>();
    agreed->requests = std::move(found->second.requests);
    agreed->name = std::move(table_.extract(found).key());
    auto error = check(*agreed);
    if (!error) {
      remember(agreed);
    }
    release(agreed, std::move(error), out);
  }
}

void Negotiator::release(const ReadyTensor& tensor, std::optional<Error> error,
                         std::vector<Response>& out) {
  if (!is_grouped(tensor->requests)) {
    release_one(tensor, error, out);
    if (error) {
      fail_groups_of(*tensor, *error, out);
    }
    return;
  }
  const Request& request = tensor->any();
  Group& group = groups_[request.group];
  if (group.ready.empty()) {
    group.since = now_;
    group.order = orders_++;
    group.size = request.group_size;
  }
  group.ready.push_back(tensor);
  if (error && !group.error) {
    group.error = std::move(error);
  }
  if (group.ready.size() >= request.group_size) {
    const Group all = std::move(group);
    groups_.erase(request.group);
    for (const ReadyTensor& one : all.ready) {
      release_one(one, all.error, out);
    }
  }
}

/// Ranks do not agree which group it belongs to: none of these groups can be done.
void Negotiator::fail_groups_of(const Agreed& tensor, const Error& error,
                                std::vector<Response>& out) {
  for (const auto& request : tensor.requests) {
    const auto found = request == nullptr ? groups_.end() : groups_.find(request->group);
    if (found != groups_.end()) {
      for (const ReadyTensor& one : found->second.ready) {
        release_one(one, error, out);
      }
      groups_.erase(found);
    }
  }
}

void Negotiator::release_one(const ReadyTensor& tensor, const std::optional<Error>& error,
                             std::vector<Response>& out) {
  if (error) {
    out.push_back({.what = Response::What::fail, .tensors = {tensor}, .error = error});
  } else {
    to_run_.push_back(tensor);
  }
}

uint32_t Negotiator::free_slot() {
  if (slots_.size() < options_.cache_capacity) {
    slots_.emplace_back();
    return static_cast<uint32_t>(slots_.size() - 1);
  }
  const auto oldest = std::min_element(
      slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) { return a.used < b.used; });
  spill(*oldest);
  slot_of_.erase(oldest->agreed->name);
  return static_cast<uint32_t>(oldest - slots_.begin());
}

void Negotiator::remember(const ReadyTensor& tensor) {
  if (options_.cache_capacity == 0 || !tensor->is_whole() || !is_cached(tensor->any().kind)) {
    return;
  }
  const auto known = slot_of_.find(tensor->name);
  const uint32_t index = known != slot_of_.end() ? known->second : free_slot();
  Slot& slot = slots_[index];
  slot = Slot{};
  slot.agreed = tensor;
  slot.used = ++clock_;
  slot.ready.assign(tensor->requests.size(), false);
  for (const auto& request : tensor->requests) {
    slot.encoded.push_back(encode(*request));
  }
  slot_of_[tensor->name] = index;
}

std::optional<Error> Negotiator::check(const Agreed& tensor) const {
  if (auto error = check_agreement(tensor.name, tensor.requests, world_ranks_)) {
    return error;
  }
  std::vector<int> joined;
  for (size_t rank = 0; rank < tensor.requests.size(); ++rank) {
    if (tensor.requests[rank] == nullptr) {
      joined.push_back(world_ranks_[rank]);
    }
  }
  const NamedKind kind = tensor.any().kind;
  if (!joined.empty() && kind != NamedKind::all_reduce && kind != NamedKind::barrier) {
    return Error{
        Errc::mismatch,
        fmt::format("comm: {} \"{}\" is not supported with Join: {} joined and has no data for it",
                    named_kind_name(kind), tensor.name, ranks_text(joined))};
  }
  return std::nullopt;
}

}  // namespace headrace::comm
