/* `infcgi generate`: continues one prompt on stdout, with figures on stderr. */
#include "engine/base/mem.h"
#include "fcgi/cmd/cmd.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Tokenizes the prompt, plain or as one user message in the model's chat template. */
static enum err read_prompt(const struct conf *conf, struct engine *e, struct arena *arena, int32_t **ids, size_t *n,
                            struct err_info *info)
{
    if (!conf->chat) {
        return engine_tokenize(e, conf->prompt, strlen(conf->prompt), true, true, NULL, 0, arena, ids, n, info);
    }
    json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", conf->prompt);
    json_t *context = messages != NULL ? engine_chat_context(e, messages, true) : NULL;
    enum err err = context == NULL ? err_set(info, ERR_INVALID_UTF8, "prompt", "prompt: expected valid UTF-8")
                                   : engine_chat(e, context, arena, ids, n, info);
    json_decref(context);
    json_decref(messages);
    return err;
}

static enum err run(const struct conf *conf, struct engine *e, struct err_info *info)
{
    struct arena arena;
    int32_t *ids;
    size_t n;
    struct engine_stream *s = NULL;
    struct engine_params p;
    engine_params_init(e, &p);
    p.max_tokens = (int32_t)conf->n_predict;
    p.sampling.seed = conf->seed != 0 ? (uint64_t)conf->seed : p.sampling.seed;
    arena_init(&arena, 0, 0, MEM_REQUEST);
    enum err err = read_prompt(conf, e, &arena, &ids, &n, info);
    err = err != ERR_OK ? err : engine_submit(e, ids, n, &p, &s, info);
    struct engine_event ev = {0};
    while (err == ERR_OK && ev.kind != SCHED_END) {
        err = engine_next(s, 1000, &ev);
        err = err == ERR_AGAIN ? ERR_OK : err;
        if (err == ERR_OK && ev.text_len > 0) { /* an event without text is a wait of 1 s */
            fwrite(ev.text, 1, ev.text_len, stdout);
            fflush(stdout);
            ev.text_len = 0;
        }
    }
    if (err == ERR_OK) {
        struct sched_usage u;
        engine_stream_usage(s, &u);
        err = ev.err;
        if (ev.why != NULL) {
            *info = *ev.why;
        }
        fprintf(stderr,
                "\n%d prompt tokens, %d generated; first token after %.1f ms, then %.1f tokens/s; %d of %d drafted "
                "tokens came true\n",
                u.prompt_tokens, u.completion_tokens, (double)u.prefill_ns / 1e6,
                u.decode_ns > 0 ? (u.completion_tokens - 1) / ((double)u.decode_ns / 1e9) : 0.0, u.accepted_tokens,
                u.drafted_tokens);
    }
    engine_stream_close(&s);
    arena_fini(&arena);
    return err;
}

int cmd_generate(const struct program *p, struct conf *conf)
{
    struct err_info info = {0};
    struct engine_config cfg = cmd_engine_config(conf);
    struct engine *e = NULL;
    (void)p;
    cfg.max_seqs = 1; /* overrides a configuration file shared with serve */
    cfg.tell = cmd_note;
    enum err err = cmd_open_engine(&cfg, &e, &info);
    if (err == ERR_OK && engine_model(e)->pack_note[0] != '\0') {
        fprintf(stderr, "warning: %s\n", engine_model(e)->pack_note);
    }
    err = err != ERR_OK ? err : run(conf, e, &info);
    engine_close(&e);
    return cmd_fail(conf, err, &info);
}
