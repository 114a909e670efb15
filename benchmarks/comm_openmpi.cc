// SPDX-License-Identifier: Apache-2.0
// Open MPI's side of comm_collectives.py, which builds it with mpicxx where that is installed.
#include "comm_worker.h"

#include <mpi.h>

namespace {

class OpenMpi : public comm_worker::Peer {
 public:
  int rank() override {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
  }
  int size() override {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  void all_reduce(void* inout, size_t count, bool bf16) override {
    if (bf16) {
      std::fprintf(stderr, "Open MPI has no bf16\n");
      MPI_Abort(MPI_COMM_WORLD, 4);
    }
    MPI_Allreduce(MPI_IN_PLACE, inout, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void reduce_scatter(void* in, void* out, size_t count) override {
    MPI_Reduce_scatter_block(in, out, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void all_gather(void* in, void* out, size_t count) override {
    MPI_Allgather(in, static_cast<int>(count), MPI_FLOAT, out, static_cast<int>(count), MPI_FLOAT,
                  MPI_COMM_WORLD);
  }
  void all_to_all(void* in, void* out, size_t count) override {
    MPI_Alltoall(in, static_cast<int>(count), MPI_FLOAT, out, static_cast<int>(count), MPI_FLOAT,
                 MPI_COMM_WORLD);
  }
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  OpenMpi peer;
  const int code = comm_worker::serve(peer, argv[1]);
  MPI_Finalize();
  return code;
}
