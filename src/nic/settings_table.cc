// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "link/fault_plan.h"
#include "link/local_address.h"
#include "nic/settings.h"
#include "nic/settings_congestion.h"

namespace verbena::nic {

namespace {

constexpr std::size_t kMaxAddresses = 16;
constexpr std::size_t kMaxInterfaceName = 15;                 // IFNAMSIZ - 1
constexpr std::size_t kMaxInterface = kMaxInterfaceName + 2;  // and "/4"
constexpr std::size_t kMaxPrefix = 16;
constexpr std::size_t kMaxText = 4096;  // PATH_MAX; a fault plan is far shorter
constexpr std::uint64_t kMillisecond = 1'000'000;

constexpr std::array<std::string_view, 2> kRoceChoices{"v1", "v2"};
constexpr std::array<std::string_view, 3> kSameHostChoices{"udp", "rings", "auto"};
constexpr std::array<std::string_view, 3> kFetchChoices{"auto", "never", "always"};
constexpr std::array<std::string_view, 3> kIcrcChoices{"strict", "solve", "off"};
constexpr std::array<std::string_view, 5> kLogChoices{"off", "error", "warning", "info", "debug"};
constexpr std::array<std::string_view, 2> kSwitchChoices{"off", "on"};
constexpr std::array<std::string_view, 5> kMtuChoices{"256", "512", "1024", "2048", "4096"};

std::string show_addresses(const Settings& settings) {
  if (settings.addresses.empty()) return "auto";
  std::string list;
  for (const auto& address : settings.addresses) {
    if (!list.empty()) list += ',';
    list += wire::to_string(address);
  }
  return list;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::unexpected<Error> not_allowed(std::string reason = {}) {
  return fail(std::errc::invalid_argument, std::move(reason));
}

/// An IP address, or that of an interface at this moment.
Result<wire::Address> address_named(std::string_view word) {
  auto address = wire::Address::from_string(word);
  const bool name = !word.empty() && !word.contains('%') && word.size() <= kMaxInterface;
  if (address || !name) return address;
  return link::address_of_interface(word);
}

Result<void> set_addresses(Settings& settings, std::string_view list) {
  std::vector<wire::Address> addresses;
  if (trimmed(list) != "auto") {
    for (bool more = true; more;) {
      const auto comma = list.find(',');
      more = comma != std::string_view::npos;
      const auto address = address_named(trimmed(list.substr(0, comma)));
      if (!address) return not_allowed(address.error().message);
      if (address->is_zero() || address->is_multicast()) return not_allowed();
      if (address->is_ipv4() && (address->ipv4() == 0 || address->ipv4() == ~0U))
        return not_allowed();
      if (std::ranges::find(addresses, *address) != addresses.end()) return not_allowed();
      addresses.push_back(*address);
      if (addresses.size() > kMaxAddresses) return not_allowed();
      if (more) list.remove_prefix(comma + 1);
    }
  }
  settings.addresses = std::move(addresses);
  settings.nic.address = settings.addresses.empty() ? wire::Address{} : settings.addresses.front();
  return {};
}

Result<void> set_prefix(Settings& settings, std::string_view prefix) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto good = [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '_'; };
  if (prefix.empty() || prefix.size() > kMaxPrefix) return not_allowed();
  if (!letter(prefix.front()) || !std::ranges::all_of(prefix, good)) return not_allowed();
  settings.device_prefix = prefix;
  settings.nic.name = settings.device_prefix + "0";
  return {};
}

bool printable(std::string_view text) {
  return text.size() < kMaxText &&
         std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) >= ' '; });
}

Result<void> set_pcap(Settings& settings, std::string_view path) {
  if (!printable(path)) return not_allowed();
  settings.pcap = path;
  return {};
}

Result<void> set_ethernet(Settings& settings, std::string_view interface) {
  const bool good = std::ranges::all_of(interface, [](char c) { return c > ' ' && c != '/'; });
  if (!good || interface.size() > kMaxInterfaceName) return not_allowed();
  settings.ethernet = interface;
  return {};
}

Result<void> set_faults(Settings& settings, std::string_view plan) {
  if (!printable(plan)) return not_allowed();
  if (!plan.empty()) {
    if (const auto parsed = link::parse_fault_plan(plan); !parsed) {
      return not_allowed(parsed.error().message);
    }
  }
  settings.faults = plan;
  return {};
}

template <auto Member>
constexpr Setting limit(std::string_view key, std::string_view environment,
                        std::string_view meaning, std::uint64_t low, std::uint64_t high) {
  return {.key = key,
          .environment = environment,
          .kind = SettingKind::kNumber,
          .meaning = meaning,
          .allowed = {},
          .low = low,
          .high = high,
          .number = [](const Settings& s) { return std::uint64_t{s.nic.limits.*Member}; },
          .set_number =
              [](Settings& s, std::uint64_t value) {
                auto& place = s.nic.limits.*Member;
                place = static_cast<std::remove_reference_t<decltype(place)>>(value);
              }};
}

template <auto Member>
constexpr Setting window(std::string_view key, std::string_view environment,
                         std::string_view meaning) {
  return {.key = key,
          .environment = environment,
          .kind = SettingKind::kNumber,
          .meaning = meaning,
          .allowed = {},
          .low = 8 << 10,
          .high = 64 << 20,
          .number = [](const Settings& s) { return std::uint64_t{s.nic.engine.*Member}; },
          .set_number =
              [](Settings& s, std::uint64_t value) {
                s.nic.engine.*Member = static_cast<std::uint32_t>(value);
              }};
}

constexpr Setting kAddress{
    .key = "addr",
    .environment = "VERBENA_ADDR",
    .kind = SettingKind::kList,
    .meaning = "Local IP addresses, a device for each. Naming one opens it to the network.",
    .allowed =
        "auto (a loopback address), or up to 16 different IPv4 or IPv6 addresses or interfaces",
    .text = show_addresses,
    .set_text = set_addresses};

constexpr Setting kDevicePrefix{
    .key = "device_prefix",
    .environment = "VERBENA_DEVICE_PREFIX",
    .kind = SettingKind::kText,
    .meaning = "What the name of a device begins with; a number follows.",
    .allowed = "1 to 16 letters, digits and underscores, a letter first",
    .text = [](const Settings& s) { return s.device_prefix; },
    .set_text = set_prefix};

constexpr Setting kPcap{
    .key = "pcap",
    .environment = "VERBENA_PCAP",
    .kind = SettingKind::kText,
    .meaning = "Every packet goes into this pcapng file, which Wireshark reads.",
    .allowed = "a path, `%p` in it being the process id, or nothing",
    .text = [](const Settings& s) { return s.pcap; },
    .set_text = set_pcap};

constexpr Setting kPcapLimit{
    .key = "pcap_limit",
    .environment = "VERBENA_PCAP_LIMIT",
    .kind = SettingKind::kNumber,
    .meaning = "Bytes at which that file is full: packets are no longer written.",
    .allowed = {},
    .low = 4096,
    .high = std::uint64_t{1} << 50,
    .number = [](const Settings& s) { return s.pcap_limit; },
    .set_number = [](Settings& s, std::uint64_t value) { s.pcap_limit = value; }};

constexpr Setting kFaults{
    .key = "faults",
    .environment = "VERBENA_FAULTS",
    .kind = SettingKind::kText,
    .meaning = "Disturbs incoming packets by a plan, from a seed (docs/faults.md).",
    .allowed = "a fault plan such as `seed=7,drop=1%,reorder=1%`, or nothing",
    .text = [](const Settings& s) { return s.faults; },
    .set_text = set_faults};

constexpr Setting kRoce{
    .key = "roce",
    .environment = "VERBENA_ROCE",
    .kind = SettingKind::kChoice,
    .meaning =
        "v2 is UDP, which needs no privilege and is routed; v1 is Ethernet frames of the "
        "addresses' interfaces, which needs CAP_NET_RAW and a peer that has it.",
    .allowed = {},
    .choices = kRoceChoices,
    .number = [](const Settings& s) { return std::uint64_t{s.nic.roce_v1 ? 0U : 1U}; },
    .set_number = [](Settings& s, std::uint64_t value) { s.nic.roce_v1 = value == 0; }};

constexpr Setting kSameHost{
    .key = "same_host",
    .environment = "VERBENA_SAME_HOST",
    .kind = SettingKind::kChoice,
    .meaning =
        "How connected queue pairs reach processes of the same user on this machine: rings is by "
        "rings in shared memory where nothing is captured or disturbed, auto lets them use memory "
        "that peers have registered, too, udp is the network.",
    .allowed = {},
    .choices = kSameHostChoices,
    .number = [](const Settings& s) { return static_cast<std::uint64_t>(s.same_host); },
    .set_number =
        [](Settings& s, std::uint64_t value) {
          s.same_host = static_cast<Settings::SameHost>(value);
        }};

constexpr Setting kFetch{
    .key = "fetch",
    .environment = "VERBENA_FETCH",
    .kind = SettingKind::kChoice,
    .meaning =
        "Whether READs by rings, and the middle of long SENDs and WRITEs, are read from the "
        "peer's memory by the process that they are for, where the kernel allows that: auto is "
        "short READs, and what is long where, or while, that is faster.",
    .allowed = {},
    .choices = kFetchChoices,
    .number = [](const Settings& s) { return static_cast<std::uint64_t>(s.fetching); },
    .set_number = [](Settings& s,
                     std::uint64_t value) { s.fetching = static_cast<Fetching>(value); }};

constexpr Setting kEthernet{
    .key = "ethernet",
    .environment = "VERBENA_ETHERNET",
    .kind = SettingKind::kText,
    .meaning =
        "The network interface on which raw packet queue pairs send and hear frames, which "
        "needs CAP_NET_RAW; without it they reach those of this machine.",
    .allowed = "an interface's name, or nothing",
    .text = [](const Settings& s) { return s.ethernet; },
    .set_text = set_ethernet};

constexpr Setting kLog{
    .key = "log",
    .environment = "VERBENA_LOG",
    .kind = SettingKind::kChoice,
    .meaning = "What is reported on standard error.",
    .allowed = {},
    .choices = kLogChoices,
    .number = [](const Settings& s) { return std::uint64_t{std::to_underlying(s.log_level)}; },
    .set_number = [](Settings& s,
                     std::uint64_t value) { s.log_level = static_cast<LogLevel>(value); }};

constexpr Setting kMtu{
    .key = "mtu",
    .environment = "VERBENA_MTU",
    .kind = SettingKind::kChoice,
    .meaning = "The largest path MTU in bytes that a device offers.",
    .allowed = {},
    .choices = kMtuChoices,
    .number =
        [](const Settings& s) {
          std::uint64_t place = 0;
          while (place + 1 < kMtuChoices.size() && (256U << place) < s.nic.max_mtu) ++place;
          return place;
        },
    .set_number = [](Settings& s, std::uint64_t value) { s.nic.max_mtu = 256U << value; }};

constexpr Setting kIcrc{
    .key = "icrc",
    .environment = "VERBENA_ICRC",
    .kind = SettingKind::kChoice,
    .meaning =
        "Check of the invariant CRC: solve allows for the IPv4 identification that a socket "
        "cannot see, strict does not, off checks nothing.",
    .allowed = {},
    .choices = kIcrcChoices,
    .number = [](const Settings& s) { return std::uint64_t{std::to_underlying(s.nic.icrc)}; },
    .set_number = [](Settings& s,
                     std::uint64_t value) { s.nic.icrc = static_cast<NicConfig::Icrc>(value); }};

constexpr Setting kAckTimeout{
    .key = "transport.min_ack_timeout",
    .environment = "VERBENA_MIN_ACK_TIMEOUT",
    .kind = SettingKind::kDuration,
    .meaning =
        "The shortest time without an answer after which a request is sent again, whatever "
        "the program asked for.",
    .allowed = {},
    .low = kMillisecond,
    .high = 10'000 * kMillisecond,
    .number =
        [](const Settings& s) {
          return static_cast<std::uint64_t>(s.nic.engine.min_ack_timeout.count());
        },
    .set_number = [](Settings& s,
                     std::uint64_t value) { s.nic.engine.min_ack_timeout = Duration(value); }};

constexpr Setting kPatient{
    .key = "transport.patient",
    .environment = "VERBENA_PATIENT",
    .kind = SettingKind::kChoice,
    .meaning =
        "Whether a peer that does not answer is waited for when the retries are used up, unless "
        "it is known to be gone: for programs in a debugger.",
    .allowed = {},
    .choices = kSwitchChoices,
    .number = [](const Settings& s) { return std::uint64_t{s.nic.engine.patient}; },
    .set_number = [](Settings& s, std::uint64_t value) { s.nic.engine.patient = value != 0; }};

using engine::CongestionConfig;
constexpr std::uint64_t kMostMegabits = 1'000'000;
constexpr std::uint64_t kMicrosecond = 1000;
constexpr std::uint64_t kSecond = 1000 * kMillisecond;

constexpr std::array kTable{
    kAddress,
    kDevicePrefix,
    kMtu,
    kIcrc,
    kLog,
    kPcap,
    kPcapLimit,
    kFaults,
    kSameHost,
    kFetch,
    kEthernet,
    kRoce,
    limit<&Limits::max_qp>("limits.max_qp", "VERBENA_MAX_QP", "Queue pairs of a device.", 1, 65536),
    limit<&Limits::max_cq>("limits.max_cq", "VERBENA_MAX_CQ", "Completion queues of a device.", 1,
                           1 << 20),
    limit<&Limits::max_mr>("limits.max_mr", "VERBENA_MAX_MR", "Memory regions of a device.", 1,
                           1 << 20),
    limit<&Limits::max_mw>("limits.max_mw", "VERBENA_MAX_MW", "Memory windows of a device.", 1,
                           1 << 20),
    limit<&Limits::max_pd>("limits.max_pd", "VERBENA_MAX_PD",
                           "Protection domains of a device, and XRC domains.", 1, 1 << 20),
    limit<&Limits::max_ah>("limits.max_ah", "VERBENA_MAX_AH", "Address handles of a device.", 1,
                           1 << 20),
    limit<&Limits::max_cqe>("limits.max_cqe", "VERBENA_MAX_CQE", "Entries of a completion queue.",
                            1, 1 << 24),
    limit<&Limits::max_qp_wr>("limits.max_qp_wr", "VERBENA_MAX_QP_WR",
                              "Work requests outstanding in a queue.", 1, 1 << 20),
    limit<&Limits::max_srq>("limits.max_srq", "VERBENA_MAX_SRQ",
                            "Shared receive queues of a device.", 1, 1 << 20),
    limit<&Limits::max_srq_wr>("limits.max_srq_wr", "VERBENA_MAX_SRQ_WR",
                               "Receives outstanding in a shared queue.", 1, 1 << 20),
    limit<&Limits::max_sge>("limits.max_sge", "VERBENA_MAX_SGE",
                            "Gather or scatter entries of a work request.", 1, 256),
    limit<&Limits::max_inline>("limits.max_inline", "VERBENA_MAX_INLINE",
                               "Bytes that a work request may carry inline.", 0, 4096),
    limit<&Limits::max_rd_atomic>("limits.max_rd_atomic", "VERBENA_MAX_RD_ATOMIC",
                                  "READs and atomics outstanding on a queue pair, each way.", 1,
                                  128),
    limit<&Limits::max_mcast_grp>("limits.max_mcast_grp", "VERBENA_MAX_MCAST_GRP",
                                  "Multicast groups to which queue pairs of a device are attached.",
                                  1, 1024),
    limit<&Limits::max_mcast_qp_attach>("limits.max_mcast_qp_attach", "VERBENA_MAX_MCAST_QP_ATTACH",
                                        "Queue pairs of a device attached to one of them.", 1,
                                        65536),
    limit<&Limits::max_mr_size>("limits.max_mr_size", "VERBENA_MAX_MR_SIZE",
                                "Bytes of a memory region.", 1, ~std::uint64_t{0} >> 1),
    limit<&Limits::max_dm_size>(
        "limits.max_dm_size", "VERBENA_MAX_DM_SIZE",
        "Bytes of memory of its own that an open device has (ibv_alloc_dm).", 0,
        std::uint64_t{1} << 40),
    window<&engine::EngineConfig::window_initial>(
        "transport.window_initial", "VERBENA_WINDOW_INITIAL",
        "Bytes under way to one receiver at first, all queue pairs together."),
    window<&engine::EngineConfig::window_min>("transport.window_min", "VERBENA_WINDOW_MIN",
                                              "Bytes to which loss narrows that window."),
    window<&engine::EngineConfig::window_max>(
        "transport.window_max", "VERBENA_WINDOW_MAX",
        "Bytes to which progress widens it, or five eighths of "
        "the socket's receive buffer when those are less."),
    kAckTimeout,
    kPatient,
    kCongestionControl,
    congestion<&CongestionConfig::line_rate, kMegabit>(
        "transport.dcqcn_line_rate", "VERBENA_DCQCN_LINE_RATE",
        "Mbit/s that a queue pair is taken to send at before the first CNP, and at most after it.",
        10, kMostMegabits),
    congestion<&CongestionConfig::min_rate, kMegabit>(
        "transport.dcqcn_min_rate", "VERBENA_DCQCN_MIN_RATE",
        "Mbit/s below which CNPs bring no queue pair.", 10, kMostMegabits),
    congestion<&CongestionConfig::cnp_interval>(
        "transport.dcqcn_cnp_interval", "VERBENA_DCQCN_CNP_INTERVAL",
        "The shortest time between two CNPs for a queue pair.", kMicrosecond, kSecond),
    congestion<&CongestionConfig::gain>(
        "transport.dcqcn_gain", "VERBENA_DCQCN_GAIN",
        "1/g: of how many CNPs, or intervals without one, the depth of a cut is an average.", 2,
        65536),
    congestion<&CongestionConfig::alpha_interval>(
        "transport.dcqcn_alpha_interval", "VERBENA_DCQCN_ALPHA_INTERVAL",
        "The time without a CNP after which the next cut is less deep.", kMicrosecond, kSecond),
    congestion<&CongestionConfig::increase_interval>(
        "transport.dcqcn_increase_interval", "VERBENA_DCQCN_INCREASE_INTERVAL",
        "The time after which a rate that was cut grows by a step.", kMicrosecond, kSecond),
    congestion<&CongestionConfig::increase_bytes>(
        "transport.dcqcn_increase_bytes", "VERBENA_DCQCN_INCREASE_BYTES",
        "The bytes after which it grows by a step, too.", 64 << 10, std::uint64_t{1} << 40),
    congestion<&CongestionConfig::step, kMegabit>(
        "transport.dcqcn_step", "VERBENA_DCQCN_STEP",
        "Mbit/s of a step once the rate before the cut is reached again.", 1, kMostMegabits),
    congestion<&CongestionConfig::hyper_step, kMegabit>(
        "transport.dcqcn_hyper_step", "VERBENA_DCQCN_HYPER_STEP",
        "Mbit/s of a step when time and bytes both say that there is room.", 1, kMostMegabits),
};

}  // namespace

std::span<const Setting> setting_table() { return kTable; }

NicConfig device_config(const Settings& settings, std::size_t index) {
  NicConfig config = settings.nic;
  config.name = fmt::format("{}{}", settings.device_prefix, index);
  config.address = index < settings.addresses.size() ? settings.addresses[index] : wire::Address{};
  return config;
}

}  // namespace verbena::nic
