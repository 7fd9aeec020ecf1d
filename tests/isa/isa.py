#!/usr/bin/python3
"""What the kernels of the OpenCL back end become on RDNA3, found out without a card: the programs of tests/isa/budget are
compiled by clang, and registers, memory and instructions are held against that file and the rules below. Also, the programs
that the back end asks for over the golden models (tests/golden/device_programs.c) must be in the file.

  isa.py            programs and targets that stand for all of them; a line for each fault, then `N passed, N failed`
  isa.py --all      all programs on all targets
  isa.py --table    the figures of each kernel, too; of all programs, on GFX.. (gfx1100), when there are some
  --wave 32|64      all programs in waves of so many, to compare; else those that the budget says
  --budget FILE, --kernels FOLDER   others than tests/isa/budget and opencl/kernels

docs/internals/opencl.md says what the figures mean. JOBS=2: so many compilers at once."""
import argparse
import concurrent.futures
import glob
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, 'build/isa')
ASKED = os.path.join(ROOT, 'build/release/device_programs')
MODELS = os.path.join(ROOT, 'tests/golden/models')
TARGETS = ['gfx1100', 'gfx1101', 'gfx1102', 'gfx1103', 'gfx1151']
TOOL = '%s-19'  # the first of Debian 12 that knows gfx1151

LDS_MOST = 32 << 10    # what every device has
VGPR_MOST = 96         # of matrix-vector and attention: 16 waves a SIMD still fit
DOT4_LEAST = 55        # percent of the vector instructions of the inner loop of most token rows
VALU_MOST = 3          # vector instructions of matrix-vector for 16 bytes that a wave loads
WIDE_LEAST = 0.66      # of the bytes that matrix-vector loads come 16 at a time: those of codes; scales do not
WAVE = 32              # but for programs whose line of the budget says wave=64
# Vector instructions that a SIMD does for 64 lanes in a clock, in waves of 64; it does others for 32. In waves of 32 the
# compiler makes pairs of them: v_dual_* [https://rocm.docs.amd.com/projects/rocprofiler-compute, RDNA, WGP: V_FMA_F32]
TWICE = re.compile(r'v_(fma|fmac|fmaak|fmamk|mul|add|sub|subrev|max|min)_f32')
SHORT_STEP = 12        # of the short list the other chips have one program of so many
HALVES = {'gfx1102': 1024, 'gfx1103': 1024}  # registers a lane of a SIMD; others have 1536
WIDTHS = {'D', 'DV', 'DK', 'PARTS', 'CHOSEN'}  # of models: smaller ones take no more


# --- the list of programs ---------------------------------------------------------------------------------------------

class Line:
    """A line of the budget: `file OPTION=values ... : vgpr=N lds=N`."""

    def __init__(self, text):
        programs, _, most = text.partition(' : ')
        self.file, *words = programs.split()
        self.most = {k: int(v) for k, v in (w.split('=') for w in most.split())}
        self.wave = self.most.get('wave', WAVE)
        self.lists, self.short = [], []
        for word in words:
            names, _, values = word.partition('=')
            every = [(list(zip(names.split(','), v.rstrip('+').split(','))), v[-1] == '+') for v in values_of(values)]
            self.lists.append([pairs for pairs, _ in every])
            self.short.append([pairs for pairs, is_short in every if is_short] or self.lists[-1])

    def programs(self, every):
        for choice in itertools.product(*(self.lists if every else self.short)):
            yield dict(pair for pairs in choice for pair in pairs)


def values_of(text):
    for part in text.split('/'):
        first, _, last = part.partition('..')
        yield from map(str, range(int(first), int(last) + 1)) if last else [part]


def name_of(file, options):
    return ' '.join([file] + [f'{k}={v}' for k, v in options.items()])


def is_same(options, asked):
    """Widths of models apart."""
    return options.keys() == asked.keys() and all(
        int(asked[k]) <= int(v) if k in WIDTHS else asked[k] == v for k, v in options.items())


def asked_programs():
    models = [m for m in glob.glob(MODELS + '/*.gguf') + glob.glob(MODELS + '/*.hf')
              if not m.endswith(('.expect.gguf', '.draft.gguf', '.draft.hf'))]
    for line in sorted(set(must(ASKED, *models).splitlines())):
        file, *options = line.split()
        yield file, dict(o[2:].split('=') for o in options)


def list_faults(lines, asked):
    """What is asked for and in no line, and lines that nothing asks for. KIND: not all are in golden models."""
    for file, options in asked:
        if not any(line.file == file and any(is_same(o, options) for o in line.programs(True)) for line in lines):
            yield name_of(file, options), 'is asked for and not in the budget'
    for line in lines:
        for name, value in {pair for o in line.programs(True) for pair in o.items() if pair[0] not in WIDTHS | {'KIND'}}:
            names = {k for pairs in line.lists for k, _ in pairs[0]}
            if not any(file == line.file and o.keys() == names and o[name] == value for file, o in asked):
                yield f'{line.file} {name}={value}', 'is in the budget, and nothing asks for it'


# --- compiling --------------------------------------------------------------------------------------------------------

def run(*words, text=None):
    try:
        return subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        sys.exit(f'isa.py: {words[0]} is missing: `make isa-report` installs and builds what is needed')


def must(*words, text=None):
    done = run(*words, text=text)
    if done.returncode != 0:
        sys.exit(f'{words[0]}: {done.stderr.strip()}')
    return done.stdout


def device_libs(folder):
    """AMD's library of OpenCL's functions, with the files that Debian's lacks: they say which chip is compiled for."""
    theirs = (glob.glob('/usr/lib/*/amdgcn/bitcode') or sys.exit('isa.py: rocm-device-libs is missing'))[0]
    for f in glob.glob(theirs + '/*.bc'):
        os.symlink(f, os.path.join(folder, os.path.basename(f)))
    text = must(TOOL % 'llvm-dis', '-o', '-', theirs + '/oclc_isa_version_1036.bc')
    for gfx in TARGETS:
        number = int(gfx[3:5]) * 1000 + int(gfx[5]) * 100 + int(gfx[6:], 16)
        must(TOOL % 'llvm-as', '-o', os.path.join(folder, f'oclc_isa_version_{gfx[3:]}.bc'),
             text=re.sub(r'(@__oclc_ISA_version = .* i32) \d+', rf'\1 {number}', text))


def compile_one(gfx, line, options, kernels, folder):
    """Figures of the program's kernels: {kernel: {..}}, or what the compiler says. They are kept until a source changes."""
    texts = ['shared.h', 'common.clh'] + ['weights.clh'] * ('KIND' in options) + [line.file]
    source = ''.join(f'#line 1 "{t}"\n' + open(os.path.join(kernels, t)).read() for t in texts)
    words = ['-x', 'cl', '-cl-std=CL1.2', '-target', 'amdgcn-amd-amdhsa', f'-mcpu={gfx}', '-O3', '-Xclang',
             '-finclude-default-header', '-DDOT_ARM=2'] + ['-mwavefrontsize64'] * (line.wave == 64) + [f'-D{k}={v}' for k, v in options.items()]
    key = hashlib.sha256('\0'.join([open(__file__).read(), source] + words).encode()).hexdigest()
    kept, obj = os.path.join(BUILD, key + '.json'), os.path.join(folder, key + '.o')
    if os.path.exists(kept):
        return json.load(open(kept))
    done = run(TOOL % 'clang', *words, f'--rocm-device-lib-path={folder}', '-c', '-', '-o', obj, text=source)
    if done.returncode != 0:
        return next((text for text in done.stderr.splitlines() if 'error' in text), done.stderr)
    figures = figures_of(must(TOOL % 'llvm-readelf', '--notes', obj),
                         must(TOOL % 'llvm-objdump', '-d', f'--mcpu={gfx}', obj), gfx)
    with open(obj, 'w') as f:
        json.dump(figures, f)
    os.replace(obj, kept)
    return figures


# --- figures ----------------------------------------------------------------------------------------------------------

NOTES = {'vgpr': 'vgpr_count', 'sgpr': 'sgpr_count', 'vgpr_spill': 'vgpr_spill_count', 'sgpr_spill': 'sgpr_spill_count',
         'scratch': 'private_segment_fixed_size', 'lds': 'group_segment_fixed_size', 'wave': 'wavefront_size'}
WIDTH = {'b128': 16, 'b96': 12, 'b64': 8, 'b32': 4, 'u16': 2, 'd16': 2, 'u8': 1, 'i8': 1, 'i16': 2}


def figures_of(notes, text, gfx):
    out = {}
    bodies = dict(re.findall(r'^[0-9a-f]+ <(\w+)>:\n(.*?)(?:\n\n|\Z)', text, re.S | re.M))
    for part in re.split(r'\n  - \.a', notes)[1:]:
        kernel = re.search(r'^    \.name: +(\w+)', part, re.M).group(1)
        f = {k: int(re.search(rf'^    \.{v}: +(\d+)', part, re.M).group(1)) for k, v in NOTES.items()}
        code = instructions(bodies[kernel])
        room = HALVES.get(gfx, 1536) * 32 // f['wave']
        step = room // 64  # registers are given out so many at a time
        f['waves'] = min(16, room // (-(-max(f['vgpr'], 1) // step) * step))
        f['dot4'] = sum(op.startswith('v_dot4') for _, op, _ in code)
        f['calls'] = sum(op.startswith(('s_swappc', 's_setpc')) for _, op, _ in code)
        f['loop'] = loop_of(code)
        if f['loop']:
            f['loop']['clocks'] = f['loop']['valu'] * (64 // WAVE) - f['loop']['twice'] * (f['wave'] == 64)
        out[kernel] = f
    return out


def instructions(body):
    """(address, mnemonic, address that it branches to or None) of each line."""
    out = []
    for text in body.splitlines():
        m = re.match(r'\s+(\S+)\s*(.*?)\s*// ([0-9A-F]+):(?: [0-9A-F]{8})*(?: <\w+(?:\+0x([0-9a-f]+))?>)?$', text)
        if m:
            is_branch = m.group(1).startswith(('s_branch', 's_cbranch'))
            out.append((int(m.group(3), 16), m.group(1), int(m.group(4) or '0', 16) if is_branch else None))
    start = out[0][0] if out else 0
    return [(at - start, op, to) for at, op, to in out]


def blocks_of(code):
    """Basic blocks, {address: (mnemonics, addresses of the blocks that may be next)}."""
    starts = {code[0][0]} | {to for _, _, to in code if to is not None}
    starts |= {code[i + 1][0] for i, (_, op, to) in enumerate(code[:-1]) if to is not None or op == 's_endpgm'}
    blocks, here = {}, None
    for i, (at, op, to) in enumerate(code):
        if at in starts:
            here = blocks[at] = ([], [])
        here[0].append(op)
        after = code[i + 1][0] if i + 1 < len(code) else None
        if to is not None:
            here[1].append(to)
        if after in starts and op not in ('s_branch', 's_endpgm'):
            here[1].append(after)
    return blocks


def loops_of(blocks):
    """The sets of blocks that are loops: what reaches a jump back to a block that all ways to the jump pass."""
    start = min(blocks)
    before = {b: [a for a in blocks if b in blocks[a][1]] for b in blocks}
    passed = {b: set(blocks) for b in blocks}
    passed[start] = {start}
    is_new = True
    while is_new:
        is_new = False
        for b in blocks:
            ways = [passed[a] for a in before[b]]
            now = {b} | (set.intersection(*ways) if ways else set())
            is_new, passed[b] = is_new or now != passed[b], now
    loops = {}
    for a in blocks:
        for head in set(blocks[a][1]) & passed[a]:
            loop, left = loops.setdefault(head, {head}), [a]
            while left:
                b = left.pop()
                left += before[b] if b not in loop else []
                loop.add(b)
    return [loops[h] for h in loops if not any(other in loops[h] for other in loops if other != h)]


def loop_of(code):
    """The innermost loop that multiplies: of the loops in which there is no other, that with most v_dot4, else most v_fma.
    A v_dual_* is one instruction."""
    best = {}
    blocks = blocks_of(code)
    for loop in loops_of(blocks):
        ops = [op for b in loop for op in blocks[b][0]]
        loads = [op for op in ops if op.startswith('global_load')]
        f = {'valu': sum(op.startswith('v_') for op in ops),
             'dot4': sum(op.startswith('v_dot4') for op in ops),
             'fma': sum('fma' in op for op in ops),
             'twice': sum(TWICE.match(op) is not None for op in ops),
             'bytes': sum(WIDTH[next(w for w in WIDTH if w in op)] for op in loads),
             'wide': sum(16 for op in loads if 'b128' in op),
             'ops': len(ops)}
        if (f['dot4'], f['fma']) > (best.get('dot4', 0), best.get('fma', 0)):
            best = f
    return best


# --- rules ------------------------------------------------------------------------------------------------------------

def share_of(p):
    """Of the loop's clocks those of v_dot4, in percent; without pairs of instructions, of its vector instructions."""
    return 100 * p['dot4'] * (64 // WAVE) / p['clocks'] if p else 0


def faults_of(line, options, f):
    is_matmul = line.file == 'matmul.cl'
    is_vector, is_int8 = is_matmul and options['SPLIT'] == '1', is_matmul and int(options['KIND']) > 2
    p = f['loop']
    if f['scratch'] or f['vgpr_spill'] or f['sgpr_spill'] or f['calls']:
        yield (f"{f['scratch']} bytes of scratch, {f['vgpr_spill']} and {f['sgpr_spill']} registers spilled, "
               f"{f['calls']} calls")
    if f['vgpr'] > line.most['vgpr']:
        yield f"{f['vgpr']} VGPRs, more than {line.most['vgpr']}"
    if (is_vector or line.file == 'attention.cl') and f['vgpr'] > VGPR_MOST:
        yield f"{f['vgpr']} VGPRs, more than {VGPR_MOST}"
    if f['lds'] > min(line.most['lds'], LDS_MOST):
        yield f"{f['lds']} bytes of LDS, more than {min(line.most['lds'], LDS_MOST)}"
    if f['wave'] != line.wave:
        yield f"waves of {f['wave']}, not of {line.wave}"
    if is_int8 and f['dot4'] == 0:
        yield 'no v_dot4'
    least = line.most.get('dot4', DOT4_LEAST)
    if is_int8 and not is_vector and share_of(p) < least:
        yield f'v_dot4 take less than {least} % of the clocks of the inner loop: {p}'
    if is_vector and options['TOKENS'] == '1' and not p.get('bytes'):
        yield 'no inner loop that loads'
    elif is_vector and options['TOKENS'] == '1':
        if p['wide'] < WIDE_LEAST * p['bytes']:
            yield f"{p['wide']} of {p['bytes']} bytes a lane are loaded 16 at a time"
        if 16 * p['valu'] > VALU_MOST * WAVE * p['bytes']:
            yield f"{p['valu']} vector instructions for {p['bytes']} bytes a lane"


def print_table(rows):
    print(f'{"program: kernel":76}{"target":8} VGPR SGPR spilled scratch waves   LDS  dot4 | inner loop: vector instructions, '
          'v_dot4 %, bytes a lane, vector instructions for 16 bytes of a wave, all instructions, clocks of 64 lanes')
    for gfx, line, options, kernel, f in rows:
        p = f['loop']
        share = '' if not p else (f"{p['valu']:5} {int(share_of(p)):3} % {p['bytes']:5} "
                                  f"{16 * p['valu'] / max(f['wave'] * p['bytes'], 1):6.2f} {p['ops']:5} {p['clocks']:5}")
        print(f"{name_of(line.file, options) + ': ' + kernel:76}{gfx:8} {f['vgpr']:4} {f['sgpr']:4} "
              f"{f['vgpr_spill'] + f['sgpr_spill']:7} {f['scratch']:7} {f['waves']:5} {f['lds']:5} {f['dot4']:5} | {share}")


def main():
    args = argparse.ArgumentParser()
    args.add_argument('targets', nargs='*')
    args.add_argument('--all', action='store_true')
    args.add_argument('--table', action='store_true')
    args.add_argument('--wave', type=int, choices=[32, 64])
    args.add_argument('--budget', default=os.path.join(ROOT, 'tests/isa/budget'))
    args.add_argument('--kernels', default=os.path.join(ROOT, 'opencl/kernels'))
    args = args.parse_args()
    lines = [Line(text) for text in open(args.budget) if text.strip() and text[0] != '#']
    for line in lines:
        line.wave = args.wave or line.wave
    every = args.all or args.table
    targets = args.targets or (TARGETS if not args.table else TARGETS[:1])
    programs = [(line, o) for line in lines for o in line.programs(every)]
    jobs = [(gfx, line, o) for i, gfx in enumerate(targets)
            for line, o in (programs if every or i == 0 else programs[i::SHORT_STEP])]
    os.makedirs(BUILD, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(int(os.environ.get('JOBS', '1'))) as pool:
        device_libs(folder)
        results = list(pool.map(lambda job: compile_one(*job, args.kernels, folder), jobs))
    rows, bad = [], []
    for (gfx, line, options), figures in zip(jobs, results):
        if isinstance(figures, str):
            bad.append((f'{gfx} {name_of(line.file, options)}', figures))
        else:
            rows += [(gfx, line, options, kernel, f) for kernel, f in figures.items()]
    if args.table:
        print_table(rows)
    for gfx, line, options, kernel, f in rows:
        bad += [(f'{gfx} {name_of(line.file, options)}: {kernel}', why) for why in faults_of(line, options, f)]
    asked = list(asked_programs())
    n = len(rows) + len(asked)
    bad += list_faults(lines, asked)
    for name, why in bad:
        print(f'FAILED {name}: {why}')
    n_bad = len({name for name, _ in bad})
    print(f'{len(rows)} kernels on {" ".join(targets)}')
    print(f'{max(n - n_bad, 0)} passed, {n_bad} failed')
    return bool(bad)


if __name__ == '__main__':
    sys.exit(main())
