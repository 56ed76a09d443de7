/* Subset of the AMQP 1.0 encoding for a load generator: write performatives into a buffer with
 * enough room, and read the positional fields of one with bounds checks. */
#ifndef AMQP_H
#define AMQP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum performative {
    OPEN = 0x10, BEGIN = 0x11, ATTACH = 0x12, FLOW = 0x13, TRANSFER = 0x14,
    DISPOSITION = 0x15, DETACH = 0x16, END = 0x17, CLOSE = 0x18,
};
enum sasl { MECHANISMS = 0x40, INIT = 0x41, CHALLENGE = 0x42, RESPONSE = 0x43, OUTCOME = 0x44 };
enum outcome { ACCEPTED = 0x24, REJECTED = 0x25, RELEASED = 0x26, MODIFIED = 0x27 };
enum terminus { SOURCE = 0x28, TARGET = 0x29 };
enum { ERROR = 0x1d, PROPERTIES_SECTION = 0x73, DATA_SECTION = 0x75, FIRST_SECTION = 0x70, FRAME_HEADER = 8, MIN_MAX_FRAME = 512 };

static inline void put32(uint8_t *at, uint32_t value) {
    value = __builtin_bswap32(value);
    __builtin_memcpy(at, &value, 4);
}
static inline uint32_t get32(const uint8_t *at) {
    uint32_t value;
    __builtin_memcpy(&value, at, 4);
    return __builtin_bswap32(value);
}

struct bytes { const uint8_t *at; size_t length; };

/* ---- writing: `at` moves forward; the caller provides the room ------------ */
struct writer { uint8_t *at, *frame; uint32_t fields; };

void frame_begin(struct writer *w, enum performative code); /* channel 0 */
void sasl_begin(struct writer *w, enum sasl code);          /* a SASL frame; frame_end ends it too */
void frame_end(struct writer *w);                           /* patches sizes and the field count */
void put_null(struct writer *w);
void put_bool(struct writer *w, bool value);
void put_ubyte(struct writer *w, uint8_t value);
void put_ushort(struct writer *w, uint16_t value);
void put_uint(struct writer *w, uint32_t value);
void put_string(struct writer *w, const char *text); /* at most 255 bytes */
void put_symbol(struct writer *w, const char *text); /* at most 255 bytes, like binary values */
void put_binary(struct writer *w, struct bytes value);
void put_terminus(struct writer *w, enum terminus kind, const char *address); /* NULL: no address */
void put_dynamic_source(struct writer *w);
void put_properties(struct writer *w, const char *to, const char *reply_to); /* a message section; NULL: no reply-to */
void put_data(struct writer *w, struct bytes body);                          /* a message section */
void put_outcome(struct writer *w, enum outcome outcome);
void put_encoded(struct writer *w, struct bytes value); /* an encoded value; null if empty */

/* ---- reading --------------------------------------------------------------- */
struct cursor { const uint8_t *at, *end; uint32_t left; bool bad; };

/* Open a whole frame of `size` bytes. Returns the performative's code, 0 for an empty frame (a
 * heartbeat), -1 for a malformed or non-AMQP frame. `fields` then yields the performative's
 * fields in order; `payload` is the rest of the frame. Both borrow `frame`. */
int frame_open(const uint8_t *frame, uint32_t size, struct cursor *fields, struct bytes *payload);

/* Open a whole SASL frame. Returns the performative's code, -1 for a malformed or other frame. */
int sasl_open(const uint8_t *frame, uint32_t size, struct cursor *fields);

/* Read the next field. `otherwise`: result for a null field or past the end of the list. */
uint32_t field_uint(struct cursor *c, uint32_t otherwise);
bool field_bool(struct cursor *c, bool otherwise);
bool field_optional_uint(struct cursor *c, uint32_t *value);
/* Read the next, described field. Returns its descriptor, 0 if null; `inside` borrows the value's bytes. */
uint8_t field_described(struct cursor *c, struct bytes *inside);
struct bytes field_encoded(struct cursor *c); /* the whole encoded value, borrowed; empty if null */
struct bytes field_text(struct cursor *c);    /* the octets of a string, symbol or binary, borrowed; empty if null */
bool field_list(struct cursor *c, struct cursor *inside); /* a described list, such as a terminus; false if null */
void field_skip(struct cursor *c, unsigned fields);

/* Return the size of the value at `at` in bytes; 0 if it does not end before `end`. */
size_t value_size(const uint8_t *at, const uint8_t *end);

/* Find the body in an encoded message: skip sections up to the first data section. Returns 1 and
 * sets `start` (bytes before the body) and `length`; 0 if more bytes are needed to decide; -1 if
 * there is no data section. */
int find_body(const uint8_t *message, size_t have, size_t *start, uint32_t *length);

/* Set `fields` to the fields of the message's properties section. False: there is none. */
bool find_properties(struct bytes message, struct cursor *fields);

#endif
