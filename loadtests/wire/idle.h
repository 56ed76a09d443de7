/* --idle: open many connections, each with a session and two links, and report their cost. */
#ifndef IDLE_H
#define IDLE_H

void idle_run(void);

#endif
