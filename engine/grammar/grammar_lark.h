/* Lark's grammars, as vLLM, llguidance and custom tools of the Responses API take them [lark-parser.readthedocs.io, grammar reference]:
 * `name: alternatives` for rules, `NAME: ..` for terminals, of which `start` is the start. Known: "text" and "text"i, /pattern/ with
 * the flags i, s, m and u (regex_parse.h; `.` is all but \n, without ^ and $), "a".."z", names, ( ), [ ], |, * + ?, ~n and ~n..m,
 * {n}, {n,}, {,m} and {n,m}, `-> alias`, ? and ! before rules, priorities, comments with // and #, %ignore,
 * %import common.NAME. Terminals of %ignore may stand behind each terminal of a rule, and first. What a text may be is all that the
 * grammar derives: no terminal is greedy, so aliases and priorities, which choose among readings, have no effect.
 * Refused with line and column: templates, %declare, %override, %extend, %json and other directives, imports of other modules, tokens in
 * < >, attributes of rules, terminals that name rules or themselves. Nothing recurses. */
#ifndef INFCGI_GRAMMAR_GRAMMAR_LARK_H
#define INFCGI_GRAMMAR_GRAMMAR_LARK_H

#include "engine/grammar/grammar_build.h"

enum { GRAMMAR_LARK_MAX_BYTES = 1 << 16 };

/* text[0..n) -> *root, to grammar_finish. is_quoted: not the texts themselves, but what stands between the quotes of JSON strings that
 * say them. ERR_INVALID_GRAMMAR, ERR_GRAMMAR_LIMIT, ERR_NOMEM; info (OPTIONAL): what is wrong, with line and column. */
MUST_CHECK enum err grammar_lark(struct grammar_builder *b, const char *text, size_t n, bool is_quoted, symbol_id *root,
                                 struct err_info *info);

/* Is it Lark's rather than GBNF? As vLLM tells: no line but for its comment has ::=; or it begins with %llguidance. */
bool grammar_is_lark(const char *text, size_t n);

#endif
