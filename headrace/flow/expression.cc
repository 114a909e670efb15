// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/expression.h"

#include <fmt/format.h>

#include <algorithm>

#include "headrace/flow/expression_node_internal.h"
#include "headrace/flow/text.h"

namespace headrace::flow {

namespace {

Error not_here(std::string_view what) {
  return Error{Errc::invalid_argument, fmt::format("{} is not available here", what)};
}

/// Data Factory's word for a kind of value.
std::string_view type_name(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::null: return "Null";
    case Json::Kind::boolean: return "Boolean";
    case Json::Kind::integer: return "Integer";
    case Json::Kind::real: return "Float";
    case Json::Kind::string: return "String";
    case Json::Kind::array: return "Array";
    case Json::Kind::object: break;
  }
  return "Object";
}

std::string property_names(const Json& object) {
  constexpr size_t kNamesMax = 20;
  std::string names;
  for (const Json::Member& member : object.members()) {
    if (&member - object.members().data() >= static_cast<std::ptrdiff_t>(kNamesMax)) {
      return names + ", ...";
    }
    names += (names.empty() ? "" : ", ") + member.first;
  }
  return names;
}

/// What a value takes, roughly.
struct Extent {
  size_t text_max = 0;  ///< bytes of its longest text
  size_t elements = 0;  ///< of arrays and objects, with those inside
  size_t bytes = 0;

  void add(const Json& value) {
    if (value.is_string()) {
      text_max = std::max(text_max, value.string().size());
      bytes += value.string().size();
    } else if (value.is_array()) {
      elements += value.items().size();
      bytes += value.items().size() * sizeof(Json);
      for (const Json& item : value.items()) {
        add(item);
      }
    } else if (value.is_object()) {
      elements += value.members().size();
      bytes += value.members().size() * sizeof(Json::Member);
      for (const Json::Member& member : value.members()) {
        add(member.second);
      }
    }
  }
};

class Evaluator {
 public:
  Evaluator(std::string_view text, Context& context) : text_(text), context_(context) {}

  Result<Value> run(const Node& node) {
    switch (node.kind) {
      case Node::Kind::literal: return Value::borrow(node.literal);
      case Node::Kind::property: {
        HR_TRY(auto base, run(node.children[0]));
        return property(node, std::move(base), node.name);
      }
      case Node::Kind::index: {
        HR_TRY(auto base, run(node.children[0]));
        HR_TRY(auto key, run(node.children[1]));
        return index(node, std::move(base), *key);
      }
      case Node::Kind::special: return special(node);
      case Node::Kind::call: break;
    }
    return call(node);
  }

 private:
  Error fail(const Node& node, std::string_view what) const {
    return Error{Errc::invalid_argument,
                 fmt::format("(+{}): the expression '{}' cannot be evaluated because {}",
                             node.offset, source(node), what)};
  }
  Error at(const Node& node, Error error) const {
    error.add_context(fmt::format("(+{})", node.offset));
    return error;
  }
  std::string_view source(const Node& node) const {
    size_t begin = node.offset;
    const Node* first = &node;
    while (first->kind == Node::Kind::property || first->kind == Node::Kind::index) {
      first = &first->children[0];
      begin = first->offset;
    }
    return text_.substr(begin, node.end - begin);
  }

  Result<Value> call(const Node& node) {
    constexpr size_t kInline = 4;
    Value few[kInline];
    std::vector<Value> many;
    const size_t count = node.children.size();
    if (count > kInline) {
      many.resize(count);
    }
    const std::span<Value> values(count > kInline ? many.data() : few, count);
    for (size_t i = 0; i < count; ++i) {
      HR_TRY(values[i], run(node.children[i]));
    }
    Call call(*node.function, values, context_);
    Result<Value> result = node.function->run(call);
    if (!result.ok()) {
      return at(node, std::move(result).error());
    }
    if (const Result<void> fits = result->borrowed() ? Result<void>() : check(call, **result);
        !fits.ok()) {
      return at(node, fits.error());
    }
    return result;
  }

  /// The bounds on what functions make, for every one of them.
  Result<void> check(const Call& call, const Json& value) {
    if (!value.is_string() && !value.is_array() && !value.is_object()) {
      return {};
    }
    Extent extent;
    extent.add(value);
    HR_TRY(call.check_text(extent.text_max));
    HR_TRY(call.check_count(extent.elements));
    made_bytes_ += extent.bytes;
    if (made_bytes_ > kMadeBytesMax) {
      return call.fail(
          fmt::format("the values of the expression would take {} bytes; at most {} "
                      "are possible",
                      made_bytes_, kMadeBytesMax));
    }
    return {};
  }

  Result<bool> condition(const Node& node, size_t argument) {
    HR_TRY(auto value, run(node.children[argument]));
    if (!value->is_bool()) {
      return Error{Errc::invalid_argument,
                   fmt::format("(+{}): function '{}', argument {}: expected a boolean, got {}",
                               node.offset, node.name, argument + 1, describe_value(*value))};
    }
    return value->boolean();
  }

  Result<Value> special(const Node& node) {
    switch (node.special) {
      case Special::if_: {
        HR_TRY(const bool chosen, condition(node, 0));
        return run(node.children[chosen ? 1 : 2]);
      }
      case Special::and_:
      case Special::or_: {
        HR_TRY(const bool first, condition(node, 0));
        if (first == (node.special == Special::or_)) {
          return Value(Json(first));
        }
        HR_TRY(const bool second, condition(node, 1));
        return Value(Json(second));
      }
      case Special::coalesce: {
        for (const Node& child : node.children) {
          HR_TRY(auto value, run(child));
          if (!value->is_null()) {
            return value;
          }
        }
        return Value();
      }
      default: return context_value(node);
    }
  }

  Result<Value> context_value(const Node& node) {
    Value name;
    if (!node.children.empty()) {
      HR_TRY(name, run(node.children[0]));
      if (!name->is_string()) {
        return Error{Errc::invalid_argument,
                     fmt::format("(+{}): function '{}', argument 1 (name): expected a string, got "
                                 "{}",
                                 node.offset, node.name, describe_value(*name))};
      }
    }
    const std::string_view text = name->is_string() ? std::string_view(name->string()) : "";
    Result<Value> result = ask(node, text);
    if (!result.ok()) {
      return at(node, std::move(result).error());
    }
    return result;
  }

  Result<Value> ask(const Node& node, std::string_view name) {
    switch (node.special) {
      case Special::pipeline: return context_.pipeline();
      case Special::parameters: return context_.parameter(name);
      case Special::variables: return context_.variable(name);
      case Special::activity: return context_.activity(name);
      case Special::item: return context_.item(name);
      default: return context_.document(node.name);
    }
  }

  static Value child(Value base, const Json& inner) {
    return base.borrowed() ? Value::borrow(inner) : Value(Json(inner));
  }

  Result<Value> property(const Node& node, Value base, const std::string& name) {
    if (base->is_object()) {
      Result<const Json*> found = find_property(*base, name);
      if (!found.ok()) {
        return fail(node, found.error().message());
      }
      if (*found != nullptr) {
        const Json& inner = **found;
        return child(std::move(base), inner);
      }
      if (node.safe) {
        return Value();
      }
      return fail(node, fmt::format("property '{}' doesn't exist, available properties are '{}'; "
                                    "'?.{}' gives null instead",
                                    name, property_names(*base), name));
    }
    if (base->is_null() && node.safe) {
      return Value();
    }
    if (base->is_null()) {
      return fail(node, fmt::format("property '{}' cannot be selected from null; '?.{}' gives "
                                    "null instead",
                                    name, name));
    }
    return fail(node, fmt::format("property '{}' cannot be selected: property selection is not "
                                  "supported on values of type '{}'{}",
                                  name, type_name(*base),
                                  base->is_array() ? "; elements are chosen by [index]" : ""));
  }

  Result<Value> index(const Node& node, Value base, const Json& key) {
    if (base->is_object()) {
      if (!key.is_string()) {
        return fail(node,
                    "a property of an object is chosen by a string, not by " + describe_value(key));
      }
      return property(node, std::move(base), key.string());
    }
    if (base->is_array()) {
      if (!key.is_integer()) {
        return fail(
            node, "an element of an array is chosen by an integer, not by " + describe_value(key));
      }
      const auto size = static_cast<int64_t>(base->items().size());
      if (key.integer() >= 0 && key.integer() < size) {
        const Json& inner = base->items()[static_cast<size_t>(key.integer())];
        return child(std::move(base), inner);
      }
      if (node.safe) {
        return Value();
      }
      return fail(node,
                  fmt::format("index {} is outside the array of {} elements", key.integer(), size));
    }
    if (base->is_null() && node.safe) {
      return Value();
    }
    return fail(node,
                fmt::format("'[...]' is not supported on values of type '{}'{}", type_name(*base),
                            base->is_null() ? "; '?[...]' gives null instead" : ""));
  }

  std::string_view text_;
  Context& context_;
  size_t made_bytes_ = 0;
};

void collect(const Node& node, std::vector<Reference>* out) {
  using Kind = Reference::Kind;
  const auto add = [&](Kind kind, const std::string& name) {
    out->push_back({kind, name, node.offset});
  };
  if (node.kind == Node::Kind::property && node.children[0].kind == Node::Kind::property &&
      node.children[0].children[0].special == Special::pipeline) {
    if (equal_ignoring_case(node.children[0].name, "parameters")) {
      add(Kind::parameter, node.name);
    } else if (equal_ignoring_case(node.children[0].name, "globalParameters")) {
      add(Kind::global_parameter, node.name);
    }
  }
  const bool named = !node.children.empty() && node.children[0].kind == Node::Kind::literal &&
                     node.children[0].literal.is_string();
  const std::string name = named ? node.children[0].literal.string() : "";
  switch (node.special) {
    case Special::activity: add(named ? Kind::activity : Kind::any_activity, name); break;
    case Special::parameters:
      if (named) {
        add(Kind::parameter, name);
      }
      break;
    case Special::variables:
      if (named) {
        add(Kind::variable, name);
      }
      break;
    case Special::item: add(Kind::item, name); break;
    case Special::document:
      add(node.name.starts_with("trigger") ? Kind::trigger : Kind::dataset, node.name);
      break;
    default: break;
  }
  for (const Node& child : node.children) {
    collect(child, out);
  }
}

}  // namespace

Context::~Context() = default;
Result<Value> Context::pipeline() { return not_here("pipeline()"); }
Result<Value> Context::parameter(std::string_view) { return not_here("parameters()"); }
Result<Value> Context::variable(std::string_view) { return not_here("variables()"); }
Result<Value> Context::activity(std::string_view) { return not_here("activity()"); }
Result<Value> Context::item(std::string_view) { return not_here("item()"); }
Result<Json> Context::vault_secret(std::string_view, std::string_view) {
  return not_here("the secret of a key vault");
}
void Context::note_secret(const Json&) {}
Result<Value> Context::document(std::string_view function) {
  return not_here(fmt::format("{}()", function));
}

struct Expression::State {
  std::string text;
  std::string where;
  ParsedText parsed;
};

Expression::Expression(std::shared_ptr<const State> state) : state_(std::move(state)) {}

bool Expression::is_expression(std::string_view text) {
  return text.starts_with('@') || text.find("@{") != std::string_view::npos;
}

Result<Expression> Expression::parse(std::string_view text, std::string_view where) {
  auto state = std::make_shared<State>();
  state->text = text;
  state->where = where;
  Result<ParsedText> parsed = parse_expression_text(state->text);
  if (!parsed.ok()) {
    return Error{parsed.error().code(), state->where + " " + parsed.error().message()};
  }
  state->parsed = *std::move(parsed);
  return Expression(std::move(state));
}

Result<Json> Expression::evaluate(Context& context) const {
  Evaluator evaluator(state_->text, context);
  const auto with_place = [&](Error error) {
    return Error{error.code(), state_->where + " " + error.message()};
  };
  if (!state_->parsed.interpolated) {
    Result<Value> value = evaluator.run(state_->parsed.segments[0].node);
    if (!value.ok()) {
      return with_place(std::move(value).error());
    }
    return (*std::move(value)).take();
  }
  std::string out;
  for (const Segment& segment : state_->parsed.segments) {
    if (!segment.is_node) {
      out += segment.text;
      continue;
    }
    Result<Value> value = evaluator.run(segment.node);
    if (!value.ok()) {
      return with_place(std::move(value).error());
    }
    append_value_text(**value, &out);
    if (out.size() > kTextBytesMax) {
      return with_place(Error{Errc::invalid_argument,
                              fmt::format("the text would have {} bytes; at most {} are possible",
                                          out.size(), kTextBytesMax)});
    }
  }
  return Json(std::move(out));
}

std::vector<Reference> Expression::references() const {
  std::vector<Reference> out;
  for (const Segment& segment : state_->parsed.segments) {
    if (segment.is_node) {
      collect(segment.node, &out);
    }
  }
  return out;
}

namespace {

class NoContext final : public Context {
 public:
  base::Micros now() override { return base::Micros(0); }
  uint64_t random() override { return 0; }
};

void check_node(const Node& node, std::string_view text, std::vector<Error>* errors) {
  static const std::vector<std::string> kOfPipeline = {
      "DataFactory", "Pipeline",         "RunId",
      "GroupId",     "TriggerType",      "TriggerId",
      "TriggerName", "TriggerTime",      "TriggeredByPipelineName",
      "parameters",  "globalParameters", "TriggeredByPipelineRunId"};
  constexpr std::string_view kLarge[] = {"range"};  // made for nothing here
  if (node.kind == Node::Kind::property && !node.safe &&
      node.children[0].special == Special::pipeline &&
      std::ranges::none_of(kOfPipeline, [&](const std::string& one) {
        return equal_ignoring_case(one, node.name);
      })) {
    errors->push_back(
        Error{Errc::invalid_argument,
              fmt::format("(+{}): pipeline() has no '{}'{}; it has: {}", node.offset, node.name,
                          did_you_mean(node.name, kOfPipeline), name_list(kOfPipeline, 20))});
    return;
  }
  const bool lazy = node.special == Special::if_ || node.special == Special::and_ ||
                    node.special == Special::or_ || node.special == Special::coalesce;
  if (lazy) {
    return;
  }
  bool literal =
      node.kind == Node::Kind::call && std::ranges::none_of(kLarge, [&](std::string_view one) {
        return equal_ignoring_case(one, node.name);
      });
  for (const Node& child : node.children) {
    literal = literal && child.kind == Node::Kind::literal;
    check_node(child, text, errors);
  }
  if (literal) {
    NoContext context;
    const Result<Value> value = Evaluator(text, context).run(node);
    if (!value.ok()) {
      errors->push_back(value.error());
    }
  }
}

}  // namespace

std::vector<Error> Expression::check_literals() const {
  std::vector<Error> errors;
  for (const Segment& segment : state_->parsed.segments) {
    if (segment.is_node) {
      check_node(segment.node, state_->text, &errors);
    }
  }
  return errors;
}

const std::string& Expression::where() const { return state_->where; }
const std::string& Expression::text() const { return state_->text; }

struct Template::Part {
  /// A secret has one child, a vault's two: store and name.
  enum class Kind : uint8_t { constant, expression, array, object, secret, vault };
  Kind kind = Kind::constant;
  Json constant;
  Expression expression;
  std::vector<std::string> names;
  std::vector<Part> children;

  bool is_evaluated() const {
    return kind == Kind::expression || kind == Kind::secret || kind == Kind::vault;
  }

  /// Make `constant` out of the children's; true when that is all there is.
  bool gather() {
    bool whole = true;
    for (size_t i = 0; i < children.size(); ++i) {
      const Part& child = children[i];
      whole = whole && child.kind == Kind::constant;
      if (child.is_evaluated()) {
        continue;
      }
      if (kind == Kind::array) {
        constant.push_back(child.constant);
      } else {
        constant.members().emplace_back(names[i], child.constant);
      }
    }
    return whole;
  }
};

namespace {

/// The text of {"type": "Expression", "value": "@..."}; nullptr when this is no such object.
const Json* expression_object(const Json& value) {
  if (!value.is_object() || !equal_ignoring_case(value.get_string("type"), "Expression")) {
    return nullptr;
  }
  const Json* text = value.find("value");
  return text != nullptr ? text : value.find("content");
}

/// A member, or null.
const Json& member_of(const Json& value, std::string_view name) {
  static const Json kNone;
  const Json* found = value.find(name);
  return found != nullptr ? *found : kNone;
}

bool is_of_type(const Json& value, std::string_view type) {
  return value.is_object() && equal_ignoring_case(value.get_string("type"), type);
}

}  // namespace

Template Template::compile(const Json& value,
                           const std::function<std::string(int64_t offset)>& where,
                           std::vector<Error>* errors) {
  const std::function<Part(const Json&)> build = [&](const Json& json) -> Part {
    Part part;
    if (is_of_type(json, "SecureString") && json.find("value") != nullptr) {
      part.kind = Part::Kind::secret;
      part.children.push_back(build(member_of(json, "value")));
      // One that stands in the document is known as a secret from there.
      return part.children[0].kind == Part::Kind::constant ? std::move(part.children[0]) : part;
    }
    if (is_of_type(json, "AzureKeyVaultSecret")) {
      part.kind = Part::Kind::vault;
      part.children.push_back(build(member_of(member_of(json, "store"), "referenceName")));
      part.children.push_back(build(member_of(json, "secretName")));
      return part;
    }
    const Json* text = expression_object(json);
    const Json& inner = text != nullptr ? *text : json;
    if (inner.is_string() && Expression::is_expression(inner.string())) {
      auto parsed = Expression::parse(inner.string(), where(inner.offset()));
      if (!parsed.ok()) {
        errors->push_back(parsed.error());
        return part;
      }
      part.kind = Part::Kind::expression;
      part.expression = *std::move(parsed);
      return part;
    }
    if (inner.is_array()) {
      part.kind = Part::Kind::array;
      part.constant = Json::array();
      for (const Json& item : inner.items()) {
        part.children.push_back(build(item));
      }
    } else if (inner.is_object()) {
      part.kind = Part::Kind::object;
      part.constant = Json::object();
      for (const Json::Member& member : inner.members()) {
        part.names.push_back(member.first);
        part.children.push_back(build(member.second));
      }
    }
    if (part.gather()) {
      Json whole = inner.is_array() || inner.is_object() ? std::move(part.constant) : inner;
      part = Part{};
      part.constant = std::move(whole);
    }
    part.constant.set_offset(json.offset());
    return part;
  };
  Template result;
  Part root = build(value);
  result.constant_ = root.constant;
  if (root.kind != Part::Kind::constant) {
    result.part_ = std::make_shared<const Part>(std::move(root));
  }
  return result;
}

bool Template::is_constant() const { return part_ == nullptr; }

namespace {

/// The place says where; whoever reads a log without the file at hand wants the text itself too.
Error told_with(const Error& error, const Expression& expression) {
  constexpr size_t kShown = 200;
  const std::string& text = expression.text();
  return Error{error.code(),
               fmt::format("{}{} \"{}{}\"", error.message(), kInExpression, text.substr(0, kShown),
                           text.size() > kShown ? "..." : "")};
}

}  // namespace

Result<Json> Template::evaluate(Context& context) const {
  if (part_ == nullptr) {
    return constant_;
  }
  const std::function<Result<Json>(const Part&)> run = [&](const Part& part) -> Result<Json> {
    if (part.kind == Part::Kind::constant) {
      return part.constant;
    }
    if (part.kind == Part::Kind::expression) {
      auto value = part.expression.evaluate(context);
      return value.ok() ? std::move(value)
                        : Result<Json>(told_with(value.error(), part.expression));
    }
    if (part.kind == Part::Kind::secret) {
      HR_TRY(auto value, run(part.children[0]));
      context.note_secret(value);
      return value;
    }
    if (part.kind == Part::Kind::vault) {
      HR_TRY(const auto store, run(part.children[0]));
      HR_TRY(const auto name, run(part.children[1]));
      HR_TRY(auto value, context.vault_secret(value_text(store), value_text(name)));
      context.note_secret(value);
      return value;
    }
    Json out = part.kind == Part::Kind::array ? Json::array() : Json::object();
    for (size_t i = 0; i < part.children.size(); ++i) {
      HR_TRY(auto value, run(part.children[i]));
      if (part.kind == Part::Kind::array) {
        out.items().push_back(std::move(value));
      } else {
        out.members().emplace_back(part.names[i], std::move(value));
      }
    }
    return out;
  };
  return run(*part_);
}

std::vector<std::string> Template::member_names() const {
  if (part_ != nullptr) {
    return part_->names;
  }
  std::vector<std::string> names;
  for (const Json::Member& member : constant_.is_object() ? constant_.members() : Json::Object{}) {
    names.push_back(member.first);
  }
  return names;
}

void Template::append_expressions(std::vector<Expression>* out) const {
  if (part_ == nullptr) {
    return;
  }
  const std::function<void(const Part&)> walk = [&](const Part& part) {
    if (part.kind == Part::Kind::expression) {
      out->push_back(part.expression);
    }
    for (const Part& child : part.children) {
      walk(child);
    }
  };
  walk(*part_);
}

void Template::append_references(std::vector<Reference>* out) const {
  std::vector<Expression> expressions;
  append_expressions(&expressions);
  for (const Expression& expression : expressions) {
    for (Reference& reference : expression.references()) {
      out->push_back(std::move(reference));
    }
  }
}

}  // namespace headrace::flow
