# Reads `file:line:#include "path"` lines; prints the ones that tests/lint/layers (-v table=) does not allow.
# `engine/engine.h` on the right means that header alone.
function home(path) {
    while (path != "" && !(path in rows))
        if (!sub("/[^/]*$", "", path)) path = ""
    return path
}
function folder(path) { sub("/[^/]*$", "", path); return path }
BEGIN {
    FS = "[:\"]"
    while ((getline row < table) > 0) {
        if (row ~ /^#/ || row !~ /:/) continue
        name = row; sub(/:.*/, "", name)
        rest = row; sub(/^[^:]*:/, "", rest)
        rows[name] = 1
        n = split(rest, words, " ")
        for (i = 1; i <= n; i++) may[name, words[i]] = 1
    }
}
{
    from = home($1); to = home($4)
    if ($4 !~ "/") { print $1 ":" $2 ": include by the path from the root, not \"" $4 "\""; next }
    if (from == "" || to == "") next
    if (folder($1) == folder($4) || from == to || (from, to) in may || (from, $4) in may) next
    print $1 ":" $2 ": " from " may not include " $4
}
