/* What went wrong, from either thread. A fault makes the exit status 1; a fatal one ends the run. */
#ifndef FAULT_H
#define FAULT_H

#include <stdbool.h>

void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
void fatal(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool faulty(void);  /* any fault so far */
bool stopped(void); /* a fatal one */

#endif
