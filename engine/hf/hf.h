/* Presents a SafeTensors folder as a struct gguf, so that a family's builder reads a single format: values of
 * config.json appear under the keys of GGUF, tensors under its names. hf.c has what all families share; a family's
 * struct hf_family is next to its builder.
 *
 * Heads of Q and K stay in Hugging Face's order, with RoPE on half-split pairs, even if converters to GGUF permute
 * their rows: the key infcgi.rope_is_neox says so. Threads: pure functions. */
#ifndef INFCGI_HF_HF_H
#define INFCGI_HF_HF_H

#include "engine/base/json_read.h"
#include "engine/format/gguf_build.h"
#include "engine/format/safetensors_folder.h"

/* How the weights of a folder are quantised (hf_quant.h). */
enum hf_scheme { HF_PLAIN, HF_FP8, HF_GPTQ, HF_AWQ, HF_COMPRESSED, HF_MODELOPT, HF_MXFP4 };
enum { HF_QUANT_KINDS = 8 };

/* One kind of quantised weights; a folder of compressed-tensors can have several. */
struct hf_quant_kind {
    enum { HF_ANY, HF_SYMMETRIC, HF_WITH_ZEROS } symmetry;
    bool is_float;
    uint32_t bits;
    uint32_t group;    /* inputs that share a scale; 0: a whole row */
    uint32_t block[2]; /* rows and inputs that share a scale; 0: none */
};

struct hf_quant {
    enum hf_scheme scheme;
    bool zeros_are_less_one; /* GPTQ, version 1 */
    struct hf_quant_kind kinds[HF_QUANT_KINDS];
    int n_kinds;
    size_t n_found;     /* tensors in the scheme's form */
    const char *method; /* quant_method, borrowed */
};

/* A folder being read. */
struct hf {
    const struct hf_family *family;
    const char *folder;
    const json_t *root;   /* config.json */
    const json_t *config; /* config.json, or its text_config */
    struct hf_quant quant;
    const struct safetensors_folder *tensors;
    struct gguf_build b;
    struct hf_words *words; /* hf_words.c */
    struct err_info *info;
    bool has_head;    /* hf_head.c */
    bool has_pooling; /* hf_modules.c */
    char key[128];    /* hf_key's result */
};

enum hf_kind {
    HF_U32,
    HF_F32,
    HF_BOOL,
    HF_CAP,  /* HF_F32; null means no cap: 0 */
    HF_WORD, /* `finish` reads it; errors about the key name it */
};

/* A value of config.json and its key after "<arch>.". Absent or null: no key, and the builder's default. A family's row
 * overrides the common one; gguf NULL: not used. */
struct hf_key {
    const char *json, *gguf; /* json NULL ends a table */
    enum hf_kind kind;
};

enum hf_change {
    HF_SAME,
    HF_PLUS_ONE,       /* norms of Gemma: (1 + w) x */
    HF_MINUS_EXP,      /* -exp(w), in F32 */
    HF_FLAT,           /* a vector with shape [1, n] */
    HF_FLAT_MINUS_EXP, /* -exp(w) of a vector, whatever its shape */
    HF_AS_F32,         /* in F32, of the same shape */
    HF_CONV,           /* taps of a convolution by channels, [n][1][k], as [n][k] in F32 */
    HF_UNPACKED,       /* if quantised, F32 in memory, because a builder splits it other than by whole rows */
    HF_STACK,          /* {} is the index of one of several matrices that become one tensor, as for experts */
    HF_DROP,           /* not needed, or read by `finish`: then `gguf` is for messages */
};

/* A tensor's name in the folder and in GGUF. {} stands for the layer's number and, a second time in `hf`, for the
 * expert's: then all experts' matrices become one tensor. */
struct hf_name {
    const char *hf, *gguf; /* hf NULL ends a table */
    enum hf_change change;
};

/* An alternative name for a key of config.json, read if the first is absent. */
struct hf_alias {
    const char *name, *other; /* name NULL ends a table */
};

/* The activation of feed-forward blocks: hidden_activation, else hidden_act. */
enum hf_act { HF_SILU, HF_GELU, HF_GELU_TANH, HF_RELU_SQUARED, HF_XIELU };

/* A value of config.json that the plan assumes. Absent or null counts as equal. */
struct hf_fixed {
    const char *json;     /* NULL ends a table */
    const char *expected; /* "7", "true", "one or other"; "none": only null */
};

enum { HF_MAX_NAMES = 6 };

struct hf_family {
    const char *architectures[HF_MAX_NAMES + 1]; /* of config.json; NULL ends */
    const char *arch;                            /* general.architecture */
    /* OPTIONAL: picks the family by more than the architecture, from config.json or its text_config. */
    const struct hf_family *(*choose)(const json_t *config);
    const char *prefix;                /* OPTIONAL: a prefix that all tensors' names can have */
    const struct hf_alias *aliases;    /* OPTIONAL */
    const char *defaults;              /* OPTIONAL: a JSON object, members that a config.json can leave out */
    const struct hf_key *keys;         /* OPTIONAL: in addition to the common ones */
    const struct hf_name *names;       /* OPTIONAL: searched before the common ones */
    const struct hf_fixed *fixed;      /* OPTIONAL */
    enum err (*prepare)(struct hf *h); /* OPTIONAL: adds members that config.json leaves out, before any is read */
    enum hf_act act;
    bool has_act;                     /* `finish` reads the gate's name itself; act is then ignored */
    uint32_t window;                  /* sliding_window if config.json has none; 0: a folder need not have one */
    bool has_layer_types;             /* reads layer_types itself; else they are full_attention and sliding_attention */
    double rotary_part;               /* partial_rotary_factor if config.json has none; 0: 1 */
    bool rotates_of_key;              /* partial_rotary_factor is of a whole key, in latent attention */
    bool lacks_attention;             /* no layer has attention: nothing is read of heads and RoPE */
    bool predicts;                    /* a folder can have a prediction head */
    bool norms_plus_one;              /* HF_PLUS_ONE for every tensor that ends in norm.weight */
    bool has_rope_pairs;              /* RoPE on pairs (2i, 2i+1), unless config.json has rope_interleave false */
    enum err (*finish)(struct hf *h); /* OPTIONAL: adds keys and tensors that take more than a name */
};

/* Read a member of config.json. ERR_BAD_CONFIG names key, range and value. fallback UINT64_MAX, or NAN: the member is
 * required. */
MUST_CHECK enum err hf_get_u32(const struct hf *h, const char *key, uint64_t min, uint64_t max, uint64_t fallback,
                               uint32_t *out);
MUST_CHECK enum err hf_get_f64(const struct hf *h, const json_t *object, const char *key, double min, double max,
                               double fallback, double *out);

/* hf_add_expert_halves adds one tensor [E][2 N][K] as two of [E][N][K]: the first N rows of each expert, and the
 * others. hf_add_every_second adds one tensor [E][2 N] as two of [E][N] in F32: even and odd elements.
 * ERR_MISSING_TENSOR, ERR_BAD_TENSOR_SHAPE, ERR_UNSUPPORTED_TYPE, ERR_NOMEM. */
MUST_CHECK enum err hf_add_expert_halves(struct hf *h, const char *name, const char *first, const char *second);
MUST_CHECK enum err hf_add_every_second(struct hf *h, const char *name, const char *first, const char *second);

/* Adds one tensor with all experts' matrices, [E][n_out][n_in], or transposed, [E][n_in][n_out], as as[0]; with as[1]
 * (OPTIONAL) that gets the second half of each matrix' rows. If both shapes are one, they are not transposed, as in
 * transformers [5.23, core_model_loading.py, Transpose]; with is_turned they always are. ERR_MISSING_TENSOR,
 * ERR_BAD_TENSOR_SHAPE, ERR_UNSUPPORTED_TYPE, ERR_NOMEM. */
MUST_CHECK enum err hf_add_experts(struct hf *h, const char *name, uint32_t n_out, uint32_t n_in, bool is_turned,
                                   const char *const as[2]);

/* Gives the table `name` as many rows as token_embd.weight has; the added ones are row 0, made when they are read
 * [transformers 5, Gemma3nTextModel.get_per_layer_inputs]. Does nothing if the table is long enough, quantised, absent,
 * or of a shape that no builder takes. Call it when all tensors are added. ERR_NOMEM. */
MUST_CHECK enum err hf_pad_table(struct hf *h, const char *name);

/* Returns the element type of a float tensor. ERR_UNSUPPORTED_TYPE. */
MUST_CHECK enum err hf_float_type(const struct hf *h, const struct st_tensor *t, enum dtype *out);

/* Copies a tensor, a vector or a matrix, of a file that will be closed, under its GGUF name. ERR_UNSUPPORTED_TYPE,
 * ERR_BAD_TENSOR_SHAPE, ERR_NOMEM. */
MUST_CHECK enum err hf_add_copy(struct hf *h, const char *name, const struct st_tensor *t);

/* Rejects models that mix layers with and without experts: mlp_only_layers, decoder_sparse_step [transformers 5,
 * Qwen3MoeDecoderLayer]. A `finish`. ERR_BAD_CONFIG. */
MUST_CHECK enum err hf_check_sparse(struct hf *h);

/* Reads the number of leading dense layers, which mlp_layer_types lists first; without it, `fallback`. ERR_BAD_CONFIG,
 * also for dense layers after others. */
MUST_CHECK enum err hf_get_dense(const struct hf *h, uint32_t fallback, uint32_t *out);

/* Adds attention.scale from query_pre_attn_scalar. A `finish`. */
MUST_CHECK enum err hf_add_query_scale(struct hf *h);

/* Returns a member's path in config.json: "rope_scaling.factor" of the object rope_scaling. */
const char *hf_path(const struct hf *h, const json_t *object, const char *key, char room[128]);

/* Returns whether the family has its own row for a value of config.json. */
bool hf_has_key(const struct hf_family *family, const char *json);

/* Returns "<arch>.<key>" for gguf_build_*, valid until the next call. */
const char *hf_key(struct hf *h, const char *key);

/* Return an error about a member of config.json or a tensor, after its name. `fmt` says what was expected and found;
 * hf_bad_value shows what was found. */
enum err hf_bad(const struct hf *h, const char *key, const char *fmt, ...) PRINTF_LIKE(3, 4); /* ERR_BAD_CONFIG */
enum err hf_bad_value(const struct hf *h, const char *key, const char *expected, const json_t *found);
enum err hf_bad_tensor(const struct hf *h, enum err code, const char *name, const char *fmt, ...) PRINTF_LIKE(4, 5);

/* Reads the folder; NULL ends `families`. ERR_BAD_CONFIG, ERR_UNSUPPORTED_ARCH (lists the known ones),
 * ERR_UNSUPPORTED_TYPE, ERR_BAD_TENSOR_SHAPE (experts that differ), errors of safetensors_folder_open, ERR_NOMEM. The
 * caller owns *out until gguf_close. */
MUST_CHECK enum err hf_open(const char *folder, const struct hf_family *const *families, struct gguf **out,
                            struct err_info *info);

#endif
