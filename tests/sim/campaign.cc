// SPDX-License-Identifier: Apache-2.0
#include "sim/campaign.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <new>

#include "base/check.h"
#include "base/log.h"

namespace verbena::sim {
namespace {

constexpr std::size_t kMaxText = 4096;
constexpr unsigned kMaxJobs = 64;

/// What a job's process and the campaign share.
struct Shared {
  std::atomic<std::uint64_t> next{0};      ///< seed that nobody has taken
  std::atomic<std::uint64_t> finished{0};  ///< runs
  std::atomic<bool> stop{false};
  struct Job {
    std::uint64_t seed = 0;
    bool busy = false;
    bool failed = false;
    char failure[kMaxText] = {};
    RunCounters counters{};
    Duration virtual_time{};
  };
  Job jobs[kMaxJobs];
};

Duration real_now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec);
}

/// Takes seeds until there are none, or one fails.
void work(Shared& shared, Shared::Job& job, const CampaignOptions& options) {
  while (!shared.stop) {
    const std::uint64_t seed = shared.next.fetch_add(1);
    if (seed > options.last) return;
    job.seed = seed;
    job.busy = true;
    const RunReport report = run_seed(seed, options.same_host);
    job.counters.add(report.counters);
    job.virtual_time += report.virtual_time;
    ++shared.finished;
    job.busy = false;
    if (report.failure.empty()) continue;
    job.failed = true;
    const std::size_t size = std::min(report.failure.size(), kMaxText - 1);
    std::memcpy(job.failure, report.failure.data(), size);
    job.failure[size] = '\0';
    return;  // what a failed run left behind is not to be trusted
  }
}

class Campaign {
 public:
  explicit Campaign(const CampaignOptions& options) : options_(options) {
    void* const mapped =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    VERBENA_CHECK(mapped != MAP_FAILED);
    shared_ = new (mapped) Shared;
    shared_->next = options.first;
  }
  ~Campaign() { ::munmap(shared_, sizeof(Shared)); }
  Campaign(const Campaign&) = delete;
  Campaign& operator=(const Campaign&) = delete;

  CampaignReport run() {
    const Duration began = real_now();
    const unsigned jobs = std::clamp(options_.jobs, 1U, kMaxJobs);
    children_.assign(jobs, 0);
    for (unsigned i = 0; i < jobs; ++i) start(i);
    while (std::ranges::any_of(children_, [](pid_t child) { return child != 0; })) {
      for (unsigned i = 0; i < jobs; ++i) look(i);
      if (options_.progress) options_.progress(shared_->finished);
      ::poll(nullptr, 0, 20);
    }
    report_.runs = shared_->finished;
    report_.real_time = real_now() - began;
    std::ranges::sort(report_.failed, {}, &FailedSeed::seed);
    return report_;
  }

 private:
  void start(unsigned index) {
    Shared::Job& job = shared_->jobs[index];
    job = Shared::Job{};
    const pid_t child = ::fork();
    VERBENA_CHECK(child >= 0);
    if (child == 0) {
      set_log_level(LogLevel::kOff);  // what goes wrong goes wrong on purpose
      work(*shared_, job, options_);
      ::_exit(0);
    }
    children_[index] = child;
  }

  void look(unsigned index) {
    if (children_[index] == 0) return;
    int status = 0;
    if (::waitpid(children_[index], &status, WNOHANG) != children_[index]) return;
    children_[index] = 0;
    const Shared::Job& job = shared_->jobs[index];
    report_.counters.add(job.counters);
    report_.virtual_time += job.virtual_time;
    if (job.failed) {
      report_.failed.push_back({job.seed, job.failure});
    } else if (job.busy) {
      const std::string how = WIFSIGNALED(status)
                                  ? fmt::format("killed by signal {}", WTERMSIG(status))
                                  : fmt::format("exited with {}", WEXITSTATUS(status));
      report_.failed.push_back({job.seed, "the run's process was " + how});
      ++shared_->finished;
    } else {
      return;  // no seed is left
    }
    if (report_.failed.size() < options_.most_failures) {
      start(index);
    } else {
      shared_->stop = true;
    }
  }

  CampaignOptions options_;
  CampaignReport report_{};
  Shared* shared_;
  std::vector<pid_t> children_;
};

}  // namespace

CampaignReport run_campaign(const CampaignOptions& options) { return Campaign(options).run(); }

std::string summary(const CampaignReport& report) {
  const RunCounters& sum = report.counters;
  std::uint64_t misdeeds = 0;
  for (const std::uint64_t count : sum.misdeeds) misdeeds += count;
  const double seconds = std::chrono::duration<double>(report.real_time).count();
  return fmt::format(
      "{} runs, {} failed: {} operations ({} datagrams, {} unreliable messages, {} wrong on "
      "purpose), {} completions, {} connections, {} packets; {} receives from shared queues, {} "
      "windows bound, {} requests through windows; dropped {}, duplicated {}, reordered {}, "
      "delayed {}, corrupted {}, overflowed {}, cut {}, forged {}, pauses {}, restarts {}; "
      "retransmitted {}, NAKs {}, RNR NAKs {}; {:.1f} s of virtual time in {:.1f} s",
      report.runs, report.failed.size(), sum.operations, sum.datagrams, sum.unreliable, misdeeds,
      sum.completions, sum.epochs, sum.packets, sum.shared_receives, sum.windows_bound,
      sum.windowed, sum.dropped, sum.duplicated, sum.reordered, sum.delayed, sum.corrupted,
      sum.overflowed, sum.cut, sum.forged, sum.pauses, sum.restarts, sum.retransmitted, sum.naks,
      sum.rnr_naks, std::chrono::duration<double>(report.virtual_time).count(), seconds);
}

}  // namespace verbena::sim
