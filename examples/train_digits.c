/* train_digits TRAIN TEST: trains a small network on handwritten digits, on any number of ranks.
 *
 *   lmdbio-make digits train.lmdb --part train
 *   lmdbio-make digits test.lmdb --part test
 *   mpirun -n 4 train_digits train.lmdb test.lmdb --checkpoint digits.checkpoint
 *
 * Every rank has the whole network. Of each batch it gets its share of the records from lmdbio and
 * adds up their gradients; then the ranks add up what they have, and each makes the same step. What
 * is in a batch does not depend on the number of ranks, so neither does the loss.
 *
 * A rank that cannot go on notes why (fail) and comes to the next collective call all the same,
 * where all ranks learn of it: no rank ever waits for one that has left. Functions that are marked
 * "collective" are called by all ranks and return the same to each. MPI itself ends the job when
 * one of its calls fails.
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
    "  --help                       print this text and exit\n";

struct trainer {
  const char* train_path;
  const char* test_path;
  const char* checkpoint_path; /* NULL: none */
  uint64_t epoch_count;
  uint64_t stop_after; /* 0: never */
  uint64_t batch_size;
  uint64_t seed;
  double learning_rate;
  bool wants_help;

  int rank, rank_count;
  char failure[512]; /* why this rank cannot go on; "" if it can */

  lmdbio_loader* loader;
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

/* Collective. Whether no rank has failed; if some have, the first of them says why. */
static bool agree(const struct trainer* trainer) {
  const int mine = trainer->failure[0] != '\0' ? trainer->rank : trainer->rank_count;
  int first = 0;
  MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (first == trainer->rank) fprintf(stderr, "train_digits: %s\n", trainer->failure);
  return first == trainer->rank_count;
}

/* Collective. Each value becomes the sum of all ranks' values. */
static void sum_over_ranks(double* values, size_t count) {
  MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
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
  enum { EPOCHS, BATCH_SIZE, SEED, LEARNING_RATE, CHECKPOINT, STOP_AFTER, HELP };
  static const struct option table[] = {
      {"epochs", required_argument, NULL, EPOCHS},
      {"batch-size", required_argument, NULL, BATCH_SIZE},
      {"seed", required_argument, NULL, SEED},
      {"learning-rate", required_argument, NULL, LEARNING_RATE},
      {"checkpoint", required_argument, NULL, CHECKPOINT},
      {"stop-after", required_argument, NULL, STOP_AFTER},
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
  return agree(trainer);
}

/* --- Training ------------------------------------------------------------------------------- */

/* What ranks add up for each batch. Doubles only: to MPI it is an array. */
struct batch_sums {
  struct network gradient;
  double loss;
  double failure_count;
};

static void add_batch(struct trainer* trainer, const lmdbio_batch* batch, struct batch_sums* sums) {
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
    struct batch_sums sums = {0};
    const lmdbio_batch* batch = NULL;
    if (lmdbio_next(trainer->loader, &batch) == LMDBIO_OK) {
      add_batch(trainer, batch, &sums);
    } else {
      fail(trainer, "%s", lmdbio_message(trainer->loader));
    }
    sums.failure_count = trainer->failure[0] != '\0';
    sum_over_ranks((double*)&sums, sizeof sums / sizeof(double));
    if (sums.failure_count > 0) return agree(trainer);

    const double batch_count = (double)batch->global_record_count;
    network_step(&trainer->now.weights, &trainer->now.velocity, &sums.gradient,
                 trainer->learning_rate / batch_count);
    loss += sums.loss;
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
  sum_over_ranks(sums, 2);
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
static bool run(struct trainer* trainer) {
  const bool is_done = begin(trainer) && train(trainer);
  (void)lmdbio_close(trainer->loader); /* refuses only what is no handle */
  free(trainer->test_digits);
  return is_done;
}

int main(int argc, char** argv) {
  int provided = 0; /* lmdbio reads in a thread of its own, which does not call MPI */
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  static struct trainer trainer = {.epoch_count = 30, .batch_size = 64, .learning_rate = 0.1};
  MPI_Comm_rank(MPI_COMM_WORLD, &trainer.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &trainer.rank_count);
  parse_options(&trainer, argc, argv);
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
