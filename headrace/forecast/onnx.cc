// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/onnx.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "headrace/forecast/protobuf_internal.h"

namespace headrace::forecast {

namespace {

// Field numbers of onnx.proto3 (ONNX 1.12, IR version 8).
constexpr int64_t kIrVersion = 8;
constexpr int64_t kOpset = 17;
constexpr int64_t kFloat = 1;
constexpr int64_t kInt64 = 7;
constexpr int64_t kAttributeInt = 2;

using Names = std::vector<std::string>;

/// A dimension: a number, or a name where it is free.
struct Dim {
  std::string name;
  int64_t size = 0;
};

/// Collects the parts of a GraphProto.
class Graph {
 public:
  explicit Graph(std::string_view name) : name_(name) {}

  void node(std::string_view type, const Names& inputs, const Names& outputs,
            const std::map<std::string, int64_t>& attributes = {}) {
    ProtobufMessage node;
    for (const std::string& input : inputs) {
      node.text(1, input);
    }
    for (const std::string& output : outputs) {
      node.text(2, output);
    }
    node.text(3, fmt::format("{}_{}", type, nodes_++)).text(4, type);
    for (const auto& [key, value] : attributes) {
      ProtobufMessage attribute;
      attribute.text(1, key).integer(3, value).integer(20, kAttributeInt);
      node.message(5, attribute);
    }
    parts_.message(1, node);
  }
  void constant(const std::string& name, const std::vector<int64_t>& shape,
                std::span<const float> values) {
    parts_.message(5, tensor_head(name, shape, kFloat).floats(9, values));
  }
  void constant(const std::string& name, const std::vector<int64_t>& values) {
    parts_.message(
        5, tensor_head(name, {static_cast<int64_t>(values.size())}, kInt64).integers(9, values));
  }
  void scalar(const std::string& name, int64_t value) {
    parts_.message(5, tensor_head(name, {}, kInt64).integers(9, {&value, 1}));
  }
  void input(const std::string& name, int64_t type, const std::vector<Dim>& shape) {
    parts_.message(11, value_info(name, type, shape));
  }
  void output(const std::string& name, const std::vector<Dim>& shape) {
    parts_.message(12, value_info(name, kFloat, shape));
  }
  ProtobufMessage finish() const {
    ProtobufMessage graph = parts_;
    graph.text(2, name_);
    return graph;
  }

 private:
  static ProtobufMessage tensor_head(const std::string& name, const std::vector<int64_t>& shape,
                                     int64_t type) {
    ProtobufMessage tensor;
    for (const int64_t size : shape) {
      tensor.integer(1, size);
    }
    tensor.integer(2, type).text(8, name);
    return tensor;
  }
  static ProtobufMessage value_info(const std::string& name, int64_t type,
                                    const std::vector<Dim>& shape) {
    ProtobufMessage dims;
    for (const Dim& dim : shape) {
      ProtobufMessage one;
      if (dim.name.empty()) {
        one.integer(1, dim.size);
      } else {
        one.text(2, dim.name);
      }
      dims.message(1, one);
    }
    ProtobufMessage tensor;
    tensor.integer(1, type).message(2, dims);
    ProtobufMessage wrapped;
    wrapped.message(1, tensor);
    ProtobufMessage info;
    info.text(1, name).message(2, wrapped);
    return info;
  }

  std::string name_;
  ProtobufMessage parts_;
  int nodes_ = 0;
};

/// torch's gates i f g o, each a block of `block` values, in ONNX's order i o f g (which it calls
/// c).
std::vector<float> reorder_gates(std::span<const float> values) {
  const size_t block = values.size() / 4;
  std::vector<float> out;
  for (const size_t gate : {0U, 3U, 1U, 2U}) {
    const auto part = values.subspan(gate * block, block);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

/// Builds either graph; they differ in where the state comes from.
class Exporter {
 public:
  Exporter(const Model& model, int member)
      : model_(model),
        shape_(model.spec.shape()),
        parameters_(model.members[static_cast<size_t>(member)]) {
    for (const TensorInfo& info : parameter_tensors(shape_)) {
      tensors_[info.name] =
          std::span(parameters_)
              .subspan(static_cast<size_t>(info.offset), static_cast<size_t>(info.count));
    }
  }

  std::string write(bool is_decoder) {
    Graph graph(is_decoder ? "deepar_decoder" : "deepar_encoder");
    const std::string top = write_layers(&graph, write_inputs(&graph, is_decoder), is_decoder);
    write_heads(&graph, top, is_decoder);

    ProtobufMessage opset;
    opset.text(1, "").integer(2, kOpset);
    ProtobufMessage header;
    header.text(1, "headrace.header").text(2, to_data(header_only()).header.dump(0, true));
    ProtobufMessage file;
    file.integer(1, kIrVersion)
        .text(2, "headrace")
        .message(7, graph.finish())
        .message(8, opset)
        .message(14, header);
    return file.bytes();
  }

 private:
  Model header_only() const {
    Model model = model_;
    model.members = {parameters_};
    return model;
  }
  static Dim steps(bool is_decoder) { return is_decoder ? Dim{"", 1} : Dim{"steps", 0}; }

  /// Joined input columns; returns their name.
  std::string write_inputs(Graph* graph, bool is_decoder) {
    const Dim batch{"batch", 0};
    Names columns;
    if (shape_.lags > 0) {
      graph->input("lags", kFloat, {steps(is_decoder), batch, {"", shape_.lags}});
      columns.emplace_back("lags");
    }
    if (!shape_.embeddings.empty()) {
      graph->input(
          "categories", kInt64,
          {steps(is_decoder), batch, {"", static_cast<int64_t>(shape_.embeddings.size())}});
    }
    for (size_t k = 0; k < shape_.embeddings.size(); ++k) {
      const std::string table = fmt::format("embedder._embedders.{}.weight", k);
      const std::string index = fmt::format("category_{}", k);
      graph->constant(table, {shape_.embeddings[k].cardinality, shape_.embeddings[k].dimension},
                      tensors_.at(table));
      graph->scalar(index + "_column", static_cast<int64_t>(k));
      graph->node("Gather", {"categories", index + "_column"}, {index}, {{"axis", 2}});
      graph->node("Gather", {table, index}, {fmt::format("embedding_{}", k)}, {{"axis", 0}});
      columns.push_back(fmt::format("embedding_{}", k));
    }
    if (shape_.other_inputs > 0) {
      graph->input("other", kFloat, {steps(is_decoder), batch, {"", shape_.other_inputs}});
      columns.emplace_back("other");
    }
    graph->node("Concat", columns, {"inputs"}, {{"axis", 2}});
    return "inputs";
  }

  /// The LSTM layers; returns the name of the top one's outputs, [steps, batch, hidden].
  std::string write_layers(Graph* graph, std::string below, bool is_decoder) {
    const std::vector<Dim> state = {{"", shape_.layers}, {"batch", 0}, {"", shape_.hidden}};
    if (is_decoder) {
      graph->input("h", kFloat, state);
      graph->input("c", kFloat, state);
    }
    graph->constant("direction_axis", std::vector<int64_t>{1});
    Names h_out;
    Names c_out;
    for (int l = 0; l < shape_.layers; ++l) {
      const std::string name = fmt::format("layer_{}", l);
      write_lstm_weights(graph, name, l);
      Names inputs = {below, name + "_W", name + "_R", name + "_B"};
      if (is_decoder) {
        graph->constant(name + "_index", std::vector<int64_t>{l});
        graph->node("Gather", {"h", name + "_index"}, {name + "_h"}, {{"axis", 0}});
        graph->node("Gather", {"c", name + "_index"}, {name + "_c"}, {{"axis", 0}});
        inputs.insert(inputs.end(), {"", name + "_h", name + "_c"});
      }
      graph->node("LSTM", inputs, {name + "_Y", name + "_Yh", name + "_Yc"},
                  {{"hidden_size", shape_.hidden}});
      graph->node("Squeeze", {name + "_Y", "direction_axis"}, {name + "_out"});
      h_out.push_back(name + "_Yh");
      c_out.push_back(name + "_Yc");
      below = name + "_out";
    }
    graph->node("Concat", h_out, {"h_out"}, {{"axis", 0}});
    graph->node("Concat", c_out, {"c_out"}, {{"axis", 0}});
    graph->output("h_out", state);
    graph->output("c_out", state);
    return below;
  }

  void write_lstm_weights(Graph* graph, const std::string& name, int layer) {
    const int64_t inputs = layer == 0 ? shape_.inputs() : shape_.hidden;
    const int64_t gates = int64_t{4} * shape_.hidden;
    const auto tensor = [&](std::string_view part) {
      return tensors_.at(fmt::format("rnn.{}_l{}", part, layer));
    };
    graph->constant(name + "_W", {1, gates, inputs}, reorder_gates(tensor("weight_ih")));
    graph->constant(name + "_R", {1, gates, shape_.hidden}, reorder_gates(tensor("weight_hh")));
    std::vector<float> bias = reorder_gates(tensor("bias_ih"));
    const std::vector<float> recurrent = reorder_gates(tensor("bias_hh"));
    bias.insert(bias.end(), recurrent.begin(), recurrent.end());
    graph->constant(name + "_B", {1, 2 * gates}, bias);
  }

  /// Linear units and what maps them to distribution parameters.
  void write_heads(Graph* graph, const std::string& top, bool is_decoder) {
    const auto count = static_cast<size_t>(parameter_count(shape_.distribution));
    Names parameters;
    for (size_t p = 0; p < count; ++p) {
      const std::string name = fmt::format("param_proj.proj.{}", p);
      const std::string raw = fmt::format("raw_{}", p);
      graph->constant(name + ".weight", {shape_.hidden, 1}, tensors_.at(name + ".weight"));
      graph->constant(name + ".bias", {1}, tensors_.at(name + ".bias"));
      graph->node("MatMul", {top, name + ".weight"}, {raw + "_product"});
      graph->node("Add", {raw + "_product", name + ".bias"}, {raw});
      parameters.push_back(map_parameter(graph, raw, static_cast<int>(p)));
    }
    graph->node("Concat", parameters, {"parameters"}, {{"axis", 2}});
    graph->output("parameters",
                  {steps(is_decoder), {"batch", 0}, {"", static_cast<int64_t>(count)}});
  }

  std::string map_parameter(Graph* graph, const std::string& raw, int p) {
    const Distribution distribution = shape_.distribution;
    const bool is_positive = distribution == Distribution::student_t ? p != 1
                             : distribution == Distribution::normal  ? p == 1
                                                                     : p == 0;
    if (!is_positive) {
      return raw;
    }
    const std::string positive = raw + "_softplus";
    graph->node("Softplus", {raw}, {positive});
    if (distribution != Distribution::student_t) {
      return positive;
    }
    const float two = 2.0F;
    const float floor = std::numeric_limits<float>::epsilon();
    const std::string constant = raw + "_constant";
    graph->constant(constant, {1}, {p == 0 ? &two : &floor, 1});
    graph->node(p == 0 ? "Add" : "Max", {positive, constant}, {raw + "_mapped"});
    return raw + "_mapped";
  }

  const Model& model_;
  NetworkShape shape_;
  const std::vector<float>& parameters_;
  std::map<std::string, std::span<const float>> tensors_;
};

}  // namespace

Result<OnnxFiles> to_onnx(const Model& model, int member) {
  if (model.method != Method::deepar || member < 0 ||
      member >= static_cast<int>(model.members.size())) {
    return Error{
        Errc::invalid_argument,
        fmt::format("forecast: member {} cannot be exported to ONNX: the model is {} with {} "
                    "member(s)",
                    member, method_name(model.method), model.members.size())};
  }
  Exporter exporter(model, member);
  return OnnxFiles{exporter.write(false), exporter.write(true)};
}

}  // namespace headrace::forecast
