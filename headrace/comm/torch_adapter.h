// SPDX-License-Identifier: Apache-2.0
// Collectives on tensors of LibTorch. Header only: the library itself knows no torch, so one build
// of it serves every version; it is your program that is compiled against one.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/comm/process_set.h"

namespace headrace::comm::libtorch {

/// Element type of `type`; `unsupported` for complex, quantised and 8-bit float types.
inline Result<Dtype> dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kByte: return Dtype::u8;
    case at::kChar: return Dtype::i8;
    case at::kUInt16: return Dtype::u16;
    case at::kShort: return Dtype::i16;
    case at::kUInt32: return Dtype::u32;
    case at::kInt: return Dtype::i32;
    case at::kUInt64: return Dtype::u64;
    case at::kLong: return Dtype::i64;
    case at::kHalf: return Dtype::f16;
    case at::kBFloat16: return Dtype::bf16;
    case at::kFloat: return Dtype::f32;
    case at::kDouble: return Dtype::f64;
    case at::kBool: return Dtype::boolean;
    default:
      return Error{Errc::unsupported, std::string("comm: no collective takes tensors of ") +
                                          at::toString(type) + "; convert them with tensor.to()"};
  }
}

/// The memory of `tensor`, borrowed. `invalid_argument`: not defined or not contiguous;
/// `unsupported`: not in CPU memory, sparse, or of a type that dtype_of() refuses.
inline Result<Buffer> buffer_of(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return Error{Errc::invalid_argument, "comm: the tensor is not defined"};
  }
  if (tensor.layout() != at::kStrided || !tensor.device().is_cpu()) {
    std::ostringstream what;
    what << "comm: the tensor is " << tensor.layout() << " on " << tensor.device()
         << "; collectives take dense tensors in CPU memory: tensor.to_dense(), tensor.cpu()";
    return Error{Errc::unsupported, what.str()};
  }
  if (!tensor.is_contiguous()) {
    std::ostringstream what;
    what << "comm: the tensor of shape " << tensor.sizes() << " has strides " << tensor.strides()
         << " and is not contiguous; hand in tensor.contiguous(), and copy the result back";
    return Error{Errc::invalid_argument, what.str()};
  }
  if (tensor.is_neg()) {
    return Error{Errc::invalid_argument,
                 "comm: the tensor is a view with the other sign; hand in tensor.resolve_neg()"};
  }
  HR_TRY(const Dtype dtype, dtype_of(tensor.scalar_type()));
  return Buffer{tensor.data_ptr(), static_cast<uint64_t>(tensor.numel()), dtype};
}

/// A collective on its way. Keeps its tensors alive until it goes, as ProcessSet borrows them;
/// letting go of it waits.
class TensorWork {
 public:
  TensorWork(Work work, std::vector<at::Tensor> tensors)
      : work_(std::move(work)), tensors_(std::move(tensors)) {}
  TensorWork(TensorWork&&) noexcept = default;
  TensorWork& operator=(TensorWork&& other) noexcept {
    settle();
    work_ = std::move(other.work_);
    tensors_ = std::move(other.tensors_);
    return *this;
  }
  TensorWork(const TensorWork&) = delete;
  TensorWork& operator=(const TensorWork&) = delete;
  ~TensorWork() { settle(); }

  bool done() const { return work_.done(); }
  /// The tensor with the result, or why there is none. It may have been written to in part then.
  Result<at::Tensor> wait(std::optional<std::chrono::milliseconds> limit = {}) const {
    HR_TRY(work_.wait(limit));
    return tensors_.back();
  }
  const Work& work() const { return work_; }

 private:
  void settle() {
    if (work_.valid()) {
      static_cast<void>(work_.wait());
    }
  }

  Work work_;
  std::vector<at::Tensor> tensors_;  // the result is the last
};

/// `tensor` becomes the reduction over all ranks, in place.
inline Result<TensorWork> all_reduce(ProcessSet& set, const at::Tensor& tensor, Op op,
                                     const Options& options = {}) {
  HR_TRY(const Buffer buffer, buffer_of(tensor));
  return TensorWork(set.all_reduce(buffer, op, options), {tensor});
}

/// The same on `root` only; the others' tensor stays as it is.
inline Result<TensorWork> reduce(ProcessSet& set, const at::Tensor& tensor, int root, Op op,
                                 const Options& options = {}) {
  HR_TRY(const Buffer buffer, buffer_of(tensor));
  return TensorWork(set.reduce(buffer, buffer, root, op, options), {tensor});
}

/// `tensor` of `root` to all, in place.
inline Result<TensorWork> broadcast(ProcessSet& set, const at::Tensor& tensor, int root,
                                    const Options& options = {}) {
  HR_TRY(const Buffer buffer, buffer_of(tensor));
  return TensorWork(set.broadcast(buffer, root, options), {tensor});
}

/// A new tensor of shape [size(), *tensor.shape]: the tensors of all ranks, of equal shape, in the
/// order of ranks.
inline Result<TensorWork> all_gather(ProcessSet& set, const at::Tensor& tensor,
                                     const Options& options = {}) {
  HR_TRY(const Buffer in, buffer_of(tensor));
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape.insert(shape.begin(), set.size());
  at::Tensor all = at::empty(shape, tensor.options().requires_grad(false));
  HR_TRY(const Buffer out, buffer_of(all));
  return TensorWork(set.all_gather(in, out, options), {tensor, std::move(all)});
}

namespace detail {

/// The shape of a size()-th of the rows.
inline Result<std::vector<int64_t>> part_shape(const ProcessSet& set, const at::Tensor& tensor) {
  const int64_t size = set.size();
  if (tensor.dim() == 0 || tensor.size(0) % size != 0) {
    std::ostringstream what;
    what << "comm: the tensor of shape " << tensor.sizes() << " has no equal parts along its first "
         << "dimension for " << size << " ranks";
    return Error{Errc::invalid_argument, what.str()};
  }
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape[0] /= size;
  return shape;
}

}  // namespace detail

/// A new tensor: this rank's size()-th of the rows of the reduction.
inline Result<TensorWork> reduce_scatter(ProcessSet& set, const at::Tensor& tensor, Op op,
                                         const Options& options = {}) {
  HR_TRY(const Buffer in, buffer_of(tensor));
  HR_TRY(const auto shape, detail::part_shape(set, tensor));
  at::Tensor part = at::empty(shape, tensor.options().requires_grad(false));
  HR_TRY(const Buffer out, buffer_of(part));
  return TensorWork(set.reduce_scatter(in, out, op, options), {tensor, std::move(part)});
}

/// A new tensor of the same shape: the q-th size()-th of the rows goes to rank q.
inline Result<TensorWork> all_to_all(ProcessSet& set, const at::Tensor& tensor,
                                     const Options& options = {}) {
  HR_TRY(const Buffer in, buffer_of(tensor));
  HR_TRY([[maybe_unused]] const auto shape, detail::part_shape(set, tensor));
  at::Tensor came = at::empty(tensor.sizes(), tensor.options().requires_grad(false));
  HR_TRY(const Buffer out, buffer_of(came));
  return TensorWork(set.all_to_all(in, out, options), {tensor, std::move(came)});
}

}  // namespace headrace::comm::libtorch
