// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/worker.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include "headrace/base/clock.h"
#include "headrace/base/printable.h"
#include "headrace/base/thread.h"
#include "headrace/flow/channel_internal.h"
#include "headrace/flow/custom.h"
#include "headrace/flow/engine.h"
#include "headrace/flow/pipeline.h"
#include "headrace/flow/run_folder_internal.h"
#include "headrace/flow/text.h"

namespace headrace::flow {

namespace {

struct Usage {
  double cpu_seconds = 0.0;
  int64_t peak_rss_bytes = 0;
};

/// Of this process (RUSAGE_SELF) or of the children it has waited for.
Usage usage_of(__rusage_who_t who) {
  rusage numbers = {};
  ::getrusage(who, &numbers);
  Usage usage;
  for (const timeval& time : {numbers.ru_utime, numbers.ru_stime}) {
    usage.cpu_seconds +=
        static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  }
  usage.peak_rss_bytes = int64_t{numbers.ru_maxrss} << 10;
  return usage;
}

class Worker final : public CommandMonitor {
 public:
  Worker(int fd, const ActivityTable& types, WorkerFaults faults)
      : fd_(fd), types_(types), faults_(std::move(faults)) {
    types_.add(custom_type(this));
    watcher_ = base::Thread("hr-orphan", [this] { watch_engine(); });
  }

  int serve() {
    for (;;) {
      auto frame = next_frame();
      if (!frame.ok()) {
        fmt::print(stderr, "headrace: worker: {}\n",
                   base::printable(frame.error().message(), true));
        return 1;
      }
      if (!*frame) {
        return 0;
      }
      if ((*frame)->type == FrameType::hello) {
        hello_ = decode_hello((*frame)->payload).value_or(HelloFrame{});
        call_.run_id = hello_.run_id;
        call_.run_folder = hello_.run_folder;
        call_.pipeline_folder = hello_.pipeline_folder;
        call_.metrics = hello_.metrics;
        static_cast<void>(send_all(fd_, encode_ready()));  // an engine that is gone is seen next
      } else if ((*frame)->type == FrameType::call) {
        const auto call = decode_call((*frame)->payload);
        if (!call || !answer(*call)) {
          return 1;
        }
      }  // a stop that came too late: its command has ended
    }
  }

  // CommandMonitor
  proc::GroupNotice* group_notice() override { return &notice_; }
  void command_group(int64_t group) override {
    if (group > 0 && faults_.command_began) {
      faults_.command_began();
    }
    if (group == 0) {
      notice_.group.store(0);
    }
    used_children_ = true;
    // An engine that is gone is the watcher's business.
    static_cast<void>(send_all(fd_, encode_group(group)));
  }
  int control_fd() const override { return fd_; }
  bool stop_requested() override {
    pollfd ready = {fd_, POLLIN, 0};
    if (::poll(&ready, 1, 0) <= 0) {
      return false;
    }
    const auto read = reader_.read_from(fd_);
    if (!read.ok() || *read != FrameReader::Read::data) {
      return true;
    }
    bool stop = false;
    for (auto frame = reader_.next(); frame.ok() && *frame; frame = reader_.next()) {
      stop = stop || (*frame)->type == FrameType::stop;
    }
    return stop;
  }
  int64_t grace_ms() const override { return hello_.grace_ms; }

 private:
  /// nullopt: the engine closed the connection.
  Result<std::optional<FrameReader::Frame>> next_frame() {
    for (;;) {
      HR_TRY(auto frame, reader_.next());
      if (frame) {
        return frame;
      }
      HR_TRY(const auto read, reader_.read_from(fd_));
      if (read == FrameReader::Read::closed) {
        return std::optional<FrameReader::Frame>();
      }
    }
  }

  /// Wait for the engine's end of the connection to go, whatever the main thread does meanwhile.
  void watch_engine() {
    pollfd hang_up = {fd_, POLLRDHUP, 0};
    while (::poll(&hang_up, 1, -1) < 0 && errno == EINTR) {
    }
    notice_.called_off.store(true);
    if (const int64_t group = notice_.group.load(); group > 0) {
      ::kill(static_cast<pid_t>(-group), SIGKILL);
    }
    // Without destructors: the main thread may be anywhere.
    ::_exit(0);
  }

  bool answer(const CallFrame& frame) {
    used_children_ = false;
    call_.secrets = {};
    for (const std::string& secret : frame.secrets) {
      call_.secrets.insert(secret);
    }
    const base::Micros began = base::system_clock().monotonic();
    ResultFrame result;
    result.attempt = frame.attempt;
    const Result<Json> output = run(frame);
    if (output.ok()) {
      output->dump_to(&result.output);
      if (std::ssize(result.output) > kFrameBytesMax / 2) {
        result.ok = false;
        result.error_code = "OutputTooLarge";
        result.error_message = fmt::format("the output has {} bytes; at most {} are possible",
                                           result.output.size(), kFrameBytesMax / 2);
        result.output.clear();
      }
    } else {
      result.ok = false;
      result.exit = output.error().origin() ? output.error().origin()->exit : "";
      result.error_code = output.error().code() == Errc::child_failed
                              ? "2500"
                              : std::string(errc_name(output.error().code()));
      // It may name any file.
      result.error_message = call_.secrets.masked(utf8_text(output.error().message()));
    }
    result.seconds =
        std::chrono::duration<double>(base::system_clock().monotonic() - began).count();
    measure(&result);
    keep_log(frame);
    return send_all(fd_, encode(result)).ok();
  }

  /// What the process used since it was last asked is this item's. Short calls are not worth the
  /// system call each: every 32nd of them carries their sum.
  void measure(ResultFrame* result) {
    constexpr double kShortSeconds = 200e-6;
    constexpr int kShortCallsMax = 32;
    if (result->seconds < kShortSeconds && !used_children_ && ++short_calls_ < kShortCallsMax) {
      result->peak_rss_bytes = peak_rss_bytes_;
      return;
    }
    short_calls_ = 0;
    const Usage self = usage_of(RUSAGE_SELF);
    result->cpu_seconds = self.cpu_seconds - std::exchange(cpu_seconds_, self.cpu_seconds);
    peak_rss_bytes_ = std::max(peak_rss_bytes_, self.peak_rss_bytes);
    if (used_children_) {
      const Usage children = usage_of(RUSAGE_CHILDREN);
      result->cpu_seconds +=
          children.cpu_seconds - std::exchange(children_cpu_seconds_, children.cpu_seconds);
      peak_rss_bytes_ = std::max(peak_rss_bytes_, children.peak_rss_bytes);
    }
    result->peak_rss_bytes = peak_rss_bytes_;
  }

  Result<Json> run(const CallFrame& frame) {
    const ActivityType* type = types_.find(frame.type);
    if (type == nullptr || !type->run) {
      return Error{Errc::unsupported,
                   is_later_type(frame.type)
                       ? fmt::format("activities of type {} are not executable yet", frame.type)
                       : fmt::format("there is no activity type '{}'{}", frame.type,
                                     did_you_mean(frame.type, types_.names()))};
    }
    call_.activity = frame.activity;
    call_.type = frame.type;
    call_.item_key = frame.item_key;
    call_.attempt = frame.number;
    call_.secure_input = frame.secure_input;
    call_.secure_output = frame.secure_output;
    call_.item_folder = hello_.run_folder + "/" + frame.log.substr(0, frame.log.rfind('/'));
    HR_TRY(call_.type_properties, parse_json(frame.properties, "typeProperties"));
    return type->run(call_);
  }

  void keep_log(const CallFrame& frame) {
    std::fflush(stdout);
    std::fflush(stderr);
    struct stat info = {};
    if (::fstat(1, &info) != 0 || info.st_size == 0) {
      return;
    }
    const auto moved = move_output_to_log(1, base::Path(hello_.run_folder) / frame.log,
                                          {frame.secure_output, call_.secrets});
    if (!moved.ok()) {
      // The output stays in the worker's file, in front of the next attempt's.
      std::fputs(("headrace: " + moved.error().message() + "\n").c_str(), stderr);
    }
  }

  const int fd_;
  ActivityTable types_;
  const WorkerFaults faults_;
  FrameReader reader_;
  HelloFrame hello_;
  ActivityCall call_;  ///< kept between calls: most of it stays the same
  double cpu_seconds_ = usage_of(RUSAGE_SELF).cpu_seconds;
  int64_t peak_rss_bytes_ = usage_of(RUSAGE_SELF).peak_rss_bytes;
  int short_calls_ = 0;
  double children_cpu_seconds_ = 0.0;
  bool used_children_ = false;
  proc::GroupNotice notice_;
  base::Thread watcher_;  // never ends before the process does
};

}  // namespace

int serve_worker(int fd, const ActivityTable& types, WorkerFaults faults) {
  // Not destroyed: its thread waits for the engine as long as this process lives.
  auto* worker = new Worker(fd, types, std::move(faults));
  const int code = worker->serve();
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace headrace::flow
