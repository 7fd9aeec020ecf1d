/* How many layers a device computes: what a text says, and as many as fit, by what a back end measures that has all in a
 * memory of its own. */
#include "engine/backend/backend_layers.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *backend_layers_suite(void);

enum { N_PAGES = 3, N_STATES = 2, N_ROWS = 5 };

static struct gguf *g;
static struct plan *plan;
static int32_t n_layers;

static void open_model(const char *name)
{
    char path[128];
    struct err_info info = {0};
    snprintf(path, sizeof path, "tests/golden/models/%s.gguf", name);
    ck_assert_msg(gguf_open(path, &g, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(model_build(g, 0, &plan, &info) == ERR_OK, "%s", info.text);
    n_layers = (int32_t)plan->n_layers;
}

static void close_model(void)
{
    plan_free(&plan);
    gguf_close(&g);
}

/* --- a card ------------------------------------------------------------------------------------------------------- */

static size_t card_bytes, host_bytes = 1000; /* 0: there is no card */
static bool is_shared;

/* Cards that lists name: "0" is the one with card_bytes. */
static size_t list_bytes[3];

static enum err probe_card(const struct backend_config *cfg, int i, struct backend_device *out, struct err_info *info)
{
    const char *at = cfg->device != NULL ? cfg->device : "0"; /* digits with commas */
    if (2 * (size_t)i >= strlen(at)) {
        return ERR_NONE;
    }
    int number = at[2 * i] - '0';
    if (number > 2) {
        return err_set(info, ERR_CONFIG, "device", "no card has the number %d", number);
    }
    size_t bytes = number == 0 ? card_bytes : list_bytes[number];
    *out = (struct backend_device){.name = "a card", .bytes = {host_bytes, bytes}, .is_shared = {false, is_shared}};
    snprintf(out->id, sizeof out->id, "%d", number);
    return bytes != 0 ? ERR_OK : err_set(info, ERR_UNSUPPORTED_DEVICE, NULL, "no card");
}

static enum err measure_card(const struct plan *p, const struct backend_config *cfg, struct backend_measure *out,
                             struct err_info *info)
{
    TRY(backend_ref.measure(p, cfg, out, info));
    out->bytes[BACKEND_DEVICE] = out->bytes[BACKEND_HOST];
    out->bytes[BACKEND_HOST] = (struct backend_bytes){0};
    return ERR_OK;
}

static const char *card_option(int i) { return i == 0 ? "device" : NULL; }

static struct backend make_card(void)
{
    struct backend card = backend_ref;
    card.option_name = card_option;
    card.probe = probe_card;
    card.measure = measure_card;
    return card;
}

static struct backend_config config(void)
{
    return (struct backend_config){
        .n_threads = 1, .n_pages = N_PAGES, .n_states = N_STATES, .max_rows = N_ROWS, .max_logits = 1};
}

static struct backend_parts parts_of(const struct backend *card, int32_t n)
{
    const struct backend_part first = {card, 0, MIN_OF(n, n_layers) - 1, ""},
                              rest = {&backend_cpu, n, n_layers - 1, ""};
    return n <= 0          ? (struct backend_parts){.n = 1, .at = {rest}}
           : n >= n_layers ? (struct backend_parts){.n = 1, .at = {first}}
                           : (struct backend_parts){.n = 2, .at = {first, rest}};
}

/* What the first n layers take of the card; 0: the model cannot be cut there. */
static size_t bytes_of(const struct backend *card, int32_t n)
{
    struct backend_parts parts = parts_of(card, n);
    struct backend_config cfg = config();
    struct backend_measure m;
    struct err_info info = {0};
    cfg.parts = &parts;
    if (backend_of_parts(&parts)->measure(plan, &cfg, &m, &info) != ERR_OK) {
        return 0;
    }
    const struct backend_bytes *b = &m.bytes[BACKEND_DEVICE];
    return b->weights + b->activations + N_PAGES * b->page + N_STATES * b->state;
}

/* A memory with so much beside what is left to the driver. */
static size_t with_rest(size_t bytes) { return bytes / 15 * 16 + bytes % 15; }

/* --- tests -------------------------------------------------------------------------------------------------------- */

START_TEST(a_number_or_a_name)
{
    static const struct {
        const char *text;
        int32_t n; /* -2: refused */
    } cases[] = {{"0", 0},
                 {"17", 17},
                 {"999999", 999999},
                 {"auto", BACKEND_LAYERS_AUTO},
                 {"all", BACKEND_LAYERS_ALL},
                 {"-1", -2},
                 {"1.5", -2},
                 {"1000000", -2},
                 {"", -2},
                 {"half", -2},
                 {" 1", -2},
                 {"1 ", -2}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int32_t n = -2;
        struct err_info info = {0};
        enum err err = backend_layers_parse(cases[i].text, "x", &n, &info);
        ck_assert_msg(err == (cases[i].n == -2 ? ERR_CONFIG : ERR_OK) && n == cases[i].n, "%s: %d", cases[i].text, n);
        ck_assert(err == ERR_OK || strncmp(info.text, "x: expected a number of layers, auto or all; found '", 52) == 0);
    }
}
END_TEST

START_TEST(as_many_as_fit)
{
    struct backend card = make_card();
    struct backend_config cfg = config();
    struct err_info info = {0};
    int32_t n;
    open_model("qwen3next-delta"); /* recurrent states, most layers without keys and values */
    for (int32_t i = 1; i <= n_layers; i++) {
        size_t bytes = bytes_of(&card, i);
        ck_assert_uint_gt(bytes, bytes_of(&card, i - 1));
        card_bytes = with_rest(bytes);
        ck_assert_int_eq(backend_layers_that_fit(&card, plan, &cfg, &n, &info), ERR_OK);
        ck_assert_int_eq(n, i);
        card_bytes = with_rest(bytes - 1);
        ck_assert_int_eq(backend_layers_that_fit(&card, plan, &cfg, &n, &info), ERR_OK);
        ck_assert_int_eq(n, i - 1);
    }
    ck_assert_int_eq(backend_layers_that_fit(&backend_ref, plan, &cfg, &n, &info), ERR_OK);
    ck_assert_int_eq(n, 0); /* all of its memory is the host's */
    card_bytes = 0;
    ck_assert_int_eq(backend_layers_that_fit(&card, plan, &cfg, &n, &info), ERR_UNSUPPORTED_DEVICE);
    close_model();
}
END_TEST

/* Where the card's memory is the host's, the rest of the model takes from it too. */
START_TEST(a_shared_memory_has_room_for_all)
{
    struct backend card = make_card();
    struct backend_config cfg = config();
    struct err_info info = {0};
    int32_t n;
    open_model("qwen3next-delta");
    size_t bytes = bytes_of(&card, n_layers);
    card_bytes = 4 * bytes;
    for (int i = 0; i < 4; i++) {
        is_shared = i % 2 == 1;
        host_bytes = i < 2 ? bytes : bytes - 1;
        ck_assert_int_eq(backend_layers_that_fit(&card, plan, &cfg, &n, &info), ERR_OK);
        ck_assert_int_eq(n == n_layers, i != 3);
    }
    is_shared = false;
    close_model();
}
END_TEST

/* A layer may not lie after the cut and read keys and values of one in front of it. */
START_TEST(a_model_is_cut_where_it_can_be)
{
    struct backend card = make_card();
    struct backend_config cfg = config();
    struct err_info info = {0};
    int32_t last = 0, n;
    open_model("gemma3n-sparse");
    for (int32_t i = 1; i < n_layers; i++) {
        last = bytes_of(&card, i) != 0 ? i : last;
    }
    ck_assert_int_lt(last, n_layers - 1);
    ck_assert_int_gt(last, 0);
    card_bytes = with_rest(bytes_of(&card, n_layers) - 1);
    ck_assert_int_eq(backend_layers_that_fit(&card, plan, &cfg, &n, &info), ERR_OK);
    ck_assert_int_eq(n, last);
    close_model();
}
END_TEST

static char told[BACKEND_TEXT_BYTES];

static void on_told(void *unused, const char *text)
{
    (void)unused;
    snprintf(told, sizeof told, "%s", text);
}

static enum err place_on(const char *list, const struct backend *b, const char *text, struct backend_parts *parts,
                         struct err_info *info)
{
    struct backend_config cfg = config();
    cfg.device = list;
    cfg.tell = on_told;
    told[0] = '\0';
    *parts = (struct backend_parts){.n = 1, .at = {{b, 0, n_layers - 1, ""}}};
    return backend_layers_place(text, plan, &cfg, parts, info);
}

static enum err place(const struct backend *b, const char *text, struct backend_parts *parts, struct err_info *info)
{
    return place_on(NULL, b, text, parts, info);
}

START_TEST(layers_are_placed_as_the_text_says)
{
    struct backend card = make_card();
    struct backend_parts parts;
    struct err_info info = {0};
    open_model("qwen3next-delta");
    card_bytes = with_rest(bytes_of(&card, 2));
    ck_assert_int_eq(place(&card, "auto", &parts, &info), ERR_OK);
    ck_assert(parts.n == 2 && parts.at[0].backend == &card && parts.at[1].backend == &backend_cpu);
    ck_assert(parts.at[0].first == 0 && parts.at[0].last == 1 && parts.at[1].first == 2);
    ck_assert_int_eq(parts.at[1].last, n_layers - 1);
    ck_assert_msg(strstr(told, "2 of 5 layers fit in the ") == told, "%s", told);
    ck_assert_int_eq(place(&card, "4", &parts, &info), ERR_OK); /* whether it fits, the caller looks */
    ck_assert(parts.n == 2 && parts.at[0].last == 3 && told[0] == '\0');
    ck_assert_int_eq(place(&card, "5", &parts, &info), ERR_OK);
    ck_assert(parts.n == 1 && parts.at[0].backend == &card && parts.at[0].last == 4);
    ck_assert_int_eq(place(&card, "99", &parts, &info), ERR_OK);
    ck_assert(parts.n == 1 && parts.at[0].backend == &card && parts.at[0].last == 4);
    card_bytes = 1;
    ck_assert_int_eq(place(&card, "auto", &parts, &info), ERR_OK);
    ck_assert(parts.n == 1 && parts.at[0].backend == &backend_cpu && parts.at[0].last == 4);
    card_bytes = 0;
    ck_assert_int_eq(place(&card, "0", &parts, &info), ERR_OK);
    ck_assert(parts.n == 1 && parts.at[0].backend == &backend_cpu && parts.at[0].last == 4);
    ck_assert_int_eq(place(&card, "all", &parts, &info), ERR_OK); /* open will say that there is none */
    ck_assert(parts.n == 1 && parts.at[0].backend == &card);
    ck_assert_int_eq(place(&card, "1", &parts, &info), ERR_UNSUPPORTED_DEVICE);
    ck_assert_int_eq(place(&backend_ref, "0", &parts, &info), ERR_OK);
    ck_assert(parts.n == 1 && parts.at[0].backend == &backend_ref && parts.at[0].last == 4);
    ck_assert_int_eq(place(&backend_ref, "1", &parts, &info), ERR_CONFIG);
    ck_assert_str_eq(info.text,
                     "gpu-layers: expected no value, because the back end ref computes in host memory; found '1'");
    parts = parts_of(&card, 2);
    struct backend_config cfg = config();
    ck_assert_int_eq(backend_layers_place("1", plan, &cfg, &parts, &info), ERR_CONFIG);
    ck_assert_int_eq(backend_layers_place(NULL, plan, &cfg, &parts, &info), ERR_OK);
    ck_assert_int_eq(parts.n, 2);
    close_model();
}
END_TEST

static void is_part(const struct backend_parts *parts, int i, const char *device, int32_t first, int32_t last)
{
    const struct backend_part *p = &parts->at[i];
    ck_assert_msg(i < parts->n && strcmp(p->device, device) == 0 && p->first == first && p->last == last,
                  "part %d of %d: '%s' %d to %d", i, parts->n, p->device, p->first, p->last);
    ck_assert((p->backend == &backend_cpu) == (device[0] == '\0'));
}

START_TEST(layers_are_spread_over_a_list)
{
    struct backend card = make_card();
    struct backend_parts parts;
    struct err_info info = {0};
    open_model("qwen3next-delta"); /* of five layers */
    size_t all = bytes_of(&card, n_layers);
    card_bytes = list_bytes[2] = 4 * all;
    list_bytes[1] = 12 * all;
    ck_assert_int_eq(place_on("0,1", &card, "all", &parts, &info), ERR_OK);
    ck_assert(parts.n == 2 && backend_of_parts(&parts) == &backend_composite);
    is_part(&parts, 0, "0", 0, 0);
    is_part(&parts, 1, "1", 1, 4);
    ck_assert_int_eq(place_on("1,2,0", &card, "4", &parts, &info), ERR_OK);
    ck_assert_int_eq(parts.n, 4);
    is_part(&parts, 0, "1", 0, 1);
    is_part(&parts, 1, "2", 2, 2);
    is_part(&parts, 2, "0", 3, 3);
    is_part(&parts, 3, "", 4, 4);
    ck_assert_int_eq(place_on("1,0", &card, "auto", &parts, &info), ERR_OK);
    ck_assert(parts.n == 2 && strstr(told, "5 of 5 layers fit in the ") == told &&
              strstr(told, "that 2 devices have free"));
    card_bytes = list_bytes[1] = SIZE_MAX; /* of drivers that tell nonsense */
    ck_assert_int_eq(place_on("1,0", &card, "all", &parts, &info), ERR_OK);
    is_part(&parts, 1, "0", 3, 4);
    card_bytes = 4 * all;
    list_bytes[1] = 1; /* a card that is full */
    ck_assert_int_eq(place_on("1,0", &card, "all", &parts, &info), ERR_OK);
    ck_assert(parts.n == 1 && backend_of_parts(&parts) == &backend_composite); /* the device is not the list's first */
    is_part(&parts, 0, "0", 0, 4);
    ck_assert_int_eq(place_on("1,0", &card, "0", &parts, &info), ERR_OK);
    ck_assert(parts.n == 1 && parts.at[0].backend == &backend_cpu);
    ck_assert_int_eq(place_on("1,7", &card, "all", &parts, &info), ERR_CONFIG);
    ck_assert_str_eq(info.text, "no card has the number 7");
    ck_assert_int_eq(place_on("0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1", &card, "all", &parts, &info), ERR_CONFIG);
    ck_assert_str_eq(info.text, "device: expected 15 devices at most, found more");
    close_model();
}
END_TEST

/* Two cards have room for what one has not, and where the cut must lie follows from what fits. */
START_TEST(a_list_has_room_for_more)
{
    struct backend card = make_card();
    struct backend_config cfg = config();
    struct backend_parts parts;
    struct err_info info = {0};
    int32_t n;
    open_model("qwen3next-delta");
    for (int32_t i = 1; i < n_layers; i++) {
        card_bytes = with_rest(bytes_of(&card, i));
        list_bytes[1] = with_rest(bytes_of(&card, n_layers)); /* more than the rest takes */
        list_bytes[2] = 1;
        cfg.device = "0,2";
        ck_assert_int_eq(backend_layers_that_fit(&card, plan, &cfg, &n, &info), ERR_OK);
        ck_assert_int_eq(n, i);
        cfg.device = "0,1";
        ck_assert_int_eq(backend_layers_that_fit(&card, plan, &cfg, &n, &info), ERR_OK);
        ck_assert_int_eq(n, n_layers);
        ck_assert_int_eq(place_on("0,1", &card, "auto", &parts, &info), ERR_OK);
        ck_assert(parts.n == 2 && parts.at[0].last < i && parts.at[1].last == n_layers - 1);
        ck_assert_int_eq(place_on("0,2", &card, "all", &parts, &info), ERR_OK); /* what has no room the last one has */
        is_part(&parts, 0, "0", 0, i - 1);
        is_part(&parts, 1, "2", i, n_layers - 1);
    }
    close_model();
}
END_TEST

START_TEST(parts_take_the_devices_of_a_list)
{
    struct backend card = make_card();
    struct backend_config cfg = config();
    struct err_info info = {0};
    open_model("qwen3next-delta");
    card_bytes = list_bytes[1] = list_bytes[2] = 1000;
    struct backend_parts parts = {.n = 3, .at = {{&card, 0, 1, ""}, {&backend_cpu, 2, 2, ""}, {&card, 3, 4, ""}}};
    cfg.device = "2,0";
    ck_assert_int_eq(backend_layers_place(NULL, plan, &cfg, &parts, &info), ERR_OK);
    is_part(&parts, 0, "2", 0, 1);
    is_part(&parts, 1, "", 2, 2);
    is_part(&parts, 2, "0", 3, 4);
    cfg.device = "2,0,1";
    ck_assert_int_eq(backend_layers_place(NULL, plan, &cfg, &parts, &info), ERR_CONFIG);
    ck_assert_str_eq(info.text, "device: expected 2 devices, one for each part of the back end ref; found '2,0,1'");
    close_model();
}
END_TEST

/* What the device refuses of the whole model is no reason to compute less on it. */
START_TEST(what_is_wrong_with_all_layers_is_said)
{
    struct backend card = make_card();
    struct backend_config cfg = config();
    struct err_info info = {0};
    int32_t n;
    open_model("qwen3next-delta");
    card_bytes = with_rest(bytes_of(&card, n_layers));
    cfg.k_type = "q8_0"; /* which the CPU has and ref has not */
    ck_assert_int_eq(backend_layers_that_fit(&card, plan, &cfg, &n, &info), ERR_CONFIG);
    close_model();
}
END_TEST

/* --- moving --------------------------------------------------------------------------------------------------------- */

static bool is_unfit_and(const bool *unfit, const struct backend_parts *parts, const struct backend *device)
{
    bool ok = true;
    int32_t at = 0;
    for (int i = 0; i < parts->n; i++) {
        ok &= parts->at[i].first == at && parts->at[i].last >= at;
        for (; at <= parts->at[i].last; at++) {
            ok &= !unfit[at] || parts->at[i].backend != device;
        }
        ok &= i == 0 || parts->at[i].backend != parts->at[i - 1].backend ||
              strcmp(parts->at[i].device, parts->at[i - 1].device) != 0;
    }
    return ok;
}

START_TEST(unfit_layers_go_to_the_cpu)
{
    struct backend card = make_card();
    const bool unfit[] = {false, true, true, false, false, true};
    struct backend_parts parts = {.n = 1, .at = {{&card, 0, 5, ""}}};
    backend_layers_move(unfit, &parts);
    ck_assert_int_eq(parts.n, 4);
    ck_assert(parts.at[0].backend == &card && parts.at[0].first == 0 && parts.at[0].last == 0);
    ck_assert(parts.at[1].backend == &backend_cpu && parts.at[1].first == 1 && parts.at[1].last == 2);
    ck_assert(parts.at[2].backend == &card && parts.at[2].first == 3 && parts.at[2].last == 4);
    ck_assert(parts.at[3].backend == &backend_cpu && parts.at[3].first == 5 && parts.at[3].last == 5);

    /* What is no device keeps its layers, and the CPU's become one part; each device keeps its own. */
    parts = (struct backend_parts){
        .n = 4, .at = {{&card, 0, 1, "0"}, {&backend_cpu, 2, 2, ""}, {&card, 3, 4, "1"}, {&backend_ref, 5, 5, ""}}};
    backend_layers_move(unfit, &parts);
    ck_assert_int_eq(parts.n, 4);
    is_part(&parts, 0, "0", 0, 0);
    is_part(&parts, 1, "", 1, 2);
    is_part(&parts, 2, "1", 3, 4);
    ck_assert(parts.at[3].backend == &backend_ref && parts.at[1].backend == &backend_cpu);

    const bool all[] = {true, true, true, true, true, true};
    parts = (struct backend_parts){.n = 2, .at = {{&card, 0, 3, "0"}, {&card, 4, 5, "1"}}};
    backend_layers_move(all, &parts);
    ck_assert(parts.n == 1 && parts.at[0].backend == &backend_cpu && parts.at[0].device[0] == '\0');
    is_part(&parts, 0, "", 0, 5);
}
END_TEST

/* Never more parts than there is room for, and no unfit layer on the device, however they lie. */
START_TEST(there_is_room_for_all_parts)
{
    struct backend card = make_card();
    bool unfit[64];
    uint32_t state = 1;
    for (int n_before = 1; n_before <= BACKEND_MAX_PARTS; n_before++) {
        for (int k = 0; k < 200; k++) {
            struct backend_parts parts = {.n = n_before};
            for (int i = 0; i < 64; i++) {
                state = state * 1664525u + 1013904223u;
                unfit[i] = k == 0 ? i % 2 == 0 : (state >> 16) % 8 == 0;
            }
            for (int i = 0; i < n_before; i++) {
                parts.at[i] = (struct backend_part){
                    .backend = &card, .first = i * 64 / n_before, .last = (i + 1) * 64 / n_before - 1};
                snprintf(parts.at[i].device, sizeof parts.at[i].device, "%d", i);
            }
            backend_layers_move(unfit, &parts);
            ck_assert_int_le(parts.n, BACKEND_MAX_PARTS);
            ck_assert_int_eq(parts.at[parts.n - 1].last, 63);
            ck_assert(is_unfit_and(unfit, &parts, &card));
        }
    }
}
END_TEST

Suite *backend_layers_suite(void)
{
    Suite *s = suite_create("backend_layers");
    TCase *t = tcase_create("backend_layers");
    tcase_add_test(t, a_number_or_a_name);
    tcase_add_test(t, as_many_as_fit);
    tcase_add_test(t, a_shared_memory_has_room_for_all);
    tcase_add_test(t, a_model_is_cut_where_it_can_be);
    tcase_add_test(t, layers_are_placed_as_the_text_says);
    tcase_add_test(t, layers_are_spread_over_a_list);
    tcase_add_test(t, a_list_has_room_for_more);
    tcase_add_test(t, parts_take_the_devices_of_a_list);
    tcase_add_test(t, what_is_wrong_with_all_layers_is_said);
    tcase_add_test(t, unfit_layers_go_to_the_cpu);
    tcase_add_test(t, there_is_room_for_all_parts);
    suite_add_tcase(s, t);
    return s;
}
