/* A pattern of ECMA-262 and a text. Parts of the input: the pattern, the text. */
#include "tests/fuzz/fuzz_grammar.h"

#include "engine/base/utf8.h"
#include "engine/regex/regex_parse.h"

void pattern_fuzz(const unsigned char *data, size_t n);

/* 1: it matches, 0: it does not, -1: that took too much. */
static int matches(struct regex_set *s, regex_id r, struct gguf_str text)
{
    for (size_t i = 0; i < text.len && regex_ok(s) == ERR_OK; i++) {
        r = regex_next(s, r, (unsigned char)text.data[i]);
    }
    return regex_ok(s) != ERR_OK ? -1 : regex_is_nullable(s, r);
}

/* What the whole text matches stands in it somewhere; what matches is UTF-8; the complement says the opposite; as JSON escapes it
 * the text matches where it has nothing to escape. */
static void compare(struct regex_set *s, regex_id whole, regex_id search, struct gguf_str text)
{
    int is_whole = matches(s, whole, text), is_there = matches(s, search, text),
        is_not = matches(s, regex_not(s, whole), text), is_json = matches(s, regex_json_escaped(s, whole), text);
    bool is_plain = true;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        is_plain = is_plain && c >= ' ' && c != '"' && c != '\\';
    }
    assert(is_whole != 1 || is_there != 0);
    assert(is_whole != 1 || utf8_valid(text.data, text.len, NULL));
    assert(is_whole < 0 || is_not < 0 || is_whole != is_not);
    assert(is_whole < 0 || is_json < 0 || !is_plain || is_whole == is_json);
}

void pattern_fuzz(const unsigned char *data, size_t n)
{
    struct err_info info = {0};
    struct grammar_builder *b = NULL;
    struct buf taken;
    regex_id whole, search;
    struct gguf_str pattern = fuzz_part(&data, &n), text = fuzz_part(&data, &n);
    fuzz_grammar_start();
    buf_init(&taken, 0, MEM_GENERAL);
    if (grammar_builder_new(&b) == ERR_OK) {
        struct regex_set *s = grammar_regexes(b);
        if (fuzz_is_ok(regex_parse(s, &(struct regex_pattern){pattern.data, pattern.len, 0}, &whole, &info), &info) &&
            fuzz_is_ok(regex_parse(s, &(struct regex_pattern){pattern.data, pattern.len, REGEX_SEARCH}, &search, &info),
                       &info)) {
            compare(s, whole, search, text);
            if (fuzz_grammar_walk(&b, grammar_lexeme(b, whole), text, &taken)) {
                assert(taken.len == 0 || utf8_valid(taken.data, taken.len, NULL));
            }
        }
    }
    grammar_builder_free(&b);
    buf_fini(&taken);
}
