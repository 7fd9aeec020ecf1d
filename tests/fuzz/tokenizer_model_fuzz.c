/* tokenizer.model of a SafeTensors folder, a protocol buffer of SentencePiece. */
#include "tests/fuzz/fuzz.h"

#include "tests/fuzz/fuzz_folder.h"

void tokenizer_model_fuzz(const unsigned char *data, size_t n);

void tokenizer_model_fuzz(const unsigned char *data, size_t n)
{
    static const char text[] = "Hello  w\xC3\xB6rld!\n\xE2\x96\x81 abc\xFF\xE4\xB8\xAD";
    fuzz_folder_write("tokenizer.model", (struct gguf_str){(const char *)data, n});
    fuzz_folder_tokenizer((struct gguf_str){text, sizeof text - 1});
}
