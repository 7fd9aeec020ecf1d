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
    struct program *at;
    size_t n, cap;
};

enum err program_set_new(const struct device *d, struct program_set **out, struct err_info *info)
{
    *out = mem_zalloc(sizeof **out, MEM_MODEL);
    TRY_MEM_FOR(*out != NULL, info, "out of memory for OpenCL programs");
    (*out)->device = d;
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

static enum err build(const struct device *d, const char *file, const char *options, cl_program *out,
                      struct err_info *info)
{
    char lines[2][64], all[OPTIONS_BYTES];
    snprintf(lines[0], sizeof lines[0], "#line 1 \"common.clh\"\n");
    snprintf(lines[1], sizeof lines[1], "\n#line 1 \"%s\"\n", file);
    const char *texts[] = {lines[0], source_of("common.clh"), lines[1], source_of(file)};
    cl_int code;
    if (texts[3] == NULL) {
        return err_set(info, ERR_INTERNAL, file, "no such OpenCL source: %s", file);
    }
    *out = clCreateProgramWithSource(d->context, ARRAY_LEN(texts), texts, NULL, &code);
    TRY(ocl_check(code, "clCreateProgramWithSource", info));
    snprintf(all, sizeof all, "-cl-std=CL1.2 -DDOT_ARM=%d %s", (int)d->caps.dot, options);
    code = clBuildProgram(*out, 1, &d->id, all, NULL, NULL);
    if (code == CL_SUCCESS) {
        return ERR_OK;
    }
    enum err err = code == CL_BUILD_PROGRAM_FAILURE ? refused(d, *out, file, all, info)
                                                    : ocl_check(code, "clBuildProgram", info);
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
    TRY(build(s->device, file, options, &p->program, info));
    *out = p->program;
    s->n++;
    return ERR_OK;
}

enum err program_kernel(struct program_set *s, const char *file, const char *entry, const char *options,
                        cl_kernel *out, struct err_info *info)
{
    cl_program program;
    cl_int code;
    TRY(find(s, file, options, &program, info));
    *out = clCreateKernel(program, entry, &code);
    return ocl_check(code, entry, info);
}
