/* Formatting of values: `format % args` and str.format, which share the description of a field. Source: Python 3
 * library reference, "printf-style String Formatting" and "Format Specification Mini-Language". */
#include "engine/jinja/jinja_vm.h"

#include "engine/base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PRECISION = 100, MAX_WIDTH = 1 << 16, NUMBER_BYTES = 512 /* 309 digits of a double, and the precision */ };

struct field {
    struct jstr fill; /* one character */
    char align;       /* '<' '>' '^' '='; 0: the type's default */
    char sign[2];     /* of numbers that are not negative: "+", " " or "" */
    char group;       /* ',' or '_' between thousands; 0: none */
    char type;        /* 0: none */
    bool alternate;   /* # */
    bool escape;      /* the format is Markup: escape texts */
    bool user;        /* this part of the format is user text, so fill and signs are user text, too */
    int width;
    int precision; /* -1: none */
};

static const struct jstr space = {.p = " ", .len = 1, .chars = 1};
static const struct jstr zero = {.p = "0", .len = 1, .chars = 1};

/* --- one value into vm->tmp ------------------------------------------------------------------------------------- */

static void fill(struct jvm *vm, const struct field *f, int64_t n)
{
    for (int64_t i = 0; i < n && vm->tmp.text.err == ERR_OK; i++) {
        jtext_put(&vm->tmp, f->fill.p, f->fill.len, f->user);
    }
}

/* Returns how much of the fill precedes the value. */
static int64_t fill_before(char align, int64_t missing)
{
    if (align == '^') {
        return missing / 2;
    }
    return align == '>' ? missing : 0;
}

/* Writes a text, cut to the precision and filled to the width. */
static enum err put_text(struct jvm *vm, const struct field *f, const struct jstr *s)
{
    struct jv cut = {.kind = JV_STR, .str = s};
    if (f->precision >= 0 && (uint32_t)f->precision < s->chars) {
        TRY(jop_slice(vm, cut, (struct jv[]){jv_none(), jv_int(f->precision), jv_none()}, &cut));
    }
    int64_t missing = MAX_OF((int64_t)f->width - cut.str->chars, 0);
    int64_t left = fill_before(f->align == '=' ? '>' : f->align, missing);
    fill(vm, f, left);
    jtext_str(&vm->tmp, cut.str);
    fill(vm, f, missing - left);
    return jtext_ok(vm, &vm->tmp);
}

/* Bases of numbers by the type of the field; 0: decimal. */
static const uint8_t bases[UINT8_MAX + 1] = {['b'] = 2, ['o'] = 8, ['x'] = 16, ['X'] = 16};

/* Groups the integer digits at the start of `digits` by threes, in hex, octal and binary by fours. */
static void group_digits(const char *digits, char type, char group, char out[2 * NUMBER_BYTES])
{
    size_t by = bases[(unsigned char)type] != 0 ? 4 : 3;
    size_t whole = strspn(digits, by == 4 ? "0123456789abcdefABCDEF" : "0123456789");
    size_t n = 0;
    for (size_t i = 0; i < whole; i++) {
        if (i > 0 && (whole - i) % by == 0) {
            out[n++] = group;
        }
        out[n++] = digits[i];
    }
    memcpy(out + n, digits + whole, strlen(digits + whole) + 1);
}

/* Writes the prefix ("-", "0x") and the digits, filled to the width; '=' fills after the prefix. */
static enum err put_number(struct jvm *vm, const struct field *f, const char *prefix, const char *digits)
{
    char grouped[2 * NUMBER_BYTES];
    if (f->group != 0) {
        group_digits(digits, f->type, f->group, grouped);
        digits = grouped;
    }
    int64_t missing = MAX_OF((int64_t)f->width - (int64_t)(strlen(prefix) + strlen(digits)), 0);
    int64_t left = fill_before(f->align == 0 ? '>' : f->align, missing);
    int64_t inside = f->align == '=' ? missing : 0;
    fill(vm, f, left);
    jtext_put(&vm->tmp, prefix, strlen(prefix), f->user);
    fill(vm, f, inside);
    jtext_put(&vm->tmp, digits, strlen(digits), f->user);
    fill(vm, f, missing - left - inside);
    return jtext_ok(vm, &vm->tmp);
}

static void capitals(char *s)
{
    for (; *s != '\0'; s++) {
        *s = *s >= 'a' && *s <= 'z' ? (char)(*s - 0x20) : *s;
    }
}

static enum err put_int(struct jvm *vm, const struct field *f, int64_t v)
{
    char room[NUMBER_BYTES];
    char prefix[4];
    char *digits = room + sizeof room - 1;
    unsigned base = bases[(unsigned char)f->type];
    bool is_marked = f->alternate && base != 0;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    base = base == 0 ? 10 : base;
    *digits = '\0';
    for (int n = MAX_OF(f->precision, 1); n > 0 || u > 0; n--, u /= base) {
        *--digits = "0123456789abcdef"[u % base];
    }
    snprintf(prefix, sizeof prefix, "%s%s%.*s", v < 0 ? "-" : f->sign, is_marked ? "0" : "", is_marked, &f->type);
    if (f->type == 'X') {
        capitals(digits);
    }
    return put_number(vm, f, prefix, digits);
}

/* Formats a float without a type like Python: repr, or %g with the precision and at least one digit after the point. */
static void general(const struct field *f, double v, char out[NUMBER_BYTES])
{
    if (f->precision < 0) {
        jv_float_text(v, out);
        return;
    }
    snprintf(out, NUMBER_BYTES, "%.*g", f->precision, v);
    if (strspn(out, "0123456789") == strlen(out)) {
        strncat(out, ".0", 3);
    }
}

static enum err put_float(struct jvm *vm, const struct field *f, double v)
{
    char digits[NUMBER_BYTES];
    bool negative = signbit(v) != 0 && v == v;
    double size = fabs(v);
    int precision = f->precision < 0 ? 6 : f->precision;
    switch (f->type | 0x20) {
    case 'e':
        snprintf(digits, sizeof digits, f->alternate ? "%#.*e" : "%.*e", precision, size);
        break;
    case 'f':
        snprintf(digits, sizeof digits, f->alternate ? "%#.*f" : "%.*f", precision, size);
        break;
    case 'g':
        snprintf(digits, sizeof digits, f->alternate ? "%#.*g" : "%.*g", precision, size);
        break;
    case '%':
        snprintf(digits, sizeof digits, "%.*f%%", precision, size * 100);
        break;
    default:
        general(f, size, digits);
    }
    if (f->type >= 'E' && f->type <= 'G') {
        capitals(digits);
    }
    return put_number(vm, f, negative ? "-" : f->sign, digits);
}

static enum err put_char(struct jvm *vm, const struct field *f, struct jv v)
{
    char bytes[4];
    const struct span whole = {0, sizeof bytes};
    struct jstr s = {.p = bytes, .chars = 1, .user = &whole, .n_user = 1}; /* any number can come from the user */
    if (jv_is_str(v) && v.str->chars == 1) {
        return put_text(vm, f, v.str);
    }
    if (!jv_is_int(v) || jv_as_int(v) < 0 || jv_as_int(v) > 0x10FFFF) {
        return jvm_fail(vm, "%%c requires a code point or one character");
    }
    s.len = (uint32_t)utf8_encode((uint32_t)jv_as_int(v), bytes);
    return put_text(vm, f, &s);
}

/* --- % ---------------------------------------------------------------------------------------------------------- */

/* A format, and the bytes [at, end) of it that are still to be read. */
struct source {
    const struct jstr *s;
    size_t at, end;
};

/* Reads the next byte if it is one of `set`; otherwise returns '\0'. */
static char take(struct source *in, const char *set)
{
    char c = in->at < in->end ? in->s->p[in->at] : '\0';
    if (c == '\0' || strchr(set, c) == NULL) {
        return '\0';
    }
    in->at++;
    return c;
}

struct args {
    struct jv all;
    uint32_t next;
    bool is_tuple;
};

static enum err next_arg(struct jvm *vm, struct args *a, struct jv *out)
{
    uint32_t n = a->is_tuple ? a->all.list->n : 1;
    if (a->next >= n) {
        return jvm_fail(vm, "not enough arguments for format string");
    }
    *out = a->is_tuple ? a->all.list->at[a->next] : a->all;
    a->next++;
    return ERR_OK;
}

/* Reads digits, or * for the next argument; -1: neither. */
static enum err read_number(struct jvm *vm, struct source *in, struct args *a, int limit, int *out)
{
    *out = -1;
    if (take(in, "*") != '\0') {
        struct jv v;
        int64_t i;
        TRY(next_arg(vm, a, &v));
        TRY(jcall_int(vm, v, "*", &i));
        *out = i < 0 || i > limit ? limit + 1 : (int)i;
    }
    for (char c; (c = take(in, "0123456789")) != '\0';) {
        *out = MIN_OF(MAX_OF(*out, 0) * 10 + (c - '0'), limit + 1);
    }
    return *out > limit ? jvm_fail(vm, "a width or precision is larger than %d", limit) : ERR_OK;
}

static enum err put_percent(struct jvm *vm, struct field *f, struct jv v)
{
    struct jv text;
    switch (f->type) {
    case 's':
    case 'r': {
        size_t from = vm->tmp.text.len;
        TRY(f->type == 's' ? jv_write_str(vm, &vm->tmp, v) : jv_write_repr(vm, &vm->tmp, v));
        TRY(jtext_take(vm, &vm->tmp, from, &text));
        if (f->escape && !(f->type == 's' && jv_is_str(v) && v.str->safe)) {
            TRY(jv_escape(vm, text.str, &text));
        }
        return put_text(vm, f, text.str);
    }
    case 'c':
        return put_char(vm, f, v);
    default:
        break;
    }
    TRY(jvm_defined(vm, v));
    bool is_whole = f->type != 0 && strchr("diuxXo", f->type) != NULL;
    bool may_round = f->type == 'd' || f->type == 'i' || f->type == 'u';
    if (!jv_is_number(v) || (is_whole && !may_round && jv_is_float(v))) {
        return jvm_fail(vm, "%%%c format: a number is required, not %s", f->type, jv_type_name(v));
    }
    if (!is_whole) {
        return put_float(vm, f, jv_as_float(v));
    }
    if (!jv_is_int(v) && !(fabs(jv_as_float(v)) < 9.2e18)) {
        return jvm_fail(vm, "%%%c format: the number does not fit in 64 bits", f->type);
    }
    return put_int(vm, f, jv_is_int(v) ? jv_as_int(v) : (int64_t)jv_as_float(v));
}

static void read_flags(struct source *in, struct field *f)
{
    for (char c; (c = take(in, "-+ #0")) != '\0';) {
        switch (c) {
        case '-':
            f->align = '<';
            break;
        case '+':
            f->sign[0] = '+';
            break;
        case ' ':
            f->sign[0] = f->sign[0] == '+' ? '+' : ' ';
            break;
        case '#':
            f->alternate = true;
            break;
        default: /* '0' */
            f->align = f->align == '<' ? '<' : '=';
        }
    }
}

/* Returns whether format[from..to) contains user text. */
static bool is_user_part(const struct jstr *format, size_t from, size_t to)
{
    uint32_t i = jstr_span_at(format, from);
    return i < format->n_user && format->user[i].from < to;
}

/* Formats one conversion, whose % was read. */
static enum err conversion(struct jvm *vm, struct source *in, struct args *a)
{
    const struct jstr *s = in->s;
    size_t begin = in->at - 1;
    struct field f = {.fill = space, .align = '>', .precision = -1, .escape = s->safe};
    struct jv v = {.kind = JV_ABSENT};
    if (take(in, "(") != '\0') {
        const char *end = memchr(s->p + in->at, ')', s->len - in->at);
        struct jv key;
        if (end == NULL || a->all.kind != JV_DICT) {
            return jvm_fail(vm, end == NULL ? "incomplete format key" : "format requires a mapping");
        }
        TRY(jv_substr(vm, s, in->at, (size_t)(end - s->p), &key));
        TRY(jv_dict_find(vm, a->all.dict, key, &v));
        if (v.kind == JV_ABSENT) {
            return jvm_fail(vm, "the mapping has no key '%.*s'", (int)MIN_OF(key.str->len, 80u), key.str->p);
        }
        in->at = (size_t)(end - s->p) + 1;
    }
    read_flags(in, &f);
    f.fill = f.align == '=' ? zero : space;
    TRY(read_number(vm, in, a, MAX_WIDTH, &f.width));
    f.width = MAX_OF(f.width, 0);
    if (take(in, ".") != '\0') {
        TRY(read_number(vm, in, a, MAX_PRECISION, &f.precision));
        f.precision = MAX_OF(f.precision, 0);
    }
    while (take(in, "lhL") != '\0') {
    }
    if (in->at >= in->end) {
        return jvm_fail(vm, "incomplete format");
    }
    f.type = s->p[in->at++];
    f.user = is_user_part(s, begin, in->at);
    if (f.type == '%') {
        jtext_put(&vm->tmp, "%", 1, f.user);
        return ERR_OK;
    }
    if (f.type == '\0' || strchr("srcdiuxXoeEfFgG", f.type) == NULL) {
        return jvm_fail(vm, "unsupported format character 0x%02x at index %zu", (unsigned)(unsigned char)f.type,
                        in->at - 1);
    }
    if (strchr("src", f.type) != NULL) {
        f.fill = space;
        f.align = f.align == '=' ? '>' : f.align;
    }
    if (v.kind == JV_ABSENT) {
        TRY(next_arg(vm, a, &v));
    }
    return put_percent(vm, &f, v);
}

enum err jop_format(struct jvm *vm, const struct jstr *format, struct jv args, struct jv *out)
{
    struct args a = {.all = args, .is_tuple = args.kind == JV_TUPLE};
    struct source in = {format, 0, format->len};
    size_t from = vm->tmp.text.len;
    while (in.at < in.end) {
        const char *p = memchr(format->p + in.at, '%', in.end - in.at);
        size_t to = p == NULL ? in.end : (size_t)(p - format->p);
        jtext_sub(&vm->tmp, format, in.at, to);
        in.at = to + 1;
        if (p != NULL) {
            TRY(jvm_pay(vm, 1));
            TRY(conversion(vm, &in, &a));
        }
    }
    bool may_remain = args.kind == JV_DICT || args.kind == JV_LIST; /* Python's rule: any value with items by key */
    if (!may_remain && a.next < (a.is_tuple ? args.list->n : 1)) {
        return jvm_fail(vm, "not all arguments converted during string formatting");
    }
    TRY(jtext_take(vm, &vm->tmp, from, out));
    return format->safe ? jv_mark_safe(vm, out->str, out) : ERR_OK;
}

/* --- str.format ------------------------------------------------------------------------------------------------- */

/* Reads [[fill]align][sign][#][0][width][group][.precision][type], which must be all of the source. */
static enum err read_spec(struct jvm *vm, struct source in, struct field *f)
{
    struct args none = {.all = {.kind = JV_NONE}};
    const char *p = in.s->p + in.at;
    size_t left = in.end - in.at;
    uint32_t cp;
    size_t n = utf8_decode(p, left, &cp, NULL);
    if (n < left && p[n] != '\0' && strchr("<>^=", p[n]) != NULL) {
        f->fill = (struct jstr){.p = p, .len = (uint32_t)n, .chars = 1};
        in.at += n;
    }
    f->align = take(&in, "<>^=");
    f->sign[0] = take(&in, "+- ");
    f->sign[0] = f->sign[0] == '-' ? '\0' : f->sign[0];
    f->alternate = take(&in, "#") != '\0';
    if (take(&in, "0") != '\0' && f->align == 0) {
        f->fill = zero;
        f->align = '=';
    }
    TRY(read_number(vm, &in, &none, MAX_WIDTH, &f->width));
    f->width = MAX_OF(f->width, 0);
    f->group = take(&in, ",_");
    if (take(&in, ".") != '\0') {
        TRY(read_number(vm, &in, &none, MAX_PRECISION, &f->precision));
        if (f->precision < 0) {
            return jvm_fail(vm, "format specifier missing precision");
        }
    }
    f->type = in.at < in.end ? in.s->p[in.at++] : '\0';
    return in.at == in.end ? ERR_OK : jvm_fail(vm, "invalid format specifier");
}

static enum err put_field(struct jvm *vm, struct field *f, struct jv v, bool has_spec)
{
    if (f->type == 's' ||
        (f->type == 0 && (!jv_is_number(v) || ((v.kind == JV_BOOL || jv_has_digits(v)) && !has_spec)))) {
        struct jv text;
        if (!jv_is_str(v) && (f->type == 's' || has_spec)) {
            return jvm_fail(vm, "unsupported format for '%s'", jv_type_name(v));
        }
        if (f->align == '=' && f->fill.p != zero.p) {
            return jvm_fail(vm, "'=' alignment not allowed in string format specifier");
        }
        f->align = f->align == '=' ? '<' : f->align;
        TRY(jv_to_str(vm, v, &text));
        return put_text(vm, f, text.str);
    }
    if (f->type == 'c' && jv_is_int(v)) {
        return put_char(vm, f, v);
    }
    bool is_whole = f->type == 0 ? jv_is_int(v) : strchr("dxXobn", f->type) != NULL;
    bool known = f->type == 0 || strchr("dxXobneEfFgG%", f->type) != NULL;
    if (v.kind == JV_BIGINT) {
        return jvm_fail(vm, "formatting an integer that does not fit in 64 bits");
    }
    if (!known || !jv_is_number(v) || (is_whole && (jv_is_float(v) || f->precision >= 0))) {
        return jvm_fail(vm, "unknown format code for object of type '%s'", jv_type_name(v));
    }
    return is_whole ? put_int(vm, f, jv_as_int(v)) : put_float(vm, f, jv_as_float(v));
}

/* The arguments of str.format, and how its fields have named them. */
struct fields {
    struct jcall *c;
    uint32_t next; /* argument of the next field without a name */
    bool by_hand, automatic;
};

/* Finds the argument p[0..n): "", "0" or "name". */
static enum err find_arg(struct jvm *vm, struct fields *f, const char *p, size_t n, struct jv *out)
{
    enum { MAX_DIGITS = 6 };
    int64_t i = f->next;
    if (n > 0 && (n > MAX_DIGITS || !jstr_index(p, n, &i))) {
        *out = jcall_keyword(f->c, p, n);
        return out->kind != JV_ABSENT
                   ? ERR_OK
                   : jvm_fail(vm, "no argument '%.*s' for the format", (int)MIN_OF(n, (size_t)80), p);
    }
    *(n == 0 ? &f->automatic : &f->by_hand) = true;
    f->next += n == 0;
    if (f->automatic && f->by_hand) {
        return jvm_fail(vm, "cannot switch between automatic and manual field numbering");
    }
    if (i >= f->c->n_pos) {
        return jvm_fail(vm, "replacement index %u out of range for positional args", (unsigned)i);
    }
    *out = f->c->pos[i];
    return ERR_OK;
}

/* Finds the value that a field names: an argument, then .attribute and [item] parts. */
static enum err find_field(struct jvm *vm, struct fields *f, struct source in, struct jv *out)
{
    const char *p = in.s->p;
    size_t to = in.at;
    while (to < in.end && p[to] != '.' && p[to] != '[') {
        to++;
    }
    TRY(find_arg(vm, f, p + in.at, to - in.at, out));
    while (to < in.end) {
        char open = p[to++];
        size_t from = to;
        while (to < in.end && (open == '[' ? p[to] != ']' : p[to] != '.' && p[to] != '[')) {
            to++;
        }
        struct jv key;
        int64_t i;
        if (from == to || (open == '[' && to == in.end)) {
            return jvm_fail(vm, "empty or unclosed part in a format field");
        }
        TRY(jv_substr(vm, in.s, from, to, &key));
        if (open == '[' && jstr_index(p + from, to - from, &i)) {
            key = jv_int(i);
        }
        TRY(open == '.' ? jop_attr(vm, *out, key, out) : jop_item(vm, *out, key, out));
        to += open == '[';
    }
    return ERR_OK;
}

/* Formats one field, whose { was read. */
static enum err replacement(struct jvm *vm, struct fields *fields, struct source *in)
{
    const char *p = in->s->p;
    size_t end = in->at;
    while (end < in->end && p[end] != '}' && p[end] != '{') {
        end++;
    }
    if (end == in->end || p[end] == '{') {
        return jvm_fail(vm, end == in->end ? "expected '}' before end of string"
                                           : "fields inside fields are not supported");
    }
    size_t spec = in->at;
    while (spec < end && p[spec] != ':' && p[spec] != '!') {
        spec++;
    }
    struct field f = {.fill = space, .precision = -1, .user = is_user_part(in->s, in->at, end)};
    struct jv v;
    TRY(find_field(vm, fields, (struct source){in->s, in->at, spec}, &v));
    if (spec < end && p[spec] == '!') {
        size_t from = vm->tmp.text.len;
        char how = spec + 1 < end ? p[spec + 1] : '\0';
        if (how != 's' && how != 'r') {
            return jvm_fail(vm, "unknown conversion specifier in a format field");
        }
        TRY(how == 's' ? jv_write_str(vm, &vm->tmp, v) : jv_write_repr(vm, &vm->tmp, v));
        TRY(jtext_take(vm, &vm->tmp, from, &v));
        spec += 2;
        if (spec < end && p[spec] != ':') {
            return jvm_fail(vm, "expected ':' after conversion specifier");
        }
    }
    bool has_spec = spec + 1 < end;
    if (has_spec) {
        TRY(read_spec(vm, (struct source){in->s, spec + 1, end}, &f));
    }
    in->at = end + 1;
    return put_field(vm, &f, v, has_spec);
}

enum err jcall_format(struct jvm *vm, struct jcall *c, struct jv *out)
{
    const struct jstr *s = c->self.str;
    struct fields fields = {.c = c};
    struct source in = {s, 0, s->len};
    if (s->safe) {
        return jvm_fail(vm, "format on text that is marked safe is not supported");
    }
    size_t begin = vm->tmp.text.len;
    while (in.at < in.end) {
        size_t from = in.at;
        while (in.at < in.end && s->p[in.at] != '{' && s->p[in.at] != '}') {
            in.at++;
        }
        jtext_sub(&vm->tmp, s, from, in.at);
        if (in.at == in.end) {
            break;
        }
        TRY(jvm_pay(vm, 1));
        char brace = s->p[in.at++];
        if (in.at < in.end && s->p[in.at] == brace) {
            jtext_sub(&vm->tmp, s, in.at - 1, in.at);
            in.at++;
        } else if (brace == '}') {
            return jvm_fail(vm, "single '}' encountered in format string");
        } else {
            TRY(replacement(vm, &fields, &in));
        }
    }
    return jtext_take(vm, &vm->tmp, begin, out);
}
