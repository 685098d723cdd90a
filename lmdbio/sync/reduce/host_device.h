// lmdbio/sync/reduce/host_device.h - marks functions that are compiled for the host and for GPUs.
//
// Such a function calls only others of its kind, and nothing of the standard library at run time.
// It is inlined everywhere, so no copy with external linkage exists: reduce_avx2.cc could otherwise
// give the whole program a copy with instructions that some processors lack.
#ifndef LMDBIO_SYNC_REDUCE_HOST_DEVICE_H_
#define LMDBIO_SYNC_REDUCE_HOST_DEVICE_H_

#ifdef __CUDACC__
#define LMDBIO_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define LMDBIO_HOST_DEVICE inline __attribute__((always_inline))
#endif

#endif  // LMDBIO_SYNC_REDUCE_HOST_DEVICE_H_
