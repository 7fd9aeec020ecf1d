/* What turning the body of one API into another's is made of: places of values, types that they must have, and members that are
 * taken over. Places are written as clients know them: "messages[2].content". Threads: pure functions of their arguments. */
#ifndef INFCGI_API_TURN_H
#define INFCGI_API_TURN_H

#include "fcgi/wire/json_in.h"

/* Write the place of a member, and of an element, of the value at `at` ("": the body) to out, and return out. Long ones are cut. */
const char *turn_member(char out[ERR_WHERE_BYTES], const char *at, const char *field);
const char *turn_element(char out[ERR_WHERE_BYTES], const char *at, size_t i);

/* Checks the type of a value. ERR_MISSING_PARAMETER if it is NULL or null, ERR_INVALID_TYPE for another type. */
MUST_CHECK enum err turn_expect(const json_t *v, json_type type, const char *where, const char *expected,
                                struct err_info *info);

/* The error of a value that is not a string, or a string of another value than `expected` says. */
enum err turn_refuse(const json_t *v, const char *where, const char *expected, struct err_info *info);

/* Sets *out to a member that must be a string; borrowed from object. Errors as turn_expect. */
MUST_CHECK enum err turn_string(const json_t *object, const char *at, const char *field, json_t **out,
                                struct err_info *info);

/* Append to an array, and set in an object, the reference `made`, which they take. ERR_NOMEM, also if made is NULL. */
MUST_CHECK enum err turn_append(json_t *array, json_t *made);
MUST_CHECK enum err turn_put(json_t *object, const char *name, json_t *made);

/* Sets the member `as` of `to` to the member `name` of `from`, unless it is absent or null. ERR_NOMEM. */
MUST_CHECK enum err turn_copy(const json_t *from, const char *name, json_t *to, const char *as);

#endif
