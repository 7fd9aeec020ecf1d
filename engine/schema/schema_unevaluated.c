/* unevaluatedProperties and unevaluatedItems: the parts' schemas for members or elements that neither the part nor the
 * schemas it requires restrict. Of an anyOf the list has only the chosen schema: other schemas that also hold do not
 * count. */
#include "engine/schema/schema_internal.h"

enum err schema_check_unevaluated(struct writer *w, const struct parts *list, const char *keyword, bool *is_there)
{
    const struct part *asking = NULL;
    for (size_t k = 0; k < list->n && asking == NULL && !w->is_loose; k++) {
        asking = schema_keyword(w, &list->at[k], keyword) != NULL ? &list->at[k] : NULL;
    }
    for (size_t i = 0; i < list->n && asking != NULL; i++) {
        TRY(schema_spend(w, w->n_made));
        if (schema_was_derived(w, list->at[i].schema)) {
            return schema_refuse(
                w, asking->path, keyword,
                "expected no not, if, dependencies, const or enum beside it, and a oneOf of schemas of "
                "which no value is of two");
        }
    }
    *is_there = asking != NULL;
    return ERR_OK;
}

/* Checks whether the i-th part is the k-th or is required by it through $ref, allOf or anyOf. */
static bool is_within(const struct parts *list, size_t i, size_t k)
{
    while (i != k && list->at[i].asked_by != 0) {
        i = list->at[i].asked_by - 1;
    }
    return i == k;
}

enum err schema_add_unevaluated(struct writer *w, const struct parts *list, const char *keyword, const bool *says,
                                struct parts *out)
{
    for (size_t k = 0; k < list->n; k++) {
        const json_t *schema = schema_keyword(w, &list->at[k], keyword);
        bool is_evaluated = schema == NULL;
        TRY(is_evaluated ? ERR_OK : schema_spend(w, list->n * (4 + list->n / 4)));
        for (size_t i = 0; i < list->n && !is_evaluated; i++) {
            bool says_all = i != k && schema_keyword(w, &list->at[i], keyword) != NULL;
            is_evaluated = (says_all || says[i]) && is_within(list, i, k);
        }
        TRY(is_evaluated ? ERR_OK
                         : schema_add_part(w, &list->at[k], schema, schema_join(w, list->at[k].path, keyword), out));
    }
    return ERR_OK;
}
