#include "amqp.h"

#include <string.h>

static void put8(struct writer *w, uint8_t value) { *w->at++ = value; }

void frame_begin(struct writer *w, enum performative code) {
    w->frame = w->at;
    w->fields = 0;
    put32(w->at + 4, 0x02000000); /* data offset 2 words, type AMQP, channel 0 */
    w->at += FRAME_HEADER;
    put8(w, 0x00), put8(w, 0x53), put8(w, (uint8_t)code), put8(w, 0xd0);
    w->at += 8; /* list32: size and count, patched at the end */
}

void sasl_begin(struct writer *w, enum sasl code) {
    frame_begin(w, (enum performative)code);
    w->frame[5] = 1; /* type */
}

void frame_end(struct writer *w) {
    uint8_t *list = w->frame + FRAME_HEADER + 4;
    put32(list, (uint32_t)(w->at - list - 4));
    put32(list + 4, w->fields);
    put32(w->frame, (uint32_t)(w->at - w->frame));
}

void put_null(struct writer *w) { put8(w, 0x40), w->fields++; }
void put_bool(struct writer *w, bool value) { put8(w, value ? 0x41 : 0x42), w->fields++; }
void put_ubyte(struct writer *w, uint8_t value) { put8(w, 0x50), put8(w, value), w->fields++; }

void put_ushort(struct writer *w, uint16_t value) {
    put8(w, 0x60), put8(w, (uint8_t)(value >> 8)), put8(w, (uint8_t)value), w->fields++;
}

void put_uint(struct writer *w, uint32_t value) {
    put8(w, 0x70);
    put32(w->at, value);
    w->at += 4, w->fields++;
}

static void put_octets(struct writer *w, uint8_t code, const void *octets, size_t length) {
    put8(w, code), put8(w, (uint8_t)length);
    memcpy(w->at, octets, length);
    w->at += length;
}

static void put_text(struct writer *w, const char *text) { put_octets(w, 0xa1, text, strlen(text)); }

void put_string(struct writer *w, const char *text) { put_text(w, text), w->fields++; }
void put_symbol(struct writer *w, const char *text) { put_octets(w, 0xa3, text, strlen(text)), w->fields++; }
void put_binary(struct writer *w, struct bytes value) { put_octets(w, 0xa0, value.at, value.length), w->fields++; }

void put_terminus(struct writer *w, enum terminus kind, const char *address) {
    put8(w, 0x00), put8(w, 0x53), put8(w, (uint8_t)kind), put8(w, 0xd0);
    uint8_t *list = w->at;
    w->at += 8;
    if (address) put_text(w, address);
    else put8(w, 0x40);
    put32(list, (uint32_t)(w->at - list - 4));
    put32(list + 4, 1);
    w->fields++;
}

void put_dynamic_source(struct writer *w) {
    static const uint8_t source[] = {0x00, 0x53, SOURCE, 0xc0, 6, 5, 0x40, 0x40, 0x40, 0x40, 0x41};
    put_encoded(w, (struct bytes){source, sizeof source});
}

void put_properties(struct writer *w, const char *to, const char *reply_to) {
    put8(w, 0x00), put8(w, 0x53), put8(w, PROPERTIES_SECTION), put8(w, 0xd0);
    uint8_t *list = w->at;
    w->at += 8;
    put8(w, 0x40), put8(w, 0x40); /* message-id, user-id */
    put_text(w, to);
    if (reply_to) {
        put8(w, 0x40); /* subject */
        put_text(w, reply_to);
    }
    put32(list, (uint32_t)(w->at - list - 4));
    put32(list + 4, reply_to ? 5 : 3);
}

void put_data(struct writer *w, struct bytes body) {
    put8(w, 0x00), put8(w, 0x53), put8(w, DATA_SECTION);
    put_octets(w, 0xa0, body.at, body.length);
}

void put_outcome(struct writer *w, enum outcome outcome) {
    put8(w, 0x00), put8(w, 0x53), put8(w, (uint8_t)outcome), put8(w, 0x45), w->fields++;
}

void put_encoded(struct writer *w, struct bytes value) {
    if (!value.length) {
        put_null(w);
        return;
    }
    memcpy(w->at, value.at, value.length);
    w->at += value.length;
    w->fields++;
}

/* The high nibble of a type code determines its width (AMQP 1.0, part 1, 1.2). */
size_t value_size(const uint8_t *at, const uint8_t *end) {
    static const uint8_t fixed[16] = {[4] = 1, [5] = 2, [6] = 3, [7] = 5, [8] = 9, [9] = 17};
    size_t left = (size_t)(end - at), size = 0;
    if (left == 0) return 0;
    uint8_t code = *at;
    if (code == 0) { /* described: a descriptor, then a value */
        size_t descriptor = value_size(at + 1, end);
        size_t value = descriptor ? value_size(at + 1 + descriptor, end) : 0;
        return value ? 1 + descriptor + value : 0;
    }
    if (fixed[code >> 4])
        size = fixed[code >> 4];
    else if ((code >> 4) == 0xa || (code >> 4) == 0xc || (code >> 4) == 0xe)
        size = left >= 2 ? 2u + at[1] : 0;
    else if ((code >> 4) == 0xb || (code >> 4) == 0xd || (code >> 4) == 0xf)
        size = left >= 5 ? 5u + (size_t)get32(at + 1) : 0;
    return size && size <= left ? size : 0;
}

/* Set `c` to the items of the list at `at`. False: not a valid list. */
static bool list_open(const uint8_t *at, const uint8_t *end, struct cursor *c) {
    size_t size = value_size(at, end);
    *c = (struct cursor){.at = at + size, .end = at + size};
    if (size == 0) return false;
    if (*at == 0x45) return true;
    if (*at == 0xc0 && size >= 3)
        c->left = at[2], c->at = at + 3;
    else if (*at == 0xd0 && size >= 9)
        c->left = get32(at + 5), c->at = at + 9;
    else
        return false;
    return true;
}

/* Open a frame of any type. */
static int body_open(const uint8_t *frame, uint32_t size, struct cursor *fields, struct bytes *payload) {
    uint32_t offset = 4u * frame[4];
    if (offset < FRAME_HEADER || offset > size) return -1;
    if (offset == size) return 0;
    const uint8_t *at = frame + offset, *end = frame + size;
    int code;
    if (size - offset >= 4 && at[0] == 0 && at[1] == 0x53)
        code = at[2], at += 3;
    else if (size - offset >= 11 && at[0] == 0 && at[1] == 0x80)
        code = at[9], at += 10;
    else
        return -1;
    if (!list_open(at, end, fields)) return -1;
    payload->at = fields->end;
    payload->length = (size_t)(end - fields->end);
    return code;
}

int frame_open(const uint8_t *frame, uint32_t size, struct cursor *fields, struct bytes *payload) {
    return frame[5] == 0 ? body_open(frame, size, fields, payload) : -1;
}

int sasl_open(const uint8_t *frame, uint32_t size, struct cursor *fields) {
    struct bytes payload = {0};
    return frame[5] == 1 ? body_open(frame, size, fields, &payload) : -1;
}

/* Read one field. Returns its bytes, borrowed; NULL if it is null, absent or malformed. */
static const uint8_t *take(struct cursor *c, size_t *size) {
    if (c->left == 0) return NULL;
    c->left--;
    const uint8_t *at = c->at;
    *size = value_size(at, c->end);
    if (*size == 0) {
        c->bad = true;
        c->left = 0;
        return NULL;
    }
    c->at += *size;
    return *at == 0x40 ? NULL : at;
}

bool field_optional_uint(struct cursor *c, uint32_t *value) {
    size_t size;
    const uint8_t *at = take(c, &size);
    if (!at) return false;
    switch (*at) {
    case 0x70: *value = get32(at + 1); return true;
    case 0x43: *value = 0; return true;
    case 0x52: case 0x50: *value = at[1]; return true;
    case 0x60: *value = (uint32_t)at[1] << 8 | at[2]; return true;
    }
    c->bad = true;
    return false;
}

uint32_t field_uint(struct cursor *c, uint32_t otherwise) {
    field_optional_uint(c, &otherwise);
    return otherwise;
}

bool field_bool(struct cursor *c, bool otherwise) {
    size_t size;
    const uint8_t *at = take(c, &size);
    if (!at) return otherwise;
    if (*at == 0x41 || *at == 0x42) return *at == 0x41;
    if (*at == 0x56) return at[1] != 0;
    c->bad = true;
    return otherwise;
}

uint8_t field_described(struct cursor *c, struct bytes *inside) {
    size_t size;
    const uint8_t *at = take(c, &size);
    *inside = (struct bytes){0};
    if (!at) return 0;
    if (*at == 0 && at[1] == 0x53) {
        *inside = (struct bytes){at + 3, size - 3};
        return at[2];
    }
    if (*at == 0 && at[1] == 0x80) {
        *inside = (struct bytes){at + 10, size - 10};
        return at[9];
    }
    c->bad = true;
    return 0;
}

struct bytes field_encoded(struct cursor *c) {
    size_t size;
    const uint8_t *at = take(c, &size);
    return at ? (struct bytes){at, size} : (struct bytes){0};
}

struct bytes field_text(struct cursor *c) {
    size_t size;
    const uint8_t *at = take(c, &size);
    if (!at) return (struct bytes){0};
    if ((*at >> 4) == 0xa) return (struct bytes){at + 2, size - 2};
    if ((*at >> 4) == 0xb) return (struct bytes){at + 5, size - 5};
    c->bad = true;
    return (struct bytes){0};
}

bool field_list(struct cursor *c, struct cursor *inside) {
    struct bytes list;
    return field_described(c, &list) && list_open(list.at, list.at + list.length, inside);
}

void field_skip(struct cursor *c, unsigned fields) {
    size_t size;
    while (fields--) take(c, &size);
}

int find_body(const uint8_t *message, size_t have, size_t *start, uint32_t *length) {
    const uint8_t *at = message, *end = message + have;
    for (;;) {
        if (end - at < 3) return 0;
        size_t descriptor = value_size(at + 1, end);
        if (at[0] != 0 || (at[1] != 0x53 && at[1] != 0x80)) return -1;
        if (!descriptor) return 0;
        uint8_t section = at[descriptor]; /* the last byte of the descriptor */
        const uint8_t *value = at + 1 + descriptor;
        if (value == end) return 0;
        if (section == DATA_SECTION) {
            size_t prefix = *value == 0xa0 ? 2 : *value == 0xb0 ? 5 : 0;
            if (!prefix) return -1;
            if ((size_t)(end - value) < prefix) return 0;
            *length = prefix == 2 ? value[1] : get32(value + 1);
            *start = (size_t)(value + prefix - message);
            return 1;
        }
        if (section < FIRST_SECTION || section > DATA_SECTION) return -1;
        size_t size = value_size(value, end);
        if (!size) return 0;
        at = value + size;
    }
}

bool find_properties(struct bytes message, struct cursor *fields) {
    const uint8_t *at = message.at, *end = message.at + message.length;
    for (size_t size; end - at >= 3 && at[0] == 0 && at[1] == 0x53 && (size = value_size(at, end)); at += size)
        if (at[2] == PROPERTIES_SECTION) return list_open(at + 3, at + size, fields);
    return false;
}
