// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "nic/nic.h"
#include "nic/nic_impl.h"

// The memory of Nic: regions, windows, and memory of the device's own.

namespace verbena::nic {
namespace {

constexpr std::uint64_t kTop = std::numeric_limits<std::uint64_t>::max();
/// Where pages can be. An access beyond it is a fault without an address on x86-64, which nobody
/// could tell from the program's own (`base/fault_guard.h`).
constexpr std::uint64_t kAddressSpace = std::uint64_t{1} << 47;
constexpr std::uint64_t kFirstAddress = 4096;

[[nodiscard]] std::unexpected<Error> busy(const char* what) {
  return fail(std::errc::device_or_resource_busy, what);
}

[[nodiscard]] bool wraps(std::uint64_t first, std::uint64_t length) {
  return length > 0 && length - 1 > kTop - first;
}

[[nodiscard]] bool overlap(Bytes a, Bytes b) {
  return a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}

[[nodiscard]] Result<void> check_rights(std::uint32_t access) {
  if ((access & engine::kFlushPersistent) != 0)
    return fail(std::errc::operation_not_supported, "no memory here outlives the machine's power");
  const bool remote = (access & (engine::kRemoteWrite | engine::kRemoteAtomic)) != 0;
  if (!remote || (access & engine::kLocalWrite) != 0) return {};
  return fail(std::errc::invalid_argument, "remote write and atomics need local write");
}

}  // namespace

Result<MemoryRegion*> Nic::register_memory(ProtectionDomain* pd, std::byte* base,
                                           std::uint64_t length, std::uint64_t address,
                                           std::uint32_t access) {
  VERBENA_TRY(check_rights(access));
  if (length == 0 || length > impl_->config.limits.max_mr_size) {
    return fail(std::errc::invalid_argument, "the length is zero or above max_mr_size");
  }
  if (wraps(reinterpret_cast<std::uintptr_t>(base), length) || wraps(address, length)) {
    return fail(std::errc::bad_address, "the range wraps around");
  }
  const bool on_demand = (access & engine::kOnDemand) != 0;
  if (on_demand && reinterpret_cast<std::uintptr_t>(base) + length > kAddressSpace)
    return fail(std::errc::bad_address, "no page can be there");
  const std::scoped_lock lock(impl_->objects_mutex);
  MemoryRegion* const region = VERBENA_TRY(impl_->add_region(
      pd, {.base = base, .address = address, .length = length, .access = access}));
  impl_->share(*region, {base, length}, access);
  return region;
}

void Nic::Impl::share(MemoryRegion& region, Bytes memory, std::uint32_t access) {
  region.memory = memory;
  region.shared = host.share_memory(memory, access);
  if (region.shared) shared_regions.emplace(region.key, &region);
  publish(region, access);
}

void Nic::Impl::publish(const MemoryRegion& region, std::uint32_t access) {
  const OpenMemory memory = region.shared.value_or(
      OpenMemory{.pages = region.memory,
                 .offset = reinterpret_cast<std::uintptr_t>(region.memory.data()),
                 .home = MemoryHome::kOwner});
  std::uint32_t open = access & (engine::kRemoteWrite | engine::kRemoteRead);
  if (memory.home != MemoryHome::kWritable) open &= ~std::uint32_t{engine::kRemoteWrite};
  if (open == 0 || memory.pages.empty()) return;
  const auto before = static_cast<std::uint64_t>(memory.pages.data() - region.memory.data());
  for (const auto& shard : shards) {
    shard->publish({.key = region.key,
                    .pd = region.pd->number,
                    .access = open,
                    .address = region.address + before,
                    .memory = memory},
                   host.now());
  }
}

// A holder of a shard that looked the key up before it was erased may be copying still; after every
// shard was entered once, none is.
void Nic::Impl::withdraw(const MemoryRegion& region) {
  for (const auto& shard : shards) shard->withdraw(region.key, host.now());
  give_up_memory();
}

void Nic::Impl::give_up_memory() {
  const auto stays = std::ranges::find_if(shards, [](const auto& one) { return one->gives_up(); });
  if (stays == shards.end()) return;
  for (const Bytes pages : (*stays)->take_given_up(host.now())) {
    std::size_t count = 0;
    std::erase_if(shared_regions, [&](const auto& one) {
      MemoryRegion& region = *one.second;
      if (!overlap(region.shared->pages, pages)) return false;
      for (const auto& shard : shards) shard->withdraw(region.key, host.now());
      region.shared.reset();
      ++count;
      return true;
    });
    host.give_up_memory(pages, count);
  }
  // Others may have stayed in the same meanwhile, or in other regions.
  give_up_memory();
}

Result<MemoryRegion*> Nic::Impl::add_region(ProtectionDomain* pd, engine::MemoryKey key) {
  VERBENA_TRY(regions.check_room());
  key.pd = pd->number;
  const std::uint32_t number = VERBENA_TRY(keys.insert(key));
  ++pd->uses;
  return regions.insert(std::make_unique<MemoryRegion>(
      MemoryRegion{.pd = pd, .key = number, .length = key.length, .address = key.address}));
}

Result<MemoryRegion*> Nic::register_all_memory(ProtectionDomain* pd, std::uint32_t access) {
  VERBENA_TRY(check_rights(access));
  const std::scoped_lock lock(impl_->objects_mutex);
  // No program has the first page: a null pointer is a wrong address like any other.
  auto* const first = reinterpret_cast<std::byte*>(kFirstAddress);  // NOLINT
  constexpr std::uint64_t kLength = kAddressSpace - kFirstAddress;
  access |= engine::kOnDemand;
  MemoryRegion* const region = VERBENA_TRY(impl_->add_region(
      pd, {.base = first, .address = kFirstAddress, .length = kLength, .access = access}));
  impl_->share(*region, {first, kLength}, access);
  return region;
}

Result<MemoryRegion*> Nic::register_nothing(ProtectionDomain* pd) {
  const std::scoped_lock lock(impl_->objects_mutex);
  if (impl_->null_memory == nullptr)
    impl_->null_memory = std::make_unique<NullMemory>(VERBENA_TRY(NullMemory::create()));
  return impl_->add_region(pd, {.base = impl_->null_memory->zeros(),
                                .length = NullMemory::kZeros,
                                .access = engine::kLocalWrite,
                                .sink = impl_->null_memory->sink()});
}

Result<Bytes> Nic::find_on_demand(const ProtectionDomain* pd, std::uint32_t key,
                                  std::uint64_t address, std::uint64_t length, bool writes) {
  const std::scoped_lock lock(impl_->objects_mutex);
  std::optional<engine::MemoryKey> found;
  std::expected<Bytes, engine::MemoryError> bytes;
  impl_->shards.front()->run(impl_->host.now(), [&] {
    found = impl_->keys.describe(key);
    bytes = impl_->keys.lookup(key, address, length, engine::kLocalRead, pd->number);
  });
  if (!found) return fail(std::errc::bad_address, "there is no such key");
  if (found->window != engine::WindowType::kNone)
    return fail(std::errc::invalid_argument, "the key is a memory window's");
  if (found->pd != pd->number)
    return fail(std::errc::operation_not_permitted, "the key is of another protection domain");
  if ((found->access & engine::kOnDemand) == 0)
    return fail(std::errc::no_such_file_or_directory, "the region is not on demand");
  if (writes && (found->access & engine::kLocalWrite) == 0)
    return fail(std::errc::operation_not_permitted, "the region may not be written");
  if (!bytes) return fail(std::errc::bad_address, "the range is not all in the region");
  return *bytes;
}

Result<MemoryRegion*> Nic::register_memory(ProtectionDomain* pd, DeviceMemory& memory,
                                           std::uint64_t offset, std::uint64_t length,
                                           std::uint32_t access) {
  VERBENA_TRY(check_rights(access));
  if (length > impl_->config.limits.max_mr_size)
    return fail(std::errc::invalid_argument, "the length is above max_mr_size");
  const Bytes bytes = VERBENA_TRY(memory.part(offset, length));
  const std::scoped_lock lock(impl_->objects_mutex);
  MemoryRegion* const region = VERBENA_TRY(
      impl_->add_region(pd, {.base = bytes.data(), .length = length, .access = access}));
  region->device = &memory;
  ++memory.uses;
  return region;
}

DeviceMemoryPool& Nic::device_memory() { return impl_->device_memory; }

Result<void> Nic::change_memory(MemoryRegion* region, ProtectionDomain* pd, std::uint32_t access) {
  VERBENA_TRY(check_rights(access));
  const std::scoped_lock lock(impl_->objects_mutex);
  // At one go, as above: windows are bound with the shard held.
  bool has_windows = false;
  impl_->shards.front()->run(impl_->host.now(), [&] {
    has_windows = impl_->keys.has_windows(region->key);
    if (!has_windows) impl_->keys.change(region->key, access, pd->number);
  });
  if (has_windows) return busy("memory windows are bound to the region");
  impl_->withdraw(*region);
  --region->pd->uses;
  ++pd->uses;
  region->pd = pd;
  impl_->publish(*region, access);
  return {};
}

Result<void> Nic::deregister_memory(MemoryRegion* region) {
  const std::scoped_lock lock(impl_->objects_mutex);
  // At one go: windows are bound with the shard held.
  bool has_windows = false;
  impl_->shards.front()->run(impl_->host.now(), [&] {
    has_windows = impl_->keys.has_windows(region->key);
    if (!has_windows) impl_->keys.erase(region->key);
  });
  if (has_windows) return busy("memory windows are bound to the region");
  impl_->withdraw(*region);
  impl_->keys.reclaim(region->key);
  impl_->shared_regions.erase(region->key);
  if (!region->memory.empty()) impl_->host.unshare_memory(region->memory);
  --region->pd->uses;
  if (region->device != nullptr) --region->device->uses;
  impl_->regions.erase(region);
  return {};
}

Result<MemoryWindow*> Nic::alloc_window(ProtectionDomain* pd, engine::WindowType type) {
  const std::scoped_lock lock(impl_->objects_mutex);
  VERBENA_TRY(impl_->windows.check_room());
  const std::uint32_t key = VERBENA_TRY(impl_->keys.insert({.pd = pd->number, .window = type}));
  ++pd->uses;
  return impl_->windows.insert(std::make_unique<MemoryWindow>(MemoryWindow{.pd = pd, .key = key}));
}

// A window changes with its shard held only: it is bound and invalidated there.
Result<void> Nic::dealloc_window(MemoryWindow* window) {
  const std::scoped_lock lock(impl_->objects_mutex);
  for (const auto& shard : impl_->shards)
    shard->run(impl_->host.now(), [&] { impl_->keys.erase(window->key); });
  impl_->keys.reclaim(window->key);
  --window->pd->uses;
  impl_->windows.erase(window);
  return {};
}

}  // namespace verbena::nic
