# Prints C files as file:line:text with comments and the insides of literals blanked out.
FNR == 1 { in_comment = 0 }
{
    text = ""
    for (i = 1; i <= length($0); i++) {
        c = substr($0, i, 1)
        two = substr($0, i, 2)
        if (in_comment) {
            if (two == "*/") { in_comment = 0; i++ }
        } else if (two == "/*") {
            in_comment = 1; i++
        } else if (two == "//") {
            break
        } else if (c == "\"" || c == "'") {
            for (j = i + 1; j <= length($0); j++) {
                d = substr($0, j, 1)
                if (d == "\\") { j++; continue }
                if (d == c) break
            }
            text = text c c
            i = j
        } else {
            text = text c
        }
    }
    print FILENAME ":" FNR ":" text
}
