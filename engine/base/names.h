/* Names of a table's entries by index: to find an entry, for messages and for help. Threads: as the tables, which are
 * constant. */
#ifndef INFCGI_BASE_NAMES_H
#define INFCGI_BASE_NAMES_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

/* Returns the i-th name of a table, static; NULL after the last. */
typedef const char *(*names_fn)(int i);

/* Returns the index of a name, or -1. */
int names_find(names_fn names, const char *name);

/* Appends "cpu, ref"; the caller checks buf_ok. */
void names_list(names_fn names, struct buf *out);

/* Returns the index of `wanted` in *out, 0 for NULL. Fails as names_refuse does. */
MUST_CHECK enum err names_choose(names_fn names, const char *what, const char *wanted, int *out, struct err_info *info);

/* Returns ERR_CONFIG with "WHAT: expected one of cpu, ref; found 'FOUND'". */
enum err names_refuse(names_fn names, const char *what, const char *found, struct err_info *info);

#endif
