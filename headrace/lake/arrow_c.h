// SPDX-License-Identifier: Apache-2.0
// The structs of the Arrow C data and stream interfaces (a frozen ABI), and batches across them.
#pragma once

#include <cstdint>
#include <memory>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/lake/table.h"

// The guards are those of the specification, so that our declarations and Arrow's do not meet
// twice.
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

extern "C" {
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};
}
#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
extern "C" {
struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};
}
#endif

namespace headrace::lake {

/// Take `stream` over (its `release` is cleared) and read it as batches. Errors of the producer
/// come back from next().
HR_API Result<std::unique_ptr<BatchReader>> import_stream(ArrowArrayStream* stream);
/// Read `stream` to its end.
HR_API Result<Batch> import_batch(ArrowArrayStream* stream);

/// Fill `out` with a stream that owns `reader` and releases it with the last reference.
HR_API Result<void> export_stream(std::unique_ptr<BatchReader> reader, ArrowArrayStream* out);
/// The same for rows in memory; the stream owns a copy-free move of them.
HR_API Result<void> export_batch(Batch batch, ArrowArrayStream* out);

/// Rows in memory as a reader of one batch.
HR_API std::unique_ptr<BatchReader> reader_of(Batch batch);

}  // namespace headrace::lake
