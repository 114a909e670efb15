// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/named_set.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <numeric>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/json.h"
#include "headrace/base/log.h"
#include "headrace/base/test_folder.h"
#include "headrace/base/thread.h"

namespace headrace::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A store for ranks that are threads.
class MapStore {
 public:
  StoreTable table() {
    return {
        .set = [this](const std::string& key, const std::string& value) -> Result<void> {
          base::MutexLock lock(mutex_);
          values_[key] = value;
          return {};
        },
        .get = [this](const std::string& key, base::Deadline deadline) -> Result<std::string> {
          while (!deadline.passed()) {
            {
              base::MutexLock lock(mutex_);
              if (values_.contains(key)) {
                return values_[key];
              }
            }
            base::sleep_for(milliseconds(1));
          }
          return Error{Errc::timeout, "no " + key};
        },
    };
  }

 private:
  base::Mutex mutex_;
  std::map<std::string, std::string> values_ HR_GUARDED_BY(mutex_);
};

using Body = std::function<void(int, Context&, NamedSet&)>;

/// How ranks reach one another.
enum class Way { shared_memory, tcp, nodes_of_two };

void choose(Way way, Config& config) {
  config.transport = way == Way::tcp ? Transport::tcp : Transport::automatic;
  config.node = way == Way::nodes_of_two ? "node " + std::to_string(config.rank / 2) : "";
}

/// body(rank, context, set of all ranks) on each rank, as threads.
void each_rank(int ranks, const Body& body, NamedOptions options = {},
               Way way = Way::shared_memory) {
  MapStore store;
  std::vector<base::Thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back("rank", [&, rank] {
      Config config = {.rank = rank, .world_size = ranks};
      config.init_timeout = seconds(20);
      config.timeout = seconds(60);
      choose(way, config);
      auto context = Context::init(config, store.table());
      REQUIRE_MESSAGE(context.ok(), (context.ok() ? "" : context.error().message()));
      auto set = (*context)->split((*context)->world(), 0, rank);
      REQUIRE(set.ok());
      const auto named = NamedSet::make(**context, *std::move(set), options);
      body(rank, **context, *named);
      named->shutdown("");
    });
  }
}

/// A call that is not prepared yet.
struct Wish {
  std::string name;
  Request request;
  const void* input = nullptr;
  void* output = nullptr;
};

Wish all_reduce(const std::string& name, std::vector<float>& values, Op op = Op::sum) {
  Wish wish{name, {}, values.data(), values.data()};
  wish.request.op = op;
  wish.request.shape = {static_cast<int64_t>(values.size())};
  return wish;
}

Wish wish_of(NamedKind kind, const std::string& name, std::vector<int64_t>& values,
             std::vector<int64_t> shape) {
  Wish wish{name, {}, values.data(), nullptr};
  wish.request.kind = kind;
  wish.request.dtype = Dtype::i64;
  wish.request.shape = std::move(shape);
  return wish;
}

Result<NamedWork> submit(NamedSet& set, Wish wish) {
  HR_TRY(auto tensor, set.prepare(std::move(wish.name), std::move(wish.request)));
  return set.submit({std::move(tensor), wish.input, wish.output});
}

std::vector<int64_t> output_of(const NamedWork& work) {
  const auto bytes = work.output();
  const auto* first = reinterpret_cast<const int64_t*>(bytes.data());
  return {first, first + bytes.size() / sizeof(int64_t)};
}

void good(const Result<NamedWork>& work) {
  REQUIRE(work.ok());
  const auto how = work->wait(seconds(30));
  if (!how.ok()) {  // before other threads' failures end the process
    fprintf(stderr, "%s\n", how.error().message().c_str());
  }
  REQUIRE(how.ok());
}

TEST_CASE("names in another order on every rank") {
  for (const int ranks : {1, 2, 3, 5}) {
    each_rank(ranks, [ranks](int rank, Context&, NamedSet& set) {
      constexpr size_t kTensors = 60;
      for (int step = 0; step < 5; ++step) {
        std::vector<std::vector<float>> values;
        std::vector<size_t> order(kTensors);
        std::iota(order.begin(), order.end(), size_t{0});
        std::rotate(order.begin(), order.begin() + rank * 7, order.end());
        for (size_t i = 0; i < kTensors; ++i) {
          values.emplace_back(i * i * 13 % 40'000,
                              static_cast<float>(rank + 1) + static_cast<float>(i));
        }
        std::vector<Result<NamedWork>> works;
        for (const size_t i : order) {
          works.push_back(submit(set, all_reduce("t" + std::to_string(i), values[i])));
        }
        for (const auto& work : works) {
          good(work);
        }
        for (size_t i = 0; i < kTensors; ++i) {
          const auto wanted =
              static_cast<float>(ranks * (ranks + 1) / 2 + ranks * static_cast<int>(i));
          CHECK(values[i] == std::vector<float>(values[i].size(), wanted));
        }
      }
    });
  }
}

TEST_CASE("all of it between nodes") {
  for (const Way way : {Way::tcp, Way::nodes_of_two}) {
    CAPTURE(static_cast<int>(way));
    each_rank(
        4,
        [](int rank, Context&, NamedSet& set) {
          for (int step = 0; step < 3; ++step) {
            std::vector<std::vector<float>> values;
            std::vector<Result<NamedWork>> works;
            for (size_t i = 0; i < 20; ++i) {
              values.emplace_back(i * i * 100, static_cast<float>(rank + 1));
            }
            for (size_t i = 0; i < 20; ++i) {
              const size_t which = (i + static_cast<size_t>(rank) * 5) % 20;
              works.push_back(submit(set, all_reduce("t" + std::to_string(which), values[which])));
            }
            std::vector<int64_t> rows(static_cast<size_t>(rank), rank);
            const auto gathered = submit(set, wish_of(NamedKind::all_gather, "g", rows, {rank}));
            for (const auto& work : works) {
              good(work);
            }
            good(gathered);
            CHECK(output_of(*gathered) == std::vector<int64_t>{1, 2, 2, 3, 3, 3});
            for (const auto& one : values) {
              CHECK(one == std::vector<float>(one.size(), 10.0F));
            }
            base::sleep_for(milliseconds(rank * 2));  // idle for a while, some longer than others
          }
          const auto joined = set.join();
          good(joined);
        },
        {}, way);
  }
}

TEST_CASE("a call is heard behind an operation in which the caller sent nothing") {
  for (const Way way : {Way::tcp, Way::nodes_of_two}) {
    CAPTURE(static_cast<int>(way));
    each_rank(
        4,
        [](int rank, Context&, NamedSet& set) {
          std::vector<int64_t> rows(static_cast<size_t>(rank), rank);
          good(submit(set, wish_of(NamedKind::all_gather, "g", rows, {rank})));
          if (rank == 0) {  // the only one with something new
            base::sleep_for(milliseconds(20));
            set.shutdown("heard");
            std::vector<float> values(3, 1.0F);
            const auto late = submit(set, all_reduce("x", values));
            REQUIRE(late.ok());
            CHECK(late->wait(seconds(1)).error().message() ==
                  "comm: the process set has been shut down by rank 0: heard");
          } else {
            base::sleep_for(milliseconds(100));
          }
        },
        {}, way);
  }
}

TEST_CASE("shutdown and leaving between nodes are told to all") {
  for (const Way way : {Way::tcp, Way::nodes_of_two}) {
    CAPTURE(static_cast<int>(way));
    each_rank(
        4,
        [](int rank, Context&, NamedSet& set) {
          std::vector<float> values(3, 1.0F);
          if (rank == 3) {
            base::sleep_for(milliseconds(20));
            set.shutdown("no data");
          } else {
            const auto how = submit(set, all_reduce("x", values))->wait(seconds(30));
            REQUIRE_FALSE(how.ok());
            CHECK(how.error().message() ==
                  "comm: the process set has been shut down by rank 3: no data");
          }
        },
        {}, way);
  }
}

TEST_CASE("what is fused has the same bits as what is not") {
  std::vector<std::vector<float>> results[2];
  for (const uint64_t fusion : {uint64_t{0}, uint64_t{64} << 20}) {
    each_rank(3,
              [&](int rank, Context&, NamedSet& set) {
                std::vector<std::vector<float>> values(40);
                std::vector<Result<NamedWork>> works;
                for (size_t i = 0; i < values.size(); ++i) {
                  for (size_t k = 0; k < 100 + i * 50; ++k) {
                    values[i].push_back(1.0F / static_cast<float>((k + 3) * (i + 7) +
                                                                  static_cast<size_t>(rank) * 11));
                  }
                }
                for (size_t i = 0; i < values.size(); ++i) {
                  works.push_back(
                      submit(set, all_reduce("t" + std::to_string(i), values[i], Op::average)));
                }
                for (const auto& work : works) {
                  good(work);
                }
                if (rank == 1) {
                  results[fusion == 0 ? 0 : 1] = values;
                }
              },
              {.fusion_bytes = fusion});
  }
  CHECK(results[0] == results[1]);
}

TEST_CASE("gathers, broadcasts, exchanges") {
  each_rank(3, [](int rank, Context&, NamedSet& set) {
    // Rank r has r rows of two.
    std::vector<int64_t> rows(static_cast<size_t>(rank) * 2, rank);
    const auto gathered = submit(set, wish_of(NamedKind::all_gather, "g", rows, {rank, 2}));
    good(gathered);
    CHECK(gathered->rows() == 3);
    CHECK(gathered->received_splits() == std::vector<int64_t>{0, 1, 2});
    CHECK(output_of(*gathered) == std::vector<int64_t>{1, 1, 2, 2, 2, 2});

    std::vector<int64_t> told = {rank, rank * 10};
    auto broadcast = wish_of(NamedKind::broadcast, "b", told, {2});
    broadcast.request.root = 2;
    broadcast.output = told.data();
    good(submit(set, std::move(broadcast)));
    CHECK(told == std::vector<int64_t>{2, 20});

    // Rank r sends r rows to rank 0, one to rank 1 and none to rank 2.
    std::vector<int64_t> sent(static_cast<size_t>(rank) + 1);
    std::iota(sent.begin(), sent.end(), rank * 100);
    auto exchange = wish_of(NamedKind::all_to_all, "a", sent, {rank + 1});
    exchange.request.splits = {rank, 1, 0};
    const auto exchanged = submit(set, std::move(exchange));
    good(exchanged);
    const std::vector<std::vector<int64_t>> wanted = {{100, 200, 201}, {0, 101, 202}, {}};
    CHECK(output_of(*exchanged) == wanted[static_cast<size_t>(rank)]);
    CHECK(exchanged->received_splits() ==
          std::vector<std::vector<int64_t>>{
              {0, 1, 2}, {1, 1, 1}, {0, 0, 0}}[static_cast<size_t>(rank)]);

    // Four rows for three ranks: two, one, one.
    std::vector<int64_t> summed = {1, 2, 3, 4};
    const auto scattered = submit(set, wish_of(NamedKind::reduce_scatter, "r", summed, {4}));
    good(scattered);
    CHECK(output_of(*scattered) ==
          std::vector<std::vector<int64_t>>{{3, 6}, {9}, {12}}[static_cast<size_t>(rank)]);
  });
}

TEST_CASE("memory of one rank that begins between two elements is as good as any") {
  for (const size_t count : {3U, 100'000U}) {
    each_rank(2, [&](int rank, Context&, NamedSet& set) {
      for (const NamedKind kind :
           {NamedKind::all_reduce, NamedKind::adasum, NamedKind::reduce_scatter,
            NamedKind::all_gather, NamedKind::broadcast, NamedKind::all_to_all}) {
        const std::string told(named_kind_name(kind));
        CAPTURE(told);
        const size_t odd = rank == 1 ? 1 : 0;
        std::vector<std::byte> in(count * 8 + odd);
        std::vector<std::byte> out(count * 16 + odd);
        for (size_t i = 0; i < 2 * count; ++i) {
          const float one = 1.0F;
          std::memcpy(in.data() + odd + i * sizeof one, &one, sizeof one);
        }
        Request request;
        request.kind = kind;
        request.op = Op::max;
        request.shape = {static_cast<int64_t>(2 * count)};
        auto tensor = set.prepare("odd " + told, request);
        REQUIRE(tensor.ok());
        auto work = set.submit({*tensor, in.data() + odd, out.data() + odd});
        REQUIRE(work.ok());
        const auto how = work->wait(seconds(20));
        REQUIRE_MESSAGE(how.ok(), how.error().message());
        const auto elements = static_cast<size_t>(work->rows());
        float last = 0.0F;
        const size_t at = kind == NamedKind::adasum ? 2 * count : elements;
        std::memcpy(&last, out.data() + odd + (at - 1) * sizeof last, sizeof last);
        CHECK(last == 1.0F);
      }
    });
  }
}

TEST_CASE("a mismatch fails that operation on all ranks and no other") {
  each_rank(3, [](int rank, Context&, NamedSet& set) {
    std::vector<float> fine(10, 1.0F);
    std::vector<float> wrong(rank == 1 ? 5 : 4, 1.0F);
    const auto other = submit(set, all_reduce("fine", fine));
    const auto work = submit(set, all_reduce("wrong", wrong));
    const auto how = work->wait(seconds(30));
    REQUIRE_FALSE(how.ok());
    CHECK(how.error().code() == Errc::mismatch);
    CHECK(how.error().message().find("[5] on rank 1") != std::string::npos);
    good(other);
    CHECK(fine == std::vector<float>(10, 3.0F));
    wrong.assign(4, 1.0F);
    good(submit(set, all_reduce("wrong", wrong)));
  });
}

TEST_CASE("a name that is pending is refused, for groups as a whole") {
  std::atomic<bool> looked = false;
  each_rank(2, [&looked](int rank, Context&, NamedSet& set) {
    std::vector<float> first(3, 1.0F);
    std::vector<float> second(3, 1.0F);
    if (rank == 0) {
      const auto work = submit(set, all_reduce("x", first));
      const auto again = submit(set, all_reduce("x", second));
      REQUIRE_FALSE(again.ok());
      CHECK(again.error().message().find("same name") != std::string::npos);
      std::vector<NamedCall> group;
      for (const char* name : {"y", "x"}) {
        const Wish wish = all_reduce(name, second);
        group.push_back({*set.prepare(wish.name, wish.request), wish.input, wish.output});
      }
      CHECK_FALSE(set.submit_all(std::move(group)).ok());
      const auto other = submit(set, all_reduce("y", second));  // the group has left nothing
      looked = true;
      good(work);
      good(other);
    } else {
      while (!looked) {
        base::sleep_for(milliseconds(1));
      }
      const auto work = submit(set, all_reduce("y", second));
      good(submit(set, all_reduce("x", first)));
      good(work);
    }
    CHECK(first == std::vector<float>(3, 2.0F));
  });
}

TEST_CASE("joined ranks add nothing; the last one to join is told to all") {
  each_rank(3, [](int rank, Context&, NamedSet& set) {
    for (int step = 0; step < 3; ++step) {
      std::vector<float> sum(5, 2.0F);
      std::vector<float> least(5, 2.0F);
      std::vector<float> mean(200'000, 3.0F);
      for (int i = 0; i < 2 - rank; ++i) {  // rank 2 has no data at all
        sum.assign(5, 2.0F);
        mean.assign(200'000, 3.0F);
        const auto first = submit(set, all_reduce("sum", sum));
        const auto second = submit(set, all_reduce("min", least, Op::min));
        good(submit(set, all_reduce("mean", mean, Op::average)));
        good(first);
        good(second);
        CHECK(sum == std::vector<float>(5, i == 0 ? 4.0F : 2.0F));
        CHECK(least == std::vector<float>(5, 2.0F));
        CHECK(mean[7] == (i == 0 ? 2.0F : 1.0F));  // of three, whoever has joined
      }
      const auto joined = set.join();
      good(joined);
      CHECK(joined->last_joined() == 0);
    }
  });
}

TEST_CASE("average of those that have not joined") {
  each_rank(2,
            [](int rank, Context&, NamedSet& set) {
              if (rank == 0) {
                std::vector<float> mean(5, 3.0F);
                good(submit(set, all_reduce("mean", mean, Op::average)));
                CHECK(mean == std::vector<float>(5, 3.0F));
              }
              good(set.join());
            },
            {.join_active = true});
}

TEST_CASE("shutdown of one rank ends what is pending on all, with its reason") {
  each_rank(3, [](int rank, Context&, NamedSet& set) {
    std::vector<float> values(3, 1.0F);
    if (rank == 2) {
      set.shutdown("ValueError: no data");
    } else {
      const auto work = submit(set, all_reduce("x", values));
      const auto how = work->wait(seconds(30));
      REQUIRE_FALSE(how.ok());
      CHECK(how.error().code() == Errc::cancelled);
      CHECK(how.error().message() ==
            "comm: the process set has been shut down by rank 2: ValueError: no data");
    }
    const auto late = submit(set, all_reduce("y", values));
    CHECK_FALSE(late->wait(seconds(30)).ok());
  });
}

TEST_CASE("a set that goes without shutdown ends the others' operations") {
  MapStore store;
  std::vector<base::Thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back("rank", [&, rank] {
      Config config = {
          .rank = rank, .world_size = 2, .timeout = seconds(60), .init_timeout = seconds(20)};
      auto context = Context::init(config, store.table());
      REQUIRE(context.ok());
      auto set = (*context)->split((*context)->world(), 0, rank);
      REQUIRE(set.ok());
      const auto named = NamedSet::make(**context, *std::move(set), {});
      if (rank == 0) {
        std::vector<float> values(3, 1.0F);
        const auto how = submit(*named, all_reduce("x", values))->wait(seconds(30));
        REQUIRE_FALSE(how.ok());
        CHECK(how.error().code() == Errc::cancelled);
      }
    });
  }
}

TEST_CASE("a new set of some ranks works by itself") {
  each_rank(4, [](int rank, Context& context, NamedSet& set) {
    Wish call;
    call.name = "add_set";
    call.request.kind = NamedKind::add_set;
    call.request.splits = {1, 3};
    const auto work = submit(set, std::move(call));
    good(work);
    auto fresh = work->take_new_set();
    CHECK((fresh != nullptr) == (rank % 2 == 1));
    if (fresh != nullptr) {
      const auto named = NamedSet::make(context, std::move(fresh), {});
      std::vector<float> values(3, static_cast<float>(rank));
      good(submit(*named, all_reduce("x", values)));
      CHECK(values == std::vector<float>(3, 4.0F));
      named->shutdown("");
    }
  });
}

TEST_CASE("a stall is reported by rank 0, and ends the set when asked to") {
  base::Mutex mutex;
  std::string said;
  base::set_log_sink([&](base::LogLevel, std::string_view text) {
    base::MutexLock lock(mutex);
    said += text;
    said += '\n';
  });
  each_rank(2,
            [](int rank, Context&, NamedSet& set) {
              std::vector<float> values(3, 1.0F);
              const auto work =
                  submit(set, all_reduce(rank == 0 ? "layer.weight" : "layer.weight_1", values));
              const auto how = work->wait(seconds(30));
              REQUIRE_FALSE(how.ok());
              CHECK(how.error().message().find("layer.weight_1") != std::string::npos);
            },
            {.stall_warn = milliseconds(50), .stall_fail = milliseconds(300)});
  base::set_log_sink(nullptr);
  CHECK(said.find("\ncomm: 1: [layer.weight]; it waits for \"layer.weight_1\" itself") !=
        std::string::npos);
}

TEST_CASE("the timeline tells who was ready when, and what was done") {
  base::TestFolder folder;
  each_rank(2, [&](int rank, Context&, NamedSet& set) {
    const auto timeline = Timeline::open({.path = folder / "%r.json", .rank = rank});
    REQUIRE(timeline.ok());
    std::vector<float> before(3, 1.0F);
    good(submit(set, all_reduce("before", before)));
    set.set_timeline(*timeline);
    good(submit(set, all_reduce("all have theirs", before)));
    for (int step = 0; step < 2; ++step) {
      std::vector<float> first(3, 1.0F);
      std::vector<float> second(5, 1.0F);
      const auto work = submit(set, all_reduce("a", first));
      good(submit(set, all_reduce("b", second)));
      good(work);
    }
    set.set_timeline(nullptr);
  });
  for (const char* name : {"0.json", "1.json"}) {
    const auto text = base::read_file(folder / name);
    REQUIRE(text.ok());
    const auto events = parse_json(*text);
    REQUIRE(events.ok());
    std::map<std::string, int> count;
    for (const Json& event : events->items()) {
      ++count[event.get_string("name") + " " + event.get_string("ph")];
    }
    CHECK(count["process_name M"] >= 2);
    for (const char* what :
         {"NEGOTIATE_ALLREDUCE B", "ALLREDUCE B", "QUEUE B", "SHM_ALLREDUCE B", "0 X", "1 X"}) {
      CAPTURE(what);
      CHECK(count[what] >= 4);
    }
    CHECK(text->find("\"shape\":\"[5]\"") != std::string::npos);
  }
}

TEST_CASE("an idle engine uses no processor time") {
  for (const Way way : {Way::shared_memory, Way::tcp, Way::nodes_of_two}) {
    CAPTURE(static_cast<int>(way));
    each_rank(
        4,
        [](int, Context&, NamedSet&) {
          base::sleep_for(milliseconds(50));
          const auto before = base::process_cpu_time();
          base::sleep_for(milliseconds(300));
          CHECK((base::process_cpu_time() - before).count() < 60'000);
        },
        {}, way);
  }
}

TEST_CASE("ranks that only wait for a stalled tensor do not wake up over and over") {
  const auto switches = [] {
    rusage usage = {};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nvcsw;
  };
  base::set_log_sink([](base::LogLevel, std::string_view) {});
  each_rank(2,
            [&](int rank, Context&, NamedSet& set) {
              std::vector<float> values(3, 1.0F);
              if (rank == 1) {
                const auto work = submit(set, all_reduce("alone", values));
                base::sleep_for(milliseconds(100));  // it is a stall by now
                const auto before = switches();
                base::sleep_for(milliseconds(500));
                CHECK(switches() - before < 200);
                CHECK_FALSE(work->done());
              } else {
                base::sleep_for(milliseconds(700));
              }
            },
            {.stall_warn = milliseconds(20)});
  base::set_log_sink(nullptr);
}

TEST_CASE("threads submit at once") {
  each_rank(2, [](int, Context&, NamedSet& set) {
    std::vector<base::Thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back("user", [&set, t] {
        for (int i = 0; i < 50; ++i) {
          std::vector<float> values(100, static_cast<float>(t));
          good(submit(set, all_reduce("thread " + std::to_string(t), values)));
          REQUIRE(values == std::vector<float>(100, static_cast<float>(2 * t)));
        }
      });
    }
  });
}

}  // namespace
}  // namespace headrace::comm
