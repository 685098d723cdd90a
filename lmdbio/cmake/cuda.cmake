# The machine code of the kernels for GPUs (lmdbio/kernels), made by nvcc.
#
# CMake's own language CUDA is not used: it needs a compiler in every build, and links CUDA's
# runtime. Here nvcc makes one file, which becomes bytes of an object of the library. Without nvcc
# the library has no kernels, and says so when they are asked for.
#
# Sets LMDBIO_KERNELS_FILE to the path of the fat binary, or to nothing.

set(LMDBIO_CUDA AUTO CACHE STRING "Kernels for GPUs, made by nvcc: AUTO (if there is one), ON, OFF")
set_property(CACHE LMDBIO_CUDA PROPERTY STRINGS AUTO ON OFF)
set(LMDBIO_NVCC_VERSION_MIN 12.1)  # parameters of kernels may be larger than 4 KB since then
set(LMDBIO_KERNELS_FILE "")

# lmdbio_nvcc_options(OPTIONS MACHINES): options of nvcc, and the machines that it makes code for.
# Later machines translate the PTX. All machine code is made from it, so nvcc compiles only once.
function(lmdbio_nvcc_options options machines)
  execute_process(COMMAND ${LMDBIO_NVCC} --list-gpu-code OUTPUT_VARIABLE known ERROR_QUIET)
  set(names "")
  foreach(number 80 90 100)
    if("${known}" MATCHES "sm_${number}[^0-9a-z]")
      list(APPEND names sm_${number})
    endif()
  endforeach()
  list(APPEND names compute_80)
  list(JOIN names "," codes)
  list(JOIN names ", " names)
  set(chosen -gencode "arch=compute_80,code=[${codes}]")
  # A tenth of the size. Drivers before CUDA 12.4 cannot read it, but code of nvcc 13 is not for
  # them.
  if(LMDBIO_NVCC_VERSION VERSION_GREATER_EQUAL 13.0)
    list(APPEND chosen --compress-mode=size)
  endif()
  set(${options} ${chosen} PARENT_SCOPE)
  set(${machines} "${names}" PARENT_SCOPE)
endfunction()

# lmdbio_try_nvcc(PROBLEM): why kernels cannot be made; empty if they can. nvcc compiles a kernel of
# one line, once for each nvcc and host compiler, because it refuses some of the latter.
function(lmdbio_try_nvcc problem)
  set(${problem} "" PARENT_SCOPE)
  if(NOT LMDBIO_NVCC)
    set(${problem} "there is no nvcc (scripts/setup --cuda installs it)" PARENT_SCOPE)
    return()
  endif()
  set(tried "${LMDBIO_NVCC} ${CMAKE_CXX_COMPILER}")
  if("${LMDBIO_NVCC_TRIED}" STREQUAL "${tried}")
    return()
  endif()
  if(LMDBIO_NVCC_VERSION VERSION_LESS LMDBIO_NVCC_VERSION_MIN)
    set(reason "${LMDBIO_NVCC} is version '${LMDBIO_NVCC_VERSION}'")
    set(${problem} "${reason}; lmdbio needs ${LMDBIO_NVCC_VERSION_MIN}" PARENT_SCOPE)
    return()
  endif()
  set(folder ${PROJECT_BINARY_DIR}/nvcc)
  file(WRITE ${folder}/trial.cu
       "__global__ void trial(const __grid_constant__ int number, int* into) { *into = number; }\n")
  execute_process(
    COMMAND ${LMDBIO_NVCC} ${LMDBIO_NVCC_HOST} -std=c++20 -fatbin -arch=sm_80
            -o ${folder}/trial.fatbin ${folder}/trial.cu
    RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    string(REGEX REPLACE "\n.*" "" first "${text}")
    set(${problem} "${LMDBIO_NVCC} fails: ${first}" PARENT_SCOPE)
    return()
  endif()
  set(LMDBIO_NVCC_TRIED "${tried}" CACHE INTERNAL "The compilers that have made a kernel together")
endfunction()

# The folders of `scripts/setup --cuda`
file(GLOB lmdbio_nvcc_folders
     ${PROJECT_SOURCE_DIR}/build/cuda/lib/python3*/site-packages/nvidia/cu*)
if(LMDBIO_CUDA)
  find_program(LMDBIO_NVCC nvcc
    HINTS ENV CUDA_HOME ENV CUDA_PATH
    PATHS /usr/local/cuda ${lmdbio_nvcc_folders}
    PATH_SUFFIXES bin
    DOC "The compiler of kernels for GPUs")
  mark_as_advanced(LMDBIO_NVCC)
  # nvcc takes its host compiler from the path, unless it is told which. It only preprocesses with
  # it.
  set(LMDBIO_NVCC_HOST "")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_CROSSCOMPILING)
    set(LMDBIO_NVCC_HOST -ccbin ${CMAKE_CXX_COMPILER})
  endif()
  if(LMDBIO_NVCC)
    execute_process(COMMAND ${LMDBIO_NVCC} --version OUTPUT_VARIABLE text ERROR_QUIET)
    string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" unused "${text}")
    set(LMDBIO_NVCC_VERSION "${CMAKE_MATCH_1}")
    lmdbio_nvcc_options(LMDBIO_NVCC_MACHINE_OPTIONS LMDBIO_NVCC_MACHINES)
  endif()
  lmdbio_try_nvcc(lmdbio_nvcc_problem)
  if(lmdbio_nvcc_problem AND LMDBIO_CUDA STREQUAL "AUTO")
    message(STATUS "LMDBIO_CUDA=AUTO: the library has no kernels for GPUs: ${lmdbio_nvcc_problem}")
  elseif(lmdbio_nvcc_problem)
    message(FATAL_ERROR "LMDBIO_CUDA=${LMDBIO_CUDA}: ${lmdbio_nvcc_problem}")
  else()
    set(LMDBIO_KERNELS_FILE ${PROJECT_BINARY_DIR}/lmdbio/device_kernels.fatbin)
    message(STATUS "LMDBIO_CUDA=${LMDBIO_CUDA}: kernels for GPUs by nvcc ${LMDBIO_NVCC_VERSION} "
                   "for ${LMDBIO_NVCC_MACHINES}")
  endif()
else()
  message(STATUS "LMDBIO_CUDA=OFF: the library has no kernels for GPUs")
endif()

# The arithmetic is that of the host: a product is rounded before it is added, and small numbers are
# kept.
set(LMDBIO_NVCC_OPTIONS -std=c++20 -O3 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true)

# lmdbio_add_kernels(SOURCE DEPENDS ...) makes the fat binary.
function(lmdbio_add_kernels source)
  cmake_parse_arguments(arg "" "" "DEPENDS" ${ARGN})
  list(TRANSFORM arg_DEPENDS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  add_custom_command(OUTPUT ${LMDBIO_KERNELS_FILE}
    COMMAND ${LMDBIO_NVCC} ${LMDBIO_NVCC_HOST} ${LMDBIO_NVCC_OPTIONS} ${LMDBIO_NVCC_MACHINE_OPTIONS}
            -I${PROJECT_SOURCE_DIR} -fatbin -o ${LMDBIO_KERNELS_FILE}
            ${CMAKE_CURRENT_SOURCE_DIR}/${source}
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source} ${arg_DEPENDS}
    COMMENT "Making kernels for GPUs: ${LMDBIO_NVCC_MACHINES}" VERBATIM)
  set(definitions
    "LMDBIO_KERNELS_FILE=\"${LMDBIO_KERNELS_FILE}\""
    "LMDBIO_KERNELS_COMPILER=\"nvcc ${LMDBIO_NVCC_VERSION}\""
    "LMDBIO_KERNELS_MACHINES=\"${LMDBIO_NVCC_MACHINES}\"")
  set_source_files_properties(kernels/kernel_image.cc PROPERTIES
    SKIP_UNITY_BUILD_INCLUSION ON
    OBJECT_DEPENDS ${LMDBIO_KERNELS_FILE}
    COMPILE_DEFINITIONS "${definitions}")
endfunction()
