/* Builds programs, each once per set: from a kept file, else from source. */
#include "opencl/program.h"

#include "engine/base/mem.h"

#include <stdio.h>
#include <string.h>

enum {
    OPTIONS_BYTES = 256,
    ALL_OPTIONS_BYTES = OPTIONS_BYTES + 64,
    LOG_BYTES = 600,
    MAX_FILES = 4,
    MAX_PLAIN = 32,
    WORD_BYTES = 32
};

/* Share of loading's progress if programs are compiled: a driver's first start takes as long as loading a model. */
static const float compile_share = 0.3f;

struct program {
    const char *file;
    char options[OPTIONS_BYTES];
    enum device_dot dot;
    bool is_wide;       /* in waves of 64 */
    cl_program program; /* NULL: not built yet */
};

struct program_set {
    const struct device *device;
    const struct backend_config *cfg;
    struct program_cache cache;
    struct program *at;
    size_t n, cap;
    char plain[MAX_PLAIN][WORD_BYTES]; /* words of options that make programs plain */
    int n_plain;
    float progress;
    bool has_told_work, has_told_dot, has_told_wide;
};

enum err program_set_new(const struct device *d, const struct backend_config *cfg, struct program_set **out,
                         struct err_info *info)
{
    *out = mem_zalloc(sizeof **out, MEM_MODEL);
    TRY_MEM_FOR(*out != NULL, info, "out of memory for OpenCL programs");
    (*out)->device = d;
    (*out)->cfg = cfg;
    (*out)->cache.folder = cfg->pack_cache;
    return ERR_OK;
}

void program_set_free(struct program_set **s)
{
    if (*s == NULL) {
        return;
    }
    for (size_t i = 0; i < (*s)->n; i++) {
        if ((*s)->at[i].program != NULL) {
            clReleaseProgram((*s)->at[i].program);
        }
    }
    mem_free((*s)->at);
    mem_free(*s);
    *s = NULL;
}

const struct program_cache *program_set_cache(const struct program_set *s) { return &s->cache; }

/* --- sources ------------------------------------------------------------------------------------------------------ */

static const char *source_of(const char *name)
{
    const struct program_source *s = program_sources;
    while (s->name != NULL && strcmp(s->name, name) != 0) {
        s++;
    }
    return s->text;
}

/* A program's texts, each after a line that names its file. */
struct texts {
    const char *all[2 * MAX_FILES + 2]; /* with entries for the driver's version and the final NULL */
    char lines[MAX_FILES][64];
    cl_uint n;
};

static void find_texts(const struct program *p, struct texts *t)
{
    const char *files[MAX_FILES] = {"shared.h", "common.clh",
                                    strstr(p->options, "-DKIND=") != NULL ? "weights.clh" : NULL, p->file};
    t->n = 0;
    for (size_t i = 0; i < MAX_FILES; i++) {
        if (files[i] != NULL) {
            snprintf(t->lines[i], sizeof t->lines[i], "\n#line 1 \"%s\"\n", files[i]);
            t->all[t->n++] = t->lines[i];
            t->all[t->n++] = source_of(files[i]);
        }
    }
    t->all[t->n] = NULL;
}

static void find_options(const struct program *p, char out[ALL_OPTIONS_BYTES])
{
    snprintf(out, ALL_OPTIONS_BYTES, "-cl-std=CL1.2 -DDOT_ARM=%d %s%s", (int)p->dot, p->options,
             p->is_wide ? " -Wf,-mwavefrontsize64" : "");
}

static void find_file(const struct program_set *s, const struct program *p, struct program_file *out)
{
    const struct device_caps *c = &s->device->caps;
    struct texts t;
    char options[ALL_OPTIONS_BYTES];
    find_texts(p, &t);
    find_options(p, options);
    t.all[t.n] = c->driver;
    t.all[t.n + 1] = NULL;
    program_cache_find(&s->cache, (const char *const[]){c->platform, c->name, p->file, options, NULL}, t.all, out);
}

/* --- building --------------------------------------------------------------------------------------------------------- */

/* Copies the first line with an error from the compiler's log, else its first line. */
static void first_line(const struct device *d, cl_program program, char out[LOG_BYTES])
{
    size_t n = 0;
    out[0] = '\0';
    clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &n);
    char *all = mem_zalloc(n + 1, MEM_SCRATCH);
    if (all != NULL && clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, n, all, NULL) == CL_SUCCESS) {
        const char *line = strstr(all, "error:"), *from = line != NULL ? line : all + strspn(all, " \n");
        while (from > all && from[-1] != '\n') {
            from--;
        }
        snprintf(out, LOG_BYTES, "%.*s", (int)strcspn(from, "\n"), from);
    }
    mem_free(all);
}

void program_set_tell(const struct program_set *s, const char *text)
{
    if (s->cfg->tell != NULL) {
        s->cfg->tell(s->cfg->tell_arg, text);
    }
}

/* Keeps the built program if the driver returns its binary. */
static void keep(struct program_set *s, const struct program *p)
{
    struct program_file file;
    size_t n = 0;
    find_file(s, p, &file);
    if (file.path[0] == '\0' ||
        clGetProgramInfo(p->program, CL_PROGRAM_BINARY_SIZES, sizeof n, &n, NULL) != CL_SUCCESS || n == 0) {
        return;
    }
    unsigned char *binary = mem_alloc(n, MEM_SCRATCH);
    if (binary != NULL &&
        clGetProgramInfo(p->program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) == CL_SUCCESS) {
        program_cache_write(&s->cache, &file, binary, n);
    }
    mem_free(binary);
}

/* Compiles from source. ERR_UNSUPPORTED_DEVICE: the compiler rejects it. */
static enum err compile(struct program_set *s, struct program *p, struct err_info *info)
{
    const struct device *d = s->device;
    struct texts t;
    char options[ALL_OPTIONS_BYTES], line[LOG_BYTES];
    cl_int code;
    find_texts(p, &t);
    find_options(p, options);
    cl_program program = clCreateProgramWithSource(d->context, t.n, t.all, NULL, &code);
    TRY(ocl_check(code, "clCreateProgramWithSource", info));
    code = clBuildProgram(program, 1, &d->id, options, NULL, NULL);
    if (code == CL_SUCCESS) {
        p->program = program;
        keep(s, p);
        return ERR_OK;
    }
    enum err err = ERR_UNSUPPORTED_DEVICE;
    if (code == CL_BUILD_PROGRAM_FAILURE || code == CL_INVALID_BUILD_OPTIONS) {
        first_line(d, program, line);
        err_set(info, err, p->file, "%s: the OpenCL compiler of %s refuses it with %s: %s", p->file, d->caps.name,
                options, line);
    } else {
        err = ocl_check(code, "clBuildProgram", info);
    }
    clReleaseProgram(program);
    return err;
}

/* Selects the next plainer form of a program: waves of 32, then plain dot products. Returns false if it is plain
 * already. */
static bool go_plainer(struct program *p)
{
    const bool is_plain = !p->is_wide && p->dot == DEVICE_DOT_PLAIN;
    p->dot = p->is_wide ? p->dot : DEVICE_DOT_PLAIN;
    p->is_wide = false;
    return !is_plain;
}

/* Likewise, and records it so that later starts skip the current form. */
static bool make_plainer(struct program_set *s, struct program *p)
{
    struct program_file file;
    find_file(s, p, &file);
    if (!go_plainer(p)) {
        return false;
    }
    program_cache_write(&s->cache, &file, "", 0);
    if (p->program != NULL) {
        clReleaseProgram(p->program);
        p->program = NULL;
    }
    return true;
}

bool program_set_plain(struct program_set *s, const char *word)
{
    bool had_others = false;
    for (size_t i = 0; i < s->n; i++) {
        while (strstr(s->at[i].options, word) != NULL && make_plainer(s, &s->at[i])) {
            had_others = true;
        }
    }
    if (had_others && s->n_plain < MAX_PLAIN) {
        snprintf(s->plain[s->n_plain++], WORD_BYTES, "%s", word);
    }
    return had_others;
}

/* Tells the operator, once for waves and once for dot products, that the compiler rejects a program's form. */
static void tell_refusal(struct program_set *s, const struct program *p, const char *why)
{
    char text[ERR_TEXT_BYTES + 64];
    bool *has_told = p->is_wide ? &s->has_told_wide : &s->has_told_dot;
    if (p->is_wide) {
        snprintf(text, sizeof text, "waves of 64 are replaced by waves of 32: %s", why);
    } else {
        snprintf(text, sizeof text, "dot products of kind %s are replaced by plain ones: %s",
                 device_dot_name((int)p->dot), why);
    }
    if (!*has_told) {
        program_set_tell(s, text);
    }
    *has_told = true;
}

/* Compiles from source, in the first form that the compiler accepts. */
static enum err compile_any(struct program_set *s, struct program *p, struct err_info *info)
{
    struct err_info why = {0};
    enum err err = compile(s, p, &why);
    while (err == ERR_UNSUPPORTED_DEVICE && (p->is_wide || p->dot != DEVICE_DOT_PLAIN)) {
        tell_refusal(s, p, why.text);
        (void)make_plainer(s, p);
        err = compile(s, p, &why);
    }
    if (err != ERR_OK && info != NULL) {
        *info = why;
    }
    return err;
}

/* Builds from the binary; false: the driver rejects it. */
static bool take(struct program_set *s, struct program *p, const struct buf *binary)
{
    const struct device *d = s->device;
    const unsigned char *data = (const unsigned char *)binary->data;
    char options[ALL_OPTIONS_BYTES];
    cl_int code, status;
    find_options(p, options);
    cl_program program = clCreateProgramWithBinary(d->context, 1, &d->id, &binary->len, &data, &status, &code);
    if (code != CL_SUCCESS) {
        return false;
    }
    if (clBuildProgram(program, 1, &d->id, options, NULL, NULL) != CL_SUCCESS) {
        clReleaseProgram(program);
        return false;
    }
    p->program = program;
    return true;
}

/* Builds from the kept file; else p->program stays NULL. */
static void take_kept(struct program_set *s, struct program *p)
{
    struct program_file file;
    struct buf binary;
    bool is_there = s->cache.folder != NULL;
    buf_init(&binary, 0, MEM_SCRATCH);
    while (is_there) {
        find_file(s, p, &file);
        is_there = program_cache_read(&s->cache, &file, &binary);
        bool is_refused = is_there && binary.len == 0;
        if (!is_refused || !go_plainer(p)) {
            break;
        }
    }
    if (is_there && binary.len != 0) {
        (void)take(s, p, &binary);
    }
    buf_fini(&binary);
}

/* --- findings ----------------------------------------------------------------------------------------------------- */

void program_set_find(const struct program_set *s, const char *const *names, struct program_file *out)
{
    enum { MAX_NAMES = 8, MAX_SOURCES = 48 };
    const struct device_caps *c = &s->device->caps;
    const char *which[MAX_NAMES] = {c->platform, c->name}, *of[MAX_SOURCES] = {c->driver, device_dot_name((int)c->dot)};
    for (size_t n = 2; *names != NULL && n < MAX_NAMES - 1; n++) {
        which[n] = *names++;
    }
    for (size_t n = 0; program_sources[n].name != NULL && n + 2 < MAX_SOURCES - 1; n++) {
        of[n + 2] = program_sources[n].text;
    }
    program_cache_find(&s->cache, which, of, out);
}

bool program_set_has(struct program_set *s, const struct program_file *f)
{
    struct buf none;
    buf_init(&none, 0, MEM_SCRATCH);
    bool has = program_cache_read(&s->cache, f, &none);
    buf_fini(&none);
    return has;
}

void program_set_mark(struct program_set *s, const struct program_file *f) { program_cache_write(&s->cache, f, "", 0); }

/* --- a set ------------------------------------------------------------------------------------------------------------ */

static struct program *find(const struct program_set *s, const char *file, const char *options)
{
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->at[i].file, file) == 0 && strcmp(s->at[i].options, options) == 0) {
            return &s->at[i];
        }
    }
    return NULL;
}

enum err program_want(struct program_set *s, const char *file, const char *options, struct err_info *info)
{
    if (find(s, file, options) != NULL) {
        return ERR_OK;
    }
    enum err err = mem_grow(&s->at, s->n, &s->cap, sizeof *s->at, MEM_MODEL);
    TRY_MEM_FOR(err == ERR_OK, info, "out of memory for OpenCL programs");
    struct program *p = &s->at[s->n++];
    *p = (struct program){.file = file, .dot = s->device->caps.dot};
    /* Products of many rows take fewer clocks in waves of 64, as tests/isa/isa.py counts them
     * (docs/internals/opencl.md), because their waves have the same activations. */
    p->is_wide = p->dot == DEVICE_DOT_AMD && strcmp(file, "matmul.cl") == 0 && strstr(options, "-DSPLIT=0") != NULL;
    snprintf(p->options, sizeof p->options, "%s", options);
    for (int i = 0; i < s->n_plain; i++) {
        while (strstr(options, s->plain[i]) != NULL && go_plainer(p)) {
        }
    }
    return ERR_OK;
}

float program_set_progress(const struct program_set *s) { return s->progress; }

/* Reports progress: n_done of n programs are compiled. ERR_CANCELLED. */
static enum err go_on(struct program_set *s, size_t n_done, size_t n, struct err_info *info)
{
    s->progress = MAX_OF(s->progress, compile_share * (float)n_done / (float)n);
    return s->cfg->progress == NULL || s->cfg->progress(s->cfg->progress_arg, s->progress)
               ? ERR_OK
               : err_set(info, ERR_CANCELLED, NULL, "loading was cancelled");
}

enum err program_build_all(struct program_set *s, struct err_info *info)
{
    size_t n = 0, n_done = 0;
    char text[128];
    for (size_t i = 0; i < s->n; i++) {
        if (s->at[i].program == NULL) {
            take_kept(s, &s->at[i]);
            n += s->at[i].program == NULL;
        }
    }
    if (n > 0 && !s->has_told_work) {
        snprintf(text, sizeof text, "compiling %zu OpenCL programs for %.64s", n, s->device->caps.name);
        program_set_tell(s, text);
        s->has_told_work = true;
    }
    for (size_t i = 0; i < s->n; i++) {
        if (s->at[i].program == NULL) {
            TRY(go_on(s, n_done++, n, info));
            TRY(compile_any(s, &s->at[i], info));
        }
    }
    return n > 0 ? go_on(s, n, n, info) : ERR_OK;
}

enum err program_kernel(struct program_set *s, const char *file, const char *entry, const char *options, cl_kernel *out,
                        struct err_info *info)
{
    cl_int code;
    TRY(program_want(s, file, options, info));
    struct program *p = find(s, file, options);
    if (p->program == NULL) {
        TRY(compile_any(s, p, info));
    }
    *out = clCreateKernel(p->program, entry, &code);
    return ocl_check(code, entry, info);
}
