#include "engine/schema/schema_keyword.h"

#include "engine/base/compiler.h"

#include <stdlib.h>
#include <string.h>

/* Sorted by name. */
static const struct schema_keyword keywords[] = {
    {"$defs", SCHEMA_KEYWORD_NAMED, false},
    {"$dynamicRef", SCHEMA_KEYWORD_ANY, true},
    {"$recursiveRef", SCHEMA_KEYWORD_ANY, true},
    {"$ref", SCHEMA_KEYWORD_STRING, true},
    {"additionalItems", SCHEMA_KEYWORD_SCHEMA, true},
    {"additionalProperties", SCHEMA_KEYWORD_SCHEMA, true},
    {"allOf", SCHEMA_KEYWORD_SCHEMAS, true},
    {"anyOf", SCHEMA_KEYWORD_SCHEMAS, true},
    {"const", SCHEMA_KEYWORD_ANY, true},
    {"contains", SCHEMA_KEYWORD_SCHEMA, true},
    {"definitions", SCHEMA_KEYWORD_NAMED, false},
    {"dependencies", SCHEMA_KEYWORD_DEPENDS, true},
    {"dependentRequired", SCHEMA_KEYWORD_NAMED_STRINGS, true},
    {"dependentSchemas", SCHEMA_KEYWORD_NAMED, true},
    {"description", SCHEMA_KEYWORD_STRING, false},
    {"disallow", SCHEMA_KEYWORD_ANY, true},
    {"else", SCHEMA_KEYWORD_SCHEMA, false},
    {"enum", SCHEMA_KEYWORD_VALUES, true},
    {"exclusiveMaximum", SCHEMA_KEYWORD_LIMIT, true},
    {"exclusiveMinimum", SCHEMA_KEYWORD_LIMIT, true},
    {"extends", SCHEMA_KEYWORD_ANY, true},
    {"format", SCHEMA_KEYWORD_STRING, true},
    {"if", SCHEMA_KEYWORD_SCHEMA, true},
    {"items", SCHEMA_KEYWORD_ITEMS, true},
    {"maxContains", SCHEMA_KEYWORD_COUNT, true},
    {"maxItems", SCHEMA_KEYWORD_COUNT, true},
    {"maxLength", SCHEMA_KEYWORD_COUNT, true},
    {"maxProperties", SCHEMA_KEYWORD_COUNT, true},
    {"maximum", SCHEMA_KEYWORD_NUMBER, true},
    {"minContains", SCHEMA_KEYWORD_COUNT, true},
    {"minItems", SCHEMA_KEYWORD_COUNT, true},
    {"minLength", SCHEMA_KEYWORD_COUNT, true},
    {"minProperties", SCHEMA_KEYWORD_COUNT, true},
    {"minimum", SCHEMA_KEYWORD_NUMBER, true},
    {"multipleOf", SCHEMA_KEYWORD_STEP, true},
    {"not", SCHEMA_KEYWORD_SCHEMA, true},
    {"nullable", SCHEMA_KEYWORD_ANY, true},
    {"oneOf", SCHEMA_KEYWORD_SCHEMAS, true},
    {"pattern", SCHEMA_KEYWORD_STRING, true},
    {"patternProperties", SCHEMA_KEYWORD_NAMED, true},
    {"prefixItems", SCHEMA_KEYWORD_SCHEMAS, true},
    {"properties", SCHEMA_KEYWORD_NAMED, true},
    {"propertyNames", SCHEMA_KEYWORD_SCHEMA, true},
    {"required", SCHEMA_KEYWORD_STRINGS, true},
    {"then", SCHEMA_KEYWORD_SCHEMA, false},
    {"title", SCHEMA_KEYWORD_STRING, false},
    {"type", SCHEMA_KEYWORD_TYPES, true},
    {"unevaluatedItems", SCHEMA_KEYWORD_SCHEMA, true},
    {"unevaluatedProperties", SCHEMA_KEYWORD_SCHEMA, true},
    {"uniqueItems", SCHEMA_KEYWORD_FLAG, true},
    {"x-lark", SCHEMA_KEYWORD_ANY, true},
};

static int by_name(const void *key, const void *row) { return strcmp(key, ((const struct schema_keyword *)row)->name); }

const struct schema_keyword *schema_keyword_find(const char *name)
{
    return bsearch(name, keywords, ARRAY_LEN(keywords), sizeof *keywords, by_name);
}
