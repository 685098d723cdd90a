#include "lmdbio/ranks/mpi/mpi_calls.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "lmdbio/base/check.h"

namespace lmdbio::ranks {
namespace {

ErrorCode CodeOf(int mpi_code) {
  int error_class = MPI_ERR_OTHER;
  MPI_Error_class(mpi_code, &error_class);
  if (error_class == MPI_ERR_NO_MEM) return ErrorCode::kResourceExhausted;
  if (error_class == MPI_ERR_RMA_SHARED) return ErrorCode::kInvalidArgument;
  return ErrorCode::kInternal;
}

// An MPI type of `count` bytes; in an array of them, the starts are `stride_bytes` apart.
class StridedBytes {
 public:
  StridedBytes() = default;
  ~StridedBytes() {
    if (type_ != MPI_DATATYPE_NULL) MPI_Type_free(&type_);
  }
  StridedBytes(const StridedBytes&) = delete;
  StridedBytes& operator=(const StridedBytes&) = delete;

  Status Make(int count, uint64_t stride_bytes) {
    MPI_Datatype contiguous = MPI_DATATYPE_NULL;
    LMDBIO_TRY_VOID(
        MpiStatus(MPI_Type_contiguous(count, MPI_BYTE, &contiguous), "MPI_Type_contiguous"));
    const int code =
        MPI_Type_create_resized(contiguous, /*lb=*/0, static_cast<MPI_Aint>(stride_bytes), &type_);
    MPI_Type_free(&contiguous);
    LMDBIO_TRY_VOID(MpiStatus(code, "MPI_Type_create_resized"));
    return MpiStatus(MPI_Type_commit(&type_), "MPI_Type_commit");
  }
  MPI_Datatype type() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

}  // namespace

Status MpiStatus(int code, std::string_view call) {
  if (code == MPI_SUCCESS) [[likely]]
    return {};
  std::array<char, MPI_MAX_ERROR_STRING> text = {};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return Fail(
      CodeOf(code),
      fmt::format("{}: {}", call, std::string_view(text.data(), static_cast<size_t>(length))));
}

// Both questions are permitted at any time, also before MPI_Init and after MPI_Finalize.
bool IsMpiRunning() {
  int is_initialized = 0;
  int is_finalized = 0;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  return is_initialized != 0 && is_finalized == 0;
}

Status BroadcastInPieces(MPI_Comm communicator, int root, MutableBytes bytes,
                         uint64_t piece_bytes_max) {
  for (uint64_t begin = 0; begin < bytes.size(); begin += piece_bytes_max) {
    const MutableBytes piece =
        bytes.subspan(begin, std::min<uint64_t>(piece_bytes_max, bytes.size() - begin));
    LMDBIO_TRY_VOID(MpiStatus(
        MPI_Bcast(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, root, communicator),
        "MPI_Bcast"));
  }
  return {};
}

// In each step every rank contributes the next piece of its bytes. The strided type puts the pieces
// to their final places, so no second buffer is needed.
Status AllGatherInPieces(MPI_Comm communicator, Bytes mine, MutableBytes all,
                         uint64_t piece_bytes_max) {
  int rank_count = 0;
  MPI_Comm_size(communicator, &rank_count);
  LMDBIO_CHECK(all.size() == mine.size() * static_cast<uint64_t>(rank_count));
  piece_bytes_max = std::min(
      piece_bytes_max, std::max<uint64_t>(kPieceBytesMax / static_cast<uint64_t>(rank_count), 1));
  for (uint64_t begin = 0; begin < mine.size(); begin += piece_bytes_max) {
    const int count = static_cast<int>(std::min<uint64_t>(piece_bytes_max, mine.size() - begin));
    // The pieces of two ranks are mine.size() apart in `all`.
    StridedBytes place;
    LMDBIO_TRY_VOID(place.Make(count, mine.size()));
    LMDBIO_TRY_VOID(MpiStatus(MPI_Allgather(mine.data() + begin, count, MPI_BYTE,
                                            all.data() + begin, 1, place.type(), communicator),
                              "MPI_Allgather"));
  }
  return {};
}

}  // namespace lmdbio::ranks
