/* `infcgi devices`: lists the compute devices that OpenCL and the PCI bus show, which of them are usable, and which
 * device --device selects. A child process probes the drivers (probe.h). A machine without devices is no error. */
#include "fcgi/cmd/cmd.h"
#include "opencl/device_json.h"
#include "opencl/inventory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *family_of(const struct chip *chip) { return chip != NULL ? chip_family_name(chip->family) : NULL; }

/* --- the table ---------------------------------------------------------------------------------------------------- */

enum { CELL_BYTES = 160, MAX_ROWS = 1 + PROBE_MAX_DEVICES + PCI_MAX_CARDS };
enum column { NUMBER, ADDRESS, NAME, GFX, MEMORY, WINDOW, DRIVER, USE, COLUMNS };

struct row {
    char cells[COLUMNS][CELL_BYTES];
};

static void print_rows(const struct row *rows, int n)
{
    int width[COLUMNS] = {0};
    for (int i = 0; i < n * COLUMNS; i++) {
        width[i % COLUMNS] = MAX_OF(width[i % COLUMNS], (int)strlen(rows[i / COLUMNS].cells[i % COLUMNS]));
    }
    for (int i = 0; i < n; i++) {
        for (int c = 0; c < USE; c++) {
            printf("%-*s  ", width[c], rows[i].cells[c][0] != '\0' ? rows[i].cells[c] : "-");
        }
        puts(rows[i].cells[USE]);
    }
}

static void put_mib(uint64_t bytes, char *cell)
{
    snprintf(cell, CELL_BYTES, bytes != 0 ? "%" PRIu64 " MiB" : "", bytes >> 20);
}

static void put_card(const struct inventory *v, int card, struct row *row)
{
    const struct pci_card *c = &v->cards[card];
    const struct chip *chip = inventory_chip(v, -1, card);
    char room[PCI_ADDRESS_BYTES];
    snprintf(row->cells[ADDRESS], CELL_BYTES, "%s", pci_address_text(&c->at, room));
    int n = snprintf(row->cells[NAME], CELL_BYTES, "PCI id %04x:%04x", c->vendor, c->device);
    if (chip != NULL) {
        snprintf(row->cells[NAME] + n, CELL_BYTES - (size_t)n, ", %s", family_of(chip));
    }
    snprintf(row->cells[GFX], CELL_BYTES, "%s", chip != NULL ? chip->gfx : "");
    put_mib(c->vram_bytes, row->cells[MEMORY]);
    put_mib(pci_window_bytes(c), row->cells[WINDOW]);
    snprintf(row->cells[DRIVER], CELL_BYTES, "%s", c->driver);
    snprintf(row->cells[USE], CELL_BYTES, "no, see below");
}

static void put_device(const struct inventory *v, int i, struct row *row)
{
    const struct device_caps *c = &v->probe.devices[i];
    const struct chip *chip = inventory_chip(v, i, -1);
    int card = v->card_of[i];
    char room[DEVICE_WHY_BYTES];
    const char *why_not = device_why_not(c, room), *kernel_s = card >= 0 ? v->cards[card].driver : "";
    if (card >= 0) {
        put_card(v, card, row);
    } else if (c->has_pci) {
        (void)pci_address_text(&c->pci, row->cells[ADDRESS]);
    }
    snprintf(row->cells[NUMBER], CELL_BYTES, "%d", i);
    snprintf(row->cells[NAME], CELL_BYTES, "%s", inventory_name(c));
    snprintf(row->cells[GFX], CELL_BYTES, "%s", c->gfx[0] != '\0' || chip == NULL ? c->gfx : chip->gfx);
    put_mib(c->memory_bytes, row->cells[MEMORY]);
    snprintf(row->cells[DRIVER], CELL_BYTES, "%s%s%s %.40s", kernel_s, kernel_s[0] != '\0' ? ", " : "", c->platform,
             c->driver);
    snprintf(row->cells[USE], CELL_BYTES, why_not == NULL ? "yes" : "no: %s", why_not);
}

static void print_table(const struct inventory *v)
{
    static const struct row head = {{"#", "PCI address", "name", "gfx", "memory", "BAR", "driver", "usable"}};
    static struct row rows[MAX_ROWS];
    int n = 0;
    rows[n++] = head;
    for (int i = 0; i < v->probe.n_devices; i++) {
        put_device(v, i, &rows[n++]);
    }
    for (int i = 0; i < v->n_cards; i++) {
        if (inventory_device_of(v, i) < 0) {
            put_card(v, i, &rows[n++]);
        }
    }
    if (n > 1) {
        print_rows(rows, n);
    }
}

/* --- what stands below it ------------------------------------------------------------------------------------------- */

static void print_notes(const struct inventory *v)
{
    char room[DEVICE_TEXT_BYTES], address[PCI_ADDRESS_BYTES];
    for (int i = 0; i < v->n_cards; i++) {
        const char *note = inventory_card_note(v, i, room);
        if (note[0] != '\0') {
            printf("%s: %s\n", pci_address_text(&v->cards[i].at, address), note);
        }
    }
    for (int i = 0; i < v->probe.n_devices; i++) {
        const char *note = v->card_of[i] < 0 ? inventory_device_note(v, i, room) : "";
        if (note[0] != '\0') {
            printf("device %d: %s\n", i, note);
        }
    }
}

static void print_missing(const struct inventory *v)
{
    char room[DEVICE_TEXT_BYTES];
    for (int i = 0; inventory_fault(v, i, room); i++) {
        printf("%s\n", room);
    }
    for (int i = 0; i < v->probe.n_platforms; i++) {
        const struct probe_platform *p = &v->probe.platforms[i];
        if (p->n_devices == 0 && p->fault[0] == '\0') {
            printf("%s is installed and shows no device%s\n", p->name,
                   strcmp(p->name, "rusticl") == 0
                       ? "; it shows those that RUSTICL_ENABLE names, as radeonsi does AMD's"
                       : "");
        }
    }
    if (v->probe.n_platforms == 0 && v->probe.fault[0] == '\0') {
        puts("no OpenCL driver is installed: everything is computed by the CPU (for AMD's cards: mesa-opencl-icd, or "
             "ROCm)");
    }
    if (v->n_cards == 0) {
        printf("%s\n", v->no_bus[0] != '\0' ? v->no_bus : "no display card is on the PCI bus");
    }
}

/* --- JSON ----------------------------------------------------------------------------------------------------------- */

static json_t *text_or_null(const char *s) { return s != NULL && s[0] != '\0' ? json_string(s) : json_null(); }

static json_t *device_object(const struct inventory *v, int i)
{
    const struct device_caps *c = &v->probe.devices[i];
    const struct chip *chip = inventory_chip(v, i, -1);
    char why[DEVICE_WHY_BYTES], note[DEVICE_TEXT_BYTES];
    const char *why_not = device_why_not(c, why);
    json_t *o = device_json(c);
    json_t *more =
        json_pack("{s:i, s:b, s:o, s:o, s:o}", "number", i, "usable", why_not == NULL, "why_not", text_or_null(why_not),
                  "family", text_or_null(family_of(chip)), "note", text_or_null(inventory_device_note(v, i, note)));
    (void)json_object_update(o, more); /* NULLs are passed through */
    json_decref(more);
    return o;
}

static json_t *card_object(const struct inventory *v, int i)
{
    static const char *const rebar[] = {"unknown", "on", "off"};
    const struct pci_card *c = &v->cards[i];
    int device = inventory_device_of(v, i);
    const struct chip *chip = inventory_chip(v, device, i);
    char address[PCI_ADDRESS_BYTES], note[DEVICE_TEXT_BYTES], ids[2][16];
    json_t *bars = json_array();
    for (int b = 0; b < PCI_BARS; b++) {
        (void)json_array_append_new(bars, json_integer((json_int_t)c->bar_bytes[b]));
    }
    snprintf(ids[0], sizeof ids[0], "%04x:%04x", c->vendor, c->device);
    snprintf(ids[1], sizeof ids[1], "%04x:%04x", c->sub_vendor, c->sub_device);
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:s, s:o, s:i, s:o, s:o}", "pci",
                     pci_address_text(&c->at, address), "id", ids[0], "subsystem", ids[1], "gfx",
                     text_or_null(chip != NULL ? chip->gfx : NULL), "family", text_or_null(family_of(chip)), "driver",
                     text_or_null(c->driver), "node", text_or_null(c->node), "bar_bytes", bars, "vram_bytes",
                     (json_int_t)c->vram_bytes, "resizable_bar", rebar[inventory_rebar(v, i)], "link_speed",
                     text_or_null(c->link_speed), "link_width", (int)c->link_width, "device",
                     device >= 0 ? json_integer(device) : json_null(), "note",
                     text_or_null(inventory_card_note(v, i, note)));
}

static json_t *all_objects(const struct inventory *v)
{
    json_t *devices = json_array(), *cards = json_array(), *platforms = json_array(), *faults = json_array();
    char fault[DEVICE_TEXT_BYTES];
    for (int i = 0; i < v->probe.n_devices; i++) {
        (void)json_array_append_new(devices, device_object(v, i));
    }
    for (int i = 0; i < v->n_cards; i++) {
        (void)json_array_append_new(cards, card_object(v, i));
    }
    for (int i = 0; i < v->probe.n_platforms; i++) {
        const struct probe_platform *p = &v->probe.platforms[i];
        (void)json_array_append_new(platforms, json_pack("{s:s, s:i}", "name", p->name, "devices", p->n_devices));
    }
    for (int i = 0; inventory_fault(v, i, fault); i++) {
        (void)json_array_append_new(faults, json_string(fault));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "devices", devices, "cards", cards, "platforms", platforms, "faults",
                     faults);
}

/* --- the command ------------------------------------------------------------------------------------------------------ */

/* The selection of --device. */
struct choice {
    int n, device[PROBE_MAX_DEVICES];
    char why[PROBE_MAX_DEVICES][DEVICE_TEXT_BYTES];
};

static enum err choose(const struct inventory *v, const char *which, struct choice *out, struct err_info *info)
{
    for (out->n = 0;; out->n++) { /* no device is listed twice, so there are at most v's */
        char why[DEVICE_TEXT_BYTES];
        int device;
        enum err err = inventory_choose(v, which, out->n, &device, why, info);
        if (err != ERR_OK) {
            return err == ERR_NONE ? ERR_OK : err;
        }
        out->device[out->n] = device;
        memcpy(out->why[out->n], why, sizeof why);
    }
}

static int print_json(const struct inventory *v, const struct choice *c)
{
    json_t *all = all_objects(v), *chosen = json_array();
    for (int i = 0; i < c->n; i++) {
        (void)json_array_append_new(chosen, json_pack("{s:i, s:s}", "device", c->device[i], "why", c->why[i]));
    }
    bool is_whole = json_object_set_new(all, "chosen", chosen) == 0;
    return cmd_print_json(all, JSON_INDENT(2)) && is_whole ? CMD_OK : CMD_NO_SYSTEM;
}

int cmd_devices(const struct program *p, struct conf *conf)
{
    static struct choice chosen;
    (void)p;
    const struct inventory *v = inventory_get();
    struct err_info info = {0};
    enum err err = choose(v, conf->device, &chosen, &info);
    if (err != ERR_OK && strcmp(conf->device, "auto") != 0) {
        return cmd_fail(conf, err, &info);
    }
    if (conf->json) {
        return print_json(v, &chosen);
    }
    print_table(v);
    print_notes(v);
    print_missing(v);
    for (int i = 0; i < chosen.n; i++) {
        printf("--device %s: %s\n", conf->device, chosen.why[i]);
    }
    return CMD_OK;
}
