/* Checks that speculation changes no bit: random requests (same_draft_case.h) on the tiny models with recurrent states, a
 * prediction head (in the model's file or its own) or windows. Each run computes them one at a time without speculation.
 * Then they run together with speculation, on models with a head also without the head, and with a draft model. There are
 * few KV pages, so that sequences are preempted. Prefixes come from the cache, in some runs from snapshots after a
 * restart. Tokens, log-probabilities, those of the best alternatives, texts and ends must agree in every bit. A list of
 * runs also fails if it drafted too little: no forced token, no repeated text or no guess of a head that came true, and so
 * on.
 *   same_draft [--backend NAME] [--runs N] [--seed FIRST] [--broken]
 * Default: ref and all instruction sets of cpu; 1,000 runs from seed 1. With only --seed, repeats this run. --broken: with
 * a fault that runs must find (golden_test.sh). */
#include "engine/base/json_number.h"
#include "engine/engine.h"
#include "tests/golden/same_draft_backend.h"
#include "tests/golden/same_draft_case.h"

#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT = 4 * N_CTX, WAIT_MS = 120000, ENOUGH_RUNS = 10, USUAL_RUNS = 1000 };

/* Everything of a sequence that a client can see. */
struct answer {
    int n; /* events with a token */
    struct event {
        enum sched_event_kind kind;
        int32_t id, n_top;
        float logprob;
        struct sampler_top top[MAX_TOP];
    } events[MAX_EVENTS];
    char text[MAX_TEXT];
    size_t n_text;
    enum sched_finish finish;
    enum err err;
    bool stops;
    size_t i_stop;
};

/* A way of running a case. */
enum way { ALONE, DRAFTING, WITHOUT_HEAD, WITH_MODEL, NOT_DRAFTING, N_WAYS };
static const char *const way_names[N_WAYS] = {"alone", "with speculation", "with speculation but no head",
                                              "with a draft model", "without speculation"};

/* What the runs of a model had, most in tokens. Of a list of runs each column has some. */
enum column {
    RUNS,
    DRAFTED,
    REJECTED,
    FORCED,
    REPEATED,
    BY_HEAD,
    BY_MODEL,
    PREEMPTED,
    CACHED,
    RESTORED,
    STOPS,
    N_COLUMNS
};
static const char *const columns[N_COLUMNS] = {"runs",     "drafted",   "rejected", "forced",   "repeated", "by head",
                                               "by model", "preempted", "cached",   "restored", "stops"};

static struct {
    struct same_draft_case c;
    struct answer expected[N_TURNS][MAX_SEQS], found;
    int32_t prompts[N_TURNS][MAX_WISHES][N_CTX];
    int n_prompt[N_TURNS][MAX_WISHES];
    int32_t whole[MAX_SEQS][N_CTX + MAX_NEW]; /* prompts and answers, for the head */
    struct same_draft_text texts[MAX_SEQS];
    struct same_draft_model models[MAX_MODELS];
    uint64_t counts[MAX_MODELS][N_COLUMNS];
    char folder[32]; /* of snapshots; "": none */
    int n_models, n_passed, n_failed;
} test;

static uint64_t *counts_of(const struct same_draft_case *c) { return test.counts[c->model - test.models]; }

/* --- engines ------------------------------------------------------------------------------------------------------ */

static enum err open_engine(const struct same_draft_case *c, enum way way, int turn, struct engine **out,
                            struct err_info *info)
{
    static const char *const sources[N_WAYS] = {"off", "auto", "no-head", "auto", "off"};
    bool is_alone = way == ALONE;
    const char *head = c->model->head[0] != '\0' ? c->model->head : NULL;
    const struct engine_config cfg = {.model_path = c->model->path,
                                      .backend = c->backend,
                                      .cpu = c->cpu,
                                      .high_precision = c->high_precision,
                                      .cache_type_k = c->cache_type,
                                      .cache_type_v = c->cache_type,
                                      .quantize = c->quantize,
                                      .n_ctx = N_CTX,
                                      .tool_format = "hermes",
                                      .n_threads = is_alone ? 1 : c->n_threads,
                                      .max_seqs = is_alone ? 1 : c->max_seqs,
                                      .max_batch_rows = is_alone ? 256 : c->max_batch_rows,
                                      .kv_tokens = is_alone ? 20 * N_CTX : c->kv_tokens,
                                      .draft_max = MAX_OF(c->draft_max[turn], 0),
                                      .speculate = c->draft_max[turn] < 0 ? "off" : sources[way],
                                      .draft_path = way == WITH_MODEL ? c->draft : head,
                                      .cache_dir = test.folder[0] != '\0' ? test.folder : NULL,
                                      .cache_disk_bytes = 1 << 30};
    same_draft_backend_row_ns(c->row_ns);
    return engine_open(&cfg, out, info);
}

static enum err make_grammar(struct engine *e, enum same_draft_grammar which, struct grammar **out,
                             struct err_info *info)
{
    static const char fixed[] = "root ::= \"The quick fox jumps over 13 lazy dogs; no more is said here.\"",
                      records[] =
                          "root ::= (\"{'name': '\" [c-f] [c-f]? \"', 'kind': '\" (\"one\" | \"two\") \"'}; \")+",
                      pattern[] = "(cde[0-9]{3};|fed: )+",
                      schema[] =
                          "{'type': 'object', 'properties': {'name': {'type': 'string', 'maxLength': 5}, 'kind': "
                          "{'enum': ['first', 'second']}, 'count': {'type': 'integer'}}, 'required': ['name', "
                          "'kind', 'count'], 'additionalProperties': false}";
    *out = NULL;
    switch (which) {
    case NO_GRAMMAR:
    case N_GRAMMARS:
        break;
    case FIXED:
        return engine_grammar_gbnf(e, fixed, strlen(fixed), CHAT_THINKS_NOT, out, info);
    case RECORDS:
        return engine_grammar_gbnf(e, records, strlen(records), CHAT_THINKS_NOT, out, info);
    case PATTERN:
        return engine_grammar_regex(e, pattern, strlen(pattern), CHAT_THINKS_NOT, out, info);
    case SCHEMA: {
        char text[sizeof schema];
        for (size_t i = 0; i < sizeof schema; i++) {
            text[i] = schema[i] == '\'' ? '"' : schema[i];
        }
        json_t *value = json_loads(text, 0, NULL);
        enum err err = engine_grammar_json_schema(e, value, CHAT_THINKS_NOT, out, info);
        json_decref(value);
        return err;
    }
    }
    return ERR_OK;
}

/* Submits a request, or as many of its sequences as the engine takes at once. Returns their number in *n. */
static enum err submit_some(struct engine *e, const struct engine_params *p, uint64_t key,
                            const struct engine_sequence *q, int *n, struct engine_stream **out, struct err_info *info)
{
    const struct sched_share whose = {.key = key};
    struct sched_group *g = NULL;
    TRY(engine_group_open(e, &whose, (size_t)*n, &g));
    *n = MIN_OF(*n, MAX_OF((int)engine_group_room(g), 1));
    enum err err = engine_submit_all(e, g, p, q, (size_t)*n, out, info);
    engine_group_close(&g);
    return err;
}

/* Submits choices [first, end) of a request. */
static enum err submit(struct engine *e, int turn, int i, int first, int end, struct engine_stream **out,
                       struct err_info *info)
{
    const struct same_draft_wish *w = &test.c.wishes[turn][i];
    struct engine_params p = w->params;
    struct engine_sequence q[MAX_CHOICES];
    for (int k = first; k < end; k++) {
        q[k] = (struct engine_sequence){.ids = test.prompts[turn][i],
                                        .n_ids = (size_t)test.n_prompt[turn][i],
                                        .choice = (uint32_t)k,
                                        .prompt_logprobs = p.prompt_logprobs && k == 0};
    }
    TRY(make_grammar(e, w->grammar, &p.grammar, info));
    enum err err = ERR_OK;
    for (int n; first < end && err == ERR_OK; first += n, out += n) {
        n = end - first;
        err = submit_some(e, &p, w->key, q + first, &n, out, info);
    }
    engine_grammar_free(&p.grammar);
    return err;
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static void add_event(struct answer *a, const struct engine_event *event)
{
    if (event->kind != SCHED_END && a->n < MAX_EVENTS) {
        struct event *to = &a->events[a->n++];
        to->kind = event->kind;
        to->id = event->token.id;
        to->n_top = event->token.n_top;
        to->logprob = event->token.logprob;
        memcpy(to->top, event->token.top, (size_t)MIN_OF(event->token.n_top, MAX_TOP) * sizeof to->top[0]);
    }
    size_t n = MIN_OF(event->text_len, sizeof a->text - a->n_text);
    memcpy(a->text + a->n_text, event->text, n);
    a->n_text += n;
}

/* Reads a stream to its end or for n events, and closes it. */
static void collect(struct engine_stream *s, int n, struct answer *a, struct sched_usage *usage)
{
    struct engine_event event = {.kind = SCHED_TOKEN};
    memset(a, 0, sizeof *a);
    while (a->n < n && (a->err = engine_next(s, WAIT_MS, &event)) == ERR_OK) {
        add_event(a, &event);
        if (event.kind == SCHED_END) {
            a->err = event.err;
            a->finish = event.finish;
            a->stops = event.stop_match != NULL;
            a->i_stop = a->stops ? event.i_stop : 0;
            break;
        }
    }
    engine_stream_usage(s, usage);
    engine_stream_close(&s);
}

/* Writes the first difference. */
static void describe(const struct answer *a, const struct answer *b, char *out, size_t n)
{
    int i = 0;
    while (i < a->n && i < b->n && memcmp(&a->events[i], &b->events[i], sizeof a->events[0]) == 0) {
        i++;
    }
    const struct event *x = &a->events[i], *y = &b->events[i];
    if (i < a->n && i < b->n) {
        snprintf(out, n,
                 "event %d: token %d, log-probability %.9g, %d best (%d %.9g, ..); expected %d, %.9g, %d (%d %.9g)", i,
                 x->id, (double)x->logprob, x->n_top, x->top[0].id, (double)x->top[0].logprob, y->id,
                 (double)y->logprob, y->n_top, y->top[0].id, (double)y->top[0].logprob);
    } else {
        snprintf(out, n, "%d events, %zu bytes of text, end %d %d %s; expected %d, %zu, %d %d %s", a->n, a->n_text,
                 (int)a->finish, (int)a->stops, err_code(a->err), b->n, b->n_text, (int)b->finish, (int)b->stops,
                 err_code(b->err));
    }
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

/* Appends the tokens of an answer to n others. Returns their number. */
static int append(int32_t *to, int n, const struct answer *a)
{
    for (int i = 0; i < a->n; i++) {
        to[n] = a->events[i].id;
        n += a->events[i].kind == SCHED_TOKEN;
    }
    return n;
}

/* Makes the prompt of a request: what it draws, in the second turn after the conversation so far. */
static void make_prompt(const struct same_draft_case *c, int turn, int i)
{
    const struct same_draft_wish *w = &c->wishes[turn][i];
    int32_t *to = test.prompts[turn][i];
    int n = 0;
    if (turn > 0) {
        int i_answer = w->i_answer % c->wishes[0][i].n_choices;
        memcpy(to, test.prompts[0][i], (size_t)test.n_prompt[0][i] * sizeof *to);
        n = append(to, test.n_prompt[0][i], &test.expected[0][i * MAX_CHOICES + i_answer]);
    }
    memcpy(to + n, w->tokens, (size_t)w->n_tokens * sizeof *to);
    test.n_prompt[turn][i] = n + w->n_tokens;
}

/* Computes the expected answers. */
static enum err answer_alone(struct engine *e, int turn, struct err_info *info)
{
    const struct same_draft_case *c = &test.c;
    for (int i = 0; i < c->n_wishes; i++) {
        const struct same_draft_wish *w = &c->wishes[turn][i];
        make_prompt(c, turn, i);
        for (int k = 0; k < w->n_choices; k++) {
            struct engine_stream *s;
            struct sched_usage usage;
            TRY(submit(e, turn, i, k, k + 1, &s, info));
            collect(s, w->n_read, &test.expected[turn][i * MAX_CHOICES + k], &usage);
        }
    }
    return ERR_OK;
}

/* Tells the head what follows in each sequence. */
static void tell_head(int turn)
{
    const struct same_draft_case *c = &test.c;
    int n_texts = 0;
    for (int i = 0; i < c->n_wishes; i++) {
        for (int k = 0; k < c->wishes[turn][i].n_choices; k++) {
            int32_t *to = test.whole[n_texts];
            memcpy(to, test.prompts[turn][i], (size_t)test.n_prompt[turn][i] * sizeof *to);
            int n = append(to, test.n_prompt[turn][i], &test.expected[turn][i * MAX_CHOICES + k]);
            test.texts[n_texts++] = (struct same_draft_text){to, n};
        }
    }
    same_draft_backend_tell(test.texts, n_texts, c->truth, c->seed);
}

/* Submits all requests of a turn while one token of another is computed, so that they start together. */
static enum err submit_all(struct engine *e, int turn, struct engine_stream **out, struct err_info *info)
{
    static const int32_t one = 'x';
    const struct same_draft_case *c = &test.c;
    struct engine_params p;
    struct engine_stream *first;
    struct answer *ignored = &test.found;
    struct sched_usage usage;
    engine_params_init(e, &p);
    p.max_tokens = 1;
    same_draft_backend_hold();
    enum err err = engine_submit(e, &one, 1, &p, &first, info);
    if (err == ERR_OK) {
        same_draft_backend_wait_held();
        tell_head(turn);
    }
    for (int i = 0; i < c->n_wishes && err == ERR_OK; i++) {
        err = submit(e, turn, i, 0, c->wishes[turn][i].n_choices, out + (ptrdiff_t)i * MAX_CHOICES, info);
    }
    same_draft_backend_go();
    if (first != NULL) {
        collect(first, 1, ignored, &usage);
    }
    return err;
}

/* Reads a stream and compares it with sequence i. */
static bool is_equal(struct engine_stream *s, enum way way, int turn, int i)
{
    const struct same_draft_wish *w = &test.c.wishes[turn][i / MAX_CHOICES];
    const struct answer *expected = &test.expected[turn][i];
    struct sched_usage usage = {0};
    char text[400];
    collect(s, w->n_read, &test.found, &usage);
    counts_of(&test.c)[CACHED] += (uint64_t)usage.cached_tokens;
    counts_of(&test.c)[STOPS] += test.found.stops;
    if (memcmp(&test.found, expected, sizeof *expected) == 0) {
        return true;
    }
    describe(&test.found, expected, text, sizeof text);
    printf("  %s, turn %d, request %d, choice %d: %s\n", way_names[way], turn + 1, i / MAX_CHOICES + 1, i % MAX_CHOICES,
           text);
    return false;
}

/* Runs a turn and compares its answers. Returns how many sequences differ. */
static int run_turn(struct engine *e, enum way way, int turn, struct err_info *info)
{
    struct engine_stream *streams[MAX_SEQS] = {NULL};
    int n_differ = 0;
    if (submit_all(e, turn, streams, info) != ERR_OK) {
        printf("  %s, turn %d: %s\n", way_names[way], turn + 1, info->text);
        n_differ = 1;
    }
    for (int pass = 0; pass < 2; pass++) { /* first the sequences that are cancelled */
        for (int i = 0; i < MAX_SEQS; i++) {
            bool is_last = test.c.wishes[turn][i / MAX_CHOICES].n_read == MAX_EVENTS;
            if (streams[i] != NULL && is_last == (pass == 1)) {
                n_differ += !is_equal(streams[i], way, turn, i);
            }
        }
    }
    return n_differ;
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

static void count_stats(struct engine *e, const struct same_draft_case *c)
{
    struct sched_stats st;
    uint64_t *n = counts_of(c);
    engine_get_stats(e, &st);
    n[DRAFTED] += st.drafted_tokens;
    n[REJECTED] += st.drafted_tokens - st.accepted_tokens;
    n[FORCED] += draft_counts_of(&st.draft_counts, DRAFT_FORCED).accepted;
    n[REPEATED] += draft_counts_of(&st.draft_counts, DRAFT_LOOKUP).accepted;
    n[BY_HEAD] += draft_counts_of(&st.draft_counts, DRAFT_HEAD).accepted;
    n[BY_MODEL] += draft_counts_of(&st.draft_counts, DRAFT_MODEL).accepted;
    n[PREEMPTED] += st.preempted;
    n[RESTORED] += st.disk.restored_tokens;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

/* Makes the folder of snapshots, or removes it. */
static void set_folder(bool is_there)
{
    if (is_there) {
        snprintf(test.folder, sizeof test.folder, "/tmp/same-draft-XXXXXX");
        is_there = mkdtemp(test.folder) != NULL;
    } else if (test.folder[0] != '\0') {
        (void)!nftw(test.folder, remove_entry, 4, FTW_DEPTH | FTW_PHYS);
    }
    test.folder[0] = is_there ? test.folder[0] : '\0';
}

/* Runs the case in one way. Returns how many sequences differ. */
static int run_way(enum way way)
{
    const struct same_draft_case *c = &test.c;
    struct engine *e = NULL;
    struct err_info info = {0};
    int n_differ = 0;
    set_folder(c->restarts && way != ALONE);
    enum err err = open_engine(c, way, 0, &e, &info);
    for (int turn = 0; turn < c->n_turns && err == ERR_OK; turn++) {
        if (turn > 0 && c->restarts) {
            count_stats(e, c);
            engine_close(&e);
            err = open_engine(c, way, turn, &e, &info);
        }
        if (err == ERR_OK && way == ALONE) {
            err = answer_alone(e, turn, &info);
        } else if (err == ERR_OK) {
            n_differ += run_turn(e, way, turn, &info);
        }
    }
    if (err != ERR_OK) {
        printf("  %s: %s: %s\n", way_names[way], err_code(err), info.text);
        n_differ++;
    } else {
        count_stats(e, c);
    }
    engine_close(&e);
    set_folder(false);
    return n_differ;
}

/* Does the way differ from others for the model? */
static bool applies(const struct same_draft_case *c, enum way way)
{
    return (way != WITHOUT_HEAD || c->model->has_head) && (way != WITH_MODEL || c->draft != NULL);
}

/* Runs the case of a seed in every way that applies, until one differs. */
static void run(uint64_t seed, const char *backend)
{
    struct same_draft_case *c = &test.c;
    same_draft_case_draw(seed, test.models, test.n_models, backend, c);
    counts_of(c)[RUNS]++;
    enum way way = ALONE;
    while (way < NOT_DRAFTING && (!applies(c, way) || run_way(way) == 0)) {
        way++;
    }
    test.n_passed += way == NOT_DRAFTING;
    test.n_failed += way != NOT_DRAFTING;
    if (way == NOT_DRAFTING) {
        return;
    }
    if (way != ALONE) {
        printf("  without speculation %s\n", run_way(NOT_DRAFTING) == 0 ? "all is equal" : "too");
    }
    printf("FAILED ");
    same_draft_case_print(c);
    printf("  repeat it: same_draft --seed %" PRIu64 "%s%s\n", seed, backend != NULL ? " --backend " : "",
           backend != NULL ? backend : "");
    fflush(stdout);
}

static void expect(const char *model, const uint64_t *counts, enum column i)
{
    test.n_passed += counts[i] > 0;
    test.n_failed += counts[i] == 0;
    if (counts[i] == 0) {
        printf("FAILED %s: no run has what the table calls '%s'\n", model, columns[i]);
    }
}

static void print_row(const char *model, const uint64_t *counts)
{
    printf("%-22s", model);
    for (int i = 0; i < N_COLUMNS; i++) {
        printf(" %9" PRIu64, counts[i]);
    }
    printf("\n");
}

/* Checks that the runs had something to compare. */
static void check_counts(void)
{
    uint64_t sums[N_COLUMNS] = {0};
    for (int i = 0; i < test.n_models; i++) {
        const struct same_draft_model *m = &test.models[i];
        for (int k = 0; k < N_COLUMNS; k++) {
            sums[k] += test.counts[i][k];
        }
        if (test.counts[i][RUNS] >= ENOUGH_RUNS) {
            expect(m->name, test.counts[i], REJECTED);
            expect(m->name, test.counts[i], FORCED);
            expect(m->name, test.counts[i], REPEATED);
            if (m->has_head) {
                expect(m->name, test.counts[i], BY_HEAD);
            }
            if (!m->has_latents) {
                expect(m->name, test.counts[i], BY_MODEL);
            }
        }
    }
    for (int k = 0; k < N_COLUMNS; k++) {
        expect("all models", sums, (enum column)k);
    }
    printf(
        "Table: what the runs had, in tokens; forced, repeated, by head, by model: drafts of these sources that came "
        "true\n%-22s",
        "model");
    for (int k = 0; k < N_COLUMNS; k++) {
        printf(" %9s", columns[k]);
    }
    printf("\n");
    for (int i = 0; i < test.n_models; i++) {
        print_row(test.models[i].name, test.counts[i]);
    }
    print_row("sum", sums);
}

int main(int argc, char **argv)
{
    const char *backend = NULL;
    uint64_t first = 0, n_runs = 0;
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (has_value && strcmp(argv[i], "--backend") == 0) {
            backend = argv[++i];
        } else if (has_value && strcmp(argv[i], "--runs") == 0) {
            n_runs = strtoull(argv[++i], NULL, 10);
        } else if (has_value && strcmp(argv[i], "--seed") == 0) {
            first = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--broken") == 0) {
            same_draft_backend_break();
        } else {
            fprintf(stderr, "usage: same_draft [--backend NAME] [--runs N] [--seed FIRST] [--broken]\n");
            return 64;
        }
    }
    bool is_one = first != 0 && n_runs == 0;
    first = MAX_OF(first, 1u);
    n_runs = n_runs != 0 ? n_runs : is_one ? 1 : USUAL_RUNS;
    json_number_use_mem();
    test.n_models = same_draft_case_models(test.models, &test.n_failed);
    for (uint64_t i = 0; i < n_runs && test.n_models > 0; i++) {
        run(first + i, backend);
    }
    if (!is_one) {
        check_counts();
    }
    printf("%d passed, %d failed\n", test.n_passed, test.n_failed);
    return test.n_failed != 0 || test.n_passed == 0;
}
