/* Calls of OpenCL that fail when they are told to. Programs that link it (unittests, infcgi_faulty) call it in the place
 * of the loader, to which it hands on: any driver that is installed, with faults. It is told by fake_opencl_arm or, before
 * the first call, by FAKE_OPENCL in the environment; rules with commas between them:
 *
 *   CALL:N:CODE       the N-th call (1 = the next) fails: clCreateBuffer:3:CL_OUT_OF_RESOURCES
 *   CALL:N+:CODE      it and all calls of that name behind it
 *   CALL:N!:CODE      it, and then every call of any name: the device is gone
 *   CALL:N:crash      it ends the process, as a driver does that crashes
 *   CALL:N+:skip      they seem to do well, and do nothing: of clEnqueueNDRangeKernel alone
 *   CALL@WORD:N:CODE  counts those alone that have to do with WORD: in a kernel's name or its program's options, in the
 *                     options or the source of what is built
 *   dot:HOW           the device says that it has an instruction for dot products of bytes, and its compiler
 *                     has a function for that which is right, wrong, or none; broken: it says nothing, and plain ones
 *                     are wrong
 *   barrier:none      kernels have no barriers
 *
 * Threads: one at a time. */
#ifndef INFCGI_TEST_FAKE_OPENCL_H
#define INFCGI_TEST_FAKE_OPENCL_H

/* In the place of all rules before, and from now on calls are counted anew. */
void fake_opencl_arm(const char *rules);

/* Who is told of each launch, before it is made: the kernel's name and its program's options. NULL: nobody. */
void fake_opencl_watch(void (*seen)(const char *about));

/* Calls of that name. */
long fake_opencl_calls(const char *name);

/* Contexts, queues, buffers, programs, kernels and events that were made and not given back; ever. */
long fake_opencl_live(void);

#endif
