// SPDX-License-Identifier: Apache-2.0
// Values that belong into no file and on no terminal, and what hides them there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"

namespace headrace::flow {

struct Pipeline;
class Template;
struct CallSpec;

/// Shorter texts are not hidden: they stand everywhere by chance.
inline constexpr size_t kSecretBytesMin = 4;

/// Texts to be hidden. A text of several lines is hidden line by line too, and as JSON writes it.
class HR_API Secrets {
 public:
  /// Take what is secret of a run: its secure parameters, secure values inside of others, and the
  /// document's own.
  static Secrets of_run(const Pipeline& pipeline, const Json& parameters);

  /// Take a text, or all texts in an array or object; numbers and booleans as their text.
  void add(const Json& value);
  /// Take what stands in {"type": "SecureString", "value"} anywhere in a value.
  void add_marked(const Json& value);
  void add_text(std::string_view text);
  void add(const Secrets& more);
  /// Take one of another's `texts()`.
  void insert(std::string_view text);

  bool empty() const { return texts_.empty(); }
  const std::vector<std::string>& texts() const { return texts_; }
  size_t bytes_max() const { return bytes_max_; }  ///< of the longest

  bool found_in(std::string_view text) const;
  /// "***" for every secret; of several at one place the longest.
  std::string masked(std::string_view text) const;
  /// The same for all texts in a value.
  Json masked_value(Json value) const;

  /// JSON text without secrets from which `reveal` makes the same again, given the same secrets in
  /// the same order.
  std::string hide(std::string_view json_text) const;
  std::string reveal(std::string_view json_text) const;

 private:
  friend class SecretStream;
  struct Match {
    int64_t number = -1;      // of the longest secret that stands there; -1: none
    bool unfinished = false;  // the text ends inside of what may become a longer one
  };
  Match match(std::string_view text, bool last) const;
  template <typename Replace>
  size_t replace(std::string_view text, bool last, std::string* out, const Replace& with) const;

  std::vector<std::string> texts_;
  std::unordered_map<uint32_t, std::vector<int64_t>> by_begin_;  // by the first four bytes
  std::unordered_set<std::string> known_;
  size_t bytes_max_ = 0;
};

/// Hides secrets in bytes that come in pieces, wherever the pieces end.
class HR_API SecretStream {
 public:
  /// `secrets` must outlive it.
  explicit SecretStream(const Secrets& secrets) : secrets_(secrets) {}
  /// Append to `out` what can be told of all bytes up to now.
  void add(std::string_view bytes, std::string* out);
  /// No more bytes follow.
  void finish(std::string* out);

 private:
  const Secrets& secrets_;
  std::string held_;
};

/// Hold {"type": "SecureString", "value"} anywhere in a value?
HR_API bool has_marked_secret(const Json& value);
/// The same value with "***" in their place, and in that of those whose type is misspelt.
HR_API Json without_marked_secrets(Json value);
/// Is `type` SecureString, or that misspelt?
bool means_secure_string(std::string_view type);
/// The type of an object in a value that seems to mean {"type": "SecureString", "value"} and is
/// misspelt, so that it would be told everywhere; empty when there is none.
HR_API std::string misspelt_secret(const Json& value);

/// Take also what the texts of a secure input are made of: the words of a command, with and without
/// quotes, what stands beside '=', ':', '@' or a comma in them, and the texts in the expressions.
/// Not what tells nothing: options, variables' names, words of the shell, programs and files that
/// are there.
HR_API void add_input_parts(const Json& properties, const Template& source, Secrets* secrets);
/// All that is secret of one call, these parts among it; `properties` are the evaluated ones.
Secrets call_secrets(const CallSpec& call, std::string_view properties);
/// Texts in quotes in an expression.
std::vector<std::string> quoted_texts(std::string_view expression);

/// A reference {"type": "AzureKeyVaultSecret", "store": {"referenceName"}, "secretName"}.
struct VaultReference {
  std::string store;
  std::string name;
  bool computed = false;  ///< one of them is an expression
  int64_t offset = 0;
};

/// The environment variable that holds it: HEADRACE_SECRET_STORE_NAME, upper case, with '_' for
/// what is no letter or digit.
HR_API std::string vault_variable(std::string_view store, std::string_view name);
/// Its value; `not_found` names the variable.
HR_API Result<std::string> vault_secret(std::string_view store, std::string_view name);

/// Find what a document marks as secret, for the pipeline read from it: `literals`, `vault` and
/// `shown_text` of `pipeline`, where what activities with secureInput say is "***" too.
void find_secrets(const Json& root, Pipeline* pipeline);

}  // namespace headrace::flow
