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
  bool closed_to_others = false;  // it holds a group that is to stay by itself
  std::string group;
};

uint64_t bytes_of(const Response& response) {
  uint64_t bytes = 0;
  for (const ReadyTensor& one : response.tensors) {
    bytes += one.any().elements() * dtype_bytes(one.any().dtype);
  }
  return bytes;
}

bool is_fusable(const Response& response) {
  return response.what == Response::What::run &&
         response.tensors.front().any().kind == NamedKind::allreduce;
}

bool are_alike(const Request& a, const Request& b) {
  return std::tie(a.dtype, a.op, a.prescale, a.postscale) ==
         std::tie(b.dtype, b.op, b.prescale, b.postscale);
}

}  // namespace

std::vector<Response> fuse(std::vector<Response> responses, const NegotiatorOptions& options) {
  std::vector<Response> out;
  std::vector<Bucket> open;  // few: one per kind of reduction
  for (Response& response : responses) {
    const uint64_t bytes = is_fusable(response) ? bytes_of(response) : kAloneBytes;
    if (bytes >= kAloneBytes || bytes > options.fusion_bytes) {
      out.push_back(std::move(response));
      continue;
    }
    const Request& request = response.tensors.front().any();
    const bool alone = !options.group_fusion && !request.group.empty();
    const auto fits = [&](const Bucket& one) {
      return are_alike(out[one.response].tensors.front().any(), request) &&
             one.bytes + bytes <= options.fusion_bytes &&
             (alone || one.closed_to_others ? alone && one.group == request.group : true);
    };
    const auto bucket = std::find_if(open.rbegin(), open.rend(), fits);
    if (bucket == open.rend()) {
      open.push_back({out.size(), bytes, alone, request.group});
      out.push_back(std::move(response));
    } else {
      bucket->bytes += bytes;
      auto& tensors = out[bucket->response].tensors;
      tensors.push_back(std::move(response.tensors.front()));
    }
  }
  return out;
}

}  // namespace headrace::comm
