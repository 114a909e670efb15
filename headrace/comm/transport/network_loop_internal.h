// SPDX-License-Identifier: Apache-2.0
// What the thread of a Network has and does.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "headrace/comm/transport/network.h"

namespace headrace::comm {

struct Network::Loop {
  Loop(NetworkOptions options_in, NetworkEvents events_in)
      : options(std::move(options_in)), events(std::move(events_in)) {}

  // ---- any thread ----
  void post(std::function<void()> task) HR_EXCLUDES(mutex);
  void wake() const;
  std::string name() const;
  std::string name_of(int rank) const;

  // ---- the loop's thread ----
  void run();
  base::Micros turn();
  void on_event(uint64_t key);
  void adopt(int rank, wire::Channel channel);
  void drain(int rank);
  void flush(int rank);
  void on_frame(int rank, const wire::Frame& frame);
  void on_closed(int rank, const Error& error);
  void on_set_closed(uint64_t set, int rank, size_t ranks) HR_EXCLUDES(mutex);
  void on_suspect(int rank, const Error& error);
  void decide(int rank, const Error& error);
  void apply(int rank, const Error& error);
  void send(int rank, const wire::Frame& frame);
  int arbiter() const;
  base::Micros check_suspects();
  void linger(base::Fd fd, int rank);
  base::Micros check_lingering();
  void say_goodbye();

  NetworkOptions options;
  NetworkEvents events;
  base::Fd epoll;
  base::Fd wake_fd;
  std::unique_ptr<Door> door;
  std::vector<NetworkPeer> peers;                     // by rank; fixed after meet()
  std::unique_ptr<std::atomic<bool>[]> has_departed;  // by rank
  std::unique_ptr<std::atomic<bool>[]> has_mail;      // by rank: a stream leads to it
  std::atomic<int> known_ranks = 0;                   // of the three above

  struct Suspect {
    Error error;
    base::Deadline deadline;  // for the arbiter's verdict
  };
  struct Lingering {
    base::Fd fd;
    int rank;
    base::Deadline often;  // until then it is looked at often
  };
  std::unique_ptr<Mail> mail;
  std::map<int, wire::Channel> controls;
  std::map<int, Suspect> suspects;
  std::set<int> dead;
  std::vector<Lingering> lingering;

  base::Mutex mutex;
  base::CondVar changed;
  std::deque<std::function<void()>> tasks HR_GUARDED_BY(mutex);
  std::map<std::pair<uint64_t, int>, Arrival> arrived HR_GUARDED_BY(mutex);
  std::map<uint64_t, std::set<int>> set_closed HR_GUARDED_BY(mutex);  // by some of its ranks
  std::map<int, Error> gone HR_GUARDED_BY(mutex);  // who is dead, for those that wait for it
  std::atomic<bool> stopping = false;
  base::Thread thread;  // last: stops before what it uses goes
};

}  // namespace headrace::comm
