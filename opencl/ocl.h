/* OpenCL as this folder uses it: the one place that includes its headers, and what its error codes mean.
 *
 * The API is that of OpenCL 1.2 [Khronos OpenCL 1.2 specification], which every driver we know has; what is newer is
 * asked for by name. Threads: functions are pure. */
#ifndef INFCGI_OPENCL_OCL_H
#define INFCGI_OPENCL_OCL_H

#include "engine/base/err.h"

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>

/* "CL_OUT_OF_RESOURCES"; "error -9999" of a code that the headers do not have, in room[OCL_NAME_BYTES]. */
enum { OCL_NAME_BYTES = 48 };
const char *ocl_error_name(cl_int code, char room[OCL_NAME_BYTES]);

/* What a call failed with, as one of ours, and *info (OPTIONAL) says so: "what: CL_..". CL_SUCCESS is ERR_OK; memory
 * is ERR_NOMEM; all else is ERR_LOST, as nothing is known of what the device holds then. */
enum err ocl_check(cl_int code, const char *what, struct err_info *info);

#endif
