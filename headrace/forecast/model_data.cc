// SPDX-License-Identifier: Apache-2.0
// A model's portable form: header and named tensors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "headrace/base/check.h"
#include "headrace/forecast/model_header_internal.h"

namespace headrace::forecast {

namespace {

constexpr std::string_view kScalarNames[] = {"steps",         "best_step",          "loss",
                                             "monitored",     "skipped_steps",      "left_out",
                                             "values_end_us", "values_end_first_us"};

std::string member_prefix(int64_t member) {
  return member == 0 ? std::string() : fmt::format("member.{}.", member);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  }
  return text + "]";
}

Result<void> check_tensor(const Tensor& tensor, const TensorInfo& wanted) {
  if (tensor.shape != wanted.shape || static_cast<int64_t>(tensor.data.size()) != wanted.count) {
    return Error{
        Errc::corrupt,
        fmt::format("forecast: tensor \"{}\" has shape {} and {} values; the header's network "
                    "has {}",
                    tensor.name, shape_text(tensor.shape), tensor.data.size(),
                    shape_text(wanted.shape))};
  }
  for (size_t i = 0; i < tensor.data.size(); ++i) {
    if (!std::isfinite(tensor.data[i])) {
      return Error{Errc::corrupt,
                   fmt::format("forecast: tensor \"{}\": value {} is not finite", tensor.name, i)};
    }
  }
  return {};
}

}  // namespace

ModelData to_data(const Model& model) {
  ModelData data;
  data.header = model_header(model, true);
  for (size_t m = 0; m < model.members.size(); ++m) {
    std::vector<Tensor> tensors = tensors_from_parameters(model.spec.shape(), model.members[m],
                                                          member_prefix(static_cast<int64_t>(m)));
    std::move(tensors.begin(), tensors.end(), std::back_inserter(data.tensors));
  }
  return data;
}

Json shared_header(const Model& model) { return model_header(model, false); }

std::vector<std::pair<std::string, double>> item_scalars(const Model& model) {
  std::vector<std::pair<std::string, double>> scalars = {
      {"log_scale_mean", model.scaling.log_scale_mean}, {"naive_share", model.naive_share}};
  for (const std::string_view name : kScalarNames) {
    scalars.emplace_back(name, model.training.get_number(name));
  }
  return scalars;
}

Result<Model> from_data(const ModelData& data) {
  int64_t members = 0;
  HR_TRY(Model model, read_model_header(data.header, &members));
  for (int64_t m = 0; m < members; ++m) {
    HR_TRY(std::vector<float> parameters,
           parameters_from_tensors(model.spec.shape(), data.tensors, member_prefix(m)));
    model.members.push_back(std::move(parameters));
  }
  return model;
}

Result<std::vector<float>> parameters_from_tensors(const NetworkShape& shape,
                                                   const std::vector<Tensor>& tensors,
                                                   std::string_view prefix) {
  std::vector<float> parameters(static_cast<size_t>(parameter_total(shape)));
  for (const TensorInfo& info : parameter_tensors(shape)) {
    const std::string name = std::string(prefix) + info.name;
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const Tensor& tensor) { return tensor.name == name; });
    if (found == tensors.end()) {
      return Error{Errc::corrupt,
                   fmt::format("forecast: tensor \"{}\" of shape {} is not among the {} given",
                               name, shape_text(info.shape), tensors.size())};
    }
    HR_TRY(check_tensor(*found, info));
    std::copy(found->data.begin(), found->data.end(),
              parameters.begin() + static_cast<std::ptrdiff_t>(info.offset));
  }
  return parameters;
}

std::vector<Tensor> tensors_from_parameters(const NetworkShape& shape,
                                            const std::vector<float>& parameters,
                                            std::string_view prefix) {
  HR_CHECK(static_cast<int64_t>(parameters.size()) == parameter_total(shape),
           "parameters must have the size of their shape");
  std::vector<Tensor> tensors;
  for (const TensorInfo& info : parameter_tensors(shape)) {
    const auto first = parameters.begin() + static_cast<std::ptrdiff_t>(info.offset);
    tensors.push_back({std::string(prefix) + info.name,
                       info.shape,
                       {first, first + static_cast<std::ptrdiff_t>(info.count)}});
  }
  return tensors;
}

}  // namespace headrace::forecast
