/* The event loop of one side: all senders in one thread, all receivers in another, so that
 * hundreds of connections cost two threads and neither side's work delays the other's clock. */
#ifndef SIDE_H
#define SIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "connection.h"

#define NEVER UINT64_MAX

struct side {
    const char *name;
    int epoll, wake;
    struct connection **all;
    unsigned count;
    /* Bytes that connection `i` may read now; 0: not before the next tick says so. */
    size_t (*allowance)(struct side *s, unsigned i, uint64_t now);
    /* Connection `i` has read or become writable: act on it and flush. */
    void (*served)(struct side *s, unsigned i, uint64_t now);
    /* Work that is due without input; returns when to come again (ns; 0: at once, NEVER). */
    uint64_t (*tick)(struct side *s, uint64_t now);
    bool (*finished)(struct side *s, uint64_t now);
};

void side_open(struct side *s, const char *name, struct connection **all, unsigned count);
void side_wake(struct side *s);                                          /* from another thread */
void side_interest(struct side *s, struct connection *c, bool reading);  /* writing follows from what is pending */
void side_run(struct side *s);
void side_close(struct side *s); /* once no thread runs or wakes it */

#endif
