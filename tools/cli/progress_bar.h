// tools/cli/progress_bar.h - a bar on standard error while a long run goes on.
#ifndef LMDBIO_TOOLS_CLI_PROGRESS_BAR_H_
#define LMDBIO_TOOLS_CLI_PROGRESS_BAR_H_

#include <chrono>
#include <string>
#include <utility>

namespace lmdbio::tools {

// Appears once the work has lasted a second, and only if standard error is a terminal: logs and
// pipes never see it. Disappears with its object, so that what is printed next starts a clean line.
// Cost: Update reads the clock at most; it draws ten times a second.
class ProgressBar {
 public:
  // label  what goes on, as "writing records"
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // For the next step of the work.
  void set_label(std::string label) { label_ = std::move(label); }

  // fraction  [0, 1] of the work that is done; beyond is cut off
  void Update(double fraction) {
    if (is_terminal_) UpdateOnTerminal(fraction);
  }

 private:
  void UpdateOnTerminal(double fraction);

  std::string label_;
  bool is_terminal_;
  bool is_visible_ = false;
  std::chrono::steady_clock::time_point next_draw_;
};

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_CLI_PROGRESS_BAR_H_
