// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/gpu/gpu_link.h"

#include <climits>
#include <utility>

namespace headrace::comm {

namespace {

constexpr base::Micros kIdleMost = std::chrono::hours(1);  // push() wakes; no tick
// Tags of what two ranks tell one another before their first message; of no user's.
constexpr int kTagOfSender = INT_MIN + 1;
constexpr int kTagOfReceiver = INT_MIN + 2;

}  // namespace

GpuLink::GpuLink(SetGpu& gpu, int peer, Kind kind)
    : gpu_(gpu), peer_(peer), kind_(kind), thread_("hr-gpu-link", [this] { run(); }) {}

GpuLink::~GpuLink() {
  {
    base::MutexLock lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void GpuLink::push(Message message) {
  base::MutexLock lock(mutex_);
  messages_.push_back(std::move(message));
  changed_.notify_all();
}

NcclGroup* GpuLink::group() {
  base::MutexLock lock(mutex_);
  return group_.get();
}

void GpuLink::run() {
  while (true) {
    Message next;
    {
      base::MutexLock lock(mutex_);
      const auto ready = [this]()
                             HR_NO_THREAD_SAFETY_ANALYSIS { return stop_ || !messages_.empty(); };
      static_cast<void>(changed_.wait_for(mutex_, kIdleMost, ready));
      if (stop_) {
        return;
      }
      if (messages_.empty()) {
        continue;
      }
      next = std::move(messages_.front());
      messages_.pop_front();
    }
    handle(next);
    if (next.begin != nullptr) {
      gpu_.means().events->give(next.begin);
    }
  }
}

void GpuLink::handle(const Message& message) {
  WorkState& work = *message.work;
  if (work.done()) {  // the set has failed meanwhile
    return;
  }
  if (!way_) {
    way_ = connect(work.call.device_index, work.deadline);
  }
  Result<void> how = way_->ok() ? Result<void>() : way_->error();
  if (!how.ok()) {
    work.complete(how);
  } else if (**way_ == GpuWay::host) {
    work.complete(run_on_host(gpu_.door_, *gpu_.means().events, work.call, message.tag,
                              gpu_.patience(work.deadline)));
  } else if (how = enqueue(message); !how.ok()) {
    gpu_.fail_all(how.error());
  }
}

Result<GpuWay> GpuLink::connect(int device, base::Deadline deadline) {
  const GpuMeans& means = gpu_.means();
  const GpuPatience patience = gpu_.patience(deadline);
  const bool sends = kind_ == Kind::send;
  const GpuCard mine = card_of(means, sends);
  HR_TRY(const GpuCard theirs, exchange(mine, patience));
  const GpuCard cards[] = {mine, theirs};
  const int ranks[] = {gpu_.door_.rank, peer_};
  HR_TRY(const GpuWay way, common_way(cards, ranks, gpu_.settings_.staging));
  if (way == GpuWay::nccl) {
    auto made = NcclGroup::join(*means.nccl, *means.cuda, sends ? mine.id : theirs.id,
                                {.rank = sends ? 0 : 1, .ranks = 2, .device = device}, patience);
    if (!made.ok()) {  // the other one waits in it
      gpu_.fail_all(made.error());
      return std::move(made).error();
    }
    base::MutexLock lock(mutex_);
    group_ = *std::move(made);
  }
  return way;
}

Result<GpuCard> GpuLink::exchange(const GpuCard& mine, const GpuPatience& patience) {
  const auto cards = std::make_shared<std::pair<GpuCard, GpuCard>>(mine, GpuCard());
  const bool sends = kind_ == Kind::send;
  const Work sent = gpu_.door_.send({&cards->first, sizeof(GpuCard), Dtype::u8}, peer_,
                                    sends ? kTagOfSender : kTagOfReceiver, patience.deadline);
  const Work received = gpu_.door_.recv({&cards->second, sizeof(GpuCard), Dtype::u8}, peer_,
                                        sends ? kTagOfReceiver : kTagOfSender, patience.deadline);
  const auto how = wait_for(received, cards, patience);
  HR_TRY(wait_for(sent, cards, patience));
  HR_TRY(how);
  return cards->second;
}

Result<void> GpuLink::enqueue(const Message& message) {
  WorkState& work = *message.work;
  NcclGroup* const to = group();
  const GpuMeans& means = gpu_.means();
  gpu_.set_group(work, to);
  const DeviceScope scope(**means.cuda, work.call.device_index);
  HR_TRY(scope.outcome());
  HR_TRY((*means.cuda)->wait(to->stream(), message.begin));
  Call call = work.call;
  call.root = kind_ == Kind::send ? 1 : 0;  // the other one in the group of two
  HR_TRY(to->enqueue({&call, 1}, gpu_.patience(work.deadline)));
  return work.gpu->enqueued(to->stream());
}

}  // namespace headrace::comm
