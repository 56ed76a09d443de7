/* Mutations for tests/fuzz/workers.py. The input is a sequence of slices of equal size. The first slice has the decisions
 * about the whole case, each further slice the decisions about one event. A mutation changes, adds, removes, copies or
 * exchanges whole slices, or changes octets within one of them, so that later events keep their octets. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { SLICE = 48, LONGEST_RUN = 8 };

/* Size of a slice in octets. tests/fuzz/workers.py reads it, since it must divide the input in the same way. */
const int slice_octets = SLICE;

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

static uint32_t next(uint32_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Return a random number below `n`; `n` must not be 0. */
static size_t below(uint32_t *state, size_t n) {
    return next(state) % n;
}

static void change(uint8_t *slice) {
    uint8_t changed[SLICE];
    memcpy(changed, slice, SLICE);
    memcpy(slice, changed, LLVMFuzzerMutate(changed, SLICE, SLICE));
}

/* Make room for `run` slices at index `at`. */
static void open_gap(uint8_t *data, size_t count, size_t at, size_t run) {
    memmove(data + (at + run) * SLICE, data + at * SLICE, (count - at) * SLICE);
}

static size_t insert_random(uint8_t *data, size_t count, uint32_t *state) {
    size_t at = 1 + below(state, count);
    open_gap(data, count, at, 1);
    for (size_t i = 0; i < SLICE; i++)
        data[at * SLICE + i] = (uint8_t)(next(state) >> 8);
    return count + 1;
}

static size_t insert_copy(uint8_t *data, size_t count, size_t run, uint32_t *state) {
    uint8_t copy[LONGEST_RUN * SLICE];
    size_t from = 1 + below(state, count - run);
    size_t at = 1 + below(state, count);
    memcpy(copy, data + from * SLICE, run * SLICE);
    open_gap(data, count, at, run);
    memcpy(data + at * SLICE, copy, run * SLICE);
    return count + run;
}

static size_t remove_run(uint8_t *data, size_t count, size_t run, uint32_t *state) {
    size_t at = 1 + below(state, count - run);
    memmove(data + at * SLICE, data + (at + run) * SLICE, (count - at - run) * SLICE);
    return count - run;
}

static void exchange(uint8_t *data, size_t count, uint32_t *state) {
    uint8_t kept[SLICE];
    uint8_t *a = data + (1 + below(state, count - 1)) * SLICE;
    uint8_t *b = data + (1 + below(state, count - 1)) * SLICE;
    memcpy(kept, a, SLICE);
    memmove(a, b, SLICE);
    memcpy(b, kept, SLICE);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned int seed) {
    uint32_t state = seed ? seed : 1;
    size_t count = size / SLICE, limit = most / SLICE;
    if (limit < 2)
        return 0;
    if (count == 0) {
        memset(data, 0, SLICE);
        count = 1;
    }
    size_t run = count > 1 ? 1 + below(&state, count - 1 < LONGEST_RUN ? count - 1 : LONGEST_RUN) : 0;
    switch (below(&state, 10)) {
    case 0:
        change(data);
        break;
    case 1:
    case 2:
        if (count < limit)
            count = insert_random(data, count, &state);
        break;
    case 3:
        if (run && count + run <= limit)
            count = insert_copy(data, count, run, &state);
        break;
    case 4:
        if (run)
            count = remove_run(data, count, run, &state);
        break;
    case 5:
        if (count > 2)
            exchange(data, count, &state);
        break;
    default:
        change(data + below(&state, count) * SLICE);
    }
    return count * SLICE;
}

/* Combine the beginning of one case with the end of another. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, uint8_t *out,
                                 size_t most, unsigned int seed) {
    uint32_t state = seed ? seed : 1;
    size_t a_count = a_size / SLICE, b_count = b_size / SLICE, limit = most / SLICE;
    if (a_count < 2 || b_count < 2 || limit < 2)
        return 0;
    size_t head = 1 + below(&state, a_count);
    size_t from = 1 + below(&state, b_count - 1);
    if (head > limit)
        head = limit;
    size_t tail = b_count - from < limit - head ? b_count - from : limit - head;
    memcpy(out, a, head * SLICE);
    memcpy(out + head * SLICE, b + from * SLICE, tail * SLICE);
    return (head + tail) * SLICE;
}
