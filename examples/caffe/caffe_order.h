/* caffe_order.h - Caffe's order of records, in options of lmdbio.
 *
 * In iteration t, item i of solver r of S, with batches of B, is record ((t*B + i)*S + r) mod N in
 * key order, where N is the number of records. Solvers take turns. An epoch continues in the batch
 * in which the last one ends, so batches are always full.
 *
 * Plain C, so that the order can be tested without Caffe: tests/api/c/c_caffe_order_test.c. */
#ifndef LMDBIO_EXAMPLES_CAFFE_CAFFE_ORDER_H_
#define LMDBIO_EXAMPLES_CAFFE_CAFFE_ORDER_H_

#include <lmdbio.h>

/* batch_size    records of one solver's batch
 * solver_count  solvers that take turns */
static inline void set_caffe_order(lmdbio_options* options, uint64_t batch_size, int solver_count) {
  options->global_batch_size = batch_size * (uint64_t)solver_count;
  options->order = LMDBIO_ORDER_SEQUENTIAL;
  options->share = LMDBIO_SHARE_ROUND_ROBIN;
  options->tail = LMDBIO_TAIL_WRAP;
}

#endif /* LMDBIO_EXAMPLES_CAFFE_CAFFE_ORDER_H_ */
