// The platform run by an ordinary user: what cannot be isolated without root is named, and refused where that is asked for.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { Space, build, isRoot } from './lib/space.mjs';
import { leftovers } from './lib/machine_host.mjs';

const user = isRoot ? 20000 + (process.pid % 40000) : undefined;
const needRoot = ['unique_uid', 'cgroup_memory', 'cgroup_cpu', 'cgroup_pids', 'not_dumpable'];

test('starts, names what is missing, and runs a sandbox', async (t) => {
  const space = await Space.start({ user, config: { pool_hot: 1, pool_blank: 0 } });
  try {
    const status = fs.readFileSync(`/proc/${space.child.pid}/status`, 'utf8');
    assert.match(status, new RegExp(`^Uid:\\s+${user ?? process.getuid()}\\s`, 'm'));
    const node = await space.api('GET', '/v1/node');
    assert.equal(node.isolation.jail, 'reduced');
    const missing = node.isolation.missing.map((m) => m.name);
    t.diagnostic(`missing: ${missing.join(', ')}`);
    assert.ok(missing.includes('unique_uid'), missing.join());
    for (const name of missing) assert.ok(needRoot.includes(name), `${name} can be had without root`);
    for (const m of node.isolation.missing) assert.ok(m.reason.length > 10, JSON.stringify(m));
    for (const name of missing) assert.match(space.log(), new RegExp(` missing=.*\\b${name}\\b`), 'it is said at the start');

    const sandbox = await space.create({});
    assert.equal(sandbox.isolation.jail, 'reduced');
    assert.deepEqual(sandbox.isolation.missing.map((m) => m.name ?? m).sort(), missing.sort());
    const result = await space.run(sandbox.id, 'id -un; python3 -c "print(6 * 7)"; ls /sys/class/net');
    assert.equal(result.stdout, 'root\n42\nlo\n');
    const [machine] = space.machines();
    for (const name of ['mnt', 'pid', 'net', 'ipc', 'uts', 'user'])
      assert.notEqual(fs.readlinkSync(`/proc/${machine}/ns/${name}`), fs.readlinkSync(`/proc/self/ns/${name}`), name);
    const inside = fs.readFileSync(`/proc/${machine}/status`, 'utf8');
    assert.match(inside, /^NoNewPrivs:\s+1$/m);
    assert.match(inside, /^Seccomp:\s+2$/m);
    assert.match(inside, /^CapEff:\s+0+$/m);

    const report = execFileSync(path.join(build, 'src/cli/space'), ['--url', space.url, 'doctor', '--json'],
      { encoding: 'utf8', env: { PATH: process.env.PATH, SPACE_API_KEY: space.key } });
    for (const name of missing) assert.ok(report.includes(name), `space doctor names ${name}`);
    await space.stopDaemon();
    await space.launch();
    assert.equal((await space.run(sandbox.id, 'echo still here')).stdout, 'still here\n');
  } finally { assert.deepEqual(await leftovers(space), []); }
});

test('require_jail refuses to start, and says what is missing', async () => {
  const space = new Space({ user, config: { require_jail: true } });
  space.makeState();
  try {
    await assert.rejects(space.launch(), (error) => {
      assert.match(error.message, /spaced ended/);
      for (const name of ['unique_uid', 'not_dumpable', 'require_jail']) assert.match(error.message, new RegExp(`cannot start.*\\b${name}\\b`));
      return true;
    });
    assert.deepEqual(space.machines(), []);
  } finally { await space.stop(); }
});
