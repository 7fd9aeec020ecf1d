/* Builds, finds, compares and iterates over values. */
#include "engine/jinja/jinja_vm.h"

#include "engine/base/utf8.h"

#include <math.h>
#include <string.h>

enum { SMALL_DICT = 8, STRING_CHUNK_BYTES = 16 << 10, SPAN_CHUNK = 256 };

enum err jv_alloc(struct jvm *vm, size_t bytes, void *out)
{
    void *p = arena_alloc(&vm->arena, bytes);
    if (p == NULL) {
        size_t left = JINJA_MAX_ARENA_BYTES - MIN_OF(vm->arena.used_bytes, (size_t)JINJA_MAX_ARENA_BYTES);
        if (bytes + 16 > left) {
            return jvm_fail(vm, "the template needs more than %d bytes of memory", JINJA_MAX_ARENA_BYTES);
        }
        return err_set(vm->info, ERR_NOMEM, NULL, "no memory to render the chat template");
    }
    memcpy(out, &p, sizeof p);
    return ERR_OK;
}

enum err jv_grow(struct jvm *vm, void *array, uint32_t *cap, size_t size, uint32_t first)
{
    size_t more = *cap == 0 ? first : (size_t)*cap * 2;
    void *old;
    void *at;
    memcpy(&old, array, sizeof old);
    TRY(jv_alloc(vm, more * size, &at));
    if (*cap != 0) {
        memcpy(at, old, *cap * size);
    }
    memcpy(array, &at, sizeof at);
    *cap = (uint32_t)more;
    return ERR_OK;
}

/* --- strings ---------------------------------------------------------------------------------------------------- */

enum err jv_str_new(struct jvm *vm, struct jstr s, struct jv *out)
{
    struct jstr *copy;
    TRY(jv_alloc(vm, sizeof *copy, &copy));
    *copy = s;
    *out = (struct jv){.kind = JV_STR, .str = copy};
    return ERR_OK;
}

enum err jv_borrow(struct jvm *vm, const char *p, size_t n, bool user, struct jv *out)
{
    if (n > UINT32_MAX) {
        return jvm_fail(vm, "a string is longer than 4 GiB");
    }
    struct jstr s = {.p = p, .len = (uint32_t)n, .chars = jstr_count(p, n)};
    if (user && n > 0) {
        struct span *span;
        TRY(jv_alloc(vm, sizeof *span, &span));
        *span = (struct span){0, n};
        s.user = span;
        s.n_user = 1;
    }
    return jv_str_new(vm, s, out);
}

enum err jv_substr(struct jvm *vm, const struct jstr *s, size_t from, size_t to, struct jv *out)
{
    struct jstr sub = {.p = s->p + from, .len = (uint32_t)(to - from), .safe = s->safe};
    sub.chars = s->chars == s->len ? sub.len : jstr_count(sub.p, sub.len);
    uint32_t first = jstr_span_at(s, from);
    uint32_t last = first;
    while (last < s->n_user && s->user[last].from < to) {
        last++;
    }
    if (last > first) {
        struct span *spans;
        TRY(jv_alloc(vm, (last - first) * sizeof *spans, &spans));
        for (uint32_t i = first; i < last; i++) {
            spans[i - first] = (struct span){MAX_OF(s->user[i].from, from) - from, MIN_OF(s->user[i].to, to) - from};
        }
        sub.user = spans;
        sub.n_user = last - first;
    }
    return jv_str_new(vm, sub, out);
}

/* Makes room for n more bytes after old[0..n_old), which is copied unless it ends where the room begins. The n_old + n
 * bytes then end there. */
static enum err extend(struct jvm *vm, struct jv_room *room, const void *old, size_t n_old, size_t n, size_t chunk)
{
    size_t left = (size_t)(room->end - room->at), all = n_old + n;
    if (n_old != 0 && (const char *)old + n_old == room->at && n <= left) {
        room->at += n;
        return ERR_OK;
    }
    if (all > left) {
        size_t bytes = MAX_OF(chunk, all + all / 2);
        if (bytes > JINJA_MAX_ARENA_BYTES - MIN_OF(vm->arena.used_bytes, (size_t)JINJA_MAX_ARENA_BYTES)) {
            bytes = all; /* near the limit: no reserve */
        }
        TRY(jv_alloc(vm, bytes, &room->at));
        room->end = room->at + bytes;
    }
    if (n_old != 0) {
        memcpy(room->at, old, n_old);
    }
    room->at += all;
    /* the next extension of the same text needs an aligned end: callers keep element sizes constant per room */
    return ERR_OK;
}

enum err jv_concat(struct jvm *vm, const struct jstr *a, const struct jstr *b, struct jv *out)
{
    size_t len = (size_t)a->len + b->len;
    if (len > JINJA_MAX_OUTPUT_BYTES) {
        return jvm_fail(vm, "a string is longer than %d bytes", JINJA_MAX_OUTPUT_BYTES);
    }
    if (a->len == 0 || b->len == 0) {
        *out = (struct jv){.kind = JV_STR, .str = a->len == 0 ? b : a};
        return ERR_OK;
    }
    struct jstr s = {.len = (uint32_t)len, .chars = a->chars + b->chars};
    TRY(jvm_pay_bytes(vm, b->len));
    TRY(extend(vm, &vm->text_room, a->p, a->len, b->len, STRING_CHUNK_BYTES));
    memcpy(vm->text_room.at - b->len, b->p, b->len);
    s.p = vm->text_room.at - len;
    if (b->n_user == 0) {
        s.user = a->user;
        s.n_user = a->n_user;
    } else {
        size_t one = sizeof(struct span);
        TRY(extend(vm, &vm->span_room, a->user, a->n_user * one, b->n_user * one, SPAN_CHUNK * one));
        s.n_user = a->n_user + b->n_user;
        struct span *at = (struct span *)(void *)vm->span_room.at - s.n_user;
        for (uint32_t i = 0; i < b->n_user; i++) {
            at[a->n_user + i] = (struct span){b->user[i].from + a->len, b->user[i].to + a->len};
        }
        s.user = at;
    }
    return jv_str_new(vm, s, out);
}

/* --- lists ------------------------------------------------------------------------------------------------------ */

enum err jv_list_new(struct jvm *vm, enum jv_kind kind, size_t cap, struct jv *out)
{
    struct jv_list *l;
    TRY(jv_alloc(vm, sizeof *l, &l));
    *l = (struct jv_list){.cap = (uint32_t)cap};
    if (cap > JINJA_MAX_ARENA_BYTES / sizeof *l->at) {
        return jvm_fail(vm, "a list is too long");
    }
    if (cap != 0) {
        TRY(jv_alloc(vm, cap * sizeof *l->at, &l->at));
    }
    *out = (struct jv){.kind = (uint8_t)kind, .list = l};
    return ERR_OK;
}

enum err jv_list_add(struct jvm *vm, struct jv_list *l, struct jv item)
{
    if (l->n == l->cap) {
        TRY(jv_grow(vm, &l->at, &l->cap, sizeof *l->at, 4));
    }
    l->at[l->n++] = item;
    return ERR_OK;
}

void jv_list_append(struct jv_list *l, const struct jv *items, uint32_t n)
{
    if (n != 0) {
        memcpy(l->at + l->n, items, n * sizeof *items);
    }
    l->n += n;
}

enum err jv_list_of(struct jvm *vm, enum jv_kind kind, const struct jv *items, uint32_t n, struct jv *out)
{
    TRY(jv_list_new(vm, kind, n, out));
    jv_list_append(out->list, items, n);
    return ERR_OK;
}

enum err jv_range_new(struct jvm *vm, struct jv_range range, struct jv *out)
{
    struct jv_range *copy;
    TRY(jv_alloc(vm, sizeof *copy, &copy));
    *copy = range;
    *out = (struct jv){.kind = JV_RANGE, .range = copy};
    return ERR_OK;
}

enum err jv_gen_new(struct jvm *vm, struct jv_list *items, struct jv *out)
{
    struct jv_gen *g;
    TRY(jv_alloc(vm, sizeof *g, &g));
    *g = (struct jv_gen){.items = items};
    *out = (struct jv){.kind = JV_GEN, .gen = g};
    return ERR_OK;
}

/* --- dicts ------------------------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t h) /* the finalizer of MurmurHash3 [Appleby, public domain] */
{
    h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCDu;
    h = (h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53u;
    return h ^ (h >> 33);
}

static uint64_t hash_bytes(uint64_t seed, const char *p, size_t n)
{
    uint64_t h = seed;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = mix(h ^ w) + 0x9E3779B97F4A7C15u;
    }
    uint64_t w = n;
    for (size_t i = 0; i < n; i++) {
        w = w << 8 | (unsigned char)p[i];
    }
    return mix(h ^ w);
}

/* Fails if the tuple contains a list or dict at any depth. */
static enum err hashable(struct jvm *vm, const struct jv_list *tuple)
{
    const struct jv_list *stack[JV_MAX_NEST];
    uint32_t at[JV_MAX_NEST];
    int n = 0;
    stack[n] = tuple;
    at[n++] = 0;
    while (n > 0) {
        if (at[n - 1] == stack[n - 1]->n) {
            n--;
            continue;
        }
        struct jv v = stack[n - 1]->at[at[n - 1]++];
        TRY(jvm_pay(vm, 1));
        if (v.kind == JV_LIST || v.kind == JV_DICT) {
            return jvm_fail(vm, "unhashable type: '%s'", jv_type_name(v));
        }
        if (v.kind == JV_TUPLE) {
            if (n == JV_MAX_NEST) {
                return jvm_fail(vm, "data is nested more than %d levels deep", JV_MAX_NEST);
            }
            stack[n] = v.list;
            at[n++] = 0;
        }
    }
    return ERR_OK;
}

/* Equal values have equal hashes, so 1, 1.0 and true share one. */
static enum err hash(struct jvm *vm, struct jv key, uint64_t *out)
{
    switch (key.kind) {
    case JV_STR:
        *out = hash_bytes(vm->hash_seed, key.str->p, key.str->len);
        return jvm_pay_bytes(vm, key.str->len);
    case JV_BOOL:
    case JV_INT:
        *out = mix(vm->hash_seed + (uint64_t)jv_as_int(key));
        return ERR_OK;
    case JV_FLOAT:
    case JV_BIGINT:
    case JV_DECIMAL: {
        double f = jv_as_float(key), whole = floor(f);
        bool is_int = whole == f && fabs(f) < 9.2e18;
        uint64_t bits;
        memcpy(&bits, &f, sizeof bits);
        *out = mix(vm->hash_seed + (is_int ? (uint64_t)(int64_t)f : bits));
        return ERR_OK;
    }
    case JV_LIST:
    case JV_DICT:
        return jvm_fail(vm, "unhashable type: '%s'", jv_type_name(key));
    case JV_TUPLE:
        *out = mix(key.list->n);
        return hashable(vm, key.list);
    default:
        *out = key.kind;
        return ERR_OK;
    }
}

enum err jv_dict_new(struct jvm *vm, enum jv_kind kind, size_t cap, struct jv *out)
{
    struct jv_dict *d;
    TRY(jv_alloc(vm, sizeof *d, &d));
    *d = (struct jv_dict){.cap = (uint32_t)cap};
    if (cap > JINJA_MAX_ARENA_BYTES / sizeof *d->at) {
        return jvm_fail(vm, "a dict is too large");
    }
    if (cap != 0) {
        TRY(jv_alloc(vm, cap * sizeof *d->at, &d->at));
    }
    *out = (struct jv){.kind = (uint8_t)kind, .dict = d};
    return ERR_OK;
}

static enum err grow_index(struct jvm *vm, struct jv_dict *d)
{
    uint32_t n_slots = 32, *slots;
    while (n_slots < d->n * 4) {
        n_slots *= 2;
    }
    TRY(jv_alloc(vm, n_slots * sizeof *slots, &slots));
    memset(slots, 0, n_slots * sizeof *slots);
    table_use(&d->index, slots, n_slots);
    for (uint32_t i = 0; i < d->n; i++) {
        table_add(&d->index, d->at[i].hash, i);
    }
    return ERR_OK;
}

static enum err add_hashed(struct jvm *vm, struct jv_dict *d, struct jv key, uint64_t h, struct jv value)
{
    if (d->n == d->cap) {
        TRY(jv_grow(vm, &d->at, &d->cap, sizeof *d->at, 4));
    }
    d->at[d->n++] = (struct jv_entry){.key = key, .value = value, .hash = h};
    if (d->n <= SMALL_DICT) {
        return ERR_OK;
    }
    if (d->n > table_room(&d->index)) {
        return grow_index(vm, d);
    }
    table_add(&d->index, h, d->n - 1);
    return ERR_OK;
}

enum err jv_dict_add(struct jvm *vm, struct jv_dict *d, struct jv key, struct jv value)
{
    uint64_t h;
    TRY(hash(vm, key, &h));
    return add_hashed(vm, d, key, h, value);
}

struct entry_key {
    struct jvm *vm;
    const struct jv_entry *at;
    struct jv key;
    uint64_t hash;
    enum err *err; /* error of the comparison, which ends the search */
};

static bool is_entry(const void *key, uint32_t i)
{
    const struct entry_key *k = key;
    const struct jv_entry *e = &k->at[i];
    bool same = false;
    if (e->hash != k->hash) {
        return false;
    }
    if (k->key.kind == JV_STR && e->key.kind == JV_STR) {
        return jstr_cmp(k->key.str, e->key.str) == 0;
    }
    *k->err = jv_equal(k->vm, e->key, k->key, &same);
    return same || *k->err != ERR_OK;
}

static enum err find_hashed(struct jvm *vm, struct jv_dict *d, struct jv key, uint64_t h, struct jv **out)
{
    enum err err = ERR_OK;
    struct entry_key looked_for = {vm, d->at, key, h, &err};
    uint32_t i = 0;
    if (d->index.slots != NULL) {
        i = table_find(&d->index, h, is_entry, &looked_for);
    } else {
        while (i < d->n && !is_entry(&looked_for, i)) {
            i++;
        }
    }
    *out = err == ERR_OK && i < d->n ? &d->at[i].value : NULL;
    return err;
}

enum err jv_dict_find(struct jvm *vm, struct jv_dict *d, struct jv key, struct jv *out)
{
    uint64_t h;
    struct jv *found;
    TRY(hash(vm, key, &h));
    TRY(find_hashed(vm, d, key, h, &found));
    *out = found != NULL ? *found : (struct jv){.kind = JV_ABSENT};
    return ERR_OK;
}

enum err jv_dict_put(struct jvm *vm, struct jv_dict *d, struct jv key, struct jv value)
{
    uint64_t h;
    TRY(hash(vm, key, &h));
    struct jv *old;
    TRY(find_hashed(vm, d, key, h, &old));
    if (old != NULL) {
        *old = value;
        return ERR_OK;
    }
    return add_hashed(vm, d, key, h, value);
}

/* --- comparing -------------------------------------------------------------------------------------------------- */

/* Compares ints beyond 64 bits, which have no leading zeros. */
static int order_bigints(const char *a, const char *b)
{
    bool is_negative = a[0] == '-';
    if (is_negative != (b[0] == '-')) {
        return is_negative ? -1 : 1;
    }
    size_t n_a = strlen(a), n_b = strlen(b);
    int c = n_a != n_b ? (n_a > n_b) - (n_a < n_b) : strcmp(a, b);
    return is_negative ? (c < 0) - (c > 0) : (c > 0) - (c < 0);
}

/* Compares numbers without rounding large ints. -2: unordered. */
static int order_numbers(struct jv a, struct jv b)
{
    if (a.kind == JV_BIGINT && b.kind == JV_BIGINT) {
        return order_bigints(a.digits->p, b.digits->p);
    }
    if (a.kind == JV_BIGINT && (b.kind == JV_INT || b.kind == JV_BOOL)) {
        return a.digits->p[0] == '-' ? -1 : 1; /* it exceeds all of these */
    }
    if (b.kind == JV_BIGINT && (a.kind == JV_INT || a.kind == JV_BOOL)) {
        return b.digits->p[0] == '-' ? 1 : -1;
    }
    a = jv_has_digits(a) ? jv_float(a.digits->f) : a;
    b = jv_has_digits(b) ? jv_float(b.digits->f) : b;
    if (a.kind != JV_FLOAT && b.kind != JV_FLOAT) {
        int64_t x = jv_as_int(a);
        int64_t y = jv_as_int(b);
        return (x > y) - (x < y);
    }
    if (a.kind == JV_FLOAT && b.kind == JV_FLOAT) {
        return a.f != a.f || b.f != b.f ? -2 : (a.f > b.f) - (a.f < b.f);
    }
    bool swapped = a.kind == JV_FLOAT;
    double f = swapped ? a.f : b.f;
    int64_t i = jv_as_int(swapped ? b : a);
    int c;
    if (f != f) {
        return -2;
    }
    if (f >= 9223372036854775808.0) {
        c = -1;
    } else if (f < -9223372036854775808.0) {
        c = 1;
    } else {
        int64_t whole = (int64_t)f;
        double rest = f - (double)whole;
        c = i != whole ? (i > whole) - (i < whole) : (rest < 0) - (rest > 0);
    }
    return swapped ? -c : c;
}

/* Returns true if the answer is known without comparing contents. */
static bool equal_flat(struct jv a, struct jv b, bool *out)
{
    if (jv_is_number(a) && jv_is_number(b)) {
        *out = order_numbers(a, b) == 0;
        return true;
    }
    *out = false;
    if (a.kind != b.kind) {
        return true;
    }
    switch (a.kind) {
    case JV_UNDEF:
    case JV_NONE:
        *out = true;
        return true;
    case JV_STR:
        *out = a.str == b.str || jstr_cmp(a.str, b.str) == 0;
        return true;
    case JV_RANGE:
        *out = a.range->n == b.range->n && (a.range->n == 0 || a.range->start == b.range->start) &&
               (a.range->n < 2 || a.range->step == b.range->step);
        return true;
    case JV_LIST:
    case JV_TUPLE:
        *out = a.list == b.list;
        return *out || a.list->n != b.list->n;
    case JV_DICT:
        *out = a.dict == b.dict;
        return *out || a.dict->n != b.dict->n;
    case JV_VIEW:
        *out = a.sub == b.sub && a.list == b.list;
        return true;
    default:
        *out = a.list == b.list; /* identity; for all of these the union has a pointer */
        return true;
    }
}

enum err jv_equal(struct jvm *vm, struct jv a, struct jv b, bool *out)
{
    struct {
        struct jv a, b;
        uint32_t at;
    } stack[JV_MAX_NEST];
    int n = 0;
    for (;;) {
        bool is_flat = equal_flat(a, b, out);
        if (is_flat && !*out) {
            return ERR_OK;
        }
        if (!is_flat && n == JV_MAX_NEST) {
            return jvm_fail(vm, "data is nested more than %d levels deep", JV_MAX_NEST);
        }
        if (!is_flat) {
            stack[n].a = a;
            stack[n].b = b;
            stack[n++].at = 0;
        }
        for (; n > 0; n--) { /* until a container with more items */
            TRY(jvm_pay(vm, 1));
            if (stack[n - 1].at < jv_len(stack[n - 1].a)) {
                break;
            }
        }
        if (n == 0) {
            *out = true;
            return ERR_OK;
        }
        struct jv x = stack[n - 1].a;
        struct jv y = stack[n - 1].b;
        uint32_t i = stack[n - 1].at++;
        if (x.kind != JV_DICT) {
            a = x.list->at[i];
            b = y.list->at[i];
            continue;
        }
        struct jv *other;
        TRY(find_hashed(vm, y.dict, x.dict->at[i].key, x.dict->at[i].hash, &other));
        if (other == NULL) {
            *out = false;
            return ERR_OK;
        }
        a = x.dict->at[i].value;
        b = *other;
    }
}

enum err jv_order(struct jvm *vm, struct jv a, struct jv b, const char *op, int *out)
{
    for (;;) { /* sequences compare by their first different items */
        if (jv_is_number(a) && jv_is_number(b)) {
            *out = order_numbers(a, b);
            return ERR_OK;
        }
        if (jv_is_str(a) && jv_is_str(b)) {
            int c = jstr_cmp(a.str, b.str);
            *out = (c > 0) - (c < 0);
            return jvm_pay_bytes(vm, MIN_OF(a.str->len, b.str->len));
        }
        if (a.kind == JV_UNDEF || b.kind == JV_UNDEF) {
            return jvm_fail_undefined(vm, a.kind == JV_UNDEF ? a : b);
        }
        if (!jv_is_seq(a) || a.kind != b.kind) {
            return jvm_fail(vm, "'%s' not supported between instances of '%s' and '%s'", op, jv_type_name(a),
                            jv_type_name(b));
        }
        uint32_t i = 0;
        bool same = true;
        while (i < a.list->n && i < b.list->n) {
            TRY(jv_equal(vm, a.list->at[i], b.list->at[i], &same));
            if (!same) {
                break;
            }
            i++;
        }
        TRY(jvm_pay(vm, i + 1));
        if (same) {
            *out = (a.list->n > b.list->n) - (a.list->n < b.list->n);
            return ERR_OK;
        }
        struct jv x = a.list->at[i];
        b = b.list->at[i];
        a = x;
    }
}

/* --- iterating -------------------------------------------------------------------------------------------------- */

bool jv_iter_next(struct jvm *vm, struct jv_iter *it, struct jv *item)
{
    struct jv of = it->of;
    switch (of.kind) {
    case JV_UNDEF:
        return false;
    case JV_STR: {
        if (it->pos == of.str->len) {
            return false;
        }
        uint32_t cp;
        size_t n = utf8_decode(of.str->p + it->pos, of.str->len - it->pos, &cp, NULL);
        struct jstr plain = *of.str; /* the characters of Markup are not Markup */
        plain.safe = false;
        it->err = jv_substr(vm, &plain, it->pos, it->pos + n, item);
        it->pos += (uint32_t)n;
        break;
    }
    case JV_LIST:
    case JV_TUPLE:
    case JV_VIEW:
    case JV_DICT:
    case JV_RANGE:
        if (it->pos == jv_len(of)) {
            return false;
        }
        *item = jv_at(of, it->pos++);
        break;
    case JV_GEN:
        if (of.gen->pos == of.gen->items->n) {
            return false;
        }
        *item = of.gen->items->at[of.gen->pos++];
        break;
    default:
        it->err = jvm_fail(vm, "'%s' object is not iterable", jv_type_name(of));
    }
    it->err = it->err == ERR_OK ? jvm_pay(vm, 1) : it->err;
    return it->err == ERR_OK;
}

enum err jv_to_list(struct jvm *vm, struct jv v, struct jv_list **out)
{
    if (jv_is_seq(v) || v.kind == JV_VIEW) {
        *out = v.list;
        return ERR_OK;
    }
    struct jv_iter it = {.of = v};
    struct jv item;
    struct jv list;
    TRY(jv_list_new(vm, JV_LIST, 0, &list));
    while (jv_iter_next(vm, &it, &item)) {
        TRY(jv_list_add(vm, list.list, item));
    }
    *out = list.list;
    return it.err;
}
