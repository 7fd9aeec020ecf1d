#include "engine/base/names.h"

#include <string.h>

int names_find(names_fn names, const char *name)
{
    for (int i = 0; names(i) != NULL; i++) {
        if (strcmp(names(i), name) == 0) {
            return i;
        }
    }
    return -1;
}

void names_list(names_fn names, struct buf *out)
{
    for (int i = 0; names(i) != NULL; i++) {
        buf_printf(out, "%s%s", i == 0 ? "" : ", ", names(i));
    }
}

enum err names_refuse(names_fn names, const char *what, const char *found, struct err_info *info)
{
    struct buf list;
    buf_init(&list, 0, MEM_GENERAL);
    names_list(names, &list);
    err_set(info, ERR_CONFIG, what, "%s: expected one of %s; found '%.64s'", what,
            buf_ok(&list) == ERR_OK ? list.data : "the names of the manual", found);
    buf_fini(&list);
    return ERR_CONFIG;
}

enum err names_choose(names_fn names, const char *what, const char *wanted, int *out, struct err_info *info)
{
    *out = wanted != NULL ? names_find(names, wanted) : 0;
    return *out >= 0 ? ERR_OK : names_refuse(names, what, wanted, info);
}
