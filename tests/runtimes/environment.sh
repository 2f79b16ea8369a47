#!/usr/bin/env bash
# Makes the environment of a target outside the repository, once for each content of its requirements, and prints its
# interpreter: environment.sh <target>
#
# <target>/requirements.txt   installed by pip with their dependencies; a line "# over: <other target>" makes what is
#                             installed in the other's environment visible here too, without being installed again
# <target>/alone.txt          optional: installed by pip without their dependencies (for pins that need not hold)
set -euo pipefail
tests="$(cd "$(dirname "$0")" && pwd)"
target="$1"
here="$tests/$target"
if [ ! -e "$here/requirements.txt" ]; then
  echo "there is no $target/requirements.txt" >&2
  exit 1
fi
below="$(sed -n 's/^# over: \([a-z]*\)$/\1/p' "$here/requirements.txt")"
base=""
if [ -n "$below" ]; then
  base="$("$0" "$below")"
fi
key="$({
  echo "$base"
  cat "$here/requirements.txt"
  if [ -e "$here/alone.txt" ]; then cat "$here/alone.txt"; fi
} | sha256sum | cut -c 1-12)"
folder="${BUBBLEPROOF_RUNTIMES:-${XDG_CACHE_HOME:-$HOME/.cache}/bubbleproof/runtimes}"
venv="$folder/$target-$key"
mkdir -p "$folder"
exec 9>"$venv.lock"
flock 9 # two test runs may ask at once
if [ ! -e "$venv/complete" ]; then
  rm -rf "$venv"
  "${PYTHON:-python3}" -m venv "$venv" >&2
  if [ -n "$base" ]; then
    packages='import sysconfig; print(sysconfig.get_path("purelib"))'
    # site-packages of the other environment come after this one's own, and pip takes what is there for installed
    "$base" -c "$packages" >"$("$venv/bin/python" -c "$packages")/over.pth"
  fi
  # pip, not uv: for some of them uv resolves builds for GPUs of several gigabytes where pip finds the one for CPUs
  install="$venv/bin/python -m pip install --quiet --disable-pip-version-check"
  $install -r "$here/requirements.txt" >&2
  if [ -e "$here/alone.txt" ]; then
    $install --no-deps -r "$here/alone.txt" >&2
  fi
  touch "$venv/complete"
fi
echo "$venv/bin/python"
