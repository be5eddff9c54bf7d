// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "verbena/async_event.h"
#include "verbena/completion_queue.h"
#include "verbena/device.h"
#include "verbena/handle.h"
#include "verbena/types.h"

namespace verbena::verbs {

class protection_domain;
class device_memory;
class thread_domain;
class xrc_domain;
enum class xrcd_open : std::uint8_t;

/// An opened device: what everything else is made of.
///
/// Threads: all calls from any thread at once, but those of `detail::handle`.
/// Source: ibv_open_device(3), IBA 11.2.1.
class context : public detail::handle<ibv_context> {
 public:
  /// The device of that name; the only one, or the first, where `name` is empty. `no_such_device`
  /// names those that there are.
  [[nodiscard]] static Result<context> open(std::string_view name = {});
  /// The first device that has the GID in a table of its ports.
  [[nodiscard]] static Result<context> open(const gid& with);
  /// The first device with a GID whose first `bits` are the prefix's: `open_in_subnet(192.168.1.0,
  /// 120)`. For IPv4 count the 96 bits before the address.
  [[nodiscard]] static Result<context> open_in_subnet(const gid& prefix, unsigned bits);

  /// A context that another library has opened and closes (the rdma_cm's, for one). `holder` is
  /// what keeps it open: it is let go of with this and all that was made of it.
  /// `invalid_argument` for null.
  [[nodiscard]] static Result<context> borrow(ibv_context* opened, detail::keep holder = {});

  /// One that C calls have opened, and close where it is borrowed. `invalid_argument` for null.
  [[nodiscard]] static Result<context> adopt(ibv_context* opened, ownership whose);

  [[nodiscard]] std::string name() const;  ///< "vrb0"; empty where nothing is behind it
  /// Limits and versions. Source: ibv_query_device(3).
  [[nodiscard]] Result<device_attributes> query_device() const;
  /// `invalid_argument` for a port that there is not.
  [[nodiscard]] Result<port_attributes> query_port(port of = port{1}) const;
  /// Zero where the row holds none. Source: ibv_query_gid(3).
  [[nodiscard]] Result<gid> query_gid(port of, gid_index index) const;
  /// The rows of all ports that hold a GID.
  [[nodiscard]] Result<std::vector<gid_entry>> gid_table() const;
  /// The row that a peer elsewhere can most likely reach: RoCEv2 before others, and of those a
  /// global IPv4 address, a global IPv6 one, loopback (of a software NIC that listens there),
  /// link-local. `address_not_available` where the port has none.
  [[nodiscard]] Result<gid_entry> routable_gid(port of = port{1}) const;
  /// 0xffff is the full member's default. Source: ibv_query_pkey(3).
  [[nodiscard]] Result<std::uint16_t> query_pkey(port of, std::uint16_t index) const;

  /// In verbena/protection_domain.h.
  [[nodiscard]] Result<protection_domain> alloc_pd() const;
  /// For the events of completion queues.
  [[nodiscard]] Result<completion_channel> create_channel() const;
  /// `invalid_argument` for a depth of 0, and where the device has not so much, or not the vector.
  [[nodiscard]] Result<completion_queue> create_cq(const cq_attributes& attributes) const;
  /// The same, polled field by field. `not_supported` for fields that the device cannot say.
  [[nodiscard]] Result<completion_queue_ex> create_cq_ex(const cq_ex_attributes& attributes) const;

  /// Memory of the device's own, at a multiple of 2^`log_align` bytes. In verbena/device_memory.h.
  [[nodiscard]] Result<device_memory> alloc_dm(std::size_t size, std::uint32_t log_align = 0) const;
  /// In verbena/parent_domain.h.
  [[nodiscard]] Result<thread_domain> alloc_td() const;
  /// A domain of this process' own. In verbena/xrc.h.
  [[nodiscard]] Result<xrc_domain> open_xrcd() const;
  /// That of a file, which other processes open, too. The descriptor may be closed afterwards.
  [[nodiscard]] Result<xrc_domain> open_xrcd(int fd, xrcd_open how) const;

  /// The descriptor that is readable when an asynchronous event waits. It stays the device's.
  [[nodiscard]] int async_fd() const noexcept;
  /// Whether `get_async_event` waits; it does until this is told otherwise.
  [[nodiscard]] Result<> set_async_blocking(bool blocking) const;
  /// The oldest event of device, ports and objects; it is acknowledged already. `would_block` when
  /// none waits and the descriptor does not block. Source: ibv_get_async_event(3).
  [[nodiscard]] Result<async_event> get_async_event() const;

 private:
  explicit context(ibv_context* raw);
  context(ibv_context* raw, detail::keep holder);
  [[nodiscard]] static Result<context> open_where(
      const std::function<Result<bool>(const context&)>& wanted, const std::string& what);
};

}  // namespace verbena::verbs
