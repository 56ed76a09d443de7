#include "bitmap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_BITS = 64, FIRST_WORDS = 1024 };

static void grow(struct bitmap *set, size_t words) {
    size_t capacity = set->capacity ? set->capacity : FIRST_WORDS;
    while (capacity < words) capacity *= 2;
    uint64_t *more = realloc(set->words, capacity * sizeof *more);
    if (!more) {
        fprintf(stderr, "amqpload: out of memory for a set of %zu messages\n", capacity * WORD_BITS);
        exit(2);
    }
    memset(more + set->capacity, 0, (capacity - set->capacity) * sizeof *more);
    set->words = more;
    set->capacity = capacity;
}

bool bitmap_add(struct bitmap *set, uint64_t member) {
    size_t word = member / WORD_BITS;
    uint64_t bit = 1ull << (member % WORD_BITS);
    if (word >= set->capacity) grow(set, word + 1);
    bool before = set->words[word] & bit;
    set->words[word] |= bit;
    return before;
}

uint64_t bitmap_count(const struct bitmap *set) {
    uint64_t members = 0;
    for (size_t i = 0; i < set->capacity; i++) members += (uint64_t)__builtin_popcountll(set->words[i]);
    return members;
}

uint64_t bitmap_missing(const struct bitmap *wanted, const struct bitmap *have) {
    uint64_t missing = 0;
    for (size_t i = 0; i < wanted->capacity; i++) {
        uint64_t present = i < have->capacity ? have->words[i] : 0;
        missing += (uint64_t)__builtin_popcountll(wanted->words[i] & ~present);
    }
    return missing;
}
