// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/sys.h"
#include "link/fetch_choice.h"
#include "link/link.h"
#include "link/shm_ring.h"
#include "wire/address.h"

namespace verbena::link {

/// Both ways between a slot of ours and one of another process, or of this one.
struct ShmChannel {
  RingMemory out;
  RingMemory in;
  wire::Address own{};
  wire::Address peer{};
  /// One end of a pair of SOCK_SEQPACKET sockets: a message wakes the peer, and its hang-up tells
  /// that the peer is gone. Open as long as `keep` is held.
  int bell = -1;
  std::shared_ptr<const void> keep{};
  /// The peer's process, when this one may fetch long payloads out of its memory; 0: the peer
  /// copies them into the ring.
  pid_t fetch_from = 0;
  /// When it fetches all that it may, and not only what does not fit into the ring; null: always.
  /// One for all channels of a peer.
  std::shared_ptr<FetchChoice> choice{};
  /// Payloads from this size on are lent to a peer that fetches them.
  std::size_t lend_from = kLendFrom;

  static constexpr std::size_t kLendFrom = 16 << 10;
};

/// The channels of a slot: opened by whoever meets a peer, used by the slot's link.
///
/// Threads: all calls from any thread.
class ShmChannels {
 public:
  static constexpr std::size_t kMost = 256;

  [[nodiscard]] static Result<std::shared_ptr<ShmChannels>> create();
  explicit ShmChannels(sys::OwnedFd epoll) : epoll_(std::move(epoll)) {}

  /// The number that paths name it by; no_buffer_space when there are too many.
  [[nodiscard]] Result<std::uint16_t> open(ShmChannel channel);
  /// Whether open() would say so; one that is closed counts until the link has heard of it.
  [[nodiscard]] bool is_full();
  /// Its packets are lost from now on, either way.
  void close(std::uint16_t number);
  /// Readable when a bell was rung.
  [[nodiscard]] int descriptor() const { return epoll_.get(); }

 private:
  friend class ShmLink;
  struct Change {
    std::uint16_t number = 0;
    std::unique_ptr<ShmChannel> opened{};  ///< null: it is closed
  };

  const sys::OwnedFd epoll_;
  std::atomic<bool> changed_{false};
  std::mutex mutex_;                                     ///< guards the rest
  std::vector<bool> used_ = std::vector<bool>(1, true);  ///< by number; 0 is the network
  std::vector<Change> changes_{};
};

/// Sends the trains whose path names a channel through its ring, in memory that both processes have
/// mapped, and all others by the link below. Whoever reads a ring polls it, or says that it sleeps
/// (arm()) and is woken once. While packets come by ring, the link below is looked at only now and
/// then, since asking the kernel costs more than a small packet does.
///
/// What a peer writes is as hostile as what a network brings: a ring whose indices cannot be is
/// never read or written again, and packets for it are lost. They carry no ICRC.
class ShmLink final : public Link {
 public:
  ShmLink(std::unique_ptr<Link> inner, std::shared_ptr<ShmChannels> channels);

  std::size_t send(std::span<const wire::Train> trains, Time now) override;
  [[nodiscard]] bool send_short(const wire::ShortSend& message) override;
  /// Half of a ring is left to packets that keep within windows. Where the reader has read nothing
  /// for a second, for it is stopped, nobody waits.
  [[nodiscard]] bool has_room(const wire::Path& path, std::size_t bytes, Time now) override;
  std::size_t receive(std::span<wire::Segment> segments, Time now) override;
  [[nodiscard]] bool arm() override;
  void recall(std::uint16_t channel) override;
  [[nodiscard]] bool lends(const wire::Path& path) override;
  [[nodiscard]] Time poll_timeout() const override { return inner_timeout_; }
  [[nodiscard]] std::optional<std::uint16_t> source_port() const override {
    return inner_->source_port();
  }
  void report_ip_headers() override { inner_->report_ip_headers(); }
  [[nodiscard]] std::span<const int> descriptors() const override { return descriptors_; }
  [[nodiscard]] bool segments(const wire::Path& path) override {
    return path.channel == 0 && inner_->segments(path);
  }
  void use_single_packets(const wire::Address& destination) override {
    inner_->use_single_packets(destination);
  }
  void refresh() override {
    inner_->refresh();
    inner_timeout_ = inner_->poll_timeout();
  }

 private:
  struct Way final : wire::PayloadSource {
    explicit Way(ShmChannel the_channel);
    std::size_t fetch(std::span<const wire::Segment> packets, std::byte* to) override;
    Bytes room(std::size_t size) override;
    [[nodiscard]] ConstBytes to_lend(const wire::Train& train,
                                     const wire::TrainPacket& packet) const;
    [[nodiscard]] std::byte* begin(const wire::Train& train, const wire::TrainPacket& packet,
                                   ConstBytes lent);
    void fetch_no_more();
    /// Before more is read: what was read before has been placed.
    void weigh();
    [[nodiscard]] Fetches wants() const;
    /// Whether what is long goes without its payload.
    [[nodiscard]] bool lends_now();

    RingWriter out;
    RingReader in;
    wire::Path path;  ///< of what comes in
    int bell;
    std::shared_ptr<const void> keep;
    std::uint16_t number = 0;
    pid_t fetch_from;
    std::shared_ptr<FetchChoice> choice;
    Fetches fetches;  ///< what the ring says of it
    std::size_t lend_from;
    std::vector<std::byte> bounce{};  ///< see room()
    std::size_t promised = 0;         ///< bytes that has_room() gave since the last send()
    Time full_since = kNever;         ///< has_room() says so since then
  };
  /// Where a train stopped that did not fit: given again first, it goes on there.
  struct Resume {
    std::uint32_t destination_qp = 0;
    std::uint32_t psn = 0;
    std::uint32_t packets = 0;
  };

  void follow_changes();
  void drain_bells();
  [[nodiscard]] Way* way_to(const wire::Path& path) const;
  [[nodiscard]] bool write(const wire::Train& train);
  [[nodiscard]] bool send_single(Way& way, const wire::Train& train);
  [[nodiscard]] std::size_t read(Way& way, std::span<wire::Segment> segments);
  static void wake(Way& way);

  std::unique_ptr<Link> inner_;
  const std::shared_ptr<ShmChannels> channels_;
  std::vector<int> descriptors_;
  std::vector<std::unique_ptr<Way>> by_number_;  ///< null: closed
  std::vector<Way*> ways_;                       ///< those that are open
  std::vector<Way*> written_;                    ///< by this send()
  std::size_t next_ = 0;                         ///< who is read first
  Resume resume_{};
  Time inner_timeout_;             ///< its poll_timeout(), which only sending and receiving change
  Time warm_until_ = Time::min();  ///< rings have brought something lately
  Time look_below_ = Time::min();  ///< not before, while they are warm
};

}  // namespace verbena::link
