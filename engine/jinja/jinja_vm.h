/* The state of one render, shared by the interpreter's files.
 * Threads: one render belongs to one thread; the program is only read. */
#ifndef INFCGI_JINJA_JINJA_VM_H
#define INFCGI_JINJA_JINJA_VM_H

#include "engine/jinja/jinja_code.h"
#include "engine/jinja/jinja_text.h"

#include <jansson.h>

enum {
    JVM_STACK_VALUES = 8192,  /* every pending operand of every open macro call */
    JVM_MAX_RANGE = 100000,   /* the sandbox of jinja2 has the same */
    JVM_BYTES_PER_STEP = 512, /* bytes that a string operation may copy, compare or search for one step */
    JVM_READ_PER_STEP = 32,   /* bytes that it may read character by character: so that a step is at most 0.3 us */
};

struct jvar {
    uint32_t name;
    struct jv value;
};

/* Variables of a block. Scopes are taken from a free list, since a loop opens one for each iteration. */
struct jscope {
    struct jscope *parent;
    struct jvar *at;
    uint32_t n, cap;
    bool captured; /* a macro refers to it: never reuse */
};

struct jv_loop {
    struct jv_loop *outer;
    struct jv of; /* what it runs over: list, tuple, view, range or dict of n items */
    uint32_t n;
    struct jv_list *kept; /* when it sifts */
    struct jscope *scope; /* around the loop */
    uint32_t index;       /* of the current item; UINT32_MAX before the first */
    uint32_t depth;
    struct jv changed; /* last arguments of loop.changed(), JV_ABSENT before */
    bool ran, escaped; /* escaped: a variable may refer to it, never reuse */
};

struct jv_macro {
    const struct jmacro_code *code;
    struct jscope *closure;
};

/* An open macro call. */
struct jframe {
    uint32_t return_to;
    uint32_t n_stack;
    struct jscope *scope;
    struct jv_loop *loop;
    uint32_t n_captures;
};

enum { JVM_MAX_CAPTURES = JINJA_MAX_DEPTH * (JINJA_MAX_DEPTH + 1) };

struct jvm {
    const struct jprogram *prog;
    struct arena arena;
    char *tail, *tail_end; /* room behind the newest string of jv_concat */
    struct span *span_tail, *span_tail_end;
    struct jtext out, tmp;
    struct err_info *info;
    int64_t now;
    uint64_t hash_seed;
    uint32_t pc; /* of the instruction in progress */
    int64_t steps_left;
    struct jv *stack;
    uint32_t n_stack;
    struct jv *globals; /* by name; JV_ABSENT when there is none */
    struct jscope *scope, *free_scopes;
    struct jv_loop *loop, *free_loops;
    struct jframe frames[JINJA_MAX_DEPTH];
    uint32_t n_frames;
    size_t *captures; /* where in `out` each began */
    uint32_t n_captures;
    int builtin_depth; /* map of map of ... */
};

/* --- failing and paying (jinja_fail.c) -------------------------------------------------------------------------- */

/* ERR_TEMPLATE, "line:column: message" in info. */
MUST_CHECK enum err jvm_fail(struct jvm *vm, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* For an undefined value that was used: "'x' is undefined". */
MUST_CHECK enum err jvm_fail_undefined(struct jvm *vm, struct jv v);
/* Takes n steps off the budget; ERR_TEMPLATE when it is spent, or task_check()'s errors. */
MUST_CHECK enum err jvm_pay(struct jvm *vm, uint64_t n);
/* The same for an operation that touches n bytes. */
MUST_CHECK enum err jvm_pay_bytes(struct jvm *vm, size_t n);
/* The same for an operation that looks at each character of n bytes. */
MUST_CHECK enum err jvm_pay_read(struct jvm *vm, size_t n);

/* Converts JSON (explicit stack). user: strings and keys are user text. */
MUST_CHECK enum err jvm_from_json(struct jvm *vm, const json_t *j, bool user, struct jv *out);

/* --- operators (jinja_ops.c, jinja_item.c) ---------------------------------------------------------------------- */

MUST_CHECK enum err jop_binary(struct jvm *vm, enum jbin op, struct jv a, struct jv b, struct jv *out);
MUST_CHECK enum err jop_compare(struct jvm *vm, enum jcmp op, struct jv a, struct jv b, bool *out);
MUST_CHECK enum err jop_negate(struct jvm *vm, struct jv v, struct jv *out);
MUST_CHECK enum err jop_contains(struct jvm *vm, struct jv item, struct jv in, bool *out);
/* v.name and v[key], in jinja2's order of look-ups. */
MUST_CHECK enum err jop_attr(struct jvm *vm, struct jv v, struct jv name, struct jv *out);
MUST_CHECK enum err jop_item(struct jvm *vm, struct jv v, struct jv key, struct jv *out);
MUST_CHECK enum err jop_slice(struct jvm *vm, struct jv v, struct jv from, struct jv to, struct jv step,
                              struct jv *out);
/* format % args (jinja_format.c). */
MUST_CHECK enum err jop_format(struct jvm *vm, const struct jstr *format, struct jv args, struct jv *out);
/* str.format (jinja_format.c). */
struct jcall;
MUST_CHECK enum err jcall_format(struct jvm *vm, struct jcall *c, struct jv *out);

/* --- calls ------------------------------------------------------------------------------------------------------ */

enum { JCALL_PARAMS = 6 };

/* Arguments of one call of a builtin. */
struct jcall {
    struct jv self;              /* filters, tests, methods: what it is applied to */
    struct jv arg[JCALL_PARAMS]; /* by parameter, JV_ABSENT when not given */
    const struct jv *pos;        /* as written: n_pos positional, n_kw named (kw_names[i] is a string) */
    const struct jv *kw;
    const struct jv *kw_names;
    uint32_t n_pos, n_kw;
    const struct jbuiltin *row; /* that is called */
};

typedef enum err (*jbuiltin_fn)(struct jvm *vm, struct jcall *c, struct jv *out);

/* One row of a table of filters, tests, methods or functions. */
struct jbuiltin {
    const char *name;
    jbuiltin_fn fn;
    const char *params; /* names separated by spaces; "*": takes pos and kw as they are */
    uint8_t required;   /* how many of them must be given */
    int how;            /* to functions of several rows: which of them this is */
};

/* Binds arguments to parameters and calls. ERR_TEMPLATE: wrong arguments. */
MUST_CHECK enum err jcall_run(struct jvm *vm, const struct jbuiltin *fn, struct jcall *c, struct jv *out);

/* Tables; each ends with a row without name. */
extern const struct jbuiltin jinja_filters[];
extern const struct jbuiltin jinja_tests[];
extern const struct jbuiltin jinja_functions[];
extern const struct jbuiltin jinja_str_methods[];
extern const struct jbuiltin jinja_dict_methods[];
extern const struct jbuiltin jinja_dict_class_methods[]; /* of the function dict */
extern const struct jbuiltin jinja_list_methods[];
extern const struct jbuiltin jinja_loop_methods[];
extern const struct jbuiltin jinja_cycler_methods[];

/* Index of the row, or -1. */
int jbuiltin_find(const struct jbuiltin *table, const char *name, size_t n);

/* A string argument; other types fail with the function's name. */
MUST_CHECK enum err jcall_str(struct jvm *vm, struct jv v, const char *what, const struct jstr **out);
MUST_CHECK enum err jcall_int(struct jvm *vm, struct jv v, const char *what, int64_t *out);
/* Truth of an argument that may be absent. */
bool jcall_flag(struct jv v, bool otherwise);

/* Sorts by Python's order, stable. keys[i] belongs to items[i]. equal_first: keys that are equal need no order, as when
 * Python compares lists of one key. */
MUST_CHECK enum err jv_sort(struct jvm *vm, struct jv *keys, struct jv *items, uint32_t n, bool reverse,
                            bool equal_first);
/* Changes of case. A word begins: for words after white space and any of -({[<; for title after any character without
 * case. */
enum jstr_case { JCASE_LOWER, JCASE_UPPER, JCASE_CAPITALIZE, JCASE_WORDS, JCASE_TITLE, JCASE_SWAP };
MUST_CHECK enum err jstr_case(struct jvm *vm, const struct jstr *s, enum jstr_case how, struct jv *out);
/* True when some characters of s have the case, upper or else lower, and none another. */
MUST_CHECK enum err jstr_case_is(struct jvm *vm, const struct jstr *s, bool upper, struct jv *out);
/* Builtins of filters and methods alike; how: enum jstr_case, enum jstr_side. */
MUST_CHECK enum err jcall_case(struct jvm *vm, struct jcall *c, struct jv *out);
MUST_CHECK enum err jcall_strip(struct jvm *vm, struct jcall *c, struct jv *out); /* chars */
enum jstr_side { JSIDE_LEFT = 1, JSIDE_RIGHT = 2 };
/* chars: OPTIONAL set to take away instead of white space. */
MUST_CHECK enum err jstr_strip(struct jvm *vm, const struct jstr *s, const struct jstr *chars, int sides,
                               struct jv *out);
MUST_CHECK enum err jstr_replace(struct jvm *vm, const struct jstr *s, const struct jstr *from, const struct jstr *to,
                                 int64_t count, struct jv *out);
MUST_CHECK enum err jstr_lines(struct jvm *vm, const struct jstr *s, bool keep_ends, struct jv *out);
MUST_CHECK enum err jstr_pad(struct jvm *vm, const struct jstr *s, int64_t width, const struct jstr *fill, int sides,
                             struct jv *out);

/* Item i < n of the loop (jinja_functions.c). */
struct jv jloop_item(const struct jv_loop *l, uint32_t i);
/* s as what |safe gives (jinja_str.c). */
MUST_CHECK enum err jv_mark_safe(struct jvm *vm, const struct jstr *s, struct jv *out);
/* s with & < > ' " as HTML entities (jinja_str.c). */
MUST_CHECK enum err jv_escape(struct jvm *vm, const struct jstr *s, struct jv *out);

/* Attribute of the loop variable (jinja_functions.c). *out is JV_ABSENT when there is none of that name. */
MUST_CHECK enum err jloop_attr(struct jvm *vm, struct jv_loop *l, const struct jstr *name, struct jv *out);

/* Renders into vm->out. */
MUST_CHECK enum err jvm_run(struct jvm *vm);

#endif
