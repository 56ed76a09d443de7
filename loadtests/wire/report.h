/* Report of a run: totals of both sides, faults, and the line of JSON. */
#ifndef REPORT_H
#define REPORT_H

#include <stdbool.h>

#include "process.h"

struct measured {
    struct cpu cpu_before, cpu_after;
    uint64_t rss_before, rss_peak, pss_start, pss_before, pss_peak, pss_after; /* KiB; pss_start: before connecting */
    int sender_pid, receiver_pid;                                   /* with --place */
};

void report(const struct measured *m);

#endif
