/* Normalizers and pre-tokenizers of tokenizer.json. A step that the encoder does not implement is rejected. */
#include "engine/format/tokenizer_json_internal.h"

#include <stdio.h>
#include <string.h>

static const char space_mark[] = "\xE2\x96\x81"; /* U+2581 */

struct step {
    const json_t *v;
    const char *type;
    char where[TOKENIZER_JSON_WHERE_BYTES];
};

struct steps {
    struct step at[TOKENIZER_JSON_MAX_STEPS];
    size_t n;
};

struct step_row {
    const char *type;
    enum err (*read)(struct tokenizer_reader *r, const struct step *s);
};

/* --- sequences ---------------------------------------------------------------------------------------------------- */

/* Replaces steps->at[i] by the sequence's members. */
static enum err unfold(struct tokenizer_reader *r, struct steps *steps, size_t i, const char *members)
{
    struct step sequence = steps->at[i];
    const json_t *list = json_read_get(sequence.v, members);
    size_t n = json_array_size(list);
    if (!json_is_array(list)) {
        return tokenizer_json_bad(r, ERR_BAD_VOCAB, sequence.where, "an array of steps", list);
    }
    if (n + steps->n - 1 > TOKENIZER_JSON_MAX_STEPS) {
        char expected[64];
        snprintf(expected, sizeof expected, "at most %d steps", TOKENIZER_JSON_MAX_STEPS);
        return tokenizer_json_bad(r, ERR_UNSUPPORTED_PRETOKENIZER, sequence.where, expected, NULL);
    }
    memmove(&steps->at[i + n], &steps->at[i + 1], (steps->n - i - 1) * sizeof sequence);
    for (size_t k = 0; k < n; k++) {
        struct step *s = &steps->at[i + k];
        s->v = json_array_get(list, k);
        snprintf(s->where, sizeof s->where, "%.40s.%s[%zu]", sequence.where, members, k);
    }
    steps->n += n - 1;
    return ERR_OK;
}

/* Lists the steps of root[name], with nested sequences flattened. The JSON's depth bounds the work. */
static enum err lay_flat(struct tokenizer_reader *r, const char *name, const char *members, struct steps *out)
{
    const json_t *root = json_read_get(r->root, name);
    out->n = root != NULL ? 1 : 0;
    out->at[0].v = root;
    snprintf(out->at[0].where, sizeof out->at[0].where, "%s", name);
    for (size_t i = 0; i < out->n;) {
        struct step *s = &out->at[i];
        s->type = json_string_value(json_object_get(s->v, "type"));
        if (s->type == NULL) {
            return tokenizer_json_bad(r, ERR_BAD_VOCAB, s->where, "an object with a type", s->v);
        }
        if (strcmp(s->type, "Sequence") == 0) {
            TRY(unfold(r, out, i, members));
        } else {
            i++;
        }
    }
    return ERR_OK;
}

static enum err run(struct tokenizer_reader *r, const struct step_row *rows, const struct steps *steps)
{
    for (size_t i = 0; i < steps->n; i++) {
        const struct step_row *row = rows;
        while (row->type != NULL && strcmp(row->type, steps->at[i].type) != 0) {
            row++;
        }
        if (row->type == NULL) {
            char expected[256] = "one of";
            for (row = rows; row->type != NULL; row++) {
                size_t n = strlen(expected);
                snprintf(expected + n, sizeof expected - n, "%s %s", row == rows ? "" : ",", row->type);
            }
            return tokenizer_json_bad(r, ERR_UNSUPPORTED_PRETOKENIZER, steps->at[i].where, expected,
                                      json_object_get(steps->at[i].v, "type"));
        }
        TRY(row->read(r, &steps->at[i]));
    }
    return ERR_OK;
}

static enum err refuse(const struct tokenizer_reader *r, const struct step *s, const char *expected)
{
    return tokenizer_json_bad(r, ERR_UNSUPPORTED_PRETOKENIZER, s->where, expected, json_object_get(s->v, "type"));
}

/* Records a rule, which can occur only once. */
static enum err note(struct tokenizer_reader *r, const struct step *s, enum tokenizer_rule rule)
{
    if (tokenizer_rules_has(&r->rules, rule)) {
        return refuse(r, s, "no second step of the kind");
    }
    r->rules.used |= 1u << rule;
    snprintf(r->rules.where[rule], sizeof r->rules.where[rule], "%s", s->where);
    return ERR_OK;
}

/* --- normalizers -------------------------------------------------------------------------------------------------- */

static enum err read_form(struct tokenizer_reader *r, const struct step *s)
{
    if (r->rules.used != 0) {
        return refuse(r, s, "a normal form to come first");
    }
    r->rules.normal_form = s->type;
    return note(r, s, RULE_NORMAL_FORM);
}

static enum err read_prepend(struct tokenizer_reader *r, const struct step *s)
{
    const json_t *what = json_object_get(s->v, "prepend");
    if (!json_read_is(what, space_mark)) {
        return tokenizer_json_bad(r, ERR_UNSUPPORTED_PRETOKENIZER, s->where, "prepend to be U+2581", what);
    }
    return note(r, s, RULE_PREPEND);
}

/* Reads a replacement: spaces in the vocabulary's spelling, or runs of spaces by one. */
static enum err read_replace(struct tokenizer_reader *r, const struct step *s)
{
    const json_t *pattern = json_object_get(s->v, "pattern"), *content = json_object_get(s->v, "content");
    bool is_mark = json_read_is(content, space_mark);
    if (is_mark && json_read_is(json_object_get(pattern, "String"), " ")) {
        return note(r, s, RULE_ESCAPE);
    }
    if ((is_mark || json_read_is(content, " ")) && json_read_is(json_object_get(pattern, "Regex"), " {2,}")) {
        return note(r, s, RULE_COLLAPSE);
    }
    const json_t *regex = json_object_get(pattern, "Regex");
    return tokenizer_json_bad(r, ERR_UNSUPPORTED_PRETOKENIZER, s->where,
                              "a Replace of ' ' by U+2581, or of runs of spaces by one",
                              regex != NULL ? regex : json_object_get(pattern, "String"));
}

static enum err read_strip(struct tokenizer_reader *r, const struct step *s)
{
    bool left = false, right = false;
    TRY(tokenizer_json_bool(r, s->v, s->where, "strip_left", &left));
    TRY(tokenizer_json_bool(r, s->v, s->where, "strip_right", &right));
    return left || !right ? refuse(r, s, "Strip only on the right") : note(r, s, RULE_STRIP_RIGHT);
}

static enum err read_charsmap(struct tokenizer_reader *r, const struct step *s)
{
    r->rules.charsmap = json_object_get(s->v, "precompiled_charsmap");
    if (!json_is_string(r->rules.charsmap)) {
        return tokenizer_json_bad(r, ERR_BAD_VOCAB, s->where, "precompiled_charsmap to be a string", r->rules.charsmap);
    }
    if (r->rules.used != 0) {
        return refuse(r, s, "a charsmap to come first");
    }
    return note(r, s, RULE_CHARSMAP);
}

static enum err read_bert(struct tokenizer_reader *r, const struct step *s)
{
    bool cleans = true, splits_chinese = true;
    r->rules.lowercase = true;
    TRY(tokenizer_json_bool(r, s->v, s->where, "clean_text", &cleans));
    TRY(tokenizer_json_bool(r, s->v, s->where, "handle_chinese_chars", &splits_chinese));
    TRY(tokenizer_json_bool(r, s->v, s->where, "lowercase", &r->rules.lowercase));
    r->rules.strips_accents = r->rules.lowercase;
    TRY(tokenizer_json_bool(r, s->v, s->where, "strip_accents", &r->rules.strips_accents));
    return cleans && splits_chinese ? note(r, s, RULE_BERT_NORMALIZER)
                                    : refuse(r, s, "clean_text and handle_chinese_chars to be true");
}

static const struct step_row normalizers[] = {
    {"NFC", read_form},
    {"NFD", read_form},
    {"NFKC", read_form},
    {"NFKD", read_form},
    {"Prepend", read_prepend},
    {"Replace", read_replace},
    {"Strip", read_strip},
    {"Precompiled", read_charsmap},
    {"BertNormalizer", read_bert},
    {NULL, NULL},
};

/* --- pre-tokenizers ----------------------------------------------------------------------------------------------- */

static enum err add_pattern(struct tokenizer_reader *r, const struct step *s, const char *pattern)
{
    struct tokenizer_rules *rules = &r->rules;
    if (tokenizer_rules_has(rules, RULE_BYTE_LEVEL)) {
        return refuse(r, s, "ByteLevel to come last");
    }
    if (rules->n_patterns == TOKENIZER_JSON_MAX_PATTERNS) {
        return refuse(r, s, "at most 6 patterns");
    }
    rules->patterns[rules->n_patterns++] = pattern;
    rules->used |= 1u << RULE_PATTERN;
    snprintf(rules->where[RULE_PATTERN], sizeof rules->where[RULE_PATTERN], "%s", s->where);
    return ERR_OK;
}

static enum err read_byte_level(struct tokenizer_reader *r, const struct step *s)
{
    bool adds_prefix = true, uses_regex = true;
    TRY(tokenizer_json_bool(r, s->v, s->where, "add_prefix_space", &adds_prefix));
    TRY(tokenizer_json_bool(r, s->v, s->where, "use_regex", &uses_regex));
    if (adds_prefix) {
        return refuse(r, s, "add_prefix_space to be false");
    }
    if (uses_regex) {
        TRY(add_pattern(r, s, TOKENIZER_JSON_GPT2));
    }
    return note(r, s, RULE_BYTE_LEVEL);
}

static enum err read_digits(struct tokenizer_reader *r, const struct step *s)
{
    bool is_each = false;
    TRY(tokenizer_json_bool(r, s->v, s->where, "individual_digits", &is_each));
    return add_pattern(r, s, is_each ? "\\p{N}" : "\\p{N}+");
}

/* Recognizes expressions like GPT-4's: letters, numbers, white space, and a class of all other characters. */
static bool leaves_no_rest(const char *pattern)
{
    static const char *const parts[] = {"\\p{L}+|", "|\\p{N}", "| ?[^\\s\\p{L}\\p{N}]+", "|\\s+(?!\\S)|\\s+"};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        const char *at = strstr(pattern, parts[i]);
        if (at == NULL || (i + 1 == ARRAY_LEN(parts) && strlen(at) != strlen(parts[i]))) {
            return false;
        }
    }
    return true;
}

/* Reads a split whose matches are words, and so is the text between them. Removed with invert keeps the matches and
 * drops the text between them. That is equal if no text is left between matches, as in expressions like GPT-4's. */
static enum err read_split(struct tokenizer_reader *r, const struct step *s)
{
    const json_t *pattern = json_object_get(s->v, "pattern"), *behavior = json_object_get(s->v, "behavior");
    const json_t *regex = json_object_get(pattern, "Regex");
    bool inverts = false;
    TRY(tokenizer_json_bool(r, s->v, s->where, "invert", &inverts));
    if (json_read_is(json_object_get(pattern, "String"), " ") && tokenizer_rules_has(&r->rules, RULE_ESCAPE)) {
        return ERR_OK; /* no space is left to split at, as in Gemma's tokenizer */
    }
    if (!json_is_string(regex)) {
        return tokenizer_json_bad(r, ERR_UNSUPPORTED_PRETOKENIZER, s->where, "pattern to be a Regex",
                                  json_object_get(pattern, "String"));
    }
    if (strlen(json_string_value(regex)) != json_string_length(regex)) {
        return refuse(r, s, "a pattern without U+0000");
    }
    bool keeps_all = !inverts && json_read_is(behavior, "Isolated");
    if (!keeps_all && !(inverts && json_read_is(behavior, "Removed") && leaves_no_rest(json_string_value(regex)))) {
        return tokenizer_json_bad(r, ERR_UNSUPPORTED_PRETOKENIZER, s->where, "behavior to be Isolated, not inverted",
                                  behavior);
    }
    return add_pattern(r, s, json_string_value(regex));
}

static enum err read_metaspace(struct tokenizer_reader *r, const struct step *s)
{
    const json_t *scheme = json_read_get(s->v, "prepend_scheme"), *mark = json_object_get(s->v, "replacement");
    bool adds_prefix = true;
    r->rules.metaspace_splits = true;
    TRY(tokenizer_json_bool(r, s->v, s->where, "add_prefix_space", &adds_prefix));
    TRY(tokenizer_json_bool(r, s->v, s->where, "split", &r->rules.metaspace_splits));
    if (!json_read_is(mark, space_mark)) {
        return tokenizer_json_bad(r, ERR_UNSUPPORTED_PRETOKENIZER, s->where, "replacement to be U+2581", mark);
    }
    r->rules.prepend = adds_prefix ? "always" : "never";
    r->rules.prepend = scheme != NULL ? json_string_value(scheme) : r->rules.prepend;
    const char *p = r->rules.prepend;
    if (p == NULL || (strcmp(p, "always") != 0 && strcmp(p, "first") != 0 && strcmp(p, "never") != 0)) {
        return tokenizer_json_bad(r, ERR_UNSUPPORTED_PRETOKENIZER, s->where, "prepend_scheme always, first or never",
                                  scheme);
    }
    return note(r, s, RULE_METASPACE);
}

static enum err read_whitespace_split(struct tokenizer_reader *r, const struct step *s)
{
    return tokenizer_rules_has(&r->rules, RULE_METASPACE) ? refuse(r, s, "WhitespaceSplit to come before Metaspace")
                                                          : note(r, s, RULE_WHITESPACE_SPLIT);
}

static enum err read_bert_words(struct tokenizer_reader *r, const struct step *s)
{
    return note(r, s, RULE_BERT_PRETOKENIZER);
}

static const struct step_row pre_tokenizers[] = {
    {"ByteLevel", read_byte_level},
    {"Split", read_split},
    {"Digits", read_digits},
    {"Metaspace", read_metaspace},
    {"WhitespaceSplit", read_whitespace_split},
    {"BertPreTokenizer", read_bert_words},
    {NULL, NULL},
};

enum err tokenizer_json_rules(struct tokenizer_reader *r)
{
    struct steps steps;
    TRY(lay_flat(r, "normalizer", "normalizers", &steps));
    TRY(run(r, normalizers, &steps));
    TRY(lay_flat(r, "pre_tokenizer", "pretokenizers", &steps));
    return run(r, pre_tokenizers, &steps);
}
