/* The state of one render, shared by the interpreter's files. Threads: one render belongs to one thread; the program is
 * read-only. */
#ifndef INFCGI_JINJA_JINJA_VM_H
#define INFCGI_JINJA_JINJA_VM_H

#include "engine/jinja/jinja_code.h"
#include "engine/jinja/jinja_text.h"

#include <jansson.h>

enum {
    JVM_STACK_VALUES = 8192,  /* all pending operands of all open macro calls */
    JVM_MAX_RANGE = 100000,   /* the limit of jinja2's sandbox */
    JVM_BYTES_PER_STEP = 512, /* bytes that a string operation can copy, compare or search per step */
    JVM_READ_PER_STEP = 32,   /* bytes that it can read character by character per step; a step takes at most 0.3 us */
};

struct jvar {
    uint32_t name;
    struct jv value;
};

/* Variables of a block. Scopes come from a free list, because a loop opens one per iteration. */
struct jscope {
    struct jscope *parent;
    struct jvar *at;
    uint32_t n, cap;
    bool captured; /* a macro refers to it: do not reuse */
};

struct jv_loop {
    struct jv_loop *outer;
    struct jv of; /* the iterated list, tuple, view, range or dict of n items */
    uint32_t n;
    struct jv_list *kept; /* if the loop filters */
    struct jscope *scope; /* enclosing scope */
    uint32_t index;       /* of the current item; UINT32_MAX before the first */
    struct jv changed;    /* last arguments of loop.changed(), JV_ABSENT before */
    bool ran, escaped;    /* escaped: a variable can refer to it, do not reuse */
};

struct jv_macro {
    const struct jmacro_code *code;
    struct jscope *closure;
};

/* An open macro call. */
struct jframe {
    uint32_t return_to;
    struct jscope *scope;
    struct jv_loop *loop;
};

enum { JVM_MAX_CAPTURES = JINJA_MAX_DEPTH * (JINJA_MAX_DEPTH + 1) };

struct jvm {
    const struct jprogram *prog;
    struct arena arena;
    struct jv_room {
        char *at, *end;
    } text_room, span_room; /* after the newest string of jv_concat, and after its ranges */
    struct jtext out, tmp;
    struct err_info *info;
    int64_t now;
    uint64_t hash_seed;
    uint32_t pc; /* of the current instruction */
    int64_t steps_left;
    struct jv *stack;
    uint32_t n_stack;
    struct jv *globals; /* by name; JV_ABSENT: none */
    struct jscope *scope, *free_scopes;
    struct jv_loop *loop, *free_loops;
    struct jframe frames[JINJA_MAX_DEPTH];
    uint32_t n_frames;
    size_t *captures; /* start of each in `out` */
    uint32_t n_captures;
    int builtin_depth; /* nesting of map in map */
};

/* --- failing and paying (jinja_fail.c) -------------------------------------------------------------------------- */

/* ERR_TEMPLATE, "line:column: message" in info. */
MUST_CHECK enum err jvm_fail(struct jvm *vm, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Reports the use of an undefined value: "'x' is undefined". */
MUST_CHECK enum err jvm_fail_undefined(struct jvm *vm, struct jv v);
/* Fails with jvm_fail_undefined() if v is undefined. */
MUST_CHECK enum err jvm_defined(struct jvm *vm, struct jv v);
/* Takes n steps from the budget; ERR_TEMPLATE if it is exhausted, or task_check()'s errors. */
MUST_CHECK enum err jvm_pay(struct jvm *vm, uint64_t n);
/* Like jvm_pay(), for an operation that touches n bytes. */
MUST_CHECK enum err jvm_pay_bytes(struct jvm *vm, size_t n);
/* Like jvm_pay(), for an operation that reads each character of n bytes. */
MUST_CHECK enum err jvm_pay_read(struct jvm *vm, size_t n);

/* Converts JSON (with an explicit stack). user: strings and keys are user text. */
MUST_CHECK enum err jvm_from_json(struct jvm *vm, const json_t *j, bool user, struct jv *out);

/* --- operators (jinja_ops.c, jinja_item.c) ---------------------------------------------------------------------- */

MUST_CHECK enum err jop_binary(struct jvm *vm, enum jbin op, struct jv a, struct jv b, struct jv *out);
MUST_CHECK enum err jop_compare(struct jvm *vm, enum jcmp op, struct jv a, struct jv b, bool *out);
MUST_CHECK enum err jop_negate(struct jvm *vm, struct jv v, struct jv *out);
MUST_CHECK enum err jop_contains(struct jvm *vm, struct jv item, struct jv in, bool *out);
/* v.name and v[key], in jinja2's lookup order. */
MUST_CHECK enum err jop_attr(struct jvm *vm, struct jv v, struct jv name, struct jv *out);
MUST_CHECK enum err jop_item(struct jvm *vm, struct jv v, struct jv key, struct jv *out);
/* v[from:to:step]; by: from, to and step, none for their defaults. */
MUST_CHECK enum err jop_slice(struct jvm *vm, struct jv v, const struct jv by[3], struct jv *out);
/* format % args (jinja_format.c). */
MUST_CHECK enum err jop_format(struct jvm *vm, const struct jstr *format, struct jv args, struct jv *out);
/* str.format (jinja_format.c). */
struct jcall;
MUST_CHECK enum err jcall_format(struct jvm *vm, struct jcall *c, struct jv *out);

/* --- calls ------------------------------------------------------------------------------------------------------ */

enum { JCALL_PARAMS = 6 };

/* Arguments of one call of a builtin. */
struct jcall {
    struct jv self;              /* filters, tests, methods: the value they apply to */
    struct jv arg[JCALL_PARAMS]; /* by parameter; JV_ABSENT: not passed */
    const struct jv *pos;        /* as written: n_pos positional, n_kw named (kw_names[i] is a string) */
    const struct jv *kw;
    const struct jv *kw_names;
    uint32_t n_pos, n_kw;
    const struct jbuiltin *row; /* the called builtin */
};

typedef enum err (*jbuiltin_fn)(struct jvm *vm, struct jcall *c, struct jv *out);

/* One row of a table of filters, tests, methods or functions. */
struct jbuiltin {
    const char *name;
    jbuiltin_fn fn;
    const char *params; /* names separated by spaces; "*": takes pos and kw unchanged */
    uint8_t required;   /* number of required parameters */
    int how;            /* for functions of several rows: the variant */
};

/* Binds arguments to parameters and calls. ERR_TEMPLATE: wrong arguments. */
MUST_CHECK enum err jcall_run(struct jvm *vm, const struct jbuiltin *fn, struct jcall *c, struct jv *out);

/* Tables; each ends with a row without a name. */
extern const struct jbuiltin jinja_filters[];
extern const struct jbuiltin jinja_tests[];
extern const struct jbuiltin jinja_functions[];
extern const struct jbuiltin jinja_str_methods[];
extern const struct jbuiltin jinja_dict_methods[];
extern const struct jbuiltin jinja_dict_class_methods[]; /* of the function dict */
extern const struct jbuiltin jinja_list_methods[];
extern const struct jbuiltin jinja_loop_methods[];
extern const struct jbuiltin jinja_cycler_methods[];

/* Returns the row's index, or -1. */
int jbuiltin_find(const struct jbuiltin *table, const char *name, size_t n);

/* Reads a string argument; other types fail with the function's name. An absent argument leaves *out as it is. */
MUST_CHECK enum err jcall_str(struct jvm *vm, struct jv v, const char *what, const struct jstr **out);
MUST_CHECK enum err jcall_int(struct jvm *vm, struct jv v, const char *what, int64_t *out);
/* Returns the argument of that name, or JV_ABSENT. */
struct jv jcall_keyword(const struct jcall *c, const char *name, size_t n);
/* Returns whether an argument was passed and is not none. */
static inline bool jcall_given(struct jv v) { return v.kind != JV_ABSENT && v.kind != JV_NONE; }
/* Returns the truth of an argument that can be absent. */
bool jcall_flag(struct jv v, bool otherwise);

/* Sorts by Python's order, stably. keys->at[i] belongs to items->at[i]. equal_first: equal keys need no order, as when
 * Python compares lists of one key. */
MUST_CHECK enum err jv_sort(struct jvm *vm, struct jv_list *keys, struct jv_list *items, bool reverse,
                            bool equal_first);
/* Case mappings. A word begins: for words after white space and any of -({[<; for title after any uncased character. */
enum jstr_case { JCASE_LOWER, JCASE_UPPER, JCASE_CAPITALIZE, JCASE_WORDS, JCASE_TITLE, JCASE_SWAP };
MUST_CHECK enum err jstr_case(struct jvm *vm, const struct jstr *s, enum jstr_case how, struct jv *out);
/* *out: some characters of s have this case (upper: upper case, else lower case) and none has another. */
MUST_CHECK enum err jstr_case_is(struct jvm *vm, const struct jstr *s, bool upper, struct jv *out);
/* Builtins shared by filters and methods; how: enum jstr_case, enum jstr_side. */
MUST_CHECK enum err jcall_case(struct jvm *vm, struct jcall *c, struct jv *out);
MUST_CHECK enum err jcall_strip(struct jvm *vm, struct jcall *c, struct jv *out); /* chars */
/* old new count; how: whether old and new must be strings. */
MUST_CHECK enum err jcall_replace(struct jvm *vm, struct jcall *c, struct jv *out);
enum jstr_side { JSIDE_LEFT = 1, JSIDE_RIGHT = 2 };
MUST_CHECK enum err jstr_lines(struct jvm *vm, const struct jstr *s, bool keep_ends, struct jv *out);
MUST_CHECK enum err jstr_pad(struct jvm *vm, const struct jstr *s, int64_t width, const struct jstr *fill, int sides,
                             struct jv *out);

/* Returns s as |safe does (jinja_str.c). */
MUST_CHECK enum err jv_mark_safe(struct jvm *vm, const struct jstr *s, struct jv *out);
/* Returns s with & < > ' " as HTML entities (jinja_str.c). */
MUST_CHECK enum err jv_escape(struct jvm *vm, const struct jstr *s, struct jv *out);

/* Finds an attribute of the loop variable that is not a method (jinja_functions.c). False: none has that name. */
bool jloop_attr(const struct jv_loop *l, const struct jstr *name, struct jv *out);

/* Renders into vm->out. */
MUST_CHECK enum err jvm_run(struct jvm *vm);

#endif
