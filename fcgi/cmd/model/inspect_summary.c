#include "fcgi/cmd/model/inspect.h"

#include "engine/backend/backend.h"
#include "engine/base/io.h"
#include "engine/chat/chat_named.h"
#include "engine/engine.h"
#include "engine/model/model.h"
#include "engine/plan/plan_ops.h"
#include "engine/quant/quant.h"
#include "engine/tensor/dtype.h"
#include "fcgi/cmd/escape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    ARCH_BYTES = 64,      /* longer architecture names match no keys */
    SHOWN_TEMPLATE = 100, /* shown part of its first line */
    SHOWN_LAYERS = 8,
};

/* Values looked up once. */
struct subject {
    const struct gguf *g;
    const char *path, *cpu;
    struct gguf_str arch; /* {NULL, 0}: none */
    struct plan *plan;    /* NULL: the model cannot run */
};

static void print_label(const char *label) { printf("%-16s", label); }

static void print_string_row(const struct subject *s, const char *label, const char *key)
{
    struct gguf_str text;
    print_label(label);
    if (gguf_get_str_or_null(s->g, key, &text, NULL) != ERR_OK) {
        fputs("(not a string)", stdout);
    } else if (text.data == NULL) {
        putchar('-');
    } else {
        escape_print_quoted(text.data, text.len);
    }
    putchar('\n');
}

/* "<arch>.<key>". */
static const char *arch_key(const struct subject *s, const char *key, char room[ARCH_BYTES + 64])
{
    int n = s->arch.len < ARCH_BYTES ? (int)s->arch.len : 0;
    snprintf(room, ARCH_BYTES + 64, "%.*s.%s", n, n > 0 ? s->arch.data : "", key);
    return room;
}

/* Prints the value of ARCH.key, or "-", or a value of another form: some families have one number per layer. */
static void print_arch_row(const struct subject *s, const char *label, const char *key)
{
    char full[ARCH_BYTES + 64];
    const struct gguf_kv *kv = gguf_find(s->g, arch_key(s, key, full));
    uint64_t v;
    print_label(label);
    if (kv == NULL) {
        puts("-");
    } else if (kv->type == GGUF_ARRAY) {
        printf("%" PRIu64 " values, one a layer\n", kv->n);
    } else if (gguf_get_u64(s->g, full, &v, NULL) == ERR_OK) {
        printf("%" PRIu64 "\n", v);
    } else {
        puts("(not a count)");
    }
}

/* --- what it is --------------------------------------------------------------------------------------------------- */

static void print_file(const struct subject *s)
{
    print_label("file");
    escape_print(stdout, s->path, strlen(s->path));
    putchar('\n');
    print_label("format");
    if (io_is_folder(s->path)) {
        printf("SafeTensors folder, %zu keys as GGUF has them\n", gguf_n_kv(s->g));
    } else {
        printf("GGUF version %" PRIu32 ", alignment %" PRIu64 ", %zu keys", gguf_version(s->g), gguf_alignment(s->g),
               gguf_n_kv(s->g));
        printf(gguf_n_files(s->g) > 1 ? ", in %zu files\n" : "\n", gguf_n_files(s->g));
    }
}

/* Prints the file's name field; for a folder without one the folder's name, as the API does. */
static void print_name(const struct subject *s)
{
    size_t n;
    const char *base = io_base_name(s->path, &n);
    if (gguf_find(s->g, "general.name") != NULL || !io_is_folder(s->path)) {
        print_string_row(s, "name", "general.name");
        return;
    }
    print_label("name");
    escape_print_quoted(base, n);
    putchar('\n');
}

static void print_family(const struct subject *s)
{
    char nearest[MODEL_NEAREST_BYTES];
    const struct model_family *f = NULL;
    for (int i = 0; (f = model_family_at(i)) != NULL; i++) {
        if (gguf_str_is(s->arch, f->arch)) {
            break;
        }
    }
    print_label("family");
    if (f != NULL) {
        printf("%s: %s\n", f->arch, f->members);
    } else if (model_head_of(s->g) != NULL) {
        printf("none: the prediction head (%s) of a model, for --draft-model\n", model_head_of(s->g)->members);
    } else {
        model_nearest(s->g, nearest);
        fputs(nearest[0] != '\0' ? "not known; the nearest is " : "not known", stdout);
        escape_print(stdout, nearest, strlen(nearest));
        putchar('\n');
    }
}

static uint64_t n_elements(const struct gguf_tensor *t) { return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3]; }

static void print_size(const struct subject *s)
{
    uint64_t n = 0, bytes = gguf_file_bytes(s->g);
    for (size_t i = 0; i < gguf_n_tensors(s->g); i++) {
        n += n_elements(gguf_tensor_at(s->g, i));
        bytes += gguf_file_bytes(s->g) == 0 ? gguf_tensor_at(s->g, i)->bytes : 0;
    }
    printf("%-16s%" PRIu64 " (%.1f M)\n", "parameters", n, (double)n / 1e6);
    printf("%-16s%" PRIu64 " bytes (%.1f MB)\n", "size", bytes, (double)bytes / 1e6);
}

/* Returns the first table of RoPE that a step rotates heads by; NULL: none does. */
static const struct plan_rope *find_rope(const struct plan *p)
{
    int32_t first = INT32_MAX;
    for (int32_t i = 0; p != NULL && i < p->n_steps; i++) {
        const struct plan_step *step = &p->steps[i];
        int32_t at = plan_ops[step->op].rope != 0 ? step->heads.rope : PLAN_NONE;
        first = at != PLAN_NONE && p->ropes[at].n_rot != 0 ? MIN_OF(first, at) : first;
    }
    return first != INT32_MAX ? &p->ropes[first] : NULL;
}

static void print_rope(const struct subject *s)
{
    char key[ARCH_BYTES + 64];
    double base;
    struct gguf_str type = {0};
    const struct plan_rope *r = find_rope(s->plan);
    print_label("rope");
    if (r == NULL) {
        puts("-");
        return;
    }
    printf("%" PRIu32 " of %" PRIu32 " components, %s pairs", r->n_rot, s->plan->head_dim,
           r->is_neox ? "half-split" : "interleaved");
    if (gguf_get_f64_or(s->g, arch_key(s, "rope.freq_base", key), 10000, &base, NULL) == ERR_OK) {
        printf(", base %g", base);
    }
    if (gguf_get_str_or_null(s->g, arch_key(s, "rope.scaling.type", key), &type, NULL) == ERR_OK && type.len > 0) {
        fputs(", scaling ", stdout);
        escape_print_quoted(type.data, type.len);
    } else if (gguf_find_tensor(s->g, "rope_freqs.weight") != NULL) {
        fputs(", scaling by factors in rope_freqs.weight", stdout);
    }
    putchar('\n');
}

/* Prints the layers of the model whose inputs a head reads. */
static void print_layers_read(const struct subject *s)
{
    char key[ARCH_BYTES + 64];
    const struct gguf_kv *kv = gguf_find(s->g, arch_key(s, "target_layers", key));
    bool is_list = kv != NULL && kv->type == GGUF_ARRAY && (kv->elem_type == GGUF_I32 || kv->elem_type == GGUF_U32);
    print_label("reads layers");
    for (uint64_t i = 0; is_list && i < MIN_OF(kv->n, (uint64_t)SHOWN_LAYERS); i++) {
        printf("%s%" PRId64, i > 0 ? ", " : "", gguf_elem_i64(kv, i));
    }
    puts(is_list && kv->n > 0 ? "" : "-");
}

static void print_shapes(const struct subject *s)
{
    char key[ARCH_BYTES + 64];
    print_arch_row(s, "context length", "context_length");
    print_arch_row(s, "layers", "block_count");
    if (s->plan != NULL && plan_predicts(s->plan)) {
        printf("%-16s1 of these layers guesses tokens for drafts\n", "prediction head");
    }
    if (model_head_of(s->g) != NULL) {
        bool is_eagle = gguf_str_is(s->arch, "eagle3");
        print_arch_row(s, "model's width", is_eagle ? "target_hidden_size" : "embedding_length_out");
    }
    if (gguf_find(s->g, arch_key(s, "target_layers", key)) != NULL) {
        print_layers_read(s);
    }
    print_arch_row(s, "embedding", "embedding_length");
    print_arch_row(s, "feed-forward", "feed_forward_length");
    print_arch_row(s, "heads", "attention.head_count");
    print_arch_row(s, "kv heads", "attention.head_count_kv");
    if (s->plan != NULL && s->plan->head_dim != 0) {
        uint32_t d = s->plan->head_dim, d_value = s->plan->latent_dim != 0 ? d : plan_value_dim(s->plan);
        printf("%-16s%" PRIu32, "head size", d);
        printf(d_value != d ? ", values %" PRIu32 "\n" : "\n", d_value);
    }
    if (s->plan != NULL && s->plan->moe.n_experts != 0) {
        printf("%-16s%" PRIu32 ", %" PRIu32 " for each token\n", "experts", s->plan->moe.n_experts,
               s->plan->moe.n_used);
    }
    print_rope(s);
}

/* Prints the vocabulary size from the token list, because the hyperparameter is only a hint and often missing. */
static void print_vocab(const struct subject *s)
{
    const struct gguf_kv *tokens = NULL;
    print_label("vocabulary");
    if (gguf_get_array(s->g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, NULL) == ERR_OK) {
        printf("%" PRIu64 "\n", tokens->n);
    } else {
        puts("-");
    }
    print_string_row(s, "tokenizer", "tokenizer.ggml.model");
    print_string_row(s, "pre-tokenizer", "tokenizer.ggml.pre");
}

/* Prints the chat format used for a file without a template. */
static void print_family_template(const struct gguf *g)
{
    struct gguf_str s;
    const struct chat_named *row = NULL;
    if (gguf_get_str_or_null(g, "general.architecture", &s, NULL) == ERR_OK && s.data != NULL) {
        char family[64];
        snprintf(family, sizeof family, "%.*s", (int)MIN_OF(s.len, (size_t)sizeof family - 1), s.data);
        row = chat_named_of_family(family);
    }
    if (row != NULL) {
        printf("no; its family has one format: %s\n", chat_named_name(row));
    } else {
        puts("no; chat needs --chat-template");
    }
}

static void print_template(const struct subject *s)
{
    struct gguf_str text;
    print_label("chat template");
    if (gguf_get_str_or_null(s->g, "tokenizer.chat_template", &text, NULL) != ERR_OK) {
        puts("(not a string)");
    } else if (text.data == NULL) {
        print_family_template(s->g);
    } else {
        const char *end = text.len > 0 ? memchr(text.data, '\n', text.len) : NULL;
        size_t line = end != NULL ? (size_t)(end - text.data) : text.len;
        printf("yes, %zu bytes: ", text.len);
        escape_print_quoted(text.data, MIN_OF(line, (size_t)SHOWN_TEMPLATE));
        puts(line < text.len || line > SHOWN_TEMPLATE ? " ..." : "");
    }
}

/* --- what it takes ------------------------------------------------------------------------------------------------ */

static void print_tensor_types(const struct subject *s)
{
    uint64_t count[DTYPE_COUNT] = {0}, bytes[DTYPE_COUNT] = {0}, all = 0;
    for (size_t i = 0; i < gguf_n_tensors(s->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(s->g, i);
        count[t->type]++;
        bytes[t->type] += t->bytes;
        all += t->bytes;
    }
    printf("%-16s%zu, %" PRIu64 " bytes\n", "tensors", gguf_n_tensors(s->g), all);
    printf("  %-14s%-9s%-15s%-9s%s\n", "type", "tensors", "bytes", "share", "packed as");
    for (uint32_t type = 0; type < DTYPE_COUNT; type++) {
        const struct quant_ops *ops = quant_ops((enum dtype)type);
        if (count[type] > 0) {
            printf("  %-14s%-9" PRIu64 "%-15" PRIu64 "%4.1f %%   %s\n", dtype_info(type)->name, count[type],
                   bytes[type], 100 * (double)bytes[type] / (double)all,
                   ops != NULL ? panel_info(ops->panel)->name : "cannot be run");
        }
    }
}

/* Prints the KV cache bytes per token, for each possible type. */
static void print_cache_row(const struct subject *s)
{
    const char *before = "";
    print_label("kv cache");
    const char *type;
    for (int i = 0; s->plan != NULL && (type = backend_cpu.kv_type_name(i)) != NULL; i++) {
        struct backend_config cfg = {.n_threads = 1, .n_pages = 1, .k_type = type, .v_type = type};
        struct backend_measure m;
        struct err_info ignored;
        if (backend_cpu.measure(s->plan, &cfg, &m, &ignored) == ERR_OK && strcmp(m.k_type, type) == 0 &&
            backend_bytes_all(&m).page != 0) {
            printf("%s%s %zu", before, type, backend_bytes_all(&m).page / KV_PAGE_TOKENS);
            before = ", ";
        }
    }
    puts(*before != '\0' ? " bytes a token" : "-");
}

/* Prints the memory that `infcgi serve` needs without options. */
static void print_memory(const struct subject *s)
{
    struct engine_config cfg = {.model_path = s->path, .cpu = s->cpu};
    struct engine_memory m;
    struct err_info info = {0};
    if (engine_measure(&cfg, &m, &info) != ERR_OK) {
        printf("%-16s-\n%-16s-\n", "memory", "kernels");
        if (s->plan != NULL) { /* else the reason was printed above */
            printf("%-16s%s: %s\n", "cannot be run", err_code(info.code), info.text);
        }
        return;
    }
    printf("%-16s%.1f MB: %.1f packed weights, %.1f KV cache of %" PRIu64 " tokens", "memory",
           (double)(m.weight_bytes + m.kv_bytes + m.activation_bytes) / 1e6, (double)m.weight_bytes / 1e6,
           (double)m.kv_bytes / 1e6, m.kv_tokens);
    if (m.window_tokens != 0 && m.window_tokens < m.kv_tokens) {
        printf(" (%" PRIu64 " in layers with a window)", m.window_tokens);
    }
    printf(", %.1f activations\n", (double)m.activation_bytes / 1e6);
    printf("%-16s%" PRIu32 " tokens, %d threads", "serves", m.n_ctx, m.n_threads);
    if (m.seq_tokens < m.n_ctx) {
        printf("; a sequence holds the %" PRIu64 " of its windows and a batch", m.seq_tokens);
    }
    putchar('\n');
    printf("%-16scpu %s, %s\n", "kernels", m.kernels,
           strcmp(s->cpu, "auto") != 0 ? "as asked for" : "the best this CPU can run");
}

void inspect_summary(const struct gguf *g, const char *path, const char *cpu)
{
    struct subject s = {.g = g, .path = path, .cpu = cpu};
    struct err_info info = {.offset = ERR_NO_OFFSET};
    if (gguf_get_str_or_null(g, "general.architecture", &s.arch, NULL) != ERR_OK) {
        s.arch = (struct gguf_str){0};
    }
    if (model_build_predicting(g, 0, &s.plan, &info) != ERR_OK) {
        s.plan = NULL;
    }
    print_file(&s);
    print_string_row(&s, "architecture", "general.architecture");
    print_family(&s);
    print_name(&s);
    print_size(&s);
    print_shapes(&s);
    print_vocab(&s);
    print_template(&s);
    print_tensor_types(&s);
    print_cache_row(&s);
    if (s.plan == NULL) {
        printf("%-16s%s: %s\n", "cannot be run", err_code(info.code), info.text);
    }
    print_memory(&s);
    plan_free(&s.plan);
}
