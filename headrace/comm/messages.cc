// SPDX-License-Identifier: Apache-2.0
// send and recv of a process set.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "headrace/comm/process_set_internal.h"

namespace headrace::comm {

namespace {

constexpr base::Micros kOpenMost = std::chrono::seconds(2);

std::shared_ptr<WorkState> work_of(Kind kind, const ConstBuffer& buffer, int other,
                                   const Options& options) {
  auto work = std::make_shared<WorkState>();
  work->call.kind = kind;
  work->call.dtype = buffer.dtype;
  work->call.count = buffer.count;
  work->call.root = other;
  work->call.name = options.name;
  return work;
}

std::string text_of(const Call& call, int tag) {
  return fmt::format(
      "comm: {} with tag {}",
      describe(call.kind, call.op_as_told(), call.dtype, call.count, call.root, call.name), tag);
}

Work ended(std::shared_ptr<WorkState> work, Error error) {
  work->complete(std::move(error));
  return Work(std::move(work));
}

/// The other end is a rank of the set, and not this one.
Result<void> check_rank(const WorkState& work, int other, int self, int ranks, int tag) {
  if (other < 0 || other >= ranks || other == self) {
    return Error{Errc::invalid_argument,
                 fmt::format("{}: the other end must be another one of the {} ranks of the set",
                             text_of(work.call, tag), ranks)};
  }
  if (work.call.count > 0 && ranks < 2) {
    return Error{Errc::invalid_argument, text_of(work.call, tag) + ": nobody else is in the set"};
  }
  return {};
}

MailDone completion(const std::shared_ptr<WorkState>& work, std::shared_ptr<SetQueue> queue) {
  return [work, queue = std::move(queue)](const Result<void>& how, int world_rank) {
    const auto ranks = queue->world_ranks();
    const auto found = std::find(ranks.begin(), ranks.end(), world_rank);
    if (how.ok() && work->call.kind == Kind::recv) {
      work->source.store(static_cast<int>(found - ranks.begin()), std::memory_order_release);
    }
    if (how.ok()) {
      queue->observer().moved_mail(work->call);
    }
    work->complete(how);
  };
}

/// What the set has failed with. Who submits meanwhile finds it driven, and leaves the rest to us.
std::optional<Error> failed_of(SetQueue& queue, Progress* progress) {
  auto failed = queue.failed();
  if (progress != nullptr && !queue.idle()) {
    progress->notify();
  }
  return failed;
}

/// Says why nobody is left of `others`, ranks of the set, of whom one is needed.
std::function<std::string()> hopeless_without(std::shared_ptr<SetQueue> queue,
                                              const std::weak_ptr<Progress>& progress,
                                              const Network* network, std::vector<int> others) {
  return [queue = std::move(queue), progress, network,
          others = std::move(others)]() -> std::string {
    if (failed_of(*queue, progress.lock().get())) {
      return "";  // which ends it, with the error
    }
    const auto ranks = queue->world_ranks();
    for (const int one : others) {
      const int world = ranks[static_cast<size_t>(one)];
      if (!queue->closed(one) && !network->departed(world) &&
          !network->closed(queue->id(), world)) {
        return "";
      }
    }
    return others.size() > 1 ? "all other ranks have closed the process set"
                             : fmt::format("rank {} has closed the process set", others.front());
  };
}

Work waited(std::shared_ptr<WorkState> state, bool blocking) {
  Work work(std::move(state));
  if (blocking) {
    static_cast<void>(work.wait());
  }
  return work;
}

}  // namespace

Work ProcessSet::send(ConstBuffer in, int dst, int tag, const Options& options) {
  auto work = work_of(Kind::send, in, dst, options);
  if (state_->mark.forked()) {
    return ended(std::move(work), forked_error());
  }
  if (auto good = check_rank(*work, dst, rank(), size(), tag); !good.ok()) {
    return ended(std::move(work), std::move(good).error());
  }
  if (const auto failed = failed_of(*state_->queue, state_->progress.get())) {
    return ended(std::move(work), *failed);
  }
  work->deadline = base::Deadline::in(options.timeout.value_or(state_->timeout));
  const int to = state_->world_ranks[static_cast<size_t>(dst)];
  // A call that does not block waits shortly, for the first message to a rank alone.
  const auto limit =
      options.blocking
          ? work->deadline
          : base::Deadline::in(std::min<base::Micros>(work->deadline.left(), kOpenMost));
  if (auto open = state_->network->open_mail(to, limit); !open.ok()) {
    return ended(std::move(work), std::move(open).error());
  }
  state_->network->send({.set = state_->id,
                         .to = to,
                         .tag = tag,
                         .data = in.bytes(),
                         .bytes = in.size_bytes(),
                         .deadline = work->deadline,
                         .what = text_of(work->call, tag),
                         .done = completion(work, state_->queue),
                         .hopeless = hopeless_without(state_->queue, state_->progress,
                                                      state_->network.get(), {dst})});
  return waited(std::move(work), options.blocking);
}

Work ProcessSet::recv(Buffer out, int src, int tag, const Options& options) {
  auto work = work_of(Kind::recv, out, src, options);
  if (state_->mark.forked()) {
    return ended(std::move(work), forked_error());
  }
  const bool any = src == any_source && size() > 1;
  if (auto good = check_rank(*work, src, rank(), size(), tag); !any && !good.ok()) {
    return ended(std::move(work), std::move(good).error());
  }
  if (const auto failed = failed_of(*state_->queue, state_->progress.get())) {
    return ended(std::move(work), *failed);
  }
  work->deadline = base::Deadline::in(options.timeout.value_or(state_->timeout));
  std::vector<int> others;
  for (int one = 0; one < size(); ++one) {
    if (any ? one != rank() : one == src) {
      others.push_back(one);
    }
  }
  state_->network->receive(
      {.set = state_->id,
       .from = any ? -1 : state_->world_ranks[static_cast<size_t>(src)],
       .tag = tag,
       .data = out.bytes(),
       .bytes = out.size_bytes(),
       .deadline = work->deadline,
       .what = text_of(work->call, tag),
       .done = completion(work, state_->queue),
       .hopeless = hopeless_without(state_->queue, state_->progress, state_->network.get(),
                                    std::move(others))});
  return waited(std::move(work), options.blocking);
}

}  // namespace headrace::comm
