// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>

#include "headrace/flow/expression_node_internal.h"
#include "headrace/flow/text.h"

namespace headrace::flow {

namespace {

constexpr int kDepthMax = 100;  // nested calls; keeps hostile input off the stack

struct SpecialRow {
  std::string_view name;
  Special special;
  size_t count_min;
  size_t count_max;
};
constexpr SpecialRow kSpecials[] = {
    {"pipeline", Special::pipeline, 0, 0},
    {"parameters", Special::parameters, 1, 1},
    {"variables", Special::variables, 1, 1},
    {"activity", Special::activity, 1, 1},
    {"item", Special::item, 0, 1},
    {"iterationItem", Special::item, 0, 1},
    {"trigger", Special::document, 0, 0},
    {"triggerBody", Special::document, 0, 0},
    {"triggerOutputs", Special::document, 0, 0},
    {"dataset", Special::document, 0, 0},
    {"linkedService", Special::document, 0, 0},
    {"if", Special::if_, 3, 3},
    {"and", Special::and_, 2, 2},
    {"or", Special::or_, 2, 2},
    {"coalesce", Special::coalesce, 1, size_t{kAny}},
};

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

std::string count_text(size_t count_min, size_t count_max) {
  const auto noun = [](size_t n) { return n == 1 ? " argument" : " arguments"; };
  if (count_min == count_max) {
    return std::to_string(count_min) + noun(count_min);
  }
  if (count_max >= size_t{kAny}) {
    return "at least " + std::to_string(count_min) + noun(count_min);
  }
  return std::to_string(count_min) + " to " + std::to_string(count_max) + " arguments";
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  /// `@expr`: the rest of the text is one expression.
  Result<Node> whole(size_t begin) {
    at_ = begin;
    HR_TRY(auto node, parse(0));
    skip_blank();
    if (at_ < text_.size()) {
      return fail(at_, "unexpected " + here() +
                           " after the end of the expression; text around an expression needs "
                           "the form '... @{expression} ...'");
    }
    return node;
  }

  /// `@{expr}`: `*at` stands behind the brace and moves behind the closing one.
  Result<Node> braced(size_t* at) {
    const size_t begin = *at - 2;
    at_ = *at;
    HR_TRY(auto node, parse(0));
    skip_blank();
    if (at_ >= text_.size()) {
      return fail(begin, "this '@{' is never closed");
    }
    if (text_[at_] != '}') {
      return fail(at_, "unexpected " + here() + "; expected '}'");
    }
    *at = at_ + 1;
    return node;
  }

 private:
  static Error fail(size_t offset, std::string_view what) {
    return Error{Errc::invalid_argument, fmt::format("(+{}): {}", offset, what)};
  }

  std::string here() const {
    if (at_ >= text_.size()) {
      return "end of text";
    }
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c < 0x20) {
      return fmt::format("control character {}", c);
    }
    size_t length = 1;
    while (at_ + length < text_.size() &&
           (static_cast<unsigned char>(text_[at_ + length]) & 0xC0U) == 0x80U) {
      ++length;
    }
    return fmt::format("'{}'", text_.substr(at_, length));
  }

  bool next_is(char c) const { return at_ < text_.size() && text_[at_] == c; }
  void skip_blank() {
    while (at_ < text_.size() && is_blank(text_[at_])) {
      ++at_;
    }
  }

  Result<Node> parse(int depth) {
    if (depth > kDepthMax) {
      return fail(at_, fmt::format("nested deeper than {} calls", kDepthMax));
    }
    skip_blank();
    HR_TRY(auto node, primary(depth));
    for (;;) {
      const size_t before = at_;
      skip_blank();
      if (at_ >= text_.size() || (text_[at_] != '.' && text_[at_] != '[' && text_[at_] != '?')) {
        at_ = before;
        return node;
      }
      HR_TRY(suffix(&node, depth));
    }
  }

  Result<void> suffix(Node* node, int depth) {
    Node outer;
    outer.offset = static_cast<uint32_t>(at_);
    if (next_is('?')) {
      outer.safe = true;
      ++at_;
      if (!next_is('.') && !next_is('[')) {
        return fail(at_, "unexpected " + here() + "; expected '.' or '[' after '?'");
      }
    }
    if (next_is('.')) {
      ++at_;
      skip_blank();
      const size_t begin = at_;
      while (at_ < text_.size() && is_name_part(text_[at_])) {
        ++at_;
      }
      if (at_ == begin) {
        return fail(at_, "unexpected " + here() +
                             "; expected a property name after '.'; names with other characters "
                             "need the form ['name']");
      }
      outer.kind = Node::Kind::property;
      outer.name = text_.substr(begin, at_ - begin);
      outer.children.push_back(std::move(*node));
    } else {
      const size_t begin = at_++;
      HR_TRY(auto inner, parse(depth + 1));
      skip_blank();
      if (!next_is(']')) {
        return at_ >= text_.size() ? fail(begin, "this '[' is never closed")
                                   : fail(at_, "unexpected " + here() + "; expected ']'");
      }
      ++at_;
      outer.kind = Node::Kind::index;
      outer.children.push_back(std::move(*node));
      outer.children.push_back(std::move(inner));
    }
    outer.end = static_cast<uint32_t>(at_);
    *node = std::move(outer);
    return {};
  }

  Result<Node> primary(int depth) {
    if (at_ >= text_.size()) {
      return fail(at_, "the text ends where an expression is expected");
    }
    const char c = text_[at_];
    if (c == '\'') {
      return quoted();
    }
    const bool fraction = c == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]);
    if (is_digit(c) || c == '-' || c == '+' || fraction) {
      return number();
    }
    if (is_name_start(c)) {
      return word(depth);
    }
    if (c == '"') {
      return fail(at_, "unexpected '\"'; strings inside an expression stand in single quotes");
    }
    return fail(at_, "unexpected " + here() + "; expected a function, a literal or 'text'");
  }

  Node literal(size_t begin, Json value) const {
    Node node;
    node.offset = static_cast<uint32_t>(begin);
    node.end = static_cast<uint32_t>(at_);
    node.literal = std::move(value);
    return node;
  }

  Result<Node> quoted() {
    const size_t begin = at_++;
    std::string value;
    for (;;) {
      const size_t quote = text_.find('\'', at_);
      if (quote == std::string_view::npos) {
        return fail(begin, "the string is never closed; a quote inside it is written ''");
      }
      value += text_.substr(at_, quote - at_);
      at_ = quote + 1;
      if (!next_is('\'')) {
        return literal(begin, std::move(value));
      }
      value += '\'';
      ++at_;
    }
  }

  Result<Node> number() {
    const size_t begin = at_;
    bool integral = true;
    const auto digits = [&] {
      const size_t first = at_;
      while (at_ < text_.size() && is_digit(text_[at_])) {
        ++at_;
      }
      return at_ > first;
    };
    if (next_is('-') || next_is('+')) {
      ++at_;
    }
    bool good = digits() || next_is('.');
    if (good && next_is('.') && at_ + 1 < text_.size() && is_digit(text_[at_ + 1])) {
      integral = false;
      ++at_;
      digits();
    }
    if (good && (next_is('e') || next_is('E'))) {
      integral = false;
      ++at_;
      if (next_is('-') || next_is('+')) {
        ++at_;
      }
      good = digits();
    }
    if (!good || (at_ < text_.size() && is_name_part(text_[at_]))) {
      return fail(at_, "unexpected " + here() + " in a number");
    }
    std::string_view token = text_.substr(begin, at_ - begin);
    token.remove_prefix(token[0] == '+' ? 1 : 0);
    if (integral) {
      int64_t value = 0;
      if (std::from_chars(token.begin(), token.end(), value).ec != std::errc()) {
        return fail(begin, fmt::format("the integer {} does not fit in 64 bits", token));
      }
      return literal(begin, value);
    }
    double value = 0.0;
    if (std::from_chars(token.begin(), token.end(), value).ec != std::errc()) {
      return fail(begin, fmt::format("the number {} is beyond the range of a double", token));
    }
    return literal(begin, value);
  }

  Result<Node> word(int depth) {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name_part(text_[at_])) {
      ++at_;
    }
    const std::string_view name = text_.substr(begin, at_ - begin);
    const size_t end = at_;
    skip_blank();
    if (next_is('(')) {
      return call(begin, name, depth);
    }
    at_ = end;
    if (equal_ignoring_case(name, "true") || equal_ignoring_case(name, "false")) {
      return literal(begin, equal_ignoring_case(name, "true"));
    }
    if (equal_ignoring_case(name, "null")) {
      return literal(begin, nullptr);
    }
    return fail(begin, fmt::format("'{}' is neither a function call nor a literal; a function "
                                   "needs parentheses, text needs quotes",
                                   name));
  }

  Result<Node> call(size_t begin, std::string_view name, int depth) {
    Node node;
    node.kind = Node::Kind::call;
    node.offset = static_cast<uint32_t>(begin);
    node.name = name;
    HR_TRY(arguments(&node.children, depth));
    node.end = static_cast<uint32_t>(at_);
    size_t count_min = 0;
    size_t count_max = 0;
    for (const SpecialRow& row : kSpecials) {
      if (equal_ignoring_case(row.name, name)) {
        node.kind = Node::Kind::special;
        node.special = row.special;
        node.name = row.name;
        count_min = row.count_min;
        count_max = row.count_max;
      }
    }
    if (node.special == Special::none) {
      node.function = find_function(name);
      if (node.function == nullptr) {
        if (is_later_function(name)) {
          return fail(begin, fmt::format("function '{}' is not available yet", name));
        }
        return fail(begin, fmt::format("unknown function '{}'{}", name,
                                       did_you_mean(name, function_names())));
      }
      node.name = node.function->name;
      count_min = static_cast<size_t>(node.function->count_min);
      count_max = static_cast<size_t>(node.function->count_max);
    }
    const size_t count = node.children.size();
    if (count < count_min || count > count_max) {
      return fail(begin, fmt::format("function '{}' takes {}, got {}", node.name,
                                     count_text(count_min, count_max), count));
    }
    return node;
  }

  Result<void> arguments(std::vector<Node>* out, int depth) {
    const size_t begin = at_++;
    skip_blank();
    if (next_is(')')) {
      ++at_;
      return {};
    }
    for (;;) {
      HR_TRY(auto node, parse(depth + 1));
      out->push_back(std::move(node));
      skip_blank();
      if (next_is(',')) {
        ++at_;
        continue;
      }
      if (next_is(')')) {
        ++at_;
        return {};
      }
      return at_ >= text_.size() ? fail(begin, "this '(' is never closed")
                                 : fail(at_, "unexpected " + here() + "; expected ',' or ')'");
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Result<ParsedText> parse_expression_text(std::string_view text) {
  ParsedText parsed;
  const bool escaped = text.starts_with("@@");
  if (text.starts_with('@') && !escaped && !text.starts_with("@{")) {
    Segment segment;
    segment.is_node = true;
    HR_TRY(segment.node, Parser(text).whole(1));
    parsed.segments.push_back(std::move(segment));
    return parsed;
  }
  std::string literal;
  size_t at = 0;
  if (escaped) {
    literal = "@";
    at = 2;
  }
  while (at < text.size()) {
    if (text[at] != '@') {
      literal += text[at++];
    } else if (text.substr(at, 3) == "@@{") {
      literal += "@{";
      at += 3;
    } else if (text.substr(at, 2) == "@{") {
      at += 2;
      Segment segment;
      segment.is_node = true;
      HR_TRY(segment.node, Parser(text).braced(&at));
      if (!literal.empty()) {
        parsed.segments.push_back({std::exchange(literal, {}), false, {}});
      }
      parsed.segments.push_back(std::move(segment));
    } else {
      literal += text[at++];
    }
  }
  parsed.interpolated = true;
  if (!literal.empty() || parsed.segments.empty()) {
    parsed.segments.push_back({std::move(literal), false, {}});
  }
  return parsed;
}

}  // namespace headrace::flow
