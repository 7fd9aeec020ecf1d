#include "engine/format/spm_proto.h"

#include <inttypes.h>
#include <string.h>

/* Wire types. */
enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* Field numbers. */
enum {
    MODEL_PIECES = 1,
    MODEL_TRAINER = 2,
    MODEL_NORMALIZER = 3,
    PIECE_TEXT = 1,
    PIECE_SCORE = 2,
    PIECE_TYPE = 3,
    TRAINER_MODEL_TYPE = 3,
    TRAINER_WHITESPACE_AS_SUFFIX = 24,
    TRAINER_FIRST_ID = 40, /* the others follow */
    NORMALIZER_CHARSMAP = 2,
    NORMALIZER_DUMMY_PREFIX = 3, /* then extra and escaped white space */
};

/* A message being read: bytes [at, end) of data. */
struct reader {
    const unsigned char *data;
    size_t at, end;
    struct err_info *info;
};

struct field {
    uint32_t number, wire;
    uint64_t value; /* WIRE_VARINT, WIRE_FIXED32, WIRE_FIXED64 */
    size_t from, n; /* WIRE_BYTES */
};

static enum err bad(const struct reader *r, const char *what)
{
    return err_set_at(r->info, ERR_BAD_VOCAB, r->at, "tokenizer.model: expected %s, found none", what);
}

static enum err read_varint(struct reader *r, uint64_t *out)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        unsigned char byte = r->data[r->at++];
        v |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *out = v;
            return ERR_OK;
        }
    }
    return bad(r, "a whole number of at most 10 bytes");
}

static enum err read_fixed(struct reader *r, size_t n, uint64_t *out)
{
    if (r->end - r->at < n) {
        return bad(r, "a number of fixed size");
    }
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        *out |= (uint64_t)r->data[r->at++] << (8 * i);
    }
    return ERR_OK;
}

static enum err read_field(struct reader *r, struct field *f)
{
    uint64_t tag;
    TRY(read_varint(r, &tag));
    *f = (struct field){.number = (uint32_t)(tag >> 3), .wire = (uint32_t)(tag & 7)};
    if (tag >> 32 != 0 || f->number == 0) {
        return bad(r, "a field number");
    }
    switch (f->wire) {
    case WIRE_VARINT:
        return read_varint(r, &f->value);
    case WIRE_FIXED64:
        return read_fixed(r, 8, &f->value);
    case WIRE_FIXED32:
        return read_fixed(r, 4, &f->value);
    case WIRE_BYTES:
        TRY(read_varint(r, &f->value));
        if (f->value > r->end - r->at) {
            return bad(r, "as many bytes as a length says");
        }
        f->from = r->at;
        f->n = (size_t)f->value;
        r->at += f->n;
        return ERR_OK;
    default:
        return bad(r, "a wire type of 0, 1, 2 or 5");
    }
}

static struct reader inside(const struct reader *r, const struct field *f)
{
    return (struct reader){.data = r->data, .at = f->from, .end = f->from + f->n, .info = r->info};
}

static enum err read_piece(const struct reader *outer, const struct field *message, struct tokenizer_vocab *v)
{
    struct reader r = inside(outer, message);
    struct vocab_token t = {.text = "", .kind = TOKEN_NORMAL};
    while (r.at < r.end) {
        struct field f;
        TRY(read_field(&r, &f));
        if (f.number == PIECE_TEXT && f.wire == WIRE_BYTES && f.n <= TOKENIZER_VOCAB_MAX_TOKEN_BYTES) {
            t.text = (const char *)r.data + f.from;
            t.len = (uint32_t)f.n;
        } else if (f.number == PIECE_SCORE && f.wire == WIRE_FIXED32) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&t.score, &bits, sizeof bits);
        } else if (f.number == PIECE_TYPE && f.wire == WIRE_VARINT && f.value >= TOKEN_NORMAL &&
                   f.value <= TOKEN_BYTE) {
            t.kind = (enum token_kind)f.value;
        } else if (f.number <= PIECE_TYPE) {
            return bad(&r, "a piece with a text of at most 64 KiB, a score and a type of 1 to 6");
        }
    }
    if (v->n == TOKENIZER_VOCAB_MAX) {
        return bad(&r, "at most 4194304 pieces");
    }
    TRY(tokenizer_vocab_grow(v, v->n + 1, r.info));
    v->tokens[v->n - 1] = t;
    return ERR_OK;
}

static enum err read_trainer(const struct reader *outer, const struct field *message, struct spm_proto *p)
{
    struct reader r = inside(outer, message);
    while (r.at < r.end) {
        struct field f;
        TRY(read_field(&r, &f));
        uint32_t id = f.number - TRAINER_FIRST_ID;
        if (f.wire != WIRE_VARINT) {
            continue;
        }
        if (f.number == TRAINER_MODEL_TYPE) {
            p->model = f.value;
        } else if (f.number == TRAINER_WHITESPACE_AS_SUFFIX) {
            p->whitespace_as_suffix = f.value != 0;
        } else if (id < SPM_ID_COUNT) {
            p->ids[id] = f.value < TOKENIZER_VOCAB_MAX ? (int32_t)f.value : -1;
        }
    }
    return ERR_OK;
}

static enum err read_normalizer(const struct reader *outer, const struct field *message, struct spm_proto *p)
{
    bool *const flags[] = {&p->add_dummy_prefix, &p->remove_extra_whitespaces, &p->escape_whitespaces};
    struct reader r = inside(outer, message);
    while (r.at < r.end) {
        struct field f;
        TRY(read_field(&r, &f));
        uint32_t flag = f.number - NORMALIZER_DUMMY_PREFIX;
        if (f.number == NORMALIZER_CHARSMAP && f.wire == WIRE_BYTES) {
            p->charsmap = r.data + f.from;
            p->charsmap_bytes = f.n;
        } else if (flag < ARRAY_LEN(flags) && f.wire == WIRE_VARINT) {
            *flags[flag] = f.value != 0;
        }
    }
    return ERR_OK;
}

enum err spm_proto_read(const void *data, size_t n, struct spm_proto *out, struct err_info *info)
{
    struct reader r = {.data = data, .end = n, .info = info};
    /* The format's defaults. */
    *out = (struct spm_proto){.model = SPM_UNIGRAM,
                              .add_dummy_prefix = true,
                              .remove_extra_whitespaces = true,
                              .escape_whitespaces = true,
                              .ids = {[SPM_UNK] = 0, [SPM_BOS] = 1, [SPM_EOS] = 2, [SPM_PAD] = -1}};
    while (r.at < r.end) {
        struct field f;
        TRY(read_field(&r, &f));
        if (f.number <= MODEL_NORMALIZER && f.wire != WIRE_BYTES) {
            return bad(&r, "pieces and settings as messages");
        }
        if (f.number == MODEL_PIECES) {
            TRY(read_piece(&r, &f, &out->vocab));
        } else if (f.number == MODEL_TRAINER) {
            TRY(read_trainer(&r, &f, out));
        } else if (f.number == MODEL_NORMALIZER) {
            TRY(read_normalizer(&r, &f, out));
        }
    }
    return out->vocab.n > 0 ? ERR_OK : bad(&r, "pieces");
}
