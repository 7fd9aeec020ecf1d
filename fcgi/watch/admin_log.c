/* The admin command log: lines in the ring, and new ones. */
#include "engine/base/json_write.h"
#include "fcgi/ground/log.h"
#include "fcgi/ground/number.h"
#include "fcgi/watch/admin.h"

#include <string.h>

enum { BY_DEFAULT = 20, AT_ONCE = 256 /* lines of a tick */ };

/* Appends the line without its newline. */
static void put_line(struct admin_call *c, const char *line)
{
    size_t n = strcspn(line, "\n");
    if (c->is_json) {
        json_write_string(c->out, line, n);
    } else {
        buf_append(c->out, line, n);
    }
    buf_putc(c->out, '\n');
}

static bool follow(struct admin_call *c, json_t **last)
{
    char line[LOG_LINE_BYTES];
    (void)last;
    for (int i = 0; i < AT_ONCE && log_read(&c->at, line); i++) {
        put_line(c, line);
    }
    return true;
}

json_t *admin_log(struct admin_call *c)
{
    int64_t n = BY_DEFAULT;
    char line[LOG_LINE_BYTES];
    for (int i = 1; i < c->n_words; i++) {
        if (strcmp(c->words[i], "-f") == 0) {
            c->is_live = true;
        } else if (!number_parse(c->words[i], &n) || n < 0) {
            return admin_refuse(c, ADMIN_USAGE, "log: expected -f or a number of lines, found '%.40s'", c->words[i]);
        }
    }
    uint64_t end = log_n_lines();
    c->at = end - MIN_OF(end, (uint64_t)MIN_OF(n, (int64_t)LOG_LINES));
    if (c->is_live) {
        c->go_on = follow;
        return NULL;
    }
    json_t *lines = json_array();
    while (c->at < end && log_read(&c->at, line)) {
        (void)json_array_append_new(lines, json_stringn(line, strcspn(line, "\n")));
    }
    return lines;
}
