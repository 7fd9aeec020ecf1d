#include "fcgi/api/model_names.h"

#include "engine/base/compiler.h"
#include "engine/base/json_write.h"

#include <string.h>

/* A name in a list; points into it. */
struct part {
    const char *text;
    size_t n;
};

/* Finds the next name that is not blank and moves *list after it. Returns false if there is none. */
static bool next_part(const char **list, struct part *out)
{
    while (*list != NULL && **list != '\0') {
        size_t n = strcspn(*list, ",");
        const char *text = *list;
        *list += n + (text[n] == ',');
        for (; n > 0 && *text == ' '; text++) {
            n--;
        }
        while (n > 0 && text[n - 1] == ' ') {
            n--;
        }
        if (n > 0) {
            *out = (struct part){text, n};
            return true;
        }
    }
    return false;
}

bool model_names_have(const char *list, const char *name)
{
    struct part p;
    size_t n = strlen(name);
    bool has = false;
    while (next_part(&list, &p)) {
        has = has || (p.n == n && memcmp(p.text, name, n) == 0);
    }
    return has;
}

bool model_names_any(const char *list, bool (*holds)(void *arg, const char *name), void *arg)
{
    struct part p;
    bool any = false;
    while (!any && next_part(&list, &p)) {
        char name[MODEL_NAMES_MAX_BYTES + 1] = "";
        if (p.n < sizeof name) {
            memcpy(name, p.text, p.n);
            any = holds(arg, name);
        }
    }
    return any;
}

void model_names_first(const char *list, struct buf *out)
{
    struct part p, first = {"", 0};
    while (next_part(&list, &p)) {
        int order = memcmp(p.text, first.text, MIN_OF(p.n, first.n));
        bool is_before = order < 0 || (order == 0 && p.n < first.n);
        first = first.n == 0 || is_before ? p : first;
    }
    buf_append(out, first.text, first.n);
}

void model_names_write(const char *list, struct buf *out)
{
    struct part p;
    bool is_first = true;
    buf_putc(out, '[');
    while (next_part(&list, &p)) {
        buf_puts(out, is_first ? "" : ",");
        json_write_string(out, p.text, p.n);
        is_first = false;
    }
    buf_putc(out, ']');
}
