// SPDX-License-Identifier: Apache-2.0
//
// The same calls in C and through the API, on a provider that does nothing.
//   verbena-api-cost STEP    for callgrind, which counts in verbena_measured_c and _api
//   verbena-api-cost time    nanoseconds of a call of each
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <span>
#include <string_view>
#include <utility>

#include "bench/api_cost/null_provider.h"
#include "bench/api_cost/steps.h"

namespace {

using namespace verbena::bench;
namespace verbs = verbena::verbs;

template <typename Function, typename Side>
[[gnu::always_inline]] inline std::int64_t repeat(Function step, const Side& with, unsigned times) {
  std::int64_t seen = 0;
  for (unsigned i = 0; i < times; ++i) {
    const std::int64_t one = step(with, i);
    if (one < 0) std::abort();
    seen += one;
  }
  return seen;
}

}  // namespace

// Functions of their own for callgrind to find.
extern "C" [[gnu::noinline]] std::int64_t verbena_measured_c(std::int64_t (*step)(const CSide&,
                                                                                  std::uint64_t),
                                                             const CSide& with, unsigned times) {
  return repeat(step, with, times);
}
extern "C" [[gnu::noinline]] std::int64_t verbena_measured_api(
    std::int64_t (*step)(const ApiSide&, std::uint64_t), const ApiSide& with, unsigned times) {
  return repeat(step, with, times);
}

namespace {

template <typename F>
double nanoseconds(unsigned times, F run) {
  double best = 1e9;
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() / times);
  }
  return best;
}

/// Both sides do the same work, or there is nothing to compare.
bool same(std::size_t step, const CSide& c, const ApiSide& api) {
  reset_null_provider_sum();
  const std::int64_t by_c = kCSteps[step](c, 5);
  const std::uint64_t c_sum = null_provider_sum();
  reset_null_provider_sum();
  return by_c == kApiSteps[step](api, 5) && c_sum == null_provider_sum();
}

int run_times(const CSide& c, const ApiSide& api) {
  constexpr unsigned kTimes = 2'000'000;
  for (std::size_t i = 0; i < kStepNames.size(); ++i) {
    const double by_c = nanoseconds(kTimes, [&] { verbena_measured_c(kCSteps[i], c, kTimes); });
    const double by_api =
        nanoseconds(kTimes, [&] { verbena_measured_api(kApiSteps[i], api, kTimes); });
    fmt::print("{:10} C {:7.2f} ns, API {:7.2f} ns, ratio {:.3f}\n", kStepNames[i], by_c, by_api,
               by_api / by_c);
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  NullProvider provider;
  auto qp = verbs::queue_pair<verbs::rc>::adopt(provider.qp(), {.max_inline_data = kInline},
                                                verbs::ownership::borrowed);
  auto cq = verbs::completion_queue::adopt(provider.cq(), verbs::ownership::borrowed);
  auto qp_ex = verbs::queue_pair_ex<verbs::rc>::adopt(
      provider.qp_ex(), {.max_inline_data = kInline}, verbs::ownership::borrowed);
  auto cq_ex = verbs::completion_queue_ex::adopt(provider.cq_ex(), verbs::ownership::borrowed);
  if (!qp || !cq || !qp_ex || !cq_ex) return EXIT_FAILURE;
  const CSide c{provider.qp(),
                provider.cq(),
                provider.qp_ex(),
                provider.cq_ex(),
                kInline,
                {4096, 64, 7},
                8192,
                9};
  const ApiSide api{std::move(*qp),
                    std::move(*cq),
                    std::move(*qp_ex),
                    std::move(*cq_ex),
                    verbs::mr_slice(4096, 64, 7),
                    verbs::remote_region(8192, 64, 9)};
  if (words.size() == 2 && std::string_view(words[1]) == "time") return run_times(c, api);
  constexpr unsigned kTimes = 1000;
  for (std::size_t i = 0; words.size() == 2 && i < kStepNames.size(); ++i) {
    if (kStepNames[i] != words[1]) continue;
    if (!same(i, c, api)) return EXIT_FAILURE;
    verbena_measured_c(kCSteps[i], c, kTimes);
    verbena_measured_api(kApiSteps[i], api, kTimes);
    return EXIT_SUCCESS;
  }
  fmt::print(stderr, "usage: verbena-api-cost time|STEP; steps: {}\n", fmt::join(kStepNames, " "));
  return 2;
}
