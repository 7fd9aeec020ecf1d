/* JSON input and output: the context as values, and the tojson filter, whose output equals Python's json.dumps. */
#include "engine/jinja/jinja_vm.h"

#include "engine/base/json_number.h"
#include "engine/base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- out -------------------------------------------------------------------------------------------------------- */

static void write_string(struct jtext *r, const struct jstr *s, bool ascii)
{
    jtext_puts(r, "\"");
    uint32_t span = 0;
    size_t plain = 0; /* start of the bytes that need no escape */
    for (size_t i = 0; i < s->len;) {
        unsigned char c = (unsigned char)s->p[i];
        if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x7F || !ascii)) {
            i++;
            continue;
        }
        jtext_sub(r, s, plain, i);
        uint32_t cp;
        size_t n = utf8_decode(s->p + i, s->len - i, &cp, NULL);
        const char *short_form = c == '\0' ? NULL : strchr("\"\"\\\\\nn\rr\tt\bb\ff", c);
        char esc[16];
        if (short_form != NULL && (c < 0x20 || c == '"' || c == '\\')) {
            snprintf(esc, sizeof esc, "\\%c", short_form[1]);
        } else if (cp < 0x10000) {
            snprintf(esc, sizeof esc, "\\u%04x", (unsigned)cp);
        } else {
            unsigned v = (unsigned)cp - 0x10000;
            snprintf(esc, sizeof esc, "\\u%04x\\u%04x", 0xD800 + (v >> 10), 0xDC00 + (v & 0x3FF));
        }
        jtext_put(r, esc, strlen(esc), jstr_user_at(s, i, &span));
        i += n;
        plain = i;
    }
    jtext_sub(r, s, plain, s->len);
    jtext_puts(r, "\"");
}

static enum err write_flat(struct jvm *vm, struct jtext *r, struct jv v, const struct jjson_style *style, bool is_key)
{
    char room[JV_FLOAT_BYTES + 2];
    const char *text = room;
    switch (v.kind) {
    case JV_STR:
        write_string(r, v.str, style->ensure_ascii);
        return ERR_OK;
    case JV_NONE:
        text = "null";
        break;
    case JV_BOOL:
        text = v.b ? "true" : "false";
        break;
    case JV_INT:
        snprintf(room, sizeof room, "%lld", (long long)v.i);
        break;
    case JV_FLOAT:
        jv_float_text(v.f, room);
        if (v.f != v.f || v.f - v.f != 0) {
            text = v.f != v.f ? "NaN" : v.f > 0 ? "Infinity" : "-Infinity";
        }
        break;
    case JV_BIGINT:
    case JV_DECIMAL:
        text = v.digits->p;
        break;
    default:
        return is_key ? jvm_fail(vm, "keys must be str, int, float, bool or None, not %s", jv_type_name(v))
                      : jvm_fail(vm, "Object of type %s is not JSON serializable", jv_type_name(v));
    }
    jtext_puts(r, is_key ? "\"" : "");
    jtext_puts(r, text);
    jtext_puts(r, is_key ? "\"" : "");
    return ERR_OK;
}

static void new_line(struct jtext *r, const struct jjson_style *style, int level)
{
    if (style->has_indent) {
        jtext_puts(r, "\n");
        for (int i = 0; i < level; i++) {
            jtext_str(r, style->indent);
        }
    }
}

/* Returns a copy of d, sorted by key. */
static enum err sorted(struct jvm *vm, struct jv *v)
{
    struct jv copy;
    TRY(jv_dict_new(vm, JV_DICT, v->dict->n, &copy));
    struct jv_dict *d = copy.dict;
    for (uint32_t i = 0; i < v->dict->n; i++) { /* insertion sort, because an object has few keys; paid for */
        uint32_t to = d->n;
        for (; to > 0; to--) {
            int c;
            TRY(jvm_pay(vm, 1));
            TRY(jv_order(vm, d->at[to - 1].key, v->dict->at[i].key, "<", &c));
            if (c <= 0) {
                break;
            }
            d->at[to] = d->at[to - 1];
        }
        d->at[to] = v->dict->at[i];
        d->n++;
    }
    *v = copy;
    return ERR_OK;
}

enum err jv_write_json(struct jvm *vm, struct jtext *r, struct jv v, const struct jjson_style *style)
{
    struct {
        struct jv v;
        uint32_t at;
    } stack[JV_MAX_NEST];
    int n = 0;
    for (;;) {
        TRY(jvm_pay(vm, 1));
        bool is_dict = v.kind == JV_DICT;
        if (is_dict || jv_is_seq(v)) {
            if (is_dict && style->sort_keys) {
                TRY(sorted(vm, &v));
            }
            if (jv_len(v) == 0) {
                jtext_puts(r, is_dict ? "{}" : "[]");
            } else if (n == JV_MAX_NEST) {
                return jvm_fail(vm, "data is nested more than %d levels deep", JV_MAX_NEST);
            } else {
                jtext_puts(r, is_dict ? "{" : "[");
                stack[n].v = v;
                stack[n++].at = 0;
            }
        } else {
            TRY(write_flat(vm, r, v, style, false));
        }
        while (n > 0 && stack[n - 1].at == jv_len(stack[n - 1].v)) {
            n--;
            new_line(r, style, n);
            jtext_puts(r, stack[n].v.kind == JV_DICT ? "}" : "]");
        }
        if (n == 0) {
            return ERR_OK;
        }
        uint32_t i = stack[n - 1].at++;
        if (i > 0) {
            jtext_str(r, style->item_sep);
        }
        new_line(r, style, n);
        if (stack[n - 1].v.kind == JV_DICT) {
            TRY(write_flat(vm, r, stack[n - 1].v.dict->at[i].key, style, true));
            jtext_str(r, style->key_sep);
            v = stack[n - 1].v.dict->at[i].value;
        } else {
            v = stack[n - 1].v.list->at[i];
        }
    }
}

/* --- in --------------------------------------------------------------------------------------------------------- */

/* Converts a real, with its digits if it has them. NaN and the infinities have their names. */
static enum err begin_real(struct jvm *vm, const json_t *j, struct jv *out)
{
    const char *p = json_number_digits(j);
    const char *word = p != NULL ? strpbrk(p, "NI") : NULL;
    if (p == NULL) {
        *out = jv_float(json_real_value(j));
        return ERR_OK;
    }
    if (word != NULL) {
        double size = *word == 'N' ? (double)NAN : (double)INFINITY;
        *out = jv_float(word == p ? size : -size);
        return ERR_OK;
    }
    struct jv_digits *digits;
    TRY(jv_alloc(vm, sizeof *digits, &digits));
    *digits = (struct jv_digits){.p = p, .f = json_real_value(j)};
    *out = (struct jv){.kind = json_number_is_wide(j) ? JV_BIGINT : JV_DECIMAL, .digits = digits};
    return ERR_OK;
}

static enum err begin_value(struct jvm *vm, const json_t *j, bool user, struct jv *out)
{
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return jv_dict_new(vm, JV_DICT, json_object_size(j), out);
    case JSON_ARRAY:
        return jv_list_new(vm, JV_LIST, json_array_size(j), out);
    case JSON_STRING:
        return jv_borrow(vm, json_string_value(j), json_string_length(j), user, out);
    case JSON_INTEGER:
        *out = jv_int(json_integer_value(j));
        return ERR_OK;
    case JSON_REAL:
        return begin_real(vm, j, out);
    case JSON_TRUE:
    case JSON_FALSE:
        *out = jv_bool(json_is_true(j));
        return ERR_OK;
    default:
        *out = jv_none();
        return ERR_OK;
    }
}

/* A role that templates know is not user text: templates put it inside special tokens (<|user|> of ChatGLM), and such a
 * word contains none. */
static bool is_known_role(const json_t *value)
{
    static const char *const roles[] = {"user", "assistant", "system", "tool", "developer", "function"};
    const char *role = json_string_value(value);
    size_t n = json_string_length(value);
    for (size_t i = 0; role != NULL && i < ARRAY_LEN(roles); i++) {
        if (roles[i][0] == role[0] && strlen(roles[i]) == n && memcmp(role, roles[i], n) == 0) {
            return true;
        }
    }
    return false;
}

enum err jvm_from_json(struct jvm *vm, const json_t *j, bool user, struct jv *out)
{
    struct {
        json_t *j; /* jansson's iterators need a non-const pointer; nothing is changed */
        struct jv v;
        void *iter;
        size_t at;
    } stack[JV_MAX_NEST];
    int n = 0;
    TRY(begin_value(vm, j, user, out));
    struct jv v = *out;
    for (;;) {
        if (v.kind == JV_DICT || v.kind == JV_LIST) {
            if (n == JV_MAX_NEST) {
                return jvm_fail(vm, "the context is nested more than %d levels deep", JV_MAX_NEST);
            }
            json_t *at = (json_t *)(uintptr_t)j;
            stack[n].j = at;
            stack[n].v = v;
            stack[n].iter = v.kind == JV_DICT ? json_object_iter(at) : NULL;
            stack[n++].at = 0;
        }
        while (n > 0 && (stack[n - 1].v.kind == JV_DICT ? stack[n - 1].iter == NULL
                                                        : stack[n - 1].at == json_array_size(stack[n - 1].j))) {
            n--;
        }
        if (n == 0) {
            return ERR_OK;
        }
        if (stack[n - 1].v.kind == JV_DICT) {
            void *iter = stack[n - 1].iter;
            const char *name = json_object_iter_key(iter);
            struct jv key;
            TRY(jv_borrow(vm, name, json_object_iter_key_len(iter), user, &key));
            j = json_object_iter_value(iter);
            stack[n - 1].iter = json_object_iter_next(stack[n - 1].j, iter);
            bool is_role =
                n == 2 && name[0] == 'r' && strcmp(name, "role") == 0 && is_known_role(j); /* of messages[i] */
            TRY(begin_value(vm, j, user && !is_role, &v));
            TRY(jv_dict_add(vm, stack[n - 1].v.dict, key, v));
        } else {
            j = json_array_get(stack[n - 1].j, stack[n - 1].at++);
            TRY(begin_value(vm, j, user, &v));
            TRY(jv_list_add(vm, stack[n - 1].v.list, v));
        }
    }
}
