/* GBNF, the grammars that llama.cpp's server takes [llama.cpp grammars/README.md]: lines `name ::= alternatives`, of which `root`
 * is the start. Known: "text", [classes], ., names, ( ), |, * + ? {n} {n,} {n,m}, # comments, and the escapes \n \r \t \xHH
 * \uHHHH \UHHHHHHHH and a backslash before punctuation. Rules may be recursive in every way, left too. A rule that stands
 * twice is refused, and so are tokens in < >. What has no rules in it becomes one expression. Nothing recurses. */
#ifndef INFCGI_GRAMMAR_GRAMMAR_GBNF_H
#define INFCGI_GRAMMAR_GRAMMAR_GBNF_H

#include "engine/grammar/grammar_build.h"

enum { GRAMMAR_GBNF_MAX_BYTES = 1 << 16 };

/* text[0..n) -> *root, to grammar_finish. ERR_INVALID_GRAMMAR, ERR_GRAMMAR_LIMIT, ERR_NOMEM; info (OPTIONAL): what is
 * wrong, with the line. */
MUST_CHECK enum err grammar_gbnf(struct grammar_builder *b, const char *text, size_t n, symbol_id *root,
                                 struct err_info *info);

#endif
