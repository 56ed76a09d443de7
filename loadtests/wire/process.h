/* CPU and memory of the router's processes, from /proc: the given ones and all their descendants. */
#ifndef PROCESS_H
#define PROCESS_H

#include <stdint.h>

struct cpu { double user, system; /* seconds */ };
struct memory { uint64_t rss, pss; /* KiB; pss counts shared pages once */ };

void processes_find(void);           /* adds descendants to options.pids */
struct cpu process_cpu(int pid);      /* zero if it has exited */
struct cpu processes_cpu(void);
uint64_t processes_rss(void);        /* KiB; cheap */
uint64_t processes_pss(void);        /* KiB; expensive: walks the page tables */
int process_of_peer(int fd);         /* id of the process with the other end; 0: none */

#endif
