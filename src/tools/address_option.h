// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.h"
#include "wire/address.h"

namespace CLI {
class App;
}

namespace verbena::tools {

/// --addr of the commands that look at a NIC that runs.
void add_address_option(CLI::App& command, std::string& address);

/// The address that the option, the settings or their default name: an error with a sentence for a
/// text that is neither an address nor an interface with one, and for what is wrong with the
/// settings.
[[nodiscard]] Result<wire::Address> running_address(const std::string& option);

}  // namespace verbena::tools
