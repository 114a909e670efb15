// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/version_json.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace headrace::registry {

namespace {

Error bad(const std::string& what) {
  return Error{Errc::invalid_argument, "registry: version as JSON: " + what};
}

Json pairs_to_json(const std::vector<Pair>& pairs) {
  Json out = Json::array();
  for (const Pair& pair : pairs) {
    out.push_back(Json::array().push_back(pair.name).push_back(pair.value));
  }
  return out;
}

Result<std::vector<Pair>> pairs_from_json(const Json& json, const char* what) {
  std::vector<Pair> pairs;
  const Json* list = json.find(what);
  if (list == nullptr) {
    return pairs;
  }
  if (!list->is_array()) {
    return bad(std::string(what) + " must be a list");
  }
  for (const Json& row : list->items()) {
    if (!row.is_array() || row.items().size() != 2 || !row.items()[0].is_string() ||
        !row.items()[1].is_string()) {
      return bad(std::string(what) + " must hold pairs of texts");
    }
    pairs.push_back({row.items()[0].string(), row.items()[1].string()});
  }
  return pairs;
}

Result<std::vector<Metric>> metrics_from_json(const Json& json) {
  std::vector<Metric> metrics;
  const Json* list = json.find("metrics");
  if (list == nullptr) {
    return metrics;
  }
  if (!list->is_array()) {
    return bad("metrics must be a list");
  }
  for (const Json& row : list->items()) {
    if (!row.is_array() || row.items().size() < 2 || !row.items()[0].is_string()) {
      return bad("metrics must hold [name, value] or [name, value, step]");
    }
    HR_TRY(const double value, double_from_json(row.items()[1]));
    Metric metric{row.items()[0].string(), value, std::nullopt};
    if (row.items().size() > 2 && row.items()[2].is_integer()) {
      metric.step = row.items()[2].integer();
    }
    metrics.push_back(std::move(metric));
  }
  return metrics;
}

Json lineage_to_json(const Lineage& lineage) {
  Json out = Json::object();
  const auto put = [&out](const char* name, const std::string& text) {
    if (!text.empty()) {
      out.set(name, text);
    }
  };
  put("run", lineage.run);
  put("run_kind", lineage.run_kind);
  put("parent_run", lineage.parent_run);
  put("pipeline_digest", lineage.pipeline_digest);
  put("code_version", lineage.code_version);
  put("item", lineage.item);
  put("data_hash", lineage.data_hash);
  if (lineage.attempt != 0) {
    out.set("attempt", lineage.attempt);
  }
  if (!lineage.environment.is_null()) {
    out.set("environment", lineage.environment);
  }
  if (lineage.table) {
    out.set("table", Json::object({{"url", lineage.table->url},
                                   {"format", lineage.table->format},
                                   {"version", lineage.table->version},
                                   {"digest", lineage.table->digest},
                                   {"rows", lineage.table->rows}}));
  }
  return out;
}

Lineage lineage_from_json(const Json* json) {
  Lineage lineage;
  if (json == nullptr || !json->is_object()) {
    return lineage;
  }
  lineage.run = json->get_string("run");
  lineage.run_kind = json->get_string("run_kind");
  lineage.parent_run = json->get_string("parent_run");
  lineage.pipeline_digest = json->get_string("pipeline_digest");
  lineage.code_version = json->get_string("code_version");
  lineage.item = json->get_string("item");
  lineage.data_hash = json->get_string("data_hash");
  lineage.attempt = json->get_integer("attempt");
  if (const Json* environment = json->find("environment")) {
    lineage.environment = *environment;
  }
  if (const Json* table = json->find("table"); table != nullptr && table->is_object()) {
    lineage.table = TableSnapshot{table->get_string("url"), table->get_string("format"),
                                  table->get_string("version"), table->get_string("digest"),
                                  table->get_integer("rows", -1)};
  }
  return lineage;
}

}  // namespace

Result<double> double_from_json(const Json& json) {
  if (json.is_number()) {
    return json.number();
  }
  if (json.is_string()) {
    if (json.string() == "NaN") {
      return std::numeric_limits<double>::quiet_NaN();
    }
    if (json.string() == "Infinity") {
      return HUGE_VAL;
    }
    if (json.string() == "-Infinity") {
      return -HUGE_VAL;
    }
  }
  return bad("expected a number, \"NaN\", \"Infinity\" or \"-Infinity\", found " +
             json.dump().substr(0, 100));
}

std::string doubles_hex(std::span<const double> values) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(values.size() * 16);
  for (const double value : values) {
    const auto bits = std::bit_cast<uint64_t>(value);
    for (int shift = 60; shift >= 0; shift -= 4) {
      out.push_back(kDigits[(bits >> static_cast<unsigned>(shift)) & 15U]);
    }
  }
  return out;
}

Result<std::vector<double>> doubles_from_hex(std::string_view hex) {
  if (hex.size() % 16 != 0) {
    return bad("numbers as hex come in groups of 16 digits");
  }
  std::vector<double> values;
  for (size_t i = 0; i < hex.size(); i += 16) {
    uint64_t bits = 0;
    for (const char c : hex.substr(i, 16)) {
      const bool digit = c >= '0' && c <= '9';
      if (!digit && (c < 'a' || c > 'f')) {
        return bad("numbers as hex have digits 0-9 and a-f");
      }
      bits = (bits << 4U) | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
    }
    values.push_back(std::bit_cast<double>(bits));
  }
  return values;
}

Json new_version_json(const NewVersion& version) {
  Json metrics = Json::array();
  for (const Metric& metric : version.metrics) {
    Json row = Json::array().push_back(metric.name).push_back(metric.value);
    if (metric.step) {
      row.push_back(*metric.step);
    }
    metrics.push_back(std::move(row));
  }
  Json out = Json::object({{"name", version.name},
                           {"kind", version.kind},
                           {"header", version.header},
                           {"metrics", std::move(metrics)},
                           {"params", pairs_to_json(version.params)},
                           {"tags", pairs_to_json(version.tags)},
                           {"lineage", lineage_to_json(version.lineage)}});
  if (version.once) {
    out.set("once", *version.once);
  }
  if (version.parent) {
    out.set("parent", *version.parent);
  }
  return out;
}

Result<NewVersion> new_version_from_json(const Json& json) {
  if (!json.is_object()) {
    return bad("it must be an object");
  }
  NewVersion version;
  version.name = json.get_string("name");
  version.kind = json.get_string("kind");
  if (const Json* header = json.find("header")) {
    version.header = *header;
  }
  HR_TRY(version.metrics, metrics_from_json(json));
  HR_TRY(version.params, pairs_from_json(json, "params"));
  HR_TRY(version.tags, pairs_from_json(json, "tags"));
  version.lineage = lineage_from_json(json.find("lineage"));
  if (const std::string once = json.get_string("once"); !once.empty()) {
    version.once = once;
  }
  if (const std::string parent = json.get_string("parent"); !parent.empty()) {
    version.parent = parent;
  }
  return version;
}

NewVersion as_new(const Version& version) {
  NewVersion out;
  out.name = version.name;
  out.kind = version.kind;
  out.header = version.header;
  out.metrics = version.metrics;
  out.params = version.params;
  out.tags = version.tags;
  out.lineage = version.lineage;
  if (!version.once.empty()) {
    out.once = version.once;
  }
  if (!version.parent.empty()) {
    out.parent = "uid:" + version.parent;
  }
  return out;
}

}  // namespace headrace::registry
