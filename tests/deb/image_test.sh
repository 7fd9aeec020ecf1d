#!/bin/bash
# Builds the image of nginx/Containerfile on the bare Debian 12 of deb_test.sh, without a registry, runs it and sends
# requests. Needs root and buildah, which runs it with this machine's network; the rest of the image is fetched. Last
# line: N passed, N failed.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$PWD/build/image-test
base=$PWD/build/deb-test/base
[ -e "$base/../base.ok" ] || { echo "error: image-test: expected a bare Debian in $base, which make deb-test makes" >&2; exit 1; }
[ -e build/html/.ok ] || { echo "error: image-test: expected the chat page in build/html, which make page makes" >&2; exit 1; }
mkdir -p "$work"
bud() { buildah --root "$work/store" --runroot "$work/run" --storage-driver vfs "$@"; }
bud rm --all >/dev/null
bud rmi --all --force >/dev/null

bare=$(bud from scratch)
tar -C "$base" --exclude ./tmp/debs --exclude './var/cache/apt/archives/*.deb' -cf "$work/base.tar" .
bud add "$bare" "$work/base.tar" / >/dev/null
bud commit -q --rm "$bare" localhost/bare >/dev/null
rm "$work/base.tar"
bud build --format docker --isolation chroot --pull-never --build-arg BASE=localhost/bare -f nginx/Containerfile -t infcgi . >"$work/build.log" 2>&1 ||
    { tail -n 30 "$work/build.log" >&2; exit 1; }

passed=0
failed=0
check() { # NAME EXPECTED FOUND
    # shellcheck disable=SC2053 # a pattern
    if [[ $3 == $2 ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1: expected $2, found: $3"
    fi
}
image=$(bud from --pull-never localhost/infcgi)
config() { bud inspect --format "{{$1}}" "$image"; }
check 'whose it is' infcgi "$(config .OCIv1.Config.User)"
check 'what it checks itself with' '*curl*/health*' "$(config .Docker.Config.Healthcheck)"
entry=$(config 'index .OCIv1.Config.Entrypoint 0')

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
# With its own processes, which end with it.
unshare --pid --fork --kill-child buildah --root "$work/store" --runroot "$work/run" --storage-driver vfs \
    run --isolation chroot --user infcgi --env PORT="$port" --env HOST=127.0.0.1 \
    --volume "$PWD/tests/golden/models/llama-yarn.gguf:/models/model.gguf:ro" "$image" -- "$entry" --chat-template chatml >"$work/log" 2>&1 &
running=$!
for _ in $(seq 300); do
    grep -q '^infcgi ready' "$work/log" && break
    kill -0 $running 2>/dev/null || break
    sleep 0.2
done
ask() { curl -sS -m 20 -w ' %{http_code}' "http://127.0.0.1:$port$1" "${@:2}" 2>&1 || true; }
check 'its line' '*infcgi ready: http://*' "$(cat "$work/log")"
check 'its health' '*"ok"* 200' "$(ask /health)"
check 'a completion' '*"text"* 200' "$(ask /v1/completions -H 'Content-Type: application/json' -d '{"prompt": "abc", "max_tokens": 4}')"
check 'the page' '*<html* 200' "$(ask /)"
check "the page's library" '*DOMPurify* 200' "$(ask /lib/purify.js | tail -c 100000)"
kill -KILL $running   # unshare ignores SIGTERM
wait $running 2>/dev/null || true
bud rm --all >/dev/null
echo "$passed passed, $failed failed"
[ $failed = 0 ]
