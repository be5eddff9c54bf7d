// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>

#include "base/time.h"
#include "engine/engine.h"
#include "engine/tag_list.h"
#include "engine/types.h"
#include "nic/open_memory.h"
#include "wire/address.h"
#include "wire/toeplitz.h"

namespace verbena::nic {

class CompletionQueue;
class DeviceMemory;
struct IndirectionTable;
class SharedReceiveQueue;
struct XrcDomain;

struct ProtectionDomain {
  std::uint32_t number = 0;
  std::uint32_t uses = 0;            ///< what was made with it (under the NIC's object lock)
  ProtectionDomain* base = nullptr;  ///< of a parent domain: whose number it has
  /// Where the queues that are made with it have their storage.
  std::pmr::memory_resource* memory = std::pmr::get_default_resource();
};

struct MemoryRegion {
  ProtectionDomain* pd = nullptr;
  std::uint32_t key = 0;  ///< lkey and rkey
  std::uint64_t length = 0;
  DeviceMemory* device = nullptr;      ///< what it is registered on; null: the program's memory
  std::uint64_t address = 0;           ///< the IOVA
  Bytes memory{};                      ///< the program's, if the host knows of it
  std::optional<OpenMemory> shared{};  ///< what of it peers on this machine map
};

struct MemoryWindow {
  ProtectionDomain* pd = nullptr;
  std::uint32_t key = 0;  ///< the first one
};

struct AddressHandle {
  ProtectionDomain* pd = nullptr;
  wire::Path path{};
};

/// What a receive work queue is made with (ibv_wq_init_attr); the granted sizes come back in it.
struct WorkQueueInit {
  ProtectionDomain* pd = nullptr;
  CompletionQueue* cq = nullptr;
  std::uint32_t max_wr = 0;
  std::uint32_t max_sge = 0;
};

/// Which fields of a frame the hash of receive-side scaling covers: a mask of ibv_rx_hash_fields.
enum HashField : std::uint32_t {
  kHashSourceIpv4 = 1 << 0,
  kHashDestinationIpv4 = 1 << 1,
  kHashSourceIpv6 = 1 << 2,
  kHashDestinationIpv6 = 1 << 3,
  kHashSourcePortTcp = 1 << 4,
  kHashDestinationPortTcp = 1 << 5,
  kHashSourcePortUdp = 1 << 6,
  kHashDestinationPortUdp = 1 << 7,
};
inline constexpr std::uint32_t kHashFields = (1 << 8) - 1;

/// How a raw packet queue pair spreads what it receives (ibv_rx_hash_conf).
struct Spreading {
  IndirectionTable* table = nullptr;
  std::array<std::byte, wire::Toeplitz::kKeySize> key{};
  std::uint32_t fields = 0;
};

/// What a queue pair is made with (ibv_qp_init_attr); the granted sizes come back in it. An
/// XRC_RECV queue pair has a domain and nothing else of this, an XRC_SEND one no receives;
/// a raw packet one that spreads has a protection domain and the spreading.
struct QpInit {
  engine::QpType type = engine::QpType::kRc;
  ProtectionDomain* pd = nullptr;
  CompletionQueue* send_cq = nullptr;
  CompletionQueue* receive_cq = nullptr;
  SharedReceiveQueue* srq = nullptr;  ///< where receives come from; null: a queue of its own
  XrcDomain* domain = nullptr;        ///< XRC_RECV
  std::optional<Spreading> spreading{};
  std::uint32_t max_send_wr = 0;
  std::uint32_t max_receive_wr = 0;
  std::uint32_t max_send_sge = 0;
  std::uint32_t max_receive_sge = 0;
  std::uint32_t max_inline = 0;
  bool signal_all = false;
  bool blocks_own_multicasts = false;  ///< UD
};

/// What a completion queue does beside keeping completions (ibv_cq_init_attr_ex).
struct CqOptions {
  bool timestamps = false;  ///< each completion keeps when it was made
  bool overwrites = false;  ///< when full it loses the oldest one, and never overflows
};

/// How many completions make an event, and how long the first of them waits for the others
/// (ibv_moderate_cq). It is off while either says no more than one completion does.
struct CqModeration {
  std::uint16_t count = 0;
  Duration period{};

  [[nodiscard]] bool on() const { return count > 1 && period > Duration::zero(); }
};

/// What a shared receive queue is made with (ibv_srq_init_attr); the granted sizes come back in it.
/// One with a domain is for XRC, one with tags matches them; a basic one has neither.
struct SrqInit {
  ProtectionDomain* pd = nullptr;
  XrcDomain* domain = nullptr;
  CompletionQueue* cq = nullptr;  ///< but for a basic one: for what is received into it
  std::uint32_t max_tags = 0;     ///< receives with tags, at most kMaxTags; 0: it has none
  std::uint32_t max_wr = 0;
  std::uint32_t max_sge = 0;
};

/// Bounds of a queue that matches tags.
inline constexpr std::uint32_t kMaxTags = 1024;
inline constexpr std::uint32_t kMaxTagPieces = engine::kRendezvousPieces;

/// What is to be done with a queue's receives that have tags (ibv_ops_wr).
struct TagRequest {
  enum class Kind : std::uint8_t { kAdd = 0, kDelete = 1, kSync = 2 };

  std::uint64_t id = 0;
  Kind kind{};
  bool signaled = false;
  std::optional<std::uint32_t> handled{};  ///< as engine::TagList::sync()
  std::uint32_t handle = 0;                ///< comes back from kAdd
  engine::TaggedReceive receive{};         ///< kAdd
};

/// What a shared receive queue is now (ibv_srq_attr).
struct SrqAttributes {
  std::uint32_t max_wr = 0;
  std::uint32_t max_sge = 0;
  std::uint32_t limit = 0;  ///< 0: not armed
};

}  // namespace verbena::nic
