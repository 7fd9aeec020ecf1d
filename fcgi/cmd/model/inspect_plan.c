#include "fcgi/cmd/model/inspect.h"

#include "engine/model/model.h"
#include "engine/plan/plan_ops.h"
#include "fcgi/cmd/escape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The cost per token. */
struct sums {
    double bytes, operations;
};

static void print_buf(const struct plan *p, const struct plan_step *s, const struct plan_operand *o, plan_buf_id id)
{
    int uses = plan_uses(s, id);
    const char *how = (uses & PLAN_READS) == 0 ? "->" : "<>";
    how = (uses & PLAN_WRITES) == 0 ? "<-" : how;
    printf("  %s %s %s[%" PRIu32 "]", o->name, how, p->bufs[id].name, p->bufs[id].width);
    if ((o->flags & PLAN_STREAMS) != 0) {
        printf(" and %" PRIu32 " after it", s->streams.n - 1);
    }
}

static void print_weight(const struct plan *p, const struct plan_operand *o, plan_weight_id id, struct sums *sums)
{
    const struct plan_weight *w = &p->weights[id];
    uint64_t row_bytes = 0;
    printf("  %s ", o->name);
    escape_print(stdout, w->name, strlen(w->name));
    printf(" %s [%" PRIu32 ", %" PRIu32 "]", dtype_info(w->type)->name, w->n_in, w->n_out);
    if ((o->flags & PLAN_MULTIPLIES) != 0 && dtype_row_bytes(w->type, w->n_in, &row_bytes)) {
        double rows = plan_weight_share(p, o) * w->n_out;
        sums->bytes += rows * (double)row_bytes;
        sums->operations += 2 * rows * w->n_in;
    }
}

static void print_step(const struct plan *p, int32_t i, struct sums *sums)
{
    static const char *const splits[] = {"rows", "columns", "heads", "channels", "experts"};
    const struct plan_step *s = &p->steps[i];
    const struct plan_operand *o;
    int32_t id;
    printf("%4" PRId32, i);
    if (s->layer != PLAN_NONE) {
        printf("  layer %-3" PRId32, s->layer);
    } else {
        fputs("  layer -  ", stdout);
    }
    printf("  %-11s  by %-8s", plan_op_name(s->op), splits[plan_ops[s->op].split]);
    for (int k = 0; (o = plan_next_operand(s, &k, &id)) != NULL;) {
        if (plan_is_buf(o)) {
            print_buf(p, s, o, id);
        } else {
            print_weight(p, o, id, sums);
        }
    }
    uint64_t state = plan_state_floats(p, s);
    if (state != 0) {
        printf("  state %" PRIu64, state);
    }
    putchar('\n');
}

enum err inspect_plan(const struct gguf *g, struct err_info *info)
{
    struct plan *p;
    struct sums sums = {0}, of_head = {0};
    TRY(model_build_predicting(g, 0, &p, info));
    for (int32_t i = 0; i < p->n_steps; i++) {
        if (plan_predicts(p) && i == p->i_predict) {
            puts("the prediction head, for a token and the output of the one before it:");
        }
        print_step(p, i, i < plan_main_steps(p) ? &sums : &of_head);
    }
    printf("a token: %.0f bytes of matrices, %.0f operations with them; a sequence: %" PRIu64 " floats of state\n",
           sums.bytes, sums.operations, p->recurrent_floats);
    if (plan_predicts(p)) {
        printf("a guess: %.0f bytes of matrices, %.0f operations with them\n", of_head.bytes, of_head.operations);
    }
    plan_free(&p);
    return ERR_OK;
}
