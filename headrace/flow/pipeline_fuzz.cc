// SPDX-License-Identifier: Apache-2.0
// Whatever a pipeline document holds, loading it ends with findings or an error; what is valid runs
// in the engine until its work is out.
#include <string>

#include "headrace/flow/activity.h"
#include "headrace/flow/engine.h"
#include "headrace/flow/pipeline.h"

namespace {

using namespace headrace;        // NOLINT(google-build-using-namespace)
using namespace headrace::flow;  // NOLINT(google-build-using-namespace)

/// Let every attempt succeed, in order, for a bounded number of events.
void run(const std::shared_ptr<const Pipeline>& pipeline) {
  const auto bound = bind_parameters(*pipeline, Json::object());
  if (!bound.ok()) {
    return;
  }
  EngineOptions options;
  options.run_id = "fuzz";
  options.parameters = *bound;
  options.report_outputs = true;
  Engine engine(pipeline, options);
  Actions actions;
  base::Micros now(1);
  HR_CHECK(engine.step({now, Started{2}}, &actions).ok(), "the start is refused");
  for (int i = 0; i < 200 && !engine.ended(); ++i) {
    Actions todo;
    std::swap(todo, actions);
    for (const uint64_t id : todo.evaluate_items) {
      ItemsKnown known;
      known.run = id;
      auto items = engine.evaluate_items(id);
      if (items.ok() && items->size() < 100) {
        known.items = *std::move(items);
      } else {
        known.error = ActivityError{"items", "no", "UserError", ""};
      }
      HR_CHECK(engine.step({now, std::move(known)}, &actions).ok(), "items are refused");
    }
    for (const StartAttempt& start : todo.start) {
      AttemptEnded ended;
      ended.attempt = start.attempt;
      const auto call = engine.evaluate_call(start.attempt);
      ended.outcome.kind = call.ok() ? Outcome::Kind::succeeded : Outcome::Kind::not_started;
      ended.outcome.output = call.ok() ? call->properties : "";
      HR_CHECK(engine.step({now, std::move(ended)}, &actions).ok(), "an end is refused");
    }
    if (const auto deadline = engine.next_deadline();
        deadline && actions.start.empty() && actions.evaluate_items.empty()) {
      now = std::max(now, *deadline);
      HR_CHECK(engine.step({now, Tick{}}, &actions).ok(), "a tick is refused");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  const bool slow = text.find("range") != std::string::npos && size > 4000;
  auto factory = load_factory_text("fuzz.json", std::move(text));
  if (!factory.ok()) {
    return 0;
  }
  for (const auto& pipeline : factory->pipelines) {
    static_cast<void>(validate(*pipeline, ActivityTable()));
    if (!has_errors(factory->diagnostics) && !slow) {
      run(pipeline);
    }
  }
  return 0;
}
