/* Final sigma is not special: the lower case of U+03A3 is always U+03C3. */
#include "engine/jinja/jinja_unicode.h"

#include "engine/base/compiler.h"

#include <utf8proc.h>

struct range {
    uint32_t first, last;
};

/* Digits [Numeric_Type Digit] that are not decimal: superscripts, circled digits, scripts without a zero. */
static const struct range other_digits[] = {
    {0xB2, 0xB3},     {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},   {0x2070, 0x2070},
    {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247C},   {0x2488, 0x2490},
    {0x24EA, 0x24EA}, {0x24F5, 0x24FD},   {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},
    {0x278A, 0x2792}, {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A},
};
/* Ideographs that are numbers [Unihan: kPrimaryNumeric, kAccountingNumeric, kOtherNumeric]. */
static const struct range han_numbers[] = {
    {0x3405, 0x3405},   {0x3483, 0x3483},   {0x382A, 0x382A},   {0x3B4D, 0x3B4D},   {0x4E00, 0x4E00},
    {0x4E03, 0x4E03},   {0x4E07, 0x4E07},   {0x4E09, 0x4E09},   {0x4E5D, 0x4E5D},   {0x4E8C, 0x4E8C},
    {0x4E94, 0x4E94},   {0x4E96, 0x4E96},   {0x4EBF, 0x4EC0},   {0x4EDF, 0x4EDF},   {0x4EE8, 0x4EE8},
    {0x4F0D, 0x4F0D},   {0x4F70, 0x4F70},   {0x5104, 0x5104},   {0x5146, 0x5146},   {0x5169, 0x5169},
    {0x516B, 0x516B},   {0x516D, 0x516D},   {0x5341, 0x5341},   {0x5343, 0x5345},   {0x534C, 0x534C},
    {0x53C1, 0x53C4},   {0x56DB, 0x56DB},   {0x58F1, 0x58F1},   {0x58F9, 0x58F9},   {0x5E7A, 0x5E7A},
    {0x5EFE, 0x5EFF},   {0x5F0C, 0x5F0E},   {0x5F10, 0x5F10},   {0x62FE, 0x62FE},   {0x634C, 0x634C},
    {0x67D2, 0x67D2},   {0x6F06, 0x6F06},   {0x7396, 0x7396},   {0x767E, 0x767E},   {0x8086, 0x8086},
    {0x842C, 0x842C},   {0x8CAE, 0x8CAE},   {0x8CB3, 0x8CB3},   {0x8D30, 0x8D30},   {0x9621, 0x9621},
    {0x9646, 0x9646},   {0x964C, 0x964C},   {0x9678, 0x9678},   {0x96F6, 0x96F6},   {0xF96B, 0xF96B},
    {0xF973, 0xF973},   {0xF978, 0xF978},   {0xF9B2, 0xF9B2},   {0xF9D1, 0xF9D1},   {0xF9D3, 0xF9D3},
    {0xF9FD, 0xF9FD},   {0x20001, 0x20001}, {0x20064, 0x20064}, {0x200E2, 0x200E2}, {0x20121, 0x20121},
    {0x2092A, 0x2092A}, {0x20983, 0x20983}, {0x2098C, 0x2098C}, {0x2099C, 0x2099C}, {0x20AEA, 0x20AEA},
    {0x20AFD, 0x20AFD}, {0x20B19, 0x20B19}, {0x22390, 0x22390}, {0x22998, 0x22998}, {0x23B1B, 0x23B1B},
    {0x2626D, 0x2626D}, {0x2F890, 0x2F890},
};
/* Other_Uppercase and Other_Lowercase: cased characters that are not letters of the category. */
static const struct range other_upper[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189},
};
static const struct range other_lower[] = {
    {0xAA, 0xAA},     {0xBA, 0xBA},     {0x2B0, 0x2B8},     {0x2C0, 0x2C1},     {0x2E0, 0x2E4},     {0x345, 0x345},
    {0x37A, 0x37A},   {0x1D2C, 0x1D6A}, {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},   {0x207F, 0x207F},
    {0x2090, 0x209C}, {0x2170, 0x217F}, {0x24D0, 0x24E9},   {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},
    {0xA7F8, 0xA7F9}, {0xAB5C, 0xAB5F}, {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA},
};

static bool is_in(const struct range *r, size_t n, uint32_t cp)
{
    size_t i = 0;
    while (i < n && cp > r[i].last) {
        i++;
    }
    return i < n && cp >= r[i].first;
}

/* Returns whether the general category is between two, in the order of utf8proc's enumeration. */
static bool is_category(uint32_t cp, utf8proc_category_t from, utf8proc_category_t to)
{
    utf8proc_category_t category = utf8proc_category((int32_t)cp);
    return category >= from && category <= to;
}

bool ju_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1F) || cp == 0x85 ||
           is_category(cp, UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP);
}

bool ju_alpha(uint32_t cp) { return is_category(cp, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO); }

bool ju_alnum(uint32_t cp) { return ju_alpha(cp) || ju_numeric(cp); }

bool ju_numeric(uint32_t cp)
{
    return is_category(cp, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO) ||
           is_in(han_numbers, ARRAY_LEN(han_numbers), cp);
}

bool ju_digit(uint32_t cp)
{
    return is_category(cp, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_ND) ||
           is_in(other_digits, ARRAY_LEN(other_digits), cp);
}

bool ju_printable(uint32_t cp) { return cp == ' ' || is_category(cp, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_SO); }

bool ju_is_upper(uint32_t cp)
{
    return is_category(cp, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LU) ||
           is_in(other_upper, ARRAY_LEN(other_upper), cp);
}

bool ju_is_lower(uint32_t cp)
{
    return is_category(cp, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LL) ||
           is_in(other_lower, ARRAY_LEN(other_lower), cp);
}

bool ju_is_title(uint32_t cp) { return is_category(cp, UTF8PROC_CATEGORY_LT, UTF8PROC_CATEGORY_LT); }

/* Writes an upper or title case of more than one code point [SpecialCasing.txt] to out and returns its length, 0 if
 * there is none. It is derived from the full case folding, which is the lower case of the same letters. */
static size_t map_special(uint32_t cp, enum ju_to to, uint32_t out[3])
{
    int32_t folded[8];
    int boundary = 0;
    if (ju_is_upper(cp) || (to == JU_TITLE && ju_is_title((uint32_t)utf8proc_totitle((int32_t)cp)))) {
        return 0;
    }
    utf8proc_ssize_t n = utf8proc_decompose_char((int32_t)cp, folded, ARRAY_LEN(folded), UTF8PROC_CASEFOLD, &boundary);
    if (n < 2 || n > 3) {
        return 0;
    }
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        bool is_small = to == JU_TITLE && i > 0 && folded[0] != 0x2BC; /* U+0149 has an apostrophe before its letter */
        bool is_iota = folded[i] == 0x3B9;                             /* remains a subscript of the letter before it */
        out[i] = !is_small ? (uint32_t)utf8proc_toupper(folded[i]) : is_iota ? 0x345 : (uint32_t)folded[i];
    }
    return (size_t)n;
}

size_t ju_map(uint32_t cp, enum ju_to to, uint32_t out[3])
{
    if (to == JU_LOWER && cp == 0x130) { /* the only code point whose lower case is two code points */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    size_t n = cp < 0x80 || to == JU_LOWER ? 0 : map_special(cp, to, out);
    if (n == 0) {
        static utf8proc_int32_t (*const maps[])(utf8proc_int32_t cp) = {
            [JU_LOWER] = utf8proc_tolower, [JU_UPPER] = utf8proc_toupper, [JU_TITLE] = utf8proc_totitle};
        out[0] = (uint32_t)maps[to]((int32_t)cp);
    }
    return n == 0 ? 1 : n;
}
