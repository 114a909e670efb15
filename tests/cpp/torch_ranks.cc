// SPDX-License-Identifier: Apache-2.0
// A rank with tensors of LibTorch, built against an install tree and the headers of a torch wheel.
#include <ATen/ATen.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "headrace/comm/environment.h"
#include "headrace/comm/torch_adapter.h"
#include "headrace/comm/torch_gradients.h"

namespace hc = headrace::comm;
namespace lt = headrace::comm::libtorch;

#define NEED(condition)                                                    \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (0)

template <typename T>
T need(headrace::Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.error().message().c_str());
    std::exit(1);
  }
  return *std::move(result);
}

void need(const headrace::Result<void>& result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.error().message().c_str());
    std::exit(1);
  }
}

bool says(const headrace::Error& error, headrace::Errc code, const std::string& part) {
  return error.code() == code && error.message().find(part) != std::string::npos;
}

void check_collectives(hc::ProcessSet& world) {
  const int64_t rank = world.rank();
  const int64_t size = world.size();
  for (const at::ScalarType type : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong,
                                    at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kBool}) {
    const at::Tensor tensor = at::ones({3, 2}, type);
    need(need(lt::all_reduce(world, tensor, hc::Op::sum)).wait());
    NEED(at::equal(tensor, at::full({3, 2}, type == at::kBool ? 1 : size, type)));
  }
  const at::Tensor own = at::arange(size * 2, at::kFloat).view({size, 2}) + 10.0 * rank;
  const at::Tensor all = need(need(lt::all_gather(world, own)).wait());
  for (int64_t r = 0; r < size; ++r) {
    NEED(at::equal(all[r], own + 10.0 * (r - rank)));
  }
  const at::Tensor part = need(need(lt::reduce_scatter(world, own, hc::Op::average)).wait());
  NEED(at::allclose(part, all.mean(0).narrow(0, rank, 1)));
  const at::Tensor came = need(need(lt::all_to_all(world, own)).wait());
  NEED(at::equal(came, all.select(1, rank)));
  const at::Tensor sent = own.clone();
  need(need(lt::broadcast(world, sent, static_cast<int>(size) - 1)).wait());
  NEED(at::equal(sent, all[size - 1]));
  const at::Tensor reduced = own.clone();
  need(need(lt::reduce(world, reduced, 0, hc::Op::max)).wait());
  NEED(at::equal(reduced, rank == 0 ? all[size - 1] : own));
}

void check_errors(hc::ProcessSet& world) {
  using headrace::Errc;
  const at::Tensor columns = at::ones({2, 3}).t();
  const auto refused = lt::all_reduce(world, columns, hc::Op::sum);
  NEED(says(refused.error(), Errc::invalid_argument, "shape [3, 2] has strides [1, 3]"));
  NEED(says(refused.error(), Errc::invalid_argument, "tensor.contiguous()"));
  NEED(says(lt::all_to_all(world, at::ones({})).error(), Errc::invalid_argument, "no equal parts"));
  NEED(says(lt::buffer_of(at::Tensor()).error(), Errc::invalid_argument, "not defined"));
  NEED(says(lt::buffer_of(at::ones({2}, at::kComplexFloat)).error(), Errc::unsupported, "Complex"));
  NEED(says(lt::buffer_of(at::ones({2}).to_sparse()).error(), Errc::unsupported, "Sparse"));
}

/// Each rank has its own target; with averaged gradients all end at the mean of the targets.
void check_training(hc::ProcessSet& world) {
  at::Tensor weight = at::full({2, 2}, static_cast<double>(world.rank()));
  at::Tensor bias = at::zeros({2}, at::kDouble);
  const at::Tensor unused = at::zeros({3});
  need(lt::broadcast_tensors(world, {weight, bias}, 0));
  NEED(at::equal(weight, at::zeros({2, 2})));
  weight.set_requires_grad(true);
  bias.set_requires_grad(true);
  auto buckets = need(lt::GradientBuckets::make(world, {weight, bias, unused}));
  NEED(buckets.buckets() == 3);
  for (int step = 0; step < 60; ++step) {
    const at::Tensor loss =
        (weight - static_cast<double>(world.rank())).pow(2).sum() + (bias - 1.0).pow(2).sum();
    loss.backward();
    need(buckets.average());
    weight.detach().sub_(weight.grad(), 0.2);
    bias.detach().sub_(bias.grad(), 0.2);
    weight.mutable_grad().zero_();
    bias.mutable_grad().zero_();
  }
  NEED(at::allclose(weight.detach(), at::full({2, 2}, (world.size() - 1) / 2.0)));
  NEED(at::allclose(bias.detach(), at::ones({2}, at::kDouble)));
  NEED(at::equal(unused.grad(), at::zeros({3})));
}

int main() {
  const hc::Joined joined = need(hc::join_job());
  hc::ProcessSet& world = joined.context->world();
  check_collectives(world);
  check_errors(world);
  check_training(world);
  if (world.rank() == 0) {
    std::printf("%d ranks with LibTorch\n", world.size());
  }
  return 0;
}
