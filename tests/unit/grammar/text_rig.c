#include "tests/unit/grammar/text_rig.h"

#include "engine/base/clock.h"
#include "engine/base/compiler.h"
#include "engine/base/mem.h"
#include "engine/base/task.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <string.h>

static struct vocab file;
static struct grammar_vocab *vocab;

void text_rig_set_up(void)
{
    struct err_info info = {0};
    vocab_bpe(&file, "gpt-2");
    ck_assert_msg(vocab_load(&file, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(grammar_vocab_new(file.t, &vocab), ERR_OK);
}

void text_rig_tear_down(void)
{
    grammar_vocab_free(&vocab);
    vocab_fini(&file);
}

static enum err compile(text_rig_reader read, const char *text, size_t n, struct grammar **g, struct err_info *info)
{
    struct grammar_builder *b;
    symbol_id root;
    *g = NULL;
    TRY(grammar_builder_new(&b));
    enum err err = read(b, text, n, &root, info);
    if (err == ERR_OK) {
        return grammar_finish(&b, root, g, info);
    }
    grammar_builder_free(&b);
    return err;
}

/* Tokens 0 to 255 are the bytes (vocab_bpe). */
static bool says(struct grammar *g, const char *text)
{
    struct grammar_matcher *m;
    bool taken = true;
    ck_assert_int_eq(grammar_matcher_new(g, vocab, &m), ERR_OK);
    for (size_t i = 0; text[i] != '\0' && taken; i++) {
        ck_assert_int_eq(grammar_matcher_accept(m, (unsigned char)text[i], &taken), ERR_OK);
    }
    bool is = taken && grammar_matcher_may_end(m);
    grammar_matcher_free(&m);
    return is;
}

void text_rig_says(text_rig_reader read, const char *grammar, const char *const *texts, size_t n, bool does)
{
    struct grammar *g;
    struct err_info info = {0};
    enum err err = compile(read, grammar, strlen(grammar), &g, &info);
    ck_assert_msg(err == ERR_OK, "%.300s: %s", grammar, info.text);
    for (size_t i = 0; i < n && texts[i] != NULL; i++) {
        ck_assert_msg(says(g, texts[i]) == does, "%.300s: %s", grammar, texts[i]);
    }
    grammar_unref(&g);
}

void text_rig_refuses(text_rig_reader read, const char *grammar, const char *words)
{
    struct grammar *g;
    struct err_info info = {0};
    enum err err = compile(read, grammar, strlen(grammar), &g, &info);
    ck_assert_msg(err == ERR_INVALID_GRAMMAR, "%s: %s", grammar, err_code(err));
    ck_assert_msg(strstr(info.text, words) != NULL, "%s: %s", grammar, info.text);
}

enum { MOST_MS = 2500 }; /* 100 on an idle machine without sanitizers */
enum err text_rig_hostile(text_rig_reader read, const char *text, size_t n)
{
    struct grammar *g;
    struct err_info info = {0};
    uint64_t begin = clock_thread_ns();
    enum err err = compile(read, text, n, &g, &info);
    ck_assert_msg(err == ERR_OK || info.text[0] != '\0', "%.30s", text);
    if (err == ERR_OK) {
        struct grammar_matcher *m = NULL;
        bool taken;
        err = grammar_matcher_new(g, vocab, &m);
        err = err == ERR_OK ? grammar_matcher_accept(m, 'a', &taken) : err;
        grammar_matcher_free(&m);
    }
    uint64_t ms = (clock_thread_ns() - begin) / 1000000;
    ck_assert_msg(ms < MOST_MS, "%.60s: %u ms", text + 28, (unsigned)ms);
    grammar_unref(&g);
    return err;
}

void text_rig_without_memory(text_rig_reader read, const char *grammar)
{
    size_t before = mem_live();
    bool is_through = false;
    for (long at = 0; !is_through; at++) {
        struct grammar *g;
        mem_fail_at(at);
        enum err err = compile(read, grammar, strlen(grammar), &g, NULL);
        is_through = !mem_fault_fired();
        mem_fail_at(-1);
        ck_assert_int_eq(err, is_through ? ERR_OK : ERR_NOMEM);
        grammar_unref(&g);
        ck_assert_uint_eq(mem_live(), before);
    }
}

void text_rig_stops(text_rig_reader read, const char *grammar)
{
    atomic_bool has_left = true;
    struct task task = {.has_left = &has_left};
    struct grammar *g;
    size_t before = mem_live(), n = strlen(grammar);
    task_enter(&task, "grammar");
    ck_assert_int_eq(compile(read, grammar, n, &g, NULL), ERR_CANCELLED);
    has_left = false;
    task.deadline_ns = 1;
    ck_assert_int_eq(compile(read, grammar, n, &g, NULL), ERR_DEADLINE);
    ck_assert_uint_eq(mem_live(), before);
    task.deadline_ns = clock_now_ns() + 3600ull * 1000000000u;
    ck_assert_int_eq(compile(read, grammar, n, &g, NULL), ERR_OK);
    grammar_unref(&g);
    task_leave();
}
