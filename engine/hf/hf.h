/* A SafeTensors folder as a struct gguf, so that a family's builder reads one thing: values of config.json stand under
 * the keys of GGUF, tensors under its names. What all families share is in hf.c; what is a family's own is its struct
 * hf_family, beside its builder.
 *
 * Heads of Q and K stay as Hugging Face keeps them, with RoPE on half-split pairs, also where converters to GGUF
 * permute their rows: the key infcgi.rope_is_neox says so. Threads: pure functions. */
#ifndef INFCGI_HF_HF_H
#define INFCGI_HF_HF_H

#include "engine/base/json_read.h"
#include "engine/format/gguf_build.h"
#include "engine/format/safetensors_folder.h"

/* How the weights of a folder are quantised (hf_quant.h). */
enum hf_scheme { HF_PLAIN, HF_FP8, HF_GPTQ, HF_AWQ, HF_COMPRESSED, HF_MXFP4 };
enum { HF_QUANT_KINDS = 8 };

/* One kind of quantised weights; a folder of compressed-tensors may have several. */
struct hf_quant_kind {
    enum { HF_ANY, HF_SYMMETRIC, HF_WITH_ZEROS } symmetry;
    bool is_float;
    uint32_t bits;
    uint32_t group;    /* inputs that share a scale; 0 = all of a row */
    uint32_t block[2]; /* rows and inputs that share a scale; 0 = none */
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
    const json_t *config; /* the same, or its text_config */
    struct hf_quant quant;
    const struct safetensors_folder *tensors;
    struct gguf_build b;
    struct hf_words *words; /* hf_words.h */
    struct err_info *info;
};

enum hf_kind {
    HF_U32,
    HF_F32,
    HF_BOOL,
    HF_CAP,  /* HF_F32, of which null says that there is none: 0 */
    HF_WORD, /* `finish` reads it; errors about the key name it */
};

/* A value of config.json and its key behind "<arch>.". Absent or null: no key, and the builder's default. A family's
 * row stands in place of the one that all have; gguf NULL: not wanted. */
struct hf_key {
    const char *json, *gguf; /* json NULL ends a table */
    enum hf_kind kind;
};

enum hf_change {
    HF_SAME,
    HF_PLUS_ONE,  /* norms of Gemma: (1 + w) x */
    HF_MINUS_EXP, /* -exp(w) of a vector */
    HF_FLAT,      /* a vector, though its shape is [1, n] */
    HF_AS_F32,    /* a matrix of biases, one row an expert */
    HF_CONV,      /* taps of a convolution by channels, [n][1][k], as [n][k] in F32 */
    HF_UNPACKED,  /* where it is quantised, F32 in memory, as a builder takes it apart by other than whole rows */
    HF_STACK,     /* {} is the number of one of several matrices that become one tensor, as experts do */
    HF_DROP,      /* not needed, or read by `finish`: then `gguf` is for messages */
};

/* A tensor's name there and here. {} stands for the layer's number and, a second time in `hf`, for the expert's: then
 * all experts' matrices become one tensor. */
struct hf_name {
    const char *hf, *gguf; /* hf NULL ends a table */
    enum hf_change change;
};

/* Another name of a key of config.json, which is read when the first is absent. */
struct hf_alias {
    const char *name, *other; /* name NULL ends a table */
};

/* What makes the gates of feed-forward blocks: hidden_act, or hidden_activation, which comes first. */
enum hf_act { HF_SILU, HF_GELU, HF_GELU_TANH };

/* A value of config.json that the plan takes for granted. Absent or null says the same. */
struct hf_fixed {
    const char *json;     /* NULL ends a table */
    const char *expected; /* "7", "true", "one or other"; "none": only null */
};

enum { HF_MAX_NAMES = 6 };

struct hf_family {
    const char *architectures[HF_MAX_NAMES + 1]; /* of config.json; NULL ends */
    const char *arch;                            /* general.architecture */
    /* OPTIONAL: the family by more than the architecture, by config.json or its text_config */
    const struct hf_family *(*choose)(const json_t *config);
    const char *prefix;             /* OPTIONAL: what may stand in front of all tensors' names */
    const struct hf_alias *aliases; /* OPTIONAL */
    const char *defaults;           /* OPTIONAL: a JSON object, the members that a config.json may leave out */
    const struct hf_key *keys;      /* OPTIONAL: beyond those that all have */
    const struct hf_name *names;    /* OPTIONAL: looked at before those that all have */
    const struct hf_fixed *fixed;   /* OPTIONAL */
    enum hf_act act;
    bool has_act;                     /* `finish` reads the gate's name itself; act is then of no account */
    uint32_t window;                  /* sliding_window where config.json does not say; 0 = a folder may have none */
    bool has_layer_types;             /* reads layer_types itself; else they are full_attention and sliding_attention */
    double rotary_part;               /* partial_rotary_factor where config.json does not say; 0 = 1 */
    bool norms_plus_one;              /* HF_PLUS_ONE for every tensor that ends in norm.weight */
    bool has_rope_pairs;              /* RoPE on pairs (2i, 2i+1), unless config.json has rope_interleave false */
    enum err (*finish)(struct hf *h); /* OPTIONAL: keys and tensors that take more than a name */
};

/* A member of config.json. ERR_BAD_CONFIG names key, range and value. fallback UINT64_MAX, or NAN: it must be there. */
MUST_CHECK enum err hf_get_u32(const struct hf *h, const char *key, uint64_t min, uint64_t max, uint64_t fallback,
                               uint32_t *out);
MUST_CHECK enum err hf_get_f64(const struct hf *h, const json_t *object, const char *key, double min, double max,
                               double fallback, double *out);

/* One tensor [E][2 N][K] as two of [E][N][K], the first N rows of each expert and the others; one tensor [E][2 N] as
 * two of [E][N] in F32, every second element. ERR_MISSING_TENSOR, ERR_BAD_TENSOR_SHAPE, ERR_UNSUPPORTED_TYPE,
 * ERR_NOMEM. */
MUST_CHECK enum err hf_add_expert_halves(struct hf *h, const char *name, const char *first, const char *second);
MUST_CHECK enum err hf_add_every_second(struct hf *h, const char *name, const char *first, const char *second);

/* A tensor of a file that will be closed, a vector or a matrix, under the name of GGUF: its elements are copied.
 * ERR_UNSUPPORTED_TYPE, ERR_BAD_TENSOR_SHAPE, ERR_NOMEM. */
MUST_CHECK enum err hf_add_copy(struct hf *h, const char *name, const struct st_tensor *t);

/* Refuses layers without experts among layers with some: mlp_only_layers, decoder_sparse_step [transformers 5,
 * Qwen3MoeDecoderLayer]. A `finish`. ERR_BAD_CONFIG. */
MUST_CHECK enum err hf_check_sparse(struct hf *h);

/* attention.scale from query_pre_attn_scalar, a `finish`. */
MUST_CHECK enum err hf_add_query_scale(struct hf *h);

/* Where a member stands in config.json: "rope_scaling.factor" of the object rope_scaling. */
const char *hf_path(const struct hf *h, const json_t *object, const char *key, char room[128]);

/* Has the family a row of its own for a value of config.json? */
bool hf_has_key(const struct hf_family *family, const char *json);

/* "<arch>.<key>" for gguf_build_*. */
const char *hf_key(const struct hf *h, const char *key, char room[128]);

/* Reads the folder; `families` ends with NULL. ERR_BAD_CONFIG, ERR_UNSUPPORTED_ARCH (listing what is known),
 * ERR_UNSUPPORTED_TYPE, ERR_BAD_TENSOR_SHAPE (experts that differ), what safetensors_folder_open gives, ERR_NOMEM. The
 * caller owns *out until gguf_close. */
MUST_CHECK enum err hf_open(const char *folder, const struct hf_family *const *families, struct gguf **out,
                            struct err_info *info);

#endif
