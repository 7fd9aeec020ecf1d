/* To add a field of device_caps, add a row to the table. */
#include "opencl/device_json.h"

#include "engine/base/json_read.h"
#include "engine/base/names.h"

#include <string.h>

enum kind {
    TEXT,
    BOOL,
    NUMBER, /* uint32_t */
    BYTES,  /* uint64_t */
    WORD,   /* an enum, by name */
    ADDRESS /* struct pci_address, null without has_pci */
};

static const struct field {
    const char *name;
    enum kind kind;
    size_t offset, bytes;
    names_fn names; /* for WORD */
} fields[] = {
#define FIELD(member, kind)                                                                                            \
    {                                                                                                                  \
#member, kind, offsetof(struct device_caps, member), sizeof((struct device_caps *)0)->member, NULL             \
    }
#define CHOICE(member, names)                                                                                          \
    {                                                                                                                  \
#member, WORD, offsetof(struct device_caps, member), sizeof(int), names                                        \
    }
    FIELD(i_platform, NUMBER),
    FIELD(i_device, NUMBER),
    FIELD(name, TEXT),
    FIELD(board, TEXT),
    FIELD(platform, TEXT),
    FIELD(driver, TEXT),
    FIELD(gfx, TEXT),
    FIELD(is_gpu, BOOL),
    FIELD(is_integrated, BOOL),
    FIELD(is_available, BOOL),
    FIELD(has_compiler, BOOL),
    FIELD(is_little_endian, BOOL),
    FIELD(has_fp16, BOOL),
    FIELD(pci, ADDRESS),
    FIELD(version, NUMBER),
    FIELD(memory_bytes, BYTES),
    FIELD(free_bytes, BYTES),
    FIELD(max_buffer_bytes, BYTES),
    FIELD(local_bytes, NUMBER),
    FIELD(align_bytes, NUMBER),
    FIELD(max_group, NUMBER),
    FIELD(units, NUMBER),
    CHOICE(subgroups, device_subgroups_name),
    FIELD(subgroup_sizes, NUMBER),
    CHOICE(dot, device_dot_name),
#undef FIELD
#undef CHOICE
};

_Static_assert(sizeof(enum device_dot) == sizeof(int) && sizeof(enum device_subgroups) == sizeof(int),
               "enums are read and written as int");

/* --- writing -------------------------------------------------------------------------------------------------------- */

static json_t *value_of(const struct field *f, const struct device_caps *c)
{
    const void *at = (const char *)c + f->offset;
    char room[PCI_ADDRESS_BYTES];
    switch (f->kind) {
    case TEXT:
        return json_string(at);
    case BOOL:
        return json_boolean(*(const bool *)at);
    case NUMBER:
        return json_integer(*(const uint32_t *)at);
    case BYTES: /* no device exceeds json_int_t */
        return json_integer((json_int_t)(*(const uint64_t *)at & INT64_MAX));
    case WORD:
        return json_string(f->names(*(const int *)at));
    default:
        return c->has_pci ? json_string(pci_address_text(at, room)) : json_null();
    }
}

json_t *device_json(const struct device_caps *c)
{
    json_t *object = json_object();
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        if (json_object_set_new(object, fields[i].name, value_of(&fields[i], c)) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

/* --- reading -------------------------------------------------------------------------------------------------------- */

static bool read_text(const json_t *v, size_t bytes, char *out)
{
    size_t n = json_string_length(v);
    bool fits = json_is_string(v) && n < bytes && strlen(json_string_value(v)) == n;
    memcpy(out, fits ? json_string_value(v) : "", fits ? n + 1 : 1);
    return fits;
}

static bool read_number(const json_t *v, uint64_t most, uint64_t *out)
{
    *out = (uint64_t)json_integer_value(v);
    return json_is_integer(v) && json_integer_value(v) >= 0 && *out <= most;
}

static bool read_value(const struct field *f, const json_t *v, struct device_caps *out)
{
    void *at = (char *)out + f->offset;
    uint64_t number = 0;
    bool is_read;
    switch (f->kind) {
    case TEXT:
        return read_text(v, f->bytes, at);
    case BOOL:
        *(bool *)at = json_is_true(v);
        return json_is_boolean(v);
    case NUMBER:
        is_read = read_number(v, UINT32_MAX, &number);
        *(uint32_t *)at = (uint32_t)number;
        return is_read;
    case BYTES:
        return read_number(v, INT64_MAX, at);
    case WORD:
        *(int *)at = json_is_string(v) ? names_find(f->names, json_string_value(v)) : -1;
        return *(int *)at >= 0;
    default:
        out->has_pci = json_is_string(v) && pci_address_parse(json_string_value(v), at);
        return out->has_pci || json_is_null(v);
    }
}

enum err device_json_read(const json_t *object, struct device_caps *out, struct err_info *info)
{
    char room[JSON_READ_SHOWN];
    *out = (struct device_caps){0};
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        const json_t *v = json_object_get(object, fields[i].name);
        if (v == NULL || !read_value(&fields[i], v, out)) {
            return err_set(info, ERR_INVALID_VALUE, fields[i].name, "%s: found %s", fields[i].name,
                           json_read_show(v, room));
        }
    }
    return json_object_size(object) == ARRAY_LEN(fields)
               ? ERR_OK
               : err_set(info, ERR_INVALID_VALUE, NULL, "expected %zu members, found %zu", ARRAY_LEN(fields),
                         json_object_size(object));
}
