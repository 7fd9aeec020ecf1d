/* The filters on single values, and the table of all filters. A new filter needs a function and a row. */
#include "engine/jinja/jinja_filters_internal.h"

#include "engine/base/utf8.h"
#include "engine/jinja/jinja_unicode.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- numbers
 * ----------------------------------------------------------------------------------------------------------- */

static enum err filter_abs(struct jvm *vm, struct jcall *c, struct jv *out)
{
    TRY(jvm_defined(vm, c->self));
    if (!jv_is_number(c->self)) {
        return jvm_fail(vm, "bad operand type for abs: '%s'", jv_type_name(c->self));
    }
    if (jv_is_float(c->self)) {
        *out = jv_float(fabs(jv_as_float(c->self)));
        return ERR_OK;
    }
    if (c->self.kind == JV_BIGINT) {
        *out = c->self;
        return c->self.digits->p[0] == '-' ? jop_negate(vm, c->self, out) : ERR_OK;
    }
    *out = jv_int(jv_as_int(c->self));
    return out->i < 0 ? jop_negate(vm, *out, out) : ERR_OK;
}

/* Rounds like Python: half to even by the exact binary value, as printf does. */
static double round_to(double f, int digits)
{
    char text[400];
    double r = f;
    if (digits < 0) {
        double scale = pow(10, -digits);
        return nearbyint(f / scale) * scale;
    }
    int n = snprintf(text, sizeof text, "%.*f", MIN_OF(digits, 60), f);
    return n < (int)sizeof text && jv_parse_float(text, (size_t)n, &r) ? r : f;
}

/* Rounds an int like Python to tens, hundreds etc. (`digits` zeros; none if less than 1), half to even. */
static enum err round_int(struct jvm *vm, int64_t v, int64_t digits, struct jv *out)
{
    const int64_t half_of_1e19 = 5000000000000000000;
    int64_t unit = 1;
    for (int64_t i = 0; i < digits; i++) {
        if (__builtin_mul_overflow(unit, 10, &unit)) { /* more than half of 10^19 does not fit an int, less becomes 0 */
            *out = jv_int(0);
            bool is_far = digits == 19 && (v > half_of_1e19 || v < -half_of_1e19);
            return is_far ? jvm_fail(vm, "the result does not fit in 64 bits") : ERR_OK;
        }
    }
    int64_t whole = v / unit;
    int64_t rest = v % unit < 0 ? -(v % unit) : v % unit;
    bool away = rest > unit - rest || (rest == unit - rest && whole % 2 != 0);
    if (away) {
        whole += v < 0 ? -1 : 1;
    }
    return jop_binary(vm, JB_MUL, jv_int(whole), jv_int(unit), out);
}

static enum err filter_round(struct jvm *vm, struct jcall *c, struct jv *out) /* precision method */
{
    int64_t precision = 0;
    const struct jstr *method = NULL;
    TRY(jcall_int(vm, c->arg[0], "round", &precision));
    TRY(jvm_defined(vm, c->self));
    if (!jv_is_number(c->self)) {
        return jvm_fail(vm, "round expects a number, not '%s'", jv_type_name(c->self));
    }
    precision = MIN_OF(MAX_OF(precision, -300), 300);
    double f = jv_as_float(c->self);
    TRY(jcall_str(vm, c->arg[1], "round", &method));
    if (method != NULL && !jstr_is(method, "common")) {
        bool up = jstr_is(method, "ceil");
        if (!up && !jstr_is(method, "floor")) {
            return jvm_fail(vm, "the method of round must be common, ceil or floor");
        }
        double scale = pow(10, (double)precision);
        double r = up ? ceil(f * scale) : floor(f * scale);
        if (r - r != 0) {
            return jvm_fail(vm, "cannot round a number that is not finite");
        }
        *out = jv_float((r == 0 ? 0 : r) / scale); /* Python's ceil and floor return an int, which has no -0 */
        return ERR_OK;
    }
    if (jv_is_int(c->self)) {
        return round_int(vm, jv_as_int(c->self), -precision, out);
    }
    *out = jv_float(f - f == 0 ? round_to(f, (int)precision) : f);
    return ERR_OK;
}

static enum err float_to_int(struct jvm *vm, double f, struct jv otherwise, struct jv *out)
{
    if (f - f != 0) {
        *out = otherwise;
        return ERR_OK;
    }
    if (fabs(f) >= 9.2e18) {
        return jvm_fail(vm, "the number does not fit in 64 bits");
    }
    *out = jv_int((int64_t)f);
    return ERR_OK;
}

static enum err filter_int(struct jvm *vm, struct jcall *c, struct jv *out) /* default base */
{
    struct jv otherwise = c->arg[0].kind == JV_ABSENT ? jv_int(0) : c->arg[0];
    int64_t base = 10;
    struct jv v = c->self;
    TRY(jcall_int(vm, c->arg[1], "int", &base));
    TRY(jvm_defined(vm, v));
    if (jv_is_int(v)) {
        *out = jv_int(jv_as_int(v));
        return ERR_OK;
    }
    if (v.kind == JV_BIGINT) {
        *out = v;
        return ERR_OK;
    }
    if (jv_is_float(v)) {
        double f = jv_as_float(v);
        return isinf(f) ? jvm_fail(vm, "cannot convert float infinity to integer")
                        : float_to_int(vm, f, otherwise, out);
    }
    *out = otherwise;
    if (!jv_is_str(v)) {
        return ERR_OK;
    }
    int64_t i;
    double f;
    bool overflow = false;
    if ((base == 0 || (base >= 2 && base <= 36)) && jv_parse_int(v.str->p, v.str->len, (int)base, &i, &overflow)) {
        *out = jv_int(i);
        return ERR_OK;
    }
    if (overflow) {
        return jvm_fail(vm, "the number does not fit in 64 bits");
    }
    return jv_parse_float(v.str->p, v.str->len, &f) ? float_to_int(vm, f, otherwise, out) : ERR_OK;
}

static enum err filter_float(struct jvm *vm, struct jcall *c, struct jv *out) /* default */
{
    struct jv v = c->self;
    double f;
    TRY(jvm_defined(vm, v));
    if (jv_is_number(v)) {
        *out = jv_float(jv_as_float(v));
    } else if (jv_is_str(v) && jv_parse_float(v.str->p, v.str->len, &f)) {
        *out = jv_float(f);
    } else {
        *out = c->arg[0].kind == JV_ABSENT ? jv_float(0) : c->arg[0];
    }
    return ERR_OK;
}

/* --- text
 * --------------------------------------------------------------------------------------------------------------- */

static enum err filter_string(struct jvm *vm, struct jcall *c, struct jv *out) { return jv_to_str(vm, c->self, out); }

static enum err filter_center(struct jvm *vm, struct jcall *c, struct jv *out) /* width */
{
    int64_t width = 80;
    struct jstr space = {.p = " ", .len = 1, .chars = 1};
    TRY(jcall_int(vm, c->arg[0], "center", &width));
    TRY(jv_to_str(vm, c->self, out));
    return jstr_pad(vm, out->str, width, &space, JSIDE_LEFT | JSIDE_RIGHT, out);
}

static enum err filter_wordcount(struct jvm *vm, struct jcall *c, struct jv *out)
{
    struct jv s;
    TRY(jv_to_str(vm, c->self, &s));
    int64_t words = 0;
    bool in_word = false;
    for (size_t i = 0; i < s.str->len;) {
        uint32_t cp;
        i += utf8_decode(s.str->p + i, s.str->len - i, &cp, NULL);
        bool is_word = cp == '_' || ju_alnum(cp);
        words += is_word && !in_word;
        in_word = is_word;
    }
    *out = jv_int(words);
    return jvm_pay_read(vm, s.str->len);
}

/* Takes a width in spaces, or the text itself. */
static enum err indention(struct jvm *vm, struct jv v, int64_t otherwise, struct jv *out)
{
    int64_t width = otherwise;
    if (jv_is_str(v)) {
        *out = v;
        return ERR_OK;
    }
    TRY(jcall_int(vm, v, "the indentation", &width));
    width = MAX_OF(width, 0);
    if (width > JINJA_MAX_OUTPUT_BYTES) {
        return jvm_fail(vm, "an indentation is longer than %d bytes", JINJA_MAX_OUTPUT_BYTES);
    }
    jtext_fill(&vm->tmp, ' ', (size_t)width);
    return jtext_take(vm, &vm->tmp, 0, out);
}

static enum err filter_indent(struct jvm *vm, struct jcall *c, struct jv *out) /* width first blank */
{
    struct jv indent;
    struct jv lines;
    TRY(indention(vm, c->arg[0], 4, &indent));
    const struct jstr *s;
    TRY(jcall_str(vm, c->self, "indent", &s));
    struct jstr newline = {.p = "\n", .len = 1, .chars = 1};
    TRY(jv_concat(vm, s, &newline, out)); /* so that a final empty line counts, as in jinja2 */
    TRY(jstr_lines(vm, out->str, false, &lines));
    bool first = jcall_flag(c->arg[1], false);
    bool blank = jcall_flag(c->arg[2], false);
    for (uint32_t i = 0; i < lines.list->n; i++) {
        const struct jstr *line = lines.list->at[i].str;
        if (i > 0) {
            jtext_puts(&vm->tmp, "\n");
        }
        if (i == 0 ? first : blank || line->len > 0) {
            jtext_str(&vm->tmp, indent.str);
        }
        jtext_str(&vm->tmp, line);
    }
    return jtext_take(vm, &vm->tmp, 0, out);
}

static enum err filter_safe(struct jvm *vm, struct jcall *c, struct jv *out)
{
    TRY(jv_to_str(vm, c->self, out));
    return jv_mark_safe(vm, out->str, out);
}

static enum err filter_forceescape(struct jvm *vm, struct jcall *c, struct jv *out)
{
    TRY(jv_to_str(vm, c->self, out));
    TRY(jv_escape(vm, out->str, out));
    return jv_mark_safe(vm, out->str, out);
}

static enum err filter_escape(struct jvm *vm, struct jcall *c, struct jv *out)
{
    if (jv_is_str(c->self) && c->self.str->safe) {
        *out = c->self;
        return ERR_OK;
    }
    return filter_forceescape(vm, c, out);
}

static enum err filter_format(struct jvm *vm, struct jcall *c, struct jv *out)
{
    struct jv args;
    struct jv s;
    TRY(jv_to_str(vm, c->self, &s));
    if (c->n_pos > 0 && c->n_kw > 0) {
        return jvm_fail(vm, "format takes positional or named arguments, not both");
    }
    if (c->n_kw > 0) {
        TRY(jv_dict_new(vm, JV_DICT, c->n_kw, &args));
        for (uint32_t i = 0; i < c->n_kw; i++) {
            TRY(jv_dict_put(vm, args.dict, c->kw_names[i], c->kw[i]));
        }
    } else {
        TRY(jv_list_of(vm, JV_TUPLE, c->pos, c->n_pos, &args));
    }
    return jop_format(vm, s.str, args, out);
}

/* --- any value
 * ------------------------------------------------------------------------------------------------------------ */

static enum err filter_length(struct jvm *vm, struct jcall *c, struct jv *out)
{
    int64_t n = jv_len(c->self);
    *out = jv_int(n);
    return n < 0 ? jvm_fail(vm, "object of type '%s' has no len()", jv_type_name(c->self)) : ERR_OK;
}

static enum err filter_default(struct jvm *vm, struct jcall *c, struct jv *out) /* default_value boolean */
{
    bool use = c->self.kind == JV_UNDEF || (jcall_flag(c->arg[1], false) && !jv_truth(c->self));
    if (use && c->arg[0].kind == JV_ABSENT) {
        return jv_borrow(vm, "", 0, false, out);
    }
    *out = use ? c->arg[0] : c->self;
    return ERR_OK;
}

static enum err json_separator(struct jvm *vm, struct jv pair, uint32_t i, struct jstr *fixed, const struct jstr **out)
{
    *out = fixed;
    if (!jcall_given(pair)) {
        return ERR_OK;
    }
    if (!jv_is_seq(pair) || pair.list->n != 2) {
        return jvm_fail(vm, "the separators of tojson must be two strings");
    }
    return jcall_str(vm, pair.list->at[i], "tojson", out);
}

static enum err filter_tojson(struct jvm *vm, struct jcall *c,
                              struct jv *out) /* ensure_ascii indent separators sort_keys */
{
    struct jjson_style style = {.ensure_ascii = jcall_flag(c->arg[0], false),
                                .sort_keys = jcall_flag(c->arg[3], false)};
    struct jv indent;
    if (jcall_given(c->arg[1])) {
        TRY(indention(vm, c->arg[1], 0, &indent));
        style.indent = indent.str;
        style.has_indent = true;
    }
    struct jstr item = {.p = ", ", .len = style.has_indent ? 1 : 2, .chars = style.has_indent ? 1 : 2};
    struct jstr key = {.p = ": ", .len = 2, .chars = 2};
    TRY(json_separator(vm, c->arg[2], 0, &item, &style.item_sep));
    TRY(json_separator(vm, c->arg[2], 1, &key, &style.key_sep));
    TRY(jv_write_json(vm, &vm->tmp, c->self, &style));
    return jtext_take(vm, &vm->tmp, 0, out);
}

const struct jbuiltin jinja_filters[] = {
    {"abs", filter_abs, "", 0, 0},
    {"batch", jfilter_batch, "linecount fill_with", 1, 0},
    {"capitalize", jcall_case, "", 0, JCASE_CAPITALIZE},
    {"center", filter_center, "width", 0, 0},
    {"count", filter_length, "", 0, 0},
    {"d", filter_default, "default_value boolean", 0, 0},
    {"default", filter_default, "default_value boolean", 0, 0},
    {"dictsort", jfilter_dictsort, "case_sensitive by reverse", 0, 0},
    {"e", filter_escape, "", 0, 0},
    {"escape", filter_escape, "", 0, 0},
    {"first", jfilter_first, "", 0, 0},
    {"float", filter_float, "default", 0, 0},
    {"forceescape", filter_forceescape, "", 0, 0},
    {"format", filter_format, "*", 0, 0},
    {"indent", filter_indent, "width first blank", 0, 0},
    {"int", filter_int, "default base", 0, 0},
    {"items", jfilter_items, "", 0, 0},
    {"join", jfilter_join, "d attribute", 0, 0},
    {"last", jfilter_last, "", 0, 0},
    {"length", filter_length, "", 0, 0},
    {"list", jfilter_list, "", 0, 0},
    {"lower", jcall_case, "", 0, JCASE_LOWER},
    {"map", jfilter_map, "*", 0, 0},
    {"max", jfilter_extreme, "case_sensitive attribute", 0, 1},
    {"min", jfilter_extreme, "case_sensitive attribute", 0, -1},
    {"reject", jfilter_choose, "*", 0, 0},
    {"rejectattr", jfilter_choose, "*", 0, JCHOOSE_BY_ATTRIBUTE},
    {"replace", jcall_replace, "old new count", 2, false},
    {"reverse", jfilter_reverse, "", 0, 0},
    {"round", filter_round, "precision method", 0, 0},
    {"safe", filter_safe, "", 0, 0},
    {"select", jfilter_choose, "*", 0, JCHOOSE_WANTED},
    {"selectattr", jfilter_choose, "*", 0, JCHOOSE_WANTED | JCHOOSE_BY_ATTRIBUTE},
    {"slice", jfilter_slice, "slices fill_with", 1, 0},
    {"sort", jfilter_sort, "reverse case_sensitive attribute", 0, 0},
    {"string", filter_string, "", 0, 0},
    {"sum", jfilter_sum, "attribute start", 0, 0},
    {"title", jcall_case, "", 0, JCASE_WORDS},
    {"tojson", filter_tojson, "ensure_ascii indent separators sort_keys", 0, 0},
    {"trim", jcall_strip, "chars", 0, JSIDE_LEFT | JSIDE_RIGHT},
    {"unique", jfilter_unique, "case_sensitive attribute", 0, 0},
    {"upper", jcall_case, "", 0, JCASE_UPPER},
    {"wordcount", filter_wordcount, "", 0, 0},
    {NULL, NULL, NULL, 0, 0},
};
