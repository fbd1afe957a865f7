#!/bin/sh
# Installs nacre from the unpacked archive that this file is in.
#
#   ./install.sh                     into ~/.local, or into /usr/local as root
#   PREFIX=/opt/nacre ./install.sh   elsewhere
#   ./install.sh --service           as root: a user nacre and a systemd service, too
#   ./install.sh --uninstall         removes what was installed; data and settings stay
set -eu

fail() { echo "install.sh: $*" >&2; exit 1; }

from=$(cd "$(dirname "$0")" && pwd)
root=$(id -u)
if [ "$root" = 0 ]; then prefix=${PREFIX:-/usr/local}; else prefix=${PREFIX:-$HOME/.local}; fi
service=no
uninstall=no
for argument in "$@"; do
    case $argument in
        --service) service=yes ;;
        --uninstall) uninstall=yes ;;
        --help | -h) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) fail "unknown option $argument: see --help" ;;
    esac
done

if [ $uninstall = yes ]; then
    rm -f "$prefix/bin/nacre" "$prefix/share/man/man1"/nacre.1 "$prefix/share/man/man1"/nacre-*.1 \
        "$prefix/share/bash-completion/completions/nacre" "$prefix/share/zsh/site-functions/_nacre" \
        "$prefix/share/fish/vendor_completions.d/nacre.fish"
    echo "removed nacre from $prefix; data and settings are left where they are"
    exit 0
fi

[ -x "$from/bin/nacre" ] || fail "$from/bin/nacre is missing: unpack the whole archive first"
"$from/bin/nacre" --version > /dev/null || fail "this machine cannot run $from/bin/nacre: the archive is for Linux on x86_64"

old=$("$prefix/bin/nacre" --version 2> /dev/null || true)
mkdir -p "$prefix/bin" || fail "cannot write to $prefix: name another folder with PREFIX=…"
# A full disk leaves the program that is there; a running one keeps the file it has.
full="is the disk full? df -h $prefix shows it; PREFIX=… $0 installs into another folder"
cp "$from/bin/nacre" "$prefix/bin/nacre.new" || { rm -f "$prefix/bin/nacre.new"; fail "cannot write to $prefix/bin, the old program stays: $full"; }
cp -R "$from/share" "$prefix/" || { rm -f "$prefix/bin/nacre.new"; fail "cannot write to $prefix/share, the old program stays: $full"; }
mv "$prefix/bin/nacre.new" "$prefix/bin/nacre"
echo "installed $("$prefix/bin/nacre" --version) as $prefix/bin/nacre${old:+, in place of $old}"
found=$(command -v nacre || true)
if [ -z "$found" ]; then
    echo "add it to your path: export PATH=\"$prefix/bin:\$PATH\""
elif [ "$found" != "$prefix/bin/nacre" ]; then
    echo "your path finds another one first: $found ($(nacre --version)); remove it, or: export PATH=\"$prefix/bin:\$PATH\""
fi

if [ $service = yes ]; then
    [ "$root" = 0 ] || fail "--service needs root"
    command -v systemctl > /dev/null || fail "--service needs systemd"
    getent passwd nacre > /dev/null || useradd --system --user-group --home-dir /var/lib/nacre --shell /usr/sbin/nologin nacre
    install -d -m 0755 /etc/nacre
    [ -e /etc/nacre/nacre.toml ] || install -m 0644 "$from/etc/nacre.toml" /etc/nacre/nacre.toml
    sed "s,/usr/bin/nacre,$prefix/bin/nacre," "$from/etc/nacre.service" > /etc/systemd/system/nacre.service
    systemctl daemon-reload
    echo "start it: systemctl enable --now nacre"
fi
