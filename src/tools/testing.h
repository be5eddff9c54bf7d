// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace verbena::tools::testing {

/// A folder of its own for a test, gone with it.
class Folder {
 public:
  Folder() : path_(mkdtemp(name_)) { chmod(name_, 0755); }
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text, mode_t mode = 0644) const {
    const auto path = file(name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
    chmod(path.c_str(), mode);
    return path;
  }

 private:
  char name_[32] = "/tmp/verbena-tools-XXXXXX";
  std::string path_;
};

}  // namespace verbena::tools::testing
