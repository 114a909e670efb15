// SPDX-License-Identifier: Apache-2.0
// Collectives for Python: addresses, counts and types in, works out. Converts and calls; the fronts
// (headrace/torch and others) know what owns the memory and keep it alive until the work is done.
#include "python/src/comm.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/environment.h"
#include "headrace/base/thread.h"
#include "headrace/comm/context.h"
#include "headrace/comm/environment.h"
#include "headrace/comm/settings.h"

namespace headrace::python {

namespace {

namespace hc = headrace::comm;

using Counts = std::vector<uint64_t>;

/// Memory as the fronts give it: address, elements, type.
struct Memory {
  uintptr_t address = 0;
  uint64_t count = 0;
  Dtype dtype = Dtype::f32;

  hc::ConstBuffer in() const { return {reinterpret_cast<const void*>(address), count, dtype}; }
  hc::Buffer out() const { return {reinterpret_cast<void*>(address), count, dtype}; }
};

/// Ends of works by the number their front gave them. Owned by C++ alone: works that end on threads
/// of ours hold it, and what they let go of must not need the GIL.
class CompletionQueue {
 public:
  void push(int64_t number, const Result<void>& how) {
    base::MutexLock lock(mutex_);
    ended_.emplace_back(number, how.ok() ? std::nullopt : std::optional(how.error()));
    changed_.notify_all();
  }
  void close() {
    base::MutexLock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  bool closed() {
    base::MutexLock lock(mutex_);
    return closed_;
  }
  /// What has ended; waits for the first one. Empty once it is closed, or after `limit`.
  std::vector<std::pair<int64_t, std::optional<Error>>> take(std::chrono::milliseconds limit) {
    base::MutexLock lock(mutex_);
    changed_.wait_for(mutex_, limit, [this] { return closed_ || !ended_.empty(); });
    return std::exchange(ended_, {});
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  bool closed_ HR_GUARDED_BY(mutex_) = false;
  std::vector<std::pair<int64_t, std::optional<Error>>> ended_ HR_GUARDED_BY(mutex_);
};

/// For one thread of Python to take from: the GIL is taken once for all that have gathered.
struct Completions {
  std::shared_ptr<CompletionQueue> queue = std::make_shared<CompletionQueue>();
};

hc::StoreTable store_of(const nb::callable& set, const nb::callable& get) {
  // Kept by reference: init() ends before the arguments do.
  return {
      .set = [&set](const std::string& key, const std::string& value) -> Result<void> {
        const nb::gil_scoped_acquire gil;
        set(key, value);
        return {};
      },
      .get = [&get](const std::string& key, base::Deadline deadline) -> Result<std::string> {
        const nb::gil_scoped_acquire gil;
        const double seconds = static_cast<double>(deadline.left().count()) / 1e6;
        const nb::object value = get(key, seconds);
        if (value.is_none()) {
          return Error{Errc::timeout, "the store has no " + key};
        }
        return nb::cast<std::string>(value);
      },
  };
}

ContextHolder make_context(const hc::Config& config, const nb::callable& set,
                           const nb::callable& get) {
  const hc::StoreTable store = store_of(set, get);
  std::optional<Result<std::unique_ptr<hc::Context>>> made;
  {
    const nb::gil_scoped_release release;
    made = hc::Context::init(config, store);
  }
  return ContextHolder(or_throw(*std::move(made)));
}

hc::Options options_of(const std::string& name, bool blocking, std::optional<double> timeout,
                       double prescale = 1.0, double postscale = 1.0) {
  return {.name = name,
          .prescale = prescale,
          .postscale = postscale,
          .timeout = optional_milliseconds(timeout),
          .blocking = blocking};
}

using Set = hc::ProcessSet;
using Timeout = std::optional<double>;

void bind_reductions(nb::class_<Set>& set) {
  const auto keywords = [&set](const char* name, auto method) {
    set.def(name, method, "input"_a, "output"_a, "op"_a, "name"_a = "", "blocking"_a = true,
            "timeout"_a = nb::none(), "prescale"_a = 1.0, "postscale"_a = 1.0, release_gil());
  };
  keywords("all_reduce",
           [](Set& s, const Memory& in, const Memory& out, hc::Op op, const std::string& name,
              bool blocking, Timeout timeout, double prescale, double postscale) {
             return s.all_reduce(in.in(), out.out(), op,
                                 options_of(name, blocking, timeout, prescale, postscale));
           });
  keywords("reduce_scatter",
           [](Set& s, const Memory& in, const Memory& out, hc::Op op, const std::string& name,
              bool blocking, Timeout timeout, double prescale, double postscale) {
             return s.reduce_scatter(in.in(), out.out(), op,
                                     options_of(name, blocking, timeout, prescale, postscale));
           });
  set.def(
         "reduce_scatter_v",
         [](Set& s, const Memory& in, const Counts& counts, const Memory& out, hc::Op op,
            const std::string& name, bool blocking, Timeout timeout, double prescale,
            double postscale) {
           return s.reduce_scatter_v(in.in(), counts, out.out(), op,
                                     options_of(name, blocking, timeout, prescale, postscale));
         },
         "input"_a, "counts"_a, "output"_a, "op"_a, "name"_a = "", "blocking"_a = true,
         "timeout"_a = nb::none(), "prescale"_a = 1.0, "postscale"_a = 1.0, release_gil())
      .def(
          "reduce",
          [](Set& s, const Memory& in, const Memory& out, int root, hc::Op op,
             const std::string& name, bool blocking, Timeout timeout, double prescale,
             double postscale) {
            return s.reduce(in.in(), out.out(), root, op,
                            options_of(name, blocking, timeout, prescale, postscale));
          },
          "input"_a, "output"_a, "root"_a, "op"_a, "name"_a = "", "blocking"_a = true,
          "timeout"_a = nb::none(), "prescale"_a = 1.0, "postscale"_a = 1.0, release_gil());
}

void bind_movements(nb::class_<Set>& set) {
  set.def(
         "broadcast",
         [](Set& s, const Memory& inout, int root, const std::string& name, bool blocking,
            Timeout timeout) {
           return s.broadcast(inout.out(), root, options_of(name, blocking, timeout));
         },
         "inout"_a, "root"_a, "name"_a = "", "blocking"_a = true, "timeout"_a = nb::none(),
         release_gil())
      .def(
          "all_gather",
          [](Set& s, const Memory& in, const Memory& out, const std::string& name, bool blocking,
             Timeout timeout) {
            return s.all_gather(in.in(), out.out(), options_of(name, blocking, timeout));
          },
          "input"_a, "output"_a, "name"_a = "", "blocking"_a = true, "timeout"_a = nb::none(),
          release_gil())
      .def(
          "all_gather_v",
          [](Set& s, const Memory& in, const Counts& counts, const Memory& out,
             const std::string& name, bool blocking, Timeout timeout) {
            return s.all_gather_v(in.in(), counts, out.out(), options_of(name, blocking, timeout));
          },
          "input"_a, "counts"_a, "output"_a, "name"_a = "", "blocking"_a = true,
          "timeout"_a = nb::none(), release_gil())
      .def(
          "all_to_all",
          [](Set& s, const Memory& in, const Memory& out, const std::string& name, bool blocking,
             Timeout timeout) {
            return s.all_to_all(in.in(), out.out(), options_of(name, blocking, timeout));
          },
          "input"_a, "output"_a, "name"_a = "", "blocking"_a = true, "timeout"_a = nb::none(),
          release_gil())
      .def(
          "all_to_all_v",
          [](Set& s, const Memory& in, const Counts& send, const Memory& out, const Counts& recv,
             const std::string& name, bool blocking, Timeout timeout) {
            return s.all_to_all_v(in.in(), send, out.out(), recv,
                                  options_of(name, blocking, timeout));
          },
          "input"_a, "send"_a, "output"_a, "recv"_a, "name"_a = "", "blocking"_a = true,
          "timeout"_a = nb::none(), release_gil());
}

void bind_rooted(nb::class_<Set>& set) {
  set.def(
         "gather",
         [](Set& s, const Memory& in, const Memory& out, int root, const std::string& name,
            bool blocking, Timeout timeout) {
           return s.gather(in.in(), out.out(), root, options_of(name, blocking, timeout));
         },
         "input"_a, "output"_a, "root"_a, "name"_a = "", "blocking"_a = true,
         "timeout"_a = nb::none(), release_gil())
      .def(
          "scatter",
          [](Set& s, const Memory& in, const Memory& out, int root, const std::string& name,
             bool blocking, Timeout timeout) {
            return s.scatter(in.in(), out.out(), root, options_of(name, blocking, timeout));
          },
          "input"_a, "output"_a, "root"_a, "name"_a = "", "blocking"_a = true,
          "timeout"_a = nb::none(), release_gil())
      .def(
          "barrier",
          [](Set& s, const std::string& name, bool blocking, Timeout timeout) {
            return s.barrier(options_of(name, blocking, timeout));
          },
          "name"_a = "", "blocking"_a = true, "timeout"_a = nb::none(), release_gil());
}

void bind_messages(nb::class_<Set>& set) {
  set.def(
         "send",
         [](Set& s, const Memory& in, int dst, int tag, const std::string& name, bool blocking,
            Timeout timeout) {
           return s.send(in.in(), dst, tag, options_of(name, blocking, timeout));
         },
         "input"_a, "dst"_a, "tag"_a, "name"_a = "", "blocking"_a = true, "timeout"_a = nb::none(),
         release_gil())
      .def(
          "recv",
          [](Set& s, const Memory& out, std::optional<int> src, int tag, const std::string& name,
             bool blocking, Timeout timeout) {
            return s.recv(out.out(), src.value_or(Set::any_source), tag,
                          options_of(name, blocking, timeout));
          },
          "output"_a, "src"_a.none(), "tag"_a, "name"_a = "", "blocking"_a = true,
          "timeout"_a = nb::none(), release_gil());
}

void bind_process_set(nb::module_& m) {
  nb::class_<Set> set(m, "ProcessSet", "Collectives over an ordered subset of the ranks.");
  set.def_prop_ro("rank", &Set::rank)
      .def_prop_ro("size", &Set::size)
      .def_prop_ro("world_ranks",
                   [](const Set& s) {
                     return std::vector<int>(s.world_ranks().begin(), s.world_ranks().end());
                   })
      .def(
          "abort", [](Set& s, const std::string& reason) { s.abort(reason); }, "reason"_a,
          release_gil());
  bind_reductions(set);
  bind_movements(set);
  bind_rooted(set);
  bind_messages(set);
}

void bind_work(nb::module_& m) {
  nb::class_<Completions>(m, "Completions", "Ends of works, for one thread to take.")
      .def(nb::init<>())
      .def("close", [](Completions& c) { c.queue->close(); })
      .def("closed", [](Completions& c) { return c.queue->closed(); })
      .def(
          "take",
          [](Completions& c, double limit) {
            std::vector<std::pair<int64_t, std::optional<Error>>> taken;
            {
              const nb::gil_scoped_release release;
              taken = c.queue->take(milliseconds_of(limit));
            }
            nb::list out;
            for (const auto& [number, error] : taken) {
              out.append(
                  nb::make_tuple(number, error ? exception_of(*error) : nb::object(nb::none())));
            }
            return out;
          },
          "limit"_a);
  nb::class_<hc::Work>(m, "Work", "A collective on its way.")
      .def("done", &hc::Work::done)
      .def(
          "wait",
          [](const hc::Work& work, std::optional<double> limit) {
            or_throw(work.wait(optional_milliseconds(limit)));
          },
          "limit"_a = nb::none(), release_gil())
      .def("error",
           [](const hc::Work& work) -> nb::object {
             const auto how = work.done() ? work.wait() : Result<void>();
             return how.ok() ? nb::object(nb::none()) : exception_of(how.error());
           })
      .def("sequence", &hc::Work::sequence)
      .def("source", &hc::Work::source)
      .def(
          "notify",
          [](const hc::Work& work, const Completions& to, int64_t number) {
            work.on_done(
                [queue = to.queue, number](const Result<void>& how) { queue->push(number, how); });
          },
          "completions"_a, "number"_a);
}

void bind_context(nb::module_& m) {
  nb::class_<ContextHolder> type(m, "Context", "This process as one of the ranks of a job.");
  type.def_prop_ro(
          "world", [](const ContextHolder& c) -> hc::ProcessSet& { return c->world(); },
          nb::rv_policy::reference_internal)
      .def(
          "split",
          [](ContextHolder& context, hc::ProcessSet& of, int color, int key) {
            const nb::gil_scoped_release release;
            return or_throw(context->split(of, color, key));
          },
          "parent"_a, "color"_a, "key"_a, nb::keep_alive<0, 1>())
      .def(
          "flush_metrics", [](const ContextHolder& c) { c->flush_metrics(); }, release_gil())
      .def_prop_ro("local_rank", [](const ContextHolder& c) { return c->topology().local_rank; })
      .def_prop_ro("local_size",
                   [](const ContextHolder& c) { return c->topology().local_world_size; })
      .def_prop_ro("node_rank", [](const ContextHolder& c) { return c->topology().node_rank; })
      .def_prop_ro("nodes", [](const ContextHolder& c) { return c->topology().nodes; });
  bind_named(m, type);
  m.def(
      "init",
      [](int rank, int world_size, const std::string& job, uint64_t generation, double timeout,
         double init_timeout, const nb::callable& set, const nb::callable& get,
         const std::string& transport, const std::string& node) {
        hc::Config config;
        config.rank = rank;
        config.world_size = world_size;
        config.job = job;
        config.generation = generation;
        or_throw(hc::read_settings(base::whole_environment(), &config));
        config.timeout = milliseconds_of(timeout);  // what the script says counts
        config.init_timeout = milliseconds_of(init_timeout);
        if (transport != "auto") {
          config.transport = or_throw(hc::transport_of_name(transport));
        }
        config.node = node;
        hc::observe_process(&config);
        return make_context(config, set, get);
      },
      "rank"_a, "world_size"_a, "job"_a, "generation"_a, "timeout"_a, "init_timeout"_a,
      "store_set"_a, "store_get"_a, "transport"_a = "auto", "node"_a = "");
}

}  // namespace

void bind_comm(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("comm", "Collectives; the fronts document them.");
  nb::enum_<hc::Op> op(m, "Op");
  for (int i = 0; i <= static_cast<int>(hc::Op::bxor); ++i) {
    const auto one = static_cast<hc::Op>(i);
    op.value(std::string(hc::op_name(one)).c_str(), one);
  }
  nb::class_<Memory>(m, "Memory", "Address, elements and type (numpy's name) of a buffer.")
      .def(
          "__init__",
          [](Memory* self, uintptr_t address, uint64_t count, const std::string& dtype) {
            const auto found = dtype_of_name(dtype);
            if (!found) {
              throw Raised(Error{Errc::unsupported, "comm: no collectives for type " + dtype});
            }
            new (self) Memory{address, count, *found};
          },
          "address"_a, "count"_a, "dtype"_a);
  bind_work(m);
  bind_process_set(m);
  bind_context(m);
}

}  // namespace headrace::python
