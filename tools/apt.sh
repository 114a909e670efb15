#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Install the Debian packages of the named sections of tools/apt-packages.txt that are missing.
# Usage: tools/apt.sh build test
set -euo pipefail
list="$(dirname "$0")/apt-packages.txt"

wanted=()
for section in "$@"; do
  while read -r name packages; do
    [ "$name" = "$section" ] && read -ra more <<<"$packages" && wanted+=("${more[@]}")
  done < <(grep -v '^#' "$list")
done

if ! command -v dpkg-query >/dev/null; then
  echo "This machine has no dpkg; install what these Debian packages hold by your own means:" >&2
  echo "  ${wanted[*]}" >&2
  exit 0 # the build says what it cannot find
fi

missing=()
for package in "${wanted[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
  {
    echo "These packages are missing and installing them needs root:"
    echo "  sudo apt-get update && sudo apt-get install --no-install-recommends -y ${missing[*]}"
    echo "Run that once, then the same make command again."
  } >&2
  exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq --no-install-recommends -y "${missing[@]}" >/dev/null
