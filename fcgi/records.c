/* A machine over bytes: heads of records, and inside PARAMS the lengths of names and values, wherever the text is cut. */
#include "fcgi/records.h"

#include "engine/base/compiler.h"

#include <string.h>

enum { BEGIN = 1, END = 3, PARAMS = 4, STDOUT = 6, GET_VALUES = 9, RESPONDER = 1 };
enum { HEAD_BYTES = 8, PADDING_AT = 6, ROLE_BYTES = 2, RECORD_BYTES = 65528 /* of content: 65535, and a multiple of eight */ };

/* Bytes of the length that begins at p. */
static size_t length_bytes(const unsigned char *p) { return (*p & 0x80) != 0 ? 4 : 1; }

static size_t length_at(const unsigned char *p)
{
    return length_bytes(p) == 1 ? *p : ((size_t)(p[0] & 0x7F) << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3]);
}

/* Have both lengths come? Then *sum is that of name and value. */
static bool has_lengths(const struct records_pairs *p, size_t *sum)
{
    size_t first = length_bytes(p->lengths);
    if (p->n_lengths <= first || p->n_lengths < first + length_bytes(p->lengths + first)) {
        return false;
    }
    *sum = length_at(p->lengths) + length_at(p->lengths + first);
    return true;
}

/* Reads on in names and values. Returns how many begin here; *largest is the length of the longest of them. */
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
    r->content = (size_t)r->head[4] << 8 | r->head[5];
    r->managed = (struct records_pairs){0}; /* each stands alone */
    if (r->head[1] == BEGIN && !r->has_begun) {
        r->has_begun = true;
        r->request = id;
    }
}

/* n bytes of the record's content, from byte `from` of it. Those of other requests are skipped, as libfcgi does. */
static void judge_content(struct records *r, const unsigned char *p, size_t from, size_t n)
{
    uint16_t id = (uint16_t)(r->head[2] << 8 | r->head[3]);
    size_t largest, most = from + n + r->content;
    if (id == 0) { /* of the connection */
        (void)read_pairs(&r->managed, p, n, &largest);
        r->verdict = r->head[1] == GET_VALUES && largest > most ? RECORDS_BAD_LENGTHS : r->verdict;
    } else if (id == r->request && r->head[1] == PARAMS) {
        r->params_bytes += n;
        r->n_params += read_pairs(&r->params, p, n, &largest);
        r->verdict = r->params_bytes > RECORDS_MAX_PARAMS_BYTES || largest > RECORDS_MAX_PARAMS_BYTES ? RECORDS_TOO_LONG
                     : r->n_params > RECORDS_MAX_PARAMS                                               ? RECORDS_TOO_MANY
                                                                                                      : r->verdict;
    } else if (id == r->request && r->head[1] == BEGIN) {
        for (size_t i = 0; i < n && from + i < ROLE_BYTES; i++) {
            r->verdict = p[i] != (from + i == 0 ? 0 : RESPONDER) ? RECORDS_OTHER_ROLE : r->verdict;
        }
    }
}

size_t records_judge(struct records *r, void *data, size_t n)
{
    unsigned char *in = data, *out = data;
    for (size_t k; n > 0 && r->verdict == RECORDS_FINE; in += k, n -= k) {
        if (r->content > 0) {
            size_t all = (size_t)r->head[4] << 8 | r->head[5], from = all - r->content;
            k = MIN_OF(n, r->content);
            r->content -= k;
            judge_content(r, in, from, k);
            memmove(out, in, k);
            out += k;
        } else if (r->padding > 0) {
            k = MIN_OF(n, r->padding);
            r->padding -= k;
        } else {
            k = 1;
            r->head[r->n_head++] = *in;
            *out++ = r->n_head == PADDING_AT + 1 ? 0 : *in;
            if (r->n_head == HEAD_BYTES) {
                r->n_head = 0;
                r->padding = r->head[PADDING_AT];
                begin_record(r);
            }
        }
    }
    return (size_t)(out - (unsigned char *)data);
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
