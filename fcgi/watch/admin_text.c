#include "fcgi/watch/admin_text.h"

#include <stdio.h>
#include <string.h>

enum { CELL_BYTES = 128, MAX_COLUMNS = 16, DEEPEST = 2, INDENT = 4 };

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static void put_size(double bytes, char cell[CELL_BYTES])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    size_t i = 0;
    while (bytes >= 1024 && i + 1 < ARRAY_LEN(units)) {
        bytes /= 1024;
        i++;
    }
    snprintf(cell, CELL_BYTES, i == 0 ? "%.0f %s" : "%.1f %s", bytes, units[i]);
}

/* Formats a value in a line; name: of the member. Values other than texts, numbers and booleans are written as JSON. */
static void put_cell(const char *name, const json_t *v, char cell[CELL_BYTES])
{
    switch (json_typeof(v)) {
    case JSON_STRING:
        snprintf(cell, CELL_BYTES, "%s", json_string_length(v) > 0 ? json_string_value(v) : "-");
        break;
    case JSON_INTEGER:
        if (ends_with(name, "_bytes")) {
            put_size((double)json_integer_value(v), cell);
        } else {
            snprintf(cell, CELL_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        }
        break;
    case JSON_REAL:
        snprintf(cell, CELL_BYTES, "%.4g", json_real_value(v));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        snprintf(cell, CELL_BYTES, "%s", json_is_true(v) ? "yes" : "no");
        break;
    case JSON_NULL:
        snprintf(cell, CELL_BYTES, "-");
        break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        cell[MIN_OF(json_dumpb(v, cell, CELL_BYTES - 1, JSON_COMPACT), (size_t)CELL_BYTES - 1)] = '\0';
        break;
    }
}

/* Returns a readable title for "prompt_tokens". Drops "_bytes", because sizes show their unit. */
static const char *title(const char *name, char room[CELL_BYTES])
{
    size_t n = strlen(name) - (ends_with(name, "_bytes") ? strlen("_bytes") : 0);
    snprintf(room, CELL_BYTES, "%.*s", (int)n, name);
    for (char *p = room; *p != '\0'; p++) {
        *p = *p == '_' ? ' ' : *p;
    }
    return room;
}

/* --- a table ----------------------------------------------------------------------------------------------------- */

/* Columns are the members of the first row; at most MAX_COLUMNS. */
struct columns {
    const char *names[MAX_COLUMNS];
    int widths[MAX_COLUMNS], n;
};

static void measure(const json_t *rows, struct columns *c)
{
    char cell[CELL_BYTES];
    const char *name;
    json_t *v, *first = json_array_get(rows, 0);
    *c = (struct columns){.n = 0};
    json_object_foreach(first, name, v)
    {
        if (c->n < MAX_COLUMNS) {
            c->widths[c->n] = (int)strlen(title(name, cell));
            c->names[c->n++] = name;
        }
    }
    for (size_t i = 0; i < json_array_size(rows); i++) {
        for (int k = 0; k < c->n; k++) {
            v = json_object_get(json_array_get(rows, i), c->names[k]);
            if (v != NULL) {
                put_cell(c->names[k], v, cell);
                c->widths[k] = MAX_OF(c->widths[k], (int)strlen(cell));
            }
        }
    }
}

/* Aligns numbers to the right. */
static void put_row_cell(const struct columns *c, int k, const char *cell, bool is_number, struct buf *out)
{
    bool is_last = k + 1 == c->n;
    if (is_number) {
        buf_printf(out, "%*s", c->widths[k], cell);
    } else {
        buf_printf(out, "%-*s", is_last ? 0 : c->widths[k], cell);
    }
    buf_puts(out, is_last ? "\n" : "  ");
}

static void put_table(const json_t *rows, int indent, struct buf *out)
{
    struct columns c;
    char cell[CELL_BYTES];
    measure(rows, &c);
    buf_printf(out, "%*s", indent, "");
    for (int k = 0; k < c.n; k++) {
        bool is_number = json_is_number(json_object_get(json_array_get(rows, 0), c.names[k]));
        put_row_cell(&c, k, title(c.names[k], cell), is_number, out);
    }
    for (size_t i = 0; i < json_array_size(rows); i++) {
        buf_printf(out, "%*s", indent, "");
        for (int k = 0; k < c.n; k++) {
            const json_t *v = json_object_get(json_array_get(rows, i), c.names[k]);
            snprintf(cell, sizeof cell, "-");
            if (v != NULL) {
                put_cell(c.names[k], v, cell);
            }
            put_row_cell(&c, k, cell, json_is_number(v), out);
        }
    }
}

/* --- all ----------------------------------------------------------------------------------------------------------- */

static void put_array(const json_t *a, int indent, struct buf *out)
{
    char cell[CELL_BYTES];
    if (json_array_size(a) == 0) {
        buf_printf(out, "%*snone\n", indent, "");
    } else if (json_is_object(json_array_get(a, 0))) {
        put_table(a, indent, out);
    } else {
        for (size_t i = 0; i < json_array_size(a); i++) {
            const json_t *v = json_array_get(a, i);
            put_cell("", v, cell);
            buf_printf(out, "%*s%s\n", indent, "", json_is_string(v) ? json_string_value(v) : cell);
        }
    }
}

static bool is_block(const json_t *v, int depth) { return (json_is_object(v) || json_is_array(v)) && depth < DEEPEST; }

static void put_object(const json_t *o, int depth, struct buf *out);

static void put_member(const char *name, const json_t *v, int width, int depth, struct buf *out)
{
    char cell[CELL_BYTES], room[CELL_BYTES];
    int indent = depth * INDENT;
    if (is_block(v, depth + 1)) {
        buf_printf(out, "%*s%s:\n", indent, "", title(name, room));
        if (json_is_object(v)) {
            put_object(v, depth + 1, out);
        } else {
            put_array(v, indent + INDENT, out);
        }
    } else if (json_is_string(v)) { /* can be long */
        buf_printf(out, "%*s%-*s  %s\n", indent, "", width, title(name, room),
                   json_string_length(v) > 0 ? json_string_value(v) : "-");
    } else {
        put_cell(name, v, cell);
        buf_printf(out, "%*s%-*s  %s\n", indent, "", width, title(name, room), cell);
    }
}

/* Not nested deeper than DEEPEST. */
static void put_object(const json_t *o, int depth, struct buf *out)
{
    char room[CELL_BYTES];
    int width = 0;
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)o, name, v)
    {
        width = is_block(v, depth + 1) ? width : MAX_OF(width, (int)strlen(title(name, room)));
    }
    json_object_foreach((json_t *)o, name, v) { put_member(name, v, width, depth, out); }
}

void admin_text(const json_t *value, struct buf *out)
{
    if (json_is_object(value)) {
        put_object(value, 0, out);
    } else {
        put_array(value, 0, out);
    }
}
