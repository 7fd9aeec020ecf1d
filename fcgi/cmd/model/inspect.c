/* `infcgi inspect`: shows a model file's contents and checks that it is whole. Reads only the directory, and the
 * weights only for --verify. Text from the file is escaped, so that it cannot control the terminal. --template prints
 * raw bytes, because its output is meant to be redirected. */
#include "engine/model/model.h"
#include "engine/tensor/dtype.h"
#include "fcgi/cmd/cmd.h"
#include "fcgi/cmd/escape.h"
#include "fcgi/cmd/model/inspect.h"
#include "fcgi/cmd/model/sums.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_ELEMENTS = 8 }; /* shown elements of an array */

/* --- --kv and --tensors ----------------------------------------------------------------------------------------- */

static void print_element(const struct gguf_kv *kv, uint64_t i, const unsigned char **cursor)
{
    struct gguf_str text;
    switch (kv->elem_type) {
    case GGUF_STRING:
        text = gguf_next_str(cursor);
        escape_print_quoted(text.data, text.len);
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
    uint64_t n = MIN_OF(kv->n, (uint64_t)SHOWN_ELEMENTS);
    escape_print(stdout, kv->key.data, kv->key.len);
    if (is_array) {
        printf("  %s[%" PRIu64 "] = [", gguf_type_name(kv->elem_type), kv->n);
    } else {
        printf("  %s = ", gguf_type_name(kv->type));
    }
    for (uint64_t i = 0; i < n; i++) {
        fputs(i > 0 ? ", " : "", stdout);
        print_element(kv, i, &cursor);
    }
    if (is_array) {
        fputs(n < kv->n ? ", ...]" : "]", stdout);
    }
    puts("");
}

static void print_tensor(const struct gguf_tensor *t)
{
    escape_print(stdout, t->name.data, t->name.len);
    printf("  %s  [", dtype_info(t->type)->name);
    for (int i = 0; i < t->n_dims; i++) {
        printf("%s%" PRIu64, i > 0 ? ", " : "", t->dims[i]);
    }
    printf("]  offset %" PRIu64 "  bytes %" PRIu64 "\n", t->offset, t->bytes);
}

/* --- the command ------------------------------------------------------------------------------------------------ */

static int print_template(const struct gguf *g, const char *path)
{
    struct gguf_str s;
    struct err_info info = {0};
    if (gguf_get_str(g, "tokenizer.chat_template", &s, &info) != ERR_OK) {
        escape_print_error(path, &info);
        return CMD_BAD_DATA;
    }
    fwrite(s.data, 1, s.len, stdout);
    return CMD_OK;
}

static int print_wanted(const struct gguf *g, const struct conf *o)
{
    if (!o->kv && !o->tensors && !o->plan && !o->template) {
        inspect_summary(g, o->model, o->cpu);
    }
    for (size_t i = 0; o->kv && i < gguf_n_kv(g); i++) {
        print_kv(gguf_kv_at(g, i));
    }
    for (size_t i = 0; o->tensors && i < gguf_n_tensors(g); i++) {
        print_tensor(gguf_tensor_at(g, i));
    }
    struct err_info info = {.offset = ERR_NO_OFFSET};
    if (o->plan && inspect_plan(g, &info) != ERR_OK) {
        escape_print_error(o->model, &info);
        return CMD_BAD_DATA;
    }
    return o->template ? print_template(g, o->model) : CMD_OK;
}

/* Runs --check and --verify. */
static int check(const struct conf *o)
{
    struct err_info info = {.offset = ERR_NO_OFFSET};
    if (o->kv || o->tensors || o->plan || o->template) {
        fputs("error: inspect: --check and --verify print nothing and take no other option\n", stderr);
        return CMD_USAGE;
    }
    if ((!o->verify || sums_check(o->model, &info) == ERR_OK) && engine_check(o->model, o->verify, &info) == ERR_OK) {
        return CMD_OK;
    }
    escape_print_error(o->model, &info);
    return CMD_BAD_DATA;
}

static int show(const struct conf *o)
{
    struct gguf *g = NULL;
    struct err_info info = {.offset = ERR_NO_OFFSET};
    if (model_open(o->model, &g, &info) != ERR_OK) {
        escape_print_error(o->model, &info);
        return CMD_BAD_DATA;
    }
    int rc = print_wanted(g, o);
    gguf_close(&g);
    return rc;
}

int cmd_inspect(const struct program *p, struct conf *conf)
{
    (void)p;
    return conf->check || conf->verify ? check(conf) : show(conf);
}
