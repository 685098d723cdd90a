/* bench/sync/work_loop.h - computing of a fixed cost, for programs in C++ and in Python.
 *
 * Each step needs the one before it, and its words lie in the second-level cache: the time hangs on
 * nothing but the core. What comes out proves that the work was done.
 */
#ifndef LMDBIO_BENCH_SYNC_WORK_LOOP_H_
#define LMDBIO_BENCH_SYNC_WORK_LOOP_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SYNC_WORK_WORDS 16384 /* 128 KiB */
#define SYNC_WORK_UNIT_STEPS 1024

/* Does `units` units on `words` [SYNC_WORK_WORDS], from `seed`. Equal arguments, equal results. */
uint64_t sync_work(const uint64_t* words, uint64_t units, uint64_t seed);

/* Fills `words` [SYNC_WORK_WORDS] with what the checksums rest on. */
void sync_work_fill(uint64_t* words);

#ifdef __cplusplus
}
#endif
#endif /* LMDBIO_BENCH_SYNC_WORK_LOOP_H_ */
