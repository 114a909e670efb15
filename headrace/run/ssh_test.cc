// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/ssh.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

namespace headrace::run {

using Words = std::vector<std::string>;

TEST_CASE("ssh is asked for what the flags say, and a host is never an option") {
  CHECK(ssh_words("b", {}) == Words{"ssh", "-o", "BatchMode=yes", "--", "b"});
  CHECK(ssh_words("-oProxyCommand=x", {.enabled = true, .port = 2222, .identity_file = "k"}) ==
        Words{"ssh", "-o", "BatchMode=yes", "-p", "2222", "-i", "k", "--", "-oProxyCommand=x"});
}

TEST_CASE("a path is one word of a shell, whatever is in it") {
  CHECK(shell_word("/a b/c") == "'/a b/c'");
  CHECK(shell_word("it's") == "'it'\\''s'");
}

TEST_CASE("an ssh that has gone does not end the launcher by a signal") {
  int ends[2] = {-1, -1};
  REQUIRE(::pipe(ends) == 0);
  const base::Fd input(ends[1]);
  ::close(ends[0]);
  send_token(input.get(), wire::Secret::generate());
  sigset_t waiting;
  REQUIRE(::sigpending(&waiting) == 0);
  CHECK(::sigismember(&waiting, SIGPIPE) == 0);
}

}  // namespace headrace::run
