// SPDX-License-Identifier: Apache-2.0
// From JSON documents to pipelines.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "headrace/flow/pipeline.h"
#include "headrace/flow/pipeline_check_internal.h"
#include "headrace/flow/text.h"

namespace headrace::flow {

namespace {

constexpr int kNestingMax = 32;
constexpr int64_t kDocumentBytesMax = int64_t{64} << 20;

constexpr struct {
  std::string_view type;
  ActivityKind kind;
} kControlTypes[] = {
    {"ForEach", ActivityKind::for_each},
    {"IfCondition", ActivityKind::if_condition},
    {"Switch", ActivityKind::switch_case},
    {"Until", ActivityKind::until},
    {"Wait", ActivityKind::wait},
    {"SetVariable", ActivityKind::set_variable},
    {"AppendVariable", ActivityKind::append_variable},
    {"Filter", ActivityKind::filter},
    {"Fail", ActivityKind::fail},
};

/// A pipeline without a name is called as its file, or in Fabric as its folder.
std::string name_of_file(const base::Path& path) {
  const base::Path folder = path.parent_path();
  return folder.extension() == ".DataPipeline" ? folder.stem().string() : path.stem().string();
}

uint8_t bit(Status status) { return static_cast<uint8_t>(1U << static_cast<unsigned>(status)); }

class Reader {
 public:
  Reader(std::shared_ptr<const Source> source, std::vector<Diagnostic>* diagnostics)
      : source_(std::move(source)), diagnostics_(diagnostics) {}

  std::shared_ptr<const Pipeline> read(const Json& root) {
    auto pipeline = std::make_shared<Pipeline>();
    pipeline->source = source_;
    pipeline->name = root.get_string("name", name_of_file(source_->name()));
    const Json* properties = find_properties(root);
    if (properties == nullptr) {
      return nullptr;
    }
    pipeline->description = properties->get_string("description");
    read_named(*properties, "parameters", [&](const std::string& name, const Json& json) {
      read_parameter(name, json, &pipeline->parameters);
    });
    read_named(*properties, "variables", [&](const std::string& name, const Json& json) {
      read_variable(name, json, &pipeline->variables);
    });
    const Json* fragment = root.find("activity");
    if (fragment != nullptr && properties == &root) {
      Json one = Json::array();
      one.push_back(*fragment);
      pipeline->body = read_list(one, 0);
    } else {
      pipeline->body = read_list(*properties->find("activities"), 0);
    }
    pipeline->activity_count = next_id_;
    find_secrets(root, pipeline.get());
    check_pipeline(pipeline.get(), diagnostics_);
    return pipeline;
  }

 private:
  void error(std::string code, int64_t offset, std::string message) {
    diagnostics_->push_back(
        {Severity::error, std::move(code), source_->where(offset), std::move(message)});
  }
  void warning(std::string code, int64_t offset, std::string message) {
    diagnostics_->push_back(
        {Severity::warning, std::move(code), source_->where(offset), std::move(message)});
  }

  /// The object that holds `activities`; nullptr, with a finding, when this is no pipeline.
  const Json* find_properties(const Json& root) {
    if (!root.is_object()) {
      error("E-FORM", root.offset(),
            fmt::format("a pipeline is an object; this is {}", describe_value(root)));
      return nullptr;
    }
    if (root.find("resources") != nullptr || root.find("$schema") != nullptr) {
      error("E-FORM", root.offset(),
            "this is an ARM template, which cannot be read yet; take the pipeline's own file from "
            "the factory's Git repository");
      return nullptr;
    }
    if (root.find("tasks") != nullptr) {
      error("E-FORM", root.offset(), "this is a Databricks job, which cannot be read yet");
      return nullptr;
    }
    const Json* properties = root.find("properties");
    const Json* activities = properties != nullptr ? properties->find("activities") : nullptr;
    if (activities != nullptr && activities->is_array()) {
      return properties;
    }
    activities = root.find("activities");
    const Json* fragment = root.find("activity");
    if ((activities != nullptr && activities->is_array()) ||
        (fragment != nullptr && fragment->is_object())) {
      return &root;
    }
    std::vector<std::string> names;
    for (const Json::Member& member : root.members()) {
      names.push_back(member.first);
    }
    error("E-FORM", root.offset(),
          fmt::format("this is no pipeline: it has neither properties.activities nor activities; "
                      "its keys are {}",
                      name_list(names)));
    return nullptr;
  }

  /// `parameters` and `variables`: an object, or (hand-written files) an array of one-key objects.
  template <typename Visit>
  void read_named(const Json& properties, std::string_view key, const Visit& visit) {
    const Json* group = properties.find(key);
    if (group == nullptr || group->is_null()) {
      return;
    }
    if (group->is_object()) {
      for (const Json::Member& member : group->members()) {
        visit(member.first, member.second);
      }
      return;
    }
    if (!group->is_array()) {
      error("E-PROPERTY", group->offset(),
            fmt::format("'{}' must be an object, not {}", key, describe_value(*group)));
      return;
    }
    for (const Json& one : group->items()) {
      if (one.is_object() && one.members().size() == 1) {
        visit(one.members()[0].first, one.members()[0].second);
      } else {
        error("E-PROPERTY", one.offset(),
              fmt::format("an element of '{}' must be an object of one key", key));
      }
    }
  }

  /// The name of `wanted` in `names`, case-insensitive; with a finding when it is none.
  std::string choose(std::string_view wanted, const std::vector<std::string>& names,
                     std::string_view what, int64_t offset) {
    for (const std::string& name : names) {
      if (equal_ignoring_case(name, wanted)) {
        return name;
      }
    }
    error("E-PROPERTY", offset,
          fmt::format("{} '{}' is not one of {}{}", what, wanted, name_list(names),
                      did_you_mean(wanted, names)));
    return names[0];
  }

  void read_parameter(const std::string& name, const Json& json, std::vector<Parameter>* out) {
    static const std::vector<std::string> kTypes = {"String", "Int",    "Float",       "Bool",
                                                    "Array",  "Object", "SecureString"};
    Parameter parameter;
    parameter.name = name;
    parameter.offset = json.offset();
    parameter.type =
        choose(json.get_string("type", "String"), kTypes, "parameter type", json.offset());
    parameter.secure = parameter.type == "SecureString";
    if (const Json* value = json.find("defaultValue")) {
      // In a collection it is a value among others and stays what it is.
      const bool secret = parameter.type != "Object" && parameter.type != "Array" &&
                          equal_ignoring_case(value->get_string("type"), "SecureString");
      parameter.secure = parameter.secure || secret;
      const Json* inner = secret ? value->find("value") : nullptr;
      parameter.default_value = inner != nullptr ? *inner : *value;
    }
    out->push_back(std::move(parameter));
  }

  void read_variable(const std::string& name, const Json& json, std::vector<Variable>* out) {
    Variable variable;
    variable.name = name;
    variable.offset = json.offset();
    std::string type = json.get_string("type", "String");
    if (lower_text(type).starts_with("array of")) {
      type = "Array";
    }
    static const std::vector<std::string> kTypes = {"String", "Bool", "Array", "Boolean",
                                                    "Integer"};
    variable.type = choose(type, kTypes, "variable type", json.offset());
    if (variable.type == "Boolean") {
      variable.type = "Bool";
    }
    const Json* value = json.find("defaultValue");
    const bool none = value == nullptr || (value->is_null() && variable.type == "Array");
    if (!none) {
      if (!value->is_null() && !variable.takes(*value)) {
        error("E-PROPERTY", value->offset(),
              fmt::format("defaultValue of variable '{}' must be of its type {}, not {}", name,
                          variable.type, describe_value(*value)));
      }
      variable.default_value = *value;
    } else if (variable.type == "Array") {
      variable.default_value = Json::array();
    } else if (variable.type == "Bool") {
      variable.default_value = false;
    } else if (variable.type == "Integer") {
      variable.default_value = 0;
    } else {
      variable.default_value = "";
    }
    out->push_back(std::move(variable));
  }

  ActivityList read_list(const Json& json, int depth) {
    ActivityList list;
    if (depth > kNestingMax) {
      error("E-NESTING", json.offset(),
            fmt::format("containers are nested deeper than {} levels", kNestingMax));
      return list;
    }
    if (!json.is_array()) {
      error("E-PROPERTY", json.offset(),
            fmt::format("a list of activities must be an array, not {}", describe_value(json)));
      return list;
    }
    for (const Json& one : json.items()) {
      read_activity(one, depth, &list);
    }
    connect(&list);
    return list;
  }

  void read_activity(const Json& json, int depth, ActivityList* list) {
    const Json* name = json.find("name");
    const Json* type = json.find("type");
    if (name == nullptr || !name->is_string() || name->string().empty()) {
      error("E-NAME", json.offset(), "an activity needs a 'name' that is a text");
      return;
    }
    if (type == nullptr || !type->is_string() || type->string().empty()) {
      error("E-ACTIVITY-TYPE", json.offset(),
            fmt::format("activity '{}' needs a 'type' that is a text", name->string()));
      return;
    }
    Activity activity;
    activity.name = name->string();
    activity.type = type->string();
    activity.id = next_id_++;
    activity.offset = json.offset();
    for (const auto& row : kControlTypes) {
      if (row.type == activity.type) {
        activity.kind = row.kind;
      }
    }
    read_dependencies(json, &activity);
    read_state(json, &activity);
    if (const Json* policy = json.find("policy")) {
      read_policy(*policy, &activity);
    }
    static const Json kNone = Json::object();
    const Json* properties = json.find("typeProperties");
    read_properties(properties != nullptr ? *properties : kNone, depth, &activity);
    list->activities.push_back(std::move(activity));
  }

  void read_dependencies(const Json& json, Activity* activity) {
    const Json* all = json.find("dependsOn");
    if (all == nullptr || all->is_null()) {
      return;
    }
    if (!all->is_array()) {
      error("E-DEPENDENCY", all->offset(), "'dependsOn' must be an array");
      return;
    }
    for (const Json& one : all->items()) {
      Dependency dependency;
      dependency.name = one.get_string("activity");
      dependency.offset = one.offset();
      const Json* conditions = one.find("dependencyConditions");
      const bool listed = conditions != nullptr && conditions->is_array();
      for (const Json& condition : listed ? conditions->items() : Json::Array{}) {
        dependency.conditions |= read_condition(condition);
      }
      if (dependency.conditions == 0) {
        dependency.conditions = bit(Status::succeeded);
        warning("W-DEPENDENCY", one.offset(),
                fmt::format("'{}' depends on '{}' without dependencyConditions; taken as "
                            "Succeeded",
                            activity->name, dependency.name));
      }
      activity->dependencies.push_back(std::move(dependency));
    }
  }

  uint8_t read_condition(const Json& condition) {
    static const std::vector<std::string> kNames = {"Succeeded", "Failed", "Skipped", "Completed"};
    const std::string name = choose(condition.is_string() ? condition.string() : condition.dump(),
                                    kNames, "dependency condition", condition.offset());
    if (name == "Failed") {
      return bit(Status::failed);
    }
    if (name == "Skipped") {
      return bit(Status::skipped);
    }
    const uint8_t succeeded = bit(Status::succeeded);
    return name == "Completed" ? static_cast<uint8_t>(succeeded | bit(Status::failed)) : succeeded;
  }

  void read_state(const Json& json, Activity* activity) {
    if (!equal_ignoring_case(json.get_string("state", "Active"), "Inactive")) {
      return;
    }
    static const std::vector<std::string> kNames = {"Succeeded", "Failed", "Skipped"};
    const std::string mark = choose(json.get_string("onInactiveMarkAs", "Succeeded"), kNames,
                                    "onInactiveMarkAs", json.offset());
    activity->inactive = mark == "Succeeded" ? Status::succeeded
                         : mark == "Failed"  ? Status::failed
                                             : Status::skipped;
  }

  void read_policy(const Json& json, Activity* activity) {
    Policy& policy = activity->policy;
    policy.timeout = compile(json.find("timeout"));
    policy.retry = compile(json.find("retry"));
    policy.retry_interval = compile(json.find("retryIntervalInSeconds"));
    policy.secure_input = flag(json.find("secureInput"), false);
    policy.secure_output = flag(json.find("secureOutput"), false);
    const Json& timeout = policy.timeout.constant();
    if (policy.timeout.is_constant() && !timeout.is_null() &&
        (!timeout.is_string() || !parse_timeout(timeout.string()))) {
      error(
          "E-POLICY", timeout.offset(),
          fmt::format("policy.timeout must look like '0.12:00:00' ([days.]hours:minutes:seconds), "
                      "not {}",
                      describe_value(timeout)));
    }
    check_count(policy.retry, "policy.retry");
    check_count(policy.retry_interval, "policy.retryIntervalInSeconds");
    const auto interval = count_of(policy.retry_interval.constant());
    if (interval && *interval < 30 && *interval >= 0) {
      warning("W-POLICY", json.offset(),
              fmt::format("policy.retryIntervalInSeconds {} is below the 30 that Data Factory "
                          "allows",
                          *interval));
    }
    if (interval && *interval > 86400) {
      warning("W-POLICY", json.offset(),
              fmt::format("policy.retryIntervalInSeconds {} is above the 86400 (a day) that Data "
                          "Factory allows",
                          *interval));
    }
  }

  /// An integer, also as text.
  static std::optional<int64_t> count_of(const Json& json) {
    if (json.is_integer()) {
      return json.integer();
    }
    if (json.is_string() && !json.string().empty() && json.string().size() < 18 &&
        std::all_of(json.string().begin(), json.string().end(),
                    [](char c) { return c >= '0' && c <= '9'; })) {
      return std::stoll(json.string());
    }
    return std::nullopt;
  }

  void check_count(const Template& value, std::string_view name) {
    const Json& constant = value.constant();
    if (!value.is_constant() || constant.is_null()) {
      return;
    }
    const auto count = count_of(constant);
    if (!count || *count < 0) {
      error("E-POLICY", constant.offset(),
            fmt::format("{} must be an integer of at least 0, not {}", name,
                        describe_value(constant)));
    }
  }

  /// Boolean, also as text.
  bool flag(const Json* json, bool otherwise) {
    if (json == nullptr || json->is_null()) {
      return otherwise;
    }
    if (json->is_bool()) {
      return json->boolean();
    }
    if (json->is_string() && (equal_ignoring_case(json->string(), "true") ||
                              equal_ignoring_case(json->string(), "false"))) {
      return equal_ignoring_case(json->string(), "true");
    }
    error("E-PROPERTY", json->offset(),
          fmt::format("expected true or false, not {}", describe_value(*json)));
    return otherwise;
  }

  Template compile(const Json* json) {
    if (json == nullptr) {
      return {};
    }
    std::vector<Error> errors;
    Template result = Template::compile(
        *json, [this](int64_t offset) { return source_->where(offset); }, &errors);
    for (const Error& one : errors) {
      const size_t place = one.message().find(" (+");
      diagnostics_->push_back({Severity::error, "E-EXPRESSION", one.message().substr(0, place),
                               one.message().substr(place + 1)});
    }
    return result;
  }

  /// A property that must be there.
  Template required(const Json& properties, std::string_view key, const Activity& activity) {
    const Json* json = properties.find(key);
    if (json == nullptr) {
      std::vector<std::string> names;
      for (const Json::Member& member : properties.members()) {
        names.push_back(member.first);
      }
      error("E-PROPERTY", activity.offset,
            fmt::format("{} '{}' needs the property '{}'{}", activity.type, activity.name, key,
                        did_you_mean(key, names)));
    }
    return compile(json);
  }

  void read_properties(const Json& properties, int depth, Activity* activity) {
    if (!properties.is_object()) {
      error("E-PROPERTY", properties.offset(), "'typeProperties' must be an object");
      return;
    }
    switch (activity->kind) {
      case ActivityKind::work: {
        const size_t before = diagnostics_->size();
        activity->properties = compile(&properties);
        activity->is_broken = diagnostics_->size() > before;
        return;
      }
      case ActivityKind::for_each: read_for_each(properties, depth, activity); return;
      case ActivityKind::if_condition:
        activity->expression = required(properties, "expression", *activity);
        read_branch(properties.find("ifTrueActivities"), depth, activity);
        read_branch(properties.find("ifFalseActivities"), depth, activity);
        return;
      case ActivityKind::switch_case: read_switch(properties, depth, activity); return;
      case ActivityKind::until:
        activity->expression = required(properties, "expression", *activity);
        activity->extra = compile(properties.find("timeout"));
        activity->passes_max = properties.get_integer("maxIterations");
        read_body(properties, depth, activity);
        return;
      case ActivityKind::wait:
        activity->value = required(properties, "waitTimeInSeconds", *activity);
        return;
      case ActivityKind::set_variable:
      case ActivityKind::append_variable:
        activity->variable = properties.get_string("variableName");
        activity->system_variable = flag(properties.find("setSystemVariable"), false);
        activity->value = required(properties, "value", *activity);
        return;
      case ActivityKind::filter:
        activity->items = required(properties, "items", *activity);
        activity->expression = required(properties, "condition", *activity);
        return;
      case ActivityKind::fail:
        activity->value = required(properties, "message", *activity);
        activity->extra = required(properties, "errorCode", *activity);
        return;
    }
  }

  void read_for_each(const Json& properties, int depth, Activity* activity) {
    activity->items = required(properties, "items", *activity);
    activity->is_sequential = flag(properties.find("isSequential"), false);
    activity->value = compile(properties.find("batchCount"));
    activity->expression = compile(properties.find("itemKey"));
    const Json& batch = activity->value.constant();
    const auto count = count_of(batch);
    if (activity->value.is_constant() && !batch.is_null() && (!count || *count < 1)) {
      error("E-PROPERTY", batch.offset(),
            fmt::format("batchCount must be an integer of at least 1, not {}",
                        describe_value(batch)));
    }
    if (const Json* budget = properties.find("failureBudget")) {
      if (const Json* limit = budget->find("count"); limit != nullptr && count_of(*limit)) {
        activity->budget.count = count_of(*limit);
      }
      if (const Json* part = budget->find("percent"); part != nullptr && part->is_number()) {
        activity->budget.percent = part->number();
      }
      activity->budget.cancel_running =
          equal_ignoring_case(budget->get_string("onExceeded"), "cancel");
    }
    read_body(properties, depth, activity);
  }

  void read_switch(const Json& properties, int depth, Activity* activity) {
    activity->expression = required(properties, "on", *activity);
    const Json* cases = properties.find("cases");
    if (cases != nullptr && cases->is_array()) {
      for (const Json& one : cases->items()) {
        const Json* value = one.find("value");
        activity->case_values.push_back(value != nullptr ? value_text(*value) : "");
        read_branch(one.find("activities"), depth, activity);
      }
    }
    read_branch(properties.find("defaultActivities"), depth, activity);
  }

  void read_branch(const Json* json, int depth, Activity* activity) {
    activity->branches.push_back(json == nullptr || json->is_null() ? ActivityList{}
                                                                    : read_list(*json, depth + 1));
  }

  void read_body(const Json& properties, int depth, Activity* activity) {
    const Json* body = properties.find("activities");
    read_branch(body, depth, activity);
    if (body == nullptr || (body->is_array() && body->items().empty())) {
      error("E-PROPERTY", activity->offset,
            fmt::format("{} '{}' needs at least one activity in 'activities'", activity->type,
                        activity->name));
    }
  }

  /// Resolve dependencies inside one list; find its leaves.
  void connect(ActivityList* list) {
    std::map<std::string, int, std::less<>> by_name;
    std::vector<std::string> names;
    for (size_t i = 0; i < list->activities.size(); ++i) {
      by_name.emplace(lower_text(list->activities[i].name), static_cast<int>(i));
      names.push_back(list->activities[i].name);
    }
    for (size_t i = 0; i < list->activities.size(); ++i) {
      Activity& activity = list->activities[i];
      for (Dependency& dependency : activity.dependencies) {
        const auto it = by_name.find(lower_text(dependency.name));
        if (it == by_name.end()) {
          error("E-DEPENDENCY", dependency.offset,
                fmt::format("'{}' depends on '{}', which is not an activity beside it{}",
                            activity.name, dependency.name, did_you_mean(dependency.name, names)));
          continue;
        }
        dependency.index = it->second;
        list->activities[static_cast<size_t>(it->second)].dependents.push_back(static_cast<int>(i));
      }
    }
    for (size_t i = 0; i < list->activities.size(); ++i) {
      if (list->activities[i].dependents.empty()) {
        list->leaves.push_back(static_cast<int>(i));
      }
    }
    if (const std::string circle = find_circle(*list); !circle.empty()) {
      error("E-CYCLE", list->activities[0].offset,
            fmt::format("activities depend on one another in a circle: {}", circle));
    }
  }

  /// "'a' -> 'b' -> 'a'", or "".
  static std::string find_circle(const ActivityList& list) {
    enum class Mark : uint8_t { fresh, open, done };
    std::vector<Mark> marks(list.activities.size(), Mark::fresh);
    std::vector<int> path;
    const std::function<bool(int)> visit = [&](int index) {
      Mark& mark = marks[static_cast<size_t>(index)];
      path.push_back(index);
      if (mark == Mark::open) {
        return true;
      }
      if (mark == Mark::fresh) {
        mark = Mark::open;
        for (const Dependency& next : list.activities[static_cast<size_t>(index)].dependencies) {
          if (next.index >= 0 && visit(next.index)) {
            return true;
          }
        }
        marks[static_cast<size_t>(index)] = Mark::done;
      }
      path.pop_back();
      return false;
    };
    for (size_t i = 0; i < list.activities.size(); ++i) {
      if (visit(static_cast<int>(i))) {
        const auto begin = std::find(path.begin(), path.end(), path.back());
        std::string text;
        for (auto it = begin; it != path.end(); ++it) {
          text +=
              (it == begin ? "'" : " -> '") + list.activities[static_cast<size_t>(*it)].name + "'";
        }
        return text;
      }
    }
    return {};
  }

  std::shared_ptr<const Source> source_;
  std::vector<Diagnostic>* diagnostics_;
  int next_id_ = 0;
};

Result<void> read_document(std::string name, std::string text, Factory* factory) {
  auto source = std::make_shared<const Source>(std::move(name), std::move(text));
  std::vector<JsonWarning> warnings;
  const auto parsed =
      parse_json(source->text(), source->name(), {.tolerant = true, .depth_max = 256}, &warnings);
  if (!parsed.ok()) {
    const std::string& message = parsed.error().message();  // "file:line:col: what"
    const size_t place = std::min(message.find(": ", source->name().size()), message.size());
    return Error{parsed.error().code(),
                 message.substr(0, place) + ": E-SYNTAX" + message.substr(place)};
  }
  const Json& root = *parsed;
  for (const JsonWarning& warning : warnings) {
    factory->diagnostics.push_back(
        {Severity::warning, "W-JSON", source->where(warning.offset), warning.message});
  }
  if (auto pipeline = Reader(source, &factory->diagnostics).read(root)) {
    factory->pipelines.push_back(std::move(pipeline));
  }
  return {};
}

}  // namespace

Result<Factory> load_factory_text(std::string name, std::string text) {
  Factory factory;
  HR_TRY(read_document(std::move(name), std::move(text), &factory));
  return factory;
}

Result<Factory> load_factory(const base::Path& path) {
  std::error_code code;
  constexpr const char* kFabricFile = "pipeline-content.json";
  if (std::filesystem::is_regular_file(path / kFabricFile, code)) {
    return load_factory(path / kFabricFile);  // a Fabric item's folder, NAME.DataPipeline
  }
  if (!std::filesystem::is_directory(path, code)) {
    HR_TRY(auto text, base::read_input(path, kDocumentBytesMax));
    return load_factory_text(path.string(), std::move(text));
  }
  const base::Path folder =
      std::filesystem::is_directory(path / "pipeline", code) ? path / "pipeline" : path;
  std::vector<base::Path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code)) {
    if (entry.path().extension() == ".json") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    return Error{Errc::not_found,
                 folder.string() +
                     " holds no .json file; name a pipeline's file, or a repository "
                     "with a folder 'pipeline'"};
  }
  Factory factory;
  for (const base::Path& file : files) {
    HR_TRY(auto text, base::read_file(file, kDocumentBytesMax));
    HR_TRY(read_document(file.string(), std::move(text), &factory));
  }
  return factory;
}

}  // namespace headrace::flow
