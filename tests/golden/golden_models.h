#ifndef INFCGI_TESTS_GOLDEN_MODELS_H
#define INFCGI_TESTS_GOLDEN_MODELS_H

/* The golden models that tests/golden/models must hold, and their bounds without --high-precision. */

/* NAME.gguf; NAME.hf, a SafeTensors folder. MORE: another way to store the weights of a listed model; `make test`
 * treats it as a model's second format. KINDS: a model of many weight types, for each of which a device compiles its
 * own programs; `make test` runs it on a device only without high precision. WIDE: `make test` runs the model also with
 * the other ISAs, in shards, in parts and behind a remote back end. */
enum { GGUF = 1, FOLDER = 2, MORE = 4, KINDS = 8, WIDE = 16 };

/* For weights that are computed as floats (F32, F16, BF16, and those converted to F16: FP8, codes of 8 bits with zero
 * points or with scattered groups): the bounds with high precision. */
#define FLOATS 0, 0

static const struct golden_model {
    const char *name;
    unsigned formats;
    /* Bounds as in golden.c, for activations of 8 bits, which affect models of random weights and a few dozen
     * dimensions far more than real models (docs/benchmarks.md). They are twice the worst value measured on ref, avx2
     * and avx512 (EPYC, Zen 4, November 2026), and 1.5 times for llama-quants*, where types of 2 to 5 bits make it
     * large. The logits of ISAs differ by less than a fifth, except for llama-quants-*, where ref has two thirds of the
     * others' error. */
    double fast_logits, fast_logprobs;
} golden_models[] = {
    {"bert-cls", GGUF | FOLDER, FLOATS},
    {"bert-dense-mean", FOLDER, FLOATS},
    {"bert-mean", GGUF | FOLDER, FLOATS},
    {"bert-xlmr-mean", GGUF | FOLDER, FLOATS},
    {"deepseek2-glm", GGUF | FOLDER, FLOATS},
    {"deepseek2-head", GGUF, FLOATS},
    {"deepseek2-v2", GGUF | FOLDER, FLOATS},
    {"deepseek2-v2-lite", GGUF | FOLDER, FLOATS},
    {"deepseek2-v3", GGUF | FOLDER | WIDE, FLOATS},
    {"deepseek2-v3-fused", GGUF, 0.1, 0.1},
    {"gemma-embedding-mean", GGUF | FOLDER, FLOATS},
    {"gemma2-caps", GGUF | FOLDER, FLOATS},
    {"gemma3-linear", FOLDER, FLOATS},
    {"gemma3-linear-cap", GGUF | WIDE, 0.13, 0.14},
    {"gemma3-local", GGUF | FOLDER, FLOATS},
    {"gemma3-window", GGUF, FLOATS},
    {"gemma3n-sparse", GGUF | FOLDER | WIDE, FLOATS},
    {"gemma3n-streams", FOLDER, FLOATS},
    {"gemma4-experts", GGUF | FOLDER | WIDE, FLOATS},
    {"gemma4-per-layer", GGUF | FOLDER | WIDE, FLOATS},
    {"gemma4-unified", FOLDER, FLOATS},
    {"glm4-norms", GGUF | FOLDER, FLOATS},
    {"glm4-vision", GGUF, FLOATS},
    {"glm4moe-air", GGUF | FOLDER, FLOATS},
    {"glm4moe-bias", GGUF | FOLDER, FLOATS},
    {"glm4moe-groups", GGUF | FOLDER | WIDE, FLOATS},
    {"glm4moe-head", GGUF | FOLDER, FLOATS},
    {"gpt-oss-sinks", GGUF | FOLDER | WIDE, FLOATS},
    {"granite-four", GGUF | FOLDER, FLOATS},
    {"granite-nope", FOLDER, FLOATS},
    {"granite-scales", GGUF | FOLDER, FLOATS},
    {"granitehybrid-dense", GGUF | FOLDER, FLOATS},
    {"granitehybrid-experts", GGUF | FOLDER | WIDE, FLOATS},
    {"granitemoe-scales", GGUF | FOLDER, FLOATS},
    {"granitemoe-shared", GGUF | FOLDER, FLOATS},
    {"lfm2-conv", GGUF | FOLDER, FLOATS},
    {"lfm2-vl", FOLDER, FLOATS},
    {"lfm2moe-conv", GGUF | FOLDER | WIDE, FLOATS},
    {"llama-biases", GGUF | FOLDER, FLOATS},
    {"llama-eagle3", GGUF, FLOATS},
    {"llama-gqa-tied", GGUF, FLOATS},
    {"llama-linear-odd", GGUF, FLOATS},
    {"llama-linear-old", FOLDER, FLOATS},
    {"llama-mistral-window", FOLDER, FLOATS},
    {"llama-mixtral", GGUF | FOLDER, FLOATS},
    {"llama-mixtral-q8", GGUF | WIDE, 0.22, 0.74},
    {"llama-mixtral-q8", FOLDER, FLOATS},
    {"llama-mixtral-window", FOLDER, FLOATS},
    {"llama-quants", GGUF | KINDS | WIDE, 0.45, 0.48},
    {"llama-quants-few", GGUF | KINDS | WIDE, 0.48, 0.56},
    {"llama-quants-grid", GGUF | KINDS | WIDE, 0.42, 0.36},
    {"llama-rope3-mqa", GGUF, FLOATS},
    {"llama-rope3-old", FOLDER, FLOATS},
    {"llama-yarn", GGUF | FOLDER, FLOATS},
    {"mistral3-small", GGUF | FOLDER, FLOATS},
    {"mistral3-yarn", GGUF | FOLDER, FLOATS},
    {"mistral4-far", FOLDER, FLOATS},
    {"mistral4-latent", GGUF | FOLDER, FLOATS},
    {"modern-bert-cls", GGUF | FOLDER | WIDE, FLOATS},
    {"nomic-bert-mean", GGUF | FOLDER, FLOATS},
    {"olmo2-wide", GGUF | FOLDER | WIDE, FLOATS},
    {"olmo2-window", GGUF | FOLDER, FLOATS},
    {"phi3-long", GGUF | FOLDER, FLOATS},
    {"phi3-window", GGUF | FOLDER, FLOATS},
    {"quant-awq-128", FOLDER, 0.28, 0.28},
    {"quant-awq-32", FOLDER | MORE, 0.18, 0.18},
    {"quant-awq-64", FOLDER | MORE, 0.11, 0.24},
    {"quant-awq-experts", FOLDER | MORE, 0.12, 0.12},
    {"quant-fp8-block", FOLDER, FLOATS},
    {"quant-fp8-channel", FOLDER | MORE, FLOATS},
    {"quant-fp8-delta", FOLDER | MORE, FLOATS},
    {"quant-fp8-experts", FOLDER | MORE, FLOATS},
    {"quant-fp8-mamba", FOLDER | MORE, FLOATS},
    {"quant-fp8-tensor", FOLDER | MORE, FLOATS},
    {"quant-fp8-tiles", FOLDER | MORE, FLOATS},
    {"quant-fp8-whole", FOLDER | MORE, FLOATS},
    {"quant-gptq-128", FOLDER | WIDE, 0.19, 0.32},
    {"quant-gptq-32-order", FOLDER | MORE, FLOATS},
    {"quant-gptq-32-order-v2", FOLDER | MORE, FLOATS},
    {"quant-gptq-32-zero", FOLDER | MORE, 0.4, 0.24},
    {"quant-gptq-64-v2", FOLDER | MORE, 0.14, 0.28},
    {"quant-gptq-8bit", FOLDER | MORE, 0.17, 0.36},
    {"quant-gptq-8bit-zero", FOLDER | MORE, FLOATS},
    {"quant-gptq-delta", FOLDER | MORE, 0.19, 0.18},
    {"quant-gptq-row", FOLDER | MORE, 0.2, 0.17},
    {"quant-gptq-row-order", FOLDER | MORE, 0.3, 0.34},
    {"quant-int8", FOLDER, 0.16, 0.22},
    {"quant-mxfp4", FOLDER, 0.2, 0.17},
    {"quant-packed-128-order", FOLDER | MORE, 0.4, 0.3},
    {"quant-packed-32", FOLDER, 0.22, 0.19},
    {"quant-packed-64-zero", FOLDER | MORE, 0.28, 0.34},
    {"quant-packed-8bit", FOLDER | MORE, 0.26, 0.24},
    {"quant-packed-row", FOLDER | MORE, 0.24, 0.24},
    {"qwen2-bias", GGUF, FLOATS},
    {"qwen2-one-head", FOLDER, FLOATS},
    {"qwen2-window", FOLDER, FLOATS},
    {"qwen2moe-shared", GGUF | FOLDER, FLOATS},
    {"qwen2vl-text", GGUF | FOLDER, FLOATS},
    {"qwen2vl-window", FOLDER, FLOATS},
    {"qwen3-eagle3", GGUF, FLOATS},
    {"qwen3-last", GGUF | FOLDER, FLOATS},
    {"qwen3-norms", GGUF | FOLDER, FLOATS},
    {"qwen35-delta", GGUF | FOLDER, FLOATS},
    {"qwen35-head", GGUF | FOLDER, FLOATS},
    {"qwen35moe-delta", GGUF | FOLDER, FLOATS},
    {"qwen35moe-head", GGUF | FOLDER | WIDE, FLOATS},
    {"qwen3moe-norms", GGUF | FOLDER, FLOATS},
    {"qwen3next-delta", GGUF | FOLDER, FLOATS},
    {"qwen3vl-text", GGUF | FOLDER, FLOATS},
    {"qwen3vlmoe-saved", FOLDER, FLOATS},
    {"qwen3vlmoe-text", GGUF | FOLDER, FLOATS},
    {"seed_oss-bias", GGUF | FOLDER, FLOATS},
    {"smollm3-layers", FOLDER, FLOATS},
    {"smollm3-nope", GGUF | FOLDER, FLOATS},
};

#endif
