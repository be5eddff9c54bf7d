// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/sys.h"
#include "link/link.h"
#include "link/udp.h"
#include "wire/address.h"

namespace verbena::link {

/// A UDP link for each of a port's addresses, and for each multicast group that is received at one
/// of its interfaces: sends each train by that of its source address and receives from all. A train
/// from an address that is not the port's any more is lost, as on a network.
///
/// While there was never more than one it only passes calls on; else a receive asks the kernel once
/// which of the others have something. Its descriptors are the first link's socket and an epoll of
/// all others, so that they stay the same.
class AddressSwitch final : public Link {
 public:
  /// An address or group with the socket that serves it, open as long as `keep` is held.
  struct Route {
    wire::Address address{};
    int socket = -1;
    std::shared_ptr<const void> keep{};
  };
  /// Tells the routes that there are now; asked by create() and refresh(). The first one is always
  /// the same.
  using Routes = std::function<std::vector<Route>()>;

  /// `keep` is let go of after all routes. `guard`: as UdpLink::create() has it.
  [[nodiscard]] static Result<std::unique_ptr<AddressSwitch>> create(
      Routes routes, std::shared_ptr<const void> keep, FdGuard guard = {});
  AddressSwitch(const AddressSwitch&) = delete;
  AddressSwitch& operator=(const AddressSwitch&) = delete;
  ~AddressSwitch() override;

  std::size_t send(std::span<const wire::Train> trains, Time now) override;
  std::size_t receive(std::span<wire::Segment> segments, Time now) override;
  [[nodiscard]] Time poll_timeout() const override;
  [[nodiscard]] std::optional<std::uint16_t> source_port() const override {
    return ports_.front().link->source_port();
  }
  void report_ip_headers() override;
  void refresh() override;
  [[nodiscard]] std::span<const int> descriptors() const override { return descriptors_; }
  [[nodiscard]] bool segments(const wire::Path& path) override;
  void use_single_packets(const wire::Address& destination) override;

 private:
  struct Port {
    wire::Address address{};
    int socket = -1;
    std::unique_ptr<UdpLink> link{};
    bool ready = true;  ///< may have received something; the first one always may
  };

  AddressSwitch(Routes routes, std::shared_ptr<const void> keep, FdGuard guard, sys::OwnedFd epoll)
      : keep_(std::move(keep)),
        routes_(std::move(routes)),
        guard_(std::move(guard)),
        epoll_(std::move(epoll)) {}
  [[nodiscard]] Result<void> add(const Route& route);
  void remove_all_but(std::span<const Route> routes);
  [[nodiscard]] UdpLink* link_of(const wire::Address& address) const;
  void look_who_is_ready();

  const std::shared_ptr<const void> keep_;
  const Routes routes_;
  const FdGuard guard_;
  static constexpr std::size_t kLooked = 16;  ///< ready ones that are asked for at once
  std::vector<Port> ports_;
  std::size_t next_ = 0;  ///< who is asked first for what came in
  bool several_ = false;  ///< there was more than one
  bool reports_ip_headers_ = false;
  sys::OwnedFd epoll_;  ///< of all sockets but the first
  std::array<int, 2> descriptors_{};
};

}  // namespace verbena::link
