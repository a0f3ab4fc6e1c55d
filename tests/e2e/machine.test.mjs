// What a machine is, seen from inside and from the host: its devices, its identity, what it keeps of others (nothing), its
// shape, pausing, and what it costs when idle.
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Space, root, until } from './lib/space.mjs';
import { cpuMs, guestScript, leftovers, sleepUntil } from './lib/machine_host.mjs';

let space;
before(async () => { space = await Space.start({ config: { pool_hot: 2, pool_blank: 1 } }); });
after(async () => {
  const left = await leftovers(space);
  assert.deepEqual(left, []);
});

const s = (id, tail) => `/v1/sandboxes/${id}${tail}`;
const shared = async (body, work) => {
  const sandbox = await space.create(body);
  try { return await work(sandbox); } finally { await space.remove(sandbox.id); }
};

describe('devices', () => {
  test('exactly those of the golden list', () => shared({}, async ({ id }) => {
    const list = (await guestScript(space, id, 'devices.py')).stdout;
    const golden = path.join(root, 'tests/e2e/golden/devices.txt');
    if (process.env.SPACE_TEST_WRITE_GOLDEN) fs.writeFileSync(golden, list);
    assert.deepEqual(list.split('\n'), fs.readFileSync(golden, 'utf8').split('\n'));
    for (const absent of [/^bus (pci|usb|scsi|nvme)\S* /m, /^net (?!lo$)/m, /^block (?!vda$)/m, /^cpu-flag (vmx|svm)$/m, /^dev (kvm|port|sd|sr|nvme|net)/m])
      assert.doesNotMatch(list, absent);
  }));

  test('the firmware configuration tells nothing of the host', () => shared({}, (neighbour) => shared({}, async ({ id }) => {
    const names = (await guestScript(space, id, 'fw_cfg.py', '/tmp/fw_cfg')).stdout.trim().split('\n');
    assert.ok(names.length >= 2, names.join());
    for (const name of names) assert.doesNotMatch(name, /opt\/|token|secret|key/);
    const dump = (await space.call('GET', s(id, '/files?path=/tmp/fw_cfg'))).data;
    assert.ok(dump.includes('QEMU') && dump.length > 1 << 20, `${dump.length} bytes`);
    const secrets = [space.state, path.dirname(space.state), ...(os.hostname().length > 5 ? [os.hostname()] : []), space.key, neighbour.id, 'sk_space', '/qemu/', '/usr/', '/home/',
      'space-priv', 'token', String(space.uidBase)];
    for (const secret of secrets) assert.equal(dump.indexOf(secret), -1, secret);
  })));
});

describe('identity', () => {
  test('100 sandboxes: their own entropy, ids, names and the right time', async (t) => {
    const total = 100, atOnce = 4, seen = new Map(['urandom', 'boot', 'machine', 'host'].map((k) => [k, new Set()]));
    let begun = 0, worst = 0;
    const pools = {};
    const life = async () => {
      while (begun < total) {
        begun++;
        const { id, pool } = await space.create({});
        pools[pool] = (pools[pool] ?? 0) + 1;
        const asked = Date.now();
        const { stdout } = await space.run(id,
          'head -c 1024 /dev/urandom | sha256sum | cut -c1-64; cat /proc/sys/kernel/random/boot_id /etc/machine-id; hostname; date +%s%3N');
        const answered = Date.now();
        const [urandom, boot, machine, host, time] = stdout.split('\n');
        for (const [kind, value] of Object.entries({ urandom, boot, machine, host })) {
          assert.ok(value.length >= 8, `${kind}: ${value}`);
          seen.get(kind).add(value);
        }
        assert.equal(host, id);
        worst = Math.max(worst, asked - time, time - answered);
        await space.remove(id);
      }
    };
    await Promise.all(Array.from({ length: atOnce }, life));
    for (const [kind, values] of seen) assert.equal(values.size, total, `different ${kind}`);
    assert.ok(worst <= 2000, `a clock is ${worst} ms off`);
    t.diagnostic(`from pools: ${JSON.stringify(pools)}, the worst clock was ${Math.max(worst, 0)} ms off`);
  });
});

describe('the tenant before', () => {
  test('what was in memory and on disk is not in the next sandbox', async () => {
    const canary = crypto.randomBytes(64), half = canary.subarray(0, 32).toString('hex');
    const digest = crypto.createHash('sha256').update(canary).digest('hex');
    const search = async (id) => (await guestScript(space, id, 'canary.py', 'search', half, digest)).stdout.trim().split(' ').map(Number);
    await shared({}, async ({ id }) => {
      await space.call('PUT', s(id, '/files?path=/tmp/canary.py'), { body: fs.readFileSync(path.join(root, 'tests/e2e/guest/canary.py')) });
      const { exec } = await space.exec(id, { command: ['python3', '/tmp/canary.py', 'fill', canary.toString('hex'), '48'], stdin: true });
      for await (const e of space.events(s(id, `/execs/${exec.id}/output`))) {
        assert.equal(e.event, 'stdout', JSON.stringify(e));
        break;
      }
      const [memory, disk] = await search(id);
      assert.ok(memory > 0 && disk > 0, `the search finds what is there: ${memory} in memory, ${disk} on disk`);
    });
    const found = await shared({}, ({ id }) => search(id));
    assert.deepEqual(found, [0, 0]);
  });
});

describe('shapes', () => {
  test('the first use of a shape: processors, memory and disk as asked for', async (t) => {
    const begun = Date.now();
    await shared({ shape: { vcpus: 2, memory_mib: 512, disk_mib: 4096 } }, async (sandbox) => {
      t.diagnostic(`the first use took ${Date.now() - begun} ms`);
      assert.deepEqual(sandbox.shape, { vcpus: 2, memory_mib: 512, disk_mib: 4096 });
      const { stdout } = await space.run(sandbox.id, "nproc; awk '/MemTotal/ {print $2}' /proc/meminfo; df -k --output=size / | tail -1; cat /sys/block/vda/size");
      const [cpus, memory, disk, sectors] = stdout.trim().split('\n').map(Number);
      assert.equal(cpus, 2);
      assert.ok(memory / 1024 > 512 * 0.85 && memory / 1024 <= 512, `${memory} KiB of memory`);
      assert.ok(disk / 1024 > 4096 * 0.95 && disk / 1024 <= 4096, `a file system of ${disk} KiB`);
      assert.equal(sectors, 4096 * 2048);
      const big = await space.run(sandbox.id, 'fallocate -l 2200M /var/big && stat -c %s /var/big');
      assert.equal(big.stdout.trim(), String(2200 * 1048576), 'more fits than the template has');
    });
  });

  test('a guest can use all of its memory and is asked to share it with nobody', () => shared({}, async ({ id }) => {
    const fill = await space.run(id, { command: ['python3', '-c', `
free = next(int(l.split()[1]) for l in open("/proc/meminfo") if l.startswith("MemAvailable"))
held = b"x" * (free * 1024 * 9 // 10)
print(len(held) >> 20)`] });
    assert.equal(fill.exit_code, 0, JSON.stringify(fill));
    assert.ok(Number(fill.stdout) > 100, fill.stdout);
    assert.equal((await space.get(id)).state, 'running');
  }));

  test('a shape out of its bounds is refused, and the answer names the bound', async () => {
    for (const [shape, name, bound] of [
      [{ vcpus: 0 }, 'vcpus', 1], [{ vcpus: 9 }, 'vcpus', 8], [{ memory_mib: 127 }, 'memory_mib', 128],
      [{ memory_mib: 8193 }, 'memory_mib', 8192], [{ disk_mib: 255 }, 'disk_mib', 256], [{ disk_mib: 65537 }, 'disk_mib', 65536]]) {
      const answer = await space.call('POST', '/v1/sandboxes?wait=60s', { body: { shape } });
      assert.equal(answer.status, 400, JSON.stringify(shape));
      assert.match(answer.text, new RegExp(`${name}\\b[^]*\\b${bound}\\b`));
    }
    const small = await space.call('POST', '/v1/sandboxes?wait=60s', { body: { shape: { disk_mib: 1024 } } });
    assert.equal(small.status, 400, "smaller than the template's file system");
    assert.match(small.text, /\b2048\b/);
  });
});

describe('pause and resume', () => {
  test('time jumps on, processes go on, execs are refused meanwhile', () => shared({}, async ({ id }) => {
    const { exec } = await space.exec(id, 'i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done');
    const ticks = [];
    const stop = new AbortController();
    const reading = (async () => {
      try {
        for await (const e of space.events(s(id, `/execs/${exec.id}/output`), { signal: stop.signal }))
          if (e.event === 'stdout') ticks.push(...Buffer.from(e.data, 'base64').toString().trim().split('\n').map(Number));
      } catch (error) { if (!stop.signal.aborted) throw error; }
    })();
    await until('ticks', () => ticks.length > 3);
    const paused = await space.api('POST', s(id, '/pause?wait=30s'));
    assert.equal(paused.sandbox.state, 'paused');
    for (const [method, tail, body] of [['POST', '/run', { shell: 'true' }], ['POST', '/execs', { shell: 'true' }], ['GET', '/files?path=/etc/hostname']]) {
      const answer = await space.call(method, s(id, tail), { body });
      assert.equal(answer.status, 409, `${method} ${tail}`);
      assert.equal(answer.json.code, 'wrong_state');
    }
    const seen = ticks.length, until3s = Date.now() + 3000;
    await sleepUntil(until3s);
    assert.ok(ticks.length - seen <= 2, `${ticks.length - seen} ticks while it was paused`);
    assert.equal((await space.api('POST', s(id, '/resume?wait=30s'))).sandbox.state, 'running');
    const asked = Date.now();
    const time = Number((await space.run(id, 'date +%s%3N')).stdout);
    const answered = Date.now();
    assert.ok(time > asked - 2000 && time < answered + 2000, `${asked} ${time} ${answered}`);
    await until('more ticks', () => ticks.length > seen + 5);
    assert.deepEqual(ticks, ticks.map((_, i) => i + 1), 'none lost, none twice');
    stop.abort();
    await reading;
  }));

  test('a paused sandbox ends at its deadline', async () => {
    const sandbox = await space.create({ timeout_ms: 6000 });
    await space.api('POST', s(sandbox.id, '/pause?wait=30s'));
    const ended = await until('its end', async () => {
      const now = await space.get(sandbox.id);
      return now.state === 'deleted' && now;
    }, 20000);
    assert.equal(ended.reason, 'deadline');
    const late = Date.parse(ended.ended_at) - Date.parse(ended.expires_at);
    assert.ok(late >= 0 && late < 1000, `${late} ms after its deadline`);
  });
});

describe('idle', () => {
  test('one idle sandbox takes at most 1 % of a core', async (t) => {
    const quiet = await Space.start({ config: { pool_hot: 0, pool_blank: 0 } });
    try {
      const { id } = await quiet.create({});
      await quiet.run(id, 'true');
      const pids = quiet.machines();
      assert.equal(pids.length, 1);
      // Other load on this host only adds: the least of a few measures counts.
      let percent = Infinity;
      for (let i = 0; i < 4 && percent > 1; i++) {
        const before = cpuMs(pids[0]), daemonBefore = cpuMs(quiet.child.pid), begun = Date.now();
        await sleepUntil(begun + 10000);
        const share = (ms) => (100 * ms) / (Date.now() - begun);
        percent = Math.min(percent, share(cpuMs(pids[0]) - before));
        t.diagnostic(`machine ${share(cpuMs(pids[0]) - before).toFixed(2)} % of a core, daemon ${share(cpuMs(quiet.child.pid) - daemonBefore).toFixed(2)} %`);
      }
      assert.ok(percent <= 1, `${percent} %`);
    } finally { assert.deepEqual(await leftovers(quiet), []); }
  });
});
