// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "headrace/comm/algo/reduce_kernel.h"
#include "headrace/comm/wire16_operation_internal.h"

namespace headrace::comm {

namespace {

constexpr size_t kLine = 64;

class Wire16Operation : public Operation {
 public:
  Wire16Operation(SetTransport& transport, const Call& call, std::vector<std::byte>& scratch)
      : call_(call), rounded_(call) {
    rounded_.told = &call;
    rounded_.wire16 = Wire16::none;
    rounded_.dtype = call.wire16 == Wire16::f16 ? Dtype::f16 : Dtype::bf16;
    rounded_.prescale = 1.0;
    const size_t bytes = call.count * dtype_bytes(rounded_.dtype);
    const size_t result_at =
        call.kind == Kind::reduce_scatter ? (bytes + kLine - 1) / kLine * kLine : 0;
    scratch.resize(std::max(scratch.size(), result_at + bytes));
    rounded_.in = scratch.data();
    rounded_.out = scratch.data() + result_at;
    convert(call.in, scratch.data(), Dtype::f32, rounded_.dtype, call.prescale, call.count);
    inner_ = transport.start(rounded_);
    has_result_ = call.kind != Kind::reduce || transport.rank() == call.root;
    results_ = call.kind == Kind::reduce_scatter
                   ? call.counts[static_cast<size_t>(transport.rank())]
                   : call.count;
  }

  Algorithm algorithm() const override { return inner_->algorithm(); }

  Step step() override {
    const Step step = inner_->step();
    missing_ = inner_->missing();
    if (step == Step::failed) {
      error_ = inner_->error();
    } else if (step == Step::done && has_result_) {
      convert(rounded_.out, call_.out, rounded_.dtype, Dtype::f32, 1.0, results_);
    }
    return step;
  }

 private:
  static void convert(const std::byte* in, std::byte* out, Dtype from, Dtype to, double scale,
                      uint64_t count) {
    if (count > 0) {
      reduce_tree({.in = from, .out = to, .op = Op::sum, .scale = scale}, {&in, 1}, out, count);
    }
  }

  const Call& call_;
  Call rounded_;
  std::unique_ptr<Operation> inner_;
  bool has_result_ = false;
  uint64_t results_ = 0;
};

}  // namespace

std::unique_ptr<Operation> start_operation(SetTransport& transport, const Call& call,
                                           std::vector<std::byte>& scratch) {
  if (call.wire16 == Wire16::none) {
    return transport.start(call);
  }
  return std::make_unique<Wire16Operation>(transport, call, scratch);
}

}  // namespace headrace::comm
