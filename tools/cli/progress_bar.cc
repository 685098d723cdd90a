#include "tools/cli/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::tools {
namespace {

constexpr std::chrono::milliseconds kFirstDraw{1000};
constexpr std::chrono::milliseconds kRedraw{100};
constexpr int kBarColumns = 30;

}  // namespace

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)),
      is_terminal_(isatty(STDERR_FILENO) == 1),
      next_draw_(std::chrono::steady_clock::now() + kFirstDraw) {}

ProgressBar::~ProgressBar() {
  // Erases the line, because the bar has no line end.
  if (is_visible_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::UpdateOnTerminal(double fraction) {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_draw_) return;
  next_draw_ = now + kRedraw;
  is_visible_ = true;
  const double done = std::clamp(fraction, 0.0, 1.0);
  const auto filled = static_cast<size_t>(done * kBarColumns);
  const std::string line = fmt::format("\r\033[K{} [{:<{}}] {:3.0f}%", label_,
                                       std::string(filled, '#'), kBarColumns, done * 100);
  // Standard error has no buffer; one call for the whole line keeps the bar from flickering.
  std::fputs(line.c_str(), stderr);
}

}  // namespace lmdbio::tools
