/* One list, most recent client first, and one lock, held only briefly. */
#include "fcgi/tenant/tenant.h"

#include "engine/base/clock.h"
#include "fcgi/ground/words.h"
#include "fcgi/tenant/bucket.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NAMED_BYTES = 256 };

struct tenant {
    struct tenant *next;
    char name[TENANT_NAME_BYTES]; /* constant: read without the lock */
    struct tenant_rules rules;    /* copy of the file's section or fallback; the name is not used */
    bool has_section;
    int64_t n_refs;   /* requests that have entered */
    int64_t n_active; /* of these, requests that have begun */
    struct bucket requests, tokens;
    double mean_ns; /* moving average of request duration */
    struct tenant_counts counts;
};

static struct {
    pthread_mutex_t lock;
    struct tenant_file file;
    bool has_file;
    struct tenant *list;
    size_t n_unnamed;    /* tenants in the list without a section */
    struct tenant other; /* not in the list */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- who asks ----------------------------------------------------------------------------------------------------- */

/* Applies the file's current rules to t. */
static void apply(struct tenant *t, uint64_t now_ns)
{
    const struct tenant_rules *own = tenant_file_find(&all.file, &t->rules.id);
    struct tenant_rules rules = own != NULL ? *own : all.file.fallback;
    rules.id = t->rules.id;
    t->rules = rules;
    t->has_section = own != NULL;
    bucket_set(&t->requests, (double)rules.requests_per_minute, now_ns);
    bucket_set(&t->tokens, (double)rules.tokens_per_minute, now_ns);
}

/* Sets the default rules before the first use without a file. Called with the lock held. */
static void prepare(void)
{
    if (!all.has_file) {
        tenant_file_init(&all.file);
        all.has_file = true;
        snprintf(all.other.name, sizeof all.other.name, "other");
        apply(&all.other, clock_now_ns());
    }
}

/* Sets the display name of a tenant without section: nginx's name with unsafe characters replaced, or the beginning of
 * the key's digest. */
static void call_it(struct tenant *t, const char *named, const struct apikey_id *id)
{
    char *name = t->name;
    size_t n = 0;
    if (named == NULL && id->is_set) {
        snprintf(name, TENANT_NAME_BYTES, "key-%02x%02x%02x%02x%02x%02x", id->bytes[0], id->bytes[1], id->bytes[2],
                 id->bytes[3], id->bytes[4], id->bytes[5]);
        return;
    }
    named = named != NULL ? named : "anonymous";
    for (; named[n] != '\0' && n < TENANT_NAME_BYTES - 1; n++) {
        name[n] = named[n] > ' ' && named[n] <= '~' && strchr("\"\\[]", named[n]) == NULL ? named[n] : '_';
    }
    name[n] = '\0';
}

/* Evicts the least recently active tenant that is idle and has full buckets: recreating it changes nothing. */
static void drop_one(uint64_t now_ns)
{
    struct tenant **link = &all.list, **last = NULL;
    for (; *link != NULL; link = &(*link)->next) {
        const struct tenant *t = *link;
        bool is_full = bucket_wait_ns(&t->requests, t->requests.capacity, now_ns) == 0 &&
                       bucket_wait_ns(&t->tokens, t->tokens.capacity, now_ns) == 0;
        last = !t->has_section && t->n_refs == 0 && is_full ? link : last;
    }
    if (last == NULL) {
        return;
    }
    struct tenant *t = *last;
    struct tenant_counts *sum = &all.other.counts;
    *last = t->next;
    sum->requests += t->counts.requests;
    sum->refused += t->counts.refused;
    sum->prompt_tokens += t->counts.prompt_tokens;
    sum->cached_tokens += t->counts.cached_tokens;
    sum->completion_tokens += t->counts.completion_tokens;
    all.n_unnamed--;
    mem_free(t);
}

/* Returns the tenant of that id, moved to the front, or a new one; "other" if there is no room. Called with the lock
 * held. */
static struct tenant *find(const struct apikey_id *id, const char *named)
{
    struct tenant **link = &all.list;
    while (*link != NULL && !apikey_is_same(&(*link)->rules.id, id)) {
        link = &(*link)->next;
    }
    struct tenant *t = *link;
    if (t != NULL) {
        *link = t->next;
    } else {
        uint64_t now = clock_now_ns();
        const struct tenant_rules *own = tenant_file_find(&all.file, id);
        if (own == NULL && all.n_unnamed >= TENANT_MAX_UNNAMED) {
            drop_one(now);
        }
        bool has_room = own != NULL || all.n_unnamed < TENANT_MAX_UNNAMED;
        t = has_room ? mem_zalloc(sizeof *t, MEM_GENERAL) : NULL;
        if (t == NULL) {
            return &all.other;
        }
        t->rules.id = *id;
        call_it(t, own != NULL ? own->name : named, id);
        apply(t, now);
        all.n_unnamed += !t->has_section;
    }
    t->next = all.list;
    all.list = t;
    return t;
}

enum err tenant_load(const char *path, struct err_info *info)
{
    struct tenant_file file;
    enum err err = tenant_file_read(path, &file, info);
    if (err != ERR_OK) {
        tenant_file_fini(&file);
        return err;
    }
    uint64_t now = clock_now_ns();
    pthread_mutex_lock(&all.lock);
    prepare();
    struct tenant_file old = all.file;
    all.file = file;
    apikey_take(&all.file.keys);
    all.n_unnamed = 0;
    for (struct tenant *t = all.list; t != NULL; t = t->next) {
        apply(t, now);
        all.n_unnamed += !t->has_section;
    }
    apply(&all.other, now);
    for (size_t i = 0; i < all.file.n; i++) {
        (void)find(&all.file.at[i].id, NULL); /* so that all sections are known */
    }
    buf_fini(&all.file.keys); /* the old keys */
    pthread_mutex_unlock(&all.lock);
    tenant_file_fini(&old);
    return ERR_OK;
}

bool tenant_enter(const char *named, const char *authorization, const char *x_api_key, struct tenant **out,
                  struct apikey_id *id)
{
    *id = (struct apikey_id){0};
    bool has_name = named != NULL && named[0] != '\0';
    bool ok = has_name ? strnlen(named, MAX_NAMED_BYTES + 1) <= MAX_NAMED_BYTES && tenant_file_id(named, id) == ERR_OK
                       : apikey_check(authorization, x_api_key, id);
    if (!ok) {
        return false;
    }
    pthread_mutex_lock(&all.lock);
    prepare();
    *out = find(id, has_name ? named : NULL);
    (*out)->n_refs++;
    pthread_mutex_unlock(&all.lock);
    return true;
}

void tenant_leave(struct tenant **t)
{
    if (*t != NULL) {
        pthread_mutex_lock(&all.lock);
        (*t)->n_refs--;
        pthread_mutex_unlock(&all.lock);
        *t = NULL;
    }
}

const char *tenant_name(const struct tenant *t) { return t->name; }

bool tenant_may_use(const struct tenant *t, const char *model)
{
    pthread_mutex_lock(&all.lock);
    const char *models = t->rules.models;
    bool may = *models == '\0' || words_have(models, ' ', model, strlen(model));
    pthread_mutex_unlock(&all.lock);
    return may;
}

int64_t tenant_max_tokens(const struct tenant *t)
{
    pthread_mutex_lock(&all.lock);
    int64_t n = t->rules.max_tokens;
    pthread_mutex_unlock(&all.lock);
    return n;
}

struct sched_share tenant_share(const struct tenant *t, const struct apikey_id *id)
{
    pthread_mutex_lock(&all.lock);
    struct sched_share share = {
        .key = apikey_number(id), .weight = (int32_t)t->rules.weight, .priority = (int32_t)t->rules.priority};
    pthread_mutex_unlock(&all.lock);
    return share;
}

/* --- limits ------------------------------------------------------------------------------------------------------- */

static int seconds(double ns) { return (int)fmin(fmax(ceil(ns / 1e9 - 1e-3), 1), 3600); }

/* A limit that is reached. */
struct reached {
    int64_t limit;
    const char *what, *found; /* "tokens a minute", "more" */
    double wait_ns;           /* until less is used */
};

static enum err refuse(struct tenant *t, const struct reached *r, int *retry_after_s, struct err_info *info)
{
    t->counts.refused++;
    *retry_after_s = seconds(r->wait_ns);
    return err_set(info, ERR_RATE_LIMIT, NULL, "expected at most %lld %s, found %s; try again in %d s",
                   (long long)r->limit, r->what, r->found, *retry_after_s);
}

enum err tenant_begin(struct tenant *t, struct tenant_request *r, uint64_t now_ns, int *retry_after_s,
                      struct err_info *info)
{
    enum err err = ERR_OK;
    pthread_mutex_lock(&all.lock);
    const struct tenant_rules *rules = &t->rules;
    uint64_t for_request = bucket_wait_ns(&t->requests, 1, now_ns), for_tokens = bucket_wait_ns(&t->tokens, 1, now_ns);
    struct reached full = {0};
    if (rules->concurrent != 0 && t->n_active >= rules->concurrent) {
        double wait_ns = t->mean_ns / (double)rules->concurrent;
        full = (struct reached){rules->concurrent, "requests in progress", "as many", wait_ns};
    } else if (for_request != 0) {
        full = (struct reached){rules->requests_per_minute, "requests a minute", "more", (double)for_request};
    } else if (for_tokens != 0) {
        full = (struct reached){rules->tokens_per_minute, "tokens a minute", "more", (double)for_tokens};
    }
    if (full.what != NULL) {
        err = refuse(t, &full, retry_after_s, info);
    } else {
        bucket_take(&t->requests, 1, now_ns);
        t->n_active++;
        t->counts.requests++;
        *r = (struct tenant_request){.has_begun = true, .begin_ns = now_ns};
    }
    pthread_mutex_unlock(&all.lock);
    return err;
}

enum err tenant_reserve(struct tenant *t, struct tenant_request *r, int64_t n, uint64_t now_ns, int *retry_after_s,
                        struct err_info *info)
{
    enum err err = ERR_OK;
    pthread_mutex_lock(&all.lock);
    uint64_t wait = bucket_wait_ns(&t->tokens, (double)n, now_ns);
    if (wait == UINT64_MAX) {
        *retry_after_s = 0;
        t->counts.refused++;
        err = err_set(info, ERR_RATE_LIMIT, NULL,
                      "expected a prompt of at most %lld tokens, the limit per minute; "
                      "found %lld",
                      (long long)t->rules.tokens_per_minute, (long long)n);
    } else if (wait != 0) {
        char found[64];
        snprintf(found, sizeof found, "%lld more", (long long)n);
        struct reached limit = {t->rules.tokens_per_minute, "tokens a minute", found, (double)wait};
        err = refuse(t, &limit, retry_after_s, info);
    } else {
        bucket_take(&t->tokens, (double)n, now_ns);
        r->reserved = n;
    }
    pthread_mutex_unlock(&all.lock);
    return err;
}

void tenant_end(struct tenant *t, struct tenant_request *r, const struct tenant_use *use, uint64_t now_ns)
{
    if (!r->has_begun) {
        return;
    }
    double took = (double)(now_ns - r->begin_ns);
    pthread_mutex_lock(&all.lock);
    bucket_take(&t->tokens, (double)(use->computed - r->reserved), now_ns);
    t->mean_ns = t->mean_ns == 0 ? took : 0.8 * t->mean_ns + 0.2 * took;
    t->n_active--;
    t->counts.prompt_tokens += (uint64_t)use->prompt;
    t->counts.cached_tokens += (uint64_t)use->cached;
    t->counts.completion_tokens += (uint64_t)use->completion;
    pthread_mutex_unlock(&all.lock);
    *r = (struct tenant_request){0};
}

/* "1m30.5s", the format of Go durations and of OpenAI's API. */
static void write_reset(double ns, struct buf *out)
{
    long long ms = (long long)ceil(ns / 1e6), minutes = ms / 60000;
    if (ms < 1000) {
        buf_printf(out, "%lldms\r\n", ms);
    } else if (minutes > 0) {
        buf_printf(out, "%lldm%.15gs\r\n", minutes, (double)(ms % 60000) / 1000);
    } else {
        buf_printf(out, "%.15gs\r\n", (double)ms / 1000);
    }
}

const struct tenant_headers tenant_headers_openai = {
    .forms = {"x-ratelimit-limit-%s: ", "x-ratelimit-remaining-%s: ", "x-ratelimit-reset-%s: "},
    .write_reset = write_reset};

static void write_bucket(const char *what, const struct bucket *b, uint64_t now_ns, const struct tenant_headers *h,
                         struct buf *out)
{
    if (b->capacity <= 0) {
        return;
    }
    double level = bucket_level(b, now_ns);
    for (int i = 0; i < 3; i++) {
        const char *form = h->forms[i], *gap = strstr(form, "%s");
        buf_append(out, form, (size_t)(gap - form));
        buf_puts(out, what);
        buf_puts(out, gap + 2);
        if (i < 2) {
            buf_printf(out, "%.0f\r\n", i == 0 ? b->capacity : floor(fmax(level, 0)));
        }
    }
    h->write_reset((double)bucket_wait_ns(b, b->capacity, now_ns), out);
}

void tenant_write_headers(const struct tenant *t, const struct tenant_headers *h, struct buf *out)
{
    uint64_t now = clock_now_ns();
    pthread_mutex_lock(&all.lock);
    struct bucket requests = t->requests, tokens = t->tokens;
    pthread_mutex_unlock(&all.lock);
    write_bucket("requests", &requests, now, h, out);
    write_bucket("tokens", &tokens, now, h, out);
}

/* --- what is known of them ---------------------------------------------------------------------------------------- */

static void report(const struct tenant *t, uint64_t now_ns, struct tenant_report *out)
{
    *out = (struct tenant_report){.rules = t->rules,
                                  .has_section = t->has_section,
                                  .requests_left = bucket_level(&t->requests, now_ns),
                                  .tokens_left = bucket_level(&t->tokens, now_ns),
                                  .n_active = t->n_active,
                                  .counts = t->counts};
    memcpy(out->rules.name, t->name, sizeof out->rules.name);
}

size_t tenant_snapshot(const struct engine *e, struct tenant_report *out, size_t max)
{
    uint64_t now = clock_now_ns();
    size_t n = 0;
    pthread_mutex_lock(&all.lock);
    prepare();
    for (const struct tenant *t = &all.other; t != NULL && n < max; t = t == &all.other ? all.list : t->next) {
        report(t, now, &out[n++]);
    }
    pthread_mutex_unlock(&all.lock);
    for (size_t i = 1; i < n && e != NULL; i++) {
        engine_get_share(e, apikey_number(&out[i].rules.id), &out[i].n_running, &out[i].n_waiting);
    }
    return n;
}
