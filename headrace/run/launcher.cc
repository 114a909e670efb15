// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/launcher.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include "headrace/base/clock.h"
#include "headrace/base/environment.h"
#include "headrace/base/log.h"
#include "headrace/base/pool.h"
#include "headrace/base/printable.h"
#include "headrace/run/guard.h"
#include "headrace/run/local_ranks.h"
#include "headrace/run/output.h"
#include "headrace/run/payload.h"
#include "headrace/run/port.h"
#include "headrace/run/remote_ranks.h"
#include "headrace/wire/interface.h"
#include "headrace/wire/secret.h"
#include "headrace/wire/store_client.h"
#include "headrace/wire/store_server.h"

namespace headrace::run {

namespace {

using base::Micros;

constexpr Millis kGrace{5000};
// For ranks that learn of another one's end, and are to write what they did last.
constexpr Millis kFlightTime{1000};
constexpr const char* kWritten[] = {"HEADRACE_COMM_FLIGHT_DIR", "HEADRACE_TIMELINE",
                                    "HOROVOD_TIMELINE"};
// A try to reach an agent, between two looks for an interrupt: it begins short, and need not be
// longer than the agent waits for a launcher to prove itself.
constexpr Millis kTryFirst{1000};
constexpr Millis kTryMost{3000};
// A host that does not tell of its ranks' ends this long after they were to be killed is given up.
constexpr Millis kGiveUp{15000};
// Functions and results of all ranks together, through this process' own store.
constexpr Millis kPayload{120000};
constexpr size_t kFunctionBytesMost = size_t{8} << 30;
// A reader that takes nothing for so long will not come back.
constexpr Millis kDrain{600000};

/// One job, from the first process to the last line.
class Job {
 public:
  explicit Job(const LaunchOptions& options)
      : options_(options), queue_(options.out_fd, options.err_fd) {}
  Result<LaunchOutcome> run();

 private:
  Result<void> prepare();
  Result<void> find_hosts();
  Result<void> check_timeline() const;
  Result<void> start_agents(const wire::Secret& token);
  Result<std::unique_ptr<RemoteRanks>> try_agent(size_t host, const wire::Secret& token,
                                                 const base::Deadline& deadline);
  Result<std::unique_ptr<RemoteRanks>> connect_agent(size_t host, const wire::Secret& token,
                                                     const base::Deadline& deadline);
  bool is_to_stop();
  Result<void> connect_agents(const wire::Secret& token);
  Result<wire::Secret> token() const;
  Result<void> serve_store();
  Result<wire::StoreClient> store_client(const base::Deadline& deadline) const;
  Result<void> offer_function();
  Result<void> take_results();
  Result<JobFacts> facts_of(const RemoteRanks* host) const;
  Result<void> start_ranks();
  Result<void> start_local();
  Result<void> start_remote();
  void loop();
  void wait_for_events();
  void pump();
  void on_end(const RankEnd& end);
  void stop(std::string_view reason);
  bool others_had_time();
  bool any_running() const;
  void drain();
  void look_for_cause();
  LaunchOutcome outcome();
  std::string ended_before_text() const;
  std::string failure_text() const;
  void say(const std::string& text) const;

  const LaunchOptions& options_;
  OutputQueue queue_;
  std::vector<Place> places_;
  std::optional<RankOutput> output_;
  std::string id_ = new_id();
  std::string secret_file_;
  std::vector<bool> is_local_;        // by host
  std::vector<RemoteRanks*> remote_;  // by host; owned by hosts_
  std::optional<Guard> guard_;
  std::optional<wire::Secret> secret_;
  std::unique_ptr<wire::StoreServer> store_;
  std::optional<ReservedPort> master_port_;
  std::vector<std::unique_ptr<SshAgent>> ssh_;  // by host
  std::vector<std::unique_ptr<RankHost>> hosts_;
  std::optional<RankEnd> first_failure_;
  std::map<int, RankEnd> failures_;  // by rank
  std::vector<int> ended_before_;    // well, before the first failure
  std::optional<Error> lost_host_;
  int stopped_by_us_ = 0;
  std::optional<base::Deadline> give_up_;
  std::optional<base::Deadline> stop_at_;  // since the first failure
  bool interrupted_ = false;
  bool owner_gone_ = false;
};

void Job::say(const std::string& text) const {
  if (options_.verbose) {
    base::log_info("run: " + text);
  }
}

/// Which of the hosts that get ranks are this machine.
Result<void> Job::find_hosts() {
  is_local_.assign(options_.hosts.size(), true);
  const base::Deadline deadline =
      base::Deadline::in(std::chrono::seconds(options_.start_timeout_s));
  for (const Place& place : places_) {
    if (place.local_rank == 0) {
      HR_TRY(const bool here, wire::is_this_machine(place.host_name, deadline),
             "run: host " + place.host_name);
      is_local_[place.host] = here;
    }
  }
  return {};
}

/// Else each rank would end on it, after its start.
Result<void> Job::check_timeline() const {
  const bool any_here = std::find(is_local_.begin(), is_local_.end(), true) != is_local_.end();
  for (const auto& [name, value] : options_.settings) {
    const base::Path folder =
        name == "HOROVOD_TIMELINE" ? base::Path(value).parent_path() : base::Path();
    std::error_code code;
    // Where the rank's number is part of the folder's name there are several.
    if (!any_here || folder.empty() || folder.string().find("%r") != std::string::npos ||
        std::filesystem::is_directory(folder, code)) {
      continue;
    }
    return Error{Errc::invalid_argument,
                 fmt::format("run: --timeline-filename {}: there is no folder {}; make it, or name "
                             "another place",
                             value, folder.string())};
  }
  return {};
}

/// What the agents of the other hosts know.
Result<wire::Secret> Job::token() const {
  if (options_.ssh.enabled) {
    return wire::Secret::generate();
  }
  if (options_.token_file.empty()) {
    return Error{Errc::invalid_argument,
                 "run: ranks on other hosts are started by agents there, and no token is given for "
                 "them: --agent-token-file FILE, with the file of `headrace agent`; or --ssh"};
  }
  HR_TRY(auto secret, wire::Secret::read_file(options_.token_file), "run: the agents' token");
  return secret;
}

/// Begin to start agents on all other hosts, at once.
Result<void> Job::start_agents(const wire::Secret& token) {
  ssh_.resize(options_.hosts.size());
  for (size_t host = 0; options_.ssh.enabled && host < ssh_.size(); ++host) {
    if (!is_local_[host]) {
      HR_TRY(ssh_[host],
             SshAgent::start(options_.hosts[host].name, options_.program, options_.ssh, token));
    }
  }
  return {};
}

/// Whether somebody asked for that while nothing runs yet; without waiting.
bool Job::is_to_stop() {
  pollfd fds[2] = {{options_.interrupt_fd, POLLIN, 0}, {options_.owner_fd, POLLIN, 0}};
  interrupted_ = interrupted_ || ::poll(fds, 2, 0) > 0;
  return interrupted_;
}

Result<std::unique_ptr<RemoteRanks>> Job::try_agent(size_t host, const wire::Secret& token,
                                                    const base::Deadline& deadline) {
  const std::string& name = options_.hosts[host].name;
  uint16_t port = options_.agent_port;
  if (ssh_[host] != nullptr) {
    HR_TRY(port, ssh_[host]->port(deadline));
  }
  return RemoteRanks::connect(name, wire::Endpoint::tcp(name, port), token, deadline);
}

/// Try until the deadline, or until somebody asks to stop.
Result<std::unique_ptr<RemoteRanks>> Job::connect_agent(size_t host, const wire::Secret& token,
                                                        const base::Deadline& deadline) {
  // An agent that ssh started may serve one launcher only: a try that is cut short would be it.
  Micros limit = ssh_[host] != nullptr ? kTryMost : kTryFirst;
  for (;;) {
    for (const auto& other : remote_) {
      if (other != nullptr) {
        static_cast<void>(other->say_alive());  // what goes wrong here start() sees as well
      }
    }
    if (is_to_stop()) {
      return Error{Errc::cancelled, "run: interrupted before any rank was started"};
    }
    // No last try that is too short to find out why.
    const Micros left = deadline.left();
    auto ranks =
        try_agent(host, token, base::Deadline::in(left < limit + kTryFirst / 2 ? left : limit));
    if (ranks.ok() || ranks.error().code() != Errc::timeout) {
      return ranks;
    }
    if (deadline.passed()) {
      return Error{Errc::timeout, fmt::format("{}; this was the last try in {} s",
                                              ranks.error().message(), options_.start_timeout_s)};
    }
    limit = std::min<Micros>(2 * limit, kTryMost);
  }
}

Result<void> Job::connect_agents(const wire::Secret& token) {
  const base::Deadline deadline =
      base::Deadline::in(std::chrono::seconds(options_.start_timeout_s));
  HR_TRY(start_agents(token));
  std::vector<std::string> missing;
  std::optional<Error> first;
  remote_.assign(options_.hosts.size(), nullptr);
  for (size_t host = 0; host < options_.hosts.size(); ++host) {
    if (is_local_[host]) {
      continue;
    }
    // Once the time is over, who else does not answer is still worth a short look.
    auto ranks = connect_agent(
        host, token, deadline.passed() ? base::Deadline::in(std::chrono::seconds(1)) : deadline);
    if (!ranks.ok() && ranks.error().code() == Errc::cancelled) {
      return ranks.error();
    }
    if (!ranks.ok()) {
      missing.push_back(options_.hosts[host].name);
      first = first ? std::move(first) : std::optional<Error>(ranks.error());
      continue;
    }
    remote_[host] = ranks->get();
    hosts_.push_back(*std::move(ranks));
  }
  if (first) {
    return Error{first->code(),
                 fmt::format("run: no agent to work with on {}: {}; {}", fmt::join(missing, ", "),
                             first->message(),
                             options_.ssh.enabled
                                 ? "ssh must get there without a question, and find headrace at "
                                   "the same path"
                                 : "start `headrace agent --token-file FILE` there, with the same "
                                   "token as here")};
  }
  return {};
}

Result<void> Job::serve_store() {
  wire::StoreServerOptions options;
  options.job_id = id_;
  options.secret = &*secret_;
  if (!options_.function_file.empty()) {
    options.limits.total_bytes_max = kFunctionBytesMost;
  }
  if (!remote_.empty()) {
    options.endpoint = wire::Endpoint::tcp("::", 0);
  }
  auto store = wire::StoreServer::start(options);
  if (!store.ok() && !remote_.empty()) {  // a machine without IPv6
    options.endpoint.host = "0.0.0.0";
    store = wire::StoreServer::start(options);
  }
  HR_TRY(store_, std::move(store), "run");
  return {};
}

/// Of this process, to its own store.
Result<wire::StoreClient> Job::store_client(const base::Deadline& deadline) const {
  return wire::StoreClient::connect(
      {.endpoint = wire::Endpoint::tcp("127.0.0.1", store_->endpoint().port),
       .job_id = id_,
       .secret = &*secret_},
      deadline);
}

Result<void> Job::offer_function() {
  if (options_.function_file.empty()) {
    return {};
  }
  const base::Deadline deadline = base::Deadline::in(kPayload);
  HR_TRY(auto store, store_client(deadline));
  return put_file(store, "run/function", options_.function_file, deadline);
}

Result<void> Job::take_results() {
  if (options_.results_folder.empty()) {
    return {};
  }
  const base::Deadline deadline = base::Deadline::in(kPayload);
  HR_TRY(auto store, store_client(deadline));
  for (const Place& place : places_) {
    HR_TRY([[maybe_unused]] const bool there,
           take_file(store, fmt::format("run/result/{}", place.rank),
                     options_.results_folder / fmt::to_string(place.rank), deadline));
  }
  return {};
}

Result<void> Job::prepare() {
  HR_TRY(places_, place_ranks(options_.hosts, options_.ranks));
  HR_TRY(output_, RankOutput::make({.timestamps = options_.timestamps,
                                    .folder = options_.output_folder,
                                    .ranks = options_.ranks},
                                   &queue_));
  HR_TRY(find_hosts());
  HR_TRY(check_timeline());
  HR_TRY(const base::Path folder, make_private_folder());
  HR_TRY(guard_, Guard::start(options_.program, folder));
  secret_file_ = (folder / "secret").string();
  if (std::find(is_local_.begin(), is_local_.end(), false) != is_local_.end()) {
    HR_TRY(const auto agents_token, token());
    HR_TRY(connect_agents(agents_token));
    // Not sent: the agents make the same out of the token and the job's id.
    secret_ = agents_token.derive("job " + id_);
  } else {
    secret_ = wire::Secret::generate();
  }
  HR_TRY(secret_->write_file(secret_file_));
  HR_TRY(serve_store());
  HR_TRY(offer_function());
  if (is_local_[places_.front().host]) {
    HR_TRY(master_port_, ReservedPort::take());
  }
  return {};
}

/// As the ranks of `host` see the job; nullptr: of this machine.
Result<JobFacts> Job::facts_of(const RemoteRanks* host) const {
  JobFacts facts;
  facts.job = id_;
  facts.start_timeout_s = options_.start_timeout_s;
  facts.settings = options_.settings;
  for (const Place& place : places_) {
    if (place.local_rank == 0) {
      facts.host_sizes.push_back(place.local_size);
    }
  }
  std::string ours = "127.0.0.1";
  if (host != nullptr) {
    HR_TRY(const auto side, host->own_side());
    ours = side.host;
  } else {
    facts.secret_file = secret_file_;
    facts.guard = guard_->id();
  }
  facts.store = wire::Endpoint::tcp(ours, store_->endpoint().port).text();
  if (master_port_) {
    facts.master_address = ours;
    facts.master_port = master_port_->number();
  } else {
    const RemoteRanks* first = remote_[places_.front().host];
    HR_TRY(const auto side, first->other_side());
    facts.master_address = side.host;
    facts.master_port = first->welcome().free_port;
  }
  return facts;
}

Result<void> Job::start_local() {
  std::vector<Place> here;
  for (const Place& place : places_) {
    if (is_local_[place.host]) {
      here.push_back(place);
    }
  }
  if (here.empty()) {
    return {};
  }
  HR_TRY(const JobFacts facts, facts_of(nullptr));
  // Under whatever names: they divide this machine's cores among them.
  HR_TRY(const auto shares, divide_cores(own_cores(), base::usable_cores(),
                                         static_cast<int>(here.size()), options_.cores_per_rank));
  const auto is_set = [](const char* name) { return base::environment(name).has_value(); };
  std::vector<RankStart> starts;
  for (size_t i = 0; i < here.size(); ++i) {
    Variables variables = thread_variables(shares[i].threads, is_set);
    for (auto& variable : rank_variables(here[i], facts)) {
      variables.push_back(std::move(variable));
    }
    starts.push_back({.rank = here[i].rank,
                      .argv = options_.command,
                      .variables = std::move(variables),
                      .cores = shares[i].cores});
  }
  say(fmt::format("starting {} ranks here; store at {}, MASTER_PORT {}", starts.size(), facts.store,
                  facts.master_port));
  HR_TRY(auto local, LocalRanks::make(id_));
  hosts_.push_back(std::move(local));
  return hosts_.back()->start(std::move(starts));
}

Result<void> Job::start_remote() {
  std::error_code code;
  const std::string folder = std::filesystem::current_path(code).string();
  for (size_t host = 0; host < remote_.size(); ++host) {
    if (remote_[host] == nullptr) {
      continue;
    }
    HR_TRY(const JobFacts facts, facts_of(remote_[host]));
    std::vector<RankStart> starts;
    for (const Place& place : places_) {
      if (place.host == host) {
        starts.push_back({.rank = place.rank,
                          .argv = options_.command,
                          .variables = rank_variables(place, facts),
                          .folder = folder});
      }
    }
    say(fmt::format("starting {} ranks on {} ({}); their store is at {}", starts.size(),
                    remote_[host]->name(), remote_[host]->welcome().host, facts.store));
    remote_[host]->set_job(id_, base::whole_environment(), options_.cores_per_rank);
    HR_TRY(remote_[host]->start(std::move(starts)));
  }
  return {};
}

Result<void> Job::start_ranks() {
  HR_TRY(start_remote());
  return start_local();
}

bool Job::any_running() const {
  return std::any_of(hosts_.begin(), hosts_.end(),
                     [](const auto& host) { return !host->running().empty(); });
}

void Job::stop(std::string_view reason) {
  if (give_up_) {
    return;
  }
  give_up_ = base::Deadline::in(kGrace + kGiveUp);
  for (const auto& host : hosts_) {
    stopped_by_us_ += static_cast<int>(host->running().size());
    host->stop(reason, kGrace);
  }
}

void Job::on_end(const RankEnd& end) {
  output_->finish(end.rank);
  if (!end.metrics.empty()) {
    output_->keep(end.rank, "metrics.json", end.metrics);
  }
  say(fmt::format("rank {} (process {}) ended with {} after {:.1f} s", end.rank, end.pid, end.text,
                  static_cast<double>(end.wall_ms) / 1e3));
  if (end.ok && !first_failure_) {
    ended_before_.push_back(end.rank);
  }
  if (!end.ok && !interrupted_) {
    failures_[end.rank] = end;
    first_failure_ = first_failure_.value_or(end);
  }
}

void Job::pump() {
  const RankEvents events = {
      .on_bytes = [this](int rank, Stream stream,
                         std::string_view bytes) { output_->on_bytes(rank, stream, bytes); },
      .on_end = [this](const RankEnd& end) { on_end(end); },
  };
  for (const auto& agent : ssh_) {
    if (agent != nullptr) {
      agent->pump();
    }
  }
  for (const auto& host : hosts_) {
    const bool want_output = !queue_.full() || give_up_.has_value();
    Result<void> pumped = host->pump(events, want_output);
    if (!pumped.ok() && !first_failure_ && !lost_host_ && !interrupted_) {
      lost_host_ = std::move(pumped.error().add_context("run: host " + host->name()));
    }
  }
}

void Job::wait_for_events() {
  std::vector<pollfd> fds;
  const auto add = [&fds](int fd, short events) {
    if (fd >= 0) {
      fds.push_back({fd, events, 0});
    }
  };
  Millis limit{60000};
  for (const auto& host : hosts_) {
    // Ranks of this machine have nothing but output and ends, which wait for the reader.
    const bool wanted = !queue_.full() || host->pump_within() < limit;
    if (wanted && !host->running().empty()) {
      add(host->event_fd(), host->wanted_events());
    }
    limit = std::min(limit, host->pump_within());
  }
  if (!interrupted_) {
    add(options_.interrupt_fd, POLLIN);
  }
  if (!owner_gone_) {
    add(options_.owner_fd, POLLIN);
  }
  add(queue_.waiting_fd(), POLLOUT);
  for (const auto& until : {give_up_, give_up_ ? std::nullopt : stop_at_}) {
    if (until) {
      limit = std::min(limit, std::chrono::duration_cast<Millis>(until->left()) + Millis(1));
    }
  }
  ::poll(fds.data(), fds.size(), static_cast<int>(limit.count()));
  for (const pollfd& fd : fds) {
    interrupted_ = interrupted_ || (fd.fd == options_.interrupt_fd && fd.revents != 0);
    owner_gone_ = owner_gone_ || (fd.fd == options_.owner_fd && fd.revents != 0);
  }
}

/// The others write what they did last before they are told to end, where the user wants to know.
bool Job::others_had_time() {
  if (!stop_at_) {
    const auto is_set = [](const char* name) {
      return !base::environment(name).value_or(std::string()).empty();
    };
    const auto is_timeline = [](const auto& one) { return one.first == "HOROVOD_TIMELINE"; };
    const bool writes =
        std::any_of(std::begin(kWritten), std::end(kWritten), is_set) ||
        std::any_of(options_.settings.begin(), options_.settings.end(), is_timeline);
    stop_at_ = base::Deadline::in(writes ? kFlightTime : Millis{});
  }
  return stop_at_->passed();
}

void Job::loop() {
  while (any_running()) {
    wait_for_events();
    if (interrupted_ || owner_gone_) {
      interrupted_ = true;
      stop("the launcher was interrupted");
    }
    queue_.flush();
    pump();
    if (lost_host_) {
      stop(lost_host_->message());
    }
    if (first_failure_ && others_had_time()) {
      stop(fmt::format("rank {} ended with {}", first_failure_->rank, first_failure_->text));
    }
    if (give_up_ && give_up_->passed()) {
      break;
    }
  }
}

/// The ranks are gone; what they said may still wait for a slow reader.
void Job::drain() {
  queue_.flush();
  while (!queue_.empty()) {
    pollfd fds[2] = {{queue_.waiting_fd(), POLLOUT, 0}, {options_.interrupt_fd, POLLIN, 0}};
    const bool asked_before = interrupted_;
    const int ready = ::poll(fds, asked_before ? 1 : 2, static_cast<int>(kDrain.count()));
    if (ready == 0 || (!asked_before && fds[1].revents != 0)) {
      base::log_warning("run: the rest of the ranks' output was not taken by its reader");
      return;
    }
    queue_.flush();
  }
}

/// Who waits for a rank that left early is not told of it, and fails in its place.
std::string Job::ended_before_text() const {
  constexpr size_t kNamed = 16;
  if (ended_before_.empty()) {
    return "";
  }
  const size_t named = std::min(ended_before_.size(), kNamed);
  const std::string more = named == ended_before_.size()
                               ? ""
                               : fmt::format(" and {} more", ended_before_.size() - named);
  return fmt::format("Before that, with exit code 0, ended: rank{} {}{}\n",
                     ended_before_.size() == 1 ? "" : "s",
                     fmt::join(std::span(ended_before_).first(named), ", "), more);
}

std::string Job::failure_text() const {
  const RankEnd& end = *first_failure_;
  const Place& place = places_[static_cast<size_t>(end.rank)];
  std::string text = fmt::format(
      "Horovod detected that one or more processes exited with non-zero status: rank {} on {} "
      "(process {}) was the first, with {} after {:.1f} s{}.\nProcess name: {}\nExit code: {}\n",
      end.rank, base::printable(place.host_name), end.pid, end.text,
      static_cast<double>(end.wall_ms) / 1e3,
      stopped_by_us_ == 0 ? std::string()
                          : fmt::format("; {} other{} stopped", stopped_by_us_,
                                        stopped_by_us_ == 1 ? " was" : "s were"),
      end.rank, end.signal != 0 ? -end.signal : end.code);
  text += ended_before_text();
  const std::vector<std::string> lines = output_->last_errors(end.rank);
  if (lines.empty()) {
    return text + fmt::format("Rank {} wrote nothing on stderr.\n", end.rank);
  }
  text += fmt::format("Last lines of rank {} on stderr:\n", end.rank);
  for (const std::string& line : lines) {
    text += "  " + base::printable(line) + "\n";
  }
  return text;
}

/// A rank that an exception ends says so in the store before the others hear of it, and they may be
/// gone before it is.
void Job::look_for_cause() {
  constexpr Millis kLook{1000};
  auto store = store_client(base::Deadline::in(kLook));
  if (!store.ok()) {
    return;
  }
  const auto told = store->get(kFirstFailureKey, base::Deadline::in(kLook));
  if (!told.ok() || !told->has_value()) {
    return;
  }
  const auto found = failures_.find(std::atoi((*told)->c_str()));
  if (found != failures_.end()) {
    first_failure_ = found->second;
  }
}

LaunchOutcome Job::outcome() {
  LaunchOutcome outcome;
  std::vector<int> left;
  for (const auto& host : hosts_) {
    const std::vector<int> running = host->running();
    left.insert(left.end(), running.begin(), running.end());
  }
  if (first_failure_) {
    look_for_cause();
    outcome.failed_rank = first_failure_->rank;
    outcome.message = failure_text();
  } else if (lost_host_) {
    outcome.failed_rank = -1;
    outcome.message = "Horovod detected that one or more processes exited with non-zero status: " +
                      base::printable(lost_host_->message()) + "\n";
  } else if (interrupted_) {
    outcome.interrupted = true;
    outcome.message = fmt::format("run: interrupted; the ranks were stopped\n");
  }
  if (!left.empty()) {
    outcome.message +=
        fmt::format("run: no end was heard of rank{} {} within {} s of SIGKILL\n",
                    left.size() == 1 ? "" : "s", fmt::join(left, ", "), kGiveUp.count() / 1000);
  }
  if (!output_->file_problem().empty()) {
    outcome.message += "run: " + output_->file_problem() + "\n";
  }
  return outcome;
}

Result<LaunchOutcome> Job::run() {
  Result<void> prepared = prepare();
  if (!prepared.ok()) {
    hosts_.clear();
    ssh_.clear();
    if (guard_) {
      guard_->finish();  // its end alone would leave the private folder
    }
    if (interrupted_) {
      return LaunchOutcome{.failed_rank = {},
                           .interrupted = true,
                           .message = "run: interrupted before any rank was started\n"};
    }
    return std::move(prepared.error());
  }
  const Result<void> started = start_ranks();
  if (started.ok()) {
    loop();
  }
  LaunchOutcome result = outcome();
  const Result<void> taken = started.ok() ? take_results() : Result<void>();
  hosts_.clear();  // ends what is left of them
  guard_->finish();
  drain();
  HR_TRY(started);
  HR_TRY(taken);
  return result;
}

}  // namespace

Result<LaunchOutcome> launch(const LaunchOptions& options) {
  auto job = std::make_unique<Job>(options);
  return job->run();
}

}  // namespace headrace::run
