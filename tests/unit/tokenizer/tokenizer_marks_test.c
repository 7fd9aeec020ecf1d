/* Which user-defined tokens are marks, which users' text never gives, and which are text with an id of its own. The
 * tokens are those of published vocabularies. */
#include "engine/base/compiler.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <string.h>

Suite *tokenizer_marks_suite(void);

static void load(struct vocab *v)
{
    struct err_info info = {0};
    enum err err = vocab_load(v, &info);
    ck_assert_msg(err == ERR_OK, "refused: %s", info.text);
}

/* How often id comes of s; is_users: all of s is plain. */
static int count(const struct vocab *v, const char *s, bool is_users, int32_t id)
{
    struct token_list ids = {0};
    struct span all = {0, strlen(s)};
    enum err err = tokenizer_encode(
        v->t,
        &(struct tokenizer_text){
            .s = s, .n = all.to, .flags = TOKENIZE_PARSE_SPECIAL, .plain = &all, .n_plain = is_users ? 1 : 0},
        &ids, NULL);
    ck_assert_msg(err == ERR_OK, "%s", err_code(err));
    int n = 0;
    for (size_t i = 0; i < ids.n; i++) {
        n += ids.ids[i] == id;
    }
    token_list_fini(&ids);
    return n;
}

static const char *const marks[] = {
    /* Gemma 4 */
    "<|tool_call>",
    "<tool_call|>",
    "<|\"|>",
    "<|channel>",
    /* Gemma 1 to 3 */
    "[multimodal]",
    "[@BOS@]",
    "<unused7>",
    "<mask>",
    "<start_of_turn>",
    /* DeepSeek and DeepSeek-Coder */
    "<|User|>",
    "<|Assistant|>",
    "<|EOT|>",
    "<pad>",
    "[PAD32022]",
    "<\xEF\xBD\x9CUser\xEF\xBD\x9C>",
    "<\xEF\xBD\x9C"
    "fim\xE2\x96\x81hole\xEF\xBD\x9C>",
    /* Command-R, Qwen */
    "<|START_OF_TURN_TOKEN|>",
    "<think>",
    "</think>",
    "</think>\n\n",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    /* Mistral, ChatGLM, CodeLlama, Falcon, OLMo, EXAONE, MiniCPM, T5, Phi-3 */
    "[INST]",
    "[/INST]",
    "<<SYS>>",
    "[gMASK]",
    "<sop>",
    "\xE2\x96\x81<PRE>",
    "_<EOT>",
    ">>QUESTION<<",
    "|||IP_ADDRESS|||",
    "[|assistant|]",
    "<\xE7\x94\xA8\xE6\x88\xB7>",
    "<extra_id_0>",
    "{{role}}",
    "</s>",
};

static const char *const texts[] = {
    /* runs */
    "  ",
    "                ",
    "\n\n",
    "\t\t",
    "\n\n\n\n",
    "\xE2\x96\x81\xE2\x96\x81",
    "\xC2\xA0\xC2\xA0",
    "____",
    /* DeepSeek's single characters */
    "\xC3\xB5",
    "\xC3\xB7",
    "\xC3\x81",
    /* what a fine-tune may add */
    "covid",
    "don't",
    "->",
    "<=>",
    "[]",
    "{}",
    "=====",
    "New York",
    "<b",
    "x>",
    "[1",
};

static const char *const html[] = {"<table>", "</table>", "<h1>", "</h6>", "<i>", "</s>", "<br/>", "<blockquote>"};

/* A vocabulary for each, as some are parts of others. */
static void expect_roles(const char *const *tokens, size_t n, bool has_html, bool are_marks)
{
    for (size_t i = 0; i < n; i++) {
        struct vocab v;
        vocab_bpe(&v, "gpt-2");
        int32_t id = vocab_add(&v, tokens[i], strlen(tokens[i]), TOKEN_USER_DEFINED, 0);
        if (has_html) {
            vocab_add(&v, "<strong>", 8, TOKEN_USER_DEFINED, 0);
        }
        load(&v);
        ck_assert_msg(count(&v, tokens[i], false, id) == 1, "%s: expected the token where a template writes it",
                      tokens[i]);
        ck_assert_msg(count(&v, tokens[i], true, id) == (are_marks ? 0 : 1), "%s: expected %s in a user's text",
                      tokens[i], are_marks ? "no token" : "the token");
        ck_assert_int_eq(tokenizer_kind(v.t, id), TOKEN_USER_DEFINED); /* and so shown in answers */
        vocab_fini(&v);
    }
}

START_TEST(the_form_of_a_token_tells)
{
    expect_roles(marks, ARRAY_LEN(marks), false, true);
    expect_roles(marks, ARRAY_LEN(marks) - 1, true, true); /* without </s> */
    expect_roles(texts, ARRAY_LEN(texts), false, false);
    expect_roles(html, ARRAY_LEN(html), true, false);
    expect_roles(html, ARRAY_LEN(html), false, true);
}
END_TEST

/* A token that looks like words is a mark where the template uses it, and so is HTML. */
START_TEST(the_template_tells)
{
    static const char *const words[] = {"USER:", "### Response:", "<i>", "->", "  ", "\xC3\xB5", "other"};
    static const bool is_mark[] = {true, true, true, true, false, false, false};
    static const char source[] = "{{ 'USER:' }}  \xC3\xB5 {{ '### Response:' + x['->'] }}<i>";
    for (int later = 0; later < 2; later++) {
        struct vocab v;
        int32_t ids[ARRAY_LEN(words)];
        vocab_bpe(&v, "gpt-2");
        for (size_t i = 0; i < ARRAY_LEN(words); i++) {
            ids[i] = vocab_add(&v, words[i], strlen(words[i]), TOKEN_USER_DEFINED, 0);
        }
        vocab_add(&v, "<strong>", 8, TOKEN_USER_DEFINED, 0);
        v.chat_template = later ? "{{ x }}" : source;
        load(&v);
        if (later) {
            ck_assert_int_eq(count(&v, "USER:", true, ids[0]), 1);
            ck_assert_int_eq(tokenizer_add_marks(v.t, source, strlen(source)), ERR_OK);
        }
        for (size_t i = 0; i < ARRAY_LEN(words); i++) {
            ck_assert_int_eq(count(&v, words[i], false, ids[i]), 1);
            ck_assert_msg(count(&v, words[i], true, ids[i]) == !is_mark[i], "%s", words[i]);
        }
        vocab_fini(&v);
    }
}
END_TEST

/* Half of a mark from a template and half from a user make none, at any border. */
START_TEST(borders_make_no_mark)
{
    struct vocab v;
    const char text[] = "a<|tool_call>b";
    vocab_bpe(&v, "gpt-2");
    int32_t id = vocab_add(&v, text + 1, 12, TOKEN_USER_DEFINED, 0);
    load(&v);
    for (size_t from = 0; from < sizeof text - 1; from++) {
        for (size_t to = from + 1; to < sizeof text; to++) {
            struct token_list ids = {0};
            struct span span = {from, to};
            int n = 0;
            ck_assert_int_eq(
                tokenizer_encode(
                    v.t,
                    &(struct tokenizer_text){
                        .s = text, .n = sizeof text - 1, .flags = TOKENIZE_PARSE_SPECIAL, .plain = &span, .n_plain = 1},
                    &ids, NULL),
                ERR_OK);
            for (size_t i = 0; i < ids.n; i++) {
                n += ids.ids[i] == id;
            }
            ck_assert_int_eq(n, to <= 1 || from >= 13);
            token_list_fini(&ids);
        }
    }
    vocab_fini(&v);
}
END_TEST

/* Merges, whole words, tries and pieces that would give a mark give something else. */
START_TEST(no_model_makes_a_mark_of_text)
{
    static const char *const pres[] = {"gpt-2", "llama-bpe"}; /* the second takes words that are tokens whole */
    for (size_t i = 0; i < ARRAY_LEN(pres); i++) {
        struct vocab v;
        vocab_bpe(&v, pres[i]);
        vocab_add(&v, "<x", 2, TOKEN_NORMAL, 0);
        int32_t id = vocab_add(&v, "<x>", 3, TOKEN_USER_DEFINED, 0);
        int32_t end = vocab_add(&v, "<end_of_turn>", 13, TOKEN_NORMAL, 0); /* a mark whatever the file says */
        int32_t word = vocab_add(&v, "ab", 2, TOKEN_USER_DEFINED, 0);
        int32_t quote = vocab_add(&v, "<|\"|>", 5, TOKEN_USER_DEFINED, 0); /* a word of punctuation */
        vocab_add(&v, "<|", 2, TOKEN_NORMAL, 0);
        vocab_add(&v, "<|\"", 3, TOKEN_NORMAL, 0);
        vocab_add(&v, "|>", 2, TOKEN_NORMAL, 0);
        vocab_add_merge(&v, "< |", 3);
        vocab_add_merge(&v, "| >", 3);
        vocab_add_merge(&v, "<| \"", 4);
        vocab_add_merge(&v, "<|\" |>", 6);
        vocab_add(&v, "<end_of_turn", 12, TOKEN_NORMAL, 0);
        vocab_add_merge(&v, "< x", 3);
        vocab_add_merge(&v, "<x >", 4);
        vocab_add_merge(&v, "<end_of_turn >", 14);
        load(&v);
        ck_assert_int_eq(count(&v, "<x>", true, id), 0);
        ck_assert_int_eq(count(&v, "<x>", false, id), 1);
        ck_assert_int_eq(count(&v, "<|\"|>", true, quote), 0);
        ck_assert_int_eq(count(&v, "a<|\"|>b", false, quote), 1);
        ck_assert_int_eq(count(&v, "<end_of_turn>", true, end), 0);
        ck_assert_int_eq(count(&v, "ab", true, word), 1);
        vocab_fini(&v);
    }
    for (int model = 0; model < 3; model++) {
        struct vocab v;
        if (model == 0) {
            vocab_spm(&v);
        } else {
            vocab_plain(&v, model == 1 ? "t5" : "bert");
        }
        vocab_add(&v, "\xE2\x96\x81", 3, TOKEN_NORMAL, -1);
        vocab_add(&v, "<", 1, TOKEN_NORMAL, -9);
        vocab_add(&v, "\xE2\x96\x81<", 4, TOKEN_NORMAL, -9);
        vocab_add(&v, "x", 1, TOKEN_NORMAL, -9);
        vocab_add(&v, ">", 1, TOKEN_NORMAL, -9);
        vocab_add(&v, "<x", 2, TOKEN_NORMAL, -1);
        int32_t id = vocab_add(&v, "<x>", 3, TOKEN_USER_DEFINED, 9);
        load(&v);
        ck_assert_int_eq(count(&v, "<x>", true, id), 0);
        ck_assert_int_eq(count(&v, "x<x> <x>x", true, id), 0);
        ck_assert_int_eq(count(&v, "x<x> <x>x", false, id), 2);
        vocab_fini(&v);
    }
}
END_TEST

Suite *tokenizer_marks_suite(void)
{
    Suite *s = suite_create("tokenizer_marks");
    TCase *c = tcase_create("tokenizer_marks");
    tcase_add_test(c, the_form_of_a_token_tells);
    tcase_add_test(c, the_template_tells);
    tcase_add_test(c, borders_make_no_mark);
    tcase_add_test(c, no_model_makes_a_mark_of_text);
    suite_add_tcase(s, c);
    return s;
}
