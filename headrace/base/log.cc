// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <memory>

#include "headrace/base/environment.h"
#include "headrace/base/printable.h"
#include "headrace/base/thread.h"

namespace headrace::base {

namespace {

struct LogState {
  Mutex mu;
  std::function<void(LogLevel, std::string_view)> sink HR_GUARDED_BY(mu);
  std::shared_ptr<spdlog::logger> logger;
  LogState() {
    logger = std::make_shared<spdlog::logger>("headrace",
                                              std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc);
    auto name = environment("HEADRACE_LOG_LEVEL");
    if (!name) {
      name = environment("HOROVOD_LOG_LEVEL");
    }
    if (name) {
      std::transform(name->begin(), name->end(), name->begin(),
                     [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    }
    const auto wanted = !name              ? spdlog::level::info
                        : *name == "fatal" ? spdlog::level::critical
                                           : spdlog::level::from_str(*name);
    // from_str answers "off" to a name it does not know: a typing error must not silence the log.
    const bool unknown = wanted == spdlog::level::off && *name != "off";
    logger->set_level(unknown ? spdlog::level::info : wanted);
  }
};

LogState& state() {
  static LogState instance;
  return instance;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
    case LogLevel::off: return spdlog::level::off;
  }
  return spdlog::level::off;
}

}  // namespace

void log(LogLevel level, std::string_view text) {
  LogState& log_state = state();
  const auto wanted = to_spdlog(level);
  if (wanted < log_state.logger->level()) {
    return;
  }
  {
    const MutexLock lock(log_state.mu);
    if (log_state.sink) {
      log_state.sink(level, text);
      return;
    }
  }
  // A sink decides for itself what its reader may have.
  log_state.logger->log(wanted, printable(text));
}

void set_log_level(LogLevel level) { state().logger->set_level(to_spdlog(level)); }

void set_log_sink(std::function<void(LogLevel, std::string_view)> sink) {
  const MutexLock lock(state().mu);
  state().sink = std::move(sink);
}

}  // namespace headrace::base
