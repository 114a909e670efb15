// SPDX-License-Identifier: Apache-2.0
// Collectives paired by name, for Python: the fronts after Horovod's manner are made of these.
#include "python/src/comm.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "headrace/comm/named_set.h"

namespace headrace::python {

namespace {

namespace hc = headrace::comm;

using SetHolder = Held<hc::NamedSet>;
using Numbers = std::vector<int64_t>;

/// The context goes after the set, which needs it.
struct PyNamedSet {
  ContextHolder context;
  hc::NamedOptions options;
  SetHolder set;

  hc::NamedSet& open() const {
    if (!set) {
      throw Raised(Error{Errc::cancelled, "comm: the process set is closed"});
    }
    return *set;
  }
};

struct PyTimeline {
  std::shared_ptr<hc::Timeline> timeline;
};

/// The context goes after the work, which may hold a new set.
struct PyNamedWork {
  ContextHolder context;
  hc::NamedWork work;
  hc::NamedOptions options;
};

/// log, folder, warm-up samples, steps a sample, samples at most, fixed fusion, fixed cycle
using Autotune = std::tuple<std::string, std::string, int, int, int, bool, bool>;

hc::AutotuneOptions autotune_of(const Autotune& given, bool cache_enabled) {
  const auto& [log, folder, warmup, steps, most, fusion_fixed, cycle_fixed] = given;
  return {.warmup_samples = warmup,
          .steps_per_sample = steps,
          .samples_most = most,
          .fusion_fixed = fusion_fixed,
          .cycle_fixed = cycle_fixed,
          .cache_enabled = cache_enabled,
          .log = log,
          .folder = folder};
}

/// name, dtype, shape, input, output, op, prescale, postscale, root, splits
using Member = std::tuple<std::string, std::string, Numbers, uintptr_t, uintptr_t,
                          std::optional<hc::Op>, double, double, int, Numbers>;
/// What NamedSet.prepare made, input, output
using Prepared = std::tuple<const struct PyNamedTensor*, uintptr_t, uintptr_t>;

struct PyNamedTensor {
  std::shared_ptr<const hc::NamedTensor> tensor;
};

hc::NamedKind kind_of(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(hc::NamedKind::barrier); ++i) {
    if (hc::named_kind_name(static_cast<hc::NamedKind>(i)) == name) {
      return static_cast<hc::NamedKind>(i);
    }
  }
  throw Raised(Error{Errc::invalid_argument, "comm: no kind of operation is called " + name});
}

std::shared_ptr<const hc::NamedTensor> prepare(const hc::NamedSet& set, hc::NamedKind kind,
                                               Member member, const std::string& group = {},
                                               uint32_t group_size = 0) {
  auto& [name, dtype, shape, input, output, op, prescale, postscale, root, splits] = member;
  const auto type = dtype_of_name(dtype);
  if (!type) {
    throw Raised(Error{Errc::invalid_argument,
                       "comm: " + name + ": Tensor type " + dtype + " is not supported"});
  }
  hc::Request request;
  request.kind = kind;
  request.dtype = *type;
  request.op = op.value_or(hc::Op::sum);
  request.root = root;
  request.prescale = prescale;
  request.postscale = postscale;
  request.shape = std::move(shape);
  request.splits = std::move(splits);
  request.group = group;
  request.group_size = group_size;
  return or_throw(set.prepare(std::move(name), std::move(request)));
}

hc::NamedCall call_of(std::shared_ptr<const hc::NamedTensor> tensor, uintptr_t input,
                      uintptr_t output) {
  return {std::move(tensor), reinterpret_cast<const void*>(input), reinterpret_cast<void*>(output)};
}

PyNamedWork submit(const PyNamedSet& set, hc::NamedCall call) {
  return {set.context, or_throw(set.open().submit(std::move(call))), set.options};
}

std::vector<PyNamedWork> submit_all(const PyNamedSet& set, std::vector<hc::NamedCall> calls) {
  std::vector<PyNamedWork> works;
  for (auto& work : or_throw(set.open().submit_all(std::move(calls)))) {
    works.push_back({set.context, std::move(work), set.options});
  }
  return works;
}

/// Operations without a tensor.
PyNamedWork submit_bare(const PyNamedSet& set, hc::NamedKind kind, std::string name,
                        Numbers ranks) {
  hc::Request request;
  request.kind = kind;
  request.splits = std::move(ranks);
  return submit(set, {or_throw(set.open().prepare(std::move(name), std::move(request)))});
}

/// Waits in slices, for Ctrl-C.
void wait(const PyNamedWork& self, std::optional<double> limit) {
  constexpr std::chrono::milliseconds kSlice{100};
  const auto deadline =
      limit ? base::Deadline::in(milliseconds_of(*limit)) : base::Deadline::never();
  while (true) {
    Result<void> how;
    const bool is_last = deadline.left() <= kSlice;
    {
      const nb::gil_scoped_release release;
      how = self.work.wait(
          is_last ? std::chrono::duration_cast<std::chrono::milliseconds>(deadline.left())
                  : kSlice);
    }
    if (self.work.done()) {
      return or_throw(std::move(how));
    }
    if (is_last) {
      throw Raised(Error{Errc::timeout, "comm: the operation is not done after " +
                                            std::to_string(*limit) + " s; it goes on"});
    }
    if (PyErr_CheckSignals() != 0) {
      throw nb::python_error();
    }
  }
}

nb::object output(const PyNamedWork& self) {
  const auto bytes = self.work.output();
  if (bytes.data() == nullptr) {
    return nb::none();
  }
  const nb::capsule owner(new hc::NamedWork(self.work),
                          [](void* work) noexcept { delete static_cast<hc::NamedWork*>(work); });
  return nb::cast(nb::ndarray<nb::memview, uint8_t>(bytes.data(), {bytes.size()}, owner));
}

void bind_work(nb::module_& m) {
  nb::class_<PyNamedWork>(m, "NamedWork", "An operation of a NamedSet on its way.")
      .def("done", [](const PyNamedWork& self) { return self.work.done(); })
      .def("wait", &wait, "limit"_a = nb::none(),
           "Wait until it is done and raise its error, if it has one.")
      .def("error",
           [](const PyNamedWork& self) -> nb::object {
             const auto how = self.work.done() ? self.work.wait() : Result<void>();
             return how.ok() ? nb::object(nb::none()) : exception_of(how.error());
           })
      .def_prop_ro("output", &output, "Memory that the operation made for its output, or None.")
      .def_prop_ro("rows", [](const PyNamedWork& self) { return self.work.rows(); })
      .def_prop_ro("received_splits",
                   [](const PyNamedWork& self) { return self.work.received_splits(); })
      .def_prop_ro("last_joined", [](const PyNamedWork& self) { return self.work.last_joined(); })
      .def("take_new_set", [](const PyNamedWork& self) -> nb::object {
        auto fresh = self.work.take_new_set();
        if (fresh == nullptr) {
          return nb::none();
        }
        return nb::cast(PyNamedSet{
            self.context, self.options,
            SetHolder(hc::NamedSet::make(*self.context, std::move(fresh), self.options))});
      });
}

void bind_timeline(nb::module_& m) {
  nb::class_<PyTimeline>(m, "Timeline", "A file of Chrome trace events.")
      .def(
          "__init__",
          [](PyTimeline* self, const std::string& path, int rank, bool mark_cycles,
             uint64_t max_bytes) {
            new (self) PyTimeline{or_throw(hc::Timeline::open(
                {.path = path, .rank = rank, .mark_cycles = mark_cycles, .max_bytes = max_bytes}))};
          },
          "path"_a, "rank"_a, "mark_cycles"_a = false, "max_bytes"_a = uint64_t{256} << 20);
}

void bind_submission(nb::class_<PyNamedSet>& set) {
  set.def_prop_ro("rank", [](const PyNamedSet& self) { return self.open().rank(); })
      .def_prop_ro("size", [](const PyNamedSet& self) { return self.open().size(); })
      .def_prop_ro("world_ranks",
                   [](const PyNamedSet& self) {
                     const auto ranks = self.open().world_ranks();
                     return std::vector<int>(ranks.begin(), ranks.end());
                   })
      .def(
          "submit",
          [](const PyNamedSet& self, const std::string& kind, std::string name, std::string dtype,
             Numbers shape, uintptr_t input, uintptr_t output, std::optional<hc::Op> op,
             double prescale, double postscale, int root, Numbers splits) {
            return submit(
                self,
                call_of(prepare(self.open(), kind_of(kind),
                                Member(std::move(name), std::move(dtype), std::move(shape), input,
                                       output, op, prescale, postscale, root, std::move(splits))),
                        input, output));
          },
          "kind"_a, "name"_a, "dtype"_a, "shape"_a, "input"_a, "output"_a, "op"_a = nb::none(),
          "prescale"_a = 1.0, "postscale"_a = 1.0, "root"_a = 0, "splits"_a = Numbers())
      .def(
          "submit_group",
          [](const PyNamedSet& self, const std::string& kind, const std::string& group,
             const std::vector<Member>& members) {
            std::vector<hc::NamedCall> calls;
            for (const Member& member : members) {
              calls.push_back(call_of(prepare(self.open(), kind_of(kind), member, group,
                                              static_cast<uint32_t>(members.size())),
                                      std::get<3>(member), std::get<4>(member)));
            }
            return submit_all(self, std::move(calls));
          },
          "kind"_a, "group"_a, "members"_a,
          "Members are tuples of what submit() takes after kind; done together, or none.");
}

void bind_prepared(nb::class_<PyNamedSet>& set) {
  set.def(
         "prepare",
         [](const PyNamedSet& self, const std::string& kind, std::string name, std::string dtype,
            Numbers shape, std::optional<hc::Op> op, double prescale, double postscale, int root,
            Numbers splits, const std::string& group, uint32_t group_size) {
           return PyNamedTensor{
               prepare(self.open(), kind_of(kind),
                       Member(std::move(name), std::move(dtype), std::move(shape), 0, 0, op,
                              prescale, postscale, root, std::move(splits)),
                       group, group_size)};
         },
         "kind"_a, "name"_a, "dtype"_a, "shape"_a, "op"_a = nb::none(), "prescale"_a = 1.0,
         "postscale"_a = 1.0, "root"_a = 0, "splits"_a = Numbers(), "group"_a = "",
         "group_size"_a = 0, "For tensors that are submitted again and again: see start().")
      .def(
          "start",
          [](const PyNamedSet& self, const PyNamedTensor& tensor, uintptr_t input,
             uintptr_t output) { return submit(self, call_of(tensor.tensor, input, output)); },
          "tensor"_a, "input"_a, "output"_a, "submit() of what prepare() made.")
      .def(
          "start_all",
          [](const PyNamedSet& self, const std::vector<Prepared>& prepared) {
            std::vector<hc::NamedCall> calls;
            for (const auto& [tensor, input, output] : prepared) {
              calls.push_back(call_of(tensor->tensor, input, output));
            }
            return submit_all(self, std::move(calls));
          },
          "tensors"_a,
          "Tuples of what start() takes; all of them, or none when a name is pending.");
}

void bind_control(nb::class_<PyNamedSet>& set) {
  set.def(
         "barrier",
         [](const PyNamedSet& self, std::string name) {
           return submit_bare(self, hc::NamedKind::barrier, std::move(name), {});
         },
         "name"_a)
      .def("join",
           [](const PyNamedSet& self) {
             return PyNamedWork{self.context, or_throw(self.open().join()), self.options};
           })
      .def(
          "add_set",
          [](const PyNamedSet& self, Numbers ranks) {
            return submit_bare(self, hc::NamedKind::add_set, "add_set", std::move(ranks));
          },
          "ranks"_a, "All ranks of the set call it with the same world ranks.")
      .def(
          "remove_set",
          [](const PyNamedSet& self, Numbers ranks) {
            return submit_bare(self, hc::NamedKind::remove_set, "remove_set", std::move(ranks));
          },
          "ranks"_a)
      .def(
          "shutdown",
          [](const PyNamedSet& self, const std::string& reason, double limit) {
            const SetHolder open = self.set;  // another thread may close it meanwhile
            if (open) {
              const nb::gil_scoped_release release;
              open->shutdown(reason, milliseconds_of(limit));
            }
          },
          "reason"_a = "", "limit"_a = 5.0)
      .def(
          "set_timeline",
          [](const PyNamedSet& self, std::optional<PyTimeline> timeline) {
            const nb::gil_scoped_release release;
            self.open().set_timeline(timeline ? timeline->timeline : nullptr);
          },
          "timeline"_a.none(), "Record what is done from now on; None: no longer.")
      .def("close", [](PyNamedSet& self) { self.set.reset(); });
}

void bind_set(nb::module_& m) {
  nb::class_<PyNamedTensor>(m, "NamedTensor", "What NamedSet.prepare() made.");
  nb::class_<PyNamedSet> set(m, "NamedSet", "Ranks whose operations are paired by name.");
  bind_submission(set);
  bind_prepared(set);
  bind_control(set);
}

}  // namespace

void bind_named(nb::module_& m, nb::class_<ContextHolder>& context) {
  bind_work(m);
  bind_timeline(m);
  bind_set(m);
  context.def(
      "named",
      [](const ContextHolder& self, double cycle_time, uint64_t fusion_bytes,
         uint32_t cache_capacity, bool group_fusion, double stall_warn, double stall_fail,
         bool join_active, int core, const std::optional<Autotune>& autotune) {
        hc::NamedOptions options = {
            .cycle_time = std::chrono::microseconds(static_cast<int64_t>(cycle_time * 1e6)),
            .fusion_bytes = fusion_bytes,
            .cache_capacity = cache_capacity,
            .group_fusion = group_fusion,
            .stall_warn = milliseconds_of(stall_warn),
            .stall_fail = milliseconds_of(stall_fail),
            .join_active = join_active,
            .core = core};
        std::optional<Result<std::unique_ptr<hc::ProcessSet>>> set;
        {
          const nb::gil_scoped_release release;
          set = self->split(self->world(), 0, self->world().rank());
        }
        const hc::NamedOptions of_its_sets = options;
        if (autotune) {
          options.autotune = autotune_of(*autotune, cache_capacity > 0);
        }
        return PyNamedSet{self, of_its_sets,
                          SetHolder(hc::NamedSet::make(*self, or_throw(*std::move(set)), options))};
      },
      "cycle_time"_a = 0.001, "fusion_bytes"_a = uint64_t{128} << 20, "cache_capacity"_a = 1024,
      "group_fusion"_a = true, "stall_warn"_a = 60.0, "stall_fail"_a = 0.0, "join_active"_a = false,
      "core"_a = -1, "autotune"_a = nb::none(),
      "All ranks call it at the same place: a set of all ranks whose operations have names.");
}

}  // namespace headrace::python
