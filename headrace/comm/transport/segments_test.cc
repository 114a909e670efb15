// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/transport/segments.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace headrace::comm {
namespace {

iovec piece(std::string& text) { return {.iov_base = text.data(), .iov_len = text.size()}; }

/// Take `most` bytes of what a writer would send.
void send_some(SegmentsOut& out, std::string bytes, size_t most, std::string* wire, size_t* gone) {
  const iovec all = piece(bytes);
  size_t sent = 0;
  for (const iovec& one : out.next({&all, 1})) {
    const size_t some = std::min(one.iov_len, most - sent);
    wire->append(static_cast<const char*>(one.iov_base), some);
    sent += some;
  }
  *gone += out.gone(sent);
}

/// Read the wire by `step` bytes; what came, up to the first damage.
std::string read_all(const std::string& wire, size_t step, bool* damaged) {
  SegmentsIn in;
  std::string out;
  size_t at = 0;
  while (at < wire.size() && !in.damaged()) {
    std::string room(step, '\0');
    const iovec places = piece(room);
    const auto next = in.next({&places, 1});
    const size_t some = std::min({next[0].iov_len, step, wire.size() - at});
    std::memcpy(next[0].iov_base, wire.data() + at, some);
    at += some;
    const size_t bytes = in.came(some);
    out += room.substr(0, bytes);
  }
  *damaged = in.damaged();
  return out;
}

TEST_CASE("the checksum is CRC32C") {
  CHECK(crc32c(0, "123456789", 9) == 0xE3069283U);
  CHECK(crc32c(crc32c(0, "1234", 4), "56789", 5) == 0xE3069283U);
  CHECK(crc32c(0, "", 0) == 0);
}

TEST_CASE("bytes come out of segments as they went in, however they are cut on the way") {
  const std::string text = "what goes over the network in segments with a checksum each";
  for (const size_t sends : {1U, 3U, 100U}) {
    SegmentsOut out;
    std::string wire;
    size_t gone = 0;
    while (gone < text.size()) {
      send_some(out, text.substr(gone, 20), sends, &wire, &gone);
    }
    CHECK(wire.size() == text.size() + 3 * SegmentsOut::kHeaderBytes);
    for (const size_t step : {1U, 5U, 64U}) {
      bool damaged = true;
      CHECK(read_all(wire, step, &damaged) == text);
      CHECK(!damaged);
    }
  }
}

TEST_CASE("a flipped bit anywhere in a segment is found, and its last bytes are not handed on") {
  const std::string text(40, 'x');
  SegmentsOut out;
  std::string wire;
  size_t gone = 0;
  send_some(out, text, 100, &wire, &gone);
  for (size_t byte = 0; byte < wire.size(); ++byte) {
    for (const int bit : {0, 7}) {
      std::string bad = wire;
      bad[byte] = static_cast<char>(bad[byte] ^ (1 << bit));
      bool damaged = false;
      CHECK(read_all(bad, 16, &damaged).size() < text.size());
      CHECK(damaged);
    }
  }
}

TEST_CASE("what waits in the kernel is told with the headers that are on the wire") {
  SegmentsIn in;
  CHECK(in.extra_bytes(2) == 24);
  std::string room(4, '\0');
  const iovec places = piece(room);
  const uint32_t header[3] = {10, ~10U, 0};
  std::memcpy(in.next({&places, 1})[0].iov_base, header, 3);
  in.came(3);
  CHECK(in.extra_bytes(2) == 21);
  const auto rest = in.next({&places, 1});
  std::memcpy(rest[0].iov_base, reinterpret_cast<const char*>(header) + 3, 9);
  in.came(9);
  CHECK(in.extra_bytes(2) == 12);  // the first one has begun
}

}  // namespace
}  // namespace headrace::comm
