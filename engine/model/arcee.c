/* Arcee's AFM [Arcee AI 2025]: Llama's decoder with feed-forward blocks without a gate, whose activation is a squared ReLU.
 * Keys: llama.cpp b11434, src/models/arcee.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    b->style.is_ungated = true;
    b->style.act = PLAN_RELU_SQUARED;
    return blocks_build_decoder(b);
}

static const struct hf_family hf_arcee = {
    .architectures = {"ArceeForCausalLM"},
    .arch = "arcee",
    .defaults = "{\"rms_norm_eps\": 1e-5}", /* transformers 5.23, ArceeConfig */
    .act = HF_RELU_SQUARED,
};

const struct model_family model_arcee = {
    .members = "AFM 4.5B",
    .arch = "arcee",
    .hf = {&hf_arcee},
    .build = build,
};
