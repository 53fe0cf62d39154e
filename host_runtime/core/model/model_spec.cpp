#include "host_runtime/core/model/model_spec.h"

namespace csdsim::host {

ModelShape ModelSpec::shape() const { return ModelShape::of(*this); }

void describe(ParamVisitor& v, ModelSpec& c) {
  const Cite open = assumed("no default: name a preset or a path");
  v.preset("model", c.preset);
  v.optional("path", c.path, "none", "Directory of a checkpoint (config.json, safetensors, tokenizer).",
             assumed("a preset has no weights"));
  v.optional("config", c.config, "none",
             "A config.json of Hugging Face alone: the sizes of a model, without its weights.",
             assumed("a preset has sizes"));
  v.param("architecture", c.architecture, "Family: positions, biases, and matrices of the feed-forward network.",
          paper("OPT (arXiv 2205.01068), the family that InstInfer runs"));
  v.param("layers", c.layers, {1, 1024}, "Decoder layers.", open);
  v.param("heads", c.heads, {1, 1024}, "Query heads.", open);
  v.param("kv_heads", c.kv_heads, {1, 1024}, "Key/value heads; divides heads.", open);
  v.param("head_dim", c.head_dim, {1, 1024}, "Components per head.", open);
  v.param("hidden_size", c.width, {1, 1'048'576}, "Width of the residual stream.", open);
  v.param("ffn_size", c.ffn, {1, 4'194'304}, "Width inside the feed-forward network.", open);
  v.param("vocab_size", c.vocab, {1, 16'777'216}, "Entries of the vocabulary.", open);
  v.param("max_positions", c.max_positions, {1, 16'777'216}, "Longest sequence that the model supports.", open);
  Embeddings embeddings = embeddings_of(c);
  v.param("embeddings", embeddings, "Whether the output projection needs a separate table.",
          paper("OPT (arXiv 2205.01068): tied"));
  c.tied_embeddings = embeddings == Embeddings::tied;
  v.optional("fatrelu", c.fatrelu, "off", {Ratio{0, 1}, Ratio{100, 1}},
             "FATReLU of gated networks: silu(gate) below this threshold is zero, so that neurons stay inactive.",
             paper("ProSparse (arXiv 2402.13516): a checkpoint needs it to be sparse; as trained it has SiLU"));
}

}  // namespace csdsim::host
