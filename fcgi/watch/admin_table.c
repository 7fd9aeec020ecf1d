/* The table of admin commands. To add one: add a function in one of the admin_*.c, its declaration in admin.h, a row
 * here and a line in docs/ops/ctl.md. */
#include "fcgi/ground/words.h"
#include "fcgi/watch/admin.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct admin_command commands[] = {
    {"status", "", 0, 0, "what the process is doing, in short", false, false, admin_status},
    {"requests", "", 0, 0, "the requests that are being handled", false, false, admin_requests},
    {"cancel", "ID", 1, 1, "end a request; ID is its number, as `requests` shows it", true, false, admin_cancel},
    {"tenants", "", 0, 0, "tenants that are known: their limits, and what they did", false, false, admin_tenants},
    {"kv", "", 0, 0, "the KV cache: pages, types, bytes", false, true, admin_kv},
    {"cache", "", 0, 0, "reuse: prefixes, grammars, draft tokens", false, true, admin_cache},
    {"model", "", 0, 0, "the model that is served", false, true, admin_model},
    {"drain", "", 0, 0, "take no more requests, finish those that run, and end, as SIGTERM does", true, false,
     admin_drain},
    {"reload", "", 0, 0, "start a worker with new options and model (--master), else reread keys", true, false,
     admin_reload},
    {"loglevel", "[LEVEL]", 0, 1, "show or set the log level: error, warn, info", true, false, admin_loglevel},
    {"log", "[-f] [N]", 0, 2, "the last N lines of the log, 20 unless given; -f: and those to come", false, false,
     admin_log},
    {"config", "", 0, 0, "the options as they are, and who said so", false, false, admin_config},
    {"devices", "", 0, 0, "the devices that compute, and their memory", false, true, admin_devices},
    {"memory", "", 0, 0, "memory by purpose", false, false, admin_memory},
    {"threads", "", 0, 0, "the threads of the process, and the time each has run", false, false, admin_threads},
    {"kernels", "", 0, 0, "which instruction set computes, and why", false, true, admin_kernels},
    {"bench", "", 0, 0, "measure memory copies, a short prompt and an answer under load; takes seconds", true, true,
     admin_bench},
    {"version", "", 0, 0, "version of the program", false, false, admin_version},
    {"help", "[COMMAND]", 0, 1, "this list", false, false, admin_help},
};

const struct admin_command *admin_at(int i) { return i >= 0 && i < (int)ARRAY_LEN(commands) ? &commands[i] : NULL; }

const char *admin_name_at(int i) { return admin_at(i) != NULL ? commands[i].name : NULL; }

const char *admin_verdict_name(int i)
{
    static const char *const names[ADMIN_VERDICT_COUNT] = {"ok", "usage", "refused", "denied"};
    return i >= 0 && i < ADMIN_VERDICT_COUNT ? names[i] : NULL;
}

json_t *admin_refuse(struct admin_call *c, enum admin_verdict v, const char *fmt, ...)
{
    va_list args;
    c->verdict = v;
    va_start(args, fmt);
    vsnprintf(c->why, sizeof c->why, fmt, args);
    va_end(args);
    words_flatten(c->why); /* the quoted text can have newlines */
    return NULL;
}

bool admin_parse(char *line, struct admin_call *c)
{
    c->n_words = 0;
    c->is_json = false;
    for (char *p = line, *end; *(p += strspn(p, " \t\r")) != '\0'; p = end) {
        end = p + strcspn(p, " \t\r");
        end += *end != '\0' ? (*end = '\0', 1) : 0;
        if (c->n_words == 0 && !c->is_json && strcmp(p, "--json") == 0) {
            c->is_json = true;
        } else if (c->n_words == ADMIN_WORDS) {
            return false;
        } else {
            c->words[c->n_words++] = p;
        }
    }
    return c->n_words > 0;
}

const struct admin_command *admin_find(const char *name)
{
    int i = 0;
    while (i < (int)ARRAY_LEN(commands) && strcmp(commands[i].name, name) != 0) {
        i++;
    }
    return admin_at(i);
}

json_t *admin_run(struct admin_call *c)
{
    const struct admin_command *command = admin_find(c->words[0]);
    if (command == NULL) {
        return admin_refuse(c, ADMIN_USAGE, "no such command: %.40s; `help` lists them", c->words[0]);
    }
    int n = c->n_words - 1;
    if (n < command->least || n > command->most) {
        return admin_refuse(c, ADMIN_USAGE, "expected `%s%s%s`, found %d more words", command->name,
                            command->words[0] != '\0' ? " " : "", command->words, n);
    }
    if (command->needs_engine && c->engine == NULL) {
        return admin_refuse(c, ADMIN_REFUSED, "the model is loading (%d %%)", atomic_load(&c->server->progress) / 10);
    }
    return command->run(c);
}

json_t *admin_help(struct admin_call *c)
{
    const char *of = c->n_words > 1 ? c->words[1] : NULL;
    json_t *rows = json_array();
    if (of != NULL && admin_find(of) == NULL) {
        json_decref(rows);
        return admin_refuse(c, ADMIN_USAGE, "no such command: %.40s; `help` lists them", of);
    }
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        const struct admin_command *k = &commands[i];
        char form[48];
        snprintf(form, sizeof form, "%s%s%s", k->name, k->words[0] != '\0' ? " " : "", k->words);
        if (of == NULL || strcmp(of, k->name) == 0) {
            (void)json_array_append_new(rows, json_pack("{s:s, s:s}", "command", form, "what", k->help));
        }
    }
    return rows;
}
