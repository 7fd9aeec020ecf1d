/* Values as Python prints them: str(), repr(), the shortest form of a float. Also parses numbers. */
#include "engine/jinja/jinja_vm.h"

#include "engine/base/utf8.h"
#include "engine/jinja/jinja_unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- numbers ---------------------------------------------------------------------------------------------------- */

void jv_float_text(double f, char out[JV_FLOAT_BYTES])
{
    if (f != f || f - f != 0) {
        snprintf(out, JV_FLOAT_BYTES, "%s", f != f ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    json_number_shortest(f, out);
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Copies s without surrounding white space and without underscores between digits; returns false if it is too long. */
static bool clean_number(const char *s, size_t n, char *out, size_t out_bytes)
{
    for (; n > 0 && is_space(s[0]); s++) {
        n--;
    }
    for (; n > 0 && is_space(s[n - 1]); n--) {
    }
    if (n == 0 || n >= out_bytes) {
        return false;
    }
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        bool between = i > 0 && i + 1 < n && s[i - 1] != '_' && s[i + 1] != '_';
        if (s[i] == '_' && between) {
            continue;
        }
        out[k++] = s[i];
    }
    out[k] = '\0';
    return true;
}

bool jv_parse_float(const char *s, size_t n, double *out)
{
    char text[400];
    if (!clean_number(s, n, text, sizeof text)) {
        return false;
    }
    const char *p = text + (text[0] == '-' || text[0] == '+');
    const char *const words[] = {"inf", "infinity", "nan"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        size_t k = 0;
        while (p[k] != '\0' && (p[k] | 0x20) == words[i][k]) {
            k++;
        }
        if (p[k] == '\0' && words[i][k] == '\0') {
            *out = (i == 2 ? (double)NAN : (double)INFINITY) * (text[0] == '-' ? -1 : 1);
            return true;
        }
    }
    int digits = 0;
    for (int stage = 0; *p != '\0'; p++) { /* 0: integer part, 1: fraction, 2: exponent */
        if (*p >= '0' && *p <= '9') {
            digits++;
        } else if (*p == '.' && stage == 0) {
            stage = 1;
        } else if ((*p == 'e' || *p == 'E') && stage < 2 && digits > 0) {
            stage = 2;
            p += p[1] == '+' || p[1] == '-';
            if (p[1] < '0' || p[1] > '9') {
                return false;
            }
        } else {
            return false;
        }
    }
    if (digits == 0) {
        return false;
    }
    *out = strtod(text, NULL); /* every character was checked */
    return true;
}

bool jv_parse_int(const char *s, size_t n, int base, int64_t *out, bool *overflow)
{
    char text[400];
    *overflow = false;
    if (!clean_number(s, n, text, sizeof text)) {
        return false;
    }
    const char *p = text;
    bool negative = *p == '-';
    p += *p == '-' || *p == '+';
    if (p[0] == '0' && (base == 0 || base == 16 || base == 8 || base == 2)) {
        int of = (p[1] | 0x20) == 'x' ? 16 : (p[1] | 0x20) == 'o' ? 8 : (p[1] | 0x20) == 'b' ? 2 : 0;
        if (of != 0 && (base == 0 || base == of)) {
            p += 2;
            base = of;
        }
    }
    base = base == 0 ? 10 : base;
    if (*p == '\0') {
        return false;
    }
    uint64_t value = 0;
    for (; *p != '\0'; p++) {
        int d = *p >= '0' && *p <= '9'                     ? *p - '0'
                : (*p | 0x20) >= 'a' && (*p | 0x20) <= 'z' ? (*p | 0x20) - 'a' + 10
                                                           : 99;
        if (d >= base) {
            return false;
        }
        if (value > (UINT64_MAX - (uint64_t)d) / (uint64_t)base) {
            *overflow = true;
            value = 0;
        }
        value = value * (uint64_t)base + (uint64_t)d;
    }
    if (*overflow || value > (uint64_t)INT64_MAX + negative) {
        *overflow = true;
        return false;
    }
    *out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

/* --- repr ------------------------------------------------------------------------------------------------------- */

static void repr_str(struct jtext *r, const struct jstr *s)
{
    bool has_single = memchr(s->p, '\'', s->len) != NULL;
    char quote = has_single && memchr(s->p, '"', s->len) == NULL ? '"' : '\'';
    jtext_put(r, &quote, 1, false);
    uint32_t span = 0;
    for (size_t i = 0; i < s->len;) {
        uint32_t cp;
        size_t n = utf8_decode(s->p + i, s->len - i, &cp, NULL);
        bool user = jstr_user_at(s, i, &span);
        char esc[16];
        if (cp == (unsigned char)quote || cp == '\\') {
            snprintf(esc, sizeof esc, "\\%c", (char)cp);
        } else if (cp == '\n' || cp == '\r' || cp == '\t') {
            snprintf(esc, sizeof esc, "\\%c", "tn  r"[cp - '\t']); /* from \t to \r */
        } else if (ju_printable(cp)) {
            jtext_put(r, s->p + i, n, user);
            i += n;
            continue;
        } else {
            snprintf(esc, sizeof esc, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)cp);
        }
        jtext_put(r, esc, strlen(esc), user);
        i += n;
    }
    jtext_put(r, &quote, 1, false);
}

/* Writes values that are not containers; returns false for containers. */
static bool repr_flat(struct jtext *r, struct jv v)
{
    char text[96];
    switch (v.kind) {
    case JV_STR:
        jtext_puts(r, v.str->safe ? "Markup(" : "");
        repr_str(r, v.str);
        jtext_puts(r, v.str->safe ? ")" : "");
        return true;
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT:
    case JV_VIEW:
    case JV_NAMESPACE:
        return false;
    case JV_NONE:
        jtext_puts(r, "None");
        return true;
    case JV_BOOL:
        jtext_puts(r, v.b ? "True" : "False");
        return true;
    case JV_INT:
        snprintf(text, sizeof text, "%lld", (long long)v.i);
        break;
    case JV_FLOAT:
        jv_float_text(v.f, text);
        break;
    case JV_BIGINT:
    case JV_DECIMAL:
        jtext_puts(r, v.digits->p);
        return true;
    case JV_RANGE: {
        int n = snprintf(text, sizeof text, "range(%lld, %lld", (long long)v.range->start, (long long)v.range->stop);
        if (v.range->step != 1) {
            n += snprintf(text + n, sizeof text - (size_t)n, ", %lld", (long long)v.range->step);
        }
        snprintf(text + n, sizeof text - (size_t)n, ")");
        break;
    }
    case JV_MACRO:
        jtext_puts(r, "<Macro>");
        return true;
    case JV_UNDEF:
        jtext_puts(r, "Undefined");
        return true;
    case JV_LOOP:
        snprintf(text, sizeof text, "<LoopContext %u/%u>", (unsigned)v.loop->index + 1, (unsigned)v.loop->n);
        break;
    default:
        snprintf(text, sizeof text, "<%s>", jv_type_name(v));
    }
    jtext_puts(r, text);
    return true;
}

/* The brackets of containers; of views, the opening one is in `views`. */
static const char *const brackets[JV_KINDS][2] = {[JV_LIST] = {"[", "]"},
                                                  [JV_TUPLE] = {"(", ")"},
                                                  [JV_DICT] = {"{", "}"},
                                                  [JV_VIEW] = {"", "])"},
                                                  [JV_NAMESPACE] = {"<Namespace {", "}>"}};
static const char *const views[] = {"dict_keys([", "dict_values([", "dict_items(["};

static bool has_keys(struct jv v) { return v.kind == JV_DICT || v.kind == JV_NAMESPACE; }

enum err jv_write_repr(struct jvm *vm, struct jtext *r, struct jv v)
{
    struct {
        struct jv v;
        uint32_t at; /* twice the item, plus one after its key was written */
    } stack[JV_MAX_NEST];
    int n = 0;
    for (;;) {
        if (!repr_flat(r, v)) {
            if (n == JV_MAX_NEST) {
                return jvm_fail(vm, "data is nested more than %d levels deep", JV_MAX_NEST);
            }
            jtext_puts(r, v.kind == JV_VIEW ? views[v.sub] : brackets[v.kind][0]);
            stack[n].v = v;
            stack[n++].at = 0;
        }
        TRY(jvm_pay(vm, 1));
        for (;;) { /* until the next value to write */
            if (n == 0) {
                return ERR_OK;
            }
            struct jv in = stack[n - 1].v;
            uint32_t at = stack[n - 1].at;
            uint32_t i = at / 2;
            if (i >= (has_keys(in) ? in.dict->n : in.list->n)) {
                jtext_puts(r, in.kind == JV_TUPLE && i == 1 ? "," : "");
                jtext_puts(r, brackets[in.kind][1]);
                n--;
                continue;
            }
            bool is_value = at % 2 == 1;
            if (is_value || i > 0) {
                jtext_puts(r, is_value ? ": " : ", ");
            }
            if (!has_keys(in)) {
                v = in.list->at[i];
            } else {
                v = is_value ? in.dict->at[i].value : in.dict->at[i].key;
            }
            stack[n - 1].at += has_keys(in) ? 1 : 2;
            break;
        }
    }
}

enum err jv_write_str(struct jvm *vm, struct jtext *r, struct jv v)
{
    if (v.kind == JV_STR) {
        jtext_str(r, v.str);
        return ERR_OK;
    }
    return v.kind == JV_UNDEF ? ERR_OK : jv_write_repr(vm, r, v);
}

enum err jv_to_str(struct jvm *vm, struct jv v, struct jv *out)
{
    if (v.kind == JV_STR) {
        *out = v;
        return ERR_OK;
    }
    size_t from = vm->tmp.text.len;
    TRY(jv_write_str(vm, &vm->tmp, v));
    return jtext_take(vm, &vm->tmp, from, out);
}
