/* The readers of the option table. Numbers are parsed by hand: strtol takes signs and spaces nobody meant. */
#include "fcgi/conf.h"

#include "engine/base/io.h"
#include "fcgi/cmd/cmd.h"
#include "fcgi/options.h"
#include "fcgi/options_other.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT_BYTES = 64 << 10, NAME_BYTES = 64 };

static void *field(struct conf *c, const struct option *o) { return (char *)c + o->offset; }

static bool is_config(const struct option *o) { return o->offset == offsetof(struct conf, config); }

bool conf_parse_integer(const char *s, int64_t *out)
{
    bool negative = *s == '-';
    int64_t v = 0;
    s += negative;
    if (*s == '\0') {
        return false;
    }
    for (; *s != '\0'; s++) {
        if (*s < '0' || *s > '9' || v > (INT64_MAX - (*s - '0')) / 10) {
            return false;
        }
        v = v * 10 + (*s - '0');
    }
    *out = negative ? -v : v;
    return true;
}

static bool parse_real(const char *s, double *out)
{
    char *end;
    if (*s == '\0' || s[strspn(s, "+-.0123456789eE")] != '\0') { /* strtod takes spaces, "nan" and hexadecimal too */
        return false;
    }
    *out = strtod(s, &end);
    return *end == '\0' && isfinite(*out);
}

static enum err refuse(const struct option *o, const char *from, const char *expected, const char *found,
                       struct err_info *info)
{
    return err_set(info, ERR_CONFIG, o->name, "%s (%s): expected %s, found '%.64s'", o->name, from, expected, found);
}

static enum err set_text(const struct option *o, const char *value, const char *from, const char **to,
                         struct err_info *info)
{
    if (*value == '\0' && !o->may_be_empty) { /* an unset shell variable, not a path or name */
        return err_set(info, ERR_CONFIG, o->name, "%s (%s): expected a text, found an empty one", o->name, from);
    }
    char what[2 * NAME_BYTES];
    snprintf(what, sizeof what, "%s (%s)", o->name, from);
    if (o->check != NULL) {
        TRY(o->check(value, what, info));
    } else if (o->words != NULL && o->kind != OPTION_FILE && names_find(o->words, value) < 0) {
        return names_refuse(o->words, what, value, info);
    }
    *to = value;
    return ERR_OK;
}

static enum err set_integer(const struct option *o, const char *value, const char *from, int64_t *to,
                            struct err_info *info)
{
    int64_t i = 0;
    if (!conf_parse_integer(value, &i) || (double)i < o->min || (double)i > o->max) {
        char expected[NAME_BYTES];
        snprintf(expected, sizeof expected, "an integer of %.0f to %.0f", o->min, o->max);
        return refuse(o, from, expected, value, info);
    }
    *to = i;
    return ERR_OK;
}

/* Appends the integers of `value`, which commas separate. */
static enum err add_integers(const struct option *o, const char *value, const char *from, struct conf_list *to,
                             struct err_info *info)
{
    for (const char *at = value;;) {
        char number[24];
        size_t len = strcspn(at, ",");
        int64_t v = 0;
        snprintf(number, sizeof number, "%.*s", (int)MIN_OF(len, sizeof number), at);
        TRY(set_integer(o, number, from, &v, info));
        if (to->n == CONF_MAX_VALUES) {
            return refuse(o, from, "16 integers at most", value, info);
        }
        to->at[to->n++] = (int)v;
        if (at[len] == '\0') {
            return ERR_OK;
        }
        at += len + 1;
    }
}

/* from: who says so; adds: to the values of a list that were given there before. */
static enum err set_value(struct conf *c, const struct option *o, const char *value, const char *from, bool adds,
                          struct err_info *info)
{
    double d = 0;
    struct conf_list *list = field(c, o);
    switch (o->kind) {
    case OPTION_TEXT:
    case OPTION_FILE:
        return set_text(o, value, from, field(c, o), info);
    case OPTION_FLAG:
        if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0) {
            return refuse(o, from, "on or off", value, info);
        }
        *(bool *)field(c, o) = strcmp(value, "on") == 0;
        return ERR_OK;
    case OPTION_INTEGER:
        return set_integer(o, value, from, field(c, o), info);
    case OPTION_REAL:
        if (!parse_real(value, &d) || d < o->min || d > o->max) {
            char expected[NAME_BYTES];
            snprintf(expected, sizeof expected, "a number of %g to %g", o->min, o->max);
            return refuse(o, from, expected, value, info);
        }
        *(double *)field(c, o) = d;
        return ERR_OK;
    case OPTION_LIST:
        list->n = adds ? list->n : 0;
        return add_integers(o, value, from, list, info);
    }
    return ERR_INTERNAL;
}

/* The value of INFCGI_<NAME>, or NULL; name[NAME_BYTES] receives that name. */
static const char *environment_of(const char *option, char *name)
{
    snprintf(name, NAME_BYTES, "INFCGI_%s", option);
    for (char *p = name; *p != '\0'; p++) {
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    }
    return getenv(name);
}

const char *conf_environment(const char *option)
{
    char name[NAME_BYTES];
    return environment_of(option, name);
}

void conf_default_environment(const char *name, const char *value) { (void)setenv(name, value, 0); }

/* The command's own, or --config alone. */
static enum err read_environment(struct conf *c, enum conf_command command, bool only_config, struct err_info *info)
{
    const struct option *o;
    for (int i = 0; (o = option_at(i)) != NULL; i++) {
        char name[NAME_BYTES];
        const char *value = environment_of(o->name, name);
        if (value != NULL && (o->commands & command) != 0 && (!only_config || is_config(o))) {
            TRY(set_value(c, o, value, name, false, info));
        }
    }
    return ERR_OK;
}

/* Cuts white space off both ends, in place. */
static char *trim(char *s)
{
    while (isspace((unsigned char)*s)) {
        s++;
    }
    char *end = s + strlen(s);
    while (end > s && isspace((unsigned char)end[-1])) {
        end--;
    }
    *end = '\0';
    return s;
}

static enum err read_file(struct conf *c, enum conf_command command, const char *path, struct err_info *info)
{
    TRY(io_read_file(path, FILE_LIMIT_BYTES, &c->file, info));
    if (c->file.len > 0 && memchr(c->file.data, 0, c->file.len) != NULL) { /* what stands behind it would be lost */
        return err_set(info, ERR_CONFIG, "config", "config: expected a text file, found a NUL byte in %.128s", path);
    }
    int line = 0;
    char where[NAME_BYTES];
    for (char *s = c->file.data, *next; s != NULL && *s != '\0'; s = next) {
        next = strchr(s, '\n');
        next = next != NULL ? next : s + strlen(s);
        next += *next == '\n' ? (*next = '\0', 1) : 0;
        line++;
        s = trim(s);
        if (*s == '\0' || *s == '#' || *s == ';') {
            continue;
        }
        char *equals = strchr(s, '=');
        snprintf(where, sizeof where, "%.40s line %d", path, line);
        if (equals == NULL) {
            return err_set(info, ERR_CONFIG, where, "%s: expected `name = value`, found '%.64s'", where, s);
        }
        *equals = '\0';
        char *name = trim(s);
        const struct option *o = option_find(name, strlen(name), command);
        if (o == NULL || is_config(o)) {
            return err_set(info, ERR_CONFIG, where, "%s: unknown option '%.64s'", where, name);
        }
        TRY(set_value(c, o, trim(equals + 1), where, false, info));
    }
    return ERR_OK;
}

/* The command line as it is read. */
struct arguments {
    enum conf_command command;
    int argc, i;
    char **argv;
    bool no_names; /* `--` came: no argument names an option any more */
    bool is_given[OPTION_MAX];
};

/* The option an argument names; *value is what stands behind '=', or NULL. */
static const struct option *match_name(const char *arg, enum conf_command command, const char **value)
{
    const struct option *o, *found = NULL;
    *value = NULL;
    for (int i = 0; (o = option_at(i)) != NULL; i++) {
        if (o->brief != NULL && strcmp(arg, o->brief) == 0 && (found == NULL || (o->commands & command) != 0)) {
            found = o;
        }
    }
    if (found != NULL || strncmp(arg, "--", 2) != 0) {
        return found;
    }
    const char *equals = strchr(arg, '=');
    *value = equals != NULL ? equals + 1 : NULL;
    return option_find(arg + 2, equals != NULL ? (size_t)(equals - arg - 2) : strlen(arg + 2), command);
}

/* The option whose value an argument without a name is: the command's first operand that is still missing. */
static const struct option *next_operand(const struct arguments *a)
{
    const struct option *o;
    for (int i = 0; (o = option_at(i)) != NULL; i++) {
        if ((o->operand_of & a->command) != 0 && !a->is_given[i]) {
            return o;
        }
    }
    return NULL;
}

/* An option of llama-server: *o is what it is called here, or NULL where it has no effect. */
static enum err match_other(struct arguments *a, const struct option_other *other, const struct option **o,
                            const char **value, struct err_info *info)
{
    const char *equals = strchr(a->argv[a->i], '='), *next = a->i + 1 < a->argc ? a->argv[a->i + 1] : NULL;
    *o = NULL;
    if (other->hint != NULL) {
        return err_set(info, ERR_CONFIG, other->name, "%s: not an option of infcgi serve: %s", other->name, other->hint);
    }
    if (other->same_as != NULL) {
        *o = option_find(other->same_as, strlen(other->same_as), a->command);
        *value = equals != NULL ? equals + 1 : NULL;
        return ERR_OK;
    }
    bool is_value = next != NULL && (other->takes == OPTION_OTHER_VALUE ||
                                     (other->takes == OPTION_OTHER_SWITCH &&
                                      (strcmp(next, "on") == 0 || strcmp(next, "off") == 0 || strcmp(next, "auto") == 0)));
    a->i += equals == NULL && is_value;
    return ERR_OK;
}

/* The option that the argument at hand names, or whose value it is; NULL where it names what has no effect. */
static enum err match_argument(struct arguments *a, const struct option **out, const char **value,
                               struct err_info *info)
{
    const char *arg = a->argv[a->i];
    bool is_operand = a->no_names || arg[0] != '-' || strcmp(arg, "-") == 0;
    const struct option *o = is_operand ? next_operand(a) : match_name(arg, a->command, value);
    bool is_other = !is_operand && a->command == CONF_SERVE && (o == NULL || (o->commands & CONF_SERVE) == 0);
    const struct option_other *other = is_other ? option_other_find(arg) : NULL;
    if (other != NULL) {
        TRY(match_other(a, other, &o, value, info));
        if (o == NULL) {
            *out = NULL;
            return ERR_OK;
        }
    }
    *out = o;
    if (o == NULL) {
        return err_set(info, ERR_CONFIG, arg, "unknown option '%.64s'; --help lists them", arg);
    }
    if ((o->commands & a->command) == 0) {
        char of[NAME_BYTES];
        return err_set(info, ERR_CONFIG, o->name, "--%s: expected an option of %s, found one of %s; --help lists them",
                       o->name, cmd_find(a->command)->name, cmd_names(o->commands, of, sizeof of));
    }
    if ((o->operand_of & a->command) != 0 && a->is_given[option_index(o)]) {
        return err_set(info, ERR_CONFIG, o->name, "--%s: expected one, found another", o->name);
    }
    if (is_operand) {
        *value = arg;
    } else if (*value == NULL && o->kind == OPTION_FLAG) {
        *value = "on";
    } else if (*value == NULL && a->i + 1 < a->argc) {
        *value = a->argv[++a->i];
    }
    return *value != NULL ? ERR_OK : err_set(info, ERR_CONFIG, o->name, "--%s: expected a value, found none", o->name);
}

/* only_config: look for --config alone, which must be read before the rest. */
static enum err read_arguments(struct conf *c, enum conf_command command, int argc, char **argv, bool only_config,
                               struct err_info *info)
{
    struct arguments a = {.command = command, .argc = argc, .argv = argv};
    bool has_operands = next_operand(&a) != NULL;
    for (a.i = 1; a.i < argc; a.i++) {
        if (has_operands && !a.no_names && strcmp(argv[a.i], "--") == 0) {
            a.no_names = true;
            continue;
        }
        const struct option *o;
        const char *value = NULL;
        TRY(match_argument(&a, &o, &value, info));
        if (o == NULL) {
            continue;
        }
        if (!only_config || is_config(o)) {
            TRY(set_value(c, o, value, "command line", a.is_given[option_index(o)], info));
        }
        a.is_given[option_index(o)] = true;
    }
    return ERR_OK;
}

enum err conf_load(struct conf *c, enum conf_command command, int argc, char **argv, struct err_info *info)
{
    const struct option *o;
    *c = (struct conf){0};
    buf_init(&c->file, FILE_LIMIT_BYTES, MEM_GENERAL);
    for (int i = 0; (o = option_at(i)) != NULL; i++) {
        if (o->fallback != NULL) {
            TRY(set_value(c, o, o->fallback, "default", false, info));
        }
    }
    TRY(read_environment(c, command, true, info));
    TRY(read_arguments(c, command, argc, argv, true, info));
    if (c->config != NULL) {
        TRY(read_file(c, command, c->config, info));
    }
    TRY(read_environment(c, command, false, info));
    return read_arguments(c, command, argc, argv, false, info);
}

void conf_fini(struct conf *c) { buf_fini(&c->file); }

static bool is_same(const char *text, const char *other) { return other != NULL && strcmp(text, other) == 0; }

/* Another value than the default, and than what asks for nothing? */
static bool is_set(const struct conf *c, const struct option *o)
{
    const void *at = (const char *)c + o->offset;
    if (o->kind == OPTION_FLAG) {
        return *(const bool *)at;
    }
    const char *text = o->kind == OPTION_TEXT || o->kind == OPTION_FILE ? *(const char *const *)at : NULL;
    return text != NULL && !is_same(text, o->fallback) && !is_same(text, o->nothing);
}

enum err conf_check(const struct conf *c, enum conf_command command, struct err_info *info)
{
    const struct option *o = option_find("backend", strlen("backend"), command);
    bool has_backend = (o->commands & command) != 0;
    for (int i = 0; (o = option_at(i)) != NULL; i++) {
        if ((o->required_by & command) != 0 && *(const char *const *)((const char *)c + o->offset) == NULL) {
            return err_set(info, ERR_CONFIG, o->name, "expected --%s %s, found none; --help lists the options", o->name,
                           option_value_name(o));
        }
        if (has_backend && (o->commands & command) != 0 && is_set(c, o) && !option_is_for(o, c->backend)) {
            return err_set(info, ERR_CONFIG, o->name, "%s: expected nothing, as the back end %s has no such option",
                           o->name, c->backend);
        }
    }
    return ERR_OK;
}
