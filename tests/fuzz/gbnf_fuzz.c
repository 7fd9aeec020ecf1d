/* A grammar in GBNF and a text that is followed in it. Parts of the input: the grammar, the text. */
#include "tests/fuzz/fuzz_grammar.h"

#include "engine/grammar/grammar_gbnf.h"

void gbnf_fuzz(const unsigned char *data, size_t n);

void gbnf_fuzz(const unsigned char *data, size_t n)
{
    struct err_info info = {0};
    struct grammar_builder *b = NULL;
    struct buf whole;
    symbol_id root;
    struct gguf_str grammar = fuzz_part(&data, &n), text = fuzz_part(&data, &n);
    fuzz_grammar_start();
    buf_init(&whole, 0, MEM_GENERAL);
    if (grammar_builder_new(&b) == ERR_OK &&
        fuzz_is_ok(grammar_gbnf(b, grammar.data, grammar.len, &root, &info), &info)) {
        (void)fuzz_grammar_walk(&b, root, text, &whole);
    }
    grammar_builder_free(&b);
    buf_fini(&whole);
}
