#!/usr/bin/env bash
# README's first command on a machine of today's Python: a Debian of its own, made for this and deleted afterwards.
#     tools/fresh_python.sh 3.14
# It needs root, debootstrap and a gigabyte of disk, and takes a minute or two. DEBIAN_MIRROR names another mirror.
set -euo pipefail

version=${1:?which Python, such as 3.14}
checkout=$(cd "$(dirname "$0")/.." && pwd)

for need in debootstrap chroot; do
    if ! command -v "$need" > /dev/null; then
        echo "skipped: $need is not at hand"
        exit 0
    fi
done
if [ "$(id -u)" != 0 ]; then
    echo "skipped: only root may make a machine"
    exit 0
fi

root=$(mktemp -d)
clean() {
    umount "$root/proc" 2> /dev/null || true
    if mountpoint -q "$root/proc"; then
        echo "$root is left: its /proc is in use" >&2
        return
    fi
    rm -rf --one-file-system "$root"
}
trap clean EXIT

mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
packages="python$version,python$version-venv,ca-certificates,libgomp1"
if ! debootstrap --variant=minbase --include="$packages" sid "$root" "$mirror" > "$root.log" 2>&1; then
    tail -5 "$root.log" >&2
    rm -f "$root.log"
    echo "skipped: no Debian with Python $version could be made from $mirror"
    exit 0
fi
rm -f "$root.log"

# The network of this machine, and whom it trusts.
cp /etc/resolv.conf /etc/hosts "$root/etc/"
if [ -f /etc/ssl/certs/ca-certificates.crt ]; then
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
fi
mount -t proc proc "$root/proc"
mkdir -p "$root/work/bin"
ln -s "/usr/bin/python$version" "$root/work/bin/python3"
tar -C "$checkout" --exclude=./.venv --exclude=./.git --exclude=./build -cf - . | tar -C "$root/work" -xf -
command=$(sed -n '/<!-- command: demo -->/,/^```$/p' "$checkout/README.md" | grep '^python3 ')
echo "Python $version: $command"
chroot "$root" /usr/bin/env -i PATH=/work/bin:/usr/bin:/bin HOME=/root PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    bash -euo pipefail -c "cd /work && $command"
