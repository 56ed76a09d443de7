/* --handshakes: measure full or resumed TLS handshakes, --opening at a time. */
#ifndef HANDSHAKES_H
#define HANDSHAKES_H

void handshakes_run(void);

#endif
