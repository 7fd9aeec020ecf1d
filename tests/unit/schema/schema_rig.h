/* A small vocabulary, and grammars of JSON Schemas that read bytes, for the schema suites. Threads: one. */
#ifndef INFCGI_TESTS_SCHEMA_RIG_H
#define INFCGI_TESTS_SCHEMA_RIG_H

#include "engine/base/err.h"
#include "engine/grammar/grammar.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

extern struct grammar_vocab *schema_rig_vocab; /* between set_up and tear_down */
extern int32_t schema_rig_ids[256];            /* the token of each byte */
extern struct err_info schema_rig_info;        /* of the last compiled grammar */

void schema_rig_set_up(void);
void schema_rig_tear_down(void);

/* Compiles the schema, borrowed. closes: as in grammar_close_objects. *out: for grammar_unref; NULL after an error. */
enum err schema_rig_compile(const json_t *schema, bool closes, struct grammar **out);

/* Returns whether the grammar derives exactly this text. */
bool schema_rig_says(struct grammar *g, const char *text);

#endif
