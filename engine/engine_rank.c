/* Ranking: query and document form one sequence, and the state of one of its rows becomes a score. */
#include "engine/engine_internal.h"

#include <string.h>

enum err engine_check_ranks(const struct engine *e, struct err_info *info)
{
    return e->info.ranks
               ? ERR_OK
               : err_set(info, ERR_UNSUPPORTED_ENDPOINT, "model",
                         "the model is no reranker: expected one with the tensor cls.output.weight (pooling rank), "
                         "such as BGE reranker or Qwen3-Reranker");
}

float engine_rank_number(const struct engine *e, const float *states, double *room)
{
    const double *score = engine_head_run(e->head, states, room);
    bool is_yes_or_no = plan_head_width(&e->plan->ranker.head, 0) == 2;
    return (float)(is_yes_or_no ? score[0] - score[1] : score[0]);
}

/* --- pairs -------------------------------------------------------------------------------------------------------- */

/* Wraps both as the vocabulary wraps a single text. If two separators separate a pair (RoBERTa and similar), the second
 * text's first token becomes the other separator; else it is dropped. [transformers 5, build_inputs_with_special_tokens
 * of BertTokenizer and XLMRobertaTokenizer] */
static enum err join_wrapped(const struct engine *e, struct engine_query *query, const struct engine_text *document,
                             struct arena *arena, int32_t **ids, size_t *n_ids, struct err_info *info)
{
    int32_t *second;
    size_t n_second;
    struct gguf_str model = {0};
    if (query->ids == NULL) {
        TRY(engine_tokenize(e, query->text.text, query->text.n, true, false, NULL, 0, arena, &query->ids, &query->n_ids,
                            info));
    }
    const int32_t *first = query->ids;
    size_t n_first = query->n_ids;
    TRY(engine_tokenize(e, document->text, document->n, true, false, NULL, 0, arena, &second, &n_second, info));
    TRY(gguf_get_str(e->gguf, "tokenizer.ggml.model", &model, info));
    bool is_wrapped = tokenizer_adds_bos(e->tokenizer) && n_first > 0 && n_second > 0;
    bool is_single = e->plan->ranker.has_one_separator || gguf_str_is(model, "bert");
    if (is_wrapped && is_single) {
        second++;
        n_second--;
    } else if (is_wrapped) {
        second[0] = first[n_first - 1];
    }
    int32_t shift = e->plan->ranker.n_segments == 2 ? (int32_t)e->info.n_vocab : 0;
    *ids = arena_alloc(arena, (n_first + n_second + 1) * sizeof **ids);
    TRY_MEM_FOR(*ids != NULL, info, "out of memory for the tokens");
    memcpy(*ids, first, n_first * sizeof **ids);
    for (size_t i = 0; i < n_second; i++) {
        (*ids)[n_first + i] = second[i] + shift;
    }
    *n_ids = n_first + n_second;
    return ERR_OK;
}

/* Returns what is at `at` in a template: 0 for text, else the number of the text to insert. */
static int slot_at(const struct gguf_str *t, size_t at, size_t *n)
{
    static const char *const slots[] = {"{query}", "{document}"};
    for (int i = 0; i < (int)ARRAY_LEN(slots); i++) {
        *n = strlen(slots[i]);
        if (t->len - at >= *n && memcmp(t->data + at, slots[i], *n) == 0) {
            return i + 1;
        }
    }
    *n = 1;
    return 0;
}

enum { MAX_SLOTS = 16 };

/* Inserts the texts and records their spans: no special tokens are looked for there. */
static enum err fill(const struct gguf_str *t, const struct engine_text *const texts[2], struct buf *out,
                     struct span plain[MAX_SLOTS], size_t *n_plain)
{
    size_t step;
    *n_plain = 0;
    for (size_t at = 0; at < t->len; at += step) {
        int slot = slot_at(t, at, &step);
        if (slot == 0 || *n_plain == MAX_SLOTS) {
            buf_append(out, t->data + at, step);
            continue;
        }
        const struct engine_text *text = texts[slot - 1];
        plain[(*n_plain)++] = (struct span){out->len, out->len + text->n};
        buf_append(out, text->text, text->n);
    }
    return buf_ok(out);
}

enum err engine_tokenize_pair(const struct engine *e, struct engine_query *query, const struct engine_text *document,
                              struct arena *arena, int32_t **ids, size_t *n_ids, struct err_info *info)
{
    static const char key[] = "tokenizer.chat_template.rerank", bare[] = "{query}{document}";
    if (e->plan->is_bidirectional) {
        return join_wrapped(e, query, document, arena, ids, n_ids, info);
    }
    const struct engine_text *const texts[] = {&query->text, document};
    struct gguf_str template = {bare, sizeof bare - 1};
    struct span plain[MAX_SLOTS];
    size_t n_plain;
    struct buf text;
    if (gguf_find(e->gguf, key) != NULL) {
        TRY(gguf_get_str(e->gguf, key, &template, info));
    }
    buf_init(&text, 0, MEM_REQUEST);
    enum err err = fill(&template, texts, &text, plain, &n_plain);
    err = err != ERR_OK ? err_set(info, err, NULL, "out of memory for the pair") : err;
    if (err == ERR_OK) {
        err = engine_tokenize(e, text.data != NULL ? text.data : "", text.len, false, true, plain, n_plain, arena, ids,
                              n_ids, info);
    }
    buf_fini(&text);
    return err;
}
