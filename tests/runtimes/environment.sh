#!/usr/bin/env bash
# Makes the environment of a runtime outside the repository, once for each content of its requirements.txt,
# and prints its interpreter: environment.sh <target>
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)/$1"
key="$(sha256sum "$here/requirements.txt" | cut -c 1-12)"
venv="${BUBBLEPROOF_RUNTIMES:-${XDG_CACHE_HOME:-$HOME/.cache}/bubbleproof/runtimes}/$1-$key"
if [ ! -e "$venv/complete" ]; then
  rm -rf "$venv"
  "${PYTHON:-python3}" -m venv "$venv" >&2
  # pip, not uv: for some of them uv resolves builds for GPUs of several gigabytes where pip finds the one for CPUs
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt" >&2
  touch "$venv/complete"
fi
echo "$venv/bin/python"
