// SPDX-License-Identifier: Apache-2.0
// Collectives for C and for languages that call C: opaque handles, codes, no C++ type.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "headrace/base/export.h"

#ifdef __cplusplus
extern "C" {
#endif

// Kinds, types and reductions are integers and not enums: whatever a caller hands in is looked at.

/// How a call ended. The kinds of failure are those of headrace/base/result.h; the numbers are
/// fixed.
typedef int32_t hr_comm_code;
enum {
  HR_COMM_OK = 0,
  HR_COMM_INVALID_ARGUMENT = 1,
  HR_COMM_NOT_FOUND = 2,
  HR_COMM_ALREADY_EXISTS = 3,
  HR_COMM_MISMATCH = 4,
  HR_COMM_CORRUPT = 5,
  HR_COMM_IO = 6,
  HR_COMM_OUT_OF_SPACE = 7,
  HR_COMM_OUT_OF_MEMORY = 8,
  HR_COMM_TIMEOUT = 9,
  HR_COMM_CANCELLED = 10,
  HR_COMM_CHILD_FAILED = 11,
  HR_COMM_UNSUPPORTED = 12,
  HR_COMM_BUSY = 13,
  HR_COMM_PEER_DEAD = 14,
  HR_COMM_AUTH_FAILED = 15,
  HR_COMM_INTERNAL = 16
};

/// Element types; the numbers are fixed.
typedef int32_t hr_comm_dtype;
enum {
  HR_COMM_U8 = 0,
  HR_COMM_I8 = 1,
  HR_COMM_U16 = 2,
  HR_COMM_I16 = 3,
  HR_COMM_U32 = 4,
  HR_COMM_I32 = 5,
  HR_COMM_U64 = 6,
  HR_COMM_I64 = 7,
  HR_COMM_F16 = 8,
  HR_COMM_BF16 = 9,
  HR_COMM_F32 = 10,
  HR_COMM_F64 = 11,
  HR_COMM_BOOL = 12
};

/// Reductions, as in headrace/comm/buffer.h; the numbers are fixed.
typedef int32_t hr_comm_op;
enum {
  HR_COMM_SUM = 0,
  HR_COMM_AVERAGE = 1,
  HR_COMM_MIN = 2,
  HR_COMM_MAX = 3,
  HR_COMM_PRODUCT = 4,
  HR_COMM_BAND = 5,
  HR_COMM_BOR = 6,
  HR_COMM_BXOR = 7
};

typedef struct hr_comm_context hr_comm_context;  ///< this process as a rank of a job
typedef struct hr_comm_set hr_comm_set;          ///< an ordered subset of the ranks
typedef struct hr_comm_work hr_comm_work;        ///< a collective that was submitted
typedef struct hr_comm_value hr_comm_value;      ///< where a store's `get` puts what it found

/// The last failure of this thread. Texts are valid until its next call of hr_comm_*.
typedef struct hr_comm_error {
  hr_comm_code code;
  const char* message;  ///< what, where, with which values, and what to do
  int32_t rank;         ///< where it happened first; -1: not known
  int64_t pid;          ///< -1: not known
  const char* host;     ///< empty: not known
} hr_comm_error;

/// Never null; HR_COMM_OK and an empty text when no call of this thread has failed.
HR_API const hr_comm_error* hr_comm_last_error(void);
/// "peer_dead"; "" for no code of ours.
HR_API const char* hr_comm_code_name(hr_comm_code code);

/// Memory of `count` elements, borrowed until the operation is done.
typedef struct hr_comm_in {
  const void* data;
  uint64_t count;
  hr_comm_dtype dtype;
} hr_comm_in;
typedef struct hr_comm_out {
  void* data;
  uint64_t count;
  hr_comm_dtype dtype;
} hr_comm_out;

/// How a collective is to be done; null stands for HR_COMM_OPTIONS. Begin with
/// `hr_comm_options options = HR_COMM_OPTIONS;`.
typedef struct hr_comm_options {
  size_t struct_bytes;  ///< sizeof(hr_comm_options), so that a later library knows this layout
  const char* name;     ///< for messages; null: none
  double prescale;      ///< on each contribution; reductions only
  double postscale;     ///< on the result; reductions only
  int64_t timeout_ms;   ///< after which it fails on all ranks; 0: the context's
} hr_comm_options;
#define HR_COMM_OPTIONS {sizeof(hr_comm_options), NULL, 1.0, 1.0, 0}

/// A key-value service that all ranks share, as the caller has it; see headrace/comm/store_table.h.
/// Called during hr_comm_init only, on its thread. Answer 0 for success; what else is HR_COMM_IO,
/// and 1 from `get` HR_COMM_TIMEOUT.
typedef struct hr_comm_store {
  void* user;  ///< first argument of both
  int (*set)(void* user, const char* key, const void* value, size_t bytes);
  /// Wait `timeout_ms` at most until the key is there, then hand over with hr_comm_value_set.
  int (*get)(void* user, const char* key, int64_t timeout_ms, hr_comm_value* value);
} hr_comm_store;
HR_API void hr_comm_value_set(hr_comm_value* value, const void* data, size_t bytes);

/// Begin with `hr_comm_config config = HR_COMM_CONFIG;`.
typedef struct hr_comm_config {
  size_t struct_bytes;
  int32_t rank;
  int32_t world_size;
  const char* job;          ///< keys in the store begin with it; null: "headrace"
  uint64_t generation;      ///< so do keys of each new membership
  int64_t timeout_ms;       ///< of an operation
  int64_t init_timeout_ms;  ///< to meet all ranks
} hr_comm_config;
#define HR_COMM_CONFIG {sizeof(hr_comm_config), 0, 1, NULL, 0, 1800000, 300000}

/// Become a rank of the job that the environment names (headrace run, torchrun, Slurm, MPI). A
/// process that nobody started as a rank is a world of one. `timeout_ms` of an operation; 0: 30
/// minutes. See join_job in headrace/comm/environment.h.
HR_API hr_comm_code hr_comm_join(int64_t timeout_ms, hr_comm_context** context);
/// The same with ranks and store of the caller.
HR_API hr_comm_code hr_comm_init(const hr_comm_config* config, const hr_comm_store* store,
                                 hr_comm_context** context);
/// Leave the job. Its sets and works become invalid but for hr_comm_set_free and hr_comm_work_free.
/// Null is allowed, here and in the other two.
HR_API void hr_comm_free(hr_comm_context* context);

/// Local: on this host; cross: among the hosts that have a rank with this local rank.
typedef struct hr_comm_place {
  int32_t rank;
  int32_t size;
  int32_t local_rank;
  int32_t local_size;
  int32_t cross_rank;
  int32_t cross_size;
} hr_comm_place;
HR_API hr_comm_code hr_comm_place_of(const hr_comm_context* context, hr_comm_place* place);

/// The last operations of each process set, as JSON: Context::flight_record() in
/// headrace/comm/context.h. `text` is valid until the next call of this function on this thread.
HR_API hr_comm_code hr_comm_flight_record(const hr_comm_context* context, const char** text);

/// The set of all ranks; the context owns it.
HR_API hr_comm_set* hr_comm_world(hr_comm_context* context);
/// The ranks of `parent` with the same color, in the order of (key, rank). All ranks of `parent`
/// call it at the same place among its operations. Null for a negative color.
HR_API hr_comm_code hr_comm_split(hr_comm_set* parent, int32_t color, int32_t key,
                                  hr_comm_set** set);
HR_API void hr_comm_set_free(hr_comm_set* set);
/// -1 where there is no set.
HR_API int32_t hr_comm_rank(const hr_comm_set* set);
HR_API int32_t hr_comm_size(const hr_comm_set* set);
/// Write the world ranks of the members in their order; `count` is hr_comm_size.
HR_API hr_comm_code hr_comm_world_ranks(const hr_comm_set* set, int32_t* ranks, uint64_t count);
/// End all operations, pending and later, on all ranks with HR_COMM_CANCELLED and this reason.
HR_API hr_comm_code hr_comm_abort(hr_comm_set* set, const char* reason);
/// What all operations of this set end with, once it has failed; HR_COMM_OK before.
HR_API hr_comm_code hr_comm_set_failure(const hr_comm_set* set);

// Collectives, as headrace/comm/process_set.h has them. With `work` null the call returns when the
// operation is done; else at once, with a handle to be freed. A call that fails at once gives none.
// `in` and `out` of one call are the same memory or do not overlap. Counts are elements.

HR_API hr_comm_code hr_comm_all_reduce(hr_comm_set* set, hr_comm_in in, hr_comm_out out,
                                       hr_comm_op op, const hr_comm_options* options,
                                       hr_comm_work** work);
HR_API hr_comm_code hr_comm_reduce(hr_comm_set* set, hr_comm_in in, hr_comm_out out, int32_t root,
                                   hr_comm_op op, const hr_comm_options* options,
                                   hr_comm_work** work);
HR_API hr_comm_code hr_comm_broadcast(hr_comm_set* set, hr_comm_out inout, int32_t root,
                                      const hr_comm_options* options, hr_comm_work** work);
HR_API hr_comm_code hr_comm_all_gather(hr_comm_set* set, hr_comm_in in, hr_comm_out out,
                                       const hr_comm_options* options, hr_comm_work** work);
/// `counts` of all `_v` have one entry for each rank of the set.
HR_API hr_comm_code hr_comm_all_gather_v(hr_comm_set* set, hr_comm_in in, const uint64_t* counts,
                                         hr_comm_out out, const hr_comm_options* options,
                                         hr_comm_work** work);
HR_API hr_comm_code hr_comm_reduce_scatter(hr_comm_set* set, hr_comm_in in, hr_comm_out out,
                                           hr_comm_op op, const hr_comm_options* options,
                                           hr_comm_work** work);
HR_API hr_comm_code hr_comm_reduce_scatter_v(hr_comm_set* set, hr_comm_in in,
                                             const uint64_t* counts, hr_comm_out out, hr_comm_op op,
                                             const hr_comm_options* options, hr_comm_work** work);
HR_API hr_comm_code hr_comm_all_to_all(hr_comm_set* set, hr_comm_in in, hr_comm_out out,
                                       const hr_comm_options* options, hr_comm_work** work);
HR_API hr_comm_code hr_comm_all_to_all_v(hr_comm_set* set, hr_comm_in in, const uint64_t* sent,
                                         hr_comm_out out, const uint64_t* received,
                                         const hr_comm_options* options, hr_comm_work** work);
HR_API hr_comm_code hr_comm_gather(hr_comm_set* set, hr_comm_in in, hr_comm_out out, int32_t root,
                                   const hr_comm_options* options, hr_comm_work** work);
HR_API hr_comm_code hr_comm_scatter(hr_comm_set* set, hr_comm_in in, hr_comm_out out, int32_t root,
                                    const hr_comm_options* options, hr_comm_work** work);
HR_API hr_comm_code hr_comm_barrier(hr_comm_set* set, const hr_comm_options* options,
                                    hr_comm_work** work);

/// Wait until it is done: its outcome. After `limit_ms` HR_COMM_TIMEOUT, and it goes on; negative:
/// as long as the operation's own timeout lets it.
HR_API hr_comm_code hr_comm_wait(const hr_comm_work* work, int64_t limit_ms);
/// Set `done` to 0 or 1; once it is done, the outcome.
HR_API hr_comm_code hr_comm_test(const hr_comm_work* work, int* done);
/// Call `then` once with the outcome, on the thread that ends the operation (where
/// hr_comm_last_error tells more), or here when it is done already. It must not block and must not
/// submit.
HR_API hr_comm_code hr_comm_on_done(const hr_comm_work* work,
                                    void (*then)(void* user, hr_comm_code outcome), void* user);
/// The operation goes on without its handle; its memory is borrowed all the same.
HR_API void hr_comm_work_free(hr_comm_work* work);

#ifdef __cplusplus
}  // extern "C"
#endif
