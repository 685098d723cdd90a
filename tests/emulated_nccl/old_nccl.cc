// An NCCL that has nothing but its version.

extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version);

int ncclGetVersion(int* version) {
  *version = LMDBIO_TEST_NCCL_VERSION;
  return 0;
}
