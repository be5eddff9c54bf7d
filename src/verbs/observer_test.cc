// SPDX-License-Identifier: Apache-2.0
#include "verbena/observer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

#include "verbena/counted.h"
#include "verbena/counting_observer.h"
#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using ::testing::ElementsAre;
using testing::End;
using ::testing::IsEmpty;
using testing::must;
using testing::Pair;

/// Writes down what it is told, as lines.
class Diary final : public observer {
 public:
  void created(const observed_object& what) noexcept override { note("created", what); }
  void destroyed(const observed_object& what) noexcept override { note("destroyed", what); }
  void closed(const observed_object& what) noexcept override { note("closed", what); }
  void lost(const char* verb, std::error_code code) noexcept override {
    note(std::string("lost ") + verb + " " + std::to_string(code.value()));
  }
  void failed(const char* verb, std::error_code code) noexcept override {
    note(std::string("failed ") + verb + " " + std::to_string(code.value()));
  }
  void state_changed(const observed_object& what, qp_state from, qp_state to) noexcept override {
    note(std::string(name_of(from)) + " to " + std::string(name_of(to)), what);
  }
  void phase_changed(const observed_object& what, std::string_view phase) noexcept override {
    note("phase " + std::string(phase), what);
  }
  std::vector<std::string> take() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(lines_, {});
  }
  std::vector<observed_object> objects() {
    const std::scoped_lock lock(mutex_);
    return objects_;
  }

 private:
  void note(std::string line) {
    const std::scoped_lock lock(mutex_);
    lines_.push_back(std::move(line));
  }
  void note(const std::string& line, const observed_object& what) {
    note(line + " " + std::string(name_of(what.kind)));
    const std::scoped_lock lock(mutex_);
    objects_.push_back(what);
  }
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::vector<observed_object> objects_;
};

/// Is told while it lives.
template <typename T>
class Set {
 public:
  Set() { set_observer(told); }
  Set(const Set&) = delete;
  Set& operator=(const Set&) = delete;
  ~Set() { set_observer(nullptr); }
  T* operator->() const { return told.get(); }
  const std::shared_ptr<T> told = std::make_shared<T>();
};

TEST(Observer, IsToldWhenObjectsComeAndGo) {
  const Set<Diary> diary;
  {
    auto ctx = must(context::open("vrb0"));
    auto pd = must(ctx.alloc_pd());
    auto cq = must(ctx.create_cq({}));
    auto qp = must(pd.create_qp<rc>({.send_cq = cq, .recv_cq = cq}));
    const auto seen = diary->objects().back();
    EXPECT_EQ(seen.number, qp.number().value());
    EXPECT_EQ(seen.native, qp.native());
    EXPECT_EQ(seen.name, "vrb0");
    must(qp.close());
    EXPECT_THAT(diary->take(),
                ElementsAre("created context", "created protection domain",
                            "created completion queue", "created queue pair", "closed queue pair"));
  }
  EXPECT_THAT(diary->take(), ElementsAre("destroyed completion queue",
                                         "destroyed protection domain", "destroyed context"));
}

TEST(Observer, IsToldOfEachKindOfObject) {
  const Set<Diary> diary;
  const End end("vrb0");
  const auto channel = must(end.ctx.create_channel());
  const auto srq = must(end.pd.create_srq({}));
  const auto to = must(end.ctx.routable_gid());
  const auto ah = must(end.pd.create_ah({.to = to.id, .source = to.index}));
  std::vector<object_kind> kinds;
  for (const auto& one : diary->objects()) {
    kinds.push_back(one.kind);
    EXPECT_EQ(one.name, "vrb0") << name_of(one.kind);
  }
  EXPECT_THAT(kinds, ElementsAre(object_kind::context, object_kind::protection_domain,
                                 object_kind::completion_queue, object_kind::memory_region,
                                 object_kind::completion_channel, object_kind::shared_receive_queue,
                                 object_kind::address_handle));
  EXPECT_EQ(diary->objects().at(3).number, end.memory.lkey());
  EXPECT_EQ(diary->objects().at(4).number, static_cast<std::uint32_t>(channel.fd()));
}

TEST(Observer, IsToldOfTransitions) {
  const End end("vrb0");
  auto qp = must(end.pd.create_qp<ud>({.send_cq = end.cq, .recv_cq = end.cq}));
  const Set<Diary> diary;
  must(qp.activate(port{1}, qkey{7}));
  must(qp.to_error());
  EXPECT_FALSE(qp.modify({.state = qp_state::rts}));  // refused here: no C call was made
  EXPECT_THAT(diary->take(), ElementsAre("RESET to INIT queue pair", "INIT to RTR queue pair",
                                         "RTR to RTS queue pair", "RTS to ERR queue pair"));
}

TEST(Observer, IsToldOfFailedCallsButNotOfThoseToBeMadeAgain) {
  const End end("vrb0");
  auto qp = must(end.pd.create_qp<rc>({.send_cq = end.cq, .recv_cq = end.cq}));
  must(end.ctx.set_async_blocking(false));
  const Set<Diary> diary;
  EXPECT_TRUE(end.ctx.get_async_event().error().would_block());
  EXPECT_THAT(diary->take(), IsEmpty());
  EXPECT_FALSE(end.ctx.query_port(port{9}));
  EXPECT_THAT(diary->take(), ElementsAre("failed ibv_query_port 22"));
  EXPECT_FALSE(qp.send(must(end.memory.slice(0, 8))));  // in RESET
  EXPECT_THAT(diary->take(), ElementsAre("failed ibv_post_send 22"));
}

int refuse(int* /*object*/) { return EBUSY; }
int refuse_with_minus_one(int* /*object*/) {
  errno = EPERM;
  return -1;
}

TEST(Observer, IsToldOfWhatCouldNotBeDestroyedAndSoIsTheHook) {
  std::vector<std::string> lost;
  on_lost([&](const char* verb, std::error_code code) {
    lost.push_back(std::string(verb) + " " + std::to_string(code.value()));
  });
  int object = 0;
  { const detail::core<int> unobserved(&object, refuse, "ibv_one", {}); }
  const Set<Diary> diary;
  { const detail::core<int> observed(&object, refuse_with_minus_one, "ibv_two", {}); }
  on_lost({});
  EXPECT_THAT(lost, ElementsAre("ibv_one 16", "ibv_two 1"));
  EXPECT_THAT(diary->take(), ElementsAre("created other", "lost ibv_two 1"));
}

TEST(Observer, IsReplacedWhileItIsTold) {
  const End end("vrb0");
  std::atomic<bool> done = false;
  std::thread maker([&] {
    for (int i = 0; i < 200; ++i) must(must(end.ctx.alloc_pd()).close());
    done = true;
  });
  auto first = std::make_shared<counting_observer>();
  auto second = std::make_shared<counting_observer>();
  while (!done) {
    set_observer(first);
    EXPECT_EQ(set_observer(second), first);
    set_observer(nullptr);
  }
  maker.join();
  EXPECT_EQ(set_observer(nullptr), nullptr);
  EXPECT_LE(first->counts()[object_kind::protection_domain].created, 200);
}

TEST(Observer, TellsPhasesForTheRoomsAbove) {
  const Set<Diary> diary;
  detail::tell_phase({.kind = object_kind::cm_id}, "established");
  EXPECT_THAT(diary->take(), ElementsAre("phase established CM id"));
}

TEST(CountingObserver, CountsByKind) {
  const Set<counting_observer> counting;
  {
    const Pair<rc> pair;
    const auto now = counting->counts();
    EXPECT_EQ(now[object_kind::context].live(), 2);
    EXPECT_EQ(now[object_kind::memory_region].live(), 2);
    EXPECT_EQ(now[object_kind::queue_pair].live(), 2);
    EXPECT_EQ(now.transitions, 6);
    EXPECT_EQ(now.errors, 0);
    EXPECT_FALSE(pair.left.ctx.query_port(port{9}));
  }
  {
    End end("vrb0");
    auto qp = must(end.pd.create_qp<rc>({.send_cq = end.cq, .recv_cq = end.cq}));
    must(qp.to_error());
    must(qp.close());
  }
  const auto after = counting->counts();
  const auto& qps = after[object_kind::queue_pair];
  EXPECT_EQ(qps.created, 3);
  EXPECT_EQ(qps.destroyed, 2);
  EXPECT_EQ(qps.closed, 1);
  EXPECT_EQ(qps.live(), 0);
  EXPECT_EQ(after[object_kind::context].live(), 0);
  EXPECT_EQ(after.failed, 1);
  EXPECT_EQ(after.errors, 1);
  EXPECT_EQ(after.lost, 0);
}

TEST(Counted, CountsWhatIsPostedAndWhatCompletes) {
  const Pair<rc> pair({.max_send_wr = 1, .max_recv_wr = 1});
  counted_queue_pair<rc> left(pair.left_qp);
  counted_queue_pair<rc> right(pair.right_qp);
  counted_completion_queue completed(pair.right.cq);
  must(right.post_recv(must(pair.right.memory.slice(0, 100))));
  must(left.send(must(pair.left.memory.slice(0, 60))));
  EXPECT_TRUE(pair.left.next().ok());
  wc_batch<4> room;
  while (must(completed.poll(room)).empty()) {}
  EXPECT_EQ(left.counts().sends, 1);
  EXPECT_EQ(left.counts().send_bytes, 60);
  EXPECT_EQ(right.counts().receives, 1);
  EXPECT_EQ(right.counts().receive_bytes, 100);
  const completion_counts counts = completed.counts();
  EXPECT_EQ(counts.ok(), 1);
  EXPECT_EQ(counts.failed(), 0);
  EXPECT_EQ(counts.received_bytes, 60);
  EXPECT_EQ(counts.polls, counts.empty_polls + 1);
}

TEST(Counted, CountsFullQueuesListsAndFlushedRequests) {
  Pair<rc> pair({.max_send_wr = 1, .max_recv_wr = 2});
  counted_queue_pair<rc> left(pair.left_qp);
  const mr_slice slice = must(pair.left.memory.slice(0, 8));
  const std::uint32_t most = pair.left_qp.caps().max_recv_wr;
  for (std::uint32_t i = 0; i + 1 < most; ++i) must(left.post(recv_request({&slice, 1})));
  recv_list<3> list;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(list.add(recv_request({&slice, 1})));
  EXPECT_FALSE(left.post(list));
  EXPECT_EQ(left.counts().receives, most);
  EXPECT_EQ(left.counts().receive_bytes, most * 8U);
  EXPECT_EQ(left.counts().would_block, 1);
  must(pair.left_qp.to_error());
  counted_completion_queue completed(pair.left.cq);
  wc_batch<1> room;
  while (completed.counts().failed() < most) must(completed.poll(room));
  EXPECT_EQ(completed.counts().of(IBV_WC_WR_FLUSH_ERR), most);
  EXPECT_EQ(completed.counts().received_bytes, 0);
  EXPECT_EQ(completion_counts::index_of(static_cast<ibv_wc_status>(31)),
            completion_counts::statuses - 1);
}

TEST(Counted, CountsDatagramsAndRefusals) {
  const End end("vrb0");
  const auto sender = must(end.pd.create_qp<ud>({.send_cq = end.cq, .recv_cq = end.cq}));
  counted_queue_pair<ud> counted(sender);
  const auto to = must(end.ctx.routable_gid());
  const auto ah = must(end.pd.create_ah({.to = to.id, .source = to.index}));
  const datagram_address address{.ah = ah, .to = qp_number{2}, .key = qkey{1}};
  EXPECT_FALSE(counted.send(address, must(end.memory.slice(0, 8))));  // in RESET
  EXPECT_EQ(counted.counts().refused, 1);
  EXPECT_EQ(counted.counts().sends, 0);
}

}  // namespace
}  // namespace verbena::verbs
