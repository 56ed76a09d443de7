/* Clients that repeat an operation (`--operation`); reports their rate and the CPU of each process of the router. */
#ifndef OPERATIONS_H
#define OPERATIONS_H

void operations_run(void);

#endif
