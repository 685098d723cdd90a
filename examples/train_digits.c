/* train_digits TRAIN TEST: trains a small network on handwritten digits, on any number of ranks.
 *
 *   lmdbio-make digits train.lmdb --part train
 *   lmdbio-make digits test.lmdb --part test
 *   mpirun -n 4 train_digits train.lmdb test.lmdb --checkpoint digits.checkpoint
 *
 * Every rank has the whole network. A rank gets its share of each batch from lmdbio and adds the
 * gradients of these records. The synchronizer of lmdbio then adds the gradients of all ranks,
 * layer by layer, while the next batch is read. A layer waits for its own sums, and makes its step,
 * before it computes again, so every rank has the same weights then. The content of a batch does
 * not depend on the number of ranks, so the loss does not, either.
 *
 * A rank that cannot continue records the reason (fail) and still joins the next collective call,
 * in which all ranks learn of it. So no rank waits for a rank that has left. If the synchronizer of
 * a rank fails, the rank closes it, which informs the others. All ranks call the functions that are
 * marked "collective" and get the same result. MPI itself ends the job when one of its calls
 * fails.
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
    "Trains a network on the digits of TRAIN and tests it on those of TEST (see\n"
    "lmdbio-make digits --part). Under mpirun, all ranks share the work.\n"
    "\n"
    "  --epochs E (=30)             number of passes over all records\n"
    "  --batch-size B (=64)         records between two steps, for all ranks together\n"
    "  --seed S (=0)                seed of the first weights and of the order of records\n"
    "  --learning-rate L (=0.1)     step size along the mean gradient of a batch\n"
    "  --checkpoint FILE            write FILE after each epoch; if it exists, training continues\n"
    "                               from it, with any number of ranks\n"
    "  --stop-after E               end after epoch E, as if the job had been stopped there\n"
    "  --coordinator C (=topo)      order of gradients: topo, caramel, cache, horovod or\n"
    "                               hierarchical\n"
    "  --pacing P (=event)          begin of rounds: event, cycle, gs or nbcs\n"
    "  --collective M (=auto)       algorithm: auto, shm, ring, halving, direct, or mpi (needs\n"
    "                               MPI_THREAD_MULTIPLE)\n"
    "  --help                       print this text and exit\n";

/* The sums over all ranks for one batch. */
struct batch_sums {
  struct network gradient;
  double loss;
  double failure_count;
};

/* The command line. */
struct arguments {
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
};

struct trainer {
  struct arguments arguments;
  int rank, rank_count;
  char failure[512]; /* why this rank cannot go on; "" if it can */

  lmdbio_loader* loader;
  lmdbio_sync* sync;
  struct batch_sums* sums; /* [2] of the batches in turn, in memory of the synchronizer, where
                              nothing need be copied */
  int turn;                /* of the two: the sums of this batch */
  double step_rate;        /* of the last batch, whose steps some parts have not made yet */
  lmdbio_sync_op* ops[PART_COUNT]; /* their sums; NULL: the step was made */
  struct digit* test_digits;       /* [test_count] of this rank */
  uint64_t test_count;
  struct checkpoint now; /* the network, and how far it is */
};

/* --- Calls of all ranks together ------------------------------------------------------------ */

/* Records the first reason why this rank cannot continue. */
static void fail(struct trainer*, const char*, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct trainer* trainer, const char* format, ...) {
  if (trainer->failure[0] != '\0') return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(trainer->failure, sizeof trainer->failure, format, arguments);
  va_end(arguments);
}

/* Informs ranks that wait for this one that it has stopped. */
static void close_sync(struct trainer* trainer) {
  (void)lmdbio_sync_close(trainer->sync); /* refuses only what is no handle */
  trainer->sync = NULL;
}

/* Collective. Returns whether no rank has failed. The first failed rank prints its reason. */
static bool agree(const struct trainer* trainer) {
  const int mine = trainer->failure[0] != '\0' ? trainer->rank : trainer->rank_count;
  int first = 0;
  MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (first == trainer->rank) fprintf(stderr, "train_digits: %s\n", trainer->failure);
  return first == trainer->rank_count;
}

/* Waits for an operation and closes it.
 * Returns  false, with the reason recorded, if the synchronizer has failed and was closed */
static bool finish_op(struct trainer* trainer, lmdbio_sync_op* op) {
  const bool is_done = lmdbio_sync_op_wait(op) == LMDBIO_OK;
  if (!is_done) {
    fail(trainer, "%s", lmdbio_sync_op_message(op));
    close_sync(trainer);
  }
  (void)lmdbio_sync_op_close(op);
  return is_done;
}

/* A layer_hook of a trainer. Makes the step of the last batch, if it was not made yet. */
static void finish_layer(void* context, int layer) {
  struct trainer* trainer = context;
  struct network* gradient = &trainer->sums[1 - trainer->turn].gradient;
  const int first = layer == 0 ? HIDDEN : OUTPUT; /* and its bias behind it */
  for (int part = first; part < first + 2; ++part) {
    lmdbio_sync_op* op = trainer->ops[part];
    trainer->ops[part] = NULL;
    if (op == NULL || !finish_op(trainer, op)) continue;
    network_step(&trainer->now.weights, &trainer->now.velocity, gradient, (enum network_part)part,
                 trainer->step_rate);
  }
}

static void finish_layers(struct trainer* trainer) {
  finish_layer(trainer, 0);
  finish_layer(trainer, 1);
}

static lmdbio_sync_op* submit(struct trainer* trainer, const char* name, double* values,
                              int count) {
  lmdbio_sync_op* op = NULL;
  if (trainer->sync != NULL &&
      lmdbio_sync_allreduce(trainer->sync, name, values, count, LMDBIO_FLOAT64, &op) != LMDBIO_OK) {
    fail(trainer, "%s", lmdbio_sync_message(trainer->sync));
    close_sync(trainer);
  }
  return op;
}

/* Collective. Begins to compute the sums over all ranks in place, from the last layer to the first,
 * like a trainer that submits each layer when its gradient is ready. It awaits only the loss and
 * the failures; finish_layer does the rest. The other half of the sums is that of the next batch.
 * Returns  false, with the reason recorded, if the synchronizer has failed and was closed */
static bool sum_over_ranks(struct trainer* trainer) {
  static const char* const names[] = {"hidden", "hidden_bias", "output", "output_bias"};
  finish_layers(trainer); /* no record of the batch was here, or nothing is left */
  struct batch_sums* sums = &trainer->sums[trainer->turn];
  lmdbio_sync_op* loss = submit(trainer, "loss and failures", &sums->loss, 2);
  for (int part = PART_COUNT - 1; part >= 0; --part) {
    int count = 0;
    double* values = network_part(&sums->gradient, (enum network_part)part, &count);
    trainer->ops[part] = submit(trainer, names[part], values, count);
  }
  trainer->turn = 1 - trainer->turn;
  return loss != NULL && finish_op(trainer, loss) && trainer->sync != NULL;
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
        trainer->arguments.epoch_count = parse_count(trainer, name, optarg, 1);
        break;
      case BATCH_SIZE:
        trainer->arguments.batch_size = parse_count(trainer, name, optarg, 1);
        break;
      case SEED:
        trainer->arguments.seed = parse_count(trainer, name, optarg, 0);
        break;
      case LEARNING_RATE:
        trainer->arguments.learning_rate = parse_rate(trainer, name, optarg);
        break;
      case CHECKPOINT:
        trainer->arguments.checkpoint_path = optarg;
        break;
      case STOP_AFTER:
        trainer->arguments.stop_after = parse_count(trainer, name, optarg, 1);
        break;
      case COORDINATOR:
        trainer->arguments.coordinator = optarg;
        break;
      case PACING:
        trainer->arguments.pacing = optarg;
        break;
      case COLLECTIVE:
        trainer->arguments.collective = optarg;
        break;
      case HELP:
        trainer->arguments.wants_help = true;
        break;
      default:
        fail(trainer, "'%s' is not an option, or its value is missing; see --help",
             argv[optind - 1]);
    }
  }
  if (argc - optind != 2) {
    fail(trainer, "needs two databases, TRAIN and TEST; see --help");
    return;
  }
  trainer->arguments.train_path = argv[optind];
  trainer->arguments.test_path = argv[optind + 1];
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

/* Every rank tests with every rank_count-th record and keeps its records in memory. */
static int read_test_digits(struct trainer* trainer, lmdbio_dataset* dataset) {
  const uint64_t rank_count = (uint64_t)trainer->rank_count;
  uint64_t total = 0;
  int status = lmdbio_dataset_count(dataset, &total);
  if (status != LMDBIO_OK) return status;
  if (total == 0) fail(trainer, "%s: the database holds no records", trainer->arguments.test_path);
  trainer->test_digits = calloc(total / rank_count + 1, sizeof *trainer->test_digits);
  if (trainer->test_digits == NULL) fail(trainer, "no memory for the test records");

  uint64_t number = (uint64_t)trainer->rank;
  while (status == LMDBIO_OK && trainer->failure[0] == '\0' && number < total) {
    uint64_t numbers[256]; /* read together, which is quicker than one by one */
    size_t count = 0;
    for (; count < 256 && number < total; number += rank_count) numbers[count++] = number;
    const lmdbio_record* records = NULL;
    status = lmdbio_dataset_read(dataset, numbers, count, &records);
    for (size_t i = 0; status == LMDBIO_OK && i < count; ++i) {
      struct digit* digit = &trainer->test_digits[trainer->test_count++];
      if (!take_digit(trainer, trainer->arguments.test_path, &records[i], digit)) break;
    }
  }
  return status;
}

/* --- Start ---------------------------------------------------------------------------------- */

/* Collective. */
static bool open_test(struct trainer* trainer) {
  lmdbio_dataset* dataset = NULL;
  int status = lmdbio_dataset_open(trainer->arguments.test_path, NULL, &dataset);
  if (status == LMDBIO_OK) status = read_test_digits(trainer, dataset);
  if (status != LMDBIO_OK) fail(trainer, "%s", lmdbio_dataset_message(dataset));
  (void)lmdbio_dataset_close(dataset);
  return agree(trainer);
}

/* Called on rank 0. Starts from the checkpoint, or from the beginning if there is none. */
static void load_network(struct trainer* trainer) {
  struct checkpoint* now = &trainer->now;
  const char* path = trainer->arguments.checkpoint_path;
  now->seed = trainer->arguments.seed;
  now->batch_size = trainer->arguments.batch_size;
  network_init(&now->weights, trainer->arguments.seed);
  const char* flaw = path == NULL ? NULL : checkpoint_read(path, now);
  if (flaw != NULL) fail(trainer, "%s: %s", path, flaw);
  if (now->seed != trainer->arguments.seed) {
    fail(trainer, "%s: was written with --seed %llu, not %llu", path, (unsigned long long)now->seed,
         (unsigned long long)trainer->arguments.seed);
  }
  if (now->batch_size != trainer->arguments.batch_size) {
    fail(trainer, "%s: was written with --batch-size %llu, not %llu", path,
         (unsigned long long)now->batch_size, (unsigned long long)trainer->arguments.batch_size);
  }
}

/* Collective. */
static bool open_sync(struct trainer* trainer) {
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  options.coordinator = trainer->arguments.coordinator;
  options.pacing = trainer->arguments.pacing;
  options.collective = trainer->arguments.collective;
  options.gradient_bytes = 2 * sizeof *trainer->sums;
  void* memory = NULL;
  if (lmdbio_sync_open_mpi(MPI_COMM_WORLD, &options, &trainer->sync) != LMDBIO_OK ||
      lmdbio_sync_place(trainer->sync, 2 * sizeof *trainer->sums, &memory) != LMDBIO_OK) {
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
  options.global_batch_size = trainer->arguments.batch_size;
  options.order = LMDBIO_ORDER_SHUFFLE;
  options.tail = LMDBIO_TAIL_SHORT; /* so that an epoch's loss is that of each record, once */
  options.seed = trainer->arguments.seed;
  if (trainer->now.epoch_count > 0) options.state = trainer->now.state;
  if (lmdbio_open_mpi(MPI_COMM_WORLD, trainer->arguments.train_path, &options, &trainer->loader) !=
      LMDBIO_OK) {
    fail(trainer, "%s", lmdbio_message(trainer->loader));
  }
  return agree(trainer) && open_sync(trainer);
}

/* --- Training ------------------------------------------------------------------------------- */

static void add_batch(struct trainer* trainer, const lmdbio_batch* batch) {
  struct batch_sums* sums = &trainer->sums[trainer->turn];
  for (size_t i = 0; i < batch->record_count; ++i) {
    struct digit digit;
    if (!take_digit(trainer, trainer->arguments.train_path, &batch->records[i], &digit)) return;
    sums->loss +=
        network_add_gradient(&trainer->now.weights, &digit, &sums->gradient, finish_layer, trainer);
  }
}

/* Collective. Trains one epoch.
 * out_loss  the mean loss of all records, each computed with the weights before its batch */
static bool train_epoch(struct trainer* trainer, double* out_loss) {
  double loss = 0, record_count = 0;
  for (bool is_over = false; !is_over;) {
    struct batch_sums* sums = &trainer->sums[trainer->turn];
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
    trainer->step_rate = trainer->arguments.learning_rate / batch_count;
    loss += sums->loss;
    record_count += batch_count;
    is_over = batch->ends_epoch != 0;
  }
  finish_layers(trainer); /* for the test, and for the checkpoint */
  *out_loss = loss / record_count;
  if (!isfinite(*out_loss)) fail(trainer, "the loss is not finite: lower the --learning-rate");
  ++trainer->now.epoch_count;
  return agree(trainer);
}

/* Collective. The share of test records with a correct label. */
static double test_accuracy(const struct trainer* trainer) {
  double sums[2] = {0, (double)trainer->test_count};
  for (uint64_t i = 0; i < trainer->test_count; ++i) {
    const struct digit* digit = &trainer->test_digits[i];
    sums[0] += network_guess(&trainer->now.weights, digit) == digit->label;
  }
  MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return sums[0] / sums[1];
}

/* Called on rank 0. Its state serves all ranks, because their streams are at the same position. */
static void save(struct trainer* trainer) {
  const char* state = NULL;
  if (lmdbio_save(trainer->loader, &state) != LMDBIO_OK) {
    fail(trainer, "%s", lmdbio_message(trainer->loader));
    return;
  }
  struct checkpoint* now = &trainer->now;
  memset(now->state, 0, sizeof now->state);
  memcpy(now->state, state, strnlen(state, sizeof now->state - 1)); /* it has less than 1 kB */
  const char* flaw = checkpoint_write(trainer->arguments.checkpoint_path, now);
  if (flaw != NULL)
    fail(trainer, "%s: cannot be written: %s", trainer->arguments.checkpoint_path, flaw);
}

/* Prints an epoch only after its checkpoint was written. */
static void report(struct trainer* trainer, double loss, double accuracy) {
  if (trainer->arguments.checkpoint_path != NULL) save(trainer);
  if (trainer->failure[0] != '\0') return;
  printf("epoch %llu: loss %.9f, test accuracy %.1f %%\n",
         (unsigned long long)trainer->now.epoch_count, loss, 100 * accuracy);
  if (fflush(stdout) != 0) fail(trainer, "standard output: %s", strerror(errno));
}

/* Collective. */
static bool train(struct trainer* trainer) {
  const uint64_t end = trainer->arguments.stop_after > 0 &&
                               trainer->arguments.stop_after < trainer->arguments.epoch_count
                           ? trainer->arguments.stop_after
                           : trainer->arguments.epoch_count;
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
  for (int part = 0; part < PART_COUNT; ++part) (void)lmdbio_sync_op_close(trainer->ops[part]);
  close_sync(trainer);
  (void)lmdbio_close(trainer->loader); /* refuses only what is no handle */
  free(trainer->test_digits);
  return is_done;
}

int main(int argc, char** argv) {
  static struct trainer trainer = {
      .arguments = {.epoch_count = 30, .batch_size = 64, .learning_rate = 0.1}};
  parse_options(&trainer, argc, argv);
  /* lmdbio reads and synchronises in its own threads, which call MPI only if requested */
  const bool is_mpi_collective =
      trainer.arguments.collective != NULL && strcmp(trainer.arguments.collective, "mpi") == 0;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, is_mpi_collective ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED,
                  &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &trainer.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &trainer.rank_count);
  int exit_code = 0;
  if (trainer.arguments.wants_help) {
    if (trainer.rank == 0) fputs(kHelp, stdout);
  } else if (!agree(&trainer)) {
    exit_code = 2;
  } else if (!run(&trainer)) {
    exit_code = 1;
  }
  MPI_Finalize();
  return exit_code;
}
