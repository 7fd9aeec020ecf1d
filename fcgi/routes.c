/* The table of endpoints. To add one: add a file with the handler in its API's folder, its declaration in the folder's
 * header, a row here and a paragraph in docs/openapi.yaml. */
#include "fcgi/tables.h"

#include "fcgi/api/anthropic/anthropic.h"
#include "fcgi/api/llama/llama.h"
#include "fcgi/api/models.h"
#include "fcgi/api/ollama/ollama.h"
#include "fcgi/api/openai/openai.h"
#include "fcgi/watch/watch.h"

/* clang-format off */
#define IS_OPEN       .needs_key = false
#define NEEDS_KEY     .needs_key = true
#define ASKS          NEEDS_KEY, .needs_model = true
#define PREPARES      ASKS, .prepares = true
#define COUNTS        PREPARES, .is_counted = true
#define COMPUTES      COUNTS, .computes = true
#define IS_PREFIX     .is_prefix = true
#define TAKES_UNTYPED .takes_untyped = true
#define BY_VERSION    .header = "HTTP_ANTHROPIC_VERSION"
#define OPENAI        &dialect_openai
#define ANTHROPIC     &dialect_anthropic
#define OLLAMA        &dialect_ollama
#define LLAMA         &dialect_llama
/* clang-format on */

const struct route routes_table[] = {
    {"POST", "/v1/chat/completions", api_chat, OPENAI, "chat-completions", COMPUTES},
    {"POST", "/chat/completions", api_chat, LLAMA, "chat-completions", COMPUTES, TAKES_UNTYPED},
    {"POST", "/v1/completions", api_completions, OPENAI, "completions", COMPUTES},
    {"POST", "/completions", api_llama_completion, LLAMA, "llama-server", COMPUTES, TAKES_UNTYPED},
    {"POST", "/v1/responses", api_responses, OPENAI, "responses", COMPUTES},
    {"POST", "/responses", api_responses, LLAMA, "responses", COMPUTES, TAKES_UNTYPED},
    {"POST", "/v1/responses/input_tokens", api_responses_count, OPENAI, "responses", COUNTS},
    {"GET", "/v1/responses/", api_response_get, OPENAI, "responses", PREPARES, IS_PREFIX},
    {"DELETE", "/v1/responses/", api_response_delete, OPENAI, "responses", ASKS, IS_PREFIX},
    {"POST", "/v1/responses/", api_response_post, OPENAI, "responses", ASKS, IS_PREFIX},
    {"POST", "/v1/embeddings", api_embeddings, OPENAI, "embeddings", COMPUTES},
    {"POST", "/embeddings", api_embeddings_llama, LLAMA, "embeddings", COMPUTES, TAKES_UNTYPED},
    {"POST", "/embedding", api_embedding_llama, LLAMA, "embeddings", COMPUTES, TAKES_UNTYPED},
    {"POST", "/v1/rerank", api_rerank, OPENAI, "rerank", COMPUTES},
    {"POST", "/v2/rerank", api_rerank, OPENAI, "rerank", COMPUTES},
    {"POST", "/rerank", api_rerank, LLAMA, "rerank", COMPUTES, TAKES_UNTYPED},
    {"POST", "/api/chat", api_ollama_chat, OLLAMA, "ollama", COMPUTES, TAKES_UNTYPED},
    {"POST", "/api/generate", api_ollama_generate, OLLAMA, "ollama", COMPUTES, TAKES_UNTYPED},
    {"POST", "/api/embed", api_ollama_embed, OLLAMA, "ollama", COMPUTES, TAKES_UNTYPED},
    {"POST", "/api/embeddings", api_ollama_embeddings, OLLAMA, "ollama", COMPUTES, TAKES_UNTYPED},
    {"POST", "/api/show", api_ollama_show, OLLAMA, "ollama", COUNTS, TAKES_UNTYPED},
    {"GET", "/api/tags", api_ollama_tags, OLLAMA, "ollama", ASKS},
    {"GET", "/api/ps", api_ollama_ps, OLLAMA, "ollama", ASKS},
    {"GET", "/api/version", api_ollama_version, OLLAMA, "ollama", NEEDS_KEY},
    {"POST", "/v1/score", api_score, OPENAI, "score", COMPUTES},
    {"POST", "/score", api_score, LLAMA, "score", COMPUTES},
    {"POST", "/v1/messages", api_anthropic_messages, ANTHROPIC, "messages", COMPUTES},
    {"POST", "/v1/messages/count_tokens", api_anthropic_count, ANTHROPIC, "count-tokens", COUNTS},
    {"GET", "/v1/models", api_anthropic_models, ANTHROPIC, "models", ASKS, BY_VERSION},
    {"GET", "/v1/models", api_models, OPENAI, "models", ASKS},
    {"GET", "/models", api_models, LLAMA, "models", ASKS},
    {"GET", "/v1/models/", api_anthropic_model, ANTHROPIC, "models", ASKS, IS_PREFIX, BY_VERSION},
    {"GET", "/v1/models/", api_model, OPENAI, "models", ASKS, IS_PREFIX},
    {"POST", "/tokenize", api_tokenize, LLAMA, "tokenize", COUNTS, TAKES_UNTYPED},
    {"POST", "/detokenize", api_detokenize, LLAMA, "detokenize", COUNTS, TAKES_UNTYPED},
    {"POST", "/completion", api_llama_completion, LLAMA, "llama-server", COMPUTES, TAKES_UNTYPED},
    {"POST", "/infill", api_llama_infill, LLAMA, "llama-server", COMPUTES, TAKES_UNTYPED},
    {"POST", "/chat/completions/input_tokens", api_llama_count, LLAMA, "llama-server", COUNTS, TAKES_UNTYPED},
    {"POST", "/v1/chat/completions/input_tokens", api_llama_count, OPENAI, "llama-server", COUNTS},
    {"POST", "/slots/", api_llama_slot_action, LLAMA, "llama-server", COMPUTES, IS_PREFIX, TAKES_UNTYPED},
    {"POST", "/apply-template", api_llama_template, LLAMA, "llama-server", COUNTS, TAKES_UNTYPED},
    {"GET", "/props", api_llama_props, LLAMA, "llama-server", ASKS},
    {"GET", "/slots", api_llama_slots, LLAMA, "llama-server", ASKS},
    {"GET", "/lora-adapters", api_llama_adapters, LLAMA, "llama-server", ASKS},
    {"GET", "/openapi.json", api_openapi, LLAMA, "openapi", IS_OPEN},
    {"GET", "/health", api_health, LLAMA, "health", IS_OPEN},
    {"GET", "/v1/health", api_health, OPENAI, "health", IS_OPEN},
    {"GET", "/metrics", api_metrics, LLAMA, "metrics", IS_OPEN},
    {"GET", "/status", api_status, LLAMA, "status", IS_OPEN},
};

const int routes_n = ARRAY_LEN(routes_table);

/* The first dialect with a path that begins an unknown URL handles the request. */
const struct dialect *const routes_dialects[] = {&dialect_anthropic, &dialect_ollama, &dialect_openai, &dialect_llama,
                                                 NULL};
