// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/engine_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>

namespace headrace::run {

namespace {

using Kind = SettingKind;

constexpr Setting kSettings[] = {
    {"fusion-threshold-mb", "params.fusion_threshold_mb", "FUSION_THRESHOLD", Kind::mebibytes},
    {"cycle-time-ms", "params.cycle_time_ms", "CYCLE_TIME", Kind::real},
    {"cache-capacity", "params.cache_capacity", "CACHE_CAPACITY", Kind::whole},
    {"hierarchical-allreduce", "params.hierarchical_allreduce", "HIERARCHICAL_ALLREDUCE",
     Kind::on_off},
    {"hierarchical-allgather", "params.hierarchical_allgather", "HIERARCHICAL_ALLGATHER",
     Kind::on_off},
    {"torus-allreduce", "params.torus_allreduce", "TORUS_ALLREDUCE", Kind::on_off},
    {"autotune", "autotune.enabled", "AUTOTUNE", Kind::on_off},
    {"autotune-log-file", "autotune.log_file", "AUTOTUNE_LOG", Kind::text, "autotune"},
    {"autotune-warmup-samples", "autotune.warmup_samples", "AUTOTUNE_WARMUP_SAMPLES", Kind::whole,
     "autotune"},
    {"autotune-steps-per-sample", "autotune.steps_per_sample", "AUTOTUNE_STEPS_PER_SAMPLE",
     Kind::whole, "autotune"},
    {"autotune-bayes-opt-max-samples", "autotune.bayes_opt_max_samples",
     "AUTOTUNE_BAYES_OPT_MAX_SAMPLES", Kind::whole, "autotune"},
    {"autotune-gaussian-process-noise", "autotune.gaussian_process_noise",
     "AUTOTUNE_GAUSSIAN_PROCESS_NOISE", Kind::share, "autotune"},
    {"timeline-filename", "timeline.filename", "TIMELINE", Kind::text},
    {"timeline-mark-cycles", "timeline.mark_cycles", "TIMELINE_MARK_CYCLES", Kind::on_off,
     "timeline-filename"},
    {"stall-check", "stall_check.enabled", "STALL_CHECK_DISABLE", Kind::off_on},
    {"stall-check-warning-time-seconds", "stall_check.warning_time_seconds",
     "STALL_CHECK_TIME_SECONDS", Kind::whole},
    {"stall-check-shutdown-time-seconds", "stall_check.shutdown_time_seconds",
     "STALL_SHUTDOWN_TIME_SECONDS", Kind::whole},
    {"thread-affinity", "library_options.thread_affinity", "THREAD_AFFINITY", Kind::core_list},
    {"gloo-timeout-seconds", "library_options.gloo_timeout_seconds", "GLOO_TIMEOUT_SECONDS",
     Kind::whole},
    {"num-nccl-streams", "library_options.num_nccl_streams", "NUM_NCCL_STREAMS", Kind::whole},
    {"mpi-threads-disable", "library_options.mpi_threads_disable", "MPI_THREADS_DISABLE",
     Kind::on_off},
    {"mpi-args", "library_options.mpi_args", "", Kind::ignored},
    {"binding-args", "library_options.binding_args", "", Kind::ignored},
    {"log-level", "logging.level", "LOG_LEVEL", Kind::log_level},
    {"log-hide-timestamp", "logging.hide_timestamp", "LOG_HIDE_TIME", Kind::on_off},
    {"", "logging.with_timestamp", "LOG_HIDE_TIME", Kind::off_on},
    {"controller", "controller", "CONTROLLER", Kind::text},
    {"gloo", "controller.gloo", "", Kind::ignored},
    {"mpi", "controller.mpi", "", Kind::ignored},
    {"jsrun", "controller.jsrun", "", Kind::ignored},
    {"verbose", "verbose", "", Kind::ignored},
};

constexpr std::string_view kLevels[] = {"trace", "debug", "info", "warning", "error", "fatal"};

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  });
  return out;
}

template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  Number number = {};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = code == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

std::optional<bool> switch_of(std::string_view text) {
  const std::string word = lower(text);
  if (word == "1" || word == "true" || word == "yes" || word == "on") {
    return true;
  }
  if (word == "0" || word == "false" || word == "no" || word == "off") {
    return false;
  }
  return std::nullopt;
}

/// 20 -> "20.0", as programs that read it expect of a number that may have a fraction.
std::string real_text(double number) {
  std::string text = fmt::format("{}", number);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::optional<std::string> real_value(std::string_view text, double most) {
  const auto number = number_of<double>(text);
  const bool good = number && std::isfinite(*number) && *number >= 0.0 && *number <= most;
  return good ? std::optional(real_text(*number)) : std::nullopt;
}

std::optional<std::string> mebibytes_value(std::string_view text) {
  const auto number = number_of<double>(text);
  if (!number || !(*number >= 0.0) || *number > 1e9) {
    return std::nullopt;
  }
  return fmt::to_string(std::llround(*number * 1048576.0));
}

std::optional<std::string> whole_value(std::string_view text) {
  const auto number = number_of<int64_t>(text);
  return number && *number >= 0 ? std::optional(fmt::to_string(*number)) : std::nullopt;
}

std::optional<std::string> switch_value(std::string_view text, bool opposite) {
  const auto on = switch_of(text);
  return on ? std::optional<std::string>(*on != opposite ? "1" : "0") : std::nullopt;
}

std::optional<std::string> core_list_value(std::string_view text) {
  std::string_view rest = text;
  for (;;) {
    const size_t comma = std::min(rest.find(','), rest.size());
    if (!whole_value(rest.substr(0, comma))) {
      return std::nullopt;
    }
    if (comma == rest.size()) {
      return std::string(text);
    }
    rest.remove_prefix(comma + 1);
  }
}

std::optional<std::string> level_value(std::string_view text) {
  const std::string word = lower(text);
  const bool known = std::find(std::begin(kLevels), std::end(kLevels), word) != std::end(kLevels);
  return known ? std::optional(std::string(text)) : std::nullopt;
}

std::optional<std::string> value_of(Kind kind, std::string_view text) {
  switch (kind) {
    case Kind::mebibytes: return mebibytes_value(text);
    case Kind::real: return real_value(text, 1e12);
    case Kind::share: return real_value(text, 1.0);
    case Kind::whole: return whole_value(text);
    case Kind::on_off: return switch_value(text, false);
    case Kind::off_on: return switch_value(text, true);
    case Kind::core_list: return core_list_value(text);
    case Kind::log_level: return level_value(text);
    case Kind::text: return text.empty() ? std::nullopt : std::optional(std::string(text));
    case Kind::ignored: return std::string(text);
  }
  return std::nullopt;
}

std::string_view wanted(Kind kind) {
  switch (kind) {
    case Kind::mebibytes: return "a number of MiB of at least 0";
    case Kind::real: return "a number of at least 0";
    case Kind::share: return "a number from 0 to 1";
    case Kind::whole: return "a whole number of at least 0";
    case Kind::on_off:
    case Kind::off_on: return "true or false";
    case Kind::core_list: return "numbers of cores with commas between";
    case Kind::log_level: return "one of TRACE, DEBUG, INFO, WARNING, ERROR, FATAL";
    case Kind::text:
    case Kind::ignored: return "a text that is not empty";
  }
  return "";
}

bool counts(const Setting& setting, const GivenSettings& given) {
  if (setting.needs.empty()) {
    return true;
  }
  const auto needed = given.find(setting.needs);
  return needed != given.end() && switch_of(needed->second) != std::optional(false);
}

// ---- the configuration file ----

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \r");
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(" \r") - begin + 1);
}

/// Without a comment: a # at the start or behind a blank, outside quotes.
std::string_view without_comment(std::string_view line) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      quote = c == quote ? '\0' : quote;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#' && (i == 0 || line[i - 1] == ' ')) {
      return line.substr(0, i);
    }
  }
  return line;
}

std::string_view unquoted(std::string_view value) {
  const bool quoted = value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
                      value.back() == value.front();
  return quoted ? value.substr(1, value.size() - 2) : value;
}

const Setting* setting_of(std::string_view section, std::string_view key) {
  std::string path = section.empty() ? std::string(key) : fmt::format("{}.{}", section, key);
  std::replace(path.begin(), path.end(), '-', '_');
  const auto* found = std::find_if(std::begin(kSettings), std::end(kSettings),
                                   [&](const Setting& setting) { return setting.config == path; });
  return found == std::end(kSettings) ? nullptr : found;
}

bool is_section(std::string_view name) {
  const std::string start = std::string(name) + ".";
  return std::any_of(std::begin(kSettings), std::end(kSettings),
                     [&](const Setting& setting) { return setting.config.starts_with(start); });
}

class ConfigReader {
 public:
  Result<void> line(std::string_view raw) {
    if (raw.find('\t') != std::string_view::npos) {
      return Error{Errc::invalid_argument, "a tab; indent with blanks"};
    }
    const std::string_view text = without_comment(raw);
    const std::string_view content = trimmed(text);
    if (content.empty() || content == "---") {
      return {};
    }
    const size_t colon = content.find(':');
    if (colon == std::string_view::npos || colon == 0 ||
        (colon + 1 < content.size() && content[colon + 1] != ' ')) {
      return Error{Errc::invalid_argument,
                   fmt::format("\"{}\" is neither \"section:\" nor \"key: value\"", content)};
    }
    const std::string_view key = content.substr(0, colon);
    const std::string_view value = trimmed(content.substr(colon + 1));
    const bool indented = text.front() == ' ';
    if (value.empty() && !indented) {
      if (!is_section(key)) {
        return Error{Errc::invalid_argument,
                     fmt::format("there is no section \"{}\"; the sections are params, autotune, "
                                 "timeline, stall_check, library_options, logging and controller",
                                 key)};
      }
      section_ = key;
      return {};
    }
    return setting(indented ? section_ : std::string(), key, value);
  }
  GivenSettings take() { return std::move(given_); }

 private:
  Result<void> setting(const std::string& section, std::string_view key, std::string_view value) {
    const Setting* setting = setting_of(section, key);
    if (setting == nullptr) {
      return Error{Errc::invalid_argument,
                   section.empty() ? fmt::format("there is no setting \"{}\"", key)
                                   : fmt::format("section {} has no setting \"{}\"", section, key)};
    }
    if (value.find_first_of("[]{}&*|>") == 0) {
      return Error{Errc::invalid_argument,
                   fmt::format("{}: {}: lists and other structures are not read here", key, value)};
    }
    const std::string_view text = unquoted(value);
    if (text.empty() || text == "null" || text == "~") {
      return {};
    }
    if (!value_of(setting->kind, text)) {
      return Error{Errc::invalid_argument,
                   fmt::format("{} is {}, not \"{}\"", key, wanted(setting->kind), text)};
    }
    if (setting->name.empty()) {  // the opposite of log-hide-timestamp
      given_["log-hide-timestamp"] = *value_of(setting->kind, text);
    } else {
      given_[std::string(setting->name)] = text;
    }
    return {};
  }

  std::string section_;
  GivenSettings given_;
};

}  // namespace

std::span<const Setting> engine_settings() { return kSettings; }

Result<Variables> engine_variables(const GivenSettings& given) {
  Variables all;
  for (const Setting& setting : kSettings) {
    const auto found = setting.name.empty() ? given.end() : given.find(setting.name);
    if (found == given.end()) {
      continue;
    }
    const auto value = value_of(setting.kind, found->second);
    if (!value) {
      return Error{Errc::invalid_argument, fmt::format("--{} takes {}, not \"{}\"", setting.name,
                                                       wanted(setting.kind), found->second)};
    }
    if (setting.kind != Kind::ignored && counts(setting, given)) {
      all.emplace_back(fmt::format("HOROVOD_{}", setting.variable), *value);
    }
  }
  return all;
}

Result<GivenSettings> parse_config(std::string_view text, std::string_view file_name) {
  ConfigReader reader;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    Result<void> read = reader.line(text.substr(0, end));
    if (!read.ok()) {
      return read.error().add_context(fmt::format("{}, line {}", file_name, number));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return reader.take();
}

}  // namespace headrace::run
