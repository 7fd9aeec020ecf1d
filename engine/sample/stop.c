/* A plain search: stop strings have at most a few hundred bytes and pieces a few, so the held text stays short. */
#include "engine/sample/stop.h"

#include <string.h>

/* Finds the stop string that is complete first in the held text; of those complete at the same byte the longest. */
static bool find_match(const struct stop *s, size_t *at, size_t *which)
{
    for (size_t end = 1; end <= s->held.len; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < s->n; i++) {
            size_t len = s->lens[i];
            if (len > longest && len <= end && memcmp(s->held.data + end - len, s->strings[i], len) == 0) {
                longest = len;
                *which = i;
            }
        }
        if (longest != 0) {
            *at = end - longest;
            return true;
        }
    }
    return false;
}

/* Can the text from `at` on begin a stop string? */
static bool may_match(const struct stop *s, size_t at)
{
    size_t left = s->held.len - at;
    for (size_t i = 0; i < s->n; i++) {
        if (left < s->lens[i] && memcmp(s->held.data + at, s->strings[i], left) == 0) {
            return true;
        }
    }
    return false;
}

bool stop_push(struct stop *s, const char *text, size_t n, size_t *releasable, size_t *which)
{
    buf_append(&s->held, text, n);
    if (find_match(s, releasable, which)) {
        return true;
    }
    size_t at = 0;
    while (at < s->held.len && !may_match(s, at)) {
        at++;
    }
    *releasable = at;
    return false;
}

void stop_release(struct stop *s, size_t n)
{
    if (n != 0) {
        memmove(s->held.data, s->held.data + n, s->held.len - n);
        s->held.len -= n;
    }
}
