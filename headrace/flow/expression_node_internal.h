// SPDX-License-Identifier: Apache-2.0
// The parsed form of an expression: shared by its parser and its evaluator.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/flow/function_internal.h"

namespace headrace::flow {

/// Calls that are not rows of a function table: they see the context, or evaluate their arguments
/// only as needed.
enum class Special : uint8_t {
  none,
  pipeline,
  parameters,
  variables,
  activity,
  item,
  document,  ///< trigger(), dataset(), ...
  if_,
  and_,
  or_,
  coalesce
};

struct Node {
  enum class Kind : uint8_t { literal, call, special, property, index };
  Kind kind = Kind::literal;
  Special special = Special::none;
  bool safe = false;  ///< `?.` and `?[`: null instead of an error
  uint32_t offset = 0;
  uint32_t end = 0;
  Json literal;
  std::string name;  ///< property or function
  const Function* function = nullptr;
  std::vector<Node> children;
};

/// A string with `@{...}` is text and expressions in turn.
struct Segment {
  std::string text;
  bool is_node = false;
  Node node;
};

struct ParsedText {
  bool interpolated = false;
  std::vector<Segment> segments;  ///< one node and `!interpolated`: type is kept
};

/// The error's message begins with "(+offset): ".
Result<ParsedText> parse_expression_text(std::string_view text);

}  // namespace headrace::flow
