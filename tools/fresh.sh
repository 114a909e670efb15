#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prove the claim of README.md: a minimal Debian 12 in a folder, this checkout cloned into it, and
# the two commands there. Needs root, 12 GB of disk and the network. By hand, not in .ci/run.
#
# Packages come from where this machine gets its own: apt's and pip's settings and the certificates
# are copied as they are, and so is the environment.
# FRESH_DIR=    where to make it (default build/fresh; kept afterwards for a look)
# FRESH_RUN=    what to run in it (default: make demo && make test)
set -euo pipefail
cd "$(dirname "$0")/.."
source_tree=$PWD
fresh=${FRESH_DIR:-$PWD/build/fresh}
commands=${FRESH_RUN:-make demo && make test}

if [ "$(id -u)" -ne 0 ]; then
  echo "debootstrap and chroot need root; run: sudo make fresh" >&2
  exit 1
fi
if [ -n "$(git status --porcelain)" ]; then
  echo "fresh: what is not committed is not tried:" >&2
  git status --short >&2
fi

# The mirrors this machine uses, whichever way they are written down; either kind may be absent.
mirrors() {
  find /etc/apt/sources.list.d -name '*.sources' -exec awk 'tolower($1) == "uris:" {print $2}' {} +
  find /etc/apt/sources.list /etc/apt/sources.list.d -name '*.list' \
    -exec sed -nE 's/^deb +(\[[^]]*\] +)?([^ ]+) .*/\2/p' {} + 2>/dev/null || true
}

rm -rf "$fresh"
mkdir -p "$fresh"
echo "fresh: debootstrap into $fresh"
url=$(mirrors | sed -n 1p)
[ -n "$url" ] || { echo "fresh: no mirror in /etc/apt/sources.list*; name one there" >&2; exit 1; }
debootstrap --variant=minbase --include=ca-certificates bookworm "$fresh" "$url" >"$fresh.log" 2>&1 ||
  { tail -20 "$fresh.log" >&2; exit 1; }

copy() { # copy PATH: into the same place, when it is there
  [ -e "$1" ] || return 0
  mkdir -p "$fresh$(dirname "$1")"
  cp -aL --remove-destination "$1" "$fresh$(dirname "$1")/" 2>/dev/null || cp -a "$1" "$fresh$(dirname "$1")/"
}
rm -rf "$fresh/etc/apt"
copy /etc/apt
rm -f "$fresh"/etc/apt/apt.conf.d/*listchanges*
for path in /etc/pip.conf "$HOME/.config/pip" "$HOME/.pip" /etc/resolv.conf /etc/hosts \
  /etc/ssl/certs /usr/local/share/ca-certificates; do
  copy "$path"
done

git clone -q "$source_tree" "$fresh/srv/headrace"

# Folders that pip's settings name (indexes of files) appear in the fresh system, read-only; an
# index by the usual name links to files beside it.
folders=$({ python3 -m pip config list 2>/dev/null; env | grep '^PIP_'; } |
  grep -oE "(file://)?/[^'\" ,\\]+" | sed -E 's#^file://##; s#/simple/?$##' | sort -u)

export fresh commands folders
# A mount namespace of its own: whatever is mounted goes away with it.
unshare --mount --pid --fork --kill-child bash -euo pipefail -c '
  mount --make-rprivate /
  mount -t proc proc "$fresh/proc"
  mount --rbind /sys "$fresh/sys"
  mount --rbind /dev "$fresh/dev"
  for folder in $folders; do
    [ -d "$folder" ] && [ "$folder" != / ] || continue
    mkdir -p "$fresh$folder"
    mount --bind "$folder" "$fresh$folder"
    mount -o remount,bind,ro "$fresh$folder"
  done
  exec chroot "$fresh" /usr/bin/env \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TMPDIR=/var/tmp \
    bash -euo pipefail -c "
      apt-get update -qq && apt-get install -qq --no-install-recommends -y git make >/dev/null
      git config --global --add safe.directory /srv/headrace
      cd /srv/headrace
      $commands
    "
'
echo "fresh: done; rm -rf $fresh when you have looked"
