/* Text files of lines `name = value` under headings `[section]`, with comment lines that begin with `#` or `;`: what
 * --config and --tenants have in common. What names and sections mean is their readers'. Threads: pure functions on the
 * caller's text. */
#ifndef INFCGI_FCGI_INI_H
#define INFCGI_FCGI_INI_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

struct ini_line {
    int number;    /* from 1 */
    char *section; /* the heading, when the line is one; else NULL, as the other two are of a heading */
    char *name;    /* without white space around it */
    char *value;   /* likewise */
};

/* Appends the file at path, which the option `what` names, to `file`. ERR_CONFIG: it cannot be read, or has more than limit_bytes, and
 * info names option and file. ERR_NOMEM. */
MUST_CHECK enum err ini_load(const char *what, const char *path, size_t limit_bytes, struct buf *file,
                             struct err_info *info);

/* Cuts `file`, whole and NUL-terminated, in place and calls take for each line that says something; its texts stay the
 * file's. what: how errors begin; path: the file's, for them. ERR_CONFIG: a NUL byte, or a line that is neither; or
 * take's. */
MUST_CHECK enum err ini_read(struct buf *file, const char *what, const char *path,
                             enum err (*take)(void *arg, const struct ini_line *line, struct err_info *info), void *arg,
                             struct err_info *info);

#endif
