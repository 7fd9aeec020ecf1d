/* The public interface of infcgi's engine, for programs: open a model, submit token prompts, receive text and tokens.
 *
 * One engine has one model. Requests are independent streams: a request with the same seed gets the same bytes,
 * whatever else runs. The engine neither prints nor exits.
 *
 * Threads: any thread can call any function, but a stream belongs to one thread at a time. Only engine_cancel can come
 * from another thread. */
#ifndef INFCGI_ENGINE_H
#define INFCGI_ENGINE_H

#include "engine/base/buf.h"
#include "engine/base/err.h"
#include "engine/base/mem.h"
#include "engine/base/span.h"
#include "engine/chat/chat_format.h"
#include "engine/sched/sched_report.h"

#include <jansson.h>
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

/* Sampling for requests that set no value. In engine_config a value below its range means "not set": then the model
 * file's general.sampling.* applies, else temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, repeat_penalty 1 and
 * repeat_last_n 64. sampler.h has ranges and meanings. */
struct engine_sampling {
    double temperature, top_p, min_p; /* not set: negative */
    int64_t top_k;                    /* not set: negative */
    double repeat_penalty;            /* not set: below 0.01 */
    int64_t repeat_last_n;            /* not set: below -1 */
    int64_t seed;                     /* 0: drawn per request */
    double typical_p, presence_penalty, frequency_penalty;
};

/* Sources of drafts, as bits. Without any there are no drafts; forced tokens need one of them. */
enum { ENGINE_LOOKUP = 1 << 0, ENGINE_HEAD = 1 << 1, ENGINE_DRAFT = 1 << 2 };

/* Returns the i-th word of engine_config.speculate, "auto", "off", "lookup", "draft-mtp" ..; NULL after the last. */
const char *engine_draft_word(int i);

/* Reads words separated by commas into *sources (OPTIONAL). ERR_CONFIG names `what`, the words and the wrong one. */
MUST_CHECK enum err engine_draft_parse(const char *words, const char *what, unsigned *sources, struct err_info *info);

/* Zero means "choose for me" in every field that has a default. Strings are borrowed for the call of engine_open. */
struct engine_config {
    const char *model_path;
    const char *backend;      /* as in backend_parts.h: "ref:0-3,cpu"; NULL: "cpu" */
    const char *gpu_layers;   /* layers on a back end with its own memory (backend_layers.h): "auto", "17"; NULL: all */
    const char *device;       /* of the OpenCL back end (backend.h); NULL: "auto" */
    const char *cpu;          /* ISA: a name from kern.h such as "avx512"; NULL: "auto" */
    bool high_precision;      /* 16-bit activations everywhere (backend.h) */
    bool pin;                 /* pin each worker thread to a separate CPU */
    const char *cache_type_k; /* of keys: "q8_0", as the back end has them; NULL: its first, cpu's "i16" */
    const char *cache_type_v; /* of values; NULL: the back end's first */
    int n_threads;            /* 0: CPUs this process can run on */
    uint32_t n_ctx;           /* longest sequence in tokens; 0: the model's training context, at most 32768 */
    uint64_t kv_tokens;       /* capacity of the KV pool; 0: 32768, at least what the longest sequence takes */
    int max_seqs;             /* sequences in one batch; 0: 16 */
    int max_batch_rows;       /* token rows in one step; 0: 512 */
    int queue_max_requests;   /* waiting requests before 503; 0: 256 */
    const char *pooling;      /* name of plan_pooling_name: how states become embeddings; NULL: as the file says */
    bool closes_objects;      /* read JSON Schemas as grammar_close_objects (grammar_build.h) says */
    const char *speculate;    /* sources of drafts, words of engine_draft_word separated by commas; NULL: "auto", all */
    const char *draft_path;   /* OPTIONAL: a draft model, which guesses tokens instead of the head (engine_draft.c) */
    float guess_p_min;        /* least probability of a token that the head or the draft model guesses, 0..1 */
    int draft_max;            /* tokens drafted per sequence and step, 1..31; 0: 15, with recurrent states 7 */
    uint64_t memory_limit_bytes; /* refuse to start if the plan needs more; 0: no limit */
    const char *quantize;        /* type for weights of F32, F16, BF16: "q8_0" (plan_quantize.h); NULL, "off": none */
    const char *pack_cache;      /* OPTIONAL: folder for packed weights that the next start reuses (backend.h) */
    /* OPTIONAL: folder where KV pages and recurrent states outlive the process (kv_disk.h), and their limit in
     * bytes. */
    const char *cache_dir;
    uint64_t cache_disk_bytes;
    /* OPTIONAL: receives a sentence when snapshots stop, with the reason, and when they resume; also after engine_open,
     * from another thread. */
    void (*snapshots)(void *arg, const char *text);
    void *snapshots_arg;
    /* OPTIONAL: a format's name or the path of a Jinja file, instead of the model file's chat template. Its marks are
     * marks (tokenizer.h). */
    const char *chat_template;
    const char *tool_format;                /* a name from chat_format.h; NULL: derived from the chat template */
    const struct engine_sampling *sampling; /* OPTIONAL: overrides the model file's general.sampling.* */
    /* OPTIONAL: receives 0..1 while the model loads, many times per second, from the thread that called engine_open.
     * Returning false ends the load with ERR_CANCELLED and leaves nothing behind. */
    bool (*progress)(void *arg, float fraction);
    void *progress_arg;
    /* OPTIONAL: engine_open calls it with sentences for the operator about its decisions. */
    void (*tell)(void *arg, const char *text);
    void *tell_arg;
    /* OPTIONAL: receives the reason when a batch fails, before its streams end, from a thread of the engine; it must
     * not block. ERR_LOST comes once, and nothing follows it. */
    void (*failed)(void *arg, const struct err_info *why);
    void *failed_arg;
};

/* A device with its own memory (backend.h), and the bytes that the model takes there. */
struct engine_device {
    const char *id, *name;
    const char *choice;                        /* which device was chosen, and why */
    const char *note;                          /* what makes it slower than it could be, and the like; "": nothing */
    uint64_t weights, kv, states, activations; /* kv: all pages; states: all recurrent states */
};

/* Borrowed from the engine; constant while it is open. */
struct engine_model_info {
    const char *file;                    /* path as given */
    const char *id;                      /* the file's base name without .gguf */
    const char *name;                    /* general.name, else the id */
    const char *architecture;            /* "llama" */
    const char *backend;                 /* "cpu"; of several, with their layers: "ref:0-3,cpu:4-29" */
    const struct engine_device *devices; /* in the order of their layers; none if all is in the process */
    int n_devices;
    const char *kernels;      /* "avx512" */
    const char *kernels_why;  /* "the best this CPU can run; it has avx2 fma f16c ..." */
    const char *pack_cache;   /* "off", "mapped", "written", "failed" */
    const char *pack_note;    /* why packed weights were not mapped or not written; "": nothing to say */
    const char *cache_type_k; /* keys in the KV cache: "i16"; "f32" for the ref back end */
    const char *cache_type_v; /* of values */
    const char *quantization; /* type of most weights: "Q4_1" */
    uint64_t n_params;
    uint64_t file_bytes;
    uint64_t weight_bytes; /* packed */
    uint64_t kv_bytes;     /* the pool, and recurrent states */
    uint32_t n_vocab, n_embd, n_layers, n_ctx_train, n_ctx;
    const char *predictor; /* what guesses tokens: "head", or the draft model's path; NULL: nothing does */
    uint32_t n_embd_out;   /* components of an embedding */
    /* "mean", "cls", "last", "rank", "none" (one vector per token); NULL: unknown, no embeddings. */
    const char *pooling;
    bool embeds_tokens;              /* pooling is "none" */
    bool generates;                  /* false: an encoder or a reranker, which generates no text */
    bool ranks;                      /* a reranker, which only scores pairs of texts */
    int32_t bos, eos;                /* ids; -1: none */
    bool adds_bos, adds_eos;         /* text prompts get them */
    const char *bos_text, *eos_text; /* NUL-terminated bos_token and eos_token of chat templates; "": none */
    const char *chat_format; /* the family's, if neither configuration nor file has a chat template; else NULL */
    const struct err_info *chat_failed; /* why engine_chat fails; NULL: it works */
    /* All set: the configuration's, else the file's, else OpenAI's (1, 1, 0, 0) without penalties. */
    struct engine_sampling sampling;
    uint64_t fingerprint; /* of metadata and tensor directory: equal for equal files */
    int n_threads;
    int max_seqs, max_waiting; /* sequences computed at the same time; sequences that can wait */
};

/* Opens a model. Fails with any model file code, ERR_NOMEM, ERR_MEMORY_LIMIT, ERR_UNSUPPORTED_CPU, ERR_CONFIG,
 * ERR_CANCELLED. */
MUST_CHECK enum err engine_open(const struct engine_config *cfg, struct engine **out, struct err_info *info);

/* Checks a model file without reading its weights: layout, hyper-parameters, tensors, vocabulary. With reads_weights it
 * also reads every weight that the model uses; ERR_NUMERICAL names the tensor and position of a NaN or infinity. Fails
 * as engine_open does. */
MUST_CHECK enum err engine_check(const char *path, bool reads_weights, struct err_info *info);

/* Checks a configuration like engine_open, but stops before it loads a weight, allocates memory for one, opens a device
 * or touches a folder of cfg. If a SafeTensors folder has a head but ties it to the embedding, compares both. For back
 * ends other than the CPU's, does not compare the device's memory. Fails as engine_open does. */
MUST_CHECK enum err engine_check_config(const struct engine_config *cfg, struct err_info *info);

/* Memory that engine_open would take. */
struct engine_memory {
    char kernels[64];      /* "avx512" */
    uint64_t weight_bytes; /* packed */
    uint64_t kv_bytes;     /* the pool of kv_tokens, and recurrent states */
    uint64_t kv_tokens;
    /* Part of kv_tokens that the longest sequence can take: n_ctx in whole pages, or a window and a batch. */
    uint64_t seq_tokens;
    /* Part of kv_tokens that layers with a window have room for, if other layers see everything; else 0. */
    uint64_t window_tokens;
    uint64_t activation_bytes;
    uint32_t n_ctx;
    int n_threads;
};

/* Returns the memory that engine_open takes with the CPU back end, without reading a weight. Fails as engine_open does,
 * but does not check the vocabulary. */
MUST_CHECK enum err engine_measure(const struct engine_config *cfg, struct engine_memory *out, struct err_info *info);

/* Stops the scheduler (running streams end with ERR_CANCELLED) and frees everything. The caller must have closed all
 * streams. */
void engine_close(struct engine **e);

/* Computes a few short sequences and tokenizes a conversation, so that the first request finds memory, code and
 * estimates warm. Takes at most two seconds plus one step. Call it at most once, before any request. Leaves no cached
 * prefixes and resets statistics. Returns the first error of these sequences, which requests would get too:
 * ERR_NUMERICAL, ERR_LOST and the like. */
enum err engine_warm(struct engine *e, struct err_info *info);

const struct engine_model_info *engine_model(const struct engine *e);

/* Returns whether the back end is lost; *why (OPTIONAL) then holds the reason. After that every stream ends with
 * ERR_LOST and the engine rejects new sequences. */
bool engine_is_lost(const struct engine *e, struct err_info *why);

/* Makes engine_submit return ERR_DRAINING from now on; admitted sequences continue. */
void engine_drain(struct engine *e);

/* --- text and tokens ---------------------------------------------------------------------------------------------- */

/* Tokenizes text[0..n). add_special adds BOS/EOS as the vocabulary asks. parse_special finds special tokens, but never
 * inside `plain` (sorted spans of user text, OPTIONAL). *ids is in the arena, NULL on failure. ERR_PATTERN_LIMIT (the
 * text exceeds the pre-tokenizer's work limit), ERR_CONTEXT_LENGTH, ERR_NOMEM; task_check()'s errors, soon after the
 * thread's task should end. */
MUST_CHECK enum err engine_tokenize(const struct engine *e, const char *text, size_t n, bool add_special,
                                    bool parse_special, const struct span *plain, size_t n_plain, struct arena *arena,
                                    int32_t **ids, size_t *n_ids, struct err_info *info);

/* Appends the text of ids as whole UTF-8, special tokens with their text. ERR_INVALID_VALUE if an id is out of
 * range. */
MUST_CHECK enum err engine_detokenize(const struct engine *e, const int32_t *ids, size_t n, struct buf *out);

/* Appends the raw bytes of one id, which can be part of a UTF-8 sequence. */
void engine_token_bytes(const struct engine *e, int32_t id, struct buf *out);

/* Ids of the marks around a gap to fill; -1: not in the vocabulary. bos: the id that begins every text; -1: none. */
struct engine_fim {
    int32_t prefix, suffix, middle, repo, file, bos;
};
void engine_get_fim(const struct engine *e, struct engine_fim *out);

/* --- conversations ------------------------------------------------------------------------------------------------ */

/* Returns the variables that every template gets: `messages` (OpenAI's; takes a reference), add_generation_prompt, and
 * the model's bos_token and eos_token. The caller can add others, such as "tools", and frees the object with
 * json_decref. Returns NULL if memory is out or bos_token is not UTF-8. */
json_t *engine_chat_context(const struct engine *e, json_t *messages, bool adds_generation_prompt);

/* Returns how the model writes tool calls (chat_format.h). */
const struct chat_format *engine_tool_format(const struct engine *e);

/* Appends the text of the chat template, or nothing if the model has none. ERR_NOMEM. */
MUST_CHECK enum err engine_chat_template(const struct engine *e, struct buf *out);

/* Returns whether the chat template's text contains the word. */
bool engine_chat_mentions(const struct engine *e, const char *word);

/* Tokenizes a conversation: renders the chat template (chat_choose.h) with the variables of `context` and today's date.
 * Text of the messages yields no special tokens. BOS comes first unless the template wrote it itself.
 *
 * If a template fails on, or prints, the null content of a message, that content becomes empty in `context`. If the
 * context has continue_final_message true, the prompt ends with the content of the last message, a string with more
 * than white space. ERR_INVALID_VALUE of "messages" if the template changes that string other than by white space
 * around it.
 *
 * *ids and errors as engine_tokenize's; also ERR_TEMPLATE, ERR_NO_TEMPLATE. Threads: as engine_tokenize; only the
 * caller uses the context. */
MUST_CHECK enum err engine_chat(const struct engine *e, json_t *context, struct arena *arena, int32_t **ids,
                                size_t *n_ids, struct err_info *info);

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* Everything that shapes one generated sequence. engine_params_init sets the values named below, a fresh seed and
 * neutral sampling, except that temperature, top_k, top_p and min_p are the model's (engine_model_info.sampling). */
struct engine_params {
    struct sampler_params sampling;     /* ends: ids that end the generation in addition to the model's */
    int32_t max_tokens;                 /* -1: until the context is full; 0: prefill only */
    int32_t min_tokens;                 /* default 0; before that no end token and none of ends */
    bool ignore_eos;                    /* ban the model's end tokens; ends still end the generation */
    bool prompt_logprobs;               /* also emit the prompt tokens' log-probabilities (SCHED_PROMPT_TOKEN) */
    bool show_special;                  /* show control tokens in the text */
    const char *stop[ENGINE_MAX_STOPS]; /* length-counted; NUL is data */
    size_t stop_len[ENGINE_MAX_STOPS];  /* 1 .. ENGINE_MAX_STOP_BYTES */
    size_t n_stop;
    /* OPTIONAL, from engine_grammar_*: the text follows it; borrowed for the submitting call */
    struct grammar *grammar;
    /* After think_tokens tokens, thinking (engine_tool_format) ends with think_end. n_think_end 0: no limit. */
    int32_t think_tokens;
    bool is_thinking;         /* the prompt has begun thinking */
    bool reads_calls;         /* a tool call (engine_tool_format) within thinking ends it */
    const int32_t *think_end; /* [n_think_end], borrowed for the submitting call */
    size_t n_think_end;
    const char *cache_salt;  /* OPTIONAL: only requests with the same salt share prefixes */
    bool keeps_no_snapshots; /* keep the prefix off the disk, because no other request has the salt */
    uint64_t deadline_ns;    /* on clock_now_ns; 0: none */
    uint64_t request_id;     /* for the log */
};
void engine_params_init(const struct engine *e, struct engine_params *p);

/* Pointers are borrowed until the stream's next engine_next or engine_stream_close. */
struct engine_event {
    enum sched_event_kind kind;  /* a token arrives when all of its text can be shown */
    struct sampler_result token; /* TOKEN, PROMPT_TOKEN */
    const char *text; /* text that this event adds, in whole UTF-8 sequences, can be empty; END: the text held back */
    size_t text_len;
    enum sched_finish finish;   /* END */
    const char *stop_match;     /* END by a stop string: that string, NUL-terminated; else NULL */
    size_t i_stop;              /* its index in engine_params.stop */
    enum err err;               /* END: ERR_OK, or why the stream failed */
    const struct err_info *why; /* END: details beyond err, or NULL */
};

/* Returns ERR_IO if a file of the model has become shorter since it was opened. Then weights and vocabulary have
 * changed, and reading them can kill the process (SIGBUS). */
MUST_CHECK enum err engine_check_file(const struct engine *e, struct err_info *info);

/* Returns ERR_UNSUPPORTED_ENDPOINT if the model does not generate. */
MUST_CHECK enum err engine_check_generates(const struct engine *e, struct err_info *info);

/* Checks for permanent errors of engine_submit: ERR_UNSUPPORTED_ENDPOINT, ERR_INVALID_VALUE, ERR_CONTEXT_LENGTH. */
MUST_CHECK enum err engine_check_submit(const struct engine *e, const int32_t *ids, size_t n_ids,
                                        const struct engine_params *p, struct err_info *info);

/* Opens the group of one request's sequences, which share its turns: the engine's time is split between keys by their
 * weights, then round robin between a key's requests. whose: OPTIONAL; n: sequences the request will submit in all.
 * ERR_NOMEM. */
MUST_CHECK enum err engine_group_open(struct engine *e, const struct sched_share *whose, size_t n,
                                      struct sched_group **out);

/* Returns whether the full queue would reject any request of this key now. Costs almost nothing, while making a prompt
 * takes time. */
bool engine_is_full(struct engine *e, const struct sched_share *whose);

/* Returns how many more sequences the group can submit now. 0: none until earlier ones end; if none has been accepted,
 * the queue is full. Once the queue accepted some, the group can always have that number in it. */
size_t engine_group_room(struct sched_group *g);

/* Releases the group; its sequences continue. */
void engine_group_close(struct sched_group **g);

/* Makes a grammar for engine_params.grammar that accepts any JSON object. With thinking (here and below), thinking with
 * the marks of engine_tool_format precedes it. The caller frees the grammar with engine_grammar_free; submitted
 * sequences keep it. The first call of any of these functions builds the vocabulary's tables, 0.25 s for 150,000
 * tokens. ERR_NOMEM; here and below task_check()'s errors, soon after the thread's task should end. */
MUST_CHECK enum err engine_grammar_json_object(struct engine *e, enum chat_thinking thinking, struct grammar **out,
                                               struct err_info *info);
/* Makes a grammar for a JSON Schema, borrowed (schema.h). ERR_INVALID_SCHEMA with the position in the schema as a JSON
 * pointer, ERR_INVALID_GRAMMAR if it allows nothing; ERR_GRAMMAR_LIMIT, ERR_NOMEM. */
MUST_CHECK enum err engine_grammar_json_schema(struct engine *e, const json_t *schema, enum chat_thinking thinking,
                                               struct grammar **out, struct err_info *info);
/* Makes a grammar from text[0..n): GBNF (grammar_gbnf.h), or an ECMA-262 pattern that the whole answer matches
 * (regex_parse.h). ERR_INVALID_GRAMMAR, ERR_GRAMMAR_LIMIT, ERR_NOMEM. */
MUST_CHECK enum err engine_grammar_gbnf(struct engine *e, const char *text, size_t n, enum chat_thinking thinking,
                                        struct grammar **out, struct err_info *info);
MUST_CHECK enum err engine_grammar_regex(struct engine *e, const char *text, size_t n, enum chat_thinking thinking,
                                         struct grammar **out, struct err_info *info);
/* Makes a grammar from Lark or GBNF (grammar_is_lark). Errors: engine_grammar_gbnf's. */
MUST_CHECK enum err engine_grammar_any(struct engine *e, const char *text, size_t n, enum chat_thinking thinking,
                                       struct grammar **out, struct err_info *info);
/* Makes a grammar that accepts one of n texts, texts[i][0..lengths[i]). */
MUST_CHECK enum err engine_grammar_choice(struct engine *e, const char *const *texts, const size_t *lengths, size_t n,
                                          enum chat_thinking thinking, struct grammar **out, struct err_info *info);
/* Makes a grammar for answers with tool calls (chat_forced.h). *i_failed: the tool whose schema caused the error. */
MUST_CHECK enum err engine_grammar_calls(struct engine *e, const struct chat_forced *f, struct grammar **out,
                                         size_t *i_failed, struct err_info *info);
void engine_grammar_free(struct grammar **g);

/* Fields that differ between the sequences of a request. */
struct engine_sequence {
    const int32_t *ids; /* as for engine_submit */
    size_t n_ids;
    uint32_t choice; /* this field and the next replace engine_params' */
    bool prompt_logprobs;
};

/* Queues n sequences, all or none (then each out[i] is NULL); group OPTIONAL. Fails as engine_submit does, but with
 * ERR_AGAIN instead of ERR_OVERLOADED while earlier sequences of the group run, and without ERR_DRAINING once the queue
 * accepted some of the group. */
MUST_CHECK enum err engine_submit_all(struct engine *e, struct sched_group *group, const struct engine_params *p,
                                      const struct engine_sequence *seqs, size_t n, struct engine_stream **out,
                                      struct err_info *info);

/* Queues one sequence as a separate request. ids: 1 .. n_ctx-1 prompt tokens in range (copied). Fails as
 * engine_check_generates and engine_check_file do, and with ERR_INVALID_VALUE (empty prompt, id out of range, every
 * token banned), ERR_CONTEXT_LENGTH (prompt does not fit; info holds both counts), ERR_OVERLOADED, ERR_DRAINING,
 * ERR_LOST, ERR_NOMEM. */
MUST_CHECK enum err engine_submit(struct engine *e, const int32_t *ids, size_t n_ids, const struct engine_params *p,
                                  struct engine_stream **out, struct err_info *info);

/* Waits up to timeout_ms for the next event. ERR_AGAIN: none yet; ERR_NONE: the stream has ended. */
MUST_CHECK enum err engine_next(struct engine_stream *s, int timeout_ms, struct engine_event *out);

/* Asks the scheduler to drop the sequence: no further step computes it, and its KV pages are freed within one step.
 * Safe from any thread while the stream is open. */
void engine_cancel(struct engine_stream *s);

/* Returns the counts so far; exact after SCHED_END. */
void engine_stream_usage(const struct engine_stream *s, struct sched_usage *out);

/* Like engine_stream_usage, but from any thread while the stream is open; counts tokens cut by a stop string. */
void engine_stream_look(const struct engine_stream *s, struct sched_usage *out);

/* Cancels the stream if it still runs, and frees it. */
void engine_stream_close(struct engine_stream **s);

/* --- embeddings --------------------------------------------------------------------------------------------------- */

struct engine_embed_params {
    struct sched_group *group; /* OPTIONAL */
    const char *cache_salt;    /* as in engine_params */
    uint64_t deadline_ns;      /* on clock_now_ns; 0 = none */
    bool keeps_length;         /* engine_embed: keep the vector's length as the model computes it */
};

/* Returns ERR_UNSUPPORTED_ENDPOINT if the pooling is unknown. */
MUST_CHECK enum err engine_check_embeds(const struct engine *e, struct err_info *info);

/* Returns ERR_UNSUPPORTED_ENDPOINT if the model is not a reranker. */
MUST_CHECK enum err engine_check_ranks(const struct engine *e, struct err_info *info);

/* A text, borrowed. */
struct engine_text {
    const char *text;
    size_t n;
};

/* A query, tokenized once for all its pairs. The caller zero-initialises all but the text. */
struct engine_query {
    struct engine_text text;
    int32_t *ids; /* private, with n_ids; in the arena of the first pair; NULL: not made, or not used by this model */
    size_t n_ids;
};

/* Tokenizes a pair as the reranker was trained. For an encoder both texts are between the vocabulary's special tokens.
 * For a decoder the file's template "rerank" surrounds them; without one, the document follows the query. The texts
 * yield no special tokens. An encoder's query is tokenized for its first pair only, so all pairs of a query must use
 * the same arena. *ids is in the arena. Errors: engine_tokenize's. */
MUST_CHECK enum err engine_tokenize_pair(const struct engine *e, struct engine_query *query,
                                         const struct engine_text *document, struct arena *arena, int32_t **ids,
                                         size_t *n_ids, struct err_info *info);

/* Queues a text to embed, next to everything else that runs. ids: 1 .. n_ctx tokens in range (copied). Fails as
 * engine_check_embeds and, otherwise, as engine_submit_all. */
MUST_CHECK enum err engine_embed(struct engine *e, const int32_t *ids, size_t n_ids,
                                 const struct engine_embed_params *p, struct engine_embedding **out,
                                 struct err_info *info);

/* Like engine_embed, but queues a pair to rank, from engine_tokenize_pair. *out of engine_embedding_wait is then [1],
 * an unbounded number that is larger the better the texts match. Fails as engine_check_ranks and, otherwise, as
 * engine_submit_all. */
MUST_CHECK enum err engine_rank(struct engine *e, const int32_t *ids, size_t n_ids, const struct engine_embed_params *p,
                                struct engine_embedding **out, struct err_info *info);

/* Waits up to timeout_ms for *out: [n_embd_out], of length 1 unless keeps_length is set; if the model embeds_tokens,
 * [n_ids][n_embd_out] as computed. Borrowed until engine_embedding_close. The same tokens give the same bits whatever
 * else runs. ERR_AGAIN: not yet. ERR_CANCELLED, ERR_DEADLINE, ERR_NUMERICAL, ERR_LOST or another error of the back end:
 * the embedding failed. */
MUST_CHECK enum err engine_embedding_wait(struct engine_embedding *w, int timeout_ms, const float **out,
                                          struct err_info *info);

/* Returns its counts; those of completion tokens are 0. */
void engine_embedding_usage(const struct engine_embedding *w, struct sched_usage *out);

/* As engine_cancel and engine_stream_close. */
void engine_embedding_cancel(struct engine_embedding *w);
void engine_embedding_close(struct engine_embedding **embedding);

/* --- statistics --------------------------------------------------------------------------------------------------- */

void engine_get_stats(const struct engine *e, struct sched_stats *out);

/* Returns the sequences of a key now; key 0: of requests without a key, including guests. */
void engine_get_share(const struct engine *e, uint64_t key, uint64_t *n_running, uint64_t *n_waiting);

struct engine_grammar_stats {
    uint64_t n_made, n_reused, n_kept; /* grammars read; requests that found a kept grammar; grammars kept now */
};
void engine_get_grammar_stats(const struct engine *e, struct engine_grammar_stats *out);

#endif
