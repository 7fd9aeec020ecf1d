#!/bin/sh
# Installs the missing Debian packages; does nothing, silently, if all are installed.
#   deps.sh run    for building and running
#   deps.sh test   also for the tests
#   deps.sh arm    for building and running the ARM kernels on another CPU
#   deps.sh valgrind  for `make kern-valgrind`
#   deps.sh fuzz   for `make fuzz`: Debian 12's clang and its sanitizers
#   deps.sh tidy   for `make tidy`
#   deps.sh isa    for `make isa-report`: the first clang of Debian 12 that knows all of RDNA3, and AMD's library of OpenCL C
#   deps.sh docs   for drawing the diagrams of the pages
#   deps.sh deb    for building the Debian packages
#   deps.sh deb-test  also for testing them in a bare Debian
#   deps.sh image-test  for building the container's image
#   deps.sh load   for building, running and `make bench-load`
#   deps.sh bench  for building, running, `make bench-peer` and `make peer-loads`
set -eu
run='gcc libc6-dev make pkg-config libfcgi-dev libjansson-dev libpcre2-dev libutf8proc-dev libssl-dev ocl-icd-opencl-dev opencl-headers libpciaccess-dev libedit-dev nginx spawn-fcgi curl ca-certificates python3 python3-pip'
# For the chat page's libraries. nodejs packages from other sources than Debian have it too.
page=
command -v npm >/dev/null || [ -e "$(dirname "$0")/../../build/html/.ok" ] || page=npm
command -v npm >/dev/null || page=npm
load=libcurl4-openssl-dev
tests='check libsubunit-dev groff-base python3-venv python3-jinja2 python3-yaml universal-ctags shellcheck clang-format chromium chromium-driver pocl-opencl-icd mesa-opencl-icd oclgrind'
arm='gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user'
valgrind='gcc libc6-dev make valgrind'
fuzz='clang-14 libclang-rt-14-dev'
tidy=clang-tidy
isa='clang-19 llvm-19 rocm-device-libs'
bench='cmake g++ git python3-venv'
docs=graphviz
deb='build-essential debhelper dh-apparmor fakeroot lintian'
deb_test='autopkgtest iproute2 mmdebstrap systemd-container'
image='buildah curl python3'

case ${1:-run} in
run) want="$run $page" ;;
test) want="$run $page $load $tests $arm $isa" ;;
arm) want="make $arm" ;;
valgrind) want=$valgrind ;;
fuzz) want="$run $fuzz" ;;
tidy) want="$run $tidy" ;;
isa) want="$run pocl-opencl-icd $isa" ;;
load) want="$run $load" ;;
bench) want="$run $bench" ;;
docs) want=$docs ;;
deb) want="$run $page $deb" ;;
image-test) want=$image ;;
deb-test) want="$run $page $deb $deb_test" ;;
*) echo "usage: deps.sh run|test|arm|valgrind|fuzz|tidy|isa|load|bench|docs|deb|deb-test|image-test" >&2; exit 64 ;;
esac
if ! command -v dpkg-query >/dev/null; then
    echo "note: not a Debian system; needed are: $want" >&2
    exit 0
fi

missing=
for p in $want; do
    case $(dpkg-query -W -f '${db:Status-Abbrev}' "$p" 2>/dev/null || true) in
    ii*) ;;
    *) missing="$missing $p" ;;
    esac
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "error: these packages are missing and neither root nor sudo is at hand:$missing" >&2
        exit 1
    fi
    as_root=sudo
fi

echo "installing:$missing"
# Unless a policy forbids it, the nginx package starts a server on port 80; only the program is needed.
policy=/usr/sbin/policy-rc.d
own_policy=
if [ ! -e $policy ]; then
    own_policy=1
    trap '$as_root rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' | $as_root tee $policy >/dev/null
    $as_root chmod 755 $policy
fi
log=$(mktemp)
install() {
    # shellcheck disable=SC2086 # a list of words
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >"$log" 2>&1
}
# Package lists can be old or, in an image, missing: fetch them only if the install fails without.
if ! install; then
    $as_root apt-get update -q >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
    install || { tail -n 30 "$log" >&2; exit 1; }
fi
rm -f "$log"
[ -z "$own_policy" ] || $as_root rm -f $policy
trap - EXIT
