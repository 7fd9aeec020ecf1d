/* `infcgi inspect`: what is in a model file, and whether the file is whole. Reads the directory only, and the weights
 * for --verify alone. Text from the file is escaped before it is printed (the terminal is not the file's to drive);
 * --template alone prints raw bytes, because it is there to be redirected. */
#include "fcgi/cmd/cmd.h"

#include "engine/format/gguf.h"
#include "engine/model/model.h"
#include "engine/tensor/dtype.h"
#include "fcgi/cmd/escape.h"
#include "fcgi/cmd/inspect_summary.h"
#include "fcgi/cmd/sums.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_ELEMENTS = 8 }; /* of an array */

struct options {
    const char *path;
    const char *cpu; /* of --cpu or the environment, or NULL */
    bool check, verify, kv, tensors, template, help;
};

static const char usage[] =
    "usage: infcgi inspect [-m] MODEL [--kv] [--tensors] [--template]\n"
    "       infcgi inspect --check|--verify [-m] MODEL\n"
    "\n"
    "Without an option: a summary of the model file.\n"
    "  --kv        every metadata key with type and value\n"
    "  --tensors   every tensor with type, shape, offset and bytes\n"
    "  --template  the chat template, byte for byte\n"
    "  --check     say nothing and exit 0 when the file is whole and can be served, else one line and exit 65\n"
    "  --verify    the same, and read every weight: one that is NaN or infinite is an error too, and so is a file\n"
    "              with another sum than the SHA256SUMS beside it says\n"
    "  --cpu NAME  kernels to plan for, as in other commands; none runs here\n";

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
    uint64_t n = kv->n <= SHOWN_ELEMENTS ? kv->n : SHOWN_ELEMENTS;
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
    puts(!is_array ? "" : n < kv->n ? ", ...]" : "]");
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

static int usage_error(const char *problem, const char *argument)
{
    fprintf(stderr, "error: inspect: %s", problem);
    if (argument != NULL) {
        fputs(" '", stderr);
        escape_print(stderr, argument, strlen(argument));
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
    } flags[] = {{"--check", &o->check},       {"--verify", &o->verify}, {"--kv", &o->kv}, {"--tensors", &o->tensors},
                 {"--template", &o->template}, {"--help", &o->help},     {"-h", &o->help}};
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
    if ((o->check || o->verify) && (o->kv || o->tensors || o->template)) {
        return usage_error("--check and --verify print nothing and take no other option", NULL);
    }
    return CMD_OK;
}

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

static int print_wanted(const struct gguf *g, const struct options *o)
{
    if (!o->kv && !o->tensors && !o->template) {
        inspect_summary(g, o->path, o->cpu);
    }
    for (size_t i = 0; o->kv && i < gguf_n_kv(g); i++) {
        print_kv(gguf_kv_at(g, i));
    }
    for (size_t i = 0; o->tensors && i < gguf_n_tensors(g); i++) {
        print_tensor(gguf_tensor_at(g, i));
    }
    return o->template ? print_template(g, o->path) : CMD_OK;
}

/* The value of --cpu, which cmd_take_cpu takes away, or of the environment. */
static const char *find_cpu(int argc, char **argv)
{
    const char *cpu = conf_environment("cpu");
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--cpu=", 6) == 0) {
            cpu = argv[i] + 6;
        } else if (strcmp(argv[i], "--cpu") == 0 && i + 1 < argc) {
            cpu = argv[i + 1];
        }
    }
    return cpu;
}

int cmd_inspect(int argc, char **argv)
{
    struct options o;
    const char *cpu = find_cpu(argc, argv);
    int rc = cmd_take_cpu(&argc, argv);
    rc = rc != CMD_OK ? rc : parse_options(argc, argv, &o);
    o.cpu = cpu;
    if (rc != CMD_OK) {
        return rc;
    }
    if (o.help) {
        fputs(usage, stdout);
        return fflush(stdout) == 0 ? CMD_OK : CMD_BAD_OUTPUT;
    }
    struct gguf *g = NULL;
    struct err_info info = {.offset = ERR_NO_OFFSET};
    if (o.check || o.verify) {
        bool is_whole =
            (!o.verify || sums_check(o.path, &info) == ERR_OK) && engine_check(o.path, o.verify, &info) == ERR_OK;
        if (!is_whole) {
            escape_print_error(o.path, &info);
        }
        return is_whole ? CMD_OK : CMD_BAD_DATA;
    }
    if (model_open(o.path, &g, &info) != ERR_OK) {
        escape_print_error(o.path, &info);
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
