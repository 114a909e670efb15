// SPDX-License-Identifier: Apache-2.0
// The C names over the C++ ones: convert and call. No exception leaves a function.
#include "headrace/comm/c_api.h"

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <utility>

#include "headrace/base/thread.h"
#include "headrace/comm/environment.h"

namespace hc = headrace::comm;
using headrace::Dtype;
using headrace::Errc;
using headrace::Error;
using headrace::Result;

struct hr_comm_value {
  std::string bytes;
  bool given = false;
};

struct hr_comm_work {
  hc::Work work;
};

/// `set` is null once the context was freed.
struct hr_comm_set {
  hr_comm_context* context = nullptr;
  hc::ProcessSet* set = nullptr;
  std::unique_ptr<hc::ProcessSet> owned;  // null for the world
};

struct hr_comm_context {
  std::unique_ptr<hc::Context> context;
  hc::Place place;
  hr_comm_set world;
  headrace::base::Mutex mutex;
  std::set<hr_comm_set*> sets HR_GUARDED_BY(mutex);  // that split gave and nobody freed yet
};

namespace {

struct LastError {
  std::string message;
  std::string host;
  hr_comm_error view{HR_COMM_OK, "", -1, -1, ""};
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

hr_comm_code code_of(Errc code) { return static_cast<hr_comm_code>(static_cast<int>(code) + 1); }
static_assert(static_cast<int>(Errc::internal) + 1 == HR_COMM_INTERNAL);
static_assert(static_cast<int>(Errc::peer_dead) + 1 == HR_COMM_PEER_DEAD);
static_assert(static_cast<int>(Dtype::boolean) == HR_COMM_BOOL && headrace::kDtypes == 13);
static_assert(static_cast<int>(hc::Op::bxor) == HR_COMM_BXOR);

hr_comm_code failed(const Error& error) {
  LastError& last = last_error();
  last.message = error.message();
  last.host = error.origin() ? error.origin()->host : "";
  last.view = {code_of(error.code()), last.message.c_str(),
               error.origin() ? error.origin()->rank : -1,
               error.origin() ? error.origin()->pid : -1, last.host.c_str()};
  return last.view.code;
}

hr_comm_code ended(const Result<void>& outcome) {
  return outcome.ok() ? HR_COMM_OK : failed(outcome.error());
}

/// Call `body`; what it throws is a failure too.
template <typename Body>
hr_comm_code guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    last_error().view = {HR_COMM_OUT_OF_MEMORY, "comm: no memory for the call itself", -1, -1, ""};
  } catch (const std::exception&) {
    last_error().view = {HR_COMM_INTERNAL, "comm: an exception came up to the C border", -1, -1,
                         ""};
  }
  return last_error().view.code;
}

Error wrong(const char* function, const std::string& what) {
  return {Errc::invalid_argument, fmt::format("comm: {}: {}", function, what)};
}

hr_comm_code null_argument(const char* function, const char* which) {
  return failed(wrong(function, fmt::format("{} is null", which)));
}

/// The options of C as those of C++.
Result<hc::Options> options_of(const char* function, const hr_comm_options* given, bool blocking) {
  hc::Options options;
  options.blocking = blocking;
  if (given == nullptr) {
    return options;
  }
  if (given->struct_bytes != sizeof(hr_comm_options)) {
    return wrong(function, fmt::format("options.struct_bytes is {}; begin with HR_COMM_OPTIONS",
                                       given->struct_bytes));
  }
  if (given->name != nullptr) {
    options.name = given->name;
  }
  options.prescale = given->prescale;
  options.postscale = given->postscale;
  if (given->timeout_ms > 0) {
    options.timeout = std::chrono::milliseconds(given->timeout_ms);
  }
  return options;
}

Result<Dtype> dtype_of(const char* function, hr_comm_dtype dtype) {
  if (dtype < 0 || dtype >= headrace::kDtypes) {
    return wrong(function, fmt::format("there is no element type {}", dtype));
  }
  return static_cast<Dtype>(dtype);
}

Result<hc::ConstBuffer> buffer_of(const char* function, const hr_comm_in& in) {
  HR_TRY(const Dtype dtype, dtype_of(function, in.dtype));
  return hc::ConstBuffer(in.data, in.count, dtype);
}

Result<hc::Buffer> buffer_of(const char* function, const hr_comm_out& out) {
  HR_TRY(const Dtype dtype, dtype_of(function, out.dtype));
  return hc::Buffer{out.data, out.count, dtype};
}

Result<hc::Op> op_of(const char* function, hr_comm_op op) {
  if (op < 0 || op > HR_COMM_BXOR) {
    return wrong(function, fmt::format("there is no reduction {}", op));
  }
  return static_cast<hc::Op>(op);
}

Result<hc::ProcessSet*> set_of(const char* function, const hr_comm_set* set) {
  if (set == nullptr || set->set == nullptr) {
    return wrong(function, set == nullptr
                               ? "the set is null (split gives null for a negative color)"
                               : "the context of the set was freed");
  }
  return set->set;
}

/// One collective: `submit(set, options)` gives its Work or what is wrong with the arguments.
template <typename Submit>
hr_comm_code collective(const char* function, hr_comm_set* handle, const hr_comm_options* given,
                        hr_comm_work** out, Submit submit) noexcept {
  return guarded([&]() -> hr_comm_code {
    if (out != nullptr) {
      *out = nullptr;
    }
    const auto run = [&]() -> Result<void> {
      HR_TRY(hc::ProcessSet* const set, set_of(function, handle));
      HR_TRY(const hc::Options options, options_of(function, given, out == nullptr));
      auto keeper = out == nullptr ? nullptr : std::make_unique<hr_comm_work>();
      HR_TRY(hc::Work work, submit(*set, options));
      if (out == nullptr || work.done()) {
        HR_TRY(work.wait());
      }
      if (out != nullptr) {
        keeper->work = std::move(work);
        *out = keeper.release();
      }
      return {};
    };
    return ended(run());
  });
}

/// The same for those with buffers on both sides: `submit(set, from, to, options)`.
template <typename Submit>
hr_comm_code with_buffers(const char* function, hr_comm_set* set, const hr_comm_in& in,
                          const hr_comm_out& out, const hr_comm_options* options,
                          hr_comm_work** work, Submit submit) noexcept {
  return collective(function, set, options, work,
                    [&](hc::ProcessSet& on, const hc::Options& how) -> Result<hc::Work> {
                      HR_TRY(const auto from, buffer_of(function, in));
                      HR_TRY(const auto to, buffer_of(function, out));
                      return submit(on, from, to, how);
                    });
}

Result<std::span<const uint64_t>> counts_of(const char* function, const hc::ProcessSet& set,
                                            const uint64_t* counts) {
  if (counts == nullptr) {
    return wrong(function, "the counts are null; give one for each rank of the set");
  }
  return std::span(counts, static_cast<size_t>(set.size()));
}

hc::StoreTable table_of(const hr_comm_store& store) {
  return {
      .set = [store](const std::string& key, const std::string& value) -> Result<void> {
        const int answer = store.set(store.user, key.c_str(), value.data(), value.size());
        if (answer != 0) {
          return Error{Errc::io, fmt::format("comm: the caller's store answered {} to set \"{}\"",
                                             answer, key)};
        }
        return {};
      },
      .get = [store](const std::string& key,
                     headrace::base::Deadline deadline) -> Result<std::string> {
        hr_comm_value value;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
        const int answer = store.get(store.user, key.c_str(), left, &value);
        if (answer == 0 && value.given) {
          return std::move(value.bytes);
        }
        if (answer == 1) {
          return Error{Errc::timeout,
                       fmt::format("comm: the caller's store has no \"{}\" yet", key)};
        }
        return Error{Errc::io,
                     answer == 0 ? fmt::format("comm: the caller's store answered 0 to get \"{}\" "
                                               "and did not call hr_comm_value_set",
                                               key)
                                 : fmt::format("comm: the caller's store answered {} to get \"{}\"",
                                               answer, key)};
      },
  };
}

void give(std::unique_ptr<hc::Context> context, const hc::Place& place, hr_comm_context** out) {
  auto handle = std::make_unique<hr_comm_context>();
  handle->context = std::move(context);
  handle->place = place;
  handle->world.context = handle.get();
  handle->world.set = &handle->context->world();
  *out = handle.release();
}

}  // namespace

const hr_comm_error* hr_comm_last_error(void) { return &last_error().view; }

const char* hr_comm_code_name(hr_comm_code code) {
  if (code == HR_COMM_OK) {
    return "ok";
  }
  // The names are literals, so they end in a zero byte.
  return code > 0 && code <= HR_COMM_INTERNAL
             ? headrace::errc_name(static_cast<Errc>(code - 1)).data()
             : "";
}

void hr_comm_value_set(hr_comm_value* value, const void* data, size_t bytes) {
  value->given = guarded([&]() -> hr_comm_code {
                   value->bytes.assign(static_cast<const char*>(data), bytes);
                   return HR_COMM_OK;
                 }) == HR_COMM_OK;
}

hr_comm_code hr_comm_join(int64_t timeout_ms, hr_comm_context** context) {
  return guarded([&]() -> hr_comm_code {
    if (context == nullptr) {
      return null_argument("hr_comm_join", "the place for the context");
    }
    *context = nullptr;
    hc::JoinOptions options;
    if (timeout_ms > 0) {
      options.timeout = std::chrono::milliseconds(timeout_ms);
    }
    auto joined = hc::join_job(options);
    if (!joined.ok()) {
      return failed(joined.error());
    }
    give(std::move(joined->context), joined->place, context);
    return HR_COMM_OK;
  });
}

hr_comm_code hr_comm_init(const hr_comm_config* config, const hr_comm_store* store,
                          hr_comm_context** context) {
  return guarded([&]() -> hr_comm_code {
    if (context == nullptr) {
      return null_argument("hr_comm_init", "the place for the context");
    }
    *context = nullptr;
    if (config == nullptr || config->struct_bytes != sizeof(hr_comm_config)) {
      return failed(
          wrong("hr_comm_init", "the config is not of this library; begin with HR_COMM_CONFIG"));
    }
    if (store == nullptr || store->set == nullptr || store->get == nullptr) {
      return failed(wrong("hr_comm_init", "the store has no set or no get function"));
    }
    hc::Config wanted;
    wanted.rank = config->rank;
    wanted.world_size = config->world_size;
    wanted.job = config->job == nullptr ? wanted.job : config->job;
    wanted.generation = config->generation;
    wanted.timeout = std::chrono::milliseconds(config->timeout_ms);
    wanted.init_timeout = std::chrono::milliseconds(config->init_timeout_ms);
    auto made = hc::Context::init(wanted, table_of(*store));
    if (!made.ok()) {
      return failed(made.error());
    }
    const hc::Place place = hc::place_of({}, (*made)->topology(), wanted.rank);
    give(*std::move(made), place, context);
    return HR_COMM_OK;
  });
}

void hr_comm_free(hr_comm_context* context) {
  if (context == nullptr) {
    return;
  }
  {
    const headrace::base::MutexLock lock(context->mutex);
    for (hr_comm_set* set : context->sets) {
      set->owned.reset();
      set->set = nullptr;
      set->context = nullptr;
    }
  }
  delete context;
}

hr_comm_code hr_comm_place_of(const hr_comm_context* context, hr_comm_place* place) {
  if (context == nullptr || place == nullptr) {
    return null_argument("hr_comm_place_of", context == nullptr ? "the context" : "the place");
  }
  const hc::Place& known = context->place;
  *place = {known.rank,       known.size,       known.local_rank,
            known.local_size, known.cross_rank, known.cross_size};
  return HR_COMM_OK;
}

hr_comm_code hr_comm_flight_record(const hr_comm_context* context, const char** text) {
  return guarded([&]() -> hr_comm_code {
    if (context == nullptr || text == nullptr) {
      return failed(wrong("hr_comm_flight_record", "no context, or nowhere to put the text"));
    }
    thread_local std::string record;
    record = context->context->flight_record();
    *text = record.c_str();
    return HR_COMM_OK;
  });
}

hr_comm_set* hr_comm_world(hr_comm_context* context) {
  return context == nullptr ? nullptr : &context->world;
}

hr_comm_code hr_comm_split(hr_comm_set* parent, int32_t color, int32_t key, hr_comm_set** set) {
  return guarded([&]() -> hr_comm_code {
    if (set == nullptr) {
      return null_argument("hr_comm_split", "the place for the set");
    }
    *set = nullptr;
    const auto run = [&]() -> Result<void> {
      HR_TRY(hc::ProcessSet* const from, set_of("hr_comm_split", parent));
      auto handle = std::make_unique<hr_comm_set>();
      hr_comm_context* const context = parent->context;
      HR_TRY(handle->owned, context->context->split(*from, color, key));
      if (handle->owned != nullptr) {
        handle->context = context;
        handle->set = handle->owned.get();
        const headrace::base::MutexLock lock(context->mutex);
        context->sets.insert(handle.get());
        *set = handle.release();
      }
      return {};
    };
    return ended(run());
  });
}

void hr_comm_set_free(hr_comm_set* set) {
  if (set == nullptr || (set->set != nullptr && set->owned == nullptr)) {
    return;  // the world goes with its context
  }
  if (set->context != nullptr) {
    const headrace::base::MutexLock lock(set->context->mutex);
    set->context->sets.erase(set);
  }
  delete set;
}

int32_t hr_comm_rank(const hr_comm_set* set) {
  return set == nullptr || set->set == nullptr ? -1 : set->set->rank();
}

int32_t hr_comm_size(const hr_comm_set* set) {
  return set == nullptr || set->set == nullptr ? -1 : set->set->size();
}

hr_comm_code hr_comm_world_ranks(const hr_comm_set* set, int32_t* ranks, uint64_t count) {
  return guarded([&]() -> hr_comm_code {
    const auto found = set_of("hr_comm_world_ranks", set);
    if (!found.ok()) {
      return failed(found.error());
    }
    const auto all = (*found)->world_ranks();
    if (ranks == nullptr) {
      return null_argument("hr_comm_world_ranks", "the place for the ranks");
    }
    if (count != all.size()) {
      return failed(wrong("hr_comm_world_ranks",
                          fmt::format("room for {} ranks, the set has {}", count, all.size())));
    }
    std::copy(all.begin(), all.end(), ranks);
    return HR_COMM_OK;
  });
}

hr_comm_code hr_comm_abort(hr_comm_set* set, const char* reason) {
  return guarded([&]() -> hr_comm_code {
    const auto found = set_of("hr_comm_abort", set);
    if (!found.ok()) {
      return failed(found.error());
    }
    (*found)->abort(reason == nullptr ? "" : reason);
    return HR_COMM_OK;
  });
}

hr_comm_code hr_comm_set_failure(const hr_comm_set* set) {
  return guarded([&]() -> hr_comm_code {
    const auto found = set_of("hr_comm_set_failure", set);
    if (!found.ok()) {
      return failed(found.error());
    }
    const auto failure = (*found)->failure();
    return failure ? failed(*failure) : HR_COMM_OK;
  });
}

hr_comm_code hr_comm_all_reduce(hr_comm_set* set, hr_comm_in in, hr_comm_out out, hr_comm_op op,
                                const hr_comm_options* options, hr_comm_work** work) {
  return with_buffers("hr_comm_all_reduce", set, in, out, options, work,
                      [&](hc::ProcessSet& on, const auto& from, const auto& to,
                          const hc::Options& how) -> Result<hc::Work> {
                        HR_TRY(const auto reduction, op_of("hr_comm_all_reduce", op));
                        return on.all_reduce(from, to, reduction, how);
                      });
}

hr_comm_code hr_comm_reduce(hr_comm_set* set, hr_comm_in in, hr_comm_out out, int32_t root,
                            hr_comm_op op, const hr_comm_options* options, hr_comm_work** work) {
  return with_buffers("hr_comm_reduce", set, in, out, options, work,
                      [&](hc::ProcessSet& on, const auto& from, const auto& to,
                          const hc::Options& how) -> Result<hc::Work> {
                        HR_TRY(const auto reduction, op_of("hr_comm_reduce", op));
                        return on.reduce(from, to, root, reduction, how);
                      });
}

hr_comm_code hr_comm_broadcast(hr_comm_set* set, hr_comm_out inout, int32_t root,
                               const hr_comm_options* options, hr_comm_work** work) {
  const hr_comm_in in = {inout.data, inout.count, inout.dtype};
  return with_buffers(
      "hr_comm_broadcast", set, in, inout, options, work,
      [&](hc::ProcessSet& on, const auto&, const auto& to,
          const hc::Options& how) -> Result<hc::Work> { return on.broadcast(to, root, how); });
}

hr_comm_code hr_comm_all_gather(hr_comm_set* set, hr_comm_in in, hr_comm_out out,
                                const hr_comm_options* options, hr_comm_work** work) {
  return with_buffers(
      "hr_comm_all_gather", set, in, out, options, work,
      [&](hc::ProcessSet& on, const auto& from, const auto& to,
          const hc::Options& how) -> Result<hc::Work> { return on.all_gather(from, to, how); });
}

hr_comm_code hr_comm_all_gather_v(hr_comm_set* set, hr_comm_in in, const uint64_t* counts,
                                  hr_comm_out out, const hr_comm_options* options,
                                  hr_comm_work** work) {
  return with_buffers("hr_comm_all_gather_v", set, in, out, options, work,
                      [&](hc::ProcessSet& on, const auto& from, const auto& to,
                          const hc::Options& how) -> Result<hc::Work> {
                        HR_TRY(const auto each, counts_of("hr_comm_all_gather_v", on, counts));
                        return on.all_gather_v(from, each, to, how);
                      });
}

hr_comm_code hr_comm_reduce_scatter(hr_comm_set* set, hr_comm_in in, hr_comm_out out, hr_comm_op op,
                                    const hr_comm_options* options, hr_comm_work** work) {
  return with_buffers("hr_comm_reduce_scatter", set, in, out, options, work,
                      [&](hc::ProcessSet& on, const auto& from, const auto& to,
                          const hc::Options& how) -> Result<hc::Work> {
                        HR_TRY(const auto reduction, op_of("hr_comm_reduce_scatter", op));
                        return on.reduce_scatter(from, to, reduction, how);
                      });
}

hr_comm_code hr_comm_reduce_scatter_v(hr_comm_set* set, hr_comm_in in, const uint64_t* counts,
                                      hr_comm_out out, hr_comm_op op,
                                      const hr_comm_options* options, hr_comm_work** work) {
  return with_buffers("hr_comm_reduce_scatter_v", set, in, out, options, work,
                      [&](hc::ProcessSet& on, const auto& from, const auto& to,
                          const hc::Options& how) -> Result<hc::Work> {
                        HR_TRY(const auto each, counts_of("hr_comm_reduce_scatter_v", on, counts));
                        HR_TRY(const auto reduction, op_of("hr_comm_reduce_scatter_v", op));
                        return on.reduce_scatter_v(from, each, to, reduction, how);
                      });
}

hr_comm_code hr_comm_all_to_all(hr_comm_set* set, hr_comm_in in, hr_comm_out out,
                                const hr_comm_options* options, hr_comm_work** work) {
  return with_buffers(
      "hr_comm_all_to_all", set, in, out, options, work,
      [&](hc::ProcessSet& on, const auto& from, const auto& to,
          const hc::Options& how) -> Result<hc::Work> { return on.all_to_all(from, to, how); });
}

hr_comm_code hr_comm_all_to_all_v(hr_comm_set* set, hr_comm_in in, const uint64_t* sent,
                                  hr_comm_out out, const uint64_t* received,
                                  const hr_comm_options* options, hr_comm_work** work) {
  return with_buffers("hr_comm_all_to_all_v", set, in, out, options, work,
                      [&](hc::ProcessSet& on, const auto& from, const auto& to,
                          const hc::Options& how) -> Result<hc::Work> {
                        HR_TRY(const auto there, counts_of("hr_comm_all_to_all_v", on, sent));
                        HR_TRY(const auto back, counts_of("hr_comm_all_to_all_v", on, received));
                        return on.all_to_all_v(from, there, to, back, how);
                      });
}

hr_comm_code hr_comm_gather(hr_comm_set* set, hr_comm_in in, hr_comm_out out, int32_t root,
                            const hr_comm_options* options, hr_comm_work** work) {
  return with_buffers(
      "hr_comm_gather", set, in, out, options, work,
      [&](hc::ProcessSet& on, const auto& from, const auto& to,
          const hc::Options& how) -> Result<hc::Work> { return on.gather(from, to, root, how); });
}

hr_comm_code hr_comm_scatter(hr_comm_set* set, hr_comm_in in, hr_comm_out out, int32_t root,
                             const hr_comm_options* options, hr_comm_work** work) {
  return with_buffers(
      "hr_comm_scatter", set, in, out, options, work,
      [&](hc::ProcessSet& on, const auto& from, const auto& to,
          const hc::Options& how) -> Result<hc::Work> { return on.scatter(from, to, root, how); });
}

hr_comm_code hr_comm_barrier(hr_comm_set* set, const hr_comm_options* options,
                             hr_comm_work** work) {
  const auto submit = [&](hc::ProcessSet& on, const hc::Options& how) -> Result<hc::Work> {
    return on.barrier(how);
  };
  return collective("hr_comm_barrier", set, options, work, submit);
}

hr_comm_code hr_comm_wait(const hr_comm_work* work, int64_t limit_ms) {
  return guarded([&]() -> hr_comm_code {
    if (work == nullptr) {
      return null_argument("hr_comm_wait", "the work");
    }
    return ended(limit_ms < 0 ? work->work.wait()
                              : work->work.wait(std::chrono::milliseconds(limit_ms)));
  });
}

hr_comm_code hr_comm_test(const hr_comm_work* work, int* done) {
  return guarded([&]() -> hr_comm_code {
    if (work == nullptr || done == nullptr) {
      return null_argument("hr_comm_test", work == nullptr ? "the work" : "done");
    }
    *done = work->work.done() ? 1 : 0;
    return *done != 0 ? ended(work->work.wait()) : HR_COMM_OK;
  });
}

hr_comm_code hr_comm_on_done(const hr_comm_work* work,
                             void (*then)(void* user, hr_comm_code outcome), void* user) {
  return guarded([&]() -> hr_comm_code {
    if (work == nullptr || then == nullptr) {
      return null_argument("hr_comm_on_done", work == nullptr ? "the work" : "then");
    }
    work->work.on_done([then, user](const Result<void>& outcome) {
      then(user, guarded([&] { return ended(outcome); }));
    });
    return HR_COMM_OK;
  });
}

void hr_comm_work_free(hr_comm_work* work) { delete work; }
