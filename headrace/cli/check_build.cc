// SPDX-License-Identifier: Apache-2.0
// `headrace run --check-build`: frameworks, transports and libraries of GPUs that can be used here.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "headrace/base/json.h"
#include "headrace/base/shm_segment.h"
#include "headrace/cli/command.h"
#include "headrace/cli/python.h"
#include "headrace/cli/run_options.h"
#include "headrace/comm/gpu_libraries.h"
#include "headrace/proc/child.h"
#include "headrace/wire/interface.h"

namespace headrace::cli {

namespace {

struct Part {
  std::string group;
  std::string name;
  bool usable = false;
  std::string text;
};

// Nothing is imported: versions come from what pip has written down.
constexpr const char* kAsk = R"(
import importlib.metadata, importlib.util, json, os, sys
def version(*names):
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return None
def there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
wheels = ("nvidia/nccl/lib", "nvidia/cuda_runtime/lib", "nvidia/cu13/lib", "nvidia/cu12/lib")
folders = [f for p in sys.path for w in wheels if os.path.isdir(f := os.path.join(p, w))]
print(json.dumps({
    "program": sys.executable, "headrace": there("headrace"),
    "frameworks": {"torch": version("torch"),
        "tensorflow": version("tensorflow", "tensorflow-cpu"), "keras": version("keras"),
        "jax": version("jax"), "mxnet": version("mxnet"), "numpy": version("numpy")},
    "gpu_folders": folders}))
)";

Result<Json> ask(const std::string& program) {
  proc::ChildOptions options;
  options.argv = {program, "-c", kAsk};
  std::string line;
  options.on_line = [&line](proc::Stream stream, std::string_view text) {
    if (stream == proc::Stream::out) {
      line = text;
    }
  };
  options.timeout = std::chrono::seconds(20);
  HR_TRY(auto child, proc::Child::spawn(std::move(options)));
  HR_TRY(const auto exit, child.wait(std::chrono::seconds(40)));
  if (!exit.ok()) {
    return exit.to_error(program);
  }
  return parse_json(line, "answer of " + program);
}

/// What headrace has a front for in this version.
std::string_view front_of(std::string_view framework) {
  return framework == "torch" ? "headrace.torch" : framework == "numpy" ? "headrace" : "";
}

void add_gpu_libraries(const std::vector<std::string>& folders, std::vector<Part>* parts) {
  const auto found = comm::find_gpu_libraries(folders);
  parts->push_back({"gpu libraries", "cuda", found.cuda, found.cuda_found});
  parts->push_back(
      {"gpu libraries", "nccl", found.nccl && found.cuda,
       found.nccl_found + (found.nccl ? "; headrace's use of it is untested on a GPU" : "")});
}

void add_python(std::vector<Part>* parts) {
  const std::string program = python_program();
  const auto answer = ask(program);
  if (!answer.ok()) {
    parts->push_back({"frameworks", "python", false, answer.error().message()});
    add_gpu_libraries({}, parts);
    return;
  }
  for (const auto& [name, version] : answer->at("frameworks").members()) {
    const std::string_view front = front_of(name);
    Part part = {"frameworks", name, version.is_string() && !front.empty(), ""};
    if (!version.is_string()) {
      part.text = fmt::format("not installed for {}", answer->get_string("program"));
    } else if (front.empty()) {
      part.text = fmt::format("{} is installed; this version of headrace has no module for it",
                              version.string());
    } else {
      part.text = fmt::format("{}, by {}", version.string(), front);
    }
    if (part.usable && !answer->get_bool("headrace")) {
      part.usable = false;
      part.text += fmt::format(", but {} does not find headrace", answer->get_string("program"));
    }
    parts->push_back(std::move(part));
  }
  std::vector<std::string> folders;
  for (const Json& folder : answer->at("gpu_folders").items()) {
    folders.push_back(folder.string());
  }
  add_gpu_libraries(folders, parts);
}

void add_transports(std::vector<Part>* parts) {
  const auto segment = base::ShmSegment::create("check-build", 4096);
  parts->push_back({"transports", "shared memory", segment.ok(),
                    segment.ok() ? "between ranks of one host" : segment.error().message()});
  const auto addresses = wire::local_addresses();
  std::string list;
  if (addresses.ok()) {
    for (const wire::LocalAddress& one : addresses->network) {
      list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", one.address, one.interface_name);
    }
  }
  parts->push_back({"transports", "tcp", addresses.ok(),
                    !addresses.ok() ? addresses.error().message()
                    : list.empty()  ? "loopback only: this machine has no other address"
                                    : list});
  parts->push_back({"launchers", "headrace run", true, "this machine"});
  parts->push_back({"launchers", "headrace agent", true, "other machines, without ssh"});
  parts->push_back({"launchers", "mpi", false, "not needed; inside mpirun ranks find one another"});
}

}  // namespace

int check_build(bool json) {
  std::vector<Part> parts;
  add_transports(&parts);
  add_python(&parts);
  if (json) {
    Json list = Json::array();
    for (const Part& part : parts) {
      list.push_back(Json::object({{"group", part.group},
                                   {"name", part.name},
                                   {"usable", part.usable},
                                   {"found", part.text}}));
    }
    fmt::print("{}\n", Json::object({{"version", HEADRACE_VERSION}, {"parts", list}}).dump());
    return kExitOk;
  }
  fmt::print("headrace {}\n", HEADRACE_VERSION);
  std::string group;
  for (const Part& part : parts) {
    if (part.group != group) {
      group = part.group;
      fmt::print("\nAvailable {}:\n", group);
    }
    fmt::print("    [{}] {}: {}\n", part.usable ? "X" : " ", part.name, part.text);
  }
  return kExitOk;
}

}  // namespace headrace::cli
