/* The table of named chat templates, and the families with exactly one format. A row has the text around a message of
 * each role, as Jinja expressions; chat_named_source inserts it into the common frame.
 *
 * Sources: the models' own templates (tokenizer_config.json on Hugging Face), Mistral's cookbook
 * (concept-deep-dive/tokenization/chat_templates.md), OpenAI's harmony format. Names follow llama.cpp's llama-chat.cpp
 * if it has one. tests/golden/chat_named.py has the expected output of each. */
#include "engine/chat/chat_named.h"

#include "engine/base/compiler.h"

#include <stdio.h>
#include <string.h>

/* Expressions see `text`, the message's content; `first` and `last`, of the turns; bos_token and eos_token. With
 * in_turns also `system`, the system prompt or none: it is then not a message. */
struct chat_named {
    const char *name;
    bool in_turns;                         /* user and assistant alternate after at most one system prompt */
    const char *begin;                     /* before all messages; NULL: none */
    const char *system, *user, *assistant; /* system: NULL with in_turns */
    const char *prompt;                    /* text that the model continues; NULL: none */
};

#define CHATML(role) "'<|im_start|>" role "\n' ~ text ~ '<|im_end|>\n'"
#define CHATML_DEFAULT(system)                                                                                         \
    "'<|im_start|>system\n" system "<|im_end|>\n' if messages and messages[0].role != 'system' else ''"
#define COMMAND_R(role, text) "'<|START_OF_TURN_TOKEN|><|" role "_TOKEN|>' ~ " text "|trim ~ '<|END_OF_TURN_TOKEN|>'"
#define LLAMA3(role)          "'<|start_header_id|>" role "<|end_header_id|>\n\n' ~ text|trim ~ '<|eot_id|>'"
#define LLAMA4(role)          "'<|header_start|>" role "<|header_end|>\n\n' ~ text|trim ~ '<|eot|>'"
#define GRANITE(role)         "'<|start_of_role|>" role "<|end_of_role|>' ~ text ~ '<|end_of_text|>\n'"
#define ZEPHYR(role)          "'<|" role "|>\n' ~ text ~ eos_token ~ '\n'"
#define MISTRAL_SYSTEM(turn)  "(system ~ '\n\n' if system is not none and " turn " else '')"
#define DEEPSEEK_REPLY(text)  "'<｜Assistant｜>' ~ " text " ~ '<｜end▁of▁sentence｜>'"

static const struct chat_named rows[] = {
    {"chatglm3", false, "'[gMASK]sop'", "'<|system|>\n ' ~ text", "'<|user|>\n ' ~ text", "'<|assistant|>\n ' ~ text",
     "'<|assistant|>'"},
    {"chatglm4", false, "'[gMASK]<sop>'", "'<|system|>\n' ~ text", "'<|user|>\n' ~ text", "'<|assistant|>\n' ~ text",
     "'<|assistant|>\n'"},
    {"chatml", false, NULL, CHATML("system"), CHATML("user"), CHATML("assistant"), "'<|im_start|>assistant\n'"},
    {"command-r", true, "bos_token ~ (" COMMAND_R("SYSTEM", "system") " if system is not none else '')", NULL,
     COMMAND_R("USER", "text"), COMMAND_R("CHATBOT", "text"), "'<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'"},
    {"deepseek", false, "bos_token", "text", "'### Instruction:\n' ~ text ~ '\n'",
     "'### Response:\n' ~ text ~ '\n<|EOT|>\n'", "'### Response:\n'"},
    {"deepseek-r1", true, "bos_token ~ (system or '')", NULL, "'<｜User｜>' ~ text",
     DEEPSEEK_REPLY("text.split('</think>')[-1]"), "'<｜Assistant｜><think>\n'"},
    {"deepseek2", false, "bos_token", "text ~ '\n\n'", "'User: ' ~ text ~ '\n\n'", "'Assistant: ' ~ text ~ eos_token",
     "'Assistant:'"},
    {"deepseek3", true, "bos_token ~ (system or '')", NULL, "'<｜User｜>' ~ text", DEEPSEEK_REPLY("text"),
     "'<｜Assistant｜>'"},
    {"gemma", true, "bos_token", NULL,
     "'<start_of_turn>user\n' ~ " MISTRAL_SYSTEM("first") " ~ text|trim ~ '<end_of_turn>\n'",
     "'<start_of_turn>model\n' ~ text|trim ~ '<end_of_turn>\n'", "'<start_of_turn>model\n'"},
    {"gpt-oss", true,
     "'<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: "
     "2024-06\n"
     "Current date: ' ~ strftime_now('%Y-%m-%d') ~ '\n\nReasoning: ' ~ reasoning_effort|default('medium') ~ '\n\n"
     "# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>' ~ "
     "('<|start|>developer<|message|># Instructions\n\n' ~ system ~ '\n\n<|end|>' if system else '')",
     NULL, "'<|start|>user<|message|>' ~ text ~ '<|end|>'",
     "'<|start|>assistant<|channel|>final<|message|>' ~ text ~ "
     "('<|return|>' if last and not add_generation_prompt else '<|end|>')",
     "'<|start|>assistant'"},
    {"granite", false, NULL, GRANITE("system"), GRANITE("user"), GRANITE("assistant"),
     "'<|start_of_role|>assistant<|end_of_role|>'"},
    {"kimi-k2", false, NULL, "'<|im_system|>system<|im_middle|>' ~ text ~ '<|im_end|>'",
     "'<|im_user|>user<|im_middle|>' ~ text ~ '<|im_end|>'",
     "'<|im_assistant|>assistant<|im_middle|>' ~ text ~ '<|im_end|>'", "'<|im_assistant|>assistant<|im_middle|>'"},
    {"llama2", true, NULL, NULL,
     "bos_token ~ '[INST] ' ~ "
     "(('<<SYS>>\n' ~ system ~ '\n<</SYS>>\n\n' if system is not none and first else '') ~ text)|trim ~ ' [/INST]'",
     "' ' ~ text|trim ~ ' ' ~ eos_token", NULL},
    {"llama3", false, "bos_token", LLAMA3("system"), LLAMA3("user"), LLAMA3("assistant"),
     "'<|start_header_id|>assistant<|end_header_id|>\n\n'"},
    {"llama4", false, "bos_token", LLAMA4("system"), LLAMA4("user"), LLAMA4("assistant"),
     "'<|header_start|>assistant<|header_end|>\n\n'"},
    {"minicpm", false, NULL, "text|trim", "'<用户>' ~ text|trim ~ '<AI>'", "text|trim", NULL},
    {"mistral-v1", true, "bos_token", NULL, "' [INST] ' ~ " MISTRAL_SYSTEM("first") " ~ text ~ ' [/INST]'",
     "' ' ~ text ~ eos_token", NULL},
    {"mistral-v3", true, "bos_token", NULL, "'[INST] ' ~ " MISTRAL_SYSTEM("last") " ~ text ~ '[/INST]'",
     "' ' ~ text|trim ~ eos_token", NULL},
    {"mistral-v3-tekken", true, "bos_token", NULL, "'[INST]' ~ " MISTRAL_SYSTEM("last") " ~ text ~ '[/INST]'",
     "text ~ eos_token", NULL},
    {"mistral-v7", false, "bos_token", "'[SYSTEM_PROMPT] ' ~ text ~ '[/SYSTEM_PROMPT]'", "'[INST] ' ~ text ~ '[/INST]'",
     "' ' ~ text ~ eos_token", NULL},
    {"mistral-v7-tekken", false, "bos_token", "'[SYSTEM_PROMPT]' ~ text ~ '[/SYSTEM_PROMPT]'",
     "'[INST]' ~ text ~ '[/INST]'", "text ~ eos_token", NULL},
    {"openchat", false, "bos_token", "'GPT4 Correct System: ' ~ text ~ '<|end_of_turn|>'",
     "'GPT4 Correct User: ' ~ text ~ '<|end_of_turn|>'", "'GPT4 Correct Assistant: ' ~ text ~ '<|end_of_turn|>'",
     "'GPT4 Correct Assistant:'"},
    {"phi3", false, NULL, "'<|system|>\n' ~ text ~ '<|end|>\n'", "'<|user|>\n' ~ text ~ '<|end|>\n'",
     "'<|assistant|>\n' ~ text ~ '<|end|>\n'", "'<|assistant|>\n'"},
    {"phi4", false, NULL, "'<|im_start|>system<|im_sep|>' ~ text ~ '<|im_end|>'",
     "'<|im_start|>user<|im_sep|>' ~ text ~ '<|im_end|>'", "'<|im_start|>assistant<|im_sep|>' ~ text ~ '<|im_end|>'",
     "'<|im_start|>assistant<|im_sep|>'"},
    {"qwen2.5", false, CHATML_DEFAULT("You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
     CHATML("system"), CHATML("user"), CHATML("assistant"), "'<|im_start|>assistant\n'"},
    {"seed_oss", false, NULL, "'<seed:bos>system\n' ~ text ~ '<seed:eos>'", "'<seed:bos>user\n' ~ text ~ '<seed:eos>'",
     "'<seed:bos>assistant\n' ~ text|trim ~ '<seed:eos>'", "'<seed:bos>assistant\n'"},
    {"smollm2", false, CHATML_DEFAULT("You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
     CHATML("system"), CHATML("user"), CHATML("assistant"), "'<|im_start|>assistant\n'"},
    {"solar-open", false, NULL, "'<|begin|>system<|content|>' ~ text ~ '<|end|>'",
     "'<|begin|>user<|content|>' ~ text ~ '<|end|>'", "'<|begin|>assistant<|content|>' ~ text ~ '<|end|>'",
     "'<|begin|>assistant'"},
    {"vicuna", false, "bos_token", "text ~ '\n\n'", "'USER: ' ~ text ~ '\n'", "'ASSISTANT: ' ~ text ~ eos_token ~ '\n'",
     "'ASSISTANT:'"},
    {"vicuna-orca", false, "bos_token", "'SYSTEM: ' ~ text ~ '\n'", "'USER: ' ~ text ~ '\n'",
     "'ASSISTANT: ' ~ text ~ eos_token ~ '\n'", "'ASSISTANT:'"},
    {"zephyr", false, NULL, ZEPHYR("system"), ZEPHYR("user"), ZEPHYR("assistant"), "'<|assistant|>\n'"},
};

/* Only families whose chat models all share one format; llama, qwen2, phi3, granite and others do not. */
static const struct {
    const char *architecture, *name;
} families[] = {
    {"gemma", "gemma"}, {"gemma2", "gemma"}, {"gemma3", "gemma"}, {"gemma3n", "gemma"}, {"gpt-oss", "gpt-oss"},
};

const struct chat_named *chat_named_at(int i) { return i >= 0 && i < (int)ARRAY_LEN(rows) ? &rows[i] : NULL; }

const char *chat_named_name(const struct chat_named *row) { return row->name; }
const char *chat_named_name_at(int i) { return chat_named_at(i) != NULL ? rows[i].name : NULL; }

const struct chat_named *chat_named_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

const struct chat_named *chat_named_of_family(const char *architecture)
{
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        if (strcmp(families[i].architecture, architecture) == 0) {
            return chat_named_find(families[i].name);
        }
    }
    return NULL;
}

/* Rejects what the format cannot express. */
static void put_checks(const struct chat_named *row, struct buf *out)
{
    buf_printf(out,
               "{%%- for m in messages -%%}{%%- if m.role not in ['system', 'user', 'assistant'] -%%}"
               "{{- raise_exception('the %s format knows the roles system, user and assistant, found ' ~ m.role) -}}"
               "{%%- elif m.tool_calls -%%}{{- raise_exception('the %s format has no tool calls') -}}"
               "{%%- endif -%%}{%%- endfor -%%}",
               row->name, row->name);
    if (!row->in_turns) {
        buf_puts(out, "{%- set talk = messages -%}");
        return;
    }
    buf_puts(out,
             "{%- set system = messages[0].content or '' if messages and messages[0].role == 'system' else none -%}"
             "{%- set talk = messages if system is none else messages[1:] -%}{%- for m in talk -%}"
             "{%- if m.role != ('user' if loop.index0 % 2 == 0 else 'assistant') -%}"
             "{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') -}}"
             "{%- endif -%}{%- endfor -%}");
}

enum err chat_named_source(const struct chat_named *row, struct buf *out)
{
    put_checks(row, out);
    buf_printf(out, "{{- %s -}}", row->begin != NULL ? row->begin : "''");
    buf_puts(out, "{%- for m in talk -%}{%- set text = m.content or '' -%}"
                  "{%- set first = loop.first -%}{%- set last = loop.last -%}");
    buf_printf(out, "{%%- if m.role == 'user' -%%}{{- %s -}}{%%- elif m.role == 'assistant' -%%}{{- %s -}}", row->user,
               row->assistant);
    if (row->system != NULL) {
        buf_printf(out, "{%%- else -%%}{{- %s -}}", row->system);
    }
    buf_puts(out, "{%- endif -%}{%- endfor -%}");
    if (row->prompt != NULL) {
        buf_printf(out, "{%%- if add_generation_prompt -%%}{{- %s -}}{%%- endif -%%}", row->prompt);
    }
    return buf_ok(out);
}

enum err chat_named_new(const struct chat_named *row, struct chat_template **out, struct err_info *info)
{
    struct buf source;
    *out = NULL;
    buf_init(&source, 0, MEM_GENERAL);
    enum err err = chat_named_source(row, &source);
    err = err == ERR_OK ? chat_template_new(source.data, source.len, out, info)
                        : err_set(info, err, NULL, "no memory for the chat template %s", row->name);
    buf_fini(&source);
    return err;
}
