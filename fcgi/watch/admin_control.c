/* Admin commands that control the process or show its configuration: drain, reload, loglevel, config. */
#include "engine/base/names.h"
#include "fcgi/conf/option.h"
#include "fcgi/ground/log.h"
#include "fcgi/watch/admin.h"
#include "fcgi/wire/worker.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

json_t *admin_drain(struct admin_call *c)
{
    (void)kill(worker_role() != WORKER_NONE ? getppid() : getpid(), SIGTERM); /* main handles the signal */
    return json_pack("{s:b, s:I}", "draining", true, "timeout_s", (json_int_t)c->server->conf->drain_s);
}

/* In a master's worker: requests a new worker with options and model reread. Else does the same as SIGHUP. */
json_t *admin_reload(struct admin_call *c)
{
    struct err_info info;
    if (worker_role() != WORKER_NONE) {
        return worker_ask_reload(&info) == ERR_OK ? json_pack("{s:s}", "reloads", "options, model, keys")
                                                  : admin_refuse(c, ADMIN_REFUSED, "%s", info.text);
    }
    (void)kill(getpid(), SIGHUP); /* main handles the signal and logs the outcome */
    return json_pack("{s:s, s:s?}", "reloads", "keys", "api_key_file", c->server->conf->api_key_file);
}

json_t *admin_loglevel(struct admin_call *c)
{
    if (c->n_words > 1) {
        int i = names_find(log_level_name, c->words[1]);
        if (i < 0) {
            return admin_refuse(c, ADMIN_USAGE, "loglevel: expected error, warn or info, found '%.40s'", c->words[1]);
        }
        log_set_level(i);
    }
    return json_pack("{s:s}", "loglevel", log_level_name(log_level()));
}

/* No option value is secret: keys are in files, and only the files' names are shown. */
json_t *admin_config(struct admin_call *c)
{
    const struct option *o;
    json_t *rows = json_array();
    struct buf value;
    buf_init(&value, 0, MEM_GENERAL);
    for (int i = 0; (o = option_at(c->server->conf->given.options, i)) != NULL; i++) {
        const char *from = c->server->conf->from[i];
        if ((o->commands & CONF_SERVE) == 0 || strcmp(o->name, "help") == 0 || strcmp(o->name, "version") == 0) {
            continue;
        }
        buf_reset(&value);
        conf_write_value(c->server->conf, o, &value);
        (void)json_array_append_new(rows, json_pack("{s:s, s:s, s:s}", "option", o->name, "value",
                                                    buf_ok(&value) == ERR_OK && value.len > 0 ? value.data : "", "from",
                                                    from[0] != '\0' ? from : "default"));
    }
    buf_fini(&value);
    return rows;
}
