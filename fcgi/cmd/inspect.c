/* `infcgi inspect`: what is in a model file, and whether the file is whole. Reads the directory only, never the
 * weights. Text from the file is escaped before it is printed (the terminal is not the file's to drive); --template
 * alone prints raw bytes, because it is there to be redirected. */
#include "fcgi/cmd/cmd.h"

#include "engine/base/utf8.h"
#include "engine/chat/chat_named.h"
#include "engine/format/gguf.h"
#include "engine/kernels/kv_type.h"
#include "engine/model/model.h"
#include "engine/tensor/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    SHOWN_STRING_BYTES = 200, /* longer values are cut */
    SHOWN_ELEMENTS = 8,       /* of an array */
    ARCH_BYTES = 64,          /* a longer architecture name finds no keys */
};

struct options {
    const char *path;
    bool check, kv, tensors, template, help;
};

static const char usage[] =
    "usage: infcgi inspect [-m] MODEL [--kv] [--tensors] [--template]\n"
    "       infcgi inspect --check [-m] MODEL\n"
    "\n"
    "Without an option: a summary of the model file.\n"
    "  --kv        every metadata key with type and value\n"
    "  --tensors   every tensor with type, shape, offset and bytes\n"
    "  --template  the chat template, byte for byte\n"
    "  --check     say nothing and exit 0 when the file is whole and can be served, else one line and exit 65\n"
    "  --cpu NAME  as in other commands; no kernel runs here\n";

/* --- text from the file ----------------------------------------------------------------------------------------- */

/* Would cp act on a terminal rather than show: a control, a line separator, or a change of writing direction? */
static bool acts_on_terminal(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7F && cp < 0xA0) || cp == 0x200E || cp == 0x200F || (cp >= 0x2028 && cp <= 0x202E) ||
           (cp >= 0x2066 && cp <= 0x2069);
}

/* s[0..n) with everything escaped that is not plain text. */
static void print_text(FILE *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        bool valid;
        size_t used = utf8_decode(s + i, n - i, &cp, &valid);
        if (!valid) {
            fprintf(out, "\\x%02x", (unsigned char)s[i]);
        } else if (cp == '\n' || cp == '\t' || cp == '\r') {
            fputs(cp == '\n' ? "\\n" : cp == '\t' ? "\\t" : "\\r", out);
        } else if (cp == '"' || cp == '\\') {
            fprintf(out, "\\%c", (int)cp);
        } else if (acts_on_terminal(cp)) {
            fprintf(out, "\\u%04x", cp);
        } else {
            fwrite(s + i, 1, used, out);
        }
        i += used;
    }
}

static void print_name(struct gguf_str s) { print_text(stdout, s.data, s.len); }

/* "text" in quotes, cut at a UTF-8 border with the full length behind it. */
static void print_string(struct gguf_str s)
{
    size_t n = s.len <= SHOWN_STRING_BYTES ? s.len : SHOWN_STRING_BYTES;
    if (n < s.len) {
        n -= utf8_incomplete_tail(s.data, n);
    }
    putchar('"');
    print_name((struct gguf_str){s.data, n});
    putchar('"');
    if (n < s.len) {
        printf("... (%zu bytes)", s.len);
    }
}

static void print_error(const char *path, const struct err_info *info)
{
    fputs("error: ", stderr);
    print_text(stderr, path, strlen(path));
    fprintf(stderr, ": %s", err_code(info->code));
    if (info->offset != ERR_NO_OFFSET) {
        fprintf(stderr, " at byte %" PRIu64, info->offset);
    }
    fprintf(stderr, ": %s\n", info->text);
}

/* --- --kv and --tensors ----------------------------------------------------------------------------------------- */

static void print_element(const struct gguf_kv *kv, uint64_t i, const unsigned char **cursor)
{
    switch (kv->elem_type) {
    case GGUF_STRING:
        print_string(gguf_next_str(cursor));
        break;
    case GGUF_F32:
        printf("%.9g", gguf_elem_f64(kv, i));
        break;
    case GGUF_F64:
        printf("%.17g", gguf_elem_f64(kv, i));
        break;
    case GGUF_BOOL:
        fputs(gguf_elem_i64(kv, i) != 0 ? "true" : "false", stdout);
        break;
    case GGUF_U64: { /* gguf_elem_i64 would saturate */
        uint64_t v;
        memcpy(&v, kv->data + i * sizeof v, sizeof v);
        printf("%" PRIu64, v);
        break;
    }
    default:
        printf("%" PRId64, gguf_elem_i64(kv, i));
    }
}

static void print_kv(const struct gguf_kv *kv)
{
    bool is_array = kv->type == GGUF_ARRAY;
    const unsigned char *cursor = kv->data;
    uint64_t n = kv->n <= SHOWN_ELEMENTS ? kv->n : SHOWN_ELEMENTS;
    print_name(kv->key);
    if (is_array) {
        printf("  %s[%" PRIu64 "] = [", gguf_type_name(kv->elem_type), kv->n);
    } else {
        printf("  %s = ", gguf_type_name(kv->type));
    }
    for (uint64_t i = 0; i < n; i++) {
        fputs(i > 0 ? ", " : "", stdout);
        print_element(kv, i, &cursor);
    }
    puts(!is_array ? "" : n < kv->n ? ", ...]" : "]");
}

static void print_tensor(const struct gguf_tensor *t)
{
    print_name(t->name);
    printf("  %s  [", dtype_info(t->type)->name);
    for (int i = 0; i < t->n_dims; i++) {
        printf("%s%" PRIu64, i > 0 ? ", " : "", t->dims[i]);
    }
    printf("]  offset %" PRIu64 "  bytes %" PRIu64 "\n", t->offset, t->bytes);
}

/* --- the summary ------------------------------------------------------------------------------------------------ */

static void print_label(const char *label) { printf("%-16s", label); }

static void print_string_row(const char *label, const struct gguf *g, const char *key)
{
    struct gguf_str s;
    print_label(label);
    if (gguf_get_str_or_null(g, key, &s, NULL) != ERR_OK) {
        fputs("(not a string)", stdout);
    } else if (s.data == NULL) {
        putchar('-');
    } else {
        print_string(s);
    }
    putchar('\n');
}

/* The value of ARCH.key, or "-", or what else stands there: some families give one number per layer. */
static void print_arch_row(const char *label, const struct gguf *g, struct gguf_str arch, const char *key)
{
    char full[ARCH_BYTES + 64];
    snprintf(full, sizeof full, "%.*s.%s", arch.len < ARCH_BYTES ? (int)arch.len : 0, arch.len > 0 ? arch.data : "",
             key);
    const struct gguf_kv *kv = gguf_find(g, full);
    uint64_t v;
    print_label(label);
    if (kv == NULL) {
        puts("-");
    } else if (kv->type == GGUF_ARRAY) {
        printf("%" PRIu64 " values, one a layer\n", kv->n);
    } else if (gguf_get_u64(g, full, &v, NULL) == ERR_OK) {
        printf("%" PRIu64 "\n", v);
    } else {
        puts("(not a count)");
    }
}

/* Bytes that a token takes in the KV cache, for each type. */
static void print_cache_row(const struct gguf *g)
{
    struct plan *plan = NULL;
    struct err_info ignored = {0};
    print_label("kv cache");
    if (model_build(g, 0, &plan, &ignored) != ERR_OK) {
        puts("-");
        return;
    }
    bool is_first = true;
    for (int type = 0; type < KV_TYPE_COUNT; type++) {
        struct kv_layout l =
            kv_layout_for((enum kv_type)type, (enum kv_type)type, (int)plan->head_dim, (int)plan->latent_dim);
        if ((int)l.k.type == type) { /* latents do not come in every type */
            printf("%s%s %" PRIu64, is_first ? "" : ", ", kv_type_name(type),
                   (uint64_t)l.bytes * plan->n_kv_heads * plan->n_layers / KERN_PAGE_TOKENS);
            is_first = false;
        }
    }
    puts(" bytes a token");
    plan_free(&plan);
}

static uint64_t n_elements(const struct gguf_tensor *t) { return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3]; }

static void print_tensor_types(const struct gguf *g)
{
    uint64_t count[DTYPE_COUNT] = {0}, bytes[DTYPE_COUNT] = {0}, all_bytes = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        count[t->type]++;
        bytes[t->type] += t->bytes;
        all_bytes += t->bytes;
    }
    print_label("tensors");
    printf("%zu, %" PRIu64 " bytes\n", gguf_n_tensors(g), all_bytes);
    for (uint32_t type = 0; type < DTYPE_COUNT; type++) {
        if (count[type] > 0) {
            printf("  %-14s%" PRIu64 ", %" PRIu64 " bytes\n", dtype_info(type)->name, count[type], bytes[type]);
        }
    }
}

/* The vocabulary's size is that of the token list; the hyper-parameter is only a hint and often missing. */
static void print_vocab(const struct gguf *g)
{
    const struct gguf_kv *tokens = NULL;
    print_label("vocabulary");
    if (gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, NULL) == ERR_OK) {
        printf("%" PRIu64 "\n", tokens->n);
    } else {
        puts("-");
    }
}

static void print_template_row(const struct gguf *g)
{
    struct gguf_str s;
    char family[64];
    print_label("chat template");
    if (gguf_get_str_or_null(g, "tokenizer.chat_template", &s, NULL) != ERR_OK) {
        puts("(not a string)");
    } else if (s.data == NULL) {
        const struct chat_named *row = NULL;
        if (gguf_get_str_or_null(g, "general.architecture", &s, NULL) == ERR_OK && s.data != NULL) {
            snprintf(family, sizeof family, "%.*s", (int)MIN_OF(s.len, (size_t)sizeof family - 1), s.data);
            row = chat_named_of_family(family);
        }
        printf("no; %s%s\n", row != NULL ? "its family has one format: " : "chat needs --chat-template",
               row != NULL ? chat_named_name(row) : "");
    } else {
        printf("yes, %zu bytes\n", s.len);
    }
}

static void print_summary(const struct gguf *g, const char *path)
{
    struct gguf_str arch = {0};
    enum err err = gguf_get_str_or_null(g, "general.architecture", &arch, NULL);
    uint64_t n_params = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        n_params += n_elements(gguf_tensor_at(g, i));
    }
    print_label("file");
    print_text(stdout, path, strlen(path));
    printf("\n%-16sGGUF version %" PRIu32 ", alignment %" PRIu64 ", %zu keys\n", "format", gguf_version(g),
           gguf_alignment(g), gguf_n_kv(g));
    print_string_row("architecture", g, "general.architecture");
    print_string_row("name", g, "general.name");
    printf("%-16s%" PRIu64 " (%.1f M)\n", "parameters", n_params, (double)n_params / 1e6);
    printf("%-16s%" PRIu64 " bytes (%.1f MB)\n", "size", gguf_file_bytes(g), (double)gguf_file_bytes(g) / 1e6);
    arch = err == ERR_OK ? arch : (struct gguf_str){0};
    print_arch_row("context length", g, arch, "context_length");
    print_arch_row("layers", g, arch, "block_count");
    print_arch_row("embedding", g, arch, "embedding_length");
    print_arch_row("heads", g, arch, "attention.head_count");
    print_arch_row("kv heads", g, arch, "attention.head_count_kv");
    print_cache_row(g);
    print_vocab(g);
    print_string_row("tokenizer", g, "tokenizer.ggml.model");
    print_string_row("pre-tokenizer", g, "tokenizer.ggml.pre");
    print_template_row(g);
    print_tensor_types(g);
}

/* --- the command ------------------------------------------------------------------------------------------------ */

static int usage_error(const char *problem, const char *argument)
{
    fprintf(stderr, "error: inspect: %s", problem);
    if (argument != NULL) {
        fputs(" '", stderr);
        print_text(stderr, argument, strlen(argument));
        fputs("'", stderr);
    }
    fputs("; `infcgi inspect --help` tells more\n", stderr);
    return CMD_USAGE;
}

static int parse_options(int argc, char **argv, struct options *o)
{
    *o = (struct options){0};
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"--check", &o->check},       {"--kv", &o->kv},     {"--tensors", &o->tensors},
                 {"--template", &o->template}, {"--help", &o->help}, {"-h", &o->help}};
    bool no_more_options = false;
    for (int i = 1; i < argc; i++) {
        size_t k = 0;
        bool names_model = !no_more_options && (strcmp(argv[i], "-m") == 0 || strcmp(argv[i], "--model") == 0);
        if (names_model && ++i == argc) {
            break; /* no file, which is said below */
        }
        while (!no_more_options && k < ARRAY_LEN(flags) && strcmp(argv[i], flags[k].name) != 0) {
            k++;
        }
        if (names_model || no_more_options || argv[i][0] != '-' || argv[i][1] == '\0') {
            if (o->path != NULL) {
                return usage_error("expected one model file, found a second", argv[i]);
            }
            o->path = argv[i];
        } else if (strcmp(argv[i], "--") == 0) {
            no_more_options = true;
        } else if (k < ARRAY_LEN(flags)) {
            *flags[k].flag = true;
        } else {
            return usage_error("unknown option", argv[i]);
        }
    }
    if (o->path == NULL && !o->help) {
        return usage_error("expected a model file", NULL);
    }
    if (o->check && (o->kv || o->tensors || o->template)) {
        return usage_error("--check prints nothing and takes no other option", NULL);
    }
    return CMD_OK;
}

static int print_template(const struct gguf *g, const char *path)
{
    struct gguf_str s;
    struct err_info info = {0};
    if (gguf_get_str(g, "tokenizer.chat_template", &s, &info) != ERR_OK) {
        print_error(path, &info);
        return CMD_BAD_DATA;
    }
    fwrite(s.data, 1, s.len, stdout);
    return CMD_OK;
}

static int print_wanted(const struct gguf *g, const struct options *o)
{
    if (!o->kv && !o->tensors && !o->template) {
        print_summary(g, o->path);
    }
    for (size_t i = 0; o->kv && i < gguf_n_kv(g); i++) {
        print_kv(gguf_kv_at(g, i));
    }
    for (size_t i = 0; o->tensors && i < gguf_n_tensors(g); i++) {
        print_tensor(gguf_tensor_at(g, i));
    }
    return o->template ? print_template(g, o->path) : CMD_OK;
}

int cmd_inspect(int argc, char **argv)
{
    struct options o;
    int rc = cmd_take_cpu(&argc, argv);
    rc = rc != CMD_OK ? rc : parse_options(argc, argv, &o);
    if (rc != CMD_OK) {
        return rc;
    }
    if (o.help) {
        fputs(usage, stdout);
        return fflush(stdout) == 0 ? CMD_OK : CMD_BAD_OUTPUT;
    }
    struct gguf *g = NULL;
    struct err_info info = {.offset = ERR_NO_OFFSET};
    if (o.check) {
        bool is_whole = engine_check(o.path, &info) == ERR_OK;
        if (!is_whole) {
            print_error(o.path, &info);
        }
        return is_whole ? CMD_OK : CMD_BAD_DATA;
    }
    if (model_open(o.path, &g, &info) != ERR_OK) {
        print_error(o.path, &info);
        return CMD_BAD_DATA;
    }
    rc = print_wanted(g, &o);
    gguf_close(&g);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("error: inspect: cannot write the output\n", stderr);
        return CMD_BAD_OUTPUT;
    }
    return rc;
}
