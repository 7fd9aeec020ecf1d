#include "tests/golden/same_draft_case.h"

#include "engine/base/rng.h"
#include "engine/format/gguf.h"
#include "engine/kernels/kern.h"
#include "engine/model/model.h"
#include "engine/sched/draft.h"
#include "tests/golden/golden_models.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- models ------------------------------------------------------------------------------------------------------- */

/* Fills the model's properties; adds to *n_failed if it cannot be read. False: it takes no part. */
static bool look_at(struct same_draft_model *m, int *n_failed)
{
    struct gguf *g = NULL, *head = NULL;
    struct plan *plan = NULL, *head_plan = NULL;
    struct err_info info = {0};
    snprintf(m->path, sizeof m->path, "tests/golden/models/%s.gguf", m->name);
    snprintf(m->head, sizeof m->head, "tests/golden/models/%s.draft.gguf", m->name);
    enum err err = model_open(m->path, &g, &info);
    if (access(m->head, F_OK) == 0) {
        err = err == ERR_OK ? model_open(m->head, &head, &info) : err;
        err = err == ERR_OK ? model_build_drafting(g, head, N_CTX, &plan, &head_plan, &info) : err;
    } else {
        m->head[0] = '\0';
        err = err == ERR_OK ? model_build_predicting(g, N_CTX, &plan, &info) : err;
    }
    if (err != ERR_OK) {
        printf("FAILED %s: %s\n", m->path, info.text);
        (*n_failed)++;
    } else {
        m->has_head = plan_predicts(plan);
        m->has_states = plan->recurrent_floats != 0;
        m->has_latents = plan->latent_dim != 0;
    }
    plan_free(&plan);
    plan_free(&head_plan);
    gguf_close(&g);
    gguf_close(&head);
    return m->has_head || m->has_states || strstr(m->name, "-window") != NULL;
}

int same_draft_case_models(struct same_draft_model *out, int *n_failed)
{
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(golden_models); i++) {
        struct same_draft_model m = {.name = golden_models[i].name};
        if ((golden_models[i].formats & GGUF) == 0 || !look_at(&m, n_failed)) {
            continue;
        }
        if (n == MAX_MODELS) {
            printf("FAILED %s: more than %d models; raise MAX_MODELS\n", m.name, MAX_MODELS);
            (*n_failed)++;
            break;
        }
        out[n++] = m;
    }
    return n;
}

/* --- dice --------------------------------------------------------------------------------------------------------- */

struct dice {
    uint64_t seed, n;
};

/* Returns a number of 0 .. n-1. */
static int roll(struct dice *d, int n) { return (int)(rng_uniform(d->seed, 0xD1CE, d->n++) * n); }
static int between(struct dice *d, int least, int most) { return least + roll(d, most - least + 1); }
static bool one_in(struct dice *d, int n) { return roll(d, n) == 0; }
static int pick_int(struct dice *d, const int *of, size_t n) { return of[roll(d, (int)n)]; }
static float pick_float(struct dice *d, const float *of, size_t n) { return of[roll(d, (int)n)]; }
#define PICK_INT(d, ...) pick_int(d, (const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))
#define PICK_FLOAT(d, ...)                                                                                             \
    pick_float(d, (const float[]){__VA_ARGS__}, sizeof((const float[]){__VA_ARGS__}) / sizeof(float))

/* --- requests ----------------------------------------------------------------------------------------------------- */

enum { N_BYTES = 256, N_LETTERS = 26 }; /* the vocabularies begin with the tokens of the 256 bytes */

/* Draws tokens in repeated pieces. */
static int draw_pieces(struct dice *d, int32_t *out, int n)
{
    int32_t pieces[3][12];
    int lengths[3];
    for (int i = 0; i < 3; i++) {
        lengths[i] = between(d, 1, 12);
        for (int k = 0; k < lengths[i]; k++) {
            pieces[i][k] = one_in(d, 2) ? 'a' + roll(d, N_LETTERS) : roll(d, N_BYTES);
        }
    }
    for (int at = 0; at < n;) {
        int i = roll(d, 3), length = MIN_OF(lengths[i], n - at);
        memcpy(out + at, pieces[i], (size_t)length * sizeof *out);
        at += length;
    }
    return n;
}

static void draw_sampling(struct dice *d, struct sampler_params *s)
{
    s->temperature = PICK_FLOAT(d, 0, 0, 0.1f, 0.3f, 0.8f, 1.5f);
    s->top_k = PICK_INT(d, 0, 0, 2, 20);
    s->top_p = PICK_FLOAT(d, 1, 1, 0.9f, 0.5f);
    s->min_p = PICK_FLOAT(d, 0, 0, 0.05f);
    s->typical_p = PICK_FLOAT(d, 1, 1, 1, 0.8f);
    s->repeat_penalty = PICK_FLOAT(d, 1, 1, 1, 1.02f, 1.2f);
    s->repeat_last_n = PICK_INT(d, 64, 8, -1);
    s->presence_penalty = PICK_FLOAT(d, 0, 0, 0, 0.1f);
    s->frequency_penalty = PICK_FLOAT(d, 0, 0, 0, 0.05f);
    s->seed = (uint64_t)roll(d, 1 << 30);
    s->n_top = PICK_INT(d, -1, -1, 0, 1, MAX_TOP);
    s->tells_drawn = one_in(d, 6);
}

/* Two thirds of the requests have few letters, so their texts repeat themselves. Stop strings and ends are of these. */
static void draw_letters(struct dice *d, struct same_draft_wish *w)
{
    struct engine_params *p = &w->params;
    int n = one_in(d, 3) ? 0 : between(d, 1, MAX_FEW);
    for (int i = 0; i < n; i++) {
        w->bias[i] = (struct sampler_bias){'c' + i, 30};
    }
    if (n == 0 && one_in(d, 3)) {
        w->bias[n++] = (struct sampler_bias){roll(d, N_BYTES), SAMPLER_BAN};
    }
    p->sampling.bias = w->bias;
    p->sampling.n_bias = (size_t)n;
    if (n > 2 && one_in(d, 3)) {
        p->n_stop = (size_t)between(d, 1, 2);
        for (size_t i = 0; i < p->n_stop; i++) {
            p->stop_len[i] = (size_t)between(d, 2, 3);
            p->stop[i] = w->stops[i];
            for (size_t k = 0; k < p->stop_len[i]; k++) {
                w->stops[i][k] = (char)('c' + roll(d, n));
            }
        }
    }
    if (n > 2 && one_in(d, 5)) {
        w->ends[0] = 'c' + roll(d, n);
        w->ends[1] = roll(d, N_BYTES);
        p->sampling.ends = w->ends;
        p->sampling.n_ends = 2;
        p->min_tokens = roll(d, 40);
    }
}

static void draw_wish(struct dice *d, int turn, const int32_t *common, int n_common, struct same_draft_wish *w)
{
    struct engine_params *p = &w->params;
    draw_sampling(d, &p->sampling);
    draw_letters(d, w);
    w->n_choices = PICK_INT(d, 1, 1, 2, MAX_CHOICES);
    w->key = (uint64_t)roll(d, 3);
    w->grammar = one_in(d, 3) ? (enum same_draft_grammar)between(d, FIXED, N_GRAMMARS - 1) : NO_GRAMMAR;
    w->i_answer = roll(d, MAX_CHOICES);
    w->n_read = one_in(d, 8) ? between(d, 1, 30) : MAX_EVENTS;
    p->max_tokens = between(d, 1, MAX_NEW);
    p->ignore_eos = one_in(d, 2);
    p->show_special = one_in(d, 4);
    p->prompt_logprobs = one_in(d, 10);
    p->keeps_no_snapshots = one_in(d, 10);
    if (w->grammar == NO_GRAMMAR && one_in(d, 6)) {
        p->is_thinking = true;
        p->think_tokens = between(d, 0, 30);
        p->n_think_end = (size_t)draw_pieces(d, w->think_end, (int)ARRAY_LEN(w->think_end));
        p->think_end = w->think_end;
    }
    if (turn == 0 && one_in(d, 2)) {
        memcpy(w->tokens, common, (size_t)n_common * sizeof *common);
        w->n_tokens = n_common;
    }
    int most = turn == 0 ? MAX_DRAWN : 40;
    w->n_tokens += draw_pieces(d, w->tokens + w->n_tokens, between(d, 1, most - w->n_tokens));
}

/* --- cases -------------------------------------------------------------------------------------------------------- */

/* Draws cpu with one of the instruction sets of this CPU; each eighth case has the first, slow one, and each eighth has
 * ref. */
static void draw_backend(struct dice *d, const char *backend, struct same_draft_case *c)
{
    const char *found[16];
    int n = 0, kind = roll(d, 8);
    for (int i = 0; kern_isa_name(i) != NULL && n < (int)ARRAY_LEN(found); i++) {
        found[n] = kern_isa_name(i);
        n += kern_isa_is_there(i);
    }
    c->backend = backend != NULL ? backend : kind == 0 ? "ref" : "cpu";
    c->backend = backend == NULL && kind == 2 && one_in(d, 2) ? "ref:0-0,cpu" : c->backend; /* then there is no head */
    c->high_precision = strcmp(c->backend, "ref") != 0 && one_in(d, 3);
    if (strcmp(c->backend, "cpu") != 0) {
        return;
    }
    static const char *const types[] = {NULL, NULL, "f16", "bf16", "q8_0", "q4_0"};
    c->cpu = found[kind == 1 || n == 1 ? 0 : between(d, 1, n - 1)];
    c->cache_type = types[roll(d, c->model->has_latents ? 4 : (int)ARRAY_LEN(types))];
    c->quantize = one_in(d, 4) ? "q8_0" : NULL;
}

void same_draft_case_draw(uint64_t seed, const struct same_draft_model *models, int n_models, const char *backend,
                          struct same_draft_case *out)
{
    static const char *const drafts[] = {"tests/golden/models/llama-quants.gguf",
                                         "tests/golden/models/gemma3-window.gguf"};
    struct dice d = {.seed = seed};
    int32_t common[MAX_DRAWN - 10];
    struct same_draft_case *c = out;
    *c = (struct same_draft_case){.seed = seed, .model = &models[seed % (uint64_t)n_models]};
    draw_backend(&d, backend, c);
    c->n_threads = PICK_INT(&d, 1, 1, 3); /* more than a small machine has CPUs: then they sleep at barriers */
    c->max_seqs = PICK_INT(&d, 1, 2, 4, 4, 8);
    c->max_batch_rows = PICK_INT(&d, 16, 33, 64, 256);
    c->kv_tokens = (uint64_t)PICK_INT(&d, N_CTX, N_CTX, 2 * N_CTX, 20 * N_CTX);
    c->draft_max[0] = PICK_INT(&d, 1, 2, 3, 7, 15, DRAFT_MAX);
    c->draft_max[1] = one_in(&d, 4) ? -1 : PICK_INT(&d, 1, 4, 7, 15, DRAFT_MAX);
    c->draft = c->model->has_latents ? NULL : drafts[roll(&d, (int)ARRAY_LEN(drafts))];
    c->n_turns = one_in(&d, 2) ? N_TURNS : 1;
    c->restarts = c->n_turns == N_TURNS && one_in(&d, 2);
    c->truth = (double)PICK_FLOAT(&d, 0, 0.5f, 0.9f, 1);
    c->row_ns = (uint64_t)PICK_INT(&d, 0, 0, 20000, 100000);
    c->n_wishes = between(&d, 1, MAX_WISHES);
    int n_common = draw_pieces(&d, common, between(&d, 1, (int)ARRAY_LEN(common)));
    for (int turn = 0; turn < c->n_turns; turn++) {
        for (int i = 0; i < c->n_wishes; i++) {
            draw_wish(&d, turn, common, n_common, &c->wishes[turn][i]);
        }
    }
}

static void print_wish(const struct same_draft_wish *w)
{
    static const char *const grammars[N_GRAMMARS] = {"no", "fixed", "records", "pattern", "schema"};
    const struct engine_params *p = &w->params;
    const struct sampler_params *s = &p->sampling;
    printf(
        "  %d choices, %d tokens%s, at most %d and at least %d more, %d read; temperature %g, top-k %d, top-p %g, min-p %g, "
        "typical-p %g; penalties %g of %d, %g, %g; top %d; bias of %zu, %zu stops, %zu ends, thinks %d; grammar: %s\n",
        w->n_choices, w->n_tokens, p->prompt_logprobs ? " with log-probabilities" : "", p->max_tokens, p->min_tokens,
        w->n_read, (double)s->temperature, s->top_k, (double)s->top_p, (double)s->min_p, (double)s->typical_p,
        (double)s->repeat_penalty, s->repeat_last_n, (double)s->presence_penalty, (double)s->frequency_penalty,
        s->n_top, s->n_bias, p->n_stop, s->n_ends, p->is_thinking ? p->think_tokens : -1, grammars[w->grammar]);
}

void same_draft_case_print(const struct same_draft_case *c)
{
    printf("seed %" PRIu64 ": %s on %s %s, cache %s, weights %s, precision %s; %d threads, %d sequences, steps of %d "
           "rows, %" PRIu64 " KV tokens; drafts of %d%s, head %g true, rows of %" PRIu64 " ns\n",
           c->seed, c->model->name, c->backend, c->cpu != NULL ? c->cpu : "-",
           c->cache_type != NULL ? c->cache_type : "default", c->quantize != NULL ? c->quantize : "as stored",
           c->high_precision ? "high" : "usual", c->n_threads, c->max_seqs, c->max_batch_rows, c->kv_tokens,
           c->draft_max[0], c->restarts ? ", a restart" : "", c->truth, c->row_ns);
    for (int turn = 0; turn < c->n_turns; turn++) {
        for (int i = 0; i < c->n_wishes; i++) {
            print_wish(&c->wishes[turn][i]);
        }
    }
}
