#include "histogram.h"

static unsigned bucket_of(uint64_t value) {
    if (value < 2u << HISTOGRAM_SUB_BITS) return (unsigned)value;
    unsigned shift = 63u - (unsigned)__builtin_clzll(value) - HISTOGRAM_SUB_BITS;
    return (shift << HISTOGRAM_SUB_BITS) + (unsigned)(value >> shift);
}

static uint64_t value_of(unsigned bucket) { /* largest value in the bucket */
    if (bucket < 2u << HISTOGRAM_SUB_BITS) return bucket;
    unsigned shift = (bucket >> HISTOGRAM_SUB_BITS) - 1;
    uint64_t mantissa = bucket - ((uint64_t)shift << HISTOGRAM_SUB_BITS);
    return ((mantissa + 1) << shift) - 1;
}

void histogram_add(struct histogram *h, uint64_t nanoseconds) {
    h->counts[bucket_of(nanoseconds)]++;
    h->total++;
    if (nanoseconds > h->largest) h->largest = nanoseconds;
}

uint64_t histogram_at(const struct histogram *h, double share) {
    uint64_t wanted = (uint64_t)((double)h->total * share), seen = 0;
    if (h->total == 0) return 0;
    if (wanted >= h->total) wanted = h->total - 1;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->counts[i];
        if (seen > wanted) return value_of(i) < h->largest ? value_of(i) : h->largest;
    }
    return h->largest;
}
