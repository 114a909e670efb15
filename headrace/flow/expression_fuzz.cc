// SPDX-License-Identifier: Apache-2.0
// Whatever text stands in a pipeline, it parses or it does not, and evaluates to a value or an
// error.
#include <string_view>

#include "headrace/flow/expression.h"

namespace {

using headrace::Json;
using headrace::Result;
using headrace::flow::Value;

class FuzzContext final : public headrace::flow::Context {
 public:
  Result<Value> pipeline() override { return Value(thing()); }
  Result<Value> parameter(std::string_view) override { return Value(thing()); }
  Result<Value> variable(std::string_view) override { return Value(Json(7)); }
  Result<Value> activity(std::string_view) override { return Value(thing()); }
  Result<Value> item(std::string_view) override { return Value(Json("item")); }
  headrace::base::Micros now() override { return headrace::base::Micros(1); }
  uint64_t random() override { return random_ += 0x9E3779B97F4A7C15U; }

 private:
  static Json thing() {
    Json list = Json::array();
    list.push_back(1.5).push_back("x").push_back(nullptr);
    return Json::object({{"a", std::move(list)}, {"A", true}, {"output", Json::object()}});
  }
  uint64_t random_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.find("range") != std::string_view::npos && size > 60) {
    return 0;  // ten million numbers inside one another are no defect, but slow
  }
  const auto expression = headrace::flow::Expression::parse(text, "fuzz");
  if (expression.ok()) {
    FuzzContext context;
    const auto value = expression->evaluate(context);
    HR_CHECK(value.ok() || value.error().message().starts_with("fuzz "), "an error without place");
    static_cast<void>(expression->references());
  }
  return 0;
}
