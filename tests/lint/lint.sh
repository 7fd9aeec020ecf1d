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

# The text of C files without comments and literals, as file:line:text, so that words in prose do not count as calls.
# shellcheck disable=SC2086 # lists of names without spaces
code() { awk -f $here/code.awk "$@"; }

layers() {
    # shellcheck disable=SC2086
    grep -Hn '^#include "' $c_files | awk -v table=$here/layers -f $here/layers.awk
}

# Files that use each other's functions, found in the objects of the build that is linted.
cycles() {
    # shellcheck disable=SC2046
    /usr/bin/python3 $here/cycles.py "$(dirname "${INFCGI:-build/release/infcgi}")" $(grep '\.c$' <<<"$c_files")
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
        ban 'exit|_exit|abort|quick_exit' 'only main ends the process' $(without "$c_files" '^fcgi/(main|wire/fastcgi)\.c$|^fcgi/cmd/')
        ban 'getenv|secure_getenv|setenv' 'the environment is read in fcgi/conf/conf.c' $(without "$c_files" '^fcgi/(conf/conf|wire/fastcgi)\.c$')
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
        grep -Hn '#include <fcgi' $c_files | grep -v '^fcgi/wire/fastcgi\.c:' |
            sed -E 's/^([^:]+:[0-9]+):.*/\1: libfcgi is called in fcgi\/fastcgi.c alone/'
    }
}

# Only generated tables can be longer.
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

# Each header compiles when included alone. *_vec.h are bodies shared by ISA files, which define their types first.
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

# tests/unit mirrors the tree; a suffix after the source's name denotes a part of it (gguf_bad_test.c).
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
    shellcheck -f gcc $(sources .ci/run nginx tests docs | grep -E '\.(sh|bash|postinst|postrm|bug-script)$|^\.ci/run$|^nginx/munin/') | grep -v ': note:'
}

# systemd accepts the units, and they confine the process: at most 0.6 on systemd-analyze's scale from 0 to 10.
units() {
    local unit name
    command -v systemd-analyze >/dev/null || return 0
    for unit in nginx/systemd/infcgi.service nginx/systemd/infcgi.socket; do
        sed 's|/usr/bin/infcgi|/bin/true|' $unit >"$made/${unit##*/}"
        name=${unit##*/infcgi}
        sed -f nginx/systemd/template.sed "$made/${unit##*/}" >"$made/infcgi@one$name"
    done
    for name in infcgi infcgi@one; do
        # systemd reads this machine's services too and can print lines about them.
        systemd-analyze verify "$made/$name.service" "$made/$name.socket" 2>&1 | grep -F "$made/" | sed 's|^|nginx/systemd:1: |'
        systemd-analyze security --offline=true --threshold=6 "$made/$name.service" >"$out" 2>&1 ||
            echo "nginx/systemd/infcgi.service:1: $(tail -n 1 "$out"); at most 0.6"
    done
}

# docs cover what users meet: each error, metric, request field and path, and what proves a model.
documented() {
    local word api=(docs/api.md docs/api-compatible.md docs/api-structured.md)
    if [ -f docs/ops/errors.md ]; then
        for word in $(sed -nE 's/^ *X\(ERR_[A-Z0-9_]+, "([a-z0-9_]+)".*/\1/p' engine/base/err.h | grep -vE '^(ok|again|none)$' | sort -u); do
            grep -qF "\`$word\`" docs/ops/errors.md || echo "docs/ops/errors.md:1: error $word is not listed"
        done
        # nginx's own errors, with their statuses.
        while read -r word status; do
            grep -qE "^\| \`$word\` \| ([0-9]+, )*$status(,| )" docs/ops/errors.md || echo "docs/ops/errors.md:1: error $word of status $status is not listed"
        done < <(sed -nE 's/^    ([45][0-9][0-9]) .*"code":"([a-z_]+)".*/\2 \1/p' nginx/infcgi-http.conf
            awk -F'[][(){}, "]+' '/^ *X\(ERR_/ { code[$3] = $4 }
                /^ *\[ERR_/ && $3 == "=" && $4 != 500 && code[$2] !~ /^(ok|again|none)$/ { print code[$2], $4 }' engine/base/err.h fcgi/wire/http_status.c)
    fi
    if [ -f docs/models.md ] && [ -f tests/golden/golden_models.h ]; then
        for word in $(sed -nE 's/^ *\{"([a-z0-9-]+)", (GGUF|FOLDER).*/\1/p' tests/golden/golden_models.h | sort -u); do
            grep -qF "\`$word\`" docs/models.md || echo "docs/models.md:1: golden model $word is not listed"
        done
    fi
    if [ -f docs/ops/metrics.md ] && [ -f fcgi/watch/metrics.c ]; then
        for word in $(grep -ohE '"infcgi_[a-z_]+"' fcgi/watch/metrics.[ch] | tr -d '"' | sort -u); do
            grep -qF "\`$word\`" docs/ops/metrics.md || echo "docs/ops/metrics.md:1: metric $word is not listed"
        done
        for word in $(sed -nE 's/^ *\{"([a-z_]+)", "(counter|gauge)", .*/\1/p' fcgi/watch/metrics.c); do
            grep -qF "\`llamacpp:$word\`" docs/ops/metrics.md || echo "docs/ops/metrics.md:1: metric llamacpp:$word is not listed"
        done
    fi
    if [ -f docs/api.md ] && [ -f fcgi/routes.c ]; then
        for word in $(cat fcgi/api/*.c fcgi/api/*/*.c | grep -oE '\{"[a-z0-9_]+", *FIELD_' | cut -d'"' -f2 | sort -u); do
            grep -qF "\`$word\`" "${api[@]}" || echo "docs/api.md:1: request field $word is not listed"
        done
        for word in $(sed -nE 's/^ *\{"(GET|POST|DELETE)", "([^"]+)".*/\2/p' fcgi/routes.c); do
            grep -qE "\`$word(\{id\})?\`" docs/api.md || echo "docs/api.md:1: path $word is not listed"
        done
        for word in $(sed -nE 's/^ *\{"(GET|POST|DELETE)", "[^"]+", [a-z_]+, [A-Z]+, "([a-z-]+)".*/\2/p' fcgi/routes.c | sort -u); do
            grep -qi "^## ${word//-/ }\$" "${api[@]}" || echo "docs/api.md:1: there is no heading for $word"
        done
    fi
}

# Each table of request fields has a name in fcgi/field_tables.c, from which docs/openapi.yaml gets its rows; or none (NULL), if
# docs/openapi.yaml lists the fields itself.
field_tables() {
    local file array name
    [ -f fcgi/field_tables.c ] || return 0
    for file in $(grep -l '^static const struct field [a-z_]*\[\]' fcgi/api/*.c fcgi/api/*/*.c); do
        for array in $(sed -nE 's/^static const struct field ([a-z_]+)\[\].*/\1/p' "$file"); do
            name=$(sed -nE "s/^const struct field_table (fields_of_[a-z_]+) = \{\"[a-z_]+\", $array, ARRAY_LEN\($array\)\};/\1/p" "$file")
            grep -qF "&${name:-?}," fcgi/field_tables.c || grep -qF " = {NULL, $array, " "$file" || echo "$file:1: fcgi/field_tables.c does not list the table $array"
        done
    done
}

# The output of `make docs` is up to date. Names of instruction sets are those of x86.
generated() {
    local page
    [ "$(uname -m)" = x86_64 ] || return 0
    if ! bash docs/make.sh "${INFCGI:-build/release/infcgi}" "$made" 2>"$out"; then
        grep '^docs/openapi' "$out" || echo "docs/make.sh:1: $(tail -n 1 "$out")"
        [ -f "$made/openapi.json" ] || return
    fi
    for page in ops/options.md models.md man/infcgi.1 man/infcgi.bash speed.svg openapi.yaml openapi.json; do
        cmp -s "docs/$page" "$made/$page" || echo "docs/$page:1: stale; make docs writes it"
    done
    # Versions of graphviz draw differently, so the picture names the source that it was drawn from.
    grep -qF "$(sha256sum <docs/architecture.dot | cut -d' ' -f1)" docs/architecture.svg || echo "docs/architecture.svg:1: stale; make docs draws it"
    command -v groff >/dev/null && groff -man -ww -Tutf8 docs/man/infcgi.1 2>&1 >/dev/null | sed -E 's/^groff|^troff:[^:]*/docs\/man\/infcgi.1/'
}

# docs/known-models.csv has models of each family, and no other family. Names of C have _ for -.
known_models() {
    local word table=docs/known-models.csv
    [ -f $table ] || return 0
    diff <(sed -n '/^#define FAMILIES/,/^$/p' engine/model/model_families.c | sed -nE 's/^ *X\(([a-z0-9_]+)\).*/\1/p' | sort -u) \
        <(/usr/bin/python3 -c 'import csv; print(*sorted({r["family"].replace("-", "_") for r in csv.DictReader(open("docs/known-models.csv"))}), sep="\n")') |
        sed -nE "s|^< (.*)|$table:1: no model of the family \1|p; s|^> (.*)|$table:1: \1, which is no family of engine/model/model_families.c|p"
    for word in $(/usr/bin/python3 -c 'import csv; print(*{r["tools"] for r in csv.DictReader(open("docs/known-models.csv"))})'); do
        grep -qF "{.name = \"$word\"" engine/chat/chat_format.c || echo "$table:1: $word is no format of engine/chat/chat_format.c"
    done
}

# Monitoring files name only existing metrics.
monitoring() {
    local file word
    for file in nginx/grafana/infcgi.json nginx/prometheus/infcgi.rules.yml nginx/munin/infcgi_; do
        [ -f $file ] || { echo "$file:1: is not there"; continue; }
        for word in $(grep -oE 'infcgi_[a-z_]+[a-z]' $file | sed -E 's/_(bucket|sum|count)$//' | sort -u); do
            [[ $file == *munin* && $word =~ ^infcgi_(requests|tokens|kv|latency)$ ]] || # names of its graphs
                grep -qF "\`$word\`" docs/ops/metrics.md || echo "$file:1: $word is no metric of docs/ops/metrics.md"
        done
    done
    /usr/bin/python3 -c 'import json, yaml; json.load(open("nginx/grafana/infcgi.json")); yaml.safe_load(open("nginx/prometheus/infcgi.rules.yml"))' 2>"$out" ||
        echo "nginx/grafana:1: $(tail -n 1 "$out")"
}

links() { # of the documentation, to files of the tree
    local page target
    for page in $(sources . | grep '\.md$'); do
        for target in $(grep -oE '\]\([^)#:]+(#[^)]*)?\)' "$page" | sed -E 's/^\]\(//; s/[#)].*//'); do
            [ -e "$(dirname "$page")/$target" ] || echo "$page:1: link to $target, which is not there"
        done
    done
}

# Pages keep to plain words (docs/style.md).
words() {
    # shellcheck disable=SC2046
    /usr/bin/python3 $here/words.py $here/words $(sources . | sed 's|^\./||' | grep -E '^(README|CONTRIBUTING|SECURITY|CHANGELOG)\.md$|^docs/.*\.md$')
}

# Every input of the Debian packages is in the tree or installed by `make install`, and they have its version; their
# build dependencies are those that deps.sh installs.
packages() {
    local here=nginx/debian list file installed version word
    [ -d $here ] || return 0
    installed=$(make -n -o all -o page install DESTDIR= PREFIX=/usr 2>/dev/null | grep -oE ' /usr/[^ ]+' | sort -u)
    for list in "$here"/*.install "$here"/*.examples "$here"/*.links; do
        while read -r file _; do
            case $file in
            usr/*) grep -qE "^ /${file}(/|\$)" <<<"$installed" || echo "$list:1: $file, which make install does not make" ;;
            etc/*) cat "$here"/*.install | grep -qF " ${file%/*}" || echo "$list:1: $file, which no package has" ;;
            debian/*) [ -e "nginx/$file" ] || echo "$list:1: nginx/$file, which is not there" ;;
            *) [ -e "$file" ] || echo "$list:1: $file, which is not there" ;;
            esac
        done <"$list"
    done
    for file in $(sed -nE '/--from|COPY build/d; s/^COPY (.*) [^ ]+$/\1/p' nginx/Containerfile); do
        [ -e "$file" ] || echo "nginx/Containerfile:1: COPY of $file, which is not there"
    done
    version=$(sed -nE 's/^#define SERVER_VERSION "(.*)"/\1/p' fcgi/wire/server.h)
    sed -n 1p $here/changelog | grep -qF "($version-" || echo "$here/changelog:1: the program is version $version"
    for word in $(sed -n '/^Build-Depends/,/^[A-Z]/p' $here/control | grep -oE '[a-z0-9-]+-(dev|headers)'); do
        grep -qE "^run=.*[ ']${word}[ ']" tests/support/deps.sh || echo "$here/control:1: $word, which tests/support/deps.sh does not install"
    done
    for word in $(sed -nE "s/^run='(.*)'/\1/p" tests/support/deps.sh | tr ' ' '\n' | grep -E '(-dev|-headers)$' | grep -v libc6); do
        grep -qE "^ *$word," $here/control || echo "$here/control:1: $word of tests/support/deps.sh is not among Build-Depends"
    done
}

# A page of docs/internals names each folder of sources, so that readers of the code find it.
pages() {
    local folder
    for folder in $(sources engine fcgi opencl | grep -E '\.([ch]|clh?)$' | sed 's|/[^/]*$||' | sort -u); do
        grep -qF "\`$folder\`" docs/internals/*.md || echo "docs/internals:1: no page names the folder $folder"
    done
}

findings=$(
    pages
    test_names
    layers
    cycles
    banned
    homes
    sizes
    bash $here/format.sh
    headers
    machine_paths
    file_names
    scripts
    documented
    field_tables
    generated
    known_models
    units
    monitoring
    links
    words
    packages
)
[ -z "$findings" ] && exit 0
printf '%s\n' "$findings"
exit 1
