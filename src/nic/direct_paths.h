// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/time.h"
#include "engine/direct_memory.h"
#include "link/fetch_choice.h"
#include "nic/direct_board.h"
#include "nic/fetching.h"
#include "nic/open_memory.h"
#include "nic/peer_pages.h"
#include "nic/reach_words.h"
#include "wire/address.h"

namespace verbena::nic {

/// The way by a channel to a peer's memory, and what the peer does with ours.
struct DirectPath {
  DirectBoard board;                   ///< the peer's
  std::unique_ptr<PeerPages> pages{};  ///< null: its memory is ours, too (simulator)
  /// Has the kernel copy the peer's memory from an address on; null where that is not wanted, or
  /// not allowed.
  std::function<Fetched(std::uint64_t address, std::span<const Bytes> to)> fetch{};
  std::uint64_t most_fetched = ~std::uint64_t{0};  ///< bytes; what is longer comes by packets
  /// What is longer is fetched, too, while this says so; it learns what that takes. Null: never.
  std::shared_ptr<link::FetchChoice> choice{};
  /// Null: neither side is ever in the middle of something while the other one runs (simulator).
  std::unique_ptr<ReachWords> words{};
  std::size_t end = 0;  ///< which of the words is ours
  wire::Address own{};
  wire::Address peer{};
  /// Whether the peer is there and can be reached: asked behind what was fetched, and now and then
  /// behind another copy, since it costs more than a small one does. In the simulator before each.
  std::function<bool()> there{};
};

/// A slot's memory as its peers on this machine may use it by themselves, and theirs: the other
/// side of `engine/direct_memory.h`.
///
/// A requester writes into its word what it is going to touch, then looks it up on the owner's
/// board, or sees there that what it found last is as it was, copies, and clears the word. The
/// owner takes the entry away and then waits for the words of its peers. A peer that does not come
/// out, because it is stopped or does not keep to this, is left behind: it is told to use packets,
/// and the pages that it is in are to be given up, so that what it still writes goes nowhere.
///
/// For what is in its owner's memory alone, and is only read, nobody waits: who has fetched it
/// looks the place up again, and what was taken away meanwhile is nothing.
///
/// Threads: open() and close() from any; everything else with the shard held.
class DirectPaths final : public engine::DirectMemory {
 public:
  /// How often a live path is asked whether its peer is there.
  static constexpr Duration kLooks = std::chrono::milliseconds(1);

  /// What of our memory is not shared peers may fetch, if `fetchable`.
  explicit DirectPaths(DirectBoard board, bool fetchable = true)
      : board_(std::move(board)), fetchable_(fetchable) {}

  void open(std::uint16_t channel, DirectPath path);
  void close(std::uint16_t channel);

  [[nodiscard]] bool offers(std::uint16_t channel, std::uint32_t access,
                            std::uint64_t length) override;
  [[nodiscard]] Bytes reach(const Target& target) override;
  [[nodiscard]] std::uint32_t fetch_turn(std::uint16_t channel, std::uint64_t length) override;
  [[nodiscard]] bool fetch(const Target& target, std::span<const Bytes> to) override;
  [[nodiscard]] bool leave(std::uint16_t channel, Time now) override;
  void admit(const Admission& admission) override;

  void publish(const OpenRegion& region);
  /// Whether publish() would do anything. From any thread.
  [[nodiscard]] bool takes(const OpenRegion& region) const;
  /// On return no peer touches what the key had opened, but what is to be given up.
  void withdraw(std::uint32_t key);
  /// To be called behind admit(): on return no peer touches anything, but what is to be given up,
  /// by what the queue pair admitted before, and it admits what it is to admit now.
  void settle(std::uint32_t qp_number);
  /// Whether there is something to be given up. From any thread.
  [[nodiscard]] bool gives_up() const { return gives_up_.load(std::memory_order_acquire); }
  /// Pages that peers stay in, whose keys here are withdrawn; those of other shards are not.
  [[nodiscard]] std::vector<Bytes> take_given_up();
  void set_up(bool up);
  /// For a peer of this process (simulator).
  [[nodiscard]] DirectBoard board() const { return board_.view(); }

 private:
  /// The stretch that was reached last, by which queue pair and for what.
  struct Reached {
    std::uint32_t key = 0;  ///< 0: none
    std::uint32_t qp_number = 0;
    std::uint32_t destination_qp = 0;
    std::uint32_t access = 0;
    std::uint64_t begin = 0;  ///< what the peer calls its first byte
    Bytes bytes{};
    std::uint64_t changes = 0;  ///< as of PeerPlace
    [[nodiscard]] bool covers(const Target& target) const;
  };
  struct Way {
    DirectPath path;
    Time look_at = Time::min();
    bool gone = false;
    Reached latest{};
  };
  struct Change {
    std::uint16_t channel = 0;
    std::optional<DirectPath> opened{};
  };

  static void let_go(const DirectPath& path);
  void follow_changes();
  [[nodiscard]] Way* way(std::uint16_t channel);
  [[nodiscard]] Way* open_way(std::uint16_t channel);
  /// Waits for the peers whose words `concerns`.
  template <typename Concerns>
  void wait_for_peers(Concerns concerns);
  void leave_behind(std::unique_ptr<Way>& way);

  struct Admitted {
    Admission admission;
    wire::Address peer;
  };

  DirectBoard board_;
  const bool fetchable_;
  bool up_ = true;
  std::vector<std::unique_ptr<Way>> ways_;  ///< by channel
  std::map<std::uint32_t, Bytes> published_;
  // Between admit() and settle(), by queue pair number.
  std::set<std::uint32_t> dismissed_;
  std::map<std::uint32_t, Admitted> to_admit_;
  std::vector<Bytes> given_up_;
  std::atomic<bool> gives_up_{false};

  std::atomic<bool> changed_{false};
  std::mutex mutex_;  ///< guards the next
  std::vector<Change> changes_;
};

}  // namespace verbena::nic
