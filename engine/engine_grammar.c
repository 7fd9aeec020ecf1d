/* Grammars of requests, and the vocabulary's tables that they share. */
#include "engine/engine_internal.h"

#include "engine/base/buf.h"
#include "engine/base/json_write.h"
#include "engine/base/mem_account.h"
#include "engine/base/task.h"
#include "engine/chat/chat_forced.h"
#include "engine/grammar/grammar_cache.h"
#include "engine/grammar/grammar_gbnf.h"
#include "engine/grammar/grammar_json.h"
#include "engine/grammar/grammar_lark.h"
#include "engine/regex/regex_parse.h"
#include "engine/schema/schema.h"

/* Builds the tables on first use: most servers never need them. */
static enum err need_vocab(struct engine *e)
{
    pthread_mutex_lock(&e->grammar_lock);
    enum err err = e->vocab != NULL ? ERR_OK : grammar_vocab_new(e->tokenizer, &e->vocab);
    pthread_mutex_unlock(&e->grammar_lock);
    return err;
}

static enum err no_memory(struct err_info *info)
{
    return err_set(info, ERR_NOMEM, NULL, "out of memory for the grammar");
}

/* The source of a grammar. `read` adds it to b; *i_failed as engine_grammar_calls's. thinking precedes what `read`
 * adds. */
struct source {
    char letter; /* of the key */
    enum err (*read)(struct grammar_builder *b, const struct source *from, symbol_id *start, struct err_info *info);
    const json_t *schema;
    const char *text; /* [n] */
    size_t n;
    const char *const *texts; /* [n] */
    const size_t *lengths;
    const struct chat_forced *calls;
    const struct tokenizer *tokenizer; /* of calls */
    size_t *i_failed;
    enum chat_thinking thinking;
};

/* Makes the grammar and the matcher that all its sequences begin with, so that concurrent requests are not charged for
 * work that they share. */
static enum err make(struct engine *e, const struct source *from, struct grammar **out, struct err_info *info)
{
    struct grammar_builder *b;
    struct grammar_matcher *m;
    symbol_id start = 0;
    if (grammar_builder_new(&b) != ERR_OK) {
        return no_memory(info);
    }
    if (e->closes_objects) {
        grammar_close_objects(b);
    }
    enum err err = from->read(b, from, &start, info);
    if (err != ERR_OK) {
        grammar_builder_free(&b);
        return err;
    }
    start = chat_forced_think(b, e->tool_format, from->thinking, e->tokenizer, start);
    TRY(grammar_finish(&b, start, out, info));
    if (grammar_matcher_new(*out, e->vocab, &m) == ERR_OK) { /* on failure the first user gets the error */
        grammar_matcher_free(&m);
    }
    err = task_check();
    if (err != ERR_OK) {
        grammar_unref(out);
    }
    return err;
}

/* Makes it with its own memory account, because it outlives the request. */
static enum err make_apart(struct engine *e, const struct source *from, struct grammar **out, struct err_info *info)
{
    struct mem_account *own = mem_zalloc(sizeof *own, MEM_GENERAL);
    if (own == NULL) {
        return no_memory(info);
    }
    struct mem_account *before = mem_account_begin_other(own);
    enum err err = make(e, from, out, info);
    mem_account_end_other(before);
    if (err != ERR_OK) {
        mem_free(own);
        return err;
    }
    grammar_give_account(*out, own);
    return ERR_OK;
}

enum { MAX_KEY_BYTES = 1 << 20 }; /* grammars with longer keys are not kept */

static void begin_key(struct buf *key, const struct source *from)
{
    buf_init(key, MAX_KEY_BYTES, MEM_REQUEST);
    buf_printf(key, "%c%d", from->letter, (int)from->thinking);
}

static void add_json(struct buf *key, const json_t *value)
{
    if (value != NULL) {
        json_write_value(key, value, false); /* after a failure the grammar is not kept */
    }
    buf_putc(key, '\0');
}

/* Returns the grammar of a source; each key is made once. key: a letter, the thinking, and the source's contents. */
static enum err get(struct engine *e, struct buf *key, const struct source *from, struct grammar **out,
                    struct err_info *info)
{
    *out = NULL;
    bool has_key = buf_ok(key) == ERR_OK;
    enum err err = need_vocab(e);
    if (err != ERR_OK) {
        no_memory(info);
    } else if (has_key) {
        *out = grammar_cache_get(e->grammars, key->data, key->len);
    }
    if (err == ERR_OK && *out == NULL) {
        task_note("grammar");
        err = make_apart(e, from, out, info);
        enum err stop = err != ERR_OK ? task_check() : ERR_OK;
        err = stop != ERR_OK ? err_set(info, stop, NULL, "%s", err_text(stop)) : err;
        if (err == ERR_OK && has_key) {
            grammar_cache_put(e->grammars, key->data, key->len, *out);
        }
    }
    buf_fini(key);
    return err;
}

/* The same for a source that is its text. */
static enum err get_text(struct engine *e, const struct source *from, struct grammar **out, struct err_info *info)
{
    struct buf key;
    begin_key(&key, from);
    buf_append(&key, from->text, from->n);
    return get(e, &key, from, out, info);
}

/* --- kinds ----------------------------------------------------------------------------------------------------------- */

static enum err read_object(struct grammar_builder *b, const struct source *from, symbol_id *start,
                            struct err_info *info)
{
    (void)from, (void)info;
    *start = grammar_json_object(b);
    return ERR_OK;
}

enum err engine_grammar_json_object(struct engine *e, enum chat_thinking thinking, struct grammar **out,
                                    struct err_info *info)
{
    return get_text(e, &(struct source){'o', read_object, .text = "", .thinking = thinking}, out, info);
}

static enum err read_schema(struct grammar_builder *b, const struct source *from, symbol_id *start,
                            struct err_info *info)
{
    return schema_add(b, from->schema, start, info);
}

enum err engine_grammar_json_schema(struct engine *e, const json_t *schema, enum chat_thinking thinking,
                                    struct grammar **out, struct err_info *info)
{
    const struct source from = {'s', read_schema, .thinking = thinking, .schema = schema};
    struct buf key;
    begin_key(&key, &from);
    add_json(&key, schema);
    return get(e, &key, &from, out, info);
}

_Static_assert((int)GRAMMAR_MAX_TEXT_BYTES == (int)ENGINE_MAX_GRAMMAR_BYTES &&
                   (int)REGEX_PARSE_MAX_BYTES == (int)ENGINE_MAX_GRAMMAR_BYTES,
               "the field table's limit is the readers'");

static enum err read_gbnf(struct grammar_builder *b, const struct source *from, symbol_id *start, struct err_info *info)
{
    return grammar_gbnf(b, from->text, from->n, start, info);
}

enum err engine_grammar_gbnf(struct engine *e, const char *text, size_t n, enum chat_thinking thinking,
                             struct grammar **out, struct err_info *info)
{
    const struct source from = {'g', read_gbnf, .thinking = thinking, .text = text, .n = n};
    return get_text(e, &from, out, info);
}

static enum err read_lark(struct grammar_builder *b, const struct source *from, symbol_id *start, struct err_info *info)
{
    return grammar_lark(b, from->text, from->n, false, start, info);
}

enum err engine_grammar_any(struct engine *e, const char *text, size_t n, enum chat_thinking thinking,
                            struct grammar **out, struct err_info *info)
{
    if (!grammar_is_lark(text, n)) {
        return engine_grammar_gbnf(e, text, n, thinking, out, info);
    }
    const struct source from = {'l', read_lark, .thinking = thinking, .text = text, .n = n};
    return get_text(e, &from, out, info);
}

static enum err read_regex(struct grammar_builder *b, const struct source *from, symbol_id *start,
                           struct err_info *info)
{
    regex_id whole;
    TRY(regex_parse(grammar_regexes(b), &(struct regex_pattern){from->text, from->n, 0}, &whole, info));
    *start = grammar_lexeme(b, whole);
    return ERR_OK;
}

enum err engine_grammar_regex(struct engine *e, const char *text, size_t n, enum chat_thinking thinking,
                              struct grammar **out, struct err_info *info)
{
    const struct source from = {'r', read_regex, .thinking = thinking, .text = text, .n = n};
    return get_text(e, &from, out, info);
}

static enum err read_choice(struct grammar_builder *b, const struct source *from, symbol_id *start,
                            struct err_info *info)
{
    regex_id *ids = mem_zalloc_array(from->n, sizeof *ids, MEM_REQUEST);
    if (ids == NULL) {
        return no_memory(info);
    }
    for (size_t i = 0; i < from->n; i++) {
        ids[i] = regex_bytes(grammar_regexes(b), from->texts[i], from->lengths[i]);
    }
    *start = grammar_lexeme(b, regex_or_all(grammar_regexes(b), ids, from->n));
    mem_free(ids);
    return ERR_OK;
}

enum err engine_grammar_choice(struct engine *e, const char *const *texts, const size_t *lengths, size_t n,
                               enum chat_thinking thinking, struct grammar **out, struct err_info *info)
{
    const struct source from = {'c', read_choice, .thinking = thinking, .texts = texts, .lengths = lengths, .n = n};
    struct buf key;
    begin_key(&key, &from);
    for (size_t i = 0; i < n; i++) {
        buf_printf(&key, "%zu:", lengths[i]);
        buf_append(&key, texts[i], lengths[i]);
    }
    return get(e, &key, &from, out, info);
}

static enum err read_calls(struct grammar_builder *b, const struct source *from, symbol_id *start,
                           struct err_info *info)
{
    return chat_forced_add(b, from->calls, from->tokenizer, start, from->i_failed, info);
}

enum err engine_grammar_calls(struct engine *e, const struct chat_forced *f, struct grammar **out, size_t *i_failed,
                              struct err_info *info)
{
    const struct source from = {'t', read_calls, .calls = f, .tokenizer = e->tokenizer, .i_failed = i_failed};
    struct buf key;
    begin_key(&key, &from);
    buf_append(&key, &f->format, sizeof f->format); /* the address of a table row, which is constant */
    buf_printf(&key, "%d%d%d", (int)f->thinking, f->is_single, f->may_speak);
    for (size_t i = 0; i < f->n_tools; i++) {
        buf_printf(&key, "%s%d", f->tools[i].name, f->tools[i].is_loose);
        buf_putc(&key, f->tools[i].parameters != NULL ? '=' : ';');
        add_json(&key, f->tools[i].parameters);
    }
    *i_failed = 0;
    return get(e, &key, &from, out, info);
}

void engine_get_grammar_stats(const struct engine *e, struct engine_grammar_stats *out)
{
    struct grammar_cache_stats s;
    grammar_cache_get_stats(e->grammars, &s);
    *out = (struct engine_grammar_stats){.n_made = s.n_made, .n_reused = s.n_found, .n_kept = s.n_entries};
}

void engine_grammar_free(struct grammar **g) { grammar_unref(g); }
