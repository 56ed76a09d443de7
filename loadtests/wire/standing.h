/* --standing: clients that stay connected, and connect again at once if they lose their connections. Reports the time
 * at which all have their links. */
#ifndef STANDING_H
#define STANDING_H

void standing_run(void); /* until the end of standard input */

#endif
