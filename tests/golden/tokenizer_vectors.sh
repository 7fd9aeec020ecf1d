#!/bin/sh
# Fetches the published tokenizer vectors and chat templates of llama.cpp b11434 once and prints their folder: they are
# too big for this repository.
#
#   folder=$(sh tests/golden/tokenizer_vectors.sh)      # INFCGI_CACHE overrides ~/.cache/infcgi
set -eu
exec sh "$(dirname "$0")/../support/peer_source.sh" vectors 1 'models/ggml-vocab-*' 'models/templates/*'
