// tools/cli/progress_bar.h - a progress bar on standard error for long runs.
#ifndef LMDBIO_TOOLS_CLI_PROGRESS_BAR_H_
#define LMDBIO_TOOLS_CLI_PROGRESS_BAR_H_

#include <chrono>
#include <string>
#include <utility>

namespace lmdbio::tools {

// The bar appears after one second, and only if standard error is a terminal, so logs and pipes
// never contain it. The destructor erases it, so the next output starts on a clean line.
// Cost: Update reads the clock; it draws ten times a second
class ProgressBar {
 public:
  // label  the work, as "writing records"
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Replaces the label, for the next step of the work.
  void set_label(std::string label) { label_ = std::move(label); }

  // fraction  the share of the work that is done; it is clamped to [0, 1]
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
