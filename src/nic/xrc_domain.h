// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "engine/receive_queue.h"

namespace verbena::nic {

/// A file, by what no other file has, not even one that gets its inode number later.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t birth_ns = 0;  ///< 0 where the file system does not keep it
  auto operator<=>(const FileIdentity&) const = default;
};

/// How an XRC domain is opened (ibv_open_xrcd(3)).
struct XrcDomainInit {
  std::optional<FileIdentity> file{};  ///< none: a domain that cannot be opened again
  bool create = false;
  bool exclusive = false;
};

/// The shared receive queues of an XRC domain, by their numbers. Its targets live in one shard.
/// Threads: all calls with that shard held.
class XrcReceives final : public engine::ReceiveDirectory {
 public:
  XrcReceives(std::uint32_t home, const std::optional<FileIdentity>& file)
      : home_(home), file_(file) {}

  [[nodiscard]] const engine::NumberedReceives* find(std::uint32_t number) const override {
    const auto found = queues_.find(number);
    return found == queues_.end() ? nullptr : &found->second;
  }
  void insert(std::uint32_t number, const engine::NumberedReceives& receives) {
    queues_.emplace(number, receives);
  }
  void erase(std::uint32_t number) { queues_.erase(number); }

  [[nodiscard]] std::uint32_t home() const { return home_; }
  [[nodiscard]] const std::optional<FileIdentity>& file() const { return file_; }

 private:
  std::uint32_t home_;  ///< index of the shard
  std::optional<FileIdentity> file_;
  std::unordered_map<std::uint32_t, engine::NumberedReceives> queues_;  ///< never iterated
};

/// An XRC domain as it was opened once: who opens it again by the same file shares its receives.
struct XrcDomain {
  std::shared_ptr<XrcReceives> receives;
  std::uint32_t uses = 0;  ///< queues and queue pairs made through it (under the NIC's object lock)
};

}  // namespace verbena::nic
