// SPDX-License-Identifier: Apache-2.0
// Data Factory expressions: strings that begin with '@' or hold '@{', parsed once, evaluated many
// times.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/export.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/flow/value.h"

namespace headrace::flow {

/// What the context functions of an expression see. Every function may fail; the defaults say that
/// the thing is not available here.
class HR_API Context {
 public:
  virtual ~Context();
  /// The object behind `pipeline()`.
  virtual Result<Value> pipeline();
  virtual Result<Value> parameter(std::string_view name);
  virtual Result<Value> variable(std::string_view name);
  virtual Result<Value> activity(std::string_view name);
  /// `for_each` is empty for the innermost ForEach or Filter.
  virtual Result<Value> item(std::string_view for_each);
  /// The value behind {"type": "AzureKeyVaultSecret"}.
  virtual Result<Json> vault_secret(std::string_view store, std::string_view name);
  /// The value of a {"type": "SecureString"}, which belongs into no file.
  virtual void note_secret(const Json& value);
  /// `trigger`, `triggerBody`, `triggerOutputs`, `dataset`, `linkedService`.
  virtual Result<Value> document(std::string_view function);
  /// One time and one source of chance per evaluation, so that a replay sees the same.
  virtual base::Micros now() = 0;
  virtual uint64_t random() = 0;
};

/// A name that an expression needs from its surroundings; for validation.
struct Reference {
  enum class Kind : uint8_t {
    activity,
    parameter,
    variable,
    item,
    global_parameter,
    trigger,
    dataset,
    any_activity  ///< `activity(...)` with a computed name
  };
  Kind kind = Kind::activity;
  std::string name;
  int64_t offset = 0;  ///< inside the expression's text
};

struct Node;  // expression_node_internal.h

/// One parsed string. Immutable, cheap to copy, thread-safe.
class HR_API Expression {
 public:
  Expression() = default;

  /// Does this string hold an expression: does it begin with '@' or contain '@{'?
  static bool is_expression(std::string_view text);

  /// Parse the text of a JSON string. `where` ("pl.json:41:31") stands in front of every message
  /// about it, followed by the offset in the text: "pl.json:41:31 (+14): unknown function
  /// 'concatt'; did you mean 'concat'?". Errors are `invalid_argument`.
  static Result<Expression> parse(std::string_view text, std::string_view where = "expression");

  Result<Json> evaluate(Context& context) const;

  /// What evaluation must find wrong whatever the context: functions called with literals alone,
  /// and names that `pipeline()` does not have. Parts that may stay unevaluated are passed over.
  std::vector<Error> check_literals() const;

  /// Names it refers to, in order of appearance.
  std::vector<Reference> references() const;
  const std::string& where() const;
  const std::string& text() const;

 private:
  struct State;
  explicit Expression(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

/// A JSON value some of whose strings are expressions, e.g. typeProperties. Immutable, cheap to
/// copy. Expression objects {"value": "@...", "type": "Expression"} (also with "content") stand for
/// the value of their expression, {"type": "SecureString", "value"} and {"type":
/// "AzureKeyVaultSecret", "store", "secretName"} for the secret.
class HR_API Template {
 public:
  Template() = default;

  /// `where(offset)` gives "file:line:col" for the place of a value in its document. On errors
  /// parsing goes on and all are appended to `errors`.
  static Template compile(const Json& value,
                          const std::function<std::string(int64_t offset)>& where,
                          std::vector<Error>* errors);

  /// True when nothing in it is an expression: `constant()` is then its value.
  bool is_constant() const;
  /// The value with every part that holds an expression left out (null at the top).
  const Json& constant() const { return constant_; }
  Result<Json> evaluate(Context& context) const;
  void append_references(std::vector<Reference>* out) const;
  /// Names of the members when the value is an object.
  std::vector<std::string> member_names() const;
  /// Every expression in it.
  void append_expressions(std::vector<Expression>* out) const;

 private:
  struct Part;
  Json constant_;
  std::shared_ptr<const Part> part_;  // null when constant
};

/// In the message of an error of Template::evaluate: what follows quotes the expression.
inline constexpr std::string_view kInExpression = "; in the expression";

/// Names of all functions that can be called, for "did you mean" and the reference page.
HR_API std::vector<std::string> function_names();

}  // namespace headrace::flow
