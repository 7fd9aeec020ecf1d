/* Names of options of llama-server that `infcgi serve` takes on its command line, so that its users change the program's name
 * only: those of options that are called otherwise here, those without effect here, and those that it cannot have.
 * Threads: constant. */
#ifndef INFCGI_FCGI_OPTIONS_OTHER_H
#define INFCGI_FCGI_OPTIONS_OTHER_H

enum option_other_takes {
    OPTION_OTHER_NOTHING,
    OPTION_OTHER_VALUE,
    OPTION_OTHER_SWITCH /* on, off, auto, or nothing */
};

struct option_other {
    const char *name;    /* "--flash-attn", "-fa" */
    const char *same_as; /* name of a row of options.h that it stands for; NULL = it has no effect .. */
    const char *hint;    /* .. or, where this is given, it is refused with it */
    enum option_other_takes takes; /* of one without effect */
};

/* The row of an argument, "--name" or "--name=value"; NULL = none. */
const struct option_other *option_other_find(const char *argument);

/* The i-th row; NULL beyond the last. */
const struct option_other *option_other_at(int i);

#endif
