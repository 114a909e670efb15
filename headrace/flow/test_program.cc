// SPDX-License-Identifier: Apache-2.0
// Tests only: a program that is an engine or a worker, so that tests can kill either.
//   test_program worker FD [FAULT FOLDER]
//   test_program run PIPELINE FOLDER SLOTS [FAULT]
//   test_program resume FOLDER SLOTS
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/flow/run.h"
#include "headrace/flow/worker.h"

namespace headrace::flow {

namespace {

Result<Json> misbehave(const ActivityCall& call) {
  const std::string how = call.type_properties.get_string("how");
  if (how == "exit") {
    ::_exit(3);
  }
  if (how == "segv") {
    ::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would end it by an exit code
    ::raise(SIGSEGV);
  }
  if (how == "hang") {
    base::sleep_for(std::chrono::hours(1));
  }
  if (how == "print") {
    fmt::print("hello from {}\n", call.item_key);
    ::write(2, "and errors\n", 11);
  }
  if (how == "print and die") {
    fmt::print("last words\n");
    std::fflush(stdout);
    ::raise(SIGKILL);
  }
  if (how == "print bytes and die") {
    fmt::print("Gr\xF6sse\n");
    std::fflush(stdout);
    ::raise(SIGKILL);
  }
  if (how == "flood") {
    const std::string line(999, 'x');
    for (int i = 0; i < 20'000; ++i) {
      fmt::print("{}\n", line);
    }
  }
  if (how == "fail") {
    return Error{Errc::invalid_argument, "told to fail"};
  }
  if (how == "large") {
    return Json(std::string(static_cast<size_t>(call.type_properties.get_integer("bytes")), 'x'));
  }
  return call.type_properties;
}

ActivityTable test_types() {
  ActivityTable table;
  ActivityType noop;
  noop.type = "NoOp";
  noop.run = [](const ActivityCall& call) -> Result<Json> { return call.type_properties; };
  table.add(noop);
  ActivityType bad;
  bad.type = "Misbehave";
  bad.run = misbehave;
  table.add(bad);
  ActivityType where;
  where.type = "Where";
  where.run = [](const ActivityCall& call) -> Result<Json> {
    return Json::object({{"run_id", call.run_id},
                         {"item_key", call.item_key},
                         {"attempt", call.attempt},
                         {"run_folder", call.run_folder.string()},
                         {"item_folder", call.item_folder.string()},
                         {"pipeline_folder", call.pipeline_folder.string()}});
  };
  table.add(where);
  return table;
}

/// When the first command has begun, and a child of its own with FOLDER/inner: "kill-engine";
/// "kill-worker"; "freeze-engine": stop the engine and kill the worker, whose pid is in
/// FOLDER/fault.
WorkerFaults faults_of(const std::string& fault, const base::Path& folder) {
  WorkerFaults faults;
  faults.command_began = [fault, folder] {
    std::error_code code;
    if (std::filesystem::exists(folder / "fault", code)) {
      return;
    }
    const auto deadline = base::Deadline::in(std::chrono::seconds(20));
    while (!std::filesystem::exists(folder / "inner", code) && !deadline.passed()) {
      base::sleep_for(std::chrono::milliseconds(1));
    }
    static_cast<void>(base::replace_file(folder / "fault", std::to_string(::getpid())));
    if (fault == "kill-engine") {
      ::kill(::getppid(), SIGKILL);
      base::sleep_for(std::chrono::hours(1));
    }
    if (fault == "freeze-engine") {
      ::kill(::getppid(), SIGSTOP);
    }
    ::raise(SIGKILL);
  };
  return faults;
}

RunOptions options_for(const char* self, const char* folder, const char* slots) {
  RunOptions options;
  options.folder = folder;
  options.slots = std::atoi(slots);
  options.worker_command = {self, "worker", "{fd}"};
  return options;
}

int show(const Result<RunResult>& result) {
  if (!result.ok()) {
    fmt::print(stderr, "{}: {}\n", errc_name(result.error().code()), result.error().message());
    return 2;
  }
  fmt::print("{}\n", status_name(result->status));
  return result->status == Status::succeeded ? 0 : 1;
}

int start(char** argv, const char* fault) {
  const auto factory = load_factory(argv[2]);
  if (!factory.ok() || has_errors(factory->diagnostics)) {
    return 2;
  }
  RunRequest request;
  request.pipeline = factory->pipelines[0];
  request.pipeline_path = argv[2];
  RunOptions options = options_for(argv[0], argv[3], argv[4]);
  if (fault != nullptr) {
    options.worker_command.insert(options.worker_command.end(), {fault, argv[3]});
  }
  return show(start_run(request, options));
}

}  // namespace

}  // namespace headrace::flow

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "worker" && (argc == 3 || argc == 5)) {
    return headrace::flow::serve_worker(
        std::atoi(argv[2]), headrace::flow::test_types(),
        argc == 3 ? headrace::flow::WorkerFaults{} : headrace::flow::faults_of(argv[3], argv[4]));
  }
  if (mode == "run" && (argc == 5 || argc == 6)) {
    return headrace::flow::start(argv, argc == 6 ? argv[5] : nullptr);
  }
  if (mode == "resume" && argc == 4) {
    return headrace::flow::show(
        headrace::flow::resume_run({}, headrace::flow::options_for(argv[0], argv[2], argv[3])));
  }
  fmt::print(stderr,
             "usage: worker FD [FAULT FOLDER] | run PIPELINE FOLDER SLOTS [FAULT] | resume FOLDER "
             "SLOTS\n");
  return 2;
}
