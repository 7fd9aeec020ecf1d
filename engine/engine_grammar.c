/* Grammars that requests name, and the tables of the vocabulary that they share. */
#include "engine/engine_internal.h"

#include "engine/grammar/grammar_json.h"

/* The tables, made once: most servers never need them. */
static enum err need_vocab(struct engine *e)
{
    pthread_mutex_lock(&e->grammar_lock);
    enum err err = e->vocab != NULL ? ERR_OK : grammar_vocab_new(e->tokenizer, &e->vocab);
    pthread_mutex_unlock(&e->grammar_lock);
    return err;
}

enum err engine_grammar_json_object(struct engine *e, struct grammar **out, struct err_info *info)
{
    struct grammar_builder *b;
    *out = NULL;
    if (need_vocab(e) != ERR_OK || grammar_builder_new(&b) != ERR_OK) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the grammar");
    }
    return grammar_finish(&b, grammar_json_object(b), out, info);
}

void engine_grammar_free(struct grammar **g) { grammar_unref(g); }
