// SPDX-License-Identifier: Apache-2.0
#include "tools/address_option.h"

#include <CLI/CLI.hpp>

#include "link/local_address.h"
#include "nic/live_host.h"
#include "nic/settings.h"

namespace verbena::tools {

void add_address_option(CLI::App& command, std::string& address) {
  command
      .add_option("--addr", address,
                  "IP address of the NIC, or its interface (default: the first of the settings, "
                  "else the loopback "
                  "address that programs get)")
      ->type_name("A");
}

Result<wire::Address> running_address(const std::string& option) {
  if (!option.empty()) {
    const auto address = wire::Address::from_string(option);
    return address ? *address : link::address_of_interface(option);
  }
  const nic::Settings settings = VERBENA_TRY(nic::load_settings());
  if (!settings.addresses.empty()) return settings.addresses.front();
  return nic::LiveHost::default_address();
}

}  // namespace verbena::tools
