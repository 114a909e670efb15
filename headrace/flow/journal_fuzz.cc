// SPDX-License-Identifier: Apache-2.0
// Whatever the records of a journal hold, replaying them ends with a state or an error. The input
// is records: one byte type, two bytes length, payload; a first record of type 1 is put in front.
#include <string>

#include "headrace/flow/replay.h"

namespace {

std::string header() {
  headrace::flow::RunHeader header;
  header.run_id = "r";
  header.pipeline_name = "p";
  header.pipeline_path = "p.json";
  header.document = R"json({"name": "p", "properties": {"variables": {"v": {"type": "Array"}},
    "activities": [{"name": "each", "type": "ForEach", "typeProperties": {"items": "@range(0, 3)",
    "activities": [{"name": "do", "type": "X", "policy": {"retry": 1}}, {"name": "keep",
    "type": "AppendVariable", "dependsOn": [{"activity": "do", "dependencyConditions":
    ["Completed"]}], "typeProperties": {"variableName": "v", "value": "@item()"}}]}},
    {"name": "w", "type": "Wait", "typeProperties": {"waitTimeInSeconds": 1}}]}})json";
  header.parameters = headrace::Json::object();
  return header.to_json().dump();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string first = header();
  headrace::flow::ReplayOptions options;
  options.report_outputs = true;
  options.keep_outcomes = true;
  headrace::flow::Replay replay(options);
  HR_CHECK(replay.on_record(1, first).ok(), "the header is refused");
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  while (bytes.size() >= 3) {
    const auto type = static_cast<uint8_t>(bytes[0]);
    const size_t length =
        std::min<size_t>(bytes.size() - 3, static_cast<unsigned char>(bytes[1]) +
                                               256U * static_cast<unsigned char>(bytes[2]));
    if (!replay.on_record(type, bytes.substr(3, length)).ok()) {
      break;
    }
    bytes.remove_prefix(3 + length);
  }
  int64_t open = 0;
  replay.engine().visit_open_items([&open](const headrace::flow::OpenItem&) { ++open; });
  return 0;
}
