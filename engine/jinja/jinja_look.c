/* Tests on strings and values that need neither memory nor the render. */
#include "engine/jinja/jinja_vm.h"

#include <string.h>

/* --- strings ---------------------------------------------------------------------------------------------------- */

uint32_t jstr_count(const char *p, size_t n)
{
    size_t continuation = 0;
    for (size_t i = 0; i < n; i++) {
        continuation += ((unsigned char)p[i] & 0xC0) == 0x80;
    }
    return (uint32_t)(n - continuation);
}

int jstr_cmp(const struct jstr *a, const struct jstr *b)
{
    int c = memcmp(a->p, b->p, MIN_OF(a->len, b->len)); /* the byte order of UTF-8 is the code point order */
    return c != 0 ? c : (a->len > b->len) - (a->len < b->len);
}

bool jstr_is(const struct jstr *s, const char *word)
{
    return strlen(word) == s->len && memcmp(s->p, word, s->len) == 0;
}

bool jstr_index(const char *p, size_t n, int64_t *out)
{
    int64_t i = 0;
    for (size_t k = 0; k < n; k++) {
        if (n > 9 || p[k] < '0' || p[k] > '9') {
            return false;
        }
        i = i * 10 + (p[k] - '0');
    }
    *out = i;
    return n > 0;
}

uint32_t jstr_span_at(const struct jstr *s, size_t at)
{
    uint32_t lo = 0;
    uint32_t hi = s->n_user;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (s->user[mid].to <= at) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

bool jstr_user_at(const struct jstr *s, size_t at, uint32_t *from_span)
{
    while (*from_span < s->n_user && s->user[*from_span].to <= at) {
        ++*from_span;
    }
    return *from_span < s->n_user && s->user[*from_span].from <= at;
}

/* --- values ----------------------------------------------------------------------------------------------------- */

double jv_as_float(struct jv v)
{
    return jv_has_digits(v) ? v.digits->f : v.kind == JV_FLOAT ? v.f : (double)jv_as_int(v);
}

const char *jv_type_name(struct jv v)
{
    static const char *const names[JV_KINDS] = {[JV_ABSENT] = "missing",
                                                [JV_UNDEF] = "Undefined",
                                                [JV_NONE] = "NoneType",
                                                [JV_BOOL] = "bool",
                                                [JV_INT] = "int",
                                                [JV_FLOAT] = "float",
                                                [JV_BIGINT] = "int",
                                                [JV_DECIMAL] = "float",
                                                [JV_STR] = "str",
                                                [JV_LIST] = "list",
                                                [JV_TUPLE] = "tuple",
                                                [JV_DICT] = "dict",
                                                [JV_VIEW] = "dict view",
                                                [JV_GEN] = "generator",
                                                [JV_RANGE] = "range",
                                                [JV_MACRO] = "macro",
                                                [JV_NAMESPACE] = "namespace",
                                                [JV_LOOP] = "loop context",
                                                [JV_FUNC] = "function",
                                                [JV_METHOD] = "method",
                                                [JV_CYCLER] = "cycler",
                                                [JV_JOINER] = "joiner"};
    return names[v.kind];
}

int64_t jv_len(struct jv v)
{
    switch (v.kind) {
    case JV_UNDEF:
        return 0;
    case JV_STR:
        return v.str->chars;
    case JV_LIST:
    case JV_TUPLE:
    case JV_VIEW:
        return v.list->n;
    case JV_DICT:
        return v.dict->n;
    case JV_RANGE:
        return v.range->n;
    case JV_LOOP:
        return v.loop->n;
    default:
        return -1;
    }
}

struct jv jv_at(struct jv v, uint32_t i)
{
    switch (v.kind) {
    case JV_RANGE:
        return jv_int(jv_range_at(v.range, i));
    case JV_DICT:
        return v.dict->at[i].key;
    default:
        return v.list->at[i];
    }
}

bool jv_truth(struct jv v)
{
    switch (v.kind) {
    case JV_NONE:
        return false;
    case JV_BOOL:
        return v.b;
    case JV_INT:
        return v.i != 0;
    case JV_FLOAT:
    case JV_BIGINT:
    case JV_DECIMAL:
        return jv_as_float(v) != 0;
    default:
        return jv_len(v) != 0;
    }
}
