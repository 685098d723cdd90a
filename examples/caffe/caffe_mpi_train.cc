// caffe_mpi_train SOLVER.prototxt [--weights FILE,...] [--snapshot FILE]: data-parallel training
// with Caffe on CPUs, one solver for each rank. It uses only the public set-up calls of Caffe and
// the callbacks of the solver.
//
// Gradients are averaged over ranks before each update, as Caffe does for several GPUs. So P ranks
// with batches of B take the same steps as one rank with batches of P*B. Rank 0 tests and writes
// snapshots.
#include <mpi.h>

#include <climits>
#include <string>

#include <caffe/util/signal_handler.h>
#include <lmdbio_mpi.h>
#include <boost/algorithm/string.hpp>
#include <caffe/caffe.hpp>

#include "examples/caffe/lmdbio_data_layer.h"

DEFINE_string(weights, "", "initial weights, files separated by ','");
DEFINE_string(snapshot, "", "solver state from which training continues");

namespace {

using caffe::Caffe;
namespace SolverAction = caffe::SolverAction;
using Solver = caffe::Solver<float>;

// Joins the solvers of all ranks into one training job.
class RankSolver : public Solver::Callback {
 public:
  RankSolver(Solver* solver, int rank_count)
      : solver_(solver),
        rank_count_(rank_count),
        signals_(SolverAction::STOP, SolverAction::SNAPSHOT) {
    solver_->add_callback(this);
    solver_->SetActionFunction([this] { return TakeAction(); });
  }

  // Seeds differ between ranks, so the first weights do, too. Rank 0 broadcasts its weights.
  void BroadcastWeights() {
    for (caffe::Blob<float>* blob : solver_->net()->learnable_params()) {
      MPI_Bcast(blob->mutable_cpu_data(), blob->count(), MPI_FLOAT, 0, MPI_COMM_WORLD);
    }
  }

 protected:
  void on_start() override {}

  void on_gradients_ready() override {
    AgreeOnAction();
    for (caffe::Blob<float>* blob : solver_->net()->learnable_params()) {
      float* gradient = blob->mutable_cpu_diff();
      MPI_Allreduce(MPI_IN_PLACE, gradient, blob->count(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      caffe::caffe_scal(blob->count(), 1.0F / static_cast<float>(rank_count_), gradient);
    }
  }

 private:
  // A signal may reach only some ranks, or ranks in different iterations. So the ranks exchange
  // their requests, and all obey after the same iteration.
  void AgreeOnAction() {
    int asked = signals_.GetActionFunction()();
    MPI_Allreduce(MPI_IN_PLACE, &asked, 1, MPI_INT, MPI_BOR, MPI_COMM_WORLD);
    agreed_ = (asked & SolverAction::STOP) != 0 ? SolverAction::STOP
                                                : static_cast<SolverAction::Enum>(asked);
  }

  SolverAction::Enum TakeAction() {
    const SolverAction::Enum action = agreed_;
    agreed_ = SolverAction::NONE;
    return action == SolverAction::SNAPSHOT && !Caffe::root_solver() ? SolverAction::NONE : action;
  }

  Solver* solver_;
  int rank_count_;
  caffe::SignalHandler signals_;
  SolverAction::Enum agreed_ = SolverAction::NONE;
};

void LoadWeights(Solver* solver) {
  std::vector<std::string> files;
  boost::split(files, FLAGS_weights, boost::is_any_of(","));
  for (const std::string& file : files) solver->net()->CopyTrainedLayersFrom(file);
}

int OpenForAllRanks(const char* path, const lmdbio_options* options, lmdbio_loader** out_loader) {
  return lmdbio_open_mpi(MPI_COMM_WORLD, path, options, out_loader);
}

void Train(const char* solver_path, int rank_count) {
  caffe::SolverParameter param;
  caffe::ReadSolverParamsFromTextFileOrDie(solver_path, &param);
  param.set_solver_mode(caffe::SolverParameter::CPU);
  boost::shared_ptr<Solver> solver(caffe::SolverRegistry<float>::CreateSolver(param));
  RankSolver rank_solver(solver.get(), rank_count);
  if (!FLAGS_snapshot.empty()) {
    solver->Restore(FLAGS_snapshot.c_str());  // every rank: momentum is not broadcast
  } else if (!FLAGS_weights.empty()) {
    LoadWeights(solver.get());
  }
  rank_solver.BroadcastWeights();
  if (Caffe::root_solver()) {
    solver->Solve();
  } else {
    solver->Step(param.max_iter() - solver->iter());
  }
  // Rank 0 may still be testing. Loaders that share memory are closed together.
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  gflags::SetUsageMessage("caffe_mpi_train SOLVER.prototxt [--weights FILE,...] [--snapshot FILE]");
  FLAGS_alsologtostderr = true;
  caffe::GlobalInit(&argc, &argv);
  int rank = 0, rank_count = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
  if (argc != 2 || (!FLAGS_weights.empty() && !FLAGS_snapshot.empty())) {
    if (rank == 0) gflags::ShowUsageWithFlagsRestrict(argv[0], "caffe_mpi_train");
    MPI_Finalize();
    return 2;
  }
  Caffe::set_mode(Caffe::CPU);
  Caffe::set_solver_count(rank_count);
  Caffe::set_solver_rank(rank);
  Caffe::set_multiprocess(rank_count > 1);
  caffe::SetLmdbioOpenTogether(OpenForAllRanks);
  Train(argv[1], rank_count);
  MPI_Finalize();
  return 0;
}
