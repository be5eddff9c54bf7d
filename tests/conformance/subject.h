// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::conformance {

/// The program behind the peer that is looked at: it makes one queue pair and posts and tells what
/// a tester asks for, line by line. Standard verbs only, so it runs on any device.
///
///     hello             "ok device=… gid=…"
///     open type=rc|uc|ud gid=ADDRESS peer=QPN [mtu= access=lwra rd= timeout= retry= rnr=
///          rnr-timer= rq-psn= sq-psn= qkey= cq=N srq rtr]
///                       "ok qpn=… region.address=… region.rkey=… …"
///     recv [count=] [length=] [wrong-key] [srq-limit=]
///     post send|send-imm|send-inv|write|write-imm|read|add|swap [length= data= address= rkey= …]
///     window 1|2 [offset= length= access=]
///     modify STATE      SQD, RTS, RESET, ERR
///     poll              the next completion, "ok none" when there is none
///     event             the next asynchronous event
///     state             of the queue pair: "ok RTS"
///     compare PLACE[+OFFSET] length= is=initial|untouched|K
///     close
///
/// The answer is one line: "ok …", "unsupported: why" or "error: why".
///
/// Threads: none.
class Subject {
 public:
  /// `context` outlives it and is its alone. `unblock` makes ibv_get_async_event() return when
  /// there is no event.
  Subject(ibv_context* context, int gid_index, const std::function<void(ibv_context*)>& unblock);
  ~Subject();
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  [[nodiscard]] std::string obey(std::string_view line);

  static constexpr std::size_t kMostLine = 1024;

 private:
  using Fields = std::map<std::string, std::string, std::less<>>;
  struct Region {
    std::size_t offset = 0;  ///< in memory_
    ibv_mr* mr = nullptr;
  };

  static constexpr std::uint32_t kDepth = 64;
  static constexpr std::size_t kSlot = 8 << 10;  ///< of the memory for receives, for each
  static constexpr std::size_t kSlots = 16;
  static constexpr std::size_t kLocal = 64 << 10;  ///< that is sent from, and that READs bring

  [[nodiscard]] static std::uint64_t number(const Fields& fields, std::string_view name,
                                            std::uint64_t otherwise);
  [[nodiscard]] static unsigned access_of(const Fields& fields, std::string_view otherwise);
  /// With errno's words.
  [[nodiscard]] static std::string error(std::string_view what);

  [[nodiscard]] std::string hello() const;
  [[nodiscard]] std::string open(const Fields& fields);
  [[nodiscard]] std::string make_memory();
  [[nodiscard]] std::string make_queues(const Fields& fields);
  [[nodiscard]] std::string make_queue_pair(const Fields& fields);
  [[nodiscard]] std::string connect(const Fields& fields);
  [[nodiscard]] int to_rtr(const Fields& fields);
  [[nodiscard]] int to_rts(const Fields& fields);
  [[nodiscard]] std::string receive(const Fields& fields);
  [[nodiscard]] std::string post(std::string_view what, const Fields& fields);
  [[nodiscard]] std::string bind(std::string_view type, const Fields& fields);
  [[nodiscard]] std::string poll();
  [[nodiscard]] std::string event();
  [[nodiscard]] std::string state();
  [[nodiscard]] std::string modify(std::string_view name);
  [[nodiscard]] std::string compare(std::string_view place, const Fields& fields);
  void close();

  ibv_context* context_;
  int gid_index_;
  ibv_pd* pd_ = nullptr;
  ibv_pd* other_pd_ = nullptr;
  ibv_cq* send_cq_ = nullptr;
  ibv_cq* receive_cq_ = nullptr;
  ibv_srq* srq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_ah* ah_ = nullptr;
  ibv_mw* window_ = nullptr;
  ibv_qp_type type_ = IBV_QPT_RC;
  ibv_ah_attr path_{};
  std::uint32_t peer_ = 0;
  std::uint32_t receives_ = 0;  ///< posted so far
  std::vector<std::byte> memory_{};
  std::map<std::string, Region, std::less<>> regions_;
};

}  // namespace verbena::conformance
