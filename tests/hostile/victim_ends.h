// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace verbena::hostile {

/// Ends the process with a sentence and status 1.
[[noreturn]] void die(const std::string& what);
void need(bool good, const char* what);
/// Verbs return an errno value.
void need_zero(int error, const char* what);

/// What a queue pair is connected to.
struct Remote {
  ibv_gid gid{};
  std::uint32_t qp_number = 0;
  std::uint32_t psn = 0;
};

/// The device and the memory of the victim: a region that a peer may reach, one that it may only
/// read, and bytes all around them, of which none may ever change.
class Ground {
 public:
  static constexpr std::size_t kRegion = 64 << 10;  ///< bytes of a region
  static constexpr std::size_t kReachable = 0;      ///< index of the one that a peer may reach
  static constexpr std::size_t kReadOnly = 1;       ///< and of the one that it may read
  static constexpr std::size_t kReceives = 2;       ///< and of the one for the peer's messages
  static constexpr std::size_t kOwn = 3;            ///< and of the one for the victim's own
  static constexpr std::size_t kRegions = 4;

  Ground();
  ~Ground();
  Ground(const Ground&) = delete;
  Ground& operator=(const Ground&) = delete;

  [[nodiscard]] ibv_context* context() const { return context_; }
  [[nodiscard]] ibv_pd* pd() const { return pd_; }
  [[nodiscard]] const ibv_gid& gid() const { return gid_; }
  [[nodiscard]] ibv_mr* region(std::size_t index) const { return regions_[index]; }
  [[nodiscard]] std::span<std::byte> bytes(std::size_t index);
  /// The first byte that changed although it must not; the memory's size when there is none.
  [[nodiscard]] std::size_t first_changed() const;
  [[nodiscard]] std::size_t size() const { return memory_.size(); }

 private:
  [[nodiscard]] static std::byte pattern(std::size_t place);

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_gid gid_{};
  std::vector<std::byte> memory_;
  std::vector<ibv_mr*> regions_{};
};

/// A queue pair with a completion queue of its own.
class End {
 public:
  End(const Ground& ground, ibv_qp_type type);
  ~End();
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void connect(const Remote& remote);  ///< RC, to RTS
  void activate(std::uint32_t qkey);   ///< UD, to RTS
  void post(ibv_send_wr request);
  void receive(ibv_sge piece);
  [[nodiscard]] bool try_receive(ibv_sge piece);  ///< false when the queue is full
  /// The next completion; false when none comes in a long time.
  [[nodiscard]] bool completion(ibv_wc& completion);
  /// Takes whatever completions are there.
  void clear();
  [[nodiscard]] ibv_qp_state state() const;
  [[nodiscard]] std::uint32_t number() const { return qp_->qp_num; }
  [[nodiscard]] std::uint32_t psn() const { return psn_; }  ///< of its own first request

  static constexpr std::uint32_t kDepth = 64;

 private:
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  std::uint32_t psn_ = 0;
};

}  // namespace verbena::hostile
