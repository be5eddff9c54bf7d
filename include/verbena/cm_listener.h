// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "verbena/cm_connection.h"

namespace verbena::verbs::cm {

/// Somebody who asks to be connected. Destroyed without an answer, it refuses.
class incoming {
 public:
  incoming(incoming&&) noexcept = default;
  incoming& operator=(incoming&&) noexcept;
  incoming(const incoming&) = delete;
  incoming& operator=(const incoming&) = delete;
  ~incoming();

  /// See `event::private_data`.
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept { return private_data_; }
  /// What the peer allows of READs and atomics.
  [[nodiscard]] const connection_parameters& parameters() const noexcept { return parameters_; }
  /// Of the device that was asked.
  [[nodiscard]] socket_address local_addr() const noexcept { return end_.one.local_addr(); }
  /// Of who asks.
  [[nodiscard]] socket_address peer_addr() const noexcept { return end_.one.peer_addr(); }
  /// For what this class does not have.
  [[nodiscard]] const cm::id& cm_id() const noexcept { return end_.one; }

  /// See `id::context`.
  [[nodiscard]] Result<verbs::context> context() const { return end_.one.context(); }
  /// In INIT: receives can be posted before it is accepted.
  [[nodiscard]] Result<queue_pair<rc>> create_qp(const protection_domain& pd,
                                                 const qp_init_attributes<rc>& attributes) {
    return end_.one.create_qp<rc>(pd, attributes);
  }

  /// Waits until the peer has heard of it. `qp` is what `create_qp` has made.
  [[nodiscard]] Result<connection> accept(
      queue_pair<rc> qp, const connection_parameters& parameters = {},
      std::chrono::milliseconds at_most = std::chrono::seconds(30)) &&;
  /// Without waiting.
  [[nodiscard]] Result<connecting> start_accept(queue_pair<rc> qp,
                                                const connection_parameters& parameters = {}) &&;
  /// At most 148 bytes of words. The peer gets `connection_refused` with them.
  [[nodiscard]] Result<> reject(std::span<const std::byte> private_data = {}) &&;

 private:
  friend class listener;
  incoming(detail::end end, event& request);

  detail::end end_;
  std::vector<std::byte> private_data_;
  connection_parameters parameters_;
};

/// How a listener is bound.
struct listen_options {
  int backlog = 128;           ///< that may wait to be accepted; more are refused
  bool reuse_address = false;  ///< whether it may be bound while another listener has it
  bool ipv6_only = false;      ///< whether :: is not IPv4's, too
  std::optional<std::uint8_t> type_of_service{};  ///< of IP, of those that are accepted
};

/// Where others connect to. Those that it gave live on without it.
class listener {
 public:
  /// Port 0 has one chosen. `address_in_use`; `address_not_available` where no device has it.
  [[nodiscard]] static Result<listener> bind(const socket_address& to,
                                             const listen_options& options = {});
  /// Its events, and those of all that it gives, come to that channel.
  [[nodiscard]] static Result<listener> bind(const event_channel& channel, const socket_address& to,
                                             const listen_options& options = {});

  /// With the port that was chosen.
  [[nodiscard]] socket_address local_addr() const noexcept { return end_.one.local_addr(); }
  /// Of the device that has the address; `not_connected` where it listens on all.
  [[nodiscard]] Result<verbs::context> context() const { return end_.one.context(); }
  /// For what this class does not have.
  [[nodiscard]] const cm::id& cm_id() const noexcept { return end_.one; }

  /// @name On a channel of its own
  /// @{

  /// Waits for somebody. Each has a channel of its own. `timed_out`.
  [[nodiscard]] Result<incoming> accept(std::chrono::milliseconds at_most);
  /// The same, however long it takes.
  [[nodiscard]] Result<incoming> accept();
  /// `would_block` when nobody waits.
  [[nodiscard]] Result<incoming> try_accept();
  /// Readable when somebody may wait; -1 where the channel is shared.
  [[nodiscard]] int fd() const noexcept { return end_.own_fd(); }

  /// @}
  /// @name On a channel that is shared
  /// @{

  /// Who asks, when that is what the event was. What is not its own is left alone.
  [[nodiscard]] Result<std::optional<incoming>> handle(event& happened);
  /// @}

 private:
  explicit listener(detail::end end) : end_(std::move(end)) {}
  [[nodiscard]] static Result<listener> begin(detail::end end, const socket_address& to,
                                              const listen_options& options);

  detail::end end_;
};

}  // namespace verbena::verbs::cm
