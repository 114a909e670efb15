// SPDX-License-Identifier: Apache-2.0
// Log lines to stderr: level, one line = one write. HEADRACE_LOG_LEVEL =
// debug|info|warning|error|off (default info).
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "headrace/base/export.h"

namespace headrace::base {

enum class LogLevel { debug, info, warning, error, off };

/// Write one line when `level` is at least the threshold. Thread-safe.
HR_API void log(LogLevel level, std::string_view text);
inline void log_debug(std::string_view text) { log(LogLevel::debug, text); }
inline void log_info(std::string_view text) { log(LogLevel::info, text); }
inline void log_warning(std::string_view text) { log(LogLevel::warning, text); }
inline void log_error(std::string_view text) { log(LogLevel::error, text); }

HR_API void set_log_level(LogLevel level);
/// Send lines elsewhere (a progress bar that must redraw, a test); nullptr restores stderr.
HR_API void set_log_sink(std::function<void(LogLevel, std::string_view)> sink);

}  // namespace headrace::base
