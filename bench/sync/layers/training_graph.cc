#include "bench/sync/layers/training_graph.h"

#include <string>
#include <utility>
#include <vector>

namespace lmdbio::bench {
namespace {

using NodeIndex = sync::Graph::NodeIndex;
using Nodes = std::vector<NodeIndex>;

class Builder {
 public:
  explicit Builder(const LayerNetwork& network) : network_(network) {}

  TrainingGraph Build() && {
    AddForward();
    AddBackward();
    result_.step = Add("step", {result_.loss});
    for (const NodeIndex update : updates_) result_.graph.AddEdge(update, result_.step);
    return std::move(result_);
  }

 private:
  NodeIndex Add(std::string name, const Nodes& needs = {}) {
    return WithNeeds(result_.graph.AddNode(std::move(name)), needs);
  }

  NodeIndex WithNeeds(NodeIndex node, const Nodes& needs) {
    for (const NodeIndex need : needs) result_.graph.AddEdge(need, node);
    return node;
  }

  Nodes InputsOf(const Layer& layer) const {
    if (layer.needs.empty()) return {image_};
    Nodes inputs;
    for (const uint32_t need : layer.needs) inputs.push_back(forward_[need]);
    return inputs;
  }

  Nodes TensorsOf(const Layer& layer) const {
    Nodes tensors;
    for (const uint32_t tensor : layer.tensors) tensors.push_back(tensors_[tensor]);
    return tensors;
  }

  void AddForward() {
    image_ = Add("image");
    for (const GradientTensor& tensor : network_.tensors) tensors_.push_back(Add(tensor.name));
    Nodes results = {Add("labels")};
    for (const Layer& layer : network_.layers) {
      forward_.push_back(WithNeeds(Add(layer.name, InputsOf(layer)), TensorsOf(layer)));
      if (layer.gives.empty()) results.push_back(forward_.back());
    }
    result_.loss = Add("loss", results);
    loss_gradient_ = Add("loss.gradient", results);
  }

  // The takers of a layer come before it in a backward pass, so all parts of its gradient are
  // known.
  void AddBackward() {
    gradient_parts_.resize(network_.layers.size());
    for (size_t i = network_.layers.size(); i-- > 0;) {
      const Layer& layer = network_.layers[i];
      const NodeIndex gradient = GradientOf(layer, gradient_parts_[i]);
      const Nodes inputs = InputsOf(layer);
      for (const uint32_t need : layer.needs) {
        const NodeIndex part = Add(layer.name + ".input_gradient", {gradient});
        gradient_parts_[need].push_back(WithNeeds(WithNeeds(part, TensorsOf(layer)), inputs));
      }
      for (const uint32_t tensor : layer.tensors) {
        const std::string& name = network_.tensors[tensor].name;
        AddUpdate(tensor, WithNeeds(Add(name + ".gradient", {gradient}), inputs));
      }
    }
  }

  NodeIndex GradientOf(const Layer& layer, const Nodes& parts) {
    if (parts.empty()) return loss_gradient_;
    return parts.size() == 1 ? parts.front() : Add(layer.name + ".gradient_sum", parts);
  }

  void AddUpdate(uint32_t tensor, NodeIndex gradient) {
    const GradientTensor& values = network_.tensors[tensor];
    sync::Request request;
    request.name = values.name;
    request.shape = {static_cast<int64_t>(values.count)};
    const NodeIndex sum = WithNeeds(result_.graph.AddCollective(std::move(request)), {gradient});
    updates_.push_back(
        Add(values.name + ".update", {sum, Add(values.name + ".momentum"), tensors_[tensor]}));
  }

  const LayerNetwork& network_;
  TrainingGraph result_;
  NodeIndex image_ = 0;
  NodeIndex loss_gradient_ = 0;
  Nodes tensors_;                      // [tensors]
  Nodes forward_;                      // [layers]
  std::vector<Nodes> gradient_parts_;  // [layers] from each taker
  Nodes updates_;                      // [tensors]
};

}  // namespace

TrainingGraph MakeTrainingGraph(const LayerNetwork& network) { return Builder(network).Build(); }

}  // namespace lmdbio::bench
