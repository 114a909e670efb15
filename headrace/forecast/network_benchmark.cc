// SPDX-License-Identifier: Apache-2.0
// Speed of a training step and of the decoder at M4 Hourly's size, per instruction set, beside a
// loop of nothing but multiply-adds: what share of the core's peak is used.
#include <benchmark/benchmark.h>

#include "headrace/base/kernel_targets.h"
#include "headrace/forecast/network.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "headrace/forecast/network_benchmark.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace headrace::forecast {
namespace HWY_NAMESPACE {

/// `rounds` times 12 independent multiply-adds of one vector; returns the lanes.
size_t multiply_adds(size_t rounds, float* out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> sums[12];
#pragma GCC unroll 12
  for (size_t i = 0; i < 12; ++i) {
    sums[i] = hn::Set(d, static_cast<float>(i));
  }
  const auto factor = hn::Set(d, 0.999F);
  const auto term = hn::Set(d, 0.001F);
  for (size_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (size_t i = 0; i < 12; ++i) {
      sums[i] = hn::MulAdd(sums[i], factor, term);
    }
  }
#pragma GCC unroll 12
  for (size_t i = 1; i < 12; ++i) {
    sums[0] = sums[0] + sums[i];
  }
  *out = hn::GetLane(sums[0]);
  return hn::Lanes(d);
}

}  // namespace HWY_NAMESPACE
}  // namespace headrace::forecast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::forecast {
namespace {

HWY_EXPORT(multiply_adds);

NetworkShape hourly() {
  NetworkShape shape;
  shape.lags = 40;
  shape.other_inputs = 8;
  return shape;
}

/// Operations of the LSTM's products per row and step: forward, gradient by weights, gradient by
/// inputs (layer 0: by h alone).
double operations(const NetworkShape& shape, bool backward) {
  double sum = 0.0;
  for (int l = 0; l < shape.layers; ++l) {
    const int inputs = l == 0 ? shape.inputs() : shape.hidden;
    const double product = 2.0 * 4 * shape.hidden;
    sum += product * (inputs + shape.hidden);
    if (backward) {
      sum += product * (inputs + shape.hidden) + product * (shape.hidden + (l == 0 ? 0 : inputs));
    }
  }
  return sum;
}

void count_operations(benchmark::State& state, double per_round) {
  state.counters["GFLOP/s"] = benchmark::Counter(
      per_round * static_cast<double>(state.iterations()) * 1e-9, benchmark::Counter::kIsRate);
}

void training_step(benchmark::State& state, const std::string& isa) {
  if (!set_instruction_set(isa).ok()) {
    state.SkipWithError("no such instruction set");
    return;
  }
  const NetworkShape shape = hourly();
  constexpr int kBatch = 32;
  constexpr int kSteps = 95;
  base::Rng rng(1);
  auto parameters = initial_parameters(shape, &rng);
  auto step = TrainingStep::make(shape, kBatch, kSteps).value();
  for (int t = 0; t < kSteps; ++t) {
    for (int b = 0; b < kBatch; ++b) {
      float* row = step.input_row(t, b);
      for (int k = 0; k < shape.inputs(); ++k) {
        row[k] = static_cast<float>(rng.normal());
      }
      step.target_row(t)[b] = static_cast<float>(rng.normal());
      step.observed_row(t)[b] = 1.0F;
    }
  }
  for (int b = 0; b < kBatch; ++b) {
    step.scales()[b] = 1.0F;
  }
  std::vector<float> gradient(parameters.size());
  Adam adam(static_cast<int64_t>(parameters.size()));
  for (auto _ : state) {
    benchmark::DoNotOptimize(step.loss_and_gradient(parameters, 0.1F, &rng, gradient));
    adam.step(parameters, gradient, 1e-6);
  }
  count_operations(state, operations(shape, true) * kBatch * kSteps);
}

void decoder_step(benchmark::State& state, const std::string& isa) {
  if (!set_instruction_set(isa).ok()) {
    state.SkipWithError("no such instruction set");
    return;
  }
  const NetworkShape shape = hourly();
  base::Rng rng(1);
  const auto rows = static_cast<int>(state.range(0));
  auto decoder = Decoder::make(shape, rows, initial_parameters(shape, &rng)).value();
  decoder.reset(rows);
  for (int r = 0; r < rows; ++r) {
    for (int k = 0; k < shape.inputs(); ++k) {
      decoder.input_row(r)[k] = static_cast<float>(rng.normal());
    }
  }
  for (auto _ : state) {
    decoder.step();
    benchmark::DoNotOptimize(decoder.distributions().data());
  }
  count_operations(state, operations(shape, false) * rows);
  state.counters["rows/s"] =
      benchmark::Counter(static_cast<double>(rows) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}

void peak(benchmark::State& state, int64_t target) {
  constexpr size_t kRounds = 1000000;
  size_t lanes = 0;
  float out = 0.0F;
  for (auto _ : state) {
    lanes = HWY_DISPATCH_TABLE(multiply_adds)[base::target_index(target)](kRounds, &out);
    benchmark::DoNotOptimize(out);
  }
  count_operations(state, static_cast<double>(lanes) * 2 * 12 * kRounds);
}

int register_all() {
  const std::pair<const char*, int64_t> kPeaks[] = {
      {"avx512", HWY_AVX3}, {"avx2", HWY_AVX2}, {"neon", HWY_NEON}, {"scalar", HWY_SCALAR}};
  for (const std::string& isa : instruction_sets()) {
    for (const auto& [name, target] : kPeaks) {
      if (isa == name) {
        benchmark::RegisterBenchmark(("multiply_adds/" + isa).c_str(), peak, target)
            ->Unit(benchmark::kMillisecond);
      }
    }
    benchmark::RegisterBenchmark(("training_step/" + isa).c_str(), training_step, isa)
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("decoder_step/" + isa).c_str(), decoder_step, isa)
        ->Arg(100)
        ->Arg(4000)
        ->Unit(benchmark::kMillisecond);
  }
  return 0;
}

const int kRegistered = register_all();

}  // namespace
}  // namespace headrace::forecast
#endif
