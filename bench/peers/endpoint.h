// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/support/control.h"

namespace verbena::bench {

/// One of libfabric's objects, closed by its owner.
struct CloseFid {
  template <typename T>
  void operator()(T* object) const {
    fi_close(&object->fid);
  }
};
template <typename T>
using Owned = std::unique_ptr<T, CloseFid>;

struct EndpointConfig {
  std::string provider{};  ///< as libfabric names it: "tcp;ofi_rxm"
  std::string address{};   ///< of this side, IPv4; not used by shm
  std::size_t bytes = 0;   ///< of a message
};

/// A reliable datagram endpoint of libfabric with one peer, which it meets over the control
/// connection, and a buffer each for what is sent and received. Whatever fails ends the process.
/// Work stands in the endpoint from a call that returned true to its completion; at most kDepth of
/// each kind. Owned and used by one thread.
class Endpoint {
 public:
  static constexpr std::size_t kDepth = 256;

  Endpoint(const EndpointConfig& config, const Control& control);

  /// Each starts one message, or returns false when there is no room for it just now.
  [[nodiscard]] bool send();
  [[nodiscard]] bool receive();
  [[nodiscard]] bool write();  ///< from our sending buffer into the peer's receiving one
  [[nodiscard]] bool read();   ///< from the peer's sending buffer into our receiving one
  /// A message that needs no completion, or an ordinary one where the provider cannot.
  [[nodiscard]] bool send_small();

  /// Drives the endpoint and returns how many sends, writes and reads have completed, or receives.
  std::size_t sent();
  std::size_t received();

 private:
  void open(const EndpointConfig& config);
  void open_queues();
  void register_buffers();
  void meet(const Control& control);
  [[nodiscard]] static bool taken(ssize_t status, const char* what);
  [[nodiscard]] fi_context* next_context();

  struct FreeInfo {
    void operator()(fi_info* info) const { fi_freeinfo(info); }
  };
  std::unique_ptr<fi_info, FreeInfo> info_;
  Owned<fid_fabric> fabric_;
  Owned<fid_domain> domain_;
  Owned<fid_av> peers_;
  Owned<fid_cq> send_queue_;
  Owned<fid_cq> receive_queue_;
  std::vector<std::byte> outgoing_;
  std::vector<std::byte> incoming_;
  Owned<fid_mr> outgoing_region_;
  Owned<fid_mr> incoming_region_;
  Owned<fid_ep> endpoint_;  // closed first

  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  struct Remote {
    std::uint64_t address = 0;
    std::uint64_t key = 0;
  };
  Remote peer_outgoing_{};
  Remote peer_incoming_{};
  std::array<fi_context2, 2 * kDepth> contexts_{};
  std::size_t context_ = 0;
  std::size_t small_sent_ = 0;  // by inject, which completes at once
};

}  // namespace verbena::bench
