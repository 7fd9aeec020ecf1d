/* The common start and end of all subcommands. */
#include "fcgi/cmd/cmd.h"

#include "fcgi/cmd/manual.h"
#include "fcgi/ground/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int cmd_read_conf(const struct program *p, struct conf *conf, enum conf_command command, int argc, char **argv)
{
    struct err_info info = {0};
    const struct conf_given given = {.options = p->options, .command = command, .argc = argc, .argv = argv};
    enum err err = conf_load(conf, &given, &info);
    if (err == ERR_OK && conf->version) {
        return cmd_version() == CMD_OK ? -1 : CMD_BAD_OUTPUT;
    }
    if (err == ERR_OK && conf->help) {
        struct buf help;
        buf_init(&help, 0, MEM_GENERAL);
        manual_of(p, command, &help);
        fputs(buf_ok(&help) == ERR_OK ? help.data : "", stdout);
        buf_fini(&help);
        return -1;
    }
    err = err != ERR_OK ? err : conf_check(conf, &info);
    return err == ERR_OK ? CMD_OK : cmd_fail(conf, ERR_CONFIG, &info);
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
        .draft_max = strcmp(c->speculate, "off") == 0 ? -1 : (int)c->draft_max,
        .memory_limit_bytes = (uint64_t)c->memory_limit_mib << 20,
    };
}

int cmd_end(const char *command, int rc)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "error: %s: cannot write the output\n", command);
        return CMD_BAD_OUTPUT;
    }
    return rc < 0 ? CMD_OK : rc;
}

int cmd_fail(const struct conf *conf, enum err err, const struct err_info *info)
{
    bool is_config =
        err == ERR_CONFIG || err == ERR_UNSUPPORTED_CPU || err == ERR_UNSUPPORTED_DEVICE || err == ERR_ADDRESS_IN_USE;
    fprintf(stderr, "%serror: ", log_priority("error"));
    if (!is_config && conf->model != NULL) {
        fprintf(stderr, "%s: ", conf->model);
    }
    fprintf(stderr, "%s", err_code(err));
    if (info->offset != ERR_NO_OFFSET && info->code != ERR_OK && !is_config) {
        fprintf(stderr, " at byte %" PRIu64, info->offset);
    }
    fprintf(stderr, ": %s\n", info->text[0] != '\0' ? info->text : err_text(err));
    return is_config ? CMD_USAGE : err == ERR_LOST ? CMD_LOST : CMD_BAD_DATA;
}

int cmd_help(const struct program *p, int argc, char **argv)
{
    struct conf conf;
    int rc = cmd_read_conf(p, &conf, CONF_HELP, argc, argv);
    if (rc == CMD_OK) {
        struct buf text;
        buf_init(&text, 0, MEM_GENERAL);
        manual_print(p, conf.format, &text);
        rc = buf_ok(&text) == ERR_OK ? CMD_OK : CMD_NO_SYSTEM;
        fputs(rc == CMD_OK ? text.data : "", stdout);
        buf_fini(&text);
    }
    conf_fini(&conf);
    return cmd_end("help", rc);
}
