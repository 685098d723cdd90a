/* digits_datum.h - reads a handwritten digit from Caffe's record. */
#ifndef LMDBIO_EXAMPLES_DIGITS_DATUM_H_
#define LMDBIO_EXAMPLES_DIGITS_DATUM_H_

#include <stddef.h>
#include <stdint.h>

enum { PIXEL_COUNT = 64, PIXEL_MAX = 16, LABEL_COUNT = 10 };

struct digit {
  uint8_t pixels[PIXEL_COUNT]; /* 8 rows of 8, from 0 (paper) to PIXEL_MAX (ink) */
  uint8_t label;               /* below LABEL_COUNT */
};

/* Reads a Datum in protobuf's wire format. Two of its fields are used
 * (tools/datum/caffe_datum.proto).
 * datum    [size] untrusted bytes; no byte beyond them is touched
 * Returns  NULL, or the reason of the failure, as "has no 64 bytes of data" */
const char* digit_parse(const void* datum, size_t size, struct digit* out_digit);

#endif /* LMDBIO_EXAMPLES_DIGITS_DATUM_H_ */
