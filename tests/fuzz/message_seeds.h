// tests/fuzz/message_seeds.h - the first inputs of the fuzzers of messages, texts and structs.
#ifndef LMDBIO_TESTS_FUZZ_MESSAGE_SEEDS_H_
#define LMDBIO_TESTS_FUZZ_MESSAGE_SEEDS_H_

#include <filesystem>

namespace lmdbio::test {

// Writes directory/{control,kept,links,readers,rounds,state,structs,texts,timeline}/*
// Throws std::runtime_error if a file cannot be written.
void WriteMessageSeeds(const std::filesystem::path& directory);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_FUZZ_MESSAGE_SEEDS_H_
