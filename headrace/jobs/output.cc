// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/output.h"

#include <string>

#include "headrace/jobs/series_table.h"
#include "headrace/lake/table.h"

namespace headrace::jobs {

namespace {

Result<void> check_one(const base::Path& out, const std::string& url, lake::Format format) {
  const auto refused = [&](const std::string& what) {
    return Error{Errc::invalid_argument, out.string() + ": " + what};
  };
  switch (lake::part_of_table(url, format, out)) {
    case lake::TablePart::none: return {};
    case lake::TablePart::same_file:
      return refused("is a file that is read here, of " + url + "; name another file to write");
    case lake::TablePart::one_more:
      return refused("would become a part of the table " + url +
                     ", which is read from its folder; name another place to write");
  }
  return {};
}

}  // namespace

Result<void> check_apart(const base::Path& out, std::span<const TableSpec> tables) {
  for (const TableSpec& table : tables) {
    if (out.empty() || table.url.empty()) {
      continue;
    }
    const auto format = parse_format(table.format);
    const auto settled = settle_table(table);
    const TableSpec& spec = settled.ok() ? settled->spec : table;
    HR_TRY(check_one(out, spec.url, format.ok() ? *format : lake::Format::automatic));
    HR_TRY(check_one(out, spec.static_table, lake::Format::automatic));
    HR_TRY(check_one(out, spec.metadata, lake::Format::json_lines));
  }
  return {};
}

}  // namespace headrace::jobs
