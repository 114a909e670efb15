// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/types.h"

#include <algorithm>

namespace headrace::registry {

namespace {

Json pairs_json(const std::vector<Pair>& pairs) {
  Json out = Json::object();
  for (const Pair& pair : pairs) {
    out.set(pair.name, pair.value);
  }
  return out;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json time_or_null(base::Micros time) {
  return time.count() == 0 ? Json() : Json(base::utc_text(time, 6));
}

Json lineage_json(const Version& version) {
  const Lineage& lineage = version.lineage;
  Json out = Json::object({{"run", text_or_null(lineage.run)},
                           {"run_kind", text_or_null(lineage.run_kind)},
                           {"parent_run", text_or_null(lineage.parent_run)},
                           {"run_status", text_or_null(lineage.run_status)},
                           {"run_started", time_or_null(lineage.run_started)},
                           {"run_ended", time_or_null(lineage.run_ended)},
                           {"item", text_or_null(lineage.item)},
                           {"attempt", lineage.attempt == 0 ? Json() : Json(lineage.attempt)},
                           {"code_version", text_or_null(lineage.code_version)},
                           {"pipeline_digest", text_or_null(lineage.pipeline_digest)},
                           {"data_hash", text_or_null(lineage.data_hash)},
                           {"environment", lineage.environment},
                           {"parent", text_or_null(version.parent)}});
  Json table;
  if (lineage.table) {
    table = Json::object({{"url", lineage.table->url},
                          {"format", lineage.table->format},
                          {"version", text_or_null(lineage.table->version)},
                          {"digest", text_or_null(lineage.table->digest)},
                          {"rows", lineage.table->rows < 0 ? Json() : Json(lineage.table->rows)}});
  }
  out.set("table", std::move(table));
  return out;
}

}  // namespace

const double* Version::metric(std::string_view wanted) const {
  const auto found = std::find_if(metrics.begin(), metrics.end(),
                                  [&](const Metric& metric) { return metric.name == wanted; });
  return found == metrics.end() ? nullptr : &found->value;
}

const StoredArtifact* Version::artifact(std::string_view wanted) const {
  const auto found =
      std::find_if(artifacts.begin(), artifacts.end(),
                   [&](const StoredArtifact& artifact) { return artifact.path == wanted; });
  return found == artifacts.end() ? nullptr : &*found;
}

bool VerifyReport::clean() const {
  return std::all_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.harmless; });
}

Json to_json(const Version& version) {
  Json metrics = Json::object();
  Json steps = Json::object();
  for (const Metric& metric : version.metrics) {
    metrics.set(metric.name, metric.value);
    if (metric.step) {
      steps.set(metric.name, *metric.step);
    }
  }
  Json artifacts = Json::array();
  for (const StoredArtifact& artifact : version.artifacts) {
    artifacts.push_back(Json::object({{"path", artifact.path},
                                      {"hash", artifact.hash},
                                      {"bytes", artifact.bytes},
                                      {"kind", artifact.kind},
                                      {"slot", artifact.slot ? Json(*artifact.slot) : Json()}}));
  }
  Json aliases = Json::array();
  for (const std::string& alias : version.aliases) {
    aliases.push_back(alias);
  }
  Json out = Json::object(
      {{"name", version.name},
       {"version", version.version},
       {"uid", version.uid},
       {"state", version.deleted ? "deleted" : "ready"},
       {"kind", version.kind},
       {"created", base::utc_text(version.created, 6)},
       {"deleted", version.deleted ? Json(base::utc_text(version.deleted_at, 6)) : Json()},
       {"once", text_or_null(version.once)},
       {"aliases", std::move(aliases)},
       {"metrics", std::move(metrics)},
       {"params", pairs_json(version.params)},
       {"tags", pairs_json(version.tags)},
       {"lineage", lineage_json(version)},
       {"artifacts", std::move(artifacts)}});
  if (!steps.members().empty()) {
    out.set("metric_steps", std::move(steps));
  }
  if (!version.header.is_null()) {
    out.set("header", version.header);
  }
  return out;
}

}  // namespace headrace::registry
