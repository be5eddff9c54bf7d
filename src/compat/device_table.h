// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "compat/objects.h"
#include "nic/host.h"
#include "nic/nic.h"

/// The devices of this process: the house's one singleton, which is never destroyed (threads and
/// handlers may outlive static destructors).
///
/// It fills itself when ibv_get_device_list is first called: from the settings and one LiveHost,
/// and the real devices of the system's libibverbs are listed behind ours. Or somebody fills it
/// before: the simulator and tests.
namespace verbena::compat {

struct DeviceSpec {
  nic::Host* host = nullptr;  ///< outlives the device
  nic::NicConfig config{};
};

/// Puts these devices into the table in place of all others, real ones included; ibv_open_device
/// opens their NICs on their hosts, and nothing live is ever started. ibv_device pointers of before
/// are no longer valid, and no context is open. Names must differ.
void set_devices(std::span<const DeviceSpec> devices);

/// Forgets what set_devices() set: the table fills itself at the next use.
void clear_devices();

/// All devices of ours; fills the table when it is empty. An error tells why there are none.
[[nodiscard]] Result<std::span<Device* const>> devices();

/// Whether a pointer that a program handed in is one of ours. Does not fill the table.
[[nodiscard]] Device* find_device(const ibv_device* device);

/// Whether the real devices of the system belong into the list.
[[nodiscard]] bool lists_real_devices();

/// What `devices()` asks when nobody filled the table (`live.cc`).
[[nodiscard]] Result<std::vector<DeviceSpec>> live_devices();
/// In a forked child: a host of its own, since the parent's is out of reach.
[[nodiscard]] Result<nic::Host*> renewed_live_host();
/// The lowest descriptor, from `from` on, that belongs to the host and that a program has no
/// business with; -1 when there is none. Async-signal-safe.
[[nodiscard]] int next_host_descriptor(int from);
/// Around a fork, in the parent.
void lock_live_host();
void unlock_live_host();
/// In a forked child, at once: lets go of the descriptors that must not live on in it.
void abandon_live_host();

/// Around a fork: the table is not being changed while the process is copied.
void lock_table();
void unlock_table();

}  // namespace verbena::compat
