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

enum err ini_load(const char *what, const char *path, size_t limit_bytes, struct buf *file, struct err_info *info)
{
    struct err_info why = {0};
    enum err err = io_read_file(path, limit_bytes, file, &why);
    if (err == ERR_OK) {
        return ERR_OK;
    }
    if (err == ERR_NOMEM) {
        return err_set(info, err, what, "%s: %.300s: %s", what, path, err_text(err));
    }
    return err_set(info, ERR_CONFIG, what, "%s: %.300s: %s", what, path,
                   why.text); /* the path is part of the configuration, so any error is ERR_CONFIG */
}

enum err ini_read(struct buf *file, const char *what, const char *path,
                  enum err (*take)(void *arg, const struct ini_line *line, struct err_info *info), void *arg,
                  struct err_info *info)
{
    if (file->len > 0 && memchr(file->data, 0, file->len) != NULL) { /* text after it would be lost */
        return err_set(info, ERR_CONFIG, what, "%s: expected a text file, found a NUL byte in %.128s", what, path);
    }
    int number = 0;
    for (char *s = file->data, *next; s != NULL && *s != '\0'; s = next) {
        struct ini_line line = {.number = ++number};
        next = strchr(s, '\n');
        next = next != NULL ? next : s + strlen(s);
        next += *next == '\n' ? (*next = '\0', 1) : 0;
        s = trim(s);
        if (*s == '\0' || *s == '#' || *s == ';') {
            continue;
        }
        if (!split(s, &line)) {
            return err_set(info, ERR_CONFIG, what, "%.300s line %d: expected `name = value`, found another text", path,
                           number); /* the line can hold a secret */
        }
        TRY(take(arg, &line, info));
    }
    return ERR_OK;
}
