#include "examples/digits_datum.h"

#include <stdbool.h>
#include <string.h>

/* A field is a tag (field number * 8 + wire type), followed by data of that wire type. */
enum { WIRE_VARINT = 0, WIRE_64_BITS = 1, WIRE_BYTES = 2, WIRE_32_BITS = 5 };
enum { TAG_DATA = 4 * 8 + WIRE_BYTES, TAG_LABEL = 5 * 8 + WIRE_VARINT };

struct cursor {
  const uint8_t* at;
  const uint8_t* end;
};

/* Seven bits in each byte, the lowest first. The high bit is set if another byte follows. */
static bool take_varint(struct cursor* cursor, uint64_t* number) {
  *number = 0;
  for (int shift = 0; shift < 64 && cursor->at < cursor->end; shift += 7) {
    const uint8_t byte = *cursor->at++;
    *number |= (uint64_t)(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

static bool take_bytes(struct cursor* cursor, uint64_t size, const uint8_t** bytes) {
  if (size > (uint64_t)(cursor->end - cursor->at)) return false;
  *bytes = cursor->at;
  cursor->at += size;
  return true;
}

struct field {
  uint64_t tag;
  uint64_t number; /* of a varint; else the size of bytes */
  const uint8_t* bytes;
};

static bool take_field(struct cursor* cursor, struct field* field) {
  if (!take_varint(cursor, &field->tag)) return false;
  switch (field->tag % 8) {
    case WIRE_VARINT:
      return take_varint(cursor, &field->number);
    case WIRE_BYTES:
      return take_varint(cursor, &field->number) &&
             take_bytes(cursor, field->number, &field->bytes);
    case WIRE_64_BITS:
      return take_bytes(cursor, 8, &field->bytes);
    case WIRE_32_BITS:
      return take_bytes(cursor, 4, &field->bytes);
    default:
      return false;
  }
}

const char* digit_parse(const void* datum, size_t size, struct digit* out_digit) {
  struct cursor rest = {datum, (const uint8_t*)datum + size};
  struct field data = {0}, label = {.number = LABEL_COUNT};
  while (rest.at < rest.end) {
    struct field field = {0};
    if (!take_field(&rest, &field)) return "is not a Datum, or is truncated";
    if (field.tag == TAG_DATA) data = field;
    if (field.tag == TAG_LABEL) label = field;
  }
  if (data.number != PIXEL_COUNT) return "has no 64 bytes of data";
  if (label.number >= LABEL_COUNT) return "has no label from 0 to 9";
  memcpy(out_digit->pixels, data.bytes, PIXEL_COUNT);
  out_digit->label = (uint8_t)label.number;
  for (int i = 0; i < PIXEL_COUNT; ++i) {
    if (out_digit->pixels[i] > PIXEL_MAX) return "has a pixel above 16";
  }
  return NULL;
}
