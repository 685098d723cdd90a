# The CMake toolchain of the wheels. scripts/build-wheel sets the environment:
#   LMDBIO_WHEEL_MACHINE  x86_64 or aarch64
#   LMDBIO_WHEEL_FOLDER   has bin, the compilers, and libraries, the only ones that are found
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR $ENV{LMDBIO_WHEEL_MACHINE})
set(CMAKE_C_COMPILER $ENV{LMDBIO_WHEEL_FOLDER}/bin/cc)
set(CMAKE_CXX_COMPILER $ENV{LMDBIO_WHEEL_FOLDER}/bin/c++)
set(CMAKE_AR $ENV{LMDBIO_WHEEL_FOLDER}/bin/ar CACHE FILEPATH "")
set(CMAKE_RANLIB $ENV{LMDBIO_WHEEL_FOLDER}/bin/ranlib CACHE FILEPATH "")

# The linker strips, because the machine's strip may not know the processor.
set(CMAKE_STRIP /bin/true CACHE FILEPATH "")
set(CMAKE_SHARED_LINKER_FLAGS_INIT -s)
set(CMAKE_EXE_LINKER_FLAGS_INIT -s)

set(CMAKE_FIND_ROOT_PATH $ENV{LMDBIO_WHEEL_FOLDER}/libraries)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind INCLUDE LIBRARY PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
