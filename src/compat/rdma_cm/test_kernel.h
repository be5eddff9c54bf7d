// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this room only: a kernel's rdma_cm device that takes down what it is asked and tells
// what a test wants it to.

#include <gtest/gtest.h>
#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "compat/rdma_cm/agent.h"
#include "compat/rdma_cm/kernel_device.h"

namespace verbena::compat::rdma_cm::testing {

struct FakeKernel {
  struct Command {
    std::uint32_t number = 0;
    std::vector<std::byte> bytes{};

    template <typename T>
    [[nodiscard]] T as() const {
      T command{};
      std::memcpy(&command, bytes.data(), std::min(bytes.size(), sizeof command));
      return command;
    }
  };
  static constexpr std::uint32_t kFirstId = 700;

  std::vector<Command> commands{};
  std::deque<rdma_ucm_event_resp> events{};
  std::map<std::uint32_t, std::uint64_t> uids{};  ///< by id, and of groups
  std::map<std::uint32_t, std::errc> refusals{};  ///< by the command's number
  std::uint32_t next_id = kFirstId;

  /// Those of that number, in order.
  [[nodiscard]] std::vector<Command> all(std::uint32_t number) const {
    std::vector<Command> found;
    for (const Command& command : commands)
      if (command.number == number) found.push_back(command);
    return found;
  }
};

class FakeKernelDevice final : public KernelDevice {
 public:
  explicit FakeKernelDevice(std::shared_ptr<FakeKernel> kernel) : kernel_(std::move(kernel)) {}

  Result<void> write(ConstBytes whole) override {
    rdma_ucm_cmd_hdr header{};
    std::memcpy(&header, whole.data(), sizeof header);
    const ConstBytes rest = whole.subspan(sizeof header);
    EXPECT_EQ(rest.size(), header.in);
    const FakeKernel::Command command{header.cmd, {rest.begin(), rest.end()}};
    if (header.cmd == RDMA_USER_CM_CMD_GET_EVENT) return next_event(command);
    kernel_->commands.push_back(command);
    if (const auto refusal = kernel_->refusals.find(header.cmd); refusal != kernel_->refusals.end())
      return fail(refusal->second, "a test wants it so");
    return answer(command);
  }

 private:
  template <typename Response>
  static void put(std::uint64_t to, const Response& response) {
    std::memcpy(reinterpret_cast<void*>(to), &response, sizeof response);
  }

  Result<void> next_event(const FakeKernel::Command& command) {
    if (kernel_->events.empty()) return fail(std::errc::resource_unavailable_try_again);
    put(command.as<rdma_ucm_get_event>().response, kernel_->events.front());
    kernel_->events.pop_front();
    return {};
  }

  void add(std::uint64_t uid, std::uint64_t response) {
    kernel_->uids[kernel_->next_id] = uid;
    put(response, rdma_ucm_create_id_resp{.id = kernel_->next_id++});
  }

  Result<void> answer(const FakeKernel::Command& command) {
    switch (command.number) {
      case RDMA_USER_CM_CMD_CREATE_ID: {
        const auto create = command.as<rdma_ucm_create_id>();
        add(create.uid, create.response);
        return {};
      }
      case RDMA_USER_CM_CMD_JOIN_IP_MCAST: {
        const auto join = command.as<rdma_ucm_join_ip_mcast>();
        add(join.uid, join.response);
        return {};
      }
      case RDMA_USER_CM_CMD_DESTROY_ID:
      case RDMA_USER_CM_CMD_LEAVE_MCAST: {
        const auto destroy = command.as<rdma_ucm_destroy_id>();
        put(destroy.response, rdma_ucm_destroy_id_resp{.events_reported = 99});
        EXPECT_EQ(kernel_->uids.erase(destroy.id), 1U);
        return {};
      }
      case RDMA_USER_CM_CMD_ACCEPT: {
        const auto accept = command.as<rdma_ucm_accept>();
        kernel_->uids[accept.id] = accept.uid;
        return {};
      }
      case RDMA_USER_CM_CMD_QUERY_ROUTE: {
        rdma_ucm_query_route_resp response{};
        response.node_guid = 0x1234;
        put(command.as<rdma_ucm_query>().response, response);
        return {};
      }
      default: return {};
    }
  }

  std::shared_ptr<FakeKernel> kernel_;
};

}  // namespace verbena::compat::rdma_cm::testing
