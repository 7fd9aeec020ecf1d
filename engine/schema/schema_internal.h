/* Declarations shared by the files of schema. */
#ifndef INFCGI_SCHEMA_SCHEMA_INTERNAL_H
#define INFCGI_SCHEMA_SCHEMA_INTERNAL_H

#include "engine/base/mem.h"
#include "engine/base/table.h"
#include "engine/regex/regex_parse.h"
#include "engine/schema/schema.h"
#include "engine/schema/schema_number.h"
#include "engine/schema/schema_value.h"

#include <string.h>

/* A schema that a value must satisfy, together with others. */
struct part {
    const json_t *schema;
    uint64_t words;     /* schema_word_bit of its keys */
    const char *path;   /* JSON pointer */
    uint32_t asked_by;  /* index of the part that requires it, plus 1; 0: none */
    bool is_of_another; /* it or an enclosing schema has an $id: pointers are relative to that */
    bool is_chosen;     /* another part is one schema of its anyOf */
    bool is_one_of;     /* its anyOf was a oneOf */
    bool is_valued;     /* another part represents its enum or const */
};

/* Returns the bit of a keyword. Few keywords share a bit, so this bit alone answers most lookups of absent keywords.
 * The factors map 56 words that schemas have, 44 of them supported, to 44 bits. The compiler computes a literal's
 * bit. */
static inline uint64_t schema_word_bit(const char *word)
{
    size_t n = strlen(word);
    unsigned sum = (unsigned char)word[0] + 51u * (unsigned char)word[n / 2] + 49u * (unsigned char)word[n - (n > 0)] +
                   (unsigned)n;
    return (uint64_t)1 << (sum & 63);
}

/* Properties of a schema's keys. */
struct seen {
    const json_t *schema;
    uint64_t words; /* schema_word_bit of each */
    bool says;      /* a keyword restricts values */
    bool has_id;    /* schema_id */
};

/* A rule for the values that satisfy all parts. */
struct node {
    struct part *parts; /* sorted */
    size_t n;
    symbol_id rule;
};

/* A schema in another form, created once. */
struct made {
    const json_t *of;
    int what; /* enum schema_form */
    json_t *schema;
};

struct writer {
    struct grammar_builder *b;
    struct regex_set *s;
    const json_t *root;
    struct node *nodes; /* [max_nodes] */
    size_t n_nodes, n_written, max_nodes;
    struct table table; /* of nodes by parts */
    struct made *made;
    size_t n_made, cap_made;
    struct table made_table; /* of made by form and source */
    struct seen *seen;       /* [n_seen] schemas that were read */
    size_t n_seen, cap_seen;
    struct table seen_table; /* of seen by their addresses */
    struct arena arena;
    symbol_id any; /* any value; 0: not created yet */
    symbol_id comma;
    regex_id spaces, any_text; /* any_text: a string of any characters, decoded */
    struct err_info *info;
    size_t n_checks;             /* writers that checked whether schemas are disjoint */
    json_t *fraction;            /* the type of numbers that are not integers; nameless, so identified by its address */
    struct regex_set *check_set; /* set of those writers; NULL: not needed yet */
    bool has_failed;             /* memory was out */
    bool ref_is_alone;           /* before 2019, $ref overrides all other keywords [draft-07 core, section 8.3] */
    bool is_loose; /* omit constraints that cannot be enforced: the grammar allows at least the schema's values */
};

/* Maximum length of a list of parts. */
enum { SCHEMA_MAX_PARTS = 200 };
struct parts {
    struct part at[SCHEMA_MAX_PARTS];
    size_t n;
    bool is_none; /* one of them is `false` */
};

/* Most lists are short, so entries after the last part are not copied. */
static inline void parts_copy(struct parts *to, const struct parts *from)
{
    to->n = from->n;
    to->is_none = from->is_none;
    memcpy(to->at, from->at, from->n * sizeof *to->at);
}

/* --- schema_writer.c, schema_parts.c: shared by all writers. */

MUST_CHECK enum err schema_refuse(struct writer *w, const char *path, const char *keyword, const char *expected);

/* Parses the pattern of the part's keyword; reports errors with their location in the schema. */
MUST_CHECK enum err schema_pattern(struct writer *w, const struct part *p, const char *keyword,
                                   const struct regex_pattern *pattern, regex_id *out);

/* Counts work for the schema; ERR_GRAMMAR_LIMIT: too much. */
MUST_CHECK enum err schema_spend(struct writer *w, size_t work);

/* Returns path/key, escaped with ~0 and ~1; NULL: no memory. */
const char *schema_join(struct writer *w, const char *path, const char *key);
const char *schema_join_index(struct writer *w, const char *path, size_t i);

/* Returns the part's keyword; NULL: none. */
static inline json_t *schema_member(const struct part *p, const char *keyword)
{
    return (p->words & schema_word_bit(keyword)) != 0 ? json_object_get(p->schema, keyword) : NULL;
}

/* Like schema_member(), but NULL if $ref overrides the keyword. */
static inline const json_t *schema_keyword(const struct writer *w, const struct part *p, const char *keyword)
{
    return w->ref_is_alone && schema_member(p, "$ref") != NULL ? NULL : schema_member(p, keyword);
}

/* Handles nullable without a type, with $ref, allOf, anyOf or oneOf: null, or what these allow. *out: that as anyOf, or
 * schema. */
MUST_CHECK enum err schema_nullable(struct writer *w, const json_t *schema, const json_t **out);

/* Adds the constraints of the schema at path to the list. from: the enclosing part. */
MUST_CHECK enum err schema_add_part(struct writer *w, const struct part *from, const json_t *schema, const char *path,
                                    struct parts *list);

/* Finds the schema that ref names, a $ref of the part or of a schema within it at path. */
MUST_CHECK enum err schema_follow(struct writer *w, const struct part *p, const json_t *ref, const char *path,
                                  const json_t **out);

/* Returns the symbol of values that satisfy all parts of the list; its rule is written later. */
MUST_CHECK enum err schema_need(struct writer *w, struct parts *list, symbol_id *out);

/* Reads a count; `none` if it is absent. */
MUST_CHECK enum err schema_count(struct writer *w, const struct part *p, const char *keyword, uint32_t none,
                                 uint32_t *out);

/* How many; max: or REGEX_UNBOUNDED. */
struct schema_counts {
    uint32_t min, max;
};

/* Narrows *c to the counts of the part's keywords. */
MUST_CHECK enum err schema_narrow(struct writer *w, const struct part *p, const char *min, const char *max,
                                  struct schema_counts *c);

void schema_put(struct writer *w, const struct node *node, symbol_id symbol); /* adds an alternative */
symbol_id schema_any_value(struct writer *w);                                 /* returns any JSON value */
symbol_id schema_opening(struct writer *w, const char *bracket);              /* returns the bracket and inner spaces */
symbol_id schema_closing(struct writer *w, const char *bracket);
regex_id schema_quoted(struct writer *w, regex_id inside);
bool schema_matches(struct writer *w, regex_id r, const char *text);

/* *out: `schema`, which is kept for the writer's lifetime, once per form and source; the call takes ownership of it.
 * ERR_NOMEM, also if it is NULL; ERR_GRAMMAR_LIMIT: too many. SCHEMA_VALUE: the schema of one object or array. SCHEMA_ONLY: a value as
 * const. SCHEMA_INDEX: not a schema, but the values that a schema names, as keys. SCHEMA_MEMBER: an object has a member
 * whose name is not in `names`; `of` is the schema that requires it and must live as long. */
enum schema_form {
    SCHEMA_NEGATION,
    SCHEMA_CONDITIONS,
    SCHEMA_OTHERS,
    SCHEMA_ONE_OF,
    SCHEMA_VALUE,
    SCHEMA_ONLY,
    SCHEMA_INDEX,
    SCHEMA_MEMBER,
    SCHEMA_NULLABLE
};
MUST_CHECK enum err schema_keep(struct writer *w, const json_t *of, enum schema_form what, json_t *schema,
                                const json_t **out);
bool schema_was_made(const struct writer *w, const json_t *of, enum schema_form what, const json_t **out);
/* Returns whether the schema was derived from another's negation, conditions or value. */
bool schema_was_derived(const struct writer *w, const json_t *schema);

/* Returns whether the schema has a keyword that restricts values, other than `one` (OPTIONAL). */
bool schema_says_more(const json_t *schema, const char *one);

bool schema_is_word(const char *key); /* returns whether the keyword restricts values */

/* Initializes a writer whose b, root and info are set. */
MUST_CHECK enum err schema_writer_init(struct writer *w, size_t max_nodes);
void schema_writer_fini(struct writer *w);

/* --- schema.c */

/* Writes the rules of all nodes that are needed. */
MUST_CHECK enum err schema_write_all(struct writer *w);

/* --- schema_object.c, schema_array.c, schema_scalar.c, schema_bounds.c: the node's alternatives for one type's values; parts
 * without anyOf and the like. */

MUST_CHECK enum err schema_write_object(struct writer *w, const struct node *node, const struct parts *list);
MUST_CHECK enum err schema_write_array(struct writer *w, const struct node *node, const struct parts *list);
MUST_CHECK enum err schema_write_string(struct writer *w, const struct node *node, const struct parts *list);
MUST_CHECK enum err schema_write_number(struct writer *w, const struct node *node, const struct parts *list,
                                        unsigned types);
/* The bounds and steps of all parts, whatever their types. (schema_bounds.c) */
struct number_limits {
    struct schema_bound ends[2]; /* the tightest ones: minimum, maximum */
    const char *paths[2];        /* of the parts with these ends */
    struct regex_steps steps;    /* of all multipleOf combined; m: 0 = none */
    const char *steps_path;
};
MUST_CHECK enum err schema_read_numbers(struct writer *w, const struct parts *list, struct number_limits *out);
bool schema_allows_number(const struct number_limits *l, const json_t *value);
/* Returns the decoded strings that the parts allow. The caller intersects them with whole characters. *is_free: any. */
MUST_CHECK enum err schema_strings(struct writer *w, const struct parts *list, regex_id *out, bool *is_free);
/* Returns the decoded names that the schema allows, the propertyNames of `from`; REGEX_ALL: any. (schema_names.c) */
MUST_CHECK enum err schema_names(struct writer *w, const struct part *from, const json_t *schema, const char *path,
                                 regex_id *out);
/* *out: a schema, kept, of only this object or array. Errors: schema_keep's. */
MUST_CHECK enum err schema_of_value(struct writer *w, const json_t *value, const json_t **out);
/* The values that enum or const of a schema name, or the common one if both are present. */
struct schema_values {
    const json_t *all; /* NULL: only `one`, if set */
    json_t *one;
};
struct schema_values schema_values_of(const json_t *schema);
static inline size_t schema_n_values(const struct schema_values *v)
{
    return v->one != NULL ? 1 : json_array_size(v->all);
}
static inline json_t *schema_value_at(const struct schema_values *v, size_t i)
{
    return v->one != NULL ? v->one : json_array_get(v->all, i);
}
/* Writes the part with enum or const, if one of the parts has it; *is_there says so. */
MUST_CHECK enum err schema_write_values(struct writer *w, const struct node *node, const struct parts *list,
                                        unsigned types, bool *is_there);

/* --- schema_unique.c: arrays without equal elements. */

/* Finds a superset of the different values that satisfy the parts. *out NULL: unknown, or more than `most`; otherwise
 * the caller owns it. */
MUST_CHECK enum err schema_few_values(struct writer *w, const struct parts *list, size_t most, json_t **out);
/* Returns whether no value satisfies all parts of both lists, as far as a simple check finds out. */
bool schema_lists_differ(struct writer *w, const struct parts *a, const struct parts *b);

/* --- schema_unevaluated.c: `keyword` is unevaluatedProperties or unevaluatedItems. */

/* *is_there: a part has the keyword. Rejects a combination with keywords that are translated, such as not and if: these
 * name members and elements without evaluating them. */
MUST_CHECK enum err schema_check_unevaluated(struct writer *w, const struct parts *list, const char *keyword,
                                             bool *is_there);
/* Adds the parts' schemas for a member or element that neither the part nor the schemas it requires restrict. says[i]:
 * the i-th part restricts it. */
MUST_CHECK enum err schema_add_unevaluated(struct writer *w, const struct parts *list, const char *keyword,
                                           const bool *says, struct parts *out);

/* --- schema_form.c: schemas in other forms. *out NULL: nothing to translate; of schema_negate: not expressible. */

/* Returns a schema of the values that do not satisfy `schema`. */
MUST_CHECK enum err schema_negate(struct writer *w, const json_t *schema, const json_t **out);
/* Translates not, if and dependencies to anyOf and allOf. */
MUST_CHECK enum err schema_conditions(struct writer *w, const struct part *p, const json_t **out);
/* Excludes the objects and arrays that a plain `not` names; the writers of types exclude scalars. */
MUST_CHECK enum err schema_other_values(struct writer *w, const struct part *p, const json_t **out);
/* Translates a part to a schema with the list that `add` builds, anyOf for SCHEMA_ONE_OF, else allOf; once, and only if
 * the list has schemas. */
typedef enum err (*schema_add_fn)(struct writer *w, const struct part *p, json_t *list);
MUST_CHECK enum err schema_translate(struct writer *w, const struct part *p, enum schema_form what, schema_add_fn add,
                                     const json_t **out);
/* Translates oneOf to anyOf. (schema_oneof.c) */
MUST_CHECK enum err schema_one_of(struct writer *w, const struct part *p, const json_t **out);
/* Appends a schema to an array and takes ownership of it; NULL if there was no memory for it. ERR_NOMEM. */
MUST_CHECK enum err schema_and(json_t *all, json_t *schema);
/* Returns whether a part's plain `not` names the scalar. */
bool schema_is_left_out(struct writer *w, const struct parts *list, const json_t *value);
/* Returns whether the writers of types handle the `not`: strings other than a pattern, or scalars other than an
 * enumeration. */
bool schema_is_plain_not(const struct part *p);

#endif
