// SPDX-License-Identifier: Apache-2.0
#include "verbena/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "verbena/work_completion.h"

namespace verbena::verbs {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// --- One adapter for each convention of the C API

TEST(Adapters, AnErrnoThatIsReturned) {
  errno = EIO;  // of something before: not looked at
  EXPECT_TRUE(detail::from_errno(0, "ibv_modify_qp"));
  const auto failed = detail::from_errno(EINVAL, "ibv_modify_qp");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error(), std::errc::invalid_argument);
  EXPECT_STREQ(failed.error().verb(), "ibv_modify_qp");
  EXPECT_EQ(&failed.error().code().category(), &verbs_category());
  EXPECT_TRUE(failed.error().context().empty());
}

TEST(Adapters, AnErrnoThatIsReturnedInAnotherWay) {
  EXPECT_EQ(detail::from_errno(-EBUSY, "ibv_destroy_qp").error(),
            std::errc::device_or_resource_busy);
  errno = ENODEV;
  EXPECT_EQ(detail::from_errno(-1, "ibv_destroy_qp").error(), std::errc::no_such_device);
  errno = 0;  // -1 without errno is -EPERM
  EXPECT_EQ(detail::from_errno(-1, "ibv_destroy_qp").error(), std::errc::operation_not_permitted);
}

TEST(Adapters, MinusOneAndErrno) {
  EXPECT_TRUE(detail::from_minus_one(0, "ibv_get_cq_event"));
  EXPECT_TRUE(detail::from_minus_one(3, "rdma_get_cm_event"));
  errno = EAGAIN;
  const auto empty = detail::from_minus_one(-1, "ibv_get_cq_event");
  ASSERT_FALSE(empty);
  EXPECT_TRUE(empty.error().would_block());
  errno = ECONNREFUSED;
  EXPECT_EQ(detail::from_minus_one(-1, "rdma_connect").error(), std::errc::connection_refused);
}

TEST(Adapters, ACount) {
  errno = ENOENT;  // ibv_poll_cq does not promise to set it
  EXPECT_EQ(detail::from_count(0, "ibv_poll_cq").value(), 0);
  EXPECT_EQ(detail::from_count(16, "ibv_poll_cq").value(), 16);
  EXPECT_EQ(detail::from_count(-1, "ibv_poll_cq").error(), std::errc::io_error);
  EXPECT_EQ(detail::from_count(-EOPNOTSUPP, "ibv_query_gid_table").error(),
            std::errc::operation_not_supported);
}

TEST(Adapters, NullAndErrno) {
  int object = 0;
  errno = EIO;
  EXPECT_EQ(detail::from_pointer(&object, "ibv_create_qp").value(), &object);
  errno = EPERM;
  EXPECT_EQ(detail::from_pointer<int>(nullptr, "ibv_create_qp").error(),
            std::errc::operation_not_permitted);
  errno = 0;
  EXPECT_EQ(detail::from_pointer<int>(nullptr, "ibv_alloc_pd").error(),
            std::errc::not_enough_memory);
}

TEST(Adapters, WhatReregisteringReturns) {
  EXPECT_TRUE(detail::from_rereg(0));
  const std::vector<std::pair<int, const char*>> returned{
      {IBV_REREG_MR_ERR_INPUT, "the region is as before"},
      {IBV_REREG_MR_ERR_DONT_FORK_NEW, "the region is as before"},
      {IBV_REREG_MR_ERR_DO_FORK_OLD, "the region is changed"},
      {IBV_REREG_MR_ERR_CMD, "must be deregistered"},
      {IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW, "must be deregistered"},
      {-99, "says no more"}};
  for (const auto& [value, says] : returned) {
    errno = EOPNOTSUPP;
    const auto failed = detail::from_rereg(value);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error(), std::errc::operation_not_supported);
    EXPECT_STREQ(failed.error().verb(), "ibv_rereg_mr");
    EXPECT_THAT(std::string(failed.error().context()), HasSubstr(says));
  }
  errno = 0;
  EXPECT_EQ(detail::from_rereg(IBV_REREG_MR_ERR_INPUT).error(), std::errc::invalid_argument);
}

TEST(Adapters, AFullQueueIsToBeTriedAgainButACreateThatHasNoMemoryIsNot) {
  for (const char* verb : {"ibv_post_send", "ibv_post_recv", "ibv_post_srq_recv"}) {
    const auto full = detail::from_errno(ENOMEM, verb);
    ASSERT_FALSE(full);
    EXPECT_TRUE(full.error().would_block()) << verb;
    EXPECT_EQ(full.error().context(), "the queue is full");
  }
  const auto failed = detail::from_errno(ENOMEM, "ibv_create_qp");
  EXPECT_FALSE(failed.error().would_block());
  EXPECT_EQ(failed.error(), std::errc::not_enough_memory);
}

// --- Completions

struct Status {
  ibv_wc_status status;
  const char* name;
  std::errc condition;
};
const std::vector<Status> kStatuses{
    {IBV_WC_LOC_LEN_ERR, "local length error", std::errc::message_size},
    {IBV_WC_LOC_QP_OP_ERR, "local QP operation error", std::errc::invalid_argument},
    {IBV_WC_LOC_EEC_OP_ERR, "local EEC operation error", std::errc::invalid_argument},
    {IBV_WC_LOC_PROT_ERR, "local protection error", std::errc::permission_denied},
    {IBV_WC_WR_FLUSH_ERR, "work request flushed", std::errc::operation_canceled},
    {IBV_WC_MW_BIND_ERR, "memory window bind error", std::errc::permission_denied},
    {IBV_WC_BAD_RESP_ERR, "bad response", std::errc::protocol_error},
    {IBV_WC_LOC_ACCESS_ERR, "local access error", std::errc::permission_denied},
    {IBV_WC_REM_INV_REQ_ERR, "remote invalid request", std::errc::bad_message},
    {IBV_WC_REM_ACCESS_ERR, "remote access error", std::errc::permission_denied},
    {IBV_WC_REM_OP_ERR, "remote operation error", std::errc::io_error},
    {IBV_WC_RETRY_EXC_ERR, "transport retry counter exceeded", std::errc::timed_out},
    {IBV_WC_RNR_RETRY_EXC_ERR, "RNR retry counter exceeded", std::errc::timed_out},
    {IBV_WC_LOC_RDD_VIOL_ERR, "local RDD violation", std::errc::invalid_argument},
    {IBV_WC_REM_INV_RD_REQ_ERR, "remote invalid RD request", std::errc::invalid_argument},
    {IBV_WC_REM_ABORT_ERR, "remote aborted", std::errc::connection_aborted},
    {IBV_WC_INV_EECN_ERR, "invalid EEC number", std::errc::invalid_argument},
    {IBV_WC_INV_EEC_STATE_ERR, "invalid EEC state", std::errc::invalid_argument},
    {IBV_WC_FATAL_ERR, "fatal error", std::errc::io_error},
    {IBV_WC_RESP_TIMEOUT_ERR, "response timeout", std::errc::timed_out},
    {IBV_WC_GENERAL_ERR, "general error", std::errc::io_error},
    {IBV_WC_TM_ERR, "tag matching error", std::errc::invalid_argument},
    {IBV_WC_TM_RNDV_INCOMPLETE, "tag matching rendezvous incomplete",
     std::errc::resource_unavailable_try_again},
};

TEST(CompletionErrors, EachStatusHasANameAnExplanationAndACondition) {
  std::set<std::string_view> names;
  for (const Status& one : kStatuses) {
    EXPECT_EQ(name_of(one.status), one.name);
    EXPECT_GT(explanation_of(one.status).size(), 10U) << one.name;
    names.insert(name_of(one.status));
    const Error error(completion_failure{.status = one.status, .wr_id = 7, .qp_num = 0x11});
    EXPECT_EQ(error, one.condition) << one.name;
    EXPECT_EQ(error.code().value(), one.status);
    EXPECT_EQ(&error.code().category(), &completion_category());
    EXPECT_EQ(error.code().message(), one.name);
    EXPECT_THAT(error.message(), HasSubstr(std::string(explanation_of(one.status))));
  }
  EXPECT_EQ(names.size(), IBV_WC_TM_RNDV_INCOMPLETE);  // each its own; success is none of them
  EXPECT_EQ(name_of(IBV_WC_SUCCESS), "success");
}

TEST(CompletionErrors, AnUnknownStatusIsAnErrorTheLike) {
  const auto unknown = static_cast<ibv_wc_status>(31);
  EXPECT_EQ(name_of(unknown), "unknown");
  EXPECT_FALSE(explanation_of(unknown).empty());
  EXPECT_EQ(Error(completion_failure{.status = unknown}), std::errc::io_error);
  EXPECT_EQ(completion_category().message(-1), "unknown");
  EXPECT_EQ(completion_category().message(1000), "unknown");
}

TEST(CompletionErrors, TheMessageHasAllThatTheCompletionSays) {
  const Error error(completion_failure{
      .status = IBV_WC_RETRY_EXC_ERR, .vendor_err = 0x81, .wr_id = 0xabc, .qp_num = 0x11});
  EXPECT_EQ(error.message(),
            "work completion: transport retry counter exceeded: the peer did not answer: it is "
            "gone, unreachable, or in another state than RTR or RTS (QPN 0x11, wr_id 0xabc, "
            "vendor_err 0x81)");
  ASSERT_NE(error.completion(), nullptr);
  EXPECT_EQ(error.completion()->vendor_err, 0x81);
  const Error explained(completion_failure{.status = IBV_WC_RETRY_EXC_ERR}, "the peer has died");
  EXPECT_THAT(explained.message(), HasSubstr("exceeded: the peer has died (QPN 0x0"));
}

TEST(CompletionErrors, ACompletionGivesItsResult) {
  ibv_wc wc{};
  wc.status = IBV_WC_WR_FLUSH_ERR;
  wc.wr_id = 9;
  wc.qp_num = 0x22;
  const auto& completion = reinterpret_cast<const work_completion&>(wc);
  const auto result = completion.result();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error(), std::errc::operation_canceled);
  EXPECT_EQ(result.error().completion()->wr_id, 9);
  wc.status = IBV_WC_SUCCESS;
  EXPECT_TRUE(completion.result());
}

// --- Errors as values

TEST(Errors, TheMessageIsVerbCodeAndContext) {
  EXPECT_EQ(Error(std::errc::no_such_device, "context::open").message(),
            "context::open: No such device");
  EXPECT_EQ(Error(std::errc::no_such_device, "context::open", "there is vrb0").message(),
            "context::open: No such device: there is vrb0");
  const auto failed = []() -> Result<int> {
    return fail(std::errc::invalid_argument, "slice", "too long");
  }();
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message(), EndsWith("too long"));
}

TEST(Errors, ACodeOfVerbsIsAnErrnoToWhoComparesIt) {
  const std::error_code code(ENODEV, verbs_category());
  EXPECT_EQ(code, std::errc::no_such_device);
  EXPECT_NE(code, std::errc::io_error);
  EXPECT_STREQ(code.category().name(), "verbs");
  EXPECT_EQ(code.message(), std::generic_category().message(ENODEV));
  EXPECT_STREQ(completion_category().name(), "completion");
}

TEST(Errors, BecomeStandardCodesAndExceptions) {
  const Error error(completion_failure{.status = IBV_WC_WR_FLUSH_ERR});
  const std::error_code code = error;
  EXPECT_EQ(code, error.code());
  try {
    throw std::system_error(error, error.message());
  } catch (const std::system_error& thrown) {
    EXPECT_EQ(thrown.code(), std::errc::operation_canceled);
    EXPECT_THAT(thrown.what(), HasSubstr("work request flushed"));
  }
}

TEST(Errors, WouldBlockIsOneOfTwo) {
  EXPECT_TRUE(Error(std::errc::operation_would_block, "poll").would_block());
  EXPECT_TRUE(Error(std::errc::resource_unavailable_try_again, "poll").would_block());
  EXPECT_FALSE(Error(std::errc::interrupted, "poll").would_block());
}

TEST(Errors, CopiesShareWhatTheyHave) {
  std::optional<Error> copy;
  {
    const Error error(completion_failure{.status = IBV_WC_GENERAL_ERR, .wr_id = 3}, "why");
    copy = error;
    EXPECT_EQ(copy->completion(), error.completion());
  }
  EXPECT_EQ(copy->completion()->wr_id, 3);
  EXPECT_THAT(copy->message(), HasSubstr("why"));
  EXPECT_EQ(Error(std::errc::io_error, "poll", "context").completion(), nullptr);
}

TEST(Try, UnwrapsOrReturns) {
  const auto twice = [](Result<int> from) -> Result<int> { return 2 * VERBENA_TRY(from); };
  EXPECT_EQ(twice(4).value(), 8);
  EXPECT_EQ(twice(fail(std::errc::io_error, "one")).error(), std::errc::io_error);
  const auto moves = [](Result<std::unique_ptr<int>> from) -> Result<std::unique_ptr<int>> {
    return VERBENA_TRY(std::move(from));
  };
  EXPECT_EQ(**moves(std::make_unique<int>(5)), 5);
}

}  // namespace
}  // namespace verbena::verbs
