/* Reads Lark's grammars, as in vLLM, llguidance and custom tools of the Responses API [lark-parser.readthedocs.io,
 * grammar reference]: `name: alternatives` for rules, `NAME: ..` for terminals. The start rule is `start`.
 *
 * Supported:
 * - "text", "text"i, "a".."z", names, ( ), [ ], |, * + ?, ~n and ~n..m, {n}, {n,}, {,m} and {n,m};
 * - /pattern/ with the flags i, s, m and u (regex_parse.h; `.` is all except \n, without ^ and $);
 * - `-> alias`, ? and ! before rules, priorities, comments with // and #, %ignore, %import common.NAME.
 * Terminals of %ignore can follow each terminal of a rule and can come first.
 *
 * The grammar allows all texts that it derives: no terminal is greedy, so aliases and priorities, which choose among
 * readings, have no effect.
 *
 * Rejected with line and column: templates, %declare, %override, %extend, %json and other directives, imports of other
 * modules, tokens in < >, attributes of rules, terminals that name rules or themselves. No function recurses. */
#ifndef INFCGI_GRAMMAR_GRAMMAR_LARK_H
#define INFCGI_GRAMMAR_GRAMMAR_LARK_H

#include "engine/grammar/grammar_build.h"

/* Reads text[0..n), at most GRAMMAR_MAX_TEXT_BYTES; *root: for grammar_finish. is_quoted: allow the contents of JSON
 * strings that encode the texts, instead of the texts. ERR_INVALID_GRAMMAR, ERR_GRAMMAR_LIMIT, ERR_NOMEM; info
 * (OPTIONAL): the error with line and column. */
MUST_CHECK enum err grammar_lark(struct grammar_builder *b, const char *text, size_t n, bool is_quoted, symbol_id *root,
                                 struct err_info *info);

/* Returns whether the text is Lark's rather than GBNF, by vLLM's rule: no line has ::= outside a comment, or the text
 * begins with %llguidance. */
bool grammar_is_lark(const char *text, size_t n);

#endif
