/* Makes OpenCL calls fail on request. Programs that link it (unittests, infcgi_faulty) call it instead of the loader,
 * to which it forwards: any installed driver, with faults. The rules come from fake_opencl_arm or, before the first
 * call, from FAKE_OPENCL in the environment; commas separate them:
 *
 *   CALL:N:CODE       the N-th call (1 = the next) fails: clCreateBuffer:3:CL_OUT_OF_RESOURCES
 *   CALL:N+:CODE      it and all later calls of that name fail
 *   CALL:N!:CODE      it and all later calls of any name fail: the device is lost
 *   CALL:N:crash      it ends the process, like a driver that crashes
 *   CALL:N+:skip      they return success and do nothing: only for clEnqueueNDRangeKernel
 *   CALL@WORD:N:CODE  counts only the calls with WORD in the kernel's name or its program's options, or in the
 *                     options or the source of a build
 *   dot:HOW           the device reports an instruction for dot products of bytes, and its compiler has a function
 *                     for it that is right, wrong, or none; broken: it reports no instruction, and plain products
 *                     are wrong
 *   barrier:none      kernels have no barriers
 *
 * Threads: one at a time. */
#ifndef INFCGI_TEST_FAKE_OPENCL_H
#define INFCGI_TEST_FAKE_OPENCL_H

/* Replaces all rules and resets the counters of calls. */
void fake_opencl_arm(const char *rules);

/* Sets the function that receives the kernel's name and its program's options before each launch. NULL: none. */
void fake_opencl_watch(void (*seen)(const char *about));

/* Returns the number of calls of that name. */
long fake_opencl_calls(const char *name);

/* Returns the number of contexts, queues, buffers, programs, kernels and events not released since the process
 * started. */
long fake_opencl_live(void);

#endif
