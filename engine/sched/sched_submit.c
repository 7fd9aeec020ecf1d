/* Queues the sequences of a request: all of them or none get queue slots. A request of more than fits submits the rest
 * as its own sequences end. */
#include "engine/sched/sched_internal.h"

#include "engine/base/task.h"

#include <string.h>

/* --- sequences ---------------------------------------------------------------------------------------------------- */

static void seq_free(struct sched_seq *q)
{
    pthread_mutex_destroy(&q->reader.lock);
    pthread_cond_destroy(&q->reader.ready);
    sched_group_release(&q->group);
    grammar_matcher_free(&q->matcher);
    if (q->terms.guide_state != NULL && q->terms.guide.fini != NULL) {
        q->terms.guide.fini(q->terms.guide_state);
    }
    struct arena a = q->arena;
    arena_fini(&a);
}

void sched_seq_unref(struct sched_seq *q)
{
    if (atomic_fetch_sub_explicit(&q->refs, 1, memory_order_acq_rel) == 1) {
        seq_free(q);
    }
}

/* Returns the most tokens that it can have. */
static int32_t max_total(const struct sched *s, const struct sched_request *r)
{
    int64_t total = r->max_tokens < 0 ? s->cfg.n_ctx : (int64_t)r->n_tokens + r->max_tokens;
    return (int32_t)MIN_OF(total, (int64_t)s->cfg.n_ctx);
}

/* Returns about what a sequence takes in all, so that it is one block. */
static size_t seq_bytes(const struct sched *s, const struct sched_request *r)
{
    size_t n = (size_t)max_total(s, r) + 1, n_top = (size_t)MAX_OF(r->sampling.n_top, 0);
    size_t sampling = SCHED_RING * n_top * sizeof(struct sampler_top) + r->sampling.n_bias * sizeof *r->sampling.bias +
                      r->sampling.n_ends * sizeof *r->sampling.ends;
    size_t n_vectors = r->pooling == PLAN_POOL_NONE ? 0 : r->pooling == PLAN_POOL_EACH ? (size_t)r->n_tokens : 1;
    size_t pooling = (size_t)s->cfg.n_embd * (n_vectors * sizeof(float) + (n_vectors != 0 ? sizeof(double) : 0));
    size_t guide = r->guide != NULL ? r->guide->n_bytes : 0;
    size_t tokens = n * sizeof(int32_t) * (s->cfg.draft_max > 0 ? 3 : 1) + n / KV_PAGE_TOKENS * sizeof(int32_t);
    size_t names = s->cfg.disk != NULL ? (n / KV_PAGE_TOKENS + 1) * sizeof(struct kv_name) : 0;
    return sizeof(struct sched_seq) + sampling + guide + pooling + tokens + names + 256;
}

static void *copy_array(struct arena *a, const void *from, size_t n, size_t size)
{
    void *p = n != 0 ? arena_alloc(a, n * size) : NULL;
    return p != NULL ? memcpy(p, from, n * size) : NULL;
}

static void fill_pooling(struct sched *s, struct sched_seq *q, const struct sched_request *r)
{
    q->embed.pooling = r->pooling;
    q->embed.keeps_length = r->keeps_length;
    if (r->pooling == PLAN_POOL_NONE) {
        return;
    }
    q->terms.is_private = q->terms.is_private || r->pooling != PLAN_POOL_LAST ||
                          s->cfg.is_bidirectional; /* kept pages contain no states */
    bool is_each = r->pooling == PLAN_POOL_EACH;
    size_t n = (size_t)s->cfg.n_embd, n_vectors = is_each ? (size_t)r->n_tokens : 1;
    q->embed.sums = is_each ? NULL : arena_zalloc_array(&q->arena, n, sizeof *q->embed.sums);
    q->embed.vectors =
        arena_alloc(&q->arena, n_vectors * n * sizeof *q->embed.vectors); /* written completely before it is read */
}

static enum err seq_fill(struct sched *s, struct sched_seq *q, const struct sched_request *r)
{
    struct arena *a = &q->arena;
    q->max_total = max_total(s, r);
    q->n_prompt = q->n_tokens = r->n_tokens;
    q->terms.min_tokens = r->min_tokens;
    q->terms.prompt_logprobs = r->prompt_logprobs;
    q->terms.is_private = r->prompt_logprobs;
    q->states.own = q->states.begin = KV_NO_STATE;
    q->terms.deadline_ns = r->deadline_ns;
    q->terms.salt = kv_cache_salt(s->kv, r->salt);
    q->reader.usage.prompt_tokens = r->n_tokens;
    size_t n_tokens = (size_t)q->max_total + 1;
    q->tokens = arena_alloc(a, n_tokens * sizeof *q->tokens);
    q->pages.table = arena_alloc(a, (n_tokens / KV_PAGE_TOKENS + 1) * sizeof *q->pages.table);
    q->windows.table =
        s->cfg.n_windows != 0 ? arena_zalloc_array(a, n_tokens / KV_PAGE_TOKENS + 1, sizeof *q->windows.table) : NULL;
    q->files.names =
        s->cfg.disk != NULL ? arena_alloc(a, (n_tokens / KV_PAGE_TOKENS + 1) * sizeof *q->files.names) : NULL;
    q->files.writes_none = r->keeps_no_snapshots;
    q->reader.tops = arena_alloc(a, SCHED_RING * (size_t)MAX_OF(r->sampling.n_top, 0) * sizeof *q->reader.tops);
    q->terms.sampling = r->sampling;
    q->terms.sampling.bias = copy_array(a, r->sampling.bias, r->sampling.n_bias, sizeof *r->sampling.bias);
    q->terms.sampling.ends = copy_array(a, r->sampling.ends, r->sampling.n_ends, sizeof *r->sampling.ends);
    fill_pooling(s, q, r);
    q->terms.leaves_pages = !q->terms.is_private || (r->prompt_logprobs && r->pooling == PLAN_POOL_NONE);
    TRY(arena_ok(a));
    if (r->guide != NULL) {
        q->terms.guide = *r->guide;
        q->terms.guide_state = copy_array(a, r->guide->state, 1, r->guide->n_bytes);
        TRY(arena_ok(a));
    }
    if (r->grammar != NULL) {
        q->terms.sampling.is_guided = true;
        TRY(grammar_matcher_new(r->grammar, r->vocab, &q->matcher));
    }
    memcpy(q->tokens, r->tokens, (size_t)r->n_tokens * sizeof *q->tokens);
    sched_disk_submit(s, q, r->salt);
    if (s->cfg.draft_max > 0 && q->max_total > q->n_prompt + 1) {
        TRY(draft_init(&q->draft, s->cfg.no_lookup ? 0 : q->max_total, a));
        q->draft.guesser = s->cfg.output_width == 0 ? DRAFT_MODEL : DRAFT_HEAD;
        /* in the reader's thread, because a long prompt takes time */
        draft_index(&q->draft, q->tokens, q->n_prompt - 1);
    }
    return ERR_OK;
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

/* Call it under sched.lock; NULL: unknown key. */
static struct sched_tenant *find_tenant(const struct sched *s, uint64_t key)
{
    struct sched_tenant *t = s->tenants.first;
    while (t != NULL && t->key != key) {
        t = t->next;
    }
    return t;
}

/* Returns the tenant of this key with one more reference; a new tenant's turn is after all others'. `fresh` joins the
 * list if the key is new. Call it under sched.lock. */
static struct sched_tenant *ref_tenant(struct sched *s, const struct sched_share *whose, struct sched_tenant *fresh)
{
    struct sched_tenant *t = find_tenant(s, whose->key);
    if (t == NULL) {
        t = fresh;
        t->key = whose->key;
        t->is_guest = whose->is_guest;
        t->next = s->tenants.first;
        t->turn = ++s->tenants.n_turns;
        s->tenants.first = t;
    } else if (t->n_groups == 0) {
        s->tenants.n_idle--;
    }
    atomic_store(&t->weight, MIN_OF(MAX_OF(whose->weight, 1), (int32_t)SCHED_MAX_WEIGHT));
    atomic_store(&t->priority, whose->priority);
    t->n_groups++;
    return t;
}

/* Drops one request of t. Returns the tenant to free, the oldest without a request if there are too many, or NULL. Call
 * it under sched.lock. */
static struct sched_tenant *unref_tenant(struct sched *s, struct sched_tenant *t)
{
    struct sched_tenant **last = NULL;
    t->n_groups--;
    s->tenants.n_idle += t->n_groups == 0;
    if (s->tenants.n_idle <= SCHED_KEPT_TENANTS) {
        return NULL;
    }
    for (struct sched_tenant **link = &s->tenants.first; *link != NULL; link = &(*link)->next) {
        last = (*link)->n_groups == 0 ? link : last;
    }
    struct sched_tenant *gone = *last;
    *last = gone->next;
    s->tenants.n_idle--;
    return gone;
}

enum err sched_group_new(struct sched *s, const struct sched_share *whose, int32_t n_seqs, struct sched_group **out)
{
    static const struct sched_share nobodys;
    *out = NULL;
    struct sched_group *g = mem_zalloc(sizeof *g, MEM_REQUEST);
    /* MEM_GENERAL, because the key's tenant outlives the request */
    struct sched_tenant *fresh = mem_zalloc(sizeof *fresh, MEM_GENERAL);
    if (g == NULL || fresh == NULL) {
        mem_free(g);
        mem_free(fresh);
        return ERR_NOMEM;
    }
    g->sched = s;
    g->n_seqs = MAX_OF(n_seqs, 1);
    atomic_init(&g->refs, 1);
    pthread_mutex_lock(&s->lock);
    g->tenant = ref_tenant(s, whose != NULL ? whose : &nobodys, fresh);
    g->turn = ++s->tenants.n_turns;
    pthread_mutex_unlock(&s->lock);
    if (g->tenant != fresh) {
        mem_free(fresh);
    }
    *out = g;
    return ERR_OK;
}

void sched_group_release(struct sched_group **group)
{
    struct sched_group *g = *group;
    *group = NULL;
    if (g == NULL || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    struct sched *s = g->sched;
    pthread_mutex_lock(&s->lock);
    struct sched_tenant *t = unref_tenant(s, g->tenant);
    pthread_mutex_unlock(&s->lock);
    mem_free(t);
    mem_free(g);
}

/* Has t only one request, or no more than its weighted share of three quarters of all that can run or wait? Call it
 * under sched.lock. */
static bool is_within_part(const struct sched *s, const struct sched_tenant *t)
{
    if (t->n_groups <= 1) {
        return true; /* whatever the number of clients */
    }
    int64_t weights = 0, places = ((int64_t)s->cfg.queue_max + sched_plain_places(s)) * 3 / 4;
    for (const struct sched_tenant *u = s->tenants.first; u != NULL; u = u->next) {
        weights += u->n_groups > 0 ? atomic_load(&u->weight) : 0;
    }
    return t->n_groups * weights <= places * atomic_load(&t->weight);
}

/* Returns the queue's size for a newcomer, or a client within its share: a quarter more than others can fill. So a
 * flood from one client crowds out no other, and a client without competition has the whole queue. */
static int32_t queue_with_reserve(const struct sched *s) { return s->cfg.queue_max + MAX_OF(s->cfg.queue_max / 4, 1); }

/* Returns how many sequences can wait before one of t is rejected. Call it under sched.lock. */
static int32_t queue_for(const struct sched *s, const struct sched_tenant *t)
{
    return is_within_part(s, t) ? queue_with_reserve(s) : s->cfg.queue_max;
}

/* A request begins when the queue has room for all of its sequences, or is half free: so requests of many sequences
 * leave room for those of one. From then on the slots it began with are its own: ended sequences can be replaced
 * whatever waits. While half of the queue is free it gets more, enough to fill all slots of the batch. Call it under
 * sched.lock. */
static int32_t room_of(const struct sched_group *g)
{
    const struct sched *s = g->sched;
    int32_t half = MAX_OF(s->cfg.queue_max / 2, 1), places = sched_plain_places(s),
            most = places + MIN_OF(places, half);
    if (!g->has_begun) {
        int32_t needed = MIN_OF(g->n_seqs, half);
        return queue_for(s, g->tenant) - s->queue.n >= needed ? MIN_OF(needed, most) : 0;
    }
    int32_t own = g->n_places - g->n_open, more = MIN_OF(most - g->n_open, half - s->queue.n);
    return MAX_OF(MAX_OF(own, more), 0);
}

int32_t sched_group_room(struct sched_group *g)
{
    pthread_mutex_lock(&g->sched->lock);
    int32_t n = room_of(g);
    pthread_mutex_unlock(&g->sched->lock);
    return n;
}

bool sched_is_full(struct sched *s, uint64_t key)
{
    uint64_t limit = s->cfg.queue_max_tokens;
    pthread_mutex_lock(&s->lock);
    const struct sched_tenant *t = find_tenant(s, key);
    bool is_full = s->queue.n >= (t != NULL ? queue_for(s, t) : queue_with_reserve(s)) ||
                   (limit != 0 && s->queue.n_tokens >= limit);
    pthread_mutex_unlock(&s->lock);
    return is_full;
}

/* --- submitting --------------------------------------------------------------------------------------------------- */

/* Returns why n sequences of `tokens` tokens in all cannot be queued now, or ERR_OK. Call it under sched.lock. */
static enum err must_wait(const struct sched *s, const struct sched_group *g, int32_t n, uint64_t tokens)
{
    uint64_t limit = s->cfg.queue_max_tokens;
    if (s->is_stopping || (s->queue.is_draining && !g->has_begun)) { /* a request that has begun is completed */
        return ERR_DRAINING;
    }
    if (s->lost.code != ERR_OK) {
        return ERR_LOST;
    }
    bool is_full = limit != 0 && s->queue.n != 0 && s->queue.n_tokens + tokens > limit;
    return n <= room_of(g) && !is_full ? ERR_OK : g->n_open > 0 ? ERR_AGAIN : ERR_OVERLOADED;
}

/* Is more than one client known? An idle key 0 does not count: the warm-up used it. Call it under sched.lock. */
static bool has_clients(const struct sched *s)
{
    int n = 0;
    for (const struct sched_tenant *t = s->tenants.first; t != NULL && n < 2; t = t->next) {
        n += t->key != 0 || t->n_groups > 0;
    }
    return n > 1;
}

/* Appends all sequences to the queue, or none, and returns why not. */
static enum err enqueue(struct sched *s, struct sched_seq **seqs, int32_t n)
{
    struct sched_group *g = seqs[0]->group;
    uint64_t tokens = 0;
    for (int32_t i = 0; i < n; i++) {
        tokens += (uint64_t)seqs[i]->n_tokens;
    }
    pthread_mutex_lock(&s->lock);
    enum err err = must_wait(s, g, n, tokens);
    for (int32_t i = 0; i < n && err == ERR_OK; i++) {
        seqs[i]->number = ++s->queue.next_number;
        *s->queue.end = seqs[i];
        s->queue.end = &seqs[i]->next;
    }
    if (err == ERR_OK) {
        g->n_places = g->has_begun ? g->n_places : n;
        g->has_begun = true;
        g->n_open += n;
        s->queue.n += n;
        s->queue.n_tokens += tokens;
        atomic_store(&s->has_news, true);
        bool may_go_alone = n == 1 && atomic_load(&g->tenant->n_work) == 0 && has_clients(s);
        atomic_store(&s->queue.asks, atomic_load(&s->queue.asks) || may_go_alone);
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    return err;
}

static enum err check_request(const struct sched *s, const struct sched_request *r, struct err_info *info)
{
    uint64_t limit = s->cfg.queue_max_tokens;
    if (r->n_tokens < 1) {
        return err_set(info, ERR_INVALID_VALUE, "prompt", "prompt: expected at least one token, found none");
    }
    if (r->n_tokens > s->cfg.n_ctx) {
        return err_set(info, ERR_CONTEXT_LENGTH, "prompt", "prompt: expected at most %d tokens, found %d", s->cfg.n_ctx,
                       r->n_tokens);
    }
    if (limit != 0 && (uint64_t)r->n_tokens > limit) {
        return err_set(info, ERR_INVALID_VALUE, "prompt",
                       "prompt: expected at most %llu tokens, as many as may wait; found %d", (unsigned long long)limit,
                       r->n_tokens);
    }
    if (r->pooling != PLAN_POOL_NONE && (s->cfg.n_embd == 0 || r->max_tokens != 0)) {
        return err_set(info, ERR_INTERNAL, NULL, "an embedding was asked for that the plan does not give");
    }
    return ERR_OK;
}

/* Makes a sequence that is not queued yet, with references of reader and scheduler. */
static enum err make_seq(struct sched *s, const struct sched_request *r, struct sched_group *g, struct sched_seq **out,
                         struct err_info *info)
{
    TRY(check_request(s, r, info));
    struct arena arena;
    arena_init(&arena, seq_bytes(s, r), 0, MEM_REQUEST);
    struct sched_seq *q = arena_zalloc(&arena, sizeof *q);
    TRY_MEM_FOR(q != NULL, info, "out of memory for a request of %d tokens", r->n_tokens);
    q->arena = arena;
    pthread_mutex_init(&q->reader.lock, NULL);
    thread_cond_init(&q->reader.ready);
    q->sched = s;
    q->group = g;
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
    atomic_init(&q->refs, 2);
    enum err err = seq_fill(s, q, r);
    if (err != ERR_OK) {
        seq_free(q);
        return err == ERR_GRAMMAR_LIMIT
                   ? err_set(info, err, NULL, "the grammar's beginning has too many readings")
                   : err_set(info, ERR_NOMEM, NULL, "out of memory for a request of %d tokens", r->n_tokens);
    }
    q->submit_ns = clock_now_ns();
    *out = q;
    return ERR_OK;
}

enum err sched_submit_all(struct sched *s, struct sched_group *group, const struct sched_request *r, int32_t n,
                          struct sched_seq **out, struct err_info *info)
{
    struct sched_group *g = group;
    enum err err = ERR_OK;
    memset(out, 0, (size_t)n * sizeof *out);
    if (g == NULL && sched_group_new(s, NULL, n, &g) != ERR_OK) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the request");
    }
    for (int32_t i = 0; i < n && err == ERR_OK; i++) { /* each one with a grammar can take a tenth of a second */
        err = task_check();
        err = err != ERR_OK ? err_set(info, err, NULL, "%s", err_text(err)) : make_seq(s, &r[i], g, &out[i], info);
    }
    if (err == ERR_OK && (err = enqueue(s, out, n)) != ERR_OK) {
        err_set(info, err, NULL, "%s", err == ERR_LOST ? s->lost.text : err_text(err));
    }
    for (int32_t i = 0; i < n && err != ERR_OK; i++) {
        if (out[i] != NULL) {
            seq_free(out[i]);
            out[i] = NULL;
        }
    }
    if (group == NULL) {
        sched_group_release(&g); /* its sequences hold it */
    }
    return err;
}
