// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/gpu/set_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "headrace/base/log.h"
#include "headrace/comm/gpu/gpu_link.h"

namespace headrace::comm {

namespace {

// While something is under way its event is looked at in growing steps: what ends soon is seen
// soon, and what takes long costs a look now and then.
constexpr base::Micros kLookLeast = std::chrono::microseconds(200);
constexpr base::Micros kLookMost = std::chrono::milliseconds(5);
constexpr base::Micros kIdleMost = std::chrono::hours(1);  // take_off() wakes; no tick
// NCCL may see that a rank is gone before the set knows which one.
constexpr base::Micros kCauseMost = std::chrono::milliseconds(500);
// A rank that has closed the set has ended its part of what this one may still compute.
constexpr base::Micros kClosedMost = std::chrono::seconds(5);
// What is not enqueued when its time is over is given up a little later: others know better why.
constexpr base::Micros kLateMost = std::chrono::seconds(1);
constexpr base::Micros kDrainMost = std::chrono::seconds(2);

std::string text_of(const WorkState& work) {
  const Call& call = work.call;
  return fmt::format("comm: {} on cuda:{} (operation {} there)",
                     describe(call.kind, call.op, call.dtype, call.count, call.root, call.name),
                     call.device_index, work.sequence);
}

}  // namespace

SetGpu::SetGpu(SetDoor door, GpuSettings settings)
    : door_(std::move(door)),
      settings_(std::move(settings)),
      watcher_("hr-gpu", [this] { watch(); }) {}

SetGpu::~SetGpu() {
  {
    base::MutexLock lock(mutex_);
    const auto over = [this]() HR_NO_THREAD_SAFETY_ANALYSIS { return flights_.empty(); };
    static_cast<void>(changed_.wait_for(mutex_, kDrainMost, over));
    stop_ = true;
    changed_.notify_all();
  }
  watcher_.join();
  std::unique_ptr<NcclGroup> group;
  decltype(links_) links;
  {
    base::MutexLock lock(setup_);
    group = std::move(group_);
  }
  {
    base::MutexLock lock(linking_);
    links = std::move(links_);
  }
  for (const Flight& one : flights()) {
    if (one.group != nullptr) {
      one.group->abort();  // the second time does nothing
    }
  }
  links.clear();
  group.reset();
  for (const Flight& one : flights()) {
    one.work->complete(Error{Errc::cancelled, text_of(*one.work) +
                                                  ": this rank has closed the process set before "
                                                  "the operation ended"});
  }
}

const GpuMeans& SetGpu::means() {
  base::MutexLock lock(load_);
  if (means_ == nullptr) {
    means_ = std::make_unique<const GpuMeans>(GpuMeans::load(settings_.folders));
  }
  return *means_;
}

NcclGroup* SetGpu::group() {
  base::MutexLock lock(setup_);
  return group_.get();
}

GpuPatience SetGpu::patience(base::Deadline deadline) {
  return {deadline, [this]() -> std::optional<Error> {
            if (auto error = failed()) {
              return error;
            }
            return door_.failure();
          }};
}

Result<void> SetGpu::claim(int device) {
  base::MutexLock lock(mutex_);
  if (device_ < 0) {
    device_ = device;
  }
  if (device_ != device) {
    return Error{Errc::invalid_argument,
                 fmt::format("comm: this process set's GPU operations began on cuda:{}, the tensor "
                             "is on cuda:{}; each rank uses one GPU per process set",
                             device_, device)};
  }
  return {};
}

Result<GpuWay> SetGpu::prepare(int device, base::Deadline deadline) {
  base::MutexLock lock(setup_);
  if (!way_) {
    way_ = meet(device, deadline);
  }
  return *way_;
}

Result<GpuWay> SetGpu::meet(int device, base::Deadline deadline) {
  const auto ranks = static_cast<size_t>(door_.ranks);
  struct Cards {
    GpuCard mine;
    std::vector<GpuCard> all;
  };
  const auto cards = std::make_shared<Cards>();
  const GpuMeans& with = means();
  cards->mine = card_of(with, door_.rank == 0);
  cards->all.resize(ranks);
  const GpuPatience how = patience(deadline);
  HR_TRY(
      wait_for(door_.all_gather({&cards->mine, sizeof(GpuCard), Dtype::u8},
                                {cards->all.data(), ranks * sizeof(GpuCard), Dtype::u8}, deadline),
               cards, how));
  std::vector<int> numbers(ranks);
  std::iota(numbers.begin(), numbers.end(), 0);
  HR_TRY(const GpuWay way, common_way(cards->all, numbers, settings_.staging));
  if (way == GpuWay::nccl) {
    auto made = NcclGroup::join(*with.nccl, *with.cuda, cards->all[0].id,
                                {.rank = door_.rank, .ranks = door_.ranks, .device = device}, how);
    if (!made.ok()) {  // the others wait in it
      fail_all(made.error());
      return std::move(made).error();
    }
    group_ = *std::move(made);
  } else {
    base::log_warning("comm: tensors on GPUs go through host memory, as not all ranks have NCCL");
  }
  return way;
}

Work SetGpu::submit(Call&& call, base::Deadline deadline) {
  auto work = std::make_shared<WorkState>();
  {
    base::MutexLock lock(mutex_);
    if (const auto found = collected_.find(std::this_thread::get_id()); found != collected_.end()) {
      Collected& group = found->second;
      if (group.calls.empty()) {
        group.work->call = call;  // what messages name
        flights_.push_back({group.work, nullptr});
        changed_.notify_all();
      }
      group.calls.push_back(std::move(call));
      return Work(group.work);
    }
    work->sequence = submitted_++;
  }
  work->call = call;
  work->deadline = deadline;
  work->gpu = std::make_shared<GpuTicket>(means().events);
  std::vector<Call> calls;
  calls.push_back(std::move(call));
  return run(std::move(calls), std::move(work));
}

void SetGpu::begin_group(base::Deadline deadline) {
  auto work = std::make_shared<WorkState>();
  work->deadline = deadline;
  work->gpu = std::make_shared<GpuTicket>(means().events);
  base::MutexLock lock(mutex_);
  Collected& open = collected_[std::this_thread::get_id()];
  if (open.depth++ == 0) {
    open.work = std::move(work);
  }
}

Work SetGpu::end_group() {
  Collected group;
  {
    base::MutexLock lock(mutex_);
    const auto open = collected_.find(std::this_thread::get_id());
    if (open != collected_.end() && --open->second.depth > 0) {
      return Work(open->second.work);  // of the group around it, which begins it
    }
    if (auto found = collected_.extract(std::this_thread::get_id())) {
      group = std::move(found.mapped());
    }
    if (group.calls.empty()) {
      return Work::ended(submitted_);
    }
    group.work->sequence = submitted_++;
  }
  return run(std::move(group.calls), std::move(group.work));
}

Work SetGpu::run(std::vector<Call> calls, std::shared_ptr<WorkState> work) {
  const auto done = [&work](Error error) {
    work->complete(std::move(error));
    return Work(work);
  };
  if (work->done()) {  // its time was over before its group ended
    return Work(work);
  }
  if (auto error = patience(work->deadline).failure()) {
    return done(*std::move(error));
  }
  for (const Call& one : calls) {
    if (auto good = claim(one.device_index); !good.ok()) {
      return done(std::move(good).error());
    }
  }
  const auto way = prepare(calls.front().device_index, work->deadline);
  if (!way.ok()) {
    return done(way.error());
  }
  if (*way == GpuWay::host) {
    Result<void> how;
    for (const Call& one : calls) {
      how = how.ok() ? run_on_host(door_, *means().events, one, 0, patience(work->deadline)) : how;
    }
    work->complete(how);
    return Work(work);
  }
  for (const Call& one : calls) {
    if (auto good = check_nccl(one, door_.ranks); !good.ok()) {
      return done(std::move(good).error());
    }
  }
  NcclGroup* const to = group();
  if (take_off({work, to})) {
    if (const auto how = enqueue(*to, calls, *work); !how.ok()) {
      fail_all(how.error());
    }
  }
  return Work(work);
}

Result<void> SetGpu::enqueue(NcclGroup& group, std::span<const Call> calls, const WorkState& work) {
  const GpuMeans& with = means();
  const DeviceScope scope(**with.cuda, group.device());
  HR_TRY(scope.outcome());
  std::optional<uintptr_t> before;
  for (const Call& one : calls) {
    if (before == one.stream) {
      continue;
    }
    before = one.stream;
    HR_TRY(const CudaEvent event, with.events->take());
    auto how = (*with.cuda)->record(event, reinterpret_cast<CudaStream>(one.stream));
    how = how.ok() ? (*with.cuda)->wait(group.stream(), event) : how;
    with.events->give(event);  // the wait is for what was recorded at its call
    HR_TRY(how);
  }
  HR_TRY(group.enqueue(calls, patience(work.deadline)));
  return work.gpu->enqueued(group.stream());
}

Work SetGpu::message(Call&& call, int tag, base::Deadline deadline) {
  auto work = std::make_shared<WorkState>();
  work->call = std::move(call);
  work->deadline = deadline;
  auto good = claim(work->call.device_index);
  if (auto error = patience(deadline).failure(); error || !good.ok()) {
    work->complete(error ? *std::move(error) : std::move(good).error());
    return Work(work);
  }
  const Call& what = work->call;
  GpuLink::Message message = {work, tag, nullptr};
  const GpuMeans& with = means();
  work->gpu = std::make_shared<GpuTicket>(with.events);
  if (with.cuda.ok()) {
    const DeviceScope scope(**with.cuda, what.device_index);
    auto event = with.events->take();
    auto how = scope.outcome();
    if (how.ok()) {
      how = event.ok() ? (*with.cuda)->record(*event, reinterpret_cast<CudaStream>(what.stream))
                       : event.error();
    }
    if (!how.ok()) {  // the other rank would wait for it
      fail_all(how.error());
      work->complete(how);
      return Work(work);
    }
    message.begin = *event;
  }
  {
    base::MutexLock lock(mutex_);
    work->sequence = submitted_++;
  }
  if (take_off({work, nullptr})) {
    base::MutexLock lock(linking_);
    auto& link = links_[{what.root, what.kind}];
    if (link == nullptr) {
      link = std::make_unique<GpuLink>(*this, what.root, what.kind);
    }
    link->push(std::move(message));
  }
  return Work(work);
}

bool SetGpu::take_off(const Flight& flight) {
  std::optional<Error> error;
  {
    base::MutexLock lock(mutex_);
    error = failed_;
    const auto known = std::find_if(flights_.begin(), flights_.end(),
                                    [&](const Flight& one) { return one.work == flight.work; });
    if (!error && known != flights_.end()) {
      known->group = flight.group;
    } else if (!error) {
      flights_.push_back(flight);
      changed_.notify_all();
    }
  }
  if (error) {
    flight.work->complete(*error);
  }
  return !error;
}

void SetGpu::set_group(const WorkState& work, NcclGroup* group) {
  base::MutexLock lock(mutex_);
  for (Flight& one : flights_) {
    if (one.work.get() == &work) {
      one.group = group;
    }
  }
}

std::optional<Error> SetGpu::failed() {
  base::MutexLock lock(mutex_);
  if (!failed_ && stop_) {
    return Error{Errc::cancelled, "comm: this rank closes the process set"};
  }
  return failed_;
}

std::vector<SetGpu::Flight> SetGpu::flights() {
  base::MutexLock lock(mutex_);
  return flights_;
}

void SetGpu::fail_all(const Error& error) {
  bool closing = false;
  {
    base::MutexLock lock(mutex_);
    closing = stop_;
  }
  if (!closing) {  // which the others are told by the set itself
    door_.fail(error);
  }
  const Error cause = door_.failure().value_or(error);  // the first one counts, on all ranks
  std::vector<Flight> ended;
  {
    base::MutexLock lock(mutex_);
    if (!failed_) {
      failed_ = cause;
    }
    ended = std::exchange(flights_, {});
    changed_.notify_all();
  }
  std::vector<NcclGroup*> stopped;
  for (const Flight& one : ended) {
    if (one.group != nullptr &&
        std::find(stopped.begin(), stopped.end(), one.group) == stopped.end()) {
      stopped.push_back(one.group);
      one.group->abort();
    }
  }
  for (const Flight& one : ended) {
    one.work->complete(cause);
    one.work->gpu->wake();
  }
}

void SetGpu::watch() {
  base::Micros pause = kLookLeast;
  while (true) {
    std::vector<Flight> now;
    {
      base::MutexLock lock(mutex_);
      const bool idle = flights_.empty();
      const auto ready = [this, idle]() HR_NO_THREAD_SAFETY_ANALYSIS {
        return stop_ || (idle && !flights_.empty());
      };
      static_cast<void>(changed_.wait_for(mutex_, idle ? kIdleMost : pause, ready));
      if (stop_) {
        return;
      }
      pause = idle ? kLookLeast : pause;
      now = flights_;
    }
    const auto landed = land(now);
    pause = landed.ok() && *landed > 0 ? kLookLeast : std::min(2 * pause, kLookMost);
    now = flights();
    const auto error =
        landed.ok() ? now.empty() ? std::nullopt : trouble(now) : std::optional(landed.error());
    if (error) {
      fail_all(*error);
    }
  }
}

Result<size_t> SetGpu::land(const std::vector<Flight>& flights) {
  std::vector<const NcclGroup*> waiting;  // what is behind in a group's order waits too
  std::vector<const WorkState*> ended;
  const GpuMeans& with = means();
  for (const Flight& one : flights) {
    if (one.group != nullptr) {  // or CUDA would make a context on GPU 0 for this thread
      HR_TRY((*with.cuda)->use_device(one.group->device()));
    }
    if (one.work->done()) {
      ended.push_back(one.work.get());
      continue;
    }
    if (one.group == nullptr &&
        one.work->deadline.at() + kLateMost < base::system_clock().monotonic()) {
      one.work->complete(Error{Errc::timeout, text_of(*one.work) + ": it was not begun in time"});
      one.work->gpu->wake();
      ended.push_back(one.work.get());
      continue;
    }
    if (std::find(waiting.begin(), waiting.end(), one.group) != waiting.end()) {
      continue;
    }
    auto passed = one.work->gpu->passed();
    if (!passed.ok()) {
      return std::move(passed).error().add_context(text_of(*one.work));
    }
    if (*passed) {
      one.work->complete({});
      one.work->gpu->wake();
      ended.push_back(one.work.get());
    } else if (one.group != nullptr) {
      waiting.push_back(one.group);
    }
  }
  if (!ended.empty()) {
    base::MutexLock lock(mutex_);
    std::erase_if(flights_, [&](const Flight& one) {
      return std::find(ended.begin(), ended.end(), one.work.get()) != ended.end();
    });
    changed_.notify_all();
  }
  return ended.size();
}

std::optional<Error> SetGpu::trouble(const std::vector<Flight>& flights) {
  if (auto error = door_.failure()) {
    return error;
  }
  for (const Flight& one : flights) {
    if (one.group == nullptr) {
      continue;
    }
    if (auto health = one.group->health(); !health.ok()) {
      const auto limit = base::Deadline::in(kCauseMost);
      while (!limit.passed()) {
        if (auto cause = door_.failure()) {
          return cause;
        }
        base::sleep_for(kLookMost);
      }
      return health.error().add_context(text_of(*one.work));
    }
    if (one.work->deadline.passed()) {
      return Error{Errc::timeout,
                   text_of(*one.work) +
                       " did not end within its time limit; NCCL does not tell which rank it "
                       "waits for: one has not called it, has called another one, or is stuck"};
    }
  }
  return trouble_of_closed_ranks(*flights.front().work);
}

std::optional<Error> SetGpu::trouble_of_closed_ranks(const WorkState& waiting) {
  const int closed = door_.closed_rank();
  if (closed != closed_) {
    closed_ = closed;
    closed_limit_ = base::Deadline::in(kClosedMost);
  }
  if (closed < 0 || !closed_limit_.passed()) {
    return std::nullopt;
  }
  return Error{Errc::cancelled,
               fmt::format("{}: rank {} has closed the process set", text_of(waiting), closed)};
}

}  // namespace headrace::comm
