// SPDX-License-Identifier: Apache-2.0
// Joining the job that the environment names, and the launcher's store for functions that are
// called on ranks.
#include "python/src/comm.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/environment.h"
#include "headrace/base/thread.h"
#include "headrace/comm/environment.h"
#include "headrace/run/launcher.h"
#include "headrace/wire/secret.h"
#include "headrace/wire/store_client.h"

namespace headrace::python {

namespace {

namespace hc = headrace::comm;

nb::tuple join(std::vector<int> ranks, double timeout, std::optional<double> start_timeout) {
  hc::JoinOptions options;
  options.ranks = std::move(ranks);
  options.timeout = milliseconds_of(timeout);
  if (start_timeout) {
    options.start_timeout = milliseconds_of(*start_timeout);
  }
  std::optional<Result<hc::Joined>> joined;
  {
    const nb::gil_scoped_release release;
    joined = hc::join_job(options);
  }
  hc::Joined value = or_throw(*std::move(joined));
  return nb::make_tuple(nb::cast(ContextHolder(std::move(value.context))), value.place);
}

/// The launcher's store, for functions and results. The job's secret has been proved when it opens.
/// Threads may share it: each call has a connection for itself, which the next one may have then.
class JobStore {
 public:
  static JobStore open(double timeout) {
    const auto environment = or_throw(hc::read_job_environment(base::environment));
    if (environment.starter != hc::Starter::headrace) {
      throw Raised(Error{Errc::not_found, "run: this process was not started by headrace run"});
    }
    JobStore store(environment.store, environment.job,
                   or_throw(wire::Secret::read_file(environment.secret_file)));
    store.give(or_throw(store.take(base::Deadline::in(milliseconds_of(timeout)))));
    return store;
  }
  /// Only the first one counts.
  void tell_failure(int rank, const std::string& reason) {
    const auto deadline = base::Deadline::in(std::chrono::seconds(1));
    auto client = take(deadline);
    if (client.ok()) {
      static_cast<void>(client->compare_and_set(run::kFirstFailureKey, std::nullopt,
                                                std::to_string(rank) + "\n" + reason, deadline));
    }
  }
  void set(const std::string& key, const nb::bytes& value, double timeout) {
    const std::string_view bytes(value.c_str(), value.size());
    const nb::gil_scoped_release release;
    const auto deadline = base::Deadline::in(milliseconds_of(timeout));
    auto client = or_throw(take(deadline));
    or_throw(client.set(key, bytes, deadline));
    give(std::move(client));
  }
  nb::bytes get(const std::string& key, double timeout) {
    std::string value;
    {
      const nb::gil_scoped_release release;
      const auto deadline = base::Deadline::in(milliseconds_of(timeout));
      auto client = or_throw(take(deadline));
      or_throw(client.wait(std::span(&key, 1), deadline));
      value = or_throw(client.get(key, deadline)).value_or("");
      give(std::move(client));
    }
    return nb::bytes(value.data(), value.size());
  }

 private:
  struct Idle {
    base::Mutex mu;
    std::vector<wire::StoreClient> clients HR_GUARDED_BY(mu);
  };

  JobStore(wire::Endpoint endpoint, std::string job, wire::Secret secret)
      : endpoint_(std::move(endpoint)), job_(std::move(job)), secret_(std::move(secret)) {}

  Result<wire::StoreClient> take(const base::Deadline& deadline) {
    {
      const base::MutexLock lock(idle_->mu);
      if (!idle_->clients.empty()) {
        wire::StoreClient client = std::move(idle_->clients.back());
        idle_->clients.pop_back();
        return client;
      }
    }
    return wire::StoreClient::connect({.endpoint = endpoint_, .job_id = job_, .secret = &secret_},
                                      deadline);
  }
  /// Not after an error, of which the client may have something left.
  void give(wire::StoreClient client) {
    const base::MutexLock lock(idle_->mu);
    idle_->clients.push_back(std::move(client));
  }

  wire::Endpoint endpoint_;
  std::string job_;
  wire::Secret secret_;
  std::unique_ptr<Idle> idle_ = std::make_unique<Idle>();
};

}  // namespace

void bind_job(nb::module_& parent) {
  nb::module_ m = parent.attr("comm");
  nb::class_<hc::Place>(m, "Place", "Where this process is among the ranks of its job.")
      .def_ro("rank", &hc::Place::rank)
      .def_ro("size", &hc::Place::size)
      .def_ro("local_rank", &hc::Place::local_rank)
      .def_ro("local_size", &hc::Place::local_size)
      .def_ro("cross_rank", &hc::Place::cross_rank)
      .def_ro("cross_size", &hc::Place::cross_size)
      .def_ro("is_homogeneous", &hc::Place::is_homogeneous);
  nb::class_<JobStore>(m, "JobStore", "The store of the launcher that started this process.")
      .def_static("open", &JobStore::open, "timeout"_a = 30.0)
      .def("tell_failure", &JobStore::tell_failure, "rank"_a, "reason"_a, release_gil(),
           "Say that this rank is ending because of an exception; bounded, only the first counts.")
      .def("set", &JobStore::set, "key"_a, "value"_a, "timeout"_a = 60.0)
      .def("get", &JobStore::get, "key"_a, "timeout"_a = 60.0);
  m.def(
      "process_metrics", [] { return hc::process_metrics().dump(); }, release_gil(),
      "What the board of this process says, as JSON.");
  m.def("flight_records", &hc::flight_records, release_gil(),
        "What the process sets of each membership of this process did last, as JSON.");
  m.def("join", &join, "ranks"_a = std::vector<int>(), "timeout"_a = 1800.0,
        "start_timeout"_a = nb::none(),
        nb::sig("def join(ranks: Sequence[int] = [], timeout: float = 1800.0, start_timeout: float "
                "| None = None) -> tuple[Context, Place]"),
        "Become a rank of the job that the environment names.");
}

}  // namespace headrace::python
