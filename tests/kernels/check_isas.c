/* The ISAs on trial: those of engine/kernels/isa.c and then stand-ins. A stand-in is the body of an ISA that few
 * machines have, compiled for a more common one, so that its kernels run wherever checkkern does. Its other kernels
 * come from its base, and only its own matrix products run. */
#include "tests/kernels/checkkern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct stand_in {
    const char *name, *base;
    const char *needs; /* required of the CPU, in addition to base */
    void (*init)(struct kern_table *t);
    const char *(*fault)(void); /* OPTIONAL: returns a fault that results need not show, or NULL */
    const char *what;           /* description */
} stand_ins[] = {
#if defined(__x86_64__)
    {"avxvnni-evex", "avx2", "avx512", check_init_avxvnni_evex, NULL, "avxvnni's kernels with AVX-512VL's vpdpbusd"},
    {"amx-emulated", "avx512", "avx512", check_init_amx_emulated, check_amx_fault,
     "amx's kernels with tile instructions in C, shapes and palette checked as the manual says"},
#endif
    {.name = NULL},
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
    return i >= 0 && i < (int)ARRAY_LEN(stand_ins) - 1 ? &stand_ins[i] : NULL;
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

static bool is_there(int i)
{
    const struct stand_in *s = stand_in_at(i);
    return s != NULL ? has_isa(s->base) && has_isa(s->needs) : kern_isa_is_there(i);
}

bool check_isa_has(int i, const char *op)
{
    const struct stand_in *s = stand_in_at(i);
    if (!is_there(i) || s == NULL) {
        return is_there(i);
    }
    struct kern_table base, t;
    check_isa_select(s->base, &base);
    check_isa_select(s->name, &t);
    for (int kind = 0; strncmp(op, "matmul_", 7) == 0 && kind < PANEL_KIND_COUNT; kind++) {
        if (strcmp(op + 7, panel_info((enum panel_kind)kind)->name) == 0) {
            return t.matmul[kind] != base.matmul[kind];
        }
    }
    return false;
}

static const struct stand_in *find_stand_in(const char *name)
{
    for (int i = n_real(); stand_in_at(i) != NULL; i++) {
        if (strcmp(stand_in_at(i)->name, name) == 0) {
            return stand_in_at(i);
        }
    }
    return NULL;
}

const char *check_isa_fault(const char *name)
{
    const struct stand_in *s = find_stand_in(name);
    return s != NULL && s->fault != NULL ? s->fault() : NULL;
}

void check_isa_select(const char *name, struct kern_table *out)
{
    const struct stand_in *s = find_stand_in(name);
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
               s != NULL ? s->what : "", is_there(i) ? "" : " (not on this CPU)");
    }
}
