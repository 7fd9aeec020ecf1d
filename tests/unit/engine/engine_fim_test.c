/* The marks of a gap, as vocabularies of many models name them, and as files say by number. */
#include "engine/engine_internal.h"

#include "tests/support/gguf_writer.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <string.h>

Suite *engine_fim_suite(void);

enum { N_BYTES = 256, N_MARKS = 5 };

/* prefix, suffix, middle, repo and file; NULL: the vocabulary has none. Its first token after the bytes is 256. */
static struct engine_fim look(const char *const names[N_MARKS], const struct gguf_writer *w)
{
    struct vocab v;
    struct buf bytes;
    struct gguf *keys;
    struct err_info info = {0};
    struct engine_fim fim;
    vocab_bpe(&v, "gpt-2");
    for (int i = 0; i < N_MARKS; i++) {
        const char *name = names[i] != NULL ? names[i] : "<other>";
        ck_assert_int_eq(vocab_add(&v, name, strlen(name), names[i] != NULL ? 3 : 1, 0), N_BYTES + i);
    }
    buf_init(&bytes, 0, MEM_GENERAL);
    gguf_writer_finish(w, &bytes);
    ck_assert_int_eq(vocab_load(&v, &info), ERR_OK);
    ck_assert_int_eq(gguf_open_memory(bytes.data, bytes.len, &keys, &info), ERR_OK);
    engine_get_fim(&(struct engine){.gguf = keys, .tokenizer = v.t}, &fim);
    gguf_close(&keys);
    buf_fini(&bytes);
    vocab_fini(&v);
    return fim;
}

static void expect(struct engine_fim fim, int prefix, int suffix, int middle, int repo, int file, int number)
{
    ck_assert_msg(fim.prefix == prefix && fim.suffix == suffix && fim.middle == middle && fim.repo == repo &&
                      fim.file == file,
                  "case %d: found %d %d %d %d %d", number, fim.prefix, fim.suffix, fim.middle, fim.repo, fim.file);
    ck_assert_int_eq(fim.bos, -1);
}

/* Qwen2.5-Coder's first, and others that are in use; without the suffix's a vocabulary has no gap. */
START_TEST(names_of_models)
{
    static const char *const names[][N_MARKS] = {
        {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"},
        {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", NULL, NULL},
        {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", NULL, NULL},
        {"▁<PRE>", "▁<SUF>", "▁<MID>", NULL, NULL},
        {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", "<fim-repo>", NULL},
        {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", NULL, NULL},
        {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<reponame>", NULL},
        {"<fim_prefix>", NULL, "<fim_middle>", NULL, NULL},
    };
    struct gguf_writer w;
    gguf_writer_init(&w);
    gguf_writer_str(&w, "general.architecture", "llama");
    for (int i = 0; i < (int)ARRAY_LEN(names); i++) {
        int want[N_MARKS];
        for (int k = 0; k < N_MARKS; k++) {
            want[k] = names[i][k] != NULL ? N_BYTES + k : -1;
        }
        expect(look(names[i], &w), want[0], want[1], want[2], want[3], want[4], i);
    }
    gguf_writer_fini(&w);
}
END_TEST

/* Keys go before names, newer before older ones; numbers that are no ids count as none. */
START_TEST(keys_go_before_names)
{
    static const char *const names[N_MARKS] = {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>",
                                               "<|file_sep|>"};
    struct gguf_writer w;
    gguf_writer_init(&w);
    gguf_writer_str(&w, "general.architecture", "llama");
    gguf_writer_u32(&w, "tokenizer.ggml.fim_pre_token_id", 65);
    gguf_writer_u32(&w, "tokenizer.ggml.prefix_token_id", 66);
    gguf_writer_u32(&w, "tokenizer.ggml.suffix_token_id", 67);
    gguf_writer_u32(&w, "tokenizer.ggml.fim_mid_token_id", N_BYTES + N_MARKS);
    gguf_writer_str(&w, "tokenizer.ggml.fim_rep_token_id", "68");
    gguf_writer_u32(&w, "tokenizer.ggml.fim_sep_token_id", 69);
    expect(look(names, &w), 65, 67, N_BYTES + 2, N_BYTES + 3, 69, 0);
    gguf_writer_fini(&w);
}
END_TEST

Suite *engine_fim_suite(void)
{
    Suite *s = suite_create("engine_fim");
    TCase *t = tcase_create("engine_fim");
    tcase_add_test(t, names_of_models);
    tcase_add_test(t, keys_go_before_names);
    suite_add_tcase(s, t);
    return s;
}
