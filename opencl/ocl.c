/* Names of OpenCL's error codes. */
#include "opencl/ocl.h"

#include <stdbool.h>
#include <stdio.h>

/* X(code): the codes that the calls of this folder can return. */
#define OCL_CODES(X)                                                                                                   \
    X(CL_SUCCESS)                                                                                                      \
    X(CL_DEVICE_NOT_FOUND)                                                                                             \
    X(CL_DEVICE_NOT_AVAILABLE)                                                                                         \
    X(CL_COMPILER_NOT_AVAILABLE)                                                                                       \
    X(CL_MEM_OBJECT_ALLOCATION_FAILURE)                                                                                \
    X(CL_OUT_OF_RESOURCES)                                                                                             \
    X(CL_OUT_OF_HOST_MEMORY)                                                                                           \
    X(CL_MEM_COPY_OVERLAP)                                                                                             \
    X(CL_BUILD_PROGRAM_FAILURE)                                                                                        \
    X(CL_MISALIGNED_SUB_BUFFER_OFFSET)                                                                                 \
    X(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)                                                                    \
    X(CL_LINK_PROGRAM_FAILURE)                                                                                         \
    X(CL_INVALID_VALUE)                                                                                                \
    X(CL_INVALID_PLATFORM)                                                                                             \
    X(CL_INVALID_DEVICE)                                                                                               \
    X(CL_INVALID_CONTEXT)                                                                                              \
    X(CL_INVALID_COMMAND_QUEUE)                                                                                        \
    X(CL_INVALID_MEM_OBJECT)                                                                                           \
    X(CL_INVALID_BINARY)                                                                                               \
    X(CL_INVALID_BUILD_OPTIONS)                                                                                        \
    X(CL_INVALID_PROGRAM)                                                                                              \
    X(CL_INVALID_PROGRAM_EXECUTABLE)                                                                                   \
    X(CL_INVALID_KERNEL_NAME)                                                                                          \
    X(CL_INVALID_KERNEL)                                                                                               \
    X(CL_INVALID_ARG_INDEX)                                                                                            \
    X(CL_INVALID_ARG_VALUE)                                                                                            \
    X(CL_INVALID_ARG_SIZE)                                                                                             \
    X(CL_INVALID_KERNEL_ARGS)                                                                                          \
    X(CL_INVALID_WORK_DIMENSION)                                                                                       \
    X(CL_INVALID_WORK_GROUP_SIZE)                                                                                      \
    X(CL_INVALID_WORK_ITEM_SIZE)                                                                                       \
    X(CL_INVALID_EVENT)                                                                                                \
    X(CL_INVALID_OPERATION)                                                                                            \
    X(CL_INVALID_BUFFER_SIZE)                                                                                          \
    X(CL_INVALID_GLOBAL_WORK_SIZE)                                                                                     \
    X(CL_INVALID_PROPERTY)                                                                                             \
    X(CL_PLATFORM_NOT_FOUND_KHR)

const char *ocl_error_name(cl_int code, char room[OCL_NAME_BYTES])
{
    switch (code) {
#define OCL_NAME(name)                                                                                                 \
    case name:                                                                                                         \
        return #name;
        OCL_CODES(OCL_NAME)
#undef OCL_NAME
    default:
        snprintf(room, OCL_NAME_BYTES, "error %d", code);
        return room;
    }
}

enum err ocl_check(cl_int code, const char *what, struct err_info *info)
{
    char room[OCL_NAME_BYTES];
    if (code == CL_SUCCESS) {
        return ERR_OK;
    }
    bool is_memory =
        code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY || code == CL_INVALID_BUFFER_SIZE;
    return err_set(info, is_memory ? ERR_NOMEM : ERR_LOST, "opencl", "%s: %s", what, ocl_error_name(code, room));
}
