// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

/// Errors are values: whatever can fail in operation returns `Result<T>`. Nothing here throws but
/// std::bad_alloc, where nothing else is said.
///
/// Source: the conventions of libibverbs' and librdmacm's manual pages, which differ from call to
/// call (`detail::` has one adapter for each).
namespace verbena::verbs {

/// The category of errno values that verbs return: the values are those of `std::generic_category`,
/// and so are the portable conditions (`error.code() == std::errc::no_such_device`).
[[nodiscard]] const std::error_category& verbs_category() noexcept;

/// The category of `ibv_wc_status` values. Conditions: a flushed request is `operation_canceled`,
/// exceeded retries are `timed_out`, refused access is `permission_denied`; what else went wrong is
/// `io_error` or the nearest that there is.
[[nodiscard]] const std::error_category& completion_category() noexcept;

/// What a failed completion says beside its status.
struct completion_failure {
  ibv_wc_status status = IBV_WC_GENERAL_ERR;  ///< never IBV_WC_SUCCESS
  std::uint32_t vendor_err = 0;               ///< the provider's own number; 0 where it has none
  std::uint64_t wr_id = 0;                    ///< of the work request, as it was posted
  std::uint32_t qp_num = 0;                   ///< of the queue pair that it was posted to
};

/// What a peer that would not connect has said.
struct refusal {
  /// The reason as the connection manager has it: of a rejected connection IBA 12.6.7.2's ("reject
  /// reason"; 28 is the peer's program), of datagrams that of a SIDR REP.
  int status = 0;
  /// The peer's own words. Zeros follow them to the message's full length where the transport has
  /// no length for them, as InfiniBand's has not.
  std::vector<std::byte> private_data{};
};

/// What went wrong: a code, the call that said so, and what a person should know. Cheap to move and
/// to copy; a pointer's size beside its code. Thread-safe as a value is.
class Error {
 public:
  /// `verb` is a string literal: the C function or our operation that failed. `context` is a
  /// sentence for a person, or empty.
  Error(std::error_code code, const char* verb, std::string context = {});
  /// The same with the code of a portable condition.
  Error(std::errc condition, const char* verb, std::string context = {})
      : Error(std::make_error_code(condition), verb, std::move(context)) {}
  /// A work request that completed with an error. `explanation` is empty for the status' usual one.
  explicit Error(const completion_failure& failure, std::string explanation = {});
  /// A connection that the peer refused.
  Error(std::error_code code, const char* verb, std::string context, verbs::refusal why);
  Error(const Error& from) noexcept
      : code_(from.code_), verb_(from.verb_), more_(share(from.more_)) {}
  Error(Error&& from) noexcept
      : code_(from.code_), verb_(from.verb_), more_(std::exchange(from.more_, nullptr)) {}
  Error& operator=(Error from) noexcept {
    code_ = from.code_;
    verb_ = from.verb_;
    std::swap(more_, from.more_);
    return *this;
  }
  ~Error() {
    if (more_ != nullptr) let_go(more_);
  }

  /// Of verbs_category(), completion_category() or the system's own.
  [[nodiscard]] const std::error_code& code() const noexcept { return code_; }
  /// The C function or the operation that failed: a literal, never null.
  [[nodiscard]] const char* verb() const noexcept { return verb_; }
  /// Empty where there is nothing to say beside the code.
  [[nodiscard]] std::string_view context() const noexcept;
  /// Of a work request that failed; null of any other error. As long as this object.
  [[nodiscard]] const completion_failure* completion() const noexcept;
  /// Of a connection that the peer refused; null of any other error. As long as this object.
  [[nodiscard]] const verbs::refusal* refusal() const noexcept;
  /// Verb, code and context in one line: "ibv_create_qp: Cannot allocate memory: max_send_wr is …".
  [[nodiscard]] std::string message() const;

  /// Whether the call is to be made again later: a full send queue, an empty channel.
  [[nodiscard]] bool would_block() const noexcept {
    return code_ == std::errc::operation_would_block ||
           code_ == std::errc::resource_unavailable_try_again;
  }

  /// For code that throws: `throw std::system_error(error)`.
  // NOLINTNEXTLINE(google-explicit-constructor): std::error_code is what a wider one is used as
  operator std::error_code() const noexcept { return code_; }

  /// Whether the code means that: `error == std::errc::no_such_device`.
  friend bool operator==(const Error& error, std::errc condition) noexcept {
    return error.code_ == condition;
  }

 private:
  /// Counted by hand: a std::shared_ptr's release would stand in every caller of the data path.
  struct more;
  [[gnu::cold]] static more* share(more* of) noexcept;
  [[gnu::cold]] static void let_go(more* of) noexcept;

  std::error_code code_;
  const char* verb_;
  more* more_ = nullptr;
};

/// What fallible calls return.
template <typename T = void>
using Result = std::expected<T, Error>;

/// `return fail(std::errc::invalid_argument, "memory_region::slice", "…");`
[[nodiscard]] inline std::unexpected<Error> fail(std::errc condition, const char* verb,
                                                 std::string context = {}) {
  return std::unexpected<Error>(std::in_place, condition, verb, std::move(context));
}

/// A short name and one line that explains it, for each `ibv_wc_status`; "unknown" for others.
[[nodiscard]] std::string_view name_of(ibv_wc_status status) noexcept;
/// One line that explains it.
[[nodiscard]] std::string_view explanation_of(ibv_wc_status status) noexcept;

namespace detail {

/// Out of the way of the data path.
[[nodiscard, gnu::cold]] std::unexpected<Error> fail_with(int error, const char* verb);
/// Of a call that returns an errno, -1 with errno, or a negative errno.
[[nodiscard, gnu::cold]] std::unexpected<Error> fail_returned(int returned, const char* verb);

/// The calls that return an errno: `ibv_post_*`, `ibv_modify_*`, `ibv_destroy_*`,
/// `ibv_req_notify_cq`, `ibv_query_port`, … Some providers return -1 with errno, or a negative
/// errno, from them.
[[nodiscard]] inline Result<> from_errno(int returned, const char* verb) {
  if (returned == 0) [[likely]]
    return {};
  return fail_returned(returned, verb);
}
/// The calls that return -1 and set errno: `ibv_get_cq_event`, `ibv_get_async_event`,
/// `ibv_query_gid`, `ibv_close_device`, all of rdma_cm.
[[nodiscard]] inline Result<> from_minus_one(int returned, const char* verb) {
  if (returned >= 0) [[likely]]
    return {};
  return fail_with(errno, verb);
}
/// `ibv_poll_cq` (any negative number, errno not promised) and `ibv_query_gid_table` (a negative
/// errno): how many there are.
[[nodiscard]] inline Result<std::size_t> from_count(std::int64_t returned, const char* verb) {
  if (returned >= 0) [[likely]]
    return static_cast<std::size_t>(returned);
  return fail_with(returned == -1 ? EIO : static_cast<int>(-returned), verb);
}
/// The calls that create: NULL and errno.
template <typename T>
[[nodiscard]] inline Result<T*> from_pointer(T* returned, const char* verb) {
  if (returned != nullptr) [[likely]]
    return returned;
  return fail_with(errno != 0 ? errno : ENOMEM, verb);
}
/// `ibv_rereg_mr`, which says how far it got (enum ibv_rereg_mr_err_code).
[[nodiscard]] Result<> from_rereg(int returned);

}  // namespace detail
}  // namespace verbena::verbs

/// Unwraps a Result or returns its error from the enclosing function: the only macro with control
/// flow. `auto pd = VERBENA_TRY(context.alloc_pd());` (a GNU statement expression, which GCC and
/// clang share). One may stand within another.
#ifndef VERBENA_TRY
// NOLINTBEGIN(bugprone-macro-parentheses): `name` is one
#define VERBENA_TRY(expression) VERBENA_TRY_COUNTED(expression, __COUNTER__)
/// @cond parts of it
#define VERBENA_TRY_COUNTED(expression, count) VERBENA_TRY_NUMBERED(expression, count)
#define VERBENA_TRY_NUMBERED(expression, number) VERBENA_TRY_NAMED(expression, try_result_##number)
#define VERBENA_TRY_NAMED(expression, name)                     \
  __extension__({                                               \
    auto&& name = (expression);                                 \
    if (!name) return std::unexpected(std::move(name).error()); \
    std::move(name).value();                                    \
  })
/// @endcond
// NOLINTEND(bugprone-macro-parentheses)
#endif
