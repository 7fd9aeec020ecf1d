"""What each named format (engine/chat/chat_named.c) must give for one conversation, and which published template it must
equal. The texts are facts of the formats, as the models' own templates render them; llama.cpp's
tests/test-chat-template.cpp (b11434) lists most of them for the same conversation."""

from chat_cases import assistant, system, user

TALK = [system("You are a helpful assistant"), user("Hello"), assistant("Hi there"), user("Who are you"),
        assistant("   I am an assistant   "), user("Another question")]
BOS, EOS = "<s>", "</s>"
SEP = "<｜end▁of▁sentence｜>"  # DeepSeek's
REPLY = "   I am an assistant   "


def framed(frame, prompt, begin="", strip=(), roles=("system", "user", "assistant")):
    """The same frame around each message; `strip`: the roles whose text loses outer spaces."""
    names = dict(zip(("system", "user", "assistant"), roles))
    text = "".join(frame.format(names[m["role"]], m["content"].strip() if m["role"] in strip else m["content"])
                   for m in TALK)
    return begin + text + prompt


ALL = ("system", "user", "assistant")
COMMAND_R = "<|START_OF_TURN_TOKEN|><|{}_TOKEN|>{}<|END_OF_TURN_TOKEN|>"
CHATML = framed("<|im_start|>{}\n{}<|im_end|>\n", "<|im_start|>assistant\n")

EXPECTED = {
    "chatglm3": framed("<|{}|>\n {}", "<|assistant|>", "[gMASK]sop"),
    "chatglm4": framed("<|{}|>\n{}", "<|assistant|>\n", "[gMASK]<sop>"),
    "chatml": CHATML,
    "command-r": framed(COMMAND_R, "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", BOS, ALL, ("SYSTEM", "USER", "CHATBOT")),
    "deepseek": BOS + "You are a helpful assistant### Instruction:\nHello\n### Response:\nHi there\n<|EOT|>\n"
                "### Instruction:\nWho are you\n### Response:\n" + REPLY + "\n<|EOT|>\n### Instruction:\nAnother question\n"
                "### Response:\n",
    "deepseek2": BOS + "You are a helpful assistant\n\nUser: Hello\n\nAssistant: Hi there</s>User: Who are you\n\n"
                 "Assistant: " + REPLY + "</s>User: Another question\n\nAssistant:",
    "deepseek3": BOS + "You are a helpful assistant<｜User｜>Hello<｜Assistant｜>Hi there" + SEP + "<｜User｜>Who are you"
                 "<｜Assistant｜>" + REPLY + SEP + "<｜User｜>Another question<｜Assistant｜>",
    "deepseek-r1": BOS + "You are a helpful assistant<｜User｜>Hello<｜Assistant｜>Hi there" + SEP + "<｜User｜>Who are you"
                   "<｜Assistant｜>" + REPLY + SEP + "<｜User｜>Another question<｜Assistant｜><think>\n",
    "gemma": BOS + "<start_of_turn>user\nYou are a helpful assistant\n\nHello<end_of_turn>\n<start_of_turn>model\nHi there"
             "<end_of_turn>\n<start_of_turn>user\nWho are you<end_of_turn>\n<start_of_turn>model\nI am an assistant"
             "<end_of_turn>\n<start_of_turn>user\nAnother question<end_of_turn>\n<start_of_turn>model\n",
    "gpt-oss": "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: "
               "2024-06\nCurrent date: 2026-01-02\n\nReasoning: medium\n\n# Valid channels: analysis, commentary, final. "
               "Channel must be included for every message.<|end|><|start|>developer<|message|># Instructions\n\n"
               "You are a helpful assistant\n\n<|end|><|start|>user<|message|>Hello<|end|><|start|>assistant<|channel|>"
               "final<|message|>Hi there<|end|><|start|>user<|message|>Who are you<|end|><|start|>assistant<|channel|>"
               "final<|message|>" + REPLY + "<|end|><|start|>user<|message|>Another question<|end|><|start|>assistant",
    "granite": framed("<|start_of_role|>{}<|end_of_role|>{}<|end_of_text|>\n", "<|start_of_role|>assistant<|end_of_role|>"),
    "kimi-k2": framed("<|im_{0}|>{0}<|im_middle|>{1}<|im_end|>", "<|im_assistant|>assistant<|im_middle|>"),
    "llama2": "<s>[INST] <<SYS>>\nYou are a helpful assistant\n<</SYS>>\n\nHello [/INST] Hi there </s><s>[INST] Who are you "
              "[/INST] I am an assistant </s><s>[INST] Another question [/INST]",
    "llama3": framed("<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>",
                     "<|start_header_id|>assistant<|end_header_id|>\n\n", BOS, ALL),
    "llama4": framed("<|header_start|>{}<|header_end|>\n\n{}<|eot|>", "<|header_start|>assistant<|header_end|>\n\n", BOS, ALL),
    "minicpm": "You are a helpful assistant<用户>Hello<AI>Hi there<用户>Who are you<AI>I am an assistant<用户>Another question"
               "<AI>",
    "mistral-v1": BOS + " [INST] You are a helpful assistant\n\nHello [/INST] Hi there</s> [INST] Who are you [/INST] " + REPLY
                  + "</s> [INST] Another question [/INST]",
    "mistral-v3": BOS + "[INST] Hello[/INST] Hi there</s>[INST] Who are you[/INST] I am an assistant</s>[INST] You are a "
                  "helpful assistant\n\nAnother question[/INST]",
    "mistral-v3-tekken": BOS + "[INST]Hello[/INST]Hi there</s>[INST]Who are you[/INST]" + REPLY + "</s>[INST]You are a "
                         "helpful assistant\n\nAnother question[/INST]",
    "mistral-v7": BOS + "[SYSTEM_PROMPT] You are a helpful assistant[/SYSTEM_PROMPT][INST] Hello[/INST] Hi there</s>[INST] "
                  "Who are you[/INST] " + REPLY + "</s>[INST] Another question[/INST]",
    "mistral-v7-tekken": BOS + "[SYSTEM_PROMPT]You are a helpful assistant[/SYSTEM_PROMPT][INST]Hello[/INST]Hi there</s>"
                         "[INST]Who are you[/INST]" + REPLY + "</s>[INST]Another question[/INST]",
    "openchat": framed("GPT4 Correct {}: {}<|end_of_turn|>", "GPT4 Correct Assistant:", BOS, (), ("System", "User", "Assistant")),
    "phi3": framed("<|{}|>\n{}<|end|>\n", "<|assistant|>\n"),
    "phi4": framed("<|im_start|>{}<|im_sep|>{}<|im_end|>", "<|im_start|>assistant<|im_sep|>"),
    "qwen2.5": CHATML,
    "seed_oss": framed("<seed:bos>{}\n{}<seed:eos>", "<seed:bos>assistant\n", "", ("assistant",)),
    "smollm2": CHATML,
    "solar-open": framed("<|begin|>{}<|content|>{}<|end|>", "<|begin|>assistant"),
    "vicuna": BOS + "You are a helpful assistant\n\nUSER: Hello\nASSISTANT: Hi there</s>\nUSER: Who are you\nASSISTANT: "
              + REPLY + "</s>\nUSER: Another question\nASSISTANT:",
    "vicuna-orca": BOS + "SYSTEM: You are a helpful assistant\nUSER: Hello\nASSISTANT: Hi there</s>\nUSER: Who are you\n"
                   "ASSISTANT: " + REPLY + "</s>\nUSER: Another question\nASSISTANT:",
    "zephyr": framed("<|{}|>\n{}</s>\n", "<|assistant|>\n"),
}

# Published templates that a format must equal: file, and whether conversations without and with a system prompt count.
PUBLISHED = {
    "deepseek-r1": ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja", True, True),
    "gemma": ("google-gemma-2-2b-it.jinja", True, False),
    "gpt-oss": ("openai-gpt-oss-120b.jinja", True, True),
    "granite": ("ibm-granite-granite-3.3-2B-Instruct.jinja", False, True),
    "kimi-k2": ("moonshotai-Kimi-K2.jinja", False, True),
    "mistral-v3-tekken": ("mistralai-Mistral-Nemo-Instruct-2407.jinja", True, True),
    "mistral-v7-tekken": ("Mistral-Small-3.2-24B-Instruct-2506.jinja", False, True),
    "phi3": ("microsoft-Phi-3.5-mini-instruct.jinja", True, True),
    "qwen2.5": ("Qwen-Qwen2.5-7B-Instruct.jinja", True, True),
    "smollm2": ("smollm2-135m-instruct.jinja", True, True),
}
TALKS = [TALK[1:2], TALK[:2], TALK[1:4], TALK[:4], TALK[1:], TALK]
