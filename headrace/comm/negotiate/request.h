// SPDX-License-Identifier: Apache-2.0
// What a rank says of a tensor that it has ready, and the bytes that say it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/comm/buffer.h"

namespace headrace::comm {

/// Operations of the named mode; the numbers are on the wire.
enum class NamedKind : uint8_t {
  all_reduce,
  adasum,
  all_gather,
  broadcast,
  all_to_all,
  reduce_scatter,
  barrier,
  add_set,     ///< a new process set of the ranks in `splits`
  remove_set,  ///< its end
};

HR_API std::string_view named_kind_name(NamedKind kind);
/// "ALLREDUCE", as timelines have it.
HR_API std::string upper_name(NamedKind kind);
HR_API bool is_reduction(NamedKind kind);

struct HR_API Request {
  NamedKind kind = NamedKind::all_reduce;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  int32_t root = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  std::optional<Wire16> wire16 = {};  ///< reductions of f32; none: the context's
  std::vector<int64_t> shape;
  std::vector<int64_t> splits;  ///< alltoall: rows for each rank; add_set, remove_set: world ranks
  std::string group;            ///< members of a group are done together; empty: none
  uint32_t group_size = 0;

  uint64_t elements() const;
  /// Rows are the first dimension; a tensor without dimensions has one.
  uint64_t rows() const { return shape.empty() ? 1 : static_cast<uint64_t>(shape[0]); }
  uint64_t row_elements() const;
};

/// Bytes that are equal exactly when the requests are.
HR_API std::string encode(const Request& request);
/// `corrupt` when the bytes are none that encode() makes.
HR_API Result<Request> decode_request(std::string_view bytes);

/// "float32[3, 4]".
HR_API std::string shape_text(const std::vector<int64_t>& shape);

/// Writes numbers and texts one after the other.
class HR_API MessageWriter {
 public:
  void number(uint64_t value);  ///< 7 bits a byte, lowest first
  void text(std::string_view value);
  void fixed(double value);
  const std::string& bytes() const& { return bytes_; }
  std::string bytes() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads them again. Past the end, or beyond `limit`, all that follow are zero and good() is false.
class HR_API MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : bytes_(bytes) {}
  uint64_t number(uint64_t limit = UINT64_MAX);
  std::string_view text();
  double fixed();
  bool good() const { return good_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view take(size_t bytes);
  std::string_view bytes_;
  bool good_ = true;
};

}  // namespace headrace::comm
