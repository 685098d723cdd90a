// bench/sync/layers/training_graph.h - the computation graph of one training iteration of a
// network.
//
// A framework has such a graph. This one has only the nodes that every framework needs. TensorFlow
// adds nodes for activations, constants, shapes, copies, moving averages and weight decay.
//
//   nodes                              number         each needs
//   image, labels                      2              -
//   a tensor                           tensors        -
//   forward, a layer                   layers         its layers or the image, its tensors
//   loss, loss gradient                2              the results without a taker, the labels
//   gradient of a layer's input        needs          the layer's gradient, its tensors, its inputs
//   sum of gradients                   layers with    the gradients that the takers of its result
//                                      two takers     give
//   gradient of a tensor               tensors        the layer's gradient, its inputs
//   allreduce (a collective)           tensors        the gradient of the tensor
//   momentum of a tensor               tensors        -
//   update of a tensor                 tensors        allreduce, momentum, tensor
//   step                               1              the loss, all updates
//
// The gradient of a layer is the one that its taker gives, or their sum, or that of the loss.
//
// Source: dissertation 6.3.4, table 6.1.
#ifndef LMDBIO_BENCH_SYNC_LAYERS_TRAINING_GRAPH_H_
#define LMDBIO_BENCH_SYNC_LAYERS_TRAINING_GRAPH_H_

#include "bench/sync/layers/layer_network.h"
#include "lmdbio/sync/graph/graph.h"

namespace lmdbio::bench {

struct TrainingGraph {
  sync::Graph graph;
  // Possible fetches. An evaluation fetches the loss alone.
  sync::Graph::NodeIndex loss = 0;
  sync::Graph::NodeIndex step = 0;
};

// The collectives have the names and sizes of the network's tensors. They are added from the last
// layer to the first, as a backward pass has its gradients ready.
TrainingGraph MakeTrainingGraph(const LayerNetwork& network);

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_LAYERS_TRAINING_GRAPH_H_
