/* Reads text files with `name = value` lines under `[section]` headings, as --config and --tenants use them. Comment
 * lines begin with `#` or `;`. The caller interprets names and sections. Threads: pure functions on the caller's
 * text. */
#ifndef INFCGI_FCGI_INI_H
#define INFCGI_FCGI_INI_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

struct ini_line {
    int number;    /* from 1 */
    char *section; /* of a heading line; else NULL, and NULL name and value belong to a heading */
    char *name;    /* without surrounding white space */
    char *value;   /* likewise */
};

struct ini_file {
    const char *what; /* the option that names the file, in error messages */
    const char *path;
    size_t limit_bytes;
    struct buf *text;
};

/* Appends the file to f->text. ERR_CONFIG: the file is unreadable or has more than limit_bytes; info names option and
 * file. ERR_NOMEM. */
MUST_CHECK enum err ini_load(const struct ini_file *f, struct err_info *info);

/* Splits the loaded text in place and calls take for each heading and `name = value` line. The texts belong to f->text.
 * ERR_CONFIG: a NUL byte, or a line of neither form. Returns take's error if take fails. */
MUST_CHECK enum err ini_read(const struct ini_file *f,
                             enum err (*take)(void *arg, const struct ini_line *line, struct err_info *info), void *arg,
                             struct err_info *info);

#endif
