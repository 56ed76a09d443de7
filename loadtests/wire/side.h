/* Event loop of one side. All senders share one thread and all receivers another, so that hundreds
 * of connections need two threads only, and neither side's work delays the other's clock. */
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
    /* Return the bytes that connection `i` may read now; 0: none until the next tick permits it. */
    size_t (*allowance)(struct side *s, unsigned i, uint64_t now);
    /* Act on connection `i`, which has read or become writable, and flush it. */
    void (*served)(struct side *s, unsigned i, uint64_t now);
    /* Do work that needs no input; return the time of the next call (ns; 0: at once, NEVER). */
    uint64_t (*tick)(struct side *s, uint64_t now);
    bool (*finished)(struct side *s, uint64_t now);
};

void side_open(struct side *s, const char *name, struct connection **all, unsigned count);
void side_wake(struct side *s);                                          /* from another thread */
void side_interest(struct side *s, struct connection *c, bool reading);  /* writing: if output is pending */
void side_run(struct side *s);
void side_close(struct side *s); /* only when no thread runs or wakes it */

#endif
