/* Latencies in log-linear buckets: exact below 128 ns, then within 1/64 (1.6 %) of the value. */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_SUB_BITS = 6, HISTOGRAM_BUCKETS = (64 - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS };

struct histogram { uint64_t counts[HISTOGRAM_BUCKETS], total, largest; };

void histogram_add(struct histogram *h, uint64_t nanoseconds);
/* Return the value (ns) below which `share` (0..1) of the samples lie; 0 if there are none. */
uint64_t histogram_at(const struct histogram *h, double share);

#endif
