/* digits_network.h - a network that reads digits: 64 pixels, 64 hidden units (ReLU), 10 labels
 * (softmax, cross entropy); trained by gradient descent with momentum.
 *
 * All in double: then the order in which ranks add up gradients hardly shows in a loss curve.
 */
#ifndef EXAMPLES_DIGITS_NETWORK_H_
#define EXAMPLES_DIGITS_NETWORK_H_

#include <stdint.h>

#include "examples/digits_datum.h"

enum { HIDDEN_COUNT = 64 };

/* Doubles only. A gradient and a velocity have the same shape. */
struct network {
  double hidden[HIDDEN_COUNT][PIXEL_COUNT];
  double hidden_bias[HIDDEN_COUNT];
  double output[LABEL_COUNT][HIDDEN_COUNT];
  double output_bias[LABEL_COUNT];
};

/* Weights that depend on the seed alone: every rank draws the same. */
void network_init(struct network* network, uint64_t seed);

/* Adds the gradient of the digit's loss to *gradient.
 * Returns  the loss */
double network_add_gradient(const struct network* network, const struct digit* digit,
                            struct network* gradient);

/* The label that the network takes the digit for. */
int network_guess(const struct network* network, const struct digit* digit);

/* A step down the gradient.
 * rate  the learning rate, divided by the number of records whose gradients were added up */
void network_step(struct network* network, struct network* velocity, const struct network* gradient,
                  double rate);

#endif /* EXAMPLES_DIGITS_NETWORK_H_ */
