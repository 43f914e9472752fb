#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the named parts need: tools/setup.sh [build] [lint] [bench] [browser]. Does nothing, in well under a second, when all is there.
#   Debian packages   by apt, as root; otherwise one line says which command to run
#   Python            .venv, by its own pip, from tools/requirements.txt
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages=(g++ make cmake git ninja-build libabsl-dev libfmt-dev libssl-dev nlohmann-json3-dev libcli11-dev libeigen3-dev libgtest-dev
                libgmock-dev libbenchmark-dev coinor-libclp-dev libyaml-cpp-dev zlib1g-dev libsqlite3-dev libcpp-httplib-dev pkg-config ccache iproute2)
lint_packages=(clang-19 clang-tidy-19 clang-format-19)
browser_packages=(chromium)
bench_packages=(openmpi-bin libopenmpi-dev iproute2)

say() { printf 'setup: %s\n' "$*" >&2; }

needed=()
for part in "${@:-build}"; do
  case $part in
    build) needed+=("${build_packages[@]}") ;;
    lint) needed+=("${lint_packages[@]}") ;;
    bench) needed+=("${bench_packages[@]}") ;;
    browser) needed+=("${browser_packages[@]}") ;;
    *) say "unknown part '$part': give build, lint, bench or browser"; exit 2 ;;
  esac
done

python=${PYTHON:-python3}
command -v "$python" >/dev/null || needed+=(python3)
if [ ! -x .venv/bin/pip ]; then
  "$python" -c 'import ensurepip' 2>/dev/null || needed+=(python3-venv)
  "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' 2>/dev/null || needed+=(python3-dev)
fi

if command -v dpkg-query >/dev/null; then
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${needed[@]}" 2>/dev/null | awk '$2 == "installed" {print $1}' || true)
  missing=()
  for package in "${needed[@]}"; do
    grep -qx -- "$package" <<<"$installed" || missing+=("$package")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" != 0 ]; then
      say "these Debian packages are missing; run: sudo apt-get install ${missing[*]}"
      exit 1
    fi
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    install=(apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 "${missing[@]}")
    "${install[@]}" </dev/null >&2 || { apt-get update -qq >&2 && "${install[@]}" </dev/null >&2; }
  fi
else
  say "this is no Debian: what is needed goes there by the names ${needed[*]}"
fi

stamp=.venv/.setup-$(sha256sum tools/requirements.txt | cut -c1-16)
if [ ! -e "$stamp" ]; then
  if [ ! -x .venv/bin/pip ]; then
    say "making .venv with $("$python" --version)"
    "$python" -m venv .venv
  fi
  pip=(.venv/bin/python -m pip install -q --disable-pip-version-check --no-input)
  torch=$(grep -E '^torch==' tools/requirements.txt)
  say "installing $torch (about 1 GB, half a minute from disk)"
  "${pip[@]}" "$torch"
  say "installing the rest of tools/requirements.txt"
  "${pip[@]}" -r tools/requirements.txt
  touch "$stamp"
fi

# The tree itself is the package: its Python files by a path file, its program by a link.
path_file=$(echo .venv/lib/python3*/site-packages)/maypole-tree.pth
[ "$(cat "$path_file" 2>/dev/null)" = "$PWD/python" ] || echo "$PWD/python" >"$path_file"
ln -sfn "$PWD/build/maypole" .venv/bin/maypole
case " $* " in
  *" browser "*) .venv/bin/python -c 'import playwright' 2>/dev/null || .venv/bin/python -m pip install -q --disable-pip-version-check --no-input playwright==1.65.0 ;;
esac
