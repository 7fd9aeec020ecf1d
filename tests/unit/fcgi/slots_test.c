/* POST /slots/N: what is saved, restored and erased, whose it is, and what is refused. */
#include "fcgi/api/slots.h"
#include "fcgi/ground/log.h"
#include "fcgi/tenant/tenant.h"
#include "tests/support/folder.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Suite *slots_suite(void);

#define COMPLETION "/completion"
/* Says x as often as it may. */
#define SAYS_X "\"prompt\":\"ab\",\"temperature\":0,\"logit_bias\":[[120,100]],\"ignore_eos\":true"

static struct server *server;

static void setup(void) { server = rig_serve(false, false); }

static struct conf *change_conf(void)
{
    static struct conf changed;
    changed = *server->conf;
    server->conf = &changed;
    return &changed;
}

/* A request of a tenant, who has an id of its own. */
static int ask_as(const char *tenant, const char *uri, const char *body)
{
    char named[64];
    snprintf(named, sizeof named, "INFCGI_TENANT=%s", tenant);
    return rig_ask("POST", uri, (const char *const[]){named, NULL}, body, strlen(body));
}

/* A prompt of more than a page, in a slot. */
static int cached_in_slot(int slot)
{
    char body[256];
    snprintf(body, sizeof body, "{\"prompt\":\"%060d\",\"n_predict\":1,\"id_slot\":%d}", 0, slot);
    ck_assert_msg(rig_post(COMPLETION, body) == 200, "%s", rig_got.body);
    return (int)rig_number_at("timings.cache_n");
}

static void save_slots(void)
{
    static char path[256];
    snprintf(path, sizeof path, "%s", folder_file("slots"));
    ck_assert_int_eq(mkdir(path, 0700), 0);
    change_conf()->slot_save_path = path;
}

START_TEST(slots_are_saved_and_restored)
{
    save_slots();
    rig_refuse("/slots/1?action=save", "{\"filename\":\"a\"}", 400, "invalid_value", "slot");
    ck_assert_int_eq(rig_post(COMPLETION, "{" SAYS_X ",\"n_predict\":40,\"id_slot\":1}"), 200);
    ck_assert_msg(rig_post("/slots/1?action=save", "{\"filename\":\"a\"}") == 200, "%s", rig_got.body);
    ck_assert_int_eq(rig_number_at("n_saved"), 2 + 40 - 1);
    ck_assert_int_eq(rig_number_at("id_slot"), 1);
    ck_assert_str_eq(rig_text_at("filename"), "a");
    json_int_t n = rig_number_at("n_written");
    ck_assert_int_gt(n, 4 * 41);
    ck_assert_msg(rig_post("/slots/0?action=restore", "{\"filename\":\"a\"}") == 200, "%s", rig_got.body);
    ck_assert_int_eq(rig_number_at("n_restored"), 41);
    ck_assert_int_eq(rig_number_at("n_read"), n);
    ck_assert_int_eq(rig_post("/slots/0?action=save", "{\"filename\":\"b.bin\"}"), 200);
    ck_assert_int_eq(rig_number_at("n_saved"), 41);
    rig_refuse("/slots/0?action=restore", "{\"filename\":\"c\"}", 400, "invalid_value", "filename");
    ck_assert_int_eq(truncate(folder_file("slots/a"), n - 4), 0);
    rig_refuse("/slots/0?action=restore", "{\"filename\":\"a\"}", 400, "invalid_value", "filename");
}
END_TEST

START_TEST(what_is_erased_is_not_found)
{
    save_slots();
    ck_assert_int_eq(cached_in_slot(1), 0);
    ck_assert_int_ge(cached_in_slot(1), 32);
    ck_assert_int_eq(rig_post("/slots/1?action=erase", ""), 200);
    ck_assert_int_eq(rig_number_at("n_erased"), 60);
    rig_refuse("/slots/1?action=save", "{\"filename\":\"a\"}", 400, "invalid_value", "slot");
    ck_assert_int_eq(cached_in_slot(1), 0);
    ck_assert_int_ge(cached_in_slot(1), 32);
}
END_TEST

/* Another key empties neither the slot nor the file, and a file of the same name is its own. */
START_TEST(a_slot_is_its_keys_own)
{
    static const char save[] = "/slots/2?action=save", a[] = "{\"filename\":\"a\"}";
    save_slots();
    ck_assert_int_eq(ask_as("anna", COMPLETION, "{" SAYS_X ",\"n_predict\":40,\"id_slot\":2}"), 200);
    ck_assert_int_eq(ask_as("anna", save, a), 200);
    json_int_t n = rig_number_at("n_saved");
    ck_assert_int_eq(n, 41);
    ck_assert_int_eq(ask_as("bert", save, a), 400);
    ck_assert_str_eq(rig_text_at("error.param"), "slot");
    ck_assert_int_eq(ask_as("bert", "/slots/2?action=erase", ""), 200);
    ck_assert_int_eq(rig_number_at("n_erased"), 0);
    ck_assert_int_eq(ask_as("anna", save, a), 200);
    ck_assert_int_eq(rig_number_at("n_saved"), n);
    ck_assert_int_eq(ask_as("bert", "/slots/1?action=restore", a), 400);
    ck_assert_str_eq(rig_text_at("error.param"), "filename");
    ck_assert_int_eq(ask_as("bert", COMPLETION, "{" SAYS_X ",\"n_predict\":3,\"id_slot\":2}"), 200);
    ck_assert_int_eq(ask_as("bert", save, a), 200);
    ck_assert_int_eq(rig_number_at("n_saved"), 4);
    ck_assert_int_eq(ask_as("anna", "/slots/1?action=restore", a), 200);
    ck_assert_int_eq(rig_number_at("n_restored"), n);
    ck_assert_int_eq(ask_as("bert", "/slots/3?action=restore", a), 200);
    ck_assert_int_eq(rig_number_at("n_restored"), 4);
}
END_TEST

/* Each key has a number of files of its own. */
START_TEST(files_of_a_key_are_counted)
{
    save_slots();
    for (int i = 0; i < SLOTS_MAX_FILES; i++) {
        char name[32];
        snprintf(name, sizeof name, "slots/%d", i);
        (void)folder_write_text(name, "");
    }
    ck_assert_int_eq(cached_in_slot(1), 0);
    rig_refuse("/slots/1?action=save", "{\"filename\":\"a\"}", 400, "invalid_value", "filename");
    ck_assert_int_eq(rig_post("/slots/1?action=save", "{\"filename\":\"7\"}"), 200);
    ck_assert_int_eq(ask_as("anna", COMPLETION, "{" SAYS_X ",\"n_predict\":3,\"id_slot\":2}"), 200);
    ck_assert_int_eq(ask_as("anna", "/slots/2?action=save", "{\"filename\":\"a\"}"), 200);
}
END_TEST

/* An erase holds although another key used the slot meanwhile, and the next erase is no repetition of it. */
START_TEST(an_erase_outlives_other_users)
{
    static const char of_anna[] = "{" SAYS_X ",\"n_predict\":1,\"id_slot\":1}";
    save_slots();
    ck_assert_int_eq(cached_in_slot(1), 0);
    ck_assert_int_eq(rig_post("/slots/1?action=erase", ""), 200);
    ck_assert_int_eq(ask_as("anna", COMPLETION, of_anna), 200);
    ck_assert_int_eq(cached_in_slot(1), 0);
    ck_assert_int_ge(cached_in_slot(1), 32);
    ck_assert_int_eq(ask_as("anna", COMPLETION, of_anna), 200);
    ck_assert_int_ge(cached_in_slot(1), 32);
    ck_assert_int_eq(rig_post("/slots/1?action=erase", ""), 200);
    ck_assert_int_eq(cached_in_slot(1), 0);
}
END_TEST

START_TEST(a_salt_may_be_as_long_as_a_salt_is)
{
    char body[640];
    snprintf(body, sizeof body, "{\"prompt\":\"%060d\",\"n_predict\":1,\"id_slot\":1,\"cache_salt\":\"%0*d\"}", 0,
             APIKEY_CLIENT_SALT_BYTES, 7);
    save_slots();
    static const int expected[] = {0, 32}; /* at first, and again */
    for (int i = 0; i < 4; i++) {
        ck_assert_msg(rig_post(COMPLETION, body) == 200, "%s", rig_got.body);
        ck_assert_int_eq(rig_number_at("timings.cache_n"), expected[i % 2]);
        if (i == 1) {
            ck_assert_int_eq(rig_post("/slots/1?action=save", "{\"filename\":\"a\"}"), 200);
            ck_assert_int_eq(rig_number_at("n_saved"), 60);
            ck_assert_int_eq(rig_post("/slots/1?action=erase", ""), 200);
            ck_assert_int_eq(rig_number_at("n_erased"), 60);
        }
    }
    ck_assert_int_eq(rig_post("/slots/1?action=restore", "{\"filename\":\"a\"}"), 200);
    ck_assert_int_eq(rig_number_at("n_restored"), 60);
}
END_TEST

START_TEST(a_tenant_restores_what_it_may_use)
{
    static const char text[] = "[anna]\nmodels = other\n[bert]\nmodels = %s\n", restore[] = "/slots/1?action=restore";
    struct err_info info = {0};
    char tenants[256];
    snprintf(tenants, sizeof tenants, text, server->model_id);
    save_slots();
    ck_assert_int_eq(ask_as("anna", COMPLETION, "{" SAYS_X ",\"n_predict\":3,\"id_slot\":2}"), 200);
    ck_assert_int_eq(ask_as("anna", "/slots/2?action=save", "{\"filename\":\"a\"}"), 200);
    ck_assert_int_eq(ask_as("bert", COMPLETION, "{" SAYS_X ",\"n_predict\":3,\"id_slot\":2}"), 200);
    ck_assert_int_eq(ask_as("bert", "/slots/2?action=save", "{\"filename\":\"a\"}"), 200);
    ck_assert_msg(tenant_load(folder_write_text("tenants", tenants), &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(ask_as("anna", restore, "{\"filename\":\"a\"}"), 404);
    ck_assert_str_eq(rig_text_at("error.code"), "model_not_found");
    ck_assert_int_eq(ask_as("bert", restore, "{\"filename\":\"a\"}"), 200);
}
END_TEST

/* Reads until the text was there. */
static void read_until(int fd, const char *text)
{
    static char all[65536];
    size_t n = 0;
    do {
        ssize_t k = read(fd, all + n, sizeof all - 1 - n);
        ck_assert_msg(k > 0, "ended after %s", all);
        n += (size_t)k;
        for (size_t i = 0; i < n; i++) { /* the protocol's heads hold NULs */
            all[i] = all[i] == '\0' ? ' ' : all[i];
        }
        all[n] = '\0';
    } while (strstr(all, text) == NULL);
}

/* A pipe that takes no more: a request halts where it writes its first line of the log. */
static int block_log(void)
{
    static char some[4096];
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_NONBLOCK), 0);
    while (write(ends[1], some, sizeof some) > 0) {
    }
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    close(ends[1]);
    return ends[0];
}

/* The client that has read the end of a stream finds the slot as it is then. The stream's request halts after its answer. */
START_TEST(a_slot_is_there_with_the_end)
{
    static const char body[] = "{" SAYS_X ",\"max_tokens\":4,\"id_slot\":1,\"stream\":true}",
                      a[] = "{\"filename\":\"a\"}";
    static char drain[1 << 20];
    struct rig_reply rest;
    save_slots();
    int log = block_log(), fd = rig_send("POST", "/v1/completions", NULL, body, sizeof body - 1);
    read_until(fd, "[DONE]");
    do { /* until it is measured, next to which it is logged */
        ck_assert_int_eq(rig_get("/metrics"), 200);
    } while (strstr(rig_got.body, "infcgi_request_duration_seconds_count 1\n") == NULL);
    log_set_level(0); /* the next request goes on */
    int status = rig_post("/slots/1?action=save", a);
    ck_assert_int_gt(read(log, drain, sizeof drain), 0);
    rig_receive(fd, &rest);
    rig_reply_fini(&rest);
    close(log);
    ck_assert_msg(status == 200, "%s", rig_got.body);
    ck_assert_int_eq(rig_number_at("n_saved"), 5);
}
END_TEST

START_TEST(slots_are_refused)
{
    static const struct {
        const char *uri, *body, *code, *param;
    } rows[] = {
        {"/slots/99?action=save", "{\"filename\":\"a\"}", "invalid_value", "slot"},
        {"/slots/x?action=save", "{\"filename\":\"a\"}", "invalid_value", "slot"},
        {"/slots/-1?action=save", "{\"filename\":\"a\"}", "invalid_value", "slot"},
        {"/slots/0?action=nothing", "{}", "invalid_value", "action"},
        {"/slots/0", "{}", "invalid_value", "action"},
        {"/slots/0?action=save", "{}", "missing_required_parameter", "filename"},
        {"/slots/0?action=save", "{\"filename\":5}", "invalid_type", "filename"},
        {"/slots/0?action=save", "{\"filename\":\"../a\"}", "invalid_value", "filename"},
        {"/slots/0?action=save", "{\"filename\":\".a\"}", "invalid_value", "filename"},
        {"/slots/0?action=restore", "{\"filename\":\"/etc/passwd\"}", "invalid_value", "filename"},
        {"/slots/0?action=restore", "{\"filename\":\"a.tmp\"}", "invalid_value", "filename"},
        {"/slots/0?action=restore", "{\"filename\":\"a\\u0000b\"}", "invalid_value", "filename"},
        {"/slots/0?action=restore", "{\"filename\":\"\"}", "invalid_value", "filename"},
    };
    save_slots();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        rig_refuse(rows[i].uri, rows[i].body, 400, rows[i].code, rows[i].param);
    }
}
END_TEST

static void is_not_supported(const char *uri, const char *body)
{
    ck_assert_int_eq(rig_post(uri, body), 501);
    ck_assert_str_eq(rig_text_at("error.code"), "not_supported");
    ck_assert_str_eq(rig_text_at("error.type"), "not_supported_error");
}

/* As llama-server without --slot-save-path, which looks at nothing else either; the text says what to do. */
START_TEST(slots_are_not_saved)
{
    static const char *const uris[] = {"/slots/0?action=save",    "/slots/0?action=restore", "/slots/0?action=erase",
                                       "/slots/9999?action=save", "/slots/x?action=nothing", "/slots/0"};
    for (size_t i = 0; i < ARRAY_LEN(uris); i++) {
        is_not_supported(uris[i], "{\"filename\":\"../a\"}");
        ck_assert(strstr(rig_text_at("error.message"), "cache_prompt") != NULL);
        is_not_supported(uris[i], "");
    }
}
END_TEST

Suite *slots_suite(void)
{
    Suite *s = suite_create("slots");
    TCase *t = tcase_create("slots");
    tcase_set_tags(t, "fork");
    tcase_add_checked_fixture(t, setup, rig_unserve);
    tcase_add_test(t, slots_are_not_saved);
    tcase_add_test(t, slots_are_saved_and_restored);
    tcase_add_test(t, what_is_erased_is_not_found);
    tcase_add_test(t, an_erase_outlives_other_users);
    tcase_add_test(t, a_salt_may_be_as_long_as_a_salt_is);
    tcase_add_test(t, a_slot_is_its_keys_own);
    tcase_add_test(t, files_of_a_key_are_counted);
    tcase_add_test(t, a_tenant_restores_what_it_may_use);
    tcase_add_test(t, a_slot_is_there_with_the_end);
    tcase_add_test(t, slots_are_refused);
    suite_add_tcase(s, t);
    return s;
}
