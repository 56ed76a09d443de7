/* --handshakes: TLS handshakes, full or resumed, so many at a time, and how long each takes. */
#ifndef HANDSHAKES_H
#define HANDSHAKES_H

void handshakes_run(void);

#endif
