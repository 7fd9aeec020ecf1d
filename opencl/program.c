/* Building programs, each once for a set. */
#include "opencl/program.h"

#include "engine/base/mem.h"

#include <stdio.h>
#include <string.h>

enum { OPTIONS_BYTES = 512 };

struct program {
    const char *file;
    char options[OPTIONS_BYTES];
    cl_program program;
};

struct program_set {
    const struct device *device;
    bool fine;
    struct program *at;
    size_t n, cap;
};

enum err program_set_new(const struct device *d, bool fine, struct program_set **out, struct err_info *info)
{
    *out = mem_zalloc(sizeof **out, MEM_MODEL);
    TRY_MEM_FOR(*out != NULL, info, "out of memory for OpenCL programs");
    (*out)->device = d;
    (*out)->fine = fine;
    return ERR_OK;
}

void program_set_free(struct program_set **s)
{
    if (*s == NULL) {
        return;
    }
    for (size_t i = 0; i < (*s)->n; i++) {
        clReleaseProgram((*s)->at[i].program);
    }
    mem_free((*s)->at);
    mem_free(*s);
    *s = NULL;
}

static const char *source_of(const char *name)
{
    const struct program_source *s = program_sources;
    while (s->name != NULL && strcmp(s->name, name) != 0) {
        s++;
    }
    return s->text;
}

/* The compiler's first line, or several. */
static enum err refused(const struct device *d, cl_program program, const char *file, const char *options,
                        struct err_info *info)
{
    char log[900] = "";
    size_t n = 0;
    clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &n);
    char *all = mem_zalloc(n + 1, MEM_SCRATCH);
    if (all != NULL && clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, n, all, NULL) == CL_SUCCESS) {
        snprintf(log, sizeof log, "%s", all);
    }
    mem_free(all);
    return err_set(info, ERR_INTERNAL, file, "%s: the OpenCL compiler of %s refuses %s: %s", file, d->caps.name,
                   options, log);
}

static enum err build(const struct program_set *s, const char *file, const char *options, cl_program *out,
                      struct err_info *info)
{
    const struct device *d = s->device;
    const char *files[] = {"shared.h", "common.clh", strstr(options, "-DKIND=") != NULL ? "weights.clh" : NULL, file};
    const char *texts[2 * ARRAY_LEN(files)];
    char lines[ARRAY_LEN(files)][64], all[OPTIONS_BYTES];
    cl_uint n = 0;
    cl_int code;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        if (files[i] != NULL) {
            snprintf(lines[i], sizeof lines[i], "\n#line 1 \"%s\"\n", files[i]);
            texts[n++] = lines[i];
            texts[n++] = source_of(files[i]);
        }
    }
    *out = clCreateProgramWithSource(d->context, n, texts, NULL, &code);
    TRY(ocl_check(code, "clCreateProgramWithSource", info));
    snprintf(all, sizeof all, "-cl-std=CL1.2 -DDOT_ARM=%d -DACT_FINE=%d %s", (int)d->caps.dot, s->fine, options);
    code = clBuildProgram(*out, 1, &d->id, all, NULL, NULL);
    if (code == CL_SUCCESS) {
        return ERR_OK;
    }
    enum err err =
        code == CL_BUILD_PROGRAM_FAILURE ? refused(d, *out, file, all, info) : ocl_check(code, "clBuildProgram", info);
    clReleaseProgram(*out);
    return err;
}

static enum err find(struct program_set *s, const char *file, const char *options, cl_program *out,
                     struct err_info *info)
{
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->at[i].file, file) == 0 && strcmp(s->at[i].options, options) == 0) {
            *out = s->at[i].program;
            return ERR_OK;
        }
    }
    if (s->n == s->cap) {
        size_t cap = s->cap != 0 ? 2 * s->cap : 32;
        struct program *more = mem_realloc(s->at, cap * sizeof *more, MEM_MODEL);
        TRY_MEM_FOR(more != NULL, info, "out of memory for OpenCL programs");
        s->at = more;
        s->cap = cap;
    }
    struct program *p = &s->at[s->n];
    p->file = file;
    snprintf(p->options, sizeof p->options, "%s", options);
    TRY(build(s, file, options, &p->program, info));
    *out = p->program;
    s->n++;
    return ERR_OK;
}

enum err program_kernel(struct program_set *s, const char *file, const char *entry, const char *options, cl_kernel *out,
                        struct err_info *info)
{
    cl_program program;
    cl_int code;
    TRY(find(s, file, options, &program, info));
    *out = clCreateKernel(program, entry, &code);
    return ocl_check(code, entry, info);
}
