// SPDX-License-Identifier: Apache-2.0
// Names of models, aliases and keys: what is allowed, and how item keys become segments.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"

namespace headrace::registry {

/// A model's name: 1 to 8 segments joined by '/', each 1 to 200 bytes of UTF-8 in NFC, 512 bytes in
/// all. Refused (`invalid_argument`, saying which character and where): control characters,
/// `\ : @ * ? #`, '%' without two hex digits after it, blanks at either end of a segment, the
/// segments "." and "..". Names are compared by bytes and never become file names.
HR_API Result<void> check_name(std::string_view name);

/// `[a-z0-9][a-z0-9_-]{0,62}`, neither "latest" nor 'v' with digits (MLflow reserves both).
HR_API Result<void> check_alias(std::string_view alias);

/// Name of a metric, parameter or tag: 1 to 250 bytes of UTF-8 without control characters.
HR_API Result<void> check_key(std::string_view key, std::string_view what);

/// Make any item key a valid segment: bring it to NFC, percent-encode what a segment refuses (and
/// '/' and '%', and marks that would join an escape). Invalid UTF-8 bytes are encoded too. An empty
/// key is "%E2%88%85".
HR_API std::string encode_segment(std::string_view item_key);
/// The reverse, for display only.
HR_API std::string decode_segment(std::string_view segment);

/// Unicode normalisation form C (UAX #15). Invalid UTF-8 is returned as it came.
HR_API std::string to_nfc(std::string_view text);
/// Bytes of the combining mark at `at`; 0 when another character stands there.
size_t mark_bytes(std::string_view text, size_t at);
HR_API bool is_utf8(std::string_view text);

/// "" (everything), NAME (that model and all below it), `PREFIX/*` (direct children) or
/// `PREFIX/**` (all below).
struct HR_API Pattern {
  enum class Kind { all, tree, children, below };
  Kind kind = Kind::all;
  std::string prefix = {};  ///< without the trailing '/'

  bool matches(std::string_view name) const;
};
HR_API Result<Pattern> parse_pattern(std::string_view text);

}  // namespace headrace::registry
