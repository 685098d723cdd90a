// As in_c.c, with the C API in C++.
#include <cstdint>
#include <iostream>

#include <lmdbio.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  lmdbio_dataset* dataset = nullptr;
  const lmdbio_options options = LMDBIO_OPTIONS_INIT;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  int status = lmdbio_dataset_open(argv[1], &options, &dataset);
  if (status == LMDBIO_OK) status = lmdbio_dataset_count(dataset, &count);
  for (std::uint64_t number = 0; status == LMDBIO_OK && number < count; ++number) {
    const lmdbio_record* record = nullptr;
    status = lmdbio_dataset_read(dataset, &number, 1, &record);
    if (status == LMDBIO_OK) bytes += record->value_size;
  }
  if (status != LMDBIO_OK) std::cerr << lmdbio_dataset_message(dataset) << '\n';
  lmdbio_dataset_close(dataset);
  std::cout << count << " records, " << bytes << " bytes\n";
  return status;
}
