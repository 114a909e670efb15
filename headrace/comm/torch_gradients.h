// SPDX-License-Identifier: Apache-2.0
// Training with LibTorch on several ranks: equal weights at the start, averaged gradients in each
// step.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/comm/process_set.h"
#include "headrace/comm/torch_adapter.h"

namespace headrace::comm::libtorch {

/// Make all ranks begin with the values of `root`. Waits.
inline Result<void> broadcast_tensors(ProcessSet& set, const std::vector<at::Tensor>& tensors,
                                      int root, const Options& options = {}) {
  std::vector<TensorWork> works;
  for (const at::Tensor& tensor : tensors) {
    HR_TRY(TensorWork work, broadcast(set, tensor.detach(), root, options));
    works.push_back(std::move(work));
  }
  for (const TensorWork& work : works) {
    HR_TRY(work.wait());
  }
  return {};
}

/// Gradients averaged over all ranks, many at once: between loss.backward() and optimizer.step().
/// All ranks give the same parameters in the same order. Not thread-safe.
class GradientBuckets {
 public:
  /// A bucket has `bucket_bytes` at most, or one larger gradient. `set` must outlive it.
  static Result<GradientBuckets> make(ProcessSet& set, const std::vector<at::Tensor>& parameters,
                                      int64_t bucket_bytes = int64_t{25} << 20) {
    GradientBuckets made(set);
    int64_t bytes = 0;
    for (const at::Tensor& parameter : parameters) {
      HR_TRY(buffer_of(parameter));
      const auto more = static_cast<int64_t>(parameter.nbytes());
      if (made.buckets_.empty() || bytes + more > bucket_bytes ||
          made.buckets_.back().parameters.front().scalar_type() != parameter.scalar_type()) {
        made.buckets_.emplace_back();
        bytes = 0;
      }
      bytes += more;
      made.buckets_.back().parameters.push_back(parameter);
      made.buckets_.back().count += parameter.numel();
    }
    for (Bucket& bucket : made.buckets_) {
      bucket.flat =
          at::empty({bucket.count}, bucket.parameters.front().options().requires_grad(false));
    }
    return made;
  }

  /// Replace each gradient by its average. A parameter without a gradient here counts as zero, and
  /// has one afterwards. `unsupported`: a sparse gradient.
  Result<void> average(const Options& options = {}) {
    std::vector<TensorWork> works;
    for (const Bucket& bucket : buckets_) {
      HR_TRY(pack(bucket));
      HR_TRY(TensorWork work, all_reduce(*set_, bucket.flat, Op::average, options));
      works.push_back(std::move(work));
    }
    for (size_t i = 0; i < works.size(); ++i) {
      HR_TRY(works[i].wait());
      unpack(buckets_[i]);
    }
    return {};
  }

  size_t buckets() const { return buckets_.size(); }

 private:
  struct Bucket {
    std::vector<at::Tensor> parameters;
    int64_t count = 0;  // elements of all of them
    at::Tensor flat;
  };

  explicit GradientBuckets(ProcessSet& set) : set_(&set) {}

  static Result<void> pack(const Bucket& bucket) {
    int64_t offset = 0;
    for (const at::Tensor& parameter : bucket.parameters) {
      const at::Tensor part = bucket.flat.narrow(0, offset, parameter.numel());
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) {
        part.zero_();
      } else if (gradient.layout() != at::kStrided) {
        return Error{
            Errc::unsupported,
            "comm: a gradient is sparse; call to_dense() on it, or leave the parameter out"};
      } else {
        part.copy_(gradient.detach().reshape({-1}));
      }
      offset += parameter.numel();
    }
    return {};
  }

  static void unpack(const Bucket& bucket) {
    int64_t offset = 0;
    for (const at::Tensor& parameter : bucket.parameters) {
      const at::Tensor part = bucket.flat.narrow(0, offset, parameter.numel());
      if (!parameter.grad().defined()) {
        parameter.mutable_grad() = at::empty(parameter.sizes(), bucket.flat.options());
      }
      parameter.grad().detach().copy_(part.view(parameter.sizes()));
      offset += parameter.numel();
    }
  }

  ProcessSet* set_;
  std::vector<Bucket> buckets_;
};

}  // namespace headrace::comm::libtorch
