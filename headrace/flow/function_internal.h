// SPDX-License-Identifier: Apache-2.0
// How a function of the expression language is declared and how it gets at its arguments.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/result.h"
#include "headrace/flow/expression.h"
#include "headrace/flow/value.h"

namespace headrace::flow {

class Call;

/// One row of a function table. `arguments` names them for messages, e.g. "text, startIndex".
struct Function {
  std::string_view name;
  int count_min;
  int count_max;  ///< kAny: no bound
  std::string_view arguments;
  Result<Value> (*run)(Call& call);
};
inline constexpr int kAny = 1 << 30;

// Bounds on what expressions make; `Call::check_text` and `check_count` tell of them. A function
// whose result may be much larger than its arguments asks before it makes it.
inline constexpr size_t kTextBytesMax = size_t{64} << 20;  ///< of one text
inline constexpr size_t kElementsMax = 10'000'000;         ///< of one array, with those inside
inline constexpr size_t kMadeBytesMax = size_t{2} << 30;   ///< of all values of one evaluation

/// One call with evaluated arguments. The getters check kinds; their errors name the function, the
/// position, what was expected and what came.
class Call {
 public:
  Call(const Function& function, std::span<Value> arguments, Context& context)
      : function_(function), arguments_(arguments), context_(context) {}

  size_t size() const { return arguments_.size(); }
  const Json& operator[](size_t index) const { return *arguments_[index]; }
  Value take(size_t index) { return std::move(arguments_[index]); }
  Context& context() { return context_; }

  Result<std::string_view> text(size_t index) const;
  Result<int64_t> integer(size_t index) const;  ///< also a real without fraction
  Result<double> number(size_t index) const;
  Result<bool> boolean(size_t index) const;
  Result<const Json::Array*> array(size_t index) const;
  Result<const Json::Object*> object(size_t index) const;

  /// "function 'substring', argument 2 (startIndex): expected an integer, got string 'x'".
  Error wrong(size_t index, std::string_view expected) const;
  Result<void> check_text(size_t bytes) const;
  Result<void> check_count(size_t elements) const;
  /// "function 'div': what".
  Error fail(std::string_view what) const;

 private:
  const Function& function_;
  std::span<Value> arguments_;
  Context& context_;
};

// One table per file.
std::span<const Function> string_functions();
std::span<const Function> collection_functions();
std::span<const Function> logic_functions();
std::span<const Function> math_functions();
std::span<const Function> conversion_functions();
std::span<const Function> date_functions();

/// Case-insensitive; nullptr when unknown.
const Function* find_function(std::string_view name);
/// A function of Data Factory that this version does not have yet.
bool is_later_function(std::string_view name);

}  // namespace headrace::flow
