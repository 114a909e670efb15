// SPDX-License-Identifier: Apache-2.0
// Settings of the engine as flags and configuration files spell them, turned into the variables
// that the ranks read.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/run/rank_environment.h"

namespace headrace::run {

enum class SettingKind : uint8_t {
  mebibytes,  ///< at least 0; the variable is in bytes
  real,       ///< at least 0
  share,      ///< from 0 to 1
  whole,      ///< at least 0
  on_off,     ///< 1 or 0
  off_on,     ///< the same, and the variable says the opposite
  text,       ///< not empty
  core_list,  ///< numbers of cores with commas between
  log_level,  ///< trace to fatal
  ignored,    ///< of Horovod's other engines: accepted, without a variable
};

/// One setting.
struct Setting {
  std::string_view name;      ///< of the flag, without dashes
  std::string_view config;    ///< "section.key" of a configuration file; "" = none
  std::string_view variable;  ///< without HOROVOD_
  SettingKind kind;
  std::string_view needs = {};  ///< name of a setting that must be on, or given, for this to count
};

/// All of them, in the order in which their variables are written.
HR_API std::span<const Setting> engine_settings();

/// Values by the settings' names, as text; switches are "1" or "0".
using GivenSettings = std::map<std::string, std::string, std::less<>>;

/// The variables, with HOROVOD_ in front. `invalid_argument` names the flag and its value.
HR_API Result<Variables> engine_variables(const GivenSettings& given);

/// Settings of a configuration file: the part of YAML that such files use, sections of `key:
/// value`. `invalid_argument` names file and line.
HR_API Result<GivenSettings> parse_config(std::string_view text, std::string_view file_name);

}  // namespace headrace::run
