// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/agent_message.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

namespace headrace::run {

namespace {

// Bytes of any encoding stand in JSON as pairs of hexadecimal digits, where they are not UTF-8.
constexpr size_t kOutputHead = 5;

Error corrupt(std::string_view what) {
  return Error{Errc::corrupt, fmt::format("agent: {} is not what this protocol says", what)};
}

std::string hex(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    out += kDigits[static_cast<unsigned char>(c) >> 4U];
    out += kDigits[static_cast<unsigned char>(c) & 15U];
  }
  return out;
}

int digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

Result<std::string> unhex(const Json& value) {
  if (!value.is_string() || value.string().size() % 2 != 0) {
    return corrupt("a text");
  }
  std::string out;
  const std::string& text = value.string();
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = digit(text[i]);
    const int low = digit(text[i + 1]);
    if (high < 0 || low < 0) {
      return corrupt("a text");
    }
    out += static_cast<char>(high * 16 + low);
  }
  return out;
}

Json texts_json(const std::vector<std::string>& texts) {
  Json list = Json::array();
  for (const std::string& text : texts) {
    list.push_back(hex(text));
  }
  return list;
}

Json variables_json(const Variables& variables) {
  Json list = Json::array();
  for (const auto& [name, value] : variables) {
    list.push_back(hex(name));
    list.push_back(hex(value));
  }
  return list;
}

Result<std::vector<std::string>> parse_texts(const Json* list, std::string_view what) {
  if (list == nullptr || !list->is_array()) {
    return corrupt(what);
  }
  std::vector<std::string> texts;
  for (const Json& item : list->items()) {
    HR_TRY(auto text, unhex(item));
    texts.push_back(std::move(text));
  }
  return texts;
}

Result<Variables> parse_variables(const Json* list, std::string_view what) {
  HR_TRY(auto texts, parse_texts(list, what));
  if (texts.size() % 2 != 0) {
    return corrupt(what);
  }
  Variables variables;
  for (size_t i = 0; i < texts.size(); i += 2) {
    variables.emplace_back(std::move(texts[i]), std::move(texts[i + 1]));
  }
  return variables;
}

Result<Json> parse_object(std::string_view payload, std::string_view what) {
  HR_TRY(auto json, parse_json(payload, what), "agent");
  if (!json.is_object()) {
    return corrupt(what);
  }
  return json;
}

int small(int64_t number) {
  return number >= 0 && number <= std::numeric_limits<int>::max() ? static_cast<int>(number) : -1;
}

}  // namespace

wire::Frame frame_of(AgentMessage type, std::string payload) {
  return {.type = static_cast<uint16_t>(type), .flags = 0, .payload = std::move(payload)};
}
wire::Frame frame_of(AgentMessage type, const Json& payload) {
  return frame_of(type, payload.dump());
}

Json json_of(const AgentWelcome& welcome) {
  return Json::object({{"version", welcome.version},
                       {"host", hex(welcome.host)},
                       {"free_port", int64_t{welcome.free_port}}});
}

Json json_of(const AgentStart& start) {
  Json ranks = Json::array();
  for (const AgentStart::Rank& rank : start.ranks) {
    ranks.push_back(
        Json::object({{"rank", rank.rank}, {"variables", variables_json(rank.variables)}}));
  }
  return Json::object({{"job", start.job},
                       {"argv", texts_json(start.argv)},
                       {"folder", hex(start.folder)},
                       {"environment", variables_json(start.environment)},
                       {"cores_per_rank", start.cores_per_rank},
                       {"ranks", std::move(ranks)}});
}

Json json_of(const RankEnd& end) {
  return Json::object({{"rank", end.rank},
                       {"pid", end.pid},
                       {"code", end.code},
                       {"signal", end.signal},
                       {"ok", end.ok},
                       {"text", hex(end.text)},
                       {"wall_ms", end.wall_ms},
                       {"metrics", hex(end.metrics)}});
}

Json json_of(const Error& error) {
  return Json::object(
      {{"code", static_cast<int>(error.code())}, {"message", hex(error.message())}});
}

Result<AgentWelcome> parse_welcome(std::string_view payload) {
  HR_TRY(const auto json, parse_object(payload, "a welcome"));
  AgentWelcome welcome;
  welcome.version = json.get_string("version");
  const int64_t port = json.get_integer("free_port", -1);
  const Json* host = json.find("host");
  if (port < 1 || port > 65535 || host == nullptr) {
    return corrupt("a welcome");
  }
  HR_TRY(welcome.host, unhex(*host));
  welcome.free_port = static_cast<uint16_t>(port);
  return welcome;
}

Result<AgentStart> parse_start(std::string_view payload) {
  HR_TRY(const auto json, parse_object(payload, "an order"));
  AgentStart start;
  start.job = json.get_string("job");
  HR_TRY(start.argv, parse_texts(json.find("argv"), "a command"));
  const Json* folder = json.find("folder");
  const Json* ranks = json.find("ranks");
  if (folder == nullptr || ranks == nullptr || !ranks->is_array() || ranks->items().empty() ||
      start.argv.empty()) {
    return corrupt("an order");
  }
  HR_TRY(start.folder, unhex(*folder));
  HR_TRY(start.environment, parse_variables(json.find("environment"), "an environment"));
  start.cores_per_rank = small(json.get_integer("cores_per_rank"));
  for (const Json& item : ranks->items()) {
    AgentStart::Rank rank;
    rank.rank = small(item.get_integer("rank", -1));
    HR_TRY(rank.variables, parse_variables(item.find("variables"), "an environment"));
    if (rank.rank < 0) {
      return corrupt("an order");
    }
    start.ranks.push_back(std::move(rank));
  }
  return start;
}

Result<RankEnd> parse_end(std::string_view payload) {
  HR_TRY(const auto json, parse_object(payload, "an end"));
  RankEnd end;
  end.rank = small(json.get_integer("rank", -1));
  end.pid = json.get_integer("pid", -1);
  end.code = static_cast<int>(json.get_integer("code", -1));
  end.signal = static_cast<int>(json.get_integer("signal"));
  end.ok = json.get_bool("ok");
  end.wall_ms = json.get_integer("wall_ms");
  const Json* text = json.find("text");
  if (text == nullptr) {
    return corrupt("an end");
  }
  HR_TRY(end.text, unhex(*text));
  if (const Json* metrics = json.find("metrics")) {
    HR_TRY(end.metrics, unhex(*metrics));
  }
  return end;
}

Error parse_error(std::string_view payload) {
  const auto json = parse_object(payload, "an error");
  const Json* text = json.ok() ? json->find("message") : nullptr;
  const auto message = text == nullptr ? Result<std::string>(corrupt("an error")) : unhex(*text);
  if (!message.ok()) {
    return message.error();
  }
  const int64_t code = json->get_integer("code", -1);
  const bool known = code >= 0 && code <= static_cast<int64_t>(Errc::internal);
  return Error{known ? static_cast<Errc>(code) : Errc::internal, *message};
}

std::string encode_output(const OutputPiece& piece) {
  std::string payload;
  payload.reserve(kOutputHead + piece.bytes.size());
  const auto rank = static_cast<uint32_t>(piece.rank);
  for (unsigned shift = 0; shift < 32; shift += 8) {
    payload += static_cast<char>((rank >> shift) & 255U);
  }
  payload += static_cast<char>(piece.stream);
  payload += piece.bytes;
  return payload;
}

Result<OutputPiece> parse_output(std::string_view payload) {
  if (payload.size() < kOutputHead || (payload[4] != 0 && payload[4] != 1)) {
    return corrupt("output");
  }
  uint32_t rank = 0;
  for (unsigned i = 0; i < 4; ++i) {
    rank |= static_cast<uint32_t>(static_cast<unsigned char>(payload[i])) << (8 * i);
  }
  if (small(rank) < 0) {
    return corrupt("output");
  }
  return OutputPiece{.rank = static_cast<int>(rank),
                     .stream = static_cast<Stream>(payload[4]),
                     .bytes = payload.substr(kOutputHead)};
}

}  // namespace headrace::run
