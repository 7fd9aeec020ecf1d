/* An option: a table row that defines parsing, bounds, environment variable, configuration key, --help,
 * docs/ops/options.md, man page and completion. The table is in fcgi/options.c. Threads: constant. */
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
    OPTION_LIST  /* integers, separated by commas or given by repeating the option */
};

struct option {
    const char *name;  /* --name, [file] name, INFCGI_NAME */
    const char *brief; /* "-m", or NULL */
    enum option_kind
        kind;          /* its type is at offset: const char * (first two), int64_t, double, bool, struct conf_list */
    unsigned commands; /* commands with this option: bits of enum conf_command; rows of equal name share no command */
    size_t offset;     /* in struct conf */
    const char *help;  /* meaning, with unit */
    const char *fallback; /* default, in command-line form; NULL: none, off */
    double min, max;      /* for numbers */
    names_fn words;       /* OPTIONAL: accepted words; for a file: words accepted instead of a path */
    /* OPTIONAL: checks a text if more than `words` are accepted; `what` names it in errors. ERR_CONFIG. */
    enum err (*check)(const char *value, const char *what, struct err_info *info);
    unsigned required_by; /* commands that require it */
    unsigned operand_of;  /* commands that also take it as an operand; several in table order */
    bool may_be_empty;    /* an empty text is a valid value */
    bool is_live;         /* SIGHUP changes it: a number, flag or one of `words`; no reader caches it */
    const char *nothing;  /* OPTIONAL: text value with no effect on a back end that lacks the option */
};

/* Options of llama-server that infcgi does not have. `infcgi serve` accepts or rejects them on its command line, so that
 * users of llama-server change only the program's name. */
enum option_other_takes {
    OPTION_OTHER_NOTHING,
    OPTION_OTHER_VALUE,
    OPTION_OTHER_SWITCH /* on, off, auto, or nothing */
};

struct option_other {
    const char *names;             /* "--flash-attn -fa" */
    const char *same_as;           /* name of the row of struct option that they mean; NULL: they have no effect .. */
    const char *hint;              /* .. or, if a hint is given, they are rejected with that hint */
    enum option_other_takes takes; /* value of options without effect */
};

/* The options of a program. */
struct option_table {
    const struct option *rows;
    int n;                             /* at most CONF_MAX_OPTIONS */
    const struct option_other *others; /* terminated by a row without names */
    /* Writes the names of the commands whose bits are set, "serve, generate", to to[0..cap), and returns to. */
    const char *(*name_commands)(unsigned commands, char *to, size_t cap);
    /* Returns whether the back end of that name, or one of several ("ref:0-3,cpu"), has the option. True if no back end
     * has the name. */
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
