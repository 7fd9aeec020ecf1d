#include "engine/tokenizer/unicode_table.h"

#include "engine/base/compiler.h"

#include <threads.h>
#include <utf8proc.h>

unsigned char unicode_table_class[UNICODE_TABLE_END];
bool unicode_table_nfc[UNICODE_TABLE_END];

enum unicode_class unicode_class_find(uint32_t cp)
{
    if ((cp >= '\t' && cp <= '\r') || cp == 0x85) { /* control characters that are White_Space */
        return UNICODE_SPACE;
    }
    utf8proc_category_t category = cp <= 0x10FFFF ? utf8proc_category((int32_t)cp) : UTF8PROC_CATEGORY_CN;
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) {
        return UNICODE_LETTER;
    }
    if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) {
        return UNICODE_NUMBER;
    }
    bool is_space = category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP;
    return is_space ? UNICODE_SPACE : UNICODE_OTHER;
}

bool unicode_is_word(uint32_t cp)
{
    utf8proc_category_t category = utf8proc_category((int32_t)cp);
    bool is_circled = (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) ||
                      (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) || category == UTF8PROC_CATEGORY_PC ||
           is_circled;
}

/* Flags cp if NFC changes or reorders it. If cp does not change, flags the last character of its decomposition,
 * which NFC joins to a character before it. */
static void flag_nfc(int32_t cp)
{
    int32_t parts[8]; /* canonical decompositions have at most 4 */
    int boundary = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(cp, parts, ARRAY_LEN(parts), UTF8PROC_DECOMPOSE, &boundary);
    if (n > 1 || (n == 1 && parts[0] != cp)) {
        int32_t last = parts[n - 1];
        n = utf8proc_normalize_utf32(parts, n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        unicode_table_nfc[n == 1 && parts[0] == cp ? last : cp] = true;
    } else if (utf8proc_get_property(cp)->combining_class != 0) {
        unicode_table_nfc[cp] = true;
    }
}

static void fill(void)
{
    for (uint32_t cp = 0; cp < UNICODE_TABLE_END; cp++) {
        unicode_table_class[cp] = (unsigned char)unicode_class_find(cp);
        flag_nfc((int32_t)cp);
    }
}

void unicode_table_init(void)
{
    static once_flag once = ONCE_FLAG_INIT;
    call_once(&once, fill);
}
