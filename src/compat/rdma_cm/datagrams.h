// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/result.h"
#include "compat/rdma_cm/agent.h"
#include "wire/cm_message.h"

/// Requests for the queue pair of a datagram service (SIDR), and what they and connections have in
/// common: private data, behind the addresses in a request. With the agent's lock held.
namespace verbena::compat::rdma_cm {

/// Copies a command's private data into a message's; invalid_argument when it does not fit.
template <typename Command, std::size_t kSize>
[[nodiscard]] Result<void> copy_private_data(const Command& command, wire::PrivateData<kSize>& to,
                                             std::size_t at = 0) {
  const std::size_t size = command.private_data_len;
  if (size > kSize - at)
    return fail(std::errc::invalid_argument, "the private data does not fit the message");
  std::ranges::copy(std::as_bytes(std::span(command.private_data).first(size)),
                    to.begin() + static_cast<std::ptrdiff_t>(at));
  return {};
}

/// A request's private data: the addresses of both ends, and the program's.
template <std::size_t kSize>
[[nodiscard]] Result<void> fill_request_data(const Id& id, const rdma_ucm_conn_param& asked,
                                             wire::PrivateData<kSize>& to) {
  const wire::CmAddressHeader header{.source_port = id.source.port,
                                     .source = id.source.address,
                                     .destination = id.destination.address};
  header.encode(to.data());
  return copy_private_data(asked, to, wire::CmAddressHeader::kSize);
}

[[nodiscard]] Result<void> request_service(Id& id, const rdma_ucm_conn_param& asked);
/// With the id's queue pair, and no private data where `asked` is not valid.
[[nodiscard]] Result<void> answer_service(Id& id, const rdma_ucm_conn_param& asked,
                                          const wire::CmEce& ece);
[[nodiscard]] Result<void> refuse_service(Id& id, const rdma_ucm_reject& command);

/// The queue key that datagrams to and from the id's queue pair have: rdma_cm's where none is set.
[[nodiscard]] std::uint32_t queue_key(Id& id);
/// False when another one is set.
[[nodiscard]] bool set_queue_key(Id& id, std::uint32_t key);

}  // namespace verbena::compat::rdma_cm
