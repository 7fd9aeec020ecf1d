/* Values of config.json that change what a model computes: each is read, or refused by its name with what was expected
 * and what was found. Every row changes a golden folder in some values. */
#include "engine/model/model.h"
#include "tests/support/folder.h"
#include "tests/support/golden_folder.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *hf_values_suite(void);

/* The members that take the place of the folder's, and what the message says; NULL: the folder is fine. */
struct row {
    const char *model, *members, *word;
};

static enum err load(const char *model, const char *members, struct gguf **g, struct plan **p, struct err_info *info)
{
    char text[1024];
    *g = NULL;
    *p = NULL;
    *info = (struct err_info){0};
    snprintf(text, sizeof text, "{%s}", members);
    enum err err = model_open(golden_folder(model, NULL, text), g, info);
    return err != ERR_OK ? err : model_build(*g, 0, p, info);
}

static void check_row(const struct row *r)
{
    struct gguf *g;
    struct plan *p;
    struct err_info info;
    enum err err = load(r->model, r->members, &g, &p, &info);
    if (r->word == NULL) {
        ck_assert_msg(err == ERR_OK, "%s: %s: %s", r->model, r->members, info.text);
    } else {
        ck_assert_msg(err == ERR_BAD_CONFIG && strstr(info.text, r->word) != NULL, "%s: %s: %s: %s", r->model,
                      r->members, err_code(err), info.text);
        ck_assert_msg(strncmp(info.text, "config.json: ", 13) == 0, "%s", info.text);
    }
    plan_free(&p);
    gguf_close(&g);
    folder_remove();
}

/* --- what the plan takes for granted ----------------------------------------------------------------------------- */

static const struct row fixed_rows[] = {
    {"llama-yarn", "\"hidden_act\":\"swish\"", NULL},
    {"llama-yarn", "\"hidden_act\":null", NULL},
    {"llama-yarn", "\"hidden_act\":\"gelu\"", "hidden_act: expected silu, found 'gelu'"},
    {"llama-yarn", "\"hidden_act\":7", "hidden_act: expected silu, found 7"},
    {"llama-yarn", "\"hidden_act\":[\"silu\"]", "hidden_act: expected silu, found an array"},
    {"llama-yarn", "\"hidden_activation\":\"relu\"", "hidden_activation: expected silu, found 'relu'"},
    {"gemma2-caps", "\"hidden_activation\":\"gelu_new\"", NULL},
    {"gemma2-caps", "\"hidden_act\":\"gelu\"", NULL}, /* nobody looks: there is hidden_activation */
    {"gemma2-caps", "\"hidden_activation\":null,\"hidden_act\":\"gelu\"", NULL},
    {"gemma2-caps", "\"hidden_activation\":null,\"hidden_act\":\"silu\"", "hidden_act: expected gelu_pytorch_tanh"},
    {"gemma2-caps", "\"hidden_activation\":\"gelu\"", "hidden_activation: expected gelu_pytorch_tanh, found 'gelu'"},
    {"gemma3n-sparse", "\"hidden_activation\":\"silu\"", "hidden_activation: expected gelu_pytorch_tanh"},
    {"gemma4-per-layer", "\"hidden_activation\":\"silu\"", "hidden_activation: expected gelu_pytorch_tanh"},
    {"gpt-oss-sinks", "\"swiglu_limit\":7", NULL},
    {"gpt-oss-sinks", "\"swiglu_limit\":null", NULL},
    {"gpt-oss-sinks", "\"swiglu_limit\":0", "swiglu_limit: expected 7, found 0"},
    {"gpt-oss-sinks", "\"swiglu_limit\":6.5", "swiglu_limit: expected 7, found 6.5"},
    {"gpt-oss-sinks", "\"swiglu_limit\":\"7\"", "swiglu_limit: expected 7, found '7'"},
    {"gemma3n-sparse", "\"altup_correct_scale\":false", "altup_correct_scale: expected true, found false"},
    {"gemma3n-sparse", "\"attention_bias\":true", "attention_bias: expected false, found true"},
    {"gemma2-caps", "\"use_bidirectional_attention\":true", "use_bidirectional_attention: expected false, found true"},
    {"bert-cls", "\"is_decoder\":true", "is_decoder: expected false, found true"},
    {"eurobert-mean", "\"hidden_act\":\"gelu\"", "hidden_act: expected silu, found 'gelu'"},
    {"neo-bert-cls", "\"max_position_embeddings\":null,\"max_length\":128,\"rms_norm\":true,\"hidden_act\":\"SwiGLU\"",
     NULL},
    {"neo-bert-cls", "\"intermediate_size\":107", NULL}, /* 71 and 1 */
    {"neo-bert-cls", "\"hidden_act\":\"gelu\"", "hidden_act: expected swiglu or SwiGLU or silu, found 'gelu'"},
    {"neo-bert-cls", "\"rms_norm\":false", "rms_norm: expected true, found false"},
    {"neo-bert-cls", "\"rope\":false", "rope: expected true, found false"},
    {"neo-bert-cls", "\"ngpt\":true", "ngpt: expected false, found true"},
    {"neo-bert-cls", "\"intermediate_size\":1", "intermediate_size: expected 2 to 1048576, found 1"},
    {"nomic-bert-moe-mean", "\"num_shared_experts\":0,\"ffn_div\":1.0,\"use_rms_norm\":false", NULL}, /* as published */
    {"nomic-bert-moe-mean", "\"moe_normalize_expert_weights\":true", "expert_weights: expected false, found true"},
    {"nomic-bert-moe-mean", "\"expert_choice_router\":true", "expert_choice_router: expected false, found true"},
    {"nomic-bert-moe-mean", "\"num_shared_experts\":1", "num_shared_experts: expected 0, found 1"},
    {"nomic-bert-moe-mean", "\"ffn_div\":2", "ffn_div: expected 1, found 2"},
    {"nomic-bert-moe-mean", "\"rotary_emb_scale_base\":512", "rotary_emb_scale_base: expected none, found"},
    {"nomic-bert-moe-mean", "\"activation_function\":\"swiglu\"", "expected gelu, found 'swiglu'"},
    {"nomic-bert-moe-mean", "\"moe_every_n_layers\":1", "moe_every_n_layers: expected 2 to 1024, found 1"},
    {"nomic-bert-moe-mean", "\"num_experts\":7", "num_experts: expected"},
    {"jina-bert-v3-mean", "\"position_embedding_type\":\"rotary\"", NULL},
    {"jina-bert-v3-mean", "\"position_embedding_type\":\"absolute\"",
     "position_embedding_type: expected rotary, found 'abs"},
    {"jina-bert-v3-mean", "\"hidden_act\":\"relu\"", "hidden_act: expected gelu, found 'relu'"},
    {"jina-bert-v3-mean", "\"is_decoder\":true", "is_decoder: expected false, found true"},
    {"jina-bert-v3-mean", "\"max_position_embeddings\":2", "max_position_embeddings: expected 3 to"},
    {"jina-bert-v2-mean", "\"position_embedding_type\":\"absolute\"",
     "position_embedding_type: expected alibi, found 'abs"},
    {"jina-bert-v2-mean", "\"feed_forward_type\":\"reglu\"",
     "feed_forward_type: expected geglu or original, found 'reglu'"},
    {"jina-bert-v2-mean", "\"is_decoder\":true", "is_decoder: expected false, found true"},
    {"jina-bert-v2-mean", "\"hidden_act\":\"relu\"", "hidden_act: expected gelu, found 'relu'"},
    {"jina-bert-v2-code-mean", "\"intermediate_size\":81", "intermediate_size: expected 80, what the first layer's"},
    {"t5encoder-relu-mean", /* as published */
     "\"dense_act_fn\":null,\"is_gated_act\":null,\"n_positions\":512,\"is_encoder_decoder\":true,"
     "\"relative_attention_max_distance\":null,\"output_past\":true",
     NULL},
    {"t5encoder-relu-mean", "\"feed_forward_proj\":null", NULL},
    {"t5encoder-relu-mean", "\"feed_forward_proj\":\"gated-gelu\"",
     "feed_forward_proj: expected relu, as there is wi.weight, found 'gated-gelu'"},
    {"t5encoder-relu-mean", "\"feed_forward_proj\":\"gelu\"", "feed_forward_proj: expected relu"},
    {"t5encoder-relu-mean", "\"dense_act_fn\":\"gelu\"", "dense_act_fn: expected relu, found 'gelu'"},
    {"t5encoder-relu-mean", "\"is_gated_act\":true", "is_gated_act: expected false, found true"},
    {"t5encoder-gated-mean", "\"feed_forward_proj\":\"gated-silu\"",
     "feed_forward_proj: expected gated-gelu, as there is wi_0.weight, found 'gated-silu'"},
    {"t5encoder-gated-mean", "\"feed_forward_proj\":null", "feed_forward_proj: expected gated-gelu"},
    {"t5encoder-gated-mean", "\"dense_act_fn\":\"gelu\"", "dense_act_fn: expected gelu_new, found 'gelu'"},
    {"t5encoder-gated-mean", "\"relative_attention_max_distance\":256",
     "relative_attention_max_distance: expected 128, found 256"},
    {"t5encoder-gated-mean", "\"is_decoder\":true", "is_decoder: expected false, found true"},
    {"deepseek2-v2", "\"scoring_func\":\"softmax\",\"topk_method\":\"greedy\"", NULL},
    {"deepseek2-v2", "\"scoring_func\":\"banana\"", "scoring_func: expected softmax, found 'banana'"},
    {"deepseek2-v2", "\"topk_method\":\"banana\"", "expected greedy or group_limited_greedy, found 'banana'"},
    {"deepseek2-v2", "\"moe_layer_freq\":2", "moe_layer_freq: expected 1, found 2"},
    {"deepseek2-v3", "\"scoring_func\":\"softmax\"", "scoring_func: expected sigmoid, found 'softmax'"},
    {"deepseek2-v3", "\"topk_method\":\"noaux_tc\",\"moe_layer_freq\":1", NULL},
    {"deepseek2-v3", "\"topk_method\":\"greedy\"", "topk_method: expected noaux_tc, found 'greedy'"},
    {"arcee-squared", "\"hidden_act\":null", NULL},
    {"arcee-squared", "\"hidden_act\":\"silu\"", "hidden_act: expected relu2, found 'silu'"},
    {"qwen2moe-shared", "\"use_sliding_window\":true", "use_sliding_window: expected false, found true"},
    {"qwen3moe-norms", "\"use_sliding_window\":true", "use_sliding_window: expected false, found true"},
    {"mellum-window", "\"norm_topk_prob\":false,\"mlp_layer_types\":null", NULL},
    {"mellum-window", "\"mlp_layer_types\":[\"dense\",\"sparse\",\"sparse\",\"sparse\",\"sparse\"]",
     "mlp_layer_types: expected only sparse, found 1 dense layers"},
    {"mellum-window", "\"mlp_layer_types\":\"sparse\"", "mlp_layer_types: expected an array of names, one a layer"},
    {"mellum-window", "\"use_sliding_window\":false", "use_sliding_window: expected true, as layer_types has"},
    {"mellum-window", "\"sliding_window\":null", "sliding_window: expected an integer, found none"},
    {"mellum-window", "\"rope_parameters\":null", "rope_parameters: expected an object, found none"},
    {"mellum-window", "\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":\"yarn\"}}",
     "rope_parameters.sliding_attention.rope_type: expected default, found 'yarn'"},
    {"mellum-window", "\"rope_parameters\":{\"sliding_attention\":{\"partial_rotary_factor\":0.5}}",
     "rope_parameters.sliding_attention.partial_rotary_factor: expected 1, as in global layers, found 0.5"},
    {"apertus-xielu", "\"hidden_act\":\"silu\"", "hidden_act: expected xielu, found 'silu'"},
    {"apertus-xielu", "\"rope_parameters\":null", "rope_parameters: expected an object, found none"},
    {"starcoder2-biases", "\"hidden_act\":\"gelu\"", "hidden_act: expected gelu_pytorch_tanh or gelu_new"},
    {"starcoder2-biases", "\"hidden_act\":\"gelu_new\",\"use_bias\":null", NULL},
    {"starcoder2-biases", "\"use_bias\":false", "use_bias: expected true, as there is q_proj.bias, found false"},
    {"starcoder2-window", "\"use_bias\":true", "use_bias: expected false, as there is no q_proj.bias, found true"},
    {"phi2-parallel", "\"qk_layernorm\":true", "qk_layernorm: expected false, found true"},
    {"phi2-parallel", "\"hidden_act\":\"gelu\"", "hidden_act: expected gelu_new or gelu_pytorch_tanh"},
    {"phi2-parallel", "\"hidden_act\":\"gelu_pytorch_tanh\"", NULL},
    {"step35-limits", "\"moe_layers_enum\":\" 1,\",\"swiglu_limits\":null", NULL},
    {"step35-limits", "\"moe_layers_enum\":\"2\"",
     "moe_layers_enum: expected layer 1 with experts, as it has a router"},
    {"step35-limits", "\"moe_layers_enum\":\"one\"", "moe_layers_enum: expected numbers of layers, found 'one'"},
    {"step35-limits", "\"moe_layers_enum\":[1]", "moe_layers_enum: expected a text of numbers"},
    {"step35-limits", "\"swiglu_limits\":[1]", "swiglu_limits: expected an array of 3 numbers, one a layer, found"},
    {"step35-limits", "\"swiglu_limits_shared\":[0,-1,0]", "swiglu_limits_shared: expected numbers of 0 to 1e6"},
    {"step35-limits", "\"partial_rotary_factors\":[0.5,0.5,0.5]",
     "partial_rotary_factors: expected 1 for layer 1, found"},
    {"step35-limits", "\"rope_theta\":[1e4,5e3,5e3]", "rope_theta: expected one number for all layers of a kind"},
    {"step35-limits", "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"local\"]",
     "layer_types: expected sliding_attention and full_attention, one a layer, found 'local'"},
    {"step35-limits", "\"attention_other_setting\":{\"head_dim\":16}", "setting: expected head_dim 12, found 16"},
    {"step35-limits", "\"yarn_only_types\":[\"full_attention\"]", NULL},
    {"step35-limits", "\"yarn_only_types\":[\"full_attention\",\"sliding_attention\"]",
     "types: expected only full_attention"},
    {"step35-limits", "\"query_pre_attn_scalar\":16", "query_pre_attn_scalar: expected head_dim 12, found 16"},
    {"step35-limits", "\"zero_centered\":false", "zero_centered: expected true, found false"},
    {"step35-limits", "\"norm_expert_weight\":false", "norm_expert_weight: expected true, found false"},
    {"step35-limits", "\"use_head_wise_attn_gate\":false", "use_head_wise_attn_gate: expected true, found false"},
    {"mimo2-values", "\"n_shared_experts\":0,\"layer_types\":null", NULL},
    {"mimo2-values", "\"norm_topk_prob\":false", "norm_topk_prob: expected true, found false"},
    {"mimo2-values", "\"scoring_func\":\"softmax\"", "scoring_func: expected sigmoid, found 'softmax'"},
    {"mimo2-values", "\"topk_method\":\"greedy\"", "topk_method: expected noaux_tc, found 'greedy'"},
    {"mimo2-values", "\"n_shared_experts\":1", "n_shared_experts: expected 0, found 1"},
    {"mimo2-values", "\"swa_head_dim\":20", "swa_head_dim: expected 24, as head_dim says, found 20"},
    {"mimo2-values", "\"swa_num_attention_heads\":2", "heads: expected 4, as num_attention_heads says, found 2"},
    {"mimo2-values", "\"v_head_dim\":12", "v_head_dim: expected num_attention_heads 4 times it to be 64"},
    {"mimo2-values", "\"add_full_attention_sink_bias\":true", "sink_bias: expected false, as a layer lacks sinks"},
    {"mimo2-values", "\"add_swa_attention_sink_bias\":false", "sink_bias: expected true, as a layer has sinks"},
    {"mimo2-values", "\"add_swa_attention_sink_bias\":null,\"add_full_attention_sink_bias\":null", NULL},
    {"mimo2-values", "\"hybrid_layer_pattern\":null", "hybrid_layer_pattern: expected an array of 0 and 1"},
    {"mimo2-values", "\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\"]",
     "layer_types[1]: expected sliding_attention, as hybrid_layer_pattern says, found 'full_attention'"},
    {"mimo2-saved", "\"layer_types\":[\"sliding_attention\",\"local\"]",
     "layer_types[1]: expected sliding_attention or full_attention, found 'local'"},
    {"mimo2-values", "\"moe_layer_freq\":[0,1,1]", "moe_layer_freq: expected 0 for layer 2, as it has no router"},
    {"mimo2-values", "\"rope_theta\":null", "rope_theta: expected a number, found none"},
    {"mimo2-saved", "\"attention_value_scale\":1.0", NULL},
    {"mimo2-saved", "\"mlp_layer_types\":[\"dense\",\"dense\"]",
     "moe_layer_freq: expected 1 for layer 0, as it has a router"},
    {"mimo2-saved", "\"mlp_layer_types\":[\"dense\"]", "mlp_layer_types: expected an array of 2 names, one a layer"},
    {"laguna-heads", "\"gating\":\"per_head\",\"mlp_layer_types\":null", NULL},
    {"laguna-heads", "\"gating\":false", "gating: expected true, per-head or per-element, found false"},
    {"laguna-heads", "\"moe_router_logit_softcapping\":30.0", "moe_router_logit_softcapping: expected 0, found 30"},
    {"laguna-heads", "\"moe_apply_router_weight_on_input\":true", "router_weight_on_input: expected false, found true"},
    {"laguna-heads", "\"num_experts\":6", "num_experts: expected 5, the rows of the router, found 6"},
    {"smallthinker-window", "\"moe_layer_layout\":[1,1,1],\"hidden_act\":\"relu\"", NULL},
    {"smallthinker-window", "\"moe_layer_layout\":[1,1,0]",
     "moe_layer_layout: expected 1 for every layer, found 0 for"},
    {"smallthinker-window", "\"moe_enable_early_router\":false", "moe_enable_early_router: expected true, found false"},
    {"smallthinker-window", "\"moe_enable_secondary_experts\":true", "moe_enable_secondary_experts: expected false"},
    {"smallthinker-window", "\"moe_primary_router_apply_softmax\":1", "apply_softmax: expected true or false, found 1"},
    {"smallthinker-window", "\"moe_num_primary_experts\":6",
     "moe_num_primary_experts: expected 5, the rows of the router"},
    {"smallthinker-window", "\"use_qk_norm\":true", "use_qk_norm: expected false, found true"},
    {"smallthinker-window", "\"hidden_act\":\"silu\"", "hidden_act: expected relu, found 'silu'"},
    {"smollm3-nope", "\"use_sliding_window\":true", "use_sliding_window: expected false, found true"},
    {"llama4-experts", "\"attn_temperature_tuning\":4,\"moe_layers\":null", NULL}, /* as published */
    {"llama4-experts", "\"attn_temperature_tuning\":\"yes\"", "attn_temperature_tuning: expected true or false, found"},
    {"llama4-experts", "\"attn_scale\":-1", "attn_scale: expected 0 to 1000, found -1"},
    {"llama4-experts", "\"floor_scale\":0", "floor_scale: expected 1 to"},
    {"llama4-experts", "\"use_qk_norm\":1", "use_qk_norm: expected true or false, found 1"},
    {"llama4-experts", "\"moe_layers\":[0,3]",
     "moe_layers: expected the last of each 2 layers, as interleave_moe_layer_step"},
    {"llama4-experts", "\"hidden_act\":\"gelu\"", "hidden_act: expected silu, found 'gelu'"},
    {"minimax-m2-wide", "\"scoring_func\":\"sigmoid\",\"use_qk_norm\":true,\"attn_type_list\":[1,1]", NULL},
    {"minimax-m2-wide", "\"scoring_func\":\"softmax\"", "scoring_func: expected sigmoid, found 'softmax'"},
    {"minimax-m2-wide", "\"use_qk_norm\":false", "use_qk_norm: expected true, found false"},
    {"minimax-m2-wide", "\"qk_norm_type\":\"per_head\"", "qk_norm_type: expected per_layer, found 'per_head'"},
    {"minimax-m2-wide", "\"shared_intermediate_size\":8", "shared_intermediate_size: expected 0, found 8"},
    {"minimax-m2-wide", "\"attn_type_list\":[1,0]", "attn_type_list: expected only 1, full attention, found 0"},
    {"gemma-tied", "\"hidden_act\":\"gelu\"", NULL},
    {"gemma-tied", "\"use_bidirectional_attention\":true", "use_bidirectional_attention: expected false, found true"},
    {"olmoe-wide", "\"clip_qkv\":null,\"norm_topk_prob\":true", NULL},
    {"olmoe-wide", "\"clip_qkv\":8.0", "clip_qkv: expected none, found 8"},
    {"dots1-shared", "\"scoring_func\":\"noaux_tc\",\"sliding_window\":8,\"max_window_layers\":3", NULL},
    {"dots1-shared", "\"scoring_func\":\"softmax\"", "scoring_func: expected sigmoid or noaux_tc, found 'softmax'"},
    {"dots1-shared", "\"sliding_window\":8,\"max_window_layers\":2",
     "max_window_layers: expected 3, the number of layers, or more, found 2"},
    {"bailingmoe2-groups", "\"score_function\":\"softmax\"", "score_function: expected sigmoid, found 'softmax'"},
    {"bailingmoe2-groups", "\"norm_topk_prob\":false", "norm_topk_prob: expected true, found false"},
    {"bailingmoe2-groups", "\"use_qk_norm\":false", "use_qk_norm: expected true, found false"},
    {"bailingmoe2-groups", "\"num_nextn_predict_layers\":1,\"moe_shared_expert_intermediate_size\":24", NULL},
    {"hunyuan-dense-alpha", "\"use_cla\":true", "use_cla: expected false, found true"},
    {"hunyuan-moe-shared", "\"use_qk_norm\":false", "use_qk_norm: expected true, found false"},
    {"hunyuan-moe-shared", "\"moe_topk\":2,\"moe_intermediate_size\":null,\"num_shared_expert\":1", NULL},
    {"hunyuan-moe-shared", "\"moe_topk\":[2,1]", "moe_topk: expected one number for all layers"},
    {"hunyuan-moe-shared", "\"moe_topk\":[]", "moe_topk: expected one number for all layers"},
    {"hunyuan-moe-shared", "\"moe_topk\":null", "moe_topk: expected an integer, found none"},
    {"hunyuan-moe-shared", "\"num_shared_expert\":[-1,-1]", "num_shared_expert: expected one number for all layers"},
    {"hunyuan-moe-shared", "\"num_shared_expert\":1025", "num_shared_expert: expected 0 to 1024, found 1025"},
    {"ernie4_5-pairs", "\"use_bias\":true", "use_bias: expected false, found true"},
    {"ernie4_5-moe-steps", "\"moe_norm_min\":0.5", "moe_norm_min: expected 1e-12, found 0.5"},
    {"ernie4_5-moe-steps", "\"moe_layer_end_index\":-1", NULL},
    {"ernie4_5-moe-steps", "\"moe_layer_end_index\":1",
     "moe_layer_end_index: expected -1 or 2, the last layer, found 1"},
    {"exaone4-window", "\"sliding_window_pattern\":\"LLLG\",\"layer_types\":null", NULL},
    {"exaone4-window", "\"sliding_window_pattern\":\"LG\"", "sliding_window_pattern: expected 4 or LLLG or 0"},
    {"cohere2-window", "\"rotary_pct\":0.5", "rotary_pct: expected 1, found 0.5"},
    {"cohere2-window", "\"use_parallel_block\":false", "use_parallel_block: expected true, found false"},
    {"cohere2-window", "\"use_qk_norm\":true", "use_qk_norm: expected false, found true"},
    {"cohere2-window", "\"sliding_window_pattern\":2", "sliding_window_pattern: expected 4, found 2"},
    {"cohere2moe-shared", "\"use_qk_norm\":true", "use_qk_norm: expected false, found true"},
    {"cohere2moe-shared", "\"shared_expert_combination_strategy\":\"sum\"",
     "shared_expert_combination_strategy: expected average, found 'sum'"},
    {"cohere2moe-shared", "\"prefix_dense_sliding_window_pattern\":2",
     "prefix_dense_sliding_window_pattern: expected 1, found 2"},
    {"cohere2moe-shared", "\"expert_selection_fn\":\"topk\"",
     "expert_selection_fn: expected softmax or sigmoid, found 'topk'"},
    {"cohere2moe-shared", "\"norm_topk_prob\":1", "norm_topk_prob: expected true or false, found 1"},
    {"cohere2moe-shared", "\"mlp_layer_types\":[\"sparse\",\"dense\",\"sparse\"]",
     "mlp_layer_types: expected dense layers before all sparse ones, found one after 1"},
    {"command-r-norms", "\"use_qk_norm\":false", "use_qk_norm: expected true, as there is q_norm.weight, found false"},
    {"command-r-parallel", "\"use_qk_norm\":true",
     "use_qk_norm: expected false, as there is no q_norm.weight, found true"},
    {"command-r-parallel", "\"use_qk_norm\":null,\"model_max_length\":131072", NULL},
    {"command-r-parallel", "\"model_max_length\":0", "model_max_length: expected 1 to"},
    {"mistral4-far", "\"text_config\":{\"n_group\":2}", "n_group: expected 1, found 2"},
    {"mistral4-far", "\"text_config\":{\"rope_parameters\":{\"llama_4_scaling_beta\":-1}}",
     "rope_parameters.llama_4_scaling_beta: expected 0 to 1000, found -1"},
    {"deepseek2-glm", "\"mlp_layer_types\":null", NULL}, /* one dense layer */
    {"deepseek2-glm", "\"mlp_layer_types\":[\"sparse\",\"dense\",\"sparse\"]",
     "mlp_layer_types: expected dense layers before all sparse ones, found one after 1"},
    {"deepseek2-glm", "\"mlp_layer_types\":[\"dense\",\"moe\",\"sparse\"]",
     "mlp_layer_types: expected dense and sparse, found 'moe'"},
    {"deepseek32-sparse", "\"layer_types\":null,\"mlp_layer_types\":null", NULL},
    {"deepseek32-sparse", "\"layer_types\":[\"indexed_attention\",\"full_attention\"]",
     "layer_types: expected indexed_attention, found 'full_attention'"},
    {"deepseek32-sparse", "\"layer_types\":7", "layer_types: expected an array of names, one a layer, found 7"},
    {"deepseek32-sparse", "\"scoring_func\":\"softmax\"", "scoring_func: expected sigmoid, found 'softmax'"},
    {"deepseek32-sparse", "\"indexer_rope_interleave\":true", "indexer_rope_interleave: expected false, found true"},
    {"glm-dsa-shared", "\"indexer_rope_interleave\":false", "indexer_rope_interleave: expected true, found false"},
    {"glm-dsa-shared", "\"indexer_types\":null,\"index_topk_pattern\":\"FSF\"", NULL},
    {"glm-dsa-shared", "\"indexer_types\":null,\"index_topk_freq\":4,\"index_skip_topk_offset\":1", NULL},
    {"glm-dsa-shared", "\"indexer_types\":null,\"index_topk_freq\":-1", "index_topk_freq: expected 0 to"},
    {"glm-dsa-shared", "\"indexer_types\":null,\"index_topk_pattern\":\"FXF\"",
     "index_topk_pattern: expected full (F) and shared (S), found another name for layer 1"},
    {"glm-dsa-shared", "\"indexer_types\":[\"full\",\"half\",\"full\"]",
     "indexer_types: expected full (F) and shared (S), found another name for layer 1"},
    {"glm-dsa-shared", "\"indexer_types\":[\"full\"]", "indexer_types: expected 3 layers, found 1"},
    {"qwen2vl-text", "\"text_config\":{\"rope_parameters\":{\"rope_type\":\"mrope\"}}", NULL},
    {"qwen2vl-text", "\"text_config\":{\"rope_parameters\":{\"mrope_section\":[]}}",
     "mrope_section: expected an array of 1 to 4 integers"},
    {"qwen3vlmoe-text", "\"text_config\":{\"mlp_only_layers\":[1]}", "mlp_only_layers: expected an empty array"},
    {"falcon-h1-norm", "\"attention_bias\":true", "attention_bias: expected false, found true"},
    {"falcon-h1-norm", "\"mlp_bias\":true", "mlp_bias: expected false, found true"},
    {"falcon-h1-norm", "\"mamba_proj_bias\":true", "mamba_proj_bias: expected false, found true"},
    {"falcon-h1-norm", "\"projectors_bias\":true", "projectors_bias: expected false, found true"},
    {"falcon-h1-norm", "\"mamba_norm_before_gate\":true",
     "mamba_norm_before_gate: expected false, as mamba_rms_norm is true, found true"},
    {"falcon-h1-norm", "\"mamba_norm_before_gate\":null", "mamba_norm_before_gate: expected false, as"},
    {"falcon-h1-plain", "\"mamba_norm_before_gate\":true", NULL},
    {"falcon-h1-norm", "\"mamba_rms_norm\":false",
     "mamba_rms_norm: expected true, as the folder has some such tensors"},
    {"falcon-h1-plain", "\"mamba_rms_norm\":true", "mamba_rms_norm: expected false, as the folder has no such tensors"},
    {"falcon-h1-norm", "\"mamba_conv_bias\":false", "mamba_conv_bias: expected true"},
    {"falcon-h1-norm", "\"time_step_limit\":[0.1,9]", "time_step_limit: expected [0, Infinity], found [0.1, 9]"},
    {"falcon-h1-norm", "\"mamba_d_head\":\"auto\"", NULL},
    {"falcon-h1-norm", "\"mamba_d_head\":9", "mamba_d_head: expected mamba_d_ssm / mamba_n_heads = 64 / 8, found 9"},
    {"falcon-h1-norm", "\"ssm_multipliers\":[1,1]", "ssm_multipliers: expected an array of 5 numbers"},
    {"falcon-h1-norm", "\"ssm_multipliers\":[1,1,\"a\",1,1]", "ssm_multipliers: expected numbers from"},
    {"falcon-h1-norm", "\"mlp_multipliers\":7", "mlp_multipliers: expected an array of 2 numbers"},
    {"falcon-h1-norm", "\"mlp_multipliers\":null,\"ssm_multipliers\":null,\"key_multiplier\":null", NULL},
    {"falcon-h1-norm", "\"key_multiplier\":1e9", "key_multiplier: expected -1e+06 to 1e+06, found 1e+09"},
    {"falcon-h1-norm", "\"embedding_multiplier\":\"a\"", "embedding_multiplier: expected a number"},
    {"falcon-h1-tied", "\"lm_head_multiplier\":2", NULL}, /* that of the embedding: one matrix */
    {"nemotron_h-dense", "\"mlp_hidden_act\":\"silu\"", "mlp_hidden_act: expected relu2, found 'silu'"},
    {"nemotron_h-dense", "\"mamba_hidden_act\":\"relu\"", "mamba_hidden_act: expected silu or swish, found 'relu'"},
    {"nemotron_h-dense", "\"attention_bias\":true", "attention_bias: expected false, found true"},
    {"nemotron_h-dense", "\"sliding_window\":8", "sliding_window: expected none, found 8"},
    {"nemotron_h-dense", "\"use_bias\":true",
     "use_bias: expected false, as the folder has no such tensors, found true"},
    {"nemotron_h-dense", "\"use_bias\":7", "use_bias: expected true or false, found 7"},
    {"nemotron_h-dense", "\"use_conv_bias\":false",
     "use_conv_bias: expected true, as the folder has some such tensors"},
    {"nemotron_h-dense", "\"time_step_limit\":[0.001,0.1]", "time_step_limit: expected [0, Infinity]"},
    {"nemotron_h-dense", "\"time_step_min\":0.1,\"rms_norm_eps\":1,\"expand\":9,\"rope_theta\":3,\"layer_types\":null",
     NULL},
    {"nemotron_h-dense", "\"head_dim\":null,\"attention_head_dim\":20", NULL},
    {"nemotron_h-dense",
     "\"hybrid_override_pattern\":null,\"layers_block_type\":[\"mamba\",\"mlp\",\"attention\",\"mlp\","
     "\"linear_attention\"]",
     NULL},
    {"nemotron_h-dense", "\"hybrid_override_pattern\":\"M-*-\"",
     "hybrid_override_pattern: expected 5 layers, as num_hidden_layers says, found 4"},
    {"nemotron_h-dense", "\"hybrid_override_pattern\":\"M-*-x\"",
     "hybrid_override_pattern: expected linear_attention (M), "
     "full_attention (*), mlp (-) or moe (E) as layer 4"},
    {"nemotron_h-dense", "\"hybrid_override_pattern\":null,\"num_hidden_layers\":null",
     "hybrid_override_pattern: expected 1 to 1024 layers, found 0"},
    {"nemotron_h-dense", "\"num_hidden_layers\":6", "hybrid_override_pattern: expected 6 layers"},
    {"nemotron_h_moe-latent", "\"layers_block_type\":[7]", "layers_block_type: expected linear_attention (M)"},
    {"nemotron_h_moe-latent", "\"layers_block_type\":null,\"hybrid_override_pattern\":\"MEM*E\"", NULL},
    {"nemotron_h_moe-latent", "\"layers_block_type\":null,\"hybrid_override_pattern\":\"MEM*-\"",
     "hybrid_override_pattern: expected no mlp next to moe, found 1"},
    {"nemotron_h_moe-latent", "\"mlp_bias\":true", "mlp_bias: expected false, found true"},
    {"nemotron_h_moe-latent", "\"n_shared_experts\":2", "n_shared_experts: expected 1, found 2"},
    {"jamba-experts", "\"mamba_proj_bias\":true", "mamba_proj_bias: expected false, found true"},
    {"jamba-experts", "\"sliding_window\":8", "sliding_window: expected none, found 8"},
    {"jamba-experts", "\"hidden_act\":\"gelu\"", "hidden_act: expected"},
    {"jamba-experts", "\"mamba_conv_bias\":false",
     "mamba_conv_bias: expected true, as the folder has some such tensors"},
    {"jamba-experts", "\"expert_layer_offset\":1",
     "expert_layer_period: expected experts in layer 1, where the folder has no router, found some"},
    {"jamba-experts", "\"expert_layer_offset\":3", "expert_layer_offset: expected 0 to 2, found 3"},
    {"jamba-experts", "\"num_experts\":1", "num_experts: expected 5, the rows of the router, found 1"},
    {"jamba-experts", "\"use_mamba_kernels\":null,\"mamba_dt_rank\":6,\"rope_theta\":3", NULL},
    {"jamba-dense", "\"num_experts\":2",
     "expert_layer_period: expected experts in layer 1, where the folder has no router, found some"},
    {"jamba-experts", "\"attn_layer_period\":0", "attn_layer_period: expected 1 to"},
    {"jamba-experts", "\"attn_layer_offset\":\"a\"", "attn_layer_offset: expected an integer"},
    {"jamba-experts", "\"mamba_expand\":0", "mamba_expand: expected 1 to"},
    {"jamba-experts", "\"mamba_dt_rank\":true", "mamba_dt_rank: expected an integer"},
    {"jamba-dense", "\"mamba_dt_rank\":\"auto\",\"use_mamba_kernels\":false", NULL},
    {"mamba-tied", "\"use_bias\":true", "use_bias: expected false, found true"},
    {"mamba-tied", "\"use_conv_bias\":false", "use_conv_bias: expected true, as the folder has some such tensors"},
    {"mamba-tied", "\"hidden_act\":\"gelu\"", "hidden_act: expected silu, found 'gelu'"},
    {"mamba-tied", "\"intermediate_size\":null,\"expand\":2", NULL},
    {"mamba-tied", "\"intermediate_size\":null,\"expand\":0", "expand: expected 1 to"},
    {"mamba-tied", "\"intermediate_size\":0", "intermediate_size: expected 1 to"},
    {"mamba-tied", "\"time_step_rank\":[5]", "time_step_rank: expected an integer"},
    {"mamba-tied", "\"expand\":16,\"mixer_rms_eps\":7,\"num_attention_heads\":7,\"residual_in_fp32\":false", NULL},
    {"mamba-falcon", "\"time_step_rank\":\"auto\",\"mixer_rms_eps\":null", NULL},
    {"mamba-falcon", "\"tie_word_embeddings\":true,\"max_position_embeddings\":4096", NULL},
    {"kimi-linear-experts", "\"mla_use_nope\":false", "mla_use_nope: expected true, found false"},
    {"kimi-linear-experts", "\"moe_router_activation_func\":\"softmax\"",
     "moe_router_activation_func: expected sigmoid, found 'softmax'"},
    {"kimi-linear-experts", "\"moe_layer_freq\":2", "moe_layer_freq: expected 1, found 2"},
    {"kimi-linear-experts", "\"num_nextn_predict_layers\":1", "num_nextn_predict_layers: expected 0, found 1"},
    {"kimi-linear-experts", "\"attention_bias\":true", "attention_bias: expected false, found true"},
    {"kimi-linear-experts", "\"linear_attn_config\":7", "linear_attn_config: expected an object, found 7"},
    {"kimi-linear-experts", "\"linear_attn_config\":{\"num_heads\":8}",
     "linear_attn_config.num_heads: expected num_attention_heads 4, found 8"},
    {"kimi-linear-groups", "\"linear_num_heads\":8", "linear_num_heads: expected num_attention_heads 4, found 8"},
    {"kimi-linear-experts", "\"linear_attn_config\":{\"full_attn_layers\":[4,4]}",
     "linear_attn_config: expected other layers from 1 to 4 in full_attn_layers, found 4"},
    {"kimi-linear-experts", "\"linear_attn_config\":{\"kda_layers\":[0]}",
     "linear_attn_config: expected other layers from 1 to 4 in kda_layers, found 0"},
    {"kimi-linear-experts", "\"linear_attn_config\":{\"kda_layers\":[1,2]}",
     "linear_attn_config: expected layer 3 in kda_layers or full_attn_layers, found it in none"},
    {"kimi-linear-experts", "\"linear_attn_config\":{\"kda_layers\":null}",
     "linear_attn_config: expected an array kda_layers, found none"},
    {"kimi-linear-experts", "\"topk_group\":2", "topk_group: expected 1 to 1, found 2"},
    {"kimi-linear-experts", "\"model_max_length\":0", "model_max_length: expected 1 to"},
    {"kimi-linear-experts", "\"rope_theta\":500000,\"head_dim\":7,\"use_grouped_topk\":false", NULL}, /* unused */
    {"kimi-linear-groups", "\"layer_types\":[\"full_attention\",\"mamba\",\"linear_attention\"]",
     "layer_types: expected linear_attention and full_attention, found"},
    {"kimi-linear-groups", "\"layer_types\":null",
     "layer_types: expected an array of 3 elements, one a layer, found 0"},
    {"kimi-linear-groups", "\"mlp_layer_types\":[\"sparse\",\"dense\",\"sparse\"]",
     "mlp_layer_types: expected dense layers before all sparse ones, found one after 1"},
};

START_TEST(what_the_plan_takes_for_granted_is_checked) { check_row(&fixed_rows[_i]); }
END_TEST

/* --- windows, and layers without RoPE ---------------------------------------------------------------------------- */

static const struct row layer_rows[] = {
    {"qwen2-window", "\"use_sliding_window\":false", "use_sliding_window: expected true, as layer_types has"},
    {"qwen2-window", "\"use_sliding_window\":\"yes\"", "use_sliding_window: expected true or false, found 'yes'"},
    {"qwen2-window", "\"sliding_window\":0", "sliding_window: expected 1 to 2147483647, found 0"},
    {"qwen2-window", "\"max_window_layers\":-1", "max_window_layers: expected 0 to"},
    {"qwen3-norms", "\"layer_types\":[\"banana\",7]", "layer_types[0]: expected sliding_attention or full_attention"},
    {"qwen3-norms", "\"layer_types\":[\"full_attention\",7]", "layer_types[1]: expected sliding_attention"},
    {"qwen3-norms", "\"layer_types\":\"full_attention\"", "layer_types: expected an array of names"},
    {"llama-yarn", "\"layer_types\":[\"a\",\"b\"]", "layer_types[0]: expected sliding_attention"},
    {"llama-yarn", "\"sliding_window\":3", NULL}, /* transformers' Llama has no window */
    {"gemma2-caps", "\"sliding_window\":null", "sliding_window: expected 1 or more, as some layers have a window"},
    {"gemma2-caps", "\"sliding_window\":0", "sliding_window: expected 1 or more"},
    {"gemma3n-sparse", "\"sliding_window\":null", "sliding_window: expected 1 or more"},
    {"gemma4-per-layer", "\"sliding_window\":0", "sliding_window: expected 1 or more"},
    {"gpt-oss-sinks", "\"sliding_window\":null", "sliding_window: expected 1 or more"},
    {"gpt-oss-sinks", "\"sliding_window\":\"19\"", "sliding_window: expected 1 or more"},
    {"olmo2-window", "\"sliding_window\":null", "sliding_window: expected 1 or more"},
    {"smollm3-layers", "\"no_rope_layers\":[1]", "no_rope_layers: expected an array of 5 numbers, one a layer, found"},
    {"smollm3-layers", "\"no_rope_layers\":[1,1,1,0,7]", "no_rope_layers[4]: expected 0 or 1, found 7"},
    {"smollm3-layers", "\"no_rope_layers\":\"none\"", "no_rope_layers: expected an array of 5 numbers"},
    {"smollm3-layers", "\"no_rope_layer_interval\":0", "no_rope_layer_interval: expected 1 to"},
    {"laguna-heads", "\"num_attention_heads_per_layer\":[4,6]",
     "heads_per_layer: expected an array of 4 numbers, one a layer"},
    {"laguna-heads", "\"num_attention_heads_per_layer\":[4,6,6,0]", "heads_per_layer[3]: expected 1 to 1024, found 0"},
    {"laguna-heads", "\"mlp_layer_types\":[\"sparse\",\"dense\",\"sparse\",\"sparse\"]",
     "mlp_layer_types[1]: expected sparse, as in an earlier layer, found 'dense'"},
    {"laguna-heads", "\"mlp_layer_types\":[\"dense\",\"banana\",\"sparse\",\"sparse\"]",
     "mlp_layer_types[1]: expected dense or sparse, found 'banana'"},
    {"laguna-heads", "\"sliding_window\":0", "sliding_window: expected 1 to 2147483647, found 0"},
    {"laguna-heads", "\"layer_types\":[1,1,1,1]",
     "layer_types[0]: expected sliding_attention or full_attention, found 1"},
    {"smallthinker-window", "\"sliding_window_size\":0", "sliding_window_size: expected 1 to 2147483647, found 0"},
    {"smallthinker-window", "\"rope_layout\":[1,1]", "rope_layout: expected an array of 3 numbers, one a layer, found"},
    {"llama4-chunks", "\"layer_types\":[\"full_attention\"]", "layer_types: expected 3, as num_hidden_layers"},
    {"llama4-chunks", "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\"]",
     "layer_types[1]: expected chunked_attention or full_attention, found 'sliding_attention'"},
    {"llama4-chunks", "\"attention_chunk_size\":0", "attention_chunk_size: expected 1 to 2147483647, found 0"},
    {"llama4-chunks", "\"attention_chunk_size\":null", "attention_chunk_size: expected 1 or more, as some layers"},
    {"llama4-chunks", "\"no_rope_layers\":[1,1,2]", "no_rope_layers[2]: expected 0 or 1, found 2"},
};

START_TEST(layers_of_a_kind_that_cannot_be_are_named) { check_row(&layer_rows[_i]); }
END_TEST

/* Windows and RoPE of layers, a letter each: w a window, g none; n no RoPE, r RoPE. */
static void describe(const struct plan *p, char windows[16], char ropes[16])
{
    int w = 0, r = 0;
    for (int32_t i = 0; i < p->n_steps && w < 15 && r < 15; i++) {
        const struct plan_step *s = &p->steps[i];
        if (s->op == PLAN_ATTENTION) {
            windows[w++] = s->attention.window != 0 ? 'w' : 'g';
        } else if (s->op == PLAN_QKV) {
            ropes[r++] = p->ropes[s->heads.rope].n_rot == 0 ? 'n' : 'r';
        }
    }
    windows[w] = ropes[r] = '\0';
}

START_TEST(config_json_says_which_layers_have_a_window_or_no_rope)
{
    static const struct {
        const char *model, *members, *windows, *ropes;
    } rows[] = {
        {"qwen2-window", "", "gww", "rrr"},
        {"qwen2-window", "\"layer_types\":null", "gww", "rrr"},
        {"qwen2-window", "\"layer_types\":null,\"max_window_layers\":2", "ggw", "rrr"},
        {"qwen2-window", "\"layer_types\":null,\"max_window_layers\":null", "ggg", "rrr"},
        {"qwen2-window", "\"layer_types\":null,\"use_sliding_window\":false", "ggg", "rrr"},
        {"qwen2-window", "\"layer_types\":null,\"use_sliding_window\":null", "ggg", "rrr"},
        {"qwen2-window", "\"sliding_window\":null", "ggg", "rrr"},
        {"qwen3-norms", "\"sliding_window\":9,\"max_window_layers\":1", "gg", "rr"}, /* as Qwen2.5's folders are */
        {"qwen3-norms", "\"sliding_window\":9,\"max_window_layers\":1,\"use_sliding_window\":true,\"layer_types\":null",
         "gw", "rr"},
        {"smollm3-layers", "", "ggggg", "nrrnr"},
        {"smollm3-layers", "\"no_rope_layers\":[1,1,1,0,1,0,0]", "ggggg", "rrrnr"},
        {"smollm3-layers", "\"no_rope_layers\":null", "ggggg", "rrrnr"},
        {"smollm3-layers", "\"no_rope_layers\":null,\"no_rope_layer_interval\":2", "ggggg", "rnrnr"},
        {"smollm3-layers", "\"no_rope_layers\":null,\"no_rope_layer_interval\":6", "ggggg", "rrrrr"},
        {"exaone4-window", "", "wwwgw", "rrrnr"},
        {"exaone4-window", "\"layer_types\":null", "wwwgw", "rrrnr"},
        {"exaone4-window",
         "\"sliding_window\":null,\"sliding_window_pattern\":0,\"layer_types\":"
         "[\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\","
         "\"full_attention\"]",
         "ggggg", "rrrrr"},
        {"cohere2-window", "", "wwwgw", "rrrnr"},
        {"cohere2-window", "\"layer_types\":null", "wwwgw", "rrrnr"},
        {"cohere2moe-shared", "", "gwg", "rrn"},
        {"cohere2moe-shared", "\"layer_types\":null,\"first_k_dense_replace\":1", "gwg", "rrn"},
        {"cohere2moe-shared",
         "\"layer_types\":null,\"mlp_layer_types\":null,\"first_k_dense_replace\":1,\"sliding_window_pattern\":null",
         "gww", "rrr"},
        {"cohere2moe-rms", "\"layer_types\":null", "wg", "rn"},
        {"mellum-window", "", "wgwgg", "rrrrr"},
        {"mimo2-values", "", "gwg", "rrr"},
        {"step35-limits", "", "gwg", "rrr"},
        {"mimo2-saved", "", "wg", "rr"},
        {"mellum-window", "\"layer_types\":null", "ggggg", "rrrrr"},
        {"starcoder2-window", "", "ww", "rr"},
        {"starcoder2-window", "\"sliding_window\":null", "gg", "rr"},
        {"laguna-heads", "", "gwww", "rrrr"},
        {"laguna-components", "\"layer_types\":null", "gg", "rr"},
        {"smallthinker-window", "", "gww", "nrr"},
        {"smallthinker-window", "\"sliding_window_layout\":null,\"rope_layout\":[1,0,1]", "ggg", "rnr"},
        {"smallthinker-softmax", "", "gg", "rr"},
        {"llama4-experts", "", "wwwgw", "rrrnr"},
        {"llama4-experts", "\"layer_types\":null,\"no_rope_layers\":[]", "wwwgw", "rrrnr"},
        {"llama4-experts", "\"layer_types\":null,\"no_rope_layers\":[0,1,1,1,1]", "gwwww", "nrrrr"},
        {"llama4-experts", "\"no_rope_layers\":[0,1,1,1,1]", "wwwgw", "nrrrr"},
        {"llama4-experts",
         "\"attention_chunk_size\":null,\"no_rope_layers\":[1,1,1,1,1],\"layer_types\":[\"full_attention\","
         "\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]",
         "ggggg", "rrrrr"},
        {"mistral3-yarn", "\"sliding_window\":9", "ww", "rr"},
        {"llama-yarn", "\"architectures\":[\"MistralForCausalLM\"]", "ww", "rr"},
        {"llama-yarn", "\"architectures\":[\"MistralForCausalLM\"],\"sliding_window\":null", "gg", "rr"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct gguf *g;
        struct plan *p;
        struct err_info info;
        char windows[16], ropes[16];
        ck_assert_msg(load(rows[i].model, rows[i].members, &g, &p, &info) == ERR_OK, "row %zu: %s", i, info.text);
        describe(p, windows, ropes);
        ck_assert_msg(strcmp(windows, rows[i].windows) == 0 && strcmp(ropes, rows[i].ropes) == 0, "row %zu: %s %s", i,
                      windows, ropes);
        plan_free(&p);
        gguf_close(&g);
        folder_remove();
    }
}
END_TEST

/* Null is not absent: Gemma 2's caps are none, not the family's. */
START_TEST(a_cap_of_null_is_none)
{
    static const char *const members[] = {"\"final_logit_softcapping\":null", "\"attn_logit_softcapping\":null"};
    static const char *const keys[] = {"gemma2.final_logit_softcapping", "gemma2.attn_logit_softcapping"};
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        struct gguf *g;
        struct plan *p;
        struct err_info info;
        double cap;
        ck_assert_msg(load("gemma2-caps", members[i], &g, &p, &info) == ERR_OK, "%s", info.text);
        ck_assert_int_eq(gguf_get_f64(g, keys[i], &cap, NULL), ERR_OK);
        ck_assert(cap == 0);
        plan_free(&p);
        gguf_close(&g);
        folder_remove();
    }
}
END_TEST

/* --- contradictions ---------------------------------------------------------------------------------------------- */

#define ROPE(members) "\"rope_parameters\":{" members "}"
#define YARN          "\"rope_type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":32"

/* The last of a group says the same twice, or what published folders have, and is fine. */
static const struct row contradictions[] = {
    {"llama-yarn", "\"num_hidden_layers\":1", "num_hidden_layers: expected 2 or more, as there is 'model.layers.1."},
    {"bert-cls", "\"num_hidden_layers\":1", "num_hidden_layers: expected 2 or more, as there is 'encoder.layer.1."},
    {"qwen2moe-shared", "\"num_hidden_layers\":1,\"layer_types\":null", "num_hidden_layers: expected 2 or more"},
    {"glm4moe-bias", "\"num_hidden_layers\":1", "num_hidden_layers: expected 3 or more"},
    {"glm4moe-bias", "\"num_hidden_layers\":1,\"num_nextn_predict_layers\":\"x\"", "num_nextn_predict_layers"},
    {"glm4moe-bias", "\"num_hidden_layers\":2", NULL}, /* the third one predicts, as transformers takes for granted */
    {"llama-yarn", "\"num_hidden_layers\":1,\"num_nextn_predict_layers\":1", NULL},

    {"llama-yarn", "\"rope_theta\":500000.0", "rope_theta: expected 10000, as rope_parameters says, found 500000"},
    {"llama-yarn", "\"rope_theta\":10000", NULL},
    {"llama-yarn", "\"partial_rotary_factor\":0.5," ROPE("\"partial_rotary_factor\":1.0"),
     "partial_rotary_factor: expected 1, as rope_parameters says, found 0.5"},
    {"phi3-long", "\"partial_rotary_factor\":0.5", NULL},
    {"gemma3n-streams", "\"rope_theta\":1000000.0",
     "rope_theta: expected 300000, as rope_parameters says, found 1e+06"},
    {"gemma3n-streams", "\"rope_local_base_freq\":1", "rope_local_base_freq: expected 5000, as rope_parameters says"},
    {"gemma3n-streams", "\"rope_local_base_freq\":5000,\"rope_theta\":300000", NULL},
    {"llama-yarn", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0}",
     "rope_scaling.rope_type: expected 'yarn', as rope_parameters says, found 'linear'"},
    {"llama-yarn", "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2.0}",
     "rope_scaling.factor: expected 4, as rope_parameters says, found 2"},
    {"llama-yarn", "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}", NULL},
    {"llama-yarn", ROPE("\"type\":\"linear\""),
     "rope_parameters.rope_type: expected 'linear', as type says, found 'yarn'"},
    {"llama-yarn", ROPE("\"type\":\"yarn\""), NULL},
    {"phi3-long", ROPE("\"type\":\"su\""), NULL},
    {"gemma3n-streams", ROPE("\"full_attention\":{\"type\":\"linear\"}"),
     "rope_parameters.full_attention.rope_type: expected 'linear'"},
    {"llama-yarn", ROPE("\"beta_fast\":1,\"beta_slow\":32"), "beta_fast: expected beta_slow 32 or more, found 1"},
    {"llama-yarn", ROPE("\"beta_slow\":33"), "beta_fast: expected beta_slow 33 or more, found 32"},
    {"llama-yarn", ROPE("\"beta_fast\":0.5"), "beta_fast: expected beta_slow 1 or more, found 0.5"},
    {"llama-yarn", ROPE("\"beta_fast\":32.0,\"beta_slow\":1.0"), NULL},
    {"llama-yarn", ROPE("\"original_max_position_embeddings\":513"),
     "rope_parameters.original_max_position_embeddings: expected at most max_position_embeddings 512, found 513"},
    {"phi3-long", ROPE("\"original_max_position_embeddings\":513"),
     "original_max_position_embeddings: expected at most"},
    {"llama-yarn", ROPE("\"original_max_position_embeddings\":512"), NULL},

    {"llama-yarn", "\"tie_word_embeddings\":false",
     "tie_word_embeddings: expected true, as there is no lm_head.weight"},
    {"llama-yarn", "\"tie_word_embeddings\":\"yes\"", "tie_word_embeddings: expected true or false, found 'yes'"},
    {"llama-yarn", "\"tie_word_embeddings\":null", NULL},
    {"bert-cls", "\"tie_word_embeddings\":false", NULL},
    {"llama-yarn", "\"attention_bias\":true",
     "attention_bias: expected false, as the folder has no such biases, found true"},
    {"llama-yarn", "\"mlp_bias\":true", "mlp_bias: expected false, as the folder has no such biases, found true"},
    {"llama-yarn", "\"mlp_bias\":1", "mlp_bias: expected true or false, found 1"},
    {"glm4moe-bias", "\"attention_bias\":true", NULL},                    /* of Q, K and V alone */
    {"llama-biases", "\"attention_bias\":false,\"mlp_bias\":null", NULL}, /* GPTQ's folders */
    {"llama-yarn", "\"vocab_size\":-1", "vocab_size: expected 1 to 288, the rows of the token embedding, found -1"},
    {"llama-yarn", "\"vocab_size\":0", "vocab_size: expected 1 to 288"},
    {"llama-yarn", "\"vocab_size\":289", "vocab_size: expected 1 to 288, the rows of the token embedding, found 289"},
    {"llama-yarn", "\"vocab_size\":\"288\"", "vocab_size: expected an integer, found '288'"},
    {"llama-yarn", "\"vocab_size\":288.5", "vocab_size: expected an integer, found 288.5"},
    {"llama-yarn", "\"vocab_size\":280", NULL}, /* rows that fill a block */
    {"llama-yarn", "\"head_dim\":-1", "head_dim: expected"},
};

START_TEST(contradictions_are_refused_in_config_jsons_words) { check_row(&contradictions[_i]); }
END_TEST

#define GROUP(members) "\"quantization_config\":{\"config_groups\":{\"group_0\":{\"weights\":{" members "}}}}"

/* What a builder finds is told in the folder's words: values by their names and their parents', tensors by the names of
 * its files, shapes rows first. */
static const struct {
    const char *model, *members, *text;
    enum err err;
} told[] = {
    {"deepseek2-v3", "\"n_group\":3",
     "config.json: n_group: expected groups of one size, of which 2 hold 3 experts or more, found 3 groups of 8 "
     "experts",
     ERR_BAD_HPARAM},
    {"deepseek2-v3", "\"topk_group\":5", "config.json: topk_group: expected 0 to 4, found 5", ERR_BAD_HPARAM},
    {"deepseek2-v3", "\"q_lora_rank\":null", "config.json: q_lora_rank: expected a value, found none", ERR_BAD_HPARAM},
    {"deepseek2-v3", "\"v_head_dim\":19",
     "model.layers.0.self_attn.kv_b_proj.weight: expected [124, 32], found [128, 32]", ERR_BAD_TENSOR_SHAPE},
    {"deepseek2-v3", "\"first_k_dense_replace\":0",
     "model.layers.0.mlp.gate.weight: expected a tensor [8, 48], found none", ERR_MISSING_TENSOR},
    {"deepseek2-v3", "\"n_shared_experts\":0",
     "config.json: n_shared_experts: expected 1 or more, as there is "
     "model.layers.1.mlp.shared_experts.down_proj.weight, "
     "found 0",
     ERR_BAD_HPARAM},
    {"deepseek2-v3", "\"n_routed_experts\":16",
     "config.json: n_routed_experts: expected 8, the rows of the router, found 16", ERR_BAD_CONFIG},
    {"deepseek2-v3", "\"moe_intermediate_size\":37",
     "config.json: moe_intermediate_size: expected 36, what an expert's down_proj takes, found 37", ERR_BAD_CONFIG},
    {"deepseek32-sparse", "\"index_topk\":0", "config.json: index_topk: expected 1 to 65536, found 0", ERR_BAD_HPARAM},
    {"deepseek32-sparse", "\"index_head_dim\":20", "config.json: index_head_dim: expected a multiple of 8, found 20",
     ERR_BAD_HPARAM},
    {"deepseek32-sparse", "\"index_n_heads\":4",
     "model.layers.0.self_attn.indexer.wq_b.weight: expected [64, 28], found [128, 28]", ERR_BAD_TENSOR_SHAPE},
    {"glm-dsa-shared", "\"indexer_types\":[\"shared\",\"full\",\"full\"]",
     "config.json: indexer_types: expected 1 for the first layer, found 0", ERR_BAD_HPARAM},
    {"llama-mixtral", "\"num_local_experts\":6",
     "config.json: num_local_experts: expected 5, the rows of the router, found 6", ERR_BAD_CONFIG},
    {"llama-mixtral", "\"num_experts_per_tok\":6", "config.json: num_experts_per_tok: expected 1 to 5, found 6",
     ERR_BAD_HPARAM},
    {"llama-mixtral", "\"intermediate_size\":81",
     "config.json: intermediate_size: expected 80, what an expert's down_proj takes, found 81", ERR_BAD_CONFIG},
    {"llama-yarn", "\"num_key_value_heads\":1",
     "config.json: num_key_value_heads: expected that many heads of 16 to be the 32 rows of the first layer's k_proj, "
     "found 1",
     ERR_BAD_CONFIG},
    {"llama-yarn", "\"intermediate_size\":81",
     "config.json: intermediate_size: expected 80, what the first layer's down_proj takes, found 81", ERR_BAD_CONFIG},
    {"gemma2-caps", "\"attn_logit_softcapping\":-1",
     "config.json: attn_logit_softcapping: expected 0 to 1e+06, found -1", ERR_BAD_HPARAM},
    {"gemma4-per-layer", "\"global_head_dim\":23", "config.json: global_head_dim: expected a multiple of 4, found 23",
     ERR_BAD_HPARAM},
    {"gemma3n-sparse", "\"num_kv_shared_layers\":6", "config.json: num_kv_shared_layers: expected 0 to 5, found 6",
     ERR_BAD_HPARAM},
    {"lfm2-conv", "\"conv_L_cache\":9", "model.layers.0.conv.conv.weight: expected [48, 9], found [48, 3]",
     ERR_BAD_TENSOR_SHAPE},
    {"lfm2-conv", "\"num_attention_heads\":2,\"num_key_value_heads\":1",
     "model.layers.2.self_attn.q_layernorm.weight: expected [24], found [12]", ERR_BAD_TENSOR_SHAPE},
    {"lfm2-vl", "\"text_config\":{\"conv_L_cache\":9}", "layers.0.conv.conv.weight: expected [48, 9], found [48, 3]",
     ERR_BAD_TENSOR_SHAPE},
    {"qwen3next-delta", "\"moe_intermediate_size\":24",
     "config.json: moe_intermediate_size: expected 12, what an expert's down_proj takes, found 24", ERR_BAD_CONFIG},
    {"falcon-h1-norm", "\"mamba_d_ssm\":null,\"mamba_d_head\":12",
     "model.layers.0.mamba.in_proj.weight: expected [248, 48], found [184, 48]", ERR_BAD_TENSOR_SHAPE},
    {"falcon-h1-norm", "\"mamba_n_groups\":3",
     "config.json: mamba_n_groups: expected a divisor of mamba_n_heads 8, found 3", ERR_BAD_HPARAM},
    {"falcon-h1-norm", "\"mamba_d_conv\":4", "model.layers.0.mamba.conv1d.weight: expected [112, 4], found [112, 3]",
     ERR_BAD_TENSOR_SHAPE},
    {"nemotron_h-dense", "\"layer_norm_epsilon\":2", "config.json: layer_norm_epsilon: expected 1e-13 to 1, found 2",
     ERR_BAD_HPARAM},
    {"nemotron_h-dense", "\"ssm_state_size\":13",
     "backbone.layers.0.mixer.in_proj.weight: expected [368, 48], found [360, 48]", ERR_BAD_TENSOR_SHAPE},
    {"nemotron_h-dense", "\"n_groups\":3", "config.json: n_groups: expected a divisor of mamba_num_heads 8, found 3",
     ERR_BAD_HPARAM},
    {"nemotron_h-dense", "\"conv_kernel\":4", "backbone.layers.0.mixer.conv1d.weight: expected [224, 4], found",
     ERR_BAD_TENSOR_SHAPE},
    {"nemotron_h-dense", "\"hybrid_override_pattern\":\"M-M-M\"",
     "config.json: num_key_value_heads: expected a layer with attention, found none", ERR_BAD_HPARAM},
    {"nemotron_h-dense", "\"intermediate_size\":81",
     "backbone.layers.1.mixer.up_proj.weight: expected [81, 48], found [80, 48]", ERR_BAD_TENSOR_SHAPE},
    {"nemotron_h_moe-latent", "\"moe_latent_size\":null",
     "backbone.layers.1.mixer.experts.0.up_proj.weight: expected [6, 28, 48], found [6, 28, 20]", ERR_BAD_TENSOR_SHAPE},
    {"nemotron_h_moe-groups", "\"moe_latent_size\":20",
     "backbone.layers.1.mixer.fc1_latent_proj.weight: expected a tensor [20, 48], found none", ERR_MISSING_TENSOR},
    {"nemotron_h_moe-groups", "\"moe_shared_expert_intermediate_size\":0",
     "config.json: moe_shared_expert_intermediate_size: expected", ERR_BAD_HPARAM},
    {"jamba-experts", "\"mamba_d_state\":2000", "config.json: mamba_d_state: expected 1 to 1024, found 2000",
     ERR_BAD_HPARAM},
    {"jamba-experts", "\"mamba_d_conv\":1", "config.json: mamba_d_conv: expected 2 to 16, found 1", ERR_BAD_HPARAM},
    {"jamba-experts", "\"mamba_d_conv\":4", "model.layers.0.mamba.conv1d.weight: expected [72, 4], found [72, 3]",
     ERR_BAD_TENSOR_SHAPE},
    {"jamba-experts", "\"mamba_expand\":3", "model.layers.0.mamba.in_proj.weight: expected [216, 36], found [144, 36]",
     ERR_BAD_TENSOR_SHAPE},
    {"jamba-experts", "\"mamba_dt_rank\":7", "model.layers.0.mamba.x_proj.weight: expected [27, 72], found [26, 72]",
     ERR_BAD_TENSOR_SHAPE},
    {"jamba-experts", "\"attn_layer_offset\":0", "model.layers.0.self_attn.q_proj.weight: expected a tensor",
     ERR_MISSING_TENSOR},
    {"jamba-experts", "\"attn_layer_period\":9,\"attn_layer_offset\":8",
     "config.json: num_key_value_heads: expected a layer with attention, found none", ERR_BAD_HPARAM},
    {"mamba-tied", "\"intermediate_size\":null,\"expand\":3",
     "backbone.layers.0.mixer.in_proj.weight: expected [204, 34], found [136, 34]", ERR_BAD_TENSOR_SHAPE},
    {"mamba-tied", "\"time_step_rank\":6", "backbone.layers.0.mixer.x_proj.weight: expected [26, 68], found [25, 68]",
     ERR_BAD_TENSOR_SHAPE},
    {"mamba-tied", "\"conv_kernel\":17", "config.json: conv_kernel: expected 2 to 16, found 17", ERR_BAD_HPARAM},
    {"mamba-tied", "\"state_size\":11", "backbone.layers.0.mixer.x_proj.weight: expected [27, 68], found [25, 68]",
     ERR_BAD_TENSOR_SHAPE},
    {"mamba-tied", "\"layer_norm_epsilon\":2", "config.json: layer_norm_epsilon: expected 1e-13 to 1, found 2",
     ERR_BAD_HPARAM},
    {"mamba-falcon", "\"mixer_rms_eps\":2", "config.json: mixer_rms_eps: expected 1e-13 to 1, found 2", ERR_BAD_HPARAM},
    {"granite-scales", "\"logits_scaling\":0", "config.json: logits_scaling: expected 1e-06 to 1e+06, found 0",
     ERR_BAD_HPARAM},
    {"mistral3-yarn", "\"rope_parameters\":{\"llama_4_scaling_beta\":-1}",
     "config.json: rope_parameters.llama_4_scaling_beta: expected 0 to 1000, found -1", ERR_BAD_CONFIG},
    {"mistral3-yarn", "\"rope_parameters\":{\"beta_slow\":1e-5}",
     "config.json: rope_parameters.beta_slow: expected 0.001 to 1e+06, found 1e-05", ERR_BAD_HPARAM},
    {"neo-bert-cls", "\"intermediate_size\":120",
     "transformer_encoder.0.ffn.w12.weight: expected [160, 60], found [144, 60]", ERR_BAD_TENSOR_SHAPE},
    {"neo-bert-cls", "\"num_key_value_heads\":1",
     "config.json: num_key_value_heads: expected 3, as num_attention_heads", ERR_BAD_HPARAM},
    {"t5encoder-gated-mean", "\"d_kv\":24",
     "encoder.block.0.layer.0.SelfAttention.q.weight: expected [72, 48], found [60, 48]", ERR_BAD_TENSOR_SHAPE},
    {"t5encoder-gated-mean", "\"d_ff\":84",
     "encoder.block.0.layer.1.DenseReluDense.wi_0.weight: expected [84, 48], found [80, 48]", ERR_BAD_TENSOR_SHAPE},
    {"t5encoder-gated-mean", "\"relative_attention_num_buckets\":18",
     "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight: expected [18, 3], found [16, 3]",
     ERR_BAD_TENSOR_SHAPE},
    {"t5encoder-gated-mean", "\"relative_attention_num_buckets\":17",
     "config.json: relative_attention_num_buckets: expected an even number, found 17", ERR_BAD_HPARAM},
    {"t5encoder-gated-mean", "\"num_layers\":2", "num_layers: expected 3 or more, as there is", ERR_BAD_HPARAM},
    {"eurobert-mean", "\"num_key_value_heads\":4",
     "num_key_value_heads: expected that many heads of 12 to be the 24 rows", ERR_BAD_CONFIG},
    {"nomic-bert-moe-mean", "\"moe_top_k\":6", "config.json: moe_top_k: expected 1 to 5, found 6", ERR_BAD_HPARAM},
    {"nomic-bert-mean", "\"hidden_size\":null,\"n_embd\":47", "config.json: n_embd: expected", ERR_BAD_CONFIG},
    {"glm4moe-bias", "\"use_qk_norm\":false",
     "config.json: use_qk_norm: expected true, as there is q_norm.weight, found false", ERR_BAD_CONFIG},
    {"glm4moe-groups", "\"use_qk_norm\":true",
     "config.json: use_qk_norm: expected false, as there is no q_norm.weight, found true", ERR_BAD_CONFIG},
    {"glm4moe-bias", "\"scoring_func\":\"softmax\"", "config.json: scoring_func: expected sigmoid", ERR_BAD_CONFIG},
    {"llama4-experts", "\"intermediate_size\":25",
     "model.layers.1.feed_forward.experts.gate_up_proj': expected matrices [48, 50], found another shape",
     ERR_BAD_TENSOR_SHAPE},
    {"llama4-experts", "\"num_experts_per_tok\":5", "config.json: num_experts_per_tok: expected 1 to 4, found 5",
     ERR_BAD_HPARAM},
};

START_TEST(what_the_builder_finds_is_told_in_the_folders_words)
{
    struct gguf *g;
    struct plan *p;
    struct err_info info;
    enum err err = load(told[_i].model, told[_i].members, &g, &p, &info);
    ck_assert_msg(err == told[_i].err && info.code == err, "%s: %s (%s)", told[_i].members, err_code(err), info.text);
    ck_assert_msg(strstr(info.text, told[_i].text) != NULL, "%s: %s", told[_i].members, info.text);
    plan_free(&p);
    gguf_close(&g);
    folder_remove();
}
END_TEST

/* compressed-tensors: zero points are there, or not, as `symmetric` says. */
static const struct row symmetries[] = {
    {"quant-packed-32", GROUP("\"symmetric\":false"), "weights.symmetric: expected true, as 'model.layers.0."},
    {"quant-packed-32", GROUP("\"symmetric\":null"), NULL},
    {"quant-packed-64-zero", GROUP("\"symmetric\":true"), "weights.symmetric: expected false, as 'model.layers.0."},
    {"quant-packed-64-zero", GROUP("\"symmetric\":null"), NULL},
};

START_TEST(zero_points_are_as_symmetric_says) { check_row(&symmetries[_i]); }
END_TEST

Suite *hf_values_suite(void)
{
    Suite *s = suite_create("hf_values");
    TCase *c = tcase_create("hf_values");
    tcase_add_loop_test(c, what_the_plan_takes_for_granted_is_checked, 0, (int)ARRAY_LEN(fixed_rows));
    tcase_add_loop_test(c, layers_of_a_kind_that_cannot_be_are_named, 0, (int)ARRAY_LEN(layer_rows));
    tcase_add_test(c, config_json_says_which_layers_have_a_window_or_no_rope);
    tcase_add_test(c, a_cap_of_null_is_none);
    tcase_add_loop_test(c, contradictions_are_refused_in_config_jsons_words, 0, (int)ARRAY_LEN(contradictions));
    tcase_add_loop_test(c, what_the_builder_finds_is_told_in_the_folders_words, 0, (int)ARRAY_LEN(told));
    tcase_add_loop_test(c, zero_points_are_as_symmetric_says, 0, (int)ARRAY_LEN(symmetries));
    suite_add_tcase(s, c);
    return s;
}
