#!/bin/bash
# Draws architecture.svg from architecture.dot if the source has changed since. Needs graphviz then, which it installs.
# The picture has the source's checksum, because versions of graphviz draw differently and lint cannot compare bytes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
sum=$(sha256sum <"$here/architecture.dot" | cut -d' ' -f1)
grep -qsF "$sum" "$here/architecture.svg" && exit
sh "$here/../tests/support/deps.sh" docs
svg=$(dot -Tsvg "$here/architecture.dot" | sed '1,/^<svg/{/^<svg/!d}; /^<!--/d')
style='<style>
text { fill: #1f2328 } .cluster polygon { stroke: #59636e; fill: #f6f8fa } .node polygon, .node path { stroke: #0f6e5c; fill: #ffffff }
.edge path { stroke: #59636e } .edge polygon { stroke: #59636e; fill: #59636e } .graph &gt; polygon { fill: #ffffff; stroke: none }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .cluster polygon { stroke: #9198a1; fill: #151b23 } .node polygon, .node path { stroke: #2ea88f; fill: #0d1117 }
.edge path { stroke: #9198a1 } .edge polygon { stroke: #9198a1; fill: #9198a1 } .graph &gt; polygon { fill: #0d1117 }
}
</style>'
awk -v head="<!-- drawn by \`make docs\` from docs/architecture.dot, sha256 $sum -->" -v style="$style" '
    { print }
    !done && /xmlns:xlink.*>$/ { gsub(/\\n/, "\n", style); print head; print style; done = 1 }' <<<"$svg" >"$here/architecture.svg"
