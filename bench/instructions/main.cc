// SPDX-License-Identifier: Apache-2.0
//
// What the hot paths cost, one step after the other in one process and always the same: for
// counting instructions (bench/instructions/check). Callgrind counts within verbena_measured()
// only.
//   verbena-instructions SCRIPT [TIMES]
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "bench/instructions/scripts.h"

namespace {

using namespace verbena::bench;

constexpr unsigned kWarmUp = 200;
constexpr unsigned kMostTimes = 1'000'000;

struct Named {
  std::string_view name;
  void (*run)(unsigned warm_up, unsigned times);
};
constexpr std::array kScripts{
    Named{"post_send", post_send},           Named{"post_receive", post_receive},
    Named{"poll_empty", poll_empty},         Named{"poll_receive", poll_receive},
    Named{"poll_send", poll_send},           Named{"send_list", send_list},
    Named{"build_list", build_list},         Named{"poll_list", poll_list},
    Named{"write_list", write_list},         Named{"place_list", place_list},
    Named{"train_send", train_send},         Named{"train_receive", train_receive},
    Named{"train_place", train_place},       Named{"spread_post", spread_post},
    Named{"spread_place", spread_place},     Named{"icrc_64", icrc_64},
    Named{"icrc_1024", icrc_1024},           Named{"write_direct", write_direct},
    Named{"poll_direct", poll_direct},       Named{"post_near", post_near},
    Named{"poll_near", poll_near},           Named{"acked_near", acked_near},
    Named{"post_near_list", post_near_list}, Named{"poll_near_list", poll_near_list},
};

unsigned times_in(std::string_view text) {
  unsigned times = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), times);
  const bool whole = error == std::errc{} && rest == text.data() + text.size();
  return whole && times <= kMostTimes ? times : 0;
}

}  // namespace

// Its callers are in other files, so that it stays a function of its own, which callgrind finds.
extern "C" void verbena_measured(void (*step)(void*), void* context) { step(context); }

int main(int argc, char** argv) {
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  const unsigned times = words.size() > 2 ? times_in(words[2]) : 1000;
  for (const Named& script : kScripts) {
    if (words.size() < 2 || times == 0 || script.name != words[1]) continue;
    script.run(kWarmUp, times);
    return EXIT_SUCCESS;
  }
  fmt::print(stderr, "usage: verbena-instructions SCRIPT [TIMES]; scripts:");
  for (const Named& script : kScripts) fmt::print(stderr, " {}", script.name);
  fmt::print(stderr, "\n");
  return 2;
}
