/* Tokenizers of SafeTensors folders: small ones of each kind read and used, and the rows T01 to T07 and C of the
 * catalogue of bad inputs as tokenizer.json and the files beside it can have them. */
#include "engine/base/mem.h"
#include "engine/format/tokenizer_json.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/support/folder.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Suite *tokenizer_json_suite(void);

#define MARK "\xE2\x96\x81" /* U+2581 */

/* The parts of a tokenizer.json; NULL: as in the kind's own. */
struct parts {
    const char *normalizer, *pre, *post, *model, *vocab, *merges, *added;
    const char *settings, *generation, *jinja; /* the files beside it; NULL: none */
    const char *config;                        /* config.json */
    uint64_t n_rows;
};

/* Byte-level BPE over a few letters. */
static const struct parts byte_level = {
    .normalizer = "null",
    .pre = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}",
    .post = "null",
    .model = "\"type\":\"BPE\"",
    .vocab = "{\"a\":0,\"b\":1,\"ab\":2,\"\xC4\xA0\":3,\"\xC4\xA0"
             "ab\":4,\"c\":5}",
    .merges = "[\"a b\",[\"\xC4\xA0\",\"ab\"]]",
    .added =
        "[{\"id\":7,\"content\":\"<|end|>\",\"special\":true},{\"id\":8,\"content\":\"<tool>\",\"special\":false}]",
    .config = "{}",
};

/* BPE over characters, as Llama's. Rules give aa and baa, but not aaa, which is a token all the same. */
static const struct parts characters = {
    .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" MARK "\"},"
                  "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK "\"}]}",
    .pre = "null",
    .post =
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":"
        "{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens\":[\"<s>\"]}}"
        "}",
    .model = "\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":false",
    .vocab = "{\"<unk>\":0,\"<s>\":1,\"</s>\":2,\"a\":3,\"aa\":4,\"aaa\":5,\"" MARK "\":6,\"" MARK
             "a\":7,\"b\":8,\"baa\":9}",
    .merges = "[[\"a\",\"a\"],[\"" MARK "\",\"a\"],[\"b\",\"aa\"]]",
    .added = "[{\"id\":0,\"content\":\"<unk>\",\"special\":true},{\"id\":1,\"content\":\"<s>\",\"special\":true},"
             "{\"id\":2,\"content\":\"</s>\",\"special\":true}]",
    .config = "{\"eos_token_id\":2}",
};

static void write_optional(const char *name, const char *text)
{
    if (text != NULL) {
        folder_write_text(name, text);
    }
}

#define OR(change, base) ((change) != NULL ? (change) : (base))

static void write_folder(const struct parts *base, const struct parts *change)
{
    static char json[16384];
    int n = snprintf(json, sizeof json,
                     "{\"version\":\"1.0\",\"added_tokens\":%s,\"normalizer\":%s,\"pre_tokenizer\":%s,"
                     "\"post_processor\":%s,\"model\":{%s,\"vocab\":%s,\"merges\":%s}}",
                     OR(change->added, base->added), OR(change->normalizer, base->normalizer),
                     OR(change->pre, base->pre), OR(change->post, base->post), OR(change->model, base->model),
                     OR(change->vocab, base->vocab), OR(change->merges, base->merges));
    ck_assert(n > 0 && (size_t)n < sizeof json);
    folder_clear();
    folder_write("tokenizer.json", json, (size_t)n);
    write_optional("tokenizer_config.json", change->settings);
    write_optional("generation_config.json", change->generation);
    write_optional("chat_template.jinja", change->jinja);
}

/* Reads the folder into a model without tensors. */
static enum err read_folder(const char *config, uint64_t n_rows, struct gguf **out, struct err_info *info)
{
    struct gguf_build b;
    json_t *json = json_loads(config, 0, NULL);
    *out = NULL;
    if (json == NULL && mem_fault_fired()) { /* jansson's memory is counted, too */
        return ERR_NOMEM;
    }
    ck_assert_ptr_nonnull(json);
    gguf_build_init(&b);
    enum err err = tokenizer_json_add(folder_path(), json, n_rows, &b, info);
    if (err == ERR_OK) {
        err = gguf_build_finish(&b, NULL, out, info);
    }
    gguf_build_fini(&b);
    json_decref(json);
    return err;
}

struct loaded {
    struct gguf *g;
    struct tokenizer *t;
};

static enum err try_load(const struct parts *base, const struct parts *change, struct loaded *l, struct err_info *info)
{
    *l = (struct loaded){0};
    write_folder(base, change);
    enum err err = read_folder(OR(change->config, base->config), change->n_rows, &l->g, info);
    return err == ERR_OK ? tokenizer_new(l->g, &l->t, info) : err;
}

static void unload(struct loaded *l)
{
    tokenizer_free(&l->t);
    gguf_close(&l->g);
}

static struct loaded load(const struct parts *base, const struct parts *change)
{
    struct loaded l;
    struct err_info info = {0};
    enum err err = try_load(base, change, &l, &info);
    ck_assert_msg(err == ERR_OK, "%s: %s", err_code(err), info.text);
    return l;
}

/* The ids of a text, "3 4 5". */
static const char *ids_of(const struct loaded *l, const char *text, unsigned flags)
{
    static char out[256];
    struct token_list ids = {0};
    ck_assert_int_eq(
        tokenizer_encode(l->t,
                         &(struct tokenizer_text){.s = text, .n = strlen(text), .flags = flags, .max_tokens = 100},
                         &ids, NULL),
        ERR_OK);
    out[0] = '\0';
    for (size_t i = 0; i < ids.n; i++) {
        size_t n = strlen(out);
        snprintf(out + n, sizeof out - n, "%s%d", i == 0 ? "" : " ", ids.ids[i]);
    }
    token_list_fini(&ids);
    return out;
}

static void check_str(const struct gguf *g, const char *key, const char *expected)
{
    struct gguf_str s;
    ck_assert_int_eq(gguf_get_str_or_null(g, key, &s, NULL), ERR_OK);
    ck_assert_msg(s.data != NULL && s.len == strlen(expected) && memcmp(s.data, expected, s.len) == 0, "%s: '%.*s'",
                  key, (int)s.len, s.data != NULL ? s.data : "");
}

START_TEST(byte_level_bpe_is_read)
{
    struct parts change = {.n_rows = 12};
    struct loaded l = load(&byte_level, &change);
    check_str(l.g, "tokenizer.ggml.model", "gpt2");
    check_str(l.g, "tokenizer.ggml.pre", "gpt-2");
    ck_assert_int_eq(tokenizer_n_vocab(l.t), 12); /* the embedding's rows */
    ck_assert_str_eq(ids_of(&l, "ab abc", 0), "2 4 5");
    ck_assert_str_eq(ids_of(&l, "a<|end|>b<tool>", TOKENIZE_PARSE_SPECIAL), "0 7 1 8");
    ck_assert_int_eq(tokenizer_kind(l.t, 7), TOKEN_CONTROL);
    ck_assert_int_eq(tokenizer_kind(l.t, 8), TOKEN_USER_DEFINED);
    ck_assert_int_eq(tokenizer_kind(l.t, 6), TOKEN_UNUSED); /* a hole */
    ck_assert_int_eq(tokenizer_kind(l.t, 11), TOKEN_UNUSED);
    ck_assert(!tokenizer_adds_bos(l.t) && !tokenizer_adds_eos(l.t));
    unload(&l);
    folder_remove();
}
END_TEST

#define SPLIT(regex)                                                                                                   \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define BYTES           "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}"
#define SEQUENCE(steps) "{\"type\":\"Sequence\",\"pretokenizers\":[" steps "]}"
#define GPT4(digits)                                                                                                   \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}" digits                             \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"

START_TEST(known_patterns_have_their_names)
{
    static const struct {
        const char *pre, *normalizer, *model, *name;
    } rows[] = {
        {SEQUENCE(
             "{\"type\":\"Digits\",\"individual_digits\":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"),
         NULL, NULL, "smollm"},
        {SEQUENCE(SPLIT(GPT4("{1,3}")) "," BYTES), NULL, "\"type\":\"BPE\",\"ignore_merges\":true", "llama-bpe"},
        {SEQUENCE(SPLIT(GPT4("{1,3}")) "," BYTES), NULL, NULL, "dbrx"},
        {SEQUENCE(SPLIT(GPT4("")) "," BYTES), "{\"type\":\"NFC\"}", NULL, "qwen2"},
        {SEQUENCE(SEQUENCE(SPLIT(GPT4(""))) "," BYTES), NULL, NULL, "deepseek-r1-qwen"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct parts change = {.pre = rows[i].pre, .normalizer = rows[i].normalizer, .model = rows[i].model};
        struct loaded l = load(&byte_level, &change);
        check_str(l.g, "tokenizer.ggml.pre", rows[i].name);
        ck_assert_ptr_null(gguf_find(l.g, "infcgi.tokenizer.pattern"));
        unload(&l);
    }
    folder_remove();
}
END_TEST

START_TEST(other_patterns_come_along)
{
    struct parts one = {.pre = SEQUENCE(SPLIT("b+|[^b]+") "," BYTES)};
    struct loaded l = load(&byte_level, &one);
    check_str(l.g, "infcgi.tokenizer.pattern", "b+|[^b]+");
    ck_assert_str_eq(ids_of(&l, "ab", 0), "0 1"); /* cut between them, so they do not merge */
    unload(&l);
    struct parts two = {.pre = SEQUENCE(SPLIT("c") "," SPLIT("b") "," BYTES)};
    l = load(&byte_level, &two);
    const struct gguf_kv *kv;
    ck_assert_int_eq(gguf_get_array(l.g, "infcgi.tokenizer.pattern", GGUF_STRING, &kv, NULL), ERR_OK);
    ck_assert_uint_eq(kv->n, 2);
    ck_assert_str_eq(ids_of(&l, "abc", 0), "0 1 5");
    unload(&l);
    folder_remove();
}
END_TEST

START_TEST(merges_of_characters_go_by_rank)
{
    struct parts nothing = {0};
    struct loaded l = load(&characters, &nothing);
    check_str(l.g, "tokenizer.ggml.model", "llama");
    /* By scores aaa would be one token: it is in the vocabulary, but no rule makes it. */
    ck_assert_str_eq(ids_of(&l, "aaa", 0), "6 4 3");
    ck_assert_str_eq(ids_of(&l, "a a", 0), "7 7");
    ck_assert_str_eq(ids_of(&l, "baa", 0), "6 9");
    ck_assert_str_eq(ids_of(&l, "b<s>a", TOKENIZE_PARSE_SPECIAL | TOKENIZE_ADD_SPECIAL), "1 6 8 1 7");
    ck_assert_str_eq(ids_of(&l, "x", 0), "6 0");
    ck_assert(tokenizer_adds_bos(l.t) && tokenizer_eos(l.t) == 2);
    unload(&l);
    folder_remove();
}
END_TEST

START_TEST(characters_without_a_token_become_bytes)
{
    static char vocab[8192], added[] = "[]";
    size_t n = (size_t)snprintf(vocab, sizeof vocab, "{\"<unk>\":0,\"a\":1,\"" MARK "\":2,\"\\t\":3");
    for (int b = 0; b < 256; b++) {
        if (b != 9) { /* as Gemma's: the tab has a token of its own */
            n += (size_t)snprintf(vocab + n, sizeof vocab - n, ",\"<0x%02X>\":%d", (unsigned)b, 4 + b);
        }
    }
    snprintf(vocab + n, sizeof vocab - n, "}");
    struct parts change = {.vocab = vocab,
                           .added = added,
                           .merges = "[]",
                           .post = "null",
                           .model = "\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"byte_fallback\":true,\"fuse_unk\":true",
                           .config = "{}"};
    struct loaded l = load(&characters, &change);
    ck_assert_str_eq(ids_of(&l, "a\xC3\xA9\t", 0), "2 1 199 173 3");
    unload(&l);
    folder_remove();
}
END_TEST

#define METASPACE(scheme, split)                                                                                       \
    "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"" scheme "\",\"split\":" split "}"

START_TEST(the_leading_space_is_where_metaspace_puts_it)
{
    static const struct {
        const char *pre, *text, *ids;
    } rows[] = {
        {METASPACE("first", "false"), "a<s>a", "7 1 3"},     {METASPACE("first", "false"), " a", "7"},
        {METASPACE("always", "false"), "a<s>a", "7 1 7"},    {METASPACE("always", "false"), "b<s> a", "6 8 1 7"},
        {METASPACE("never", "false"), "a<s>a a", "3 1 3 7"}, {METASPACE("always", "true"), "a  a", "7 6 7"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct parts change = {.normalizer = "null", .pre = rows[i].pre};
        struct loaded l = load(&characters, &change);
        const char *ids = ids_of(&l, rows[i].text, TOKENIZE_PARSE_SPECIAL);
        ck_assert_msg(strcmp(ids, rows[i].ids) == 0, "%s: '%s': %s", rows[i].pre, rows[i].text, ids);
        unload(&l);
    }
    folder_remove();
}
END_TEST

START_TEST(special_tokens_take_in_white_space)
{
    struct parts change = {.normalizer = "null",
                           .pre = METASPACE("never", "false"),
                           .added = "[{\"id\":0,\"content\":\"<unk>\",\"special\":true},{\"id\":1,\"content\":\"<s>\","
                                    "\"special\":true,\"rstrip\":true},{\"id\":2,\"content\":\"</s>\",\"special\":true,"
                                    "\"lstrip\":true}]"};
    struct loaded l = load(&characters, &change);
    ck_assert_str_eq(ids_of(&l, " <s> \t\xE3\x80\x80 a  </s> a", TOKENIZE_PARSE_SPECIAL), "6 1 3 2 7");
    ck_assert_str_eq(ids_of(&l, "<s>  </s>", TOKENIZE_PARSE_SPECIAL), "1 2");
    unload(&l);
    folder_remove();
}
END_TEST

START_TEST(small_files_are_read)
{
    struct parts change = {
        .settings =
            "{\"bos_token\":{\"content\":\"<tool>\",\"lstrip\":false},\"eos_token\":\"c\",\"pad_token\":\"none\","
            "\"add_bos_token\":true,\"chat_template\":[{\"name\":\"default\",\"template\":\"D\"},"
            "{\"name\":\"tool_use\",\"template\":\"T\"}]}",
        .generation = "{\"eos_token_id\":[5,7],\"temperature\":0.6,\"top_p\":0.9,\"top_k\":20,\"do_sample\":true,"
                      "\"repetition_penalty\":1.25}"};
    struct loaded l = load(&byte_level, &change);
    double d;
    uint64_t u;
    ck_assert(tokenizer_bos(l.t) == 8 && tokenizer_eos(l.t) == 5 && tokenizer_adds_bos(l.t));
    ck_assert(tokenizer_is_eog(l.t, 5) && tokenizer_is_eog(l.t, 7) && !tokenizer_is_eog(l.t, 8));
    check_str(l.g, "tokenizer.chat_template", "D");
    check_str(l.g, "tokenizer.chat_template.tool_use", "T");
    ck_assert_int_eq(gguf_get_f64(l.g, "general.sampling.temp", &d, NULL), ERR_OK);
    ck_assert_double_eq_tol(d, 0.6, 1e-6);
    ck_assert_int_eq(gguf_get_u64(l.g, "general.sampling.top_k", &u, NULL), ERR_OK);
    ck_assert_uint_eq(u, 20);
    ck_assert_int_eq(gguf_get_f64(l.g, "general.sampling.penalty_repeat", &d, NULL), ERR_OK);
    ck_assert_double_eq(d, 1.25);
    ck_assert_ptr_null(gguf_find(l.g, "general.sampling.min_p"));
    unload(&l);
    change.jinja = "J";
    l = load(&byte_level, &change);
    check_str(l.g, "tokenizer.chat_template", "J");
    unload(&l);
    folder_remove();
}
END_TEST

START_TEST(word_pieces_are_spelt_as_in_gguf)
{
    struct parts change = {
        .normalizer = "{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,"
                      "\"strip_accents\":null,\"lowercase\":true}",
        .pre = "{\"type\":\"BertPreTokenizer\"}",
        .post = "{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",2],\"cls\":[\"[CLS]\",1]}",
        .model = "\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##\","
                 "\"max_input_chars_per_word\":100",
        .vocab = "{\"[UNK]\":0,\"[CLS]\":1,\"[SEP]\":2,\"play\":3,\"##ing\":4,\"##\":5}",
        .added = "[{\"id\":0,\"content\":\"[UNK]\",\"special\":true},{\"id\":1,\"content\":\"[CLS]\",\"special\":true},"
                 "{\"id\":2,\"content\":\"[SEP]\",\"special\":true}]",
        .config = "{}"};
    struct loaded l = load(&byte_level, &change);
    ck_assert_str_eq(ids_of(&l, "Playing x", TOKENIZE_ADD_SPECIAL), "1 3 4 0 2");
    unload(&l);
    folder_remove();
}
END_TEST

START_TEST(unigram_is_read)
{
    struct parts change = {
        .normalizer =
            "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true},"
            "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\"" MARK "\"}]}",
        .pre = METASPACE("always", "true"),
        .model = "\"type\":\"Unigram\",\"unk_id\":1",
        .vocab = "[[\"</s>\",0.0],[\"<unk>\",0.0],[\"" MARK "\",-3.0],[\"a\",-4.0],[\"" MARK "a\",-2.5],[\"aa\",-1.0]]",
        .merges = "null",
        .added = "[{\"id\":0,\"content\":\"</s>\",\"special\":true},{\"id\":1,\"content\":\"<unk>\",\"special\":true}]",
        .config = "{}"};
    struct loaded l = load(&byte_level, &change);
    check_str(l.g, "tokenizer.ggml.model", "t5");
    ck_assert_str_eq(ids_of(&l, "a   aa", 0), "4 2 5");
    unload(&l);
    folder_remove();
}
END_TEST

/* --- bad input ---------------------------------------------------------------------------------------------------- */

#define A_MILLION "1000000000"
static const struct bad {
    const char *name;
    bool is_characters;
    struct parts change;
    enum err err;
    const char *says;
} bads[] = {
    {"T01 no tokens", false, {.vocab = "{}"}, ERR_BAD_VOCAB, "model.vocab"},
    {"T01 a list", false, {.vocab = "[]"}, ERR_BAD_VOCAB, "an array"},
    {"T01 more than rows", false, {.n_rows = 8}, ERR_BAD_VOCAB, "below 8"},
    {"T01 an id that is too high", false, {.vocab = "{\"a\":" A_MILLION "}"}, ERR_BAD_VOCAB, A_MILLION},
    {"T01 a negative id", false, {.vocab = "{\"a\":-1}"}, ERR_BAD_VOCAB, "-1"},
    {"T01 an id that is a text", false, {.vocab = "{\"a\":\"0\"}"}, ERR_BAD_VOCAB, "'0'"},
    {"T02 two tokens of one id", false, {.vocab = "{\"a\":0,\"b\":0}", .merges = "[]"}, ERR_BAD_VOCAB, "id 0"},
    {"T02 a token twice", false, {.vocab = "{\"a\":0,\"a\":1}"}, ERR_BAD_VOCAB, "line"},
    {"T02 an empty token", false, {.vocab = "{\"\":0,\"a\":1}", .merges = "[]"}, ERR_BAD_VOCAB, "text"},
    {"T02 an added token elsewhere",
     false,
     {.added = "[{\"id\":9,\"content\":\"ab\"}]"},
     ERR_BAD_VOCAB,
     "expected id 2"},
    {"T02 an added token in another's place",
     false,
     {.added = "[{\"id\":2,\"content\":\"x\"}]"},
     ERR_BAD_VOCAB,
     "'ab' and 'x'"},
    {"T02 an added token without text", false, {.added = "[{\"id\":9}]"}, ERR_BAD_VOCAB, "content"},
    {"T02 added tokens that are none", false, {.added = "7"}, ERR_BAD_VOCAB, "added_tokens"},
    {"T02 a switch that is none",
     false,
     {.added = "[{\"id\":9,\"content\":\"x\",\"special\":1}]"},
     ERR_BAD_VOCAB,
     "special"},
    {"T04 an unknown token", true, {.model = "\"type\":\"BPE\",\"unk_token\":\"?\""}, ERR_BAD_SPECIAL_TOKEN, "'?'"},
    {"T04 an unknown BOS", false, {.settings = "{\"bos_token\":\"?\"}"}, ERR_BAD_SPECIAL_TOKEN, "bos_token"},
    {"T04 an EOS that is too high", false, {.config = "{\"eos_token_id\":9}"}, ERR_BAD_SPECIAL_TOKEN, "found 9"},
    {"T04 an EOS below 0", false, {.config = "{\"eos_token_id\":[5,-1]}"}, ERR_BAD_SPECIAL_TOKEN, "found -1"},
    {"T04 a text as id", false, {.generation = "{\"eos_token_id\":\"5\"}"}, ERR_BAD_SPECIAL_TOKEN, "generation_config"},
    {"a temperature below 0", false, {.generation = "{\"temperature\":-3}"}, ERR_BAD_CONFIG, "0 or more, found -3"},
    {"a top_k with a fraction", false, {.generation = "{\"top_k\":1.5}"}, ERR_BAD_CONFIG, "-1 or more, found 1.5"},
    {"T04 no BOS to add", false, {.settings = "{\"add_bos_token\":true}"}, ERR_BAD_SPECIAL_TOKEN, "add_bos_token"},
    {"T04 a template's unknown token",
     true,
     {.post = "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{}}]}"},
     ERR_BAD_SPECIAL_TOKEN,
     "post_processor"},
    {"T05 few byte tokens",
     true,
     {.model = "\"type\":\"BPE\",\"byte_fallback\":true",
      .vocab = "{\"<unk>\":0,\"<s>\":1,\"</s>\":2,\"a\":3,\"<0x00>\":4}",
      .merges = "[]"},
     ERR_BAD_BYTE_TOKEN,
     "256"},
    {"T05 an alphabet with holes",
     false,
     {.model = "\"type\":\"BPE\",\"unk_token\":\"a\""},
     ERR_BAD_BYTE_TOKEN,
     "0x00"},
    {"T06 no space", false, {.merges = "[\"ab\"]"}, ERR_BAD_MERGE, "merges[0]"},
    {"T06 three parts", false, {.merges = "[\"a b\",\"a b c\"]"}, ERR_BAD_MERGE, "merges[1]"},
    {"T06 an unknown part", false, {.merges = "[\"a x\"]"}, ERR_BAD_MERGE, "'a x'"},
    {"T06 an unknown union", false, {.merges = "[[\"b\",\"a\"]]"}, ERR_BAD_MERGE, "merges[0]"},
    {"T06 an empty part", false, {.merges = "[\" a\"]"}, ERR_BAD_MERGE, "merges[0]"},
    {"T06 a pair of one", false, {.merges = "[[\"ab\"]]"}, ERR_BAD_MERGE, "merges[0]"},
    {"T06 merges that are none", false, {.merges = "{}"}, ERR_BAD_MERGE, "an array"},
    {"T06 a control token",
     true,
     {.vocab = "{\"<unk>\":0,\"<s>\":1,\"</s>\":2,\"<s\":3,\">\":4}", .merges = "[\"<s >\"]"},
     ERR_BAD_MERGE,
     "merges[0]"},
    {"T07 another normalizer", false, {.normalizer = "{\"type\":\"Nmt\"}"}, ERR_UNSUPPORTED_PRETOKENIZER, "Nmt"},
    {"T07 another Replace",
     true,
     {.normalizer = "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(a+)+\"},\"content\":\"\"}"},
     ERR_UNSUPPORTED_PRETOKENIZER,
     "(a+)+"},
    {"T07 another prefix",
     true,
     {.normalizer = "{\"type\":\"Prepend\",\"prepend\":\"x\"}"},
     ERR_UNSUPPORTED_PRETOKENIZER,
     "'x'"},
    {"T07 another pre-tokenizer",
     false,
     {.pre = "{\"type\":\"Whitespace\"}"},
     ERR_UNSUPPORTED_PRETOKENIZER,
     "Whitespace"},
    {"T07 no pre-tokenizer", false, {.pre = "null"}, ERR_UNSUPPORTED_PRETOKENIZER, "ByteLevel"},
    {"T07 a prefix before bytes",
     false,
     {.pre = "{\"type\":\"ByteLevel\"}"},
     ERR_UNSUPPORTED_PRETOKENIZER,
     "add_prefix_space"},
    {"T07 a split that drops",
     false,
     {.pre = SEQUENCE(
          "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Removed\",\"invert\":false}," BYTES)},
     ERR_UNSUPPORTED_PRETOKENIZER,
     "Removed"},
    {"T07 a split at a text",
     false,
     {.pre = SEQUENCE(
          "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Isolated\",\"invert\":false}," BYTES)},
     ERR_UNSUPPORTED_PRETOKENIZER,
     "Regex"},
    {"T07 steps in the wrong order",
     false,
     {.pre = SEQUENCE(BYTES "," SPLIT("a"))},
     ERR_UNSUPPORTED_PRETOKENIZER,
     "last"},
    {"T07 a broken pattern", false, {.pre = SEQUENCE(SPLIT("(a") "," BYTES)}, ERR_UNSUPPORTED_PRETOKENIZER, "pattern"},
    {"T07 a step that is none", false, {.pre = "[]"}, ERR_BAD_VOCAB, "pre_tokenizer"},
    {"T07 BERT's words with BPE",
     false,
     {.pre = SEQUENCE("{\"type\":\"BertPreTokenizer\"}," BYTES)},
     ERR_UNSUPPORTED_PRETOKENIZER,
     "byte-level"},
    {"another model", false, {.model = "\"type\":\"WordLevel\""}, ERR_UNSUPPORTED_TOKENIZER, "WordLevel"},
    {"dropout", false, {.model = "\"type\":\"BPE\",\"dropout\":0.1"}, ERR_UNSUPPORTED_TOKENIZER, "dropout"},
    {"a suffix",
     false,
     {.model = "\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\""},
     ERR_UNSUPPORTED_TOKENIZER,
     "</w>"},
    {"unknown characters as one",
     true,
     {.model = "\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true"},
     ERR_UNSUPPORTED_TOKENIZER,
     "fuse_unk"},
    {"whole words, perhaps",
     false,
     {.added = "[{\"id\":9,\"content\":\"x\",\"single_word\":\"yes\"}]"},
     ERR_BAD_VOCAB,
     "single_word"},
    {"two tokens in front",
     true,
     {.post =
          "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},{\"SpecialToken\":{\"id\":"
          "\"<s>\"}},{\"Sequence\":{}}],\"special_tokens\":{\"<s>\":{\"ids\":[1]}}}"},
     ERR_UNSUPPORTED_TOKENIZER,
     "one token before"},
    {"another post-processor", false, {.post = "{\"type\":\"X\"}"}, ERR_UNSUPPORTED_TOKENIZER, "'X'"},
    {"no JSON", false, {.vocab = "{"}, ERR_BAD_VOCAB, "tokenizer.json"},
    {"T02 a deep file", false, {.post = "[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]"}, ERR_BAD_VOCAB, "deep"},
    {"no JSON beside it", false, {.settings = "[]"}, ERR_BAD_CONFIG, "tokenizer_config.json"},
    {"a temperature that is a text", false, {.generation = "{\"temperature\":\"hot\"}"}, ERR_BAD_CONFIG, "temperature"},
    {"C a template that is a number", false, {.settings = "{\"chat_template\":7}"}, ERR_BAD_CONFIG, "chat_template"},
    {"C a template without a name",
     false,
     {.settings = "{\"chat_template\":[{\"template\":\"x\"}]}"},
     ERR_BAD_CONFIG,
     "name"},
    {"C a template's name as a path",
     false,
     {.settings = "{\"chat_template\":[{\"name\":\"../x\",\"template\":\"x\"}]}"},
     ERR_BAD_CONFIG,
     "../x"},
};

START_TEST(bad_files_give_their_codes)
{
    for (size_t i = 0; i < ARRAY_LEN(bads); i++) {
        const struct bad *b = &bads[i];
        size_t live = mem_live();
        struct loaded l;
        struct err_info info = {0};
        enum err err = try_load(b->is_characters ? &characters : &byte_level, &b->change, &l, &info);
        ck_assert_msg(err == b->err && info.code == err, "%s: expected %s, found %s: %s", b->name, err_code(b->err),
                      err_code(err), info.text);
        size_t n_file = strcspn(info.text, ": ");
        ck_assert_msg(n_file > 5 && memcmp(info.text + n_file - 5, ".json", 5) == 0, "no file: %s", info.text);
        ck_assert_msg(strstr(info.text, b->says) != NULL, "%s: '%s' is not in: %s", b->name, b->says, info.text);
        ck_assert_msg(strstr(info.text, "expected") != NULL || strstr(info.text, "is not valid JSON") != NULL, "%s: %s",
                      b->name, info.text);
        unload(&l);
        ck_assert_msg(mem_live() == live, "%s: memory is lost", b->name);
    }
    folder_remove();
}
END_TEST

/* A file that ends too early, wherever that is. */
START_TEST(every_start_of_a_file_is_refused)
{
    static char json[16384];
    write_folder(&characters, &(struct parts){0});
    size_t n = folder_read(folder_file("tokenizer.json"), json, sizeof json);
    ck_assert(n > 500 && n < sizeof json - 1);
    for (size_t len = 0; len < n; len++) {
        struct gguf *g;
        struct err_info info = {0};
        folder_write("tokenizer.json", json, len);
        ck_assert_msg(read_folder("{}", 0, &g, &info) == ERR_BAD_VOCAB, "%zu bytes: %s", len, info.text);
    }
    folder_remove();
}
END_TEST

START_TEST(running_out_of_memory_is_survived)
{
    write_folder(&characters, &(struct parts){.settings = "{\"chat_template\":\"x\"}"});
    bool was_hit = true;
    for (long n = 0; was_hit; n++) {
        struct gguf *g = NULL;
        struct err_info info = {0};
        size_t live = mem_live();
        mem_fail_at(n);
        enum err err = read_folder("{}", 0, &g, &info);
        was_hit = mem_fault_fired();
        mem_fail_at(-1);
        ck_assert_msg(err == (was_hit ? ERR_NOMEM : ERR_OK), "allocation %ld: %s: %s", n, err_code(err), info.text);
        gguf_close(&g);
        ck_assert_uint_eq(mem_live(), live);
    }
    folder_remove();
}
END_TEST

/* --- tokenizer.model ---------------------------------------------------------------------------------------------- */

struct proto {
    unsigned char data[8192];
    size_t n;
    size_t borders[16], n_borders; /* where fields of the outermost message end */
};

static void put_varint(struct proto *p, uint64_t v)
{
    for (; v >= 0x80; v >>= 7) {
        p->data[p->n++] = (unsigned char)(v | 0x80);
    }
    p->data[p->n++] = (unsigned char)v;
}

static void put_number(struct proto *p, uint32_t field, uint64_t v)
{
    put_varint(p, field << 3);
    put_varint(p, v);
}

static void put_bytes(struct proto *p, uint32_t field, const void *data, size_t n)
{
    put_varint(p, field << 3 | 2);
    put_varint(p, n);
    memcpy(p->data + p->n, data, n);
    p->n += n;
}

static void put_piece(struct proto *p, const char *text, float score, int type)
{
    struct proto piece = {.n = 0};
    put_bytes(&piece, 1, text, strlen(text));
    put_varint(&piece, 2 << 3 | 5);
    memcpy(piece.data + piece.n, &score, sizeof score);
    piece.n += sizeof score;
    put_number(&piece, 3, (uint64_t)type);
    put_bytes(p, 1, piece.data, piece.n);
    p->borders[p->n_borders++] = p->n;
}

static bool is_border(const struct proto *p, size_t n)
{
    for (size_t i = 0; i < p->n_borders; i++) {
        if (p->borders[i] == n) {
            return true;
        }
    }
    return false;
}

/* A model of kind `model` (1 unigram, 2 bpe) with few pieces. */
static void make_proto(struct proto *p, uint64_t model, bool removes_spaces)
{
    struct proto trainer = {.n = 0}, normalizer = {.n = 0};
    p->n = p->n_borders = 0;
    put_piece(p, "<unk>", 0, 2);
    put_piece(p, "<s>", 0, 3);
    put_piece(p, "</s>", 0, 3);
    put_piece(p, MARK, -3, 1);
    put_piece(p, "a", -4, 1);
    put_piece(p, MARK "a", -1, 1);
    put_piece(p, MARK MARK, 0, 4);
    put_number(&trainer, 3, model);
    put_number(&trainer, 43, (uint64_t)-1);
    put_bytes(p, 2, trainer.data, trainer.n);
    p->borders[p->n_borders++] = p->n;
    put_number(&normalizer, 4, removes_spaces);
    put_bytes(p, 3, normalizer.data, normalizer.n);
}

START_TEST(sentencepiece_models_are_read)
{
    static struct proto p;
    struct err_info info = {0};
    struct loaded l = {0};
    make_proto(&p, 2, false);
    folder_write("tokenizer.model", p.data, p.n);
    write_optional("added_tokens.json", "{\"<x>\":7}");
    write_optional("tokenizer_config.json",
                   "{\"added_tokens_decoder\":{\"8\":{\"content\":\"<y>\",\"special\":true}}}");
    enum err err = read_folder("{}", 10, &l.g, &info);
    ck_assert_msg(err == ERR_OK && tokenizer_new(l.g, &l.t, &info) == ERR_OK, "%s", info.text);
    check_str(l.g, "tokenizer.ggml.model", "llama");
    ck_assert_str_eq(ids_of(&l, "a a<x>", TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL), "1 5 5 7");
    ck_assert_str_eq(ids_of(&l, "a  a", 0), "5 6 5"); /* the user-defined token of two spaces, and a prefix after it */
    ck_assert_int_eq(tokenizer_kind(l.t, 8), TOKEN_CONTROL);
    ck_assert(tokenizer_n_vocab(l.t) == 10 && tokenizer_adds_bos(l.t));
    unload(&l);
    folder_remove();
}
END_TEST

START_TEST(sentencepiece_models_that_cannot_be_are_refused)
{
    static struct proto p;
    struct err_info info = {0};
    struct gguf *g;
    make_proto(&p, 3, false);
    folder_write("tokenizer.model", p.data, p.n);
    ck_assert_int_eq(read_folder("{}", 0, &g, &info), ERR_UNSUPPORTED_TOKENIZER);
    make_proto(&p, 2, true);
    folder_write("tokenizer.model", p.data, p.n);
    ck_assert_int_eq(read_folder("{}", 0, &g, &info), ERR_UNSUPPORTED_TOKENIZER);
    make_proto(&p, 2, false);
    put_bytes(&p, 2, "\xC8\x02\x63", 3); /* bos_id 99; the other settings stay */
    folder_write("tokenizer.model", p.data, p.n);
    ck_assert_int_eq(read_folder("{}", 0, &g, &info), ERR_BAD_SPECIAL_TOKEN);
    ck_assert_ptr_nonnull(strstr(info.text, "bos_id"));
    make_proto(&p, 2, false);
    for (size_t n = 0; n < p.n; n++) { /* cut off inside a field, or where less is there but all of it good */
        folder_write("tokenizer.model", p.data, n);
        enum err err = read_folder("{}", 0, &g, &info);
        ck_assert_msg((err == ERR_BAD_VOCAB) == !is_border(&p, n), "%zu bytes: %s", n, err_code(err));
        gguf_close(&g);
    }
    static const char *const broken[] = {"\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01",
                                         "\x0B",
                                         "\x0A\x7F",
                                         "\x08\x01",
                                         "\x0A\x03\x0D\x01\x02",
                                         "\x0A\x02\x18\x09",
                                         "\x01"};
    for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
        folder_write("tokenizer.model", broken[i], strlen(broken[i]));
        ck_assert_msg(read_folder("{}", 0, &g, &info) == ERR_BAD_VOCAB, "case %zu", i);
    }
    folder_remove();
}
END_TEST

START_TEST(a_folder_may_have_no_tokenizer)
{
    struct gguf *g;
    ck_assert_int_eq(read_folder("{\"eos_token_id\":99999}", 0, &g, NULL), ERR_OK);
    ck_assert_uint_eq(gguf_n_kv(g), 0);
    gguf_close(&g);
    folder_remove();
}
END_TEST

Suite *tokenizer_json_suite(void)
{
    Suite *s = suite_create("tokenizer_json");
    TCase *c = tcase_create("tokenizer_json");
    tcase_add_test(c, byte_level_bpe_is_read);
    tcase_add_test(c, known_patterns_have_their_names);
    tcase_add_test(c, other_patterns_come_along);
    tcase_add_test(c, merges_of_characters_go_by_rank);
    tcase_add_test(c, characters_without_a_token_become_bytes);
    tcase_add_test(c, the_leading_space_is_where_metaspace_puts_it);
    tcase_add_test(c, special_tokens_take_in_white_space);
    tcase_add_test(c, small_files_are_read);
    tcase_add_test(c, word_pieces_are_spelt_as_in_gguf);
    tcase_add_test(c, unigram_is_read);
    tcase_add_test(c, bad_files_give_their_codes);
    tcase_add_test(c, every_start_of_a_file_is_refused);
    tcase_add_test(c, running_out_of_memory_is_survived);
    tcase_add_test(c, sentencepiece_models_are_read);
    tcase_add_test(c, sentencepiece_models_that_cannot_be_are_refused);
    tcase_add_test(c, a_folder_may_have_no_tokenizer);
    suite_add_tcase(s, c);
    return s;
}
