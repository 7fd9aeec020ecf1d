#include "fcgi/ground/ini.h"

#include "engine/base/io.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* Trims white space at both ends, in place. */
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

/* Splits the line s. Returns false if it has neither form. */
static bool split(char *s, struct ini_line *line)
{
    size_t n = strlen(s);
    if (*s == '[') {
        bool is_closed = s[n - 1] == ']';
        s[n - 1] = '\0';
        line->section = trim(s + 1);
        return is_closed && n > 2;
    }
    char *equals = strchr(s, '=');
    if (equals == NULL) {
        return false;
    }
    *equals = '\0';
    line->name = trim(s);
    line->value = trim(equals + 1);
    return true;
}

enum err ini_load(const struct ini_file *f, struct err_info *info)
{
    struct err_info why = {0};
    enum err err = io_read_file(f->path, f->limit_bytes, f->text, &why);
    if (err == ERR_OK) {
        return ERR_OK;
    }
    bool is_nomem = err == ERR_NOMEM; /* the path is part of the configuration, so any other error is ERR_CONFIG */
    return err_set(info, is_nomem ? err : ERR_CONFIG, f->what, "%s: %.300s: %s", f->what, f->path,
                   is_nomem ? err_text(err) : why.text);
}

enum err ini_read(const struct ini_file *f,
                  enum err (*take)(void *arg, const struct ini_line *line, struct err_info *info), void *arg,
                  struct err_info *info)
{
    const struct buf *text = f->text;
    if (text->len > 0 && memchr(text->data, 0, text->len) != NULL) { /* text after it would be lost */
        return err_set(info, ERR_CONFIG, f->what, "%s: expected a text file, found a NUL byte in %.128s", f->what,
                       f->path);
    }
    int number = 0;
    for (char *s = text->data, *next; s != NULL && *s != '\0'; s = next) {
        struct ini_line line = {.number = ++number};
        next = strchr(s, '\n');
        next = next != NULL ? next : s + strlen(s);
        next += *next == '\n' ? (*next = '\0', 1) : 0;
        s = trim(s);
        if (*s == '\0' || *s == '#' || *s == ';') {
            continue;
        }
        if (!split(s, &line)) {
            return err_set(info, ERR_CONFIG, f->what, "%.300s line %d: expected `name = value`, found another text",
                           f->path, number); /* the line can hold a secret */
        }
        TRY(take(arg, &line, info));
    }
    return ERR_OK;
}
