// SPDX-License-Identifier: Apache-2.0
// headrace._native.forecast: the network on numpy arrays, for tests and for those who train by
// hand.
#include "python/src/border.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "headrace/base/random.h"
#include "headrace/forecast/network.h"

namespace headrace::python {

namespace {

using forecast::Adam;
using forecast::AdamOptions;
using forecast::Decoder;
using forecast::NetworkShape;
using forecast::StepLoss;
using forecast::TrainingStep;

template <typename T, size_t kDimensions>
using Input = nb::ndarray<const T, nb::ndim<kDimensions>, nb::c_contig, nb::device::cpu>;
using InOut = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<nb::numpy, float>;

Output to_numpy(std::vector<float> values, std::initializer_list<size_t> extents) {
  auto* owned = new std::vector<float>(std::move(values));
  const nb::capsule owner(owned,
                          [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return {owned->data(), extents, owner};
}

/// `extent` of `what` must be `wanted`.
void check_extent(const char* what, size_t extent, size_t wanted) {
  if (extent != wanted) {
    or_throw(Result<void>(Error(Errc::mismatch, std::string("forecast: ") + what + " has extent " +
                                                    std::to_string(extent) + "; the network has " +
                                                    std::to_string(wanted))));
  }
}

void check_categories(const NetworkShape& shape, const Input<int64_t, 2>& categories) {
  check_extent("categories' second axis", categories.shape(1), shape.embeddings.size());
  for (size_t row = 0; row < categories.shape(0); ++row) {
    for (size_t e = 0; e < shape.embeddings.size(); ++e) {
      const int64_t index = categories.data()[row * shape.embeddings.size() + e];
      if (index < 0 || index >= shape.embeddings[e].cardinality) {
        or_throw(Result<void>(Error(Errc::invalid_argument,
                                    "forecast: category " + std::to_string(index) + " of feature " +
                                        std::to_string(e) + " is not in [0, " +
                                        std::to_string(shape.embeddings[e].cardinality) + ")")));
      }
    }
  }
}

NetworkShape make_shape(int lags, int other_inputs,
                        const std::vector<std::pair<int, int>>& embeddings, int hidden, int layers,
                        std::string_view distribution) {
  NetworkShape shape;
  shape.lags = lags;
  shape.other_inputs = other_inputs;
  for (const auto& [cardinality, dimension] : embeddings) {
    shape.embeddings.push_back({cardinality, dimension});
  }
  shape.hidden = hidden;
  shape.layers = layers;
  shape.distribution = or_throw(forecast::parse_distribution(distribution));
  return shape;
}

std::span<const float> parameter_span(const NetworkShape& shape, const Input<float, 1>& values) {
  check_extent("the parameter vector", values.size(),
               static_cast<size_t>(forecast::parameter_total(shape)));
  return {values.data(), values.size()};
}

/// A training step that knows its own extents.
struct Step {
  NetworkShape shape;
  size_t batch;
  size_t steps;
  TrainingStep core;

  Step(const NetworkShape& network, int rows, int length)
      : shape(network),
        batch(static_cast<size_t>(std::max(rows, 0))),
        steps(static_cast<size_t>(std::max(length, 0))),
        core(or_throw(TrainingStep::make(network, rows, length))) {}

  void fill(const Input<float, 3>& inputs, const Input<float, 2>& target,
            const Input<float, 2>& observed, const Input<float, 1>& scales,
            const Input<int64_t, 2>& categories) {
    const auto columns = static_cast<size_t>(shape.inputs());
    for (const auto& [what, extent, wanted] :
         {std::tuple{"inputs' first axis (steps)", inputs.shape(0), steps},
          {"inputs' second axis (batch)", inputs.shape(1), batch},
          {"inputs' third axis (columns)", inputs.shape(2), columns},
          {"target's first axis (steps)", target.shape(0), steps},
          {"target's second axis (batch)", target.shape(1), batch},
          {"observed's first axis (steps)", observed.shape(0), steps},
          {"observed's second axis (batch)", observed.shape(1), batch},
          {"scales' axis (batch)", scales.shape(0), batch},
          {"categories' first axis (batch)", categories.shape(0), batch}}) {
      check_extent(what, extent, wanted);
    }
    check_categories(shape, categories);
    for (size_t t = 0; t < steps; ++t) {
      for (size_t b = 0; b < batch; ++b) {
        std::copy_n(inputs.data() + (t * batch + b) * columns, columns,
                    core.input_row(static_cast<int>(t), static_cast<int>(b)));
      }
      std::copy_n(target.data() + t * batch, batch, core.target_row(static_cast<int>(t)));
      std::copy_n(observed.data() + t * batch, batch, core.observed_row(static_cast<int>(t)));
    }
    std::copy_n(scales.data(), batch, core.scales());
    for (size_t b = 0; b < batch; ++b) {
      for (size_t e = 0; e < shape.embeddings.size(); ++e) {
        core.set_category(static_cast<int>(b), static_cast<int>(e),
                          static_cast<int>(categories.data()[b * shape.embeddings.size() + e]));
      }
    }
  }

  std::tuple<double, double, Output> loss_and_gradient(const Input<float, 1>& parameters,
                                                       float dropout, uint64_t seed) {
    if (!(dropout >= 0.0F && dropout < 1.0F)) {
      or_throw(Result<void>(
          Error(Errc::invalid_argument,
                "forecast: dropout is " + std::to_string(dropout) + "; it must be in [0, 1)")));
    }
    const auto given = parameter_span(shape, parameters);
    std::vector<float> gradient(given.size());
    StepLoss loss;
    {
      const nb::gil_scoped_release release;
      base::Rng rng(seed);
      loss = core.loss_and_gradient(given, dropout, &rng, gradient);
    }
    const size_t count = gradient.size();
    return {loss.loss, loss.masked_loss, to_numpy(std::move(gradient), {count})};
  }

  std::pair<double, double> loss(const Input<float, 1>& parameters) {
    const StepLoss loss = core.loss(parameter_span(shape, parameters));
    return {loss.loss, loss.masked_loss};
  }

  Output distributions() const {
    const auto count = static_cast<size_t>(forecast::parameter_count(shape.distribution));
    std::vector<float> all;
    for (size_t t = 0; t < steps; ++t) {
      for (size_t b = 0; b < batch; ++b) {
        const auto row = core.distribution_row(static_cast<int>(t), static_cast<int>(b));
        all.insert(all.end(), row.begin(), row.end());
      }
    }
    return to_numpy(std::move(all), {steps, batch, count});
  }
};

/// A decoder that takes its inputs with each step.
struct Decode {
  NetworkShape shape;
  int rows_max;
  Decoder core;

  Decode(const NetworkShape& network, int limit, const Input<float, 1>& parameters)
      : shape(network),
        rows_max(limit),
        core(or_throw(Decoder::make(network, limit, parameter_span(network, parameters)))) {}

  void reset(int rows) {
    if (rows < 0 || rows > rows_max) {
      or_throw(Result<void>(
          Error(Errc::invalid_argument, "forecast: " + std::to_string(rows) +
                                            " rows; the decoder was made for at most " +
                                            std::to_string(rows_max))));
    }
    core.reset(rows);
  }

  void repeat(int copies) {
    if (copies < 1 || int64_t{copies} * core.rows() > rows_max) {
      or_throw(Result<void>(Error(
          Errc::invalid_argument,
          "forecast: " + std::to_string(copies) + " copies of " + std::to_string(core.rows()) +
              " rows; the decoder was made for at most " + std::to_string(rows_max) + " rows")));
    }
    core.repeat(copies);
  }

  void set_categories(const Input<int64_t, 2>& categories) {
    check_extent("categories' first axis (rows)", categories.shape(0),
                 static_cast<size_t>(core.rows()));
    check_categories(shape, categories);
    for (int row = 0; row < core.rows(); ++row) {
      for (size_t e = 0; e < shape.embeddings.size(); ++e) {
        const size_t at = static_cast<size_t>(row) * shape.embeddings.size() + e;
        core.set_category(row, static_cast<int>(e), static_cast<int>(categories.data()[at]));
      }
    }
  }

  Output step(const Input<float, 2>& inputs) {
    const auto columns = static_cast<size_t>(shape.inputs());
    check_extent("inputs' first axis (rows)", inputs.shape(0), static_cast<size_t>(core.rows()));
    check_extent("inputs' second axis (columns)", inputs.shape(1), columns);
    for (int row = 0; row < core.rows(); ++row) {
      std::copy_n(inputs.data() + static_cast<size_t>(row) * columns, columns, core.input_row(row));
    }
    core.step();
    const auto found = core.distributions();
    const auto rows = static_cast<size_t>(core.rows());
    return to_numpy({found.begin(), found.end()},
                    {rows, static_cast<size_t>(forecast::parameter_count(shape.distribution))});
  }
};

double adam_step(Adam& adam, const InOut& parameters, const InOut& gradient, double rate,
                 size_t count) {
  check_extent("the parameter vector", parameters.size(), count);
  check_extent("the gradient", gradient.size(), count);
  return adam.step({parameters.data(), count}, {gradient.data(), count}, rate);
}

/// Adam that knows its size.
struct Optimiser {
  size_t count;
  Adam core;
};

void bind_shape(nb::module_& m) {
  nb::class_<NetworkShape>(m, "NetworkShape",
                           "What decides the parameters' shapes; columns of an input row: lags, "
                           "embeddings, others.")
      .def(
          "__init__",
          [](NetworkShape* self, int lags, int other_inputs,
             const std::vector<std::pair<int, int>>& embeddings, int hidden, int layers,
             std::string_view distribution) {
            new (self) NetworkShape(
                make_shape(lags, other_inputs, embeddings, hidden, layers, distribution));
          },
          "lags"_a, "other_inputs"_a, "embeddings"_a = std::vector<std::pair<int, int>>(),
          "hidden"_a = 40, "layers"_a = 2, "distribution"_a = "student_t")
      .def_prop_ro("inputs", &NetworkShape::inputs, "Columns of an input row.");
  m.def(
      "parameter_tensors",
      [](const NetworkShape& shape) {
        std::vector<std::tuple<std::string, std::vector<int64_t>, int64_t>> out;
        for (forecast::TensorInfo& tensor : forecast::parameter_tensors(shape)) {
          out.emplace_back(std::move(tensor.name), std::move(tensor.shape), tensor.offset);
        }
        return out;
      },
      "shape"_a, "Name (torch's), shape and offset of each tensor in the parameter vector.");
  m.def("parameter_total", &forecast::parameter_total, "shape"_a,
        "Length of the parameter vector.");
  m.def(
      "initial_parameters",
      [](const NetworkShape& shape, uint64_t seed) {
        base::Rng rng(seed);
        std::vector<float> values = forecast::initial_parameters(shape, &rng);
        const size_t count = values.size();
        return to_numpy(std::move(values), {count});
      },
      "shape"_a, "seed"_a, "Draw a parameter vector.");
  m.def("instruction_sets", &forecast::instruction_sets, "Those of this machine, best first.");
  m.def("instruction_set", &forecast::instruction_set, "The one in use.");
  m.def(
      "set_instruction_set",
      [](std::string_view name) { or_throw(forecast::set_instruction_set(name)); }, "name"_a,
      "Use another one from now on.");
}

}  // namespace

void bind_forecast_network(nb::module_& root) {
  nb::module_ m = root.def_submodule("forecast");
  bind_shape(m);
  nb::class_<Step>(m, "TrainingStep", "Loss and gradient of one batch.")
      .def(nb::init<const NetworkShape&, int, int>(), "shape"_a, "batch"_a, "steps"_a)
      .def("fill", &Step::fill, "inputs"_a, "target"_a, "observed"_a, "scales"_a, "categories"_a,
           "Copy inputs [steps, batch, inputs], target and observed [steps, batch], scales [batch] "
           "and categories [batch, embeddings] (int64).")
      .def("loss_and_gradient", &Step::loss_and_gradient, "parameters"_a, "dropout"_a = 0.0F,
           "seed"_a = 0, "Loss (mean over all cells), loss over observed cells, gradient.")
      .def("loss", &Step::loss, "parameters"_a, "Both losses, without dropout.")
      .def("distributions", &Step::distributions,
           "Parameters of the last run's distributions, [steps, batch, parameters].");
  nb::class_<Optimiser>(m, "Adam", "torch.optim.Adam behind torch's clip_grad_norm_.")
      .def(
          "__init__",
          [](Optimiser* self, size_t count, double beta1, double beta2, double epsilon,
             double weight_decay, double clip_norm) {
            const AdamOptions options{beta1, beta2, epsilon, weight_decay, clip_norm};
            new (self) Optimiser{count, Adam(static_cast<int64_t>(count), options)};
          },
          "parameters"_a, "beta1"_a = AdamOptions().beta1, "beta2"_a = AdamOptions().beta2,
          "epsilon"_a = AdamOptions().epsilon, "weight_decay"_a = AdamOptions().weight_decay,
          "clip_norm"_a = AdamOptions().clip_norm)
      .def(
          "step",
          [](Optimiser& self, const InOut& parameters, const InOut& gradient, double rate) {
            return adam_step(self.core, parameters, gradient, rate, self.count);
          },
          "parameters"_a, "gradient"_a, "learning_rate"_a,
          "Change both in place; the gradient's norm before clipping.");
  nb::class_<Decode>(m, "Decoder", "The network one step at a time, without gradients.")
      .def(nb::init<const NetworkShape&, int, const Input<float, 1>&>(), "shape"_a, "rows_max"_a,
           "parameters"_a)
      .def("reset", &Decode::reset, "rows"_a, "Start `rows` sequences at zero.")
      .def("set_categories", &Decode::set_categories, "categories"_a, "[rows, embeddings], int64.")
      .def("step", &Decode::step, "inputs"_a,
           "Advance all rows by inputs [rows, inputs]; distributions' parameters [rows, ...].")
      .def("repeat", &Decode::repeat, "copies"_a, "Make each row `copies` rows.")
      .def_prop_ro("rows", [](const Decode& self) { return self.core.rows(); }, "Rows now.");
}

}  // namespace headrace::python
