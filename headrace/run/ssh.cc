// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/ssh.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "headrace/base/file.h"
#include "headrace/base/log.h"
#include "headrace/run/agent.h"

namespace headrace::run {

std::vector<std::string> ssh_words(const std::string& host, const SshOptions& options) {
  // Nobody is there to answer a question.
  std::vector<std::string> words = {"ssh", "-o", "BatchMode=yes"};
  if (options.port > 0) {
    words.insert(words.end(), {"-p", fmt::to_string(options.port)});
  }
  if (!options.identity_file.empty()) {
    words.insert(words.end(), {"-i", options.identity_file});
  }
  words.insert(words.end(), {"--", host});
  return words;
}

std::string shell_word(const std::string& text) {
  std::string word = "'";
  for (const char c : text) {
    word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return word + "'";
}

void send_token(int fd, const wire::Secret& token) {
  sigset_t broken_pipe;
  sigset_t before;
  ::sigemptyset(&broken_pipe);
  ::sigaddset(&broken_pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &broken_pipe, &before);
  const auto bytes = token.bytes();
  const auto written = base::write_all(
      fd, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "ssh");
  if (!written.ok()) {
    const timespec at_once = {};
    ::sigtimedwait(&broken_pipe, nullptr, &at_once);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Result<std::unique_ptr<SshAgent>> SshAgent::start(const std::string& host,
                                                  const std::string& program,
                                                  const SshOptions& options,
                                                  const wire::Secret& token) {
  auto agent = std::unique_ptr<SshAgent>(new SshAgent(host));
  proc::ChildOptions child;
  child.argv = ssh_words(host, options);
  child.argv.push_back(shell_word(program) + " agent --token-stdin --once --listen 0.0.0.0:0");
  child.input.from = proc::Input::From::pipe;
  child.on_line = [raw = agent.get()](proc::Stream stream, std::string_view line) {
    if (stream == proc::Stream::out) {
      raw->on_line(line);
    }
  };
  HR_TRY(auto spawned, proc::Child::spawn(std::move(child)), "run: host " + host);
  agent->child_ = std::make_unique<proc::Child>(std::move(spawned));
  send_token(agent->child_->input_fd(), token);
  return agent;
}

void SshAgent::on_line(std::string_view line) {
  const size_t colon = line.rfind(':');
  if (!line.starts_with(kAgentListening) || colon == std::string_view::npos) {
    return;
  }
  std::from_chars(line.data() + colon + 1, line.data() + line.size(), port_);
}

void SshAgent::pump() { child_->pump(); }

Result<uint16_t> SshAgent::port(const base::Deadline& deadline) {
  while (!child_->pump() && port_ == 0) {
    if (deadline.passed()) {
      return Error{Errc::timeout, fmt::format("ssh to {}: no agent came up there in time", host_)};
    }
    pollfd event = {child_->event_fd(), POLLIN, 0};
    ::poll(&event, 1,
           static_cast<int>(std::clamp<int64_t>(deadline.left().count() / 1000, 1, 1000)));
  }
  if (port_ == 0) {
    return child_->exit()->ok() ? Error{Errc::child_failed, "ssh ended without an agent"}
                                : child_->exit()->to_error("ssh to " + host_);
  }
  return port_;
}

}  // namespace headrace::run
