// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_host.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/sys.h"
#include "sim/arena.h"

namespace verbena::sim {
namespace {

/// Datagrams that a NIC may take in one go, as the runner gives it.
constexpr std::uint32_t kBudget = 256;
constexpr Duration kMoment = std::chrono::microseconds(1);

}  // namespace

/// A number. Its descriptor is a file, so that programs can make it non-blocking, but is never
/// readable.
class SimHost::SimNotifier final : public nic::Notifier {
 public:
  SimNotifier(SimHost& host, sys::OwnedFd file) : host_(host), file_(std::move(file)) {
    host_.notifiers_.emplace(descriptor(), this);
  }
  ~SimNotifier() override { host_.notifiers_.erase(descriptor()); }

  [[nodiscard]] int descriptor() const override { return file_.get(); }
  void signal() override { ++count_; }
  [[nodiscard]] bool take() override {
    if (count_ == 0) return false;
    --count_;
    return true;
  }
  [[nodiscard]] bool blocking() const override {
    return (sys::fcntl(descriptor(), F_GETFL) & O_NONBLOCK) == 0;
  }
  [[nodiscard]] const std::uint64_t* count() const { return &count_; }

 private:
  SimHost& host_;
  sys::OwnedFd file_;
  std::uint64_t count_ = 0;
};

class SimHost::SimMembership final : public nic::Membership {
 public:
  SimMembership(Network& network, const wire::Address& address)
      : network_(network), address_(address) {}

  [[nodiscard]] Result<void> join(const wire::Address& group) override {
    network_.join(address_, group);
    return {};
  }
  void leave(const wire::Address& group) override { network_.leave(address_, group); }

 private:
  Network& network_;
  wire::Address address_;
};

nic::Waited SimHost::wait_readable(int descriptor) {
  const auto found = notifiers_.find(descriptor);
  VERBENA_CHECK(found != notifiers_.end());
  const std::uint64_t* const count = found->second->count();
  return scheduler_.wait([count] { return *count > 0; }, count);
}

Result<nic::Attachment> SimHost::attach(const wire::Address& address) {
  const auto group = groups_.find(address);
  if (group == groups_.end()) {
    return fail(std::errc::permission_denied, "the run has no NIC at " + wire::to_string(address));
  }
  if (network_.taken(address)) {
    return fail(std::errc::address_in_use, wire::to_string(address) + " has a NIC already");
  }
  auto port = network_.attach(address, [this, address] { arrived(address); });
  if (rings_ != nullptr) port = rings_->attach(address, std::move(port));
  const auto slot = static_cast<std::uint8_t>(random_.below(64));
  nic::Attachment made{.slot = slot,
                       .link = stack_(group->second, std::move(port)),
                       .membership = std::make_shared<SimMembership>(network_, address)};
  if (rings_ != nullptr) {
    made.meet = [this](const wire::Path& path, std::uint32_t) {
      return rings_->meet(path.source, path.destination);
    };
    made.direct = rings_->open_memory(address, share_memory_);
    counted_.push_back(made.counters);
  }
  return made;
}

Result<std::unique_ptr<nic::Notifier>> SimHost::make_notifier() {
  sys::OwnedFd file(sys::eventfd(0, EFD_CLOEXEC));
  if (!file) return fail(static_cast<std::errc>(errno), "no descriptor for a notifier");
  return std::make_unique<SimNotifier>(*this, std::move(file));
}

void SimHost::adopt(nic::Nic& nic) {
  const wire::Address& address = nic.config().address;
  const bool added =
      nics_.emplace(address, Driven{.nic = &nic, .group = groups_.at(address), .due = now()})
          .second;
  VERBENA_CHECK(added);
}

void SimHost::release(nic::Nic& nic) { nics_.erase(nic.config().address); }

void SimHost::wake(nic::Nic& nic) {
  const auto found = nics_.find(nic.config().address);
  if (found != nics_.end() && found->second.nic == &nic) found->second.due = now();
}

std::uint64_t SimHost::direct_requests() const {
  std::uint64_t sum = 0;
  for (const auto& counters : counted_) sum += counters->direct_requests;
  return sum;
}

std::uint64_t SimHost::payloads_fetched() const {
  std::uint64_t sum = 0;
  for (const auto& counters : counted_) sum += counters->payloads_fetched;
  return sum;
}

/// All processes have one memory: every region is where it is, for its peers, too. What a program
/// takes away would stay in a file; here it would be gone for them as well.
std::optional<nic::OpenMemory> SimHost::share_memory(Bytes memory, std::uint32_t access) {
  const bool open = (access & (engine::kRemoteWrite | engine::kRemoteRead)) != 0 &&
                    (access & engine::kOnDemand) == 0;
  if (!share_memory_ || !open || memory.size() == Arena::kBrittle.size) return std::nullopt;
  return nic::OpenMemory{.pages = memory,
                         .offset = reinterpret_cast<std::uintptr_t>(memory.data()),
                         .home = nic::MemoryHome::kWritable};
}

void SimHost::arrived(const wire::Address& address) {
  const auto found = nics_.find(address);
  if (found == nics_.end() || found->second.due) return;
  const auto nap = static_cast<std::uint64_t>(nap_.count());
  found->second.due = now() + Duration(static_cast<Duration::rep>(random_.below(nap + 1)));
}

void SimHost::silence(const wire::Address& address) {
  network_.silence(address);
  if (rings_ != nullptr) rings_->silence(address);
}

bool SimHost::quiet(const wire::Address& a, const wire::Address& b) const {
  if (rings_ != nullptr && (rings_->waiting(a) || rings_->waiting(b))) return false;
  return network_.quiet(a, b);
}

nic::Waited SimHost::wait(const std::function<bool()>& ready, nic::Notifier* notifier,
                          nic::SelfDriven* /*driven*/) {
  const auto* const ours = static_cast<SimNotifier*>(notifier);
  return scheduler_.wait(ready, ours == nullptr ? nullptr : ours->count());
}

std::optional<Time> SimHost::due(const Driven& driven) const {
  std::optional<Time> due = driven.due;
  const auto timeout = driven.nic->next_timeout(due);
  if (timeout && (!due || *timeout < *due)) due = timeout;
  if (due) due = std::max(*due, scheduler_.paused_until(driven.group));
  return due;
}

std::optional<Time> SimHost::next() {
  std::optional<Time> next;
  for (const auto& [address, driven] : nics_) {
    const auto at = due(driven);
    if (at && (!next || *at < *next)) next = at;
  }
  return next;
}

void SimHost::act(Time now) {
  for (auto& [address, driven] : nics_) {
    const auto at = due(driven);
    if (!at || *at > now) continue;
    driven.due.reset();
    driven.nic->progress(now, kBudget);
    // As a descriptor that stays readable. Rings let the network wait for a moment.
    if (network_.waiting(address)) driven.due = now + (rings_ == nullptr ? Duration(0) : kMoment);
    if (rings_ != nullptr && rings_->waiting(address)) driven.due = now;
  }
}

}  // namespace verbena::sim
