// SPDX-License-Identifier: Apache-2.0
// `headrace doctor`: what works on this machine, and why the rest does not.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/base/pool.h"
#include "headrace/cli/command.h"
#include "headrace/cli/python.h"
#include "headrace/cli/terminal.h"
#include "headrace/forecast/network.h"
#include "headrace/lake/table.h"
#include "headrace/proc/child.h"
#include "headrace/registry/registry.h"

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
  const int usable = base::usable_cores();
  const auto online = ::sysconf(_SC_NPROCESSORS_ONLN);
  return {"cores", State::works,
          fmt::format("{} usable of {} (affinity mask and cgroup quota)", usable, online)};
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
  const std::string used = forecast::instruction_set();
  const std::string all = fmt::format("{} in use; this machine and build have {}", used,
                                      fmt::join(forecast::instruction_sets(), ", "));
  if (used == "scalar") {
    return {"instruction set", State::limited,
            all + "; training takes the slow path, with the same results up to rounding"};
  }
  return {"instruction set", State::works, all};
}

Finding libraries() {
  return {"libraries", State::works,
          fmt::format("Arrow {} reads Parquet, SQLite {} keeps the registry", lake::arrow_version(),
                      registry::sqlite_version())};
}

Finding registry_folder() {
  const auto folder = registry::registry_path("");
  if (!folder.ok()) {
    return {"registry", State::missing, folder.error().message()};
  }
  base::Path there = *folder;
  std::error_code ignored;
  while (!std::filesystem::exists(there, ignored) && there.has_relative_path()) {
    there = there.parent_path();
  }
  const std::string where = there == *folder ? "" : " (not made yet)";
  const bool folder_there = std::filesystem::is_directory(there, ignored);
  if (!folder_there || ::access(there.c_str(), W_OK) != 0) {
    return {
        "registry", State::missing,
        fmt::format("{}{}: {} {}; set HEADRACE_REGISTRY to a folder of yours", folder->string(),
                    where, there.string(), folder_there ? "cannot be written" : "is no folder")};
  }
  const auto space = std::filesystem::space(there, ignored);
  return {"registry", State::works,
          fmt::format("{}{}, {} free", folder->string(), where,
                      gib(static_cast<double>(space.available)))};
}

/// What Python is asked: nothing is imported, so no framework starts.
constexpr const char* kAskPython = R"(
import importlib.metadata, importlib.util, json, sys
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
def there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
print(json.dumps({"python": sys.version.split()[0], "program": sys.executable,
    "headrace": there("headrace"),
    "packages": {name: version(name) for name in sys.argv[1:]}}))
)";

struct OptionalPackage {
  const char* name;
  const char* without;
};

constexpr OptionalPackage kOptionalPackages[] = {
    {"pyarrow", "tables come and go as files and through the Arrow C interface only"},
    {"pandas", "headrace.forecast takes no pandas table"},
    {"onnxruntime", "exported ONNX models cannot be tried here"},
    {"mlflow-skinny", "models are not mirrored to MLflow"},
};

Result<Json> ask_python(const std::string& program) {
  proc::ChildOptions options;
  options.argv = {program, "-c", kAskPython, "mlflow"};
  for (const OptionalPackage& package : kOptionalPackages) {
    options.argv.emplace_back(package.name);
  }
  std::string line;
  options.on_line = [&line](proc::Stream stream, std::string_view text) {
    if (stream == proc::Stream::out) {
      line = text;
    }
  };
  options.timeout = std::chrono::seconds(20);
  HR_TRY(auto child, proc::Child::spawn(std::move(options)));
  HR_TRY(const auto exit, child.wait(std::chrono::seconds(30)));
  if (!exit.ok()) {
    return exit.to_error(program);
  }
  return parse_json(line, "answer of " + program);
}

void examine_python(std::vector<Finding>* findings) {
  const std::string program = python_program();
  const auto answer = ask_python(program);
  if (!answer.ok()) {
    findings->push_back({"python", State::limited,
                         answer.error().message() +
                             "; set HEADRACE_PYTHON to an interpreter; only the Python package and "
                             "the MLflow mirror need one"});
    return;
  }
  findings->push_back({"python", State::works,
                       answer->get_string("python") + " (" + answer->get_string("program") + ")"});
  if (!answer->get_bool("headrace")) {
    findings->push_back({"python package", State::limited,
                         "this interpreter does not find headrace; install the wheel there, or in "
                         "a checkout run `make build`"});
  } else {
    findings->push_back({"python package", State::works, "headrace is found"});
  }
  const Json& packages = answer->at("packages");
  for (const OptionalPackage& package : kOptionalPackages) {
    const Json* version = packages.find(package.name);
    if ((version == nullptr || version->is_null()) &&
        std::string_view(package.name) == "mlflow-skinny") {
      version = packages.find("mlflow");  // the full client holds the small one
    }
    if (version != nullptr && version->is_string()) {
      findings->push_back({package.name, State::works, version->string()});
    } else {
      findings->push_back({package.name, State::limited,
                           fmt::format("not installed: {}; `{} -m pip install {}`", package.without,
                                       program, package.name)});
    }
  }
}

std::vector<Finding> examine() {
  std::vector<Finding> findings = {cores(), memory(), instruction_set(), libraries(),
                                   registry_folder()};
  examine_python(&findings);
  return findings;
}

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
  doctor.summary = "say what works on this machine, and why the rest does not";
  doctor.details =
      "Nothing is changed. The exit code is 1 when something that headrace needs is missing; an "
      "optional part that is not there is \"limited\" and does not change the exit code.";
  doctor.examples = {"headrace doctor", "headrace doctor --json"};
  doctor.run = run_doctor;
  return {doctor};
}

}  // namespace headrace::cli
