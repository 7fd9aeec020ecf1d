/* Members of llama-server's answers. */
#include "fcgi/api/llama_output.h"

#include "engine/base/clock.h"
#include "engine/base/json_write.h"
#include "engine/base/mem.h"

#include <inttypes.h>
#include <string.h>

/* --- times -------------------------------------------------------------------------------------------------------- */

/* Writes milliseconds, milliseconds per token of `timed` of n tokens, and tokens per second. All digits are written
 * because clients divide. */
static void write_speed(const char *name, int64_t n, int64_t timed, uint64_t ns, struct buf *out)
{
    double ms = (double)ns / 1e6;
    buf_printf(out, "\"%s_n\":%" PRId64 ",\"%s_ms\":%.15g,\"%s_per_token_ms\":%.15g,\"%s_per_second\":%.15g", name, n,
               name, ms, name, timed > 0 ? ms / (double)timed : 0, name,
               timed > 0 && ms > 0 ? 1e3 / ms * (double)timed : 0);
}

/* The first token costs no step: the prompt's last row yields it. */
static void write_times(const struct sched_usage *u, int32_t n_prompt, uint64_t prompt_ns, uint64_t decode_ns,
                        struct buf *out)
{
    buf_printf(out, "\"timings\":{\"cache_n\":%d,", u->cached_tokens);
    write_speed("prompt", n_prompt, n_prompt, prompt_ns, out);
    buf_putc(out, ',');
    write_speed("predicted", u->completion_tokens, u->completion_tokens - 1, decode_ns, out);
    if (u->drafted_tokens > 0) {
        buf_printf(out, ",\"draft_n\":%d,\"draft_n_accepted\":%d", u->drafted_tokens, u->accepted_tokens);
    }
    buf_putc(out, '}');
}

void llama_write_timings(const struct choice *c, struct buf *out)
{
    bool is_running = !c->has_ended && c->first_token_ns != 0;
    uint64_t decode_ns = is_running ? clock_now_ns() - c->first_token_ns : c->usage.decode_ns;
    write_times(&c->usage, c->usage.prompt_tokens - c->usage.cached_tokens, c->usage.prefill_ns, decode_ns, out);
}

void llama_write_progress(const struct generation *g, const struct choice *c, struct buf *out)
{
    const struct sched_usage *u = &c->usage;
    int32_t n_done = c->n_processed - u->cached_tokens;
    uint64_t since_ns = n_done > 0 ? clock_now_ns() - c->progress_ns : 0;
    buf_printf(out, "\"prompt_progress\":{\"total\":%d,\"cache\":%d,\"processed\":%d,\"time_ms\":%" PRIu64 "}",
               u->prompt_tokens, u->cached_tokens, c->n_processed, since_ns / 1000000u);
    if (g->params->timings_per_token) {
        struct sched_usage before = {.cached_tokens = u->cached_tokens};
        buf_putc(out, ',');
        write_times(&before, n_done, since_ns, 0, out);
    }
}

/* --- probabilities -------------------------------------------------------------------------------------------------- */

static void write_probability(const struct generation *g, int32_t id, float logprob, struct buf *out)
{
    buf_printf(out, "{\"id\":%d,\"token\":", id);
    generation_write_token(g, id, out);
    buf_puts(out, ",\"bytes\":");
    generation_write_bytes(g, id, out);
    buf_puts(out, g->params->gen.sampling.tells_drawn ? ",\"prob\":" : ",\"logprob\":");
    json_write_float(out, logprob);
}

void llama_write_probabilities(const struct generation *g, const struct engine_event *ev, struct buf *out)
{
    write_probability(g, ev->token.id, ev->token.logprob, out);
    buf_puts(out, g->params->gen.sampling.tells_drawn ? ",\"top_probs\":[" : ",\"top_logprobs\":[");
    for (int32_t i = 0; i < ev->token.n_top; i++) {
        buf_puts(out, i == 0 ? "" : ",");
        write_probability(g, ev->token.top[i].id, ev->token.top[i].logprob, out);
        buf_putc(out, '}');
    }
    buf_puts(out, "]}");
}

/* --- settings ------------------------------------------------------------------------------------------------------- */

/* The samplers that infcgi has, in the order in which they run. Fields of the others are reported as off. */
static const char samplers[] = "\"samplers\":[\"penalties\",\"top_k\",\"typ_p\",\"top_p\",\"min_p\",\"temperature\"],"
                               "\"dynatemp_range\":0.0,\"dynatemp_exponent\":1.0,\"top_n_sigma\":-1.0,"
                               "\"xtc_probability\":0.0,\"xtc_threshold\":0.1,\"dry_multiplier\":0.0,\"dry_base\":1.75,"
                               "\"dry_allowed_length\":2,\"dry_penalty_last_n\":-1,\"dry_sequence_breakers\":[],"
                               "\"mirostat\":0,\"mirostat_tau\":5.0,\"mirostat_eta\":0.1,\"adaptive_target\":-1.0,"
                               "\"adaptive_decay\":0.9,\"min_keep\":0,\"n_keep\":0,\"n_discard\":0,\"lora\":[]";

static void write_biases(const struct call *call, const struct params *p, struct buf *out)
{
    const struct sampler_params *s = &p->gen.sampling;
    const char *comma = "";
    buf_puts(out, ",\"logit_bias\":[");
    if (p->gen.ignore_eos && engine_model(call->engine)->eos >= 0) {
        buf_printf(out, "{\"token\":%d,\"bias\":null}", engine_model(call->engine)->eos);
        comma = ",";
    }
    for (size_t i = 0; i < s->n_bias; i++, comma = ",") {
        buf_printf(out, "%s{\"token\":%d,\"bias\":", comma, s->bias[i].id);
        if (s->bias[i].bias <= SAMPLER_BAN) {
            buf_puts(out, "null"); /* minus infinity */
        } else {
            json_write_float(out, s->bias[i].bias);
        }
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}

static void write_number(const char *name, float v, struct buf *out)
{
    buf_printf(out, "\"%s\":", name);
    json_write_setting(out, v);
    buf_putc(out, ',');
}

void llama_write_settings(const struct call *call, const struct params *p, struct buf *out)
{
    struct params defaults = {.logprobs = -1};
    if (p == NULL) {
        engine_params_init(call->engine, &defaults.gen);
        int64_t most = call->server->conf->limit_predict;
        defaults.gen.max_tokens = most > 0 ? (int32_t)most : -1;
        p = &defaults;
    }
    const struct sampler_params *s = &p->gen.sampling;
    buf_printf(out, "{\"n_ctx\":%u,\"model\":", engine_model(call->engine)->n_ctx);
    json_write_cstr(out, call->server->model_id);
    buf_printf(out, ",\"seed\":%" PRId64 ",\"top_k\":%d,\"repeat_last_n\":%d,", (int64_t)s->seed, s->top_k,
               s->repeat_last_n);
    write_number("temperature", s->temperature, out);
    write_number("top_p", s->top_p, out);
    write_number("min_p", s->min_p, out);
    write_number("typical_p", s->typical_p, out);
    write_number("repeat_penalty", s->repeat_penalty, out);
    write_number("presence_penalty", s->presence_penalty, out);
    write_number("frequency_penalty", s->frequency_penalty, out);
    buf_puts(out, samplers);
    buf_printf(out,
               ",\"max_tokens\":%d,\"n_predict\":%d,\"ignore_eos\":%s,\"stream\":%s,\"n_probs\":%d,"
               "\"timings_per_token\":%s,\"post_sampling_probs\":%s,\"stop\":[",
               p->gen.max_tokens, p->gen.max_tokens, p->gen.ignore_eos ? "true" : "false", p->stream ? "true" : "false",
               s->n_top > 0 ? s->n_top : 0, p->timings_per_token ? "true" : "false", s->tells_drawn ? "true" : "false");
    for (size_t i = 0; i < p->gen.n_stop; i++) {
        buf_puts(out, i > 0 ? "," : "");
        json_write_string(out, p->gen.stop[i], p->gen.stop_len[i]);
    }
    buf_putc(out, ']');
    write_biases(call, p, out);
    buf_putc(out, '}');
}

/* --- the answer ------------------------------------------------------------------------------------------------------- */

void llama_write_result(const struct generation *g, const struct choice *c, struct buf *out)
{
    const char *kind = c->end.finish == SCHED_FINISH_LENGTH ? "limit" : "eos";
    bool has_room = c->usage.prompt_tokens + c->usage.completion_tokens < (int32_t)engine_model(g->call->engine)->n_ctx;
    bool is_cut = c->end.finish == SCHED_FINISH_LENGTH && !has_room;
    struct buf prompt;
    buf_init(&prompt, 0, MEM_REQUEST);
    out->err = out->err != ERR_OK ? out->err : engine_detokenize(g->call->engine, c->prompt, c->n_prompt, &prompt);
    buf_printf(out, "{\"index\":%d,\"content\":", c->index);
    json_write_buf(out, &c->text);
    buf_puts(out, ",\"tokens\":[");
    if (!g->params->stream) { /* otherwise the tokens were already sent, as was the text */
        buf_add(out, &c->ids);
    }
    buf_printf(out, "],\"id_slot\":%" PRId64 ",\"stop\":true,\"model\":", g->params->id_slot);
    json_write_cstr(out, g->call->server->model_id);
    buf_printf(out,
               ",\"tokens_predicted\":%d,\"tokens_evaluated\":%d,\"generation_settings\":", c->usage.completion_tokens,
               c->usage.prompt_tokens);
    llama_write_settings(g->call, g->params, out);
    buf_puts(out, ",\"prompt\":");
    json_write_buf(out, &prompt);
    buf_printf(out, ",\"has_new_line\":%s,\"truncated\":%s,\"stop_type\":\"%s\",\"stopping_word\":",
               c->has_new_line ? "true" : "false", is_cut ? "true" : "false",
               c->end.stop_match != NULL ? "word" : kind);
    json_write_cstr(out, c->end.stop_match != NULL ? c->end.stop_match : "");
    buf_printf(out, ",\"tokens_cached\":%d,", c->usage.prompt_tokens + c->usage.completion_tokens);
    llama_write_timings(c, out);
    if (c->parts[0].len > 0 && g->params->tells_probs) {
        buf_puts(out, ",\"completion_probabilities\":[");
        buf_add(out, &c->parts[0]);
        buf_putc(out, ']');
    }
    buf_putc(out, '}');
    out->err = out->err != ERR_OK ? out->err : buf_ok(&prompt);
    buf_fini(&prompt);
}
