// SPDX-License-Identifier: Apache-2.0
// Structure of the exported files, by a small reader of the wire format; onnxruntime runs them in
// tests/python.
#include "headrace/forecast/onnx.h"

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "headrace/base/json.h"
#include "headrace/forecast/example_series_test.h"
#include "headrace/forecast/forecaster.h"

using namespace headrace;
using namespace headrace::forecast;

namespace {

/// Fields of one message by number: integers as decimal text, strings and messages as their bytes.
using Fields = std::map<int, std::vector<std::string>>;

Fields read_message(const std::string& bytes) {
  Fields fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      REQUIRE(at < bytes.size());
      const auto byte = static_cast<unsigned char>(bytes[at++]);
      value |= static_cast<uint64_t>(byte & 0x7fU) << shift;
      if (byte < 0x80U) {
        return value;
      }
    }
  };
  while (at < bytes.size()) {
    const uint64_t key = varint();
    const auto field = static_cast<int>(key >> 3U);
    if ((key & 7U) == 0) {
      fields[field].push_back(std::to_string(varint()));
      continue;
    }
    REQUIRE((key & 7U) == 2);
    const uint64_t length = varint();
    REQUIRE(at + length <= bytes.size());
    fields[field].push_back(bytes.substr(at, length));
    at += length;
  }
  return fields;
}

std::vector<std::string> names(const Fields& graph, int field, int name_field) {
  std::vector<std::string> list;
  const auto found = graph.find(field);
  for (const std::string& part :
       found == graph.end() ? std::vector<std::string>() : found->second) {
    list.push_back(read_message(part)[name_field].at(0));
  }
  return list;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("both graphs have the promised inputs, outputs, operators and header") {
  TrainOptions options = quick_options();
  options.categories = {"store"};
  Series series = wave("A", 100);
  series.categories = {"north"};
  const Model model = train_local(series, options).value().model;
  const OnnxFiles files = to_onnx(model).value();

  Fields encoder = read_message(files.encoder);
  CHECK(encoder[1].at(0) == "8");
  CHECK(read_message(encoder[8].at(0))[2].at(0) == "17");
  Fields property = read_message(encoder[14].at(0));
  CHECK(property[1].at(0) == "headrace.header");
  CHECK(parse_json(property[2].at(0)).value().get_string("kind") == "deepar");
  const Fields graph = read_message(encoder[7].at(0));
  CHECK(names(graph, 11, 1) == Names{"lags", "categories", "other"});
  CHECK(names(graph, 12, 1) == Names{"h_out", "c_out", "parameters"});
  CHECK(names(graph, 1, 4) == Names{"Gather", "Gather",   "Concat",   "LSTM",   "Squeeze",
                                    "LSTM",   "Squeeze",  "Concat",   "Concat", "MatMul",
                                    "Add",    "Softplus", "Add",      "MatMul", "Add",
                                    "MatMul", "Add",      "Softplus", "Max",    "Concat"});

  Fields decoder = read_message(files.decoder);
  const Fields step = read_message(decoder[7].at(0));
  CHECK(names(step, 11, 1) == Names{"lags", "categories", "other", "h", "c"});
  CHECK(names(step, 12, 1) == Names{"h_out", "c_out", "parameters"});
}

TEST_CASE("every tensor of the file has the bytes its shape asks for") {
  const Model model = train_local(wave("A", 100), quick_options()).value().model;
  Fields file = read_message(to_onnx(model).value().encoder);
  const Fields graph = read_message(file[7].at(0));
  int64_t weights = 0;
  for (const std::string& part : graph.at(5)) {
    Fields tensor = read_message(part);
    int64_t count = 1;
    for (const std::string& size : tensor[1]) {
      count *= std::stoll(size);
    }
    const bool is_float = tensor[2].at(0) == "1";
    CHECK(static_cast<int64_t>(tensor[9].at(0).size()) == count * (is_float ? 4 : 8));
    weights += is_float ? count : 0;
  }
  CHECK(weights == parameter_total(model.spec.shape()) + 2);  // and the two constants of Student-t
}

TEST_CASE("what has no network cannot be exported") {
  const Series series = wave("A", 100);
  CHECK(to_onnx(fallback_model(series, quick_options())).error().code() == Errc::invalid_argument);
  const Model model = train_local(series, quick_options()).value().model;
  CHECK(to_onnx(model, 1).error().message().find("member 1") != std::string::npos);
}
