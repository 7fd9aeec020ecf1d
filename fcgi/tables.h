/* All tables of the program; main passes them to commands. Threads: constant. */
#ifndef INFCGI_FCGI_TABLES_H
#define INFCGI_FCGI_TABLES_H

#include "fcgi/cmd/cmd.h"

struct program tables_all(void);

#endif
