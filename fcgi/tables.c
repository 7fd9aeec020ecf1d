#include "fcgi/tables.h"

#include "fcgi/api/dispatch.h"

struct program tables_all(void)
{
    return (struct program){.options = &options_table,
                            .commands = commands_table,
                            .n_commands = commands_n,
                            .routes = routes_table,
                            .n_routes = routes_n,
                            .dialects = routes_dialects,
                            .fields = field_tables,
                            .n_fields = field_tables_n,
                            .handle = dispatch_request};
}
