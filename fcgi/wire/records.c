/* A byte-wise state machine over record headers and, inside PARAMS, the lengths of names and values, so that input can
 * be split anywhere. */
#include "fcgi/wire/records.h"

#include "engine/base/compiler.h"

#include <string.h>

enum {
    BEGIN = 1,
    ABORT = 2,
    END = 3,
    PARAMS = 4,
    STDOUT = 6,
    GET_VALUES = 9,
    GET_VALUES_RESULT = 10,
    UNKNOWN_TYPE = 11,
    RESPONDER = 1
};
enum {
    HEAD_BYTES = 8,
    PADDING_AT = 6,
    ROLE_BYTES = 2,
    RECORD_BYTES = 65528 /* content: at most 65535, rounded down to a multiple of 8 */
};

/* Returns the size of the length field that begins at p. */
static size_t length_bytes(const unsigned char *p) { return (*p & 0x80) != 0 ? 4 : 1; }

static size_t length_at(const unsigned char *p)
{
    return length_bytes(p) == 1 ? *p : ((size_t)(p[0] & 0x7F) << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3]);
}

/* Returns whether both lengths are complete; *sum is then the length of name and value. */
static bool has_lengths(const struct records_pairs *p, size_t *sum)
{
    size_t first = length_bytes(p->lengths);
    if (p->n_lengths <= first || p->n_lengths < first + length_bytes(p->lengths + first)) {
        return false;
    }
    *sum = length_at(p->lengths) + length_at(p->lengths + first);
    return true;
}

/* Continues parsing names and values. Returns the number of pairs that begin here; *largest is the longest one's
 * length. */
static size_t read_pairs(struct records_pairs *p, const unsigned char *at, size_t n, size_t *largest)
{
    size_t n_begun = 0, sum;
    *largest = 0;
    for (;;) {
        size_t k = MIN_OF(n, p->left);
        at += k;
        n -= k;
        p->left -= k;
        if (n == 0) {
            return n_begun;
        }
        p->lengths[p->n_lengths++] = *at++;
        n--;
        if (has_lengths(p, &sum)) {
            p->n_lengths = 0;
            p->left = sum;
            n_begun++;
            *largest = MAX_OF(*largest, sum);
        }
    }
}

static void begin_record(struct records *r)
{
    uint16_t id = (uint16_t)(r->head[2] << 8 | r->head[3]);
    unsigned char type = r->head[1];
    r->content = (size_t)r->head[4] << 8 | r->head[5];
    r->padding = r->head[PADDING_AT];
    if (id == 0 && r->n_managed < RECORDS_MANAGED) { /* a management record */
        r->managed[r->n_managed++] = type;
    } else if (id != 0 && type == BEGIN && !r->has_begun) {
        r->has_begun = true;
        r->request = id;
    }
    if (type == ABORT && r->has_begun && id == r->request) {
        r->verdict = RECORDS_ABORTED;
    }
    r->is_kept = id != 0 && (type == BEGIN || (r->has_begun && id == r->request));
}

/* Parses n bytes of a kept record's content, from byte `from` on. */
static void judge_content(struct records *r, const unsigned char *p, size_t from, size_t n)
{
    uint16_t id = (uint16_t)(r->head[2] << 8 | r->head[3]);
    size_t largest;
    if (id == r->request && r->head[1] == PARAMS) {
        r->params_bytes += n;
        r->n_params += read_pairs(&r->params, p, n, &largest);
        if (r->params_bytes > RECORDS_MAX_PARAMS_BYTES || largest > RECORDS_MAX_PARAMS_BYTES) {
            r->verdict = RECORDS_TOO_LONG;
        } else if (r->n_params > RECORDS_MAX_PARAMS) {
            r->verdict = RECORDS_TOO_MANY;
        }
    } else if (id == r->request && r->head[1] == BEGIN) {
        for (size_t i = 0; i < n && from + i < ROLE_BYTES; i++) {
            static const unsigned char role[ROLE_BYTES] = {0, RESPONDER};
            r->verdict = p[i] != role[from + i] ? RECORDS_OTHER_ROLE : r->verdict;
        }
    }
}

size_t records_judge(struct records *r, void *out, const void *in, size_t n)
{
    const unsigned char *from = in;
    unsigned char *to = out;
    for (size_t k; n > 0 && r->verdict == RECORDS_FINE; from += k, n -= k) {
        if (r->content > 0) {
            size_t all = (size_t)r->head[4] << 8 | r->head[5], at = all - r->content;
            k = MIN_OF(n, r->content);
            r->content -= k;
            if (r->is_kept) {
                judge_content(r, from, at, k);
                memmove(to, from, k);
                to += k;
            }
        } else if (r->padding > 0) {
            k = MIN_OF(n, r->padding);
            r->padding -= k;
        } else {
            k = 1;
            r->head[r->n_head++] = *from;
            if (r->n_head == HEAD_BYTES) {
                r->n_head = 0;
                begin_record(r);
                if (r->is_kept) {
                    memcpy(to, r->head, HEAD_BYTES);
                    to[PADDING_AT] = 0;
                    to += HEAD_BYTES;
                }
            }
        }
    }
    return (size_t)(to - (unsigned char *)out);
}

static void write_head(struct buf *out, int type, uint16_t request, size_t n)
{
    const unsigned char head[HEAD_BYTES] = {1,
                                            (unsigned char)type,
                                            (unsigned char)(request >> 8),
                                            (unsigned char)request,
                                            (unsigned char)(n >> 8),
                                            (unsigned char)n};
    buf_append(out, head, sizeof head);
}

void records_write_managed(struct buf *out, unsigned char type)
{
    const unsigned char unknown[8] = {type};
    if (type == GET_VALUES) {
        write_head(out, GET_VALUES_RESULT, 0, 0);
    } else {
        write_head(out, UNKNOWN_TYPE, 0, sizeof unknown);
        buf_append(out, unknown, sizeof unknown);
    }
}

void records_write_stdout(struct buf *out, uint16_t request, const void *text, size_t n)
{
    const char *p = text;
    for (size_t k; n > 0; p += k, n -= k) {
        k = MIN_OF(n, (size_t)RECORD_BYTES);
        write_head(out, STDOUT, request, k);
        buf_append(out, p, k);
    }
    write_head(out, STDOUT, request, 0);
}

void records_write_end(struct buf *out, uint16_t request, enum records_status status)
{
    const unsigned char body[8] = {0, 0, 0, 0, (unsigned char)status};
    write_head(out, END, request, sizeof body);
    buf_append(out, body, sizeof body);
}
