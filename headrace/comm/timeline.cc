// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/timeline.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <unordered_map>
#include <utility>

#include "headrace/base/json.h"
#include "headrace/base/log.h"
#include "headrace/base/thread.h"

namespace headrace::comm {

namespace {

constexpr base::Micros kFlushAfter = std::chrono::milliseconds(100);
constexpr base::Micros kIdleMost = std::chrono::hours(1);
constexpr size_t kFlushBytes = size_t{1} << 20;
constexpr std::string_view kClosing = "\n]\n";

base::Path path_of(const TimelineOptions& options) {
  std::string text = options.path.string();
  if (const size_t at = text.find("%r"); at != std::string::npos) {
    text.replace(at, 2, std::to_string(options.rank));
  }
  return text;
}

base::Path older(const base::Path& path) { return path.string() + ".older"; }

}  // namespace

struct Timeline::State {
  TimelineOptions options;
  base::Path path;
  base::Micros start = base::system_clock().monotonic();
  base::Micros start_wall = base::system_clock().wall();

  base::Mutex mutex;
  base::CondVar changed;
  base::Fd file HR_GUARDED_BY(mutex);
  uint64_t written HR_GUARDED_BY(mutex) = 0;                          // without the closing
  std::string waiting HR_GUARDED_BY(mutex);                           // events not written yet
  std::unordered_map<std::string, int> numbers HR_GUARDED_BY(mutex);  // of tensors, in this file
  bool failed HR_GUARDED_BY(mutex) = false;
  bool stop HR_GUARDED_BY(mutex) = false;
  base::Thread thread;  // last: stops before what it uses goes

  Result<void> begin_file() HR_REQUIRES(mutex);
  void add(std::string_view event) HR_REQUIRES(mutex);
  int number_of(const std::string& tensor) HR_REQUIRES(mutex);
  int64_t stamp(base::Micros at) const { return (at - start).count(); }
  void write() HR_REQUIRES(mutex);
  Result<void> write_waiting() HR_REQUIRES(mutex);
  void run() HR_EXCLUDES(mutex);
};

Result<void> Timeline::State::begin_file() {
  HR_TRY(file, base::open_file(path, O_WRONLY | O_CREAT | O_TRUNC));
  numbers.clear();
  waiting = fmt::format(
      "[\n{{\"name\":\"start\",\"ph\":\"M\",\"pid\":0,\"args\":{{"
      "\"start_time_since_epoch_in_micros\":{},\"rank\":{}}}}}",
      start_wall.count(), options.rank);
  written = 0;
  return write_waiting();
}

void Timeline::State::add(std::string_view event) {
  if (waiting.empty()) {
    changed.notify_all();
  }
  waiting += ",\n";
  waiting += event;
  if (waiting.size() >= kFlushBytes) {
    write();
  }
}

int Timeline::State::number_of(const std::string& tensor) {
  const auto [found, is_new] = numbers.try_emplace(tensor, static_cast<int>(numbers.size()) + 1);
  const int number = found->second;
  if (is_new) {
    add(fmt::format(R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":{}}}}})", number,
                    json_quote(utf8_text(tensor))));
    add(fmt::format(
        R"({{"name":"process_sort_index","ph":"M","pid":{0},"args":{{"sort_index":{0}}}}})",
        number));
    if (!numbers.contains(tensor)) {  // these have made a new file begin, which knows no names
      return number_of(tensor);
    }
  }
  return number;
}

Result<void> Timeline::State::write_waiting() {
  // In one call, over the closing of before: the file is whole before and after.
  const std::string text = waiting + std::string(kClosing);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t bytes = ::pwrite(file.get(), text.data() + done, text.size() - done,
                                   static_cast<off_t>(written + done));
    if (bytes < 0 && errno != EINTR) {
      return errno_error(errno, "writing " + path.string());
    }
    done += bytes < 0 ? 0 : static_cast<size_t>(bytes);
  }
  written += waiting.size();
  waiting.clear();
  return {};
}

void Timeline::State::write() {
  if (failed || waiting.empty()) {
    waiting.clear();
    return;
  }
  Result<void> good = write_waiting();
  if (good.ok() && written > options.max_bytes / 2) {
    if (::rename(path.c_str(), older(path).c_str()) != 0) {
      good = errno_error(errno, "renaming " + path.string());
    } else {
      good = begin_file();
    }
  }
  if (!good.ok()) {
    failed = true;
    base::log_warning("comm: the timeline ends here: " + good.error().message());
  }
}

void Timeline::State::run() {
  base::MutexLock lock(mutex);
  while (!stop) {
    changed.wait_for(mutex, kIdleMost,
                     [this]() HR_NO_THREAD_SAFETY_ANALYSIS { return stop || !waiting.empty(); });
    changed.wait_for(mutex, kFlushAfter, [this]() HR_NO_THREAD_SAFETY_ANALYSIS { return stop; });
    write();
  }
  write();  // what came after the last look
}

Result<std::shared_ptr<Timeline>> Timeline::open(TimelineOptions options) {
  auto state = std::make_unique<State>();
  state->path = path_of(options);
  state->options = std::move(options);
  {
    base::MutexLock lock(state->mutex);
    HR_TRY(state->begin_file());
  }
  std::error_code ignored;
  std::filesystem::remove(older(state->path), ignored);  // of a run before
  state->thread = base::Thread("hr-timeline", [raw = state.get()] { raw->run(); });
  return std::make_shared<Timeline>(std::move(state));
}

Timeline::Timeline(std::unique_ptr<State> state) : state_(std::move(state)) {}

Timeline::~Timeline() {
  {
    base::MutexLock lock(state_->mutex);
    state_->stop = true;
    state_->changed.notify_all();
  }
  state_->thread.join();
}

void Timeline::begin(const std::string& tensor, std::string_view activity, base::Micros at) {
  base::MutexLock lock(state_->mutex);
  const int number = state_->number_of(tensor);
  state_->add(fmt::format(R"({{"ph":"B","name":{},"ts":{},"pid":{},"tid":0}})",
                          json_quote(activity), state_->stamp(at), number));
}

void Timeline::end(const std::string& tensor, base::Micros at, std::string_view dtype,
                   std::string_view shape) {
  base::MutexLock lock(state_->mutex);
  const int number = state_->number_of(tensor);
  const std::string args = dtype.empty() ? ""
                                         : fmt::format(R"(,"args":{{"dtype":{},"shape":{}}})",
                                                       json_quote(dtype), json_quote(shape));
  state_->add(
      fmt::format(R"({{"ph":"E","ts":{},"pid":{},"tid":0{}}})", state_->stamp(at), number, args));
}

void Timeline::mark(const std::string& tensor, std::string_view what, base::Micros at) {
  base::MutexLock lock(state_->mutex);
  const int number = state_->number_of(tensor);
  state_->add(fmt::format(R"({{"ph":"X","name":{},"ts":{},"dur":0,"pid":{},"tid":0}})",
                          json_quote(what), state_->stamp(at), number));
}

void Timeline::mark_cycle(base::Micros at) {
  base::MutexLock lock(state_->mutex);
  if (state_->options.mark_cycles) {
    state_->add(fmt::format(R"({{"ph":"i","name":"CYCLE_START","ts":{},"pid":0,"tid":0,"s":"g"}})",
                            state_->stamp(at)));
  }
}

namespace {

/// The events of one file, on the scale of `first` (its start, set by the first file), with numbers
/// of processes from `offset` on.
Result<int64_t> append_events(const base::Path& path, std::optional<int64_t>& first, int64_t offset,
                              Json::Array& out) {
  HR_TRY(const std::string text, base::read_file(path));
  HR_TRY(const Json all, parse_json(text, path.string()));
  const auto no_timeline = [&] {
    return Error{Errc::corrupt, path.string() + " is no timeline of headrace"};
  };
  if (!all.is_array() || all.items().empty()) {
    return no_timeline();
  }
  const Json* start = all.items().front().find("args");
  const Json* epoch = start == nullptr ? nullptr : start->find("start_time_since_epoch_in_micros");
  const Json* rank = start == nullptr ? nullptr : start->find("rank");
  if (epoch == nullptr || !epoch->is_integer() || rank == nullptr || !rank->is_integer()) {
    return no_timeline();
  }
  first = first.value_or(epoch->integer());
  int64_t greatest = 0;
  for (const Json& event : all.items()) {
    if (!event.is_object()) {
      return no_timeline();
    }
    Json::Object changed;
    const Json* name = event.find("name");
    for (const auto& [key, value] : event.members()) {
      if (key == "pid" && value.is_integer()) {
        greatest = std::max(greatest, value.integer());
        changed.emplace_back(key, offset + value.integer());
      } else if (key == "ts" && value.is_integer()) {
        changed.emplace_back(key, value.integer() + epoch->integer() - *first);
      } else if (key == "args" && name != nullptr && name->is_string() &&
                 name->string() == "process_name" && value.find("name") != nullptr &&
                 value.find("name")->is_string()) {
        changed.emplace_back(key,
                             Json::object({{"name", fmt::format("[{}] {}", rank->integer(),
                                                                value.find("name")->string())}}));
      } else {
        changed.emplace_back(key, value);
      }
    }
    out.emplace_back(std::move(changed));
  }
  return offset + greatest + 1;
}

}  // namespace

Result<void> merge_timelines(const std::vector<base::Path>& inputs, const base::Path& output) {
  Json::Array all;
  std::optional<int64_t> first;
  int64_t next = 0;
  for (const base::Path& path : inputs) {
    for (const base::Path& file : {older(path), path}) {
      if (file == path || std::filesystem::exists(file)) {
        HR_TRY(next, append_events(file, first, next, all));
      }
    }
  }
  std::string text = "[";
  for (size_t i = 0; i < all.size(); ++i) {
    text += i == 0 ? "\n" : ",\n";
    text += all[i].dump();
  }
  return base::replace_file(output, text + "\n]\n");
}

}  // namespace headrace::comm
