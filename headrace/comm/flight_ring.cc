// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdlib>

#include "headrace/base/check.h"
#include "headrace/comm/flight_ring_internal.h"

namespace headrace::comm {

std::string_view flight_state_name(FlightState state) {
  constexpr std::string_view kNames[] = {"none", "queued", "running", "done", "failed"};
  return kNames[static_cast<size_t>(state)];
}

// Large enough for the allocator to ask the kernel for pages, which are zero and cost nothing until
// they are written.
FlightRing::FlightRing()
    : words_(static_cast<uint64_t*>(
                 std::calloc(kOperations * (kHeadWords + kRestWords), sizeof(uint64_t))),
             [](uint64_t* words) { std::free(words); }) {
  HR_CHECK(words_ != nullptr, "no memory for the flight recorder");
}

void FlightRing::put_rest(uint64_t sequence, std::string_view name, base::Micros submitted) {
  uint64_t* const to = rest(sequence);
  put(to[0], sequence + 1);
  put(to[1], 0);
  put(to[2], static_cast<uint64_t>(submitted.count()));
  put(to[3], 0);
  put(to[4], 0);
  const size_t letters = std::min(name.size(), kNameBytes - 1);
  for (size_t at = 0; at == 0 || at < letters; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    if (letters > 0) {
      std::memcpy(&word, name.data() + at, std::min(letters - at, sizeof word));
    }
    put(to[kNameAt + at / sizeof word], word);
  }
  if (letters > 0 && letters % sizeof(uint64_t) == 0) {  // its end is a word of its own
    put(to[kNameAt + letters / sizeof(uint64_t)], 0);
  }
}

void FlightRing::submitted(uint64_t sequence, const FlightCall& call, base::Micros at) {
  put_head(sequence, call.what | progress_of(FlightState::queued, Algorithm::unknown), call.bytes);
  put_rest(sequence, call.name, at);
}

bool FlightRing::holds(uint64_t sequence, uint64_t* what) const {
  *what = get(head(sequence)[0]);
  return *what >> 32U == lap_of(sequence) >> 32U && get(rest(sequence)[0]) == sequence + 1;
}

void FlightRing::started(uint64_t sequence, Algorithm algorithm, base::Micros at) {
  uint64_t what = 0;
  if (holds(sequence, &what)) {
    put(head(sequence)[0],
        (what & ~uint64_t{0xFF000000}) | progress_of(FlightState::running, algorithm));
    put(rest(sequence)[3], static_cast<uint64_t>(at.count()));
  }
}

void FlightRing::waits(uint64_t sequence, int rank) {
  uint64_t what = 0;
  if (holds(sequence, &what)) {
    put(rest(sequence)[1], static_cast<uint64_t>(int64_t{rank} + 1));
  }
}

void FlightRing::ended(uint64_t sequence, FlightState how, base::Micros at) {
  uint64_t what = 0;
  if (holds(sequence, &what)) {
    put(head(sequence)[0], (what & ~uint64_t{0x0F000000}) | progress_of(how, Algorithm::unknown));
    put(rest(sequence)[4], static_cast<uint64_t>(at.count()));
  }
}

FlightEntry FlightRing::entry(uint64_t what, uint64_t place) const {
  FlightEntry one;
  one.sequence = ((what >> 32U) - 1) * kOperations + place;
  one.kind = static_cast<uint8_t>(what);
  one.op = static_cast<uint8_t>(what >> 8U);
  one.dtype = static_cast<uint8_t>(what >> 16U);
  one.state = static_cast<FlightState>(what >> 24U & 0xFU);
  one.algorithm = static_cast<Algorithm>(what >> 28U & 0xFU);
  one.bytes = get(head(place)[1]);
  uint64_t* const from = rest(place);
  if (get(from[0]) != one.sequence + 1) {
    return one;  // of an operation before
  }
  one.waits_for = static_cast<int>(static_cast<int64_t>(get(from[1])) - 1);
  one.submitted = base::Micros(static_cast<int64_t>(get(from[2])));
  one.started = base::Micros(static_cast<int64_t>(get(from[3])));
  one.ended = base::Micros(static_cast<int64_t>(get(from[4])));
  std::array<char, kNameBytes + 1> letters{};
  for (size_t i = 0; i < kNameBytes / sizeof(uint64_t); ++i) {
    const uint64_t word = get(from[kNameAt + i]);
    std::memcpy(letters.data() + i * sizeof word, &word, sizeof word);
  }
  one.name = letters.data();
  return one;
}

std::vector<FlightEntry> FlightRing::read() const {
  std::vector<FlightEntry> all;
  for (uint64_t place = 0; place < kOperations; ++place) {
    const uint64_t what = get(head(place)[0]);
    if (what == 0) {
      continue;
    }
    FlightEntry one = entry(what, place);
    // Another operation has come meanwhile: it is for the next reader.
    if (get(head(place)[0]) >> 32U == what >> 32U) {
      all.push_back(std::move(one));
    }
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
  return all;
}

}  // namespace headrace::comm
