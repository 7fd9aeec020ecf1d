/* Grammars that requests name, and the tables of the vocabulary that they share. */
#include "engine/engine_internal.h"

#include "engine/chat/chat_forced.h"
#include "engine/grammar/grammar_gbnf.h"
#include "engine/grammar/grammar_json.h"
#include "engine/grammar/regex_parse.h"
#include "engine/grammar/schema.h"

/* The tables, made once: most servers never need them. */
static enum err need_vocab(struct engine *e)
{
    pthread_mutex_lock(&e->grammar_lock);
    enum err err = e->vocab != NULL ? ERR_OK : grammar_vocab_new(e->tokenizer, &e->vocab);
    pthread_mutex_unlock(&e->grammar_lock);
    return err;
}

static enum err begin(struct engine *e, struct grammar_builder **b, struct grammar **out, struct err_info *info)
{
    *out = NULL;
    return need_vocab(e) == ERR_OK && grammar_builder_new(b) == ERR_OK
               ? ERR_OK
               : err_set(info, ERR_NOMEM, NULL, "out of memory for the grammar");
}

/* The grammar of what `start` derives, unless its reader failed with err. */
static enum err end(enum err err, struct grammar_builder **b, symbol_id start, struct grammar **out,
                    struct err_info *info)
{
    if (err != ERR_OK) {
        grammar_builder_free(b);
        return err;
    }
    return grammar_finish(b, start, out, info);
}

enum err engine_grammar_json_object(struct engine *e, struct grammar **out, struct err_info *info)
{
    struct grammar_builder *b;
    TRY(begin(e, &b, out, info));
    return end(ERR_OK, &b, grammar_json_object(b), out, info);
}

enum err engine_grammar_json_schema(struct engine *e, const json_t *schema, struct grammar **out, struct err_info *info)
{
    struct grammar_builder *b;
    symbol_id start = 0;
    TRY(begin(e, &b, out, info));
    enum err err = schema_add(b, schema, &start, info);
    return end(err, &b, start, out, info);
}

_Static_assert((int)GRAMMAR_GBNF_MAX_BYTES == (int)ENGINE_MAX_GRAMMAR_BYTES &&
                   (int)REGEX_PARSE_MAX_BYTES == (int)ENGINE_MAX_GRAMMAR_BYTES,
               "the field table's limit is the readers'");

enum err engine_grammar_gbnf(struct engine *e, const char *text, size_t n, struct grammar **out, struct err_info *info)
{
    struct grammar_builder *b;
    symbol_id start = 0;
    TRY(begin(e, &b, out, info));
    enum err err = grammar_gbnf(b, text, n, &start, info);
    return end(err, &b, start, out, info);
}

enum err engine_grammar_regex(struct engine *e, const char *text, size_t n, struct grammar **out, struct err_info *info)
{
    struct grammar_builder *b;
    regex_id whole;
    TRY(begin(e, &b, out, info));
    enum err err = regex_parse(grammar_regexes(b), text, n, false, &whole, info);
    return end(err, &b, grammar_lexeme(b, whole), out, info);
}

enum err engine_grammar_choice(struct engine *e, const char *const *texts, const size_t *lengths, size_t n,
                               struct grammar **out, struct err_info *info)
{
    struct grammar_builder *b;
    regex_id *ids = mem_zalloc_array(n, sizeof *ids, MEM_REQUEST);
    symbol_id start = 0;
    if (ids == NULL) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the grammar");
    }
    enum err err = begin(e, &b, out, info);
    if (err == ERR_OK) {
        for (size_t i = 0; i < n; i++) {
            ids[i] = regex_bytes(grammar_regexes(b), texts[i], lengths[i]);
        }
        start = grammar_lexeme(b, regex_or_all(grammar_regexes(b), ids, n));
        err = end(ERR_OK, &b, start, out, info);
    }
    mem_free(ids);
    return err;
}

enum err engine_grammar_calls(struct engine *e, const struct chat_forced *f, struct grammar **out, size_t *i_failed,
                              struct err_info *info)
{
    struct grammar_builder *b;
    symbol_id start = 0;
    *i_failed = 0;
    TRY(begin(e, &b, out, info));
    enum err err = chat_forced_add(b, f, e->tokenizer, &start, i_failed, info);
    return end(err, &b, start, out, info);
}

void engine_grammar_free(struct grammar **g) { grammar_unref(g); }
