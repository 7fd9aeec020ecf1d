/* The field tables of all request bodies; tests check docs/openapi.yaml against them. Threads: constant. */
#ifndef INFCGI_FCGI_FIELD_TABLES_H
#define INFCGI_FCGI_FIELD_TABLES_H

#include "fcgi/api/fields.h"

extern const struct field_table *const field_tables[];
extern const int field_tables_n;

#endif
