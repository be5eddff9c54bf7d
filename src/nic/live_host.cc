// SPDX-License-Identifier: Apache-2.0
#include "nic/live_host.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "link/capture.h"
#include "link/fault.h"
#include "link/local_address.h"
#include "link/roce_v1.h"
#include "link/send_batch.h"
#include "link/shm.h"
#include "nic/driven_nic.h"
#include "nic/eventfd_notifier.h"
#include "nic/fabric.h"
#include "nic/fabric_ports.h"
#include "nic/fabric_visit.h"
#include "nic/fork_ledger.h"
#include "nic/general_link.h"
#include "nic/general_services.h"
#include "nic/monotonic_clock.h"
#include "nic/nic.h"
#include "nic/runner.h"
#include "nic/same_host.h"
#include "nic/segment_uplink.h"
#include "nic/slot_groups.h"
#include "nic/stray_link.h"
#include "nic/wait_set.h"

namespace verbena::nic {
namespace {

Duration read_clock(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

class RunnerWatch final : public WatchedFd {
 public:
  RunnerWatch(Runner& runner, LedgerFd fd) : runner_(runner), fd_(std::move(fd)) {}
  ~RunnerWatch() override { runner_.unwatch(fd_.get()); }
  [[nodiscard]] int get() const override { return fd_.get(); }

 private:
  Runner& runner_;
  LedgerFd fd_;
};

}  // namespace

struct LiveHost::Impl final : Tenants, engine::PeerWatch {
  explicit Impl(const LiveHostOptions& the_options)
      : options(the_options), runner(&monotonic_now, ledger) {}

  const LiveHostOptions options;
  std::optional<link::FaultPlan> faults{};
  std::shared_ptr<link::CaptureFile> capture{};
  ForkLedger ledger;
  SameHost near{ledger, options.fetching};
  Runner runner;

  /// Guards the rest. Held while an address is joined or left: a process has a fabric's directory
  /// open once, and closing it a second time would drop the locks of the first.
  std::mutex mutex;
  std::map<wire::Address, std::weak_ptr<Fabric>> fabrics;
  std::unique_ptr<SegmentUplink> uplink;  ///< once a raw packet queue pair was made

  /// Guards the NICs, and is held while they are told something. The runner's thread takes it too,
  /// so whoever has it does not call the runner or a fabric's slots.
  std::mutex nics_mutex;
  std::map<Nic*, std::unique_ptr<DrivenNic>> nics;
  std::set<GeneralServices*> services;

  // Tenants.
  void port_changed(const Fabric& fabric) override;
  [[nodiscard]] Result<std::vector<sys::OwnedFd>> open_channel(ChannelOffer offer) override {
    return near.accept(std::move(offer));
  }
  [[nodiscard]] std::size_t queue_pairs(const Fabric& fabric, std::uint32_t above,
                                        std::span<QueuePairReport> to) override;

  /// What is captured or disturbed goes by the network.
  [[nodiscard]] bool uses_rings() const {
    return options.same_host && !options.roce_v1 && options.faults.empty() &&
           options.capture_file.empty();
  }
  [[nodiscard]] bool shares_memory() const { return uses_rings() && options.share_memory; }
  [[nodiscard]] bool is_open(const wire::Address& address) const {
    return address.is_loopback() ||
           std::ranges::find(options.open_addresses, address) != options.open_addresses.end();
  }
  [[nodiscard]] std::shared_ptr<Fabric> fabric_at(const wire::Address& address) {
    const auto found = fabrics.find(address);
    return found == fabrics.end() ? nullptr : found->second.lock();
  }
  /// Whether and why not a NIC may be at the address.
  [[nodiscard]] Result<void> check(const wire::Address& address) const;
  [[nodiscard]] Result<Fabric::Joined> take_slot(const wire::Address& address, SlotUse use);
  /// Puts upon the link of a slot what the options want upon each.
  [[nodiscard]] link::FdGuard guard_of_connected();
  [[nodiscard]] std::unique_ptr<link::Link> dressed(std::unique_ptr<link::Link> link,
                                                    std::uint8_t slot, engine::Counters& counters);
  /// Puts shared memory beside the link of a slot, where the options want it.
  [[nodiscard]] Result<void> connect_same_host(const wire::Address& address,
                                               Attachment& attachment);
  void release(GeneralServices& gone);
  [[nodiscard]] Fabric::Slot guarded(Fabric::Slot slot);
  [[nodiscard]] Result<void> open_roce_v1(const Fabric::Joined& joined, Attachment& attachment);
  [[nodiscard]] bool gone(const wire::Address& address, std::uint32_t qp_number) override {
    return is_deserted(address, qp_number >> link::kSlotShift);
  }
};

Result<Fabric::Joined> LiveHost::Impl::take_slot(const wire::Address& address, SlotUse use) {
  const std::scoped_lock lock(mutex);
  Fabric::Joined joined;
  joined.fabric = fabric_at(address);
  if (joined.fabric) {
    joined.slot = VERBENA_TRY(joined.fabric->take_slot(use));
  } else {
    joined = VERBENA_TRY(
        Fabric::join(address, use, {.watcher = runner, .ledger = ledger, .tenants = *this}));
    fabrics[address] = joined.fabric;
  }
  joined.slot = guarded(std::move(joined.slot));
  return joined;
}

void LiveHost::Impl::port_changed(const Fabric& fabric) {
  const std::scoped_lock lock(nics_mutex);
  for (const auto& [nic, driven] : nics) {
    if (nic->config().address == fabric.address()) nic->set_port(fabric.port());
  }
  for (GeneralServices* const one : services) {
    if (one->config().address == fabric.address()) one->set_port(fabric.port());
  }
}

std::size_t LiveHost::Impl::queue_pairs(const Fabric& fabric, std::uint32_t above,
                                        std::span<QueuePairReport> to) {
  const std::scoped_lock lock(nics_mutex);
  std::vector<QueuePairReport> all;
  std::vector<QueuePairReport> some(to.size());
  for (const auto& [nic, driven] : nics) {
    if (nic->config().address != fabric.address()) continue;
    some.resize(to.size());
    some.resize(nic->report_queue_pairs(above, some));
    all.insert(all.end(), some.begin(), some.end());
  }
  std::ranges::sort(all, {}, &QueuePairReport::number);
  const std::size_t count = std::min(all.size(), to.size());
  std::copy_n(all.begin(), count, to.begin());
  return count;
}

/// Makes the slot be given back, and maybe the address be left, with the mutex held.
Fabric::Slot LiveHost::Impl::guarded(Fabric::Slot slot) {
  slot.lease = std::shared_ptr<const void>(this, [this, lease = slot.lease](const void*) mutable {
    if (ledger.forked()) return;
    const std::scoped_lock lock(mutex);
    lease.reset();
  });
  return slot;
}

Result<void> LiveHost::Impl::open_roce_v1(const Fabric::Joined& joined, Attachment& attachment) {
  const wire::Address& address = joined.fabric->address();
  const auto local = link::find_local(address);
  if (!local)
    return fail(
        std::errc::no_such_device,
        fmt::format("RoCEv1 needs an interface, and none lists {}", wire::to_string(address)));
  struct Kept {
    std::shared_ptr<const void> lease;  // keeps the fabric
    LedgerFd socket;
  };
  auto kept = std::make_shared<Kept>(
      joined.slot.lease, LedgerFd(ledger, sys::move_high(VERBENA_TRY(link::RoceV1Link::open(
                                              local->interface, joined.slot.number)))));
  const int fd = kept->socket.get();
  link::RoceV1Link::Place place{.slot = joined.slot.number,
                                .mac = VERBENA_TRY(link::mac_of_packet_socket(fd)),
                                .lookup = link::kernel_lookup(local->index)};
  place.addresses = [fabric = joined.fabric.get(), slot = joined.slot.number] {
    std::vector<wire::Address> addresses;
    for (const auto& route : fabric->routes(slot)) addresses.push_back(route.address);
    return addresses;
  };
  attachment.receive_buffer = link::receive_buffer(fd);
  attachment.link = std::make_unique<link::RoceV1Link>(fd, std::move(kept), std::move(place));
  return {};
}

LiveHost::LiveHost(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LiveHost::~LiveHost() = default;

Result<std::unique_ptr<LiveHost>> LiveHost::create(const LiveHostOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  if (impl->shares_memory())
    impl->near.share_memory([&runner = impl->runner] { return runner.started() ? 1U : 0U; });
  if (!options.faults.empty()) impl->faults = VERBENA_TRY(link::parse_fault_plan(options.faults));
  if (!options.capture_file.empty())
    impl->capture =
        VERBENA_TRY(link::CaptureFile::open(options.capture_file, options.capture_limit));
  return std::unique_ptr<LiveHost>(new LiveHost(std::move(impl)));
}

wire::Address LiveHost::default_address(const wire::Address& usual) {
  if (is_available(usual)) return usual;
  return wire::Address::from_ipv4(0x7F800000U | (sys::geteuid() & 0x7FFFFFU));
}

int LiveHost::next_descriptor(int from) const { return impl_->ledger.next(from); }

void LiveHost::before_fork() {
  if (SharedPages* const pages = impl_->near.pages(); pages != nullptr) pages->before_fork();
}

void LiveHost::after_fork_in_parent() {
  if (SharedPages* const pages = impl_->near.pages(); pages != nullptr)
    pages->after_fork_in_parent();
}

void LiveHost::mark_forked() {
  impl_->ledger.close_all();
  if (SharedPages* const pages = impl_->near.pages(); pages != nullptr)
    pages->after_fork_in_child();
}

Time LiveHost::now() { return monotonic_now(); }

std::uint64_t LiveHost::random() {
  std::uint64_t value = 0;
  // Never fails or comes short for eight bytes once the kernel has its entropy.
  long size = -1;
  for (int i = 0; i < 100 && size != sizeof value; ++i)
    size = ::syscall(SYS_getrandom, &value, sizeof value, 0);
  VERBENA_CHECK(size == sizeof value);
  return value;
}

Result<void> LiveHost::Impl::check(const wire::Address& address) const {
  if (ledger.forked())
    return fail(std::errc::no_such_device, "the NIC belongs to the process that forked this one");
  if (is_open(address)) return {};
  return fail(std::errc::permission_denied,
              fmt::format("{} is not open for RoCE: only loopback addresses are, and those that "
                          "the settings name",
                          wire::to_string(address)));
}

/// What is captured is numbered as a capture expects it, so no socket is connected then.
link::FdGuard LiveHost::Impl::guard_of_connected() {
  if (capture) return {};
  return
      [this](sys::OwnedFd fd) { return std::make_shared<const LedgerFd>(ledger, std::move(fd)); };
}

std::unique_ptr<link::Link> LiveHost::Impl::dressed(std::unique_ptr<link::Link> link,
                                                    std::uint8_t slot, engine::Counters& counters) {
  if (faults) {
    link::FaultPlan plan = *faults;
    plan.seed += slot;
    link = std::make_unique<link::FaultLink>(std::move(link), plan, &counters.fault_plan_drops);
  }
  if (capture) {
    const Duration since_epoch = read_clock(CLOCK_REALTIME) - read_clock(CLOCK_MONOTONIC);
    link = std::make_unique<link::CaptureLink>(std::move(link), capture, since_epoch);
  }
  return link;
}

Result<Attachment> LiveHost::attach(const wire::Address& address) {
  VERBENA_TRY(impl_->check(address));
  Fabric::Joined joined = VERBENA_TRY(impl_->take_slot(address, SlotUse::kQueuePairs));
  Attachment attachment;
  attachment.slot = joined.slot.number;
  attachment.port = joined.fabric->port();
  attachment.counters = std::shared_ptr<engine::Counters>(
      std::shared_ptr<const void>(joined.slot.lease), joined.slot.counters);
  auto groups = std::make_shared<SlotGroups>(impl_->ledger);
  if (impl_->options.roce_v1) {
    VERBENA_TRY(impl_->open_roce_v1(joined, attachment));
  } else {
    attachment.membership = groups;
    attachment.receive_buffer =
        link::receive_buffer(joined.fabric->routes(joined.slot.number).front().socket);
    // The lease keeps the fabric.
    attachment.link = VERBENA_TRY(
        link::AddressSwitch::create([fabric = joined.fabric.get(), slot = joined.slot.number,
                                     groups] { return groups->with_groups(fabric->routes(slot)); },
                                    joined.slot.lease, impl_->guard_of_connected()));
    attachment.link =
        std::make_unique<StrayLink>(std::move(attachment.link), std::move(joined.slot.box));
  }
  attachment.link =
      impl_->dressed(std::move(attachment.link), attachment.slot, *attachment.counters);
  VERBENA_TRY(impl_->connect_same_host(address, attachment));
  return attachment;
}

Result<void> LiveHost::Impl::connect_same_host(const wire::Address& address,
                                               Attachment& attachment) {
  if (!uses_rings()) return {};
  const auto channels = VERBENA_TRY(link::ShmChannels::create());
  attachment.link = std::make_unique<link::ShmLink>(std::move(attachment.link), channels);
  attachment.direct = near.add(address, attachment.slot, channels);
  attachment.meet = [this, slot = attachment.slot](const wire::Path& path, std::uint32_t peer) {
    return near.meet(path, slot, peer);
  };
  return {};
}

Result<std::unique_ptr<GeneralServices>> LiveHost::open_general_services(
    const NicConfig& config, const std::function<void()>& notify) {
  VERBENA_TRY(impl_->check(config.address));
  if (impl_->options.roce_v1)
    return fail(std::errc::operation_not_supported, "connections are not set up over RoCEv1");
  Fabric::Joined joined = VERBENA_TRY(impl_->take_slot(config.address, SlotUse::kGeneral));
  Fabric& fabric = *joined.fabric;
  GeneralServices::Place place{
      .slot = joined.slot.number,
      .ports = std::make_unique<FabricPorts>(std::shared_ptr<Fabric>(joined.slot.lease, &fabric),
                                             joined.slot.number, random()),
      .counters = std::shared_ptr<engine::Counters>(joined.slot.lease, joined.slot.counters),
      .port = fabric.port()};
  auto sockets = VERBENA_TRY(link::AddressSwitch::create(
      [&fabric] { return fabric.routes(kGeneralSlot); }, joined.slot.lease));
  auto link = VERBENA_TRY(GeneralLink::create(std::move(sockets), std::move(joined.slot.box),
                                              *place.ports, impl_->ledger));
  place.link = impl_->dressed(std::move(link), place.slot, *place.counters);

  auto services = std::make_unique<GeneralServices>(
      config, std::move(place), random(),
      GeneralServices::Surroundings{
          .clock = &monotonic_now,
          .wake = [impl = impl_.get()] { impl->runner.wake(); },
          .notify = notify,
          .release = [impl = impl_.get()](GeneralServices& gone) { impl->release(gone); }});
  {
    const std::scoped_lock lock(impl_->nics_mutex);
    impl_->services.insert(services.get());
    // As it is since the place was taken; what comes later is told to all.
    services->set_port(fabric.port());
  }
  VERBENA_TRY(impl_->runner.adopt(*services));
  return services;
}

Result<std::unique_ptr<WatchedFd>> LiveHost::watch(sys::OwnedFd fd,
                                                   const std::function<void()>& readable) {
  if (impl_->ledger.forked())
    return fail(std::errc::no_such_device, "the runner is the parent process's");
  LedgerFd kept(impl_->ledger, sys::move_high(std::move(fd)));
  VERBENA_TRY(impl_->runner.watch_arrivals(kept.get(), readable));
  return std::make_unique<RunnerWatch>(impl_->runner, std::move(kept));
}

void LiveHost::Impl::release(GeneralServices& gone) {
  if (ledger.forked()) return;
  {
    const std::scoped_lock lock(nics_mutex);
    services.erase(&gone);
  }
  runner.release(gone);
}

PortReport LiveHost::port(const wire::Address& address) {
  // Held, so that the process does not join meanwhile: it may have the directory open only once.
  const std::scoped_lock lock(impl_->mutex);
  const auto fabric = impl_->ledger.forked() ? nullptr : impl_->fabric_at(address);
  if (fabric) return {.state = fabric->port(), .counters = fabric->total()};
  const auto visit = FabricVisit::begin(address);
  return visit ? visit->port() : PortReport{.state = PortState::of(address)};
}

Result<std::unique_ptr<Notifier>> LiveHost::make_notifier() { return EventfdNotifier::create(); }

void LiveHost::adopt(Nic& nic) {
  auto driven = std::make_unique<DrivenNic>(nic);
  DrivenNic& reference = *driven;
  {
    const std::scoped_lock lock(impl_->mutex);
    const auto fabric = impl_->fabric_at(nic.config().address);
    const std::scoped_lock nics_lock(impl_->nics_mutex);
    impl_->nics[&nic] = std::move(driven);
    // As it is since the NIC has its slot; what comes later is told to all.
    if (fabric) nic.set_port(fabric->port());
  }
  // attach() has started the thread, so this fails only when descriptors run out.
  if (const auto adopted = impl_->runner.adopt(reference); !adopted)
    log(LogLevel::kError, "nothing drives {} in the background: {}", nic.config().name,
        adopted.error().message);
}

void LiveHost::release(Nic& nic) {
  std::unique_ptr<DrivenNic> driven;
  if (impl_->ledger.forked()) return;
  {
    const std::scoped_lock lock(impl_->nics_mutex);
    const auto found = impl_->nics.find(&nic);
    if (found == impl_->nics.end()) return;
    driven = std::move(found->second);
    impl_->nics.erase(found);
  }
  impl_->runner.release(*driven);
}

void LiveHost::wake(Nic& nic) {
  if (!impl_->runner.wake()) nic.raise_fatal();
}

engine::PeerWatch* LiveHost::peers() { return impl_.get(); }

std::optional<OpenMemory> LiveHost::share_memory(Bytes memory, std::uint32_t access) {
  SharedPages* const pages = impl_->near.pages();
  if (pages == nullptr || impl_->ledger.forked()) return std::nullopt;
  constexpr std::uint32_t kRemote = engine::kRemoteWrite | engine::kRemoteRead;
  const bool shares = (access & kRemote) != 0 && (access & engine::kOnDemand) == 0;
  return pages->enter(memory, shares, (access & engine::kRemoteWrite) != 0);
}

void LiveHost::unshare_memory(Bytes memory) {
  SharedPages* const pages = impl_->near.pages();
  if (pages != nullptr && !impl_->ledger.forked()) pages->leave(memory);
}

void LiveHost::give_up_memory(Bytes pages, std::size_t regions) {
  SharedPages* const shared = impl_->near.pages();
  if (shared != nullptr && !impl_->ledger.forked()) shared->replace(pages, regions);
}

Result<void> LiveHost::open_uplink() {
  const std::scoped_lock lock(impl_->mutex);
  if (impl_->uplink != nullptr) return {};
  const std::string& interface = impl_->options.ethernet;
  auto opened = SegmentUplink::open(
      interface,
      {.segment = segment(), .watcher = impl_->runner, .ledger = impl_->ledger, .host = *this});
  if (opened) {
    impl_->uplink = std::move(*opened);
    return {};
  }
  log(interface.empty() ? LogLevel::kWarning : LogLevel::kError, "{}{}", opened.error().message,
      interface.empty() ? ": raw packets stay in this process" : "");
  if (interface.empty()) return {};
  return std::unexpected(opened.error());
}

Waited LiveHost::wait(const std::function<bool()>& ready, Notifier* notifier, SelfDriven* driven) {
  if (driven != nullptr) {
    WaitSet set({.ledger = impl_->ledger,
                 .hand_over = [impl = impl_.get()] { impl->runner.wake(); },
                 .clock = &monotonic_now},
                notifier->descriptor(), driven->nic.descriptors());
    return set.wait(ready, *driven);
  }
  constexpr long kFirstPause = 20'000;
  constexpr long kLongestPause = 2'000'000;
  long pause = kFirstPause;
  while (!ready()) {
    if (impl_->ledger.forked()) return Waited::kInterrupted;
    pollfd poll{
        .fd = notifier != nullptr ? notifier->descriptor() : -1, .events = POLLIN, .revents = 0};
    const timespec timeout{.tv_sec = 0, .tv_nsec = pause};
    // Who waits for events is often a thread of its own that the program ends by pthread_cancel():
    // the C library's call is a cancellation point, ours is none. A handler always ends it, though
    // a card's read would go on after one with SA_RESTART: nobody can ask which handler has run,
    // and a read of ours would take the count away from threads that poll for it.
    const int result = notifier != nullptr ? ::ppoll(&poll, 1, nullptr, nullptr)
                                           : sys::ppoll(nullptr, 0, &timeout);
    if (result < 0) return Waited::kInterrupted;
    pause = std::min(2 * pause, kLongestPause);
  }
  return Waited::kReady;
}

}  // namespace verbena::nic
