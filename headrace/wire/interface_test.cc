// SPDX-License-Identifier: Apache-2.0
#include "headrace/wire/interface.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

namespace headrace::wire {

namespace {

const std::vector<LocalAddress> kMachine = {
    {.interface_name = "eth0", .address = "10.1.2.3", .prefix_bits = 24},
    {.interface_name = "eth0", .address = "2001:db8::7", .prefix_bits = 64},
    {.interface_name = "eth1", .address = "192.168.9.4", .prefix_bits = 16},
    {.interface_name = "ib0", .address = "10.2.0.1", .prefix_bits = 16},
    {.interface_name = "docker0", .address = "172.17.0.1", .prefix_bits = 16},
};

/// "eth0 10.1.2.3, ..." of what a filter leaves.
std::string chosen(std::string_view text) {
  const auto filter = InterfaceFilter::parse(text);
  REQUIRE(filter.ok());
  std::string out;
  for (const LocalAddress& address : filter->choose(kMachine)) {
    out += (out.empty() ? "" : " ") + address.address;
  }
  return out;
}

}  // namespace

TEST_CASE("interfaces are chosen by name, prefix, network and exclusion in one syntax") {
  CHECK(chosen("") == "10.1.2.3 2001:db8::7 192.168.9.4 10.2.0.1 172.17.0.1");
  CHECK(chosen("eth0") == "10.1.2.3 2001:db8::7");
  CHECK(chosen("eth") == "");  // a name is exact
  CHECK(chosen("eth*") == "10.1.2.3 2001:db8::7 192.168.9.4");
  CHECK(chosen("*") == chosen(""));
  CHECK(chosen("ib0,eth1") == "192.168.9.4 10.2.0.1");
  CHECK(chosen("10.0.0.0/8") == "10.1.2.3 10.2.0.1");
  CHECK(chosen("10.1.2.0/30") == "10.1.2.3");
  CHECK(chosen("10.1.2.4/30") == "");
  CHECK(chosen("192.168.9.4") == "192.168.9.4");
  CHECK(chosen("2001:db8::/32") == "2001:db8::7");
  CHECK(chosen("0.0.0.0/0") == "10.1.2.3 192.168.9.4 10.2.0.1 172.17.0.1");
  CHECK(chosen("^docker0") == "10.1.2.3 2001:db8::7 192.168.9.4 10.2.0.1");
  CHECK(chosen("^docker0,ib*,2001:db8::/32") == "10.1.2.3 192.168.9.4");
}

TEST_CASE("a choice of interfaces that makes no sense is refused with its item") {
  for (const std::string& text :
       std::vector<std::string>{",", "eth0,", "^", "eth0,^eth1", "e*h0", "eth 0", "10.0.0.0/33",
                                "10.0.0.0/x", "10.0.0.0/", "eth0/8", "2001:db8::/129", "^^eth0"}) {
    CAPTURE(text);
    const auto filter = InterfaceFilter::parse(text);
    REQUIRE(!filter.ok());
    CHECK(filter.error().code() == Errc::invalid_argument);
    CHECK(filter.error().message().find(text) != std::string::npos);
  }
}

TEST_CASE("the machine's loopback is kept apart from its addresses in networks") {
  const auto addresses = local_addresses();
  REQUIRE(addresses.ok());
  if (addresses->loopback.empty()) {
    MESSAGE("skipped: this machine has no loopback interface that is up");
    return;
  }
  const auto is_own = [](const LocalAddress& address) { return address.address == "127.0.0.1"; };
  CHECK(std::any_of(addresses->loopback.begin(), addresses->loopback.end(), is_own));
  CHECK(std::none_of(addresses->network.begin(), addresses->network.end(), is_own));
}

TEST_CASE("a host is this machine by any of its addresses") {
  const auto soon = [] { return base::Deadline::in(std::chrono::seconds(20)); };
  CHECK(*is_this_machine("localhost", soon()));
  CHECK(*is_this_machine("127.0.0.1", soon()));
  CHECK_FALSE(*is_this_machine("192.0.2.1", soon()));  // for documents: nobody has it
  const auto own = local_addresses();
  REQUIRE(own.ok());
  for (const LocalAddress& address : own->network) {
    CHECK(*is_this_machine(address.address, soon()));
  }
}

}  // namespace headrace::wire
