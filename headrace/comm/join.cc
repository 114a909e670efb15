// SPDX-License-Identifier: Apache-2.0
// Meeting the other ranks in the store that the environment names.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "headrace/base/environment.h"
#include "headrace/base/thread.h"
#include "headrace/comm/environment.h"
#include "headrace/comm/settings.h"
#include "headrace/wire/secret.h"
#include "headrace/wire/store_client.h"
#include "headrace/wire/store_server.h"

namespace headrace::comm {

namespace {

/// What outlives a context: how often each world was joined, so that the n-th join of one rank
/// meets the n-th of the others, and the store that rank 0 serves, which a rank that is ahead uses
/// for its next join while this one still closes the last.
class Process {
 public:
  static Process& instance() {
    // Never destroyed: threads may still be in it while the process ends.
    static auto* const process = new Process();
    return *process;
  }

  uint64_t next_generation(const std::string& world) HR_EXCLUDES(mu_) {
    const base::MutexLock lock(mu_);
    return ++generations_[world];
  }

  Result<void> serve(const JobEnvironment& environment, const wire::Secret* secret)
      HR_EXCLUDES(mu_) {
    const base::MutexLock lock(mu_);
    if (servers_.contains(environment.store.text())) {
      return {};
    }
    wire::StoreServerOptions options;
    options.endpoint = environment.store;
    if (options.endpoint.kind == wire::Endpoint::Kind::tcp) {
      // The name that others know this host by may be any of its addresses.
      options.endpoint.host = options.endpoint.is_loopback() ? "127.0.0.1" : "0.0.0.0";
    }
    options.job_id = environment.job;
    options.secret = secret;
    options.insecure = environment.insecure;
    HR_TRY(auto server, wire::StoreServer::start(options),
           "comm: serving the store of the job as rank 0");
    servers_.emplace(environment.store.text(), std::move(server));
    return {};
  }

  /// The secret of a descriptor can be read once only.
  Result<std::optional<wire::Secret>> secret(const JobEnvironment& environment) HR_EXCLUDES(mu_) {
    if (!environment.secret_file.empty()) {
      HR_TRY(auto secret, wire::Secret::read_file(environment.secret_file),
             "comm: HEADRACE_SECRET_FILE");
      return std::optional<wire::Secret>(std::move(secret));
    }
    const base::MutexLock lock(mu_);
    if (environment.secret_descriptor && !secret_) {
      if (descriptor_tried_) {
        return Error{Errc::invalid_argument,
                     "comm: HEADRACE_SECRET_FD gave no secret before, and is read once only; start "
                     "this process anew with a descriptor of the job's secret"};
      }
      // Whatever comes of it: the number is closed then, and may soon be another file's.
      descriptor_tried_ = true;
      HR_TRY(secret_, wire::Secret::read_descriptor(base::Fd(*environment.secret_descriptor)),
             "comm: HEADRACE_SECRET_FD");
    }
    return secret_ ? std::optional<wire::Secret>(secret_->copy()) : std::nullopt;
  }

 private:
  base::Mutex mu_;
  std::map<std::string, uint64_t> generations_ HR_GUARDED_BY(mu_);
  std::map<std::string, std::unique_ptr<wire::StoreServer>> servers_ HR_GUARDED_BY(mu_);
  std::optional<wire::Secret> secret_ HR_GUARDED_BY(mu_);
  bool descriptor_tried_ HR_GUARDED_BY(mu_) = false;
};

/// A look after the deadline still takes a moment.
constexpr base::Micros kLook = std::chrono::seconds(2);

StoreTable table_of(wire::StoreClient* client) {
  return {
      .set = [client](const std::string& key, const std::string& value) -> Result<void> {
        return client->set(key, value, base::Deadline::in(std::chrono::seconds(30)));
      },
      .get = [client](const std::string& key, base::Deadline deadline) -> Result<std::string> {
        if (!deadline.passed()) {
          HR_TRY(client->wait(std::span(&key, 1), deadline));
        }
        HR_TRY(auto value, client->get(key, base::Deadline::in(kLook)));
        if (!value) {
          return Error{Errc::timeout, "the store has no " + key};
        }
        return *std::move(value);
      },
  };
}

/// A world of one needs nobody.
StoreTable own_table(std::map<std::string, std::string>* values) {
  return {
      .set = [values](const std::string& key, const std::string& value) -> Result<void> {
        (*values)[key] = value;
        return {};
      },
      .get = [values](const std::string& key, base::Deadline) -> Result<std::string> {
        const auto found = values->find(key);
        if (found == values->end()) {
          return Error{Errc::timeout, "the store has no " + key};
        }
        return found->second;
      },
  };
}

/// Make `config` of the environment and the ranks that take part.
Result<Config> config_of(const JobEnvironment& environment, const JoinOptions& options) {
  Config config;
  config.rank = environment.rank;
  config.world_size = environment.size;
  config.job = environment.job.empty() ? "headrace" : environment.job;
  config.timeout = options.timeout;
  config.init_timeout = options.start_timeout.value_or(environment.start_timeout);
  const std::vector<int>& ranks = options.ranks;
  if (ranks.empty()) {
    return config;
  }
  const bool ascending =
      std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  if (!ascending || ranks.front() < 0 || ranks.back() >= environment.size) {
    return Error{Errc::invalid_argument,
                 fmt::format("comm: the ranks [{}] are not ascending numbers from 0 to {}",
                             fmt::join(ranks, ", "), environment.size - 1)};
  }
  const auto own = std::find(ranks.begin(), ranks.end(), environment.rank);
  if (own == ranks.end()) {
    return Error{Errc::invalid_argument,
                 fmt::format("comm: rank {} is not among the ranks [{}] that form the world; only "
                             "those may join it",
                             environment.rank, fmt::join(ranks, ", "))};
  }
  if (std::ssize(ranks) != environment.size) {
    config.job += fmt::format("/of/{}", fmt::join(ranks, "."));
  }
  config.rank = static_cast<int>(own - ranks.begin());
  config.world_size = static_cast<int>(ranks.size());
  return config;
}

}  // namespace

Result<Joined> join_job(const JoinOptions& options) {
  HR_TRY(auto environment, read_job_environment(base::environment));
  HR_TRY(Config config, config_of(environment, options));
  HR_TRY(read_settings(base::whole_environment(), &config));
  config.generation = Process::instance().next_generation(config.job);
  observe_process(&config);
  Joined joined;
  if (environment.size == 1 || (config.world_size == 1 && environment.starter == Starter::nobody)) {
    std::map<std::string, std::string> values;
    HR_TRY(joined.context, Context::init(config, own_table(&values)));
  } else {
    HR_TRY(const auto secret, Process::instance().secret(environment));
    if (secret) {
      config.secret = std::make_shared<const wire::Secret>(secret->copy());
    }
    if (environment.serves_store) {
      HR_TRY(Process::instance().serve(environment, secret ? &*secret : nullptr));
    }
    auto client = wire::StoreClient::connect({.endpoint = environment.store,
                                              .job_id = environment.job,
                                              .secret = secret ? &*secret : nullptr,
                                              .insecure = environment.insecure},
                                             base::Deadline::in(config.init_timeout));
    if (!client.ok()) {
      return client.error().add_context(
          fmt::format("comm: rank {} of {} cannot reach the store of the job, which {} serves; see "
                      "its output",
                      environment.rank, environment.size,
                      environment.starter == Starter::headrace ? "the launcher" : "rank 0"));
    }
    auto context = Context::init(config, table_of(&*client));
    if (!context.ok() && context.error().code() == Errc::timeout && !options.start_timeout) {
      return context.error().add_note(
          "the limit is --start-timeout of headrace run, or HEADRACE_START_TIMEOUT");
    }
    HR_TRY(joined.context, std::move(context));
  }
  joined.place = place_of(environment, joined.context->topology(), config.rank);
  joined.environment = std::move(environment);
  return joined;
}

}  // namespace headrace::comm
