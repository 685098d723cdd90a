/* tests/api/c/c_driver.h - a program in C that uses a GPU by itself, through its driver. */
#ifndef LMDBIO_TESTS_API_C_C_DRIVER_H_
#define LMDBIO_TESTS_API_C_C_DRIVER_H_

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "tests/api/c/c_check.h"

/* The driver, as a program would use it. */
static int (*lookup)(const char* name, void** function, int version, uint64_t flags, int* found);

/* C has no cast from an object to a function. */
static void (*function_of(void* object))(void) {
  void (*function)(void) = NULL;
  memcpy(&function, &object, sizeof function);
  return function;
}

static void (*find(const char* name))(void) {
  void* found = NULL;
  int how = 0;
  CHECK(lookup(name, &found, 12000, 0, &how) == 0 && found != NULL);
  if (found == NULL) exit(1);
  return function_of(found);
}

#define DRIVER(name, ...) ((int (*)(__VA_ARGS__))find(name))

static void* primary = NULL;
static void* stream = NULL;

static void open_driver(void) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  CHECK(library != NULL);
  if (library == NULL) exit(1);
  lookup = (int (*)(const char*, void**, int, uint64_t, int*))function_of(
      dlsym(library, "cuGetProcAddress_v2"));
  CHECK(lookup != NULL);
  CHECK(DRIVER("cuInit", unsigned)(0) == 0);
  CHECK(DRIVER("cuDevicePrimaryCtxRetain", void**, int)(&primary, 0) == 0);
  CHECK(DRIVER("cuCtxSetCurrent", void*)(primary) == 0);
  CHECK(DRIVER("cuStreamCreateWithPriority", void**, unsigned, int)(&stream, 1, 0) == 0);
}

/* Copies bytes that work on the stream sees. */
static inline void read_device(void* to, uint64_t address, size_t size_bytes) {
  CHECK(DRIVER("cuMemcpyDtoHAsync", void*, uint64_t, size_t, void*)(to, address, size_bytes,
                                                                    stream) == 0);
  CHECK(DRIVER("cuStreamSynchronize", void*)(stream) == 0);
}

#endif /* LMDBIO_TESTS_API_C_C_DRIVER_H_ */
