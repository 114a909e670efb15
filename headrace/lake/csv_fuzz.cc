// SPDX-License-Identifier: Apache-2.0
// Whatever a CSV file holds, its rows end with the end or an error, however the bytes are cut into
// reads; cells lie in the row, and types are guessed and values read without a fault.
#include <algorithm>

#include "headrace/lake/text_internal.h"

namespace headrace::lake {

namespace {

class FuzzStream final : public scan::ByteStream {
 public:
  FuzzStream(std::string_view bytes, size_t step) : bytes_(bytes), step_(step) {}
  Result<int64_t> read(std::span<char> out) override {
    const size_t count = std::min({step_, out.size(), bytes_.size()});
    std::copy_n(bytes_.data(), count, out.data());
    bytes_.remove_prefix(count);
    return static_cast<int64_t>(count);
  }

 private:
  std::string_view bytes_;
  size_t step_;
};

/// Every cell, one string each; the error's message last, if there was one.
std::vector<std::string> read_cells(std::string_view bytes, size_t step) {
  CsvRows rows(std::make_unique<FuzzStream>(bytes, step), "fuzz");
  std::vector<CsvCell> cells;
  std::vector<std::string> out;
  TypeGuess guess;
  for (;;) {
    const auto some = rows.next(&cells);
    if (!some.ok()) {
      out.push_back(some.error().message());
      break;
    }
    if (!*some) {
      break;
    }
    HR_CHECK(!cells.empty(), "a row without a cell");
    for (const CsvCell& cell : cells) {
      HR_CHECK(cell.text.size() <= bytes.size(), "a cell longer than the file");
      out.emplace_back(cell.text);
      guess.see(cell, "fuzz");
    }
  }
  for (const std::string& text : out) {
    Value value;
    static_cast<void>(cell_value({text, false}, guess.type(), &value));
  }
  return out;
}

}  // namespace

}  // namespace headrace::lake

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto whole = headrace::lake::read_cells(bytes, size + 1);
  HR_CHECK(whole == headrace::lake::read_cells(bytes, 1 + size % 7), "cut reads give other cells");
  return 0;
}
