/* Reads the options of a table. */
#include "fcgi/conf/conf.h"

#include "fcgi/conf/option.h"
#include "fcgi/ground/ini.h"
#include "fcgi/ground/number.h"
#include "fcgi/ground/words.h"

#include <ctype.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT_BYTES = 64 << 10, NAME_BYTES = 64 };

/* A value as it was given. */
struct value {
    const char *text, *from; /* from: its source */
    bool adds;               /* joins the list of values that the same source gave before */
};

static void *field(struct conf *c, const struct option *o) { return (char *)c + o->offset; }

static ptrdiff_t index_of(const struct conf *c, const struct option *o) { return o - c->given.options->rows; }

static bool is_config(const struct option *o) { return o->offset == offsetof(struct conf, config); }

static enum err refuse(const struct option *o, const struct value *v, const char *expected, struct err_info *info)
{
    return err_set(info, ERR_CONFIG, o->name, "%s (%s): expected %s, found '%.64s'", o->name, v->from, expected,
                   v->text);
}

static enum err set_text(const struct option *o, const struct value *v, const char **to, struct err_info *info)
{
    if (*v->text == '\0' && !o->may_be_empty) { /* an unset shell variable, not a path or name */
        return err_set(info, ERR_CONFIG, o->name, "%s (%s): expected a text, found an empty one", o->name, v->from);
    }
    char what[2 * NAME_BYTES];
    snprintf(what, sizeof what, "%s (%s)", o->name, v->from);
    if (o->check != NULL) {
        TRY(o->check(v->text, what, info));
    } else if (o->words != NULL && o->kind != OPTION_FILE && names_find(o->words, v->text) < 0) {
        return names_refuse(o->words, what, v->text, info);
    }
    *to = v->text;
    return ERR_OK;
}

static enum err set_flag(const struct option *o, const struct value *v, bool *to, struct err_info *info)
{
    *to = strcmp(v->text, "on") == 0;
    return *to || strcmp(v->text, "off") == 0 ? ERR_OK : refuse(o, v, "on or off", info);
}

static enum err set_integer(const struct option *o, const struct value *v, int64_t *to, struct err_info *info)
{
    if (!number_parse(v->text, to) || (double)*to < o->min || (double)*to > o->max) {
        char expected[NAME_BYTES];
        snprintf(expected, sizeof expected, "an integer of %.0f to %.0f", o->min, o->max);
        return refuse(o, v, expected, info);
    }
    return ERR_OK;
}

static enum err set_real(const struct option *o, const struct value *v, double *to, struct err_info *info)
{
    if (!number_parse_real(v->text, to) || *to < o->min || *to > o->max) {
        char expected[NAME_BYTES];
        snprintf(expected, sizeof expected, "a number of %g to %g", o->min, o->max);
        return refuse(o, v, expected, info);
    }
    return ERR_OK;
}

/* Appends the comma-separated integers of the value. */
static enum err add_integers(const struct option *o, const struct value *v, struct conf_list *to, struct err_info *info)
{
    to->n = v->adds ? to->n : 0;
    for (const char *at = v->text;;) {
        char number[24];
        size_t len = strcspn(at, ",");
        int64_t i;
        snprintf(number, sizeof number, "%.*s", (int)MIN_OF(len, sizeof number), at);
        TRY(set_integer(o, &(struct value){.text = number, .from = v->from}, &i, info));
        if (to->n == CONF_MAX_VALUES) {
            return refuse(o, v, "16 integers at most", info);
        }
        to->at[to->n++] = (int)i;
        if (at[len] == '\0') {
            return ERR_OK;
        }
        at += len + 1;
    }
}

static enum err set_value(struct conf *c, const struct option *o, const struct value *v, struct err_info *info)
{
    snprintf(c->from[index_of(c, o)], CONF_FROM_BYTES, "%s", v->from);
    switch (o->kind) {
    case OPTION_TEXT:
    case OPTION_FILE:
        return set_text(o, v, field(c, o), info);
    case OPTION_FLAG:
        return set_flag(o, v, field(c, o), info);
    case OPTION_INTEGER:
        return set_integer(o, v, field(c, o), info);
    case OPTION_REAL:
        return set_real(o, v, field(c, o), info);
    case OPTION_LIST:
        return add_integers(o, v, field(c, o), info);
    }
    return ERR_INTERNAL;
}

/* Returns the value of INFCGI_<NAME>, or NULL, and writes that name to name[NAME_BYTES]. */
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

const char *conf_variable(const char *name) { return getenv(name); }

void conf_set_variable(const char *name, const char *value) { (void)setenv(name, value, 1); }

/* Reads the variables of the command's options, or only that of --config. */
static enum err read_environment(struct conf *c, bool only_config, struct err_info *info)
{
    const struct option *o;
    for (int i = 0; (o = option_at(c->given.options, i)) != NULL; i++) {
        char name[NAME_BYTES];
        const char *text = environment_of(o->name, name);
        if (text != NULL && (o->commands & c->given.command) != 0 && (!only_config || is_config(o))) {
            TRY(set_value(c, o, &(struct value){.text = text, .from = name}, info));
        }
    }
    return ERR_OK;
}

static enum err take_line(void *arg, const struct ini_line *line, struct err_info *info)
{
    struct conf *c = arg;
    char where[NAME_BYTES];
    snprintf(where, sizeof where, "%.40s line %d", c->config, line->number);
    if (line->section != NULL) {
        return err_set(info, ERR_CONFIG, where, "%s: expected `name = value`, found a heading", where);
    }
    const struct option *o = option_find(c->given.options, line->name, strlen(line->name), c->given.command);
    if (o == NULL || is_config(o)) {
        return err_set(info, ERR_CONFIG, where, "%s: unknown option '%.64s'", where, line->name);
    }
    return set_value(c, o, &(struct value){.text = line->value, .from = where}, info);
}

/* State while the command line is read. */
struct arguments {
    const struct option_table *options;
    enum conf_command command;
    int argc, i; /* i: the current argument */
    char **argv;
    bool no_names; /* `--` was found: later arguments are operands */
    bool is_given[CONF_MAX_OPTIONS];
};

/* Returns the option that an argument names. *value is the text after '=', or NULL. */
static const struct option *match_name(const struct arguments *a, const char *arg, const char **value)
{
    const struct option *o, *found = NULL;
    *value = NULL;
    for (int i = 0; (o = option_at(a->options, i)) != NULL; i++) {
        if (o->brief != NULL && strcmp(arg, o->brief) == 0 && (found == NULL || (o->commands & a->command) != 0)) {
            found = o;
        }
    }
    if (found != NULL || strncmp(arg, "--", 2) != 0) {
        return found;
    }
    const char *equals = strchr(arg, '=');
    *value = equals != NULL ? equals + 1 : NULL;
    return option_find(a->options, arg + 2, equals != NULL ? (size_t)(equals - arg - 2) : strlen(arg + 2), a->command);
}

/* Returns the option for an operand: the command's first operand that is not set yet. */
static const struct option *next_operand(const struct arguments *a)
{
    const struct option *o;
    for (int i = 0; (o = option_at(a->options, i)) != NULL; i++) {
        if ((o->operand_of & a->command) != 0 && !a->is_given[i]) {
            return o;
        }
    }
    return NULL;
}

/* Translates an option of llama-server: *o is infcgi's option, or NULL if it has no effect. */
static enum err match_other(struct arguments *a, const struct option_other *other, const struct option **o,
                            const char **value, struct err_info *info)
{
    const char *arg = a->argv[a->i], *equals = strchr(arg, '='), *next = a->i + 1 < a->argc ? a->argv[a->i + 1] : NULL;
    *o = NULL;
    if (other->hint != NULL) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(arg, "="), arg);
        return err_set(info, ERR_CONFIG, name, "%s: not an option of infcgi serve: %s", name, other->hint);
    }
    if (other->same_as != NULL) {
        *o = option_find(a->options, other->same_as, strlen(other->same_as), a->command);
        *value = equals != NULL ? equals + 1 : NULL;
        return ERR_OK;
    }
    bool is_value =
        next != NULL && (other->takes == OPTION_OTHER_VALUE ||
                         (other->takes == OPTION_OTHER_SWITCH &&
                          (strcmp(next, "on") == 0 || strcmp(next, "off") == 0 || strcmp(next, "auto") == 0)));
    a->i += equals == NULL && is_value;
    return ERR_OK;
}

/* Finds the option that the current argument names or is the operand of; NULL for an option without effect. */
static enum err match_argument(struct arguments *a, const struct option **out, const char **value,
                               struct err_info *info)
{
    const char *arg = a->argv[a->i];
    bool is_operand = a->no_names || arg[0] != '-' || strcmp(arg, "-") == 0;
    const struct option *o = is_operand ? next_operand(a) : match_name(a, arg, value);
    bool is_other = !is_operand && a->command == CONF_SERVE && (o == NULL || (o->commands & CONF_SERVE) == 0);
    const struct option_other *other = is_other ? option_other_find(a->options, arg) : NULL;
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
        char of[NAME_BYTES], command[NAME_BYTES];
        return err_set(info, ERR_CONFIG, o->name, "--%s: expected an option of %s, found one of %s; --help lists them",
                       o->name, a->options->name_commands(a->command, command, sizeof command),
                       a->options->name_commands(o->commands, of, sizeof of));
    }
    if ((o->operand_of & a->command) != 0 && a->is_given[o - a->options->rows]) {
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

/* only_config: find only --config, which must be read first. */
static enum err read_arguments(struct conf *c, bool only_config, struct err_info *info)
{
    const struct conf_given *g = &c->given;
    struct arguments a = {.options = g->options, .command = g->command, .argc = g->argc, .argv = g->argv};
    bool has_operands = next_operand(&a) != NULL;
    for (a.i = 1; a.i < a.argc; a.i++) {
        if (has_operands && !a.no_names && strcmp(a.argv[a.i], "--") == 0) {
            a.no_names = true;
            continue;
        }
        const struct option *o;
        struct value v = {.from = "command line"};
        TRY(match_argument(&a, &o, &v.text, info));
        if (o == NULL) {
            continue;
        }
        if (!only_config || is_config(o)) {
            v.adds = a.is_given[o - a.options->rows];
            TRY(set_value(c, o, &v, info));
        }
        a.is_given[o - a.options->rows] = true;
    }
    return ERR_OK;
}

static bool is_equal(const struct conf *a, const struct conf *b, const struct option *o)
{
    struct buf in_a, in_b;
    buf_init(&in_a, 0, MEM_GENERAL);
    buf_init(&in_b, 0, MEM_GENERAL);
    conf_write_value(a, o, &in_a);
    conf_write_value(b, o, &in_b);
    bool same = in_a.len == in_b.len && (in_a.len == 0 || memcmp(in_a.data, in_b.data, in_a.len) == 0);
    buf_fini(&in_a);
    buf_fini(&in_b);
    return same;
}

/* Lists the environment variables that differ from the file. */
static void list_overrides(struct conf *c, const struct conf *file)
{
    const struct option *o;
    for (int i = 0; (o = option_at(c->given.options, i)) != NULL; i++) {
        if (strstr(file->from[i], " line ") != NULL && strncmp(c->from[i], "INFCGI_", 7) == 0 &&
            !is_equal(file, c, o)) {
            words_append(c->overrides, sizeof c->overrides, c->from[i]);
        }
    }
}

enum err conf_load(struct conf *c, const struct conf_given *given, struct err_info *info)
{
    const struct option *o;
    *c = (struct conf){.given = *given};
    buf_init(&c->file, FILE_LIMIT_BYTES, MEM_GENERAL);
    for (int i = 0; (o = option_at(given->options, i)) != NULL; i++) {
        if (o->fallback != NULL) {
            TRY(set_value(c, o, &(struct value){.text = o->fallback, .from = "default"}, info));
        }
    }
    TRY(read_environment(c, true, info));
    TRY(read_arguments(c, true, info));
    if (c->config != NULL) {
        const struct ini_file f = {"config", c->config, FILE_LIMIT_BYTES, &c->file};
        TRY(ini_load(&f, info));
        TRY(ini_read(&f, take_line, c, info));
    }
    struct conf file = *c;
    TRY(read_environment(c, false, info));
    TRY(read_arguments(c, false, info));
    list_overrides(c, &file);
    return ERR_OK;
}

void conf_write_value(const struct conf *c, const struct option *o, struct buf *out)
{
    const void *at = (const char *)c + o->offset;
    const struct conf_list *list = at;
    const char *text;
    switch (o->kind) {
    case OPTION_TEXT:
    case OPTION_FILE:
        text = *(const char *const *)at;
        buf_puts(out, text != NULL ? text : "");
        break;
    case OPTION_FLAG:
        buf_puts(out, *(const bool *)at ? "on" : "off");
        break;
    case OPTION_INTEGER:
        buf_printf(out, "%" PRId64, *(const int64_t *)at);
        break;
    case OPTION_REAL:
        buf_printf(out, "%.10g", *(const double *)at);
        break;
    case OPTION_LIST:
        for (int i = 0; i < list->n; i++) {
            buf_printf(out, "%s%d", i > 0 ? "," : "", list->at[i]);
        }
        break;
    }
}

/* Copies the value of a live option. A text becomes the table's constant, because the file's buffer is freed. */
static void copy_value(struct conf *to, const struct conf *from, const struct option *o)
{
    static const size_t sizes[] = {
        [OPTION_INTEGER] = sizeof(int64_t), [OPTION_REAL] = sizeof(double), [OPTION_FLAG] = sizeof(bool)};
    const void *at = (const char *)from + o->offset;
    if (o->kind == OPTION_TEXT) {
        *(const char **)field(to, o) = o->words(names_find(o->words, *(const char *const *)at));
    } else {
        memcpy(field(to, o), at, sizes[o->kind]);
    }
    memcpy(to->from[index_of(to, o)], from->from[index_of(to, o)], CONF_FROM_BYTES);
}

/* Returns whether a server's option differs. */
static bool differs(const struct conf *a, const struct conf *b, const struct option *o)
{
    return (o->commands & CONF_SERVE) != 0 && !is_equal(a, b, o);
}

enum err conf_reread(const struct conf *now, struct conf *next, struct conf_changes *changes, struct err_info *info)
{
    struct conf fresh;
    const struct option *o;
    *next = *now;
    *changes = (struct conf_changes){.n_live = 0};
    enum err err = conf_load(&fresh, &now->given, info);
    for (int i = 0; err == ERR_OK && (o = option_at(now->given.options, i)) != NULL; i++) {
        if (!differs(now, &fresh, o)) {
            continue;
        }
        if (o->is_live) {
            copy_value(next, &fresh, o);
            changes->n_live++;
        } else {
            words_append(changes->waiting, sizeof changes->waiting, o->name);
        }
    }
    memcpy(next->overrides, fresh.overrides, sizeof next->overrides);
    conf_fini(&fresh);
    return err;
}

void conf_differences(const struct conf *a, const struct conf *b, char *names, size_t cap)
{
    const struct option *o;
    names[0] = '\0';
    for (int i = 0; (o = option_at(a->given.options, i)) != NULL; i++) {
        if (differs(a, b, o)) {
            words_append(names, cap, o->name);
        }
    }
}

void conf_fini(struct conf *c) { buf_fini(&c->file); }

static bool is_same(const char *text, const char *other) { return other != NULL && strcmp(text, other) == 0; }

/* Returns whether the value differs from the default and from `nothing`. */
static bool is_set(const struct conf *c, const struct option *o)
{
    const void *at = (const char *)c + o->offset;
    if (o->kind == OPTION_FLAG) {
        return *(const bool *)at;
    }
    const char *text = o->kind == OPTION_TEXT || o->kind == OPTION_FILE ? *(const char *const *)at : NULL;
    return text != NULL && !is_same(text, o->fallback) && !is_same(text, o->nothing);
}

enum err conf_check(const struct conf *c, struct err_info *info)
{
    const struct option_table *options = c->given.options;
    enum conf_command command = c->given.command;
    const struct option *o = option_find(options, "backend", strlen("backend"), command);
    bool has_backend = (o->commands & command) != 0;
    for (int i = 0; (o = option_at(options, i)) != NULL; i++) {
        if ((o->required_by & command) != 0 && *(const char *const *)((const char *)c + o->offset) == NULL) {
            return err_set(info, ERR_CONFIG, o->name, "expected --%s %s, found none; --help lists the options", o->name,
                           option_value_name(o));
        }
        if (has_backend && (o->commands & command) != 0 && is_set(c, o) && !options->is_for(o, c->backend)) {
            return err_set(info, ERR_CONFIG, o->name, "%s: the back end %s has no such option; add --backend %s",
                           o->name, c->backend, options->backend_of(o));
        }
    }
    return ERR_OK;
}
