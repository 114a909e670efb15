// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/patience.h"

#include <doctest/doctest.h>

#include "headrace/base/clock.h"

namespace headrace::comm {
namespace {

uint32_t looks(Patience& patience, bool same_core = false) {
  uint32_t count = 0;
  while (patience.pass(same_core)) {
    ++count;
  }
  return count;
}

TEST_CASE("a wait looks as often as its budget says, and a yield counts for many looks") {
  Patience patience({.turns = 400});
  CHECK(looks(patience) == 400);
  Patience beside({.turns = 400});
  CHECK(looks(beside, true) == 20);
  Patience crowded({.turns = 400, .crowded = true});
  CHECK(looks(crowded) == 20);
}

TEST_CASE("looks become fewer while waits are longer than they are worth") {
  Patience patience({.turns = 400});
  looks(patience);
  base::sleep_for(std::chrono::milliseconds(1));
  patience.renew();
  CHECK(looks(patience) == 200);
  uint32_t last = 0;
  for (int i = 0; i < 5; ++i) {
    base::sleep_for(std::chrono::milliseconds(1));
    patience.renew();
    last = looks(patience);
  }
  CHECK(last == 50);
}

TEST_CASE("a wait that ends before its looks do changes nothing") {
  Patience patience({.turns = 400});
  CHECK(patience.pass(false));
  patience.renew();
  CHECK(looks(patience) == 400);
}

}  // namespace
}  // namespace headrace::comm
