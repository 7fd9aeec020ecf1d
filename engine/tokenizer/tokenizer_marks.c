/* Finds the marks: tokens that templates write and users do not. Control tokens are marks. User-defined tokens are of
 * two kinds that files do not distinguish. Some are marks (<|tool_call>, <think>). Others are text with its own id,
 * which the models saw as that token in ordinary text (runs of spaces and line ends, Gemma's HTML tags). The token's
 * text and the chat template decide. */
#include "engine/tokenizer/tokenizer_internal.h"

/* Gemma's vocabularies have these as text. */
static const char *const html[] = {
    "a",   "b",     "blockquote", "br", "caption", "code", "div",   "em",  "h1", "h2",   "h3",     "h4",
    "h5",  "h6",    "hr",         "i",  "li",      "ol",   "p",     "pre", "s",  "span", "strong", "sub",
    "sup", "table", "tbody",      "td", "tfoot",   "th",   "thead", "tr",  "u",  "ul",
};

/* Matches <name>, </name> or <name/> of the list. */
static bool is_html(struct gguf_str s)
{
    if (s.len < 3 || s.data[0] != '<' || s.data[s.len - 1] != '>') {
        return false;
    }
    s = (struct gguf_str){s.data + 1, s.len - 2};
    if (s.data[0] == '/') {
        s = (struct gguf_str){s.data + 1, s.len - 1};
    } else if (s.data[s.len - 1] == '/') {
        s.len--;
    }
    for (size_t i = 0; i < ARRAY_LEN(html); i++) {
        if (gguf_str_is(s, html[i])) {
            return true;
        }
    }
    return false;
}

/* Returns the length of an invisible character at s[0..n): white space, U+2581, which represents a space, or the
 * underscore. */
static size_t blank_at(const char *s, size_t n)
{
    uint32_t cp;
    size_t len = n > 0 ? tokenizer_chr(s, n, &cp) : 0;
    bool is_blank = len > 0 && (cp == 0x2581 || cp == '_' || unicode_class_of(cp) == UNICODE_SPACE);
    return is_blank ? len : 0;
}

static struct gguf_str without_blanks(struct gguf_str s)
{
    for (size_t len; (len = blank_at(s.data, s.len)) > 0;) {
        s = (struct gguf_str){s.data + len, s.len - len};
    }
    for (size_t at; s.len > 0; s.len = at) {
        at = tokenizer_chr_start(s.data, s.len);
        if (blank_at(s.data + at, s.len - at) != s.len - at) {
            break;
        }
    }
    return s;
}

/* Matches <...>, [...], {...}, |...| or >>...<< around a letter, a digit or a character beyond ASCII; or a bracket with
 * a bar, in ASCII or DeepSeek's form. */
static bool has_form_of_mark(struct gguf_str s)
{
    static const char *const bars[] = {"<|", "|>", "<\xEF\xBD\x9C", "\xEF\xBD\x9C>", "[|", "|]"};
    static const char open[] = "<[{|>", close[] = ">]}|<";
    for (size_t i = 0; i < ARRAY_LEN(bars); i++) {
        if (s.len > 2 && memmem(s.data, s.len, bars[i], strlen(bars[i])) != NULL) {
            return true;
        }
    }
    const char *kind = s.len > 2 ? strchr(open, s.data[0]) : NULL;
    bool is_word = false;
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        is_word = is_word || c >= 0x80 || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    }
    return is_word && kind != NULL && s.data[0] != '\0' && s.data[s.len - 1] == close[kind - open];
}

static enum token_role role_of(const struct tokenizer *t, int32_t id, bool has_html)
{
    enum token_kind kind = (enum token_kind)t->kinds[id];
    if (kind != TOKEN_USER_DEFINED) {
        return kind == TOKEN_CONTROL || kind == TOKEN_UNKNOWN ? ROLE_MARK : ROLE_NONE;
    }
    struct gguf_str s = without_blanks(tokenizer_text(t, id));
    uint32_t cp;
    if (s.len == 0 || tokenizer_chr(s.data, s.len, &cp) == s.len) {
        return ROLE_TEXT;
    }
    if (has_html && is_html(s)) {
        return ROLE_WORD;
    }
    bool has_duty = t->is_eog[id] != 0 || id == t->bos || id == t->unk;
    return has_duty || has_form_of_mark(s) ? ROLE_MARK : ROLE_WORD;
}

/* Plain text must not yield a mark, not even by merges, nor a token that the model lacks. */
static void ban_marks(struct tokenizer *t)
{
    for (int32_t id = 0; id < t->n_vocab; id++) {
        if ((t->roles[id] == ROLE_MARK || added_is_apart(t, id)) && t->text[id].len > 0) {
            words_ban(t, id);
        }
    }
    for (uint32_t i = 0; t->merges != NULL && i <= t->merge_mask; i++) {
        struct merge *m = &t->merges[i];
        m->key = m->left >= 0 && t->roles[m->result] == ROLE_MARK ? NO_KEY : m->key;
    }
}

/* Builds all that depends on the roles. */
static enum err build(struct tokenizer *t)
{
    special_fini(&t->marks);
    special_fini(&t->user_defined);
    special_fini(&t->normal_marks);
    special_fini(&t->normal_user);
    TRY(special_build(&t->marks, t, true, false));
    TRY(special_build(&t->user_defined, t, false, false));
    TRY(special_build(&t->normal_marks, t, true, true));
    TRY(special_build(&t->normal_user, t, false, true));
    ban_marks(t);
    if (t->method != METHOD_UNIGRAM) {
        return ERR_OK;
    }
    mem_free(t->trie);
    t->trie = NULL;
    return unigram_build(t);
}

enum err marks_build(struct tokenizer *t)
{
    static const char sign[] = "<strong>";
    int32_t tag = tokenizer_find(t, sign, strlen(sign));
    bool has_html = tag >= 0 && t->kinds[tag] == TOKEN_USER_DEFINED;
    t->roles = mem_zalloc((size_t)t->n_vocab, MEM_MODEL);
    TRY_MEM(t->roles != NULL);
    for (int32_t id = 0; id < t->n_vocab; id++) {
        t->roles[id] = (unsigned char)role_of(t, id, has_html);
    }
    TRY(added_build(t));
    return build(t);
}

/* Finds tokens for normalized text in a template literally. Returns whether one became a mark. */
static bool add_normalized(struct tokenizer *t, const char *source, size_t n)
{
    bool any = false;
    for (int32_t id = 0; t->normal != NULL && id < t->n_vocab; id++) {
        struct gguf_str s = tokenizer_text(t, id);
        bool may_be = (t->rules[id] & TOKEN_NORMALIZED) != 0 && t->roles[id] == ROLE_WORD && s.len > 0;
        if (may_be && memmem(source, n, s.data, s.len) != NULL) {
            t->roles[id] = ROLE_MARK;
            any = true;
        }
    }
    return any;
}

enum err tokenizer_add_marks(struct tokenizer *t, const char *source, size_t n)
{
    struct special_matches found = {0};
    bool any = add_normalized(t, source, n);
    enum err err = special_find(t, &(struct special_search){.text = source, .n = n}, &found);
    for (size_t i = 0; err == ERR_OK && i < found.n; i++) {
        unsigned char *role = &t->roles[found.at[i].id];
        any = any || *role == ROLE_WORD;
        *role = *role == ROLE_WORD ? ROLE_MARK : *role;
    }
    mem_free(found.at);
    return err == ERR_OK && any ? build(t) : err;
}
