#include "fcgi/cmd/manual.h"

#include "engine/backend/backend.h"
#include "fcgi/api/fields.h"
#include "fcgi/wire/call.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS = 100, HELP_COLUMN = 33, NAME_BYTES = 96, TEXT_BYTES = 1024 };

/* --- parts of all ------------------------------------------------------------------------------------------------- */

/* Appends "; back end cpu" for an option that only some back ends have. */
static void put_back_ends(const struct option *o, struct buf *out)
{
    const struct backend *b;
    bool is_of_all = true;
    for (int i = 0; (b = backend_at(i)) != NULL; i++) {
        is_of_all = is_of_all && backend_has_option(b, o->name);
    }
    for (int i = 0; !is_of_all && (b = backend_at(i)) != NULL; i++) {
        buf_printf(out, backend_has_option(b, o->name) ? "; back end %s" : "", b->name);
    }
}

/* Appends an option's meaning, values and default as one sentence. */
static void put_help(const struct option *o, struct buf *out)
{
    buf_puts(out, o->help);
    put_back_ends(o, out);
    buf_puts(out, o->is_live ? "; SIGHUP changes it" : "");
    if (o->words != NULL) {
        buf_puts(out, o->kind == OPTION_FILE ? " (or " : " (");
        names_list(o->words, out);
        buf_putc(out, ')');
    }
    if (o->fallback != NULL) {
        buf_printf(out, " [%s]", o->fallback);
    }
}

/* Appends "infcgi tokenize MODEL [TEXT] [OPTIONS]". */
static void put_usage(const struct program *p, const struct cmd *c, struct buf *out)
{
    const struct option *o;
    buf_printf(out, "infcgi %s", c->name);
    for (int i = 0; (o = option_at(p->options, i)) != NULL; i++) {
        bool is_required = (o->required_by & c->bit) != 0;
        if ((o->operand_of & c->bit) != 0) {
            buf_puts(out, is_required ? " " : " [");
            for (const char *s = o->name; *s != '\0'; s++) {
                buf_putc(out, (char)toupper((unsigned char)*s));
            }
            buf_puts(out, is_required ? "" : "]");
        } else if (is_required) {
            buf_printf(out, " %s %s", o->brief != NULL ? o->brief : o->name, option_value_name(o));
        }
    }
    buf_puts(out, " [OPTIONS]");
    buf_printf(out, c->operands != NULL ? " %s" : "%s", c->operands != NULL ? c->operands : "");
}

/* --- --help ------------------------------------------------------------------------------------------------------- */

/* Appends the words of text; each line except the first is indented by `indent` spaces. at: starting column. */
static void put_wrapped(const char *text, size_t at, size_t indent, struct buf *out)
{
    for (const char *end; *text != '\0'; text = end + (*end == ' ')) {
        size_t n = strcspn(text, " ");
        end = text + n;
        if (at + n > COLUMNS && at > indent) {
            out->len -= out->len > 0 && out->data[out->len - 1] == ' ';
            buf_printf(out, "\n%*s", (int)indent, "");
            at = indent;
        }
        buf_append(out, text, n);
        buf_puts(out, *end == ' ' ? " " : "");
        at += n + 1;
    }
    buf_putc(out, '\n');
}

void manual_of(const struct program *p, const struct cmd *c, struct buf *out)
{
    const struct option *o;
    buf_puts(out, "usage: ");
    put_usage(p, c, out);
    buf_puts(out, "\n\n");
    for (int i = 0; (o = option_at(p->options, i)) != NULL; i++) {
        if ((o->commands & c->bit) == 0) {
            continue;
        }
        char name[NAME_BYTES];
        struct buf help;
        buf_init(&help, TEXT_BYTES, MEM_GENERAL);
        put_help(o, &help);
        snprintf(name, sizeof name, "%s%s--%s %s", o->brief != NULL ? o->brief : "", o->brief != NULL ? ", " : "    ",
                 o->name, option_value_name(o));
        buf_printf(out, "  %-*s ", HELP_COLUMN - 3, name);
        put_wrapped(buf_ok(&help) == ERR_OK ? help.data : o->help, MAX_OF(strlen(name) + 3, (size_t)HELP_COLUMN),
                    HELP_COLUMN, out);
        buf_fini(&help);
    }
    if (c->notes[0] != '\0') {
        buf_putc(out, '\n');
        put_wrapped(c->notes, 0, 0, out);
    }
}

/* --- the list of commands ----------------------------------------------------------------------------------------- */

static void put_list(const struct program *p, struct buf *out)
{
    buf_puts(out, "usage: infcgi COMMAND [ARGUMENTS]\n\ncommands:\n");
    for (const struct cmd *c = p->commands; c < p->commands + p->n_commands; c++) {
        buf_printf(out, "  %-10s %s\n", c->name, c->summary);
    }
    buf_puts(out,
             "\n`infcgi COMMAND --help` tells about one command. `infcgi -t OPTIONS` checks the options of serve and "
             "the model file\nand exits; `infcgi -V` tells the version and the kernels of this CPU.\n");
}

/* --- Markdown ----------------------------------------------------------------------------------------------------- */

/* Appends the accepted values. */
static void put_values(const struct option *o, struct buf *out)
{
    static const char *const kinds[] = {"text", "file", "integer", "number", "flag", "integers"};
    bool is_open = o->words == NULL || o->kind == OPTION_FILE || o->check != NULL;
    buf_puts(out, is_open ? kinds[o->kind] : "");
    for (int i = 0; o->words != NULL && o->words(i) != NULL; i++) {
        buf_printf(out, "%s`%s`", i > 0 || is_open ? ", " : "", o->words(i));
    }
    if (o->min != o->max) {
        buf_printf(out, ", %.10g to %.10g", o->min, o->max);
    }
}

static void put_markdown(const struct program *p, struct buf *out)
{
    const struct option *o;
    char names[NAME_BYTES];
    buf_puts(out, "| option | short | commands | value | default | what it does |\n|---|---|---|---|---|---|\n");
    for (int i = 0; (o = option_at(p->options, i)) != NULL; i++) {
        const char *brief = o->brief != NULL ? o->brief : "", *tick = o->brief != NULL ? "`" : "";
        buf_printf(out, "| `--%s` | %s%s%s | %s | ", o->name, tick, brief, tick,
                   p->options->name_commands(o->commands, names, sizeof names));
        put_values(o, out);
        buf_printf(out, " | %s | %s", o->fallback != NULL ? o->fallback : "", o->help);
        put_back_ends(o, out);
        buf_puts(out, o->is_live ? "; SIGHUP changes it" : "");
        buf_puts(out, " |\n");
    }
}

/* --- man(7) ------------------------------------------------------------------------------------------------------- */

/* Appends text with roff's special characters escaped. */
static void put_roff(const char *s, struct buf *out)
{
    static const char special[] = {'-', '\\', '\'', '`'};
    static const char *const escapes[] = {"\\-", "\\e", "\\(aq", "\\(ga"};
    for (; *s != '\0'; s++) {
        const char *at = memchr(special, *s, sizeof special);
        if (at != NULL) {
            buf_puts(out, escapes[at - special]);
        } else {
            buf_putc(out, *s);
        }
    }
}

static void put_man_option(const struct option *o, struct buf *out)
{
    struct buf help;
    buf_init(&help, TEXT_BYTES, MEM_GENERAL);
    put_help(o, &help);
    buf_puts(out, ".TP\n.B ");
    if (o->brief != NULL) {
        put_roff(o->brief, out);
        buf_puts(out, ", ");
    }
    put_roff("--", out);
    put_roff(o->name, out);
    buf_printf(out, " %s\n", option_value_name(o));
    put_roff(buf_ok(&help) == ERR_OK ? help.data : o->help, out);
    buf_putc(out, '\n');
    buf_fini(&help);
}

static void put_man(const struct program *p, struct buf *out)
{
    const struct option *o;
    buf_puts(out, ".\\\" Made by `make docs`.\n.TH INFCGI 1 \"\" \"infcgi " CMD_VERSION "\"\n.SH NAME\n"
                  "infcgi \\- inference of language models behind nginx\n.SH SYNOPSIS\n");
    for (const struct cmd *c = p->commands; c < p->commands + p->n_commands; c++) {
        struct buf usage;
        buf_init(&usage, TEXT_BYTES, MEM_GENERAL);
        put_usage(p, c, &usage);
        buf_puts(out, c > p->commands ? ".br\n.B " : ".B ");
        put_roff(buf_ok(&usage) == ERR_OK ? usage.data : c->name, out);
        buf_putc(out, '\n');
        buf_fini(&usage);
    }
    buf_puts(out,
             ".SH DESCRIPTION\n"
             "An option is given on the command line, as a line\n.I name = value\nin the file of\n.B \\-\\-config\n"
             "or as\n.I INFCGI_NAME\nin the environment, with _ for \\-. The command line wins over the "
             "environment, and that over the file.\n");
    for (const struct cmd *c = p->commands; c < p->commands + p->n_commands; c++) {
        buf_puts(out, ".SH \"");
        put_roff("infcgi ", out);
        buf_printf(out, "%s\"\n", c->name);
        put_roff(c->summary, out);
        buf_puts(out, ".\n");
        put_roff(c->notes, out);
        buf_puts(out, c->notes[0] != '\0' ? "\n" : "");
        for (int k = 0; (o = option_at(p->options, k)) != NULL; k++) {
            if ((o->commands & c->bit) != 0) {
                put_man_option(o, out);
            }
        }
    }
    buf_puts(
        out,
        ".SH EXIT STATUS\n0 when all went well, 64 for an option that is wrong, 65 for a model file that is, 69 "
        "when the back end was lost or no server answers, "
        "71 where the system gives no threads, 74 when output cannot be written, 77 when the user may not, 78 when what an "
        "option names cannot be used, 1 when a server refuses what ctl asks.\n");
}

/* --- completion --------------------------------------------------------------------------------------------------- */

/* VARIABLE='cpu ref' */
static void put_words(const char *variable, names_fn words, struct buf *out)
{
    buf_printf(out, "%s='", variable);
    for (int i = 0; words(i) != NULL; i++) {
        buf_printf(out, "%s%s", i > 0 ? " " : "", words(i));
    }
    buf_putc(out, '\'');
}

/* Appends the case of an option with a value before the cursor. */
static void put_bash_value(const struct program *p, const struct option *o, struct buf *out)
{
    int n = 0;
    for (const struct cmd *c = p->commands; c < p->commands + p->n_commands; c++) {
        if ((o->commands & c->bit) != 0) {
            buf_printf(out, "%s'%s --%s'", n++ > 0 ? " | " : "    ", c->name, o->name);
            if (o->brief != NULL) {
                buf_printf(out, " | '%s %s'", c->name, o->brief);
            }
        }
    }
    buf_puts(out, o->kind == OPTION_FILE ? ") files=1" : ")");
    if (o->words != NULL) {
        put_words(" words", o->words, out);
    }
    buf_puts(out, " ;;\n");
}

static void put_bash_command(const struct program *p, const struct cmd *c, struct buf *out)
{
    const struct option *o;
    bool has_operands = false;
    buf_printf(out, "        %s) words='", c->name);
    for (int i = 0; (o = option_at(p->options, i)) != NULL; i++) {
        if ((o->commands & c->bit) != 0) {
            buf_printf(out, "--%s ", o->name);
            has_operands = has_operands || (o->operand_of & c->bit) != 0;
        }
    }
    for (int i = 0; c->words != NULL && c->words(i) != NULL; i++) {
        buf_printf(out, "%s ", c->words(i));
    }
    buf_printf(out, "'%s ;;\n", has_operands ? " files=1" : "");
}

static void put_bash(const struct program *p, struct buf *out)
{
    const struct option *o;
    buf_puts(out, "# Made by `make docs`.\n_infcgi() {\n"
                  "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words='' files=''\n"
                  "    [ \"$cur\" != = ] || cur=''\n"
                  "    [ \"$prev\" != = ] || prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
                  "    case \"${COMP_WORDS[1]} $prev\" in\n");
    for (int i = 0; (o = option_at(p->options, i)) != NULL; i++) {
        if (o->kind != OPTION_FLAG) {
            put_bash_value(p, o, out);
        }
    }
    buf_puts(out, "    *)\n        case ${COMP_WORDS[1]} in\n");
    for (const struct cmd *c = p->commands; c < p->commands + p->n_commands; c++) {
        put_bash_command(p, c, out);
    }
    buf_puts(out, "        esac\n        ;;\n    esac\n    [ \"$COMP_CWORD\" != 1 ] ||");
    buf_puts(out, " words='");
    for (int i = 0; i < p->n_commands; i++) {
        buf_printf(out, "%s%s", i > 0 ? " " : "", p->commands[i].name);
    }
    buf_puts(out, "'\n    mapfile -t COMPREPLY < <(\n        compgen -W \"$words\" -- \"$cur\"\n"
                  "        [ -z \"$files\" ] || compgen -f -- \"$cur\"\n    )\n}\n"
                  "complete -o filenames -F _infcgi infcgi\n");
}

/* --- the API ------------------------------------------------------------------------------------------------------ */

/* Appends a line of tab-separated parts for each row of the route table and the field tables, for docs/openapi.py. */
static void put_api(const struct program *p, struct buf *out)
{
    for (const struct route *r = p->routes; r < p->routes + p->n_routes; r++) {
        buf_printf(out, "path\t%s\t%s\t%s\t%s\t%s\n", r->method, r->path, r->is_prefix ? "prefix" : "whole",
                   r->needs_key ? "key" : "open", r->doc);
    }
    for (int i = 0; i < p->n_fields; i++) {
        const struct field_table *t = p->fields[i];
        for (size_t k = 0; k < t->n; k++) {
            const struct field *f = &t->rows[k];
            buf_printf(out, "field\t%s\t%s\t%s\t%.10g\t%.10g\n", t->name, f->name, fields_kind_name(f->kind), f->min,
                       f->max);
        }
    }
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*put)(const struct program *p, struct buf *out);
} formats[] = {{"text", put_list}, {"md", put_markdown}, {"man", put_man}, {"bash", put_bash}, {"api", put_api}};

const char *manual_format_name(int i) { return i >= 0 && i < (int)ARRAY_LEN(formats) ? formats[i].name : NULL; }

void manual_print(const struct program *p, const char *format, struct buf *out)
{
    formats[MAX_OF(names_find(manual_format_name, format), 0)].put(p, out);
}
