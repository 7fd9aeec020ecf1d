/* Helpers of code that reads bodies: positions of values, type checks, copied members. Positions are in the client's
 * notation: "messages[2].content". Threads: pure functions of their arguments. */
#ifndef INFCGI_API_TURN_H
#define INFCGI_API_TURN_H

#include "engine/base/buf.h"
#include "fcgi/wire/json_in.h"

/* Write the position of a member or element of the value at `at` ("": the body) to out and return out. Long ones are
 * truncated. */
const char *turn_member(char out[ERR_WHERE_BYTES], const char *at, const char *field);
const char *turn_element(char out[ERR_WHERE_BYTES], const char *at, size_t i);

/* Reports a value that should be of `type`. Returns ERR_MISSING_PARAMETER: it is NULL or null; ERR_INVALID_TYPE: of
 * another type; ERR_INVALID_VALUE: of this type. */
enum err turn_refuse(const json_t *v, json_type type, const char *where, const char *expected, struct err_info *info);

/* Checks the type of a value. Errors as turn_refuse. */
MUST_CHECK enum err turn_expect(const json_t *v, json_type type, const char *where, const char *expected,
                                struct err_info *info);

/* Sets *out to a member that must be a string; borrowed from object. Errors as turn_expect. */
MUST_CHECK enum err turn_string(const json_t *object, const char *at, const char *field, json_t **out,
                                struct err_info *info);

/* Returns the text as a JSON string; NULL: the buffer failed, or no memory. */
json_t *turn_text(const struct buf *text);

/* Append the reference `made` to an array, or set it in an object; both take the reference. ERR_NOMEM, also if made is
 * NULL. */
MUST_CHECK enum err turn_append(json_t *array, json_t *made);
MUST_CHECK enum err turn_put(json_t *object, const char *name, json_t *made);

/* Sets the member `as` of `to` to the member `name` of `from`, unless it is absent or null. ERR_NOMEM. */
MUST_CHECK enum err turn_copy(const json_t *from, const char *name, json_t *to, const char *as);

#endif
