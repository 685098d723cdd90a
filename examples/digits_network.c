#include "examples/digits_network.h"

#include <math.h>
#include <string.h>

static const double kMomentum = 0.9;

/* The activations of the network for one digit. */
struct activity {
  double pixels[PIXEL_COUNT];
  double hidden[HIDDEN_COUNT];
  double output[LABEL_COUNT];
};

/* Number `index` of the sequence of `seed`, from -1 to 1 (SplitMix64). */
static double draw(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  z ^= z >> 31;
  return (double)(z >> 11) / 4503599627370496.0 - 1; /* 2^52 */
}

void network_init(struct network* network, uint64_t seed) {
  memset(network, 0, sizeof *network);
  uint64_t index = 0;
  for (int h = 0; h < HIDDEN_COUNT; ++h) {
    for (int p = 0; p < PIXEL_COUNT; ++p) {
      network->hidden[h][p] = draw(seed, index++) * sqrt(6.0 / PIXEL_COUNT);
    }
  }
  for (int l = 0; l < LABEL_COUNT; ++l) {
    for (int h = 0; h < HIDDEN_COUNT; ++h) {
      network->output[l][h] = draw(seed, index++) * sqrt(6.0 / HIDDEN_COUNT);
    }
  }
}

double* network_part(struct network* network, enum network_part part, int* out_count) {
  switch (part) {
    case HIDDEN:
      *out_count = HIDDEN_COUNT * PIXEL_COUNT;
      return network->hidden[0];
    case HIDDEN_BIAS:
      *out_count = HIDDEN_COUNT;
      return network->hidden_bias;
    case OUTPUT:
      *out_count = LABEL_COUNT * HIDDEN_COUNT;
      return network->output[0];
    default:
      *out_count = LABEL_COUNT;
      return network->output_bias;
  }
}

static void forward(const struct network* network, const struct digit* digit,
                    layer_hook* before_layer, void* context, struct activity* out) {
  before_layer(context, 0);
  for (int p = 0; p < PIXEL_COUNT; ++p) out->pixels[p] = (double)digit->pixels[p] / PIXEL_MAX;
  for (int h = 0; h < HIDDEN_COUNT; ++h) {
    double sum = network->hidden_bias[h];
    for (int p = 0; p < PIXEL_COUNT; ++p) sum += network->hidden[h][p] * out->pixels[p];
    out->hidden[h] = sum > 0 ? sum : 0;
  }
  before_layer(context, 1);
  for (int l = 0; l < LABEL_COUNT; ++l) {
    out->output[l] = network->output_bias[l];
    for (int h = 0; h < HIDDEN_COUNT; ++h) {
      out->output[l] += network->output[l][h] * out->hidden[h];
    }
  }
}

static int largest(const double output[LABEL_COUNT]) {
  int label = 0;
  for (int l = 1; l < LABEL_COUNT; ++l) {
    if (output[l] > output[label]) label = l;
  }
  return label;
}

static void wait_for_nothing(void* context, int layer) {
  (void)context;
  (void)layer;
}

int network_guess(const struct network* network, const struct digit* digit) {
  struct activity activity;
  forward(network, digit, wait_for_nothing, NULL, &activity);
  return largest(activity.output);
}

/* Replaces the output by the gradient of the loss: softmax, minus one at the true label.
 * Returns  the loss */
static double output_slope(double output[LABEL_COUNT], int label) {
  const double max = output[largest(output)]; /* taken off, so that exp does not overflow */
  double sum = 0;
  for (int l = 0; l < LABEL_COUNT; ++l) sum += exp(output[l] - max);
  const double loss = log(sum) + max - output[label];
  for (int l = 0; l < LABEL_COUNT; ++l) output[l] = exp(output[l] - max) / sum;
  output[label] -= 1;
  return loss;
}

double network_add_gradient(const struct network* network, const struct digit* digit,
                            struct network* gradient, layer_hook* before_layer, void* context) {
  struct activity activity;
  forward(network, digit, before_layer, context, &activity);
  const double loss = output_slope(activity.output, digit->label);
  const double* slope = activity.output;
  for (int l = 0; l < LABEL_COUNT; ++l) {
    gradient->output_bias[l] += slope[l];
    for (int h = 0; h < HIDDEN_COUNT; ++h) gradient->output[l][h] += slope[l] * activity.hidden[h];
  }
  for (int h = 0; h < HIDDEN_COUNT; ++h) {
    if (activity.hidden[h] <= 0) continue;
    double sum = 0;
    for (int l = 0; l < LABEL_COUNT; ++l) sum += slope[l] * network->output[l][h];
    gradient->hidden_bias[h] += sum;
    for (int p = 0; p < PIXEL_COUNT; ++p) gradient->hidden[h][p] += sum * activity.pixels[p];
  }
  return loss;
}

void network_step(struct network* network, struct network* velocity, struct network* gradient,
                  enum network_part part, double rate) {
  int count = 0;
  double* weights = network_part(network, part, &count);
  double* speeds = network_part(velocity, part, &count);
  const double* slopes = network_part(gradient, part, &count);
  for (int i = 0; i < count; ++i) {
    speeds[i] = kMomentum * speeds[i] - rate * slopes[i];
    weights[i] += speeds[i];
  }
}
