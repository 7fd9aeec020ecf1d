/* Keeps a list in order of use, and each owner's share of it. Searches start at the newest response, which is the most
 * likely; a search of the whole list takes less time than a token. */
#include "fcgi/api/openai/responses_store.h"

#include "engine/base/json_read.h"
#include "engine/base/json_write.h"
#include "engine/base/mem.h"
#include "fcgi/api/openai/responses_output.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* An owner's share of the room: its listed responses, and those that later responses hold. */
struct share {
    struct share *next;
    uint64_t key;
    double weight;
    size_t n_kept, bytes; /* listed, or held by a later response, possibly of another share; at least one */
    size_t n;             /* listed */
};

/* A response, followed by its texts. */
struct kept {
    struct kept *newer, *older; /* neighbors in the list */
    struct kept *previous;      /* held; OPTIONAL */
    size_t n_holders;           /* the list, and responses that continue it */
    bool is_listed;
    char id[RESPONSES_ID_BYTES];
    struct apikey_id owner;
    struct share *share;
    size_t n_response, n_input, n_output;
    char text[]; /* in this order */
};

static struct {
    pthread_mutex_t lock;
    struct kept *newest, *oldest;
    struct share *shares;
    size_t n, bytes, limit_bytes;
} store = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- the list, under the lock ----------------------------------------------------------------------------------- */

static size_t size_of(const struct kept *k) { return sizeof *k + k->n_response + k->n_input + k->n_output; }

/* Returns that key's share, created if missing; NULL: no memory. */
static struct share *find_share(uint64_t key)
{
    struct share *s = store.shares;
    while (s != NULL && s->key != key) {
        s = s->next;
    }
    if (s == NULL && (s = mem_zalloc(sizeof *s, MEM_GENERAL)) != NULL) {
        *s = (struct share){.next = store.shares, .key = key};
        store.shares = s;
    }
    return s;
}

static void drop_if_empty(struct share *s)
{
    struct share **link = &store.shares;
    if (s->n_kept > 0) {
        return;
    }
    while (*link != s) {
        link = &(*link)->next;
    }
    *link = s->next;
    mem_free(s);
}

static void let_go(struct kept *k)
{
    while (k != NULL && --k->n_holders == 0) {
        struct kept *previous = k->previous;
        store.bytes -= size_of(k);
        k->share->bytes -= size_of(k);
        k->share->n_kept--;
        drop_if_empty(k->share);
        mem_free(k);
        k = previous;
    }
}

static void unlink_kept(struct kept *k)
{
    *(k->newer != NULL ? &k->newer->older : &store.newest) = k->older;
    *(k->older != NULL ? &k->older->newer : &store.oldest) = k->newer;
    store.n--;
    k->share->n--;
}

static void link_newest(struct kept *k)
{
    k->newer = NULL;
    k->older = store.newest;
    *(k->older != NULL ? &k->older->newer : &store.oldest) = k;
    store.newest = k;
    store.n++;
    k->share->n++;
}

static void unlist(struct kept *k)
{
    unlink_kept(k);
    k->is_listed = false;
    let_go(k);
}

/* Returns the share with a listed response that has the most bytes, or responses, for its weight. */
static const struct share *largest(bool by_bytes)
{
    const struct share *most = NULL;
    double has = -1;
    for (const struct share *s = store.shares; s != NULL; s = s->next) {
        double x = (double)(by_bytes ? s->bytes : s->n) / s->weight;
        bool is_more = s->n > 0 && x > has;
        most = is_more ? s : most;
        has = is_more ? x : has;
    }
    return most;
}

static struct kept *oldest_of(const struct share *s)
{
    struct kept *k = store.oldest;
    while (k->share != s) {
        k = k->newer;
    }
    return k;
}

static void trim(void)
{
    while (store.oldest != NULL && (store.n > RESPONSES_STORE_MAX || store.bytes > store.limit_bytes)) {
        unlist(oldest_of(largest(store.bytes > store.limit_bytes)));
    }
}

/* Returns NULL if there is none; otherwise makes it the newest. */
static struct kept *find(const struct apikey_id *owner, const char *id)
{
    struct kept *k = store.newest;
    while (k != NULL && (strcmp(k->id, id) != 0 || !apikey_is_same(&k->owner, owner))) {
        k = k->older;
    }
    if (k != NULL) {
        unlink_kept(k);
        link_newest(k);
    }
    return k;
}

/* --- texts ------------------------------------------------------------------------------------------------------ */

static void append_items(struct buf *out, const char *text, size_t n)
{
    buf_puts(out, n > 0 && out->len > 1 ? "," : "");
    buf_append(out, text, n);
}

static void append_own(struct buf *out, const struct kept *k, bool with_output)
{
    const char *input = k->text + k->n_response;
    append_items(out, input, k->n_input);
    for (char *line = out->data;
         buf_ok(out) == ERR_OK && (line = memchr(line, '\n', out->len - (size_t)(line - out->data))) != NULL;) {
        *line = ',';
    }
    if (with_output) {
        append_items(out, input + k->n_input, k->n_output);
    }
}

/* Appends the items of k and its predecessors, oldest first. */
static enum err append_all(struct buf *out, const struct kept *last, bool with_output)
{
    size_t n = 0;
    for (const struct kept *k = last; k != NULL; k = k->previous) {
        n++;
    }
    const struct kept **all = mem_zalloc_array(n, sizeof *all, MEM_REQUEST);
    TRY_MEM(all != NULL);
    for (const struct kept *k = last; k != NULL; k = k->previous) {
        all[--n] = k;
    }
    for (const struct kept **k = all;; k++) {
        append_own(out, *k, *k != last || with_output);
        if (*k == last) {
            break;
        }
    }
    mem_free(all);
    return buf_ok(out);
}

/* Parses items that infcgi wrote. */
static enum err parse_items(struct buf *text, json_t **items)
{
    buf_putc(text, ']');
    TRY(buf_ok(text));
    struct err_info ignored = {0};
    return json_read_value(text->data, text->len, JSON_WRITE_DEPTH, "items", items, &ignored);
}

/* --- public functions --------------------------------------------------------------------------------------------- */

void responses_store_limit(size_t bytes)
{
    pthread_mutex_lock(&store.lock);
    store.limit_bytes = bytes;
    trim();
    pthread_mutex_unlock(&store.lock);
}

bool responses_store_is_on(void)
{
    pthread_mutex_lock(&store.lock);
    bool is_on = store.limit_bytes > 0;
    pthread_mutex_unlock(&store.lock);
    return is_on;
}

size_t responses_store_bytes(void)
{
    pthread_mutex_lock(&store.lock);
    size_t bytes = store.bytes;
    pthread_mutex_unlock(&store.lock);
    return bytes;
}

static void put_text(struct kept *k, size_t at, const struct buf *text)
{
    if (text->len > 0) {
        memcpy(k->text + at, text->data, text->len);
    }
}

static struct kept *make_kept(const struct apikey_id *owner, const char *id, const struct buf *response,
                              const struct buf *input, const struct buf *output)
{
    struct kept *k = mem_alloc(sizeof *k + response->len + input->len + output->len, MEM_GENERAL);
    if (k == NULL) {
        return NULL;
    }
    *k = (struct kept){.n_holders = 1,
                       .is_listed = true,
                       .owner = *owner,
                       .n_response = response->len,
                       .n_input = input->len,
                       .n_output = output->len};
    snprintf(k->id, sizeof k->id, "%s", id);
    put_text(k, 0, response);
    put_text(k, response->len, input);
    put_text(k, response->len + input->len, output);
    return k;
}

/* The lock must be held. */
static void add(struct kept *k, struct share *share, const char *previous)
{
    k->share = share;
    k->previous = previous != NULL ? find(&k->owner, previous) : NULL;
    if (k->previous != NULL) {
        k->previous->n_holders++;
    }
    store.bytes += size_of(k);
    share->bytes += size_of(k);
    share->n_kept++;
    link_newest(k);
    if (previous != NULL && k->previous == NULL) { /* it was removed since: this one would be half a conversation */
        unlist(k);
    }
    trim();
}

enum err responses_store_put(const struct responses_owner *owner, const char *id, const char *previous,
                             const struct buf *response, const struct buf *input, const struct buf *output)
{
    TRY(buf_ok(response));
    TRY(buf_ok(input));
    TRY(buf_ok(output));
    struct kept *k = make_kept(&owner->id, id, response, input, output);
    TRY_MEM(k != NULL);
    pthread_mutex_lock(&store.lock);
    struct share *share = find_share(owner->share);
    bool has_room = share != NULL;
    if (has_room) {
        share->weight = owner->weight > 1 ? owner->weight : 1;
        add(k, share, previous);
    }
    pthread_mutex_unlock(&store.lock);
    if (!has_room) {
        mem_free(k);
    }
    return has_room ? ERR_OK : ERR_NOMEM;
}

enum err responses_store_get(const struct apikey_id *owner, const char *id, struct buf *out)
{
    pthread_mutex_lock(&store.lock);
    const struct kept *k = find(owner, id);
    if (k != NULL) {
        buf_append(out, k->text, k->n_response);
    }
    pthread_mutex_unlock(&store.lock);
    return k != NULL ? buf_ok(out) : ERR_RESPONSE_NOT_FOUND;
}

/* is_own: only the response's own input and output. */
static enum err read_items(const struct apikey_id *owner, const char *id, bool is_own, bool with_output, json_t **items)
{
    struct buf text;
    buf_init(&text, 0, MEM_REQUEST);
    buf_putc(&text, '[');
    pthread_mutex_lock(&store.lock);
    const struct kept *k = find(owner, id);
    enum err err = k != NULL ? ERR_OK : ERR_RESPONSE_NOT_FOUND;
    if (k != NULL && is_own) {
        append_own(&text, k, true);
    } else if (k != NULL) {
        err = append_all(&text, k, with_output);
    }
    pthread_mutex_unlock(&store.lock);
    err = err != ERR_OK ? err : parse_items(&text, items);
    buf_fini(&text);
    return err;
}

enum err responses_store_items(const struct apikey_id *owner, const char *id, bool with_output, json_t **items)
{
    return read_items(owner, id, false, with_output, items);
}

enum err responses_store_own(const struct apikey_id *owner, const char *id, json_t **items)
{
    return read_items(owner, id, true, true, items);
}

enum err responses_store_drop(const struct apikey_id *owner, const char *id)
{
    pthread_mutex_lock(&store.lock);
    struct kept *k = find(owner, id);
    if (k != NULL) {
        unlist(k);
    }
    pthread_mutex_unlock(&store.lock);
    return k != NULL ? ERR_OK : ERR_RESPONSE_NOT_FOUND;
}
