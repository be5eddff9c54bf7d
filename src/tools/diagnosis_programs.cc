// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "tools/diagnosis.h"
#include "tools/preload.h"
#include "tools/program.h"

namespace verbena::tools {
namespace {

using Verdict = Finding::Verdict;

struct Package {
  const char* name;
  const char* program;  ///< one that is in every version of it
};
constexpr std::array kPackages{Package{"perftest", "ib_write_bw"},
                               Package{"ibverbs-utils", "ibv_rc_pingpong"}};

Finding examine_library() {
  Finding finding{.subject = "library"};
  const auto library = find_library();
  const auto preload = library ? preload_value(*library, {}, {}) : library;
  if (preload) {
    finding.what = *library;
    return finding;
  }
  finding.verdict = Verdict::kProblem;
  finding.what = preload.error().message;
  finding.remedy =
      library ? "move Verbena to a folder with a plain name" : "build or install again";
  return finding;
}

Finding examine_package(const Package& package, std::string_view search_path) {
  Finding finding{.subject = "programs"};
  const auto program = find_program(package.program, search_path);
  if (program) {
    finding.what = fmt::format("{}: {}", package.name, program->path);
    return finding;
  }
  finding.verdict = Verdict::kNote;
  finding.what = fmt::format("{}: {}", package.name, program.error().message);
  finding.remedy = fmt::format("as root: apt-get install {}", package.name);
  return finding;
}

}  // namespace

std::vector<Finding> examine_programs(std::string_view search_path) {
  std::vector<Finding> findings{examine_library()};
  for (const auto& package : kPackages) findings.push_back(examine_package(package, search_path));
  return findings;
}

}  // namespace verbena::tools
