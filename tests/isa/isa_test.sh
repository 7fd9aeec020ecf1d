#!/bin/bash
# Checks that isa.py detects errors: gives it budgets that are too small, and kernels that are worse. Last line: N
# passed, N failed.
set -u
cd "$(dirname "$0")/../.." || exit 1
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
passed=0
failed=0

check() { # NAME BUDGET PATTERN [FILE SED]...: isa.py must fail with a line that matches, once files of kernels are edited so
    local name=$1 budget=$2 pattern=$3 said status
    rm -rf "$copy/kernels"
    cp -r opencl/kernels "$copy"
    shift 3
    while [ $# -gt 1 ]; do
        sed -i "$2" "$copy/kernels/$1"
        shift 2
    done
    printf '%s\n' "$budget" >"$copy/budget"
    said=$(/usr/bin/python3 tests/isa/isa.py --budget "$copy/budget" --kernels "$copy/kernels" 2>&1)
    status=$?
    if [ $status != 0 ] && grep -qE "^FAILED .*$pattern" <<<"$said"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "isa.py did not see: $name"
    fi
}

rows='rows.cl : vgpr=24 lds=40000'
vector='matmul.cl KIND=3 TOKENS,SPLIT=1,1 PAIR=0 PICKED=0 : vgpr=255 lds=65536'
matrix='matmul.cl KIND=3 TOKENS,SPLIT=32,0 PAIR=0 PICKED=0 : vgpr=255 lds=65536'
plain='s/DOT_ARM == 2$/DOT_ARM == 9/' # only of dot4: codes of KIND 3 are not looked up
check 'scratch' "$rows" 'rows.cl: spills: [1-9][0-9]* bytes of scratch' rows.cl \
    '1i __kernel void spills(__global int *x) { int a[99]; for (int i = 0; i < 99; i++) a[x[i] % 99] = i; x[0] = a[x[1] % 99]; }'
check 'LDS' "$rows" 'rows.cl: room: 36000 bytes of LDS, more than 32768' rows.cl \
    '1i __kernel void room(__global int *x) { __local int a[9000]; a[x[0]] = x[1]; barrier(1); x[2] = a[x[3]]; }'
check 'registers of a budget' 'rows.cl : vgpr=2 lds=0' 'rows.cl: copy: [3-9] VGPRs, more than 2'
check 'registers of attention' 'attention.cl D,DV=576,512 LATENT=1 HEADS=4 ROWS=1 SPLIT=0/1 K8,V8=0,0 : vgpr=255 lds=65536' \
    'attention: 1[0-9]* VGPRs, more than 96'
check 'a share' "$matrix dot4=95" 'v_dot4 take less than 95 %'
check 'plain products' "$matrix" 'no v_dot4' common.clh "$plain"
check 'more instructions' "$vector" '[0-9]+ vector instructions for 36 bytes a lane' common.clh "$plain"
check 'small loads' "$vector" '0 of 36 bytes a lane are loaded 16 at a time' weights.clh \
    's/^#define LANE_4.*/#define LANE_4(g, b, i) ((uint4)(LANE_1(g, b, 4*(i)), LANE_1(g, b, 4*(i)+1), LANE_1(g, b, 4*(i)+2), LANE_1(g, b, 4*(i)+3)))/'
check 'what does not compile' "$rows" 'gfx1100 rows.cl: .*error' rows.cl '1i nothing'
check 'a program that is not in the budget' "$rows" 'norm.cl: is asked for and not in the budget'
check 'a program that nothing asks for' 'rows.cl NEW=1 : vgpr=24 lds=0' 'rows.cl NEW=1: is in the budget, and nothing asks for it'
echo "$passed passed, $failed failed"
[ $failed = 0 ]
