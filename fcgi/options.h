/* The option table: one row an option, of which parsing, bounds, environment variables, configuration file keys,
 * --help, docs/ops/options.md, the man page and completion are made. Threads: constant. */
#ifndef INFCGI_FCGI_OPTIONS_H
#define INFCGI_FCGI_OPTIONS_H

#include "engine/base/names.h"
#include "fcgi/conf.h"

enum option_kind {
    OPTION_TEXT,
    OPTION_FILE, /* a path */
    OPTION_INTEGER,
    OPTION_REAL,
    OPTION_FLAG, /* "on" or "off" */
    OPTION_LIST  /* integers, apart by commas or by giving the option again */
};

struct option {
    const char *name;  /* --name, [file] name, INFCGI_NAME */
    const char *brief; /* "-m", or NULL */
    enum option_kind
        kind; /* what stands at the offset: const char * for the first two, int64_t, double, bool, struct conf_list */
    unsigned commands;    /* that take it: bits of enum conf_command; two rows of a name have none in common */
    size_t offset;        /* in struct conf */
    const char *help;     /* what it does, with the unit */
    const char *fallback; /* when it is not given, as one would give it; NULL: nothing, off */
    double min, max;      /* of numbers */
    names_fn words;       /* OPTIONAL: what may be given; for a file: what may be given in place of one */
    /* OPTIONAL: whether a text is one, where more than `words` may be given; `what` names it. ERR_CONFIG. */
    enum err (*check)(const char *value, const char *what, struct err_info *info);
    unsigned required_by; /* commands that cannot do without it */
    unsigned operand_of;  /* commands that take it without its name too; several in the order of the table */
    bool may_be_empty;    /* a text of no bytes means what it says */
    bool is_live; /* SIGHUP changes it: a number, a flag or one of `words`, which is looked at anew each time it is used */
    const char *nothing; /* OPTIONAL: of a text, what asks for nothing that a back end without the option does not do */
};

enum { OPTION_MAX = CONF_MAX_OPTIONS }; /* rows */

/* The i-th row; NULL beyond the last. */
const struct option *option_at(int i);

int option_index(const struct option *o);

/* The row of that name, NULL when there is none; of two that of `command`. */
const struct option *option_find(const char *name, size_t n, enum conf_command command);

/* Has the back end of that name it, or one of several; yes, if there is none of the name. */
bool option_is_for(const struct option *o, const char *backend);

/* The name of the first back end that has the option. Every option has one. */
const char *option_backend(const struct option *o);

/* Writes what stands for the value: "FILE", "N", "" for a flag. */
const char *option_value_name(const struct option *o);

#endif
