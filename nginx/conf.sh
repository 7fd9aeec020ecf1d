#!/bin/sh
# Writes a configuration for a separate nginx into DIR: nginx.conf and infcgi-http.conf. Used by run.sh and the tests.
#   conf.sh DIR LISTEN [ERROR_LOG [ACCESS_LOG]]
# DIR must exist; nginx expects the engine's socket, infcgi.sock, there. LISTEN is as in nginx: 127.0.0.1:8080.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=$1
listen=$2
error_log=${3:-stderr}
access_log=${4:-off}
# The page with the libraries of nginx/page.sh, the installed page, or the page without libraries.
for html in "$here/../build/html" "$here/../html" "$here/html"; do [ ! -d "$html" ] || break; done
user=
[ "$(id -u)" != 0 ] || user="user root root;"   # else the workers could read neither the checkout nor the socket

# Quotes a text for the right side of sed's s|||.
q() { printf '%s' "$1" | sed 's/[&|\\]/\\&/g'; }

[ "$access_log" = off ] && access='s|access_log @ACCESS_LOG@ infcgi;|access_log off;|' ||
    access="s|@ACCESS_LOG@|$(q "$access_log")|"
sed -e "s|@USER@|$user|" -e "s|@DIR@|$(q "$dir")|g" -e "s|@HERE@|$(q "$here")|" -e "s|@LISTEN@|$(q "$listen")|" \
    -e "s|@ERROR_LOG@|$(q "$error_log")|" -e "$access" "$here/nginx.conf.in" >"$dir/nginx.conf"
sed -e "s|/run/infcgi/infcgi.sock|$(q "$dir/infcgi.sock")|" -e "s|/usr/share/infcgi/html|$(q "$html")|" \
    "$here/infcgi-http.conf" >"$dir/infcgi-http.conf"
