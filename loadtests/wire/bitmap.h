/* Growing set of small integers: numbers of one sender's settled, accepted or received messages. */
#ifndef BITMAP_H
#define BITMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bitmap { uint64_t *words; size_t capacity; /* words */ };

bool bitmap_add(struct bitmap *set, uint64_t member); /* true if it was in the set before */
uint64_t bitmap_count(const struct bitmap *set);
uint64_t bitmap_missing(const struct bitmap *wanted, const struct bitmap *have); /* |wanted \ have| */

#endif
