// SPDX-License-Identifier: Apache-2.0
// A file being replaced as a sink that remembers its first error.
#pragma once

#include <optional>
#include <string_view>

#include "headrace/base/file.h"
#include "headrace/base/result.h"
#include "headrace/lake/scan/storage_internal.h"

namespace headrace::lake {

class FileSink final : public scan::ByteSink {
 public:
  explicit FileSink(base::FileReplacement* file) : file_(file) {}
  Result<void> write(std::string_view bytes) override {
    Result<void> result = file_->write(bytes);
    if (!result.ok() && !first_error_) {
      first_error_ = result.error();
    }
    return result;
  }
  Result<void> finish() override { return {}; }
  Result<void> first_error() const {
    return first_error_ ? Result<void>(*first_error_) : Result<void>();
  }

 private:
  base::FileReplacement* file_;
  std::optional<Error> first_error_;
};

}  // namespace headrace::lake
