/* infcgi's engine: the only door for programs. Opens a model, takes token prompts, gives text and tokens back.
 *
 * One engine = one model. Requests are independent streams; the same request with the same seed gives the same bytes
 * whatever else runs. Nothing here prints or exits.
 * Threads: every function may be called from any thread, except that one stream belongs to one thread at a time
 * (engine_cancel alone may come from another). */
#ifndef INFCGI_ENGINE_H
#define INFCGI_ENGINE_H

#include "engine/base/buf.h"
#include "engine/base/err.h"
#include "engine/base/mem.h"
#include "engine/base/span.h"
#include "engine/chat/chat_format.h"
#include "engine/sched/sched_report.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;
struct engine_stream;
struct engine_embedding;
struct sched_group;
struct chat_forced;
struct grammar;

/* Limits of a request; the server's field table uses the same names. */
enum {
    ENGINE_MAX_GRAMMAR_BYTES = 1 << 16, /* of a request's GBNF or pattern */
    ENGINE_MAX_STOPS = 16,
    ENGINE_MAX_STOP_BYTES = 256,
    ENGINE_MAX_BIAS = 1024,
};

/* Sampling of requests that set no value. In engine_config a value below its range is "not set": then the model file's
 * general.sampling.* applies, else temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, repeat_penalty 1 and
 * repeat_last_n 64. Ranges and meaning: sampler.h. */
struct engine_sampling {
    double temperature, top_p, min_p; /* not set: negative */
    int64_t top_k;                    /* not set: negative */
    double repeat_penalty;            /* not set: below 0.01 */
    int64_t repeat_last_n;            /* not set: below -1 */
    int64_t seed;                     /* 0: drawn for each request */
    double typical_p, presence_penalty, frequency_penalty;
};

/* Zero means "choose for me" wherever it is said so. Strings are borrowed for the call of engine_open. */
struct engine_config {
    const char *model_path;
    const char *backend;    /* as backend_parts.h reads it, "ref:0-3,cpu"; NULL = "cpu" */
    const char *gpu_layers; /* of a back end with a memory of its own (backend_layers.h): "auto", "17"; NULL = all */
    const char *device;     /* of the OpenCL back end (backend.h); NULL = "auto" */
    const char *cpu;        /* ISA: NULL or "auto", else a name from kern.h: "avx512" */
    bool high_precision;    /* activations in 16 bits everywhere (backend.h) */
    bool pin;               /* each worker thread stays on a CPU of its own */
    const char
        *cache_type_k; /* keys in the KV cache: "q8_0", as the back end has them; NULL = its first, cpu's "i16" */
    const char *cache_type_v; /* values; the same */
    int n_threads;            /* 0 = CPUs this process may run on */
    uint32_t n_ctx;           /* longest sequence in tokens; 0 = the model's training context, at most 32768 */
    uint64_t
        kv_tokens; /* tokens the KV pool holds, for all sequences; 0 = 32768, at least what the longest one takes */
    int max_seqs;  /* sequences in one batch; 0 = 16 */
    int max_batch_rows;     /* token rows in one step; 0 = 512 */
    int queue_max_requests; /* waiting requests before 503; 0 = 256 */
    const char *pooling;    /* how states become embeddings: a name of plan_pooling_name; NULL = as the file says */
    bool closes_objects;    /* JSON Schemas are read as grammar_close_objects (grammar_build.h) says */
    int draft_max; /* tokens of a sequence guessed ahead where text repeats, in one step, 1..31; 0 = 15, -1 = none */
    uint64_t memory_limit_bytes; /* refuse to start when the plan needs more; 0 = no limit */
    const char
        *quantize; /* type that weights of F32, F16, BF16 become: "q8_0" (plan_quantize.h); NULL or "off": none */
    const char *pack_cache; /* OPTIONAL: folder for what the next start needs not prepare again (backend.h) */
    /* OPTIONAL: folder where KV pages and recurrent states outlive the process (kv_disk.h), and what they may take there in all. */
    const char *cache_dir;
    uint64_t cache_disk_bytes;
    /* OPTIONAL: told, also later and from another thread, that snapshots have stopped, why, and that they go on: a sentence. */
    void (*snapshots)(void *arg, const char *text);
    void *snapshots_arg;
    /* OPTIONAL: a format's name or the path of a Jinja file, in place of the model file's chat template; its marks are
     * marks (tokenizer.h). */
    const char *chat_template;
    const char *tool_format;                /* of chat_format.h, by name; NULL: what the chat template tells */
    const struct engine_sampling *sampling; /* OPTIONAL: goes before the model file's general.sampling.* */
    /* OPTIONAL: told 0..1 while the model loads, from the thread that called engine_open, many times a second; false
     * ends it with ERR_CANCELLED, and nothing is left behind. */
    bool (*progress)(void *arg, float fraction);
    void *progress_arg;
    /* OPTIONAL: called by engine_open with what an operator should know of what it does: a sentence. */
    void (*tell)(void *arg, const char *text);
    void *tell_arg;
    /* OPTIONAL: told why a batch could not be computed, before its streams end, from a thread of the engine, which it
     * must not hold up. Of ERR_LOST it is told once, and of nothing after it. */
    void (*failed)(void *arg, const struct err_info *why);
    void *failed_arg;
};

/* A device with a memory of its own (backend.h), and the bytes that the model has there. */
struct engine_device {
    const char *id, *name;
    const char *choice; /* which it is and why */
    const char *note;   /* what makes it slower than it could be, and the like; "" = nothing to say */
    uint64_t weights, kv, states, activations; /* kv: all pages; states: all recurrent states */
};

/* Borrowed from the engine, constant while it is open. */
struct engine_model_info {
    const char *file;                    /* path as given */
    const char *id;                      /* the file's base name without .gguf */
    const char *name;                    /* general.name, else the id */
    const char *architecture;            /* "llama" */
    const char *backend;                 /* "cpu"; of several with their layers: "ref:0-3,cpu:4-29" */
    const struct engine_device *devices; /* in the order of their layers; none where all is in the process */
    int n_devices;
    const char *kernels;      /* "avx512" */
    const char *kernels_why;  /* "the best this CPU can run; it has avx2 fma f16c ..." */
    const char *pack_cache;   /* "off", "mapped", "written", "failed" */
    const char *pack_note;    /* why packed weights were not mapped or not written; "" = nothing to say */
    const char *cache_type_k; /* keys in the KV cache: "i16"; "f32" for the ref back end */
    const char *cache_type_v; /* values */
    const char *quantization; /* the type most weights have: "Q4_1" */
    uint64_t n_params;
    uint64_t file_bytes;
    uint64_t weight_bytes; /* packed */
    uint64_t kv_bytes;     /* the pool, and recurrent states */
    uint32_t n_vocab, n_embd, n_layers, n_ctx_train, n_ctx;
    uint32_t n_embd_out; /* components of an embedding */
    /* "mean", "cls", "last", "rank", "none" (a vector for each token); NULL = not known: no embeddings */
    const char *pooling;
    bool embeds_tokens;              /* pooling is "none" */
    bool generates;                  /* false: an encoder or a reranker, which gives no text */
    bool ranks;                      /* a reranker, which gives numbers for pairs of texts alone */
    int32_t bos, eos;                /* ids, -1 = none */
    bool adds_bos, adds_eos;         /* prompts that are text get them */
    const char *bos_text, *eos_text; /* NUL-terminated, "" = none: bos_token and eos_token of chat templates */
    const char *chat_format; /* of the family, as neither configuration nor file has a chat template; else NULL */
    const struct err_info *chat_failed; /* why engine_chat cannot do; NULL = it can */
    struct engine_sampling
        sampling; /* all set: the configuration's, else the file's, else 1, 1, 0, 0 (OpenAI's), and no penalties */
    uint64_t fingerprint; /* of metadata and tensor directory: same file, same value */
    int n_threads;
    int max_seqs, max_waiting; /* sequences that are computed at once; that may wait */
};

/* Opens a model. Fails with any model file code, ERR_NOMEM, ERR_MEMORY_LIMIT, ERR_UNSUPPORTED_CPU, ERR_CONFIG,
 * ERR_CANCELLED. */
MUST_CHECK enum err engine_open(const struct engine_config *cfg, struct engine **out, struct err_info *info);

/* Checks what can be known of a model file without reading its weights: layout, hyper-parameters, tensors, vocabulary.
 * Fails as engine_open does. reads_weights: every one that the model uses, too; ERR_NUMERICAL names the tensor and the
 * place of one that is NaN or infinite. */
MUST_CHECK enum err engine_check(const char *path, bool reads_weights, struct err_info *info);

/* Like engine_open, but checks the configuration and stops before it loads a weight, takes memory for one, opens a device or
 * touches a folder of cfg. Of a SafeTensors folder that ties a head which is there, head and embedding are compared. With
 * another back end than the CPU's the device's memory is not compared. Fails as engine_open does. */
MUST_CHECK enum err engine_check_config(const struct engine_config *cfg, struct err_info *info);

/* Memory that engine_open would take. */
struct engine_memory {
    char kernels[64];      /* "avx512" */
    uint64_t weight_bytes; /* packed */
    uint64_t kv_bytes;     /* the pool, of kv_tokens, and recurrent states */
    uint64_t kv_tokens;
    uint64_t
        seq_tokens; /* of them, that the longest sequence takes at most: n_ctx in whole pages, or a window and a batch */
    uint64_t
        window_tokens; /* of kv_tokens, those that layers with a window have room for, where others see everything; else 0 */
    uint64_t activation_bytes;
    uint32_t n_ctx;
    int n_threads;
};

/* The figures of engine_open with the CPU back end, without reading a weight. Fails as engine_open does, but for the
 * vocabulary, which is not looked at. */
MUST_CHECK enum err engine_measure(const struct engine_config *cfg, struct engine_memory *out, struct err_info *info);

/* Stops the scheduler (running streams end with ERR_CANCELLED) and frees all. Streams must have been closed. */
void engine_close(struct engine **e);

/* Computes a few short sequences, and the ids of a conversation, so that the first request finds memory, code and
 * estimates warm; for two seconds at most, and a step. Call it once, before any request, if at all. It leaves no trace:
 * no cached prefix, and statistics begin behind it. Returns what the first of them broke off with, as requests then will: ERR_NUMERICAL,
 * ERR_LOST and the like. */
enum err engine_warm(struct engine *e, struct err_info *info);

const struct engine_model_info *engine_model(const struct engine *e);

/* Is the back end lost? Then *why (OPTIONAL) says how; every stream ends with ERR_LOST, and nothing more can be
 * submitted. */
bool engine_is_lost(const struct engine *e, struct err_info *why);

/* From now on engine_submit answers ERR_DRAINING; what was admitted goes on. */
void engine_drain(struct engine *e);

/* --- text and tokens -------------------------------------------------------------------------------------------- */

/* Ids of text[0..n). add_special: BOS/EOS as the vocabulary asks; parse_special: find special tokens, but never inside
 * `plain` (sorted spans of user text, may be NULL). *ids lies in the arena; on failure NULL.
 * ERR_PATTERN_LIMIT (the model's tokenizer wants more work than the text may take), ERR_CONTEXT_LENGTH, ERR_NOMEM;
 * task_check()'s errors, soon after the thread's task should end. */
MUST_CHECK enum err engine_tokenize(const struct engine *e, const char *text, size_t n, bool add_special,
                                    bool parse_special, const struct span *plain, size_t n_plain, struct arena *arena,
                                    int32_t **ids, size_t *n_ids, struct err_info *info);

/* Appends the text of ids (each in range, else ERR_INVALID_VALUE) as whole UTF-8; special tokens show their text. */
MUST_CHECK enum err engine_detokenize(const struct engine *e, const int32_t *ids, size_t n, struct buf *out);

/* Appends the raw bytes of one id, which may be part of a UTF-8 sequence. */
void engine_token_bytes(const struct engine *e, int32_t id, struct buf *out);

/* Ids of the marks around a gap that is to be filled, -1 = the vocabulary has none; bos: what begins every text, -1 = nothing. */
struct engine_fim {
    int32_t prefix, suffix, middle, repo, file, bos;
};
void engine_get_fim(const struct engine *e, struct engine_fim *out);

/* --- conversations ---------------------------------------------------------------------------------------------- */

/* The variables that every template gets: `messages` (OpenAI's, to which a reference is taken), add_generation_prompt,
 * and the model's bos_token and eos_token. Others may be added: "tools". NULL: no memory, or bos_token is no UTF-8. The
 * caller's, to json_decref. */
json_t *engine_chat_context(const struct engine *e, json_t *messages, bool adds_generation_prompt);

/* How the model writes calls of tools (chat_format.h). */
const struct chat_format *engine_tool_format(const struct engine *e);

/* Appends the text of the chat template; nothing where there is none. ERR_NOMEM. */
MUST_CHECK enum err engine_chat_template(const struct engine *e, struct buf *out);

/* Does the chat template's text have this word? */
bool engine_chat_mentions(const struct engine *e, const char *word);

/* Ids of a conversation: the chat template (chat_choose.h) is rendered with the variables of `context` and today's date,
 * and tokenised; what stands in the messages yields no special tokens, and BOS comes before it unless the template wrote
 * that itself. Where a template fails on, or prints, the null content of a message, that becomes empty in `context`.
 * Where the context has continue_final_message true, the prompt ends with the content of the last message, a string with more than white
 * space; ERR_INVALID_VALUE of "messages" where the template does not show that as it is, but for white space around it.
 * *ids and errors as engine_tokenize's; ERR_TEMPLATE, ERR_NO_TEMPLATE. Threads: as engine_tokenize; the context is
 * the caller's alone. */
MUST_CHECK enum err engine_chat(const struct engine *e, json_t *context, struct arena *arena, int32_t **ids,
                                size_t *n_ids, struct err_info *info);

/* --- requests --------------------------------------------------------------------------------------------------- */

/* Everything that shapes one generated sequence. engine_params_init gives the values named below, a fresh seed and
 * neutral sampling, but for temperature, top_k, top_p and min_p, where the model's own (engine_model_info.sampling)
 * stand. */
struct engine_params {
    struct sampler_params sampling; /* ends: ids that end the generation beside the model's own */
    int32_t max_tokens;             /* -1 = until the context is full; 0 = prefill only */
    int32_t min_tokens;             /* 0; no end token before, nor one of ends */
    bool ignore_eos;                /* the model's end tokens are banned; ends still end the generation */
    bool prompt_logprobs; /* also log-probabilities of the prompt's tokens (events of kind SCHED_PROMPT_TOKEN) */
    bool show_special;    /* control tokens appear in the text */
    const char *stop[ENGINE_MAX_STOPS]; /* length-counted; NUL is data */
    size_t stop_len[ENGINE_MAX_STOPS];  /* 1 .. ENGINE_MAX_STOP_BYTES */
    size_t n_stop;
    struct grammar
        *grammar; /* OPTIONAL, of engine_grammar_*: what the text follows; borrowed for the call that submits */
    /* Thinking (engine_tool_format) ends with these tokens behind so many; n_think_end 0: it takes as many as it likes. */
    int32_t think_tokens;
    bool is_thinking;         /* the prompt has begun it */
    bool reads_calls;         /* a call (engine_tool_format) that is made there ends it */
    const int32_t *think_end; /* [n_think_end], borrowed for the call that submits */
    size_t n_think_end;
    const char *cache_salt;  /* OPTIONAL: prefixes are shared only between requests of the same salt */
    bool keeps_no_snapshots; /* the prefix goes to no disk, as no other request has the salt */
    uint64_t deadline_ns;    /* on clock_now_ns; 0 = none */
    uint64_t request_id;     /* for the log */
};
void engine_params_init(const struct engine *e, struct engine_params *p);

/* Pointers are borrowed until the next engine_next or engine_stream_close of the stream. */
struct engine_event {
    enum sched_event_kind kind;  /* a token comes when all of its text may be shown */
    struct sampler_result token; /* TOKEN, PROMPT_TOKEN */
    const char *text; /* text this event adds, whole UTF-8 sequences, may be empty; END: what was held back */
    size_t text_len;
    enum sched_finish finish;   /* END */
    const char *stop_match;     /* END by a stop string: which (a NUL follows); else NULL */
    size_t i_stop;              /* .. its place in engine_params.stop */
    enum err err;               /* END: ERR_OK, or why the stream broke off */
    const struct err_info *why; /* END: what is known of that beyond err, or NULL */
};

/* ERR_IO when a file of the model has become shorter since it was opened: then its weights and its vocabulary are no
 * longer what they were, and reading there may end the process (SIGBUS). */
MUST_CHECK enum err engine_check_file(const struct engine *e, struct err_info *info);

/* ERR_UNSUPPORTED_ENDPOINT when the model does not generate. */
MUST_CHECK enum err engine_check_generates(const struct engine *e, struct err_info *info);

/* What engine_submit would refuse for good: ERR_UNSUPPORTED_ENDPOINT, ERR_INVALID_VALUE, ERR_CONTEXT_LENGTH. */
MUST_CHECK enum err engine_check_submit(const struct engine *e, const int32_t *ids, size_t n_ids,
                                        const struct engine_params *p, struct err_info *info);

/* The sequences of one request, which share its turns: the engine's time is shared by the keys of requests, as their
 * weights say, then goes round over the requests of a key. whose: OPTIONAL; n: sequences it will submit in all.
 * ERR_NOMEM. */
MUST_CHECK enum err engine_group_open(struct engine *e, const struct sched_share *whose, size_t n,
                                      struct sched_group **out);

/* Would any request of this key be refused now, as the queue is full? Costs next to nothing, while a prompt takes time to be made. */
bool engine_is_full(struct engine *e, const struct sched_share *whose);

/* How many more may be submitted now; 0 = later, when earlier ones have ended, or never, while none has been taken: the
 * queue is full. Once some were taken, as many may always be there at a time. */
size_t engine_group_room(struct sched_group *g);

/* Lets go of the group; its sequences go on. */
void engine_group_close(struct sched_group **g);

/* A grammar for engine_params.grammar: any JSON object. thinking, here and below: in front of that, with the marks of
 * engine_tool_format. The caller's, to engine_grammar_free; sequences that were submitted keep it. The first call of all makes
 * the vocabulary's tables, a quarter of a second for 150,000 tokens. ERR_NOMEM; here and below task_check()'s errors, soon after the
 * thread's task should end. */
MUST_CHECK enum err engine_grammar_json_object(struct engine *e, enum chat_thinking thinking, struct grammar **out,
                                               struct err_info *info);
/* .. what a JSON Schema, borrowed, allows (schema.h). ERR_INVALID_SCHEMA with the place in the schema as a JSON pointer,
 * ERR_INVALID_GRAMMAR: it allows nothing; ERR_GRAMMAR_LIMIT, ERR_NOMEM. */
MUST_CHECK enum err engine_grammar_json_schema(struct engine *e, const json_t *schema, enum chat_thinking thinking,
                                               struct grammar **out, struct err_info *info);
/* .. what a grammar in GBNF (grammar_gbnf.h), or a pattern of ECMA-262 that the whole text matches (regex_parse.h), says; text[0..n).
 * ERR_INVALID_GRAMMAR, ERR_GRAMMAR_LIMIT, ERR_NOMEM. */
MUST_CHECK enum err engine_grammar_gbnf(struct engine *e, const char *text, size_t n, enum chat_thinking thinking,
                                        struct grammar **out, struct err_info *info);
MUST_CHECK enum err engine_grammar_regex(struct engine *e, const char *text, size_t n, enum chat_thinking thinking,
                                         struct grammar **out, struct err_info *info);
/* .. what a grammar says that is Lark's or GBNF (grammar_is_lark). Errors: engine_grammar_gbnf's. */
MUST_CHECK enum err engine_grammar_any(struct engine *e, const char *text, size_t n, enum chat_thinking thinking,
                                       struct grammar **out, struct err_info *info);
/* .. one of n texts, texts[i][0..lengths[i]). */
MUST_CHECK enum err engine_grammar_choice(struct engine *e, const char *const *texts, const size_t *lengths, size_t n,
                                          enum chat_thinking thinking, struct grammar **out, struct err_info *info);
/* .. answers with calls of tools (chat_forced.h). *i_failed: the tool whose schema the error is of. */
MUST_CHECK enum err engine_grammar_calls(struct engine *e, const struct chat_forced *f, struct grammar **out,
                                         size_t *i_failed, struct err_info *info);
void engine_grammar_free(struct grammar **g);

/* What differs between the sequences of a request. */
struct engine_sequence {
    const int32_t *ids; /* as engine_submit's */
    size_t n_ids;
    uint32_t choice; /* these two in place of engine_params' */
    bool prompt_logprobs;
};

/* Queues n sequences, all or none (then out[i] are NULL); group OPTIONAL. Fails as engine_submit does; ERR_AGAIN in
 * place of ERR_OVERLOADED while earlier ones of the group go on; no ERR_DRAINING once some of the group were taken. */
MUST_CHECK enum err engine_submit_all(struct engine *e, struct sched_group *group, const struct engine_params *p,
                                      const struct engine_sequence *seqs, size_t n, struct engine_stream **out,
                                      struct err_info *info);

/* Queues a sequence, a request of its own. Fails as engine_check_generates and engine_check_file do. ids: 1 .. n_ctx-1
 * prompt tokens in range (copied). ERR_INVALID_VALUE (empty prompt, id out of range, every token banned),
 * ERR_CONTEXT_LENGTH (prompt does not fit; info holds both counts), ERR_OVERLOADED, ERR_DRAINING, ERR_LOST, ERR_NOMEM.
 */
MUST_CHECK enum err engine_submit(struct engine *e, const int32_t *ids, size_t n_ids, const struct engine_params *p,
                                  struct engine_stream **out, struct err_info *info);

/* Waits up to timeout_ms for the next event. ERR_AGAIN: nothing yet; ERR_NONE: the stream has ended. */
MUST_CHECK enum err engine_next(struct engine_stream *s, int timeout_ms, struct engine_event *out);

/* Asks the scheduler to drop the sequence: no further step computes it and its KV pages are freed within one step. Safe
 * from any thread while the stream is open. */
void engine_cancel(struct engine_stream *s);

/* Counts so far; exact after SCHED_END. */
void engine_stream_usage(const struct engine_stream *s, struct sched_usage *out);

/* The same from any thread while the stream is open; tokens that a stop string cut off are counted. */
void engine_stream_look(const struct engine_stream *s, struct sched_usage *out);

/* Cancels if still running, and frees. */
void engine_stream_close(struct engine_stream **s);

/* --- embeddings ------------------------------------------------------------------------------------------------- */

struct engine_embed_params {
    struct sched_group *group; /* OPTIONAL */
    const char *cache_salt;    /* as in engine_params */
    uint64_t deadline_ns;      /* on clock_now_ns; 0 = none */
    bool keeps_length;         /* of engine_embed: the vector keeps the length that the model gives it */
};

/* ERR_UNSUPPORTED_ENDPOINT when the pooling is not known. */
MUST_CHECK enum err engine_check_embeds(const struct engine *e, struct err_info *info);

/* ERR_UNSUPPORTED_ENDPOINT when the model is no reranker. */
MUST_CHECK enum err engine_check_ranks(const struct engine *e, struct err_info *info);

/* A text, borrowed. */
struct engine_text {
    const char *text;
    size_t n;
};

/* A query and what is made of it once for all its pairs. Zero-initialise but for the text. */
struct engine_query {
    struct engine_text text;
    int32_t *ids; /* private, as n_ids; in the arena of the first pair; NULL: not made, or not of use to this model */
    size_t n_ids;
};

/* The ids of a pair as a reranker was trained for it: of an encoder both texts between the vocabulary's own special tokens,
 * of a decoder the file's template named rerank around them, or one behind the other when there is none. No special
 * token is looked for in the texts. An encoder's query is tokenized for its first pair only; the arena must be the same for
 * all pairs of a query. *ids lie in the arena. As engine_tokenize. */
MUST_CHECK enum err engine_tokenize_pair(const struct engine *e, struct engine_query *query,
                                         const struct engine_text *document, struct arena *arena, int32_t **ids,
                                         size_t *n_ids, struct err_info *info);

/* Queues a text to embed, beside everything else that runs. ids: 1 .. n_ctx tokens in range (copied).
 * Fails as engine_check_embeds and, else, as engine_submit_all. */
MUST_CHECK enum err engine_embed(struct engine *e, const int32_t *ids, size_t n_ids,
                                 const struct engine_embed_params *p, struct engine_embedding **out,
                                 struct err_info *info);

/* The same with a pair to rank, of engine_tokenize_pair; *out of engine_embedding_wait is then [1], a number without bounds
 * which is larger the better the texts fit. Fails as engine_check_ranks and, else, as engine_submit_all. */
MUST_CHECK enum err engine_rank(struct engine *e, const int32_t *ids, size_t n_ids, const struct engine_embed_params *p,
                                struct engine_embedding **out, struct err_info *info);

/* Waits up to timeout_ms for *out, [n_embd_out] of length 1 unless its own was to be kept; of a model that embeds_tokens
 * [n_ids][n_embd_out] as the model gives them. Borrowed until engine_embedding_close. The same tokens give the same bits
 * whatever else runs. ERR_AGAIN: not yet. ERR_CANCELLED, ERR_DEADLINE, ERR_NUMERICAL, ERR_LOST or what else the back end
 * failed with: there will be none. */
MUST_CHECK enum err engine_embedding_wait(struct engine_embedding *w, int timeout_ms, const float **out,
                                          struct err_info *info);

/* Its counts; completion tokens and what belongs to them are 0. */
void engine_embedding_usage(const struct engine_embedding *w, struct sched_usage *out);

/* As engine_cancel and engine_stream_close. */
void engine_embedding_cancel(struct engine_embedding *w);
void engine_embedding_close(struct engine_embedding **w);

/* --- statistics ------------------------------------------------------------------------------------------------- */

void engine_get_stats(const struct engine *e, struct sched_stats *out);

/* Sequences of a key now; key 0: of nobody's, guests among them. */
void engine_get_share(const struct engine *e, uint64_t key, uint64_t *n_running, uint64_t *n_waiting);

struct engine_grammar_stats {
    uint64_t n_made, n_reused, n_kept; /* grammars read; requests that found theirs; grammars that are kept now */
};
void engine_get_grammar_stats(const struct engine *e, struct engine_grammar_stats *out);

#endif
