/* Which family is nearest to a folder of an unknown one, for messages: the one that knows most names of the layers'
 * tensors. */
#include "engine/hf/hf_internal.h"

#include <stdio.h>
#include <string.h>

/* Different names of tensors of text layers, of which a number is *. Further ones than MAX_KINDS are not noted. */
enum { MAX_KINDS = 128, SHOWN_KINDS = 3, SHOWN_BYTES = 128 };
struct kinds {
    const struct st_tensor *t[MAX_KINDS]; /* one of each */
    int n;
};

/* What separates the folder from a family. */
struct distance {
    struct kinds unread;
    int n_alike; /* first letters of its class that are those of the folder's: models of one maker resemble each other */
    int n_unused; /* rows of the family's own table for which the folder has nothing */
};

/* Writes the name with each number between dots as *. */
static void write_kind(const char *name, char out[SAFETENSORS_MAX_NAME_BYTES + 1])
{
    while (*name != '\0') {
        size_t part = strcspn(name, ".");
        bool is_number = part > 0 && strspn(name, "0123456789") == part;
        memcpy(out, is_number ? "*" : name, is_number ? 1 : part);
        out += is_number ? 1 : part;
        name += part;
        if (*name == '.') {
            *out++ = *name++;
        }
    }
    *out = '\0';
}

static bool is_of_text_layer(const char *name)
{
    return strstr(name, "layers.") != NULL && strstr(name, "vision") == NULL && strstr(name, "visual") == NULL &&
           strstr(name, "audio") == NULL;
}

/* Tensors of one kind mostly follow each other's order, so the search begins at the last one found. */
static void add_kind(struct kinds *k, const struct st_tensor *t)
{
    char kind[SAFETENSORS_MAX_NAME_BYTES + 1], other[SAFETENSORS_MAX_NAME_BYTES + 1];
    write_kind(t->name, kind);
    for (int i = k->n - 1; i >= 0; i--) {
        write_kind(k->t[i]->name, other);
        if (strcmp(kind, other) == 0) {
            return;
        }
    }
    if (k->n < MAX_KINDS) {
        k->t[k->n++] = t;
    }
}

static int count_rows(const struct hf_name *table)
{
    int n = 0;
    while (table != NULL && table[n].hf != NULL) {
        n++;
    }
    return n;
}

/* Returns how many letters the classes of the folder and of h->family begin with alike. */
static int count_alike(const struct hf *h)
{
    const char *found = json_string_value(json_array_get(json_object_get(h->root, "architectures"), 0));
    int n, most = 0;
    for (const char *const *a = h->family->architectures; found != NULL && *a != NULL; a++) {
        for (n = 0; found[n] != '\0' && found[n] == (*a)[n];) {
            n++;
        }
        most = n > most ? n : most;
    }
    return most;
}

/* Measures the distance of h->family. */
static void measure(const struct hf *h, const struct kinds *all, hf_look_up_fn *look_up, struct distance *d)
{
    bool is_used[MAX_KINDS] = {false};
    const struct hf_name *own = h->family->names;
    int n_own = count_rows(own);
    *d = (struct distance){.n_unused = n_own, .n_alike = count_alike(h)};
    for (int i = 0; i < all->n; i++) {
        const struct hf_name *row = look_up(h, all->t[i]);
        if (row == NULL) {
            d->unread.t[d->unread.n++] = all->t[i];
        } else if (own != NULL && row >= own && row < own + MIN_OF(n_own, (int)MAX_KINDS) && !is_used[row - own]) {
            is_used[row - own] = true;
            d->n_unused--;
        }
    }
}

static bool is_nearer(const struct distance *a, const struct distance *b)
{
    if (a->unread.n != b->unread.n) {
        return a->unread.n < b->unread.n;
    }
    return a->n_alike != b->n_alike ? a->n_alike > b->n_alike : a->n_unused < b->n_unused;
}

static void append(char out[HF_NEAREST_BYTES], const char *text)
{
    size_t n = strlen(out);
    snprintf(out + n, HF_NEAREST_BYTES - n, "%.*s", SHOWN_BYTES, text);
}

static void write_text(const struct hf *h, const struct distance *d, char out[HF_NEAREST_BYTES])
{
    char kind[SAFETENSORS_MAX_NAME_BYTES + 1], more[32] = "";
    append(out, h->family->architectures[0]);
    for (int i = 0; i < MIN_OF(d->unread.n, (int)SHOWN_KINDS); i++) {
        write_kind(d->unread.t[i]->name, kind);
        append(out, i == 0 ? ", which does not read " : ", ");
        append(out, kind);
    }
    if (d->unread.n > SHOWN_KINDS) {
        snprintf(more, sizeof more, " and %d more", d->unread.n - SHOWN_KINDS);
    }
    append(out, more);
}

void hf_nearest(struct hf *h, const struct hf_family *const *families, hf_look_up_fn *look_up,
                char out[HF_NEAREST_BYTES])
{
    struct kinds all = {.n = 0};
    struct distance d, nearest = {.n_unused = 0};
    const struct hf_family *best = NULL;
    out[0] = '\0';
    for (size_t i = 0; i < safetensors_folder_n_tensors(h->tensors); i++) {
        const struct st_tensor *t = safetensors_folder_at(h->tensors, i);
        if (is_of_text_layer(t->name)) {
            add_kind(&all, t);
        }
    }
    for (; *families != NULL; families++) {
        h->family = *families;
        h->has_head = h->family->predicts;
        measure(h, &all, look_up, &d);
        if (best == NULL || is_nearer(&d, &nearest)) {
            best = h->family;
            nearest = d;
        }
    }
    h->family = best;
    if (best != NULL && nearest.unread.n < all.n - nearest.unread.n) {
        write_text(h, &nearest, out);
    }
}
