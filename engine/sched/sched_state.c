/* Recurrent states (docs/internals/recurrent.md): the state a sequence computes in, the kept one it continues from, and
 * the states its batches leave with pages. Between two batches a sequence holds at most one state, its own or the one
 * it will continue from. So with one state more than sequences, the first sequence of a batch always gets its own. */
#include "engine/sched/sched_internal.h"

#include <string.h>

/* Returns the last page boundary before position n, as a position. */
static int32_t border(int32_t n) { return n / KV_PAGE_TOKENS * KV_PAGE_TOKENS; }

/* Finds what is known of q's prompt: leading pages (*n_matched); returns how many of these end with a page that has a
 * state. */
static int32_t find_state(const struct sched *s, const struct sched_seq *q, int32_t *n_matched)
{
    int32_t n = q->terms.is_private ? 0 : sched_whole_pages(q), parent = KV_NO_PAGE, best = 0;
    for (*n_matched = 0; *n_matched < n; ++*n_matched) {
        parent = sched_find_page(s, q, *n_matched, parent);
        if (parent == KV_NO_PAGE) {
            break;
        }
        best = kv_cache_state(s->kv, parent) != KV_NO_STATE ? *n_matched + 1 : best;
    }
    return best;
}

int32_t sched_pages_with_state(const struct sched *s, const struct sched_seq *q)
{
    int32_t n_matched;
    return find_state(s, q, &n_matched);
}

void sched_adopt_page(struct sched *s, struct sched_seq *q, int32_t i)
{
    int32_t page = sched_find_page(s, q, i, sched_parent(q, i));
    if (page != KV_NO_PAGE) {
        sched_replace_page(s, q, i, page);
    }
}

void sched_begin_state(struct sched *s, struct sched_seq *q)
{
    int32_t n = find_state(s, q, &q->states.n_matched);
    if (n * KV_PAGE_TOKENS <= q->states.n_begin) { /* also if the page of the state it holds has lost it */
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        sched_adopt_page(s, q, i);
    }
    int32_t state = kv_cache_state(s->kv, q->pages.table[n - 1]);
    kv_cache_hold_state(s->kv, state);
    if (q->states.begin != KV_NO_STATE) {
        kv_cache_drop_state(s->kv, q->states.begin);
    }
    q->states.begin = state;
    q->states.n_begin = n * KV_PAGE_TOKENS;
}

/* Will o leave a state that q could continue from, further on than q's? */
static bool is_ahead(const struct sched_seq *o, const struct sched_seq *q)
{
    int32_t at = border(o->n_tokens - 1);
    return !o->terms.is_private && o->terms.salt == q->terms.salt && o->n_computed < at && at > q->states.n_begin &&
           at <= border(q->n_tokens - 1) && memcmp(o->tokens, q->tokens, (size_t)at * sizeof *q->tokens) == 0;
}

bool sched_waits_for_state(struct sched *s, struct sched_seq *q)
{
    if (s->cfg.n_states == 0 || q->terms.is_private || q->states.own != KV_NO_STATE) {
        return false;
    }
    for (const struct sched_seq *o = s->running; o != q; o = o->next) {
        if (is_ahead(o, q)) {
            q->wait = SCHED_WAIT_STATE;
            return true;
        }
    }
    sched_begin_state(s, q); /* there can be more states now than at admission */
    return false;
}

bool sched_claim_state(struct sched *s, struct sched_seq *q)
{
    if (s->cfg.n_states != 0 && q->states.own == KV_NO_STATE) {
        q->states.own = kv_cache_take_state(s->kv);
        q->wait = SCHED_WAIT_STATE; /* unless it gets into the batch */
    }
    return s->cfg.n_states == 0 || q->states.own != KV_NO_STATE;
}

void sched_drop_states(struct sched *s, struct sched_seq *q)
{
    if (q->states.own != KV_NO_STATE) {
        kv_cache_drop_state(s->kv, q->states.own);
    }
    if (q->states.begin != KV_NO_STATE) {
        kv_cache_drop_state(s->kv, q->states.begin);
    }
    q->states.own = q->states.begin = KV_NO_STATE;
    q->states.n_begin = q->states.n_kept = q->states.n_true = 0;
}

/* --- states of batches -------------------------------------------------------------------------------------------- */

/* Requests the state after the first `at` tokens of q, whose rows begin at `row`, if they pass that position. */
static void add_copy(struct sched *s, struct sched_batch *b, struct sched_seq *q, int32_t row, int32_t at)
{
    bool passes = at > q->n_computed && at <= q->n_computed + q->rows.n;
    int32_t state = passes ? kv_cache_take_state(s->kv) : KV_NO_STATE;
    if (state != KV_NO_STATE) {
        b->copy_rows[b->n_copies] = row + at - 1 - q->n_computed;
        b->copy_at[b->n_copies] = at;
        b->copy_states[b->n_copies++] = state;
        q->states.n_copies++;
    }
}

/* Keeps the state at a prompt's last boundary, and at the one where its known pages ended: prompts diverge there, and
 * the next one can, too. For generated text keeps only the newest state, which the next turn of a chat continues
 * from. */
void sched_add_copies(struct sched *s, struct sched_batch *b)
{
    b->n_copies = 0;
    for (int32_t i = 0, row = 0; i < b->n_seqs && s->cfg.n_states != 0; row += b->seqs[i++]->rows.n) {
        struct sched_seq *q = b->seqs[i];
        int32_t last = border(q->n_tokens - 1), parting = q->states.n_matched * KV_PAGE_TOKENS;
        q->states.i_copies = b->n_copies;
        q->states.n_copies = 0;
        if (!q->terms.leaves_pages) {
            continue;
        }
        if (q->n_tokens > q->n_prompt && q->n_computed == q->n_tokens - 1) {
            last = parting = border(q->n_tokens);
            if (last > q->n_computed && q->states.n_kept != 0) {
                kv_cache_forget_state(s->kv, q->pages.table[q->states.n_kept / KV_PAGE_TOKENS - 1]);
                q->states.n_kept = 0;
            }
        }
        if (parting < last) {
            add_copy(s, b, q, row, parting);
        }
        add_copy(s, b, q, row, last);
    }
}

void sched_keep_copies(struct sched *s, const struct sched_batch *b, struct sched_seq *q)
{
    if (q->states.begin != KV_NO_STATE) { /* it was read: q now has its own state */
        kv_cache_drop_state(s->kv, q->states.begin);
        q->states.begin = KV_NO_STATE;
    }
    for (int32_t i = q->states.i_copies; i < q->states.i_copies + q->states.n_copies; i++) {
        int32_t at = b->copy_at[i], page = q->pages.table[at / KV_PAGE_TOKENS - 1];
        if (kv_cache_is_filled(s->kv, page) && kv_cache_state(s->kv, page) == KV_NO_STATE) {
            kv_cache_keep_state(s->kv, page, b->copy_states[i]);
            if (at <= q->n_prompt) { /* states of generated text last, because each replaces the one before */
                sched_disk_kept(s, q, at / KV_PAGE_TOKENS - 1);
            }
            q->states.n_kept = at > q->n_prompt ? at : q->states.n_kept;
        }
        kv_cache_drop_state(s->kv, b->copy_states[i]);
    }
    q->states.n_copies = 0;
}

void sched_drop_copies(struct sched *s, struct sched_batch *b)
{
    for (int32_t i = 0; i < b->n_copies; i++) {
        kv_cache_drop_state(s->kv, b->copy_states[i]);
    }
    b->n_copies = 0;
}
