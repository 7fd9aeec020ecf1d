#include "fcgi/conf/option.h"

#include "fcgi/ground/words.h"

#include <string.h>

const struct option *option_at(const struct option_table *t, int i) { return i >= 0 && i < t->n ? &t->rows[i] : NULL; }

const struct option *option_find(const struct option_table *t, const char *name, size_t n, enum conf_command command)
{
    const struct option *found = NULL;
    for (int i = 0; i < t->n; i++) {
        const struct option *o = &t->rows[i];
        if (strlen(o->name) == n && memcmp(o->name, name, n) == 0 && (found == NULL || (o->commands & command) != 0)) {
            found = o;
        }
    }
    return found;
}

const struct option_other *option_other_find(const struct option_table *t, const char *argument)
{
    const struct option_other *o = t->others;
    while (o->names != NULL && !words_have(o->names, ' ', argument, strcspn(argument, "="))) {
        o++;
    }
    return o->names != NULL ? o : NULL;
}

const char *option_value_name(const struct option *o)
{
    static const char *const names[] = {"TEXT", "FILE", "N", "X", "", "N,..."};
    return o->kind == OPTION_TEXT && o->words != NULL ? "NAME" : names[o->kind];
}
