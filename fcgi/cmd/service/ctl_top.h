/* `infcgi ctl top`. Threads: main's. */
#ifndef INFCGI_CMD_SERVICE_CTL_TOP_H
#define INFCGI_CMD_SERVICE_CTL_TOP_H

/* Draws until the user presses q or the server stops. Prints one picture if no terminal is attached. Returns the exit
 * status. */
int ctl_top(const char *socket);

#endif
