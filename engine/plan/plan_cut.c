#include "engine/plan/plan_cut.h"

#include "engine/plan/plan_ops.h"

/* Returns the first step of a layer. */
static int32_t find_step(const struct plan *p, int32_t layer)
{
    int32_t i = 0;
    while (i < p->n_steps && p->steps[i].layer != layer) {
        i++;
    }
    return i;
}

/* Copies keys and values of the part's layers only. */
static enum err cut_kvs(struct plan *part, const struct plan *p, int32_t first, int32_t last, struct err_info *info)
{
    part->kvs = arena_alloc(&part->arena, p->n_layers * sizeof *part->kvs);
    TRY_MEM(part->kvs != NULL);
    for (int32_t i = 0; i < (int32_t)p->n_layers; i++) {
        struct plan_kv kv = plan_kv_of(p, i);
        bool is_here = i >= first && i <= last;
        if (is_here && kv.layer != PLAN_NONE && kv.layer < first) {
            return err_set(info, ERR_CONFIG, "backend",
                           "backend: expected layer %d in one part with layer %d, which reads its keys and values; "
                           "found a part of layers %d-%d",
                           (int)kv.layer, (int)i, (int)first, (int)last);
        }
        kv.layer = is_here ? kv.layer : PLAN_NONE;
        part->kvs[i] = kv;
    }
    return ERR_OK;
}

/* Returns whether the model's steps from `at` on read the buffer before they write it. */
static bool is_read(const struct plan *p, int32_t at, plan_buf_id buf)
{
    for (int32_t i = at; i < plan_main_steps(p); i++) {
        int uses = p->steps[i].feeds_head ? 0 : plan_uses(&p->steps[i], buf);
        if (uses != 0) {
            return (uses & PLAN_READS) != 0;
        }
    }
    return false;
}

/* Adds a step for each buffer that is live before step `at` of p; *width is their total width. */
static enum err add_edge(struct plan *part, const struct plan *p, int32_t at, bool is_output, uint32_t *width)
{
    *width = 0;
    for (plan_buf_id buf = 0; buf < p->n_bufs; buf++) {
        if (is_read(p, at, buf)) {
            struct plan_step s = plan_edge_of(is_output, buf, *width);
            *width += p->bufs[buf].width; /* bounded by PLAN_MAX_BUFS buffers of PLAN_MAX_WIDTH */
            TRY(plan_add_step(part, &s));
        }
    }
    return ERR_OK;
}

/* Adds steps [from, to) of p with their weights. names: [n_weights] of p. */
static enum err add_steps(struct plan *part, const struct plan *p, int32_t from, int32_t to, plan_weight_id *names)
{
    const struct plan_operand *o;
    int32_t id;
    for (int32_t i = 0; i < p->n_weights; i++) {
        names[i] = PLAN_NONE;
    }
    for (int32_t i = from; i < to; i++) {
        struct plan_step s = p->steps[i];
        if (s.feeds_head) {
            continue;
        }
        for (int k = 0; (o = plan_next_operand(&s, &k, &id)) != NULL;) {
            if (plan_is_buf(o)) {
                continue;
            }
            if (names[id] == PLAN_NONE) {
                TRY(plan_add_weight(part, p->weights[id].name, p->weights[id].source, &names[id]));
            }
            *plan_operand_id(&s, o) = names[id];
        }
        TRY(plan_add_step(part, &s));
    }
    return ERR_OK;
}

static enum err fill(struct plan *part, const struct plan *p, int32_t first, int32_t last, struct err_info *info)
{
    bool is_last = last + 1 == (int32_t)plan_main_layers(p);
    int32_t from = first == 0 ? 0 : find_step(p, first);
    int32_t to = is_last ? plan_main_steps(p) : find_step(p, last + 1);
    struct arena arena = part->arena;
    *part = *p;
    part->arena = arena;
    part->weights = NULL;
    part->steps = NULL;
    part->n_weights = part->n_steps = 0;
    part->cap_weights = part->cap_steps = 0;
    part->has_logits = part->has_hidden = false;
    part->input_width = part->output_width = 0;
    part->i_predict = 0;
    part->guess_ids = NULL;
    part->n_guess_ids = 0;
    TRY(cut_kvs(part, p, first, last, info));
    plan_weight_id *names = arena_alloc(&part->arena, (size_t)p->n_weights * sizeof *names);
    TRY_MEM(names != NULL);
    TRY(first != 0 ? add_edge(part, p, from, false, &part->input_width) : ERR_OK);
    TRY(add_steps(part, p, from, to, names));
    TRY(!is_last ? add_edge(part, p, to, true, &part->output_width) : ERR_OK);
    return plan_check(part, info);
}

enum err plan_cut(const struct plan *p, int32_t first, int32_t last, struct plan **out, struct err_info *info)
{
    enum err err = plan_new(out);
    err = err == ERR_OK ? fill(*out, p, first, last, info) : err;
    if (err == ERR_NOMEM) {
        err_set(info, ERR_NOMEM, NULL, "out of memory for the plan of layers %d-%d", (int)first, (int)last);
    }
    if (err != ERR_OK) {
        plan_free(out);
    }
    return err;
}
