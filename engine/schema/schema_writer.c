/* The state that all writers of a schema share: its parts, errors with their location, and schemas that were created in
 * other forms. */
#include "engine/schema/schema_internal.h"

#include "engine/grammar/grammar_json.h"

#include <math.h>
#include <stdio.h>

enum err schema_refuse(struct writer *w, const char *path, const char *keyword, const char *expected)
{
    char where[ERR_WHERE_BYTES];
    snprintf(where, sizeof where, "%.96s/%.24s", path, keyword);
    return err_set(w->info, ERR_INVALID_SCHEMA, where, "JSON Schema, %.200s/%s: %s", path[0] != '\0' ? path : "#",
                   keyword, expected);
}

enum err schema_pattern(struct writer *w, const struct part *p, const char *keyword,
                        const struct regex_pattern *pattern, regex_id *out)
{
    struct err_info why = {0};
    enum err err = regex_parse(w->s, pattern, out, &why);
    if (err != ERR_GRAMMAR_LIMIT) {
        return err == ERR_INVALID_GRAMMAR ? schema_refuse(w, p->path, keyword, why.text) : err;
    }
    return err_set(w->info, err, NULL, "JSON Schema, %.200s/%s: %s", p->path[0] != '\0' ? p->path : "#", keyword,
                   why.text);
}

enum err schema_count(struct writer *w, const struct part *p, const char *keyword, uint32_t none, uint32_t *out)
{
    const json_t *v = schema_keyword(w, p, keyword);
    double number = json_number_value(v);
    *out = none;
    if (v == NULL) {
        return ERR_OK;
    }
    if (!json_is_number(v) || number < 0 || number != floor(number)) {
        return schema_refuse(w, p->path, keyword, "expected a whole number, 0 or more");
    }
    *out = number < (double)(UINT32_MAX - 1) ? (uint32_t)number : UINT32_MAX - 1;
    return ERR_OK;
}

enum err schema_narrow(struct writer *w, const struct part *p, const char *min, const char *max,
                       struct schema_counts *c)
{
    uint32_t least, most;
    TRY(schema_count(w, p, min, 0, &least));
    TRY(schema_count(w, p, max, REGEX_UNBOUNDED, &most));
    *c = (struct schema_counts){MAX_OF(c->min, least), MIN_OF(c->max, most)};
    return ERR_OK;
}

/* --- pieces ----------------------------------------------------------------------------------------------------------- */

symbol_id schema_opening(struct writer *w, const char *bracket)
{
    return grammar_lexeme(w->b, regex_concat(w->s, regex_bytes(w->s, bracket, 1), w->spaces));
}

symbol_id schema_closing(struct writer *w, const char *bracket)
{
    return grammar_lexeme(w->b, regex_concat(w->s, w->spaces, regex_bytes(w->s, bracket, 1)));
}

regex_id schema_quoted(struct writer *w, regex_id inside)
{
    regex_id quote = regex_bytes(w->s, "\"", 1);
    return regex_concat(w->s, quote, regex_concat(w->s, inside, quote));
}

bool schema_matches(struct writer *w, regex_id r, const char *text)
{
    for (; *text != '\0'; text++) {
        r = regex_next(w->s, r, (unsigned char)*text);
    }
    return regex_is_nullable(w->s, r);
}

symbol_id schema_any_value(struct writer *w)
{
    w->any = w->any != 0 ? w->any : grammar_json_value(w->b);
    return w->any;
}

void schema_put(struct writer *w, const struct node *node, symbol_id symbol)
{
    grammar_alternative(w->b, node->rule, &symbol, 1);
}

const char *schema_join(struct writer *w, const char *path, const char *key)
{
    enum { MOST_OF_PATH = 80 };
    char out[ERR_WHERE_BYTES];
    size_t n = strnlen(path, MOST_OF_PATH), n_plain = strcspn(key, "~/");
    memcpy(out, path, n);
    out[n++] = '/';
    n_plain = MIN_OF(n_plain, sizeof out - 3 - n);
    memcpy(out + n, key, n_plain);
    n += n_plain;
    for (key += n_plain; *key != '\0' && n + 3 < sizeof out; key++) {
        if (*key == '~' || *key == '/') {
            out[n++] = '~';
            out[n++] = *key == '~' ? '0' : '1';
        } else {
            out[n++] = *key;
        }
    }
    return arena_dup(&w->arena, out, n);
}

const char *schema_join_index(struct writer *w, const char *path, size_t i)
{
    char digits[24], *number = digits + sizeof digits - 1;
    *number = '\0';
    do {
        *--number = (char)('0' + i % 10);
        i /= 10;
    } while (i > 0);
    return schema_join(w, path, number);
}

enum err schema_spend(struct writer *w, size_t work) { return regex_spend(w->s, work) ? ERR_OK : regex_ok(w->s); }

/* --- schemas in other forms ------------------------------------------------------------------------------------------- */

static uint64_t hash_form(const json_t *of, int what)
{
    return ((uintptr_t)of >> 4 ^ (uintptr_t)what) * 0x9e3779b97f4a7c15u >> 20;
}

static uint64_t hash_made(const void *writer, uint32_t i)
{
    const struct made *made = &((const struct writer *)writer)->made[i];
    return hash_form(made->of, made->what);
}

struct form_key {
    const struct made *made;
    const json_t *of;
    int what;
};

static ALWAYS_INLINE bool is_form(const void *key, uint32_t i)
{
    const struct form_key *k = key;
    return k->made[i].of == k->of && k->made[i].what == k->what;
}

bool schema_was_made(const struct writer *w, const json_t *of, enum schema_form what, const json_t **out)
{
    struct form_key key = {w->made, of, (int)what};
    uint32_t i = table_find(&w->made_table, hash_form(of, (int)what), is_form, &key);
    *out = i != TABLE_NONE ? w->made[i].schema : *out;
    return i != TABLE_NONE;
}

/* Makes room for one more entry. */
static enum err reserve_made(struct writer *w)
{
    TRY(mem_grow(&w->made, w->n_made, &w->cap_made, sizeof *w->made, MEM_REQUEST));
    return table_reserve(&w->made_table, w->n_made + 1, hash_made, w, MEM_REQUEST);
}

enum err schema_keep(struct writer *w, const json_t *of, enum schema_form what, json_t *schema, const json_t **out)
{
    enum { MOST = 16384 };
    *out = NULL;
    w->has_failed |= schema == NULL || (w->n_made < MOST && reserve_made(w) != ERR_OK);
    if (w->has_failed || w->n_made == MOST) {
        json_decref(schema);
        return w->has_failed ? ERR_NOMEM : ERR_GRAMMAR_LIMIT;
    }
    table_add(&w->made_table, hash_form(of, (int)what), (uint32_t)w->n_made);
    w->made[w->n_made++] = (struct made){of, (int)what, schema};
    *out = schema;
    return ERR_OK;
}

bool schema_was_derived(const struct writer *w, const json_t *schema)
{
    bool is = false;
    for (size_t i = 0; i < w->n_made; i++) {
        is =
            is || (w->made[i].schema == schema && w->made[i].what != SCHEMA_ONE_OF && w->made[i].what != SCHEMA_INDEX &&
                   w->made[i].what != SCHEMA_MEMBER && w->made[i].what != SCHEMA_NULLABLE);
    }
    return is;
}

/* --- the writer ------------------------------------------------------------------------------------------------------- */

enum err schema_writer_init(struct writer *w, size_t max_nodes)
{
    w->s = grammar_regexes(w->b);
    arena_init(&w->arena, 4096, 32 << 20, MEM_REQUEST);
    w->max_nodes = max_nodes;
    w->nodes = mem_zalloc_array(max_nodes, sizeof *w->nodes, MEM_REQUEST);
    w->spaces = grammar_json_spaces(w->b);
    w->any_text = regex_repeat(w->s, regex_any_character(w->s), 0, REGEX_UNBOUNDED);
    w->comma =
        grammar_lexeme(w->b, regex_concat(w->s, w->spaces, regex_concat(w->s, regex_bytes(w->s, ",", 1), w->spaces)));
    w->fraction = json_string("fraction");
    return w->nodes != NULL && w->fraction != NULL ? ERR_OK : ERR_NOMEM;
}

void schema_writer_fini(struct writer *w)
{
    for (size_t i = 0; i < w->n_made; i++) {
        json_decref(w->made[i].schema);
    }
    json_decref(w->fraction);
    mem_free(w->made);
    table_fini(&w->made_table);
    mem_free(w->seen);
    table_fini(&w->seen_table);
    regex_set_free(&w->check_set);
    mem_free(w->nodes);
    table_fini(&w->table);
    arena_fini(&w->arena);
}
