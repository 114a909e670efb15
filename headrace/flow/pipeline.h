// SPDX-License-Identifier: Apache-2.0
// A pipeline as the engine runs it: activities with resolved dependencies and parsed expressions,
// read from the JSON forms in which people keep pipelines.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/flow/expression.h"
#include "headrace/flow/run_state.h"
#include "headrace/flow/secrets.h"

namespace headrace::flow {

class ActivityTable;

/// The text a pipeline came from, for places in messages.
class Source {
 public:
  /// `name`: path as given.
  Source(std::string name, std::string text);
  const std::string& name() const { return name_; }
  const std::string& text() const { return text_; }
  /// "name:line:col".
  std::string where(int64_t offset) const;

 private:
  std::string name_;
  std::string text_;
  std::vector<int64_t> line_starts_;
};

enum class Severity : uint8_t { warning, error };

/// A finding about a document. `code` is stable: E-... or W-..., listed in docs/reference/flow.md.
struct Diagnostic {
  Severity severity = Severity::error;
  std::string code;
  std::string where;  ///< "file:line:col"
  std::string message;
};
/// "file:line:col: E-CODE: message".
HR_API std::string diagnostic_text(const Diagnostic& diagnostic);
HR_API bool has_errors(const std::vector<Diagnostic>& diagnostics);

enum class ActivityKind : uint8_t {
  work,  ///< done by a worker: the type is (or is not yet) in an ActivityTable
  for_each,
  if_condition,
  switch_case,
  until,
  wait,
  set_variable,
  append_variable,
  filter,
  fail
};

struct Activity;

/// Activities of one nesting level.
struct ActivityList {
  std::vector<Activity> activities;
  std::vector<int> leaves;  ///< those on which no other depends
};

struct Dependency {
  std::string name;
  int index = -1;          ///< within the same list
  uint8_t conditions = 0;  ///< bit of each Status that satisfies it
  int64_t offset = 0;
};

/// How attempts of an activity are bounded and repeated. Numbers may be expressions.
struct Policy {
  Template timeout;         ///< "[d.]hh:mm:ss"; constant null: none
  Template retry;           ///< constant null: 0
  Template retry_interval;  ///< seconds; constant null: 30
  bool secure_input = false;
  bool secure_output = false;
};

/// Stop a ForEach that fails too often.
struct FailureBudget {
  std::optional<int64_t> count;   ///< stop when this many items failed
  std::optional<double> percent;  ///< or this part of all items
  bool cancel_running = false;    ///< false: running items may finish
};

struct Activity {
  std::string name;
  std::string type;
  ActivityKind kind = ActivityKind::work;
  int id = 0;          ///< number within the pipeline, outer before inner
  int64_t offset = 0;  ///< of the activity's object in the text
  std::vector<Dependency> dependencies;
  std::vector<int> dependents;     ///< indices within the same list
  std::optional<Status> inactive;  ///< takes this status instead of running
  Policy policy;
  Template properties;     ///< work: all typeProperties
  bool is_broken = false;  ///< some of them cannot be parsed

  // Of the control activities.
  Template items;       ///< ForEach, Filter
  Template expression;  ///< If, Until, Filter's condition, Switch's `on`, ForEach's itemKey
  Template value;  ///< Set/AppendVariable, Fail's message, Wait's seconds, ForEach's batchCount
  Template extra;  ///< Fail's errorCode, Until's timeout
  std::string variable;
  bool system_variable = false;  ///< SetVariable of pipelineReturnValue
  bool is_sequential = false;
  FailureBudget budget;
  int64_t passes_max = 0;  ///< Until's maxIterations; 0: none
  /// ForEach and Until: one; If: true, false; Switch: cases, then default.
  std::vector<ActivityList> branches;
  std::vector<std::string> case_values;  ///< Switch

  bool is_container() const { return !branches.empty(); }
};

struct Parameter {
  std::string name;
  std::string type;  ///< "String", "Int", "Float", "Bool", "Array", "Object", "SecureString"
  std::optional<Json> default_value;
  bool secure = false;  ///< its value belongs into no file: by its type, or by that of its default
  int64_t offset = 0;
};

struct Variable {
  std::string name;
  std::string type;  ///< "String", "Bool", "Array", "Integer"
  Json default_value;
  int64_t offset = 0;

  /// Is `value` of the declared type?
  bool takes(const Json& value) const;
};

/// One pipeline. Immutable once loaded.
struct Pipeline {
  std::string name;
  std::string description;
  std::shared_ptr<const Source> source;
  std::vector<Parameter> parameters;
  std::vector<Variable> variables;
  ActivityList body;
  int activity_count = 0;
  bool outputs_of_items_used = false;  ///< some expression may look at a ForEach's output
  std::vector<std::string> literals;   ///< texts that the document marks as SecureString
  std::vector<VaultReference> vault;
  std::string shown_text;  ///< the document with "***" for `literals`; empty without any

  const Parameter* find_parameter(std::string_view name) const;  ///< exact, else without case
  const Variable* find_variable(std::string_view name) const;
};

/// All pipelines of a file or of a folder that holds a repository of them.
struct Factory {
  std::vector<std::shared_ptr<const Pipeline>> pipelines;
  std::vector<Diagnostic> diagnostics;

  /// The pipeline called `name`; with an empty name the only one. `not_found`, `invalid_argument`.
  HR_API Result<std::shared_ptr<const Pipeline>> find(std::string_view name) const;
};

/// Read a file (Git form, flat form, fragment {"activity": {...}}) or a folder in Git form (its
/// `pipeline/*.json`). Errors: the file cannot be read, or is no JSON (`invalid_argument` with
/// file:line:col). What else is wrong comes as diagnostics.
HR_API Result<Factory> load_factory(const base::Path& path);
/// The same from a text.
HR_API Result<Factory> load_factory_text(std::string name, std::string text);

/// Check work activities against the types that can be executed: E-ACTIVITY-TYPE for names nobody
/// knows, E-NOT-EXECUTABLE for types of Data Factory that this version cannot run, and each type's
/// own check of its literal properties.
HR_API std::vector<Diagnostic> validate(const Pipeline& pipeline, const ActivityTable& types);

/// A type of Data Factory that is known and cannot be executed yet.
bool is_later_type(std::string_view type);

/// Call `visit` for every activity, outer before inner.
void for_each_activity(const ActivityList& list, const std::function<void(const Activity&)>& visit);

/// "[d.]hh:mm:ss" in seconds; nullopt when it is none.
std::optional<double> parse_timeout(std::string_view text);

/// Arguments of a run: defaults filled in, values converted to the declared types. Errors
/// (`invalid_argument`) name the parameter.
HR_API Result<Json> bind_parameters(const Pipeline& pipeline, const Json& arguments);

}  // namespace headrace::flow
