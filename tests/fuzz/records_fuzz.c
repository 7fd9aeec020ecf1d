/* The records of a connection: judged the same however they are cut, and what is kept are records of one request. The first byte
 * says how large the parts are that the others are cut into. */
#include "tests/fuzz/fuzz.h"

#include "engine/base/buf.h"
#include "engine/base/mem.h"
#include "fcgi/wire/records.h"

#include <string.h>

void records_fuzz(const unsigned char *data, size_t n);

enum { BEGIN = 1, ABORT = 2, PARAMS = 4, HEAD_BYTES = 8, PADDING_AT = 6 };

struct judged {
    struct records r;
    struct buf kept;
};

static bool is_bounded(const struct records *r)
{
    return r->params_bytes <= RECORDS_MAX_PARAMS_BYTES && r->n_params <= RECORDS_MAX_PARAMS;
}

/* In parts of `step` bytes, which lie in the block that what is kept goes to, or where they are. That block ends with the bytes
 * that may be written. */
static void judge(const unsigned char *data, size_t n, size_t step, bool is_in_place, struct judged *j)
{
    unsigned char *block = mem_alloc(step + RECORDS_AHEAD, MEM_GENERAL);
    assert(block != NULL);
    *j = (struct judged){.r.verdict = RECORDS_FINE};
    buf_init(&j->kept, 0, MEM_GENERAL);
    for (size_t at = 0; at < n; at += step) {
        size_t k = MIN_OF(step, n - at);
        unsigned char *out = block + (step - k);
        const unsigned char *in = data + at;
        enum records_verdict before = j->r.verdict;
        if (is_in_place) {
            in = memcpy(out + RECORDS_AHEAD, data + at, k);
        }
        size_t n_kept = records_judge(&j->r, out, in, k);
        assert(n_kept <= k + RECORDS_AHEAD && j->r.n_managed <= RECORDS_MANAGED);
        assert(before == RECORDS_FINE || (n_kept == 0 && j->r.verdict == before));
        assert(j->r.verdict != RECORDS_FINE || is_bounded(&j->r));
        buf_append(&j->kept, out, n_kept);
    }
    mem_free(block);
    enum err err = buf_ok(&j->kept);
    assert(err == ERR_OK);
}

static bool is_of_params(enum records_verdict v) { return v == RECORDS_TOO_LONG || v == RECORDS_TOO_MANY; }

/* Parameters may be too many and too long in one part. Of what is refused, less is kept the sooner that is seen. */
static void check_same(const struct judged *a, const struct judged *b)
{
    size_t n = MIN_OF(a->kept.len, b->kept.len);
    assert(a->r.verdict == b->r.verdict || (is_of_params(a->r.verdict) && is_of_params(b->r.verdict)));
    assert(a->r.request == b->r.request && a->r.n_managed == b->r.n_managed);
    assert(memcmp(a->r.managed, b->r.managed, a->r.n_managed) == 0);
    assert(n == 0 || memcmp(a->kept.data, b->kept.data, n) == 0);
    if (a->r.verdict == RECORDS_FINE) {
        assert(a->kept.len == b->kept.len);
        assert(a->r.n_params == b->r.n_params && a->r.params_bytes == b->r.params_bytes);
    }
}

/* Goes past a length of one or four bytes. Is it whole? Then it is added to *sum. */
static bool read_length(const struct buf *b, size_t *at, size_t *sum)
{
    size_t left = b->len - *at, n = left > 0 && (b->data[*at] & 0x80) != 0 ? 4 : 1, length = 0;
    if (left < n) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        length = length << 8 | (unsigned char)b->data[(*at)++];
    }
    length &= n == 4 ? 0x7FFFFFFF : 0x7F;
    *sum += length;
    return true;
}

/* Names and values that begin in the text; none is longer than they all may be. */
static size_t count_params(const struct buf *text)
{
    size_t n = 0;
    for (size_t at = 0, sum = 0; read_length(text, &at, &sum) && read_length(text, &at, &sum); sum = 0) {
        assert(sum <= RECORDS_MAX_PARAMS_BYTES);
        at += MIN_OF(sum, text->len - at);
        n++;
    }
    return n;
}

/* What is kept are records without padding, the last of which may be cut: what begins the request, then others of it and what
 * would begin others. */
static void check_kept(const struct judged *j)
{
    struct buf params;
    buf_init(&params, 0, MEM_GENERAL);
    for (size_t at = 0, n; at < j->kept.len; at += HEAD_BYTES + n) {
        const unsigned char *p = (const unsigned char *)j->kept.data + at;
        assert(j->kept.len - at >= HEAD_BYTES);
        int id = p[2] << 8 | p[3];
        n = (size_t)p[4] << 8 | p[5];
        n = MIN_OF(n, j->kept.len - at - HEAD_BYTES);
        assert(p[PADDING_AT] == 0 && id != 0);
        assert(p[1] == BEGIN || (at > 0 && id == j->r.request));
        assert(id == j->r.request || at > 0);
        if (p[1] == PARAMS) {
            buf_append(&params, p + HEAD_BYTES, n);
        }
    }
    assert(params.len == j->r.params_bytes && count_params(&params) == j->r.n_params);
    buf_fini(&params);
}

/* What a reader keeps that has all at once, judges no parameters and looks at no role. Is the request aborted? */
static bool keep_plainly(const unsigned char *data, size_t n, struct buf *kept)
{
    int request = 0;
    for (size_t at = 0, content; n - at >= HEAD_BYTES; at += MIN_OF(content, n - at)) {
        const unsigned char *p = data + at;
        const unsigned char head[HEAD_BYTES] = {p[0], p[1], p[2], p[3], p[4], p[5], 0, p[7]};
        int id = p[2] << 8 | p[3];
        at += HEAD_BYTES;
        content = (size_t)p[4] << 8 | p[5];
        request = request == 0 && p[1] == BEGIN ? id : request;
        if (id != 0 && id == request && p[1] == ABORT) {
            buf_append(kept, head, sizeof head);
            return true;
        }
        if (id != 0 && (p[1] == BEGIN || id == request)) {
            buf_append(kept, head, sizeof head);
            buf_append(kept, p + HEAD_BYTES, MIN_OF(content, n - at));
        }
        content += p[PADDING_AT];
    }
    return false;
}

static void check_plainly(const unsigned char *data, size_t n, const struct judged *j)
{
    struct buf kept;
    buf_init(&kept, 0, MEM_GENERAL);
    bool is_aborted = keep_plainly(data, n, &kept);
    enum records_verdict v = j->r.verdict;
    assert(is_aborted ? v != RECORDS_FINE : v != RECORDS_ABORTED);
    assert(v == RECORDS_FINE || v == RECORDS_ABORTED ? j->kept.len == kept.len : j->kept.len <= kept.len);
    assert(j->kept.len == 0 || memcmp(j->kept.data, kept.data, j->kept.len) == 0);
    buf_fini(&kept);
}

/* Whole records of the connection. */
static void check_answer(unsigned char type)
{
    struct buf out;
    buf_init(&out, 0, MEM_GENERAL);
    records_write_managed(&out, type);
    assert(out.len > 0);
    for (size_t at = 0, n; at < out.len; at += n) {
        const unsigned char *p = (const unsigned char *)out.data + at;
        assert(out.len - at >= HEAD_BYTES && p[0] == 1 && p[2] == 0 && p[3] == 0);
        n = HEAD_BYTES + ((size_t)p[4] << 8 | p[5]) + p[PADDING_AT];
        assert(n <= out.len - at);
    }
    buf_fini(&out);
}

void records_fuzz(const unsigned char *data, size_t n)
{
    struct judged whole, cut;
    size_t step = n > 0 ? (size_t)data[0] + 1 : 1;
    if (n > 0) {
        data++;
        n--;
    }
    judge(data, n, MAX_OF(n, (size_t)1), false, &whole);
    judge(data, n, step, true, &cut);
    check_same(&whole, &cut);
    check_plainly(data, n, &whole);
    if (whole.r.verdict == RECORDS_FINE) {
        check_kept(&whole);
    }
    for (size_t i = 0; i < whole.r.n_managed; i++) {
        check_answer(whole.r.managed[i]);
    }
    buf_fini(&whole.kept);
    buf_fini(&cut.kept);
}
