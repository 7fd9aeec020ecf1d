/* The filter functions on sequences, for the table in jinja_filters.c. Threads: as in jinja_vm.h. */
#ifndef INFCGI_JINJA_JINJA_FILTERS_INTERNAL_H
#define INFCGI_JINJA_JINJA_FILTERS_INTERNAL_H

#include "engine/jinja/jinja_vm.h"

enum err jfilter_first(struct jvm *vm, struct jcall *c, struct jv *out);
enum err jfilter_last(struct jvm *vm, struct jcall *c, struct jv *out);
enum err jfilter_list(struct jvm *vm, struct jcall *c, struct jv *out);
enum err jfilter_join(struct jvm *vm, struct jcall *c, struct jv *out);
enum err jfilter_map(struct jvm *vm, struct jcall *c, struct jv *out);
/* how: */
enum { JCHOOSE_WANTED = 1, JCHOOSE_BY_ATTRIBUTE = 2 };
enum err jfilter_choose(struct jvm *vm, struct jcall *c, struct jv *out);
enum err jfilter_sort(struct jvm *vm, struct jcall *c, struct jv *out);
enum err jfilter_unique(struct jvm *vm, struct jcall *c, struct jv *out);
enum err jfilter_dictsort(struct jvm *vm, struct jcall *c, struct jv *out);
enum err jfilter_items(struct jvm *vm, struct jcall *c, struct jv *out);
enum err jfilter_batch(struct jvm *vm, struct jcall *c, struct jv *out);
enum err jfilter_slice(struct jvm *vm, struct jcall *c, struct jv *out);
enum err jfilter_sum(struct jvm *vm, struct jcall *c, struct jv *out);
enum err jfilter_extreme(struct jvm *vm, struct jcall *c, struct jv *out); /* how: -1 minimum, 1 maximum */
enum err jfilter_reverse(struct jvm *vm, struct jcall *c, struct jv *out);

#endif
