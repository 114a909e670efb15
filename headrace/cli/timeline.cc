// SPDX-License-Identifier: Apache-2.0
// `headrace timeline`: traces of what ranks did.
#include "headrace/comm/timeline.h"

#include <fmt/format.h>

#include <cstdio>

#include "headrace/base/json.h"
#include "headrace/cli/command.h"

namespace headrace::cli {

namespace {

int merge(const Arguments& arguments) {
  std::vector<base::Path> files;
  for (const std::string& name : arguments.texts("files")) {
    files.emplace_back(name);
  }
  const base::Path output = arguments.text("out");
  const auto merged = comm::merge_timelines(files, output);
  if (!merged.ok()) {
    return report_error(merged.error(), arguments.flag("json"));
  }
  if (arguments.flag("json")) {
    const Json told =
        Json::object({{"out", output.string()}, {"files", static_cast<int64_t>(files.size())}});
    fmt::print("{}\n", told.dump());
  } else {
    fmt::print("{}: {} files; open it in Perfetto or chrome://tracing\n", output.string(),
               files.size());
  }
  return kExitOk;
}

}  // namespace

std::vector<Command> timeline_commands() {
  return {{
      .name = "timeline merge",
      .summary = "put the timelines of several ranks into one file",
      .details = "Ranks write timelines when HOROVOD_TIMELINE (or HEADRACE_TIMELINE) names a file; "
                 "with %r in the name each rank writes its own. The parts of a long one, FILE and "
                 "FILE.older, are both taken.",
      .examples = {"headrace timeline merge trace.0.json trace.1.json --out trace.json"},
      .options =
          {{.name = "files", .help = "timelines of ranks", .required = true, .repeated = true},
           {.name = "--out", .help = "file for all of them", .required = true}},
      .run = merge,
  }};
}

}  // namespace headrace::cli
