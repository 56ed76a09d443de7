/* Faults reported by either thread. A fault sets exit status 1; a fatal fault ends the run. */
#ifndef FAULT_H
#define FAULT_H

#include <stdbool.h>

void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
void fatal(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool faulty(void);  /* any fault so far */
bool stopped(void); /* a fatal fault so far */

#endif
