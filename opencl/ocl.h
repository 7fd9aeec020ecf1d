/* OpenCL for this folder: the only file that includes its headers, and the meaning of its error codes.
 *
 * The API is OpenCL 1.2 [Khronos OpenCL 1.2 specification], which every known driver has; newer features are queried by
 * name. Threads: functions are pure. */
#ifndef INFCGI_OPENCL_OCL_H
#define INFCGI_OPENCL_OCL_H

#include "engine/base/err.h"

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>

/* Returns the name of a code: "CL_OUT_OF_RESOURCES"; for a code that the headers lack "error -9999", written to
 * room. */
enum { OCL_NAME_BYTES = 48 };
const char *ocl_error_name(cl_int code, char room[OCL_NAME_BYTES]);

/* Translates the result of an OpenCL call: CL_SUCCESS to ERR_OK, lack of memory to ERR_NOMEM, all others to ERR_LOST,
 * because the state of the device is then unknown. Writes "what: CL_.." to *info (OPTIONAL). */
enum err ocl_check(cl_int code, const char *what, struct err_info *info);

#endif
