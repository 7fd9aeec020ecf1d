/* What an option is: a row of a table, from which parsing, bounds, environment variables, keys of the configuration file, --help,
 * docs/ops/options.md, the man page and completion are made. The table itself is fcgi/options.c. Threads: constant. */
#ifndef INFCGI_CONF_OPTION_H
#define INFCGI_CONF_OPTION_H

#include "engine/base/names.h"
#include "fcgi/conf/conf.h"

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
    bool
        is_live; /* SIGHUP changes it: a number, a flag or one of `words`, which is looked at anew each time it is used */
    const char *nothing; /* OPTIONAL: of a text, what asks for nothing that a back end without the option does not do */
};

/* A name that llama-server has for an option, and infcgi has not: `infcgi serve` accepts or rejects it on its command line, so
 * that users of llama-server change only the program's name. */
enum option_other_takes {
    OPTION_OTHER_NOTHING,
    OPTION_OTHER_VALUE,
    OPTION_OTHER_SWITCH /* on, off, auto, or nothing */
};

struct option_other {
    const char *name;              /* "--flash-attn", "-fa" */
    const char *same_as;           /* name of the row of struct option that it stands for; NULL: it has no effect .. */
    const char *hint;              /* .. or, if a hint is given, it is rejected with that hint */
    enum option_other_takes takes; /* the value of one without effect */
};

/* The options of a program. */
struct option_table {
    const struct option *rows;
    int n;                             /* CONF_MAX_OPTIONS at most */
    const struct option_other *others; /* the last has no name */
    /* Writes the names of the commands whose bits are set, "serve, generate", to to[0..cap), and returns to. */
    const char *(*name_commands)(unsigned commands, char *to, size_t cap);
    /* Does the back end of that name, or one of several ("ref:0-3,cpu"), have the option? True if no back end has the name. */
    bool (*is_for)(const struct option *o, const char *backend);
    /* Returns the name of the first back end that has the option. Every option has one. */
    const char *(*backend_of)(const struct option *o);
};

/* Returns the i-th row; NULL beyond the last. */
const struct option *option_at(const struct option_table *t, int i);

/* Returns the row of that name, or NULL. If two rows have it, the row of `command` is returned. */
const struct option *option_find(const struct option_table *t, const char *name, size_t n, enum conf_command command);

/* Returns the row of an argument of llama-server, "--name" or "--name=value", or NULL. */
const struct option_other *option_other_find(const struct option_table *t, const char *argument);

/* Returns a word for the value in help: "FILE", "N", "" for a flag. */
const char *option_value_name(const struct option *o);

#endif
