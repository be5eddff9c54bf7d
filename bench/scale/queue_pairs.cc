// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bench/scale/device.h"
#include "bench/scale/scale.h"
#include "bench/support/control.h"
#include "bench/support/figure.h"

namespace verbena::bench {
namespace {

constexpr std::size_t kAtOnce = 8192;        ///< numbers in one control message
constexpr std::uint32_t kListsUnderWay = 8;  ///< on all queue pairs together

/// What one side tells the other before the numbers.
struct Invitation {
  ibv_gid gid{};
  std::uint64_t page = 0;
  std::uint32_t rkey = 0;
  std::uint32_t reserved = 0;
};

template <typename T>
std::string bytes_of(std::span<T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

template <typename T>
void take_bytes(const std::string& message, std::span<T> values) {
  need(message.size() == values.size_bytes(), "what the other side said");
  std::memcpy(values.data(), message.data(), message.size());
}

double resident_kib() {
  std::ifstream statm("/proc/self/statm");
  double all = 0;
  double resident = 0;
  statm >> all >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1024;
}

double processor_seconds() {
  rusage used{};
  need(getrusage(RUSAGE_SELF, &used) == 0, "getrusage");
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// What part of a processor this process takes while it sleeps, percent.
double idle_percent(double seconds) {
  using Seconds = std::chrono::duration<double>;
  std::this_thread::sleep_for(Seconds(1));  // what traffic left to do is done
  const double before = processor_seconds();
  std::this_thread::sleep_for(Seconds(seconds));
  return 100 * (processor_seconds() - before) / seconds;
}

/// One side's queue pairs, connected to those of the other.
class Side {
 public:
  Side(const Scale& scale, const Control& control)
      : device_(static_cast<int>(2 * kListsUnderWay)), region_(device_.register_page()) {
    pairs_.reserve(scale.count);
    const double before = resident_kib();
    auto begin = Clock::now();
    for (std::uint32_t i = 0; i < scale.count; ++i) pairs_.push_back(device_.create_pair());
    double seconds = seconds_since(begin);
    const std::vector<std::uint32_t> numbers = meet(control);
    begin = Clock::now();
    for (std::size_t i = 0; i < pairs_.size(); ++i)
      device_.connect(pairs_[i], numbers[i], theirs_.gid);
    seconds += seconds_since(begin);
    microseconds_ = seconds * 1e6 / scale.count;
    kib_ = (resident_kib() - before) / scale.count;
    control.meet();
  }

  [[nodiscard]] double setup_microseconds() const { return microseconds_; }
  [[nodiscard]] double kib() const { return kib_; }

  /// Polls until the client is through, as a server of RDMA would.
  void stand_by(const Control& control) const {
    for (unsigned looks = 1; looks % 256 != 0 || !control.readable(); ++looks) (void)device_.poll();
    (void)control.receive();
  }

  /// Each queue pair is used once.
  void use_all() {
    WriteList list = make_list();
    run(list, [&](std::uint64_t lists) { return lists >= pairs_.size(); });
  }

  /// WRITEs a second, in millions, to one queue pair after the other. The first round is not
  /// counted: it is when each is used for the first time.
  [[nodiscard]] double rate(double seconds) {
    use_all();
    WriteList list = make_list();
    const auto begin = Clock::now();
    const std::uint64_t lists = run(
        list, [&](std::uint64_t done) { return done % 16 == 0 && seconds_since(begin) > seconds; });
    return static_cast<double>(lists) * Device::kList / seconds_since(begin) / 1e6;
  }

 private:
  [[nodiscard]] WriteList make_list() const {
    WriteList list;
    for (std::uint32_t i = 0; i < Device::kList; ++i)
      list.set(i, device_, region_->lkey, theirs_.page, theirs_.rkey);
    return list;
  }

  /// The other side's queue pair numbers.
  std::vector<std::uint32_t> meet(const Control& control) {
    const Invitation ours{.gid = device_.gid(), .page = device_.page(), .rkey = region_->rkey};
    control.send(bytes_of(std::span(&ours, 1)));
    take_bytes(control.receive(), std::span(&theirs_, 1));
    std::vector<std::uint32_t> numbers;
    for (const ibv_qp* const qp : pairs_) numbers.push_back(qp->qp_num);
    std::vector<std::uint32_t> their_numbers(numbers.size());
    for (std::size_t at = 0; at < numbers.size(); at += kAtOnce) {
      const std::size_t count = std::min(kAtOnce, numbers.size() - at);
      control.send(bytes_of(std::span(numbers).subspan(at, count)));
      take_bytes(control.receive(), std::span(their_numbers).subspan(at, count));
    }
    return their_numbers;
  }

  /// Posts the list to one queue pair after the other until `ends` says so of the lists posted, and
  /// waits for all.
  template <typename Ends>
  std::uint64_t run(WriteList& list, Ends ends) {
    std::uint64_t posted = 0;
    std::uint64_t completed = 0;
    while (!ends(posted)) {
      list.post(pairs_[next_]);
      next_ = next_ + 1 < pairs_.size() ? next_ + 1 : 0;
      ++posted;
      while (posted - completed >= std::min<std::uint64_t>(kListsUnderWay, pairs_.size()))
        completed += device_.poll();
    }
    while (completed < posted) completed += device_.poll();
    return posted;
  }

  Device device_;
  ibv_mr* region_;
  std::vector<ibv_qp*> pairs_;
  Invitation theirs_{};
  std::size_t next_ = 0;
  double microseconds_ = 0;
  double kib_ = 0;
};

void serve(const Scale& scale) {
  const Control control = Control::serve(scale.address, scale.port);
  Side side(scale, control);
  if (scale.figure != "idle") return side.stand_by(control);
  side.use_all();
  control.meet();
  control.send(std::to_string(idle_percent(scale.seconds)));
}

void stay_idle(const Scale& scale, Side& side, const Control& control) {
  side.use_all();
  control.meet();
  const double ours = idle_percent(scale.seconds);
  print_figure(std::max(ours, std::strtod(control.receive().c_str(), nullptr)), "%");
}

}  // namespace

void scale_queue_pairs(const Scale& scale) {
  if (scale.serve) return serve(scale);
  const Control control = Control::join(scale.address, scale.port);
  Side side(scale, control);
  if (scale.figure == "idle") return stay_idle(scale, side, control);
  if (scale.figure == "setup") {
    print_figure(side.setup_microseconds(), "us");
  } else if (scale.figure == "memory") {
    print_figure(side.kib(), "KiB");
  } else {
    print_figure(side.rate(scale.seconds), "M/s");
  }
  control.send("done");
}

}  // namespace verbena::bench
