// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>
#include <utility>

#include "headrace/comm/negotiate/negotiator.h"

namespace headrace::comm {

namespace {

// A tensor that is put together with others is copied twice more than one that goes alone; above
// this that costs more than an operation of its own.
constexpr uint64_t kAloneBytes = uint64_t{128} << 10;

struct Bucket {
  size_t response = 0;  // index of what it grows in
  uint64_t bytes = 0;
  bool alone = false;  // it holds a group that is to stay by itself
  const std::string* group = nullptr;
};

bool are_alike(const Request& a, const Request& b) {
  return std::tie(a.dtype, a.op, a.prescale, a.postscale, a.wire16) ==
         std::tie(b.dtype, b.op, b.prescale, b.postscale, b.wire16);
}

}  // namespace

std::vector<Response> fuse(std::vector<ReadyTensor> tensors, const NegotiatorOptions& options) {
  std::vector<Response> out;
  std::vector<Bucket> open;  // few: one per kind of reduction
  const auto add = [&out](ReadyTensor tensor) {
    out.emplace_back();
    out.back().tensors.push_back(std::move(tensor));
  };
  for (ReadyTensor& tensor : tensors) {
    const Request& request = tensor->any();
    const uint64_t bytes = request.elements() * dtype_bytes(request.dtype);
    // What a rank that has joined lacks may be divided by another number of ranks than the rest.
    if (request.kind != NamedKind::all_reduce || bytes >= kAloneBytes ||
        bytes > options.fusion_bytes || !tensor->is_whole()) {
      add(std::move(tensor));
      continue;
    }
    const bool alone = !options.group_fusion && !request.group.empty();
    const auto fits = [&](const Bucket& one) {
      return one.bytes + bytes <= options.fusion_bytes &&
             (alone || one.alone ? alone && one.alone && *one.group == request.group : true) &&
             are_alike(out[one.response].tensors.front()->any(), request);
    };
    const auto bucket = std::find_if(open.rbegin(), open.rend(), fits);
    if (bucket == open.rend()) {
      open.push_back({out.size(), bytes, alone, &request.group});
      add(std::move(tensor));
    } else {
      bucket->bytes += bytes;
      out[bucket->response].tensors.push_back(std::move(tensor));
    }
  }
  return out;
}

}  // namespace headrace::comm
