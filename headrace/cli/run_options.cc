// SPDX-License-Identifier: Apache-2.0
#include "headrace/cli/run_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "headrace/base/environment.h"
#include "headrace/base/file.h"
#include "headrace/base/log.h"
#include "headrace/run/agent_message.h"
#include "headrace/run/engine_settings.h"

namespace headrace::cli {

namespace {

constexpr int64_t kConfigBytesMax = int64_t{1} << 20;

/// Flags that other launchers have and that change nothing here.
struct Ignored {
  const char* name;
  const char* why;
};
constexpr Ignored kIgnored[] = {
    {"gloo", "headrace's own engine is used, always"},
    {"mpi", "the native controller is used instead of MPI"},
    {"jsrun", "the native controller is used instead of jsrun"},
    {"mpi-args", "there is no mpirun to hand them to"},
    {"mpi-threads-disable", "there is no MPI here"},
    {"binding-args", "there is no jsrun to hand them to; --cpus-per-rank divides the cores"},
    {"tcp", "the transport is chosen by itself"},
    {"disable-cache", "nothing of the start is cached"},
    {"num-nccl-streams", "NCCL is not used by this version"},
    {"torus-allreduce", "there is no such algorithm here"},
    {"no-torus-allreduce", "there is no such algorithm here"},
};

Option flag(std::string name, std::string help) {
  return {.name = std::move(name), .help = std::move(help), .kind = OptionKind::flag};
}
Option text(std::string name, std::string help) {
  return {.name = std::move(name), .help = std::move(help)};
}
Option whole(std::string name, std::string help, double at_least) {
  return {.name = std::move(name),
          .help = std::move(help),
          .kind = OptionKind::integer,
          .at_least = at_least};
}

Option hidden(Option option) {
  option.hidden = true;
  return option;
}

void append(std::vector<Option>* all, std::vector<Option> more) {
  all->insert(all->end(), std::make_move_iterator(more.begin()),
              std::make_move_iterator(more.end()));
}

std::vector<Option> placing_options() {
  return {
      whole("-n,--num-proc",
            "ranks to start, also -np; default: all slots of the hosts that are given", 1),
      text("-H,--hosts",
           "hosts and their slots: a:4,b:4; default: this machine, with the ranks of -np"),
      text("--hostfile", "file of hosts, a line each: NAME slots=N"),
      whole("--cpus-per-rank", "cores of each rank; default: an equal part", 1),
      {.name = "--start-timeout",
       .help = "seconds in which all ranks must have met; default: HOROVOD_START_TIMEOUT, else 30",
       .kind = OptionKind::integer,
       .at_least = 1,
       .at_most = 1e6},
      text("--output-filename",
           "folder for the output of each rank: rank.N/stdout and stderr, with zeros in front of N "
           "where other ranks have more digits"),
      flag("--prefix-output-with-timestamp", "put the time in front of each line"),
      flag("--verbose", "say what is started and how it ended"),
      text("--network-interfaces",
           "interfaces to use, with commas: eth0,ib*; default: all that lead there"),
      {.name = "--network-interface", .help = "one such interface", .repeated = true},
  };
}

std::vector<Option> elastic_options() {
  return {
      text("--host-discovery-script", "for elastic jobs, which come later"),
      whole("--min-num-proc", "for elastic jobs: the fewest ranks", 1),
      whole("--max-num-proc", "for elastic jobs: the most ranks", 1),
      whole("--slots-per-host", "for elastic jobs: slots of hosts that name none", 1),
      whole("--elastic-timeout", "for elastic jobs: seconds to wait for enough hosts", 1),
      whole("--reset-limit", "for elastic jobs: how often the ranks may change", 1),
      text("--blacklist-cooldown-range", "for elastic jobs: seconds MIN,MAX that a host rests"),
  };
}

std::vector<Option> engine_options() {
  return {
      text("--config-file", "YAML file with these settings; a flag wins over it"),
      text("--fusion-threshold-mb", "MiB that one fused operation holds; 0: no fusion"),
      text("--cycle-time-ms", "longest time that small tensors wait for company"),
      text("--cache-capacity", "names whose negotiation is remembered; 0: none"),
      flag("--hierarchical-allreduce", "no effect: done where hosts have several ranks"),
      flag("--no-hierarchical-allreduce", "no effect"),
      flag("--hierarchical-allgather", "no effect"),
      flag("--no-hierarchical-allgather", "no effect"),
      flag("--torus-allreduce", "no effect"),
      flag("--no-torus-allreduce", "no effect"),
      flag("--autotune",
           "look for the fusion threshold and cycle time under which steps wait least"),
      flag("--no-autotune", "do not"),
      text("--autotune-log-file",
           "CSV file of the search, a row for each sample, the best one last"),
      text("--autotune-warmup-samples", "samples that do not count, 3 if not given"),
      text("--autotune-steps-per-sample", "training steps of a sample, 10 if not given"),
      text("--autotune-bayes-opt-max-samples", "samples of a search at most, 20 if not given"),
      text("--autotune-gaussian-process-noise",
           "no effect: the search goes from neighbour to neighbour"),
      text("--timeline-filename", "file for the timeline (Chrome trace)"),
      flag("--timeline-mark-cycles", "mark each cycle in it"),
      flag("--no-timeline-mark-cycles", "do not"),
      flag("--stall-check", "report tensors that some ranks do not submit"),
      flag("--no-stall-check", "do not"),
      text("--stall-check-warning-time-seconds", "seconds until the report; 60"),
      text("--stall-check-shutdown-time-seconds", "seconds until the job is ended; 0: never"),
      text("--thread-affinity", "no effect in this version"),
      text("--gloo-timeout-seconds", "seconds for connecting; 30"),
      text("--num-nccl-streams", "no effect"),
      text("--log-level", "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL"),
      flag("--log-with-timestamp", "log lines with the time"),
      flag("--log-without-timestamp", "log lines without the time"),
      flag("--log-hide-timestamp", "the same, its old name"),
  };
}

std::vector<Option> other_options() {
  return {
      flag("-v,--version", "print the version"),
      flag("--check-build", "say what works here, also -cb"),
      flag("--print-env", "print the variables that flags and configuration file give"),
      {.name = "--agent-port",
       .help = "port of `headrace agent` on the other hosts",
       .kind = OptionKind::integer,
       .default_text = std::to_string(run::kAgentPort),
       .at_least = 1,
       .at_most = 65535},
      text("--agent-token-file",
           "secret of the agents, 32 bytes; default: HEADRACE_AGENT_TOKEN_FILE"),
      flag("--ssh", "start the agents on other hosts through ssh"),
      whole("-p,--ssh-port", "port of ssh on the other hosts; means --ssh", 1),
      text("-i,--ssh-identity-file", "key for ssh; means --ssh"),
      flag("--gloo", "no effect"),
      flag("--mpi", "no effect"),
      flag("--jsrun", "no effect"),
      text("--mpi-args", "no effect"),
      flag("--mpi-threads-disable", "no effect"),
      text("--binding-args", "no effect"),
      flag("--tcp", "no effect"),
      flag("--disable-cache", "no effect"),
      hidden(whole("--owner-fd", "descriptor at whose end the job is ended", 0)),
      hidden(text("--function-file", "what the ranks find in the store")),
      hidden(text("--results-folder", "folder for what they put there")),
      {.name = "command", .help = "program of each rank, with its arguments", .repeated = true},
  };
}

std::optional<std::string> interfaces_of(const Arguments& arguments) {
  std::string all = arguments.text("network-interfaces");
  for (const std::string& one : arguments.texts("network-interface")) {
    all += (all.empty() ? "" : ",") + one;
  }
  return all.empty() ? std::nullopt : std::optional(all);
}

/// What the flags say, without the configuration file.
Result<run::GivenSettings> flag_settings(const Arguments& arguments) {
  run::GivenSettings given;
  for (const run::Setting& setting : run::engine_settings()) {
    if (setting.name.empty()) {
      continue;
    }
    const std::string name(setting.name);
    const std::string off = "no-" + name;
    const bool is_switch =
        setting.kind == run::SettingKind::on_off || setting.kind == run::SettingKind::off_on;
    if (is_switch && arguments.has(name) && arguments.has(off)) {
      return Error{Errc::invalid_argument,
                   fmt::format("--{} and --{} are both given; give one", name, off)};
    }
    if (arguments.has(off)) {
      given[name] = "0";
    } else if (arguments.has(name)) {
      given[name] = is_switch ? "1" : arguments.text(name);
    }
  }
  const bool with = arguments.flag("log-with-timestamp");
  const bool without =
      arguments.flag("log-without-timestamp") || arguments.flag("log-hide-timestamp");
  if (with && without) {
    return Error{Errc::invalid_argument,
                 "log lines with and without the time are both asked for; give one flag"};
  }
  if (with || without) {
    given["log-hide-timestamp"] = without ? "1" : "0";
  }
  return given;
}

}  // namespace

std::vector<Option> run_options() {
  std::vector<Option> all = placing_options();
  append(&all, engine_options());
  append(&all, elastic_options());
  append(&all, other_options());
  return all;
}

std::vector<std::pair<std::string, std::string>> run_spellings() {
  return {{"-np", "--num-proc"},
          {"--np", "--num-proc"},
          {"-hostfile", "--hostfile"},
          {"-cb", "--check-build"},
          {"-prefix-timestamp", "--prefix-output-with-timestamp"},
          {"--min-np", "--min-num-proc"},
          {"-min-np", "--min-num-proc"},
          {"--max-np", "--max-num-proc"},
          {"-max-np", "--max-num-proc"}};
}

Result<run::Variables> engine_variables_of(const Arguments& arguments) {
  run::GivenSettings given;
  const std::string file = arguments.text("config-file");
  if (!file.empty()) {
    HR_TRY(const auto content, base::read_input(file, kConfigBytesMax), "the configuration file");
    HR_TRY(given, run::parse_config(content, file));
  }
  HR_TRY(auto flags, flag_settings(arguments));
  for (auto& [name, value] : flags) {
    given[name] = std::move(value);
  }
  HR_TRY(auto variables, run::engine_variables(given));
  if (const auto interfaces = interfaces_of(arguments)) {
    variables.emplace_back("HOROVOD_GLOO_IFACE", *interfaces);
  }
  return variables;
}

Result<std::vector<run::Host>> hosts_of(const Arguments& arguments) {
  if (arguments.has("hosts") && arguments.has("hostfile")) {
    return Error{Errc::invalid_argument, "--hosts and --hostfile are both given; give one"};
  }
  if (arguments.has("hosts")) {
    return run::parse_hosts(arguments.text("hosts"));
  }
  if (arguments.has("hostfile")) {
    const std::string file = arguments.text("hostfile");
    HR_TRY(const auto content, base::read_input(file, kConfigBytesMax), "the file of hosts");
    return run::parse_hostfile(content, file);
  }
  if (!arguments.has("num-proc")) {
    return Error{
        Errc::invalid_argument,
        "neither -np nor hosts are given; say how many ranks with -np: headrace run -np 4 ..."};
  }
  const auto ranks = static_cast<int>(arguments.integer("num-proc").value_or(1));
  return std::vector<run::Host>{{"localhost", ranks}};
}

Result<int64_t> start_timeout_of(const Arguments& arguments) {
  const auto given = arguments.integer("start-timeout");
  for (const char* name : {"HEADRACE_START_TIMEOUT", "HOROVOD_START_TIMEOUT"}) {
    const auto value = base::environment(name);
    if (!value) {
      continue;
    }
    int64_t seconds = 0;
    const auto [end, code] = std::from_chars(value->data(), value->data() + value->size(), seconds);
    if (code != std::errc() || end != value->data() + value->size() || seconds < 1) {
      return Error{
          Errc::invalid_argument,
          fmt::format("{} is \"{}\", not a number of seconds of at least 1", name, *value)};
    }
    if (given && *given != seconds) {
      base::log_info(
          fmt::format("run: --start-timeout {} is used; {}={} is not", *given, name, seconds));
    }
    return given.value_or(seconds);
  }
  return given.value_or(30);
}

Result<void> refuse_elastic(const Arguments& arguments) {
  const auto fewest = arguments.integer("min-num-proc");
  const auto most = arguments.integer("max-num-proc");
  const auto ranks = arguments.integer("num-proc");
  if ((fewest && most && *fewest > *most) || (fewest && ranks && *fewest > *ranks) ||
      (most && ranks && *most < *ranks)) {
    return Error{Errc::invalid_argument,
                 "--min-np, -np and --max-np contradict one another: min <= np <= max"};
  }
  for (const char* name :
       {"host-discovery-script", "min-num-proc", "max-num-proc", "slots-per-host",
        "elastic-timeout", "reset-limit", "blacklist-cooldown-range"}) {
    if (arguments.has(name)) {
      return Error{Errc::unsupported,
                   fmt::format("--{}: this version has no elastic jobs yet; start one of a fixed "
                               "size with -np",
                               name)};
    }
  }
  return {};
}

void tell_ignored(const Arguments& arguments) {
  for (const Ignored& ignored : kIgnored) {
    if (arguments.has(ignored.name)) {
      base::log_info(fmt::format("run: --{} has no effect: {}", ignored.name, ignored.why));
    }
  }
}

Result<std::string> own_program() {
  std::error_code code;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", code);
  if (code) {
    return errno_error(code.value(), "finding the path of this program");
  }
  return path.string();
}

}  // namespace headrace::cli
