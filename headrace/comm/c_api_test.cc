// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/c_api.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/base/test_folder.h"
#include "headrace/base/test_process.h"
#include "headrace/base/thread.h"

namespace headrace::comm {
namespace {

using std::chrono::milliseconds;

/// A store of this process, as a user of C would write it.
class MapStore {
 public:
  hr_comm_store table() {
    return {this,
            [](void* user, const char* key, const void* value, size_t bytes) {
              auto& self = *static_cast<MapStore*>(user);
              const base::MutexLock lock(self.mutex_);
              self.values_[key].assign(static_cast<const char*>(value), bytes);
              self.changed_.notify_all();
              return 0;
            },
            [](void* user, const char* key, int64_t timeout_ms, hr_comm_value* value) {
              auto& self = *static_cast<MapStore*>(user);
              const base::MutexLock lock(self.mutex_);
              if (!self.changed_.wait_for(self.mutex_, milliseconds(timeout_ms),
                                          [&] { return self.values_.contains(key); })) {
                return 1;
              }
              const std::string& found = self.values_[key];
              hr_comm_value_set(value, found.data(), found.size());
              return 0;
            }};
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  std::map<std::string, std::string> values_;  // guarded by mutex_, behind a void pointer
};

/// Call `body` as each of `ranks` ranks, which are threads.
void each_rank(int ranks, const std::function<void(int, hr_comm_context*)>& body) {
  MapStore store;
  std::vector<base::Thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back("rank", [&, rank] {
      hr_comm_config config = HR_COMM_CONFIG;
      config.rank = rank;
      config.world_size = ranks;
      config.init_timeout_ms = 20'000;
      config.timeout_ms = 20'000;
      const hr_comm_store table = store.table();
      hr_comm_context* context = nullptr;
      const auto code = hr_comm_init(&config, &table, &context);
      INFO(hr_comm_last_error()->message);
      REQUIRE(code == HR_COMM_OK);
      body(rank, context);
      hr_comm_free(context);
    });
  }
}

using Floats = std::vector<float>;
hr_comm_in in(const Floats& values) { return {values.data(), values.size(), HR_COMM_F32}; }
hr_comm_out out(Floats& values) { return {values.data(), values.size(), HR_COMM_F32}; }

bool says(std::string_view part) {
  return std::string_view(hr_comm_last_error()->message).find(part) != std::string_view::npos;
}

TEST_CASE("C: the collectives move and reduce on three ranks") {
  each_rank(3, [](int rank, hr_comm_context* context) {
    hr_comm_set* world = hr_comm_world(context);
    CHECK(hr_comm_rank(world) == rank);
    CHECK(hr_comm_size(world) == 3);
    const auto r = static_cast<float>(rank);
    const Floats own = {r, r + 1, r + 2};
    Floats three(3);
    CHECK(hr_comm_all_reduce(world, in(own), out(three), HR_COMM_SUM, nullptr, nullptr) == 0);
    CHECK(three == Floats{3, 6, 9});
    hr_comm_options options = HR_COMM_OPTIONS;
    options.prescale = 2.0;
    options.postscale = 0.5;
    options.name = "scaled";
    CHECK(hr_comm_all_reduce(world, in(own), out(three), HR_COMM_AVERAGE, &options, nullptr) == 0);
    CHECK(three == Floats{1, 2, 3});
    Floats root_only(3, -1);
    CHECK(hr_comm_reduce(world, in(own), out(root_only), 1, HR_COMM_MAX, nullptr, nullptr) == 0);
    CHECK(root_only == (rank == 1 ? Floats{2, 3, 4} : Floats{-1, -1, -1}));
    Floats sent = own;
    CHECK(hr_comm_broadcast(world, out(sent), 2, nullptr, nullptr) == 0);
    CHECK(sent == Floats{2, 3, 4});
    Floats nine(9);
    CHECK(hr_comm_all_gather(world, in(own), out(nine), nullptr, nullptr) == 0);
    CHECK(nine == Floats{0, 1, 2, 1, 2, 3, 2, 3, 4});
    const uint64_t uneven[] = {0, 1, 2};
    const Floats part(static_cast<size_t>(rank), r);
    CHECK(hr_comm_all_gather_v(world, in(part), uneven, out(three), nullptr, nullptr) == 0);
    CHECK(three == Floats{1, 2, 2});
    Floats one(1);
    CHECK(hr_comm_reduce_scatter(world, in(own), out(one), HR_COMM_SUM, nullptr, nullptr) == 0);
    CHECK(one == Floats{3 * (r + 1)});
    Floats mine(static_cast<size_t>(rank));
    CHECK(hr_comm_reduce_scatter_v(world, in(own), uneven, out(mine), HR_COMM_SUM, nullptr,
                                   nullptr) == 0);
    CHECK(mine == (rank == 0 ? Floats{} : rank == 1 ? Floats{3} : Floats{6, 9}));
    CHECK(hr_comm_all_to_all(world, in(own), out(three), nullptr, nullptr) == 0);
    CHECK(three == Floats{r, r + 1, r + 2});
    // Each sends to rank q as many as uneven[q] says.
    const uint64_t back[] = {uneven[rank], uneven[rank], uneven[rank]};
    Floats came(3 * static_cast<size_t>(rank));
    CHECK(hr_comm_all_to_all_v(world, in(own), uneven, out(came), back, nullptr, nullptr) == 0);
    CHECK(came == (rank == 0 ? Floats{} : rank == 1 ? Floats{0, 1, 2} : Floats{1, 2, 2, 3, 3, 4}));
    CHECK(hr_comm_gather(world, in(own), out(nine), 0, nullptr, nullptr) == 0);
    CHECK(hr_comm_scatter(world, in(nine), out(three), 0, nullptr, nullptr) == 0);
    CHECK(three == own);
    CHECK(hr_comm_barrier(world, nullptr, nullptr) == 0);
    hr_comm_place place;
    CHECK(hr_comm_place_of(context, &place) == HR_COMM_OK);
    CHECK(place.rank == rank);
    CHECK(place.local_size == 3);
    CHECK(place.cross_size == 1);
  });
}

TEST_CASE("C: works are waited for, tested, told of, and freed") {
  std::atomic<bool> first_part_over = false;   // on rank 1
  std::atomic<bool> second_part_over = false;  // on rank 0
  each_rank(2, [&](int rank, hr_comm_context* context) {
    hr_comm_set* world = hr_comm_world(context);
    Floats values(1000, static_cast<float>(rank + 1));
    hr_comm_work* work = nullptr;
    REQUIRE(hr_comm_all_reduce(world, in(values), out(values), HR_COMM_SUM, nullptr, &work) == 0);
    REQUIRE(work != nullptr);
    std::atomic<int> told = -1;
    CHECK(hr_comm_on_done(
              work,
              [](void* user, hr_comm_code outcome) {
                *static_cast<std::atomic<int>*>(user) = static_cast<int>(outcome);
              },
              &told) == HR_COMM_OK);
    CHECK(hr_comm_wait(work, -1) == HR_COMM_OK);
    int done = 0;
    CHECK(hr_comm_test(work, &done) == HR_COMM_OK);
    CHECK(done == 1);
    hr_comm_work_free(work);
    CHECK(values.front() == 3);
    CHECK(values.back() == 3);
    CHECK(hr_comm_barrier(world, nullptr, nullptr) == HR_COMM_OK);
    CHECK(told == 0);  // callbacks come before the set's next operation
    // A rank that is late: the wait of the other is over before the operation is.
    if (rank == 0) {
      while (!first_part_over) {
        base::sleep_for(milliseconds(1));
      }
      REQUIRE(hr_comm_barrier(world, nullptr, &work) == HR_COMM_OK);
      CHECK(hr_comm_wait(work, 1) == HR_COMM_TIMEOUT);
      CHECK(hr_comm_test(work, &done) == HR_COMM_OK);
      CHECK(done == 0);
      hr_comm_set* none = nullptr;
      CHECK(hr_comm_abort(none, "nothing") == HR_COMM_INVALID_ARGUMENT);
      CHECK(hr_comm_abort(world, "enough") == HR_COMM_OK);
      CHECK(hr_comm_wait(work, -1) == HR_COMM_CANCELLED);
      CHECK(says("enough"));
      hr_comm_work_free(work);
      CHECK(hr_comm_set_failure(world) == HR_COMM_CANCELLED);
      second_part_over = true;
    } else {
      first_part_over = true;
      // Or the barrier of rank 0 would end well.
      while (hr_comm_set_failure(world) == HR_COMM_OK || !second_part_over) {
        base::sleep_for(milliseconds(1));
      }
      // The barrier that rank 0 had entered may still come to its end; no later one does.
      static_cast<void>(hr_comm_barrier(world, nullptr, nullptr));
      CHECK(hr_comm_barrier(world, nullptr, nullptr) == HR_COMM_CANCELLED);
    }
  });
}

TEST_CASE("C: a set of some ranks is one of its own, and ends with its context") {
  each_rank(3, [](int rank, hr_comm_context* context) {
    hr_comm_set* world = hr_comm_world(context);
    hr_comm_set* set = nullptr;
    // Ranks 0 and 2, in the other order; rank 1 is in none.
    REQUIRE(hr_comm_split(world, rank == 1 ? -1 : 0, -rank, &set) == HR_COMM_OK);
    if (rank == 1) {
      CHECK(set == nullptr);
      CHECK(hr_comm_rank(set) == -1);
      CHECK(hr_comm_barrier(set, nullptr, nullptr) == HR_COMM_INVALID_ARGUMENT);
      CHECK(says("split gives null"));
    } else {
      CHECK(hr_comm_size(set) == 2);
      CHECK(hr_comm_rank(set) == (rank == 2 ? 0 : 1));
      int32_t ranks[2] = {};
      CHECK(hr_comm_world_ranks(set, ranks, 1) == HR_COMM_INVALID_ARGUMENT);
      CHECK(hr_comm_world_ranks(set, ranks, 2) == HR_COMM_OK);
      CHECK(ranks[0] == 2);
      CHECK(ranks[1] == 0);
      Floats value = {static_cast<float>(rank)};
      CHECK(hr_comm_all_reduce(set, in(value), out(value), HR_COMM_SUM, nullptr, nullptr) == 0);
      CHECK(value[0] == 2);
    }
    hr_comm_set* again = nullptr;
    REQUIRE(hr_comm_split(world, 0, rank, &again) == HR_COMM_OK);
    hr_comm_set_free(again);
    hr_comm_set_free(world);  // belongs to the context: nothing happens
    CHECK(hr_comm_barrier(world, nullptr, nullptr) == HR_COMM_OK);
    hr_comm_set_free(set);
  });
}

TEST_CASE("C: handles of sets outlive their context, and say that it is gone") {
  hr_comm_config config = HR_COMM_CONFIG;
  MapStore store;
  const hr_comm_store table = store.table();
  hr_comm_context* context = nullptr;
  REQUIRE(hr_comm_init(&config, &table, &context) == HR_COMM_OK);
  hr_comm_set* set = nullptr;
  REQUIRE(hr_comm_split(hr_comm_world(context), 0, 0, &set) == HR_COMM_OK);
  hr_comm_free(context);
  CHECK(hr_comm_barrier(set, nullptr, nullptr) == HR_COMM_INVALID_ARGUMENT);
  CHECK(says("the context of the set was freed"));
  CHECK(hr_comm_size(set) == -1);
  hr_comm_set_free(set);
}

TEST_CASE("C: null pointers and counts that nobody can have are refused, and disturb nobody") {
  each_rank(2, [](int, hr_comm_context* context) {
    hr_comm_set* world = hr_comm_world(context);
    CHECK(hr_comm_world(nullptr) == nullptr);
    const auto refused = [](hr_comm_code code) {
      INFO(hr_comm_last_error()->message);
      CHECK(code == HR_COMM_INVALID_ARGUMENT);
    };
    Floats values(4, 1.0F);
    for (const uint64_t count : {uint64_t{4}, uint64_t{1} << 62U, UINT64_MAX}) {
      const hr_comm_in from = {count == 4 ? nullptr : values.data(), count, HR_COMM_F32};
      const hr_comm_out to = {count == 4 ? nullptr : values.data(), count, HR_COMM_F32};
      const uint64_t counts[] = {count, count};
      refused(hr_comm_all_reduce(world, from, to, HR_COMM_SUM, nullptr, nullptr));
      refused(hr_comm_reduce(world, from, to, 0, HR_COMM_SUM, nullptr, nullptr));
      refused(hr_comm_broadcast(world, to, 0, nullptr, nullptr));
      refused(hr_comm_gather(world, from, to, 0, nullptr, nullptr));
      refused(hr_comm_scatter(world, from, to, 0, nullptr, nullptr));
      refused(hr_comm_all_gather_v(world, from, counts, to, nullptr, nullptr));
      refused(hr_comm_reduce_scatter_v(world, from, counts, to, HR_COMM_SUM, nullptr, nullptr));
      refused(hr_comm_all_to_all_v(world, from, counts, to, counts, nullptr, nullptr));
    }
    refused(hr_comm_all_gather_v(world, in(values), nullptr, out(values), nullptr, nullptr));
    refused(hr_comm_barrier(nullptr, nullptr, nullptr));
    refused(hr_comm_wait(nullptr, 0));
    refused(hr_comm_test(nullptr, nullptr));
    refused(hr_comm_on_done(nullptr, nullptr, nullptr));
    refused(hr_comm_place_of(nullptr, nullptr));
    refused(hr_comm_split(world, 0, 0, nullptr));
    refused(hr_comm_world_ranks(world, nullptr, 2));
    refused(hr_comm_join(0, nullptr));
    CHECK(hr_comm_all_reduce(world, in(values), out(values), HR_COMM_SUM, nullptr, nullptr) == 0);
    CHECK(values == Floats(4, 2.0F));
  });
}

TEST_CASE("C: what differs between ranks is the same failure on both, with a text") {
  each_rank(2, [](int rank, hr_comm_context* context) {
    Floats values(rank == 0 ? 2 : 3);
    const auto code = hr_comm_all_reduce(hr_comm_world(context), in(values), out(values),
                                         HR_COMM_SUM, nullptr, nullptr);
    CHECK(code == HR_COMM_MISMATCH);
    CHECK(hr_comm_last_error()->code == HR_COMM_MISMATCH);
    CHECK(says("all_reduce"));
  });
}

TEST_CASE("C: wrong arguments are told at once and hurt no other operation") {
  each_rank(1, [](int, hr_comm_context* context) {
    hr_comm_set* world = hr_comm_world(context);
    Floats values(2);
    Floats more(3);
    hr_comm_work* work = nullptr;
    const auto sum = [&](hr_comm_in from, hr_comm_out to, hr_comm_op op,
                         const hr_comm_options* options) {
      return hr_comm_all_reduce(world, from, to, op, options, &work);
    };
    CHECK(sum(in(values), out(more), HR_COMM_SUM, nullptr) == HR_COMM_INVALID_ARGUMENT);
    CHECK(says("out has 3 elements, it must have 2"));
    CHECK(work == nullptr);
    hr_comm_in odd = in(values);
    odd.dtype = 13;
    CHECK(sum(odd, out(values), HR_COMM_SUM, nullptr) == HR_COMM_INVALID_ARGUMENT);
    CHECK(says("no element type 13"));
    CHECK(sum(in(values), out(values), 8, nullptr) == HR_COMM_INVALID_ARGUMENT);
    CHECK(says("no reduction 8"));
    CHECK(sum(in(values), out(values), -1, nullptr) == HR_COMM_INVALID_ARGUMENT);
    const hr_comm_options zero = {};
    CHECK(sum(in(values), out(values), HR_COMM_SUM, &zero) == HR_COMM_INVALID_ARGUMENT);
    CHECK(says("begin with HR_COMM_OPTIONS"));
    CHECK(hr_comm_all_gather_v(world, in(values), nullptr, out(values), nullptr, nullptr) ==
          HR_COMM_INVALID_ARGUMENT);
    CHECK(sum(in(values), out(values), HR_COMM_SUM, nullptr) == HR_COMM_OK);
    CHECK(hr_comm_wait(work, -1) == HR_COMM_OK);
    hr_comm_work_free(work);
  });
}

/// Keys as files of the folder that `user` points to, for ranks that are processes.
base::Path path_of(void* user, const char* key) {
  std::string name = key;
  std::replace(name.begin(), name.end(), '/', '_');
  return *static_cast<const base::Path*>(user) / name;
}

hr_comm_store folder_store(base::Path* folder) {
  return {folder,
          [](void* user, const char* key, const void* value, size_t bytes) {
            const std::string_view text(static_cast<const char*>(value), bytes);
            return base::replace_file(path_of(user, key), text).ok() ? 0 : 2;
          },
          [](void* user, const char* key, int64_t timeout_ms, hr_comm_value* value) {
            const auto deadline = base::Deadline::in(milliseconds(timeout_ms));
            while (!std::filesystem::exists(path_of(user, key))) {
              if (deadline.passed()) {
                return 1;
              }
              base::sleep_for(milliseconds(1));
            }
            const auto found = base::read_file(path_of(user, key));
            if (found.ok()) {
              hr_comm_value_set(value, found->data(), found->size());
            }
            return found.ok() ? 0 : 2;
          }};
}

TEST_CASE("C: the death of a rank is told with its rank") {
  base::TestFolder folder;
  const auto rank_body = [&](int rank) {
    base::Path path = folder.path();
    const hr_comm_store store = folder_store(&path);
    hr_comm_config config = HR_COMM_CONFIG;
    config.rank = rank;
    config.world_size = 2;
    config.timeout_ms = config.init_timeout_ms = 20'000;
    hr_comm_context* context = nullptr;
    REQUIRE(hr_comm_init(&config, &store, &context) == HR_COMM_OK);
    hr_comm_set* world = hr_comm_world(context);
    // Rank 1 gets through this when rank 0 has ended its init, which must not fail.
    static_cast<void>(hr_comm_barrier(world, nullptr, nullptr));
    if (rank == 1) {
      ::raise(SIGKILL);
    }
    const auto code = hr_comm_barrier(world, nullptr, nullptr);
    const bool told = code == HR_COMM_PEER_DEAD && hr_comm_last_error()->code == code &&
                      hr_comm_last_error()->rank == 1 && says("comm: rank 1 on ") && says(") died");
    hr_comm_free(context);
    return told ? 0 : 1;
  };
  base::TestProcess survivor([&] { return rank_body(0); });
  base::TestProcess dead([&] { return rank_body(1); });
  CHECK(dead.wait() == -SIGKILL);
  CHECK(survivor.wait() == 0);
}

TEST_CASE("C: a store that fails, lies or has no functions is told as such") {
  hr_comm_config config = HR_COMM_CONFIG;
  config.world_size = 2;
  config.init_timeout_ms = 50;
  hr_comm_context* context = nullptr;
  hr_comm_store store = {};
  CHECK(hr_comm_init(&config, &store, &context) == HR_COMM_INVALID_ARGUMENT);
  store.set = [](void*, const char*, const void*, size_t) { return 7; };
  store.get = [](void*, const char*, int64_t, hr_comm_value*) { return 0; };
  CHECK(hr_comm_init(&config, &store, &context) == HR_COMM_IO);
  CHECK(says("answered 7 to set"));
  store.set = [](void*, const char*, const void*, size_t) { return 0; };
  CHECK(hr_comm_init(&config, &store, &context) == HR_COMM_IO);
  CHECK(says("did not call hr_comm_value_set"));
  store.get = [](void*, const char*, int64_t, hr_comm_value*) { return 1; };
  CHECK(hr_comm_init(&config, &store, &context) == HR_COMM_TIMEOUT);
  CHECK(context == nullptr);
  config.struct_bytes = 3;
  CHECK(hr_comm_init(&config, &store, &context) == HR_COMM_INVALID_ARGUMENT);
  CHECK(says("begin with HR_COMM_CONFIG"));
}

TEST_CASE("C: codes have the names that the other languages use") {
  CHECK(std::string_view(hr_comm_code_name(HR_COMM_OK)) == "ok");
  CHECK(std::string_view(hr_comm_code_name(HR_COMM_INVALID_ARGUMENT)) == "invalid_argument");
  CHECK(std::string_view(hr_comm_code_name(HR_COMM_PEER_DEAD)) == "peer_dead");
  CHECK(std::string_view(hr_comm_code_name(HR_COMM_INTERNAL)) == "internal");
  CHECK(std::string_view(hr_comm_code_name(17)).empty());
}

TEST_CASE("the flight record is JSON that lasts until the thread asks again") {
  each_rank(2, [](int rank, hr_comm_context* context) {
    float value = 1.0F;
    const hr_comm_in in = {&value, 1, HR_COMM_F32};
    const hr_comm_out out = {&value, 1, HR_COMM_F32};
    hr_comm_options options = HR_COMM_OPTIONS;
    options.name = "recorded";
    CHECK(hr_comm_all_reduce(hr_comm_world(context), in, out, HR_COMM_MAX, &options, nullptr) ==
          HR_COMM_OK);
    const char* text = nullptr;
    REQUIRE(hr_comm_flight_record(context, &text) == HR_COMM_OK);
    const auto record = parse_json(text, "flight record");
    REQUIRE(record.ok());
    CHECK(record->at("rank").integer() == rank);
    const Json& last = record->at("sets").items().front().at("operations").items().back();
    CHECK(last.at("name").string() == "recorded");
    CHECK(hr_comm_flight_record(context, nullptr) == HR_COMM_INVALID_ARGUMENT);
    CHECK(hr_comm_flight_record(nullptr, &text) == HR_COMM_INVALID_ARGUMENT);
  });
}

}  // namespace
}  // namespace headrace::comm
