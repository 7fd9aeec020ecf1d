/* Shared by the files that read a folder. Threads: a folder being read belongs to one thread. */
#ifndef INFCGI_HF_HF_INTERNAL_H
#define INFCGI_HF_HF_INTERNAL_H

#include "engine/hf/hf.h"

/* --- names of tensors (hf_names.c) -------------------------------------------------------------------------------- */

enum { HF_NAME_BYTES = 96 }; /* of a tensor in GGUF */

/* Returns the row for a tensor of a folder, from the family's table or the common one; number[2] gets the numbers that
 * {} stands for. NULL: unknown. */
const struct hf_name *hf_names_find(const struct hf_family *family, const char *name, uint32_t number[2]);

/* Returns the name that the tensor has in a text-only model. */
const char *hf_names_in_text(const char *name, char room[SAFETENSORS_MAX_NAME_BYTES + 1]);

/* Writes `pattern` with {} replaced by the layer's number. */
void hf_names_write(const char *pattern, uint32_t layer, char out[HF_NAME_BYTES]);

/* Writes the name that a GGUF tensor has in folders of the family, with * for an expert's number. Returns false if the
 * tables do not know it. */
bool hf_names_back(const struct hf_family *family, const char *name, char out[HF_NAME_BYTES]);

/* --- the nearest family (hf_nearest.c) ---------------------------------------------------------------------------- */

/* Returns the row for a tensor of a folder of h->family. NULL: unknown. */
typedef const struct hf_name *hf_look_up_fn(const struct hf *h, const struct st_tensor *t);

/* Writes the class of the nearest family, and what it does not read: "LlamaForCausalLM, which does not read
 * model.layers.*.self_attn.gate.weight and 2 more". "": no family knows most names of the layers' tensors. h has config
 * and tensors; its family changes. */
enum { HF_NEAREST_BYTES = 768 };
void hf_nearest(struct hf *h, const struct hf_family *const *families, hf_look_up_fn *look_up,
                char out[HF_NEAREST_BYTES]);

/* --- prediction heads (hf_head.c) --------------------------------------------------------------------------------- */

/* Sets h->has_head: the family can have a prediction head, and the folder has one. */
void hf_head_find(struct hf *h);

/* Returns the name that a tensor of the head has as one of the layer after the last ("mtp.fc.weight":
 * "model.layers.5.eh_proj.weight"), in room; other names unchanged. */
const char *hf_head_name(const struct hf *h, const char *name, char room[SAFETENSORS_MAX_NAME_BYTES + 1]);

/* --- values of config.json that contradict each other or the tensors (hf_check.c) --------------------------------- */

/* Checks the values that the family assumes. Call it before anything is read. ERR_BAD_CONFIG names the key, the
 * expected and the found value. */
MUST_CHECK enum err hf_check_values(const struct hf *h);

/* Checks the rest. Call it when h->b has the keys and tensors that need no help of the family. ERR_BAD_CONFIG names the
 * key, the expected and the found value. */
MUST_CHECK enum err hf_check(const struct hf *h);

/* Returns whether config.json ties the output head to the embedding (tie_word_embeddings true, also outside
 * text_config). */
bool hf_says_tied(const struct hf *h);

/* --- files of sentence-transformers next to the model (hf_modules.c) ---------------------------------------------- */

/* Adds pooling_type, and tensors dense_2, dense_3 .. of layers after the pooling, named as by llama.cpp, with their
 * keys. Without modules.json reads only 1_Pooling/config.json, if it exists. ERR_BAD_CONFIG names what is not
 * supported; errors of safetensors_folder_open and json_read_file, after the file's name; ERR_NOMEM. */
MUST_CHECK enum err hf_modules_add(struct hf *h);

/* --- words of errors (hf_words.c) --------------------------------------------------------------------------------- */

/* Maps keys and tensors of GGUF to their names in the folder, so that builders' errors, in GGUF's words, reach the user
 * in config.json's. Read-only once the folder is open. */

/* Begins the list, in h's arena. If memory is out, h->b records it. */
void hf_words_init(struct hf *h);

/* Records that the key "<arch>.<gguf>" comes from the value `json` of config.json, whether or not that exists. */
void hf_words_add(struct hf *h, const char *gguf, const char *json);

/* Returns the value it comes from, or NULL. */
const char *hf_words_find(const struct hf *h, const char *gguf);

/* Ends the list; call it last. h->tensors live as long as the model. */
void hf_words_done(struct hf *h);

#endif
