// tests/campaign/jumping_clock.h - a clock of the day that jumps, for this process alone.
#ifndef LMDBIO_TESTS_CAMPAIGN_JUMPING_CLOCK_H_
#define LMDBIO_TESTS_CAMPAIGN_JUMPING_CLOCK_H_

namespace lmdbio::test {

// From now on each look at CLOCK_REALTIME (clock_gettime, gettimeofday, time) of this process and
// of its later children shows another day. Other clocks go on. The program's own functions take the
// place of those of the C library; the kernel's clock is unchanged.
void LetClockJump();

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_CAMPAIGN_JUMPING_CLOCK_H_
