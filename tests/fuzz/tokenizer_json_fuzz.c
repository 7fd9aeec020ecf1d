/* The tokenizer of a SafeTensors folder. Parts of the input: tokenizer.json, a text to encode, tokenizer_config.json,
 * generation_config.json. */
#include "tests/fuzz/fuzz.h"

#include "engine/format/tokenizer_json.h"
#include "tests/fuzz/fuzz_folder.h"

void tokenizer_json_fuzz(const unsigned char *data, size_t n);

void tokenizer_json_fuzz(const unsigned char *data, size_t n)
{
    struct gguf_str tokenizer = fuzz_part(&data, &n), text = fuzz_part(&data, &n), part;
    fuzz_folder_write("tokenizer.json", tokenizer);
    part = fuzz_part(&data, &n);
    fuzz_folder_write("tokenizer_config.json", part);
    part = fuzz_part(&data, &n);
    fuzz_folder_write("generation_config.json", part);
    fuzz_folder_tokenizer(text);
}
