/* Over model.h and the writer of GGUF files. */
#include "tests/support/model_file.h"

#include <check.h>
#include <string.h>

struct model_file model_file_of(struct gguf_writer *w)
{
    struct model_file f = {0};
    struct err_info info = {0};
    buf_init(&f.bytes, 0, MEM_GENERAL);
    gguf_writer_finish(w, &f.bytes);
    gguf_writer_fini(w);
    ck_assert_int_eq(buf_ok(&f.bytes), ERR_OK);
    enum err err = gguf_open_memory(f.bytes.data, f.bytes.len, &f.g, &info);
    ck_assert_msg(err == ERR_OK, "the file itself: %s", info.text);
    return f;
}

void model_file_fini(struct model_file *f)
{
    gguf_close(&f->g);
    buf_fini(&f->bytes);
}

struct plan *model_file_plan(const struct model_file *f)
{
    struct plan *p = NULL;
    struct err_info info = {0};
    enum err err = model_build(f->g, 0, &p, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    return p;
}

const struct plan_step *model_file_step(const struct plan *p, enum plan_op op, int n)
{
    const struct plan_step *s = p->steps;
    while (s < p->steps + p->n_steps && (s->op != op || n-- > 0)) {
        s++;
    }
    ck_assert_msg(s < p->steps + p->n_steps, "no %s step", plan_op_name(op));
    return s;
}

void model_file_refuse(const struct model_file *f, size_t i, enum err expected, const char *word)
{
    struct plan *p = (struct plan *)1;
    struct err_info info = {0};
    enum err err = model_build(f->g, 0, &p, &info);
    ck_assert_msg(err == expected, "case %zu: %s (%s), expected %s", i, err_code(err), info.text, err_code(expected));
    ck_assert_ptr_null(p);
    ck_assert_int_eq(info.code, expected);
    ck_assert_msg(strstr(info.text, word) != NULL, "case %zu: '%s' does not name '%s'", i, info.text, word);
    ck_assert_msg(strstr(info.text, "expected") != NULL && strstr(info.text, "found") != NULL, "case %zu: %s", i,
                  info.text);
    size_t most = expected == ERR_UNSUPPORTED_ARCH ? 1000 : 300; /* which lists the families */
    ck_assert_msg(strchr(info.text, '\n') == NULL && strlen(info.text) < most, "case %zu: one line", i);
}
