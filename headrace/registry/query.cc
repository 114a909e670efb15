// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/query.h"

#include <charconv>
#include <limits>

#include "headrace/base/json.h"

namespace headrace::registry {

namespace {

constexpr int kDepthMax = 50;
constexpr size_t kWhereBytesMax = 64 << 10;

struct Column {
  std::string_view name;
  std::string_view sql;
};
constexpr Column kColumns[] = {{"name", "m.name"}, {"version", "v.version"}, {"item", "v.item"},
                               {"kind", "v.kind"}, {"attempt", "v.attempt"}, {"run", "r.uid"}};

enum class OperandKind { metric, text_value, column, number, text };

struct Operand {
  OperandKind kind = OperandKind::number;
  SqlText sql;
  std::string metric;
};

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '/' || (static_cast<unsigned char>(c) & 0x80U) != 0;
}

bool same_word(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    const char lower = a[i] >= 'A' && a[i] <= 'Z' ? static_cast<char>(a[i] + 32) : a[i];
    if (lower != b[i]) {
      return false;
    }
  }
  return true;
}

class WhereParser {
 public:
  explicit WhereParser(std::string_view text) : text_(text) {}
  const std::vector<AskedName>& names() const { return names_; }

  Result<SqlText> run() {
    HR_TRY(auto sql, parse_or(0));
    skip_blank();
    if (at_ != text_.size()) {
      return fail("expected \"and\", \"or\" or the end");
    }
    return sql;
  }

 private:
  Error fail(const std::string& what) const {
    return Error{Errc::invalid_argument, "registry: where, column " + std::to_string(at_ + 1) +
                                             ": " + what + " in " +
                                             json_quote(text_.substr(0, 200))};
  }
  void skip_blank() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) {
      ++at_;
    }
  }
  std::string_view peek_word() {
    skip_blank();
    size_t end = at_;
    while (end < text_.size() && is_word(text_[end])) {
      ++end;
    }
    return text_.substr(at_, end - at_);
  }
  bool take_word(std::string_view word) {
    if (!same_word(peek_word(), word)) {
      return false;
    }
    at_ += word.size();
    return true;
  }
  bool take(std::string_view token) {
    skip_blank();
    if (text_.substr(at_, token.size()) != token) {
      return false;
    }
    at_ += token.size();
    return true;
  }

  Result<SqlText> parse_or(int depth) {
    HR_TRY(auto sql, parse_and(depth));
    while (take_word("or")) {
      HR_TRY(const auto right, parse_and(depth));
      sql.append(" OR ");
      sql.append(right);
    }
    return sql;
  }

  Result<SqlText> parse_and(int depth) {
    HR_TRY(auto sql, parse_factor(depth));
    while (take_word("and")) {
      HR_TRY(const auto right, parse_factor(depth));
      sql.append(" AND ");
      sql.append(right);
    }
    return sql;
  }

  Result<SqlText> parse_factor(int depth) {
    if (depth > kDepthMax) {
      return fail("nested deeper than " + std::to_string(kDepthMax) + " levels");
    }
    SqlText sql;
    if (take_word("not")) {
      HR_TRY(const auto inner, parse_factor(depth + 1));
      sql.append("NOT (");
      sql.append(inner);
    } else if (take("(")) {
      HR_TRY(const auto inner, parse_or(depth + 1));
      if (!take(")")) {
        return fail("expected ')'");
      }
      sql.append("(");
      sql.append(inner);
    } else {
      return parse_comparison();
    }
    sql.append(")");
    return sql;
  }

  Result<SqlText> parse_comparison() {
    HR_TRY(auto left, parse_operand());
    if (take_word("is")) {
      if (!take_word("nan") || left.kind != OperandKind::metric) {
        return fail("only METRIC is nan can stand here");
      }
      SqlText sql;
      sql.append(
          "ifnull((SELECT value IS NULL FROM metric WHERE version_id=v.id AND key_id="
          "(SELECT id FROM key WHERE name=?)), 0)",
          left.metric);
      return sql;
    }
    std::string_view sign;
    for (const std::string_view candidate : {"<=", ">=", "<>", "!=", "==", "<", ">", "="}) {
      if (take(candidate)) {
        sign = candidate == "==" ? "=" : candidate == "!=" ? "<>" : candidate;
        break;
      }
    }
    if (sign.empty()) {
      return fail("expected one of < <= > >= = !=");
    }
    HR_TRY(auto right, parse_operand());
    const auto numeric = [](const Operand& operand) {
      return operand.kind == OperandKind::number || operand.kind == OperandKind::metric;
    };
    const auto cast = [](Operand* operand) {
      if (operand->kind == OperandKind::text_value) {
        operand->sql.text = "CAST(" + operand->sql.text + " AS REAL)";
      }
    };
    if (numeric(left)) {
      cast(&right);
    }
    if (numeric(right)) {
      cast(&left);
    }
    SqlText sql;
    sql.append("ifnull(");  // so that NOT of an unknown comparison does not become unknown
    sql.append(left.sql);
    sql.append(sign);
    sql.append(right.sql);
    sql.append(", 0)");
    return sql;
  }

  /// What stands between quotes; a doubled quote is one.
  Result<std::string> parse_quoted(char quote) {
    std::string out;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] != quote) {
        out.push_back(text_[at_]);
      } else if (text_.substr(at_ + 1, 1) == std::string_view(&quote, 1)) {
        out.push_back(quote);
        ++at_;
      } else {
        ++at_;
        return out;
      }
    }
    return fail("a quoted text is never closed");
  }

  Result<Operand> parse_operand() {
    skip_blank();
    if (at_ >= text_.size()) {
      return fail("expected a metric, a number or a 'text'");
    }
    const char c = text_[at_];
    Operand operand;
    if (c == '\'') {
      HR_TRY(auto text, parse_quoted('\''));
      operand.kind = OperandKind::text;
      operand.sql.append("?", std::move(text));
      return operand;
    }
    if (c == '"' || c == '`') {
      HR_TRY(operand.metric, parse_quoted(c));
      return metric(operand.metric);
    }
    if ((c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.') {
      return parse_number();
    }
    const std::string_view word = peek_word();
    if (word.empty()) {
      return fail("expected a metric, a number or a 'text'");
    }
    at_ += word.size();
    return parse_name(word);
  }

  Result<Operand> parse_number() {
    if (text_[at_] == '+') {
      ++at_;
    }
    double value = 0.0;
    const char* const begin = text_.data() + at_;
    const auto parsed = std::from_chars(begin, text_.data() + text_.size(), value);
    if (parsed.ec == std::errc::invalid_argument) {
      return fail("expected a number");
    }
    if (parsed.ec == std::errc::result_out_of_range) {
      return fail("this number does not fit a double");
    }
    at_ += static_cast<size_t>(parsed.ptr - begin);
    if (at_ < text_.size() && is_word(text_[at_])) {
      return fail("a number must not run into a name");
    }
    Operand operand;
    operand.sql.append("?", value);
    return operand;
  }

  Result<Operand> parse_name(std::string_view word) {
    if (same_word(word, "inf") || same_word(word, "infinity")) {
      Operand operand;
      operand.sql.append("?", std::numeric_limits<double>::infinity());
      return operand;
    }
    for (const Column& column : kColumns) {
      if (word == column.name) {
        Operand operand;
        operand.kind = OperandKind::column;
        operand.sql.append(column.sql);
        return operand;
      }
    }
    const size_t dot = word.find('.');
    const std::string_view table = word.substr(0, dot);
    if (dot != std::string_view::npos && dot + 1 < word.size()) {
      const std::string rest(word.substr(dot + 1));
      if (table == "metric" || table == "metrics") {
        return metric(rest);
      }
      if (table == "param" || table == "params") {
        return text_value("param", rest);
      }
      if (table == "tag" || table == "tags") {
        return text_value("tag", rest);
      }
    }
    return metric(std::string(word));
  }

  Operand metric(const std::string& name) {
    names_.push_back({"metric", name});
    Operand operand;
    operand.kind = OperandKind::metric;
    operand.metric = name;
    operand.sql.append(
        "(SELECT value FROM metric WHERE version_id=v.id AND key_id="
        "(SELECT id FROM key WHERE name=?))",
        name);
    return operand;
  }

  Operand text_value(const std::string& table, const std::string& name) {
    names_.push_back({table, name});
    Operand operand;
    operand.kind = OperandKind::text_value;
    operand.sql.append("(SELECT value FROM " + table +
                           " WHERE version_id=v.id AND key_id=(SELECT id FROM key WHERE name=?))",
                       name);
    return operand;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<AskedName> names_;
};

}  // namespace

void bind_values(const SqlText& sql, Statement* statement) {
  for (const SqlValue& value : sql.values) {
    if (const auto* whole = std::get_if<int64_t>(&value)) {
      statement->bind(*whole);
    } else if (const auto* real = std::get_if<double>(&value)) {
      statement->bind(*real);
    } else {
      statement->bind(std::string_view(std::get<std::string>(value)));
    }
  }
}

Result<SqlText> compile_where(std::string_view where, std::vector<AskedName>* names) {
  if (where.size() > kWhereBytesMax) {
    return Error{Errc::invalid_argument, "registry: where has " + std::to_string(where.size()) +
                                             " bytes; at most " + std::to_string(kWhereBytesMax) +
                                             " are allowed"};
  }
  WhereParser parser(where);
  HR_TRY(SqlText sql, parser.run());
  if (names != nullptr) {
    *names = parser.names();
  }
  return sql;
}

}  // namespace headrace::registry
