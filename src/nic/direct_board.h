// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "base/sys.h"
#include "engine/direct_memory.h"
#include "nic/open_memory.h"
#include "wire/address.h"

namespace verbena::nic {

/// What a slot lets its peers on this machine do with its memory by themselves: which of its queue
/// pairs may be used for it, by whom, and which keys. The owner writes it; peers have it mapped,
/// and the kernel lets them only read.
///
/// An entry is there as long as its number is. Who is going to touch what it opens says so first,
/// in a word that the owner looks at (`nic/direct_paths.h`), and then looks for the number; the
/// owner takes the number away and then looks at that word. So an entry that was found stays as it
/// is until its user is done. Who only has the kernel copy it says nothing, and looks again behind
/// the copy: what was taken away meanwhile is another place, though all of it be as before.
class DirectBoard {
 public:
  struct Made;
  /// In memory that others can map for reading, with the descriptor for them. What the kernel says
  /// when it refuses: it must know F_SEAL_FUTURE_WRITE (Linux 5.1).
  [[nodiscard]] static Result<Made> create();
  /// Maps another process's; bad_message for what is none.
  [[nodiscard]] static Result<DirectBoard> open(int fd);
  /// Another view of one of this process.
  [[nodiscard]] DirectBoard view() const;
  DirectBoard(DirectBoard&&) noexcept;
  DirectBoard& operator=(DirectBoard&&) noexcept;
  ~DirectBoard();

  // The owner's, with the shard held. Each number has one place, by its low bits: what finds it
  // taken is not there, and its peers use packets.

  /// `peer` is the address of who may. Nobody else is admitted by the queue pair.
  void admit(const engine::DirectMemory::Admission& admission, const wire::Address& peer);
  /// Whether just that stands there.
  [[nodiscard]] bool admits(const engine::DirectMemory::Admission& admission,
                            const wire::Address& peer) const;
  /// From now on the queue pair admits nobody; false when it did not anyway.
  bool dismiss(std::uint32_t qp_number);
  void publish(const OpenRegion& region);
  /// Whether publish() would find its place taken. From any thread.
  [[nodiscard]] bool is_taken(std::uint32_t key) const;
  void withdraw(std::uint32_t key);
  /// While the port is down nobody reaches anything.
  void set_up(bool up);

  // The peer's.

  /// Where the bytes are that `from`'s queue pair may touch.
  [[nodiscard]] std::optional<PeerPlace> find(const engine::DirectMemory::Target& target,
                                              const wire::Address& from) const;

  /// Whether what find() found for a like target, with so many `changes`, is there as it was.
  [[nodiscard]] bool still_opens(const engine::DirectMemory::Target& target,
                                 std::uint64_t changes) const;

 private:
  struct QpEntry;
  struct KeyEntry;
  struct Memory;
  DirectBoard(Memory* memory, bool owned) : memory_(memory), owned_(owned) {}
  [[nodiscard]] static Result<DirectBoard> map(int fd, int protection);
  [[nodiscard]] QpEntry& queue_pair(std::uint32_t number) const;
  [[nodiscard]] KeyEntry& key(std::uint32_t number) const;
  [[nodiscard]] std::uint64_t changes_of(const QpEntry& qp, const KeyEntry& key) const;

  Memory* memory_ = nullptr;
  bool owned_ = false;  ///< else somebody else's view
};

struct DirectBoard::Made {
  DirectBoard board;
  sys::OwnedFd descriptor;
};

}  // namespace verbena::nic
