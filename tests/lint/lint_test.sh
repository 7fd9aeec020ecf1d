#!/bin/bash
# Checks that lint detects errors: breaks each rule in a copy of the tree and looks for the findings. Last line: N
# passed, N failed.
set -u
cd "$(dirname "$0")/../.." || exit 1
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -co --exclude-standard | grep -v '\.gguf$' | tar -cf - -T - | tar -xf - -C "$copy"
git -C "$copy" init -q
mkdir -p "$copy/build/release"
cp -rs "$PWD"/build/release/{engine,fcgi,opencl,infcgi} "$copy/build/release/" # links
passed=0
failed=0

names=()
patterns=()
check() { # NAME FILE TEXT PATTERN: lint must say PATTERN once TEXT stands at the end of FILE (which may be new)
    mkdir -p "$(dirname "$copy/$2")"
    printf '%b\n' "$3" >>"$copy/$2"
    names+=("$1")
    patterns+=("$4")
}

ring() { # STEM...: sources with objects, each of which calls the next one's function, the last one the first one's
    local at next stems=("$@" "$1")
    for at in $(seq $#); do
        next=$(basename "${stems[at]}")
        at=${stems[at - 1]}
        printf 'void %s(void);\nvoid %s(void);\nvoid %s(void)\n{\n    %s();\n}\n' "$next" "$(basename "$at")" "$(basename "$at")" "$next" >"$copy/$at.c"
        mkdir -p "$(dirname "$copy/build/release/$at")"
        gcc -c -o "$copy/build/release/$at.o" "$copy/$at.c"
    done
}

many_lines=$(printf 'int f%.0s;\\n' $(seq 1001))
long_function="void long_one(void)\\n{\\n$(printf '    ;\\n%.0s' $(seq 110))}"
check 'an include upwards' engine/base/buf.c '#include "engine/plan/plan.h"' 'engine/base/buf.c:[0-9]+: engine/base may not include'
check 'an include past the door' fcgi/wire/reply.c '#include "engine/kv/pool/kv_cache.h"' 'fcgi/wire/reply.c:[0-9]+: fcgi/wire may not include'
check 'the pool in a kernel' engine/kernels/ref/attention_ref.c '#include "engine/kv/pool/kv_cache.h"' 'engine/kernels/ref/[a-z_]+.c:[0-9]+: engine/kernels may not include'
ring engine/plan/two_a engine/kv/two_b
check 'a cycle of files through two folders' engine/plan/two_a.c '' 'engine/kv/two_b.c:1: a cycle of 2 files: engine/kv/two_b.c engine/plan/two_a.c; .* engine/kv/two_b.c \(two_a\) -> engine/plan/two_a.c \(two_b\)$'
ring engine/plan/seven_{1..7}
check 'a cycle of more than six files' engine/plan/seven_1.c '' 'engine/plan/seven_1.c:1: a cycle of 7 files: engine/plan/seven_1.c '
ring engine/plan/six_{1..6}
check 'a file without an object' engine/plan/not_built.c 'int f;' 'engine/plan/not_built.c:1: build/release has no object of it'
check 'malloc' engine/plan/plan.c 'void *f(void) { return malloc(1); }' 'plan.c:[0-9]+: heap memory'
check 'malloc beside comments' engine/plan/x_new.c '/* malloc(1) */\nint g = sizeof("free(x)");\nvoid *f(void) { return malloc(3); }' 'x_new.c:3: heap'
check 'strcpy' fcgi/conf/conf.c 'void f(char *a) { strcpy(a, "x"); }' 'conf.c:[0-9]+: a banned function'
check 'printf in the engine' engine/plan/plan.c 'void f(void) { printf("x"); }' 'plan.c:[0-9]+: the engine prints nothing'
check 'open' engine/plan/plan.c 'int f(void) { return open("x", 0); }' 'plan.c:[0-9]+: files are read'
check 'exit' engine/plan/plan.c 'void f(void) { exit(1); }' 'plan.c:[0-9]+: only main ends'
check 'getenv' engine/plan/plan.c 'char *f(void) { return getenv("x"); }' 'plan.c:[0-9]+: the environment'
check 'strtol' fcgi/conf/conf.c 'long f(char *s) { return strtol(s, 0, 0); }' 'conf.c:[0-9]+: numbers in text'
check 'intrinsics' engine/plan/plan.c '#include <immintrin.h>' 'plan.c:[0-9]+: intrinsics'
check 'libfcgi elsewhere' fcgi/conf/conf.c '#include <fcgiapp.h>' 'conf.c:[0-9]+: libfcgi'
check 'a long file' engine/plan/long.c "$many_lines" 'long.c:1: 100[0-9] lines'
check 'a long function' engine/plan/long_function.c "$long_function" 'long_function.c:1: long_one has 11[0-9] lines'
check 'a header that needs another' engine/plan/needy.h 'struct x { uint32_t a; };' 'needy.h:1: does not compile alone'
check 'a path of one machine' docs/non-goals.md "see /ho""me/me/notes" 'non-goals.md:[0-9]+: a path'
check 'a unit that is not locked in' nginx/systemd/infcgi.service '[Service]\nPrivateNetwork=no\nRestrictAddressFamilies=\nSystemCallFilter=\nProtectSystem=no' 'exposure level for infcgi.service: [1-9]'
check 'a metric that no page has' fcgi/watch/metrics.c 'const char *f = "infcgi_made_up";' 'metric infcgi_made_up is not listed'
check 'a metric of another name' fcgi/watch/metrics.c '        {"made_up_total", "counter", "Made up.", 0},' 'metric llamacpp:made_up_total is not listed'
check 'an error of nginx' nginx/infcgi-http.conf '    499 {"error":{"code":"made_up"}};' 'error made_up of status 499 is not listed'
check 'an error of another status' fcgi/wire/http_status.c '    [ERR_API_KEY] = {403, ""},' 'error invalid_api_key of status 403 is not listed'
check 'a file in another form' engine/plan/plan.c 'int  f( void );' 'plan.c:[0-9]+: the form is not'
check 'two files of a name' fcgi/plan.h '' 'plan.h:1: two files'
check 'an error without a page' engine/base/err.h '    X(ERR_NEW, "brand_new", "")' 'error brand_new is not listed'
sed -i 's/`--pin`/`--pinned`/' "$copy/docs/ops/options.md"
check 'a stale table of options' docs/ops/options.md '' 'docs/ops/options.md:1: stale'
check 'a stale man page' docs/man/infcgi.1 '.XX x' 'docs/man/infcgi.1:1: stale'
check 'a man page that groff warns of' docs/man/infcgi.1 '' 'docs/man/infcgi.1:.*XX'
check 'stale completion' docs/man/infcgi.bash '# more' 'docs/man/infcgi.bash:1: stale'
check 'a model of no family' docs/known-models.csv 'New One,brand-new,1,,,hermes,,,' 'known-models.csv:1: brand_new, which is no family'
check 'a model of no tool format' docs/known-models.csv 'New Two,llama,1,,,brand-tools,,,' 'known-models.csv:1: brand-tools is no format'
check 'a family without a known model' engine/model/model_families.c '#define FAMILIES_TOO\n    X(brand_family)\n' 'known-models.csv:1: no model of the family brand_family'
check 'a stale table of models' docs/known-models.csv 'New Three,llama,1,,,hermes,,,' 'docs/models.md:1: stale'
check 'a golden model without a page' tests/golden/golden_models.h '    {"brand-new", GGUF, FLOATS},' 'golden model brand-new is not listed'
check 'a request field without a page' fcgi/api/params.c '    {"brand_new_field", FIELD_BOOL, 0, 0, 0},' 'request field brand_new_field is not listed'
check 'a path without a page' fcgi/routes.c '    {"GET", "/v1/brand/new", f, OPENAI, "brand-new", ASKS},' 'path /v1/brand/new is not listed'
check 'a route without a heading' fcgi/routes.c '' 'there is no heading for brand-new'
check 'a table of fields without a name' fcgi/api/llama/tokens.c 'static const struct field new_fields[] = {' 'does not list the table new_fields'
sed -i 's|^  /slots:|  /slits:|; s|begin score|begin scare|; s|^        query:|        quary: {}\n&|; s|^        echo: .*||' "$copy/docs/openapi.yaml"
check 'a path that the document lacks' docs/openapi.yaml '' 'path /slots is not described for GET'
check 'a path of the document alone' docs/openapi.yaml '' 'GET /slits is no route'
check 'a field of the document alone' docs/openapi.yaml '' 'field quary has no row in the table rerank'
check 'a table that the document lacks' docs/openapi.yaml '' 'no mark names the table score'
check 'a field that the document lacks' docs/openapi.yaml '' 'docs/openapi.yaml:1: stale'
check 'a document that is not made anew' docs/openapi.json '' 'docs/openapi.json:1: stale'
check 'a test without a source' tests/unit/plan/nowhere_test.c 'int x;' 'nowhere_test.c:1: no source under plan has this name'
check 'a test in another room' tests/unit/base/plan_test.c 'int x;' 'base/plan_test.c:1: no source under base has this name'
check 'a folder without a page' engine/newer/newer.c '/* New. */' 'no page names the folder engine/newer'
check 'a dead link' README.md '[x](docs/nowhere.md)' 'README.md:1: link to docs/nowhere.md'
check 'a word that pages do not use' README.md 'It runs by\nitself.' 'README.md:[0-9]+: "by itself": write: automatically'
check 'a word at the start of a line' CHANGELOG.md 'Of two models one is loaded.' 'CHANGELOG.md:[0-9]+: "Of": write'
check 'a page below docs' docs/howto/brand-new.md 'All of it, at most.' 'brand-new.md:1: "at most": write: put it before'
check 'words in code are no prose' docs/howto/brand-newer.md '```sh\necho anew\n```\n`nobody` and\n<!-- whoever -->\nanew.' 'brand-newer.md:6: "anew"'
check 'a package of what is not made' nginx/debian/infcgi.install 'usr/bin/nowhere' 'infcgi.install:1: usr/bin/nowhere, which make install'
check 'a package of what is not there' nginx/debian/infcgi-gpu.install 'debian/nowhere etc/x' 'infcgi-gpu.install:1: nginx/debian/nowhere, which is not'
check 'a copy of what is not there' nginx/Containerfile 'COPY docs/nowhere.md /' 'nginx/Containerfile:1: COPY of docs/nowhere.md'
sed -i 's/(0\./(9./' "$copy/nginx/debian/changelog"
check 'a package of another version' nginx/debian/changelog '' 'nginx/debian/changelog:1: the program is version'
sed -i '/libfcgi-dev/d' "$copy/nginx/debian/control"
check 'a library that the package is built without' nginx/debian/control '' 'control:1: libfcgi-dev of tests'

said=$(bash "$copy/tests/lint/lint.sh" 2>&1)
for i in "${!names[@]}"; do
    if grep -qE "${patterns[i]}" <<<"$said"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "lint did not see: ${names[i]}"
    fi
done
if grep -q 'a cycle of.*six_1' <<<"$said"; then
    failed=$((failed + 1))
    echo 'lint reports a cycle of six files in a folder'
else
    passed=$((passed + 1))
fi
if grep -q 'x_new.c:[12]: heap' <<<"$said"; then
    failed=$((failed + 1))
    echo 'lint takes words in comments or literals for calls'
else
    passed=$((passed + 1))
fi
if grep -q 'brand-newer.md:[1-5]:' <<<"$said"; then
    failed=$((failed + 1))
    echo 'lint takes words in code or comments for prose'
else
    passed=$((passed + 1))
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
