/* All tables of the program; main passes them to commands. Threads: constant.
 *
 * To add an option: add a field to struct conf, a row to options.c and the code that uses it; then run `make docs`. */
#ifndef INFCGI_FCGI_TABLES_H
#define INFCGI_FCGI_TABLES_H

#include "fcgi/api/fields.h"
#include "fcgi/cmd/cmd.h"
#include "fcgi/wire/call.h"

extern const struct option_table options_table;

/* Options of llama-server (options_llama.c): options with another name in infcgi, options without effect, and rejected
 * options. The last row has no names. */
extern const struct option_other options_llama[];

extern const struct cmd commands_table[];
extern const int commands_n;

/* Writes the names of the commands whose bits are set, "serve, generate", to to[0..cap), and returns to. */
const char *commands_names(unsigned bits, char *to, size_t cap);

/* Endpoints, and the dialects, NULL-terminated. The last dialect serves URLs that belong to no other one. */
extern const struct route routes_table[];
extern const int routes_n;
extern const struct dialect *const routes_dialects[];

/* The field tables of all request bodies; tests check docs/openapi.yaml against them. */
extern const struct field_table *const field_tables[];
extern const int field_tables_n;

struct program tables_all(void);

#endif
