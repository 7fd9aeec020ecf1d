/* The common start and end of all subcommands. */
#include "fcgi/cmd/cmd.h"

#include "fcgi/cmd/bar.h"
#include "fcgi/cmd/manual.h"
#include "fcgi/ground/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const struct cmd *cmd_find(const struct program *p, enum conf_command command)
{
    const struct cmd *c = p->commands;
    while (c->bit != command && c + 1 < p->commands + p->n_commands) {
        c++;
    }
    return c;
}

/* Returns the index of the first argument that is neither an option nor an option's value. */
static int first_operand(const struct program *p, enum conf_command command, int argc, char **argv)
{
    int i = 1;
    while (i < argc && argv[i][0] == '-') {
        const char *name = argv[i] + strspn(argv[i], "-");
        const struct option *o = option_find(p->options, name, strcspn(name, "="), command);
        bool takes_next = o != NULL && o->kind != OPTION_FLAG && strchr(name, '=') == NULL;
        i += takes_next ? 2 : 1;
    }
    return MIN_OF(i, argc);
}

/* Prints the text, or nothing after a failure. */
static enum err print(struct buf *text)
{
    enum err err = buf_ok(text);
    fputs(err == ERR_OK ? text->data : "", stdout);
    buf_fini(text);
    return err;
}

int cmd_read_conf(const struct program *p, const struct cmd *c, struct conf *conf, int argc, char **argv)
{
    struct err_info info = {0};
    struct conf_given given = {.options = p->options, .command = c->bit, .argc = argc, .argv = argv};
    if (c->operands != NULL) {
        given.argc = first_operand(p, c->bit, argc, argv);
    }
    enum err err = conf_load(conf, &given, &info);
    if (err == ERR_OK && conf->version) {
        return cmd_version() == CMD_OK ? -1 : CMD_BAD_OUTPUT;
    }
    if (err == ERR_OK && conf->help) {
        struct buf help;
        buf_init(&help, 0, MEM_GENERAL);
        manual_of(p, c, &help);
        (void)print(&help);
        return -1;
    }
    err = err != ERR_OK ? err : conf_check(conf, &info);
    return err == ERR_OK ? CMD_OK : cmd_fail(conf, ERR_CONFIG, &info);
}

int cmd_run(const struct program *p, enum conf_command command, int argc, char **argv)
{
    static struct conf conf; /* never freed: detached threads can read it until the process has ended */
    const struct cmd *c = cmd_find(p, command);
    int rc = c->prepare != NULL ? c->prepare() : CMD_OK;
    rc = rc == CMD_OK ? cmd_read_conf(p, c, &conf, argc, argv) : rc;
    rc = rc == CMD_OK ? c->run(p, &conf) : rc;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "error: %s: cannot write the output\n", c->name);
        return CMD_BAD_OUTPUT;
    }
    return rc < 0 ? CMD_OK : rc;
}

struct engine_config cmd_engine_config(const struct conf *c)
{
    return (struct engine_config){
        .sampling = &c->sampling,
        .model_path = c->model,
        .backend = c->backend,
        .device = c->device,
        .gpu_layers = c->gpu_layers,
        .cpu = c->cpu,
        .pack_cache = strcmp(c->pack_cache, "off") != 0 ? c->pack_cache : NULL,
        .cache_dir = c->cache_dir,
        .cache_disk_bytes = (uint64_t)c->cache_disk_mib << 20,
        .quantize = c->quantize,
        .high_precision = c->high_precision,
        .pin = c->pin,
        .chat_template = c->chat_template,
        .cache_type_k = c->cache_type_k,
        .cache_type_v = c->cache_type_v,
        .n_threads = (int)c->threads,
        .n_ctx = (uint32_t)c->ctx_size,
        .kv_tokens = (uint64_t)c->kv_tokens,
        .max_seqs = (int)c->parallel,
        .max_batch_rows = (int)c->batch_size,
        .queue_max_requests = (int)c->queue_max,
        .pooling = c->pooling,
        .tool_format = c->tool_format,
        .closes_objects = c->closed_objects,
        .draft_path = c->draft_model,
        .guess_p_min = (float)c->draft_p_min,
        .speculate = c->speculate,
        .draft_max = (int)c->draft_max,
        .memory_limit_bytes = (uint64_t)c->memory_limit_mib << 20,
    };
}

static bool on_progress(void *bar, float fraction)
{
    bar_set(bar, (double)fraction);
    return true;
}

enum err cmd_open_engine(struct engine_config *cfg, struct engine **out, struct err_info *info)
{
    struct bar bar;
    cfg->progress = on_progress;
    cfg->progress_arg = &bar;
    bar_begin(&bar);
    enum err err = engine_open(cfg, out, info);
    bar_end(&bar);
    return err;
}

bool cmd_print_json(json_t *value, size_t flags)
{
    bool is_printed = json_dumpf(value, stdout, flags) == 0;
    puts("");
    json_decref(value);
    return is_printed;
}

void cmd_note(void *unused, const char *text)
{
    (void)unused;
    fprintf(stderr, "note: %s\n", text);
}

int cmd_fail(const struct conf *conf, enum err err, const struct err_info *info)
{
    bool is_config =
        err == ERR_CONFIG || err == ERR_UNSUPPORTED_CPU || err == ERR_UNSUPPORTED_DEVICE || err == ERR_ADDRESS_IN_USE;
    if (err == ERR_OK) {
        return CMD_OK;
    }
    fprintf(stderr, "%serror: ", log_priority("error"));
    if (!is_config && conf->model != NULL) {
        fprintf(stderr, "%s: ", conf->model);
    }
    fprintf(stderr, "%s", err_code(err));
    if (info->offset != ERR_NO_OFFSET && info->code != ERR_OK && !is_config) {
        fprintf(stderr, " at byte %" PRIu64, info->offset);
    }
    fprintf(stderr, ": %s\n", info->text[0] != '\0' ? info->text : err_text(err));
    if (is_config) {
        return CMD_USAGE;
    }
    return err == ERR_LOST ? CMD_LOST : CMD_BAD_DATA;
}

int cmd_fail_setup(int status, enum err err, const struct err_info *info)
{
    fprintf(stderr, "%serror: %s: %s\n", log_priority("error"), err_code(err),
            info->text[0] != '\0' ? info->text : err_text(err));
    return status;
}

int cmd_help(const struct program *p, struct conf *conf)
{
    struct buf text;
    buf_init(&text, 0, MEM_GENERAL);
    manual_print(p, conf->format, &text);
    return print(&text) == ERR_OK ? CMD_OK : CMD_NO_SYSTEM;
}
