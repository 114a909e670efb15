// SPDX-License-Identifier: Apache-2.0
// A trained model in memory, and its portable form: a JSON header with named tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/forecast/frequency.h"
#include "headrace/forecast/network.h"
#include "headrace/forecast/series.h"
#include "headrace/forecast/time_features.h"

namespace headrace::forecast {

/// What forecasts an item. All but `deepar` have no parameters.
enum class Method : uint8_t { deepar, seasonal_naive, naive2, last_value };
HR_API std::string_view method_name(Method method);
HR_API Result<Method> parse_method(std::string_view name);

/// How log(scale) enters the network: not, as it is, or less the mean over the training windows.
enum class ScaleInput : uint8_t { off, raw, centred };
HR_API std::string_view scale_input_name(ScaleInput input);
HR_API Result<ScaleInput> parse_scale_input(std::string_view name);

/// Everything that decides what the network sees: layout of the inputs, shapes, scaling.
struct ModelSpec {
  Frequency frequency;
  int horizon = 0;
  int context = 0;
  int season = 1;
  std::vector<int> lags;
  std::vector<TimeFeature> time_features;
  bool age = true;
  ScaleInput scale_input = ScaleInput::centred;
  /// GluonTS's rule for a context without values or of zeros (floor 1e-10), or the item's mean (9.4
  /// of the specification).
  bool gluonts_scale = false;
  double default_scale =
      0.0;  ///< for windows without an observed context under GluonTS's rule; 0 = none
  double scale_floor = 0.0;                ///< smallest scale as a share of the item's mean |y|
  std::vector<std::string> categories;     ///< names
  std::vector<std::string> static_reals;   ///< names
  std::vector<std::string> dynamic_reals;  ///< names
  /// Values by category in the order of their index; index 0 is "" where unknown values are
  /// allowed.
  std::vector<std::vector<std::string>> dictionaries;
  bool unknown_category = true;
  Distribution distribution = Distribution::student_t;
  int hidden = 40;
  int layers = 2;

  HR_API int64_t past() const;  ///< steps a window looks back: context + largest lag - 1
  HR_API NetworkShape shape() const;
  bool operator==(const ModelSpec&) const = default;
};

/// Name of the first field in which two specs differ, with both values: "hidden is 40 here and 64
/// there";
/// "" when equal.
HR_API std::string spec_difference(const ModelSpec& here, const ModelSpec& there);

/// Numbers learned from the training data beside the weights.
struct InputScaling {
  double log_scale_mean = 0.0;                           ///< taken off log(scale) when centred
  std::vector<std::pair<double, double>> static_reals;   ///< mean, standard deviation
  std::vector<std::pair<double, double>> dynamic_reals;  ///< mean, standard deviation
};

struct Model {
  Method method = Method::deepar;
  ModelSpec spec;
  InputScaling scaling;
  /// One parameter vector per member of the ensemble; a forecast's paths are split evenly over
  /// them. Empty for methods without parameters.
  std::vector<std::vector<float>> members;
  /// Share of seasonal naive in a forecast: quantiles are averaged level by level, (1 - share) of
  /// the network's and share of seasonal naive's. 0 = the network alone.
  double naive_share = 0.0;
  std::string instruction_set;  ///< that trained it: other sets give other last bits
  Json options;                 ///< as resolved for training
  Json training;                ///< steps, best_step, loss, seconds, epochs, ...
  /// Of a global model: hashes of the ids of the series it was trained on, ascending
  /// (`forecast/seen.h`). Empty: not known, and of local models.
  std::vector<uint32_t> seen_items;
  ColumnNames columns;  ///< of the table it was trained on: what a forecast reads by default
};

/// One named tensor of 32-bit floats, row-major.
struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> data;
};

/// The portable form (docs/formats/forecast-model.md). The header has the fields `kind` (the
/// method), `frequency`, `horizon`, `context`, `season`, `lags`, `features`, `cardinalities`,
/// `dictionaries`, `scale`, `distribution`, `network`, `members`, `instruction_set`, `options`,
/// `training`, `seen_items`, `columns`. Tensors carry torch's names; those of members after the
/// first begin with "member.N.". Equal models give equal headers and tensors.
struct ModelData {
  Json header;
  std::vector<Tensor> tensors;
};
HR_API ModelData to_data(const Model& model);

/// For many local models that share one header: the header without what differs from item to item,
/// and these numbers by name. `from_data` finds them again under header.item.scalars.
HR_API Json shared_header(const Model& model);
HR_API std::vector<std::pair<std::string, double>> item_scalars(const Model& model);

/// Read it back. `corrupt`: a field is absent or of the wrong kind, a tensor is absent, of another
/// shape, or not finite; the message names it.
HR_API Result<Model> from_data(const ModelData& data);

/// Parameters in the order of `parameter_tensors(shape)` out of tensors by name, and back. Names
/// beyond the shape's (GluonTS keeps a few buffers) are passed over. A prefix as torch writes it
/// ("model.") may be given.
HR_API Result<std::vector<float>> parameters_from_tensors(const NetworkShape& shape,
                                                          const std::vector<Tensor>& tensors,
                                                          std::string_view prefix = {});
HR_API std::vector<Tensor> tensors_from_parameters(const NetworkShape& shape,
                                                   const std::vector<float>& parameters,
                                                   std::string_view prefix = {});

}  // namespace headrace::forecast
