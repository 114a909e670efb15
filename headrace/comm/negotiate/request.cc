// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/negotiate/request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstring>

namespace headrace::comm {

namespace {

constexpr uint64_t kKinds = static_cast<uint64_t>(NamedKind::remove_set) + 1;
constexpr uint64_t kOps = static_cast<uint64_t>(Op::bxor) + 1;
constexpr uint64_t kWires = static_cast<uint64_t>(Wire16::bf16) + 1;
constexpr uint64_t kDimensionsMax = 64;
constexpr uint64_t kSplitsMax = uint64_t{1} << 20;

void put_numbers(MessageWriter& out, const std::vector<int64_t>& values) {
  out.number(values.size());
  for (const int64_t one : values) {
    out.number(static_cast<uint64_t>(one));
  }
}

std::vector<int64_t> take_numbers(MessageReader& in, uint64_t most) {
  std::vector<int64_t> values;
  const uint64_t count = in.number(most);
  for (uint64_t i = 0; i < count && in.good(); ++i) {
    values.push_back(static_cast<int64_t>(in.number(INT64_MAX)));
  }
  return values;
}

}  // namespace

std::string_view named_kind_name(NamedKind kind) {
  constexpr std::string_view kNames[] = {"allreduce", "adasum",   "allgather",
                                         "broadcast", "alltoall", "reducescatter",
                                         "barrier",   "add_set",  "remove_set"};
  return kNames[static_cast<size_t>(kind)];
}

std::string upper_name(NamedKind kind) {
  std::string name(named_kind_name(kind));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  return name;
}

bool is_reduction(NamedKind kind) {
  return kind == NamedKind::all_reduce || kind == NamedKind::adasum ||
         kind == NamedKind::reduce_scatter;
}

uint64_t Request::elements() const { return shape.empty() ? 1 : rows() * row_elements(); }

uint64_t Request::row_elements() const {
  uint64_t product = 1;
  for (size_t i = 1; i < shape.size(); ++i) {
    product *= static_cast<uint64_t>(shape[i]);
  }
  return product;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string encode(const Request& request) {
  MessageWriter out;
  out.number(static_cast<uint64_t>(request.kind));
  out.number(static_cast<uint64_t>(request.dtype));
  out.number(static_cast<uint64_t>(request.op));
  out.number(static_cast<uint64_t>(request.root));
  const bool scaled = request.prescale != 1.0 || request.postscale != 1.0;
  // Both are rare, so they share a byte.
  const uint64_t wire16 = request.wire16 ? static_cast<uint64_t>(*request.wire16) + 1 : 0;
  out.number((scaled ? 1 : 0) + 2 * wire16);
  if (scaled) {
    out.fixed(request.prescale);
    out.fixed(request.postscale);
  }
  put_numbers(out, request.shape);
  put_numbers(out, request.splits);
  out.text(request.group);
  out.number(request.group_size);
  return std::move(out).bytes();
}

Result<Request> decode_request(std::string_view bytes) {
  MessageReader in(bytes);
  Request request;
  request.kind = static_cast<NamedKind>(in.number(kKinds - 1));
  request.dtype = static_cast<Dtype>(in.number(kDtypes - 1));
  request.op = static_cast<Op>(in.number(kOps - 1));
  request.root = static_cast<int32_t>(in.number(INT32_MAX));
  const uint64_t how = in.number(2 * kWires + 1);
  if (how % 2 == 1) {
    request.prescale = in.fixed();
    request.postscale = in.fixed();
  }
  if (how > 1) {
    request.wire16 = static_cast<Wire16>(how / 2 - 1);
  }
  request.shape = take_numbers(in, kDimensionsMax);
  request.splits = take_numbers(in, kSplitsMax);
  request.group = in.text();
  request.group_size = static_cast<uint32_t>(in.number(UINT32_MAX));
  if (!in.good() || !in.at_end()) {
    return Error{Errc::corrupt, "comm: another rank sent a request that cannot be read"};
  }
  return request;
}

void MessageWriter::number(uint64_t value) {
  while (value >= 0x80) {
    bytes_.push_back(static_cast<char>(value | 0x80));
    value >>= 7U;
  }
  bytes_.push_back(static_cast<char>(value));
}

void MessageWriter::text(std::string_view value) {
  number(value.size());
  bytes_ += value;
}

void MessageWriter::fixed(double value) {
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  bytes_.append(raw, sizeof raw);
}

std::string_view MessageReader::take(size_t bytes) {
  if (!good_ || bytes > bytes_.size()) {
    good_ = false;
    bytes_ = {};
    return {};
  }
  const std::string_view taken = bytes_.substr(0, bytes);
  bytes_.remove_prefix(bytes);
  return taken;
}

uint64_t MessageReader::number(uint64_t limit) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const std::string_view byte = take(1);
    if (byte.empty()) {
      return 0;
    }
    const auto raw = static_cast<unsigned char>(byte[0]);
    value |= uint64_t{raw & 0x7FU} << shift;
    if (raw < 0x80) {
      good_ = good_ && value <= limit;
      return good_ ? value : 0;
    }
  }
  good_ = false;
  return 0;
}

std::string_view MessageReader::text() { return take(number()); }

double MessageReader::fixed() {
  const std::string_view raw = take(sizeof(double));
  double value = 0.0;
  if (raw.size() == sizeof value) {
    std::memcpy(&value, raw.data(), sizeof value);
  }
  return value;
}

}  // namespace headrace::comm
