/* Shared by the files of schema. */
#ifndef INFCGI_SCHEMA_SCHEMA_INTERNAL_H
#define INFCGI_SCHEMA_SCHEMA_INTERNAL_H

#include "engine/base/mem.h"
#include "engine/base/table.h"
#include "engine/schema/schema.h"
#include "engine/schema/schema_number.h"

#include <string.h>

/* A schema that a value is to be of, beside others. */
struct part {
    const json_t *schema;
    uint64_t words;     /* schema_word_bit of its keys */
    const char *path;   /* JSON pointer */
    uint32_t asked_by;  /* which of the list asks for it, plus 1; 0 = none */
    bool is_of_another; /* it has an $id of its own, or a schema around it has: pointers there begin elsewhere */
    bool is_chosen;     /* one of its anyOf is another part */
    bool is_one_of;     /* its anyOf was a oneOf */
    bool is_valued;     /* what its enum or const says is another part */
};

/* A bit for a keyword, of which others have few the same: most questions for one that is not there end at this bit. The factors keep 56
 * words that schemas have, 44 of them here, on 44 bits. A literal's is known to the compiler. */
static inline uint64_t schema_word_bit(const char *word)
{
    size_t n = strlen(word);
    unsigned sum = (unsigned char)word[0] + 51u * (unsigned char)word[n / 2] + 49u * (unsigned char)word[n - (n > 0)] +
                   (unsigned)n;
    return (uint64_t)1 << (sum & 63);
}

/* What the keys of a schema say. */
struct seen {
    const json_t *schema;
    uint64_t words; /* schema_word_bit of each */
    bool says;      /* one of them says something of values */
    bool has_id;    /* schema_has_id */
};

/* Values that are of all parts; a rule. */
struct node {
    struct part *parts; /* in order */
    size_t n;
    symbol_id rule;
};

/* Another form of a schema, made once. */
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
    struct table made_table; /* of made by what it is of */
    struct seen *seen;       /* [n_seen] schemas that were looked at */
    size_t n_seen, cap_seen;
    struct table seen_table; /* of seen by their addresses */
    struct arena arena;
    symbol_id any; /* any value; 0 = not made yet */
    symbol_id comma;
    regex_id spaces, any_text; /* any_text: a string of any characters, as it is meant */
    struct err_info *info;
    size_t n_checks;             /* writers that looked whether schemas are disjoint */
    json_t *fraction;            /* the type of numbers that are no integers, which has no name: this very string */
    struct regex_set *check_set; /* of those writers; NULL: none was needed yet */
    bool has_failed;             /* for lack of memory */
    bool ref_is_alone;           /* before 2019 nothing beside $ref has a say [draft-07 core, section 8.3] */
    bool is_loose; /* what cannot be enforced is left out: the grammar says at least what the schema allows */
};

/* What a list of parts holds at most. */
enum { SCHEMA_MAX_PARTS = 200 };
struct parts {
    struct part at[SCHEMA_MAX_PARTS];
    size_t n;
    bool is_none; /* one of them is `false` */
};

/* Most lists are short: what is behind the last part is not copied. */
static inline void parts_copy(struct parts *to, const struct parts *from)
{
    to->n = from->n;
    to->is_none = from->is_none;
    memcpy(to->at, from->at, from->n * sizeof *to->at);
}

/* --- schema_writer.c, schema_parts.c: what all writers share. */

MUST_CHECK enum err schema_refuse(struct writer *w, const char *path, const char *keyword, const char *expected);

/* What regex_parse said of a pattern at path/keyword, with its place in the schema. ERR_OK: nothing. */
MUST_CHECK enum err schema_refuse_pattern(struct writer *w, const char *path, const char *keyword, enum err err,
                                          const char *why);

/* Counts what is done for the schema; ERR_GRAMMAR_LIMIT: it is too much. */
MUST_CHECK enum err schema_spend(struct writer *w, size_t work);

/* path/key, with ~0 and ~1 in it; NULL: no memory. */
const char *schema_join(struct writer *w, const char *path, const char *key);
const char *schema_join_index(struct writer *w, const char *path, size_t i);

/* The part's keyword; NULL: none. */
static inline json_t *schema_member(const struct part *p, const char *keyword)
{
    return (p->words & schema_word_bit(keyword)) != 0 ? json_object_get(p->schema, keyword) : NULL;
}

/* The same, unless nothing beside $ref has a say. */
static inline const json_t *schema_keyword(const struct writer *w, const struct part *p, const char *keyword)
{
    return w->ref_is_alone && schema_member(p, "$ref") != NULL ? NULL : schema_member(p, keyword);
}

/* nullable without a type, beside $ref, allOf, anyOf or oneOf: null, or what these say. *out: that as anyOf, or schema. */
MUST_CHECK enum err schema_nullable(struct writer *w, const json_t *schema, const json_t **out);

/* Adds what the schema at path says to the list. from: what it is within. */
MUST_CHECK enum err schema_add_part(struct writer *w, const struct part *from, const json_t *schema, const char *path,
                                    struct parts *list);

/* The schema that ref, a $ref of the part or of a schema within it at path, names. */
MUST_CHECK enum err schema_follow(struct writer *w, const struct part *p, const json_t *ref, const char *path,
                                  const json_t **out);

/* The symbol of what is of all parts of the list; it is written later. */
MUST_CHECK enum err schema_need(struct writer *w, struct parts *list, symbol_id *out);

/* A count, or what stands for none. */
MUST_CHECK enum err schema_count(struct writer *w, const struct part *p, const char *keyword, uint32_t none,
                                 uint32_t *out);

void schema_put(struct writer *w, const struct node *node, symbol_id symbol); /* another alternative */
symbol_id schema_any_value(struct writer *w);                                 /* any JSON value */
symbol_id schema_opening(struct writer *w, const char *bracket);              /* with the spaces on its inner side */
symbol_id schema_closing(struct writer *w, const char *bracket);
regex_id schema_quoted(struct writer *w, regex_id inside);
bool schema_matches(struct writer *w, regex_id r, const char *text);

/* Keeps a schema as long as the writer, once of a form and a schema; NULL: no memory, or `schema` was, or there are too many:
 * schema_not_kept says which. SCHEMA_VALUE: of one object or array. SCHEMA_ONLY: a value as const.
 * SCHEMA_INDEX: no schema, but the values that one names, as keys. SCHEMA_MEMBER: an object has a member
 * of another name than those in `names`; `of` is the schema that says so, for as long as this is kept. */
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
enum err schema_not_kept(const struct writer *w);
const json_t *schema_keep(struct writer *w, const json_t *of, enum schema_form what, json_t *schema);
bool schema_was_made(const struct writer *w, const json_t *of, enum schema_form what, const json_t **out);
/* Is it one that says another's negation, conditions or value? */
bool schema_was_derived(const struct writer *w, const json_t *schema);

/* Has it a keyword that says something of values, other than `one` (OPTIONAL)? */
bool schema_says_more(const json_t *schema, const char *one);

bool schema_is_word(const char *key); /* Is it a keyword that says something of values? */

/* Makes the fields of a writer that has b, root and info. */
MUST_CHECK enum err schema_writer_init(struct writer *w, size_t max_nodes);
void schema_writer_fini(struct writer *w);

/* --- schema.c */

/* Writes the rules of all nodes that are needed. */
MUST_CHECK enum err schema_write_all(struct writer *w);

/* --- schema_object.c, schema_array.c, schema_scalar.c, schema_bounds.c: alternatives of the node for values of a type; parts
 * without anyOf and the like. */

MUST_CHECK enum err schema_write_object(struct writer *w, const struct node *node, const struct parts *list);
MUST_CHECK enum err schema_write_array(struct writer *w, const struct node *node, const struct parts *list);
MUST_CHECK enum err schema_write_string(struct writer *w, const struct node *node, const struct parts *list);
MUST_CHECK enum err schema_write_number(struct writer *w, const struct node *node, const struct parts *list,
                                        unsigned types);
/* The bounds and steps of all parts, whatever they say of types. (schema_bounds.c) */
struct number_limits {
    struct schema_bound ends[2]; /* the nearest ones: least, greatest */
    const char *paths[2];        /* of the parts that they are of */
    struct regex_steps steps;    /* of all multipleOf together; m: 0 = none */
    const char *steps_path;
};
MUST_CHECK enum err schema_read_numbers(struct writer *w, const struct parts *list, struct number_limits *out);
bool schema_allows_number(const struct number_limits *l, const json_t *value);
/* Returns the strings, as they are meant, that the parts allow. The caller intersects them with whole characters. *is_free: any. */
MUST_CHECK enum err schema_strings(struct writer *w, const struct parts *list, regex_id *out, bool *is_free);
/* Names that the schema, the propertyNames of `from`, allows, as they are meant; REGEX_ALL: any. (schema_names.c) */
MUST_CHECK enum err schema_names(struct writer *w, const struct part *from, const json_t *schema, const char *path,
                                 regex_id *out);
/* A schema of this object or array alone, kept; NULL: as schema_keep. */
const json_t *schema_of_value(struct writer *w, const json_t *value);
/* The values that enum or const of a schema name, or the one that both do. */
struct schema_values {
    const json_t *all; /* NULL: `one` alone, if that is there */
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
/* The one part with enum or const, if there is one, among others. *is_there. */
MUST_CHECK enum err schema_write_values(struct writer *w, const struct node *node, const struct parts *list,
                                        unsigned types, bool *is_there);

/* --- schema_unique.c: elements of which no two are the same. */

/* Different values that whatever is of the parts is among, a superset; *out: NULL: they are not known, or more than `most`; else the
 * caller's. */
MUST_CHECK enum err schema_few_values(struct writer *w, const struct parts *list, size_t most, json_t **out);
/* Can no value be of all parts of both lists, as far as that is easily seen? */
bool schema_lists_differ(struct writer *w, const struct parts *a, const struct parts *b);

/* --- schema_unevaluated.c: what `keyword`, unevaluatedProperties or unevaluatedItems, says. */

/* *is_there: a part has it. Refuses what is said by other words, as of not and if, beside it: that names members and elements that
 * nothing evaluates. */
MUST_CHECK enum err schema_check_unevaluated(struct writer *w, const struct parts *list, const char *keyword,
                                             bool *is_there);
/* Adds what the parts say of a member or an element, unless they or those that they ask for say what it is to be of: says[i], of the
 * i-th part. */
MUST_CHECK enum err schema_add_unevaluated(struct writer *w, const struct parts *list, const char *keyword,
                                           const bool *says, struct parts *out);

/* --- schema_form.c: a schema in another form; NULL with *is_known: the same, else it cannot be said. */

/* Values that are not of it. */
MUST_CHECK enum err schema_negate(struct writer *w, const json_t *schema, const json_t **out);
/* What not, if and dependencies say, by anyOf and allOf. */
MUST_CHECK enum err schema_conditions(struct writer *w, const struct part *p, const json_t **out);
/* Values that are none of the objects and arrays that a plain `not` names; scalars the writers of types leave out. */
MUST_CHECK enum err schema_other_values(struct writer *w, const struct part *p, const json_t **out);
/* oneOf as anyOf. (schema_oneof.c) */
MUST_CHECK enum err schema_one_of(struct writer *w, const struct part *p, const json_t **out);
/* Appends a schema, or NULL if there was no memory for it, to an array, and takes it. ERR_NOMEM. */
MUST_CHECK enum err schema_and(json_t *all, json_t *schema);
/* Is the scalar one that a plain `not` of a part names? */
bool schema_is_left_out(struct writer *w, const struct parts *list, const json_t *value);
/* Does `not` say what the types' writers know: other strings than a pattern, or other scalars than an enumeration? */
bool schema_is_plain_not(const struct part *p);

enum schema_type {
    SCHEMA_OBJECT = 1,
    SCHEMA_ARRAY = 2,
    SCHEMA_STRING = 4,
    SCHEMA_INTEGER = 8,
    SCHEMA_FRACTION = 16, /* numbers that are no integers */
    SCHEMA_BOOLEAN = 32,
    SCHEMA_NULL = 64,
    SCHEMA_ALL_TYPES = 127,
};

#endif
