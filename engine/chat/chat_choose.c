#include "engine/chat/chat_choose.h"

#include "engine/base/io.h"
#include "engine/base/names.h"
#include "engine/chat/chat_named.h"

static enum err read_file(const char *path, struct chat_template **out, struct err_info *info)
{
    struct buf text, names;
    struct err_info why = {0};
    buf_init(&text, 0, MEM_GENERAL);
    buf_init(&names, 0, MEM_GENERAL);
    enum err err = io_read_file(path, JINJA_MAX_SOURCE_BYTES, &text, &why);
    if (err != ERR_OK) {
        names_list(chat_named_name_at, &names);
        err = err_set(info, err == ERR_NOMEM ? err : ERR_CONFIG, "chat-template",
                      "chat-template: expected a Jinja file or one of %s; found '%.64s' (%s)",
                      buf_ok(&names) == ERR_OK ? names.data : "the formats of the manual", path, why.text);
    } else if ((err = chat_template_new(text.data != NULL ? text.data : "", text.len, out, &why)) != ERR_OK) {
        err = err_set(info, err == ERR_NOMEM ? err : ERR_CONFIG, "chat-template", "chat-template: %.128s:%s", path,
                      why.text);
    }
    buf_fini(&names);
    buf_fini(&text);
    return err;
}

enum err chat_choose_named(const char *name_or_path, struct chat_template **out, struct err_info *info)
{
    const struct chat_named *row = chat_named_find(name_or_path);
    *out = NULL;
    return row != NULL ? chat_named_new(row, out, info) : read_file(name_or_path, out, info);
}

enum err chat_choose_own(const char *source, size_t n, const char *architecture, struct chat_template **out,
                         const char **format, struct err_info *info)
{
    *out = NULL;
    *format = NULL;
    if (source != NULL) {
        return chat_template_new(source, n, out, info);
    }
    const struct chat_named *row = chat_named_of_family(architecture);
    if (row == NULL) {
        return err_set(
            info, ERR_NO_TEMPLATE, NULL,
            "the model file has no chat template and its family, %.64s, has no format of its own; start with "
            "--chat-template NAME|FILE, or use /v1/completions",
            architecture);
    }
    *format = chat_named_name(row);
    return chat_named_new(row, out, info);
}
