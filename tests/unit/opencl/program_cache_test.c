/* What is kept of programs: a file that is not as it was written does not come back, whatever byte of it, and nothing that
 * lies in its place hangs or harms; and of a back end, the second start compiles nothing. */
#include "opencl/program_cache.h"

#include "tests/support/fake_opencl.h"
#include "tests/support/folder.h"
#include "tests/unit/opencl/opencl_rig.h"

#include <check.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Suite *program_cache_suite(void);

enum { N = 1000, HEADER = 80 };

static struct program_cache c;
static struct program_file f;
static struct buf found;
static unsigned char payload[N], bytes[HEADER + N + 1];

static void find(const char *name, const char *driver)
{
    program_cache_find(&c, (const char *const[]){"rusticl", name, NULL}, (const char *const[]){driver, "text", NULL},
                       &f);
}

static void set_up(void)
{
    c = (struct program_cache){.folder = folder_path()};
    buf_init(&found, 0, MEM_GENERAL);
    for (int i = 0; i < N; i++) {
        payload[i] = (unsigned char)(i * 7);
    }
    find("a", "1.0");
}

static void tear_down(void)
{
    buf_fini(&found);
    folder_remove();
}

/* The file is `n` bytes of `bytes`. */
static void put(size_t n)
{
    FILE *to = fopen(f.path, "wb");
    ck_assert_ptr_nonnull(to);
    ck_assert_uint_eq(fwrite(bytes, 1, n, to), n);
    fclose(to);
}

/* It cannot be used, and the note says why. */
static void refused(const char *why)
{
    c.note[0] = '\0';
    ck_assert(!program_cache_read(&c, &f, &found));
    ck_assert_msg(strstr(c.note, why) != NULL, "'%s', not '%s'", c.note, why);
}

START_TEST(what_is_kept_comes_back)
{
    ck_assert(!program_cache_read(&c, &f, &found));
    ck_assert_str_eq(c.note, "");
    program_cache_write(&c, &f, payload, N);
    ck_assert_int_eq(c.state, BACKEND_PACK_WRITTEN);
    ck_assert(program_cache_read(&c, &f, &found));
    ck_assert_uint_eq(found.len, N);
    ck_assert(memcmp(found.data, payload, N) == 0);
    program_cache_write(&c, &f, "", 0);
    ck_assert(program_cache_read(&c, &f, &found) && found.len == 0);
    ck_assert_str_eq(c.note, "");
    ck_assert_int_eq(folder_n_files(), 1);
    find("a", "2.0"); /* a new driver: another payload, in the same place */
    refused("it was built of other sources, or by another driver");
    program_cache_write(&c, &f, payload, N);
    ck_assert_int_eq(folder_n_files(), 1);
    ck_assert(program_cache_read(&c, &f, &found));
    find("b", "2.0");
    ck_assert(!program_cache_read(&c, &f, &found));
    c = (struct program_cache){.folder = NULL};
    find("a", "2.0");
    ck_assert(!program_cache_read(&c, &f, &found));
    program_cache_write(&c, &f, payload, N);
    ck_assert_int_eq(c.state, BACKEND_PACK_OFF);
}
END_TEST

START_TEST(each_byte_counts)
{
    program_cache_write(&c, &f, payload, N);
    size_t n = folder_read(f.path, (char *)bytes, sizeof bytes);
    ck_assert_uint_eq(n, HEADER + N);
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 0x10;
        put(n);
        refused("is unusable");
        bytes[i] ^= 0x10;
    }
    for (size_t cut = 0; cut < n; cut += cut < HEADER ? 1 : 50) {
        put(cut);
        refused("it is truncated");
    }
    put(n + 1);
    refused("has trailing bytes");
    put(n);
    ck_assert(program_cache_read(&c, &f, &found));
}
END_TEST

START_TEST(what_else_may_lie_there)
{
    ck_assert_int_eq(mkfifo(f.path, 0600), 0);
    refused("a FIFO");
    program_cache_write(&c, &f, payload, N); /* in its place */
    ck_assert(program_cache_read(&c, &f, &found));
    ck_assert_int_eq(remove(f.path), 0);
    ck_assert_int_eq(symlink("/dev/zero", f.path), 0);
    refused("a device");
    ck_assert_int_eq(remove(f.path), 0);
    ck_assert_int_eq(symlink("nowhere", f.path), 0);
    refused("expected a readable file");
    program_cache_write(&c, &f, payload, N); /* the link is replaced, not followed */
    ck_assert(program_cache_read(&c, &f, &found));
    ck_assert(truncate(f.path, (off_t)65 << 20) == 0);
    refused("expected at most");
    ck_assert_int_eq(remove(f.path), 0);
    ck_assert_int_eq(mkdir(f.path, 0700), 0);
    refused("a directory");
    program_cache_write(&c, &f, payload, N);
    ck_assert_int_eq(c.state, BACKEND_PACK_FAILED);
}
END_TEST

START_TEST(writing_fails)
{
    bool fired = true;
    for (long n = 0; fired; n++) {
        io_fail_at(n, ENOSPC);
        c.note[0] = '\0';
        program_cache_write(&c, &f, payload, N);
        fired = io_fault_fired();
        ck_assert(!fired || strstr(c.note, "not kept for the next start") != NULL);
    }
    io_fail_at(-1, 0);
    ck_assert(program_cache_read(&c, &f, &found));
    c.folder = "/nowhere";
    find("a", "1.0");
    program_cache_write(&c, &f, payload, N);
    ck_assert_int_eq(c.state, BACKEND_PACK_FAILED);
}
END_TEST

/* --- through the back end ------------------------------------------------------------------------------------------- */

static struct opencl_rig r;

static void compute(float *out)
{
    ck_assert_int_eq(opencl_rig_begin(&r), ERR_OK);
    ck_assert_int_eq(opencl_rig_wait(&r), ERR_OK);
    memcpy(out, r.logits, r.plan->n_vocab * sizeof *out);
}

/* Opens it, and says how many programs came from source and from files. */
static enum backend_pack_state start(long *compiled, long *taken, const char **note)
{
    static struct backend_info info;
    fake_opencl_arm("");
    ck_assert_msg(opencl_rig_open(&r) == ERR_OK, "%s", r.info.text);
    backend_opencl.info(r.model, &info);
    *compiled = fake_opencl_calls("clCreateProgramWithSource");
    *taken = fake_opencl_calls("clCreateProgramWithBinary");
    *note = info.pack_note;
    return info.pack_state;
}

/* Changes a byte of a file of the folder. */
static void damage_one(void)
{
    char pattern[256];
    glob_t files;
    snprintf(pattern, sizeof pattern, "%s/*.infcgi-program", folder_path());
    ck_assert_int_eq(glob(pattern, 0, NULL, &files), 0);
    FILE *file = fopen(files.gl_pathv[0], "r+b");
    ck_assert(file != NULL && fseek(file, 200, SEEK_SET) == 0);
    int byte = fgetc(file);
    ck_assert(fseek(file, 200, SEEK_SET) == 0 && fputc(byte ^ 1, file) != EOF);
    fclose(file);
    globfree(&files);
}

START_TEST(the_second_start_compiles_nothing)
{
    float first[OPENCL_RIG_MAX_LOGITS], second[OPENCL_RIG_MAX_LOGITS];
    long compiled, taken, n;
    const char *note;
    opencl_rig_init(&r, "llama-biases");
    r.cfg.pack_cache = c.folder;
    ck_assert_int_eq(start(&n, &taken, &note), BACKEND_PACK_WRITTEN);
    ck_assert(n > 5 && taken == 0 && folder_n_files() == n);
    compute(first);
    opencl_rig_close(&r);

    ck_assert_int_eq(start(&compiled, &taken, &note), BACKEND_PACK_MAPPED);
    ck_assert(compiled == 0 && taken == n);
    ck_assert_str_eq(note, "");
    compute(second);
    ck_assert(memcmp(first, second, r.plan->n_vocab * sizeof *first) == 0);
    opencl_rig_close(&r);

    /* one file is damaged: the driver never sees it */
    damage_one();
    ck_assert_int_eq(start(&compiled, &taken, &note), BACKEND_PACK_WRITTEN);
    ck_assert(compiled == 1 && taken == n - 1);
    ck_assert_msg(strstr(note, "it is damaged") != NULL, "%s", note);
    opencl_rig_close(&r);

    /* a driver that takes none back: all is compiled */
    fake_opencl_arm("clCreateProgramWithBinary:1+:CL_INVALID_BINARY");
    ck_assert_int_eq(opencl_rig_open(&r), ERR_OK);
    ck_assert_int_eq(fake_opencl_calls("clCreateProgramWithSource"), n);
    compute(second);
    ck_assert(memcmp(first, second, r.plan->n_vocab * sizeof *first) == 0);
    opencl_rig_fini(&r);
}
END_TEST

START_TEST(a_driver_that_gives_no_binary)
{
    opencl_rig_init(&r, "llama-biases");
    r.cfg.pack_cache = c.folder;
    fake_opencl_arm("clGetProgramInfo:1+:CL_INVALID_PROGRAM_EXECUTABLE");
    ck_assert_int_eq(opencl_rig_open(&r), ERR_OK);
    ck_assert_int_eq(folder_n_files(), 0);
    opencl_rig_fini(&r);
}
END_TEST

Suite *program_cache_suite(void)
{
    Suite *s = suite_create("program_cache");
    TCase *t = tcase_create("program_cache");
    tcase_set_tags(t, "fork");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, what_is_kept_comes_back);
    tcase_add_test(t, each_byte_counts);
    tcase_add_test(t, what_else_may_lie_there);
    tcase_add_test(t, writing_fails);
    tcase_add_test(t, the_second_start_compiles_nothing);
    tcase_add_test(t, a_driver_that_gives_no_binary);
    suite_add_tcase(s, t);
    return s;
}
