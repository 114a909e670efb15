// SPDX-License-Identifier: Apache-2.0
// Whatever a model's header holds, reading it ends with a model or an error, and what was read is
// written and read again as the same; the same bytes as options and as a frequency's name.
#include <cstdint>
#include <string_view>

#include "headrace/base/check.h"
#include "headrace/forecast/model_header_internal.h"
#include "headrace/forecast/options.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;
  using namespace headrace::forecast;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto frequency = parse_frequency(text); frequency.ok()) {
    HR_CHECK(parse_frequency(frequency->name()).value() == *frequency, "a name must read back");
  }
  const auto json = parse_json(text);
  if (!json.ok()) {
    return 0;
  }
  TrainOptions options;
  if (set_options(&options, *json).ok()) {
    TrainOptions copy;
    HR_CHECK(set_options(&copy, to_json(options)).ok() || options.horizon == 0,
             "options must read back");
  }
  int64_t members = 0;
  const auto model = read_model_header(*json, &members);
  if (!model.ok()) {
    return 0;
  }
  Model whole = *model;
  whole.members.resize(static_cast<size_t>(members));
  const auto again = read_model_header(model_header(whole, true), &members);
  HR_CHECK(again.ok(), "a header that was read must be written readable");
  HR_CHECK(again->spec == whole.spec, "and say the same");
  return 0;
}
