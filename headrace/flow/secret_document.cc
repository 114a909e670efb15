// SPDX-License-Identifier: Apache-2.0
// What a document marks as secret, and the document without it.
#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "headrace/flow/pipeline.h"
#include "headrace/flow/secrets.h"
#include "headrace/flow/text.h"
#include "headrace/flow/value.h"

namespace headrace::flow {

namespace {

constexpr std::string_view kShown = "\"***\"";

bool is_type(const Json& json, std::string_view type) {
  return json.is_object() && equal_ignoring_case(json.get_string("type"), type);
}

/// Members of control activities that hold values; the others hold their structure.
bool is_value_of_control(std::string_view name) {
  constexpr std::string_view kValues[] = {"items",   "expression", "on",       "value",
                                          "message", "errorCode",  "condition"};
  return std::ranges::find(kValues, name) != std::end(kValues);
}

bool is_control(const std::string& type) {
  constexpr std::string_view kControl[] = {"ForEach",        "IfCondition", "Switch",
                                           "Until",          "Wait",        "SetVariable",
                                           "AppendVariable", "Filter",      "Fail"};
  return std::ranges::find(kControl, type) != std::end(kControl);
}

class Finder {
 public:
  explicit Finder(Pipeline* pipeline)
      : pipeline_(*pipeline), text_(pipeline->source->text()), shown_(text_) {}

  void walk(const Json& json) {
    if (json.is_array()) {
      for (const Json& one : json.items()) {
        walk(one);
      }
    }
    if (!json.is_object()) {
      return;
    }
    if (is_type(json, "AzureKeyVaultSecret")) {
      take_vault(json);
      return;
    }
    const bool secret = is_type(json, "SecureString");
    for (const Json::Member& member : json.members()) {
      if (secret && (member.first == "value" || member.first == "defaultValue")) {
        take_secret(member.second);
      }
      walk(member.second);
    }
    hide_input(json);
  }

  void finish() {
    // From the back, so that the places before stay.
    for (auto it = spans_.rbegin(); it != spans_.rend(); ++it) {
      shown_.replace(it->first, it->second.end - it->first, it->second.shown);
    }
    if (!spans_.empty()) {
      pipeline_.shown_text = std::move(shown_);
    }
  }

 private:
  struct Span {
    size_t end = 0;
    std::string shown;
  };

  void take_secret(const Json& value) {
    if (value.is_array()) {
      for (const Json& one : value.items()) {
        take_secret(one);
      }
    } else if (value.is_object() && !is_type(value, "SecureString") &&
               !is_type(value, "AzureKeyVaultSecret")) {
      const bool computed = is_type(value, "Expression");
      for (const Json::Member& member : value.members()) {
        if (!computed || member.first != "type") {
          take_secret(member.second);
        }
      }
    }
    if (value.is_array() || value.is_object() || value.is_null()) {
      return;
    }
    const std::string token = hide(value, std::string(kShown));
    pipeline_.literals.push_back(value_text(value));
    if (!value.is_string()) {
      pipeline_.literals.push_back(value.dump());
      pipeline_.literals.push_back(token);
    }
  }

  /// Put `shown` in place of a text, a number or a boolean; returns what the document has there.
  std::string hide(const Json& value, std::string shown) {
    if (value.offset() < 0 || static_cast<size_t>(value.offset()) >= text_.size()) {
      return "";
    }
    const auto begin = static_cast<size_t>(value.offset());
    size_t end = begin + 1;
    if (value.is_string()) {
      while (end < text_.size() && text_[end] != '"') {
        end += text_[end] == '\\' ? 2 : 1;
      }
      if (text_[begin] != '"' || end >= text_.size()) {
        return "";
      }
      ++end;
    } else {
      const auto in_token = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '-' || c == '.';
      };
      while (end < text_.size() && in_token(text_[end])) {
        ++end;
      }
    }
    spans_.emplace(begin, Span{end, std::move(shown)});
    return text_.substr(begin, end - begin);
  }

  /// What an activity with secureInput says belongs into no journal either. What is left is a
  /// pipeline of the same shape, so that a run can be looked at without its secrets.
  void hide_input(const Json& activity) {
    const Json* policy = activity.find("policy");
    const Json* properties = activity.find("typeProperties");
    const Json* secure = policy != nullptr ? policy->find("secureInput") : nullptr;
    const bool wanted = secure != nullptr &&
                        ((secure->is_bool() && secure->boolean()) ||
                         (secure->is_string() && equal_ignoring_case(secure->string(), "true")));
    if (!wanted || properties == nullptr || !properties->is_object()) {
      return;
    }
    const bool control = is_control(activity.get_string("type"));
    for (const Json::Member& member : properties->members()) {
      if (!control || is_value_of_control(member.first)) {
        hide_values(member.second, control);
      }
    }
  }

  void hide_values(const Json& value, bool control) {
    if (value.is_array()) {
      for (const Json& one : value.items()) {
        hide_values(one, control);
      }
    } else if (value.is_object() && !is_type(value, "AzureKeyVaultSecret")) {
      const bool typed = is_type(value, "Expression") || is_type(value, "SecureString");
      for (const Json::Member& member : value.members()) {
        if (!typed || member.first != "type") {
          hide_values(member.second, control);
        }
      }
    } else if (value.is_string()) {
      const std::string& text = value.string();
      const bool computed = control && text.size() > 1 && text[0] == '@' && text[1] != '@' &&
                            text[1] != '{' && Expression::is_expression(text);
      hide(value, computed ? json_quote(without_texts(text)) : std::string(kShown));
    } else if (value.is_number()) {
      hide(value, "0");
    }
  }

  /// Does a name of the pipeline follow, which a document is checked for?
  static bool names_follow(std::string_view before) {
    const std::string lower = lower_text(before);
    return lower.ends_with("variables(") || lower.ends_with("activity(") ||
           lower.ends_with("item(");
  }

  /// An expression with its texts in quotes as '***'.
  static std::string without_texts(std::string_view expression) {
    std::string out;
    for (size_t at = 0; at < expression.size();) {
      const size_t open = std::min(expression.find('\'', at), expression.size());
      out += expression.substr(at, open - at);
      if (open == expression.size()) {
        break;
      }
      size_t close = open + 1;
      while (close < expression.size() &&
             (expression[close] != '\'' || expression.substr(close, 2) == "''")) {
        close += expression.substr(close, 2) == "''" ? 2 : 1;
      }
      at = std::min(close + 1, expression.size());
      out += names_follow(expression.substr(0, open)) ? expression.substr(open, at - open)
                                                      : std::string_view("'***'");
    }
    return out;
  }

  void take_vault(const Json& json) {
    const Json* store = json.find("store");
    const Json* place = store != nullptr ? store->find("referenceName") : nullptr;
    const Json* name = json.find("secretName");
    const auto computed = [](const Json* value) {
      return value != nullptr &&
             (value->is_object() ||
              (value->is_string() && Expression::is_expression(value->string())));
    };
    const auto text = [](const Json* value) {
      return value != nullptr && value->is_string() ? value->string() : std::string();
    };
    pipeline_.vault.push_back(
        {text(place), text(name), computed(place) || computed(name), json.offset()});
  }

  Pipeline& pipeline_;
  const std::string& text_;
  std::string shown_;
  std::map<size_t, Span> spans_;  // by their begin
};

}  // namespace

std::vector<std::string> quoted_texts(std::string_view expression) {
  std::vector<std::string> texts;
  for (size_t open = expression.find('\''); open < expression.size();
       open = expression.find('\'', open)) {
    std::string text;
    size_t at = open + 1;
    for (; at < expression.size(); ++at) {
      if (expression[at] == '\'' && expression.substr(at, 2) != "''") {
        break;
      }
      at += expression[at] == '\'' ? 1 : 0;
      text += expression[std::min(at, expression.size() - 1)];
    }
    texts.push_back(std::move(text));
    open = std::min(at + 1, expression.size());
  }
  return texts;
}

void find_secrets(const Json& root, Pipeline* pipeline) {
  Finder finder(pipeline);
  finder.walk(root);
  finder.finish();
}

}  // namespace headrace::flow
