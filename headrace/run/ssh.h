// SPDX-License-Identifier: Apache-2.0
// An agent that this process starts on another host through ssh, for one job.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/proc/child.h"
#include "headrace/wire/secret.h"

namespace headrace::run {

struct SshOptions {
  bool enabled = false;
  int port = 0;               ///< 0: ssh's own choice
  std::string identity_file;  ///< empty: ssh's own choice
};

/// The program `ssh` with an agent at its other end. The agent ends with it.
class HR_API SshAgent {
 public:
  /// Begin to start the agent; `program` is the binary's path there. The token goes through ssh's
  /// standard input, which nobody else sees.
  static Result<std::unique_ptr<SshAgent>> start(const std::string& host,
                                                 const std::string& program,
                                                 const SshOptions& options,
                                                 const wire::Secret& token);
  /// Wait for the port that it listens at. Errors hold what ssh said.
  Result<uint16_t> port(const base::Deadline& deadline);
  /// Take what ssh says, so that it does not stand still; call it now and then.
  void pump();

 private:
  explicit SshAgent(std::string host) : host_(std::move(host)) {}
  void on_line(std::string_view line);

  std::string host_;
  uint16_t port_ = 0;
  std::unique_ptr<proc::Child> child_;  // calls on_line: last
};

/// The words of the ssh command, without the program that it runs there. Pure.
std::vector<std::string> ssh_words(const std::string& host, const SshOptions& options);

/// `text` as one word of a shell. Pure.
std::string shell_word(const std::string& text);
/// Write the token to ssh's input. An ssh that has gone already is no error here: its end says why.
HR_API void send_token(int fd, const wire::Secret& token);

}  // namespace headrace::run
