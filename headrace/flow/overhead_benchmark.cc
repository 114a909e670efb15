// SPDX-License-Identifier: Apache-2.0
// What the engine costs an item: no-op items through journal, engine and warm workers, beside a
// bare round trip over the same kind of socket to processes that were started before.
//   flow_overhead ITEMS REPEATS FOLDER     one JSON object on standard output
//   flow_overhead worker FD | echo FD      what it starts itself
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/flow/run.h"
#include "headrace/flow/worker.h"
#include "headrace/proc/child.h"

namespace headrace::flow {

namespace {

constexpr int kWorkers = 2;
constexpr size_t kCallBytes = 96;   // about a call frame of a no-op item
constexpr size_t kReplyBytes = 64;  // about its result frame

struct Cost {
  double wall_us = 0.0;
  double cpu_us = 0.0;
};

double cpu_seconds() {
  double sum = 0.0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage = {};
    ::getrusage(who, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
      sum += static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    }
  }
  return sum;
}

double wall_seconds() {
  return static_cast<double>(base::system_clock().monotonic().count()) * 1e-6;
}

/// Read `size` bytes; false at the end.
bool read_whole(int fd, char* out, size_t size) {
  size_t got = 0;
  while (got < size) {
    const ssize_t count = ::read(fd, out + got, size - got);
    if (count <= 0) {
      return false;
    }
    got += static_cast<size_t>(count);
  }
  return true;
}

int echo(int fd) {
  char call[kCallBytes];
  const char reply[kReplyBytes] = {};
  while (read_whole(fd, call, sizeof call)) {
    if (::write(fd, reply, sizeof reply) != static_cast<ssize_t>(sizeof reply)) {
      return 1;
    }
  }
  return 0;
}

/// One item after the other to whoever is free, with nothing else around it.
Cost bare_pipe(const char* self, int64_t items) {
  std::vector<base::Fd> ends;
  std::vector<proc::Child> children;
  const base::Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  for (int i = 0; i < kWorkers; ++i) {
    int pair[2];
    HR_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "no sockets");
    const base::Fd theirs(pair[1]);
    ends.emplace_back(pair[0]);
    proc::ChildOptions options;
    options.argv = {self, "echo", "3"};
    options.fds = {{theirs.get(), 3}};
    auto child = proc::Child::spawn(std::move(options));
    HR_CHECK(child.ok(), child.error().message());
    children.push_back(*std::move(child));
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.fd = pair[0];
    ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, pair[0], &event);
  }
  const char call[kCallBytes] = {};
  char reply[kReplyBytes];
  const auto send = [&](int fd) {
    HR_CHECK(::write(fd, call, sizeof call) == static_cast<ssize_t>(sizeof call), "short write");
  };
  const auto round = [&](int64_t count) {
    int64_t sent = 0;
    for (const base::Fd& end : ends) {
      send(end.get());
      ++sent;
    }
    for (int64_t done = 0; done < count;) {
      epoll_event events[8];
      const int ready = ::epoll_wait(epoll.get(), events, 8, -1);
      for (int i = 0; i < ready; ++i) {
        HR_CHECK(read_whole(events[i].data.fd, reply, sizeof reply), "an echo died");
        ++done;
        if (sent < count) {
          send(events[i].data.fd);
          ++sent;
        }
      }
    }
  };
  round(100);  // both are there and warm
  const double wall = wall_seconds();
  const double cpu = cpu_seconds();
  round(items);
  Cost cost;
  cost.wall_us = (wall_seconds() - wall) * 1e6 / static_cast<double>(items);
  ends.clear();
  for (proc::Child& child : children) {
    static_cast<void>(child.wait(std::chrono::milliseconds(5000)));
  }
  // Starting the echoes is in here; it is some milliseconds for all items together.
  cost.cpu_us = (cpu_seconds() - cpu) * 1e6 / static_cast<double>(items);
  return cost;
}

struct RunTime {
  double wall = 0.0;
  double cpu = 0.0;
};

RunTime flow_run(const char* self, int64_t items, const base::Path& folder) {
  const std::string text = fmt::format(
      R"json({{"name": "noop", "activities": [{{"name": "each", "type": "ForEach",
          "typeProperties": {{"items": "@range(0, {})", "batchCount": {}, "activities":
          [{{"name": "do", "type": "NoOp", "typeProperties": {{"n": "@item()"}}}}]}}}}]}})json",
      items, kWorkers);
  const auto factory = load_factory_text("noop.json", text);
  HR_CHECK(factory.ok() && !has_errors(factory->diagnostics), "the pipeline is wrong");
  RunRequest request;
  request.pipeline = factory->pipelines[0];
  request.pipeline_path = "noop.json";
  RunOptions options;
  options.folder = folder;
  options.slots = kWorkers;
  options.worker_command = {self, "worker", "{fd}"};
  const double wall = wall_seconds();
  const double cpu = cpu_seconds();
  const auto result = start_run(request, options);
  HR_CHECK(result.ok() && result->status == Status::succeeded, "the run failed");
  RunTime time{wall_seconds() - wall, cpu_seconds() - cpu};
  std::error_code code;
  std::filesystem::remove_all(folder, code);
  return time;
}

/// Starting and ending a run is taken off: it is the same for few and for many items.
Cost flow(const char* self, int64_t items, const base::Path& folder) {
  constexpr int64_t kFew = 100;
  const RunTime few = flow_run(self, kFew, folder);
  const RunTime many = flow_run(self, items + kFew, folder);
  return {(many.wall - few.wall) * 1e6 / static_cast<double>(items),
          (many.cpu - few.cpu) * 1e6 / static_cast<double>(items)};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int measure(const char* self, int64_t items, int repeats, const base::Path& folder) {
  std::vector<double> walls;
  std::vector<double> cpus;
  std::vector<double> pipe_walls;
  std::vector<double> pipe_cpus;
  std::vector<double> wall_ratios;
  std::vector<double> cpu_ratios;
  for (int i = 0; i < repeats; ++i) {
    const Cost bare = bare_pipe(self, items);
    const Cost engine = flow(self, items, folder / fmt::format("overhead-{}", i));
    fmt::print(stderr, "bare pipe {:.1f} us ({:.1f} us CPU), flow {:.1f} us ({:.1f} us CPU)\n",
               bare.wall_us, bare.cpu_us, engine.wall_us, engine.cpu_us);
    walls.push_back(engine.wall_us);
    cpus.push_back(engine.cpu_us);
    pipe_walls.push_back(bare.wall_us);
    pipe_cpus.push_back(bare.cpu_us);
    wall_ratios.push_back(engine.wall_us / bare.wall_us);
    cpu_ratios.push_back(engine.cpu_us / bare.cpu_us);
  }
  const Json result = Json::object({{"items", items},
                                    {"flow_us", median(walls)},
                                    {"flow_cpu_us", median(cpus)},
                                    {"pipe_us", median(pipe_walls)},
                                    {"pipe_cpu_us", median(pipe_cpus)},
                                    {"wall_ratio", median(wall_ratios)},
                                    {"cpu_ratio", median(cpu_ratios)}});
  fmt::print("{}\n", result.dump());
  return 0;
}

int serve(int fd) {
  ActivityTable table;
  ActivityType noop;
  noop.type = "NoOp";
  noop.run = [](const ActivityCall& call) -> Result<Json> { return call.type_properties; };
  table.add(noop);
  return serve_worker(fd, table);
}

}  // namespace

}  // namespace headrace::flow

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (argc == 3 && mode == "worker") {
    return headrace::flow::serve(std::atoi(argv[2]));
  }
  if (argc == 3 && mode == "echo") {
    return headrace::flow::echo(std::atoi(argv[2]));
  }
  if (argc == 4) {
    return headrace::flow::measure(argv[0], std::atoll(argv[1]), std::atoi(argv[2]), argv[3]);
  }
  fmt::print(stderr, "usage: flow_overhead ITEMS REPEATS FOLDER\n");
  return 2;
}
