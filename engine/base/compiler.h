/* Compiler attributes; the rest of the tree stays plain C17. */
#ifndef INFCGI_BASE_COMPILER_H
#define INFCGI_BASE_COMPILER_H

#define MUST_CHECK                      __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt_arg, first_arg) __attribute__((format(printf, fmt_arg, first_arg)))
#define ALWAYS_INLINE                   inline __attribute__((always_inline))
#define NOINLINE                        __attribute__((noinline)) /* keeps rare work out of a hot function */

/* Unrolls the next loop, whose trip count is a constant of at most 16, to keep small arrays in registers. */
#if defined(__clang__)
#define UNROLL_FULLY _Pragma("clang loop unroll(full)")
#else
#define UNROLL_FULLY _Pragma("GCC unroll 16")
#endif

/* `typedef uint32_t name VECTOR_OF(16);` is a vector of 16 bytes, which operators treat element by element. VECTOR_PICK
 * returns the elements with these indexes of two vectors: those of the second follow those of the first. */
#define VECTOR_OF(bytes)       __attribute__((vector_size(bytes)))
#define VECTOR_PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)

#define CACHE_LINE_BYTES 64 /* x86-64 and known arm64 servers; for padding only */

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN_OF(a, b) ((a) < (b) ? (a) : (b))
#define MAX_OF(a, b) ((a) > (b) ? (a) : (b))

#endif
