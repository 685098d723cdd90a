/* digits_network.h - a network that recognises digits: 64 pixels, 64 hidden units (ReLU), 10 labels
 * (softmax, cross entropy). It is trained by gradient descent with momentum.
 *
 * All numbers are double, so the order in which ranks add gradients hardly changes a loss curve.
 */
#ifndef LMDBIO_EXAMPLES_DIGITS_NETWORK_H_
#define LMDBIO_EXAMPLES_DIGITS_NETWORK_H_

#include <stdint.h>

#include "examples/digits_datum.h"

enum { HIDDEN_COUNT = 64 };

/* Contains only doubles. A gradient and a velocity have the same shape. */
struct network {
  double hidden[HIDDEN_COUNT][PIXEL_COUNT];
  double hidden_bias[HIDDEN_COUNT];
  double output[LABEL_COUNT][HIDDEN_COUNT];
  double output_bias[LABEL_COUNT];
};

/* Sets weights that depend only on the seed, so all ranks draw the same. */
void network_init(struct network* network, uint64_t seed);

/* The parts of a network, and of its gradient, in the order in which a digit passes them. */
enum network_part { HIDDEN, HIDDEN_BIAS, OUTPUT, OUTPUT_BIAS, PART_COUNT };

/* The numbers of a part.
 * out_count  how many there are */
double* network_part(struct network* network, enum network_part part, int* out_count);

/* Called before a layer reads its weights: the hidden layer (0) or the output layer (1). */
typedef void layer_hook(void* context, int layer);

/* Adds the gradient of the loss for one digit to *gradient.
 * Returns  the loss */
double network_add_gradient(const struct network* network, const struct digit* digit,
                            struct network* gradient, layer_hook* before_layer, void* context);

/* The label that the network assigns to the digit. */
int network_guess(const struct network* network, const struct digit* digit);

/* One step of gradient descent, for one part.
 * rate  the learning rate, divided by the number of records in the sum of gradients */
void network_step(struct network* network, struct network* velocity, struct network* gradient,
                  enum network_part part, double rate);

#endif /* LMDBIO_EXAMPLES_DIGITS_NETWORK_H_ */
