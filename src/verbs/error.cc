// SPDX-License-Identifier: Apache-2.0
#include "verbena/error.h"

#include <fmt/core.h>

#include <array>
#include <atomic>
#include <cstring>

#include "verbena/observer.h"

namespace verbena::verbs {
namespace {

class VerbsCategory final : public std::error_category {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "verbs"; }
  [[nodiscard]] std::string message(int value) const override {
    return std::generic_category().message(value);
  }
  [[nodiscard]] std::error_condition default_error_condition(int value) const noexcept override {
    return {value, std::generic_category()};
  }
};

struct About {
  std::string_view name;
  std::string_view explanation;
  std::errc condition;
};

/// By the number of the status. IBA 11.6.2.
constexpr std::array kStatuses{
    About{"success", "it is done", std::errc()},
    About{"local length error",
          "the data do not fit what was posted: a receive that is too short, or a "
          "message longer than the service carries",
          std::errc::message_size},
    About{"local QP operation error", "the request cannot be carried out on this queue pair",
          std::errc::invalid_argument},
    About{"local EEC operation error", "the end-to-end context refused it",
          std::errc::invalid_argument},
    About{"local protection error",
          "a slice of the request is in no region of its key, or the region "
          "does not permit it",
          std::errc::permission_denied},
    About{"work request flushed", "the queue pair went to ERR before the request was carried out",
          std::errc::operation_canceled},
    About{"memory window bind error", "the window's region does not permit the bind",
          std::errc::permission_denied},
    About{"bad response", "the peer answered something that the request does not have",
          std::errc::protocol_error},
    About{"local access error",
          "the peer's data may not be written here: the receive's memory does not "
          "permit it",
          std::errc::permission_denied},
    About{"remote invalid request",
          "the peer finds the request wrong: too long for its receive, or an "
          "operation that its queue pair does not allow",
          std::errc::bad_message},
    About{"remote access error", "the peer's region does not permit it: key, bounds or rights",
          std::errc::permission_denied},
    About{"remote operation error", "the peer could not carry it out", std::errc::io_error},
    About{"transport retry counter exceeded",
          "the peer did not answer: it is gone, unreachable, or in "
          "another state than RTR or RTS",
          std::errc::timed_out},
    About{"RNR retry counter exceeded", "the peer had no receive posted for all of the retries",
          std::errc::timed_out},
    About{"local RDD violation", "the reliable datagram domains differ",
          std::errc::invalid_argument},
    About{"remote invalid RD request", "the peer's reliable datagram domain refuses it",
          std::errc::invalid_argument},
    About{"remote aborted", "the peer aborted the operation", std::errc::connection_aborted},
    About{"invalid EEC number", "there is no such end-to-end context", std::errc::invalid_argument},
    About{"invalid EEC state", "the end-to-end context is in another state",
          std::errc::invalid_argument},
    About{"fatal error", "the device has failed", std::errc::io_error},
    About{"response timeout", "the device did not answer", std::errc::timed_out},
    About{"general error", "the device says no more", std::errc::io_error},
    About{"tag matching error", "the list of tags refused it", std::errc::invalid_argument},
    About{"tag matching rendezvous incomplete", "the rest of the message is still to be fetched",
          std::errc::resource_unavailable_try_again},
};
static_assert(kStatuses.size() == IBV_WC_TM_RNDV_INCOMPLETE + 1);

const About& about(int status) {
  static constexpr About kUnknown{"unknown", "a status that this library does not know",
                                  std::errc::io_error};
  const auto index = static_cast<std::size_t>(status);
  return status >= 0 && index < kStatuses.size() ? kStatuses.at(index) : kUnknown;
}

class CompletionCategory final : public std::error_category {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "completion"; }
  [[nodiscard]] std::string message(int value) const override {
    return std::string(about(value).name);
  }
  [[nodiscard]] std::error_condition default_error_condition(int value) const noexcept override {
    return std::make_error_condition(about(value).condition);
  }
};

}  // namespace

const std::error_category& verbs_category() noexcept {
  static const VerbsCategory category;
  return category;
}

const std::error_category& completion_category() noexcept {
  static const CompletionCategory category;
  return category;
}

std::string_view name_of(ibv_wc_status status) noexcept { return about(status).name; }
std::string_view explanation_of(ibv_wc_status status) noexcept { return about(status).explanation; }

struct Error::more {
  std::string context;
  std::optional<completion_failure> completion{};
  std::optional<verbs::refusal> refusal{};
  std::atomic<unsigned> owners{1};
};

Error::more* Error::share(more* of) noexcept {
  if (of != nullptr) of->owners.fetch_add(1, std::memory_order_relaxed);
  return of;
}

void Error::let_go(more* of) noexcept {
  if (of->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete of;
}

Error::Error(std::error_code code, const char* verb, std::string context)
    : code_(code),
      verb_(verb),
      more_(context.empty() ? nullptr : new more{.context = std::move(context)}) {}

Error::Error(const completion_failure& failure, std::string explanation)
    : code_(static_cast<int>(failure.status), completion_category()),
      verb_("work completion"),
      more_(new more{
          .context = fmt::format("{} (QPN {:#x}, wr_id {:#x}, vendor_err {:#x})",
                                 explanation.empty() ? explanation_of(failure.status) : explanation,
                                 failure.qp_num, failure.wr_id, failure.vendor_err),
          .completion = failure}) {}

Error::Error(std::error_code code, const char* verb, std::string context, verbs::refusal why)
    : code_(code),
      verb_(verb),
      more_(new more{.context = std::move(context), .refusal = std::move(why)}) {}

std::string_view Error::context() const noexcept {
  return more_ == nullptr ? std::string_view() : std::string_view(more_->context);
}

const completion_failure* Error::completion() const noexcept {
  if (more_ == nullptr) return nullptr;
  const std::optional<completion_failure>& failure = more_->completion;
  return failure ? &*failure : nullptr;
}

const refusal* Error::refusal() const noexcept {
  if (more_ == nullptr) return nullptr;
  const std::optional<verbs::refusal>& why = more_->refusal;
  return why ? &*why : nullptr;
}

std::string Error::message() const {
  if (context().empty()) return fmt::format("{}: {}", verb_, code_.message());
  return fmt::format("{}: {}: {}", verb_, code_.message(), context());
}

namespace detail {

std::unexpected<Error> fail_with(int error, const char* verb) {
  // A provider that has no room in a queue says ENOMEM; so does one that has no memory to create.
  const bool full = error == ENOMEM && std::strncmp(verb, "ibv_post_", 9) == 0;
  if (full) return std::unexpected(Error({EAGAIN, verbs_category()}, verb, "the queue is full"));
  Error made({error, verbs_category()}, verb);
  if (observed() && !made.would_block()) tell(&observer::failed, verb, made.code());
  return std::unexpected(std::move(made));
}

std::unexpected<Error> fail_returned(int returned, const char* verb) {
  if (returned == -1 && errno != 0) return fail_with(errno, verb);
  return fail_with(returned < 0 ? -returned : returned, verb);
}

Result<> from_rereg(int returned) {
  if (returned == 0) return {};
  const int error = errno;
  const char* const how_far = [returned] {
    switch (returned) {
      case IBV_REREG_MR_ERR_INPUT: return "the arguments are wrong; the region is as before";
      case IBV_REREG_MR_ERR_DONT_FORK_NEW:
        return "the new memory cannot be kept from forked children; "
               "the region is as before";
      case IBV_REREG_MR_ERR_DO_FORK_OLD:
        return "the region is changed, but its old memory is still kept "
               "from forked children";
      case IBV_REREG_MR_ERR_CMD:
      case IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW:
        return "the device refused; the region must be deregistered";
      default: return "the provider says no more";
    }
  }();
  Error made({error != 0 ? error : EINVAL, verbs_category()}, "ibv_rereg_mr", how_far);
  if (observed()) tell(&observer::failed, made.verb(), made.code());
  return std::unexpected(std::move(made));
}

}  // namespace detail
}  // namespace verbena::verbs
