/* Cases of checkkern: buffers between guard pages, random fills, comparisons and failure messages. */
#include "tests/kernels/checkkern.h"

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif
#if defined(CHECK_VALGRIND)
#include <valgrind/memcheck.h>
#endif

enum { GUARD_BYTES = 4096, FENCE_BYTES = 256, MAX_PRINTED = 20 }; /* FENCE: canaries checked before a buffer */

static struct {
    unsigned char *end[CHECK_BUFFERS]; /* first byte of the guard page after each area */
    unsigned char *start[CHECK_BUFFERS];
    size_t bytes[CHECK_BUFFERS];
    int n;
    bool is_mapped;
    bool is_planted; /* kernels are wrong on purpose: only the canaries must notice, not a tool that ends the run */
} buffers;

static char current[256]; /* for the signal handler */

static void on_fault(int sig)
{
    (void)sig;
    static const char text[] = "FAIL touched memory outside its buffers: ";
    if (write(STDOUT_FILENO, text, sizeof text - 1) < 0 || write(STDOUT_FILENO, current, strlen(current)) < 0) {
        _exit(2);
    }
    _exit(1);
}

/* Guard pages detect accesses beyond the last page. With AddressSanitizer or valgrind (V=valgrind) no byte around a
 * buffer may be touched, and with valgrind no result may depend on an unwritten byte of a buffer. */
enum access { ACCESS_NONE, ACCESS_ALL, ACCESS_UNWRITTEN };

static void set_access(const unsigned char *p, size_t n, enum access access)
{
#if defined(__SANITIZE_ADDRESS__)
    if (access == ACCESS_NONE) {
        ASAN_POISON_MEMORY_REGION(p, n);
    } else {
        ASAN_UNPOISON_MEMORY_REGION(p, n);
    }
#endif
#if defined(CHECK_VALGRIND)
    if (access == ACCESS_NONE) {
        VALGRIND_MAKE_MEM_NOACCESS(p, n);
    } else if (access == ACCESS_ALL) {
        VALGRIND_MAKE_MEM_DEFINED(p, n);
    } else {
        VALGRIND_MAKE_MEM_UNDEFINED(p, n);
    }
#endif
    (void)p;
    (void)n;
    (void)access;
}

/* Sets the access to the space around buffer i. */
static void set_fences(int i, enum access access)
{
    const unsigned char *start = buffers.start[i], *stop = start + buffers.bytes[i];
    set_access(start - FENCE_BYTES, FENCE_BYTES, access);
    set_access(stop, (size_t)(buffers.end[i] - stop), access);
}

static void map_buffers(void)
{
    for (int i = 0; i < CHECK_BUFFERS; i++) {
        unsigned char *p = mmap(NULL, CHECK_BUFFER_BYTES + 2 * GUARD_BYTES, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED || mprotect(p, GUARD_BYTES, PROT_NONE) != 0 ||
            mprotect(p + GUARD_BYTES + CHECK_BUFFER_BYTES, GUARD_BYTES, PROT_NONE) != 0) {
            perror("checkkern: mmap");
            _exit(2);
        }
        buffers.end[i] = p + GUARD_BYTES + CHECK_BUFFER_BYTES;
    }
    buffers.is_mapped = true;
    struct sigaction on = {.sa_handler = on_fault};
    sigaction(SIGSEGV, &on, NULL);
    sigaction(SIGBUS, &on, NULL);
}

void check_case(struct check *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->size, sizeof c->size, fmt, ap);
    va_end(ap);
    c->state = c->seed;
    for (const char *s = c->op; *s != '\0'; s++) {
        c->state = (c->state ^ (unsigned char)*s) * 0x100000001B3u; /* FNV-1a, only to distinguish operations */
    }
    c->state += (uint64_t)c->n_cases * 0x9E3779B97F4A7C15u;
    c->n_cases++;
    buffers.n = 0;
    buffers.is_planted = c->planted;
    snprintf(current, sizeof current, "%s %s, %s, seed %llu, case %ld\n", c->op, c->isa, c->size,
             (unsigned long long)c->seed, c->n_cases);
}

void check_fail(struct check *c, const char *what, size_t index, double got, double want)
{
    c->n_failed++;
    if (!c->planted && c->n_failed <= MAX_PRINTED) {
        printf("FAIL %s %s, %s, seed %llu, case %ld: %s[%zu] is %.9g (%a), expected %.9g (%a)\n", c->op, c->isa,
               c->size, (unsigned long long)c->seed, c->n_cases, what, index, got, got, want, want);
    }
}

bool check_same_f32(struct check *c, const char *what, const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&got[i], &want[i], sizeof *got) != 0 && !(isnan(got[i]) && isnan(want[i]))) {
            check_fail(c, what, i, (double)got[i], (double)want[i]);
            return false;
        }
    }
    return true;
}

bool check_near_f32(struct check *c, const char *what, const float *got, const double *want, const double *limit,
                    size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!(fabs((double)got[i] - want[i]) <= limit[i])) {
            check_fail(c, what, i, (double)got[i], want[i]);
            return false;
        }
    }
    return true;
}

bool check_same_bytes(struct check *c, const char *what, const void *got, const void *want, size_t n)
{
    const unsigned char *g = got, *w = want;
    for (size_t i = 0; i < n; i++) {
        if (g[i] != w[i]) {
            check_fail(c, what, i, g[i], w[i]);
            return false;
        }
    }
    return true;
}

void check_use_filling(const void *p, size_t n) { set_access(p, n, ACCESS_ALL); }

bool check_untouched(struct check *c, const char *what, const void *p, size_t n)
{
    set_access(p, n, ACCESS_ALL);
    for (size_t i = 0; i < n; i++) {
        if (((const unsigned char *)p)[i] != CHECK_CANARY) {
            check_fail(c, what, i, ((const unsigned char *)p)[i], CHECK_CANARY);
            return false;
        }
    }
    return true;
}

void *check_buffer(size_t bytes, size_t align)
{
    if (!buffers.is_mapped) {
        map_buffers();
    }
    if (buffers.n == CHECK_BUFFERS || bytes + align + FENCE_BYTES > CHECK_BUFFER_BYTES) {
        fprintf(stderr, "checkkern: a case needs more buffers than CHECK_BUFFERS or a larger one\n");
        _exit(2);
    }
    int i = buffers.n++;
    unsigned char *end = buffers.end[i];
    unsigned char *start = (unsigned char *)((uintptr_t)(end - bytes) & ~(uintptr_t)(align - 1));
    set_access(start - FENCE_BYTES, (size_t)(end - start) + FENCE_BYTES, ACCESS_ALL);
    memset(start - FENCE_BYTES, CHECK_CANARY, (size_t)(end - start) + FENCE_BYTES);
    buffers.start[i] = start;
    buffers.bytes[i] = bytes;
    if (!buffers.is_planted) {
        set_access(start, bytes, ACCESS_UNWRITTEN);
        set_fences(i, ACCESS_NONE);
    }
    return start;
}

bool check_guards(struct check *c)
{
    for (int i = 0; i < buffers.n; i++) {
        const unsigned char *start = buffers.start[i], *stop = start + buffers.bytes[i];
        set_fences(i, ACCESS_ALL);
        for (const unsigned char *p = start - FENCE_BYTES; p < buffers.end[i]; p++) {
            p = p == start ? stop : p;
            if (p < buffers.end[i] && *p != CHECK_CANARY) {
                check_fail(c, p < start ? "byte before buffer" : "byte behind buffer", (size_t)i, *p, CHECK_CANARY);
                return false;
            }
        }
    }
    return true;
}

uint64_t check_random(struct check *c) /* splitmix64 [Steele, Lea & Flood 2014] */
{
    uint64_t z = c->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

int check_random_below(struct check *c, int n) { return (int)(check_random(c) % (uint64_t)n); }

double check_random_between(struct check *c, double low, double high)
{
    return low + (high - low) * ((double)(check_random(c) >> 11) * 0x1p-53);
}

const char *check_fill_name(enum check_fill fill)
{
    static const char *const names[CHECK_FILL_COUNT] = {"uniform",  "tiny",        "huge",  "cancelling",
                                                        "denormal", "zero blocks", "spread"};
    return names[fill];
}

void check_fill_f32(struct check *c, enum check_fill fill, float *x, size_t n)
{
    bool is_zero = false;
    for (size_t i = 0; i < n; i++) {
        double u = check_random_between(c, -1, 1);
        is_zero = i % 32 == 0 ? (check_random(c) & 1) != 0 : is_zero;
        switch (fill) {
        case CHECK_UNIFORM:
            x[i] = (float)u;
            break;
        case CHECK_TINY:
            x[i] = (float)(u * 1e-30);
            break;
        case CHECK_HUGE:
            x[i] = (float)(u * 1e30);
            break;
        case CHECK_CANCELLING:
            x[i] = i % 2 == 0 ? (float)u : -x[i - 1] * (1 + (float)(u * 1e-6));
            break;
        case CHECK_DENORMAL:
            x[i] = (float)(u * 0x1p-127);
            break;
        case CHECK_ZERO_BLOCKS:
            x[i] = is_zero ? 0 : (float)u;
            break;
        case CHECK_SPREAD:
            x[i] = (float)ldexp(u, check_random_below(c, 41) - 20);
            break;
        case CHECK_FILL_COUNT:
            break;
        }
    }
}
