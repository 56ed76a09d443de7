#include "fault.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

enum { SHOWN = 20 /* lines; further faults are only counted */, LINE = 512 };

static atomic_int faults;
static atomic_bool stop;

static void say(const char *format, va_list arguments) {
    int number = atomic_fetch_add(&faults, 1);
    if (number >= SHOWN) return;
    char line[LINE];
    vsnprintf(line, sizeof line, format, arguments);
    fprintf(stderr, "amqpload: %s\n", line);
    if (number == SHOWN - 1) fprintf(stderr, "amqpload: further faults are counted, not shown\n");
}

void fault(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
}

void fatal(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
    atomic_store(&stop, true);
}

bool faulty(void) { return atomic_load(&faults) > 0; }
bool stopped(void) { return atomic_load(&stop); }
