# Toolchain of the preset aarch64: GCC's cross compiler, with Debian's libraries for arm64 beside
# those of the machine. docs/packaging.md "Cross-compiling" has the packages.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

# pkg-config shall not offer the libraries of the machine that compiles.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pkgconfig:/usr/share/pkgconfig)

# Tests run by emulation, if the program for it is there.
find_program(LMDBIO_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
mark_as_advanced(LMDBIO_QEMU)
if(LMDBIO_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${LMDBIO_QEMU})
endif()
