/* Sequences that follow a grammar: what they say is of it, alone and among others, with drafts and without, sent back and come
 * again; they end where nothing may follow, and say so where no token can. */
#include "engine/grammar/grammar_build.h"
#include "engine/grammar/grammar_gbnf.h"
#include "engine/grammar/grammar_json.h"
#include "engine/grammar/grammar_matcher.h"
#include "tests/support/sched_rig.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

Suite *sched_grammar_suite(void);

enum { MOST = 12, MAX_NEW = 120 };

static struct vocab file;
static struct grammar_vocab *vocab;
static struct grammar *json;
static struct err_info info;
static int32_t end_id;

/* As many tokens as the fake back end has. */
static void set_up(void)
{
    static const char *const pieces[] = {
        "{", "}",  "\"", ":",  ",", "[",  "]",   "\":", "\",", "{\"", "true", "null",
        "1", "23", "-",  ".5", "a", "bc", "def", " ",   "\\n", "\"}", "]}",   "\xc3\xa9"};
    struct grammar_builder *b;
    vocab_plain(&file, "t5");
    end_id = (int32_t)file.eos;
    for (size_t i = 0; file.n_tokens < FAKE_VOCAB; i++) {
        char other[32];
        const char *text = i < ARRAY_LEN(pieces) ? pieces[i] : other;
        snprintf(other, sizeof other, "w%zu", i);
        vocab_add(&file, text, strlen(text), TOKEN_NORMAL, -(float)i);
    }
    ck_assert_msg(vocab_load(&file, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(grammar_vocab_new(file.t, &vocab), ERR_OK);
    ck_assert_int_eq(vocab->n_vocab, FAKE_VOCAB);
    ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
    ck_assert_msg(grammar_finish(&b, grammar_json_object(b), &json, &info) == ERR_OK, "%s", info.text);
}

static void tear_down(void)
{
    grammar_unref(&json);
    grammar_vocab_free(&vocab);
    vocab_fini(&file);
}

static struct sched_request request(uint64_t which, int32_t *tokens)
{
    rig_prompt(tokens, 40 + (int32_t)which, which % 3);
    struct sched_request q = rig_request(tokens, 40 + (int32_t)which, MAX_NEW);
    q.grammar = json;
    q.vocab = vocab;
    q.sampling.temperature = which % 3 == 0 ? 0 : 0.9f;
    q.sampling.seed = which;
    q.sampling.top_p = which % 2 == 0 ? 1 : 0.95f;
    q.sampling.n_top = which % 4 == 0 ? 2 : -1;
    q.sampling.ends = &end_id;
    q.sampling.n_ends = 1;
    return q;
}

static void check_json(const struct rig_output *out)
{
    struct buf text;
    buf_init(&text, 0, MEM_GENERAL);
    for (int32_t i = 0; i < out->n; i++) {
        tokenizer_piece(file.t, out->ids[i], true, &text);
    }
    buf_putc(&text, '\0');
    ck_assert_int_eq(out->err, ERR_OK);
    json_t *value = json_loads(text.data, 0, NULL);
    ck_assert_msg(out->finish == SCHED_FINISH_LENGTH || json_is_object(value), "%s", text.data);
    ck_assert(text.data[0] == '{');
    json_decref(value);
    buf_fini(&text);
}

static void run(struct rig_limits limits, bool at_once, struct rig_output *out)
{
    static int32_t tokens[MOST][256];
    struct rig r = rig_open(limits);
    struct sched_seq *seqs[MOST];
    int n_whole = 0;
    for (uint64_t i = 0; i < MOST; i++) {
        struct sched_request q = request(i, tokens[i]);
        seqs[i] = rig_submit(&r, &q);
        if (!at_once) {
            rig_collect(&seqs[i], &out[i]);
        }
    }
    for (uint64_t i = 0; i < MOST; i++) {
        if (at_once) {
            rig_collect(&seqs[i], &out[i]);
        }
        check_json(&out[i]);
        n_whole += out[i].finish == SCHED_FINISH_STOP;
    }
    ck_assert_int_gt(n_whole, 2);
    rig_close(&r);
}

START_TEST(what_is_said_is_json)
{
    static struct rig_output alone[MOST], other[MOST];
    run((struct rig_limits){.max_seqs = 16}, false, alone);
    const struct rig_limits all[] = {{.max_seqs = 16},
                                     {.max_seqs = 16, .draft_max = 15, .n_remembered = 1, .has_spare_cpu = true},
                                     {.max_seqs = 16, .has_spare_cpu = true},
                                     {.max_seqs = 3, .n_pages = 20, .max_rows = 24, .has_spare_cpu = true},
                                     {.max_seqs = 3, .n_pages = 20, .max_rows = 24}};
    for (size_t k = 0; k < ARRAY_LEN(all); k++) {
        for (int at_once = 0; at_once < 2 && all[k].n_remembered == 0; at_once++) {
            run(all[k], at_once != 0, other);
            for (int i = 0; i < MOST; i++) {
                rig_compare(&other[i], &alone[i], "with a grammar");
            }
        }
    }
    run(all[1], false, alone); /* which repeats itself, so its texts are others */
    run((struct rig_limits){.max_seqs = 16, .n_remembered = 1}, true, other);
    for (int i = 0; i < MOST; i++) {
        rig_compare(&other[i], &alone[i], "with drafts");
    }
}
END_TEST

/* A draft model computes the rows of forced tokens and guesses what follows them. */
START_TEST(a_draft_model_continues_forced_tokens)
{
    /* The guess after a closing token is the same each time, and a "w" for some of them. */
    static const char text[] =
        "root ::= (\"w\" [0-9]{2} (\"[true:null]\" | \"{true:null}\" | \"-true:null1\" | \"atrue:nulla\"))+";
    static int32_t tokens[MOST][256];
    static struct rig_output out, expected;
    struct grammar_builder *b;
    struct grammar *g;
    symbol_id root;
    ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
    ck_assert_msg(grammar_gbnf(b, text, sizeof text - 1, &root, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(grammar_finish(&b, root, &g, &info) == ERR_OK, "%s", info.text);
    struct rig r = rig_open((struct rig_limits){.max_seqs = 2, .draft_max = 8, .n_remembered = 1, .has_draft = true});
    struct rig plain = rig_open((struct rig_limits){.max_seqs = 2, .n_remembered = 1});
    for (uint64_t i = 0; i < MOST; i++) {
        struct sched_request q = request(i, tokens[i]);
        q.grammar = g;
        struct sched_seq *seq = rig_submit(&plain, &q);
        rig_collect(&seq, &expected);
        seq = rig_submit(&r, &q);
        rig_collect(&seq, &out);
        rig_compare(&out, &expected, "with a draft model");
    }
    struct sched_stats st = rig_stats(&r);
    ck_assert_uint_gt(draft_counts_of(&st.draft_counts, DRAFT_FORCED).accepted, 0);
    ck_assert_uint_gt(draft_counts_of(&st.draft_counts, DRAFT_MODEL).accepted, 0);
    rig_wait_idle(&r);
    ck_assert_int_eq(r.model->n_holes, 0);
    rig_close(&plain);
    rig_close(&r);
    grammar_unref(&g);
}
END_TEST

/* Masks are made while batches are computed, where there is a CPU for it or the device is another; of sequences that are
 * cancelled meanwhile, too. */
START_TEST(masks_are_made_beside_the_batch)
{
    static int32_t tokens[MOST][256];
    static struct rig_output out;
    struct rig_limits limits = {.max_seqs = 16, .draft_max = 15, .has_spare_cpu = true};
    struct rig r = rig_open(limits);
    struct sched_seq *seqs[MOST];
    atomic_store(&r.model->delay_us, 8000);
    for (uint64_t i = 0; i < MOST; i++) {
        struct sched_request q = request(i, tokens[i]);
        seqs[i] = rig_submit(&r, &q);
    }
    for (uint64_t i = 0; i < MOST; i++) {
        struct sched_event event;
        for (int k = 0; k < 3 && i % 4 == 3; k++) {
            ck_assert_int_eq(sched_next(seqs[i], 20000, &event), ERR_OK);
        }
        if (i % 4 == 3) {
            sched_cancel(seqs[i]);
        }
        rig_collect(&seqs[i], &out);
        ck_assert(out.err == ERR_OK || out.err == ERR_CANCELLED);
    }
    rig_wait_idle(&r);
    struct sched_stats st = rig_stats(&r);
    ck_assert_uint_gt(st.masks, 100);
    /* On a busy machine the scheduler makes the others itself. */
    ck_assert_msg(st.masks_beside > st.masks / 8, "%d of %d masks", (int)st.masks_beside, (int)st.masks);
    rig_close(&r);
}
END_TEST

/* A batch that fails while masks are made beside it. */
START_TEST(masks_of_a_batch_that_fails)
{
    static int32_t tokens[MOST][256];
    static struct rig_output out;
    struct rig r = rig_open((struct rig_limits){.max_seqs = 16, .has_spare_cpu = true});
    int n_failed = 0;
    for (int round = 0; round < 20; round++) {
        struct sched_seq *seqs[MOST];
        atomic_store(&r.model->fail_token, round * 3);
        for (uint64_t i = 0; i < MOST; i++) {
            struct sched_request q = request(i, tokens[i]);
            seqs[i] = rig_submit(&r, &q);
        }
        for (uint64_t i = 0; i < MOST; i++) {
            rig_collect(&seqs[i], &out);
            ck_assert(out.err == ERR_OK || out.err == ERR_INTERNAL);
            n_failed += out.err != ERR_OK;
        }
    }
    ck_assert_int_gt(n_failed, 20);
    rig_close(&r);
}
END_TEST

/* --- a mask that takes long ------------------------------------------------------------------------------------------ */

/* The linker puts the wrapper between whoever wants a mask and the matcher. */
enum err __real_grammar_matcher_mask(struct grammar_matcher *m, uint64_t *bits);
enum err __wrap_grammar_matcher_mask(struct grammar_matcher *m, uint64_t *bits);

static struct {
    _Atomic(const struct grammar *) grammar; /* whose masks are held; NULL: none are */
    struct backend_model *model;
    atomic_bool is_inside, is_released; /* one is held; it is to go on */
} held;

static void pause_shortly(void) { nanosleep(&(struct timespec){0, 200000}, NULL); }

enum err __wrap_grammar_matcher_mask(struct grammar_matcher *m, uint64_t *bits)
{
    /* While a batch is computed it is not the scheduler's thread that asks. */
    if (atomic_load(&held.grammar) == m->g && atomic_load(&held.model->is_inside)) {
        atomic_store(&held.is_inside, true);
        while (!atomic_load(&held.is_released)) {
            pause_shortly();
        }
        atomic_store(&held.is_inside, false);
    }
    return __real_grammar_matcher_mask(m, bits);
}

/* Reads n tokens more. */
static void take(struct sched_seq *q, int n, struct rig_output *out)
{
    for (int i = 0; i < n; i++) {
        struct sched_event ev;
        ck_assert_msg(sched_next(q, 20000, &ev) == ERR_OK && ev.kind == SCHED_TOKEN, "no token behind %d", out->n);
        out->logprobs[out->n] = ev.token.logprob;
        out->ids[out->n++] = ev.token.id;
    }
}

/* Reads what is left behind those. */
static void take_rest(struct sched_seq **q, struct rig_output *out)
{
    static struct rig_output rest;
    rig_collect(q, &rest);
    memcpy(out->ids + out->n, rest.ids, (size_t)rest.n * sizeof *rest.ids);
    memcpy(out->logprobs + out->n, rest.logprobs, (size_t)rest.n * sizeof *rest.logprobs);
    out->n += rest.n;
    out->finish = rest.finish;
    out->err = rest.err;
}

/* Holds a mask, and counts the tokens that each has before the batch beside which it is made is done. */
static void hold_one(struct rig *r, struct sched_seq *const seqs[4], int n[4])
{
    bool is_sure = false;
    while (!is_sure) {
        while (!atomic_load(&held.is_inside)) {
            pause_shortly();
        }
        for (int i = 0; i < 4; i++) {
            struct sched_usage usage;
            sched_seq_usage(seqs[i], &usage);
            n[i] = usage.completion_tokens;
        }
        is_sure = n[0] > 0 && n[3] > 0 && atomic_load(&r->model->is_inside);
        if (!is_sure) { /* the batch was done before: another mask */
            atomic_store(&held.is_released, true);
            while (atomic_load(&held.is_inside)) {
                pause_shortly();
            }
            atomic_store(&held.is_released, false);
        }
    }
}

/* Four sequences, the last of them with a grammar, of which a mask is held until all others have the tokens of that step. */
static void run_beside_held(bool holds, struct rig_output *out)
{
    static int32_t tokens[4][256];
    int n[4] = {0};
    struct sched_event ev;
    struct rig r = rig_open((struct rig_limits){.max_seqs = 4, .max_rows = 256, .has_spare_cpu = true});
    struct sched_seq *seqs[4];
    held.model = r.model;
    atomic_store(&held.is_released, false);
    atomic_store(&held.grammar, holds ? json : NULL);
    atomic_store(&r.model->delay_us, 2000);
    for (uint64_t i = 0; i < 4; i++) {
        struct sched_request q = request(i, tokens[i]);
        q.grammar = i == 3 ? json : NULL;
        q.vocab = i == 3 ? vocab : NULL;
        q.sampling.n_ends = i == 3 ? 1 : 0;
        seqs[i] = rig_submit(&r, &q);
        out[i].n = 0;
    }
    if (holds) {
        hold_one(&r, seqs, n);
    }
    for (int i = 0; i < 3; i++) {
        take(seqs[i], n[i] + holds, &out[i]);
    }
    take(seqs[3], n[3], &out[3]);
    ck_assert(!holds || sched_next(seqs[3], 0, &ev) == ERR_AGAIN);
    atomic_store(&held.grammar, NULL);
    atomic_store(&held.is_released, true);
    for (int i = 0; i < 4; i++) {
        take_rest(&seqs[i], &out[i]);
    }
    rig_close(&r);
}

/* While one mask is made for however long, all other sequences get the tokens of that step; what is said is the same. */
START_TEST(a_slow_mask_keeps_its_own_sequence_waiting)
{
    static struct rig_output plain[4], slow[4];
    run_beside_held(false, plain);
    run_beside_held(true, slow);
    for (int i = 0; i < 4; i++) {
        rig_compare(&slow[i], &plain[i], "beside a slow mask");
    }
}
END_TEST

/* --- forced tokens ------------------------------------------------------------------------------------------------- */

/* Objects of one form, of which most is certain. */
static void use_form(void)
{
    static const char *const texts[] = {"{\"w30w31w32\":", ",\"w33w34w35w36w37\":[", "]}"};
    struct grammar_builder *b;
    symbol_id parts[ARRAY_LEN(texts)];
    grammar_unref(&json);
    ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
    struct regex_set *set = grammar_regexes(b);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        parts[i] = grammar_lexeme(b, regex_bytes(set, texts[i], strlen(texts[i])));
    }
    const symbol_id values[] = {grammar_lexeme(b, regex_bytes(set, "true", 4)),
                                grammar_lexeme(b, regex_bytes(set, "23", 2)),
                                grammar_lexeme(b, regex_bytes(set, "null", 4))};
    symbol_id value = grammar_choice(b, values, ARRAY_LEN(values));
    const symbol_id object[] = {parts[0], value, parts[1], value, parts[2]};
    symbol_id objects = grammar_repeat(b, grammar_sequence(b, object, ARRAY_LEN(object)), 4, 4);
    ck_assert_msg(grammar_finish(&b, objects, &json, &info) == ERR_OK, "%s", info.text);
}

/* Runs n sequences, which begin in one batch, all with log-probabilities; how many steps they took. */
static uint64_t run_forms(struct rig_limits limits, uint64_t n, struct rig_output *out, struct sched_stats *st)
{
    static int32_t tokens[16][256];
    struct rig r = rig_open(limits);
    struct sched_seq *seqs[16];
    rig_hold(&r);
    for (uint64_t i = 0; i < n; i++) {
        struct sched_request q = request(i, tokens[i]);
        q.sampling.n_top = 2;
        seqs[i] = rig_submit(&r, &q);
    }
    rig_go_on(&r);
    for (uint64_t i = 0; i < n; i++) {
        rig_collect(&seqs[i], &out[i]);
        ck_assert(out[i].err == ERR_OK && out[i].finish == SCHED_FINISH_STOP);
    }
    rig_wait_idle(&r);
    *st = rig_stats(&r);
    rig_close(&r);
    return st->steps;
}

/* Repeated text continues forced tokens in the same step: it has more drafts at a later position than at the first. */
static void check_sources(const struct sched_stats *st, uint64_t n)
{
    const struct draft_count *forced = st->draft_counts.at[DRAFT_FORCED], *looked = st->draft_counts.at[DRAFT_LOOKUP];
    struct draft_count all_forced = draft_counts_of(&st->draft_counts, DRAFT_FORCED),
                       all_looked = draft_counts_of(&st->draft_counts, DRAFT_LOOKUP);
    uint64_t most = 0;
    for (int i = 1; i < DRAFT_POSITIONS - 1; i++) {
        most = MAX_OF(most, looked[i].drafted);
    }
    ck_assert_uint_gt(forced[0].accepted, 0);
    ck_assert_uint_lt(all_forced.accepted, all_forced.drafted); /* the text can have other tokens */
    ck_assert_uint_eq(all_forced.drafted + all_looked.drafted, st->drafted_tokens);
    ck_assert_uint_eq(all_forced.accepted + all_looked.accepted, st->accepted_tokens);
    ck_assert(n > 1 || most > looked[0].drafted);
}

/* What is certain comes several tokens a step, in full batches too; tokens and log-probabilities are those of one a step. */
START_TEST(what_is_forced_takes_few_steps)
{
    static struct rig_output plain[16], forced[16];
    struct rig_limits limits = {.max_seqs = 16, .max_rows = 200, .max_logits = 64, .n_pages = 200};
    uint64_t n = _i == 0 ? 1 : 16;
    struct sched_stats st;
    use_form();
    uint64_t n_plain = run_forms(limits, n, plain, &st);
    ck_assert_uint_eq(st.drafted_tokens, 0);
    limits.draft_max = 15;
    uint64_t n_forced = run_forms(limits, n, forced, &st);
    for (uint64_t i = 0; i < n; i++) {
        rig_compare(&forced[i], &plain[i], "forced");
        ck_assert(!isnan(plain[i].logprobs[0]));
    }
    ck_assert_uint_gt(st.accepted_tokens, st.drafted_tokens / 2);
    check_sources(&st, n);
    ck_assert_msg(n_forced < (n == 1 ? n_plain / 2 : n_plain * 4 / 5), "%d steps, %d without", (int)n_forced,
                  (int)n_plain);
}
END_TEST

/* Bans that leave nothing end the sequence alone, and ends that come too early are no harm. */
START_TEST(nothing_may_follow)
{
    int32_t tokens[256];
    struct sampler_bias bias[FAKE_VOCAB];
    static struct rig_output out;
    struct rig r = rig_open((struct rig_limits){.max_seqs = 4});
    struct sched_request q = request(0, tokens);
    for (int32_t i = 0; i < FAKE_VOCAB; i++) {
        struct buf text;
        buf_init(&text, 0, MEM_GENERAL);
        tokenizer_piece(file.t, i, true, &text);
        bool begins = text.len > 0 && text.data[0] == '{';
        bias[i] = (struct sampler_bias){i, begins ? SAMPLER_BAN : 1};
        buf_fini(&text);
    }
    q.sampling.bias = bias;
    q.sampling.n_bias = FAKE_VOCAB;
    struct sched_seq *seq = rig_submit(&r, &q);
    rig_collect(&seq, &out);
    ck_assert_int_eq(out.err, ERR_GRAMMAR_DEAD_END);
    ck_assert_int_eq(out.n, 0);
    q = request(1, tokens);
    q.min_tokens = MAX_NEW; /* an object ends where it ends */
    seq = rig_submit(&r, &q);
    rig_collect(&seq, &out);
    check_json(&out);
    rig_close(&r);
}
END_TEST

static TCase *all_tests(const char *name)
{
    TCase *t = tcase_create(name);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, what_is_said_is_json);
    tcase_add_test(t, a_draft_model_continues_forced_tokens);
    tcase_add_test(t, masks_are_made_beside_the_batch);
    tcase_add_test(t, masks_of_a_batch_that_fails);
    tcase_add_loop_test(t, what_is_forced_takes_few_steps, 0, 2);
    tcase_add_test(t, nothing_may_follow);
    return t;
}

Suite *sched_grammar_suite(void)
{
    Suite *s = suite_create("sched_grammar");
    TCase *remote = all_tests("sched_grammar_remote");
    tcase_add_checked_fixture(remote, rig_go_remote, NULL);
    TCase *local = all_tests("sched_grammar");
    tcase_add_test(local, a_slow_mask_keeps_its_own_sequence_waiting);
    suite_add_tcase(s, local);
    suite_add_tcase(s, remote);
    return s;
}
