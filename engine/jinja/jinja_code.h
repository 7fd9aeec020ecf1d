/* A parsed template: a flat list of instructions for a stack machine, with its literals and names. Immutable after
 * parsing. Threads: shared by all renders, read-only. */
#ifndef INFCGI_JINJA_JINJA_CODE_H
#define INFCGI_JINJA_JINJA_CODE_H

#include "engine/jinja/jinja_value.h"

/* Stack effects as  before -- after.  a, b, n are fields of the instruction; "->" is a jump. */
enum jop {
    JI_JUMP,         /* -> a */
    JI_JUMP_FALSE,   /* v --            -> a when false */
    JI_JUMP_TRUE,    /* v --            -> a when true */
    JI_AND,          /* v -- [v]        -> a keeping v when false */
    JI_OR,           /* v -- [v]        -> a keeping v when true */
    JI_TEXT,         /*                 prints literal a */
    JI_PRINT,        /* v --            n: v must be a string */
    JI_CONST,        /* -- v            literal a */
    JI_UNDEF,        /* -- v            value of an inline if without else */
    JI_LOAD,         /* -- v            name a; n = 1: from outside the innermost scope */
    JI_STORE,        /* v --            name a */
    JI_STORE_ATTR,   /* v --            attribute literal b of the namespace name a */
    JI_UNPACK,       /* seq -- vn..v1   n items, the first on top */
    JI_POP,          /* v -- */
    JI_ATTR,         /* v -- v.name     literal a */
    JI_ITEM,         /* v k -- v[k] */
    JI_SLICE,        /* v from to step -- v[from:to:step] */
    JI_SEQ_NEW,      /* -- seq          kind n */
    JI_SEQ_START,    /* v -- (v,) */
    JI_SEQ_ADD,      /* seq v -- seq */
    JI_DICT_NEW,     /* -- d */
    JI_DICT_PUT,     /* d k v -- d */
    JI_BINARY,       /* x y -- x op y   op n */
    JI_CONCAT,       /* v1..vn -- v1 ~ .. ~ vn */
    JI_COMPARE,      /* x y -- bool     op n */
    JI_COMPARE_NEXT, /* x y -- y        op n; when false -- false, -> a */
    JI_NOT,          /* v -- not v */
    JI_NEG,          /* v -- -v */
    JI_POS,          /* v -- +v */
    JI_CALL,         /* f args kwargs -- v      n args, keyword names in literal b (a tuple) or -1 */
    JI_FILTER,       /* v args kwargs -- v      table row a (-1: unknown, its name is literal c) */
    JI_TEST,         /* v args kwargs -- bool   likewise */
    JI_FOR,          /* iterable --     begins a loop */
    JI_FOR_NEXT,     /* -- item         -> a at the end */
    JI_FOR_RAN,      /*                 records a completed iteration */
    JI_FOR_END,      /*                 -> a when an iteration was completed */
    JI_SIFT_KEEP,    /* bool --         keeps the item of this iteration when true */
    JI_SIFT_END,     /* -- list         ends a loop; the kept items */
    JI_SCOPE,        /*                 opens a scope */
    JI_SCOPE_END,    /*                 closes it */
    JI_CAPTURE,      /*                 output goes to a text from now on */
    JI_CAPTURE_END,  /* -- text */
    JI_CAPTURE_DROP, /*                 likewise, when a loop is left early */
    JI_MACRO,        /*                 defines macro a */
    JI_DEFAULT,      /*                 -> a when parameter (name) b was given */
    JI_RETURN,       /*                 end of a macro */
    JI_END,          /*                 end of the template */
};

/* Operators of JI_BINARY and JI_COMPARE. */
enum jbin { JB_ADD, JB_SUB, JB_MUL, JB_DIV, JB_FLOORDIV, JB_MOD, JB_POW };
enum jcmp { JC_EQ, JC_NE, JC_LT, JC_LE, JC_GT, JC_GE, JC_IN, JC_NOT_IN };

struct jins {
    uint8_t op;
    uint16_t n;
    int32_t a, b, c;
    uint32_t pos; /* byte of the source, for messages */
};

struct jmacro_code {
    uint32_t name; /* of the macro */
    uint32_t entry;
    uint32_t n_params;
    uint32_t *params; /* names */
};

struct jprogram {
    char *source; /* with newlines normalized */
    size_t n_source;
    struct jins *code;
    size_t n_code, cap_code;
    struct jv *consts;
    size_t n_consts, cap_consts;
    const struct jstr **names; /* variable names; name 0 is "loop" */
    size_t n_names, cap_names;
    struct jmacro_code *macros;
    size_t n_macros, cap_macros;
    struct arena arena; /* literals; the arrays above are on the heap while they grow */
};

enum { JNAME_LOOP = 0, JCALL_MAX_ARGS = 64 };

/* Parses p->source (set by the caller) and fills the other fields. ERR_TEMPLATE with "line:column: ..." in info,
 * ERR_NOMEM. The caller must call jprogram_fini in every case. */
MUST_CHECK enum err jprogram_parse(struct jprogram *p, struct err_info *info);
void jprogram_fini(struct jprogram *p);

#endif
