// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/table_spec.h"

namespace headrace::jobs {

namespace {

constexpr TableText kTexts[] = {
    {"format", &TableSpec::format},       {"id", &TableSpec::id},
    {"time", &TableSpec::time},           {"target", &TableSpec::target},
    {"frequency", &TableSpec::frequency}, {"start", &TableSpec::start},
    {"aggregate", &TableSpec::aggregate}, {"zone", &TableSpec::zone},
    {"metadata", &TableSpec::metadata},   {"static_table", &TableSpec::static_table},
};

void read_names(const Json& json, const char* name, std::vector<std::string>* out) {
  const Json* value = json.find(name);
  if (value == nullptr || !value->is_array()) {
    return;
  }
  for (const Json& item : value->items()) {
    if (item.is_string()) {
      out->push_back(item.string());
    }
  }
}

}  // namespace

Result<void> check_static_named(const TableSpec& spec) {
  if (spec.static_table.empty() || !spec.categories.empty() || !spec.static_reals.empty()) {
    return {};
  }
  return Error{Errc::invalid_argument,
               "static_table (--static-table) " + spec.static_table +
                   " is given, but none of its columns; name them with categories (--categories) "
                   "or static_reals (--static-reals)"};
}

std::span<const TableText> table_texts() { return kTexts; }

Json to_json(const TableSpec& spec) {
  Json out = Json::object({{"url", spec.url}});
  for (const TableText& text : kTexts) {
    out.set(text.name, spec.*text.field);
  }
  out.set("allow_missing_columns", spec.allow_missing_columns);
  return out;
}

TableSpec table_spec_of(const Json& json) {
  TableSpec spec;
  spec.url = json.get_string("url");
  for (const TableText& text : kTexts) {
    spec.*text.field = json.get_string(text.name, spec.*text.field);
  }
  const Json* allow = json.find("allow_missing_columns");
  spec.allow_missing_columns = allow != nullptr && allow->is_bool() && allow->boolean();
  read_names(json, "categories", &spec.categories);
  read_names(json, "static_reals", &spec.static_reals);
  read_names(json, "dynamic_reals", &spec.dynamic_reals);
  if (const Json* learned = json.find("learned"); learned != nullptr && learned->is_object()) {
    spec.learned = {learned->get_string("id"), learned->get_string("time"),
                    learned->get_string("target")};
    spec.learned.start = learned->get_string("start");
    spec.learned.told_zone = learned->get_string("zone");
  }
  return spec;
}

}  // namespace headrace::jobs
