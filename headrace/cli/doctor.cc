// SPDX-License-Identifier: Apache-2.0
// `headrace doctor`: what works on this machine, and why the rest does not.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/cli/command.h"
#include "headrace/cli/terminal.h"

namespace headrace::cli {

namespace {

enum class State { works, limited, missing };

/// One thing looked at. `missing` makes the exit code 1; `limited` does not.
struct Finding {
  std::string what;
  State state = State::works;
  std::string text;  ///< what was found; for the other states also what to do
};

std::string_view state_name(State state) {
  switch (state) {
    case State::works: return "works";
    case State::limited: return "limited";
    case State::missing: return "missing";
  }
  return "missing";
}

std::string gib(double bytes) { return fmt::format("{:.1f} GiB", bytes / (1 << 30)); }

Finding cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) {
    return {"cores", State::limited, "the affinity mask cannot be read; one core is assumed"};
  }
  return {"cores", State::works, fmt::format("{} usable", CPU_COUNT(&set))};
}

/// The memory limit of this process's cgroup (version 2), or 0.
double cgroup_limit_bytes() {
  const auto text = base::read_file("/sys/fs/cgroup/memory.max", 64);
  if (!text.ok() || text->empty() || (*text)[0] < '0' || (*text)[0] > '9') {
    return 0.0;
  }
  return std::stod(*text);
}

Finding memory() {
  const auto page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  const double total = page * static_cast<double>(::sysconf(_SC_PHYS_PAGES));
  const double free = page * static_cast<double>(::sysconf(_SC_AVPHYS_PAGES));
  std::string text = fmt::format("{} in the machine, {} unused", gib(total), gib(free));
  const double limit = cgroup_limit_bytes();
  if (limit > 0.0 && limit < total) {
    text += fmt::format(", limited to {} by the cgroup", gib(limit));
  }
  return {"memory", State::works, text};
}

Finding instruction_set() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return {"instruction set", State::works, "AVX-512"};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {"instruction set", State::works, "AVX2 with FMA"};
  }
  return {"instruction set", State::limited,
          "no AVX2: training takes the slow path, with the same results up to rounding"};
#elif defined(__aarch64__)
  return {"instruction set", State::works, "NEON"};
#else
  return {"instruction set", State::limited, "unknown processor: the scalar path is taken"};
#endif
}

std::vector<Finding> examine() { return {cores(), memory(), instruction_set()}; }

int run_doctor(const Arguments& arguments) {
  const std::vector<Finding> findings = examine();
  bool all_there = true;
  TextTable table({"what", "state", "found"});
  Json list = Json::array();
  for (const Finding& finding : findings) {
    all_there = all_there && finding.state != State::missing;
    table.add({finding.what, std::string(state_name(finding.state)), finding.text});
    list.push_back(Json::object(
        {{"what", finding.what}, {"state", state_name(finding.state)}, {"found", finding.text}}));
  }
  if (arguments.flag("json")) {
    fmt::print("{}\n", Json::object({{"version", HEADRACE_VERSION}, {"findings", list}}).dump());
  } else {
    fmt::print("headrace {}\n{}", HEADRACE_VERSION, table.text());
  }
  return all_there ? kExitOk : kExitFailed;
}

}  // namespace

std::vector<Command> doctor_commands() {
  Command doctor;
  doctor.name = "doctor";
  doctor.summary = "Say what works on this machine, and why the rest does not.";
  doctor.details =
      "Nothing is changed. The exit code is 1 when something that headrace needs is missing; an "
      "optional part that is not there is \"limited\" and does not change the exit code.";
  doctor.examples = {"headrace doctor", "headrace doctor --json"};
  doctor.run = run_doctor;
  return {doctor};
}

}  // namespace headrace::cli
