/* Reads GBNF, the grammars of llama.cpp's server [llama.cpp grammars/README.md]: lines `name ::= alternatives`, with
 * the start rule `root`.
 *
 * Supported: "text", [classes], ., names, ( ), |, * + ? {n} {n,} {n,m}, # comments, a backslash before punctuation, and
 * the escapes \n \r \t \xHH \uHHHH \UHHHHHHHH. Rules can be recursive in every way, including left recursion. Duplicate
 * rules and tokens in < > are rejected. A part without rules becomes one expression. No function recurses. */
#ifndef INFCGI_GRAMMAR_GRAMMAR_GBNF_H
#define INFCGI_GRAMMAR_GRAMMAR_GBNF_H

#include "engine/grammar/grammar_build.h"

/* Reads text[0..n), at most GRAMMAR_MAX_TEXT_BYTES; *root: for grammar_finish. ERR_INVALID_GRAMMAR, ERR_GRAMMAR_LIMIT,
 * ERR_NOMEM; info (OPTIONAL): the error with its line. */
MUST_CHECK enum err grammar_gbnf(struct grammar_builder *b, const char *text, size_t n, symbol_id *root,
                                 struct err_info *info);

#endif
