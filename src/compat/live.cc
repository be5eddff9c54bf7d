// SPDX-License-Identifier: Apache-2.0
// What an ordinary program finds: the devices of the settings, on one LiveHost. Nothing is started
// before the first device is opened.
#include <sys/auxv.h>

#include <atomic>
#include <mutex>

#include "base/log.h"
#include "compat/device_table.h"
#include "compat/query.h"
#include "nic/interface_fit.h"
#include "nic/live_host.h"
#include "nic/settings.h"

namespace verbena::compat {
namespace {

/// The process's host, never destroyed. In a forked child the parent's is left as it is and another
/// one made.
constinit std::atomic<nic::LiveHost*> live_host{nullptr};

struct Live {
  std::mutex lock;
  nic::LiveHostOptions options{};
};

Live& live() {
  static auto* const leaked = new Live;
  return *leaked;
}

Result<nic::Host*> make_host(Live& the_live) {
  auto host = VERBENA_TRY(nic::LiveHost::create(the_live.options));
  live_host.store(host.release());
  return live_host.load();
}

/// A locally administered EUI-64 that differs with the address: the first half says whose, the
/// second is a hash of the GID (FNV-1a).
std::uint64_t guid_of(const wire::Address& address) {
  std::uint32_t hash = 2166136261U;
  for (const std::byte byte : address.gid)
    hash = (hash ^ std::to_integer<std::uint32_t>(byte)) * 16777619U;
  return std::uint64_t{0x02000000U | kVendorId} << 32 | hash;
}

Result<DeviceSpec> make_device(nic::Host& host, const nic::Settings& settings, std::size_t index) {
  DeviceSpec spec{.host = &host, .config = nic::device_config(settings, index)};
  VERBENA_TRY(nic::fit_to_interface(spec.config));
  if (spec.config.guid == 0) spec.config.guid = guid_of(spec.config.address);
  return spec;
}

}  // namespace

Result<std::vector<DeviceSpec>> live_devices() {
  // The environment that the settings come from is the caller's, the privileges are not.
  if (::getauxval(AT_SECURE) != 0) {
    return fail(std::errc::operation_not_permitted, "a setuid program gets no software NIC");
  }
  nic::Settings settings = VERBENA_TRY(nic::load_settings());
  set_log_level(settings.log_level);
  Live& the_live = live();
  const std::scoped_lock lock(the_live.lock);
  the_live.options.open_addresses = settings.addresses;
  the_live.options.capture_file = settings.pcap;
  the_live.options.faults = settings.faults;
  the_live.options.ethernet = settings.ethernet;
  the_live.options.same_host = settings.same_host != nic::Settings::SameHost::kUdp;
  the_live.options.share_memory = settings.same_host == nic::Settings::SameHost::kAuto;
  the_live.options.fetching = settings.fetching;
  the_live.options.roce_v1 = settings.nic.roce_v1;
  nic::Host* const host = VERBENA_TRY(make_host(the_live));

  if (settings.addresses.empty()) settings.addresses.push_back(nic::LiveHost::default_address());
  std::vector<DeviceSpec> specs;
  specs.reserve(settings.addresses.size());
  for (std::size_t i = 0; i < settings.addresses.size(); ++i) {
    specs.push_back(VERBENA_TRY(make_device(*host, settings, i)));
  }
  return specs;
}

Result<nic::Host*> renewed_live_host() {
  Live& the_live = live();
  const std::scoped_lock lock(the_live.lock);
  return make_host(the_live);
}

int next_host_descriptor(int from) {
  const nic::LiveHost* const host = live_host.load();
  return host == nullptr ? -1 : host->next_descriptor(from);
}

void lock_live_host() {
  if (nic::LiveHost* const host = live_host.load(); host != nullptr) host->before_fork();
}

void unlock_live_host() {
  if (nic::LiveHost* const host = live_host.load(); host != nullptr) host->after_fork_in_parent();
}

void abandon_live_host() {
  if (nic::LiveHost* const host = live_host.load(); host != nullptr) host->mark_forked();
}

}  // namespace verbena::compat
