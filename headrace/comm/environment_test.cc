// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/environment.h"

#include <doctest/doctest.h>

#include <map>

namespace headrace::comm {

namespace {

using Variables = std::map<std::string, std::string>;

Result<JobEnvironment> read(const Variables& variables) {
  return read_job_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

Topology two_nodes(int rank) {
  Topology topology;
  topology.nodes = 2;
  topology.node_of = {0, 0, 1};
  topology.hosts = {"a", "a", "b"};
  topology.node_rank = topology.node_of[static_cast<size_t>(rank)];
  topology.local_rank = rank == 1 ? 1 : 0;
  topology.local_world_size = rank == 2 ? 1 : 2;
  return topology;
}

}  // namespace

TEST_CASE("without a launcher a process is a world of its own") {
  const auto alone = read({});
  REQUIRE(alone.ok());
  CHECK(alone->starter == Starter::nobody);
  CHECK(alone->size == 1);
  CHECK_FALSE(alone->serves_store);
}

TEST_CASE("a rank of headrace run knows its store") {
  const Variables variables = {{"HEADRACE_STORE", "10.0.0.1:4711"},
                               {"HEADRACE_JOB", "j"},
                               {"HEADRACE_RANK", "1"},
                               {"HEADRACE_SIZE", "3"},
                               {"HEADRACE_LOCAL_RANK", "1"},
                               {"HEADRACE_LOCAL_SIZE", "2"},
                               {"HEADRACE_CROSS_RANK", "0"},
                               {"HEADRACE_CROSS_SIZE", "1"},
                               {"HEADRACE_HOST_SIZES", "2,1"},
                               {"HEADRACE_SECRET_FILE", "s"},
                               {"HEADRACE_START_TIMEOUT", "7"},
                               {"RANK", "1"},
                               {"WORLD_SIZE", "3"}};
  const auto rank = read(variables);
  REQUIRE_MESSAGE(rank.ok(), rank.error().message());
  CHECK(rank->starter == Starter::headrace);
  CHECK(rank->store == wire::Endpoint::tcp("10.0.0.1", 4711));
  CHECK(rank->start_timeout == std::chrono::seconds(7));
  CHECK_FALSE(rank->serves_store);
  const Place place = place_of(*rank, two_nodes(1), 1);
  CHECK(place.local_rank == 1);
  CHECK_FALSE(place.is_homogeneous);

  Variables bad = variables;
  bad["HEADRACE_RANK"] = "x";
  CHECK(read(bad).error().message().find("HEADRACE_RANK is \"x\"") != std::string::npos);
  bad["HEADRACE_RANK"] = "3";
  CHECK(read(bad).error().message().find("rank 3 of 3") != std::string::npos);
  bad.erase("HEADRACE_RANK");
  CHECK(read(bad).error().message().find("HEADRACE_RANK is not set") != std::string::npos);

  SUBCASE("a torchrun inside it starts ranks of its own") {
    Variables inside = variables;
    inside["TORCHELASTIC_RUN_ID"] = "r";
    CHECK(read(inside)->starter == Starter::headrace);
    inside["WORLD_SIZE"] = inside["LOCAL_WORLD_SIZE"] = "2";
    CHECK(read(inside)->starter == Starter::torchrun);
  }
}

TEST_CASE("rank 0 of torchrun serves the store") {
  Variables variables = {{"RANK", "0"},
                         {"WORLD_SIZE", "4"},
                         {"LOCAL_RANK", "0"},
                         {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "node-1"},
                         {"MASTER_PORT", "29500"}};
  const auto many = read(variables);
  REQUIRE(many.ok());
  CHECK(many->serves_store);
  CHECK(many->store == wire::Endpoint::tcp("node-1", 29501));
  variables["HEADRACE_PORT_OFFSET"] = "10";
  CHECK(read(variables)->store.port == 29510);
  variables["RANK"] = "3";
  CHECK_FALSE(read(variables)->serves_store);
  CHECK(read(variables)->job == many->job);

  SUBCASE("a world of one needs no store") {
    CHECK(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).ok());
  }
  SUBCASE("on one host without a port") {
    variables["LOCAL_WORLD_SIZE"] = "4";
    CHECK(read(variables)->store.kind == wire::Endpoint::Kind::unix_name);
    const std::string before = read(variables)->store.text();
    variables["TORCHELASTIC_RESTART_COUNT"] = "1";
    CHECK(read(variables)->store.text() != before);
  }
  SUBCASE("what is missing is named") {
    variables.erase("MASTER_PORT");
    CHECK(read(variables).error().message().find("MASTER_PORT is not set") != std::string::npos);
  }
}

TEST_CASE("Slurm's and MPI's ranks find one another") {
  const Variables slurm = {{"SLURM_PROCID", "1"},   {"SLURM_NTASKS", "4"},
                           {"SLURM_STEP_ID", "0"},  {"SLURM_LOCALID", "1"},
                           {"SLURM_JOB_ID", "123"}, {"SLURM_JOB_NODELIST", "n[03-05,9],x"},
                           {"SLURM_NNODES", "2"}};
  const auto step = read(slurm);
  REQUIRE_MESSAGE(step.ok(), step.error().message());
  CHECK(step->starter == Starter::slurm);
  CHECK(step->store == wire::Endpoint::tcp("n03", 20124));
  Variables batch = slurm;
  batch.erase("SLURM_STEP_ID");
  CHECK(read(batch)->starter == Starter::nobody);

  const auto mpi = read({{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMIX_NAMESPACE", "n1"}});
  REQUIRE(mpi.ok());
  CHECK(mpi->starter == Starter::open_mpi);
  CHECK(mpi->store.kind == wire::Endpoint::Kind::unix_name);
  CHECK(read({{"OMPI_COMM_WORLD_RANK", "1"},
              {"OMPI_COMM_WORLD_SIZE", "4"},
              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})
            .error()
            .message()
            .find("MASTER_ADDR") != std::string::npos);
  const auto pmi = read({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}});
  REQUIRE(pmi.ok());
  CHECK(pmi->serves_store);
}

TEST_CASE("the first host of Slurm's list") {
  CHECK(first_of_nodelist("a") == "a");
  CHECK(first_of_nodelist("a,b[1-2]") == "a");
  CHECK(first_of_nodelist("n[03-05,9],x") == "n03");
  CHECK(first_of_nodelist("n[7]") == "n7");
  CHECK(first_of_nodelist("n[1-2]-ib,x") == "n1-ib");
  CHECK(first_of_nodelist("") == "");
}

TEST_CASE("places come from what the ranks found out, where no launcher told them") {
  const Place place = place_of({}, two_nodes(2), 2);
  CHECK(place.size == 3);
  CHECK(place.local_rank == 0);
  CHECK(place.cross_rank == 1);
  CHECK(place.cross_size == 2);
  CHECK_FALSE(place.is_homogeneous);
  CHECK(place_of({}, two_nodes(1), 1).cross_size == 1);
}

TEST_CASE("a world of one is joined any number of times") {
  for (int i = 0; i < 3; ++i) {
    const auto joined = join_job();
    REQUIRE_MESSAGE(joined.ok(), joined.error().message());
    CHECK(joined->place.size == 1);
    CHECK(joined->context->config().generation >= 1);
  }
}

}  // namespace headrace::comm
