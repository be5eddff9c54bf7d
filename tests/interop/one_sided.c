// SPDX-License-Identifier: Apache-2.0
// What the peer of verbs_check does to its memory, for ThreadSanitizer. A WRITE, READ or atomic of
// the other process comes after what this one did before they met, but by way of the other process,
// where ThreadSanitizer cannot see it. Placing what a SEND or our own READ brings is ordered by
// posting and polling, and stays checked, but for the middle of a message, which one function
// places for all while it is verified. Taking a payload does not: two functions take it, for our
// requests and for the peer's READs.
__attribute__((visibility("default"))) const char* __tsan_default_suppressions(void);  // NOLINT

const char* __tsan_default_suppressions(void) {  // NOLINT(readability-identifier-naming)
  return "race:verbena::engine::Engine::Impl::place\n"
         "race:verbena::engine::Responder::write_plain\n"
         "race:verbena::engine::Responder::execute_write\n"
         "race:verbena::engine::Responder::execute_atomic\n"
         "race:verbena::engine::present\n"
         "race:verbena::wire::write_run\n"
         "race:verbena::wire::(anonymous namespace)::gather<\n";
}
