// SPDX-License-Identifier: Apache-2.0
// Names of members that nobody reads, and members that are read and not acted upon.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "headrace/flow/pipeline.h"
#include "headrace/flow/pipeline_check_internal.h"
#include "headrace/flow/text.h"

namespace headrace::flow {

namespace {

using Names = std::vector<std::string>;

/// typeProperties of the control activities.
const std::map<std::string, Names, std::less<>>& control_properties() {
  static const std::map<std::string, Names, std::less<>> kProperties = {
      {"ForEach",
       {"items", "isSequential", "batchCount", "activities", "itemKey", "failureBudget"}},
      {"IfCondition", {"expression", "ifTrueActivities", "ifFalseActivities"}},
      {"Switch", {"on", "cases", "defaultActivities"}},
      {"Until", {"expression", "timeout", "activities", "maxIterations"}},
      {"Wait", {"waitTimeInSeconds"}},
      {"SetVariable", {"variableName", "value", "setSystemVariable"}},
      {"AppendVariable", {"variableName", "value"}},
      {"Filter", {"items", "condition"}},
      {"Fail", {"message", "errorCode"}},
  };
  return kProperties;
}

// By reference: a value may be the whole document, and is asked for at every level.
const Json::Array& items_of(const Json* json) {
  static const Json::Array kNone;
  return json != nullptr && json->is_array() ? json->items() : kNone;
}
const Json::Object& members_of(const Json* json) {
  static const Json::Object kNone;
  return json != nullptr && json->is_object() ? json->members() : kNone;
}

class NameChecker {
 public:
  NameChecker(const Source& source, std::vector<Diagnostic>* diagnostics)
      : source_(source), diagnostics_(*diagnostics) {}

  void document(const Json& root) {
    static const Names kRoot = {"name", "type", "id", "etag", "properties", "systemData"};
    static const Names kPipeline = {"description", "activities",    "parameters",     "variables",
                                    "concurrency", "annotations",   "folder",         "policy",
                                    "activity",    "runDimensions", "lastPublishTime"};
    const Json* properties = root.find("properties");
    const bool nested = properties != nullptr && properties->is_object();
    Names flat = kRoot;
    flat.insert(flat.end(), kPipeline.begin(), kPipeline.end());
    members(root, "the pipeline's document", nested ? kRoot : flat);
    const Json& pipeline = nested ? *properties : root;
    if (nested) {
      members(pipeline, "the pipeline", kPipeline);
    }
    for (const char* group : {"parameters", "variables"}) {
      const Json* all = pipeline.find(group);
      for (const Json::Member& one : members_of(all)) {
        members(one.second, fmt::format("'{}' of {}", one.first, group),
                {"type", "defaultValue", "description", "metadata"});
      }
    }
    misspelt_secrets(root);
    if (const Json* concurrency = pipeline.find("concurrency")) {
      ignored(*concurrency, "concurrency", "runs of one pipeline do not wait for one another");
    }
    if (const Json* policy = pipeline.find("policy")) {
      members(*policy, "policy of the pipeline", {"elapsedTimeMetric"});
      if (const Json* metric = policy->find("elapsedTimeMetric")) {
        ignored(*metric, "policy.elapsedTimeMetric", "nothing is said of a run that takes longer");
      }
    }
    list(pipeline.find("activities"));
    if (const Json* fragment = pipeline.find("activity"); fragment != nullptr) {
      activity(*fragment);
    }
  }

 private:
  /// A secret that is not known as one would be told in logs and kept in files.
  void misspelt_secrets(const Json& json) {
    for (const Json& one : items_of(&json)) {
      misspelt_secrets(one);
    }
    const std::string type = json.get_string("type");
    const bool secure = json.find("value") != nullptr && means_secure_string(type) &&
                        !equal_ignoring_case(type, "SecureString");
    const bool vault = json.find("secretName") != nullptr && json.find("store") != nullptr &&
                       !equal_ignoring_case(type, "AzureKeyVaultSecret") && !secure;
    if (secure || vault) {
      add(Severity::error, "E-SECRET",
          json.find("type") != nullptr ? json.find("type")->offset() : json.offset(),
          fmt::format("an object of type '{}' would be no secret; did you mean '{}'?", type,
                      secure ? "SecureString" : "AzureKeyVaultSecret"));
    }
    for (const Json::Member& member : members_of(&json)) {
      misspelt_secrets(member.second);
    }
  }

  void add(Severity severity, std::string code, int64_t offset, std::string message) {
    diagnostics_.push_back({severity, std::move(code), source_.where(offset), std::move(message)});
  }

  void ignored(const Json& value, std::string_view name, std::string_view what) {
    add(Severity::warning, "W-IGNORED", value.offset(),
        fmt::format("'{}' is not acted upon: {}", name, what));
  }

  void members(const Json& object, const std::string& owner, const Names& known) {
    for (const Json::Member& member : members_of(&object)) {
      if (std::find(known.begin(), known.end(), member.first) == known.end()) {
        diagnostics_.push_back(
            unknown_member(owner, member.first, known, source_.where(member.second.offset())));
      }
    }
  }

  /// What the reader took for a misspelt name of one that must be there, and said so.
  static Names told_names(const Json& properties, const Names& known) {
    static const Names kRequired = {"items", "expression", "on",      "waitTimeInSeconds",
                                    "value", "condition",  "message", "errorCode"};
    Names told;
    for (const Json::Member& member : members_of(&properties)) {
      const auto nearest = nearest_name(member.first, kRequired);
      if (nearest && *nearest != member.first && properties.find(*nearest) == nullptr &&
          std::find(known.begin(), known.end(), *nearest) != known.end()) {
        told.push_back(member.first);
      }
    }
    return told;
  }

  void list(const Json* all) {
    for (const Json& one : items_of(all)) {
      activity(one);
    }
  }

  void activity(const Json& json) {
    static const Names kActivity = {"name",
                                    "type",
                                    "description",
                                    "dependsOn",
                                    "userProperties",
                                    "inputs",
                                    "outputs",
                                    "state",
                                    "onInactiveMarkAs",
                                    "linkedServiceName",
                                    "policy",
                                    "typeProperties",
                                    "externalReferences",
                                    "connectionSettings"};
    const std::string name = fmt::format("activity '{}'", json.get_string("name"));
    const std::string type = json.get_string("type");
    members(json, name, kActivity);
    const Json* all = json.find("dependsOn");
    for (const Json& one : items_of(all)) {
      members(one, "dependsOn of " + name, {"activity", "dependencyConditions"});
    }
    const auto control = control_properties().find(type);
    const bool is_control = control != control_properties().end();
    if (const Json* policy = json.find("policy")) {
      check_policy(*policy, name, is_control);
    }
    check_state(json, name);
    const Json* properties = json.find("typeProperties");
    if (is_control && properties != nullptr) {
      Names known = control->second;
      const Names told = told_names(*properties, known);
      known.insert(known.end(), told.begin(), told.end());
      members(*properties, type + " '" + json.get_string("name") + "'", known);
      inside(*properties, name);
    }
  }

  void check_policy(const Json& policy, const std::string& name, bool is_control) {
    members(policy, "policy of " + name,
            {"timeout", "retry", "retryIntervalInSeconds", "secureInput", "secureOutput"});
    for (const char* bound : {"timeout", "retry", "retryIntervalInSeconds"}) {
      const Json* value = is_control ? policy.find(bound) : nullptr;
      if (value != nullptr) {
        ignored(*value, std::string("policy.") + bound,
                name + " is a control activity, which is neither stopped nor tried again");
      }
    }
  }

  void check_state(const Json& json, const std::string& name) {
    static const Names kStates = {"Active", "Inactive"};
    const Json* state = json.find("state");
    const std::string text = state != nullptr && state->is_string() ? state->string() : "";
    if (state != nullptr && std::ranges::none_of(kStates, [&](const std::string& one) {
          return equal_ignoring_case(one, text);
        })) {
      add(Severity::error, "E-PROPERTY", state->offset(),
          fmt::format("state of {} is 'Active' or 'Inactive', not {}{}", name,
                      state->is_string() ? "'" + text + "'" : state->dump(),
                      did_you_mean(text, kStates)));
    }
  }

  /// Only a worker's properties are evaluated where a key vault may be asked.
  void refuse_vault(const Json& json, const std::string& name) {
    if (equal_ignoring_case(json.get_string("type"), "AzureKeyVaultSecret")) {
      add(Severity::error, "E-SECRET", json.offset(),
          fmt::format("{} is a control activity; an AzureKeyVaultSecret may only stand in the "
                      "typeProperties of an activity that does work, such as Custom",
                      name));
      return;
    }
    for (const Json& one : items_of(&json)) {
      refuse_vault(one, name);
    }
    for (const Json::Member& member : members_of(&json)) {
      if (!member.first.ends_with("ctivities") && member.first != "cases") {
        refuse_vault(member.second, name);
      }
    }
  }

  void inside(const Json& properties, const std::string& name) {
    refuse_vault(properties, name);
    if (const Json* budget = properties.find("failureBudget")) {
      members(*budget, "failureBudget of " + name, {"count", "percent", "onExceeded"});
    }
    const Json* cases = properties.find("cases");
    for (const Json& one : items_of(cases)) {
      members(one, "a case of " + name, {"value", "activities"});
      list(one.find("activities"));
    }
    for (const char* branch :
         {"activities", "ifTrueActivities", "ifFalseActivities", "defaultActivities"}) {
      list(properties.find(branch));
    }
  }

  const Source& source_;
  std::vector<Diagnostic>& diagnostics_;
};

/// Are the letters of `shorter` in `longer`, in order, and at least half of them? "params" in
/// "parameters".
bool abbreviates(std::string_view shorter, std::string_view longer) {
  size_t at = 0;
  for (const char c : longer) {
    at += at < shorter.size() && shorter[at] == c ? 1 : 0;
  }
  return at == shorter.size() && 2 * shorter.size() >= longer.size();
}

/// The name that is likely meant, also by other words of it ("retries", "policies", "params").
std::optional<std::string> meant_name(const std::string& name, const Names& known) {
  constexpr size_t kLettersMin = 4;
  const auto nearest = nearest_name(name, known);
  const std::string lower = lower_text(name);
  if (nearest || lower.size() < kLettersMin || lower.size() > 100) {
    return nearest;
  }
  std::optional<std::string> best;
  size_t best_distance = lower.size() / 2 + 1;
  for (const std::string& one : known) {
    const std::string other = lower_text(one);
    const size_t distance =
        abbreviates(lower, other) && other[0] == lower[0] ? 0 : edit_distance(lower, other);
    if (distance < best_distance) {
      best_distance = distance;
      best = one;
    }
  }
  return best;
}

}  // namespace

Diagnostic unknown_member(const std::string& owner, const std::string& name,
                          const std::vector<std::string>& known, std::string where) {
  // A letter or two away from a name that counts: what it says would be passed over in silence.
  constexpr size_t kMisspelt = 2;
  const auto nearest = meant_name(name, known);
  const bool misspelt =
      nearest && edit_distance(lower_text(name), lower_text(*nearest)) <= kMisspelt;
  return {misspelt ? Severity::error : Severity::warning, misspelt ? "E-PROPERTY" : "W-PROPERTY",
          std::move(where),
          fmt::format("{} does not know the property '{}'{}", owner, name,
                      nearest ? "; did you mean '" + *nearest + "'?"
                              : "; known are: " + name_list(known, 20))};
}

void check_member_names(const Pipeline& pipeline, std::vector<Diagnostic>* diagnostics) {
  const Source& source = *pipeline.source;
  const auto root = parse_json(source.text(), source.name(), {.tolerant = true, .depth_max = 256});
  if (root.ok()) {
    NameChecker(source, diagnostics).document(*root);
  }
}

}  // namespace headrace::flow
