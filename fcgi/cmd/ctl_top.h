/* `infcgi ctl top`. Threads: main's. */
#ifndef INFCGI_CMD_CTL_TOP_H
#define INFCGI_CMD_CTL_TOP_H

/* Draws until q is pressed, or the server is gone; where no person looks, one picture. Returns the exit status. */
int ctl_top(const char *socket);

#endif
