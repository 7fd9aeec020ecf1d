/* The ISAs on trial: those of engine/kernels/isa.c and, behind them, stand-ins. A stand-in is the body of an ISA that
 * few machines have, compiled for instructions that more of them have, so that its kernels are run wherever checkkern
 * is. What it lacks comes from its base. */
#include "tests/kernels/checkkern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct stand_in {
    const char *name, *base; /* base: also what the CPU must have, with `needs` */
    const char *needs;
    void (*init)(struct kern_table *t);
    const char *what; /* it is */
} stand_ins[] = {
#if defined(__x86_64__)
    {"avxvnni-evex", "avx2", "avx512", check_init_avxvnni_evex, "avxvnni's kernels with AVX-512VL's vpdpbusd"},
#endif
};

static int n_real(void)
{
    int n = 0;
    while (kern_isa_name(n) != NULL) {
        n++;
    }
    return n;
}

static const struct stand_in *stand_in_at(int i)
{
    i -= n_real();
    return i >= 0 && i < (int)ARRAY_LEN(stand_ins) ? &stand_ins[i] : NULL;
}

static bool has_isa(const char *name)
{
    for (int i = 0; kern_isa_name(i) != NULL; i++) {
        if (strcmp(kern_isa_name(i), name) == 0) {
            return kern_isa_is_there(i);
        }
    }
    return false;
}

const char *check_isa_name(int i)
{
    const struct stand_in *s = stand_in_at(i);
    return s != NULL ? s->name : kern_isa_name(i);
}

bool check_isa_is_there(int i)
{
    const struct stand_in *s = stand_in_at(i);
    return s != NULL ? has_isa(s->base) && has_isa(s->needs) : kern_isa_is_there(i);
}

void check_isa_select(const char *name, struct kern_table *out)
{
    const struct stand_in *s = NULL;
    for (int i = n_real(); s == NULL && stand_in_at(i) != NULL; i++) {
        s = strcmp(stand_in_at(i)->name, name) == 0 ? stand_in_at(i) : NULL;
    }
    struct err_info info = {0};
    if (kern_select(s != NULL ? s->base : name, out, &info) != ERR_OK) {
        fprintf(stderr, "checkkern: %s\n", info.text);
        exit(2);
    }
    if (s != NULL) {
        out->isa = s->name;
        s->init(out);
    }
}

void check_isa_list(void)
{
    for (int i = 0; check_isa_name(i) != NULL; i++) {
        const struct stand_in *s = stand_in_at(i);
        printf("isa    %-13s %s%s%s\n", check_isa_name(i), s != NULL ? "for tests only: " : "",
               s != NULL ? s->what : "", check_isa_is_there(i) ? "" : " (not on this CPU)");
    }
}
