// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/network_reference.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace headrace::forecast::reference {

double log_gamma(double x) {
  int sign = 0;
  return lgamma_r(x, &sign);  // std::lgamma writes a global
}

/// Psi by recurrence up to 10, then the asymptotic series (Abramowitz & Stegun 6.3.18).
double digamma(double x) {
  double shift = 0.0;
  for (; x < 10.0; x += 1.0) {
    shift -= 1.0 / x;
  }
  const double y = 1.0 / (x * x);
  const double series =
      y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y * (1.0 / 132)))));
  return shift + std::log(x) - 0.5 / x - series;
}

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

namespace {

Likelihood student_t(double y, double scale, const double* parameters) {
  const double df = parameters[0];
  const double sigma = parameters[2];
  const double u = (y / scale - parameters[1]) / sigma;
  const double spread = std::log1p(u * u / df);
  const double w = (df + 1.0) / (df + u * u);
  Likelihood out;
  out.nll = std::log(sigma) + 0.5 * std::log(df) + 0.5 * std::log(M_PI) + log_gamma(0.5 * df) -
            log_gamma(0.5 * (df + 1.0)) + 0.5 * (df + 1.0) * spread + std::log(scale);
  out.gradient[0] = 0.5 / df + 0.5 * digamma(0.5 * df) - 0.5 * digamma(0.5 * (df + 1.0)) +
                    0.5 * spread - 0.5 * w * u * u / df;
  out.gradient[1] = -w * u / sigma;
  out.gradient[2] = (1.0 - w * u * u) / sigma;
  return out;
}

Likelihood normal(double y, double scale, const double* parameters) {
  const double sigma = parameters[1];
  const double u = (y / scale - parameters[0]) / sigma;
  Likelihood out;
  out.nll = std::log(sigma) + 0.5 * std::log(2.0 * M_PI) + 0.5 * u * u + std::log(scale);
  out.gradient[0] = -u / sigma;
  out.gradient[1] = (1.0 - u * u) / sigma;
  return out;
}

Likelihood negative_binomial(double y, const double* parameters) {
  const double r = parameters[0];
  const double logit = parameters[1];
  Likelihood out;
  const double normaliser =
      r + y == 0.0 ? 0.0 : log_gamma(y + r) - log_gamma(r) - log_gamma(y + 1.0);
  out.nll = -normaliser + r * softplus(logit) + y * softplus(-logit);
  out.gradient[0] = -(y == 0.0 ? 0.0 : digamma(y + r) - digamma(r)) + softplus(logit);
  out.gradient[1] = r * sigmoid(logit) - y * sigmoid(-logit);
  return out;
}

}  // namespace

void map_parameters(Distribution distribution, double log_scale, const double* raw,
                    double* parameters, double* slopes) {
  switch (distribution) {
    case Distribution::student_t: {
      constexpr double kFloor = std::numeric_limits<float>::epsilon();
      parameters[0] = 2.0 + softplus(raw[0]);
      slopes[0] = sigmoid(raw[0]);
      parameters[1] = raw[1];
      slopes[1] = 1.0;
      const double sigma = softplus(raw[2]);
      parameters[2] = sigma < kFloor ? kFloor : sigma;
      slopes[2] = sigma < kFloor ? 0.0 : sigmoid(raw[2]);
      return;
    }
    case Distribution::normal:
      parameters[0] = raw[0];
      slopes[0] = 1.0;
      parameters[1] = softplus(raw[1]);
      slopes[1] = sigmoid(raw[1]);
      return;
    case Distribution::negative_binomial:
      parameters[0] = softplus(raw[0]);
      slopes[0] = sigmoid(raw[0]);
      parameters[1] = raw[1] + log_scale;
      slopes[1] = 1.0;
      return;
  }
}

Likelihood likelihood(Distribution distribution, double y, double scale, const double* parameters) {
  switch (distribution) {
    case Distribution::student_t: return student_t(y, scale, parameters);
    case Distribution::normal: return normal(y, scale, parameters);
    case Distribution::negative_binomial: return negative_binomial(y, parameters);
  }
  return {};
}

namespace {

/// Forward and backward of one batch.
class Network {
 public:
  Network(const NetworkShape& shape, std::span<const double> parameters)
      : shape_(shape), parameters_(parameters) {
    size_t at = 0;
    const auto tensors = parameter_tensors(shape);
    const auto next = [&] { return static_cast<size_t>(tensors[at++].offset); };
    for (size_t e = 0; e < shape.embeddings.size(); ++e) {
      embedding_offsets_.push_back(next());
    }
    for (int l = 0; l < shape.layers; ++l) {
      const size_t ih = next();
      const size_t hh = next();
      const size_t bias_ih = next();
      layer_offsets_.push_back({ih, hh, bias_ih, next()});
    }
    for (int p = 0; p < parameter_count(shape.distribution); ++p, ++at) {
      head_offsets_.push_back(next());  // the bias follows its weight
    }
  }

  /// Sets the parameters' gradient when `gradient` is not empty.
  StepLoss run(Batch* batch, std::span<double> gradient) {
    batch_ = batch;
    fill_embeddings();
    forward();
    const StepLoss loss = heads(gradient);
    if (!gradient.empty()) {
      for (int layer = shape_.layers - 1; layer >= 0; --layer) {
        backward(layer, gradient);
      }
      embedding_gradient(gradient);
    }
    return loss;
  }
  /// [steps][batch][parameter_count]
  const std::vector<double>& distributions() const { return distributions_; }

 private:
  struct Layer {
    int inputs = 0;
    std::vector<double> x;      ///< [steps][batch][inputs]
    std::vector<double> gates;  ///< [steps][batch][4 * hidden], after their activations
    std::vector<double> c;      ///< [steps + 1][batch][hidden]
    std::vector<double> h;      ///< [steps + 1][batch][hidden]
    std::vector<double>
        d_above;              ///< [steps][batch][hidden]: gradient of h from heads or layer above
    std::vector<double> d_x;  ///< [steps][batch][inputs]
  };

  struct Offsets {
    size_t ih = 0;
    size_t hh = 0;
    size_t bias_ih = 0;
    size_t bias_hh = 0;
  };
  size_t cell(int t, int b) const {
    return static_cast<size_t>(t) * static_cast<size_t>(batch_->batch) + static_cast<size_t>(b);
  }
  size_t hidden() const { return static_cast<size_t>(shape_.hidden); }

  void fill_embeddings() {
    const auto inputs = static_cast<size_t>(shape_.inputs());
    for (int t = 0; t < batch_->steps; ++t) {
      for (int b = 0; b < batch_->batch; ++b) {
        double* column = &batch_->inputs[cell(t, b) * inputs + static_cast<size_t>(shape_.lags)];
        for (size_t e = 0; e < shape_.embeddings.size(); ++e) {
          const auto dimension = static_cast<size_t>(shape_.embeddings[e].dimension);
          const double* row = embedding_row(b, e);
          column = std::copy(row, row + dimension, column);
        }
      }
    }
  }
  size_t embedding_offset(int b, size_t e) const {
    const auto row = static_cast<size_t>(
        batch_->categories[static_cast<size_t>(b) * shape_.embeddings.size() + e]);
    return embedding_offsets_[e] + row * static_cast<size_t>(shape_.embeddings[e].dimension);
  }
  const double* embedding_row(int b, size_t e) const {
    return &parameters_[embedding_offset(b, e)];
  }

  void forward() {
    layers_.assign(static_cast<size_t>(shape_.layers), Layer{});
    const auto cells = static_cast<size_t>(batch_->batch) * static_cast<size_t>(batch_->steps);
    const size_t states = (cells + static_cast<size_t>(batch_->batch)) * hidden();
    for (int l = 0; l < shape_.layers; ++l) {
      Layer& layer = layers_[static_cast<size_t>(l)];
      layer.inputs = l == 0 ? shape_.inputs() : shape_.hidden;
      layer.x = l == 0 ? batch_->inputs : dropped_outputs(l - 1);
      layer.gates.assign(cells * 4 * hidden(), 0.0);
      layer.c.assign(states, 0.0);
      layer.h.assign(states, 0.0);
      layer.d_above.assign(cells * hidden(), 0.0);
      layer.d_x.assign(cells * static_cast<size_t>(layer.inputs), 0.0);
      for (int t = 0; t < batch_->steps; ++t) {
        for (int b = 0; b < batch_->batch; ++b) {
          forward_cell(l, t, b);
        }
      }
    }
  }

  std::vector<double> dropped_outputs(int l) const {
    const Layer& layer = layers_[static_cast<size_t>(l)];
    const auto begin = static_cast<std::ptrdiff_t>(static_cast<size_t>(batch_->batch) * hidden());
    std::vector<double> x(layer.h.begin() + begin, layer.h.end());
    if (!batch_->masks.empty()) {
      const double* masks = &batch_->masks[static_cast<size_t>(l) * x.size()];
      for (size_t i = 0; i < x.size(); ++i) {
        x[i] *= masks[i];
      }
    }
    return x;
  }

  void forward_cell(int l, int t, int b) {
    Layer& layer = layers_[static_cast<size_t>(l)];
    const auto inputs = static_cast<size_t>(layer.inputs);
    const double* x = &layer.x[cell(t, b) * inputs];
    const double* h = &layer.h[cell(t, b) * hidden()];
    const double* c = &layer.c[cell(t, b) * hidden()];
    double* gates = &layer.gates[cell(t, b) * 4 * hidden()];
    const Offsets& at = layer_offsets_[static_cast<size_t>(l)];
    for (size_t j = 0; j < 4 * hidden(); ++j) {
      double sum = parameters_[at.bias_ih + j] + parameters_[at.bias_hh + j];
      const double* w = &parameters_[at.ih + j * inputs];
      for (size_t k = 0; k < inputs; ++k) {
        sum += w[k] * x[k];
      }
      w = &parameters_[at.hh + j * hidden()];
      for (size_t k = 0; k < hidden(); ++k) {
        sum += w[k] * h[k];
      }
      gates[j] = j / hidden() == 2 ? std::tanh(sum) : sigmoid(sum);
    }
    for (size_t u = 0; u < hidden(); ++u) {
      const double next = gates[hidden() + u] * c[u] + gates[u] * gates[2 * hidden() + u];
      layer.c[cell(t + 1, b) * hidden() + u] = next;
      layer.h[cell(t + 1, b) * hidden() + u] = gates[3 * hidden() + u] * std::tanh(next);
    }
  }

  /// Heads, likelihood, and the top layer's d_above.
  StepLoss heads(std::span<double> gradient) {
    const int count = parameter_count(shape_.distribution);
    Layer& top = layers_.back();
    distributions_.assign(static_cast<size_t>(batch_->steps) * static_cast<size_t>(batch_->batch) *
                              static_cast<size_t>(count),
                          0.0);
    std::fill(gradient.begin(), gradient.end(), 0.0);
    double sum = 0.0;
    double observed_sum = 0.0;
    const double share = 1.0 / (static_cast<double>(batch_->batch) * batch_->steps);
    for (int t = 0; t < batch_->steps; ++t) {
      for (int b = 0; b < batch_->batch; ++b) {
        const double* h = &top.h[cell(t + 1, b) * hidden()];
        double raw[3] = {};
        double slopes[3] = {};
        for (int p = 0; p < count; ++p) {
          const size_t at = head_offset(p);
          double value = parameters_[at + hidden()];
          for (size_t k = 0; k < hidden(); ++k) {
            value += parameters_[at + k] * h[k];
          }
          raw[p] = value;
        }
        double* mapped = &distributions_[cell(t, b) * static_cast<size_t>(count)];
        const double scale = batch_->scales[static_cast<size_t>(b)];
        map_parameters(shape_.distribution, std::log(scale), raw, mapped, slopes);
        const double observed = batch_->observed[cell(t, b)];
        observed_sum += observed;
        if (observed == 0.0) {
          continue;
        }
        const Likelihood one =
            likelihood(shape_.distribution, batch_->targets[cell(t, b)], scale, mapped);
        sum += observed * one.nll;
        for (int p = 0; p < count && !gradient.empty(); ++p) {
          const double d = share * observed * one.gradient[p] * slopes[p];
          const size_t at = head_offset(p);
          gradient[at + hidden()] += d;
          for (size_t k = 0; k < hidden(); ++k) {
            gradient[at + k] += d * h[k];
            top.d_above[cell(t, b) * hidden() + k] += d * parameters_[at + k];
          }
        }
      }
    }
    return {sum * share, observed_sum > 0.0 ? sum / observed_sum : 0.0};
  }
  size_t head_offset(int p) const { return head_offsets_[static_cast<size_t>(p)]; }

  void backward(int l, std::span<double> gradient) {
    Layer& layer = layers_[static_cast<size_t>(l)];
    const auto rows = static_cast<size_t>(batch_->batch);
    std::vector<double> d_h(rows * hidden(), 0.0);
    std::vector<double> d_c(rows * hidden(), 0.0);
    for (int t = batch_->steps - 1; t >= 0; --t) {
      for (int b = 0; b < batch_->batch; ++b) {
        backward_cell(l, t, b, &d_h[static_cast<size_t>(b) * hidden()],
                      &d_c[static_cast<size_t>(b) * hidden()], gradient);
      }
    }
    if (l > 0) {
      Layer& below = layers_[static_cast<size_t>(l - 1)];
      below.d_above = layer.d_x;
      if (!batch_->masks.empty()) {
        const double* masks = &batch_->masks[static_cast<size_t>(l - 1) * below.d_above.size()];
        for (size_t i = 0; i < below.d_above.size(); ++i) {
          below.d_above[i] *= masks[i];
        }
      }
    }
  }

  void backward_cell(int l, int t, int b, double* d_h, double* d_c, std::span<double> gradient) {
    Layer& layer = layers_[static_cast<size_t>(l)];
    const auto inputs = static_cast<size_t>(layer.inputs);
    const double* gates = &layer.gates[cell(t, b) * 4 * hidden()];
    const double* c_before = &layer.c[cell(t, b) * hidden()];
    const double* c_after = &layer.c[cell(t + 1, b) * hidden()];
    const Offsets& offsets = layer_offsets_[static_cast<size_t>(l)];
    std::vector<double> d_gates(4 * hidden());
    for (size_t u = 0; u < hidden(); ++u) {
      const double i = gates[u];
      const double f = gates[hidden() + u];
      const double g = gates[2 * hidden() + u];
      const double o = gates[3 * hidden() + u];
      const double tc = std::tanh(c_after[u]);
      const double dh = d_h[u] + layer.d_above[cell(t, b) * hidden() + u];
      const double dc = d_c[u] + dh * o * (1.0 - tc * tc);
      d_gates[u] = dc * g * i * (1.0 - i);
      d_gates[hidden() + u] = dc * c_before[u] * f * (1.0 - f);
      d_gates[2 * hidden() + u] = dc * i * (1.0 - g * g);
      d_gates[3 * hidden() + u] = dh * tc * o * (1.0 - o);
      d_c[u] = dc * f;
      d_h[u] = 0.0;
    }
    const double* x = &layer.x[cell(t, b) * inputs];
    const double* h = &layer.h[cell(t, b) * hidden()];
    double* d_x = &layer.d_x[cell(t, b) * inputs];
    for (size_t j = 0; j < 4 * hidden(); ++j) {
      gradient[offsets.bias_ih + j] += d_gates[j];
      gradient[offsets.bias_hh + j] += d_gates[j];
      size_t at = offsets.ih + j * inputs;
      for (size_t k = 0; k < inputs; ++k) {
        gradient[at + k] += d_gates[j] * x[k];
        d_x[k] += d_gates[j] * parameters_[at + k];
      }
      at = offsets.hh + j * hidden();
      for (size_t k = 0; k < hidden(); ++k) {
        gradient[at + k] += d_gates[j] * h[k];
        d_h[k] += d_gates[j] * parameters_[at + k];
      }
    }
  }

  void embedding_gradient(std::span<double> gradient) {
    const auto inputs = static_cast<size_t>(shape_.inputs());
    for (int t = 0; t < batch_->steps; ++t) {
      for (int b = 0; b < batch_->batch; ++b) {
        const double* d = &layers_[0].d_x[cell(t, b) * inputs + static_cast<size_t>(shape_.lags)];
        for (size_t e = 0; e < shape_.embeddings.size(); ++e) {
          const size_t at = embedding_offset(b, e);
          for (size_t k = 0; k < static_cast<size_t>(shape_.embeddings[e].dimension); ++k) {
            gradient[at + k] += *d++;
          }
        }
      }
    }
  }

  NetworkShape shape_;
  std::span<const double> parameters_;
  std::vector<size_t> embedding_offsets_;
  std::vector<Offsets> layer_offsets_;
  std::vector<size_t> head_offsets_;
  Batch* batch_ = nullptr;
  std::vector<Layer> layers_;
  std::vector<double> distributions_;
};

}  // namespace

namespace {

void round_to_float(std::vector<double>* values) {
  for (double& value : *values) {
    value = static_cast<double>(static_cast<float>(value));
  }
}

}  // namespace

Batch random_batch(const NetworkShape& shape, int batch, int steps, base::Rng* rng) {
  const auto cells = static_cast<size_t>(batch) * static_cast<size_t>(steps);
  Batch b;
  b.batch = batch;
  b.steps = steps;
  b.inputs.resize(cells * static_cast<size_t>(shape.inputs()));
  b.categories.resize(static_cast<size_t>(batch) * shape.embeddings.size());
  b.targets.resize(cells);
  b.observed.resize(cells);
  b.scales.resize(static_cast<size_t>(batch));
  for (double& x : b.inputs) {
    x = rng->normal();
  }
  for (size_t i = 0; i < b.categories.size(); ++i) {
    const EmbeddingShape& embedding = shape.embeddings[i % shape.embeddings.size()];
    b.categories[i] = static_cast<int>(rng->below(static_cast<uint64_t>(embedding.cardinality)));
  }
  for (double& scale : b.scales) {
    scale = std::exp(rng->normal());
  }
  for (size_t i = 0; i < cells; ++i) {
    b.targets[i] = shape.distribution == Distribution::negative_binomial
                       ? static_cast<double>(rng->poisson(4.0))
                       : rng->normal() * b.scales[i % static_cast<size_t>(batch)];
    b.observed[i] = rng->uniform() < 0.8 ? 1.0 : 0.0;
  }
  round_to_float(&b.inputs);
  round_to_float(&b.scales);
  round_to_float(&b.targets);
  return b;
}

void fill(const NetworkShape& shape, const Batch& batch, TrainingStep* step) {
  const auto inputs = static_cast<size_t>(shape.inputs());
  const auto to_float = [](double value) { return static_cast<float>(value); };
  for (int t = 0; t < batch.steps; ++t) {
    for (int b = 0; b < batch.batch; ++b) {
      const size_t cell =
          static_cast<size_t>(t) * static_cast<size_t>(batch.batch) + static_cast<size_t>(b);
      const double* row = &batch.inputs[cell * inputs];
      std::transform(row, row + inputs, step->input_row(t, b), to_float);
      step->target_row(t)[b] = to_float(batch.targets[cell]);
      step->observed_row(t)[b] = to_float(batch.observed[cell]);
    }
  }
  const size_t features = shape.embeddings.size();
  for (int b = 0; b < batch.batch; ++b) {
    const auto row = static_cast<size_t>(b);
    step->scales()[b] = to_float(batch.scales[row]);
    for (size_t e = 0; e < features; ++e) {
      step->set_category(b, static_cast<int>(e), batch.categories[row * features + e]);
    }
  }
}

Outcome run(const NetworkShape& shape, std::span<const double> parameters, Batch batch) {
  Outcome outcome;
  outcome.gradient.resize(parameters.size());
  Network network(shape, parameters);
  outcome.loss = network.run(&batch, outcome.gradient);
  outcome.distributions = network.distributions();
  return outcome;
}

double difference(std::span<const float> found, std::span<const double> expected) {
  double largest = 0.0;
  double off = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double apart = std::fabs(static_cast<double>(found[i]) - expected[i]);
    if (std::isnan(apart)) {
      return apart;
    }
    largest = std::max(largest, std::fabs(expected[i]));
    off = std::max(off, apart);
  }
  return largest > 0.0 ? off / largest : off;
}

}  // namespace headrace::forecast::reference
