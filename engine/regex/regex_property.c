#include "engine/regex/regex_property.h"

#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/regex/regex_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { MAX_NAME = 48, MAX_PROPERTIES = 512, MAX_RANGES = 1 << 16 };

/* A static cache of properties, because they outlive all requests. When it is full it is emptied. */
struct property {
    char name[MAX_NAME];
    size_t first, n; /* of `ranges` */
};
static struct {
    pthread_mutex_t lock;
    struct property properties[MAX_PROPERTIES];
    size_t n_properties, n_ranges;
    struct regex_range ranges[MAX_RANGES];
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Names of general categories that PCRE2 does not know [PropertyValueAliases.txt], without _. */
static const struct {
    const char *name, *is;
} long_names[] = {
    {"assigned", "^cn"},
    {"casedletter", "l&"},
    {"closepunctuation", "pe"},
    {"cntrl", "cc"},
    {"combiningmark", "m"},
    {"connectorpunctuation", "pc"},
    {"control", "cc"},
    {"currencysymbol", "sc"},
    {"dashpunctuation", "pd"},
    {"decimalnumber", "nd"},
    {"digit", "nd"},
    {"enclosingmark", "me"},
    {"finalpunctuation", "pf"},
    {"format", "cf"},
    {"initialpunctuation", "pi"},
    {"lc", "l&"},
    {"letter", "l"},
    {"letternumber", "nl"},
    {"lineseparator", "zl"},
    {"lowercaseletter", "ll"},
    {"mark", "m"},
    {"mathsymbol", "sm"},
    {"modifierletter", "lm"},
    {"modifiersymbol", "sk"},
    {"nonspacingmark", "mn"},
    {"number", "n"},
    {"openpunctuation", "ps"},
    {"other", "c"},
    {"otherletter", "lo"},
    {"othernumber", "no"},
    {"otherpunctuation", "po"},
    {"othersymbol", "so"},
    {"paragraphseparator", "zp"},
    {"privateuse", "co"},
    {"punct", "p"},
    {"punctuation", "p"},
    {"separator", "z"},
    {"spaceseparator", "zs"},
    {"spacingmark", "mc"},
    {"surrogate", "cs"},
    {"symbol", "s"},
    {"titlecaseletter", "lt"},
    {"unassigned", "cn"},
    {"uppercaseletter", "lu"},
};

static void *allocate(PCRE2_SIZE n, void *data)
{
    (void)data;
    return mem_alloc(n, MEM_REQUEST);
}

static void release(void *p, void *data)
{
    (void)data;
    mem_free(p);
}

static const char *long_name(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(long_names); i++) {
        if (strcmp(name, long_names[i].name) == 0) {
            return long_names[i].is;
        }
    }
    return name;
}

/* Writes the name as PCRE2 spells it, in lower case; false: it cannot be a name. */
static bool normalise(const char *name, size_t n, char out[MAX_NAME])
{
    char text[MAX_NAME];
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        char c = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] | 0x20) : name[i];
        bool is_known = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '&' || c == '=';
        if (c == '_' || c == '-' || c == ' ') {
            continue;
        }
        if (!is_known || len == sizeof text - 1) {
            return false;
        }
        text[len++] = c;
    }
    text[len] = '\0';
    size_t front = strncmp(text, "generalcategory=", 16) == 0 ? 16 : strncmp(text, "gc=", 3) == 0 ? 3 : 0;
    const char *is = long_name(text + front);
    snprintf(out, MAX_NAME, "%s", is);
    return *is != '\0' && (front == 0 || strlen(is) <= 3); /* a category's value is not another property's name */
}

/* In the planes without characters, and those for private use, all but the last two characters are alike: only the
 * first is tested. */
static bool is_alike(uint32_t c) { return (c >= 0x40000 && c < 0xE0000) || c >= 0xF0000; }

static size_t write_characters(char *out)
{
    size_t n = 0;
    for (uint32_t c = 0; c <= LAST_CODE_POINT; c++) {
        bool is_surrogate = c >= FIRST_SURROGATE && c <= LAST_SURROGATE,
             is_first = (c & 0xFFFF) == 0 || (c & 0xFFFF) >= 0xFFFE;
        n += is_surrogate || (is_alike(c) && !is_first) ? 0 : utf8_encode(c, out + n);
    }
    return n;
}

/* Adds the characters text[0..n), which are sorted. */
static enum err add_characters(struct property *p, const char *text, size_t n)
{
    uint32_t c;
    for (size_t at = 0; at < n;) {
        at += utf8_decode(text + at, n - at, &c, NULL);
        struct regex_range *before = p->n > 0 ? &kept.ranges[p->first + p->n - 1] : NULL;
        uint32_t last = is_alike(c) && (c & 0xFFFF) == 0 ? c + 0xFFFD : c;
        if (before != NULL && before->last + 1 == c) {
            before->last = last;
        } else if (p->first + p->n < MAX_RANGES) {
            kept.ranges[p->first + p->n++] = (struct regex_range){c, last};
        } else {
            return ERR_GRAMMAR_LIMIT;
        }
    }
    return ERR_OK;
}

/* Finds all matches of the code among all characters. */
static enum err match_all(const pcre2_code *code, pcre2_general_context *general, struct property *p)
{
    enum { ROOM = 5 << 18 }; /* for about 330,000 characters of at most 4 bytes */
    char *text = mem_alloc(ROOM, MEM_REQUEST);
    pcre2_match_data *match = pcre2_match_data_create(1, general);
    enum err err = text != NULL && match != NULL ? ERR_OK : ERR_NOMEM;
    size_t n = err == ERR_OK ? write_characters(text) : 0, at = 0;
    while (err == ERR_OK && at < n) {
        int rc = pcre2_match(code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, match, NULL);
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(match);
        if (rc == PCRE2_ERROR_NOMATCH) {
            break;
        }
        err = rc > 0 ? add_characters(p, text + found[0], found[1] - found[0]) : ERR_NOMEM;
        at = found[1];
    }
    pcre2_match_data_free(match);
    mem_free(text);
    return err;
}

/* Finds the characters with PCRE2; p->name is set. */
static enum err find(struct property *p)
{
    char pattern[MAX_NAME + 8];
    int n = snprintf(pattern, sizeof pattern, "\\p{%s}++", p->name), code = 0;
    PCRE2_SIZE at = 0;
    pcre2_general_context *general = pcre2_general_context_create(allocate, release, NULL);
    pcre2_compile_context *compile = general != NULL ? pcre2_compile_context_create(general) : NULL;
    if (compile == NULL) {
        pcre2_general_context_free(general);
        return ERR_NOMEM;
    }
    pcre2_code *made =
        pcre2_compile((PCRE2_SPTR)pattern, (PCRE2_SIZE)n, PCRE2_UTF | PCRE2_NO_UTF_CHECK, &code, &at, compile);
    enum err err = made != NULL ? ERR_OK : code == PCRE2_ERROR_HEAP_FAILED ? ERR_NOMEM : ERR_INVALID_GRAMMAR;
    if (err == ERR_OK) {
        pcre2_jit_compile(made, PCRE2_JIT_COMPLETE); /* without JIT it takes 10 ms */
        err = match_all(made, general, p);
    }
    pcre2_code_free(made);
    pcre2_compile_context_free(compile);
    pcre2_general_context_free(general);
    return err;
}

/* Returns the property, cached or from PCRE2; the lock must be held. */
static enum err get(const char *name, bool *was_kept, const struct property **out)
{
    size_t i = 0;
    while (i < kept.n_properties && strcmp(kept.properties[i].name, name) != 0) {
        i++;
    }
    *was_kept = i < kept.n_properties;
    *out = &kept.properties[i];
    if (*was_kept) {
        return ERR_OK;
    }
    enum err err = ERR_GRAMMAR_LIMIT;
    for (int turn = 0; turn < 2 && err == ERR_GRAMMAR_LIMIT; turn++) {
        if (turn > 0 || kept.n_properties == MAX_PROPERTIES) {
            kept.n_properties = kept.n_ranges = 0;
        }
        struct property *p = &kept.properties[kept.n_properties];
        *out = p;
        *p = (struct property){.first = kept.n_ranges};
        snprintf(p->name, sizeof p->name, "%s", name);
        err = find(p);
    }
    if (err == ERR_OK) {
        kept.n_ranges += (*out)->n;
        kept.n_properties++;
    }
    return err;
}

enum err regex_property_add(struct regex_ranges *to, const char *name, size_t n, bool *was_kept)
{
    char own[MAX_NAME];
    const struct property *p;
    *was_kept = false;
    if (!normalise(name, n, own)) {
        return ERR_INVALID_GRAMMAR;
    }
    pthread_mutex_lock(&kept.lock);
    enum err err = get(own, was_kept, &p);
    for (size_t i = 0; err == ERR_OK && i < p->n; i++) {
        err = regex_ranges_add(to, kept.ranges[p->first + i].first, kept.ranges[p->first + i].last);
    }
    pthread_mutex_unlock(&kept.lock);
    return err;
}
