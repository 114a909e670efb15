// SPDX-License-Identifier: Apache-2.0
// A trained network as two ONNX graphs: the encoder over the context, and one step of the decoder.
#pragma once

#include <string>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/forecast/model.h"

namespace headrace::forecast {

/// Bytes of two ONNX files, opset 17. Names of inputs and outputs are the same in both:
///
/// | tensor       | type, shape                      | meaning |
/// |---|---|---|
/// | `lags`       | f32 [steps, batch, lags]         | past values / scale, in the order of
/// header.lags | | `categories` | i64 [steps, batch, categories]   | indices; only where the model
/// has categories | | `other`      | f32 [steps, batch, other]        | static reals, log(scale),
/// time features, age, dynamic reals | | `h`, `c`     | f32 [layers, batch, hidden]      | state;
/// inputs of the decoder, outputs of both as `h_out`, `c_out` | | `parameters` | f32 [steps, batch,
/// 2 or 3]       | Student-t df, mu, sigma; Normal mu, sigma; NegBin total_count, logit without
/// log(scale) |
///
/// The encoder begins with a state of zeros and takes any number of steps; the decoder takes 1.
/// `batch` is free. The file's metadata holds the model's header under "headrace.header".
struct OnnxFiles {
  std::string encoder;
  std::string decoder;
};

/// Export one member of the ensemble. `invalid_argument`: the model has no network, or no such
/// member.
HR_API Result<OnnxFiles> to_onnx(const Model& model, int member = 0);

}  // namespace headrace::forecast
