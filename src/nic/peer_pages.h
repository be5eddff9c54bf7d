// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.h"
#include "base/sys.h"
#include "nic/fork_ledger.h"
#include "nic/open_memory.h"

namespace verbena::nic {

/// The pages that a peer shares (`nic/shared_pages.h`), mapped here as they are used. What the peer
/// says of them is checked against its files, which cannot shrink: what is mapped stays.
class PeerPages {
 public:
  /// Takes the peer's two files; bad_message for what are none. `ledger` outlives it.
  [[nodiscard]] static Result<PeerPages> open(ForkLedger& ledger, sys::OwnedFd writable,
                                              sys::OwnedFd readable);
  PeerPages() = default;  ///< of one that shares none
  PeerPages(PeerPages&&) noexcept = default;
  PeerPages& operator=(PeerPages&&) noexcept = default;

  [[nodiscard]] bool empty() const { return !writable_.fd; }
  /// The bytes at a place, within the stretch that they lie in, until the next call; empty when
  /// they cannot be.
  [[nodiscard]] Bytes at(const PeerPlace& place);

 private:
  struct File {
    LedgerFd fd{};
    std::uint64_t size = 0;
  };
  /// A stretch that is mapped.
  class Mapping {
   public:
    Mapping() = default;
    Mapping(std::byte* base, const PeerPlace& place) : base_(base), place_(place) {}
    Mapping(Mapping&& other) noexcept
        : base_(std::exchange(other.base_, nullptr)), place_(other.place_) {}
    Mapping& operator=(Mapping&& other) noexcept {
      std::swap(base_, other.base_);
      std::swap(place_, other.place_);
      return *this;
    }
    ~Mapping();
    [[nodiscard]] bool is_of(const PeerPlace& place) const {
      return base_ != nullptr && place_.key == place.key && place_.home == place.home &&
             place_.stretch == place.stretch && place_.stretch_length == place.stretch_length;
    }
    [[nodiscard]] std::byte* base() const { return base_; }

   private:
    std::byte* base_ = nullptr;
    PeerPlace place_{};
  };
  static constexpr std::size_t kMappings = 64;

  PeerPages(File writable, File readable)
      : writable_(std::move(writable)), readable_(std::move(readable)) {}
  [[nodiscard]] static Result<File> check(ForkLedger& ledger, sys::OwnedFd fd);
  [[nodiscard]] Mapping map(const PeerPlace& place) const;

  File writable_;
  File readable_;
  std::array<Mapping, kMappings> mappings_{};  ///< by their keys' low index bits
};

}  // namespace verbena::nic
