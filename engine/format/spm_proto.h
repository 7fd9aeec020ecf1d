/* Reads tokenizer.model: a SentencePiece model in one protocol buffer [sentencepiece_model.proto; encoding: Protocol
 * Buffers, wire format]. Lengths are checked against the remaining bytes; messages nest at most two deep. Threads: pure
 * functions. */
#ifndef INFCGI_FORMAT_SPM_PROTO_H
#define INFCGI_FORMAT_SPM_PROTO_H

#include "engine/format/tokenizer_vocab.h"

/* In the order of the file's fields. */
enum { SPM_UNK, SPM_BOS, SPM_EOS, SPM_PAD, SPM_ID_COUNT };

enum spm_model { SPM_UNIGRAM = 1, SPM_BPE = 2, SPM_WORD = 3, SPM_CHAR = 4 };

/* The caller frees the vocabulary with tokenizer_vocab_fini; its texts and the charsmap point into the data. */
struct spm_proto {
    struct tokenizer_vocab vocab; /* kinds are the file's */
    uint64_t model;               /* enum spm_model, or another number */
    bool whitespace_as_suffix;
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces;
    int32_t ids[SPM_ID_COUNT]; /* -1: none */
    const void *charsmap;
    size_t charsmap_bytes;
};

/* Reads the model. ERR_BAD_VOCAB (info->offset is the position in the data), ERR_NOMEM. */
MUST_CHECK enum err spm_proto_read(const void *data, size_t n, struct spm_proto *out, struct err_info *info);

#endif
