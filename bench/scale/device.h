// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace verbena::bench {

/// Ends the process unless `good`, with what failed.
void need(bool good, const char* what);

/// The first device with a protection domain, one completion queue and memory. Whatever fails ends
/// the process, whose end gives all back.
class Device {
 public:
  static constexpr std::uint32_t kList = 32;  ///< requests that are posted at once
  static constexpr std::uint32_t kMessage = 64;
  static constexpr std::size_t kPage = 4096;
  static constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

  /// `completions` is the completion queue's size.
  explicit Device(int completions);

  [[nodiscard]] ibv_mr* register_page() const;
  /// In INIT, with room for two lists.
  [[nodiscard]] ibv_qp* create_pair() const;
  /// To RTS.
  void connect(ibv_qp* qp, std::uint32_t number, const ibv_gid& gid) const;
  [[nodiscard]] const ibv_gid& gid() const { return gid_; }
  [[nodiscard]] std::uint64_t page() const;
  /// How many lists have completed since the last call.
  [[nodiscard]] std::uint32_t poll() const;

 private:
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_gid gid_{};
  std::byte* memory_ = nullptr;
};

/// A list of WRITEs, of which the last one asks for a completion.
class WriteList {
 public:
  WriteList() = default;
  /// One of them: from and to the page, by these keys.
  void set(std::uint32_t index, const Device& from, std::uint32_t lkey, std::uint64_t to,
           std::uint32_t rkey);
  void post(ibv_qp* qp);

 private:
  std::array<ibv_send_wr, Device::kList> requests_{};
  std::array<ibv_sge, Device::kList> pieces_{};
};

}  // namespace verbena::bench
