/* A plain search: stop strings are at most a few hundred bytes and pieces a few, so the held text stays short. */
#include "engine/sample/stop.h"

#include <string.h>

bool stop_push(struct stop *s, const char *text, size_t n, size_t *releasable, size_t *which)
{
    buf_append(&s->held, text, n);
    for (size_t at = 0; at < s->held.len; at++) {
        size_t left = s->held.len - at;
        bool may_match = false;
        for (size_t i = 0; i < s->n; i++) {
            size_t shared = s->lens[i] < left ? s->lens[i] : left;
            if (memcmp(s->held.data + at, s->strings[i], shared) != 0) {
                continue;
            }
            if (shared == s->lens[i]) {
                *releasable = at;
                *which = i;
                return true;
            }
            may_match = true;
        }
        if (may_match) {
            *releasable = at;
            return false;
        }
    }
    *releasable = s->held.len;
    return false;
}

void stop_release(struct stop *s, size_t n)
{
    if (n != 0) {
        memmove(s->held.data, s->held.data + n, s->held.len - n);
        s->held.len -= n;
    }
}
