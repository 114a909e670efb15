// SPDX-License-Identifier: Apache-2.0
// A model's header: written as JSON, read back with checks.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "headrace/forecast/model_header_internal.h"

namespace headrace::forecast {

namespace {

using Pairs = std::vector<std::pair<double, double>>;

Json list_of(const auto& values) {
  Json list = Json::array();
  for (const auto& value : values) {
    list.push_back(Json(value));
  }
  return list;
}

Json pairs_json(const Pairs& pairs) {
  Json list = Json::array();
  for (const auto& [mean, deviation] : pairs) {
    list.push_back(Json(Json::Array{mean, deviation}));
  }
  return list;
}

Json features_json(const ModelSpec& spec) {
  Json time = Json::array();
  for (const TimeFeature feature : spec.time_features) {
    time.push_back(Json(time_feature_name(feature)));
  }
  return Json::object({{"time", std::move(time)},
                       {"age", spec.age},
                       {"categories", list_of(spec.categories)},
                       {"static_reals", list_of(spec.static_reals)},
                       {"dynamic_reals", list_of(spec.dynamic_reals)}});
}

/// Reads fields; the first that is absent or of another kind is kept as the error.
class HeaderReader {
 public:
  HeaderReader(const Json& object, std::string place) : object_(object), place_(std::move(place)) {}

  const std::optional<Error>& error() const { return error_; }

  const Json* field(std::string_view name, Json::Kind kind) {
    const Json* value = object_.find(name);
    const bool is_number = kind == Json::Kind::real && value != nullptr && value->is_number();
    if (value != nullptr && (value->kind() == kind || is_number)) {
      return value;
    }
    fail(name, value == nullptr ? "is absent" : fmt::format("is of kind {}", value->kind_name()));
    return nullptr;
  }
  std::string text(std::string_view name) {
    const Json* value = field(name, Json::Kind::string);
    return value == nullptr ? std::string() : value->string();
  }
  int integer(std::string_view name, int64_t min, int64_t max) {
    const Json* value = field(name, Json::Kind::integer);
    if (value != nullptr && (value->integer() < min || value->integer() > max)) {
      fail(name, fmt::format("is {}, not between {} and {}", value->integer(), min, max));
    }
    return value == nullptr || error_ ? 0 : static_cast<int>(value->integer());
  }
  double number(std::string_view name) {
    const Json* value = field(name, Json::Kind::real);
    if (value != nullptr && !std::isfinite(value->number())) {
      fail(name, "is not finite");
    }
    return value == nullptr ? 0.0 : value->number();
  }
  bool boolean(std::string_view name) {
    const Json* value = field(name, Json::Kind::boolean);
    return value != nullptr && value->boolean();
  }
  std::vector<std::string> texts(std::string_view name) {
    const Json* value = field(name, Json::Kind::array);
    std::vector<std::string> list;
    for (const Json& item : value == nullptr ? Json::Array() : value->items()) {
      if (!item.is_string()) {
        fail(name, "is no list of texts");
        return {};
      }
      list.push_back(item.string());
    }
    return list;
  }
  /// Ascending integers from 1.
  std::vector<int> lags(std::string_view name) {
    const Json* value = field(name, Json::Kind::array);
    std::vector<int> list;
    for (const Json& item : value == nullptr ? Json::Array() : value->items()) {
      const int64_t lag = item.is_integer() ? item.integer() : 0;
      if (lag < 1 || lag > 1'000'000 || (!list.empty() && lag <= list.back())) {
        fail(name, "is no ascending list of lags from 1");
        return {};
      }
      list.push_back(static_cast<int>(lag));
    }
    return list;
  }
  Pairs pairs(std::string_view name, size_t count) {
    const Json* value = field(name, Json::Kind::array);
    Pairs list;
    for (const Json& item : value == nullptr ? Json::Array() : value->items()) {
      const bool is_pair =
          item.is_array() && item.items().size() == 2 && item.items()[0].is_number() &&
          item.items()[1].is_number() && item.items()[1].number() > 0.0 &&
          std::isfinite(item.items()[0].number()) && std::isfinite(item.items()[1].number());
      if (!is_pair) {
        fail(name, "is no list of mean and deviation");
        return {};
      }
      list.emplace_back(item.items()[0].number(), item.items()[1].number());
    }
    if (list.size() != count) {
      fail(name, fmt::format("has {} entries, not {}", list.size(), count));
    }
    return list;
  }
  void fail(std::string_view name, const std::string& what) {
    if (!error_) {
      error_ = Error{Errc::corrupt,
                     fmt::format("forecast: model header: \"{}{}\" {}", place_, name, what)};
    }
  }
  template <typename T>
  T take(std::string_view name, Result<T> result) {
    if (!result.ok()) {
      fail(name, "cannot be read: " + result.error().message());
      return T();
    }
    return *std::move(result);
  }

 private:
  const Json& object_;
  std::string place_;
  std::optional<Error> error_;
};

Result<void> read_features(const Json& json, ModelSpec* spec) {
  HeaderReader reader(json, "features.");
  for (const std::string& name : reader.texts("time")) {
    spec->time_features.push_back(reader.take("time", parse_time_feature(name)));
  }
  spec->age = reader.boolean("age");
  spec->categories = reader.texts("categories");
  spec->static_reals = reader.texts("static_reals");
  spec->dynamic_reals = reader.texts("dynamic_reals");
  if (reader.error()) {
    return *reader.error();
  }
  return {};
}

Result<void> read_scale(const Json& json, Model* model) {
  HeaderReader reader(json, "scale.");
  ModelSpec& spec = model->spec;
  spec.scale_input = reader.take("input", parse_scale_input(reader.text("input")));
  const std::string rule = reader.text("rule");
  if (rule != "item" && rule != "gluonts") {
    reader.fail("rule", fmt::format("is \"{}\", not item or gluonts", rule));
  }
  spec.gluonts_scale = rule == "gluonts";
  spec.default_scale = reader.number("default");
  spec.scale_floor = reader.number("floor");
  model->scaling.static_reals = reader.pairs("static_reals", spec.static_reals.size());
  model->scaling.dynamic_reals = reader.pairs("dynamic_reals", spec.dynamic_reals.size());
  if (json.find("log_mean") != nullptr) {
    model->scaling.log_scale_mean = reader.number("log_mean");
  }
  if (reader.error()) {
    return *reader.error();
  }
  return {};
}

Result<void> read_dictionaries(const Json& json, ModelSpec* spec) {
  HeaderReader reader(json, "dictionaries.");
  for (const std::string& name : spec->categories) {
    spec->dictionaries.push_back(reader.texts(name));
    if (spec->dictionaries.back().empty()) {
      reader.fail(name, "is empty");
    }
  }
  if (reader.error()) {
    return *reader.error();
  }
  return {};
}

Result<void> read_spec(const Json& header, Model* model) {
  constexpr int64_t kMax = 1'000'000;
  HeaderReader reader(header, "");
  ModelSpec& spec = model->spec;
  spec.frequency = reader.take("frequency", parse_frequency(reader.text("frequency")));
  spec.horizon = reader.integer("horizon", 1, kMax);
  spec.context = reader.integer("context", model->method == Method::deepar ? 1 : 0, kMax);
  spec.season = reader.integer("season", 1, 100 * kMax);
  spec.lags = reader.lags("lags");
  spec.unknown_category = reader.boolean("unknown_category");
  spec.distribution = reader.take("distribution", parse_distribution(reader.text("distribution")));
  const Json* network = reader.field("network", Json::Kind::object);
  const Json* features = reader.field("features", Json::Kind::object);
  const Json* dictionaries = reader.field("dictionaries", Json::Kind::object);
  const Json* scale = reader.field("scale", Json::Kind::object);
  if (reader.error()) {
    return *reader.error();
  }
  HeaderReader sizes(*network, "network.");
  spec.hidden = sizes.integer("hidden", 1, 4096);
  spec.layers = sizes.integer("layers", 1, 64);
  if (sizes.error()) {
    return *sizes.error();
  }
  HR_TRY(read_features(*features, &spec));
  HR_TRY(read_dictionaries(*dictionaries, &spec));
  return read_scale(*scale, model);
}

/// Hashes of ids, eight hex digits each: a list of numbers would be twice as long.
std::string hashes_text(const std::vector<uint32_t>& hashes) {
  std::string out;
  for (const uint32_t hash : hashes) {
    out += fmt::format("{:08x}", hash);
  }
  return out;
}

std::vector<uint32_t> read_hashes(HeaderReader* reader, std::string_view name) {
  constexpr size_t kDigits = 8;
  const std::string text = reader->text(name);
  std::vector<uint32_t> out;
  for (size_t at = 0; at < text.size(); at += kDigits) {
    const std::string_view one = std::string_view(text).substr(at, kDigits);
    uint32_t hash = 0;
    const auto [stop, code] = std::from_chars(one.data(), one.data() + one.size(), hash, 16);
    const bool whole = code == std::errc() && stop == one.data() + kDigits;
    if (!whole || (!out.empty() && hash <= out.back())) {
      reader->fail(name, "is no text of ascending numbers of eight hex digits each");
      return {};
    }
    out.push_back(hash);
  }
  return out;
}

/// What a bundle keeps per item beside the shared header.
void read_item_scalars(const Json& header, Model* model) {
  const Json* item = header.find("item");
  const Json* scalars = item == nullptr ? nullptr : item->find("scalars");
  if (scalars == nullptr || !scalars->is_object()) {
    return;
  }
  for (const auto& [name, value] : scalars->members()) {
    if (!value.is_number()) {
      continue;
    }
    if (name == "log_scale_mean") {
      model->scaling.log_scale_mean = value.number();
    } else if (name == "naive_share") {
      model->naive_share = value.number();
    } else {
      model->training.set(name, value);
    }
  }
}

}  // namespace

Json model_header(const Model& model, bool with_item_numbers) {
  const ModelSpec& spec = model.spec;
  Json dictionaries = Json::object();
  Json cardinalities = Json::array();
  for (size_t k = 0; k < spec.dictionaries.size(); ++k) {
    dictionaries.set(spec.categories[k], list_of(spec.dictionaries[k]));
    cardinalities.push_back(static_cast<int64_t>(spec.dictionaries[k].size()));
  }
  Json scale = Json::object({{"input", scale_input_name(spec.scale_input)},
                             {"rule", spec.gluonts_scale ? "gluonts" : "item"},
                             {"default", spec.default_scale},
                             {"floor", spec.scale_floor},
                             {"static_reals", pairs_json(model.scaling.static_reals)},
                             {"dynamic_reals", pairs_json(model.scaling.dynamic_reals)}});
  if (with_item_numbers) {
    scale.set("log_mean", model.scaling.log_scale_mean);
  }
  Json header = Json::object({
      {"kind", method_name(model.method)},
      {"frequency", spec.frequency.name()},
      {"horizon", spec.horizon},
      {"context", spec.context},
      {"season", spec.season},
      {"lags", list_of(spec.lags)},
      {"features", features_json(spec)},
      {"cardinalities", std::move(cardinalities)},
      {"dictionaries", std::move(dictionaries)},
      {"unknown_category", spec.unknown_category},
      {"scale", std::move(scale)},
      {"distribution", distribution_name(spec.distribution)},
      {"network", Json::object({{"hidden", spec.hidden}, {"layers", spec.layers}})},
      {"members", static_cast<int64_t>(model.members.size())},
      {"instruction_set", model.instruction_set},
      {"options", model.options},
  });
  if (const ColumnNames& names = model.columns; !names.empty()) {
    Json columns = Json::object({{"id", names.id}, {"time", names.time}, {"target", names.target}});
    if (!names.start.empty()) {
      columns.set("start", names.start);
    }
    if (!names.told_zone.empty()) {
      columns.set("zone", names.told_zone);
    }
    header.set("columns", std::move(columns));
  }
  if (with_item_numbers) {
    header.set("naive_share", model.naive_share);
    header.set("training", model.training);
    if (!model.seen_items.empty()) {
      header.set("seen_items", hashes_text(model.seen_items));
    }
  }
  return header;
}

Result<Model> read_model_header(const Json& header, int64_t* members) {
  HeaderReader reader(header, "");
  Model model;
  model.method = reader.take("kind", parse_method(reader.text("kind")));
  *members = reader.integer("members", 0, 10'000);
  if (reader.error()) {
    return *reader.error();
  }
  if ((model.method == Method::deepar) != (*members > 0)) {
    return Error{Errc::corrupt, fmt::format("forecast: model header: \"members\" is {} for kind {}",
                                            *members, method_name(model.method))};
  }
  HR_TRY(read_spec(header, &model));
  model.instruction_set = header.get_string("instruction_set");
  if (const Json* options = header.find("options"); options != nullptr) {
    model.options = *options;
  }
  if (const Json* training = header.find("training"); training != nullptr) {
    model.training = *training;
  }
  if (header.find("seen_items") != nullptr) {
    model.seen_items = read_hashes(&reader, "seen_items");
  }
  if (header.find("columns") != nullptr) {
    if (const Json* columns = reader.field("columns", Json::Kind::object); columns != nullptr) {
      model.columns = {columns->get_string("id"), columns->get_string("time"),
                       columns->get_string("target")};
      model.columns.start = columns->get_string("start");
      model.columns.told_zone = columns->get_string("zone");
    }
  }
  if (header.find("naive_share") != nullptr) {
    model.naive_share = reader.number("naive_share");
  }
  read_item_scalars(header, &model);
  if (!(model.naive_share >= 0.0 && model.naive_share <= 1.0)) {
    reader.fail("naive_share", "is not between 0 and 1");
  }
  if (reader.error()) {
    return *reader.error();
  }
  return model;
}

}  // namespace headrace::forecast
