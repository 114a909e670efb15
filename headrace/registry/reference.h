// SPDX-License-Identifier: Apache-2.0
// How a person names one version of a model: NAME, NAME:7, NAME@alias, uid:HEX, run:RUN/ITEM.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/export.h"
#include "headrace/base/result.h"

namespace headrace::registry {

struct Reference {
  enum class Kind { latest, version, alias, uid, run_item };
  Kind kind = Kind::latest;
  std::string name = {};    ///< latest, version, alias
  int64_t version = 0;      ///< version
  std::string alias = {};   ///< alias
  std::string uid = {};     ///< uid: 32 lower-case hex digits
  std::string run = {};     ///< run_item
  std::string item = {};    ///< run_item
  bool has_version = true;  ///< false for a bare NAME (which never deletes)

  bool operator==(const Reference&) const = default;
};

/// `NAME` = newest ready version (also `NAME@latest`), `NAME:7`, `NAME@champion`, `uid:HEX`,
/// `run:RUN/ITEM` (RUN has no '/'). Anything else is `invalid_argument`.
HR_API Result<Reference> parse_reference(std::string_view text);
/// The text that parses to the same reference.
HR_API std::string reference_text(const Reference& reference);

}  // namespace headrace::registry
