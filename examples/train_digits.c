/* train_digits TRAIN TEST: trains a small network on handwritten digits, on any number of ranks.
 *
 *   lmdbio-make digits train.lmdb --part train
 *   lmdbio-make digits test.lmdb --part test
 *   mpirun -n 4 train_digits train.lmdb test.lmdb --checkpoint digits.checkpoint
 *
 * Every rank has the whole network. Of each batch it gets its share of the records from lmdbio and
 * adds up their gradients; then lmdbio's synchronizer adds up what the ranks have, layer by layer,
 * and each makes the same step. What is in a batch does not depend on the number of ranks, so
 * neither does the loss.
 *
 * A rank that cannot go on notes why (fail) and comes to the next collective call all the same,
 * where all ranks learn of it: no rank ever waits for one that has left. One whose synchronizer
 * fails closes it, which the others are told. Functions that are marked "collective" are called by
 * all ranks and return the same to each. MPI itself ends the job when one of its calls fails.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include <lmdbio_mpi.h>

#include "examples/digits_checkpoint.h"
#include "examples/digits_datum.h"
#include "examples/digits_network.h"

static const char kHelp[] =
    "Usage: train_digits [OPTION]... TRAIN TEST\n"
    "Trains a network on the digits of one database and tests it on another's: see\n"
    "lmdbio-make digits --part. Under mpirun, all ranks share the work.\n"
    "\n"
    "  --epochs E (=30)             passes over all records\n"
    "  --batch-size B (=64)         records between two steps, of all ranks together\n"
    "  --seed S (=0)                of the first weights, and of the order of records\n"
    "  --learning-rate L (=0.1)     of a step along the mean gradient of a batch\n"
    "  --checkpoint FILE            written after each epoch; if it is there, training goes on\n"
    "                               from it, with as many ranks as there are now\n"
    "  --stop-after E               end after epoch E, as if the job had been stopped there\n"
    "  --coordinator C (=topo)      who orders gradients: topo, cache, horovod or hierarchical\n"
    "  --pacing P (=event)          when ranks ask each other: event, cycle, gs or nbcs\n"
    "  --collective M (=auto)       how gradients are added up: auto, shm, ring, halving, direct,\n"
    "                               or mpi, where MPI has MPI_THREAD_MULTIPLE\n"
    "  --help                       print this text and exit\n";

/* What ranks add up for each batch. */
struct batch_sums {
  struct network gradient;
  double loss;
  double failure_count;
};

struct trainer {
  const char* train_path;
  const char* test_path;
  const char* checkpoint_path; /* NULL: none */
  uint64_t epoch_count;
  uint64_t stop_after; /* 0: never */
  uint64_t batch_size;
  uint64_t seed;
  double learning_rate;
  const char* coordinator; /* NULL: as lmdbio likes it; so are the next */
  const char* pacing;
  const char* collective;
  bool wants_help;

  int rank, rank_count;
  char failure[512]; /* why this rank cannot go on; "" if it can */

  lmdbio_loader* loader;
  lmdbio_sync* sync;
  struct batch_sums* sums;   /* in memory of the synchronizer, where nothing need be copied */
  struct digit* test_digits; /* [test_count] of this rank */
  uint64_t test_count;
  struct checkpoint now; /* the network, and how far it is */
};

/* --- What ranks do together ----------------------------------------------------------------- */

/* Notes the first reason why this rank cannot go on. */
static void fail(struct trainer*, const char*, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct trainer* trainer, const char* format, ...) {
  if (trainer->failure[0] != '\0') return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(trainer->failure, sizeof trainer->failure, format, arguments);
  va_end(arguments);
}

/* Tells ranks that wait for this one that it does not go on. */
static void close_sync(struct trainer* trainer) {
  (void)lmdbio_sync_close(trainer->sync); /* refuses only what is no handle */
  trainer->sync = NULL;
}

/* Collective. Whether no rank has failed; if some have, the first of them says why. */
static bool agree(const struct trainer* trainer) {
  const int mine = trainer->failure[0] != '\0' ? trainer->rank : trainer->rank_count;
  int first = 0;
  MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (first == trainer->rank) fprintf(stderr, "train_digits: %s\n", trainer->failure);
  return first == trainer->rank_count;
}

/* Collective: the sums of all ranks, in place. All tensors are asked for before any is awaited, as
 * a trainer that computes layer by layer asks for each when it is ready.
 * Returns  false, with the reason noted, if the synchronizer has failed; that is over then */
static bool sum_over_ranks(struct trainer* trainer) {
  struct batch_sums* sums = trainer->sums;
  struct network* gradient = &sums->gradient;
  const struct tensor {
    const char* name;
    double* values;
    size_t size_bytes;
  } tensors[] = {
      {"output", gradient->output[0], sizeof gradient->output},
      {"output_bias", gradient->output_bias, sizeof gradient->output_bias},
      {"hidden", gradient->hidden[0], sizeof gradient->hidden},
      {"hidden_bias", gradient->hidden_bias, sizeof gradient->hidden_bias},
      {"loss and failures", &sums->loss, 2 * sizeof(double)},
  };
  enum { TENSOR_COUNT = sizeof tensors / sizeof *tensors };
  lmdbio_sync_op* ops[TENSOR_COUNT] = {NULL};
  for (int t = 0; t < TENSOR_COUNT && trainer->sync != NULL; ++t) {
    const int64_t count = (int64_t)(tensors[t].size_bytes / sizeof(double));
    if (lmdbio_sync_allreduce(trainer->sync, tensors[t].name, tensors[t].values, count,
                              LMDBIO_FLOAT64, &ops[t]) != LMDBIO_OK) {
      fail(trainer, "%s", lmdbio_sync_message(trainer->sync));
      close_sync(trainer);
    }
  }
  for (int t = 0; t < TENSOR_COUNT; ++t) {
    if (ops[t] != NULL && lmdbio_sync_op_wait(ops[t]) != LMDBIO_OK) {
      fail(trainer, "%s", lmdbio_sync_op_message(ops[t]));
      close_sync(trainer);
    }
    (void)lmdbio_sync_op_close(ops[t]);
  }
  return trainer->sync != NULL;
}

/* --- Options -------------------------------------------------------------------------------- */

static uint64_t parse_count(struct trainer* trainer, const char* name, const char* text,
                            uint64_t min) {
  char* end = NULL;
  errno = 0;
  const unsigned long long number = strtoull(text, &end, 10);
  const bool is_good = text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
  if (!is_good || number < min) {
    fail(trainer, "--%s takes a whole number from %d on, not '%s'", name, (int)min, text);
  }
  return number;
}

static double parse_rate(struct trainer* trainer, const char* name, const char* text) {
  char* end = NULL;
  const double number = strtod(text, &end);
  if (end == text || *end != '\0' || !(number > 0) || !isfinite(number)) {
    fail(trainer, "--%s takes a number above 0, not '%s'", name, text);
  }
  return number;
}

static void parse_options(struct trainer* trainer, int argc, char** argv) {
  enum { EPOCHS, BATCH_SIZE, SEED, LEARNING_RATE, CHECKPOINT, STOP_AFTER };
  enum { COORDINATOR = STOP_AFTER + 1, PACING, COLLECTIVE, HELP };
  static const struct option table[] = {
      {"epochs", required_argument, NULL, EPOCHS},
      {"batch-size", required_argument, NULL, BATCH_SIZE},
      {"seed", required_argument, NULL, SEED},
      {"learning-rate", required_argument, NULL, LEARNING_RATE},
      {"checkpoint", required_argument, NULL, CHECKPOINT},
      {"stop-after", required_argument, NULL, STOP_AFTER},
      {"coordinator", required_argument, NULL, COORDINATOR},
      {"pacing", required_argument, NULL, PACING},
      {"collective", required_argument, NULL, COLLECTIVE},
      {"help", no_argument, NULL, HELP},
      {NULL, 0, NULL, 0},
  };
  opterr = 0;
  int choice = 0, index = 0;
  while ((choice = getopt_long(argc, argv, "", table, &index)) != -1) {
    const char* name = choice == '?' ? "" : table[index].name;
    switch (choice) {
      case EPOCHS:
        trainer->epoch_count = parse_count(trainer, name, optarg, 1);
        break;
      case BATCH_SIZE:
        trainer->batch_size = parse_count(trainer, name, optarg, 1);
        break;
      case SEED:
        trainer->seed = parse_count(trainer, name, optarg, 0);
        break;
      case LEARNING_RATE:
        trainer->learning_rate = parse_rate(trainer, name, optarg);
        break;
      case CHECKPOINT:
        trainer->checkpoint_path = optarg;
        break;
      case STOP_AFTER:
        trainer->stop_after = parse_count(trainer, name, optarg, 1);
        break;
      case COORDINATOR:
        trainer->coordinator = optarg;
        break;
      case PACING:
        trainer->pacing = optarg;
        break;
      case COLLECTIVE:
        trainer->collective = optarg;
        break;
      case HELP:
        trainer->wants_help = true;
        break;
      default:
        fail(trainer, "'%s' is no option, or lacks its value; see --help", argv[optind - 1]);
    }
  }
  if (argc - optind != 2) {
    fail(trainer, "takes two databases, TRAIN and TEST; see --help");
    return;
  }
  trainer->train_path = argv[optind];
  trainer->test_path = argv[optind + 1];
}

/* --- Records -------------------------------------------------------------------------------- */

static bool take_digit(struct trainer* trainer, const char* path, const lmdbio_record* record,
                       struct digit* out_digit) {
  const char* flaw = digit_parse(record->value, record->value_size, out_digit);
  if (flaw == NULL) return true;
  char key[17] = ""; /* as far as it can be shown */
  for (size_t i = 0; i < record->key_size && i < sizeof key - 1; ++i) {
    const char c = ((const char*)record->key)[i];
    key[i] = c >= ' ' && c <= '~' ? c : '?';
  }
  fail(trainer, "%s: the record of key '%s' %s", path, key, flaw);
  return false;
}

/* Every rank tests with each rank_count-th record, and keeps these in memory. */
static int read_test_digits(struct trainer* trainer, lmdbio_dataset* dataset) {
  const uint64_t rank_count = (uint64_t)trainer->rank_count;
  uint64_t total = 0;
  int status = lmdbio_dataset_count(dataset, &total);
  if (status != LMDBIO_OK) return status;
  if (total == 0) fail(trainer, "%s: the database holds no records", trainer->test_path);
  trainer->test_digits = calloc(total / rank_count + 1, sizeof *trainer->test_digits);
  if (trainer->test_digits == NULL) fail(trainer, "no memory for the records to test with");

  uint64_t number = (uint64_t)trainer->rank;
  while (status == LMDBIO_OK && trainer->failure[0] == '\0' && number < total) {
    uint64_t numbers[256]; /* read together, which is quicker than one by one */
    size_t count = 0;
    for (; count < 256 && number < total; number += rank_count) numbers[count++] = number;
    const lmdbio_record* records = NULL;
    status = lmdbio_dataset_read(dataset, numbers, count, &records);
    for (size_t i = 0; status == LMDBIO_OK && i < count; ++i) {
      struct digit* digit = &trainer->test_digits[trainer->test_count++];
      if (!take_digit(trainer, trainer->test_path, &records[i], digit)) break;
    }
  }
  return status;
}

/* --- Beginning ------------------------------------------------------------------------------ */

/* Collective. */
static bool open_test(struct trainer* trainer) {
  lmdbio_dataset* dataset = NULL;
  int status = lmdbio_dataset_open(trainer->test_path, NULL, &dataset);
  if (status == LMDBIO_OK) status = read_test_digits(trainer, dataset);
  if (status != LMDBIO_OK) fail(trainer, "%s", lmdbio_dataset_message(dataset));
  (void)lmdbio_dataset_close(dataset);
  return agree(trainer);
}

/* Rank 0: as the checkpoint says, or from the beginning. */
static void load_network(struct trainer* trainer) {
  struct checkpoint* now = &trainer->now;
  const char* path = trainer->checkpoint_path;
  now->seed = trainer->seed;
  now->batch_size = trainer->batch_size;
  network_init(&now->weights, trainer->seed);
  const char* flaw = path == NULL ? NULL : checkpoint_read(path, now);
  if (flaw != NULL) fail(trainer, "%s: %s", path, flaw);
  if (now->seed != trainer->seed) {
    fail(trainer, "%s: was begun with --seed %llu, not %llu", path, (unsigned long long)now->seed,
         (unsigned long long)trainer->seed);
  }
  if (now->batch_size != trainer->batch_size) {
    fail(trainer, "%s: was begun with --batch-size %llu, not %llu", path,
         (unsigned long long)now->batch_size, (unsigned long long)trainer->batch_size);
  }
}

/* Collective. */
static bool open_sync(struct trainer* trainer) {
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  options.coordinator = trainer->coordinator;
  options.pacing = trainer->pacing;
  options.collective = trainer->collective;
  options.gradient_bytes = sizeof *trainer->sums;
  void* memory = NULL;
  if (lmdbio_sync_open_mpi(MPI_COMM_WORLD, &options, &trainer->sync) != LMDBIO_OK ||
      lmdbio_sync_place(trainer->sync, sizeof *trainer->sums, &memory) != LMDBIO_OK) {
    fail(trainer, "%s", lmdbio_sync_message(trainer->sync));
  }
  trainer->sums = memory;
  return agree(trainer);
}

/* Collective. */
static bool begin(struct trainer* trainer) {
  if (!open_test(trainer)) return false;
  if (trainer->rank == 0) load_network(trainer);
  if (!agree(trainer)) return false;
  MPI_Bcast(&trainer->now, (int)sizeof trainer->now, MPI_BYTE, 0, MPI_COMM_WORLD);

  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  options.batch_size = trainer->batch_size;
  options.order = LMDBIO_ORDER_SHUFFLE;
  options.tail = LMDBIO_TAIL_SHORT; /* so that an epoch's loss is that of each record, once */
  options.seed = trainer->seed;
  if (trainer->now.epoch_count > 0) options.state = trainer->now.state;
  if (lmdbio_open_mpi(MPI_COMM_WORLD, trainer->train_path, &options, &trainer->loader) !=
      LMDBIO_OK) {
    fail(trainer, "%s", lmdbio_message(trainer->loader));
  }
  return agree(trainer) && open_sync(trainer);
}

/* --- Training ------------------------------------------------------------------------------- */

static void add_batch(struct trainer* trainer, const lmdbio_batch* batch) {
  struct batch_sums* sums = trainer->sums;
  for (size_t i = 0; i < batch->record_count; ++i) {
    struct digit digit;
    if (!take_digit(trainer, trainer->train_path, &batch->records[i], &digit)) return;
    sums->loss += network_add_gradient(&trainer->now.weights, &digit, &sums->gradient);
  }
}

/* Collective: one epoch.
 * out_loss  the mean of all records, each at the time of its batch */
static bool train_epoch(struct trainer* trainer, double* out_loss) {
  double loss = 0, record_count = 0;
  for (bool is_over = false; !is_over;) {
    struct batch_sums* sums = trainer->sums;
    memset(sums, 0, sizeof *sums);
    const lmdbio_batch* batch = NULL;
    if (lmdbio_next(trainer->loader, &batch) == LMDBIO_OK) {
      add_batch(trainer, batch);
    } else {
      fail(trainer, "%s", lmdbio_message(trainer->loader));
    }
    sums->failure_count = trainer->failure[0] != '\0';
    if (!sum_over_ranks(trainer) || sums->failure_count > 0) return agree(trainer);

    const double batch_count = (double)batch->global_record_count;
    network_step(&trainer->now.weights, &trainer->now.velocity, &sums->gradient,
                 trainer->learning_rate / batch_count);
    loss += sums->loss;
    record_count += batch_count;
    is_over = batch->ends_epoch != 0;
  }
  *out_loss = loss / record_count;
  if (!isfinite(*out_loss)) fail(trainer, "the loss is no number: lower the --learning-rate");
  ++trainer->now.epoch_count;
  return agree(trainer);
}

/* Collective. The share of test records that the network reads rightly. */
static double test_accuracy(const struct trainer* trainer) {
  double sums[2] = {0, (double)trainer->test_count};
  for (uint64_t i = 0; i < trainer->test_count; ++i) {
    const struct digit* digit = &trainer->test_digits[i];
    sums[0] += network_guess(&trainer->now.weights, digit) == digit->label;
  }
  MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return sums[0] / sums[1];
}

/* Rank 0: what is saved is enough for all ranks, for their streams stand at the same place. */
static void save(struct trainer* trainer) {
  const char* state = NULL;
  if (lmdbio_save(trainer->loader, &state) != LMDBIO_OK) {
    fail(trainer, "%s", lmdbio_message(trainer->loader));
    return;
  }
  struct checkpoint* now = &trainer->now;
  memset(now->state, 0, sizeof now->state);
  memcpy(now->state, state, strnlen(state, sizeof now->state - 1)); /* it has less than 1 kB */
  const char* flaw = checkpoint_write(trainer->checkpoint_path, now);
  if (flaw != NULL) fail(trainer, "%s: cannot be written: %s", trainer->checkpoint_path, flaw);
}

/* Prints what was saved only. */
static void report(struct trainer* trainer, double loss, double accuracy) {
  if (trainer->checkpoint_path != NULL) save(trainer);
  if (trainer->failure[0] != '\0') return;
  printf("epoch %llu: loss %.9f, test accuracy %.1f %%\n",
         (unsigned long long)trainer->now.epoch_count, loss, 100 * accuracy);
  if (fflush(stdout) != 0) fail(trainer, "standard output: %s", strerror(errno));
}

/* Collective. */
static bool train(struct trainer* trainer) {
  const uint64_t end = trainer->stop_after > 0 && trainer->stop_after < trainer->epoch_count
                           ? trainer->stop_after
                           : trainer->epoch_count;
  while (trainer->now.epoch_count < end) {
    double loss = 0;
    if (!train_epoch(trainer, &loss)) return false;
    const double accuracy = test_accuracy(trainer);
    if (trainer->rank == 0) report(trainer, loss, accuracy);
    if (!agree(trainer)) return false;
  }
  return true;
}

/* Collective. */
static bool end_sync(struct trainer* trainer) {
  if (lmdbio_sync_shutdown(trainer->sync) != LMDBIO_OK) {
    fail(trainer, "%s", lmdbio_sync_message(trainer->sync));
  }
  return agree(trainer);
}

/* Collective. */
static bool run(struct trainer* trainer) {
  const bool is_done = begin(trainer) && train(trainer) && end_sync(trainer);
  close_sync(trainer);
  (void)lmdbio_close(trainer->loader); /* refuses only what is no handle */
  free(trainer->test_digits);
  return is_done;
}

int main(int argc, char** argv) {
  static struct trainer trainer = {.epoch_count = 30, .batch_size = 64, .learning_rate = 0.1};
  parse_options(&trainer, argc, argv);
  /* lmdbio reads and synchronises in threads of its own, which call MPI only if they are told to */
  const bool is_mpi_collective =
      trainer.collective != NULL && strcmp(trainer.collective, "mpi") == 0;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, is_mpi_collective ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED,
                  &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &trainer.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &trainer.rank_count);
  int exit_code = 0;
  if (trainer.wants_help) {
    if (trainer.rank == 0) fputs(kHelp, stdout);
  } else if (!agree(&trainer)) {
    exit_code = 2;
  } else if (!run(&trainer)) {
    exit_code = 1;
  }
  MPI_Finalize();
  return exit_code;
}
