#!/bin/bash
# Checks the rules of CONTRIBUTING.md that a program can check. Silent when all is well; else a line for each finding, exit 1.
set -u
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C
here=tests/lint
out=$(mktemp)
made=$(mktemp -d)
trap 'rm -rf "$out" "$made"' EXIT

sources() { git ls-files -co --exclude-standard -- "$@" 2>/dev/null || find "$@" -type f; }
c_files=$(sources engine fcgi opencl | grep '\.[ch]$')
every_c_file="$c_files $(sources tests | grep '\.[ch]$')"

# The text of C files without comments and literals, as file:line:text, so that words in prose are not taken for calls.
# shellcheck disable=SC2086 # lists of names without spaces
code() { awk -f $here/code.awk "$@"; }

layers() {
    # shellcheck disable=SC2086
    grep -Hn '^#include "' $c_files | awk -v table=$here/layers -f $here/layers.awk
}

# file:line: word    rule
ban() { # PATTERN-OF-CALLS REASON FILES...
    local words=$1 reason=$2
    shift 2
    code "$@" | grep -E "(^[^:]+:[0-9]+:|[^A-Za-z0-9_>.])($words) *\(" | cut -d: -f1,2 | sed "s|\$|: $reason|"
}
without() { tr ' ' '\n' <<<"$1" | grep -vE "$2"; }

banned() {
    # shellcheck disable=SC2046,SC2086
    {
        ban 'malloc|calloc|realloc|reallocarray|free|posix_memalign|aligned_alloc|strdup|strndup|asprintf' \
            'heap memory comes from engine/base/mem.h' $(without "$c_files" '^engine/base/mem\.c$')
        ban 'open|openat|fopen|fdopen|read|pread|readv|mmap' 'files are read through engine/base/io.h' \
            $(without "$c_files" '^engine/base/(io|mem)\.c$|^fcgi/')
        ban 'printf|fprintf|dprintf|vprintf|vfprintf|puts|fputs|putchar|perror' 'the engine prints nothing' \
            $(grep '^engine/' <<<"$c_files")
        ban 'strcpy|strcat|sprintf|vsprintf|strncpy|strtok|gets|atoi|atol|atoll|atof|alloca|rand|srand|random|system|popen|setjmp|longjmp' \
            'a banned function (CONTRIBUTING.md)' $c_files
        ban 'strtol|strtoll|strtoul|strtoull|sscanf|scanf' 'numbers in text are parsed by hand' $c_files
        ban 'exit|_exit|abort|quick_exit' 'only main ends the process' $(without "$c_files" '^fcgi/(main|server|fastcgi)\.c$|^fcgi/cmd/')
        ban 'getenv|secure_getenv|setenv' 'the environment is read in fcgi/conf.c' $(without "$c_files" '^fcgi/(conf|fastcgi)\.c$')
    }
}

# Intrinsics stay in engine/kernels/<arch>/, CL headers in opencl/, FastCGI headers in fcgi/.
homes() {
    # shellcheck disable=SC2086
    {
        grep -Hn '#include <[a-z0-9]*intrin\.h>\|#include <arm_[a-z]*\.h>\|#include <cpuid\.h>' $c_files |
            grep -vE '^engine/kernels/(x86|arm)/|^engine/kernels/isa\.c:|^engine/base/(pool|compiler)\.[ch]:' |
            sed -E 's/^([^:]+:[0-9]+):.*/\1: intrinsics belong under engine\/kernels\/<arch>\//'
        grep -Hn '#include <CL/' $c_files | grep -v '^opencl/' | sed -E 's/^([^:]+:[0-9]+):.*/\1: CL headers belong in opencl\//'
        grep -Hn '#include <fcgi' $c_files | grep -v '^fcgi/fastcgi\.c:' |
            sed -E 's/^([^:]+:[0-9]+):.*/\1: libfcgi is called in fcgi\/fastcgi.c alone/'
    }
}

# Generated tables may be long; anything else may not.
sizes() {
    # shellcheck disable=SC2086
    {
        wc -l $every_c_file | awk '$2 != "total" && $1 > 1000 { print $2 ":1: " $1 " lines; a file has 1000 at most" }'
        if command -v ctags >/dev/null; then
            ctags -x --language-force=C --c-kinds=f --_xformat='%F %n %N %{end}' $every_c_file 2>/dev/null |
                awk 'NF == 4 && $4 - $2 + 1 > 100 { print $1 ":" $2 ": " $3 " has " $4 - $2 + 1 " lines; a function has 100 at most" }'
        fi
        awk 'length($0) > 140 && FILENAME !~ /_vectors\.h$/ { print FILENAME ":" FNR ": a line of " length($0) " columns" }' $every_c_file
    }
}

# Each header compiles when it is included alone. *_vec.h are bodies shared by ISA files, which define their types first.
headers() {
    local h cc
    for h in $(grep '\.h$' <<<"$c_files" | grep -v '_vec\.h$'); do
        cc=gcc
        if [[ $h == engine/kernels/arm/* && $(uname -m) != aarch64 ]]; then
            cc=aarch64-linux-gnu-gcc
            command -v $cc >/dev/null || continue
        fi
        if ! $cc -std=c17 -D_GNU_SOURCE -I. -fsyntax-only -x c -include "$h" /dev/null 2>"$out"; then
            echo "$h:1: does not compile alone: $(grep -m1 error "$out" | sed 's/.*error: //')"
        fi
    done
}

machine_paths() {
    sources . | grep -vE '^(\./)?(LICENSE|tests/data/)|\.gguf$|\.svg$' | xargs -r grep -InE '(^|[^A-Za-z0-9_.$/-])/(work|home|root|Users)/[A-Za-z0-9_.-]' |
        sed -E 's/^([^:]+:[0-9]+):.*/\1: a path of one machine/'
}

file_names() { # unique, so that one word finds one file
    sources engine fcgi opencl | sed 's|.*/||' | grep -vE '\.(md|txt)$' | sort | uniq -d | sed 's/$/:1: two files have this name/'
}

# tests/unit mirrors the tree: what stands behind the source's name is a part of it (gguf_bad_test.c).
test_names() {
    local test stem folder
    for test in $(sources tests/unit | grep '_test\.c$'); do
        folder=$(sed -E 's|^tests/unit/(.*)/[^/]*$|\1|' <<<"$test")
        stem=$(basename "$test" _test.c)
        while ! grep -qE "(^|/)$folder/(.*/)?$stem\.[ch]\$" <<<"$c_files"; do
            [[ $stem == *_* ]] || { echo "$test:1: no source under $folder has this name"; break; }
            stem=${stem%_*}
        done
    done
}

scripts() {
    command -v shellcheck >/dev/null || return 0
    # shellcheck disable=SC2046
    shellcheck -f gcc $(sources .ci/run nginx tests docs | grep -E '\.(sh|bash)$|^\.ci/run$') | grep -v ': note:'
}

# What users meet is in docs: each error, each metric, each request field and path, and what proves a model.
documented() {
    local word
    if [ -f docs/ops/errors.md ]; then
        for word in $(sed -nE 's/^ *X\(ERR_[A-Z0-9_]+, "([a-z0-9_]+)".*/\1/p' engine/base/err.h | grep -vE '^(ok|again|none)$' | sort -u); do
            grep -qF "\`$word\`" docs/ops/errors.md || echo "docs/ops/errors.md:1: error $word is not listed"
        done
    fi
    if [ -f docs/models.md ] && [ -f tests/golden/golden_models.h ]; then
        for word in $(sed -nE 's/^ *\{"([a-z0-9-]+)", (GGUF|FOLDER).*/\1/p' tests/golden/golden_models.h | sort -u); do
            grep -qF "\`$word\`" docs/models.md || echo "docs/models.md:1: golden model $word is not listed"
        done
    fi
    if [ -f docs/ops/metrics.md ] && [ -f fcgi/metrics.c ]; then
        for word in $(grep -ohE '"infcgi_[a-z_]+"' fcgi/metrics.[ch] | tr -d '"' | sort -u); do
            grep -qF "\`$word\`" docs/ops/metrics.md || echo "docs/ops/metrics.md:1: metric $word is not listed"
        done
    fi
    if [ -f docs/api.md ] && [ -f fcgi/route.c ]; then
        for word in $(cat fcgi/api/*.c | grep -oE '\{"[a-z0-9_]+", *FIELD_' | cut -d'"' -f2 | sort -u); do
            grep -qF "\`$word\`" docs/api.md || echo "docs/api.md:1: request field $word is not listed"
        done
        for word in $(sed -nE 's/^ *\{"(GET|POST|DELETE)", "([^"]+)".*/\2/p' fcgi/route.c); do
            grep -qE "\`$word(\{id\})?\`" docs/api.md || echo "docs/api.md:1: path $word is not listed"
        done
        for word in $(sed -nE 's/^ *\{"(GET|POST|DELETE)", .*, "([a-z-]+)"\},$/\2/p' fcgi/route.c | sort -u); do
            grep -qi "^## ${word//-/ }\$" docs/api.md || echo "docs/api.md:1: there is no heading for $word"
        done
    fi
}

# Each table of request fields has a name in fcgi/api/fields.c, from where docs/openapi.yaml has its rows.
field_tables() {
    local file array name
    [ -f fcgi/api/fields.c ] || return 0
    for file in $(grep -l '^static const struct field [a-z_]*\[\]' fcgi/api/*.c); do
        for array in $(sed -nE 's/^static const struct field ([a-z_]+)\[\].*/\1/p' "$file"); do
            name=$(sed -nE "s/^const struct field_table (fields_of_[a-z_]+) = \{\"[a-z_]+\", $array, ARRAY_LEN\($array\)\};/\1/p" "$file")
            grep -qF "&${name:-?}," fcgi/api/fields.c || echo "$file:1: fcgi/api/fields.c does not list the table $array"
        done
    done
}

# What `make docs` writes is what the program says. Names of instruction sets are those of x86.
generated() {
    local page
    [ "$(uname -m)" = x86_64 ] || return 0
    if ! bash docs/make.sh "${INFCGI:-build/release/infcgi}" "$made" 2>"$out"; then
        grep '^docs/openapi' "$out" || echo "docs/make.sh:1: $(tail -n 1 "$out")"
        [ -f "$made/openapi.json" ] || return
    fi
    for page in ops/options.md man/infcgi.1 man/infcgi.bash openapi.yaml openapi.json; do
        cmp -s "docs/$page" "$made/$page" || echo "docs/$page:1: stale; make docs writes it"
    done
    command -v groff >/dev/null && groff -man -ww -Tutf8 docs/man/infcgi.1 2>&1 >/dev/null | sed -E 's/^groff|^troff:[^:]*/docs\/man\/infcgi.1/'
}

links() { # of the documentation, to files of the tree
    local page target
    for page in $(sources . | grep '\.md$'); do
        for target in $(grep -oE '\]\([^)#:]+(#[^)]*)?\)' "$page" | sed -E 's/^\]\(//; s/[#)].*//'); do
            [ -e "$(dirname "$page")/$target" ] || echo "$page:1: link to $target, which is not there"
        done
    done
}

findings=$(
    bash docs/files.sh --check
    test_names
    layers
    banned
    homes
    sizes
    headers
    machine_paths
    file_names
    scripts
    documented
    field_tables
    generated
    links
)
[ -z "$findings" ] && exit 0
printf '%s\n' "$findings"
exit 1
