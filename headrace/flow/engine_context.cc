// SPDX-License-Identifier: Apache-2.0
// What expressions see of a run.
#include <fmt/format.h>

#include "headrace/base/checksum.h"
#include "headrace/base/random.h"
#include "headrace/flow/date.h"
#include "headrace/flow/engine_state_internal.h"
#include "headrace/flow/text.h"
#include "headrace/flow/value.h"

namespace headrace::flow {

namespace {

std::string date_text(base::Micros at) {
  return format_date(ticks_of(at), "o").value_or(std::string());
}

/// A GUID out of a seed, for ids that must be the same at each replay.
std::string guid_text(uint64_t seed) {
  base::Rng rng(seed);
  const uint64_t high = (rng.next() & ~uint64_t{0xF000}) | 0x4000U;
  const uint64_t low = (rng.next() & ~(uint64_t{3} << 62U)) | (uint64_t{2} << 62U);
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32U, (high >> 16U) & 0xFFFFU,
                     high & 0xFFFFU, low >> 48U, low & 0xFFFFFFFFFFFFU);
}

class RunContext final : public Context {
 public:
  RunContext(Engine::State* state, Scope* scope, const Json* item, uint64_t seed)
      : state_(*state), scope_(scope), item_(item), rng_(seed) {}

  Result<Value> pipeline() override {
    if (!state_.pipeline_object) {
      state_.pipeline_object = state_.pipeline_value();
    }
    return Value::borrow(*state_.pipeline_object);
  }

  Result<Value> parameter(std::string_view name) override {
    HR_TRY(const Json* value, find_property(state_.options.parameters, name));
    if (value == nullptr) {
      return Error{Errc::not_found, fmt::format("the pipeline has no parameter '{}'", name)};
    }
    return Value::borrow(*value);
  }

  Result<Value> variable(std::string_view name) override {
    const Variable* variable = state_.pipeline->find_variable(name);
    if (variable == nullptr) {
      return Error{Errc::not_found, fmt::format("the pipeline has no variable '{}'", name)};
    }
    for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
      if (scope->changes != nullptr && scope->changes->contains(variable->name)) {
        return Value(state_.read_variable(scope_, variable->name));
      }
    }
    return Value::borrow(state_.variables.find(variable->name)->second);
  }

  Result<Value> activity(std::string_view name) override {
    return state_.activity_value(scope_, name);
  }

  Result<Value> item(std::string_view for_each) override {
    if (item_ != nullptr && for_each.empty()) {
      return Value::borrow(*item_);
    }
    for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
      const bool wanted =
          scope->index >= 0 &&
          (for_each.empty() || equal_ignoring_case(scope->owner->activity->name, for_each));
      if (wanted) {
        return Value::borrow(scope->item);
      }
    }
    return Error{Errc::invalid_argument, "item() is only known inside a ForEach"};
  }

  Result<Value> document(std::string_view function) override {
    return Error{Errc::invalid_argument,
                 fmt::format("{}() is not known here: this run was started by hand", function)};
  }

  Result<Json> vault_secret(std::string_view store, std::string_view name) override {
    if (call_secrets_ == nullptr || !state_.options.vault) {
      return Error{Errc::unsupported,
                   "the secret of a key vault is only known in the typeProperties of an activity "
                   "that does work, such as Custom"};
    }
    HR_TRY(auto secret, state_.options.vault(store, name));
    return Json(std::move(secret));
  }

  void note_secret(const Json& value) override {
    if (call_secrets_ != nullptr) {
      call_secrets_->add(value);
    }
  }

  /// What a call's expressions mark as secret goes to `secrets`.
  void collect_secrets(Secrets* secrets) { call_secrets_ = secrets; }

  base::Micros now() override { return state_.now; }
  uint64_t random() override { return rng_.next(); }

 private:
  Engine::State& state_;
  Scope* scope_;
  const Json* item_;
  base::Rng rng_;
  Secrets* call_secrets_ = nullptr;
};

Error of_activity(const Error& error, const ActivityRun& run) {
  return Error{error.code(),
               fmt::format("{} of activity '{}'", error.message(), run.activity->name)};
}

/// Without the expression, and with what it is made of known as secret.
Error untold(const Error& error, const Template& properties, Secrets* secrets) {
  std::vector<Expression> expressions;
  properties.append_expressions(&expressions);
  for (const Expression& expression : expressions) {
    for (const std::string& text : quoted_texts(expression.text())) {
      secrets->add_text(text);
    }
  }
  return Error{error.code(), error.message().substr(0, error.message().find(kInExpression))};
}

}  // namespace

Result<Json> Engine::State::evaluate(const Template& value, ActivityRun* run, const Json* item) {
  if (value.is_constant()) {
    return value.constant();
  }
  RunContext context(this, run->scope, item, base::derive_seed(seed, ++evaluations));
  auto result = value.evaluate(context);
  return result.ok() ? std::move(result) : Result<Json>(of_activity(result.error(), *run));
}

/// For what the driver asks between steps. No replay comes here, so nothing in the state may move:
/// the seed is the caller's, and the same whenever it asks again.
Result<Json> Engine::State::evaluate_outside(const Template& value, ActivityRun* run,
                                             uint64_t with_seed, const Json* item) {
  RunContext context(this, run->scope, item, with_seed);
  return value.evaluate(context);
}

Json Engine::State::pipeline_value() const {
  const std::string id = options.run_id;
  return Json::object({{"DataFactory", "headrace"},
                       {"Pipeline", pipeline->name},
                       {"RunId", id},
                       {"GroupId", id},
                       {"TriggerType", "Manual"},
                       {"TriggerId", ""},
                       {"TriggerName", ""},
                       {"TriggerTime", date_text(options.started)},
                       {"TriggeredByPipelineName", nullptr},
                       {"TriggeredByPipelineRunId", nullptr},
                       {"parameters", options.parameters},
                       {"globalParameters", Json::object()}});
}

/// The run of an activity that `scope` can see: in its own list, in one around it, or inside an If,
/// Switch or Until of these (the last pass).
ActivityRun* Engine::State::find_run(const Scope* scope, int activity_id) {
  std::vector<int> chain;  // the activity, then its containers outwards
  for (int id = activity_id; id >= 0; id = places[static_cast<size_t>(id)].parent) {
    chain.push_back(id);
  }
  for (const Scope* outer = scope; outer != nullptr; outer = outer->parent) {
    for (size_t depth = 0; depth < chain.size(); ++depth) {
      const ActivityPlace& place = places[static_cast<size_t>(chain[depth])];
      if (place.list != outer->list) {
        continue;
      }
      // const_cast: the view is made when somebody looks, which changes nothing that counts.
      auto* run = const_cast<ActivityRun*>(&outer->runs[static_cast<size_t>(place.index)]);
      for (size_t down = depth; down > 0; --down) {
        const ActivityPlace& inner = places[static_cast<size_t>(chain[down - 1])];
        if (run->child == nullptr || run->child->list != inner.list) {
          return nullptr;
        }
        run = &run->child->runs[static_cast<size_t>(inner.index)];
      }
      return run;
    }
  }
  return nullptr;
}

const Json& Engine::State::view_of(ActivityRun* run) {
  if (run->view == nullptr) {
    Json output = run->output.empty() ? Json::object()
                                      : parse_json(run->output, "output").value_or(Json::object());
    const int64_t duration_ms = (run->ended - run->started).count() / 1000;
    run->view = std::make_unique<Json>(
        Json::object({{"output", std::move(output)},
                      {"Status", status_name(run->status)},
                      {"StatusCode", run->status == Status::succeeded ? 200 : 400},
                      {"ActivityRunId", guid_text(base::derive_seed(seed, run->id))},
                      {"ActivityRunStartTime", date_text(run->started)},
                      {"ActivityRunStart", date_text(run->started)},
                      {"ActivityRunEndTime", date_text(run->ended)},
                      {"DurationInMs", duration_ms},
                      {"RetryAttempt", run->retries}}));
    if (run->error != nullptr) {
      run->view->set("error", Json::object({{"errorCode", run->error->code},
                                            {"message", run->error->message},
                                            {"failureType", run->error->failure_type},
                                            {"target", run->error->target},
                                            {"details", ""}}));
    }
  }
  return *run->view;
}

Result<Value> Engine::State::activity_value(const Scope* scope, std::string_view name) {
  const auto it = ids_by_name.find(lower_text(name));
  if (it == ids_by_name.end()) {
    return Error{Errc::not_found, fmt::format("there is no activity '{}'", name)};
  }
  ActivityRun* run = find_run(scope, it->second);
  if (run == nullptr) {
    return Error{Errc::not_found,
                 fmt::format("activity '{}' has not run where this expression can see it", name)};
  }
  if (!is_final(run->status) || run->status == Status::skipped) {
    return Error{Errc::not_found, fmt::format("activity '{}' has no output: its status is {}", name,
                                              status_name(run->status))};
  }
  if (run->output_missing) {
    return Error{Errc::not_found,
                 fmt::format("the output of activity '{}' is secure and was not kept", name)};
  }
  return Value::borrow(view_of(run));
}

std::optional<CallSpec> Engine::describe(uint64_t attempt) const {
  const auto it = state_->by_id.find(attempt);
  if (it == state_->by_id.end() || it->second->phase != Phase::running) {
    return std::nullopt;
  }
  CallSpec call;
  call.activity = it->second->activity;
  call.attempt = it->second->attempts;
  call.started = it->second->started;
  call.path = state_->path_of(*it->second);
  call.item_key = state_->key_path(it->second->scope);
  return call;
}

bool Engine::follows_failure(uint64_t attempt) const {
  const auto it = state_->by_id.find(attempt);
  return it != state_->by_id.end() && state_->follows_failure(*it->second);
}

Result<CallSpec> Engine::evaluate_call(uint64_t attempt) {
  auto call = describe(attempt);
  if (!call) {
    return Error{Errc::not_found, "this attempt does not run any more"};
  }
  ActivityRun* run = state_->by_id.at(attempt);
  // Seeded by the path alone: this happens outside of steps and must not disturb them, and another
  // attempt, also after a restart, must see the same guid().
  RunContext context(state_.get(), run->scope, nullptr,
                     base::derive_seed(state_->seed, call->path));
  context.collect_secrets(&call->secrets);
  const auto properties = run->activity->properties.evaluate(context);
  if (!properties.ok()) {
    Error error = of_activity(properties.error(), *run);
    if (run->activity->policy.secure_input) {
      error =
          of_activity(untold(properties.error(), run->activity->properties, &call->secrets), *run);
    }
    return Error{error.code(), call->secrets.masked(error.message())};
  }
  if (run->activity->policy.secure_input) {
    call->secrets.add(*properties);
  }
  properties->dump_to(&call->properties);
  call->digest = base::xxh3_64(call->properties);
  return *std::move(call);
}

}  // namespace headrace::flow
