/* POST /slots/N, as in llama-server [llama.cpp tools/server/README.md]. */
#include "engine/base/clock.h"
#include "engine/base/io.h"
#include "engine/base/json_write.h"
#include "fcgi/api/generation.h"
#include "fcgi/api/llama/llama.h"
#include "fcgi/api/slots.h"
#include "fcgi/api/turn.h"
#include "fcgi/ground/number.h"

#include <stdio.h>
#include <string.h>

/* Checks that this is a valid name of a slot file: 1 to 128 letters, digits, '-', '_' and '.', not beginning with
 * '.'. */
static bool is_file_name(const char *name, size_t n)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    enum { MAX_NAME = 128 };
    static const char tmp[] = ".tmp"; /* suffix of a file while it is written */
    bool is_tmp = n >= sizeof tmp - 1 && memcmp(name + n - (sizeof tmp - 1), tmp, sizeof tmp - 1) == 0;
    return n >= 1 && n <= MAX_NAME && name[0] != '.' && strspn(name, allowed) == n && !is_tmp;
}

/* --- files ---------------------------------------------------------------------------------------------------------- */

/* A file's header. n_ids ids of 4 bytes and a SHA-256 of all preceding bytes follow, in this machine's byte order. */
struct head {
    char magic[16];
    uint64_t fingerprint; /* of the model */
    uint64_t n_ids;
    uint32_t has_owner;
    uint8_t owner[APIKEY_ID_BYTES];
    char salt[APIKEY_CLIENT_SALT_BYTES + 1];
    uint8_t reserved[3]; /* 0; leaves no padding */
};
_Static_assert(sizeof(struct head) == 328, "what is written has no padding");
static const char magic[16] = "infcgi slot 2";

enum { PREFIX_BYTES = 2 * APIKEY_ID_BYTES + 2 };

/* State of a call. */
struct action {
    struct call *call;
    int64_t slot;
    const char *name;          /* the file's name as the client sent it, in the arena */
    char prefix[PREFIX_BYTES]; /* prefix of the caller's file names: its key's id and '-'; "" without a key */
    char path[IO_MAX_PATH_BYTES];
    size_t n_ids, n_bytes;
    uint64_t begin_ns;
};

static enum err read_file_name(struct action *a, struct err_info *info)
{
    static const char expected[] = "1 to 128 letters, digits, '-', '_' and '.', which is not the first";
    struct call *c = a->call;
    TRY(call_read_json(c, info));
    const json_t *v = json_read_get(c->json, "filename");
    if (!json_is_string(v) || !is_file_name(json_string_value(v), json_string_length(v))) {
        return turn_refuse(v, JSON_STRING, "filename", expected, info);
    }
    a->name = arena_dup(&c->arena, json_string_value(v), json_string_length(v));
    TRY(arena_ok(&c->arena));
    for (size_t i = 0; i < APIKEY_ID_BYTES && c->caller.is_set; i++) {
        snprintf(a->prefix + 2 * i, 4, "%02x-", c->caller.bytes[i]);
    }
    int n = snprintf(a->path, sizeof a->path, "%s/%s%s", c->server->conf->slot_save_path, a->prefix, a->name);
    return n > 0 && (size_t)n + sizeof ".tmp" <= sizeof a->path
               ? ERR_OK
               : err_set(info, ERR_INVALID_VALUE, "filename", "filename: expected a shorter path of the file");
}

/* Counts a caller's files during a walk over the folder. */
struct count {
    const char *prefix;
    size_t n;
};

static bool count_file(void *arg, const struct io_entry *e)
{
    struct count *count = arg;
    count->n += strncmp(e->name, count->prefix, strlen(count->prefix)) == 0;
    return count->n < SLOTS_MAX_FILES;
}

/* Checks that the key's limit leaves room for a new file. */
static enum err check_room(const struct action *a, struct err_info *info)
{
    struct count count = {.prefix = a->prefix};
    if (io_exists(a->path)) {
        return ERR_OK;
    }
    TRY(io_walk_folder(a->call->server->conf->slot_save_path, count_file, &count, info));
    return count.n < SLOTS_MAX_FILES
               ? ERR_OK
               : err_set(info, ERR_INVALID_VALUE, "filename",
                         "filename: expected one of the %d files that exist, as there may be no more, found '%s'",
                         (int)SLOTS_MAX_FILES, a->name);
}

static enum err write_file(struct action *a, const struct head *head, const struct buf *ids, struct err_info *info)
{
    uint8_t digest[APIKEY_ID_BYTES];
    struct buf all;
    buf_init(&all, 0, MEM_REQUEST);
    buf_append(&all, (const char *)head, sizeof *head);
    buf_add(&all, ids);
    enum err err = buf_ok(&all);
    err = err != ERR_OK ? err : apikey_digest(all.data, all.len, digest);
    const struct io_part parts[] = {{all.data, all.len}, {digest, sizeof digest}};
    err = err != ERR_OK ? err : io_replace_file(a->path, parts, ARRAY_LEN(parts), NULL, NULL, info);
    a->n_bytes = all.len + sizeof digest;
    buf_fini(&all);
    return err;
}

static enum err empty(const struct action *a, struct err_info *info)
{
    return err_set(info, ERR_INVALID_VALUE, "slot",
                   "slot: expected one that a request of this API key used, found slot %d, which is empty",
                   (int)a->slot);
}

static enum err save(struct action *a, struct err_info *info)
{
    struct call *c = a->call;
    struct head head = {.fingerprint = engine_model(c->engine)->fingerprint};
    struct buf ids;
    TRY(read_file_name(a, info));
    memcpy(head.magic, magic, sizeof magic);
    buf_init(&ids, 0, MEM_REQUEST);
    head.has_owner = c->caller.is_set;
    memcpy(head.owner, c->caller.bytes, c->caller.is_set ? sizeof head.owner : 0);
    enum err err = slots_copy(c, a->slot, &ids, head.salt);
    a->n_ids = head.n_ids = ids.len / sizeof(int32_t);
    if (err == ERR_OK) {
        err = a->n_ids == 0 ? empty(a, info) : check_room(a, info);
    }
    err = err != ERR_OK ? err : write_file(a, &head, &ids, info);
    buf_fini(&ids);
    return err;
}

/* Checks that the file is complete, of this model and caller, and has valid ids. Another caller's file and a missing
 * file get the same answer. */
static bool fits(const struct action *a, const struct buf *file, struct head *head)
{
    const struct engine_model_info *m = engine_model(a->call->engine);
    uint8_t digest[APIKEY_ID_BYTES];
    size_t least = sizeof *head + sizeof digest;
    if (file->len < least || (file->len - least) % sizeof(int32_t) != 0) {
        return false;
    }
    memcpy(head, file->data, sizeof *head);
    size_t n_body = file->len - sizeof digest;
    struct apikey_id owner = {.is_set = head->has_owner != 0};
    memcpy(owner.bytes, head->owner, sizeof owner.bytes);
    bool is_own = apikey_is_same(&owner, &a->call->caller);
    bool is_ours = memcmp(head->magic, magic, sizeof magic) == 0 && head->fingerprint == m->fingerprint && is_own;
    bool is_whole = head->n_ids == (file->len - least) / sizeof(int32_t) && head->n_ids >= 1 &&
                    head->n_ids <= m->n_ctx && head->salt[sizeof head->salt - 1] == '\0' &&
                    apikey_digest(file->data, n_body, digest) == ERR_OK &&
                    memcmp(digest, file->data + n_body, sizeof digest) == 0;
    return is_ours && is_whole;
}

/* *ids, in the arena; *salt: the request's own, also in the arena. */
static enum err read_slot_file(struct action *a, int32_t **ids, const char **salt, struct err_info *info)
{
    struct call *c = a->call;
    struct err_info why = {0};
    struct head head;
    struct buf file;
    size_t most = sizeof head + (size_t)engine_model(c->engine)->n_ctx * sizeof **ids + APIKEY_ID_BYTES;
    buf_init(&file, 0, MEM_REQUEST);
    enum err err = io_read_file(a->path, most, &file, &why);
    if (err != ERR_NOMEM && (err != ERR_OK || !fits(a, &file, &head))) {
        err = err_set(info, ERR_INVALID_VALUE, "filename",
                      "filename: expected a slot that this API key saved with this model, found none in '%s'", a->name);
    }
    a->n_bytes = file.len;
    if (err == ERR_OK) {
        a->n_ids = (size_t)head.n_ids;
        *ids = arena_zalloc_array(&c->arena, a->n_ids, sizeof **ids);
        *salt = arena_dup(&c->arena, head.salt, strlen(head.salt));
        err = arena_ok(&c->arena);
    }
    if (err == ERR_OK) {
        memcpy(*ids, file.data + sizeof head, a->n_ids * sizeof **ids);
    }
    buf_fini(&file);
    return err;
}

/* --- answers -------------------------------------------------------------------------------------------------------- */

static void write_answer(const struct action *a, bool is_save, struct buf *out)
{
    buf_printf(out, "{\"id_slot\":%d,\"filename\":", (int)a->slot);
    json_write_cstr(out, a->name);
    buf_printf(out, ",\"%s\":%zu,\"%s\":%zu,\"timings\":{\"%s\":", is_save ? "n_saved" : "n_restored", a->n_ids,
               is_save ? "n_written" : "n_read", a->n_bytes, is_save ? "save_ms" : "restore_ms");
    json_write_float(out, (float)((double)(clock_now_ns() - a->begin_ns) / 1e6));
    buf_puts(out, "}}");
}

static void no_event(struct generation *g, struct choice *c, const struct engine_event *ev)
{
    (void)g, (void)c, (void)ev; /* a prompt without an answer has no tokens */
}

static void write_restored(struct generation *g, struct buf *out) { write_answer(g->arg, false, out); }

static const struct shape restore_shape = {
    .id_prefix = "slot-",
    .prompt_field = "filename",
    .gather = no_event,
    .whole = write_restored,
};

/* Has the prompt computed or found in the cache, without an answer. */
static enum err restore(struct action *a, struct err_info *info)
{
    struct call *c = a->call;
    struct params p;
    int32_t *ids = NULL;
    const char *salt = NULL;
    TRY(generation_check_model(c, NULL, info));
    TRY(read_file_name(a, info));
    TRY(read_slot_file(a, &ids, &salt, info));
    call_drop_json(c);
    params_init(&p, c);
    p.gen.max_tokens = 0;
    p.id_slot = a->slot;
    p.gen.cache_salt = salt[0] != '\0' ? salt : NULL;
    const struct prompts prompts = {.ids = &ids, .n_ids = &a->n_ids, .n = 1};
    generation_run(c, &p, &restore_shape, a, &prompts); /* this also records the slot's new content */
    return ERR_OK;
}

/* Returns the number after "/slots/"; -1: no such slot. */
static int64_t slot_of(const struct call *c)
{
    int64_t n;
    return number_parse(c->path + strlen("/slots/"), &n) && slots_has(c, n) ? n : -1;
}

static bool is_action(const struct call *c, const char *action)
{
    const char *query = fastcgi_param(c->reply.request, "QUERY_STRING");
    size_t n = strlen(action);
    for (query = query != NULL ? query : ""; *query != '\0'; query += strcspn(query, "&"), query += *query == '&') {
        if (strncmp(query, action, n) == 0 && (query[n] == '\0' || query[n] == '&')) {
            return true;
        }
    }
    return false;
}

void api_llama_slot_action(struct call *c)
{
    struct err_info info = {0};
    struct action a = {.call = c, .begin_ns = clock_now_ns()};
    struct buf out;
    enum err err = ERR_OK;
    buf_init(&out, 0, MEM_REQUEST);
    if (c->server->conf->slot_save_path == NULL) {
        err = err_set(&info, ERR_NOT_SUPPORTED, NULL,
                      "the server was started without --slot-save-path, so slots are not saved, restored or erased; "
                      "\"cache_prompt\": false leaves nothing in the cache");
    } else if ((a.slot = slot_of(c)) < 0) {
        err = err_set(&info, ERR_INVALID_VALUE, "slot", "slot: expected the number of a slot, found '%.32s'",
                      c->path + strlen("/slots/"));
    } else if (is_action(c, "action=restore")) {
        err = restore(&a, &info);
        if (err == ERR_OK) { /* already answered */
            buf_fini(&out);
            return;
        }
    } else if (is_action(c, "action=save")) {
        err = save(&a, &info);
        write_answer(&a, true, &out);
    } else if (is_action(c, "action=erase")) {
        buf_printf(&out, "{\"id_slot\":%d,\"n_erased\":%zu}", (int)a.slot, slots_erase(c, a.slot));
    } else {
        err = err_set(&info, ERR_INVALID_VALUE, "action", "action: expected save, restore or erase in the query");
    }
    reply_json(&c->reply, err, &info, &out);
}
