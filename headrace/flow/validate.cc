// SPDX-License-Identifier: Apache-2.0
// What can be said about a pipeline before it runs.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "headrace/flow/activity.h"
#include "headrace/flow/pipeline.h"
#include "headrace/flow/pipeline_check_internal.h"
#include "headrace/flow/text.h"
#include "headrace/flow/value.h"

namespace headrace::flow {

namespace {

/// Where an activity stands.
struct Place {
  const Activity* activity = nullptr;
  const ActivityList* list = nullptr;
  int index = 0;
  const Place* parent = nullptr;  ///< the container; nullptr at the top
};

class Checker {
 public:
  Checker(Pipeline* pipeline, std::vector<Diagnostic>* diagnostics)
      : pipeline_(*pipeline), diagnostics_(*diagnostics) {}

  void run() {
    places_.reserve(static_cast<size_t>(pipeline_.activity_count));  // pointers stay
    collect(pipeline_.body, nullptr);
    check_names();
    for (const Place& place : places_) {
      check_activity(place);
    }
  }

 private:
  void add(Severity severity, std::string code, std::string where, std::string message) {
    diagnostics_.push_back({severity, std::move(code), std::move(where), std::move(message)});
  }
  void at(Severity severity, std::string code, int64_t offset, std::string message) {
    add(severity, std::move(code), pipeline_.source->where(offset), std::move(message));
  }

  void collect(const ActivityList& list, const Place* parent) {
    for (size_t i = 0; i < list.activities.size(); ++i) {
      places_.push_back({&list.activities[i], &list, static_cast<int>(i), parent});
      const Place* self = &places_.back();
      names_.push_back(list.activities[i].name);
      by_name_.emplace(lower_text(list.activities[i].name), self);
      for (const ActivityList& branch : list.activities[i].branches) {
        collect(branch, self);
      }
    }
  }

  void check_names() {
    constexpr int kActivitiesMax = 80;
    constexpr size_t kParametersMax = 50;
    if (pipeline_.name.size() > 140) {
      at(Severity::warning, "W-LIMIT", 0, "the pipeline's name is longer than 140 characters");
    }
    if (pipeline_.activity_count > kActivitiesMax) {
      at(Severity::warning, "W-LIMIT", 0,
         fmt::format("{} activities; Data Factory allows {}", pipeline_.activity_count,
                     kActivitiesMax));
    }
    if (pipeline_.parameters.size() > kParametersMax) {
      at(Severity::warning, "W-LIMIT", 0,
         fmt::format("{} parameters; Data Factory allows {}", pipeline_.parameters.size(),
                     kParametersMax));
    }
    for (const Place& place : places_) {
      const std::string& name = place.activity->name;
      if (by_name_.at(lower_text(name)) != &place) {
        at(Severity::error, "E-NAME", place.activity->offset,
           fmt::format("a second activity is called '{}'; names are unique in a pipeline, whatever "
                       "their case and nesting",
                       name));
      }
      const bool begins_well = name.front() == '_' ||
                               (name.front() >= '0' && name.front() <= '9') ||
                               lower_text(name.substr(0, 1)) != upper_text(name.substr(0, 1)) ||
                               static_cast<unsigned char>(name.front()) >= 0x80;
      if (!begins_well) {
        at(Severity::warning, "W-LIMIT", place.activity->offset,
           fmt::format("activity name '{}': Data Factory wants a letter, a digit or _ first",
                       name));
      }
      if (name.size() > 55 || name.find_first_of(".+?/<>*%&:\\") != std::string::npos) {
        at(Severity::warning, "W-LIMIT", place.activity->offset,
           fmt::format("activity name '{}': Data Factory allows 55 characters and none of . + ? / "
                       "< > * % & : \\",
                       name));
      }
    }
  }

  void check_activity(const Place& place) {
    const Activity& activity = *place.activity;
    for (const Dependency& dependency : activity.dependencies) {
      if (dependency.index == place.index) {
        at(Severity::error, "E-DEPENDENCY", dependency.offset,
           fmt::format("'{}' depends on itself", activity.name));
      }
      const bool only_skipped =
          dependency.conditions == 1U << static_cast<unsigned>(Status::skipped);
      if (dependency.index >= 0 && only_skipped && !can_skip(*place.list, dependency.index, 0)) {
        at(Severity::warning, "W-DEPENDENCY", dependency.offset,
           fmt::format("'{}' waits for '{}' to be Skipped, which never happens: it is Skipped "
                       "itself in every run",
                       activity.name, dependency.name));
      }
    }
    std::vector<Expression> outer;
    for (const Template* part :
         {&activity.policy.timeout, &activity.policy.retry, &activity.policy.retry_interval,
          &activity.properties, &activity.items, &activity.value, &activity.extra}) {
      part->append_expressions(&outer);
    }
    std::vector<Expression> with_item;
    activity.expression.append_expressions(&with_item);
    for (const Expression& expression : outer) {
      check_expression(place, expression, false);
    }
    const bool own_item =
        activity.kind == ActivityKind::filter || activity.kind == ActivityKind::for_each;
    for (const Expression& expression : with_item) {
      check_expression(place, expression, own_item);
    }
    if (activity.kind == ActivityKind::set_variable ||
        activity.kind == ActivityKind::append_variable) {
      check_variable(place);
    }
  }

  /// Can an activity be Skipped? In a circle, which is an error of its own, all can.
  static bool can_skip(const ActivityList& list, int index, int depth) {
    const Activity& activity = list.activities[static_cast<size_t>(index)];
    if (activity.inactive) {
      return *activity.inactive == Status::skipped || !activity.dependencies.empty();
    }
    const auto meets = [](const Dependency& one, Status status) {
      return ((one.conditions >> static_cast<unsigned>(status)) & 1U) != 0;
    };
    return depth > kChainMax ||
           std::ranges::any_of(activity.dependencies, [&](const Dependency& one) {
             return one.index < 0 || !meets(one, Status::succeeded) ||
                    !meets(one, Status::failed) ||
                    (!meets(one, Status::skipped) && can_skip(list, one.index, depth + 1));
           });
  }
  static constexpr int kChainMax = 100;  // of dependencies that are looked along

  void check_expression(const Place& place, const Expression& expression, bool own_item) {
    using Kind = Reference::Kind;
    for (const Reference& reference : expression.references()) {
      switch (reference.kind) {
        case Kind::activity: check_reference(place, expression, reference); break;
        case Kind::any_activity: pipeline_.outputs_of_items_used = true; break;
        case Kind::parameter: check_parameter(expression, reference); break;
        case Kind::variable:
          if (pipeline_.find_variable(reference.name) == nullptr) {
            complain(expression, reference, "variable", names_of(pipeline_.variables));
          }
          break;
        case Kind::item: check_item(place, expression, reference, own_item); break;
        case Kind::global_parameter:
          refuse(expression, reference, "global parameters cannot be read yet");
          break;
        case Kind::trigger: break;  // an error of the evaluation: a manual run has no trigger
        case Kind::dataset:
          refuse(expression, reference,
                 fmt::format("{}() is only known inside datasets and linked services",
                             reference.name));
          break;
      }
    }
  }

  void check_parameter(const Expression& expression, const Reference& reference) {
    if (pipeline_.find_parameter(reference.name) == nullptr) {
      complain(expression, reference, "parameter", names_of(pipeline_.parameters));
    }
  }

  template <typename T>
  static std::vector<std::string> names_of(const std::vector<T>& all) {
    std::vector<std::string> names;
    for (const T& one : all) {
      names.push_back(one.name);
    }
    return names;
  }

  void refuse(const Expression& expression, const Reference& reference, std::string_view what) {
    add(Severity::error, "E-REFERENCE", expression.where(),
        fmt::format("(+{}): {}", reference.offset, what));
  }

  void complain(const Expression& expression, const Reference& reference, std::string_view what,
                const std::vector<std::string>& names) {
    refuse(expression, reference,
           fmt::format("there is no {} '{}'{}; there are: {}", what, reference.name,
                       did_you_mean(reference.name, names), name_list(names)));
  }

  void check_item(const Place& place, const Expression& expression, const Reference& reference,
                  bool own_item) {
    bool found = own_item && reference.name.empty();
    for (const Place* outer = place.parent; outer != nullptr && !found; outer = outer->parent) {
      found =
          outer->activity->kind == ActivityKind::for_each &&
          (reference.name.empty() || equal_ignoring_case(outer->activity->name, reference.name));
    }
    if (!found) {
      refuse(expression, reference,
             reference.name.empty()
                 ? "item() is only known inside a ForEach and in a Filter's condition"
                 : fmt::format("there is no ForEach '{}' around this activity", reference.name));
    }
  }

  /// Can `to` be reached from `from` along dependents?
  static bool leads_to(const ActivityList& list, int from, int to) {
    std::vector<bool> seen(list.activities.size());
    std::vector<int> open = {from};
    while (!open.empty()) {
      const int index = open.back();
      open.pop_back();
      for (const int next : list.activities[static_cast<size_t>(index)].dependents) {
        if (next == to) {
          return true;
        }
        if (!seen[static_cast<size_t>(next)]) {
          seen[static_cast<size_t>(next)] = true;
          open.push_back(next);
        }
      }
    }
    return false;
  }

  void check_reference(const Place& user, const Expression& expression,
                       const Reference& reference) {
    const auto it = by_name_.find(lower_text(reference.name));
    if (it == by_name_.end()) {
      complain(expression, reference, "activity", names_);
      return;
    }
    const Place& wanted = *it->second;
    if (wanted.activity->kind == ActivityKind::for_each) {
      pipeline_.outputs_of_items_used = true;
    }
    for (const Place* outer = &user; outer != nullptr; outer = outer->parent) {
      if (outer->list == wanted.list) {
        check_order(*outer, wanted, expression, reference);
        return;
      }
    }
    for (const Place* container = wanted.parent; container != nullptr;
         container = container->parent) {
      bool around_user = false;
      for (const Place* outer = user.parent; outer != nullptr; outer = outer->parent) {
        around_user = around_user || outer == container;
      }
      if (container->activity->kind == ActivityKind::for_each && !around_user) {
        refuse(expression, reference,
               fmt::format("'{}' is inside the ForEach '{}' and cannot be seen outside of it; "
                           "activity('{}').output.items has what its items gave",
                           wanted.activity->name, container->activity->name,
                           container->activity->name));
        return;
      }
    }
  }

  void check_order(const Place& here, const Place& wanted, const Expression& expression,
                   const Reference& reference) {
    if (here.index == wanted.index) {
      refuse(expression, reference,
             fmt::format("'{}' is this activity or contains it; its output is not known yet",
                         wanted.activity->name));
    } else if (leads_to(*here.list, here.index, wanted.index)) {
      refuse(
          expression, reference,
          fmt::format("'{}' only starts after '{}'", wanted.activity->name, here.activity->name));
    } else if (!leads_to(*here.list, wanted.index, here.index)) {
      add(Severity::warning, "W-ORDER", expression.where(),
          fmt::format("(+{}): '{}' does not wait for '{}', which may not have ended; add it to "
                      "dependsOn",
                      reference.offset, here.activity->name, wanted.activity->name));
    }
  }

  void check_variable(const Place& place) {
    const Activity& activity = *place.activity;
    if (activity.system_variable) {
      return;
    }
    const Variable* variable = pipeline_.find_variable(activity.variable);
    if (variable == nullptr) {
      const std::vector<std::string> names = names_of(pipeline_.variables);
      at(Severity::error, "E-REFERENCE", activity.offset,
         fmt::format("'{}' sets the variable '{}', which is not declared{}; declared are: {}",
                     activity.name, activity.variable, did_you_mean(activity.variable, names),
                     name_list(names)));
      return;
    }
    if (activity.kind == ActivityKind::append_variable) {
      if (variable->type != "Array") {
        at(Severity::error, "E-PROPERTY", activity.offset,
           fmt::format("'{}' appends to '{}', which is a {} and no Array", activity.name,
                       variable->name, variable->type));
      }
      return;
    }
    for (const Place* outer = place.parent; outer != nullptr; outer = outer->parent) {
      if (outer->activity->kind == ActivityKind::for_each && !outer->activity->is_sequential) {
        at(Severity::warning, "W-RACE", activity.offset,
           fmt::format("'{}' sets '{}' in the parallel ForEach '{}': each item sees its own value, "
                       "the last item's one stays (Data Factory shares one slot: --adf-variables)",
                       activity.name, variable->name, outer->activity->name));
        break;
      }
    }
    std::vector<Reference> references;
    activity.value.append_references(&references);
    for (const Reference& reference : references) {
      if (reference.kind == Reference::Kind::variable &&
          pipeline_.find_variable(reference.name) == variable) {
        at(Severity::warning, "W-SELF", activity.offset,
           fmt::format("'{}' sets '{}' from its own value, which Data Factory refuses",
                       activity.name, variable->name));
        break;
      }
    }
  }

  Pipeline& pipeline_;
  std::vector<Diagnostic>& diagnostics_;
  std::vector<Place> places_;
  std::vector<std::string> names_;
  std::map<std::string, const Place*, std::less<>> by_name_;
};

void check_type(const Activity& activity, const ActivityType& type, const Source& source,
                std::vector<Diagnostic>* diagnostics) {
  const Json& given = activity.properties.constant();
  // The constant part leaves expressions out, so presence is asked of the expressions' names too.
  std::vector<std::string> known = type.required;
  known.insert(known.end(), type.optional.begin(), type.optional.end());
  const std::vector<std::string> names = activity.properties.member_names();
  const auto add = [&](Severity severity, std::string code, std::string message) {
    diagnostics->push_back(
        {severity, std::move(code), source.where(activity.offset), std::move(message)});
  };
  std::vector<std::string> told;  // one mistake, one finding
  for (const std::string& required : type.required) {
    if (std::find(names.begin(), names.end(), required) == names.end()) {
      add(Severity::error, "E-PROPERTY",
          fmt::format("{} '{}' needs the property '{}'{}", activity.type, activity.name, required,
                      did_you_mean(required, names)));
      told.push_back(nearest_name(required, names).value_or(""));
    }
  }
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end() &&
        std::find(told.begin(), told.end(), name) == told.end()) {
      diagnostics->push_back(unknown_member(fmt::format("{} '{}'", activity.type, activity.name),
                                            name, known, source.where(activity.offset)));
    }
  }
  if (type.check && !activity.is_broken) {
    const Result<void> checked = type.check(given.is_object() ? given : Json::object(), names);
    if (!checked.ok()) {
      add(Severity::error, "E-PROPERTY",
          fmt::format("'{}': {}", activity.name, checked.error().message()));
    }
  }
}

}  // namespace

void check_pipeline(Pipeline* pipeline, std::vector<Diagnostic>* diagnostics) {
  Checker(pipeline, diagnostics).run();
}

bool is_later_type(std::string_view type) {
  static constexpr std::string_view kTypes[] = {
      "AzureDataExplorerCommand",
      "AzureFunctionActivity",
      "AzureMLBatchExecution",
      "AzureMLExecutePipeline",
      "AzureMLUpdateResource",
      "Copy",
      "DataLakeAnalyticsU-SQL",
      "DatabricksJob",
      "DatabricksNotebook",
      "DatabricksSparkJar",
      "DatabricksSparkPython",
      "Delete",
      "ExecuteDataFlow",
      "ExecutePipeline",
      "ExecuteSSISPackage",
      "ExecuteWranglingDataflow",
      "GetMetadata",
      "HDInsightHive",
      "HDInsightMapReduce",
      "HDInsightPig",
      "HDInsightSpark",
      "HDInsightStreaming",
      "HeadraceTask",
      "InvokePipeline",
      "Lookup",
      "Office365Outlook",
      "RefreshDataflow",
      "Script",
      "SparkJob",
      "SqlServerStoredProcedure",
      "SynapseNotebook",
      "Teams",
      "TridentNotebook",
      "Validation",
      "WebActivity",
      "WebHook",
  };
  return std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
}

namespace {

void check_vault(const Pipeline& pipeline, std::vector<Diagnostic>* diagnostics) {
  const auto add = [&](const VaultReference& one, std::string message) {
    diagnostics->push_back(
        {Severity::error, "E-SECRET", pipeline.source->where(one.offset), std::move(message)});
  };
  for (const VaultReference& one : pipeline.vault) {
    if (!one.computed && (one.store.empty() || one.name.empty())) {
      add(one, "an AzureKeyVaultSecret needs store.referenceName and secretName, which are texts");
    } else if (!one.computed) {
      if (const auto secret = vault_secret(one.store, one.name); !secret.ok()) {
        add(one, secret.error().message());
      }
    }
  }
}

/// What evaluation would say of it whenever it comes to that.
void check_literals(const Activity& activity, std::vector<Diagnostic>* diagnostics) {
  std::vector<Expression> expressions;
  for (const Template* part :
       {&activity.policy.timeout, &activity.policy.retry, &activity.policy.retry_interval,
        &activity.properties, &activity.items, &activity.expression, &activity.value,
        &activity.extra}) {
    part->append_expressions(&expressions);
  }
  for (const Expression& expression : expressions) {
    for (const Error& error : expression.check_literals()) {
      diagnostics->push_back(
          {Severity::error, "E-EXPRESSION", expression.where(), error.message()});
    }
  }
}

void check_items(const Activity& activity, const Source& source,
                 std::vector<Diagnostic>* diagnostics) {
  const Json& items = activity.items.constant();
  if (activity.kind != ActivityKind::for_each || !activity.items.is_constant() ||
      items.is_array() || items.is_null()) {
    return;
  }
  const auto array = items.is_string() ? parse_json(items.string(), "items") : Result<Json>(items);
  const bool good = array.ok() && array->is_array();
  diagnostics->push_back(
      {good ? Severity::warning : Severity::error, good ? "W-PROPERTY" : "E-PROPERTY",
       source.where(items.offset()),
       good ? fmt::format("items of ForEach '{}' is a text that holds an array; Data Factory wants "
                          "an expression such as @createArray(...)",
                          activity.name)
            : fmt::format("items of ForEach '{}' must be an array, not {}", activity.name,
                          describe_value(items))});
}

void check_folder_path(const Activity& activity, const Source& source,
                       std::vector<Diagnostic>* diagnostics) {
  const Json& properties = activity.properties.constant();
  const std::string folder = properties.get_string("folderPath");
  std::error_code code;
  if (activity.type != "Custom" || activity.inactive || folder.empty()) {
    return;
  }
  const base::Path place = base::Path(source.name()).parent_path() / folder;
  if (!std::filesystem::exists(place, code)) {
    diagnostics->push_back(
        {Severity::error, "E-PROPERTY", source.where(properties.find("folderPath")->offset()),
         fmt::format("folderPath of Custom '{}' is not there: {}", activity.name, place.string())});
  }
}

void check_values(const Pipeline& pipeline, std::vector<Diagnostic>* diagnostics) {
  for_each_activity(pipeline.body, [&](const Activity& activity) {
    check_literals(activity, diagnostics);
    check_items(activity, *pipeline.source, diagnostics);
    check_folder_path(activity, *pipeline.source, diagnostics);
  });
}

}  // namespace

std::vector<Diagnostic> validate(const Pipeline& pipeline, const ActivityTable& types) {
  std::vector<Diagnostic> diagnostics;
  check_vault(pipeline, &diagnostics);
  check_member_names(pipeline, &diagnostics);
  check_values(pipeline, &diagnostics);
  for_each_activity(pipeline.body, [&](const Activity& activity) {
    if (activity.kind != ActivityKind::work) {
      return;
    }
    const std::string where = pipeline.source->where(activity.offset);
    if (const ActivityType* type = types.find(activity.type)) {
      check_type(activity, *type, *pipeline.source, &diagnostics);
    } else if (is_later_type(activity.type)) {
      if (!activity.inactive) {
        diagnostics.push_back(
            {Severity::error, "E-NOT-EXECUTABLE", where,
             fmt::format("activity '{}': {} is not executable yet", activity.name, activity.type)});
      }
    } else {
      std::vector<std::string> known = types.names();
      for (const char* control : {"ForEach", "IfCondition", "Switch", "Until", "Wait",
                                  "SetVariable", "AppendVariable", "Filter", "Fail"}) {
        known.emplace_back(control);
      }
      diagnostics.push_back(
          {Severity::error, "E-ACTIVITY-TYPE", where,
           fmt::format("activity '{}': unknown type '{}'{}; known are: {}", activity.name,
                       activity.type, did_you_mean(activity.type, known), name_list(known, 20))});
    }
  });
  return diagnostics;
}

}  // namespace headrace::flow
