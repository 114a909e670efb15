// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "headrace/base/printable.h"
#include "headrace/wire/store.h"

namespace headrace::wire {

namespace {

constexpr size_t kEntryBytes = 128;   // what a map's node and two strings cost, about
constexpr size_t kNamedKeysMax = 64;  // missing keys that the answer to a wait names

size_t cost_of(std::string_view key, std::string_view value) {
  return key.size() + value.size() + kEntryBytes;
}

std::optional<int64_t> number_of(std::string_view text) {
  int64_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || end.ec != std::errc() || end.ptr != text.data() + text.size()) {
    return std::nullopt;
  }
  return number;
}

base::Micros after(base::Micros now, uint64_t milliseconds, uint64_t most) {
  return now + std::chrono::milliseconds(static_cast<int64_t>(std::min(milliseconds, most)));
}

}  // namespace

// ---- requests ----

/// What is wrong with a request, whoever sent it.
std::optional<std::string> StoreState::bad_request(StoreOp op, const StoreMessage& request) const {
  size_t least = 1;
  size_t most = 1;
  size_t keys = 1;  // the first of the texts that are keys
  switch (op) {
    case StoreOp::set: least = most = 2; break;
    case StoreOp::get:
    case StoreOp::add:
    case StoreOp::remove: break;
    case StoreOp::wait: most = keys = request.texts.size(); break;
    case StoreOp::compare_and_set: least = 2, most = 3; break;
    case StoreOp::list: least = most = 2, keys = 0; break;
    case StoreOp::wait_count: keys = 0; break;
    default: return fmt::format("there is no operation {}", static_cast<unsigned>(op));
  }
  if (request.texts.size() < least || request.texts.size() > most) {
    return fmt::format("operation {} with {} texts", static_cast<unsigned>(op),
                       request.texts.size());
  }
  for (size_t i = 0; i < request.texts.size(); ++i) {
    const std::string& text = request.texts[i];
    const bool value = (op == StoreOp::set || op == StoreOp::compare_and_set) && i > 0;
    if (i < keys && text.empty()) {
      return "a key is empty";
    }
    if (!value && text.size() > limits_.key_bytes_max) {
      return fmt::format("a key has {} bytes; at most {} may be", text.size(),
                         limits_.key_bytes_max);
    }
    if (value && text.size() > limits_.value_bytes_max) {
      return fmt::format("the value of \"{}\" has {} bytes; at most {} may be",
                         base::printable(request.texts.front()), text.size(),
                         limits_.value_bytes_max);
    }
  }
  return std::nullopt;
}

void StoreState::on_request(Client client, StoreOp op, StoreMessage request, base::Micros now) {
  on_time(now);  // nobody sees a key after its end
  if (auto bad = bad_request(op, request)) {
    return answer(client, op, request.id, StoreStatus::refused, 0, {*std::move(bad)});
  }
  switch (op) {
    case StoreOp::set: return set(client, request, now);
    case StoreOp::get: return get(client, request);
    case StoreOp::wait: return wait(client, std::move(request), now);
    case StoreOp::add: return add(client, request);
    case StoreOp::compare_and_set: return compare_and_set(client, request, now);
    case StoreOp::remove: return remove(client, request);
    case StoreOp::list: return list(client, request);
    case StoreOp::wait_count: return wait_count(client, request, now);
  }
}

void StoreState::answer(Client client, StoreOp op, uint64_t request, StoreStatus status,
                        int64_t number, std::vector<std::string> texts) {
  answers_.push_back({.client = client,
                      .op = op,
                      .message = {.id = request,
                                  .number = number,
                                  .detail = static_cast<uint64_t>(status),
                                  .texts = std::move(texts)}});
}

void StoreState::set(Client client, const StoreMessage& request, Time now) {
  std::optional<Time> ends;
  if (request.detail > 0) {
    ends = after(now, request.detail, limits_.wait_ms_max);
  }
  const bool kept = put(request.texts[0], request.texts[1], ends);
  answer(client, StoreOp::set, request.id, kept ? StoreStatus::ok : StoreStatus::full, 0,
         kept ? std::vector<std::string>()
              : std::vector<std::string>{fmt::format("the store holds {} of at most {} bytes",
                                                     bytes_, limits_.total_bytes_max)});
}

void StoreState::get(Client client, const StoreMessage& request) {
  const auto at = entries_.find(request.texts[0]);
  if (at == entries_.end()) {
    return answer(client, StoreOp::get, request.id, StoreStatus::not_found);
  }
  answer(client, StoreOp::get, request.id, StoreStatus::ok, 0, {at->second.value});
}

void StoreState::add(Client client, const StoreMessage& request) {
  const std::string& key = request.texts[0];
  const auto at = entries_.find(key);
  std::optional<int64_t> number = 0;
  std::optional<Time> ends;
  if (at != entries_.end()) {
    number = number_of(at->second.value);
    ends = at->second.ends;
  }
  int64_t sum = 0;
  if (!number.has_value() || __builtin_add_overflow(*number, request.number, &sum)) {
    return answer(client, StoreOp::add, request.id, StoreStatus::mismatch, 0,
                  {number.has_value() ? fmt::format("{} + {} is too large", *number, request.number)
                                      : "its value is no whole number"});
  }
  if (!put(key, std::to_string(sum), ends)) {
    return answer(
        client, StoreOp::add, request.id, StoreStatus::full, 0,
        {fmt::format("the store holds {} of at most {} bytes", bytes_, limits_.total_bytes_max)});
  }
  answer(client, StoreOp::add, request.id, StoreStatus::ok, sum);
}

void StoreState::compare_and_set(Client client, const StoreMessage& request, Time now) {
  const auto at = entries_.find(request.texts[0]);
  const bool there = at != entries_.end();
  const bool expected_there = request.texts.size() == 3;
  const bool same = there == expected_there && (!there || at->second.value == request.texts[2]);
  if (!same) {
    return answer(client, StoreOp::compare_and_set, request.id, StoreStatus::ok, 0,
                  there ? std::vector<std::string>{at->second.value} : std::vector<std::string>());
  }
  std::optional<Time> ends;
  if (request.detail > 0) {
    ends = after(now, request.detail, limits_.wait_ms_max);
  }
  if (!put(request.texts[0], request.texts[1], ends)) {
    return answer(
        client, StoreOp::compare_and_set, request.id, StoreStatus::full, 0,
        {fmt::format("the store holds {} of at most {} bytes", bytes_, limits_.total_bytes_max)});
  }
  answer(client, StoreOp::compare_and_set, request.id, StoreStatus::ok, 1, {request.texts[1]});
}

void StoreState::remove(Client client, const StoreMessage& request) {
  const auto at = entries_.find(request.texts[0]);
  const bool there = at != entries_.end();
  if (there) {
    erase(at);
  }
  answer(client, StoreOp::remove, request.id, StoreStatus::ok, there ? 1 : 0);
}

void StoreState::list(Client client, const StoreMessage& request) {
  const std::string& prefix = request.texts[0];
  const std::string& behind = request.texts[1];
  auto at = behind.empty() || behind < prefix ? entries_.lower_bound(prefix)
                                              : entries_.upper_bound(behind);
  std::vector<std::string> texts;
  size_t bytes = 0;
  for (; at != entries_.end() && at->first.starts_with(prefix); ++at) {
    bytes += at->first.size() + at->second.value.size() + 2 * sizeof(uint32_t);
    if (bytes > limits_.list_bytes_max && !texts.empty()) {
      return answer(client, StoreOp::list, request.id, StoreStatus::ok, 1, std::move(texts));
    }
    texts.push_back(at->first);
    texts.push_back(at->second.value);
  }
  answer(client, StoreOp::list, request.id, StoreStatus::ok, 0, std::move(texts));
}

// ---- waits ----

/// Whether one more wait is within the bounds; else its answer is under way.
bool StoreState::may_wait(Client client, const StoreMessage& request, StoreOp op, size_t keys) {
  const auto own = waits_by_client_.find(client);
  if (own != waits_by_client_.end() && own->second.size() >= limits_.waits_per_client_max) {
    answer(client, op, request.id, StoreStatus::full, 0,
           {fmt::format("this client has {} waits already", own->second.size())});
    return false;
  }
  if (wait_keys_ + keys > limits_.wait_keys_max) {
    answer(client, op, request.id, StoreStatus::full, 0,
           {fmt::format("all waits together name {} of at most {} keys; wait for the count of a "
                        "prefix instead",
                        wait_keys_, limits_.wait_keys_max)});
    return false;
  }
  return true;
}

void StoreState::wait(Client client, StoreMessage request, Time now) {
  std::vector<std::string> keys = std::move(request.texts);
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  const auto missing =
      static_cast<size_t>(std::count_if(keys.begin(), keys.end(), [this](const std::string& key) {
        return !entries_.contains(key);
      }));
  if (missing == 0) {
    return answer(client, StoreOp::wait, request.id, StoreStatus::ok);
  }
  if (!may_wait(client, request, StoreOp::wait, keys.size())) {
    return;
  }
  begin_wait({.client = client,
              .request = request.id,
              .op = StoreOp::wait,
              .ends = after(now, request.detail, limits_.wait_ms_max),
              .keys = std::move(keys),
              .missing = missing});
  on_time(now);  // a wait of no time is a question
}

void StoreState::wait_count(Client client, const StoreMessage& request, Time now) {
  const std::string& text = request.texts[0];
  auto prefix = prefixes_.find(text);
  int64_t count = 0;
  if (prefix != prefixes_.end()) {
    count = prefix->second.count;
  } else {
    for (auto at = entries_.lower_bound(text); at != entries_.end() && at->first.starts_with(text);
         ++at) {
      ++count;
    }
  }
  if (count >= request.number) {
    return answer(client, StoreOp::wait_count, request.id, StoreStatus::ok, count);
  }
  if (!may_wait(client, request, StoreOp::wait_count, 1)) {
    return;
  }
  if (prefix == prefixes_.end()) {
    prefix = prefixes_.emplace(text, Prefix{.count = count, .waits = {}}).first;
  }
  const WaitId id = begin_wait({.client = client,
                                .request = request.id,
                                .op = StoreOp::wait_count,
                                .ends = after(now, request.detail, limits_.wait_ms_max),
                                .keys = {text},
                                .count = request.number});
  prefix->second.waits.emplace(request.number, id);
  on_time(now);
}

StoreState::WaitId StoreState::begin_wait(Wait wait) {
  const WaitId id = next_wait_++;
  wait_ends_.emplace(wait.ends, id);
  waits_by_client_[wait.client].insert(id);
  wait_keys_ += wait.keys.size();
  if (wait.op == StoreOp::wait) {
    for (const std::string& key : wait.keys) {
      waits_by_key_[key].insert(id);
    }
  }
  waits_.emplace(id, std::move(wait));
  return id;
}

std::vector<std::string> StoreState::missing_of(const Wait& wait) const {
  std::vector<std::string> names;
  for (const std::string& key : wait.keys) {
    if (names.size() < kNamedKeysMax && !entries_.contains(key)) {
      names.push_back(key);
    }
  }
  return names;
}

/// Answer a wait and forget it: for ok the count that was reached; for timeout how many keys are
/// missing and their names, or how many of the count are there.
void StoreState::end_wait(WaitId id, StoreStatus status) {
  const Wait& wait = waits_.at(id);
  if (wait.op == StoreOp::wait_count) {
    answer(wait.client, wait.op, wait.request, status, prefixes_.at(wait.keys.front()).count);
  } else if (status == StoreStatus::timeout) {
    answer(wait.client, wait.op, wait.request, status, static_cast<int64_t>(wait.missing),
           missing_of(wait));
  } else {
    answer(wait.client, wait.op, wait.request, status);
  }
  forget_wait(id);
}

void StoreState::forget_wait(WaitId id) {
  const auto at = waits_.find(id);
  const Wait wait = std::move(at->second);
  waits_.erase(at);
  wait_ends_.erase({wait.ends, id});
  wait_keys_ -= wait.keys.size();
  const auto own = waits_by_client_.find(wait.client);
  own->second.erase(id);
  if (own->second.empty()) {
    waits_by_client_.erase(own);
  }
  if (wait.op == StoreOp::wait_count) {
    const auto prefix = prefixes_.find(wait.keys.front());
    prefix->second.waits.erase({wait.count, id});
    if (prefix->second.waits.empty()) {
      prefixes_.erase(prefix);
    }
    return;
  }
  for (const std::string& key : wait.keys) {
    const auto waits = waits_by_key_.find(key);
    waits->second.erase(id);
    if (waits->second.empty()) {
      waits_by_key_.erase(waits);
    }
  }
}

// ---- keys ----

/// Keep a value; false when there is no room for it.
bool StoreState::put(const std::string& key, std::string value, std::optional<Time> ends) {
  const auto at = entries_.find(key);
  const size_t before = at == entries_.end() ? 0 : cost_of(key, at->second.value);
  const size_t cost = cost_of(key, value);
  if (bytes_ - before + cost > limits_.total_bytes_max) {
    return false;
  }
  bytes_ += cost - before;
  if (ends.has_value()) {
    expiries_.emplace(*ends, key);
  }
  if (at == entries_.end()) {
    entries_.emplace(key, Entry{.value = std::move(value), .ends = ends});
    key_came(key);
    return true;
  }
  if (at->second.ends.has_value() && at->second.ends != ends) {
    expiries_.erase({*at->second.ends, key});
  }
  at->second = {.value = std::move(value), .ends = ends};
  return true;
}

void StoreState::erase(Entries::iterator at) {
  const std::string key = at->first;
  bytes_ -= cost_of(key, at->second.value);
  if (at->second.ends.has_value()) {
    expiries_.erase({*at->second.ends, key});
  }
  entries_.erase(at);
  key_went(key);
}

void StoreState::key_came(const std::string& key) {
  if (const auto waits = waits_by_key_.find(key); waits != waits_by_key_.end()) {
    std::vector<WaitId> complete;
    for (const WaitId id : waits->second) {
      if (--waits_.at(id).missing == 0) {
        complete.push_back(id);
      }
    }
    for (const WaitId id : complete) {
      end_wait(id, StoreStatus::ok);
    }
  }
  // Prefixes that are waited for are few: one per generation of a job. Ending the last wait of one
  // takes it out of the map.
  std::vector<WaitId> complete;
  for (auto& [text, prefix] : prefixes_) {
    if (!key.starts_with(text)) {
      continue;
    }
    ++prefix.count;
    for (const auto& [count, id] : prefix.waits) {
      if (count > prefix.count) {
        break;
      }
      complete.push_back(id);
    }
  }
  for (const WaitId id : complete) {
    end_wait(id, StoreStatus::ok);
  }
}

void StoreState::key_went(const std::string& key) {
  if (const auto waits = waits_by_key_.find(key); waits != waits_by_key_.end()) {
    for (const WaitId id : waits->second) {
      ++waits_.at(id).missing;
    }
  }
  for (auto& [text, prefix] : prefixes_) {
    if (key.starts_with(text)) {
      --prefix.count;
    }
  }
}

// ---- time and clients ----

void StoreState::on_time(base::Micros now) {
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    const std::string key = expiries_.begin()->second;
    erase(entries_.find(key));
  }
  while (!wait_ends_.empty() && wait_ends_.begin()->first <= now) {
    end_wait(wait_ends_.begin()->second, StoreStatus::timeout);
  }
}

std::optional<base::Micros> StoreState::next_time() const {
  std::optional<base::Micros> next;
  if (!expiries_.empty()) {
    next = expiries_.begin()->first;
  }
  if (!wait_ends_.empty() && (!next.has_value() || wait_ends_.begin()->first < *next)) {
    next = wait_ends_.begin()->first;
  }
  return next;
}

void StoreState::on_client_gone(Client client) {
  const auto own = waits_by_client_.find(client);
  if (own == waits_by_client_.end()) {
    return;
  }
  const std::set<WaitId> waits = own->second;
  for (const WaitId id : waits) {
    forget_wait(id);
  }
}

}  // namespace headrace::wire
