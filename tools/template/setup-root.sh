# setup-root.sh: the settings of the base template's root file system; runs once inside the new root, as its root.
set -eu

useradd --create-home --uid 1000 --user-group --shell /bin/bash --comment "" user
usermod --lock root
printf 'user ALL=(ALL:ALL) NOPASSWD:ALL\n' > /etc/sudoers.d/user
chmod 440 /etc/sudoers.d/user

echo space > /etc/hostname
cat > /etc/hosts << 'HOSTS'
127.0.0.1 localhost
127.0.1.1 space
::1 localhost ip6-localhost ip6-loopback
HOSTS
: > /etc/resolv.conf
: > /etc/machine-id
rm -f /var/lib/dbus/machine-id
mkdir -p /etc/default
echo 'LANG=C.UTF-8' > /etc/default/locale
cat > /etc/fstab << 'FSTAB'
# The agent mounts the root file system and the kernel's own file systems before anything runs here.
/dev/vda / ext4 defaults,noatime 0 0
FSTAB

# No running service is ever started by a package in here: there is no init system but the agent.
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d

apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/ldconfig/aux-cache /var/log/*.log /var/log/apt/* /etc/resolv.conf.*
mkdir -p /var/lib/apt/lists/partial
# Byte code of the standard library is made now, not by the first program of every sandbox.
python3 -m compileall -q /usr/lib/python3.11 > /dev/null 2>&1 || true
