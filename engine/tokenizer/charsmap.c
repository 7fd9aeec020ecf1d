/* A unit of the trie. Bits 0-7 and 31: the label; bit 8: a text ends here; bits 9 and 10-30: the offset of the
 * children. In the unit after a text's end, bits 0-30 are its value, the replacement's offset. */
#include "engine/tokenizer/charsmap.h"

#include "engine/base/utf8.h"

#include <string.h>

#define OUTSIDE UINT32_MAX /* no unit; a byte's label never has this value */

static uint32_t unit_at(const struct charsmap *m, size_t i)
{
    if (i >= m->n_units) {
        return OUTSIDE;
    }
    const unsigned char *p = m->units + 4 * i;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

/* Like charsmap_find(); sets *is_bad if the map points outside itself. */
static const char *find(const struct charsmap *m, const char *s, size_t n, bool *is_bad)
{
    uint32_t at = offset_of(unit_at(m, 0)), unit;
    for (size_t i = 0; i < n && s[i] != 0; i++) {
        at ^= (unsigned char)s[i];
        unit = unit_at(m, at);
        if ((unit & (1u << 31 | 0xFF)) != (unsigned char)s[i]) {
            return NULL;
        }
        at ^= offset_of(unit);
        if ((unit >> 8 & 1) != 0) {
            size_t value = unit_at(m, at) & 0x7FFFFFFFu;
            *is_bad = at >= m->n_units || value >= m->n_texts;
            return *is_bad ? NULL : m->texts + value;
        }
    }
    return NULL;
}

const char *charsmap_find(const struct charsmap *m, const char *s, size_t n)
{
    bool is_bad = false;
    return find(m, s, n, &is_bad);
}

enum err charsmap_init(struct charsmap *m, const unsigned char *data, size_t n, struct err_info *info)
{
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    *m = (struct charsmap){0};
    if (n == 0) {
        return ERR_OK;
    }
    size_t trie = n < 4 ? 0 : (size_t)data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16 | (size_t)data[3] << 24;
    if (n < 4 || trie == 0 || trie % 4 != 0 || trie >= n - 4 || data[n - 1] != 0) {
        return err_set(
            info, ERR_BAD_CHARSMAP, key,
            "%s: expected the size of a trie, the trie and texts that end with a NUL, found %zu bytes of which "
            "%zu are to be the trie",
            key, n, trie);
    }
    m->units = data + 4;
    m->n_units = trie / 4;
    m->texts = (const char *)data + 4 + trie;
    m->n_texts = n - 4 - trie;
    for (uint32_t cp = 1; cp <= 0x10FFFF; cp++) {
        char s[4];
        bool is_bad = false;
        (void)find(m, s, utf8_encode(cp, s), &is_bad);
        if (is_bad) {
            return err_set(info, ERR_BAD_CHARSMAP, key,
                           "%s: expected a replacement for U+%04X inside the map, found none", key, (unsigned)cp);
        }
    }
    return ERR_OK;
}
