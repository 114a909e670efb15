// SPDX-License-Identifier: Apache-2.0
// From journal records back to a running engine: the same for resume, for status and for tests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/base/result.h"
#include "headrace/flow/engine.h"
#include "headrace/flow/journal.h"

namespace headrace::flow {

struct ReplayOptions {
  bool report_outputs = false;
  /// Called for each report of the engine, in order.
  std::function<void(const Report& report)> on_report;
  /// Called when a restart makes earlier reports void.
  std::function<void()> on_restart;
  /// Remember what succeeded, for an engine that began anew.
  bool keep_outcomes = false;
  /// Where secure parameters are kept; empty: they stay null.
  base::Path run_folder;
  /// Without the secrets that belong to the run there is no replay; else it goes on with "***" in
  /// their place, see Replay::secrets_problem.
  bool secrets_needed = false;
};

/// What succeeded, but for what came after a failure: that looked at what the failure left and is
/// to look again. By path and digest of the evaluated properties.
using FinishedWork = std::map<std::pair<std::string, uint64_t>, Outcome>;

/// Feed it a journal's records; afterwards it holds the run as the journal knows it.
class Replay {
 public:
  explicit Replay(ReplayOptions options = {}) : options_(std::move(options)) {}

  /// `corrupt`, `mismatch`: see Engine::step and RunHeader::from_json.
  Result<void> on_record(uint8_t type, std::string_view payload);

  bool empty() const { return engine_ == nullptr; }
  const RunHeader& header() const { return header_; }
  const std::shared_ptr<const Pipeline>& pipeline() const { return pipeline_; }
  Engine& engine() { return *engine_; }
  std::unique_ptr<Engine> take_engine() { return std::move(engine_); }
  /// Attempts so far, those that run included.
  std::shared_ptr<const EarlierWorks> earlier();
  FinishedWork take_finished() { return std::move(finished_); }
  int resumes() const { return resumes_; }
  /// How often the engine began anew; above 0, what `take_finished` gives counts for it.
  int restarts() const { return restarts_; }
  /// Did any item of the run succeed, in this or in an earlier beginning?
  bool items_succeeded() const;
  int slots() const { return slots_; }
  base::Micros last_event() const { return last_event_; }
  /// Why the run's secrets could not be had; empty when they could, or there are none.
  const std::string& secrets_problem() const { return secrets_problem_; }
  /// What is missing of the secure outputs; empty when all are there.
  std::string outputs_problem() const;

 private:
  Result<void> begin(std::string_view payload);
  Result<Json> take_secrets();
  /// Whether the output is there: kept in the journal, or found among the secure ones.
  Result<bool> fill_in(Outcome* outcome);
  void note_earlier(const AttemptEnded& attempt, base::Micros now);

  ReplayOptions options_;
  RunHeader header_;
  std::shared_ptr<const Pipeline> pipeline_;
  std::unique_ptr<Engine> engine_;
  EventDecoder decoder_;
  Actions actions_;
  FinishedWork finished_;
  EarlierWorks earlier_;
  bool items_succeeded_ = false;  ///< before the last restart
  int resumes_ = 0;
  int restarts_ = 0;
  int slots_ = 0;
  std::string secrets_problem_;
  int outputs_lost_ = 0;
  base::Micros last_event_{0};
  std::optional<std::map<std::string, std::string>> secret_outputs_;  ///< by key; read when needed
};

/// Content of RUN/secrets.json: an object; empty without the file. Beside secure parameters it
/// holds documents with secrets, each by `document_key` of the text that the journal has in its
/// place.
Result<Json> read_secrets(const base::Path& run_folder);
inline constexpr std::string_view kDocumentKey = "@document ";
std::string document_key(std::string_view shown_text);

/// `parameters` with the secure ones filled in from the run's folder, as far as it has them.
Result<Json> with_secrets(Json parameters, const base::Path& run_folder);

/// The pipeline of a header, and what its engine is made with.
Result<std::shared_ptr<const Pipeline>> load_pipeline(const RunHeader& header);
EngineOptions engine_options(const RunHeader& header, bool report_outputs);

}  // namespace headrace::flow
