/* A grammar of Lark's form and a text that is followed in it, as it is and as what stands in a JSON string. Parts of the input: the
 * grammar, the text. */
#include "tests/fuzz/fuzz_grammar.h"

#include "engine/grammar/grammar_lark.h"

void lark_fuzz(const unsigned char *data, size_t n);

void lark_fuzz(const unsigned char *data, size_t n)
{
    struct gguf_str grammar = fuzz_part(&data, &n), text = fuzz_part(&data, &n);
    fuzz_grammar_start();
    (void)grammar_is_lark(grammar.data, grammar.len);
    for (int is_quoted = 0; is_quoted <= 1; is_quoted++) {
        struct err_info info = {0};
        struct grammar_builder *b = NULL;
        struct buf whole;
        symbol_id root;
        buf_init(&whole, 0, MEM_GENERAL);
        if (grammar_builder_new(&b) == ERR_OK &&
            fuzz_is_ok(grammar_lark(b, grammar.data, grammar.len, is_quoted != 0, &root, &info), &info)) {
            (void)fuzz_grammar_walk(&b, root, text, &whole);
        }
        grammar_builder_free(&b);
        buf_fini(&whole);
    }
}
