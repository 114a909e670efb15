// SPDX-License-Identifier: Apache-2.0
// Control activities other than ForEach: they run inside the engine.
#include <fmt/format.h>

#include <algorithm>

#include "headrace/flow/engine_state_internal.h"
#include "headrace/flow/text.h"
#include "headrace/flow/value.h"

namespace headrace::flow {

namespace {

using base::Micros;

constexpr double kUntilTimeout = 7.0 * 86'400.0;

/// true, false, or their names in any case.
std::optional<bool> truth(const Json& value) {
  if (value.is_bool()) {
    return value.boolean();
  }
  if (value.is_string() && equal_ignoring_case(value.string(), "true")) {
    return true;
  }
  if (value.is_string() && equal_ignoring_case(value.string(), "false")) {
    return false;
  }
  return std::nullopt;
}

/// The error of a container: what went wrong first inside.
ActivityError inner_error(const ActivityRun* cause) {
  if (cause == nullptr || cause->error == nullptr) {
    return {"2001", "an inner activity was cancelled", "UserError", ""};
  }
  ActivityError error = *cause->error;
  error.message =
      fmt::format("inner activity '{}' failed: {}", cause->activity->name, cause->error->message);
  return error;
}

/// One {type, content} of a pipelineReturnValue; other values stand for themselves.
Result<Json> return_content(const Json& value) {
  const Json* type = value.find("type");
  const Json* content = value.find("content");
  if (type == nullptr || !type->is_string()) {
    return value;
  }
  const std::string name = lower_text(type->string());
  const Json nothing;
  const Json& inner = content != nullptr ? *content : nothing;
  if (name == "null") {
    return Json();
  }
  if (name == "array" && inner.is_array()) {
    Json out = Json::array();
    for (const Json& one : inner.items()) {
      HR_TRY(auto element, return_content(one));
      out.push_back(std::move(element));
    }
    return out;
  }
  if (name == "object" && inner.is_array()) {
    Json out = Json::object();
    for (const Json& one : inner.items()) {
      const Json* member = one.find("value");
      HR_TRY(auto element, return_content(member != nullptr ? *member : nothing));
      out.set(one.get_string("key"), std::move(element));
    }
    return out;
  }
  if ((name == "int" || name == "float") && inner.is_string()) {
    return parse_json(inner.string(), "content");
  }
  if (name == "boolean" && inner.is_string()) {
    return Json(equal_ignoring_case(inner.string(), "true"));
  }
  return inner;
}

}  // namespace

void Engine::State::start_branch(ActivityRun* run) {
  const auto value = evaluate(run->activity->expression, run);
  if (!value.ok()) {
    fail(run, value.error(), "InvalidTemplate");
    return;
  }
  const auto chosen = truth(*value);
  if (!chosen) {
    fail(run, {"2107",
               fmt::format("the expression of IfCondition '{}' must give true or false, not {}",
                           run->activity->name, describe_value(*value)),
               "UserError", ""});
    return;
  }
  enter(run, run->activity->branches[*chosen ? 0 : 1]);
}

void Engine::State::start_switch(ActivityRun* run) {
  const auto value = evaluate(run->activity->expression, run);
  if (!value.ok()) {
    fail(run, value.error(), "InvalidTemplate");
    return;
  }
  if (!value->is_string() && !value->is_integer()) {
    fail(run, {"InvalidTemplate",
               fmt::format("'on' of Switch '{}' must give a string or an integer, not {}",
                           run->activity->name, describe_value(*value)),
               "UserError", ""});
    return;
  }
  const auto& cases = run->activity->case_values;
  const auto it = std::find(cases.begin(), cases.end(), value_text(*value));
  enter(run, run->activity->branches[static_cast<size_t>(it - cases.begin())]);
}

void Engine::State::enter(ActivityRun* run, const ActivityList& list) {
  run->phase = Phase::inside;
  run->child = open_scope(list, run->scope, run);
  begin(run->child.get());
}

void Engine::State::branch_done(ActivityRun* run) {
  if (run->child->cancelled) {
    end(run, Status::cancelled);
    return;
  }
  const ActivityRun* cause = nullptr;
  if (judge(*run->child, &cause) == Status::succeeded) {
    end(run, Status::succeeded);
  } else {
    fail(run, inner_error(cause));
  }
}

void Engine::State::start_until(ActivityRun* run) {
  double timeout = kUntilTimeout;
  const auto text = evaluate(run->activity->extra, run);
  if (!text.ok()) {
    fail(run, text.error(), "InvalidTemplate");
    return;
  }
  if (!text->is_null()) {
    const auto seconds = text->is_string() ? parse_timeout(text->string()) : std::nullopt;
    if (!seconds) {
      fail(run, {"InvalidTemplate",
                 fmt::format("timeout of Until '{}' must look like '0.12:00:00', not {}",
                             run->activity->name, describe_value(*text)),
                 "UserError", ""});
      return;
    }
    timeout = *seconds;
  }
  run->limit = now + Micros(static_cast<int64_t>(timeout * 1e6));
  start_pass(run);
}

void Engine::State::start_pass(ActivityRun* run) {
  if (now >= run->limit && run->pass > 0) {
    fail(run, {"Timeout",
               fmt::format("Until '{}' was not done after its timeout, in pass {}",
                           run->activity->name, run->pass),
               "UserError", ""});
    return;
  }
  ++run->pass;
  enter(run, run->activity->branches[0]);
  set_timer(run, run->limit);
}

/// Data Factory, by observation: a failed pass does not end the loop; the condition decides, and
/// the status is that of the last pass.
void Engine::State::pass_done(ActivityRun* run) {
  clear_timer(run);
  if (run->child->cancelled_by_timeout) {
    fail(run, {"Timeout",
               fmt::format("Until '{}' was not done after its timeout; pass {} was stopped",
                           run->activity->name, run->pass),
               "UserError", ""});
    return;
  }
  if (run->child->cancelled) {
    end(run, Status::cancelled);
    return;
  }
  const auto value = evaluate(run->activity->expression, run);
  if (!value.ok()) {
    fail(run, value.error(), "InvalidTemplate");
    return;
  }
  const auto enough = truth(*value);
  if (!enough) {
    fail(run, {"InvalidTemplate",
               fmt::format("the expression of Until '{}' must give true or false, not {}",
                           run->activity->name, describe_value(*value)),
               "UserError", ""});
    return;
  }
  if (*enough) {
    branch_done(run);
    return;
  }
  if (run->activity->passes_max > 0 && run->pass >= run->activity->passes_max) {
    fail(run,
         {"MaxIterations",
          fmt::format("Until '{}' was not done after {} passes", run->activity->name, run->pass),
          "UserError", ""});
    return;
  }
  // The next pass needs a Tick: a loop without any waiting in it must not keep the engine in one
  // step for ever.
  run->phase = Phase::between_passes;
  set_timer(run, now + Micros(1));
}

void Engine::State::start_wait(ActivityRun* run) {
  const auto value = evaluate(run->activity->value, run);
  if (!value.ok()) {
    fail(run, value.error(), "InvalidTemplate");
    return;
  }
  const auto number =
      value->is_string() ? parse_json(value->string(), "seconds") : Result<Json>(*value);
  if (!number.ok() || !number->is_number() || number->number() < 0.0 || number->number() > 1e9) {
    fail(run, {"InvalidTemplate",
               fmt::format("waitTimeInSeconds of '{}' must be a number of at least 0, not {}",
                           run->activity->name, describe_value(*value)),
               "UserError", ""});
    return;
  }
  run->phase = Phase::timer_wait;
  set_timer(run, now + Micros(static_cast<int64_t>(number->number() * 1e6)));
}

void Engine::State::start_filter(ActivityRun* run) {
  const auto items = evaluate(run->activity->items, run);
  if (!items.ok()) {
    fail(run, items.error(), "InvalidTemplate");
    return;
  }
  if (!items->is_array()) {
    fail(run, {"2105",
               fmt::format("items of Filter '{}' must be an array, not {}", run->activity->name,
                           describe_value(*items)),
               "UserError", ""});
    return;
  }
  Json kept = Json::array();
  for (const Json& item : items->items()) {
    const auto condition = evaluate(run->activity->expression, run, &item);
    const auto chosen = condition.ok() ? truth(*condition) : std::nullopt;
    if (!chosen) {
      fail(run, {"InvalidTemplate",
                 condition.ok()
                     ? fmt::format("the condition of Filter '{}' must give true or false, not {}",
                                   run->activity->name, describe_value(*condition))
                     : condition.error().message(),
                 "UserError", ""});
      return;
    }
    if (*chosen) {
      kept.push_back(item);
    }
  }
  const auto count = static_cast<int64_t>(kept.items().size());
  run->output = Json::object({{"ItemsCount", static_cast<int64_t>(items->items().size())},
                              {"FilteredItemsCount", count},
                              {"Value", std::move(kept)}})
                    .dump();
  end(run, Status::succeeded);
}

void Engine::State::start_fail(ActivityRun* run) {
  const auto message = evaluate(run->activity->value, run);
  const auto code = evaluate(run->activity->extra, run);
  if (!message.ok() || !code.ok()) {
    fail(run, message.ok() ? code.error() : message.error(), "InvalidTemplate");
    return;
  }
  const auto blank = [](const Json& json) { return trim_text(value_text(json)).empty(); };
  if (blank(*message) || blank(*code)) {
    fail(run,
         {"InvalidTemplate",
          fmt::format("message and errorCode of Fail '{}' must not be blank", run->activity->name),
          "UserError", ""});
    return;
  }
  fail(run, {value_text(*code), value_text(*message), "UserError", run->activity->name});
}

void Engine::State::start_variable(ActivityRun* run) {
  const Activity& activity = *run->activity;
  auto value = evaluate(activity.value, run);
  if (!value.ok()) {
    fail(run, value.error(), "InvalidTemplate");
    return;
  }
  if (activity.system_variable) {
    const Result<void> set = set_return_value(*value);
    if (!set.ok()) {
      fail(run, set.error(), "InvalidTemplate");
      return;
    }
    end(run, Status::succeeded);
    return;
  }
  const Variable* variable = pipeline->find_variable(activity.variable);
  const bool append = activity.kind == ActivityKind::append_variable;
  const bool fits =
      variable != nullptr && (append ? variable->type == "Array" : variable->takes(*value));
  if (!fits) {
    fail(run, {"InvalidTemplate",
               variable == nullptr
                   ? fmt::format("there is no variable '{}'", activity.variable)
                   : fmt::format("variable '{}' is of type {} and cannot {} {}", variable->name,
                                 variable->type, append ? "be appended" : "take",
                                 describe_value(*value)),
               "UserError", ""});
    return;
  }
  run->output = Json::object({{"name", variable->name}, {"value", *value}}).dump();
  write_variable(run->scope, variable->name, *std::move(value), append);
  end(run, Status::succeeded);
}

void Engine::State::write_variable(Scope* scope, const std::string& name, Json value, bool append) {
  while (scope != nullptr && scope->changes == nullptr) {
    scope = scope->parent;
  }
  if (scope == nullptr) {
    Json& slot = variables[name];
    if (append) {
      slot.push_back(std::move(value));
    } else {
      slot = std::move(value);
    }
    return;
  }
  VariableChange& change = (*scope->changes)[name];
  if (append) {
    change.appended.push_back(std::move(value));
  } else {
    change.set = true;
    change.value = std::move(value);
    change.appended.clear();
  }
}

Json Engine::State::read_variable(const Scope* scope, std::string_view name) const {
  std::vector<const VariableChange*> appends;
  Json value;
  bool found = false;
  for (; scope != nullptr && !found; scope = scope->parent) {
    if (scope->changes == nullptr) {
      continue;
    }
    const auto it = scope->changes->find(name);
    if (it != scope->changes->end()) {
      appends.push_back(&it->second);
      found = it->second.set;
      value = it->second.value;
    }
  }
  if (!found) {
    const auto it = variables.find(name);
    value = it == variables.end() ? Json() : it->second;
  }
  for (auto it = appends.rbegin(); it != appends.rend(); ++it) {
    for (const Json& element : (*it)->appended) {
      value.push_back(element);
    }
  }
  return value;
}

Result<void> Engine::State::set_return_value(const Json& value) {
  if (!value.is_array()) {
    return Error{
        Errc::invalid_argument,
        "pipelineReturnValue must be a list of {key, value}, not " + describe_value(value)};
  }
  if (return_value.is_null()) {
    return_value = Json::object();
  }
  for (const Json& one : value.items()) {
    const std::string key = one.get_string("key");
    const Json* inner = one.find("value");
    if (key.empty() || inner == nullptr) {
      return Error{
          Errc::invalid_argument,
          "an element of pipelineReturnValue needs 'key' and 'value': " + describe_value(one)};
    }
    HR_TRY(auto content, return_content(*inner));
    return_value.set(key, std::move(content));
  }
  return {};
}

}  // namespace headrace::flow
